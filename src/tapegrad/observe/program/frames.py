"""The operands of the instruction that a frame is about to run.

CPython keeps them on the frame's stack, which it doesn't show to Python code. Before an instruction
runs the stack is consistent, so it can be read from memory:

    PyFrameObject:         reference count, type, f_back, f_frame -> _PyInterpreterFrame
    _PyInterpreterFrame:   ... the function ..., local variables, stack

The layouts are those of CPython's `Include/internal/pycore_frame.h`. `stack_heights.py` computes
the stack's height. Before the first use, all of this is tried on a function whose operands are
known (`watching.py`). If that fails nothing is read from memory, and runs aren't observed.
"""

from __future__ import annotations

import ctypes
import functools
import opcode
import operator
import sys
from types import FrameType, FunctionType
from typing import Any, NamedTuple

_object_at = ctypes.py_object.from_address
_word_at = ctypes.c_size_t.from_address
_WORD = ctypes.sizeof(ctypes.c_size_t)
_F_FRAME = 3 * _WORD


class Layout(NamedTuple):
    """Offsets in an interpreter's frame, in bytes."""

    function: int
    globals: int
    names: int  # the dict of a frame's variables, if one was made
    top: int  # the number of variables and stack entries in use; -1 while the frame computes
    locals: int


_LAYOUTS = {
    (3, 11): Layout(0, 8, 24, 64, 72),
    (3, 12): Layout(16, 24, 40, 64, 72),
    (3, 13): Layout(16, 24, 40, 64, 72),
}
_layout = _LAYOUTS.get(sys.version_info[:2], _LAYOUTS[3, 11])
_FUNCTION, _GLOBALS, _NAMES, _TOP, _LOCALS = _layout


def is_described() -> bool:
    """Whether this interpreter's memory layout is known. In free-threaded builds, and in debug
    builds, objects begin with more than two words."""
    known = sys.implementation.name == "cpython" and sys.version_info[:2] in _LAYOUTS
    return known and _WORD == 8 and object.__basicsize__ == 2 * _WORD


class Missing:
    """The type of `MISSING`, which represents an empty entry of the stack."""


MISSING = Missing()


def address_of(frame: FrameType) -> int:
    """The address of a running frame's interpreter frame."""
    return _word_at(id(frame) + _F_FRAME).value


def function_of(address: int) -> Any:
    """The function that a frame runs."""
    try:
        return _object_at(address + _FUNCTION).value
    except ValueError:
        return None


def top_of(height: int) -> int:
    """The offset of the topmost of `height` variables and stack entries in a frame."""
    return _LOCALS + _WORD * (height - 1)


def count_of(top: int) -> int:
    """The number of variables and stack entries up to the offset `top`: the inverse of `top_of`."""
    return (top - _LOCALS) // _WORD + 1


def live(address: int) -> int:
    """The number of variables and stack entries in use in a frame that has called Python code or is
    suspended. It is -1 if the frame is computing, or has called C code."""
    return ctypes.c_int.from_address(address + _TOP).value


def place_of(address: int, k: int) -> int:
    """The address of number `k` among a frame's variables and the stack entries behind them."""
    return address + _LOCALS + _WORD * k


def names_of(address: int) -> Any:
    """The dict of a frame's variables, if it has one that isn't its module's."""
    at, known = _word_at(address + _NAMES).value, _word_at(address + _GLOBALS).value
    return _object_at(address + _NAMES).value if at and at != known else None


def operand(top: int, k: int) -> Any:
    """The operand number `k`, counted from the top of the stack; `MISSING` if the entry is
    empty."""
    try:
        return _object_at(top - _WORD * k).value
    except ValueError:
        return MISSING


def operand_at(top: int, k: int) -> int:
    """The address of operand number `k`."""
    return top - _WORD * k


def operands(top: int) -> tuple[Any, Any]:
    """The two topmost entries of the stack, the topmost last."""
    try:
        return _object_at(top - _WORD).value, _object_at(top).value
    except ValueError:
        return operand(top, 1), operand(top, 0)


