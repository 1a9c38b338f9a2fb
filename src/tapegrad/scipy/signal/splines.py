"""Splines on equidistant points: their coefficients, and their values elsewhere."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.extending import any_traced, at_line, refusal, stands_for
from tapegrad.extending.arrays import Tracer, as_tracer
from tapegrad.scipy.borrowing import borrow, kernels
from tapegrad.scipy.stencils import correlated, padded

HOME = "scipy.signal"


@stands_for(HOME)
def cspline1d_eval(cj: Any, newx: Any, dx: Any = 1.0, x0: Any = 0) -> Any:
    """The values of a cubic spline."""
    cj, newx = _arrays(cj, newx)
    if cj.dtype.kind not in "fc":
        raise TypeError("cspline1d_eval: SciPy adds no real numbers to integer coefficients")
    return _sum(cj, newx, dx, x0, 4, _cubic).astype(cj.dtype, copy=False)


@stands_for(HOME)
def qspline1d_eval(cj: Any, newx: Any, dx: Any = 1.0, x0: Any = 0) -> Any:
    """The values of a quadratic spline."""
    cj, newx = _arrays(cj, newx)
    if cj.dtype.kind == "c":
        raise TypeError("qspline1d_eval: SciPy adds no complex coefficients to real numbers")
    return _sum(cj, newx, dx, x0, 3, _quadratic).astype((newx / 1.0).dtype, copy=False)


def _arrays(*xs: Any) -> list[Any]:
    return [x if isinstance(x, Tracer) else np.asarray(x) for x in xs]


def _sum(
    coefficients: Any, x: Any, dx: Any, x0: Any, count: int, bump: Callable[[Any], Any]
) -> Any:
    """The sum of c_j bump(x - j) at the points (x - x0) / dx, over the `count` j where bump isn't
    0. Beyond the ends c_j is the first or the last coefficient.

    Points outside are reflected at the ends 0 and n - 1 until they are inside.
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


@stands_for(HOME)
def sepfir2d(input: Any, hrow: Any, hcol: Any) -> Any:
    """An image convolved with `hrow` along its rows and `hcol` along its columns; outside it is
    reflected."""
    input, hrow, hcol = _arrays(input, hrow, hcol)
    if input.ndim != 2 or hrow.ndim != 1 or hcol.ndim != 1:
        raise ValueError("object of too small depth for desired array")
    if not (len(hrow) % 2 and len(hcol) % 2):
        raise ValueError("hrow and hcol must be odd length")
    n, m = len(hcol) // 2, len(hrow) // 2
    if input.size and (input.shape[0] < 2 * n or input.shape[1] < 2 * m):
        raise refusal(
            f"scipy.signal.sepfir2d of an image of shape {input.shape}, smaller than its filters, "
            f"can't be traced{at_line()}: SciPy reads memory beyond it. Use "
            "scipy.ndimage.convolve1d along each axis"
        )
    wide = padded(input, [(n, n), (m, m)], "symmetric")
    out = correlated(correlated(wide, hcol[::-1, None]), hrow[None, ::-1])
    return out.astype(input.dtype, copy=False) if input.dtype.kind in "fc" else out


# ---- initial states of SciPy's recursive filters: sums that SciPy truncates by their size


def _start(name: str) -> Callable[..., Any]:
    """The initial state as a sum over the first (or last) elements of each row. Its weights are
    SciPy's sums for unit vectors. The number of terms depends on the filter, which can't be
    traced."""
    at_end = name.endswith("bwd")

    def of(rows: Any, *filter: Any) -> Any:
        if any_traced(filter):
            raise refusal(
                f"a filter with a traced parameter can't be traced{at_line()}, where SciPy adds "
                "until what is left is too small. Use scipy.signal.lfilter"
            )
        original = getattr(importlib.import_module("scipy.signal._spline"), name)
        n = rows.shape[-1]
        taken = min(n, 64)
        while True:
            try:
                weights = original(np.eye(taken, dtype=rows.dtype), *filter)
                break
            except ValueError:
                if taken == n:
                    raise
                taken = min(n, 2 * taken)
        return (rows[..., n - taken :] if at_end else rows[..., :taken]) @ weights

    return of


def _along(filtered: Callable[..., Any], x: Any, *args: Any, axis: int = -1, **named: Any) -> Any:
    """A filter of rows, applied along an axis."""
    rows = np.moveaxis(x, axis, -1)
    out = filtered(np.reshape(rows, (-1, rows.shape[-1])), *args, **named)
    return np.moveaxis(np.reshape(out, rows.shape), -1, axis)


kernels("scipy.signal._spline_filters", {"symiirorder_nd": _along})
kernels(
    "scipy.signal._spline",
    {
        name: _start(name)
        for name in ("symiirorder1_ic", "symiirorder2_ic_fwd", "symiirorder2_ic_bwd")
    },
)
borrow(HOME, "qspline1d cspline1d qspline2d cspline2d spline_filter symiirorder1 symiirorder2")
