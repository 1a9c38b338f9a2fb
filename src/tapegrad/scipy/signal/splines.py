"""Splines on points that are equally far apart, of their coefficients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.scipy.declaring import refusal, stands_for
from tapegrad.tracing.frontend.operands import as_tracer
from tapegrad.tracing.source import at_line

HOME = "scipy.signal"


@stands_for(HOME)
def cspline1d_eval(cj: Any, newx: Any, dx: Any = 1.0, x0: Any = 0) -> Any:
    """Of third degree."""
    return _sum(cj, newx, dx, x0, 4, _cubic).astype(cj.dtype, copy=False)


@stands_for(HOME)
def qspline1d_eval(cj: Any, newx: Any, dx: Any = 1.0, x0: Any = 0) -> Any:
    """Of second degree."""
    if cj.dtype.kind == "c":
        raise TypeError("qspline1d_eval: SciPy adds no complex coefficients to real numbers")
    return _sum(cj, newx, dx, x0, 3, _quadratic).astype((newx / 1.0).dtype, copy=False)


def _sum(
    coefficients: Any, x: Any, dx: Any, x0: Any, count: int, bump: Callable[[Any], Any]
) -> Any:
    """The sum of c_j bump(x - j) over the `count` j at which it isn't 0, with the first and the last
    coefficient beyond the ends, at the points (x - x0) / dx.

    Points outside are mirrored at the ends 0 and n - 1, until they are inside.
    """
    n = len(coefficients)
    if n < 2:
        raise refusal(
            f"a spline of {n} coefficients can't be traced{at_line()}, which SciPy has no values "
            "of but one. Pass two or more"
        )
    x = (x - x0) / dx
    x = np.where(x < 0, -x, x) % (2.0 * (n - 1))
    x = np.where(x > n - 1, 2 * (n - 1) - x, x)
    first = np.floor(x - count / 2).astype(np.intp) + 1
    coefficients, total = as_tracer(coefficients, x), 0.0
    for k in range(count):
        j = first + k
        total = total + coefficients[np.clip(j, 0, n - 1)] * bump(x - j)
    return total


def _cubic(x: Any) -> Any:
    x = np.abs(x)
    inside = 2 / 3 - x**2 * (1 - x / 2)
    return np.where(x < 1, inside, np.where(x < 2, (2 - x) ** 3 / 6, 0.0))


def _quadratic(x: Any) -> Any:
    x = np.abs(x)
    return np.where(x < 0.5, 0.75 - x**2, np.where(x < 1.5, (1.5 - x) ** 2 / 2, 0.0))
