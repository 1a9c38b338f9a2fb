"""The operands of the instruction that a frame is about to run.

CPython keeps them on the frame's stack, which it doesn't show to Python code. Before an instruction
runs the stack is consistent, so it can be read from memory:

    PyFrameObject:         reference count, type, f_back, f_frame -> _PyInterpreterFrame
    _PyInterpreterFrame:   ... the function ..., local variables, stack

The layouts are those of CPython's `Include/internal/pycore_frame.h`. `stack_heights.py` computes
the stack's height. Before the first use, all of this is tried on a function whose operands are
known (`watching.py`). If that fails nothing is read from memory, and runs aren't observed.

From Python 3.14 on, a variable or stack entry has a tag in its two lowest bits
(`pycore_stackref.h`). An entry with tag 1 is borrowed: it refers to an object without counting as a
reference, because a variable of the frame, or of a caller, does:

    LOAD_FAST_BORROW x     the entry is borrowed from `x`
    CALL f                 so is the parameter of a Python function

So a borrowed entry has to become one of its own, by `own`, before references are counted, and
before its variable is set (`set_local`). Tag 1 alone is an empty entry, and immortal objects have
tag 1, too. Tag 3 is that of an integer.
"""

from __future__ import annotations

import ctypes
import functools
import opcode
import operator
import sys
from types import FrameType, FunctionType
from typing import Any, NamedTuple

from tapegrad.observe.program.stack_heights import variables_of

_object_at = ctypes.py_object.from_address
_word_at = ctypes.c_size_t.from_address
_WORD = ctypes.sizeof(ctypes.c_size_t)
_F_FRAME = 3 * _WORD


class Layout(NamedTuple):
    """Offsets in an interpreter's frame, in bytes."""

    function: int
    globals: int
    names: int  # the dict of a frame's variables, if one was made
    # The number of variables and stack entries in use; -1 while the frame computes. From Python
    # 3.14 on, the address behind the last of them.
    top: int
    locals: int


_LAYOUTS = {
    (3, 11): Layout(0, 8, 24, 64, 72),
    (3, 12): Layout(16, 24, 40, 64, 72),
    (3, 13): Layout(16, 24, 40, 64, 72),
    (3, 14): Layout(16, 24, 40, 64, 80),
}
IS_TAGGED = sys.version_info >= (3, 14)  # whether variables and stack entries have tags
_layout = _LAYOUTS.get(sys.version_info[:2], _LAYOUTS[3, 11])
_FUNCTION, _GLOBALS, _NAMES, _TOP, _LOCALS = _layout


@functools.cache
def is_described() -> bool:
    """Whether this interpreter's memory layout is known, and a frame's variables are where it says.
    In free-threaded builds, and in debug builds, objects begin with more than two words."""
    known = sys.implementation.name == "cpython" and sys.version_info[:2] in _LAYOUTS
    known = known and sys.byteorder == "little"
    known = known and _WORD == 8 and object.__basicsize__ == 2 * _WORD
    return known and _is_found(object(), object())


def _is_found(x: object, y: object) -> bool:
    """Whether the frame of this function has it, and its parameters, where they should be."""
    at = address_of(sys._getframe())
    found = [word(at + _FUNCTION), word(place_of(at, 0)), word(place_of(at, 1))]
    return found == [id(_is_found), id(x), id(y)]


class Missing:
    """The type of `MISSING`, which represents an empty entry of the stack."""


MISSING = Missing()


def address_of(frame: FrameType) -> int:
    """The address of a running frame's interpreter frame."""
    return _word_at(id(frame) + _F_FRAME).value


def function_of(address: int) -> Any:
    """The function that a frame runs."""
    found = operand(address + _FUNCTION, 0)
    return None if found is MISSING else found


def top_of(height: int) -> int:
    """The offset of the topmost of `height` variables and stack entries in a frame."""
    return _LOCALS + _WORD * (height - 1)


def count_of(top: int) -> int:
    """The number of variables and stack entries up to the offset `top`: the inverse of `top_of`."""
    return (top - _LOCALS) // _WORD + 1


def live(address: int) -> int:
    """The number of variables and stack entries in use in a frame that has called Python code or is
    suspended. Up to Python 3.13 it is -1 if the frame is computing, or has called C code."""
    if IS_TAGGED:
        return count_of(_word_at(address + _TOP).value - address) - 1
    return ctypes.c_int.from_address(address + _TOP).value


