"""The instructions of a code, which is taken apart once for all who read it."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple


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
