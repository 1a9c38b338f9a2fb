"""Indices that are out of bounds.

NumPy raises an error, and the function may catch it and go on. So being out of bounds is a guarded
branch: a call whose index is within bounds is retraced. The opposite case, an index that is newly
out of bounds, is found when the call runs, which is then retraced, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.tracing.frontend.operands.operands import cast
from tapegrad.tracing.recording.trace import current_trace, innermost
from tapegrad.tracing.tracers.tracer import Tracer

_WHAT = "whether an index is out of bounds"


def integer(k: Any, extent: int, axis: int) -> int:
    """An index as a plain integer within bounds. A traced one is guarded."""
    if not hasattr(k, "__index__") or (isinstance(k, Tracer) and k.dtype.kind not in "iu"):
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
            f"boolean arrays are valid indices, not {k!r}"
        )
    at = k.__index__()
    if not -extent <= at < extent:
        raise IndexError(f"index {at} is out of bounds for axis {axis} with size {extent}")
    return at + extent if at < 0 else at


def choice(k: Tracer, extent: int, axis: int) -> Any:
    """A traced index as int64 that isn't guarded, so that it may differ between calls and rounds.
    Raises NumPy's error if it is out of bounds. In a test `a and b`, the indices of `b` may be
    arbitrary where `a` doesn't hold."""
    at = k._read()[1]
    k = cast(k, np.int64)
    trace = current_trace()
    if trace is not None and trace.holds is not None and at is not None:
        bounds = k._trace.bounds.get(k._operand)
        chosen: Any = np.where(trace.holds, k, np.int64(at))
        k = chosen[()]
        if bounds is not None:
            k._trace.bounds[k._operand] = bounds
    if at is not None and not -extent <= int(at) < extent:
        out: Any = np.logical_or(k < -extent, k >= extent)
        out._trace.guard(out, True, _WHAT)
        raise IndexError(f"index {at} is out of bounds for axis {axis} with size {extent}")
    return k


def note_beyond(x: Any, arrays: Sequence[Any]) -> None:
    """Guard that one of the index arrays, of which there is one for each of the first axes of `x`,
    is out of bounds, as NumPy has found."""
    out: Any = False
    for k, extent in zip(arrays, x.shape, strict=False):
        out = np.logical_or(out, np.any((k < -extent) | (k >= extent)))
    if isinstance(out, Tracer) and out._read()[1]:
        out._trace.guard(out, True, _WHAT)
        innermost([y for y in (x, *arrays) if isinstance(y, Tracer)]).raised = ""
