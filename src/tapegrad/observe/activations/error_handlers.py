"""Whether a program may catch an error. A call that is moved to a later point of the program would
raise its error there, too."""

from __future__ import annotations

import dis
from collections.abc import Collection
from functools import lru_cache
from types import CodeType
from typing import Any

from tapegrad.core.listing import instructions_of
from tapegrad.observe.activations.activation import Activation


def is_caught(a: Activation) -> bool:
    """Whether the program may catch an error raised here. A `with` statement whose object is a
    later value doesn't catch it; nor does `finally`."""
    return is_caught_from(a.frame, a.o.managed)


def is_caught_from(frame: Any, managed: Collection[Any] = ()) -> bool:
    """The same for an error raised in a frame of an observed run."""
    while getattr(frame.f_trace, "__self__", None) is not None:
        code, at = frame.f_code, frame.f_lasti
        while (around := _handler_around(code, at)) is not None:
            at, catches = around
            if catches and (id(code), at) not in managed:
                return True
        frame = frame.f_back
    return False


def _handler_around(code: CodeType, at: int) -> tuple[int, bool] | None:
    """The innermost handler of errors raised at an instruction: the offset of the instruction
    before those that it protects, and whether it may catch an error. None if there is no
    handler."""
    rows = _handlers_of(code)
    target = next((row[2] for row in rows if row[0] <= at < row[1]), None)
    if target is None:
        return None
    first = min(row[0] for row in rows if row[2] == target)
    before = max((i.offset for i in instructions_of(code) if i.offset < first), default=-1)
    return (before, _catches(code, target)) if before >= 0 and before < at else None


@lru_cache(maxsize=256)
def _handlers_of(code: CodeType) -> list[tuple[int, int, int]]:
    rows: Any = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return [(row.start, row.end, row.target) for row in rows]


@lru_cache(maxsize=256)
def _catches(code: CodeType, target: int) -> bool:
    """Whether a handler may end without raising the error again."""
    for i in instructions_of(code):
        if i.offset < target:
            continue
        if i.opname == "RERAISE":
            return False
        if i.opname in ("POP_EXCEPT", "CHECK_EXC_MATCH", "WITH_EXCEPT_START"):
            return True
    return True
