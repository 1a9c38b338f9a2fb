"""The parts of the program's containers and objects, and setting them.

A part is an item of a list, tuple, dict or deque, an attribute of an object, or the content of a
variable's cell. Loops may carry parts from round to round, as they carry variables.
"""

from __future__ import annotations

import collections
import contextlib
import types
from typing import Any, NamedTuple

from tapegrad.observe.objects import inspection
from tapegrad.observe.objects.purity import (
    HEAP_TYPE,
    is_numpys_module,
    is_pythons_class,
    module_of,
)
from tapegrad.observe.program.frames import MISSING
from tapegrad.primitives.base import Value

NUMBERED = (list, collections.deque)
KEYED = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)

# Methods and functions that change a container; and methods that only read it.
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
    """The structure of a container without its parts; and each part's name, key and value."""

    told: tuple[Any, ...]
    held: list[tuple[str, Any, Any]]


def parts_of(x: Any) -> Parts | None:
    """The parts of a container, or of an object with attributes; None for anything else."""
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
    """Whether objects of a class consist of their attributes alone, which are set and found as in
    any ordinary Python class; with `name`, also that attribute."""
    module, slot = module_of(kind), inspection.found_in_class(kind, name)
    if type(slot) is not types.MemberDescriptorType and hasattr(type(slot), "__set__"):
        return False
    return kind is types.SimpleNamespace or (
        bool(kind.__flags__ & HEAP_TYPE)
        and not issubclass(kind, (type, BaseException, types.ModuleType, Value))
        and not inspection.looks_up_itself(kind)
        and inspection.base_of(kind) is None
        and is_pythons_class(kind)
        and not is_numpys_module(module)
        and not module.startswith("tapegrad.")
    )


def part(x: Any, key: Any) -> Any:
    """The value of a part; `MISSING` if there is none."""
    try:
        if type(x) in KEYED or type(x) in NUMBERED:
            return x[key] if type(x) in NUMBERED or key in x else MISSING
        if type(x) is types.CellType:
            return x.cell_contents
        own = inspection.own_names(x) or {}
        slot = inspection.found_in_class(type(x), key)
        held = type(slot) is types.MemberDescriptorType
        return slot.__get__(x) if held else own.get(key, MISSING)
    except (IndexError, AttributeError, ValueError):  # ValueError: an empty cell
        return MISSING


def put(x: Any, key: Any, value: Any) -> None:
    """Set a part."""
    slot = inspection.found_in_class(type(x), key) if type(key) is str else None
    if type(x) in KEYED or type(x) in NUMBERED:
        x[key] = value
    elif type(x) is types.CellType:
        x.cell_contents = value
    elif type(slot) is types.MemberDescriptorType:
        slot.__set__(x, value)
    else:
        inspection.own_names(x)[key] = value


def content(x: Any) -> Any:
    """The content of `x` if it is a cell that isn't empty; else `x` itself."""
    found = part(x, "cell_contents") if type(x) is types.CellType else MISSING
    return x if found is MISSING else found


def _names(x: Any) -> list[str]:
    """The names of an object's own attributes, including those in slots."""
    slots = [
        (name, slot)
        for kind in type(x).__mro__
        for name, slot in vars(kind).items()
        if type(slot) is types.MemberDescriptorType
    ]
    found = dict.fromkeys(inspection.own_names(x) or ())
    for name, slot in slots:
        with contextlib.suppress(AttributeError):  # an empty slot
            slot.__get__(x)
            found[name] = None
    return list(found)


def _is_named(kind: type) -> bool:
    """Whether a class is a named tuple, whose objects have no other attributes."""
    return kind.__base__ is tuple and hasattr(kind, "_fields") and kind.__dictoffset__ == 0
