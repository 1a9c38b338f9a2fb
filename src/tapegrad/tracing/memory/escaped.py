"""Made arrays that remain where no search looks: in caches in C, log records, partial functions and
errors.

They hold plain numbers, and represent arrays in a trace. When the trace is over, each is replaced
by its plain array wherever it is held. Python's garbage collector knows the holders.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import gc
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from tapegrad.core.values import Value
from tapegrad.observe.objects.inspection import own_names
from tapegrad.observe.operands.holders import slots_of
from tapegrad.observe.program import frames
from tapegrad.tracing.memory.created import left_over

_word_at = ctypes.c_size_t.from_address
_WORD = ctypes.sizeof(ctypes.c_size_t)


def give_back() -> None:
    """Replace all made arrays whose trace has ended by their plain arrays."""
    left = left_over()
    if not left or not frames.is_described():
        return
    plain = {id(x): x._value for x in left}
    for holder in gc.get_referrers(*left):
        if holder is not left and not isinstance(holder, Value):
            _put(holder, plain)
    for var, x in contextvars.copy_context().items():
        if id(x) in plain:
            var.set(plain[id(x)])


def put_in_cache(cache: Any, x: Any, plain: Any) -> None:
    """Replace a value in the cache of a functools.lru_cache function by a plain one."""
    _put(cache, {id(x): plain})
    for held in gc.get_referents(cache):
        if type(held) is dict and held is not cache.__dict__:
            _put_items(held, [*held.items()], {id(x): plain})


def _put(holder: Any, plain: dict[int, Any]) -> None:
    """Replace the values of one holder; `plain` are the replacements, by the ids of the old
    values."""
    kind: Any = type(holder)
    if isinstance(holder, dict):
        _put_items(holder, [*dict.items(holder)], plain)
    elif isinstance(holder, (list, deque)):
        for k, x in enumerate([*holder]):
            if id(x) in plain:
                holder[k] = plain[id(x)]
    elif kind is types.CellType:
        holder.cell_contents = plain[id(holder.cell_contents)]
    elif own := own_names(holder):
        _put_items(own, [*own.items()], plain)
    for place in slots_of(kind):
        with contextlib.suppress(AttributeError):  # it may be empty
            if id(x := place.__get__(holder)) in plain:
                place.__set__(holder, plain[id(x)])
    frame = holder.gi_frame if kind is types.GeneratorType else holder
    if isinstance(frame, types.FrameType):
        address = frames.address_of(frame)
        for k in range(frames.live(address)):
            if (key := frames.word(frames.place_of(address, k))) in plain:
                frames.set_local(address, k, plain[key])
    for at in _words(holder):
        if (key := _word_at(at).value) in plain:
            frames.replace_word(at, plain[key])


def _put_items(held: dict[Any, Any], items: Iterable[tuple[Any, Any]], plain: Any) -> None:
    for key, x in items:
        if id(x) not in plain:
            continue
        if "__module__" not in held:
            dict.__setitem__(held, key, plain[id(x)])
            continue
        for kind in gc.get_referrers(held):  # a class caches its attribute look-ups
            if isinstance(kind, type) and vars(kind).get(key) is x:
                setattr(kind, key, plain[id(x)])


def _words(holder: Any) -> Iterator[int]:
    """The addresses of an object's references, if its kind is known."""
    kind: Any = type(holder)
    if isinstance(holder, tuple):
        first = id(holder) + tuple.__basicsize__
        yield from range(first, first + _WORD * tuple.__len__(holder), _WORD)
    elif kind in _HOLDING:
        yield from _body(holder)
    elif kind is functools._lru_cache_wrapper:
        for held in gc.get_referents(holder):
            for entry in held.values() if type(held) is dict else ():
                if type(entry).__name__.endswith("_lru_list_elem"):
                    yield from _body(entry)


def _body(x: Any) -> Iterable[int]:
    """The addresses of its words behind the reference count and the type."""
    return range(id(x) + object.__basicsize__, id(x) + type(x).__basicsize__, _WORD)


_HOLDING = {functools.partial, type(iter([])), type(iter(())), enumerate, zip, map, filter}
