"""The frames that are followed, and which of their instructions are noted by what.

An instruction that is in none of these tables may do anything, so a tape on which it took part
isn't used again.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from tapegrad.tracing.observe import instructions as do
from tapegrad.tracing.observe.frames import MISSING, operand
from tapegrad.tracing.observe.uses import Then

if TYPE_CHECKING:
    from tapegrad.tracing.observe.observer import Observer

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
        self.o.enters = False
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


# ---- the tables

_MOVING = """
    CACHE COPY COPY_FREE_VARS DELETE_FAST EXTENDED_ARG JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT
    JUMP_FORWARD KW_NAMES LIST_APPEND LIST_TO_TUPLE LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS
    LOAD_CLOSURE LOAD_CONST LOAD_FAST MAKE_CELL NOP POP_EXCEPT POP_TOP PRECALL
    PUSH_EXC_INFO PUSH_NULL RAISE_VARARGS RERAISE RESUME RETURN_GENERATOR RETURN_VALUE
    SETUP_ANNOTATIONS STORE_FAST SWAP WITH_EXCEPT_START YIELD_VALUE BUILD_CONST_KEY_MAP
    BUILD_LIST BUILD_SLICE BUILD_STRING BUILD_TUPLE PREP_RERAISE_STAR
    POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE MATCH_MAPPING MATCH_SEQUENCE
    LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST STORE_FAST_LOAD_FAST
    STORE_FAST_STORE_FAST RETURN_CONST END_FOR END_SEND CALL_INTRINSIC_1 CALL_INTRINSIC_2
    POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE LOAD_COMMON_CONSTANT SET_FUNCTION_ATTRIBUTE
    INTERPRETER_EXIT EXIT_INIT_CHECK CLEANUP_THROW
"""
_SILENT = frozenset(_MOVING.split())

_HANDLERS: dict[str, Handler] = {
    "LOAD_ATTR": do.load_attribute,
    "LOAD_METHOD": do.load_attribute,
    "LOAD_SUPER_ATTR": do.load_attribute,
    "STORE_ATTR": do.store_attribute,
    "DELETE_ATTR": do.delete_attribute,
    "LOAD_GLOBAL": do.load_global,
    "LOAD_NAME": do.load_name,
    "STORE_NAME": do.store_name,
    "DELETE_NAME": do.delete_name,
    "STORE_GLOBAL": do.store_global,
    "DELETE_GLOBAL": do.delete_global,
    "LOAD_DEREF": do.load_deref,
    "LOAD_CLASSDEREF": do.load_deref,
    "STORE_DEREF": do.store_deref,
    "DELETE_DEREF": do.delete_deref,
    "IMPORT_NAME": do.import_name,
    "IMPORT_FROM": do.import_from,
    "BINARY_SUBSCR": do.subscript,
    "STORE_SUBSCR": do.store_subscript,
    "DELETE_SUBSCR": do.delete_subscript,
    "CHECK_EXC_MATCH": lambda a, _: a.o.taken([a.top()]),
    "CHECK_EG_MATCH": lambda a, _: a.o.taken([a.top()]),
    "COMPARE_OP": lambda a, _: do.binary(a, False),
    "CONTAINS_OP": do.contains,
    "IS_OP": do.identity,
    "GET_ITER": do.iterate,
    "GET_YIELD_FROM_ITER": do.iterate,
    "UNPACK_SEQUENCE": do.iterate,
    "UNPACK_EX": do.iterate,
    "LIST_EXTEND": do.iterate,
    "SET_UPDATE": do.iterate,
    "DICT_UPDATE": do.iterate,
    "DICT_MERGE": do.iterate,
    "FOR_ITER": lambda a, _: do.step_iterator(a, 0),
    "SEND": lambda a, _: do.step_iterator(a, 1),
    "CALL_FUNCTION_EX": do.call_ex,
    "MAKE_FUNCTION": do.make_function,
    "BEFORE_WITH": do.enter_with,
    "MATCH_CLASS": do.match_class,
    "MATCH_KEYS": lambda a, _: a.o.operands([a.top(1)]),
    "GET_LEN": do.unary,
    "FORMAT_VALUE": do.formatted,
    "UNARY_NEGATIVE": do.unary,
    "UNARY_POSITIVE": do.unary,
    "UNARY_INVERT": do.unary,
    "UNARY_NOT": do.truth,
    "JUMP_IF_FALSE_OR_POP": do.truth,
    "JUMP_IF_TRUE_OR_POP": do.truth,
    "POP_JUMP_BACKWARD_IF_FALSE": do.truth,
    "POP_JUMP_BACKWARD_IF_TRUE": do.truth,
    "POP_JUMP_FORWARD_IF_FALSE": do.truth,
    "POP_JUMP_FORWARD_IF_TRUE": do.truth,
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
            entry, names = (do.call, (arg, names)), ()
        elif name in _HASHING:
            entry = (do.hashed, (_HASHING[name], 1 if name.endswith("_ADD") else arg))
        elif name == "BINARY_OP":
            entry = (do.binary, arg in _INPLACE)
        elif name in _HANDLERS:
            handler = _HANDLERS[name]
            if handler in (do.load_deref, do.store_deref, do.delete_deref):
                entry = (handler, (arg, i.argval, arg < free))
            elif name == "FORMAT_VALUE":
                entry = (handler, arg)
            else:
                entry = (handler, i.argval)
        elif name not in _SILENT:
            entry = (do.unknown, name)
        if entry is not None:
            for place in (*prefixed, at):
                program[place] = entry
        prefixed = []
    return program
