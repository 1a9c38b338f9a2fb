"""What each instruction of Python's reads, writes and calls.

An instruction that is in none of these tables may do anything, so a tape on which it took part
isn't used again. Short names: `a` is the activation of a frame, `arg` the instruction's argument.
"""

from __future__ import annotations

import dis
import opcode
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.primitives.base import Value
from tapegrad.tracing.observe.calls import called
from tapegrad.tracing.observe.frames import MISSING, local, operand, operands
from tapegrad.tracing.observe.harmless import CALM, CONTAINERS, MAPPINGS, PLAIN_TYPES
from tapegrad.tracing.observe.lookups import FIXED
from tapegrad.tracing.observe.reads import Key
from tapegrad.tracing.source import at_line

if TYPE_CHECKING:
    from tapegrad.tracing.observe.observer import Observer

Then = Callable[[Any], None]
Handler = Callable[["Activation", Any], "Then | None"]


class Activation:
    """A frame that is followed, from its first instruction or from where it goes on."""

    __slots__ = (
        *("address", "direct", "frame", "function", "known", "o", "program", "then", "users"),
    )

    def __init__(self, o: Observer, frame: FrameType, address: int, function: Any) -> None:
        self.o, self.address = o, address
        self.frame: Any = frame
        self.function = function
        self.program = program_of(frame.f_code)
        self.known = o.known_names(frame)
        self.users = o.is_users(frame.f_code)
        self.direct: Any = None  # the code that the running instruction calls by itself
        self.then: Then | None = None  # what is noted when the running instruction is done

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Python calls this before each instruction, and when the frame ends or raises."""
        then = self.then
        if then is not None:
            self.then = None
            try:
                then(self.top() if event == "opcode" else MISSING)
            except Exception as error:
                self.o.fault(error)
        if event == "return":
            self.o.returned(frame, arg)
            self.frame = self.function = None  # which holds this activation
            return None
        if event == "opcode":
            instruction = self.program[frame.f_lasti >> 1]
            if instruction is not None:
                try:
                    self.then = instruction[0](self, instruction[1])
                except Exception as error:
                    self.o.fault(error)
        return self.step

    def top(self, k: int = 0) -> Any:
        """The operand number `k`, counted from the top of the stack."""
        return operand(self.address, k)


# ---- names


def load_global(a: Activation, name: str) -> None:
    if name not in a.known:
        a.known.add(name)
        a.o.name(a.frame.f_globals, name)


def load_name(a: Activation, name: str) -> None:
    held = a.frame.f_locals
    if held is a.frame.f_globals or name not in held:
        a.o.name(a.frame.f_globals, name)
    else:
        place = a.o.reads.place(held)
        if place is not None:
            a.o.item(held, name)


def store_name(a: Activation, name: str) -> None:
    if a.frame.f_locals is a.frame.f_globals:
        store_global(a, name)


def store_global(a: Activation, name: str) -> None:
    o, held = a.o, a.frame.f_globals
    if any(held is made for made in o.made_globals):
        return
    place = o.globals_place(held)
    o.reads.write(place, ("item", Key(name)), f"{{}}[{o.reads.key(name)}]", name)


def load_deref(a: Activation, where: tuple[int, str, bool]) -> None:
    k, name, own = where
    if not own:
        a.o.cell(local(a.address, k), name, a.function)


def store_deref(a: Activation, where: tuple[int, str, bool]) -> None:
    k, name, own = where
    known = None if own else a.o.cells.get(id(local(a.address, k)))
    if known is not None:
        place, at = known
        text = f"{{}}.__closure__[{at}].cell_contents"
        a.o.reads.write(place, ("cell", at), text, name)


def import_name(a: Activation, name: str) -> Then:
    def then(module: Any) -> None:
        if module is MISSING:
            a.o.reads.lost(f"import {name}")
            return
        known = [n for n in (getattr(module, "__name__", ""), name) if sys.modules.get(n) is module]
        a.o.loaded(known[0] if known else "", module)

    return then


def import_from(a: Activation, name: str) -> None:
    a.o.lookups.attribute(a.top(), name)


# ---- attributes and items


def load_attribute(a: Activation, name: str) -> None:
    x = a.top()
    kind = type(x)
    if CALM[kind] or kind in FIXED:
        return
    if kind is ModuleType:
        if (id(x), name) in a.o.asked:
            return
        a.o.asked[id(x), name] = x
    a.o.kind(x)
    a.o.lookups.by_user = a.users
    a.o.lookups.attribute(x, name)
    a.o.lookups.by_user = True


def store_attribute(a: Activation, name: str) -> None:
    a.o.kind(a.top())
    a.o.stored(a.top(), name)


def subscript(a: Activation, _: Any) -> Then | None:
    x, key = operands(a.address)
    kind = type(x)
    if CALM[kind]:
        return None
    if kind in CONTAINERS:
        return a.o.item(x, key)
    if isinstance(x, np.ndarray):
        if isinstance(key, Value) and (key.dtype.kind, key.shape) == ("b", ()):
            a.o.refuse(
                UnsupportedError(
                    f"a plain array is indexed with a traced boolean{at_line()}, which NumPy would "
                    "take for an integer here. Use np.where, or index with int(condition)"
                )
            )
        return a.o.element(x, key)
    a.o.kind(x)
    return a.o.operands([x, key])


def store_subscript(a: Activation, _: Any) -> None:
    x, key = a.top(1), a.top(0)
    if isinstance(x, Value):
        return
    if isinstance(x, np.ndarray):
        a.o.changes(x)
        return
    if not CALM[type(key)]:
        a.o.kind(key)
    place = a.o.reads.place(x)
    if place is None:
        a.o.kind(x)
        return
    if type(x) in MAPPINGS and isinstance(x, dict) and type(key) in PLAIN_TYPES:
        at, text = ("item", Key(key)), a.o.reads.key(key)
        a.o.item(x, key)
        a.o.reads.write(place, at, f"{{}}[{text}]", place.word)
    elif type(x) in CONTAINERS:
        a.o.changes(x)
    else:
        a.o.kind(x)


def hashed(a: Activation, where: tuple[int, int]) -> None:
    """Elements of a set or keys of a dict: every `step`-th operand, of `count`."""
    step, count = where
    for k in range(step - 1, step * count, step):
        x = a.top(k)
        if not CALM[type(x)]:
            a.o.kind(x)
            a.o.reads.pin(x)


# ---- operators


def binary(a: Activation, in_place: bool) -> Then | None:
    x, y = operands(a.address)
    if CALM[type(x)] and CALM[type(y)]:
        return None
    if in_place:
        a.o.changes(x)
    if type(x) is str:
        a.o.printed(y if type(y) is tuple else [y])
    return a.o.operands([x, y])


def unary(a: Activation, _: Any) -> Then | None:
    x = a.top()
    return None if CALM[type(x)] else a.o.operands([x])


def contains(a: Activation, _: Any) -> Then | None:
    held, x = a.top(0), a.top(1)
    if type(held) in MAPPINGS or type(held) in (set, frozenset):
        a.o.kind(x)
        a.o.reads.pin(x)
        if type(held) in MAPPINGS:
            return (
                a.o.item(held, x)
                if not hasattr(type(held), "__missing__")
                else a.o.operands([held])
            )
    return a.o.operands([held, x])


def truth(a: Activation, _: Any) -> Then | None:
    x = a.top()
    if CALM[type(x)]:
        return None
    if type(x) in CONTAINERS:
        a.o.shallow(x)
        return None
    return a.o.operands([x])


def identity(a: Activation, _: Any) -> None:
    x, y = a.top(1), a.top(0)
    a.o.same(x, y)
    # Equal numbers and texts may be one object, or two: facts don't tell these apart.
    if all(type(v) in PLAIN_TYPES and v not in (None, True, False, ...) for v in (x, y)):
        a.o.reads.lost("which of two equal numbers it is")


# ---- iterating


def iterate(a: Activation, _: Any) -> Then | None:
    x = a.top()
    if CALM[type(x)]:
        return None
    if isinstance(x, np.ndarray) and x.ndim > 1:
        return None  # rows are views
    if type(x) in CONTAINERS:
        a.o.shallow(x)
        return None
    a.o.kind(x)
    return a.o.operands([x])


def step_iterator(a: Activation, depth: int) -> None:
    x = a.top(depth)
    place = a.o.reads.places.get(id(x))
    if place is not None:
        a.o.reads.lost(place.word)


# ---- calls


def _code_of(f: Any) -> Any:
    """The code that a call of a function written in Python runs."""
    f = getattr(f, "__func__", f) if type(f) is MethodType else f
    return f.__code__ if type(f) is FunctionType else None


def call(a: Activation, arg: tuple[int, tuple[str, ...]]) -> Then | None:
    count, names = arg
    first, second = a.top(count + 1), a.top(count)
    values = [a.top(k) for k in range(count - 1, -1, -1)]
    if first is MISSING:
        f = second
    else:
        f, values = first, [second, *values]
    named = len(names)
    kwargs = dict(zip(names, values[len(values) - named :], strict=True)) if named else {}
    a.o.running = a
    a.direct = _code_of(f)
    return called(a.o, f, values[: len(values) - named] if named else values, kwargs)


def call_ex(a: Activation, flags: int) -> Then | None:
    kwargs = a.top(0) if flags & 1 else {}
    args, f = a.top(flags & 1), a.top(1 + (flags & 1))
    o = a.o
    o.running = a
    a.direct = _code_of(f)
    if type(args) not in (list, tuple):
        given_by = o.operands([args])
        if given_by is not None:
            given_by(None)
        given: list[Any] = []
    else:
        o.shallow(args)
        given = list(args)
    if isinstance(kwargs, dict):
        o.shallow(kwargs)
    return called(o, f, given, dict(kwargs) if type(kwargs) is dict else {})


def make_function(a: Activation, _: Any) -> None:
    code = a.top()
    if isinstance(code, CodeType):
        a.o.made.add(code)


def enter_with(a: Activation, _: Any) -> None:
    x = a.top()
    a.o.kind(x)
    for name in ("__enter__", "__exit__"):
        a.o.lookups.attribute(x, name)
    note = a.o.operands([x])
    if note is not None:
        note(None)


def formatted(a: Activation, flags: int) -> Then | None:
    x = a.top(1 if flags & 4 else 0)
    a.o.printed([x])
    return a.o.operands([x])


def match_class(a: Activation, _: Any) -> None:
    names, kind, x = a.top(0), a.top(1), a.top(2)
    a.o.kind(x)
    if isinstance(kind, type):
        a.o.lookups.attribute(kind, "__match_args__")
        named = getattr(kind, "__match_args__", ())
        a.o.read_all(named)
        names = (*names, *named)
    for name in names:
        a.o.lookups.attribute(x, name)


def unknown(a: Activation, name: str) -> None:
    a.o.reads.lost(f"the instruction {name}")


# ---- the tables

_MOVING = """
    CACHE COPY COPY_FREE_VARS DELETE_FAST EXTENDED_ARG JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT
    JUMP_FORWARD KW_NAMES LIST_APPEND LIST_TO_TUPLE LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS
    LOAD_CLOSURE LOAD_CONST LOAD_FAST MAKE_CELL NOP POP_EXCEPT POP_TOP PRECALL
    PUSH_EXC_INFO PUSH_NULL RAISE_VARARGS RERAISE RESUME RETURN_GENERATOR RETURN_VALUE
    SETUP_ANNOTATIONS STORE_FAST SWAP WITH_EXCEPT_START YIELD_VALUE BUILD_CONST_KEY_MAP
    BUILD_LIST BUILD_SLICE BUILD_STRING BUILD_TUPLE CHECK_EXC_MATCH
    CHECK_EG_MATCH PREP_RERAISE_STAR POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE MATCH_MAPPING MATCH_SEQUENCE
    LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST STORE_FAST_LOAD_FAST
    STORE_FAST_STORE_FAST RETURN_CONST END_FOR END_SEND CALL_INTRINSIC_1 CALL_INTRINSIC_2
    POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE LOAD_COMMON_CONSTANT SET_FUNCTION_ATTRIBUTE
    INTERPRETER_EXIT EXIT_INIT_CHECK CLEANUP_THROW
