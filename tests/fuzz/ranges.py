"""Programs whose numbers are of any size: from subnormal ones to those about to overflow, zeros of
both signs, infinities and NaN.

What tapegrad gives is of the class that NumPy's is: a number, a zero of this sign, an infinity of
this sign, or NaN. Numbers are as near each other as rounding leaves them, by their own size.
Differences say nothing of a derivative there; played and compiled it is the same, in class too.
"""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tests.fuzz.further import FURTHER
from tests.fuzz.growing import Grower
from tests.fuzz.holes import KINDS
from tests.fuzz.making import FILLED, LISTS, MADE, MATH
from tests.fuzz.productions import LINEAR, STEPS
from tests.fuzz.programs import Call, Program
from tests.fuzz.properties import (
    COMPARED,
    SKIPPED,
    Effort,
    Raised,
    Wrong,
    answer,
    assert_like,
    differentiable,
    expected_of,
    real_arguments,
    weighted,
)
from tests.fuzz.rounding import SAFETY, outputs, unit

from tapegrad import jit, value_and_grad
from tapegrad.core.trees import flatten

# Lapack's routines lose the small numbers of a matrix beside its large ones.
TABLES = [[line for line in table if "while" not in line] for table in STEPS if table is not LINEAR]
TABLES += [
    [line for line in table if "linalg.s" not in line and "polyfit" not in line]
    for table in (MADE, FILLED, LISTS, MATH, FURTHER)
]

# What may be computed in another order, or by another formula.
REWRITTEN = [
    "{x} * {y} * {s}",
    "{x} * {s} * {s}",
    "{s} * ({x} * {y})",
    "{x} * {y} / {y}",
    "{x} / {s} / {s}",
    "{x} / ({y} / {s})",
    "{x} * 2.0 * {y} * 0.5",
    "{x} * 1e-200 * 1e200",
    "{x} / 2.0**300 * 2.0**300",
    "({x} + {y}) * {s}",
    "{x} * {s} + {y} * {s}",
    "{x} - {y} + {s}",
    "-({x} - {y})",
    "-({x} * {y}) + 0.0",
    "0.0 - {x}",
    "{x} + 0.0",
    "{x} * 0.0 + {y}",
    "{x} * -1",
    "({x} - {y}) ** 2",
    "{x} ** 2 * {s}",
    "{x} * {x} * {x}",
    "{x} ** 3 / {y}",
    "{x} ** -1",
    "{x} ** -2 * {y}",
    "{x} ** 4",
    "{x} ** 0.5 * {y}",
    "np.sqrt({x} * {x} + {y} * {y})",
    "np.sqrt({x} ** 2)",
    "np.exp({x}) * np.exp(-{x})",
    "np.exp({x}) / np.exp({y})",
    "np.log(np.abs({x} * {y}))",
    "np.log(np.abs({x})) - np.log(np.abs({y}))",
    "np.exp(np.log(np.abs({x})) * 0.5)",
    "np.log(np.exp({x}) + 1.0)",
    "1.0 / (1.0 / {x})",
    "{x} / np.max(np.abs({x}))",
    "{x} / np.sqrt(np.sum({x} * {x}))",
    "np.sum({x} * {y})",
    "np.sum({x} * {s}) * {s}",
    "{s} * np.sum({x} * {y}, axis={axes})",
    "np.sum({v} * {s}, axis={axis}) / {s}",
    "np.mean({x} * {y})",
    "np.mean({v}, axis={axis}) * {s}",
    "np.mean(({x} - {y}) ** 2)",
    "np.sum({v}, axis={axis}, initial={s})",
    "np.prod({v}) * {s}",
    "({v} * {s}) @ {fit}",
    "{s} * ({v} @ {fit})",
    "({m} @ {m}.T) @ {m} * {s}",
    "({v} @ {fit}) / {s}",
    "({m} / {s}) @ {m}.T * {s}",
    "({v} @ {fit}) * 0.0",
    "np.einsum('ij,jk,kl->il', {m}, {m}.T, {m})",
    "np.sum({m} @ {m}.T)",
    "np.trace({m} @ {m}.T) * {s}",
    "np.where({x} > {s}, {x} * {y}, {x} / {y})",
    "np.maximum({x} * {s}, {y}) * {s}",
    "np.abs({x}) * np.sign({y})",
    "np.hypot({x}, {y}) * {s}",
    "np.logaddexp({x}, {y}) - {x}",
    "np.tanh({x} * {y})",
    "({x} * {s}).astype(np.float32)",
    """\
{out} = {x} * 1.0
for k in range(4):
    {out} = {out} * {y}""",
    """\
{out} = {x} * 1.0
for k in range({many}):
    {out} = 0.5 * {out} + {y}""",
]
# Where the order of sums of products is left open: so is what infinities come to that meet there,
# and the sign of a sum of zeros, which NumPy's own functions don't agree on.
PRODUCTS = re.compile(r"@|dot|inner|einsum|matmul|cov|convolve|kron|outer|power|poly")
RUNS = 8


