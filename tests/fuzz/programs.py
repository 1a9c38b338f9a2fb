"""Random programs in plain NumPy, as source text.

A program grows line by line. A line is drawn from the table in `productions.py`, its holes are
filled with what is there at that place, and NumPy runs the whole program on several calls'
arguments: if a line raises there, or leaves numbers that are large or not finite, it is dropped. So
the table needn't know NumPy's rules, and every program that comes out runs.

All choices are those of a `random.Random`: hypothesis has one whose choices it can shrink.
"""

from __future__ import annotations

import ast
import linecache
import random
import string
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.fuzz import values
from tests.fuzz.holes import HOLES, MAIN, writable
from tests.fuzz.productions import BLOCKS, INPUTS, STEPS

from tapegrad import linalg

LARGEST, MOST_ELEMENTS, MOST_AXES = 1e3, 64, 4
TAB = "    "


@dataclass(frozen=True)
class Call:
    """One call of a program: everything that it is given is drawn anew for each `seed`."""

    program: Program
    seed: int

    def _values(self, sources: dict[str, str], salt: int) -> dict[str, Any]:
        rng = np.random.default_rng([salt, self.seed])
        given = {name: getattr(values, name) for name in values.__all__}
        given = {name: lambda *a, f=f, **k: f(rng, *a, **k) for name, f in given.items()}
        return {name: eval(text, {"np": np, **given}) for name, text in sources.items()}

    def args(self) -> tuple[Any, ...]:
        """The arguments, fresh arrays each time."""
        return tuple(self._values(self.program.arguments, 0).values())

    def captured(self) -> dict[str, Any]:
        """The globals."""
        return self._values(self.program.captured, 1)


@dataclass(frozen=True)
class Program:
    """A function as text, how its arguments are drawn, and the globals that it reads."""

    arguments: dict[str, str]
    captured: dict[str, str]
    lines: tuple[str, ...]

    def __str__(self) -> str:
        notes = [f"# {n} = {t}" for n, t in (*self.captured.items(), *self.arguments.items())]
        head = f"def program({', '.join(self.arguments)}):"
        return "\n".join([*notes, head, *[TAB + line for line in self.lines]])

    @property
    def wide(self) -> Program:
        """The same program in float64 throughout."""
        if "float32" not in str(self):
            return self

        def widened(texts: dict[str, str]) -> dict[str, str]:
            return {name: _wide(text) for name, text in texts.items()}

        lines = tuple(map(_wide, self.lines))
        return Program(widened(self.arguments), widened(self.captured), lines)

    @property
    def rounding(self) -> Program:
        """The same program, with `rounded` applied to the arguments and to what each line names."""
        lines = [f"{name} = rounded({name})" for name in self.arguments]
        for line in self.lines:
            lines.append(line)
            name, equals, _ = line.partition(" = ")
            if equals and name.strip().isidentifier():
                lines.append(f"{name} = rounded({name.strip()})")
        return Program(self.arguments, self.captured, tuple(lines))

    def call(self, seed: int) -> Call:
        return Call(self, seed)

    def function(self) -> Callable[..., Any]:
        """The program, compiled; a new function each time. Its lines are shown in messages."""
        text = str(self)
        file = f"<program {zlib.crc32(text.encode()):08x}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        names: dict[str, Any] = {"np": np, "linalg": linalg}
        exec(compile(text, file, "exec"), names)
        return names["program"]


def _wide(text: str) -> str:
    return text.replace("float32", "float64")


def enter(f: Callable[..., Any], captured: dict[str, Any]) -> None:
    """Give a program's function the globals of a call. Arrays are bound anew; what is written
    into one is only followed where it meets a traced value."""
    f.__globals__.update(captured)


# ---- how a program grows

Env = dict[str, Any]


