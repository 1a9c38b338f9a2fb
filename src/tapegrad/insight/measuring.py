"""Measurements of one call: machine code timed kernel by kernel, or a played tape timed call by
call.

kernel of three lines, measured: 90 us     -->     by their work: 60, 20 and 10 us
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tapegrad.backends.numpy.play import run
from tapegrad.core.values import Source
from tapegrad.ir.plan import Recurrence, leaves, most_chunks, segments
from tapegrad.ir.steps import Gemm, PythonCall, Routine, Step
from tapegrad.ir.tape import Call, Tape, Var
from tapegrad.schedule.cost import PRODUCT, each, moved, work_once

if TYPE_CHECKING:
    from tapegrad.backends.source.program import Program

TICK, CLOCK = "tick_of_a_profile", "clock_of_a_profile"
OUTSIDE, PLAYED = "Python: arguments, guards, results", "NumPy, call by call"
FREE = 16  # readings of the clock in a row, whose cost is subtracted
CALL = 1000  # elements that NumPy adds in the time of one call's overhead


class Part(NamedTuple):
    """A measured part of a call: a kernel, a call of NumPy, or Python's part.

    `start` is the time from the start of the call to the start of the part, in seconds. A kernel
    also has its number of `threads`, and the share `waiting` of their time in which they wait for
    each other or for memory, from a comparison with a run on one thread. It reads and writes arrays
    of `nbytes` in total, in `flops` operations: see `Profile`.
    """

    name: str
    start: float
    seconds: float
    lines: tuple[str, ...]
    threads: int = 1
    waiting: float = 0.0
    nbytes: int = 0
    flops: float = 0.0


class Share(NamedTuple):
    """The share of one line in the time of a part, in seconds."""

    src: Source | None
    seconds: float
    is_backward: bool
    estimated: bool


class Measured(NamedTuple):
    """A measured part of a call, and the shares of its lines."""

    part: Part
    shares: list[Share]


OPEN_ROUNDS = 10  # the expected trip count of a loop without a bound


@dataclass(frozen=True)
class Known:
    """The facts about a tape that serves calls.

    Its program, None if it can't be compiled; and the trip counts of loops whose trip counts depend
    on values, by line and direction."""

    tape: Tape
    program: Program | None
    rounds: dict[tuple[Source | None, bool], float]

    def made(self, loop: Any) -> float:
        """The trip count of a recurrence. If it is unknown, its upper bound, where that says
        something: the search for a checkpoint's place has 2**62."""
        most = loop.index.extent if loop.index.extent < 2**31 else OPEN_ROUNDS
        return self.rounds.get((loop.src, loop.backwards), float(most))

    def flops(self, steps: Sequence[Step]) -> float:
        """The operations of steps: one for each element of a statement, two for each term of a
        product; NaN if a trip count is unknown."""
        total = 0.0
        for step in steps:
            for leaf, rounds in each(step, made=self.made):
                folds = getattr(leaf, "combine", None) is not None
                once = 2 * math.prod(leaf.extents) if isinstance(leaf, Gemm) else 1 + folds
                total += rounds * once
        return math.nan if any(map(self._is_open, steps)) else total

    def _is_open(self, step: Step) -> bool:
        """Whether a step contains a loop of unknown trip count."""
        inner = getattr(step, "body", ())
        if isinstance(step, Recurrence):
            inner = step.plan.steps
            is_open = step.until is not None or step.rounds.literal is None
            if is_open and (step.src, step.backwards) not in self.rounds:
                return True
        return any(map(self._is_open, inner))

    def costs(self, steps: Sequence[Step]) -> dict[Source | None, float]:
        """The expected costs of the lines of steps, relative to each other."""
        found: defaultdict[Source | None, float] = defaultdict(float)
        for step in steps:
            for leaf, rounds in each(step, made=self.made):
                src = leaf.src or _made_for(leaf) or getattr(step, "src", None)
                once = _of_library(leaf) if isinstance(leaf, Routine) else work_once(leaf)
                found[src] += rounds * (once + moved(leaf))
        return dict(found)


