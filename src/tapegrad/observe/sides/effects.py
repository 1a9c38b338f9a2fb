"""Effects: the changes that a part of a run makes, besides those of its variables and new objects.

If a round of a loop changes only its variables, the next round does the same with other values
(`tracing.statements.frame_rounds`), and a side of a branch may be run alone (`branches.py`). The
tables here list instructions and calls known to have no effect; any other counts as one. Functions
written in Python are followed, and count by their own instructions.
"""

from __future__ import annotations

import collections
import inspect
import opcode
import operator
import sys
import types
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from tapegrad.core.listing import instructions_of
from tapegrad.core.named import own_attribute
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.generators import generator_drawn_from
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.pure_operations import (
    ALONE,
    ITERATORS,
    changes_nothing,
    has_attributes,
    has_items,
    is_known,
    is_passive,
    is_private,
)
from tapegrad.observe.objects import inspection
from tapegrad.observe.objects.containers import KEYED, NUMBERED, is_open
from tapegrad.observe.objects.purity import INERT
from tapegrad.observe.objects.purity import is_own as is_own_code
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import MISSING, has_mapping, local, operand_at, own
from tapegrad.observe.program.joins import EXHAUSTED, sides_of
from tapegrad.observe.program.watching import PREFIX_TOLD
from tapegrad.observe.sides.owned_objects import Owned, is_own
from tapegrad.primitives.base import Value

# The modules of iterators for loops that are traced in their frame.
_COUNTED = (
    "tapegrad.tracing.statements.for_statement",
    "tapegrad.tracing.statements.for_with_exit",
)

# Methods that change containers whose parts may be loop-carried.
_CHANGING = frozenset(
    ["append", "appendleft", "clear", "extend", "extendleft", "insert", "pop", "popleft", "reverse"]
    + ["rotate", "setdefault", "update"]
)

Check = Callable[[Activation, Any], bool]

# They move values between variables and the stack, jump, or create a new object.
_NAMES = """
    BUILD_CONST_KEY_MAP BUILD_LIST BUILD_SLICE BUILD_STRING BUILD_TUPLE CACHE COPY COPY_FREE_VARS
    DELETE_FAST END_FOR EXTENDED_ARG GET_LEN INTRINSIC_LIST_TO_TUPLE JUMP_BACKWARD
    JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD KW_NAMES LIST_APPEND LIST_TO_TUPLE
    LOAD_ASSERTION_ERROR LOAD_CLOSURE LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_AND_CLEAR
    LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_GLOBAL MAKE_CELL MAKE_FUNCTION NOP
    POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_NONE
    POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_TOP PRECALL PUSH_NULL
    RESUME RETURN_CONST RETURN_GENERATOR RETURN_VALUE SET_FUNCTION_ATTRIBUTE STORE_FAST
    STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST SWAP LOAD_COMMON_CONSTANT IS_BUILTIN
"""
_NOTHING = frozenset(_NAMES.split())


class Stopped(BaseException):
    """Raised when a side that is run alone is about to have an effect."""


class Effects:
    """Counts the effects of a run, from the first query on."""

    def __init__(self) -> None:
        self.count = 0
        self.lasting = 0  # those not on a list that is a round's own, or loop-carried
        self.written: list[tuple[int, int]] = []  # traced arrays: see `note_write`
        self.compared = False  # whether the identity of a traced value matters
        self.steps = 0  # the number of instructions that were run,
        self.most = 0  # and its limit while a side runs alone
        # Lists that the rounds under way only append to; the frames and offsets of rounds; and
        # whether the next change is of a round's own list.
        self.growing: list[Any] = []
        self.rounds: list[tuple[Any, int]] = []
        self.to_own = False
        self.varying = False  # whether there are lists whose length a call determines
        self.owned = Owned()
        # Loops that may make no round, the arrays that are identical then, and the number of
        # writes.
        self.loose: list[tuple[Any, list[Any], int]] = []

    def changed(self) -> None:
        self.count += 1
        self.lasting += not self.to_own
        self.to_own = False

    def rebound(self) -> list[Any]:
        """The notes of loops after which it matters whether arrays are identical."""
        return [
            note
            for note, arrays, count in self.loose
            if self.compared or {id(x) for x in arrays} & {at for at, _ in self.written[count:]}
        ]

    def note_write(self, x: Any) -> None:
        """Record that a traced array is about to be bound to another variable: the array's id, and
        the number of its present variable."""
        self.written.append((id(x), getattr(x._operand, "id", 0)))

    def step(self, a: Activation, at: int) -> None:
        """Check the instruction at this offset of a frame's code, which is about to run."""
        if a.checks is None:
            code = a.frame.f_code
            if a.o.apart is not None and a.sides is None and code.co_exceptiontable:
                raise Stopped  # its handlers would run after that
            a.checks = _checks_of(code)
        self.steps += 1
        if a.o.apart is not None and self.steps > self.most:
            a.o.apart.is_endless = True
            raise Stopped
        is_known = self.varying and dispatch.look(a, at)
        if a.sides is not None and (filled := a.o.apart.lists.get(2 * at)) is not None:
            filled.append(a.top())
        entry = a.checks[at]
        if entry is None or is_known:
            return
        check, arg = entry
        if not check(a, arg):
            if a.o.apart is not None:
                self.to_own = False
                raise Stopped
            self.changed()