class RangeGrower(Grower):
    """A program of a few tables, whose numbers and values are of any size."""

    NUMBERS = (*Grower.NUMBERS, "1e300", "3e-200", "-0.0", "0.0", "1e-310", "-1e154", "2.0**600")

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        if not self.chain:
            some = rng.sample(TABLES, 1 + rng.randrange(3))
            self.steps = [*some, *[rng.sample(REWRITTEN, 12)] * 2, *[REWRITTEN] * 3]

    def inputs(self) -> None:
        super().inputs()
        for given in (self.arguments, self.captured):
            for name, text in given.items():
                given[name] = text.replace("reals(", "any_reals(").replace("number(", "any_number(")

    def takes(self, x: Any) -> bool:
        """Small arrays, whatever is in them; whole numbers are extents, and stay small."""
        if isinstance(x, (tuple, list, dict)):
            return all(map(self.takes, x.values() if isinstance(x, dict) else x))
        if isinstance(x, KINDS) and np.asarray(x).dtype.kind == "f":
            return super().takes(np.zeros(np.shape(x)))
        return super().takes(x)


def grow_ranges(rng: random.Random, longest: int = 8) -> Program:
    """A program of numbers of any size, of up to so many steps."""
    grower = RangeGrower(rng)
    grower.inputs()
    for _ in range(4 if grower.chain else 2 + rng.randrange(longest)):
        grower.step(0)
    return grower.program((*grower.lines, grower.result()))


def check_ranges(program: Program, seed: int, effort: Effort | None = None) -> Counter[str]:
    """Hold a program to NumPy's classes and numbers in a few calls; how many were compared."""
    effort = effort or Effort()
    rng = random.Random(seed)
    calls = [program.call(k) for k in (0, 1, 2, 0)]
    ways = ["never", "always"] if rng.random() < effort.compiled else ["never"]
    tally: Counter[str] = Counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        plain = program.function()
        expected = [expected_of(plain, call) for call in calls]
        _check_values(program, calls, expected, ways[-1:], tally)
        _check_gradients(program, calls, expected, ways, tally)
    return tally


def _check_values(
    program: Program,
    calls: Sequence[Call],
    expected: Sequence[Any],
    ways: Sequence[str],
    tally: Counter[str],
) -> None:
    f = program.function()
    for way in ways:
        g = jit(f, compile=way)
        for call, wanted in zip(calls, expected, strict=True):
            call.enter(f)
            how = f"{_word(way)}, {call}"
            outcome, found = answer(lambda: g(*call.args()), wanted, call, how)  # noqa: B023
            if outcome == COMPARED:
                rounding = partial(_runs, call, lambda f, call=call: f(*call.args()))
                outcome = compare_classes(
                    found, wanted, rounding, unit(program), how, _is_open(program)
                )
            tally[f"any size: {outcome}"] += 1


def _check_gradients(
    program: Program,
    calls: Sequence[Call],
    expected: Sequence[Any],
    ways: Sequence[str],
    tally: Counter[str],
) -> None:
    """The first way's gradients are those of the others, in class and up to rounding."""
    wrt = real_arguments(program)
    f = program.function()
    derivatives = [value_and_grad(weighted(f), wrt, compile=way) for way in ways]
    for call, wanted in zip(calls, expected, strict=True):
        if isinstance(wanted, Raised) or not differentiable(call, wrt):
            continue
        first: Any = None
        for way, derivative in zip(ways, derivatives, strict=True):
            call.enter(f)
            how = f"gradient, {_word(way)}, {call}"
            outcome, found = answer(lambda: derivative(*call.args()), None, call, how)  # noqa: B023
            if outcome != COMPARED:
                break
            assert_like(found[1], tuple(call.args()[k] for k in wrt), how)
            if first is None:
                first = found
                continue
            again = partial(value_and_grad, argnums=wrt, compile="never")
            rounding = partial(_runs, call, lambda f, call=call: again(weighted(f))(*call.args()))  # noqa: B023
            outcome = compare_classes(found, first, rounding, unit(program), how, True)
            tally[f"any size, gradient: {outcome}"] += 1


def _is_open(program: Program) -> bool:
    return bool(PRODUCTS.search(" ".join(program.lines)))


def _word(way: str) -> str:
    return "compiled" if way == "always" else "played"


# ---- what is compared


