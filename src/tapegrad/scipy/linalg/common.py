"""What the answers to scipy.linalg's functions have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.extending import answers_of
from tapegrad.extending.arrays import as_tracer, floating, raise_if, stacked

HOME = "scipy.linalg"
answers = answers_of(HOME)


def checked(check_finite: Any, *xs: Any) -> list[Any]:
    """Operands traced, in LAPACK's dtypes; a ValueError if they aren't finite and SciPy looks."""
    found = floating(*map(as_array, xs))
    for x in found if check_finite else ():
        raise_if(~np.all(np.isfinite(x)), "array must not contain infs or NaNs", ValueError)
    return found


def as_array(x: Any) -> Any:
    """Lists as arrays."""
    return np.asarray(x) if isinstance(x, (list, tuple)) else x


def shown(x: Any, *others: Any) -> Any:
    """An operand on the tape, whatever it holds."""
    return as_tracer(as_array(x), *others)


def column_and_row(c_or_cr: Any, other: Any) -> Any:
    """Of a matrix with constant diagonals, whose row is the column's conjugate where none is given;
    a list is a column."""
    if isinstance(c_or_cr, tuple):
        return c_or_cr
    c = shown(stacked(c_or_cr), other)
    return c, np.conjugate(c)
