"""Slices whose traced bounds differ by a constant: `x[k:k + 3]`, `x[i * m:(i + 1) * m]`.

If the difference of the bounds is the same for all values of the integers in them, the slice is a
window that moves with them. NumPy clips a slice that reaches beyond the array, or counts negative
bounds from the end; so that the slice lies inside the array is guarded.

    start = i * m         4 i        stop - start = 4, so x[start:stop] is
    stop = (i + 1) * m    4 i + 4    window(x, start, index=(Slice(0, 4),))
"""

from __future__ import annotations

from typing import Any

from tapegrad.tracing.frontend.indexing.bounds import choice
from tapegrad.tracing.operators.integer_bounds import added, sum_of
from tapegrad.tracing.recording.trace import innermost
from tapegrad.tracing.tracers.tracer import Tracer


def moving(k: slice, x: Tracer, extent: int, axis: int) -> tuple[Any, int] | None:
    """The start of a slice of `x`, and its length; None if the length isn't constant, or the slice
    reaches beyond the array."""
    if not _is_whole(k.start) or not _is_whole(k.stop) or k.step not in (None, 1):
        return None
    trace = innermost([y for y in (x, k.start, k.stop) if isinstance(y, Tracer)])
    if any(trace.is_guarded(y) for y in (k.start, k.stop)):
        return None
    start, stop = (sum_of(trace, y._read()[0]) for y in (k.start, k.stop))
    apart = added(stop, start, -1)
    count = apart.pop(None, 0)
    if apart or not 0 < count <= extent:
        return None
    inside = (k.start >= 0) & (k.start <= extent - count)
    if inside._read()[1] is None or not inside._read()[1]:
        return None
    inside._trace.guard(inside, True, "whether a slice lies inside the array")
    return choice(k.start, extent, axis), count


def _is_whole(k: Any) -> bool:
    return isinstance(k, Tracer) and k.ndim == 0 and k.dtype.kind in "iu"
