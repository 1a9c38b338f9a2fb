"""Why a loop of the program isn't a loop of the tape: how its rounds, which the tape has one after
the other, differ, or that they are too few.

    %3 = sin(%1)        # fit.py:8, round 0
    %4 = mul(%3, 2.0)   # fit.py:9
    %5 = sin(%4)        # fit.py:8, round 1
    %6 = cos(%5)        # fit.py:10     <-- what round 0 hasn't
    %7 = mul(%6, 2.0)   # fit.py:9

Rounds begin at an anchor: a call that is there once in each, the same primitive at the same line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tapegrad.core.values import Source
from tapegrad.ir.tape import Call, Tape, Var
from tapegrad.optimize.repetition import (
    INDEXED,
    MAX_COLLECTED,
    MIN_CALLS,
    MIN_NUMPY_CALLS,
    MIN_ROUNDS,
    Repetition,
)
from tapegrad.primitives.kinds import Library, Routine

SHORT = "In tapegrad.range(...) it is a loop of the tape, however short it is"
SCAN = "tapegrad.scan is a loop without a search"
Key = tuple[Source | None, str]


SIDES = "np.where of what the sides compute makes the rounds equal"


class Begun(NamedTuple):
    """A loop of the program as its trace has met it: its function, the `least` and the `most`
    rounds, 0 if that isn't known; why one round doesn't stand for all, if that was `tried`, in
    words, or what a guard is of and its line; and the `first` call since it began."""

    function: str
    least: int = 0
    most: int = 0
    tried: str | tuple[str, Source | None] | None = None
    first: Key | None = None

    @property
    def rounds(self) -> int:
        """Their number, if it is known."""
        return self.most if self.least == self.most else 0


class Unrolled(NamedTuple):
    """How many rounds of a loop a tape has one after the other, and why."""

    rounds: int
    why: str


def unrolled(
    tape: Tape, inside: Callable[[Source], bool], begun: Begun, fix_of: Callable[[str], str]
) -> Unrolled | None:
    """The rounds of the loop whose lines are `inside`, on a tape with loops; None if it hasn't
    several. `fix_of` says what to do about guards."""
    places = [k for k, x in enumerate(tape.calls) if x.src is not None and inside(x.src)]
    starts = _starts(tape, places, begun)
    if len(starts) < 2:
        return None
    shortest = min(b - a for a, b in pairwise(starts))
    end = min(len(tape.calls) - 1, max([*places, starts[-1] + shortest - 1]))
    each = begun.rounds or len(starts)
    made = [*pairwise([*starts[:each], starts[each] if each < len(starts) else end + 1])]
    if begun.least != begun.most >= MIN_ROUNDS:
        return Unrolled(
            len(starts),
            f"It makes another number of rounds each time, of {begun.least} to {begun.most}. The "
            "largest number each time, masked, makes it a loop",
        )
    if len(starts) < begun.rounds:
        return Unrolled(begun.rounds, f"None of its lines is run in each round. {SIDES}")
    few, found = _few(tape, made), _difference(tape, made, fix_of)
    if few and begun.tried is None:
        return Unrolled(len(starts), few if found or not begun.rounds else f"{few}. {SHORT}")
    why = found or ("" if few else _gave_up(tape)) or _tried(begun, fix_of)
    return Unrolled(len(starts), why)


def _tried(begun: Begun, fix_of: Callable[[str], str]) -> str:
    """Why one round doesn't stand for all, as far as that is known."""
    if begun.tried is None:
        return f"No equal rounds were found among its calls on the tape. {SCAN}"
    if isinstance(begun.tried, str):
        return f"One round doesn't stand for all: {begun.tried}. {SCAN}"
    what, src = begun.tried
    where = f" at {src.quoted}" if src is not None else ""
    return f"{what[:1].upper()}{what[1:]}{where} isn't the same in all rounds. {fix_of(what)}"


def _starts(tape: Tape, places: Sequence[int], begun: Begun) -> list[int]:
    """Where rounds begin: the places of a call that is there once in each."""
    where: dict[Key, list[int]] = {}
    for k, call in enumerate(tape.calls):
        where.setdefault((call.src, call.primitive.name), []).append(k)
    own = {_key(tape.calls[k]): None for k in places}
    # What functions compute that the loop calls is among what its own lines do
    others = [x for x in where if places and where[x][0] < places[-1] and where[x][-1] > places[0]]
    first = [begun.first] if begun.first in where and _is_elsewhere(begun) else []
    for key in (*first, *own, *others):
        if begun.rounds and len(where[key]) == begun.rounds:
            return where[key]
    counts = [len(where[key]) for key in own]
    for count in sorted(counts):
        # What isn't in each round is there less often, what is there twice more often
        if 2 * count >= max(counts):
            return next(where[key] for key in own if len(where[key]) == count)
    return []


def _is_elsewhere(begun: Begun) -> bool:
    """Whether the first call since a loop began is that of a function which the loop calls, and not
    the next of its own function, behind the loop."""
    src = begun.first[0] if begun.first is not None else None
    return src is not None and src.function != begun.function


def _key(call: Call) -> Key:
    return call.src, call.primitive.name


