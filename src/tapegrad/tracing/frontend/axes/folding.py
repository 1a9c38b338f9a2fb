"""Methods of ufuncs: reduce, reduceat, accumulate, outer and at.

Those of addition and its relatives are primitives, or a few calls. For any other ufunc, the
operation is recorded once for each element, in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.scatter import ScatterAdd
from tapegrad.primitives.softmax import LogSumExp
from tapegrad.tracing.frontend.axes import nans, reducing
from tapegrad.tracing.frontend.indexing.writes import check_traced, ufunc_at
from tapegrad.tracing.frontend.operands.memory import copy_of, scalar
from tapegrad.tracing.frontend.operands.operands import as_tracer, cast, mask_of, promoted
from tapegrad.tracing.frontend.operands.parameters import form_of, plain_parameter, taken
from tapegrad.tracing.loops.stacking import strong

_MISSING = np._NoValue


def _log_sum_exp(x: Any, axis: Any, keepdims: Any) -> Any:
    """logaddexp.reduce."""
    return reducing.reduced(LogSumExp, x, axis, keepdims)


def _root_of_squares(x: Any, axis: Any, keepdims: Any) -> Any:
    """hypot.reduce."""
    return np.sqrt(reducing.sum(np.square(x), axis, None, None, keepdims))


def _folded(ufunc: np.ufunc, neutral: float, fold: Callable[..., Any]) -> Callable[..., Any]:
    """`reduce` of a ufunc by the function `fold`. `neutral` is used for `where=`."""

    def reduce(
        x: Any,
        axis: Any = 0,
        dtype: Any = None,
        keepdims: Any = False,
        initial: Any = _MISSING,
        where: Any = _MISSING,
    ) -> Any:
        x = cast(x, np.dtype(dtype)) if dtype is not None else promoted(ufunc, x, x)[0]
        result = fold(reducing.selected(x, where, x.dtype.type(neutral)), axis, keepdims)
        return result if initial is _MISSING else ufunc(result, reducing.like(initial, result))

    return reduce


def _doubling(ufunc: np.ufunc) -> Callable[..., Any]:
    """`accumulate` of an associative ufunc, by recursive doubling."""

    def accumulate(x: Any, axis: int = 0, dtype: Any = None) -> Any:
        x = x if dtype is None else cast(x, np.dtype(dtype))
        axis = normalize_axis_index(axis, x.ndim)
        before, reach = (slice(None),) * axis, 1
        while reach < x.shape[axis]:
            head = x[(*before, slice(None, reach))]
            tail = ufunc(x[(*before, slice(reach, None))], x[(*before, slice(None, -reach))])
            x = np.concatenate([head, tail], axis)
            reach *= 2
        return x

    return accumulate


_REDUCE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: reducing.sum,
    np.multiply: reducing.prod,
    np.maximum: reducing.max,
    np.minimum: reducing.min,
    np.logical_and: reducing.all,
    np.logical_or: reducing.any,
    np.fmax: nans.nanmax,
    np.fmin: nans.nanmin,
    np.logaddexp: _folded(np.logaddexp, -np.inf, _log_sum_exp),
    np.hypot: _folded(np.hypot, 0.0, _root_of_squares),
}
_ACCUMULATE: dict[np.ufunc, Callable[..., Any]] = {
    np.add: reducing.cumsum,
    np.multiply: reducing.cumprod,
    **{f: _doubling(f) for f in (np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp)},
}


# ---- any ufunc, step by step


_OTHERWISE = (np.power, np.float_power, np.arctan2)


def _as_numpys(ufunc: np.ufunc, method: str, x: Any, *args: Any, **kwargs: Any) -> np.dtype:
    """The dtype of NumPy's result, from a call on at most one element along each axis; or NumPy's
    own error."""
    short = np.ones([min(n, 1) for n in x.shape], x.dtype)
    return getattr(ufunc, method)(short, *args, **kwargs).dtype


def _step_by_step(
    ufunc: np.ufunc,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: Any = False,
    initial: Any = _MISSING,
    where: Any = True,
) -> Any:
    """`ufunc(...ufunc(ufunc(x[0], x[1]), x[2])..., x[n - 1])` along axes."""
    if ufunc in _OTHERWISE:
        raise UnsupportedError(
            f"NumPy folds with np.{ufunc.__name__} several elements at a time on some processors, "
            f"which gives other results than one by one{at_line()}. Use functools.reduce"
            f"(np.{ufunc.__name__}, x), which goes one by one"
        )
    given: dict[str, Any] = (
        {} if initial is _MISSING else {"initial": None if initial is None else 1}
    )
    given |= {} if where is True else {"where": np.ones((1,) * x.ndim, bool)}
    dtype = _as_numpys(ufunc, "reduce", x, axis, dtype, keepdims=keepdims, **given)
    axes = reducing.axes_of(x, axis)

    def in_front(y: Any) -> Any:
        """`y` with the axes to reduce merged into the first one."""
        y = np.moveaxis(y, axes, range(len(axes)))
        kept = y.shape[len(axes) :]
        return y.reshape(math.prod(x.shape[k] for k in axes), *kept)

    rows, chosen = in_front(cast(x, dtype)), None
    if where is not True:
        chosen = in_front(np.broadcast_to(mask_of(where), x.shape))
    first = ufunc.identity if initial is _MISSING else initial
    begun = first is None or (initial is _MISSING and chosen is None and len(rows) > 0)
    if begun:
        found = rows[0]
    else:
        found = np.full_like(rows, reducing.like(first, rows), shape=rows.shape[1:])
    for k in range(begun, len(rows)):
        after = ufunc(found, rows[k])
        found = after if chosen is None else np.where(chosen[k], after, found)
    found = scalar(copy_of(found))
    return np.expand_dims(found, axes) if keepdims else found


def _accumulated(ufunc: np.ufunc, x: Any, axis: int = 0, dtype: Any = None) -> Any:
    """`accumulate` step by step: the results of all steps of `_step_by_step`."""
    dtype = _as_numpys(ufunc, "accumulate", x, axis, dtype)
    axis = normalize_axis_index(axis, x.ndim)
    rows = np.moveaxis(cast(x, dtype), axis, 0)
    steps = [rows[0]] if len(rows) else []
    for k in range(1, len(rows)):
        steps.append(ufunc(steps[-1], rows[k]))
    return np.stack(steps, axis) if steps else np.zeros_like(x, dtype=dtype)


def _reduced_at(ufunc: np.ufunc, x: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """`reduceat`: `reduce` from each index to the next, or one element if the next isn't larger."""
    if not x.ndim:
        raise TypeError("cannot reduceat on a scalar")
    axis = normalize_axis_index(axis, x.ndim)
    n = x.shape[axis]
    short = np.ones([m if k == axis else min(m, 1) for k, m in enumerate(x.shape)], x.dtype)
    dtype = ufunc.reduceat(short, indices, axis, dtype).dtype  # or NumPy's own error
    starts = np.asarray(indices, np.intp)
    ends = np.append(starts[1:], n)
    ends = np.where(starts < ends, ends, starts + 1)
    if ufunc is np.add and dtype.kind != "b" and starts.size:
        parts = [np.arange(a, b) for a, b in zip(starts, ends, strict=True)]
        owners = np.repeat(np.arange(len(starts)), ends - starts)
        rows = np.moveaxis(cast(x, dtype), axis, 0)[np.concatenate(parts)]
        add = ScatterAdd((len(starts), *rows.shape[1:]))
        sums = add(rows, as_tracer(owners, rows))
        if dtype.kind == "f":
            others = add(cast(~np.signbit(rows), dtype), as_tracer(owners, rows))
            sums = reducing.of_negative_zeros(sums, others == 0)
        return copy_of(np.moveaxis(sums, 0, axis), "C")
    along = (slice(None),) * axis
    found = [
        ufunc.reduce(cast(x, dtype)[(*along, slice(a, b))], axis, dtype)
        for a, b in zip(starts, ends, strict=True)
    ]
    return np.stack(found, axis) if found else cast(x, dtype)[(*along, slice(0, 0))].copy()


