"""np.pad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.primitives.base import Slice
from tapegrad.primitives.scatter import Concatenate, SetItem
from tapegrad.primitives.views import BroadcastTo, Place
from tapegrad.tracing.frontend.calling.library_code import borrowed
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import lay_out_as, unlinked
from tapegrad.tracing.frontend.operands.operands import as_tracer
from tapegrad.tracing.frontend.shapes.shaping import broadcast_to
from tapegrad.tracing.tracers.tracer import Tracer

_STATISTICS: dict[str, Callable[..., Any]] = {"mean": np.mean, "maximum": np.max, "minimum": np.min}


@stands_for(np, of_complex=True)
def pad(x: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Any:
    """np.pad. Modes without a faster form here run by NumPy's own code."""
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(a, pad_width.get(a - x.ndim, 0)) for a in range(x.ndim)]
        pad_width = [(w, w) if np.ndim(w) == 0 else w for w in pad_width]
    pad_width = np.asarray(pad_width)
    if pad_width.dtype.kind != "i":
        raise TypeError("`pad_width` must be of integral type.")
    if pad_width.size and pad_width.min() < 0:
        raise ValueError("index can't contain negative values")
    widths = [tuple(map(int, w)) for w in np.broadcast_to(pad_width, (x.ndim, 2))]
    for axis, (pair, n) in enumerate(zip(widths, x.shape, strict=True)):
        if n == 0 and any(pair) and mode != "constant":
            raise ValueError(
                f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'"
            )
    return lay_out_as(unlinked(_padded(x, widths, mode, kwargs), x), x, "A")


_by_numpys_code = borrowed(np.pad)
_OPTIONS = {
    **{"constant": "constant_values", "linear_ramp": "end_values"},
    **dict.fromkeys(("edge", "wrap", "empty"), ""),
    **dict.fromkeys(("reflect", "symmetric"), "reflect_type"),
    **dict.fromkeys(("maximum", "mean", "median", "minimum"), "stat_length"),
}


def _padded(x: Any, widths: list[tuple[int, ...]], mode: str, kwargs: dict[str, Any]) -> Any:
    unknown = {name for name in kwargs if _OPTIONS.get(mode, name) != name}
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {unknown}")
    if mode == "constant":
        return _pad_constant(x, widths, kwargs.get("constant_values", 0))
    if kwargs.get("reflect_type") == "even":
        del kwargs["reflect_type"]
    if mode in ("edge", "reflect", "symmetric", "wrap") and not kwargs:
        for axis, (before, after) in enumerate(widths):
            if before or after:
                picks = np.pad(np.arange(x.shape[axis]), (before, after), mode=mode)  # type: ignore[call-overload]
                ends = [_picked(x, axis, p) for p in (picks[:before], picks[len(picks) - after :])]
                if any(end is None for end in ends):
                    x = x[(slice(None),) * axis + (picks,)]
                else:
                    x = _pad_axis(x, axis, ends)
        return x
    if mode == "linear_ramp":
        return _pad_ramp(x, widths, kwargs.get("end_values", 0))
    if mode in _STATISTICS and not kwargs and (x.dtype.kind == "f" or mode != "mean"):
        statistic = _STATISTICS[mode]
        for axis, pair in enumerate(widths):
            value = statistic(x, axis=axis, keepdims=True)
            x = _pad_axis(x, axis, [_stretched(value, axis, width) for width in pair])
        return x
    return _by_numpys_code(x, widths, mode, **kwargs)


def _picked(x: Any, axis: int, picks: np.ndarray) -> Any:
    """The entries `picks` along an axis as a view, backwards where they are in falling order; None
    if they are neither one entry nor neighbours."""
    steps = {*np.diff(picks).tolist()} or {0}
    if len(steps) > 1 or not steps <= {-1, 0, 1}:
        return None
    step, count = steps.pop(), len(picks)
    first = int(picks[0]) if count else 0
    if not step:
        return _stretched(x[(slice(None),) * axis + (slice(first, first + 1),)], axis, count)
    last = first + step * count
    return x[(slice(None),) * axis + (slice(first, None if last < 0 else last, step),)]


def _stretched(value: Any, axis: int, extent: int) -> Any:
    """A value of extent 1 along an axis, repeated to `extent`."""
    return broadcast_to(value, [extent if a == axis else n for a, n in enumerate(value.shape)])


def _pad_axis(x: Any, axis: int, fillers: Sequence[Any]) -> Any:
    """`x` between its two fillers along an axis."""
    before, after = fillers
    parts = [p for p in (before, x, after) if p.shape[axis] or p is x]
    return Concatenate(axis)(*parts) if len(parts) > 1 else x


def _pad_constant(x: Any, widths: list[tuple[int, ...]], values: Any) -> Any:
    shape = tuple(n + sum(w) for n, w in zip(x.shape, widths, strict=True))
    index = tuple(Slice(w[0], n) for n, w in zip(x.shape, widths, strict=True))
    if not isinstance(values, Tracer) and np.ndim(values) == 0 and values == 0:
        return Place(shape, index)(x)
    values = as_tracer(values, x).astype(x.dtype)
    if values.ndim == 0:
        return SetItem(index)(BroadcastTo(shape)(values), x)
    ends = np.broadcast_to(values, (x.ndim, 2))
    for axis, pair in enumerate(widths):
        row = [n if a != axis else 1 for a, n in enumerate(x.shape)]
        fillers = [
            _stretched(broadcast_to(ends[axis, side], row), axis, width)
            for side, width in enumerate(pair)
        ]
        x = _pad_axis(x, axis, fillers)
    return x


def _pad_ramp(x: Any, widths: list[tuple[int, ...]], values: Any) -> Any:
    """Linear ramps from the edges to the end values."""
    ends = np.broadcast_to(as_tracer(values, x).astype(x.dtype), (x.ndim, 2))
    for axis, (before, after) in enumerate(widths):
        column = [-1 if a == axis else 1 for a in range(x.ndim)]
        edges = [x[(slice(None),) * axis + (k,)] for k in (slice(0, 1), slice(-1, None))]
        fillers = []
        for side, width in enumerate((before, after)):
            along = np.arange(width) / max(width, 1)  # 0 at the outer end
            along = (along if side == 0 else along[::-1]).astype(x.dtype).reshape(column)
            fillers.append(ends[axis, side] + (edges[side] - ends[axis, side]) * along)
        x = _pad_axis(x, axis, fillers)
    return x
