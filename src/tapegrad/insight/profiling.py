"""Where the time of a call goes: by kernel, measured; by line of the program, estimated in kernels.

kernel of three lines, measured: 90 us     -->     by their work: 60, 20 and 10 us
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from tapegrad.core.values import Source
from tapegrad.errors import UnsupportedError
from tapegrad.insight.limits import limits
from tapegrad.ir.plan import Plan, segments
from tapegrad.ir.report import size
from tapegrad.ir.steps import Gemm, PythonCall, Step
from tapegrad.ir.tape import Call, Tape
from tapegrad.schedule.cost import each, moved, work_once

TICK = "tick_of_a_profile"
OUTSIDE = "Python: arguments, guards, results"


class Part(NamedTuple):
    """What was measured: a kernel, a call that NumPy makes, or Python's part; the seconds from the
    start of the call to its own, its seconds, and its lines."""

    name: str
    start: float
    seconds: float
    lines: tuple[str, ...]


class Line(NamedTuple):
    """A line of the program: its seconds, of which in reverse mode, and whether these are shares of
    a kernel by its work, which nobody has measured."""

    line: str
    text: str
    seconds: float
    backward: float
    estimated: bool


@dataclass(frozen=True)
class Profile:
    """What `profile` returns. It prints, and has `to_dict()`, `plot()` and `save("trace.json")`,
    a file that Perfetto and chrome://tracing open.

    `seconds` are the median of `calls` calls, `answered` is what answered them. `parts` were
    measured in one call more, `lines` are where their time goes. `nbytes` go to and from memory at
    least; `flops` are additions, multiplications and functions, NaN where a loop stops by a
    condition; `bandwidth` and `peak` are what this machine does of both in a second.
    """

    function: str
    answered: str
    calls: int
    seconds: float
    parts: list[Part]
    lines: list[Line]
    nbytes: int
    flops: float
    bandwidth: float
    peak: float
    memory: str

    def to_dict(self) -> dict[str, Any]:
        """The fields by their names, of parts and lines, too."""
        found = asdict(self)
        for name in ("parts", "lines"):
            found[name] = [x._asdict() for x in getattr(self, name)]
        return found

    def __str__(self) -> str:
        rows = [
            f"{self.function}: {_time(self.seconds)} a call, the median of {self.calls}; "
            f"{self.answered}",
            f"at least {size(self.nbytes)} to and from memory: "
            f"{self.nbytes / self.seconds / self.bandwidth:.0%} of this machine's bandwidth; "
            + (
                "operations aren't counted, as a loop stops by a condition"
                if math.isnan(self.flops)
                else f"{_count(self.flops)} operations: "
                f"{self.flops / self.seconds / self.peak:.0%} of its peak"
            ),
            self.memory,
            "",
            f"{'time':>10} {'share':>7}   part",
        ]
        total = sum(x.seconds for x in self.parts) or 1.0
        rows += [
            f"{_time(x.seconds):>10} {x.seconds / total:>7.1%}   {x.name}"
            + f": {', '.join(x.lines)}" * bool(x.lines)
            for x in self.parts
        ]
        rows += [
            "",
            f"{'time':>10} {'share':>7} {'reverse':>8}   line   (~ estimated, in a kernel)",
        ]
        total = sum(x.seconds for x in self.lines) or 1.0
        for x in self.lines:
            about = "~" if x.estimated else ""
            rows.append(
                f"{about + _time(x.seconds):>10} {x.seconds / total:>7.1%} "
                f"{x.backward / x.seconds if x.seconds else 0:>8.0%}   {x.line}"
                + f": {x.text}"
                * bool(x.text)
            )
        return "\n".join(rows)

    __repr__ = __str__

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parts of the call as a trace that Perfetto opens."""
        events = [
            {
                **{"name": part.name, "ph": "X", "pid": 0, "tid": 0},
                **{"ts": 1e6 * part.start, "dur": 1e6 * part.seconds},
                "args": {"lines": list(part.lines)},
            }
            for part in self.parts
        ]
        with open(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ns"}, file)

    def plot(self, axes: Any = None) -> Any:
        """The lines as bars, forward and reverse, by matplotlib; the axes that they are in."""
        import matplotlib.pyplot as plt

        axes = axes or plt.subplots(figsize=(7, 0.4 * len(self.lines) + 1.2))[1]
        shown = [*reversed(self.lines)]
        names = [f"{x.line}: {x.text}"[:60] for x in shown]
        forward = [1e6 * (x.seconds - x.backward) for x in shown]
        axes.barh(names, forward, label="forward")
        axes.barh(names, [1e6 * x.backward for x in shown], left=forward, label="reverse")
        axes.set_xlabel("µs a call")
        axes.legend()
        axes.figure.tight_layout()
        return axes


class Share(NamedTuple):
    """Of a part: what one line takes of it, in seconds."""

    src: Source | None
    seconds: float
    is_backward: bool
    estimated: bool


class Measured(NamedTuple):
    """A part of a call that was measured, and what its lines take of it."""

    part: Part
    shares: list[Share]


def profile_of(
    name: str,
    answered: str,
    call: Callable[[], Any],
    calls: int,
    tape: Tape,
    measure: Callable[[Plan | None], list[Measured]],
) -> Profile:
    """The profile of calls that a tape answers; `measure` makes one, and says its parts."""
    taken = sorted(_seconds(call) for _ in range(calls))
    seconds = taken[len(taken) // 2]
    plan = _plan(tape)
    measured = measure(plan)
    most, report = limits(), tape.memory_report()
    arrays, stops = (*tape.inputs, *tape.outputs), _stops(tape)
    return Profile(
        function=name,
        answered=answered,
        calls=calls,
        seconds=seconds,
        parts=[x.part for x in measured],
        lines=_lines([share for x in measured for share in x.shares]),
        nbytes=sum(x.aval.nbytes for x in arrays) + (not stops) * 2 * (report.scratch_bytes or 0),
        flops=math.nan if stops else _flops(plan),
        bandwidth=most.bandwidth,
        peak=most.flops,
        memory=f"memory: {report}",
    )


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _plan(tape: Tape) -> Plan | None:
    """The loops of a tape; None if it can't be compiled."""
    from tapegrad.pipeline import at_its_best, schedule

    try:
        return schedule(at_its_best(tape)).plan
    except UnsupportedError:
        return None


# ---- machine code


def ticking(driver: Any, kernels: Iterable[str]) -> Any:
    """A driver that calls `TICK` before each kernel and each call of NumPy's, and at the end."""
    called = {*kernels, *[name for name, _ in driver.calls]}
    lines: list[str] = []
    for line in driver.lines:
        if line[:1] not in " )" and called & set(re.findall(r"\w+", line)):
            lines.append(f"{TICK}()")
        lines.append(line)
    return replace(driver, lines=(*lines, f"{TICK}()"))


def of_ticks(
    start: float, ticks: Sequence[float], end: float, plan: Plan | None, tape: Tape
) -> list[Measured]:
    """The parts of a compiled call, from `start` to `end`, whose driver has ticked in between."""
    pairs = list(itertools.pairwise(ticks))
    steps = segments(plan.steps) if plan is not None else []
    if len(steps) != len(pairs):  # the driver's calls don't stand one by one
        steps = [[step for x in steps for step in (x if isinstance(x, list) else [x])]]
        pairs = [(ticks[0], ticks[-1])] if len(ticks) > 1 else []
    backward = _backward(tape)
    found, kernels = [], itertools.count(1)
    for (begun, done), segment in zip(pairs, steps, strict=True):
        is_call = isinstance(segment, PythonCall)
        costs = _costs([segment] if isinstance(segment, PythonCall) else segment)
        name = f"NumPy: {segment.primitive.name}" if is_call else f"kernel {next(kernels)}"  # type: ignore[union-attr]
        part = Part(name, begun - start, done - begun, _texts(costs))
        total, shares = sum(costs.values()) or 1.0, []
        for src, cost in costs.items():
            seconds, reverse = (done - begun) * cost / total, backward.get(src, 0.0)
            about = len(costs) > 1
            shares.append(Share(src, seconds * (1 - reverse), False, about or 0 < reverse < 1))
            shares.append(Share(src, seconds * reverse, True, about or 0 < reverse < 1))
        found.append(Measured(part, shares))
    rest = end - start - sum(x.part.seconds for x in found)
    return [*found, Measured(Part(OUTSIDE, end - start - rest, rest, ()), [])]


def _costs(steps: Sequence[Step]) -> dict[Source | None, float]:
    """What the lines of steps are expected to cost, beside each other."""
    found: defaultdict[Source | None, float] = defaultdict(float)
    for step in steps:
        for leaf, rounds in each(step):
            found[leaf.src] += rounds * (work_once(leaf) + moved(leaf))
    return dict(found)


def _texts(costs: dict[Source | None, float]) -> tuple[str, ...]:
    known = [src for src in costs if src is not None]
    return tuple(dict.fromkeys(map(str, sorted(known, key=lambda x: (x.file, x.line)))))


def _backward(tape: Tape) -> dict[Source | None, float]:
    """Of each line: which share of its elements are computed in reverse mode."""
    counts: defaultdict[Source | None, list[int]] = defaultdict(lambda: [0, 0])
    for call, rounds in _calls(tape):
        size = rounds * sum(out.aval.size for out in call.outs)
        counts[call.src][call.is_cotangent] += size
    return {src: after / max(before + after, 1) for src, (before, after) in counts.items()}


def _calls(tape: Tape, rounds: int = 1) -> Iterator[tuple[Call, int]]:
    """The calls of a tape and of those inside it, each with how often it is made."""
    for call in tape.calls:
        inner: Any = call.primitive
        if not inner.tapes:
            yield call, rounds
        for held in inner.tapes:
            for each_one, count in _calls(held, rounds * (inner.most if inner.repeats else 1)):
                # What a loop of the reverse half does is reverse mode's.
                yield replace(each_one, reason=each_one.reason or call.reason), count


def _stops(tape: Tape) -> bool:
    """Whether a loop stops by a condition, so that nobody knows how much of its room it uses."""
    inner: list[Any] = [call.primitive for call in tape.calls if call.primitive.tapes]
    return any(getattr(x, "until", False) or any(map(_stops, x.tapes)) for x in inner)


def _flops(plan: Plan | None) -> float:
    """The operations of a plan: one of a statement's element, two of a product's term."""
    total = 0.0
    for step in plan.steps if plan is not None else ():
        for leaf, rounds in each(step):
            folds = getattr(leaf, "combine", None) is not None
            total += rounds * (2 * math.prod(leaf.extents) if isinstance(leaf, Gemm) else 1 + folds)
    return total


# ---- NumPy


def of_script(script: Any, values: Sequence[Any]) -> list[Measured]:
    """The parts of a played call: one, whose lines are measured."""
    taken: list[float] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*xs: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            found = function(*xs, **kwargs)
            taken.append(time.perf_counter() - start)
            return found

        return call

    script.steps = [(timed(step[0]), *step[1:]) for step in script.steps]
    start = time.perf_counter()
    script.run(values)
    seconds = time.perf_counter() - start
    shares = [
        Share(call.src, time, call.is_cotangent, False)
        for call, time in zip(script.calls, taken, strict=False)
    ]
    lines = {x.src: 0.0 for x in shares}
    return [Measured(Part("NumPy, call by call", 0.0, seconds, _texts(lines)), shares)]


# ---- the page


def _lines(shares: Sequence[Share]) -> list[Line]:
    """What each line takes, the most first."""
    groups: defaultdict[Any, list[Share]] = defaultdict(list)
    for share in shares:  # a line may stand in two functions: in a lambda, and where that is made
        groups[share.src and (share.src.file, share.src.line)].append(share)
    found = []
    for each_one in groups.values():
        seconds, src = sum(x.seconds for x in each_one), each_one[0].src
        backward = sum(x.seconds for x in each_one if x.is_backward)
        text = ("no line of the program", "") if src is None else (str(src), src.text)
        found.append(Line(*text, seconds, backward, any(x.estimated for x in each_one)))
    return sorted([x for x in found if x.seconds], key=lambda x: -x.seconds)


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _count(number: float) -> str:
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.0f}"
