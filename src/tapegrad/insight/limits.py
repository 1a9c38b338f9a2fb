"""What this machine can do at most, as far as seen: bytes to and from memory, products."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from tapegrad.backends.host import HOST

BYTES = 1 << 25  # of an array, which no core's cache holds
ROWS = 512  # of the product's factors
TRIES = 4  # calls in a row, none of which is faster than those before


class Limits(NamedTuple):
    """Bytes that are copied in a second, read and written, on the threads of a kernel; and
    additions and multiplications in a second of NumPy's product of float64 matrices, on the threads
    that it takes."""

    bandwidth: float
    flops: float


_most = Limits(0.0, 0.0)


def limits() -> Limits:
    """Those of this machine: the largest that this process has seen, measured once more. Another
    process may have had the cores before."""
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
    """The seconds of the fastest call: another process may have the cores for some time, so calls
    go on until none is faster any more."""
    best, since = float("inf"), 0
    while since < TRIES:
        start = time.perf_counter()
        function()
        taken = time.perf_counter() - start
        since = 0 if taken < 0.99 * best else since + 1
        best = min(best, taken)
    return best
