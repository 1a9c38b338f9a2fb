"""The tables from Python's instructions to their handlers.

An instruction in none of these tables may do anything, so a tape on which one took part isn't used
again.
"""

from __future__ import annotations

import dis
import opcode
from functools import lru_cache
from types import CodeType
from typing import Any

from tapegrad.core.listing import instructions_of
from tapegrad.observe import instructions as do
from tapegrad.observe import names as names_of
from tapegrad.observe import operators
from tapegrad.observe.activations.activation import Handler, Program
from tapegrad.observe.program.frames import READS_TRUTH, top_of
from tapegrad.observe.program.stack_heights import heights_of
from tapegrad.observe.program.watching import PREFIX_TOLD
from tapegrad.observe.waiting import repeated_calls

# They read no state: their operands were recorded before, or their results are recorded later.
_SILENT = """
    CACHE COPY COPY_FREE_VARS DELETE_FAST EXTENDED_ARG JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT
    JUMP_FORWARD KW_NAMES LIST_APPEND LIST_TO_TUPLE LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS
    LOAD_CLOSURE LOAD_CONST LOAD_FAST MAKE_CELL NOP POP_EXCEPT POP_TOP PRECALL
    PUSH_EXC_INFO PUSH_NULL RAISE_VARARGS RERAISE RESUME RETURN_GENERATOR RETURN_VALUE
    SETUP_ANNOTATIONS STORE_FAST SWAP WITH_EXCEPT_START YIELD_VALUE BUILD_CONST_KEY_MAP
    BUILD_LIST BUILD_SLICE BUILD_TUPLE PREP_RERAISE_STAR
    POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE MATCH_MAPPING MATCH_SEQUENCE
    LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST STORE_FAST_LOAD_FAST
    STORE_FAST_STORE_FAST RETURN_CONST END_FOR END_SEND LOAD_LOCALS
    POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE SET_FUNCTION_ATTRIBUTE
    INTERPRETER_EXIT EXIT_INIT_CHECK CLEANUP_THROW
    INTRINSIC_LIST_TO_TUPLE INTRINSIC_PREP_RERAISE_STAR INTRINSIC_STOPITERATION_ERROR
    INTRINSIC_TYPEVAR INTRINSIC_TYPEVAR_WITH_BOUND INTRINSIC_TYPEVAR_WITH_CONSTRAINTS
    INTRINSIC_PARAMSPEC INTRINSIC_TYPEVARTUPLE INTRINSIC_SET_FUNCTION_TYPE_PARAMS
    INTRINSIC_SET_TYPEPARAM_DEFAULT LOAD_COMMON_CONSTANT
"""

# They may do anything, as may all that aren't in a table. They are listed since they were reviewed.
_ANYTHING = """
    ASYNC_GEN_WRAP BEFORE_ASYNC_WITH END_ASYNC_FOR GET_AITER GET_ANEXT GET_AWAITABLE
    INTRINSIC_ASYNC_GEN_WRAP IMPORT_STAR INTRINSIC_IMPORT_STAR PRINT_EXPR INTRINSIC_PRINT
    INTRINSIC_SUBSCRIPT_GENERIC INTRINSIC_TYPEALIAS INTRINSIC_1_INVALID INTRINSIC_2_INVALID
    ENTER_EXECUTOR RESERVED BUILD_INTERPOLATION BUILD_TEMPLATE
"""
SILENT = frozenset(_SILENT.split())
ANYTHING = frozenset(_ANYTHING.split())

HANDLERS: dict[str, Handler] = {
    "LOAD_ATTR": do.load_attribute,
    "LOAD_METHOD": do.load_attribute,
    "STORE_ATTR": do.store_attribute,
    "DELETE_ATTR": do.delete_attribute,
    "LOAD_GLOBAL": names_of.load_global,
    "LOAD_NAME": names_of.load_name,
    "LOAD_FROM_DICT_OR_GLOBALS": names_of.load_name_from,
    "STORE_NAME": names_of.store_name,
    "DELETE_NAME": names_of.delete_name,
    "STORE_GLOBAL": names_of.store_global,
    "DELETE_GLOBAL": names_of.delete_global,
    "LOAD_DEREF": names_of.load_deref,
    "LOAD_CLASSDEREF": names_of.load_deref,
    "LOAD_FROM_DICT_OR_DEREF": names_of.load_deref,
    "STORE_DEREF": names_of.store_deref,
    "DELETE_DEREF": names_of.delete_deref,
    "IMPORT_NAME": names_of.import_name,
    "IMPORT_FROM": names_of.import_from,
    "BINARY_SUBSCR": do.subscript,
    "BINARY_SLICE": do.subscript_slice,
    "STORE_SLICE": do.store_slice,
    "STORE_SUBSCR": do.store_subscript,
    "DELETE_SUBSCR": do.delete_subscript,
    "CHECK_EXC_MATCH": lambda a, _: a.o.taken([a.top()]),
    "CHECK_EG_MATCH": lambda a, _: a.o.taken([a.top()]),
    "CONTAINS_OP": operators.contains,
    "IS_OP": operators.identity,
    "IS_BUILTIN": operators.is_builtin,
    "GET_ITER": do.begin_loop,
    "GET_YIELD_FROM_ITER": do.iterate,
    "UNPACK_SEQUENCE": do.iterate,
    "UNPACK_EX": do.iterate,
    "LIST_EXTEND": do.iterate,
    "SET_UPDATE": do.iterate,
    "DICT_UPDATE": do.iterate,
    "DICT_MERGE": do.iterate,
    "FOR_ITER": lambda a, _: do.step_iterator(a, 0),
    "SEND": lambda a, _: do.step_iterator(a, 1),
    "CALL_KW": do.call_named,
    "CALL_FUNCTION_EX": do.call_ex,
    "MAKE_FUNCTION": do.make_function,
    "BEFORE_WITH": do.enter_with,
    "MATCH_CLASS": do.match_class,
    "MATCH_KEYS": lambda a, _: a.o.operands([a.top(1)]),
    "GET_LEN": operators.unary,
    "BUILD_STRING": repeated_calls.joined,
    "FORMAT_SIMPLE": lambda a, _: do.formatted(a, (0, 0)),
    "FORMAT_WITH_SPEC": lambda a, _: do.formatted(a, (1, 0)),
    "UNARY_NEGATIVE": operators.unary,
    "UNARY_POSITIVE": operators.unary,
    "INTRINSIC_UNARY_POSITIVE": operators.unary,
    "UNARY_INVERT": operators.unary,
    "UNARY_NOT": operators.truth,
    "TO_BOOL": operators.truth,
    "POP_JUMP_IF_FALSE": operators.truth,
    "POP_JUMP_IF_TRUE": operators.truth,
    "JUMP_IF_FALSE_OR_POP": operators.truth,
    "JUMP_IF_TRUE_OR_POP": operators.truth,
    "POP_JUMP_BACKWARD_IF_FALSE": operators.truth,
    "POP_JUMP_BACKWARD_IF_TRUE": operators.truth,
    "POP_JUMP_FORWARD_IF_FALSE": operators.truth,
    "POP_JUMP_FORWARD_IF_TRUE": operators.truth,
}

