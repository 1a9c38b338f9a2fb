"""Numerical recipes of NumPy as compositions: differences, integrals, interpolation, convolution,
polynomials, covariances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.complexes import conjugated
from tapegrad.primitives.correlation import Correlate
from tapegrad.primitives.scatter import ScatterAdd
from tapegrad.primitives.stated import Known
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import in_rows, lay_out_as, scalar
from tapegrad.tracing.frontend.operands.on_complex import by_parts
from tapegrad.tracing.frontend.operands.operands import as_operand, as_tracer, cast, common_dtype
from tapegrad.tracing.frontend.operands.parameters import one_of
from tapegrad.tracing.tracers.tracer import Tracer


def _along(axis: int, k: Any) -> tuple[Any, ...]:
    """The index with `k` at an axis, and slices before it."""
    return (*(slice(None),) * axis, k)


# ---- grids


@stands_for(np, of_complex=True)
def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """np.linspace: `start + k * step`, with `stop` itself at the end."""
    num = num.__index__()
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    real = common_dtype(as_operand(start), as_operand(stop), 0.0)
    start, stop = as_tracer(start, stop), as_tracer(stop, start)
    start, stop = np.broadcast_arrays(cast(start, real), cast(stop, real))
    parts = num - 1 if endpoint else num
    step = (stop - start) / parts if parts > 0 else start * np.nan
    k = np.arange(num, dtype=real).reshape((num,) + (1,) * start.ndim)
    moved = k * (step if parts > 0 else stop - start)
    if parts > 0:  # a step may underflow to 0
        moved = np.where(np.any(step == 0), k / parts * (stop - start), moved)
    found = moved + start
    if endpoint and num > 1:
        found[-1] = stop
    found = np.moveaxis(found, 0, axis)
    if dtype is not None:
        whole = np.dtype(dtype).kind in "iu"
        found = (np.floor(found) if whole else found).astype(dtype, copy=False)
    return (found, step) if retstep else found


# ---- differences and integrals


@stands_for(np, of_complex=True)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """np.gradient."""
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    f = as_tracer(f, *varargs)
    if f.dtype.kind in "iu":
        f = cast(f, np.float64)
    axes = range(f.ndim) if axis is None else normalize_axis_tuple(axis, f.ndim)
    spacings = list(varargs) or [1.0]
    if len(spacings) == 1 and (np.ndim(spacings[0]) == 0 or len(axes) == 1):
        spacings *= len(axes)
    if len(spacings) != len(axes):
        raise TypeError("invalid number of arguments")
    found = [_gradient(f, k, dx, edge_order) for k, dx in zip(axes, spacings, strict=True)]
    found = [lay_out_as(g, f, "K") for g in found]
    return found[0] if len(found) == 1 else tuple(found)


def _gradient(f: Any, axis: int, dx: Any, edge_order: int) -> Any:
    """Central differences of second order inside, and one-sided ones at the edges."""
    n = f.shape[axis]
    if n < edge_order + 1:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) "
            "elements are required."
        )
    uniform = np.ndim(dx) == 0
    if uniform:
        steps: Any = np.full(n - 1, 1.0) * dx
    else:
        if np.shape(dx) != (n,):
            raise ValueError(
                "when 1d, distances must match the length of the corresponding dimension"
            )
        steps = np.diff(dx)
        if np.all(steps == steps[0]):
            uniform, dx = True, steps[0]

    def at(k: Any) -> Any:
        return f[_along(axis, slice(k, k + 1) if k != -1 else slice(-1, None))]

    def rows(values: Any) -> Any:
        return np.reshape(values, [-1 if k == axis else 1 for k in range(f.ndim)])

    h, g = steps[:-1], steps[1:]
    inside: Any = (
        rows(-g / (h * (h + g))) * f[_along(axis, slice(None, -2))]
        + rows((g - h) / (h * g)) * f[_along(axis, slice(1, -1))]
        + rows(h / (g * (h + g))) * f[_along(axis, slice(2, None))]
    )
    if uniform:  # without the middle element, which may be infinite
        inside = (f[_along(axis, slice(2, None))] - f[_along(axis, slice(None, -2))]) / (2.0 * dx)
    if edge_order == 1:
        first = (at(1) - at(0)) / steps[0]
        last = (at(-1) - at(-2)) / steps[-1]
    else:
        h, g = steps[0], steps[1]
        first = (
            at(0) * (-(2.0 * h + g) / (h * (h + g)))
            + at(1) * ((h + g) / (h * g))
            - at(2) * (h / (g * (h + g)))
        )
        h, g = steps[-2], steps[-1]
        last = (
            at(-3) * (g / (h * (h + g)))
            - at(-2) * ((g + h) / (h * g))
            + at(-1) * ((2.0 * g + h) / (g * (h + g)))
        )
    return cast(np.concatenate([first, inside, last], axis), f.dtype)


# ---- interpolation, convolution, counting


@stands_for(np)
def interp(
    x: Any, xp: Any, fp: Any, below: Any = None, above: Any = None, period: Any = None
) -> Any:
    """np.interp: piecewise linear. At a node the slope is that of the interval to its right. If the
    nodes decrease, all points are outside: NumPy first tests for points above the last node."""
    given = x, xp, fp, below, above, period
    x, xp, fp = (cast(as_tracer(v, *given), np.float64) for v in given[:3])
    if not xp.size:
        raise ValueError("array of sample points is empty")
    if period is not None:
        if period == 0:
            raise ValueError("period must be a non-zero value")
        if xp.ndim != 1 or fp.ndim != 1:
            raise ValueError("Data points must be 1-D sequences")
        if xp.shape[0] != fp.shape[0]:
            raise ValueError("fp and xp are not of the same length")
        period = np.abs(period)
        x, xp, below, above = np.mod(x, period), np.mod(xp, period), None, None
        order = np.argsort(xp)
        xp, fp = xp[order], fp[order]
        xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = np.concatenate([fp[-1:], fp, fp[:1]])
    _check_ordered(xp)
    if x.ndim == 0:  # a scalar index would be guarded
        return scalar(interp(np.reshape(x, 1), xp, fp, below, above)[0])
    k = np.clip(np.searchsorted(xp, x, side="right") - 1, 0, max(xp.size - 2, 0))
    after = np.minimum(k + 1, xp.size - 1)
    width = xp[after] - xp[k]
    low, high = fp[k], fp[after]
    slope = (high - low) / np.where(width == 0, 1.0, width)
    line = slope * (x - xp[k]) + low
    # Infinite values: interpolate from the node above, or take the value of both nodes if they are
    # equal; at a node take its own value.
    back = slope * (x - xp[after]) + high
    back = np.where(np.isnan(back) & (low == high), low, back)
    value = np.where(np.isnan(line) & (x == x), back, line)
    inside = Known()(np.where(x == xp[k], low, value), line)
    below, above = fp[0] if below is None else below, fp[-1] if above is None else above
    inside = np.where(x >= xp[-1], fp[-1], inside)
    return scalar(np.where(x > xp[-1], above, np.where(x < xp[0], below, inside)))


def _check_ordered(xp: Any) -> None:
    """Guard the order of the nodes. For unordered nodes NumPy's result depends on the points
    searched before, so they are refused."""
    trace = xp._trace
    idle = trace.idle and trace.stands is None
    if not trace.alive or idle or xp._read()[1] is None or xp.size < 2:
        return
    steps: Any = np.diff(xp)
    falls: Any = np.any(steps < 0)
    if trace.idle:  # traced without values
        trace.guard(falls, False, "the order of the points of np.interp", fixed=True)
        return
    if falls._value and np.any(steps._value > 0):
        raise trace.refused(
            UnsupportedError(
                f"np.interp is asked for points xp that neither increase nor decrease{at_line()}: "
                "NumPy's result is meaningless there. Sort them: order = np.argsort(xp), and "
                "np.interp(x, xp[order], fp[order])"
            )
        )
    wrong = np.any(steps > 0) if falls._value else falls
    trace.guard(wrong, False, "the order of the points of np.interp")


@stands_for(np, of_complex=True)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """np.convolve."""
    a, v = np.atleast_1d(as_tracer(a, v), as_tracer(v, a))
    if a.size < v.size:
        a, v = v, a
    return _correlation(a, v[::-1], mode)


@stands_for(np, of_complex=True)
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """np.correlate."""
    a, v = as_tracer(a, v), as_tracer(v, a)
    return _correlation(a, conjugated(v), mode)


def _correlation(a: Any, v: Any, mode: str) -> Any:
    """The sums of products of `v` with windows of `a`, of full or partial overlap. NumPy moves the
    shorter array, and reverses the result if that is `a`."""
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError("object too deep for desired array")
    if a.size == 0 or v.size == 0:
        raise ValueError("a and v cannot be empty")
    mode = one_of(mode, "valid", "same", "full")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    (n, m), dtype = (a.size, v.size), common_dtype(a, v)
    long, short = max(n, m), min(n, m)
    before = {"full": short - 1, "same": short // 2, "valid": 0}[mode]
    count = {"full": n + m - 1, "same": long, "valid": long - short + 1}[mode]
    if n < m:
        before = count - 1 - before
    return Correlate(before, count)(cast(a, dtype), cast(v, dtype))


@stands_for(np)
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """np.bincount. The largest index is guarded, since it determines the length."""
    x = as_tracer(x, weights)
    if x.ndim != 1:
        depth = "small" if x.ndim == 0 else "deep"
        raise ValueError(f"object of too {depth} depth for desired array")
    if not np.can_cast(x.dtype, np.intp):
        raise TypeError(
            f"Cannot cast array data from {x.dtype!r} to dtype('int64') according to the rule "
            "'safe'"
        )
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    if x.size == 0:
        return np.zeros_like(x, dtype=np.intp, shape=minlength)
    if np.min(x) < 0:
        raise ValueError("'list' argument must have no negative elements")
    length = max(int(np.max(x)) + 1, int(minlength))
    if weights is None:
        return ScatterAdd((length,))(np.ones_like(x, dtype=np.intp), cast(x, np.intp))
    return ScatterAdd((length,))(cast(as_tracer(weights, x), np.float64), cast(x, np.intp))


# ---- polynomials


@stands_for(np, of_complex=True)
def polymul(a1: Any, a2: Any) -> Any:
    """np.polymul."""
    return np.convolve(_coefficients(as_tracer(a1, a2)), _coefficients(as_tracer(a2, a1)))


def _coefficients(a: Any) -> Any:
    """The coefficients of a polynomial from the first nonzero one on. Its position is guarded."""
    a = np.atleast_1d(a)
    if a.ndim > 1:
        raise ValueError("Polynomial must be 1d only.")
    trimmed = np.trim_zeros(a, trim="f")
    return trimmed if trimmed.size else np.zeros_like(a, shape=1)


@stands_for(np, of_complex=True)
@in_rows
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """np.vander."""
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    n = x.shape[0] if N is None else int(N)
    if n < 0:
        raise ValueError("negative dimensions are not allowed")
    x = cast(x, np.promote_types(x.dtype, int))
    columns = [np.ones_like(x)]
    for _ in range(n - 1):
        columns.append(columns[-1] * x)
    matrix = np.stack(columns, -1) if n else np.zeros_like(x, shape=(x.shape[0], 0))
    return matrix if increasing else matrix[:, ::-1]


# ---- statistics


@stands_for(np, of_complex=True)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """np.corrcoef."""
    c: Any = np.cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    size = np.sqrt(np.diag(c))
    ratio = c / size[:, None] / size[None, :]
    # Only rounding exceeds the bounds, so the derivative is that without the clip.
    if ratio.dtype.kind == "c":
        return by_parts(_bounded, ratio)
    return _bounded(ratio)


def _bounded(x: Any) -> Any:
    return Known()(np.clip(x, -1, 1), x)


@stands_for(np, of_complex=True, lists="condlist choicelist")
@in_rows
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """np.select: the choice of the first condition that holds."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if len(condlist) == 0:
        raise ValueError("select with an empty condition list is not possible")
    condlist, choicelist = ([*map(as_operand, xs)] for xs in (condlist, choicelist))
    default = as_operand(default)
    for k, condition in enumerate(condlist):
        if np.result_type(condition) != np.bool_:
            raise TypeError(f"invalid entry {k} in condlist: should be boolean ndarray")
    dtype = common_dtype(*choicelist, default)
    result = default if isinstance(default, Tracer) else np.asarray(default, dtype)
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = np.where(condition, choice, result)
    return cast(result, dtype)


@stands_for(np, of_complex=True)
def sinc(x: Any) -> Any:
    """np.sinc: sin(pi x) / (pi x). Near 0, where derivatives of the quotient lose digits, its
    Taylor series is used, of which 24 derivatives are accurate."""
    if x.dtype.kind not in "fc":
        x = cast(x, np.float64)
    y = np.pi * x
    near = np.abs(y) < 1
    series: Any = 0.0
    square = np.square(np.where(near, y, 0.0))
    for k in range(12, 0, -1):
        series = (1.0 + series) * square * (-1 / (2 * k * (2 * k + 1)))
    safe = np.where(near, 1.0, y)
    return scalar(np.where(near, 1.0 + series, np.sin(safe) / safe))