def _few(tape: Tape, made: Sequence[tuple[int, int]]) -> str:
    """That rounds are too few, or their calls; empty if they aren't."""
    if len(made) < MIN_ROUNDS:
        return f"Fewer than {MIN_ROUNDS} rounds are faster without a loop"
    kinds = [c.primitive for c in tape.calls[made[0][0] : made[-1][1]]]
    by_numpy = any(isinstance(p, Library) and not isinstance(p, Routine) for p in kinds)
    least = MIN_NUMPY_CALLS if by_numpy else MIN_CALLS
    if len(kinds) >= least:
        return ""
    what = "calls, some of NumPy," if by_numpy else "calls"
    return (
        f"All its rounds are {len(kinds)} {what} on the tape, and fewer than {least} are faster "
        "without a loop"
    )


def _difference(tape: Tape, made: Sequence[tuple[int, int]], fix_of: Callable[[str], str]) -> str:
    """The first difference among rounds; empty if there is none."""
    found = _other_ways(tape, made, fix_of) or _other_shapes(tape, made)
    return found or _other_calls(tape, made) or _other_operands(tape, made)


def _other_ways(tape: Tape, made: Sequence[tuple[int, int]], fix_of: Callable[[str], str]) -> str:
    """What decides on a path, and isn't the same in all rounds."""
    places = {out: k for k, call in enumerate(tape.calls) for out in call.outs}
    ways: dict[Any, dict[Any, int]] = {}
    for guard in tape.guards:
        at = places.get(guard.operand) if isinstance(guard.operand, Var) else None
        round_ = next((r for r, (a, b) in enumerate(made) if at is not None and a <= at < b), None)
        if round_ is not None:
            ways.setdefault((guard.src, guard.what), {}).setdefault(guard.expected, round_)
    for (src, what), found in ways.items():
        if len(found) > 1 and src is not None:
            (one, first), (other, later), *_ = sorted(found.items(), key=lambda x: x[1])
            return (
                f"{what.capitalize()} at {src.quoted} is {one.value} in round {first} and "
                f"{other.value} in round {later}. {fix_of(what)}"
            )
    return ""


def _other_shapes(tape: Tape, made: Sequence[tuple[int, int]]) -> str:
    shapes: dict[tuple[Key, int], list[str]] = {}
    for a, b in made:
        times = Counter[Key]()
        for call in tape.calls[a:b]:
            key = _key(call)
            times[key] += 1
            shapes.setdefault((key, times[key]), []).append(str(call.outs[0].aval))
    for ((src, _), _), avals in shapes.items():
        different = list(dict.fromkeys(avals))
        if len(different) > 1 and len(avals) == len(made):  # the call is in each round
            shown = ", ".join(different[:3]) + ", ..." * (len(different) > 3)
            return (
                f"The shapes differ from round to round ({src}: {shown}). Arrays of one shape, "
                "masked, make it a loop"
            )
    return ""


def _other_calls(tape: Tape, made: Sequence[tuple[int, int]]) -> str:
    """A line that isn't as often in each round."""
    first, length = made[0][0], made[0][1] - made[0][0]
    # Behind the last round the tape goes on with other lines
    ends = [*made[:-1], (made[-1][0], min(made[-1][1], made[-1][0] + length))]
    rounds = [Counter(map(_key, tape.calls[a:b])) for a, b in ends]
    keys = dict.fromkeys(map(_key, tape.calls[first : ends[-1][1]]))
    for src, name in keys:
        times = [x[src, name] for x in rounds]
        if len({*times[:-1]}) > 1:
            where = src.quoted if src is not None else "no line of the program"
            said = (
                f"{name} at {where} is made {min(times)} times in one round and {max(times)} times "
                "in another"
            )
            if max(times) == 1:
                said = f"{name} at {where} is in {sum(times)} of {len(made)} rounds only"
            return f"{said}. {SIDES}"
    return ""


def _other_operands(tape: Tape, made: Sequence[tuple[int, int]]) -> str:
    """A value that comes from elsewhere in some round, or an index that moves by another step."""
    (start, stop), rounds = made[0], len(made)
    period = stop - start
    if [b - a for a, b in made[:-1]] != [period] * (rounds - 1):
        return ""
    if start + period * rounds > len(tape.calls):
        rounds -= 1
    search = Repetition(tape, {})
    for k in range(start, stop):
        for r, what in _unequal(search, k, start, period, rounds):
            src = tape.calls[k].src
            where = src.quoted if src is not None else "no line of the program"
            return f"In round {r} {where} {what}"
    return ""


def _unequal(
    search: Repetition, k: int, start: int, period: int, rounds: int
) -> Iterator[tuple[int, str]]:
    """The rounds in which the call in place `k` of the first round isn't as before, and how."""
    call = search.calls[k]
    if isinstance(call.primitive, INDEXED):
        _, equal = search.move(k, period, rounds)
        if equal < rounds:
            yield (
                equal,
                "takes another step through its array than before. Equal steps make it a loop, or "
                "indices in an array, x[np.array([...])]",
            )
    for m in range(len(call.operands)):
        xs = search.operands(k, m, period, rounds)
        _, equal = search.source_of(k, m, start, period, rounds)
        if equal < rounds and not all(map(search.fits, xs)):
            yield (
                equal,
                f"reads another array than before, of more than {MAX_COLLECTED:,} B. One array "
                "with a row for each round makes it a loop",
            )
        elif equal < rounds:
            yield (
                equal,
                "reads what was computed elsewhere than in the rounds before. The same variables "
                "in each round make it a loop",
            )


def _gave_up(tape: Tape) -> str:
    """That equal rounds weren't found for lack of time; empty if that isn't so."""
    search = Repetition(tape, {})
    if not any(True for _ in search.runs()) and search.budget.left > 0:
        return ""
    return "The search for equal rounds, which may take some 50 us for each call, gave up. " + SCAN