# Every n-th operand is a key.
HASHING = {"BUILD_SET": 1, "SET_ADD": 1, "BUILD_MAP": 2, "MAP_ADD": 2}
# Their arguments hold more than a name: `_entry` interprets them.
DETAILED = frozenset(
    [
        *HASHING,
        *("BINARY_OP", "CALL", "COMPARE_OP", "CONVERT_VALUE", "FORMAT_VALUE", "LOAD_SPECIAL"),
        "LOAD_SUPER_ATTR",
    ]
)
_DEREF = (names_of.load_deref, names_of.store_deref, names_of.delete_deref)

_INPLACE = {k for k, (_, sign) in enumerate(getattr(opcode, "_nb_ops", ())) if sign.endswith("=")}
_INTRINSICS = {
    "CALL_INTRINSIC_1": tuple(getattr(opcode, "_intrinsic_1_descs", ())),
    "CALL_INTRINSIC_2": tuple(getattr(opcode, "_intrinsic_2_descs", ())),
}


@lru_cache(maxsize=8192)
def program_of(code: CodeType) -> tuple[Program, list[int]]:
    """The handler and argument of the instruction at each offset of the code, and the position of
    the frame's topmost operand there."""
    program: Program = [None] * (len(code.co_code) // 2 + 1)
    heights = heights_of(code)
    variables = len({*code.co_varnames, *code.co_cellvars})
    names: tuple[str, ...] = ()
    prefixed: list[int] = []
    for i in instructions_of(code):
        at = i.offset >> 1
        name, arg = i.opname, i.arg or 0
        if name == "EXTENDED_ARG":
            prefixed += [at] if PREFIX_TOLD else []
            continue
        if name in _INTRINSICS:
            name = _INTRINSICS[name][arg] if arg < len(_INTRINSICS[name]) else name
        if name == "KW_NAMES":
            names = code.co_consts[arg]
        if heights is None or heights[at] < 0:  # unreachable
            entry: tuple[Handler, Any] | None = (do.unknown, name)
        elif name in DETAILED:
            entry = _entry(i, arg, names)
        elif name == "RETURN_VALUE" and code.co_name in (*operators.RETURN_PLAINLY, "<lambda>"):
            entry = operators.returned, code.co_name
        elif name in HANDLERS:
            handler = HANDLERS[name]
            is_cell = handler in _DEREF
            entry = (handler, (arg, i.argval, arg < variables) if is_cell else i.argval)
        else:
            entry = None if name in SILENT else (do.unknown, name)
        if name == "CALL":  # also where unreachable: the names belong to one call
            names = ()
        if entry is not None:
            for place in (*prefixed, at):
                program[place] = entry
        prefixed = []
    return program, [top_of(height) for height in heights or [0] * len(program)]


def _entry(i: dis.Instruction, arg: int, names: tuple[str, ...]) -> tuple[Handler, Any] | None:
    """The handler and argument of an instruction in `DETAILED`. `names` are the keyword
    arguments."""
    name = i.opname
    if name in HASHING:
        return do.hashed, (HASHING[name], 1 if name.endswith("_ADD") else arg)
    if name == "BINARY_OP":
        return operators.binary, arg in _INPLACE
    if name == "COMPARE_OP":
        return operators.compare, bool(arg & READS_TRUTH)
    if name == "FORMAT_VALUE":
        return do.formatted, (1 if arg & 4 else 0, arg & 3)
    if name == "CONVERT_VALUE":
        return do.formatted, (0, arg)
    if name == "LOAD_SUPER_ATTR":
        return do.load_super_attribute, (i.argval, bool(arg & 2))
    if name == "LOAD_SPECIAL":  # of `with`, or of `async with`
        return None if arg < 2 else (do.unknown, name)
    return do.call, (arg, names)
