"""Statistics of samples: SciPy's own code, run on traced arrays.

Most of these functions are Python in terms of NumPy's, along the last axis, behind a decorator that
brings the samples there, and looks for NaNs. Its part is done here: an axis, several axes or none,
and `keepdims`. NaNs propagate; another `nan_policy` is refused.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
from scipy import stats

from tapegrad.scipy.borrowing import borrow
from tapegrad.scipy.declaring import answering, any_traced
from tapegrad.tracing.answers import declare
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.frontend import borrowing
from tapegrad.tracing.tracer import Tracer

HOME = "scipy.stats"

# Without the decorator: as they stand.
borrow(HOME, "zscore zmap gzscore gstd describe quantile")

_REDUCED = """
    gmean hmean pmean tmean tvar tmin tmax tsem sem skew kurtosis moment kstat trim_mean iqr
    median_abs_deviation variation circmean circvar circstd
"""
_TOO_FEW = {"sem": 1}  # so many have no statistic, as none have in all others


def _last(x: Any, axis: Any) -> Any:
    """A sample along the last axis."""
    x = x if isinstance(x, Tracer) else np.asarray(x)
    if axis is None:
        return np.reshape(x, -1)
    axes = axis if isinstance(axis, tuple) else (axis,)
    count = len(axes)
    x = np.moveaxis(x, axes, range(-count, 0))
    kept = x.shape[: x.ndim - count]
    return np.reshape(x, (*kept, math.prod(x.shape[x.ndim - count :])))


def _restored(found: Any, ndim: int, axis: Any) -> Any:
    """A result with axes of length 1 in the place of those that are gone."""
    axes = tuple(range(ndim)) if axis is None else axis
    return np.expand_dims(found, axes)


def _reducing(name: str) -> None:
    original = getattr(stats, name, None)
    if original is None or not hasattr(original, "__wrapped__"):
        return
    own = borrowing.borrowed(original, inspect.unwrap(original))
    theirs, inner = inspect.signature(original), inspect.signature(inspect.unwrap(original))
    sample = next(iter(theirs.parameters))

    def along(*args: Any, **kwargs: Any) -> Any:
        bound = theirs.bind(*args, **kwargs).arguments
        axis = bound.pop("axis", theirs.parameters["axis"].default)
        keepdims = bound.pop("keepdims", False)
        x = dispatch.as_operand(bound.pop(sample))
        ndim = x.ndim
        given = {"axis": -1} if "axis" in inner.parameters else {}
        weights = bound.get("weights")
        if weights is not None:
            bound["weights"] = _last(np.broadcast_to(weights, np.shape(x)), axis)
        last = _last(x, axis)
        if last.shape[-1] <= _TOO_FEW.get(name, 0):
            found: Any = np.full(last.shape[:-1], np.nan)
        else:
            found = own(last, **bound, **given)
            if last.dtype.kind == "f":
                found = np.where(np.any(np.isnan(last), axis=-1), np.nan, found)
        return _restored(found, ndim, axis) if keepdims else found

    shown = [p for key, p in theirs.parameters.items() if key != "nan_policy"]
    along.__signature__ = theirs.replace(parameters=shown)  # type: ignore[attr-defined]
    declare(stats, name, answering(along, original, f"{HOME}.{name}"), when=any_traced)


for _name in _REDUCED.split():
    _reducing(_name)
