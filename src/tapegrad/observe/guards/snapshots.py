"""Snapshots of the contents of objects, to tell whether a call has changed them.

A call may fill in missing parts: an attribute that was None, a key that a dict didn't have. Calls
that cache results do so, and repeating them makes no difference. They may also replace an object or
array by an equal one.
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.lookups import slots_of
from tapegrad.observe.objects import inspection
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    MAPPINGS,
    PLAIN_TYPES,
    is_extensions,
    is_inside,
)
from tapegrad.primitives.base import Value

MAX_SNAPSHOT = 20_000  # maximal number of objects in a snapshot

Parts = dict[Hashable, Any]


class Holding:
    """A snapshot of all objects reachable from some objects by attributes and items."""

    def __init__(self, objects: Sequence[Any]) -> None:
        self.objects = objects
        self.held: dict[int, Any] = {}  # keeps the ids unique
        self.told: dict[int, Any] = {}  # by id: an object's parts, or its value if it has none
        todo = [*objects]
        while todo and len(self.held) <= MAX_SNAPSHOT:
            x = todo.pop()
            if id(x) not in self.held:
                self.held[id(x)] = x
                parts = _parts_of(x)
                self.told[id(x)] = _value_of(x) if parts is None else parts
                todo += reversed([*(parts or {}).values()])

    def is_now(self) -> bool:
        """Whether the contents are unchanged, except for parts that were filled in."""
        return self.is_in(Holding(self.objects))

    def is_in(self, now: Holding) -> bool:
        """Whether the same contents are in `now`, in the same places; `now` may have more."""
        place: dict[int, int] = {}  # the id of the counterpart of each object
        todo = [*zip(self.objects, now.objects, strict=True)]
        while todo:
            x, y = todo.pop()
            if x is None:
                continue
            before, after = self.told.get(id(x)), now.told.get(id(y))
            if not isinstance(before, dict) or not isinstance(after, dict):
                if before != after:
                    return False
                if isinstance(x, np.ndarray) and place.setdefault(id(x), id(y)) != id(y):
                    return False
            elif id(x) not in place:
                place[id(x)] = id(y)
                grows = type(x) in MAPPINGS or type(x) not in CONTAINERS
                if type(x) is not type(y) or not before.keys() <= after.keys():
                    return False
                if not grows and len(before) != len(after):
                    return False
                todo += [(before[key], after[key]) for key in before]
            elif place[id(x)] != id(y):
                return False
        return True


def is_equal_object(x: Any, y: Any) -> bool:
    """Whether two objects of a package have exactly the same contents."""
    if type(x) is not type(y) or not is_inside(type(x)):
        return False
    first, second = Holding([x]), Holding([y])
    return first.is_in(second) and second.is_in(first)


def _value_of(x: Any) -> Any:
    if type(x) in PLAIN_TYPES:
        return type(x), repr(x)
    held = dispatch.plain(x) if isinstance(x, Value) else x  # of an array that the run has made
    if isinstance(held, np.ndarray):
        which = id(x) if held.dtype.hasobject else 0
        return which, held.shape, held.dtype, held.strides, inspection.checksum(held)
    return id(x)


def _parts_of(x: Any) -> Parts | None:
    """An object's parts, by where they are: items, attributes and slots. None for an object that is
    compared by value or by identity."""
    kind: Any = type(x)
    if kind in PLAIN_TYPES or isinstance(x, (type, types.ModuleType, types.FunctionType)):
        return None
    found: Parts = {}
    own = is_inside(kind) and not isinstance(x, np.ndarray)
    base = inspection.base_of(kind)
    if base is not None:
        keys = list(inspection.elements(x))
        if base in MAPPINGS:
            found = {_key(key): inspection.item(x, key) for key in keys}
        elif issubclass(base, (set, frozenset)):
            found = {_key(key): key for key in keys}
        else:
            found = dict(enumerate(keys))
    held = inspection.own_names(x)
    if type(held) is dict:
        found |= {("attr", name): value for name, value in held.items()}
    if own:
        found |= {("slot", name): getattr(x, name, None) for name in slots_of(kind)}
    if not found and is_extensions(kind):  # its contents can't be seen
        return None
    return found if own or base is not None or type(held) is dict else None


def _key(key: Any) -> Hashable:
    return (type(key), repr(key)) if type(key) in PLAIN_TYPES else id(key)
