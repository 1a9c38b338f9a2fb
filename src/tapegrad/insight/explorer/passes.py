"""A tape before and after each pass, and the lines that a pass has changed."""

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
BETWEEN = "other work"  # name of the changes to a tape between passes


class Stage(NamedTuple):
    """A pass: its name, the tape before it, and the tape after it."""

    name: str
    before: Tape
    after: Tape


class Row(NamedTuple):
    """A line of a tape, with the line of the program; and whether a pass made or removes it."""

    text: str
    src: Source | None
    changed: bool


def seen(make: Callable[[], T]) -> tuple[T, list[Stage]]:
    """The result of a function, and the passes over tapes that it ran."""
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
    """The lines of two tapes. A line is changed if the other tape has no equal call from the same
    line of the program, on operands of the same types."""
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
            return ""  # the header has a name, and the results have numbers
        return re.sub(r"%\d+|\s+#.*", "", text)
    operands = [x if isinstance(x, Literal) else x.aval for x in call.operands]
    return call.primitive, *operands, call.src, call.is_cotangent
