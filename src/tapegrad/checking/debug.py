"""Comparison of compiled calls with the played tape, under TAPEGRAD_DEBUG.

Compiled code adds the terms of a sum in another order, and its functions are off by a few units in
the last place. The effect of such rounding on a result depends on the program. Where results differ
by more than usual, the effect is measured: the tape is played with each value perturbed by its last
bit, at random, and results may differ by as much as that changes them.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.core.handlers import quiet
from tapegrad.core.trees import flatten
from tapegrad.errors import InternalError
from tapegrad.ir.tape import Literal, Tape
from tapegrad.primitives.control import tells
from tapegrad.primitives.kinds import Composite, Contraction

ON = bool(os.environ.get("TAPEGRAD_DEBUG"))
COMMON = 64  # the usual difference, in units in the last place of the largest element
AMPLIFIED = 64  # allowed times the effect of single roundings, since sums have many
RUNS = 3
CALLS, ELEMENTS = 200, 1 << 16  # larger tapes are played at their first call only


def watched(
    call: Callable[..., Any],
    tape: Tape,
    inputs: Callable[..., Sequence[Any]],
    outputs: Callable[[Any], dict[int, Any]],
) -> Callable[..., Any]:
    """`call` itself; or under TAPEGRAD_DEBUG, `call` with its results compared with the played
    tape.

    `inputs` maps the arguments of a call to the tape's input values, and `outputs` maps its result
    to the tape's outputs by number. Users' functions aren't called twice, since they may have side
    effects: such tapes aren't compared.
    """
    if not ON or any(c.primitive.foreign or tells(c.primitive) for c in tape.calls):
        return call
    numbers = itertools.count()
    sizes = [x.aval.size for c in tape.calls for x in c.outs]
    is_large = len(sizes) > CALLS or sum(sizes) > ELEMENTS

    def checked(*args: Any) -> Any:
        before = copy.deepcopy(list(inputs(*args))) if tape.into else None
        found = call(*args)
        number = next(numbers)
        if number == 0 or (not is_large and (number < 8 or number & (number - 1) == 0)):
            compare(tape, inputs(*args) if before is None else before, outputs(found))
        return found

    return checked


class _Place:
    """A placeholder for an output of a tape, used to find outputs in a result's structure."""

    def __init__(self, number: int) -> None:
        self.number = number


def outputs_of(assemble: Callable[..., Any], count: int, result: Any) -> dict[int, Any]:
    """The values of a tape's outputs, by number, extracted from the result of `assemble`."""
    places = flatten(assemble([_Place(k) for k in range(count)]))[0]
    pairs = zip(places, flatten(result)[0], strict=True)
    return {at.number: x for at, x in pairs if isinstance(at, _Place)}


def compare(tape: Tape, inputs: Sequence[Any], found: dict[int, Any]) -> None:
    """Raise an InternalError if these outputs differ from those of the played tape."""
    expected, broken = run(tape, inputs)
    if broken is not None:
        raise _differs(tape, f"{broken.what} isn't {broken.expected}, and it went on")
    others: list[list[Any]] = []  # the first perturbed run explains most differences
    open_ = _multiplies(tape)
    for number, x in found.items():
        a, b = np.asarray(x), np.asarray(expected[number])
        if a.shape != b.shape or a.dtype != b.dtype:
            kinds = f"{a.dtype}{a.shape}, and {b.dtype}{b.shape} when played"
            raise _differs(tape, f"output {number} is {kinds}")
        while not _is_close(a, b, _rounding(b, [run[number] for run in others]), open_):
            if len(others) == RUNS:
                raise _differs(tape, f"output {number} is\n{x}\nand played it is\n{b}")
            others.append(_moved(tape, inputs, np.random.default_rng(len(others))))


def _differs(tape: Tape, how: str) -> InternalError:
    return InternalError(f"a compiled call differs from the played tape: {how}\n{tape}")


def _multiplies(tape: Tape) -> bool:
    """Whether a tape has sums of products. If infinities of both signs meet in them, the order
    decides whether they give NaN or an infinity."""
    return any(
        isinstance(p := c.primitive, Contraction)
        or (isinstance(p, Composite) and p.ordered)
        or any(map(_multiplies, p.tapes))
        for c in tape.calls
    )


@quiet
def _is_close(a: np.ndarray, b: np.ndarray, allowed: Any, open_: bool) -> bool:
    """Whether two arrays are equal up to `allowed`. NaN equals NaN, and also an infinity if
    `open_`."""
    if a.dtype.kind not in "fc":
        return bool(np.all((a == b) | (np.asarray(allowed) > 0)))
    nan = (a != a) & (b != b)
    if open_:
        nan = ((a != a) | (b != b)) & ~np.isfinite(a) & ~np.isfinite(b)
    same = (a == b) | nan | (np.abs(a - b) <= allowed)
    return bool(np.all(same | (np.asarray(allowed) == np.inf)))


def _common(b: np.ndarray) -> float:
    if b.dtype.kind not in "fc" or not b.size:
        return 0.0
    finite = np.abs(b[np.isfinite(b)])
    return float(COMMON * np.finfo(b.dtype).eps * finite.max(initial=0.0))


@quiet
def _rounding(b: np.ndarray, others: Sequence[Any]) -> Any:
    """The allowed difference of each element due to rounding. Infinite where rounding decides
    between NaN and numbers, or between integers."""
    allowed = np.zeros(b.shape)
    for other in map(np.asarray, others):
        wide = complex if b.dtype.kind == "c" else float
        off = np.abs(other.astype(wide) - b.astype(wide))
        jumps = np.isfinite(other) != np.isfinite(b)
        if b.dtype.kind not in "fc":
            jumps = other != b
        allowed = np.maximum(allowed, np.where(jumps, np.inf, np.nan_to_num(off)))
    return AMPLIFIED * np.max(allowed, initial=0.0) + _common(b)


@quiet
def _moved(tape: Tape, inputs: Sequence[Any], rng: Any) -> list[Any]:
    """The outputs of a tape played with its values perturbed at random by up to one bit, in
    sub-tapes too."""

    def inside(held: Tape, values: Sequence[Any], own: Any = ()) -> list[Any]:
        return _moved(held, values, rng)

    def moved(x: Any) -> Any:
        x = np.asarray(x)
        if x.dtype.kind not in "fc":
            return x
        bits = rng.integers(-1, 2, x.shape) * float(np.finfo(x.dtype).eps)
        return (x * (1 + bits)).astype(x.dtype)

    env = {v.id: moved(x) for v, x in zip(tape.inputs, inputs, strict=True)}

    def value(x: Any) -> Any:
        return x.value if isinstance(x, Literal) else env[x.id]

    for call in tape.calls:
        xs = list(map(value, call.operands))
        held = call.primitive.tapes
        results = call.primitive.played(inside, *xs) if held else call.primitive.evaluate(*xs)
        if call.primitive.results == 1 and not isinstance(results, tuple):
            results = (results,)
        env.update(zip((v.id for v in call.outs), map(moved, results), strict=True))
    return [value(x) for x in tape.outputs]
