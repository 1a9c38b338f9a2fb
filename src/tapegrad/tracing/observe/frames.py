"""The operands of the instruction that a frame is about to run.

CPython keeps them on the frame's stack, which it doesn't show to Python code. While a trace
function runs, the stack is in order and its height is stored, so it can be read in memory:

    PyFrameObject:         reference count, type, f_back, f_frame -> _PyInterpreterFrame
    _PyInterpreterFrame:   ... the function ..., the height (int32), local variables, stack

The layouts are those of CPython's `Include/internal/pycore_frame.h`. Before the first use they are
tried on a function whose operands are known; where that fails nothing is read, and what runs isn't
observed.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import sys
from types import FrameType, FunctionType
from typing import Any, NamedTuple

_object_at = ctypes.py_object.from_address
_word_at = ctypes.c_size_t.from_address
_int_at = ctypes.c_int32.from_address
_WORD = ctypes.sizeof(ctypes.c_size_t)
_F_FRAME = 3 * _WORD


class Layout(NamedTuple):
    """Offsets in an interpreter's frame, in bytes."""

    function: int
    height: int
    locals: int


_LAYOUTS = {
    (3, 11): Layout(0, 64, 72),
    (3, 12): Layout(16, 64, 72),
    (3, 13): Layout(16, 64, 72),
}
_layout = _LAYOUTS.get(sys.version_info[:2], _LAYOUTS[3, 11])
_FUNCTION, _HEIGHT, _LOCALS = _layout
_TOP = _LOCALS - _WORD


class Missing:
    """Stands for an empty entry of the stack."""


MISSING = Missing()


def address_of(frame: FrameType) -> int:
    """Where the interpreter keeps a frame that is running."""
    return _word_at(id(frame) + _F_FRAME).value


def function_of(address: int) -> Any:
    """The function that a frame runs."""
    try:
        return _object_at(address + _FUNCTION).value
    except ValueError:
        return None


def operand(address: int, k: int) -> Any:
    """The operand number `k`, counted from the top of the stack."""
    try:
        return _object_at(address + _TOP + _WORD * (_int_at(address + _HEIGHT).value - k)).value
    except ValueError:
        return MISSING


def operands(address: int) -> tuple[Any, Any]:
    """The upper two entries of the stack, the topmost last."""
    top = address + _TOP + _WORD * _int_at(address + _HEIGHT).value
    try:
        return _object_at(top - _WORD).value, _object_at(top).value
    except ValueError:
        return operand(address, 1), operand(address, 0)


def replace_top(address: int, x: Any) -> None:
    """Put another object on top of the stack."""
    place = _word_at(address + _TOP + _WORD * _int_at(address + _HEIGHT).value)
    old = ctypes.cast(place.value, ctypes.py_object)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
    place.value = id(x)
    ctypes.pythonapi.Py_DecRef(old)


def local(address: int, k: int) -> Any:
    """The entry number `k` of the local variables: a value, or the cell that holds it."""
    try:
        return _object_at(address + _LOCALS + _WORD * k).value
    except ValueError:
        return MISSING


def version_of(kind: type) -> ctypes.c_uint32 | None:
    """The number, in memory, that CPython gives a class anew after each change of it or of one that
    it inherits from; None where that isn't known. It is 0 until something is looked up."""
    if not has_versions():
        return None
    type.__getattribute__(kind, "__hash__")
    found = _version_at(id(kind) + _VERSION)
    return found if found.value else None


_version_at = ctypes.c_uint32.from_address
_VERSION = 48 * _WORD  # tp_version_tag in PyTypeObject


@functools.cache
def has_versions() -> bool:
    """Whether versions are where they should be: they follow what is done with a class."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in _LAYOUTS or _WORD != 8:
        return False
    upper = type("Upper", (), {})
    lower = type("Lower", (upper,), {})
    seen = []
    for change in (lambda: None, lambda: setattr(upper, "x", 1), lambda: delattr(upper, "x")):
        change()
        changed = _version_at(id(lower) + _VERSION).value
        type.__getattribute__(lower, "__hash__")
        seen += [changed, _version_at(id(lower) + _VERSION).value]
    first, second, third = seen[1::2]
    return 0 < first < second < third < first + 64 and all(x in (0, first) for x in seen[::2][:2])


@functools.cache
def readable() -> bool:
    """Whether this interpreter's frames are as they are described here."""
    known = sys.implementation.name == "cpython" and sys.version_info[:2] in _LAYOUTS
    if not known or _WORD != 8 or sys.gettrace() is not None:
        return False
    # Only words inside the frame are read here: its specials, and where its locals must be.
    first, second, free = object(), object(), object()
    found: list[bool] = []

    def probe(x: object, y: object) -> bool:
        return (x, free) == y

    def watch(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not probe.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] == dis.opmap["COMPARE_OP"]:
            at = address_of(frame)
            height = _int_at(at + _HEIGHT).value
            found.append(
                height == 5  # two parameters, a free variable, two operands
                and _word_at(at + _FUNCTION).value == id(probe)
                and _word_at(at + _LOCALS).value == id(first)
                and _word_at(at + _TOP + _WORD * height).value == id(second)
                and operand(at, 1) == (first, free)
                and isinstance(function_of(at), FunctionType)
            )
        return watch

    sys.settrace(watch)
    try:
        probe(first, second)
    finally:
        sys.settrace(None)
    return found == [True]