def place_of(address: int, k: int) -> int:
    """The address of number `k` among a frame's variables and the stack entries behind them."""
    return address + _LOCALS + _WORD * k


def names_of(address: int) -> Any:
    """The dict of a frame's variables, if it has one that isn't its module's."""
    at, known = _word_at(address + _NAMES).value, _word_at(address + _GLOBALS).value
    return _object_at(address + _NAMES).value if at and at != known else None


def operand_at(top: int, k: int) -> int:
    """The address of operand number `k`."""
    return top - _WORD * k


def word(at: int) -> int:
    """The address of the object of a variable or stack entry; 0 if it is empty."""
    return _word_at(at).value & ~1 if IS_TAGGED else _word_at(at).value


def replace_word(at: int, x: Any) -> None:
    """Replace a reference of an object, which isn't empty, by one to `x`."""
    place = _word_at(at)
    old = ctypes.cast(place.value, ctypes.py_object)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
    place.value = id(x)
    ctypes.pythonapi.Py_DecRef(old)


if sys.version_info >= (3, 14):
    from _ctypes import PyObj_FromPtr as _object

    # The reference count of the object at an address. The rest of the word holds flags.
    _count_at = ctypes.c_uint32.from_address
    _signed_at = ctypes.c_int32.from_address

    def operand(top: int, k: int) -> Any:
        """The operand number `k`, counted from the top of the stack; `MISSING` if the entry is
        empty."""
        found = _word_at(top - _WORD * k).value
        if found & 2:
            return ctypes.c_ssize_t(found).value >> 2
        return _object(found & ~1) if found & ~1 else MISSING

    entry = operand

    def operands(top: int) -> tuple[Any, Any]:
        """The two topmost entries of the stack, the topmost last."""
        return operand(top, 1), operand(top, 0)

    def upper(top: int, count: int, above: int = 0) -> list[Any]:
        """A list of `count` entries of the stack, the topmost last, below the `above` topmost
        ones."""
        return [operand(top, k) for k in range(above + count - 1, above - 1, -1)]

    def own(at: int) -> None:
        """Let a variable or stack entry have a reference of its own, if it is borrowed."""
        found = _word_at(at).value
        if found & 3 == 1 and found != 1 and not _is_immortal(found - 1):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(_object(found - 1)))
            _word_at(at).value = found - 1

    def _is_immortal(x: int) -> bool:
        return _signed_at(x).value < 0

    def local(address: int, k: int) -> Any:
        """The entry number `k` of the local variables: a value, or the cell that holds it. The
        variable then has a reference of its own."""
        own(at := place_of(address, k))
        return operand(at, 0)

    def replace(at: int, x: Any) -> None:
        """Replace an entry of the stack by `x`."""
        old = _word_at(at).value
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
        _word_at(at).value = id(x) | _is_immortal(id(x))
        if not old & 1:
            ctypes.pythonapi.Py_DecRef(ctypes.cast(old, ctypes.py_object))

    def clear(at: int) -> None:
        """Make an entry of the stack empty."""
        replace(at, None)  # which is immortal
        _word_at(at).value = 1

    def set_local(address: int, k: int, x: Any) -> None:
        """Set number `k` among a frame's variables and stack entries. It isn't in a cell. What is
        borrowed from it has references of its own then: entries of the frame's stack, and variables
        and entries of the frames that it has called."""
        at = place_of(address, k)
        lent, around = _word_at(at).value | 1, [address]
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and (here := address_of(frame)) != address:
            around.append(here)
            frame = frame.f_back
        for here in around if frame is not None else [address]:
            for other in range(place_of(here, 0), place_of(here, live(here)), _WORD):
                if _word_at(other).value == lent:
                    own(other)
        replace(at, x)

