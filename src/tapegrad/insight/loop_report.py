"""The loops of a user's program: loops of the tape, or unrolled.

for k in range(3):           the tape has the calls of its lines three times, with other
    h = h[:, :-1] * 0.5      shapes each time
"""

from __future__ import annotations

import ast
import linecache
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from tapegrad.core.values import Source
from tapegrad.ir.tape import Call, Tape

MIN_UNROLLED = 3  # repetitions of a line from which a loop counts as unrolled
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


# (loop, test of its lines) --> the number of its rounds on the tape, and why it isn't a loop of it
Why = Callable[[Source, Callable[[Source], bool]], tuple[int, str] | None]


class Repetition(NamedTuple):
    """A loop of the program: its line, whether it is a loop of the tape, the number of its rounds
    (in a loop of the tape: at most), and the reason why it is none."""

    src: Source
    is_loop: bool
    rounds: int
    why: str

    def __str__(self) -> str:
        head = self.src.quoted
        if self.is_loop:
            return f"{head} is a loop of the tape, of up to {self.rounds} rounds"
        return f"{head} was unrolled: the tape has its lines {self.rounds} times. {self.why}"


def repetitions(tape: Tape, begun: Mapping[Source, Source | None], why: Why) -> list[Repetition]:
    """The loops of the program with lines on the tape, or that the trace has `begun`, by line."""
    calling = {x: head for head, x in begun.items() if x and x.function != head.function}
    found: dict[tuple[str, int], Repetition] = {}
    in_parts: Counter[Source] = Counter()  # rounds of loops that are segmented for derivatives
    lines: dict[Source, None] = {}
    for call in _calls(tape):
        loop: Any = call.primitive
        if call.src is None:
            continue
        if not loop.repeats:
            lines[call.src] = None
        elif loop.most > 1:
            rounds = int(loop.most)
            if not call.is_cotangent and (segment_of(call) or in_parts[call.src]):
                rounds = in_parts[call.src] = in_parts[call.src] + rounds * (segment_of(call) or 1)
            src = calling.get(call.src) or _head(call.src)
            if not call.is_cotangent or not in_parts[call.src]:
                known = found.get((src.file, src.line))
                if known is None or not call.is_cotangent:
                    found[src.file, src.line] = Repetition(src, True, rounds, "")
    heads = [*filter(None, map(_loop_of, lines)), *begun]
    for key, head in {(x.file, x.line): x for x in heads}.items():
        told = why(head, partial(_is_inside, head)) if key not in found else None
        if told is not None and told[0] >= MIN_UNROLLED:
            found[key] = Repetition(head, False, *told)
    return [found[key] for key in sorted(found)]


def _is_inside(head: Source, src: Source) -> bool:
    """Whether a line belongs to a loop."""
    first, last = _lines_of(head)
    return src.file == head.file and first <= src.line <= last


def _calls(tape: Tape, around: tuple[Source | None, ...] = ()) -> Iterator[Call]:
    """The calls of a tape and its inner tapes, except for segments of the same loop."""
    for call in tape.calls:
        if not (call.primitive.repeats and call.src in around):
            yield call
        for body in call.primitive.tapes:
            yield from _calls(body, (*around, call.src) if call.primitive.repeats else around)


def _head(src: Source) -> Source:
    """The line of the loop to which a line belongs, or the line itself if it is a loop's."""
    around = _loops(src.file, _stamp(src.file))
    return src if any(a == src.line for a, _ in around) else _loop_of(src) or src


def segment_of(call: Call) -> int:
    """The number of the program's rounds in one round of a loop, if the reverse pass recomputes
    them; otherwise 0."""
    inner: list[Any] = [x.primitive for t in call.primitive.tapes for x in t.calls]
    loops = [x for x in inner if x.repeats and getattr(x, "recomputed", False)]
    return int(loops[0].most) if call.primitive.repeats and len(loops) == 1 else 0


def _loop_of(src: Source) -> Source | None:
    """The innermost loop of the program around a line."""
    around = [(a, b) for a, b in _loops(src.file, _stamp(src.file)) if a <= src.line <= b]
    if not around:
        return None
    first, _ = min(around, key=lambda lines: lines[1] - lines[0])
    return Source(src.file, first, src.function)


def _lines_of(head: Source) -> tuple[int, int]:
    around = _loops(head.file, _stamp(head.file))
    return next((x for x in around if x[0] == head.line), (head.line, head.line))


def _stamp(file: str) -> int:
    return hash("".join(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _loops(file: str, stamp: int) -> list[tuple[int, int]]:
    """The first and last lines of all loops of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # for example a notebook's magic
        return []
    found = [node for node in ast.walk(tree) if isinstance(node, _LOOPS)]
    return [(node.lineno, node.end_lineno or node.lineno) for node in found]
