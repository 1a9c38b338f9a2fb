"""Chains of views: applied from an array down to a view of views, and undone upwards after a write.

Names: `record` records a call; `below` is the array that a view is of.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegrad.observe.program.source import at_line
from tapegrad.primitives import complexes
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.kinds import View
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import (
    BroadcastTo,
    Diagonal,
    ExpandDims,
    GetItem,
    Reshape,
    Squeeze,
    Transpose,
)
from tapegrad.primitives.windows import SetWindow, Window

Record = Callable[..., Any]


class Chosen(NamedTuple):
    """A view whose position is traced: a window, with tracers for its steps."""

    window: Window
    steps: tuple[Any, ...]


Step = View | Chosen | Elementwise  # an elementwise step shows a part of complex numbers


def show(view: Any, root: Any, chain: tuple[Step, ...]) -> None:
    """Make a tracer a view: of `root`, which owns the memory, by these steps."""
    view._root, view._chain, view._version = root, chain, root._version
    note_view(view)


def note_view(view: Any) -> None:
    """Register a view with its root, by a weak reference. The key is the view's id, which may be
    reused once the view is gone."""
    root = view._root
    if root is None:
        return
    views = getattr(root, "_views", None)
    if views is None:
        views = root._views = {}
    views[id(view)] = weakref.ref(view)


def views_of(root: Any) -> list[Any]:
    """The views of an array that are still alive."""
    found = [view() for view in list(getattr(root, "_views", {}).values())]
    return [x for x in found if x is not None and x._root is root]


def shown(view: Any, value: np.ndarray) -> Any:
    """The view of a plain array, in the same memory."""
    return getattr(value, view.name) if view in _PARTS else view.evaluate(value)


_PARTS = (complexes.real, complexes.imag)


def viewed(record: Record, trace: Any, view: Step, below: Any) -> Any:
    """The view of an array, recorded as a call."""
    window, steps = view if isinstance(view, Chosen) else (view, ())
    out = record(trace, window, [below, *steps])
    if view in _PARTS and isinstance(below._value, np.ndarray):
        out._value = shown(view, below._value)
    return out


def unviewed(record: Record, trace: Any, view: Step, below: Any, new: Any) -> Any:
    """The array `below` after its view, `view(below)`, was set to `new`."""
    if isinstance(view, Chosen):
        write = SetWindow(view.window.index, view.window.moves)
        return record(trace, write, [below, new, *view.steps])
    if view in _PARTS:
        parts = [new if part is view else record(trace, part, [below]) for part in _PARTS]
        whole = record(trace, complexes.cartesian, parts)
        whole._value = None if whole._value is None else np.asarray(whole._value)
        return whole
    if isinstance(view, GetItem):
        return record(trace, SetItem(view.index), [below, new])
    if isinstance(view, Transpose):
        return record(trace, Transpose(tuple(map(int, np.argsort(view.axes)))), [new])
    if isinstance(view, Reshape):
        return record(trace, Reshape(below.shape), [new])
    if isinstance(view, ExpandDims):
        return record(trace, Squeeze(view.axes), [new])
    if isinstance(view, Squeeze):
        return record(trace, ExpandDims(view.axes), [new])
    assert isinstance(view, _READ_ONLY)
    instead = ". Use np.fill_diagonal" if isinstance(view, Diagonal) else ""
    raise ValueError(f"assignment destination is read-only{at_line()}{instead}")


_READ_ONLY = (BroadcastTo, Diagonal)


def is_writeable(chain: Sequence[Step]) -> bool:
    """Whether NumPy allows writes to a view by this chain."""
    return not any(isinstance(view, _READ_ONLY) for view in chain)