def rounds_of(tape: Tape, values: Sequence[Any]) -> dict[tuple[Source | None, bool], float]:
    """The trip counts of a tape's loops that depend on values, found by playing the tape."""
    loops: list[Any] = [call for call in tape.calls if call.primitive.repeats]
    counts = [x.outs[-2] if x.primitive.until else x.operands[0] for x in loops]
    asked = tuple([x for x in counts if isinstance(x, Var)])
    if not asked:
        return {}
    found, broken = run(replace(tape, outputs=asked, output_names=(), into=()), values)
    rounds: defaultdict[tuple[Source | None, bool], list[int]] = defaultdict(list)
    if broken is None:
        known = iter(found)
        for call, count in zip(loops, counts, strict=True):
            if isinstance(count, Var):
                made = min(int(next(known)), call.primitive.most)
                rounds[call.src, call.primitive.backwards].append(made)
    return {key: sum(each_one) / len(each_one) for key, each_one in rounds.items()}


# ---- machine code


def ticking(driver: Any, kernels: Iterable[str]) -> Any:
    """A driver that records the time before each kernel and each call of NumPy, and at the end."""
    called = {*kernels, *[name for name, _ in driver.calls]}
    statements: list[list[str]] = []  # a statement may continue on further lines
    for line in driver.lines:
        if line[:1] in " )":
            statements[-1].append(line)
        else:
            statements.append([line])
    lines: list[str] = []
    for statement in statements:
        if called & set(re.findall(r"\w+", " ".join(statement))):
            lines.append(f"{TICK}({CLOCK}())")
        lines += statement
    return replace(driver, lines=(*lines, f"{TICK}({CLOCK}())"))


class Timed(NamedTuple):
    """A call of machine code: its start, the times recorded by its driver, its end."""

    start: float
    ticks: Sequence[float]
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def of_ticks(timed: Timed, alone: Timed | None, threads: int, known: Known) -> list[Measured]:
    """The parts of a compiled call on several threads, compared with a call on one thread."""
    pairs = list(itertools.pairwise(timed.ticks))
    plan = None if known.program is None else known.program.plan
    steps = segments(plan.steps) if plan is not None else []
    if len(steps) != len(pairs):  # several calls of the driver share a statement
        steps = [[step for x in steps for step in (x if isinstance(x, list) else [x])]]
        pairs = [(timed.ticks[0], timed.ticks[-1])] if len(timed.ticks) > 1 else []
        alone = None
    backward, cost = _backward(known.tape), _cost_of_a_tick()
    found, kernels = [], itertools.count(1)
    for k, ((begun, done), segment) in enumerate(zip(pairs, steps, strict=True)):
        is_call, seconds = isinstance(segment, PythonCall), max(done - begun - cost, 0.0)
        inside: Sequence[Step] = [segment] if isinstance(segment, PythonCall) else segment
        costs = known.costs(inside)
        if isinstance(segment, PythonCall):
            name = f"NumPy: {segment.primitive.name}"
        else:
            name = f"kernel {next(kernels)}{_routines(segment)}"
        many, waiting = 1, 0.0
        if (chunks := max(map(most_chunks, inside), default=0)) > 1:
            many = min(threads, chunks)
        if many > 1 and alone is not None and seconds:
            busy = alone.ticks[k + 1] - alone.ticks[k] - cost
            waiting = max(0.0, 1 - busy / (many * seconds))
        flops = 0.0 if is_call else known.flops(inside)
        part = Part(name, begun - timed.start, seconds, _texts(costs), many, waiting)
        part = part._replace(nbytes=_touched(inside), flops=flops)
        total, shares = sum(costs.values()) or 1.0, []
        for src, price in costs.items():
            each_one, reverse = seconds * price / total, backward.get(src, 0.0)
            about = len(costs) > 1
            shares.append(Share(src, each_one * (1 - reverse), False, about or 0 < reverse < 1))
            shares.append(Share(src, each_one * reverse, True, about or 0 < reverse < 1))
        found.append(Measured(part, shares))
    clock = cost * len(timed.ticks)
    rest = max(timed.seconds - clock - sum(x.part.seconds for x in found), 0.0)
    return [*found, Measured(Part(OUTSIDE, timed.seconds - rest, rest, ()), [])]


def _of_library(routine: Routine) -> float:
    """The expected cost of a library's routine: a third of the product of its matrices."""
    matrices = {cell.root for cell, _, _ in routine.accesses() if len(cell.root.shape) > 1}
    return sum(
        math.prod(x.shape) * min(x.shape[-2:]) * x.dtype.itemsize * PRODUCT / 3 for x in matrices
    )


def _made_for(step: Any) -> Source | None:
    """The line of the cell that a step computes, for a step without a line of its own."""
    cell = getattr(step, "cell", None)
    return None if cell is None else cell.root.src


