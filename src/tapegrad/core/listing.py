"""The instructions of a code, which is taken apart once for all who read it."""

from __future__ import annotations

import dis
from collections.abc import Callable
from functools import lru_cache, wraps
from types import CodeType
from typing import Any, NamedTuple, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
MOST = 4096  # results that are held


def kept_by_code(f: F) -> F:
    """A function of a code, and of what tells its results apart, which works each out once. Equal
    codes have one result. To hash a code takes as long as it is long, so it is first looked for by
    which object it is."""
    of_equal = lru_cache(maxsize=MOST)(f)
    held: dict[Any, tuple[Any, CodeType]] = {}

    @wraps(f)
    def known(code: CodeType, *given: Any) -> Any:
        key = id(code), *given
        found = held.get(key)
        if found is None:
            if len(held) >= MOST:
                held.clear()
            found = held[key] = of_equal(code, *given), code
        return found[0]

    return cast(F, known)


class Listing(NamedTuple):
    """A code's instructions in order, and the rows of its table of handlers."""

    instructions: tuple[dis.Instruction, ...]
    handlers: tuple[Any, ...]  # from `start` to `end` errors go to `target`


@lru_cache(maxsize=512)
def listing_of(code: CodeType) -> Listing:
    listing: Any = dis.Bytecode(code)
    return Listing(tuple(listing), tuple(listing.exception_entries))


def instructions_of(code: CodeType) -> tuple[dis.Instruction, ...]:
    return listing_of(code).instructions