class Grower:
    """A program under construction, and the calls that each line is tried with."""

    SEEDS = (0, 1, 2)

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.arguments: dict[str, str] = {}
        self.captured: dict[str, str] = {}
        self.lines: tuple[str, ...] = ()
        self.count = 0  # of names given so far
        # Either Python's numbers or float32: np.abs of a Python number is a float64, abs of it
        # takes any dtype, and a trace doesn't tell them apart.
        self.single = self.chance(0.3)

    def chance(self, p: float) -> bool:
        return self.rng.random() > 1 - p  # so that shrinking makes it False

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # ---- running what is there

    def run(self, lines: Sequence[str]) -> list[Env | None]:
        """What `lines` return in each call, where it is not nothing."""
        program = Program(self.arguments, self.captured, tuple(lines))
        f = program.function()
        found = []
        for seed in self.SEEDS:
            call = program.call(seed)
            captured = call.captured()
            for x in captured.values():
                if isinstance(x, np.ndarray):
                    x.flags.writeable = False  # a program that writes to them is an error
            f.__globals__.update(captured)
            with np.errstate(all="ignore"):
                env = f(*call.args())
            found.append(env and {**captured, **env})
        return found

    def env(self, depth: int) -> Env:
        """Names and values at the end of the lines, in a call that gets there."""
        reached = [e for e in self.run([*self.lines, TAB * depth + "return locals()"]) if e]
        if not reached:
            return {}
        common = [
            n for n, x in reached[0].items() if all(n in e and _alike(e[n], x) for e in reached)
        ]
        return {name: min((e[name] for e in reached), key=writable) for name in common}

    def attempt(self, *lines: str) -> bool:
        """Add the lines if NumPy takes them, and if what they leave is tame."""
        before = self.lines
        self.lines = (*before, *lines)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # what is deprecated
                envs = self.run([*self.lines, "return locals()"])
            good = all(tame(x) for env in envs for x in (env or {}).values())
        except Exception:
            good = False
        if not good:
            self.lines = before
        return good

    # ---- filling in a line of the table

    def fill(self, template: str, env: Env) -> str | None:
        """The template with its holes filled; None if what it needs isn't there."""
        fields = [f for _, f, _, _ in string.Formatter().parse(template) if f]
        hole = Hole(self, env)
        filled: dict[str, str] = {}
        for field in dict.fromkeys(f for f in fields if f in MAIN):
            pool = hole.names(MAIN[field])
            if not pool:
                return None
            filled[field] = self.recent(pool)
            hole.main = hole.main or filled[field]
        parts = []
        for literal, field, _, _ in string.Formatter().parse(template):
            parts.append(literal)
            if field:
                text = filled.get(field) or HOLES[field](hole)
                if text is None:
                    return None
                parts.append(text)
        return "".join(parts)

    def recent(self, pool: list[str]) -> str:
        """One of these names, rather a late one."""
        return pool[-1 - min(self.rng.randrange(len(pool)), self.rng.randrange(len(pool)))]

    # ---- growing

    def inputs(self) -> None:
        """Arguments, the first of them real, and globals."""
        for k in range(1 + self.rng.randrange(3) + self.rng.randrange(3)):
            text = self.rng.choice(INPUTS[0] if k == 0 else self.rng.choice(INPUTS))
            text = text.replace("SHAPE", str(self.rng.choice(values.SHAPES)))
            text = text.replace("number()", "reals(())") if self.single else text
            text = text if self.single else text.replace(", np.float32", "")
            name = self.fresh("x")
            captured = k > 0 and "{" not in text and self.chance(0.2)
            (self.captured if captured else self.arguments)[name] = text
            if text.startswith("{"):
                self.lines += (f"{name}a, {name}b = {name}['a'], {name}['b']",)

    def result(self) -> str:
        """The line that returns a few of the values, the last real one first."""
        numbers = [n for n, x in self.env(0).items() if isinstance(x, KINDS)]
        reals = [n for n in numbers if MAIN["x"](self.env(0)[n])]
        found = [reals[-1]]
        for pool in (reals, reals, numbers):
            if self.chance(0.4):
                found.append(self.recent(pool))
        named = [f"'r{k}': {name}" for k, name in enumerate(found)]
        listed = ", ".join(found)
        forms = [listed, f"[{listed}]", f"{{{', '.join(named)}}}"]
        return "return " + (self.rng.choice(forms) if len(found) > 1 else listed)

    def step(self, depth: int) -> bool:
        """Add a line, or a block of lines."""
        env = self.env(depth)
        if not env:
            return False
        for _ in range(4):
            if depth < 2 and self.chance(0.18):
                if self.block(env, depth):
                    return True
                continue
            template = self.rng.choice(self.rng.choice(STEPS))
            line = self.fill(template, env) if self.single or "float32" not in template else None
            if line is None:
                continue
            if _is_expression(line):
                names = [n for n in env if n.startswith("v")]
                rebind = names and self.chance(0.4 if depth else 0.1)
                name = self.rng.choice(names) if rebind else self.fresh("v")
                line = f"{name} = {line}"
                if rebind and depth and self.grows(name, line, env, depth):
                    continue
            if self.attempt(TAB * depth + line):
                return True
        return False

    def grows(self, name: str, line: str, env: Env, depth: int) -> bool:
        """Whether a line that a loop may repeat makes an array of many more elements."""
        before = self.lines
        self.lines = (*before, TAB * depth + line)
        try:
            return np.size(self.env(depth).get(name)) > np.size(env[name]) + 4
        except Exception:
            return True  # NumPy doesn't take it
        finally:
            self.lines = before

    def block(self, env: Env, depth: int) -> bool:
        """Add an `if` or a loop, with a body of a few lines."""
        head = self.fill(self.rng.choice(self.rng.choice(BLOCKS)), env)
        if head is None:
            return False
        before = self.lines
        self.lines = (*before, *[TAB * depth + line for line in head.split("\n")])
        if not self.body(depth + 1):
            self.lines = before
            return False
        if head.startswith("if") and self.chance(0.5):
            whole = self.lines
            self.lines = (*whole, TAB * depth + "else:")
            if not self.body(depth + 1):
                self.lines = whole
        return True

    def body(self, depth: int) -> bool:
        """Add a few lines at this depth; False if there are none."""
        start = len(self.lines)
        try:
            for _ in range(1 + self.rng.randrange(3)):
                self.step(depth)
        except Exception:  # how the block begins raises
            return False
        return len(self.lines) > start


