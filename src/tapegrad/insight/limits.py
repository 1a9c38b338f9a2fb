"""What this machine can do at most, measured once a process: bytes to and from memory, products."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

BYTES = 1 << 25  # of an array, which no core's cache holds
ROWS = 512  # of the product's factors


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
    """The seconds of the fastest of a few calls."""
    taken = []
    for _ in range(6):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return min(taken)
