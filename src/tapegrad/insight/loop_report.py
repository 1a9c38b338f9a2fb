"""What became of the loops of a user's program: loops of the tape, or one call after the other.

for k in range(3):           the tape has the calls of its lines three times, with other
    h = h[:, :-1] * 0.5      shapes each time
"""

from __future__ import annotations

import ast
import linecache
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tapegrad.core.values import Source
from tapegrad.ir.tape import Call, Tape

MIN_UNROLLED = 3  # times that a line was recorded, of what is called unrolled
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


class Repetition(NamedTuple):
    """A loop of the program: its line, whether it is a loop of the tape, how many rounds there are
    (at most, in a loop of the tape), and why it is none."""

    src: Source
    is_loop: bool
    rounds: int
    why: str

    def __str__(self) -> str:
        head = self.src.quoted
        if self.is_loop:
            return f"{head} is a loop of the tape, of up to {self.rounds} rounds"
        return f"{head} was unrolled: the tape has its lines {self.rounds} times. {self.why}"


def repetitions(tape: Tape) -> list[Repetition]:
    """The loops of the program whose lines are on the tape, in the order of their lines."""
    found = []
    in_parts: Counter[Source] = Counter()  # the rounds of loops that are cut for their derivatives
    for call in tape.calls:
        loop: Any = call.primitive
        if loop.repeats and call.src is not None and loop.most > 1:
            rounds = int(loop.most)
            if not call.is_cotangent and (segment_of(call) or in_parts[call.src]):
                rounds = in_parts[call.src] = in_parts[call.src] + rounds * (segment_of(call) or 1)
            if not call.is_cotangent or not in_parts[call.src]:
                found.append(Repetition(call.src, True, rounds, ""))
    known = {(x.src.file, x.src.line) for x in found}
    groups: defaultdict[Source, list[Call]] = defaultdict(list)
    for call in tape.calls:
        head = None if call.src is None or call.primitive.repeats else _loop_of(call.src)
        if head is not None and (head.file, head.line) not in known:
            groups[head].append(call)
    for head, calls in groups.items():
        rounds = max(Counter((c.src, c.primitive.name, c.reason) for c in calls).values())
        if rounds >= MIN_UNROLLED:
            found.append(Repetition(head, False, rounds, _why(tape, head, calls)))
    unique = {(x.src.file, x.src.line, x.is_loop): x for x in found}
    return sorted(unique.values(), key=lambda x: (x.src.file, x.src.line))


def segment_of(call: Call) -> int:
    """How many rounds of the program one round of a loop makes, if the reverse pass makes them
    again; else 0."""
    inner: list[Any] = [x.primitive for t in call.primitive.tapes for x in t.calls]
    loops = [x for x in inner if x.repeats and getattr(x, "recomputed", False)]
    return int(loops[0].most) if call.primitive.repeats and len(loops) == 1 else 0


def _why(tape: Tape, head: Source, calls: Sequence[Call]) -> str:
    """What differs from round to round, as far as the tape shows it."""
    shapes: defaultdict[Any, list[str]] = defaultdict(list)
    for call in calls:
        shapes[call.src, call.primitive.name, call.reason].append(str(call.outs[0].aval))
    for (src, *_), avals in shapes.items():
        different = list(dict.fromkeys(avals))
        if len(different) > 1:
            shown = ", ".join(different[:3]) + ", ..." * (len(different) > 3)
            return (
                f"The shapes differ from round to round ({src}: {shown}). Arrays of one shape, "
                "masked, make it a loop"
            )
    first, last = _lines_of(head)
    for guard in tape.guards:
        if (
            guard.src is not None
            and guard.src.file == head.file
            and first <= guard.src.line <= last
        ):
            return (
                f"{guard.what.capitalize()} at {guard.src} decides in each round what is done. "
                "np.where chooses without a branch"
            )
    return "Its rounds are too few to be worth a loop, or differ in what they do; see docs/loops.md"


def _loop_of(src: Source) -> Source | None:
    """The innermost loop of the program around a line."""
    around = [(a, b) for a, b in _loops(src.file, _stamp(src.file)) if a <= src.line <= b]
    if not around:
        return None
    first, _ = min(around, key=lambda lines: lines[1] - lines[0])
    return Source(src.file, first, src.function)


def _lines_of(head: Source) -> tuple[int, int]:
    return next(x for x in _loops(head.file, _stamp(head.file)) if x[0] == head.line)


def _stamp(file: str) -> int:
    return hash("".join(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _loops(file: str, stamp: int) -> list[tuple[int, int]]:
    """The first and last lines of all loops of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # of a notebook's magic, say
        return []
    found = [node for node in ast.walk(tree) if isinstance(node, _LOOPS)]
    return [(node.lineno, node.end_lineno or node.lineno) for node in found]
