"""A tape before and after each pass, and which of its lines a pass has changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

from tapegrad.core.values import Literal, Source
from tapegrad.ir.tape import Call, Tape
from tapegrad.ir.text import shown_lines
from tapegrad.pipeline import shown

T = TypeVar("T")
BETWEEN = "other work"  # of what makes a tape and is no pass


class Stage(NamedTuple):
    """A pass by its name: the tape before it, and after it."""

    name: str
    before: Tape
    after: Tape


class Row(NamedTuple):
    """A line of a tape, with the program's; and whether a pass has made it or will remove it."""

    text: str
    src: Source | None
    changed: bool


def seen(make: Callable[[], T]) -> tuple[T, list[Stage]]:
    """What a function makes, and the passes over tapes on the way."""
    stages: list[Stage] = []

    def show(name: str, before: Tape, after: Tape) -> None:
        if stages and stages[-1].after is not before and stages[-1].after != before:
            stages.append(Stage(BETWEEN, stages[-1].after, before))
        stages.append(Stage(name, before, after))

    token = shown.set(show)
    try:
        return make(), stages
    finally:
        shown.reset(token)


def compared(before: Tape, after: Tape) -> tuple[list[Row], list[Row]]:
    """The lines of two tapes. One is changed if the other tape has no call that does the same at
    the same line of the program, of operands of the same types."""
    lines = [
        [(text, call, _key(text, call)) for text, call in shown_lines(x)] for x in (before, after)
    ]
    rows = []
    for own, other in zip(lines, reversed(lines), strict=True):
        left = Counter([key for *_, key in other])
        found = []
        for text, call, key in own:
            left[key] -= 1
            found.append(Row(text, call.src if call else None, left[key] < 0))
        rows.append(found)
    return rows[0], rows[1]


def _key(text: str, call: Call | None) -> Hashable:
    if call is None:
        if not text.startswith(("  inp", "  cap", "  guard")):
            return ""  # the head has a name, and the results numbers
        return re.sub(r"%\d+|\s+#.*", "", text)
    operands = [x if isinstance(x, Literal) else x.aval for x in call.operands]
    return call.primitive, *operands, call.src, call.is_cotangent
