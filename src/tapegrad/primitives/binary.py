"""The binary representation of floating-point numbers: exponents of 2, and neighbouring numbers.

NumPy computes these functions between kernels.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tapegrad.ir.traits import Algebra
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.complexes import cartesian, imag, real
from tapegrad.primitives.elementwise import FUNCTION, stop_gradient
from tapegrad.primitives.extrema import Max
from tapegrad.primitives.kinked import absolute, maximum
from tapegrad.primitives.views import ExpandDims


def _exponent(x: Any) -> Any:
    return np.frexp(x)[1]


def _ldexp(n: Any, x: Any) -> Any:
    return np.ldexp(x, n)


# The n with |x| = m 2^n and 1/2 <= m < 1.
exponent = Elementwise(
    _exponent, name="exponent", scalar="", dtype=np.int32, cost=FUNCTION, numpy="np.frexp({0})[1]"
)

# x 2^n for an integer n. Exact even if 2^n alone would overflow or underflow.
ldexp: Elementwise = Elementwise(
    _ldexp,
    name="ldexp",
    scalar="",
    times=lambda t, out, n, x: (None, ldexp(n, t)),
    cost=FUNCTION,
    numpy="np.ldexp({1}, {0})",
    algebra=Algebra(linear=(1,)),
)

# The number next to x in the direction of y. Its distance from x is piecewise constant.
nextafter = Elementwise(np.nextafter, lambda out, x, y: (1, None), scalar="", cost=FUNCTION)

# The distance from x to the next number.
spacing = Elementwise(np.spacing, scalar="", cost=FUNCTION)


def size_of(x: Any, axes: tuple[int, ...]) -> Any:
    """The n with 2^n just above the largest absolute value along `axes`, which are kept."""
    parts = (real(x), imag(x)) if x.dtype.kind == "c" else (x,)
    sizes = [Max(axes)(absolute(stop_gradient(part))) for part in parts]
    return exponent(ExpandDims(axes)(functools.reduce(maximum, sizes)))


def shifted(n: Any, x: Any) -> Any:
    """x 2^n, exactly."""
    if x.dtype.kind != "c":
        return ldexp(n, x)
    return cartesian(ldexp(n, real(x)), ldexp(n, imag(x)))
