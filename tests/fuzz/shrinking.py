"""A failing program made short: lines are left out as long as it fails in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.programs import Program

SECONDS = 30.0  # for one program


def likeness(error: Exception) -> str:
    """What two failures have in common that are one fault: the kind of error and its words."""
    words = re.sub(
        r"^.*?(?=raises |gives |array|the derivative|, not )", "", str(error), flags=re.S
    )
    return type(error).__name__ + ": " + re.sub(r"[^a-zA-Z ]+", "", words)[:40]


def shrunk(
    program: Program, fails: Callable[[Program], Exception | None], error: Exception
) -> tuple[Program, Exception]:
    """The shortest program found that fails as this one does, and how."""
    wanted, stop = likeness(error)[:24], time.monotonic() + SECONDS
    again = True
    while again:
        again = False
        for shorter in _shorter(program):
            if time.monotonic() > stop:
                return program, error
            found = fails(shorter)
            if found is not None and likeness(found).startswith(wanted):
                program, error, again = shorter, found, True
                break
    return program, error


def _shorter(program: Program) -> Iterator[Program]:
    """Programs without a line and what is indented under it, or with that in its place; with fewer
    results; with what is captured in plain variables."""
    lines = program.lines
    for k in reversed(range(len(lines) - 1)):
        end = k + 1
        while end < len(lines) and _depth(lines[end]) > _depth(lines[k]):
            end += 1
        yield replace(program, lines=(*lines[:k], *lines[end:]))
        if end > k + 1:
            body = tuple(line[4:] for line in lines[k + 1 : end])
            yield replace(program, lines=(*lines[:k], *body, *lines[end:]))
    names = re.findall(r"\b[vx]\d+\w*", lines[-1])
    if len(names) > 1:
        for name in names:
            yield replace(program, lines=(*lines[:-1], f"return {name}"))
    for name, place in program.places.items():
        if place != "global":
            yield replace(program, places={**program.places, name: "global"})


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