else:
    _count_at = ctypes.c_ssize_t.from_address
    replace = replace_word

    def operand(top: int, k: int) -> Any:
        """The operand number `k`, counted from the top of the stack; `MISSING` if the entry is
        empty."""
        try:
            return _object_at(top - _WORD * k).value
        except ValueError:
            return MISSING

    def entry(top: int, k: int) -> Any:
        """The same as `operand`, but faster for entries that are often empty."""
        at = top - _WORD * k
        return _object_at(at).value if _word_at(at).value else MISSING

    def operands(top: int) -> tuple[Any, Any]:
        """The two topmost entries of the stack, the topmost last."""
        try:
            return _object_at(top - _WORD).value, _object_at(top).value
        except ValueError:
            return operand(top, 1), operand(top, 0)

    def upper(top: int, count: int, above: int = 0) -> list[Any]:
        """A list of `count` entries of the stack, the topmost last, below the `above` topmost
        ones."""
        places = range(above + count - 1, above - 1, -1)
        try:
            return [_object_at(top - _WORD * k).value for k in places]
        except ValueError:
            return [operand(top, k) for k in places]

    def own(at: int) -> None:
        """Do nothing: each variable and stack entry has a reference of its own."""

    def clear(at: int) -> None:
        """Make an entry of the stack empty: from Python 3.14 on alone."""
        raise NotImplementedError

    def local(address: int, k: int) -> Any:
        """The entry number `k` of the local variables: a value, or the cell that holds it."""
        try:
            return _object_at(address + _LOCALS + _WORD * k).value
        except ValueError:
            return MISSING

    def set_local(address: int, k: int, x: Any) -> None:
        """Set number `k` among a frame's variables and stack entries. It is bound and isn't in a
        cell."""
        replace_word(address + _LOCALS + _WORD * k, x)


def _count_of(x: object) -> int:
    return sys.getrefcount(x)


def _counted() -> int:
    x = object()
    return _count_of(x) - sys.getrefcount(x)


# The number of references to a variable's value that a call by a parameter, or an argument, adds:
# 1, and from Python 3.14 on 0, since they are borrowed.
COUNTED = _counted()


def has_mapping(flags: int | None) -> int:
    """Whether the topmost entry of the stack is for the keyword arguments of `f(*args, **kwargs)`;
    `flags` is the instruction's argument. From Python 3.14 on there always is one, perhaps
    empty."""
    return 1 if IS_TAGGED else (flags or 0) & 1


def count_at(x: int) -> int:
    """The reference count of the object at the address `x`."""
    return _count_at(x).value


def references(at: int) -> int:
    """The reference count of the object of a variable or stack entry."""
    own(at)
    return _count_at(word(at)).value


def own_function(address: int) -> None:
    """Let a frame have a reference of its own to the function that it runs."""
    own(address + _FUNCTION)


def own_variables(frame: FrameType) -> None:
    """Let all variables of a frame have references of their own."""
    address = address_of(frame)
    for k in range(variables_of(frame.f_code) if IS_TAGGED else 0):
        own(place_of(address, k))


def put_locals(frame: FrameType, values: dict[int, Any]) -> None:
    """Set local variables of a frame, given by their numbers."""
    if IS_TAGGED:  # `f_locals` would hold the old values until the frame ends
        for k, x in values.items():
            set_local(address_of(frame), k, x)
        return
    held = frame.f_locals
    for k, x in values.items():
        held[frame.f_code.co_varnames[k]] = x
    if values and sys.version_info < (3, 13):  # from 3.13 on, `f_locals` is live
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


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
    variable, an empty third one, and on its stack a value equal to `last`, and `second`. Only words
    inside the frame are read until these are known to be right."""
    at = address_of(frame)
    top = at + top_of(height)
    return (
        word(at + _FUNCTION) == id(function)
        and word(at + _LOCALS) == id(first)
        and word(top) == id(second)
        and word(place_of(at, 2)) == 0
        and (live(at) == height if IS_TAGGED else True)
        and operand(top, 1) == last
        and isinstance(function_of(at), FunctionType)
    )


def can_replace(frame: FrameType, height: int, x: Any, by: Any) -> bool:
    """Whether `by` takes the place of `x` on top of a frame's stack, and both are counted as often
    as they should be."""
    at, both = address_of(frame) + top_of(height), (id(x), id(by))
    if any(count_at(id(y)) != sys.getrefcount(y) - COUNTED for y in (x, by)):
        return False
    own(at)
    before = [count_at(k) for k in both]
    if _word_at(at).value != id(x) or before[0] < 2:
        return False
    replace(at, by)
    after = [count_at(k) for k in both]
    return operand(at, 0) is by and after == [before[0] - 1, before[1] + 1]


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
