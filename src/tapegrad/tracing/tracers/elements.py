"""Reads and writes of elements of one-dimensional arrays: the most frequent operations of loops.

`x[k]` and `x[k] = y`, for a Python integer k, are recorded here in the simple case: the elements
are known, the written array is no view, and `y` is a scalar of its dtype. All other cases use the
general code (`frontend.indexing.indexing`, `frontend.indexing.writes`), which records the same
calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Literal
from tapegrad.observe.observer import following
from tapegrad.observe.program.source import is_told, source_at
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem
from tapegrad.tracing.operators.inline_cache import made, seen
from tapegrad.tracing.recording.layout import laid_out_like

CACHED_ELEMENTS = 10_000  # entries of each cache
_getframe, _gettrace, _settrace = sys._getframe, sys.gettrace, sys.settrace
_READS: dict[int, GetItem] = {}
_WRITES: dict[int, SetItem] = {}
# By the id of an array's type, which is kept alive: the type of an element, and its tracer's class
_ELEMENTS: dict[int, tuple[Aval, Aval, type]] = {}


def note_element(whole: Aval, aval: Aval, cls: type) -> None:
    """Cache the type and class of the elements of one-dimensional arrays of the type `whole`."""
    if len(_ELEMENTS) >= CACHED_ELEMENTS:
        _ELEMENTS.clear()
    _ELEMENTS[id(whole)] = whole, aval, cls


def _at(views: dict[int, Any], kind: Any, k: int) -> Any:
    """The primitive `kind((k,))`, from the cache `views`."""
    view = views.get(k)
    if view is None:
        if len(views) >= CACHED_ELEMENTS:
            views.clear()
        view = views[k] = kind((k,))
    return view


def reading(numpys: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`__getitem__`, with `numpys` as the general case."""

    def __getitem__(self: Any, index: Any) -> Any:
        if following.unwatched:
            return seen(numpys(self, index))
        follower = _gettrace()  # inlined `unobserved`, which saves a call
        if follower is not None:
            here = following.observer
            if here is None or follower is not here.follower or here.enters:
                follower = None
            else:
                _settrace(None)
        try:
            if type(index) is int:
                found = _read(self, index, _getframe(1))
                if found is not None:
                    return found
            return numpys(self, index)
        finally:
            if follower is not None:
                _settrace(follower)

    return __getitem__


def writing(numpys: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    """`__setitem__`, with `numpys` as the general case."""

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        follower = _gettrace()
        if follower is not None:
            here = following.observer
            if here is None or follower is not here.follower or here.enters:
                follower = None
            else:
                _settrace(None)
        try:
            if type(index) is not int or not _written(self, index, value, _getframe(1)):
                numpys(self, index, value)
        finally:
            if follower is not None:
                _settrace(follower)

    return __setitem__


def _read(x: Any, k: int, frame: Any) -> Any:
    """`x[k]`; None if it isn't the simple case."""
    trace, root, value, whole = x._trace, x._root, x._value, x._aval
    known = _ELEMENTS.get(id(whole))
    if (
        known is None
        or value is None
        or (x._doubt if root is None else x._version != root._version or root._doubt)
        or not trace.alive
        or trace.inside is not None
        or trace.src is not None
        or not is_told(frame.f_code.co_filename)
    ):
        return None
    extent = whole.shape[0]
    if k < 0:
        k += extent
    if not 0 <= k < extent:
        return None
    _, aval, cls = known
    view = _at(_READS, GetItem, k)
    return made(trace, view, (x._operand,), aval, source_at(frame), cls, value[k])


def _written(x: Any, k: int, given: Any, frame: Any) -> bool:
    """Do `x[k] = given` in the simple case. Returns whether it was done."""
    trace, value, whole = x._trace, x._value, x._aval
    known = _ELEMENTS.get(id(whole))
    if (
        known is None
        or value is None
        or x._root is not None
        or x._doubt
        or not trace.alive
        or trace.inside is not None
        or trace.src is not None
        or trace.writable is not None
        or trace.locked
        or not is_told(frame.f_code.co_filename)
    ):
        return False
    extent = whole.shape[0]
    if k < 0:
        k += extent
    if not 0 <= k < extent:
        return False
    _, aval, cls = known
    y: Any = given
    operand: Any
    if type(given) is cls:
        if y._trace is not trace or y._aval is not aval or y._value is None or y._doubt:
            return False
        operand, element = y._operand, y._value
    elif type(given) is float:
        element = aval.dtype.type(y)
        operand = Literal(element)
    else:
        return False
    view = _at(_WRITES, SetItem, k)
    del value
    alone = x._is_alone()
    value = x._value
    found = value if alone else np.array(value)
    found[k] = element
    src = source_at(frame)
    out = made(trace, view, (x._operand, operand), whole, src, type(x), None)
    trace.note_write(x, src)
    x._operand = out._operand
    if not alone:
        x._value = laid_out_like(found, value)
    x._version += 1
    return True
