"""The parts of containers and objects of the program, and other values in their places.

A part is an item of a list, tuple, dict or deque by its key, an attribute of an object, or what the
cell of a variable holds that inner functions read. Rounds of a loop carry what stands there as they
carry what a variable holds.
"""

from __future__ import annotations

import collections
import contextlib
import types
from typing import Any, NamedTuple

from tapegrad.observe.objects import plainly
from tapegrad.observe.objects.harmless import (
    HEAP_TYPE,
    is_numpys_module,
    is_pythons_class,
    module_of,
)
from tapegrad.observe.program.frames import MISSING
from tapegrad.primitives.base import Value

NUMBERED = (list, collections.deque)
KEYED = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)

# Methods, and functions of a container, that change it; and such that only look into it
CHANGING = {
    *("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "add"),
    *("discard", "popitem", "setdefault", "appendleft", "popleft", "extendleft", "rotate"),
    *("__setitem__", "__delitem__", "__iadd__", "__ior__", "__iand__", "__isub__", "__ixor__"),
    *("__imul__", "fill", "put", "partition", "resize", "setfield", "setflags", "itemset"),
    *("difference_update", "intersection_update", "symmetric_difference_update", "subtract"),
    *("byteswap", "__init__", "move_to_end", "__setstate__", "__setattr__", "__delattr__"),
    *("__imatmul__", "heappush", "heappop", "heapify", "heappushpop", "heapreplace"),
    *("_heapify_max", "_heappop_max", "_heapreplace_max", "heappush_max", "heappop_max"),
    *("heapify_max", "heappushpop_max", "heapreplace_max", "insort_left", "insort_right"),
    *("_count_elements", "setitem", "delitem", "pack_into"),
}
LOOKING = ("get", "keys", "values", "items", "index", "count", "copy", "__contains__", "__len__")


class Parts(NamedTuple):
    """What a container is like but for what it holds; and of each part its name, its key and what
    stands there."""

    told: tuple[Any, ...]
    held: list[tuple[str, Any, Any]]


def parts_of(x: Any) -> Parts | None:
    """The parts of a container, or of an object that has attributes; None of anything else."""
    kind: Any = type(x)
    if kind in (tuple, *NUMBERED) or (isinstance(x, tuple) and _is_named(kind)):
        told = kind, len(x), getattr(x, "maxlen", None)
        return Parts(told, [(f"[{k}]", k, value) for k, value in enumerate(x)])
    if kind in KEYED:
        if not all(type(key) in (str, int) for key in x):
            return None
        return Parts((kind, *x), [(f"[{key!r}]", key, value) for key, value in x.items()])
    if hasattr(kind, "_labels_first"):  # a Series or a DataFrame
        return Parts((kind, x._labels.key), [(f"[{k}]", k, v) for k, v in enumerate(x._branches)])
    if not is_open(kind):
        return None
    held = [(f".{name}", name, part(x, name)) for name in _names(x)]
    return Parts((kind, *[name for _, name, _ in held]), held)


def is_open(kind: type, name: str = "") -> bool:
    """Whether objects of a class are nothing but what their attributes are, which are set and found
    as those of any class that Python's statement makes; so is the one of this name."""
    module, slot = module_of(kind), plainly.found_in_class(kind, name)
    if type(slot) is not types.MemberDescriptorType and hasattr(type(slot), "__set__"):
        return False
    return kind is types.SimpleNamespace or (
        bool(kind.__flags__ & HEAP_TYPE)
        and not issubclass(kind, (type, BaseException, types.ModuleType, Value))
        and not plainly.looks_up_itself(kind)
        and plainly.base_of(kind) is None
        and is_pythons_class(kind)
        and not is_numpys_module(module)
        and not module.startswith("tapegrad.")
    )


def part(x: Any, key: Any) -> Any:
    """What stands in the place of a part; `MISSING` if nothing does."""
    try:
        if type(x) in KEYED or type(x) in NUMBERED:
            return x[key] if type(x) in NUMBERED or key in x else MISSING
        if type(x) is types.CellType:
            return x.cell_contents
        own = plainly.own_names(x) or {}
        slot = plainly.found_in_class(type(x), key)
        held = type(slot) is types.MemberDescriptorType
        return slot.__get__(x) if held else own.get(key, MISSING)
    except (IndexError, AttributeError, ValueError):  # the last one of an empty cell
        return MISSING


def put(x: Any, key: Any, value: Any) -> None:
    """Let another value stand there."""
    slot = plainly.found_in_class(type(x), key) if type(key) is str else None
    if type(x) in KEYED or type(x) in NUMBERED:
        x[key] = value
    elif type(x) is types.CellType:
        x.cell_contents = value
    elif type(slot) is types.MemberDescriptorType:
        slot.__set__(x, value)
    else:
        plainly.own_names(x)[key] = value


def content(x: Any) -> Any:
    """What a variable holds, if this is its cell and isn't empty; else x itself."""
    found = part(x, "cell_contents") if type(x) is types.CellType else MISSING
    return x if found is MISSING else found


def _names(x: Any) -> list[str]:
    """The attributes that an object has of its own, those in slots included."""
    slots = [
        (name, slot)
        for kind in type(x).__mro__
        for name, slot in vars(kind).items()
        if type(slot) is types.MemberDescriptorType
    ]
    found = dict.fromkeys(plainly.own_names(x) or ())
    for name, slot in slots:
        with contextlib.suppress(AttributeError):  # it is empty
            slot.__get__(x)
            found[name] = None
    return list(found)


def _is_named(kind: type) -> bool:
    """Whether objects of a class of tuples are nothing else beside: named tuples."""
    return kind.__base__ is tuple and hasattr(kind, "_fields") and kind.__dictoffset__ == 0
