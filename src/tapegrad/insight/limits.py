"""Measured limits of this machine: memory bandwidth, and the speed of products."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from tapegrad.backends.host import HOST

BYTES = 1 << 25  # size of an array that fits into no cache
ROWS = 512  # rows of the product's factors
TRIES = 4  # stop after so many calls in a row that are no faster than an earlier one


class Limits(NamedTuple):
    """Bandwidth: bytes read and written in a second by a copy, on the threads of a kernel. Flops:
    additions and multiplications in a second of NumPy's float64 matrix product, on its own
    threads."""

    bandwidth: float
    flops: float


_most = Limits(0.0, 0.0)


def limits() -> Limits:
    """The limits of this machine: the maximum over all measurements of this process, including a
    new one, since other processes may have had the cores before."""
    global _most
    threads = HOST.threads_at_work
    x, y = [np.array_split(np.ones(BYTES // 8), threads) for _ in range(2)]
    a = np.ones((ROWS, ROWS))
    out = np.empty_like(a)
    with ThreadPoolExecutor(threads) as pool:
        copied = 2 * BYTES / _fastest(lambda: list(pool.map(np.copyto, y, x)))
    product = 2 * ROWS**3 / _fastest(lambda: np.matmul(a, a, out=out))
    _most = Limits(max(_most.bandwidth, copied), max(_most.flops, product))
    return _most


def _fastest(function: Callable[[], Any]) -> float:
    """The time of the fastest call, in seconds. Other processes may have the cores for a while, so
    calls repeat until none is faster."""
    best, since = float("inf"), 0
    while since < TRIES:
        start = time.perf_counter()
        function()
        taken = time.perf_counter() - start
        since = 0 if taken < 0.99 * best else since + 1
        best = min(best, taken)
    return best
