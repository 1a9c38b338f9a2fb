"""Views of views of arrays: a chain of them, down from the array, and up when one is written to.

Names: `record` records a call; `below` is what a view is of.
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
    """A view whose place values say: a window, and its steps, which are tracers."""

    window: Window
    steps: tuple[Any, ...]


Step = View | Chosen | Elementwise  # an elementwise one shows a part of complex numbers


def show(view: Any, root: Any, chain: tuple[Step, ...]) -> None:
    """A tracer is a view from now on: what these steps show of the tracer that owns the memory."""
    view._root, view._chain, view._version = root, chain, root._version
    note_view(view)


def note_view(view: Any) -> None:
    """Its root knows its views, as long as somebody has them. They are found by their addresses,
    which those that are gone leave to others."""
    root = view._root
    if root is None:
        return
    views = getattr(root, "_views", None)
    if views is None:
        views = root._views = {}
    views[id(view)] = weakref.ref(view)


def views_of(root: Any) -> list[Any]:
    """The views of an array that somebody still has."""
    found = [view() for view in list(getattr(root, "_views", {}).values())]
    return [x for x in found if x is not None and x._root is root]


def shown(view: Any, value: np.ndarray) -> Any:
    """What a view shows of a plain array, in the memory of that."""
    return getattr(value, view.name) if view in _PARTS else view.evaluate(value)


_PARTS = (complexes.real, complexes.imag)


def viewed(record: Record, trace: Any, view: Step, below: Any) -> Any:
    """The view of an array."""
    window, steps = view if isinstance(view, Chosen) else (view, ())
    out = record(trace, window, [below, *steps])
    if view in _PARTS and isinstance(below._value, np.ndarray):
        out._value = shown(view, below._value)
    return out


def unviewed(record: Record, trace: Any, view: Step, below: Any, new: Any) -> Any:
    """`below` after its view `view(below)` has become `new`."""
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
    """Whether NumPy lets a view by these views be written to."""
    return not any(isinstance(view, _READ_ONLY) for view in chain)
