"""The page: one self-contained HTML file, which needs no server and no network."""

from __future__ import annotations

import base64
import json
import math
import os
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from tapegrad.core.values import Source
from tapegrad.errors import UnsupportedError
from tapegrad.insight.explaining import SECTIONS, Explanation
from tapegrad.insight.explorer.graph import HEIGHT, WIDTH, drawing
from tapegrad.insight.explorer.links import Linked, linked, numbered
from tapegrad.insight.explorer.machine import listings
from tapegrad.insight.explorer.passes import Stage, compared, seen
from tapegrad.insight.explorer.program import Shown, colours, program
from tapegrad.insight.measuring import PLAYED
from tapegrad.insight.profiling import REST, Profile
from tapegrad.ir.memory import live_bytes
from tapegrad.ir.tape import Guard, Tape
from tapegrad.pipeline import at_its_best, schedule

if TYPE_CHECKING:
    from tapegrad.backends.source.program import Program

NEEDED = "tapegrad's explorer needs {}. Install it with: pip install 'tapegrad[explore]'"
SCRIPTS = "lists.js", "graph.js", "charts.js", "page.js"  # in this order
LETTERS = 100_000  # limit of the source that is compiled once more, in some seconds
BUFFERS = 40  # number of listed buffers, the largest ones
FRAME = "width:100%;height:820px;border:1px solid #8884;border-radius:8px"


class Exploration:
    """The result of `explore`: a page about a derived function.

    `save("page.html")` writes it, `html` is its text, and notebooks show it. `to_dict()` has the
    page's data.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def to_dict(self) -> dict[str, Any]:
        """The data of the page."""
        return self._data

    @property
    def html(self) -> str:
        """The page as one HTML file."""
        return _rendered(self._data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, for any browser."""
        text = self.html
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def __repr__(self) -> str:
        return f"<the page of {self._data['name']}: save('page.html') writes it>"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="{FRAME}"></iframe>'


def check_installed() -> None:
    """Raise an ImportError with the remedy if a library that pages need is missing."""
    try:
        import jinja2  # noqa: F401
        import pygments  # noqa: F401
    except ImportError as error:
        raise ImportError(NEEDED.format(error.name)) from None


def explored(
    tape: Tape,
    explanation: Explanation,
    profile: Profile,
    lowered: Callable[[], Tape],
    kernels: Mapping[str, bytes],
    with_lines: Callable[[Program, Collection[str]], Mapping[str, bytes]],
) -> Exploration:
    """The page of calls that a tape serves.

    `lowered` makes a settled tape for such a call, to show its passes. `kernels` is the machine
    code compiled so far. `with_lines` compiles some kernels once more, with line numbers of the
    source.
    """
    best, calls = numbered(replace(at_its_best(tape), outside=tape.outside))
    try:
        made = schedule(best)
    except UnsupportedError:
        made = None
    found = linked(best, calls, made)
    _, stages = seen(lambda: at_its_best(lowered()))
    lines = program(_sources(found, stages))
    place = {(x.file, x.number): k for k, x in enumerate(lines)}

    def at(src: Source | None) -> int:
        return -1 if src is None else place.get((src.file, src.line), -1)

    return Exploration(
        {
            "name": explanation.function,
            "answered": explanation.answered,
            "program": _program(lines, profile),
            "calls": [at(call.src) for call in calls],
            "reverse": [int(call.is_cotangent) for call in calls],
            "tape": [[text, _number(call)] for text, call in found.tape],
            "steps": found.steps,
            "plan": [[text, _number(step)] for text, step in found.plan],
            "source": found.source,
            "kernels": len(made.kernels) if made is not None else 0,
            "stages": _stages(stages, at),
            "graph": _graph(best),
            "machine": _machine(kernels, made, found, with_lines),
            "memory": _memory(best, profile),
            "speed": _speed(profile),
            "why": [[title, getattr(explanation, name)] for name, title in SECTIONS.items()],
            "guards": [_guard(guard, at) for guard in best.guards],
        }
    )


def _number(found: int | None) -> int:
    return -1 if found is None else found


def _sources(found: Linked, stages: Sequence[Stage]) -> list[Source]:
    """The lines of the program on the tape and on the tape before its first pass, in order."""
    calls = [*found.calls, *[call for stage in stages[:1] for call in stage.before.calls]]
    return [call.src for call in calls if call.src is not None]