class Hole:
    """What the holes of one line are filled from."""

    def __init__(self, grower: Grower, env: Env) -> None:
        self.grower, self.rng, self.env = grower, grower.rng, env
        self.main = ""

    @property
    def x(self) -> np.ndarray:
        """The value of the line's main operand."""
        return np.asarray(self.env[self.main])

    def names(self, fits: Callable[[Any], bool]) -> list[str]:
        return [n for n, x in self.env.items() if isinstance(x, KINDS) and fits(x)]

    def one_of(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def number(self) -> str:
        return self.one_of("0.5", "2.0", "1.5", "-1.0", "0.3", "2", "-1.7", "np.float64(0.7)")


KINDS = (np.ndarray, np.generic, float, int, complex)


def _alike(x: Any, y: Any) -> bool:
    """Whether a name holds the same kind of thing in two calls."""
    return type(x) is type(y) and getattr(x, "dtype", None) == getattr(y, "dtype", None)


def _is_expression(line: str) -> bool:
    try:
        return bool(ast.parse(line, mode="eval"))
    except SyntaxError:
        return False


def tame(x: Any) -> bool:
    """Whether a value is a small array of moderate numbers (or no array at all)."""
    if isinstance(x, (tuple, list)):
        return all(map(tame, x))
    if isinstance(x, dict):
        return all(map(tame, x.values()))
    if not isinstance(x, KINDS):
        return True
    x = np.asarray(x)
    if x.dtype.kind not in "fiub" or x.dtype == np.float16:
        return False
    small = x.size <= MOST_ELEMENTS and x.ndim <= MOST_AXES
    if not small or x.size == 0 or x.dtype == bool:
        return small
    return bool(np.all(np.isfinite(x))) and float(np.max(np.abs(x.astype(float)))) <= LARGEST


def grow(rng: random.Random, longest: int = 10) -> Program:
    """A program of up to so many steps."""
    grower = Grower(rng)
    grower.inputs()
    for _ in range(1 + rng.randrange(longest)):
        grower.step(0)
    lines = (*grower.lines, grower.result())
    return Program(grower.arguments, grower.captured, lines)
