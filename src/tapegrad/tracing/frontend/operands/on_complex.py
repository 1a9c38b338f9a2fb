"""What functions of real numbers are of complex ones, by their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.complexes import cartesian, imag, real
from tapegrad.primitives.kinked import hypot


def size_of(z: Any) -> Any:
    """|z|"""
    return hypot(real(z), imag(z))


def by_parts(f: Callable[[Any], Any], z: Any) -> Any:
    """f(x) + i f(y) for z = x + iy"""
    return cartesian(f(real(z)), f(imag(z)))


def sign_of(z: Any) -> Any:
    """z / |z|, the limit where |z| is infinite, and 0 at 0: NumPy's sign of complex numbers."""
    size, parts = size_of(z), [real(z), imag(z)]
    endless = np.isinf(size)
    safe = np.where(endless | (size == 0), 1, size)
    both = endless & np.isinf(parts[0]) & np.isinf(parts[1])
    ends = [np.where(both, np.nan, np.where(np.isinf(x), ew.sign(x), 0)) for x in parts]
    units = [np.where(size == 0, 0, x / safe) for x in parts]
    return cartesian(*[np.where(endless, *xs) for xs in zip(ends, units, strict=True)])