def _applied_at(ufunc: np.ufunc, x: Any, index: Any, *values: Any) -> None:
    """`at`. A repeated index is applied repeatedly, in order. The indices are guarded."""
    places = np.arange(x.size).reshape(x.shape)[plain_parameter(index, (x, *values))]
    flat = np.ravel(places)
    times = np.zeros(flat.size, int)  # earlier occurrences of each index
    order = np.argsort(flat, kind="stable")
    runs = np.flatnonzero(np.diff(flat[order], prepend=-1))
    times[order] = np.arange(flat.size) - np.repeat(runs, np.diff(runs, append=flat.size))
    others = [np.broadcast_to(as_tracer(v, x), places.shape).reshape(-1) for v in values]
    x = x if x.ndim else x.reshape(1)
    for k in range(np.max(times, initial=-1) + 1):
        (now,) = np.nonzero(times == k)
        at = np.unravel_index(flat[now], x.shape)
        after = ufunc(x[at], *[v[now] for v in others])
        x[at] = after if after.dtype.kind == "f" else cast(after, x.dtype)


def folded_dtype(ufunc: np.ufunc, x: Any, out: Any) -> Any:
    """The dtype in which reduce, accumulate and reduceat compute if only `out=` determines it; None
    if NumPy's default applies."""
    (target,) = out if isinstance(out, tuple) else (out,)
    if "?" in {types[-1] for types in ufunc.types if types[0] in "dl"}:
        return None
    return np.result_type(np.asarray(x).dtype if not hasattr(x, "dtype") else x, target)