@lru_cache(maxsize=1024)
def _checks_of(code: CodeType) -> list[tuple[Check, Any] | None]:
    """For each offset of a code, the check whether the instruction has no effect; None for
    instructions that never have one."""
    checks: list[tuple[Check, Any] | None] = [None] * (len(code.co_code) // 2 + 1)
    names: tuple[str, ...] = ()
    prefixed: list[int] = []
    own = len({*code.co_varnames, *code.co_cellvars})
    for i in instructions_of(code):
        name, arg = i.opname, i.arg or 0
        if name == "EXTENDED_ARG":
            prefixed += [i.offset >> 1] if PREFIX_TOLD else []
            continue
        if name == "KW_NAMES":
            names = code.co_consts[arg]
        entry: tuple[Check, Any] | None = (_changes, None)
        if name == "STORE_DEREF":
            entry = (_set_own_cell if arg < own else _set_cell), arg
        if name in _NOTHING:
            entry = None
        elif name in _CHECKS:
            entry = _CHECKS[name], i.argval
        elif name in ("CALL", "CALL_KW"):
            entry = (_called if name == "CALL" else _called_by_name), (arg, names)
            names = ()
        elif "JUMP" in name and ("TRUE" in name or "FALSE" in name):
            entry = _asked, None
        for place in (*prefixed, i.offset >> 1):
            checks[place] = entry
        prefixed = []
    return checks


def _changes(a: Activation, arg: Any) -> bool:
    return False


# ---- values


def _goes_on(a: Activation, arg: Any) -> bool:
    """Whether an iterator that advances is referenced by the frame alone."""
    x = a.top()
    kind: Any = type(x)
    if x is EXHAUSTED:
        return True
    if kind.__module__ in _COUNTED:
        return not getattr(x, "is_shared", True)
    # Up to Python 3.11, a comprehension is a function that is passed the iterator.
    passed = a.frame.f_code.co_varnames[:1] == (".0",) and local(a.address, 0) is x
    own(operand_at(a.stack, 0))
    if sys.getrefcount(x) > ALONE + passed:
        return False
    if kind is types.GeneratorType:
        return is_own_code(x.gi_code)
    return kind in ITERATORS and is_private(x)


def _operators(a: Activation, count: int) -> bool:
    return all(is_known(a.top(k)) for k in range(count))


def _binary(a: Activation, arg: Any) -> bool:
    return _operators(a, 2)


def _in_place(a: Activation, arg: Any) -> bool:
    """Whether `x += y` creates a new number. A write to a traced array is recorded by the array."""
    return _operators(a, 2) and (INERT[type(a.top(1))] or type(a.top(1)) is tuple)


def _unary(a: Activation, arg: Any) -> bool:
    return _operators(a, 1)


_asked = _unary


def _operator(a: Activation, arg: Any) -> bool:
    return (_in_place if arg in _INPLACE else _binary)(a, arg)


_INPLACE = frozenset(
    k for k, (_, sign) in enumerate(getattr(opcode, "_nb_ops", ())) if sign.endswith("=")
)


def _attribute(a: Activation, name: Any) -> bool:
    return has_attributes(a.top())


def _item(a: Activation, arg: Any) -> bool:
    return has_items(a.top(1), a.top())


def _slice_of(a: Activation, arg: Any) -> bool:
    return has_items(a.top(2), a.top()) and is_known(a.top(1))


def _of_traced(a: Activation, depth: int) -> bool:
    """Whether the write is to a traced array, which records it."""
    return isinstance(a.top(depth), Value)


def _set_item(a: Activation, arg: Any) -> bool:
    if _of_traced(a, 1):
        return True
    kind: Any = type(a.top(1))
    known = (kind in NUMBERED or kind in KEYED) and type(a.top()) in (int, str)
    return known and _replaces(a, 1, a.top())


def _set_attribute(a: Activation, name: str) -> bool:
    kind: Any = type(a.top())
    slot = inspection.found_in_class(kind, name)
    f = slot.fset if type(slot) is property else kind.__setattr__
    if type(f) is types.FunctionType:
        return changes_nothing(f, (a.top(),), {})
    plain = kind.__setattr__ is object.__setattr__ and is_open(kind, name)
    return plain and _replaces(a, 0, name)


def _replaces(a: Activation, depth: int, key: Any, names: int = 0) -> bool:
    """Whether replacing a part of the object at this depth on the stack, which has `names` more
    names, is no effect. It may be a change of a loop-carried value."""
    effects, owned, x = a.o.effects, a.o.effects.owned, a.top(depth)
    if owned.sides or owned.carried:
        owned.note_new(a, x)
    effects.to_own = owned.is_carried(a.o, x) or is_own(a, effects.rounds, depth, names + 1)
    if not owned.replaces(a.o, x, key):
        return False
    effects.lasting += not effects.to_own
    effects.to_own = False
    return True


def _set_own_cell(a: Activation, number: int) -> bool:
    """Check a write to a variable that inner functions read. The rounds of calling functions have
    created its cell."""
    owned, cell = a.o.effects.owned, local(a.address, number)
    for rounds, made in owned.carried.items():
        if rounds.frame is not a.frame:
            made.add(id(cell))
    return not owned.sides or _set_cell(a, number)


def _set_cell(a: Activation, number: int) -> bool:
    """Check a write to a variable of an enclosing function."""
    effects, cell = a.o.effects, local(a.address, number)
    effects.to_own = effects.owned.is_carried(a.o, cell)
    if not effects.owned.replaces(a.o, cell, "cell_contents"):
        return False
    effects.lasting += not effects.to_own
    effects.to_own = False
    return True


def _set_slice(a: Activation, arg: Any) -> bool:
    return _of_traced(a, 2)


def _yields(a: Activation, arg: Any) -> bool:
    """Whether this is a generator expression that a loop consumes to the end."""
    entries: Any = local(a.address, 0) if a.frame.f_code.co_varnames[:1] == (".0",) else None
    return type(entries).__module__ in _COUNTED and not entries.is_shared


def _iterated(a: Activation, arg: Any) -> bool:
    x = a.top()
    kind: Any = type(x)
    if kind in ITERATORS or kind is types.GeneratorType:  # itself; advancing it is recorded
        return True
    known = kind in _GONE_THROUGH or isinstance(x, np.ndarray)
    return known or isinstance(x, Value) or kind.__module__ in _COUNTED


_GONE_THROUGH = (list, tuple, dict, set, frozenset, range, str, collections.deque)


def _unpacked(a: Activation, arg: Any) -> bool:
    x = a.top()
    known = (list, tuple, range, str, collections.deque)
    return type(x) in known or isinstance(x, (np.ndarray, Value))


def _identity(a: Activation, arg: Any) -> bool:
    x, y = a.top(0), a.top(1)
    _compares(a, x, y)
    return any(v is None or type(v) is bool for v in (x, y))


def _compares(a: Activation, *values: Any) -> None:
    """Record a comparison of the identity, or of the contents, of these objects."""
    if (
        any(type(x) in (list, tuple, dict, set, frozenset) for x in values)
        or sum(isinstance(x, Value) for x in values) == 2
    ):
        a.o.effects.compared = True


def _comparison(a: Activation, arg: Any) -> bool:
    if not isinstance(a.top(0), Value) and not isinstance(a.top(1), Value):
        _compares(a, a.top(0), a.top(1))
    return _operators(a, 2)


def _contained(a: Activation, arg: Any) -> bool:
    _compares(a, a.top(0), a.top(1))
    held: Any = type(a.top())
    known = held in (list, tuple, dict, set, frozenset, range, str) or INERT[held]
    return known and is_known(a.top(1))


def _keys(a: Activation, step: int, count: int) -> bool:
    return all(
        type(a.top(k)) in (str, int, tuple, bool, float)
        for k in range(step - 1, step * count, step)
    )


# ---- calls


def _called(a: Activation, arg: tuple[int, tuple[str, ...]]) -> bool:
    count, names = arg
    return _call(a, 0, count, names)


def _called_by_name(a: Activation, arg: tuple[int, tuple[str, ...]]) -> bool:
    return _call(a, 1, arg[0], a.top())


def _call(a: Activation, above: int, count: int, names: tuple[str, ...]) -> bool:
    first, second = a.top(above + count + 1), a.top(above + count)
    if any(second is f or first is f for f in EXHAUSTING) and _is_passed_on(a, above, count):
        return True  # it is followed
    if any(second is f or first is f for f in (any, all)) and _is_passed_on(a, above, count):
        flow = sides_of(a.frame.f_code).flow
        if flow.is_called_on_expression(a.frame.f_lasti):
            return True  # the remaining items are never read
    values = [a.top(above + k) for k in range(count - 1, -1, -1)]
    f = second if first is MISSING else first
    if first is not MISSING and second is not MISSING:
        values = [second, *values]
    named = len(names)
    kwargs = dict(zip(names, values[len(values) - named :], strict=True)) if named else {}
    if any(f is x for x in _COMPARING):
        a.o.effects.compared = True
    if generator_drawn_from(a, f, values) is not None:
        return True  # its replacement decides whether that is an effect
    if f is list.append and len(values) == 2 and _grows(a, values[0]):
        return True
    if _changes_container(f, values):
        carried = a.o.effects.owned.is_carried(a.o, values[0])
        is_method = values[0] is second  # then the stack holds it once more
        own = is_own(a, a.o.effects.rounds, above + count - (not is_method), 1 + is_method)
        a.o.effects.to_own = carried or own
        return False
    if f is object.__setattr__ and len(values) == 3 and type(values[1]) is str:
        return is_open(type(values[0])) and _replaces(a, above + count - 1, values[1], 1)
    return changes_nothing(f, values[: len(values) - named] if named else values, kwargs)


def _changes_container(f: Any, values: Sequence[Any]) -> bool:
    """Whether this is a method that changes a container, with passive arguments."""
    kind: Any = own_attribute(f, "__objclass__")
    known = type(f) is types.MethodDescriptorType and f.__name__ in _CHANGING and bool(values)
    known = known and (kind in NUMBERED or kind in KEYED) and type(values[0]) in (*NUMBERED, *KEYED)
    return known and all(is_passive(x) for x in values[1:])


def _is_passed_on(a: Activation, above: int, count: int) -> bool:
    """Whether the only argument is a generator expression that nothing else references."""
    x = a.top(above)
    alone = frames.references(operand_at(a.stack, above)) == 2  # one is the local name's
    return count == 1 and is_waiting(x) and alone


def is_waiting(x: Any) -> bool:
    """Whether this is a generator expression that hasn't started."""
    if type(x) is not types.GeneratorType or x.gi_code.co_name != "<genexpr>":
        return False
    return not is_own_code(x.gi_code) and inspect.getgeneratorstate(x) == inspect.GEN_CREATED


# They consume the iterator, and are answered: see `tracing.frontend.python.consumers`.
EXHAUSTING = (list, tuple, sum, max, min)


def _grows(a: Activation, x: Any) -> bool:
    """Whether this list grows with the rounds under way. Items appended by sides of a branch are
    merged at the join."""
    return any(x is grown for grown in a.o.effects.growing)


def _called_with(a: Activation, flags: int | None) -> bool:
    """Check `f(*args, **kwargs)`."""
    above = has_mapping(flags)
    kwargs = a.top(0) if above and a.top(0) is not MISSING else {}
    args, f = a.top(above), a.top(above + 1)
    f = a.top(above + 2) if f is MISSING else f
    if type(args) not in (list, tuple) or type(kwargs) is not dict:
        return False
    return changes_nothing(f, args, kwargs)


# They distinguish equal objects, or arrays of equal contents.
_COMPARING = (id, operator.is_, operator.is_not, np.shares_memory, np.may_share_memory)


_CHECKS: dict[str, Check] = {
    "BINARY_OP": _operator,
    "BINARY_SLICE": _slice_of,
    "BINARY_SUBSCR": _item,
    "BUILD_MAP": lambda a, count: _keys(a, 2, count),
    "BUILD_SET": lambda a, count: _keys(a, 1, count),
    "CALL_FUNCTION_EX": _called_with,
    "COMPARE_OP": _comparison,
    "CONTAINS_OP": _contained,
    "DICT_MERGE": lambda a, _: type(a.top()) is dict,
    "DICT_UPDATE": lambda a, _: type(a.top()) is dict,
    "FOR_ITER": _goes_on,
    "GET_ITER": _iterated,
    "IS_OP": _identity,
    "LIST_EXTEND": _unpacked,
    "LOAD_ATTR": _attribute,
    "LOAD_METHOD": _attribute,
    "LOAD_SUPER_ATTR": lambda a, _: a.top(2) is super,
    "STORE_ATTR": _set_attribute,
    "STORE_SLICE": _set_slice,
    "STORE_SUBSCR": _set_item,
    "TO_BOOL": _unary,
    "UNARY_INVERT": _unary,
    "UNARY_NEGATIVE": _unary,
    "UNARY_NOT": _unary,
    "UNARY_POSITIVE": _unary,
    "INTRINSIC_UNARY_POSITIVE": _unary,
    "YIELD_VALUE": _yields,
    "UNPACK_EX": _unpacked,
    "UNPACK_SEQUENCE": _unpacked,
}
