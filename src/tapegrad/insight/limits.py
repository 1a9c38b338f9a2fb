"""What this machine can do at most, measured once a process: bytes to and from memory, products."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

BYTES = 1 << 25  # of an array, which no core's cache holds
ROWS = 512  # of the product's factors
TRIES = 8  # calls in a row, none of which is faster than those before


class Limits(NamedTuple):
    """Bytes that are copied in a second, read and written; and additions and multiplications in a
    second of NumPy's product of float64 matrices, on the threads that it takes."""

    bandwidth: float
    flops: float


@cache
def limits() -> Limits:
    """Those of this machine."""
    x, y = np.ones(BYTES // 8), np.ones(BYTES // 8)
    a = np.ones((ROWS, ROWS))
    out = np.empty_like(a)
    copied = 2 * x.nbytes / _fastest(lambda: np.copyto(y, x))
    return Limits(copied, 2 * ROWS**3 / _fastest(lambda: np.matmul(a, a, out=out)))


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