def entry(top: int, k: int) -> Any:
    """The same as `operand`, but faster for entries that are often empty."""
    at = top - _WORD * k
    return _object_at(at).value if _word_at(at).value else MISSING


def upper(top: int, count: int, above: int = 0) -> list[Any]:
    """A list of `count` entries of the stack, the topmost last, below the `above` topmost ones."""
    places = range(above + count - 1, above - 1, -1)
    try:
        return [_object_at(top - _WORD * k).value for k in places]
    except ValueError:
        return [operand(top, k) for k in places]


def references(at: int) -> int:
    """The reference count of the object at this address."""
    return ctypes.c_ssize_t.from_address(_word_at(at).value).value


def replace(at: int, x: Any) -> None:
    """Replace the object at this address by `x`; it may be an entry of the stack."""
    place = _word_at(at)
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


def put_locals(frame: FrameType, values: dict[int, Any]) -> None:
    """Set local variables of a frame, given by their numbers."""
    held = frame.f_locals
    for k, x in values.items():
        held[frame.f_code.co_varnames[k]] = x
    if values and sys.version_info < (3, 13):  # from 3.13 on, `f_locals` is live
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def set_local(address: int, k: int, x: Any) -> None:
    """Set a variable that is bound and isn't in a cell."""
    replace(address + _LOCALS + _WORD * k, x)


def version_of(kind: type) -> ctypes.c_uint32 | None:
    """The version number of a class, in memory. CPython changes it after each change of the class
    or of one of its bases. None if it can't be read; it is 0 until a first look-up."""
    if not has_versions():
        return None
    type.__getattribute__(kind, "__hash__")
    found = _version_at(id(kind) + _VERSION)
    return found if found.value else None


_version_at = ctypes.c_uint32.from_address
_VERSION = 48 * _WORD  # the offset of tp_version_tag in PyTypeObject


@functools.cache
def has_versions() -> bool:
    """Whether versions are at the expected offset: a test class's version follows changes of it."""
    if not is_described():
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


def holds(frame: FrameType, height: int, function: Any, first: Any, second: Any, last: Any) -> bool:
    """Whether a frame that is about to compare runs this function, with `first` as its first
    variable, and on its stack a value equal to `last`, and `second`. Only words inside the frame
    are read until these are known to be right."""
    at = address_of(frame)
    top = at + top_of(height)
    return (
        _word_at(at + _FUNCTION).value == id(function)
        and _word_at(at + _LOCALS).value == id(first)
        and _word_at(top).value == id(second)
        and operand(top, 1) == last
        and isinstance(function_of(at), FunctionType)
    )


def operator_of(frame: FrameType, x: Any = None) -> Any:
    """The operator that a frame is about to apply to `x` and another operand. None for comparisons
    and in-place operators. Texts are immutable, so for them `s += t` is `s = s + t`."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if opcode.opname[code[at]] != "BINARY_OP":
        return None
    sign = opcode._nb_ops[code[at + 1]][1]  # type: ignore[attr-defined]
    return _OPERATORS.get(sign.rstrip("=") if isinstance(x, str) else sign)


_OPERATORS = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv},
    **{"@": operator.matmul, "**": operator.pow, "//": operator.floordiv, "%": operator.mod},
}


def operation_of(frame: FrameType) -> Any:
    """The operator, comparison or sign that a frame is about to apply. None for in-place operators,
    and for a comparison whose truth the same instruction reads."""
    code, at = frame.f_code.co_code, frame.f_lasti
    name, arg = opcode.opname[code[at]], code[at + 1]
    if name != "COMPARE_OP":
        return _SIGNS.get(name) or operator_of(frame)
    return None if arg & READS_TRUTH else _COMPARISONS[opcode.cmp_op[arg >> _FLAGS]]


READS_TRUTH = 16 if sys.version_info >= (3, 13) else 0  # in `COMPARE_OP`'s argument
_FLAGS = 5 if sys.version_info >= (3, 13) else 4 if sys.version_info >= (3, 12) else 0  # their bits
_COMPARISONS = {
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    **{"==": operator.eq, "!=": operator.ne},
}
_SIGNS = {"UNARY_NEGATIVE": operator.neg, "UNARY_INVERT": operator.invert}