def moved(x: Any, by: float, seed: int) -> Any:
    """`x`, in place if it can be, with its numbers moved by up to this part of them, and small ones
    by as much as the last place of a subnormal number. Some runs move equal numbers alike. With 0
    for a seed infinities and NaN take each other's place."""
    if isinstance(x, dict):
        return {key: moved(value, by, seed) for key, value in x.items()}
    if type(x) in (list, tuple):
        return type(x)(moved(value, by, seed) for value in x)
    if isinstance(x, float) and not isinstance(x, np.generic):
        return float(_moved(np.float64(x), by, seed))
    if (
        not hasattr(x, "dtype")
        or x.dtype.kind != "f"
        or not isinstance(x, (np.ndarray, np.generic))
    ):
        return _moved_traced(x, by, seed) if hasattr(x, "dtype") and x.dtype.kind == "f" else x
    result = _moved(np.asarray(x), by, seed)
    if isinstance(x, np.generic):
        return result[()]
    try:
        x[...] = result
    except (ValueError, TypeError):  # a view that can't be written to
        return result if x.ndim == 0 else x
    return x


def _moved(x: Any, by: float, seed: int) -> Any:
    if seed == 0:
        return np.select(
            [np.isnan(x), np.isinf(x)], [x.dtype.type(np.inf), x.dtype.type(np.nan)], x
        )
    sizes = np.where(np.isfinite(x), np.frexp(np.abs(x))[0], 0.0) * 1e6 * seed
    if seed % 2:
        sizes = sizes + np.arange(x.size).reshape(x.shape)
    factors = np.sin(sizes)
    last = np.finfo(x.dtype).smallest_subnormal * np.rint(1.4 * factors)
    small = np.abs(x) < np.finfo(x.dtype).tiny / by
    shift = np.where(small & (x != 0), last, 0).astype(x.dtype)
    return (x * (1 + by * factors).astype(x.dtype) + shift).astype(x.dtype)


def _moved_traced(x: Any, by: float, seed: int) -> Any:
    """The same factors for each element, whatever its value: what is traced isn't looked at."""
    factors = np.sin(seed * (1.0 + np.arange(x.size).reshape(x.shape) * (seed % 2)))
    return x * (1 + by * factors).astype(x.dtype)


def _runs(call: Call, run: Callable[[Any], Any]) -> list[Any] | None:
    """`run` of the call's program, each time rounded in another way; None if one of them raises."""
    f = call.program.rounding.function()
    found = []
    for seed in range(0 if _is_open(call.program) else 1, RUNS + 1):
        call.enter(f, rounded=partial(moved, by=unit(call.program), seed=seed))
        try:
            found.append(run(f))
        except Exception:
            return None
    return found


def classes(x: np.ndarray, coarse: bool) -> np.ndarray:
    """For each number: NaN, an infinity or a zero of this sign, or another number. If `coarse`, not
    finite, zero or another number."""
    if coarse:
        return np.select([~np.isfinite(x), x == 0], [2, 1], 0)
    kinds = np.select([np.isnan(x), np.isinf(x), x == 0], [3, 2, 1], 0)
    return np.where(np.isin(kinds, [1, 2]) & np.signbit(x), -kinds, kinds)


def compare_classes(
    found: Any,
    expected: Any,
    rounding: Callable[[], Sequence[Any] | None],
    by: float,
    what: str,
    coarse: bool = False,
) -> str:
    """Equal structures, shapes and dtypes; classes, where rounding doesn't decide on them; and
    numbers up to rounding."""
    pairs = list(zip(outputs(found), outputs(expected), strict=True))
    for a, b in pairs:
        if (a.shape, a.dtype) != (b.shape, b.dtype.newbyteorder("=")):
            raise Wrong(f"{what}: {a!r}, not {b!r}")
    if all(np.all(_near(a, b, by * np.abs(b), coarse)) for a, b in pairs):
        return COMPARED
    others = rounding()
    if others is None or any(flatten(x)[1] != flatten(expected)[1] for x in others):
        return SKIPPED
    for (a, b), *moved in zip(pairs, *map(outputs, others), strict=True):
        if any((x.shape, x.dtype) != (b.shape, b.dtype) for x in moved):
            return SKIPPED
        if b.dtype.kind != "f":
            sure = np.all([x == b for x in moved], axis=0)
            bound = np.zeros(b.shape)
        else:
            sure = np.all([classes(x, coarse) == classes(b, coarse) for x in moved], axis=0)
            apart = np.max([np.abs(np.subtract(x, b, dtype=float)) for x in moved], axis=0)
            bound = by * np.abs(b) + SAFETY * (apart + np.finfo(b.dtype).smallest_subnormal)
        if not np.all(_near(a, b, bound, coarse) | ~sure):
            raise Wrong(f"{what}: {a!r}, not {b!r}, up to {bound}")
    return COMPARED


def _near(a: np.ndarray, b: np.ndarray, bound: Any, coarse: bool) -> np.ndarray:
    if b.dtype.kind != "f":
        return np.asarray(a == b)
    near = np.abs(np.subtract(a, b, dtype=float)) <= bound
    return (classes(a, coarse) == classes(b, coarse)) & (near | ~np.isfinite(b))
