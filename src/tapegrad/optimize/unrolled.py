"""Whether a tape may contain unrolled loops, and why a long one couldn't be rerolled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tapegrad.ir.tape import Call, Source, Tape
from tapegrad.primitives.loops import MIN_CALLS, MIN_ROUNDS

LONG_TAPE = 5000  # calls: compiling a tape of this length takes a minute


def may_repeat(tape: Tape) -> bool:
    """Whether calls of a tape may be the rounds of a loop. In a loop no call is the only one with
    its primitive and line, since rounds do the same on the same lines."""
    if len(tape.calls) < MIN_CALLS:
        return False
    counts = Counter((call.primitive.name, call.src) for call in tape.calls)
    return sum(count for count in counts.values() if count >= MIN_ROUNDS) >= MIN_CALLS


def may_repeat_inside(tape: Tape) -> bool:
    """`may_repeat` for a tape or one of its sub-tapes."""
    bodies = {id(body): body for call in tape.calls for body in searched(call)}
    return may_repeat(tape) or any(map(may_repeat_inside, bodies.values()))


def may_begin(count: int, digest: Callable[[int, int], int]) -> list[bool]:
    """For each of `count` calls, whether a loop may begin there.

    `digest` hashes stretches of calls. All rounds of a loop but the last equal the next round, so
    the stretch that they form occurs again. In most tapes without loops no stretch does.
    """
    length = MIN_CALLS - MIN_CALLS // MIN_ROUNDS
    known: set[int] = set()
    found = [False] * count
    for at in range(count - length, -1, -1):
        number = digest(at, at + length)
        found[at] = number in known
        known.add(number)
    return found


def searched(call: Call) -> tuple[Tape, ...]:
    """The sub-tapes of a call in which loops are sought. Calls of derivatives have none: these were
    searched before differentiating."""
    primitive = call.primitive
    return () if call.reason or getattr(primitive, "ruled", False) else primitive.tapes


def unrolled_loop(tape: Tape) -> str:
    """A message about a long tape: the line with the most calls, their number, and what differs
    among its rounds. Empty if the tape isn't long."""
    if len(tape.calls) <= LONG_TAPE:
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
    """A description of what differs among the rounds of a line."""
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
