"""Helpers that the traceable functions of scipy.linalg share."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.extending import answers_of
from tapegrad.extending.arrays import as_tracer, floating, raise_if, stacked

HOME = "scipy.linalg"
answers = answers_of(HOME)


def checked(check_finite: Any, *xs: Any) -> list[Any]:
    """Traced operands in LAPACK's dtypes. Raises ValueError if they aren't finite and
    `check_finite`."""
    found = floating(*map(as_array, xs))
    for x in found if check_finite else ():
        raise_if(~np.all(np.isfinite(x)), "array must not contain infs or NaNs", ValueError)
    return found


def as_array(x: Any) -> Any:
    """x, as an array if it is a list or a tuple."""
    return np.asarray(x) if isinstance(x, (list, tuple)) else x


def shown(x: Any, *others: Any) -> Any:
    """An operand on the tape, of any dtype."""
    return as_tracer(as_array(x), *others)


def column_and_row(c_or_cr: Any, other: Any) -> Any:
    """The first column and the first row of a Toeplitz matrix. Without a given row it is the
    column's conjugate; a list is a column."""
    if isinstance(c_or_cr, tuple):
        return c_or_cr
    c = shown(stacked(c_or_cr), other)
    return c, np.conjugate(c)
