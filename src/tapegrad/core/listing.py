"""The instructions of a code object, disassembled once for all readers.

Those of Python 3.14 that do what earlier ones do have their names here, and their own `opcode`:

    LOAD_FAST_BORROW                         -->    LOAD_FAST
    LOAD_SMALL_INT                           -->    LOAD_CONST
    BINARY_OP []                             -->    BINARY_SUBSCR
    CALL, after LOAD_SPECIAL __enter__       -->    BEFORE_WITH

Before a call of `all(... for ...)`, Python 3.14 tests whether it is the built-in function. If so, a
loop in its place runs instead. That loop is never taken (`observe/operators.py`), so the test has
one way only:

    LOAD_COMMON_CONSTANT all, IS_OP          -->    LOAD_COMMON_CONSTANT all, IS_BUILTIN
    POP_JUMP_IF_FALSE the call               -->    JUMP_FORWARD the call
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, wraps
from types import CodeType
from typing import Any, NamedTuple, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
CACHED_LISTINGS = 4096  # results that are cached


def kept_by_code(f: F) -> F:
    """Cache a function of a code object and further arguments. Equal codes share a result. Hashing
    a code takes time in proportion to its length, so it is looked up by identity first."""
    of_equal = lru_cache(maxsize=CACHED_LISTINGS)(f)
    held: dict[Any, tuple[Any, CodeType]] = {}

    @wraps(f)
    def known(code: CodeType, *given: Any) -> Any:
        key = id(code), *given
        found = held.get(key)
        if found is None:
            if len(held) >= CACHED_LISTINGS:
                held.clear()
            found = held[key] = of_equal(code, *given), code
        return found[0]

    return cast(F, known)


class Listing(NamedTuple):
    """The instructions of a code in order, and the rows of its exception table."""

    instructions: tuple[dis.Instruction, ...]
    handlers: tuple[Any, ...]  # errors between `start` and `end` go to `target`


@lru_cache(maxsize=512)
def listing_of(code: CodeType) -> Listing:
    listing: Any = dis.Bytecode(code)
    text = _named(listing) if sys.version_info >= (3, 14) else listing
    return Listing(tuple(text), tuple(listing.exception_entries))


def _named(text: Iterable[dis.Instruction]) -> Iterator[dis.Instruction]:
    """These instructions by the names that handlers know."""
    last = "", 0
    for i in text:
        name = NAMES.get(i.opname, i.opname)
        if name == "BINARY_OP" and i.argrepr == "[]":
            name = "BINARY_SUBSCR"
        elif name == "CALL" and last == ("LOAD_SPECIAL", 0):
            name = "BEFORE_WITH"
        elif name == "IS_OP" and last[0] == "LOAD_COMMON_CONSTANT":
            name = "IS_BUILTIN"
        elif name == "POP_JUMP_IF_FALSE" and last[0] == "IS_BUILTIN":
            name = "JUMP_FORWARD"
        yield i._replace(opname=name)
        if name not in ("CACHE", "EXTENDED_ARG"):
            last = name, i.arg or 0


NAMES = {
    "LOAD_FAST_BORROW": "LOAD_FAST",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "LOAD_FAST_LOAD_FAST",
    "LOAD_SMALL_INT": "LOAD_CONST",
    "NOT_TAKEN": "NOP",
    "POP_ITER": "POP_TOP",
}


def instructions_of(code: CodeType) -> tuple[dis.Instruction, ...]:
    return listing_of(code).instructions
