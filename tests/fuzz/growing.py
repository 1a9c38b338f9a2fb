"""How a random program grows, line by line.

A line is drawn from the table in `productions.py`, its holes are filled with what is there at that
place, and NumPy runs the whole program on several calls' arguments: if a line raises there, or
leaves numbers that are large or not finite, it is dropped. So the table needn't know NumPy's rules,
and every program that comes out runs.
"""

from __future__ import annotations

import ast
import random
import string
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.fuzz import values
from tests.fuzz.holes import HOLES, KINDS, MAIN, ONCE, writable
from tests.fuzz.productions import BLOCKS, CHAINED, INPUTS, LENGTHS, STEPS
from tests.fuzz.programs import MOST_ELEMENTS, TAB, Program
from tests.fuzz.states import PLACES

from tapegrad.core.trees import flatten

LARGEST, MOST_AXES = 1e3, 4

Env = dict[str, Any]


class Locals:
    """What a program returns while it is tried: its names and values at that place."""

    def __init__(self, names: Env) -> None:
        self.names = names


class Grower:
    """A program under construction, and the calls that each line is tried with."""

    SEEDS = (0, 1, 2)
    NUMBERS = ("0.5", "2.0", "1.5", "-1.0", "0.3", "2", "-1.7", "np.float64(0.7)")

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.arguments: dict[str, str] = {}
        self.captured: dict[str, str] = {}
        self.places: dict[str, str] = {}
        self.lines: tuple[str, ...] = ()
        self.count = 0  # of names given so far
        # Either Python's numbers or float32: np.abs of a Python number is a float64, abs of it
        # takes any dtype, and a trace doesn't tell them apart.
        self.single = self.chance(0.3)
        # Some chain vectors and square matrices of one length; some are made of a few lines
        # again and again, which meet each other more often.
        self.steps, self.chain = STEPS, 0
        if self.chance(0.2):
            some = rng.sample(CHAINED, 3)
            self.steps, self.chain = [["{m} @ {u}", *some]], rng.choice(LENGTHS)
        elif self.chance(0.4):
            some = rng.sample(STEPS, 5)
            self.steps = [rng.sample(group, min(len(group), 3)) for group in some]

    def chance(self, p: float) -> bool:
        return self.rng.random() > 1 - p  # so that shrinking makes it False

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # ---- running what is there

    def run(self, lines: Sequence[str]) -> list[Env | None]:
        """What `lines` return in each call, where it is not nothing."""
        program = self.program(lines)
        f = program.function()
        found: list[Env | None] = []
        for seed in self.SEEDS:
            call = program.call(seed)
            captured = call.captured()
            for x in flatten(captured)[0]:
                if isinstance(x, np.ndarray):
                    x.flags.writeable = False  # a program that writes to them is an error
            call.enter(f, Locals=Locals, **captured)
            with np.errstate(all="ignore"):
                env = f(*call.args())
            found.append({**captured, **env.names} if isinstance(env, Locals) else None)
        return found

    def program(self, lines: Sequence[str]) -> Program:
        return Program(self.arguments, self.captured, tuple(lines), self.places)

    def env(self, depth: int) -> Env:
        """Names and values at the end of the lines, in a call that gets there."""
        reached = [e for e in self.run([*self.lines, TAB * depth + "return Locals(locals())"]) if e]
        if not reached:
            return {}
        common = [
            n for n, x in reached[0].items() if all(n in e and _alike(e[n], x) for e in reached)
        ]
        return {name: min((e[name] for e in reached), key=writable) for name in common}

    def takes(self, x: Any) -> bool:
        """Whether a line may leave this value."""
        return tame(x)

    def attempt(self, *lines: str) -> bool:
        """Add the lines if NumPy takes them, and if what they leave is tame."""
        before = self.lines
        self.lines = (*before, *lines)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # what is deprecated
                envs = self.run([*self.lines, "return Locals(locals())"])
            # Some call gets to the end, past every early return.
            good = any(envs) and all(self.takes(x) for env in envs for x in (env or {}).values())
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
                if field in ONCE:
                    filled[field] = text
                parts.append(text)
        return "".join(parts)

    def recent(self, pool: list[str]) -> str:
        """One of these names, rather a late one, or one of what is captured."""
        if self.chain and self.chance(0.6):
            return pool[-1]
        captured = [name for name in pool if name in self.captured]
        if captured and self.chance(0.2):
            return self.rng.choice(captured)
        return pool[-1 - min(self.rng.randrange(len(pool)), self.rng.randrange(len(pool)))]

    # ---- growing

    def inputs(self) -> None:
        """Arguments, the first of them real, and what is captured."""
        if self.chain:
            n = self.chain
            for shape in ((n,), (n, n), (n, n), (n,)):
                self.arguments[self.fresh("x")] = f"reals({shape})"
            return
        for k in range(1 + self.rng.randrange(3) + self.rng.randrange(3)):
            text = self.rng.choice(INPUTS[0] if k == 0 else self.rng.choice(INPUTS))
            text = self.shaped(text)
            text = text.replace("number()", "reals(())") if self.single else text
            text = text if self.single else text.replace(", np.float32", "")
            name = self.give(text, captured=k > 0 and self.chance(0.4))
            if text[0] in "{[(":
                parts = f"{name}['a'], {name}['b']" if text[0] == "{" else name
                self.lines += (f"{name}a, {name}b = {parts}",)

    def shaped(self, text: str) -> str:
        while "SHAPE" in text:
            text = text.replace("SHAPE", str(self.rng.choice(values.SHAPES)), 1)
        return text

    def give(self, text: str, captured: bool) -> str:
        """The name of what is drawn so: an argument, or what is captured in some place."""
        name = self.fresh("x")
        if captured:
            self.captured[name] = text
            self.places[name] = self.rng.choice([*PLACES])
        else:
            self.arguments[name] = text
        return name

    def result(self) -> str:
        """The line that returns a few of the values, the last real one first."""
        numbers = [n for n, x in self.env(0).items() if isinstance(x, KINDS)]
        reals = [n for n in numbers if MAIN["x"](self.env(0)[n])]
        found = [reals[-1]]
        for pool in (reals, reals, numbers):
            if not self.chain and self.chance(0.4):
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
            if depth < 2 and not self.chain and self.chance(0.18):
                if self.block(env, depth):
                    return True
                continue
            template = self.rng.choice(self.rng.choice(self.steps))
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
            if self.attempt(*[TAB * depth + part for part in line.split("\n")]):
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
        return self.one_of(*self.grower.NUMBERS)


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
    if x.dtype.kind not in "fiubc" or x.dtype == np.float16:
        return False
    small = x.size <= MOST_ELEMENTS and x.ndim <= MOST_AXES
    if not small or x.size == 0 or x.dtype == bool:
        return small
    return bool(np.all(np.isfinite(x))) and float(np.max(np.abs(x).astype(float))) <= LARGEST


def grow(rng: random.Random, longest: int = 8) -> Program:
    """A program of up to so many steps."""
    grower = Grower(rng)
    grower.inputs()
    for _ in range(5 if grower.chain else 1 + rng.randrange(longest)):
        grower.step(0)
    lines = (*grower.lines, grower.result())
    return grower.program(lines)