def ufunc_method(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """`ufunc.reduce`, `reduceat`, `accumulate`, `outer` and `at`."""
    kwargs.pop("array", None)  # it is among `inputs`
    if method == "reduce" and ufunc in _REDUCE:
        (x,) = inputs
        given = {k: v for k, v in kwargs.items() if v is not None or k == "axis"}
        given.setdefault("axis", 0)
        x, dtype = as_tracer(x, *kwargs.values()), given.get("dtype")
        if dtype is not None and ufunc in (np.maximum, np.minimum, np.fmax, np.fmin):
            x = cast(x, given.pop("dtype"))
        logical = ufunc in (np.logical_and, np.logical_or)
        if logical and np.dtype(given.pop("dtype", bool)) != np.bool_:
            raise TypeError(f"np.{ufunc.__name__} has no loop for dtype={dtype}")
        _, given, _ = taken(form_of(_REDUCE[ufunc]), (x,), given)
        result = _REDUCE[ufunc](x, **given)
        if kwargs.get("initial", 0) is None and np.size(result) and not x.size:
            raise ValueError(
                f"zero-size array to reduction operation {ufunc.__name__} which has no identity"
            )
        return result
    if method == "accumulate":
        (x,) = inputs
        if np.ndim(x) == 0:
            raise TypeError("cannot accumulate on a scalar")
        axis = plain_parameter(kwargs.get("axis", 0), inputs)
        x, dtype = as_tracer(x, *kwargs.values()), kwargs.get("dtype")
        if ufunc in _ACCUMULATE:
            return _ACCUMULATE[ufunc](x, axis, dtype)
        return _accumulated(ufunc, x, axis, dtype)
    if method == "reduce":
        (x,) = inputs
        given = {k: plain_parameter(v, inputs) if k != "where" else v for k, v in kwargs.items()}
        return _step_by_step(ufunc, as_tracer(x, *kwargs.values()), **given)
    if method == "reduceat":
        x, indices = inputs
        axis = plain_parameter(kwargs.get("axis", 0), inputs)
        x = as_tracer(x, indices)
        return _reduced_at(ufunc, x, plain_parameter(indices, (x,)), axis, kwargs.get("dtype"))
    if method == "outer":
        x, y = (strong(as_tracer(x, *inputs)) for x in inputs)
        return ufunc(np.reshape(x, x.shape + (1,) * np.ndim(y)), y, **kwargs)
    if method == "at":
        if not isinstance(inputs[0], np.ndarray):
            raise TypeError("first operand must be array")
        check_traced(inputs[0], f"np.{ufunc.__name__}.at")
        added = ufunc in (np.add, np.subtract)
        return (ufunc_at if added else _applied_at)(ufunc, *inputs)
    raise UnsupportedError(
        f"np.{ufunc.__name__}.{method} isn't supported on traced arrays{at_line()}"
    )