def _program(lines: Sequence[Shown], profile: Profile) -> list[Any]:
    """Each line with its seconds, its seconds in reverse mode, whether they are estimates, and its
    bytes of the memory at the peak."""
    taken = {x.line: x for x in profile.lines}
    rows: list[Any] = []
    for x in lines:
        name = str(Source(x.file, x.number)) if x.number else os.path.basename(x.file)
        line = taken.get(name) if x.number else None
        cost = 0.0, 0.0, False, 0
        if line is not None:
            cost = line.seconds, line.backward, line.estimated, line.nbytes
        rows.append([name, x.number, x.html, *cost])
    return rows


def _stages(stages: Sequence[Stage], at: Callable[[Source | None], int]) -> dict[str, Any]:
    """The passes. Lines of tapes are stored once and referred to by number: tapes share most."""
    numbers: dict[tuple[str, int], int] = {}
    found = []
    for name, before, after in stages:
        sides = []
        if before is not after and before != after:
            for rows in compared(before, after):
                own = [numbers.setdefault((x.text, at(x.src)), len(numbers)) for x in rows]
                sides.append([own, [k for k, x in enumerate(rows) if x.changed]])
        found.append([name.removeprefix("_"), len(before), len(after), sides])
    return {"lines": list(numbers), "passes": found}


def _graph(tape: Tape) -> dict[str, Any]:
    found = drawing(tape)
    return {
        "size": [WIDTH, HEIGHT],
        "nodes": [[round(x.x), round(x.y), x.label, _number(x.call), x.lane] for x in found.nodes],
        "edges": found.edges,
        "lanes": [[x.name, int(x.is_reverse), *map(round, x[2:])] for x in found.lanes],
    }


def _machine(
    kernels: Mapping[str, bytes],
    made: Program | None,
    found: Linked,
    with_lines: Callable[[Program, Collection[str]], Mapping[str, bytes]],
) -> dict[str, Any]:
    """The machine code of each kernel: its instructions, each with its row of the source."""
    note = "" if kernels else "NumPy plays this function: there is no machine code yet."
    shown: list[Any] = []
    try:
        lined = with_lines(made, _short(made, kernels)) if kernels and made is not None else {}
        first = {text[4:].partition("(")[0]: k for k, (text, _) in enumerate(found.source)}
        for name, nbytes, lines, further, is_another in listings(kernels, lined):
            start = first.get(name, 0) - 1
            rows = [[text, start + line if line else -1] for text, line in lines]
            shown.append([name, nbytes, rows, further, int(is_another)])
    except ImportError as error:
        note = NEEDED.format(error.name)
    return {"note": note, "kernels": shown}


def _short(made: Program, kernels: Mapping[str, bytes]) -> set[str]:
    """The kernels to compile once more: the shortest ones, within a limit of some seconds."""
    found, letters = set(), 0
    for kernel in sorted(made.kernels, key=lambda x: len(x.text)):
        letters += len(kernel.text)
        if kernel.name in kernels and letters <= LETTERS:
            found.add(kernel.name)
    return found


def _memory(tape: Tape, profile: Profile) -> dict[str, Any]:
    return {
        "live": live_bytes(tape),
        "half": [int(call.is_cotangent) for call in tape.calls],
        "report": profile.memory,
        "peak": sum(x.nbytes for x in profile.buffers),
        "played": profile.parts[0].name == PLAYED,
        "buffers": profile.buffers[:BUFFERS],
    }


def _speed(profile: Profile) -> dict[str, Any]:
    """The parts of a call, and the limits of the machine."""
    parts = [x._asdict() | {"flops": _known(x.flops)} for x in profile.parts]
    return {
        "seconds": profile.seconds,
        "calls": profile.calls,
        "nbytes": profile.nbytes,
        "flops": _known(profile.flops),
        "bandwidth": profile.bandwidth,
        "peak": profile.peak,
        "parts": parts,
        "rest": [REST, profile.rest],
    }


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def _guard(guard: Guard, at: Callable[[Source | None], int]) -> list[Any]:
    where = "" if guard.src is None else str(guard.src)
    return [f"{guard.operand} = {guard.expected}", guard.what, where, at(guard.src)]


def _rendered(data: dict[str, Any]) -> str:
    from jinja2 import Environment
    from markupsafe import Markup

    folder = resources.files(__package__)

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    packed = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 9)
    template = Environment(autoescape=True).from_string(text("template.html"))
    return template.render(
        name=data["name"],
        answered=data["answered"],
        style=Markup(text("page.css")),
        light=Markup(colours(dark=False)),
        dark=Markup(colours(dark=True)),
        script=Markup("\n".join(map(text, SCRIPTS))),
        data=base64.b64encode(packed).decode(),
    )