def _routines(steps: Sequence[Step]) -> str:
    """The library routines that a kernel calls."""
    called = [x.primitive.name for step in steps for x in leaves(step) if isinstance(x, Routine)]
    return f" with {', '.join(dict.fromkeys(called))}" if called else ""


def _cost_of_a_tick() -> float:
    """The cost of recording the time: the minimum of a few readings."""
    ticks: list[float] = []
    tick, clock = ticks.append, time.perf_counter
    for _ in range(FREE):
        tick(clock())
    return min(b - a for a, b in itertools.pairwise(ticks))


def _touched(steps: Sequence[Step]) -> int:
    """The bytes of the arrays that steps read or write."""
    cells = {cell.root for step in steps for cell, _, _ in step.accesses()}
    return sum(math.prod(x.left) * x.dtype.itemsize for x in cells if not x.in_register)


def _texts(costs: dict[Source | None, float]) -> tuple[str, ...]:
    known = [src for src in costs if src is not None]
    return tuple(dict.fromkeys(map(str, sorted(known, key=lambda x: (x.file, x.line)))))


def _backward(tape: Tape) -> dict[Source | None, float]:
    """For each line, the share of its elements that are computed in reverse mode."""
    counts: defaultdict[Source | None, list[int]] = defaultdict(lambda: [0, 0])
    for call, rounds in _calls(tape):
        size = rounds * sum(out.aval.size for out in call.outs)
        counts[call.src][call.is_cotangent] += size
    return {src: after / max(before + after, 1) for src, (before, after) in counts.items()}


def _calls(tape: Tape, rounds: int = 1) -> Iterator[tuple[Call, int]]:
    """The calls of a tape and its inner tapes, each with the number of times it is made."""
    for call in tape.calls:
        yield from _calls_of(call, rounds)


def _calls_of(call: Call, rounds: int) -> Iterator[tuple[Call, int]]:
    inner: Any = call.primitive
    if not inner.tapes:
        yield call, rounds
    for held in inner.tapes:
        for each_one, count in _calls(held, rounds * (inner.most if inner.repeats else 1)):
            # A loop's inner call inherits reverse mode and line from the loop.
            reason, src = each_one.reason or call.reason, each_one.src or call.src
            yield replace(each_one, reason=reason, src=src), count


def stops(tape: Tape) -> bool:
    """Whether a loop stops by a condition, so that the used part of its buffers is unknown."""
    inner: list[Any] = [call.primitive for call in tape.calls if call.primitive.tapes]
    return any(getattr(x, "until", False) or any(map(stops, x.tapes)) for x in inner)


# ---- NumPy


def of_script(script: Any, values: Sequence[Any]) -> list[Measured]:
    """The parts of a played call: a single one, with measured lines; the lines of a loop share the
    loop's time."""
    calls, steps, first = script.calls, script.steps, len(script.start)
    count = FREE + len(steps)
    script.start += [0.0] * count
    script.outputs += range(first, first + count)
    clocks = [(time.perf_counter, itemgetter(slice(0)), first + k, None) for k in range(count)]
    behind = itertools.chain.from_iterable(zip(steps, clocks[FREE:], strict=True))
    script.steps = [*clocks[:FREE], *behind]
    outputs, _ = script.run(values)
    ticks = outputs[-count:]
    taken = [b - a for a, b in itertools.pairwise(ticks)]
    cost = min(taken[: FREE - 1])
    seconds = [max(x - cost, 0.0) for x in taken[FREE - 1 :]]
    shares = [
        share
        for call, time_of_it in zip(calls, seconds, strict=False)
        for share in _shares_of(call, time_of_it)
    ]
    lines = {x.src: 0.0 for x in shares}
    return [Measured(Part(PLAYED, 0.0, sum(seconds), _texts(lines)), shares)]


def _shares_of(call: Call, seconds: float) -> Iterator[Share]:
    """The time of a call. If it runs inner tapes, their lines share it by the time that NumPy is
    expected to take for each of their calls."""
    inner = list(_calls_of(call, 1))
    if not call.primitive.tapes or not inner:
        yield Share(call.src, seconds, call.is_cotangent, False)
        return
    weights = [rounds * (CALL + max(x.aval.size for x in c.outs)) for c, rounds in inner]
    for (each_one, _), weight in zip(inner, weights, strict=True):
        yield Share(each_one.src, seconds * weight / sum(weights), each_one.is_cotangent, True)
