"""Methods of ufuncs: reduce, accumulate, outer and at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.errors import UnsupportedError
from tapegrad.primitives.extrema import LogSumExp
from tapegrad.tracing.frontend import nans, reducing
from tapegrad.tracing.frontend.operands import as_tracer, cast, promoted
from tapegrad.tracing.frontend.parameters import form_of, plain_parameter, taken
from tapegrad.tracing.frontend.scattering import ufunc_at
from tapegrad.tracing.source import at_line

_MISSING = np._NoValue


def _log_sum_exp(x: Any, axis: Any, keepdims: Any) -> Any:
    """logaddexp.reduce."""
    return reducing.reduced(LogSumExp, x, axis, keepdims)


def _root_of_squares(x: Any, axis: Any, keepdims: Any) -> Any:
    """hypot.reduce."""
    return np.sqrt(reducing.sum(np.square(x), axis, None, None, keepdims))


def _folded(ufunc: np.ufunc, neutral: float, fold: Callable[..., Any]) -> Callable[..., Any]:
    """reduce of a function that has no primitive of its own."""

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
    """accumulate of an associative function: the reach of each element doubles, step by step."""

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


def ufunc_method(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """`ufunc.reduce`, `.accumulate`, `.outer` and `.at`."""
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
    if method == "accumulate" and ufunc in _ACCUMULATE:
        (x,) = inputs
        if np.ndim(x) == 0:
            raise TypeError("cannot accumulate on a scalar")
        axis = plain_parameter(kwargs.get("axis", 0), inputs)
        return _ACCUMULATE[ufunc](as_tracer(x, *kwargs.values()), axis, kwargs.get("dtype"))
    if method == "outer":
        x, y = inputs
        x = as_tracer(x, y)
        return ufunc(np.reshape(x, x.shape + (1,) * np.ndim(y)), y, **kwargs)
    if method == "at":
        return ufunc_at(ufunc, *inputs)
    raise UnsupportedError(
        f"np.{ufunc.__name__}.{method} isn't supported on traced arrays{at_line()}"
    )
