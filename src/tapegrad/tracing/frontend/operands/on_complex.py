"""Functions of complex numbers, composed of functions of their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.core.handlers import quiet
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.complexes import cartesian, imag, real
from tapegrad.primitives.kinked import hypot
from tapegrad.primitives.stated import Known


def size_of(z: Any) -> Any:
    """|z|"""
    return hypot(real(z), imag(z))


def by_parts(f: Callable[[Any], Any], z: Any) -> Any:
    """f(x) + i f(y) for z = x + iy"""
    return cartesian(f(real(z)), f(imag(z)))


def sign_of(z: Any) -> Any:
    """NumPy's sign of complex numbers: z / |z|, its limit where |z| is infinite, and 0 at 0."""
    size, parts = size_of(z), [real(z), imag(z)]
    endless = np.isinf(size)
    safe = np.where(endless | (size == 0), 1, size)
    both = endless & np.isinf(parts[0]) & np.isinf(parts[1])
    ends = [np.where(both, np.nan, np.where(np.isinf(x), ew.sign(x), 0)) for x in parts]
    units = [np.where(size == 0, 0, x / safe) for x in parts]
    return cartesian(*[np.where(endless, *xs) for xs in zip(ends, units, strict=True)])


def _choice(beats: np.ufunc, unless: int) -> Callable[[Any, Any], Any]:
    """A function that returns the larger or smaller of two complex numbers.

    The real parts are compared, and the imaginary parts where these are equal. A tie is split in
    halves. The first number is also chosen where the operand at position `unless` is NaN."""

    @quiet
    def chosen(x: Any, y: Any) -> Any:
        is_first = beats(x, y) | np.isnan((x, y)[unless])
        found = np.where(is_first, x, y)
        return Known()(found, np.where(np.equal(x, y), 0.5 * (x + y), found))

    return chosen


CHOICES = {
    np.maximum: _choice(np.greater_equal, 0),
    np.minimum: _choice(np.less_equal, 0),
    np.fmax: _choice(np.greater_equal, 1),
    np.fmin: _choice(np.less_equal, 1),
}