"""
_SILENT = frozenset(_MOVING.split())

_HANDLERS: dict[str, Handler] = {
    "LOAD_ATTR": load_attribute,
    "LOAD_METHOD": load_attribute,
    "LOAD_SUPER_ATTR": load_attribute,
    "STORE_ATTR": store_attribute,
    "DELETE_ATTR": store_attribute,
    "LOAD_GLOBAL": load_global,
    "LOAD_NAME": load_name,
    "STORE_NAME": store_name,
    "DELETE_NAME": store_name,
    "STORE_GLOBAL": store_global,
    "DELETE_GLOBAL": store_global,
    "LOAD_DEREF": load_deref,
    "LOAD_CLASSDEREF": load_deref,
    "STORE_DEREF": store_deref,
    "DELETE_DEREF": store_deref,
    "IMPORT_NAME": import_name,
    "IMPORT_FROM": import_from,
    "BINARY_SUBSCR": subscript,
    "STORE_SUBSCR": store_subscript,
    "DELETE_SUBSCR": store_subscript,
    "COMPARE_OP": lambda a, _: binary(a, False),
    "CONTAINS_OP": contains,
    "IS_OP": identity,
    "GET_ITER": iterate,
    "GET_YIELD_FROM_ITER": iterate,
    "UNPACK_SEQUENCE": iterate,
    "UNPACK_EX": iterate,
    "LIST_EXTEND": iterate,
    "SET_UPDATE": iterate,
    "DICT_UPDATE": iterate,
    "DICT_MERGE": iterate,
    "FOR_ITER": lambda a, _: step_iterator(a, 0),
    "SEND": lambda a, _: step_iterator(a, 1),
    "CALL_FUNCTION_EX": call_ex,
    "MAKE_FUNCTION": make_function,
    "BEFORE_WITH": enter_with,
    "MATCH_CLASS": match_class,
    "MATCH_KEYS": lambda a, _: a.o.operands([a.top(1)]),
    "GET_LEN": unary,
    "FORMAT_VALUE": formatted,
    "UNARY_NEGATIVE": unary,
    "UNARY_POSITIVE": unary,
    "UNARY_INVERT": unary,
    "UNARY_NOT": truth,
    "JUMP_IF_FALSE_OR_POP": truth,
    "JUMP_IF_TRUE_OR_POP": truth,
    "POP_JUMP_BACKWARD_IF_FALSE": truth,
    "POP_JUMP_BACKWARD_IF_TRUE": truth,
    "POP_JUMP_FORWARD_IF_FALSE": truth,
    "POP_JUMP_FORWARD_IF_TRUE": truth,
}

# Every how manyth operand is a key.
_HASHING = {"BUILD_SET": 1, "SET_ADD": 1, "BUILD_MAP": 2, "MAP_ADD": 2}
_INPLACE = {k for k, (_, sign) in enumerate(getattr(opcode, "_nb_ops", ())) if sign.endswith("=")}


@lru_cache(maxsize=8192)
def program_of(code: CodeType) -> list[tuple[Handler, Any] | None]:
    """For each place in the code: what is noted of the instruction there, and its argument."""
    program: list[tuple[Handler, Any] | None] = [None] * (len(code.co_code) // 2 + 1)
    free = len(code.co_varnames) + len([n for n in code.co_cellvars if n not in code.co_varnames])
    names: tuple[str, ...] = ()
    prefixed: list[int] = []
    for i in dis.get_instructions(code):
        at = i.offset >> 1
        name, arg = i.opname, i.arg or 0
        if name == "EXTENDED_ARG":
            prefixed.append(at)  # Python reports the prefix in place of the instruction
            continue
        entry: tuple[Handler, Any] | None = None
        if name == "KW_NAMES":
            names = code.co_consts[arg]
        elif name == "CALL":
            entry, names = (call, (arg, names)), ()
        elif name in _HASHING:
            entry = (hashed, (_HASHING[name], 1 if name.endswith("_ADD") else arg))
        elif name == "BINARY_OP":
            entry = (binary, arg in _INPLACE)
        elif name in _HANDLERS:
            handler = _HANDLERS[name]
            if handler in (load_deref, store_deref):
                entry = (handler, (arg, i.argval, arg < free))
            elif name == "FORMAT_VALUE":
                entry = (handler, arg)
            else:
                entry = (handler, i.argval)
        elif name not in _SILENT:
            entry = (unknown, name)
        if entry is not None:
            for place in (*prefixed, at):
                program[place] = entry
        prefixed = []
    return program
