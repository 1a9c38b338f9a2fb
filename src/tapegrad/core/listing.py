"""The instructions of a code object, disassembled once for all readers."""

from __future__ import annotations

import dis
from collections.abc import Callable
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
    return Listing(tuple(listing), tuple(listing.exception_entries))


def instructions_of(code: CodeType) -> tuple[dis.Instruction, ...]:
    return listing_of(code).instructions
