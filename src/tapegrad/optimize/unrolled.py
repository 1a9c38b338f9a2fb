"""Whether a tape may have unrolled a loop, and why a long one stays long: what keeps a loop's
rounds from being one body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tapegrad.ir.tape import Call, Source, Tape
from tapegrad.primitives.loops import CALLS, ROUNDS

LONG = 5000  # calls: compiling more takes a minute


def may_repeat(tape: Tape) -> bool:
    """Whether calls of a tape may be the rounds of a loop. Rounds do the same at the same lines, so
    in a loop no call is alone with its primitive and line."""
    if len(tape.calls) < CALLS:
        return False
    counts = Counter((call.primitive.name, call.src) for call in tape.calls)
    return sum(count for count in counts.values() if count >= ROUNDS) >= CALLS


def may_repeat_inside(tape: Tape) -> bool:
    """The same of a tape, or one that its calls hold."""
    bodies = {id(body): body for call in tape.calls for body in searched(call)}
    return may_repeat(tape) or any(map(may_repeat_inside, bodies.values()))


def may_begin(count: int, digest: Callable[[int, int], int]) -> list[bool]:
    """Of so many calls, of which `digest` gives stretches a number, whether a loop may begin at
    each. All of its rounds but one are like those behind them, so as many calls as that come again;
    of most tapes without loops none do."""
    length = CALLS - CALLS // ROUNDS
    known: set[int] = set()
    found = [False] * count
    for at in range(count - length, -1, -1):
        number = digest(at, at + length)
        found[at] = number in known
        known.add(number)
    return found


def searched(call: Call) -> tuple[Tape, ...]:
    """The tapes that a call holds, if loops are sought in them. Where a derivative has made it,
    they have been, before it was derived."""
    primitive = call.primitive
    return () if call.reason or getattr(primitive, "ruled", False) else primitive.tapes


def unrolled_loop(tape: Tape) -> str:
    """Which line makes most of the calls of a long tape, how many, and what about its rounds isn't
    the same; empty for a tape that isn't long."""
    if len(tape.calls) <= LONG:
        return ""
    counts = Counter(call.src for call in tape.calls if call.src is not None)
    if not counts:
        return ""
    src, count = counts.most_common(1)[0]
    return (
        f"{tape.name} recorded {len(tape.calls):,} operations, {count:,} of them at {src} "
        f"({src.text}). A loop that does the same in each round is one operation; here "
        f"{_difference(tape, src)}, so its rounds are recorded one by one, and take long to compile"
    )


def _difference(tape: Tape, src: Source) -> str:
    """What differs among the rounds of a line."""
    shapes: dict[str, set[object]] = {}
    for call in tape.calls:
        if call.src == src:
            kind = tuple([x.shape for x in (*call.operands, *call.outs)])
            shapes.setdefault(str(call.primitive.name), set()).add(kind)
    if any(len(kinds) > 3 for kinds in shapes.values()):
        return "arrays have another shape in each round"
    ways: dict[tuple[Source, str], set[object]] = {}
    for guard in tape.guards:
        if guard.src is not None:
            ways.setdefault((guard.src, guard.what), set()).add(guard.expected)
    for (where, _), found in ways.items():
        if len(found) > 1:
            return f"a condition ({where}) goes one way in some rounds and another way in others"
    return "what a round does, or where it finds what it works on, changes from round to round"
