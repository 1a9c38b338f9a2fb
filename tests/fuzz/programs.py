"""Programs in plain NumPy, as source text, and the calls that they are held to.

All that a program is given is text too: how an argument or a captured value is drawn. So a call
with another shape, dtype, kind or layout of an argument is a call of the same lines with another
text for that argument.
"""

from __future__ import annotations

import linecache
import math
import random
import types
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from scipy import linalg
from tests.fuzz import states, values

MOST_ELEMENTS = 64
TAB = "    "


@dataclass(frozen=True)
class Call:
    """One call of a program: everything that it is given is drawn anew for each `seed`.

    `what` says how it differs from the program's first call.
    """

    program: Program
    seed: int
    what: str = "values"

    def _values(self, sources: dict[str, str], salt: int) -> dict[str, Any]:
        rng = np.random.default_rng([salt, self.seed])
        given = {name: getattr(values, name) for name in values.DRAWN}
        given = {name: lambda *a, f=f, **k: f(rng, *a, **k) for name, f in given.items()}
        given |= {name: getattr(values, name) for name in values.MADE}
        given["np"] = np
        return {name: eval(_code(text), given) for name, text in sources.items()}

    def args(self) -> tuple[Any, ...]:
        """The arguments, new ones each time."""
        return tuple(self._values(self.program.arguments, 0).values())

    def captured(self) -> dict[str, Any]:
        """What the program finds in its places."""
        return self._values(self.program.captured, 1)

    def enter(self, f: Callable[..., Any], **more: Any) -> None:
        """Put what is captured in its places: by turns bound anew and written into what is
        there. Streams of random numbers begin anew."""
        states.enter(f, {**self.captured(), **more}, anew=self.seed % 2 == 0)
        if self.program.draws:
            np.random.seed(self.seed + 7)
            random.seed(self.seed)

    def __str__(self) -> str:
        base = f"seed {self.seed}, other {self.what}"
        texts = {**self.program.captured, **self.program.arguments}
        return f"{base}: " + ", ".join(f"{name} = {text}" for name, text in texts.items())


@dataclass(frozen=True)
class Program:
    """A function as text, how its arguments are drawn, and what it captures, in which places."""

    arguments: dict[str, str]
    captured: dict[str, str]
    lines: tuple[str, ...]
    places: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        notes = [f"# {n} = {t}" for n, t in self.arguments.items()]
        notes += [f"# {n} = {t}, in a place: {self.places[n]}" for n, t in self.captured.items()]
        return "\n".join([*notes, self.text])

    @property
    def text(self) -> str:
        return states.text(list(self.arguments), self.lines, self.places)

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return "random" in str(self) or "generator" in str(self)

    @property
    def wide(self) -> Program:
        """The same program in float64 throughout."""
        if "float32" not in str(self):
            return self

        def widened(texts: dict[str, str]) -> dict[str, str]:
            return {name: _wide(text) for name, text in texts.items()}

        lines = tuple(map(_wide, self.lines))
        return replace(
            self,
            arguments=widened(self.arguments),
            captured=widened(self.captured),
            lines=lines,
        )

    @property
    def rounding(self) -> Program:
        """The same program, with `rounded` applied to the arguments and to what each line names."""
        lines = [f"{name} = rounded({name})" for name in self.arguments]
        for line in self.lines:
            lines.append(line)
            name, equals, _ = line.partition(" = ")
            if equals and name.strip().isidentifier():
                lines.append(f"{name} = rounded({name.strip()})")
        return replace(self, lines=tuple(lines))

    def call(self, seed: int, what: str = "values") -> Call:
        return Call(self, seed, what)

    def function(self) -> Callable[..., Any]:
        """The program, compiled; a new function each time. Its lines are shown in messages."""
        text = self.text
        file = f"<program {zlib.crc32(text.encode()):08x}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        names = {"np": np, "linalg": linalg, "math": math, "random": random}
        return states.function(text, file, names, self.places)


@cache
def _code(text: str) -> types.CodeType:
    return compile(text, "<drawn>", "eval")


def _wide(text: str) -> str:
    return text.replace("float32", "float64")
