"""Profiles of calls: time by kernel and by line of the program, compared with the limits of the
machine; and memory."""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tapegrad.core.pages import folded, page, paragraph, table
from tapegrad.errors import UnsupportedError
from tapegrad.insight.limits import limits
from tapegrad.insight.measuring import PLAYED, Known, Measured, Part, Share, rounds_of, stops
from tapegrad.insight.peak_memory import Buffer, buffers_of_program, buffers_of_tape, shown
from tapegrad.ir.report import size
from tapegrad.ir.tape import Tape

if TYPE_CHECKING:
    from tapegrad.backends.source.program import Program
    from tapegrad.core.values import Source

REST = "the median call beside these, which were measured in another one"
BESIDE = "no line: Python's part, and the median call beside the one that was measured"
REPEATABLE_SECONDS = 1.0  # a call that takes less is played once more, to count rounds


class Line(NamedTuple):
    """A line of the program: its seconds, the part of them in reverse mode, whether they are
    estimated from a kernel's time by work, and its bytes of the memory at the peak."""

    line: str
    text: str
    seconds: float
    backward: float
    estimated: bool
    nbytes: int = 0


@dataclass(frozen=True)
class Profile:
    """The result of `profile`. It prints, and has `to_dict()`, `plot()` and `save("trace.json")`,
    which writes a file for Perfetto and chrome://tracing.

    seconds : the median of `calls` calls.
    answered : what served them.
    parts : measured in one additional call.
    lines : the time of the parts by line.
    nbytes : a lower bound of the traffic to and from memory.
    flops : additions, multiplications and functions, without those of a library's routines; NaN if
        a loop's trip count is unknown.
    bandwidth, peak : this machine's limits of both in a second, as measured, or the rates of these
        calls if they are higher.
    buffers : the memory of a call, without its arguments, at its peak.
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
    buffers: list[Buffer]

    @property
    def rest(self) -> float:
        """The difference of `seconds` and the time of all parts, which were measured in another
        call; negative if that call was slower."""
        return self.seconds - sum(x.seconds for x in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, including the fields of parts, lines and buffers; and `rest`."""
        found = asdict(self) | {"rest": self.rest}
        for name in ("parts", "lines", "buffers"):
            found[name] = [x._asdict() for x in getattr(self, name)]
        return found

    def __str__(self) -> str:
        rows = [
            f"{self.function}: {_time(self.seconds)} a call, the median of {self.calls}; "
            f"{self.answered}",
            f"at least {size(self.nbytes)} to and from memory: "
            f"{self.nbytes / self.seconds / self.bandwidth:.0%} of this machine's bandwidth; "
            + (
                "operations aren't counted, as nobody knows how often a loop goes round"
                if math.isnan(self.flops)
                else f"{_count(self.flops)} operations: "
                f"{self.flops / self.seconds / self.peak:.0%} of its peak"
            ),
            self.memory,
            "",
            f"{'time':>10} {'share':>7}   part",
        ]
        rows += [
            f"{_time(x.seconds):>10} {x.seconds / self.seconds:>7.1%}   {x.name}"
            + f", {x.threads} threads, {x.waiting:.0%} waiting" * (x.threads > 1)
            + f": {', '.join(x.lines)}" * bool(x.lines)
            for x in self.parts
        ]
        rows.append(f"{_time(self.rest):>10} {self.rest / self.seconds:>7.1%}   {REST}")
        head = f"{'time':>10} {'share':>7} {'reverse':>8} {'bytes':>10}"
        rows += ["", f"{head}   line   (~ estimated, in a kernel)"]
        for x in self.lines:
            about = "~" if x.estimated else ""
            rows.append(
                f"{about + _time(x.seconds):>10} {x.seconds / self.seconds:>7.1%} "
                f"{x.backward / x.seconds if x.seconds else 0:>8.0%} "
                f"{size(x.nbytes) if x.nbytes else '':>10}   {x.line}"
                + f": {x.text}"
                * bool(x.text)
            )
        beside = self.seconds - sum(x.seconds for x in self.lines)
        rows.append(f"{_time(beside):>10} {beside / self.seconds:>7.1%} {'':>19}   {BESIDE}")
        return "\n".join([*rows, "", *shown(self.buffers)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rest = str(self).partition("\n\n")[0].split("\n")
        whole = self.seconds
        parts: list[tuple[object, ...]] = [
            (x.name, (_time(x.seconds), x.seconds / whole), x.threads, f"{x.waiting:.0%}")
            for x in self.parts
        ]
        parts.append((REST, (_time(self.rest), max(self.rest, 0.0) / whole), "", ""))
        lines = [
            (x.line, x.text, ("~" * x.estimated + _time(x.seconds), x.seconds / whole))
            + ((_time(x.backward), 0.0), (size(x.nbytes) if x.nbytes else "", 0.0))
            for x in self.lines
        ]
        beside = whole - sum(x.seconds for x in self.lines)
        about = _time(beside), max(beside, 0.0) / whole
        lines.append(("", BESIDE, about, ("", 0.0), ("", 0.0)))
        held = sum(x.nbytes for x in self.buffers) or 1
        buffers = [
            (x.name, (size(x.nbytes), x.nbytes / held), f"{x.line}: {x.text}" if x.line else "")
            for x in self.buffers
        ]
        return page(
            head,
            *map(paragraph, rest),
            folded("Lines", table(("line", "", "time", "reverse", "bytes"), lines, 2)),
            folded("Parts", table(("part", "time", "threads", "waiting"), parts, 1)),
            folded("Memory at the peak", table(("buffer", "bytes", "line"), buffers, 1)),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parts of the call as a trace for Perfetto."""
        events = [
            {
                **{"name": part.name, "ph": "X", "pid": 0, "tid": 0},
                **{"ts": 1e6 * part.start, "dur": 1e6 * part.seconds},
                "args": {
                    **{"lines": list(part.lines), "threads": part.threads},
                    **{"waiting": part.waiting, "bytes": part.nbytes},
                    **({} if math.isnan(part.flops) else {"operations": part.flops}),
                },
            }
            for part in self.parts
        ]
        with open(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ns"}, file)

    def plot(self, axes: Any = None, roofline: bool = False) -> Any:
        """Plot the lines as bars, forward and reverse, by matplotlib; with `roofline`, plot the
        kernels below the machine's limits. Returns the axes."""
        import matplotlib.pyplot as plt

        height = 4.0 if roofline else 0.4 * len(self.lines) + 1.2
        axes = axes or plt.subplots(figsize=(7, height))[1]
        if roofline:
            self._plot_limits(axes)
        else:
            shown = [x for x in reversed(self.lines) if x.seconds]
            names = [f"{x.line}: {x.text}"[:60] for x in shown]
            forward = [1e6 * (x.seconds - x.backward) for x in shown]
            axes.barh(names, forward, label="forward")
            axes.barh(names, [1e6 * x.backward for x in shown], left=forward, label="reverse")
            axes.set_xlabel("µs a call")
            axes.legend()
        axes.figure.tight_layout()
        return axes

    def _plot_limits(self, axes: Any) -> None:
        kernels = [x for x in self.parts if x.flops > 0 and x.nbytes and x.seconds]
        ridge = self.peak / self.bandwidth  # operations a byte from which memory is no limit
        per_byte = [x.flops / x.nbytes for x in kernels]
        ends = min([0.1 * ridge, *[0.5 * x for x in per_byte]]), max([10 * ridge, *per_byte])
        limit = [self.bandwidth * ends[0] / 1e9, self.peak / 1e9, self.peak / 1e9]
        axes.loglog([ends[0], ridge, ends[1]], limit, color="gray", label="this machine's limits")
        for kernel, x in zip(kernels, per_byte, strict=True):
            axes.plot(x, kernel.flops / kernel.seconds / 1e9, "o", label=kernel.name)
        axes.set_xlabel("operations a byte")
        axes.set_ylabel("10⁹ operations a second")
        axes.legend()


def profile_of(
    name: str,
    answered: str,
    call: Callable[[], Any],
    calls: int,
    tape: Tape,
    program: Program | None,
    measure: Callable[[Known], list[Measured]],
    values: Sequence[Any],
) -> Profile:
    """The profile of calls that a tape serves, whose loops are `program`. `measure` makes a call
    and returns its parts; `values` are the values of the tape's inputs."""
    limits()  # and again below: another process may have the cores for a while
    taken = sorted(_seconds(call) for _ in range(calls))
    seconds = taken[len(taken) // 2]
    known = Known(tape, program, rounds_of(tape, values) if seconds < REPEATABLE_SECONDS else {})
    measured = measure(known)
    most, report = limits(), tape.memory_report()
    nbytes = sum(x.aval.nbytes for x in (*tape.inputs, *tape.outputs))
    if not stops(tape):  # otherwise the used part of the scratch memory is unknown
        nbytes += 2 * (report.scratch_bytes or 0)
    is_played = measured[0].part.name == PLAYED or known.program is None
    flops = math.nan if known.program is None else known.flops(known.program.plan.steps)
    # `max` ignores a NaN that isn't its first argument.
    rates = [x.part.flops / x.part.seconds for x in measured if x.part.seconds]
    buffers = buffers_of_tape(tape) if is_played else buffers_of_program(known.program, tape)
    return Profile(
        function=name,
        answered=answered,
        calls=calls,
        seconds=seconds,
        parts=[x.part for x in measured],
        lines=_lines([share for x in measured for share in x.shares], buffers),
        nbytes=nbytes,
        flops=flops,
        bandwidth=max(most.bandwidth, nbytes / seconds),
        peak=max(most.flops, flops / seconds, *rates),
        memory=f"memory: {report}",
        buffers=buffers,
    )


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def program_of(tape: Tape) -> Program | None:
    """The loops of a tape and their memory; None if it can't be compiled."""
    from tapegrad.pipeline import at_its_best, schedule

    try:
        return schedule(at_its_best(tape))
    except UnsupportedError:
        return None


# ---- the page


def _lines(shares: Sequence[Share], buffers: Sequence[Buffer]) -> list[Line]:
    """The time of each line, in decreasing order."""
    groups: defaultdict[Any, list[Share]] = defaultdict(list)
    for share in shares:  # a line may belong to two functions: a lambda, and the one that makes it
        groups[("no line of the program", "") if share.src is None else _named(share.src)].append(
            share
        )
    held: Counter[tuple[str, str]] = Counter()
    for buffer in buffers:
        if buffer.line:
            held[buffer.line, buffer.text] += buffer.nbytes
    found = []
    for text in dict.fromkeys([*groups, *held]):
        of_line = groups.get(text, [])
        seconds, backward = [
            sum(x.seconds for x in of_line if x.is_backward or not reverse)
            for reverse in (False, True)
        ]
        about = any(x.estimated for x in of_line)
        found.append(Line(text[0], text[1], seconds, backward, about, held[text]))
    return sorted([x for x in found if x.seconds or x.nbytes], key=lambda x: -x.seconds)


def _named(src: Source) -> tuple[str, str]:
    return str(src), src.text


def _time(seconds: float) -> str:
    if seconds < 0:
        return f"-{_time(-seconds)}"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _count(number: float) -> str:
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.0f}"
