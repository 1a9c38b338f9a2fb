"""Loops: the dependences of the values after all rounds.

Rounds that are independent are walked at once, with an axis for the rounds in front of each value.
Their carried values are of three kinds: unchanged values; values that are replaced in each round,
which the next one reads; and values that are only written or added to, for which a `Log` is kept.
Rounds that read what others have written are walked one by one, if there aren't too many. In all
other cases, for example if the number of rounds depends on values, the union over all possible
rounds counts: a carried value gets all columns that it may ever have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegrad.ir.tape import Call, Tape, Var
from tapegrad.sparsity.relations import Among, Rounds, adds, is_active, written_at
from tapegrad.sparsity.rows import union

ONE_BY_ONE = 20_000  # calls in all rounds that are walked one by one
AT_ONCE = 2 * 10**8  # elements of all rounds that are processed at once
SETTLED = 6  # rounds that are tried until nothing changes; then all depends on all

Results = tuple[Sequence[Any], Sequence[Any]]


class Unfollowed(Exception):
    """A call reads an array for which only a log of writes is kept."""


class Entry(NamedTuple):
    """A write to an array, or an addition: elements `sources` of a value go to `targets`. `times`
    are columns of numbers that order the entries lexicographically."""

    targets: Any
    sources: Any
    rows: Any  # None for a value without columns
    sets: bool
    times: list[Any]


class Log:
    """The writes and additions to an array in the rounds of a loop: places, sources and times. For
    each round of the walk, `owner` is the number of the array at the loop's start, and `before`
    orders the round among the rounds and writes of the outer loops."""

    def __init__(self, size: int, owner: Any, entries: list[Entry], before: list[Any]) -> None:
        self.size, self.owner, self.entries, self.before = size, owner, entries, before
        self.stale = False

    def next(self) -> Log:
        """The array after a write. Reading the array before it is no longer possible."""
        if self.stale:
            raise Unfollowed
        self.stale = True
        return Log(self.size, self.owner, self.entries, self.before)

    def times(self) -> list[Any]:
        """The columns that order an event in each round at this moment."""
        rounds = len(self.owner)
        return [*self.before, np.arange(rounds), np.full(rounds, len(self.entries))]

    def inner(self, owner: Any) -> Log:
        """The same array in the rounds of an inner loop."""
        if self.stale:
            raise Unfollowed
        before = [column[owner] for column in self.times()]
        return Log(self.size, self.owner[owner], self.entries, before)

    def write(self, walk: Any, at: Any, source: Any, value: Any, size: int, sets: bool) -> None:
        """Note that the elements `source` of a value with `size` elements go to the places `at`."""
        width = at.shape[-1]
        at = np.broadcast_to(at, (walk.rounds, width))
        targets = np.where(at < 0, -1, at + (self.owner * self.size)[:, None]).ravel()
        times = [np.repeat(column, width) for column in self.times()]
        if value is None:
            self.entries.append(Entry(targets, None, None, sets, times))
            return
        sources = np.broadcast_to(source, at.shape)
        if value.each:
            sources = walk.shifted(sources, size)
        self.entries.append(Entry(targets, sources.ravel(), value.rows, sets, times))

    def after(self, walk: Any, start: Any) -> Any:
        """The columns of the array after the loop, in the outer walk."""
        count = self.size * walk.rounds
        kept = self.kept(count)
        parts = []
        if start is not None:
            gone = np.zeros(count, bool)
            for entry in self.entries:
                if entry.sets:
                    gone[entry.targets[entry.targets >= 0]] = True
            parts.append(walk.everywhere(start).take(np.where(gone, -1, np.arange(count))))
        for entry, lasting in zip(self.entries, kept, strict=True):
            if entry.rows is not None:
                targets = np.where(lasting, entry.targets, -1)
                parts.append(entry.rows.gathered(targets, entry.sources, count))
        return walk.value(union(parts), walk.rounds > 1) if parts else None

    def kept(self, count: int) -> list[Any]:
        """For each entry, the mask of the elements that aren't overwritten later."""
        sizes = [len(entry.targets) for entry in self.entries]
        if not any(entry.sets for entry in self.entries):
            return [np.ones(size, bool) for size in sizes]
        targets = np.concatenate([entry.targets for entry in self.entries])
        sets = np.repeat([entry.sets for entry in self.entries], sizes)
        depth = max(len(entry.times) for entry in self.entries)
        columns = [
            np.concatenate([_column(entry.times, k, len(entry.targets)) for entry in self.entries])
            for k in range(depth)
        ]
        order = np.lexsort(columns[::-1])
        rank = np.empty(len(order), int)
        rank[order] = np.arange(len(order))
        last = np.full(count + 1, -1)  # the last place is for elements without a target
        np.maximum.at(last, targets[sets], rank[sets])
        return np.split(rank >= last[targets], np.cumsum(sizes)[:-1])


def _column(times: list[Any], k: int, size: int) -> Any:
    return times[k] if k < len(times) else np.full(size, -1)


def logged(walk: Any, call: Call, given: Sequence[Any], known: Sequence[Any]) -> Log:
    """The result of a call on an array with a log."""
    p = call.primitive
    (place, *others) = [k for k, x in enumerate(given) if isinstance(x, Log)]
    log = given[place]
    if others or call.operands.count(call.operands[place]) > 1:
        raise Unfollowed
    if p.memory.updates and place == 0:
        at = written_at(call, known, walk.rounds)
        if at is None:
            raise Unfollowed
        small = np.arange(call.operands[1].aval.size)
        log = log.next()
        log.write(walk, at, small, given[1], len(small), not adds(p))
        return log
    if not p.pointwise or p.flat or call.out.shape != call.operands[place].shape:
        raise Unfollowed
    log = log.next()
    for k, (x, value) in enumerate(zip(call.operands, given, strict=True)):
        if k != place and value is not None:
            numbers = np.arange(x.aval.size).reshape(x.shape)
            source = np.broadcast_to(numbers, call.out.shape).ravel()
            log.write(walk, np.arange(len(source)), source, value, x.aval.size, False)
    return log


def loop(walk: Any, call: Call, given: Sequence[Any], known: Sequence[Any]) -> Results:
    """The columns of a loop's results, and their known values."""
    p: Any = call.primitive
    values, numbers = list(p.given(given)), list(p.given(known))
    steps = _steps(p, known)
    if isinstance(steps, np.ndarray):
        if len(steps) == 0:
            return values[: p.carried], numbers[: p.carried]
        try:
            return _at_once(walk, p, list(values), list(numbers), steps)
        except Unfollowed:
            if len(steps) * len(p.body.calls) <= ONE_BY_ONE:
                return _one_by_one(walk, p, values, numbers, steps)
    return _any_number(walk, call, given, values, numbers, steps)


def _steps(p: Any, known: Sequence[Any]) -> Any:
    """The steps in order. If they aren't known, the possible steps as an `Among`, or None."""
    count, first = p.heads(known)[0], p.first(known) if p.later else 0
    if count is None or isinstance(count, (Rounds, Among)) or p.until:
        most = p.most
        if isinstance(count, (Rounds, Among)):
            most = min(most, int(np.max(count.values, initial=0)))
        return Among(np.arange(most)) if most * len(p.body.calls) <= AT_ONCE // 100 else None
    count = min(int(count), p.most)
    if first is None or isinstance(first, (Rounds, Among)):
        return Among(np.arange(count))
    steps = np.arange(int(first), count)
    return steps[::-1] if p.backwards else steps


def _one_by_one(walk: Any, p: Any, values: list[Any], numbers: list[Any], steps: Any) -> Results:
    for step in steps:
        values[: p.carried], numbers[: p.carried] = walk.tape(
            p.body, [None, *values], [np.int64(step), *numbers]
        )
    return values[: p.carried], numbers[: p.carried]


def _any_number(
    walk: Any, call: Call, given: Sequence[Any], values: list[Any], numbers: list[Any], steps: Any
) -> Results:
    """The results for rounds of unknown number, or for too many rounds."""
    p: Any = call.primitive
    body, count = p.body, p.carried
    if any(isinstance(x, Log) for x in values):
        raise Unfollowed
    same = [x is y for x, y in zip(body.inputs[1:], body.outputs[:count], strict=False)]
    for k in range(count):
        if not same[k]:
            numbers[k] = None
    if isinstance(steps, np.ndarray):
        steps = Among(steps)
    further = [None] * (len(call.outs) - count)
    for _ in range(SETTLED):
        found, _ = walk.tape(body, [None, *values], [steps, *numbers])
        after = [walk.union(pair) for pair in zip(values, found[:count], strict=False)]
        if all(map(_alike, values, after)):
            return [*after, *further], [*numbers[:count], *further]
        values[:count] = after
    lumps = walk.lump(call, given)
    kept = [values[k] if same[k] else lumps[k] for k in range(count)]
    return [*kept, *further], [*numbers[:count], *further]


def _alike(before: Any, after: Any) -> bool:
    """Whether a union has no more columns than the value before."""
    if before is None or after is None:
        return before is after
    if before.each is not after.each:
        return False
    return bool(before.rows.lengths().sum() == after.rows.lengths().sum())


# ---- all rounds at once


def _at_once(walk: Any, p: Any, values: list[Any], numbers: list[Any], steps: Any) -> Results:
    """The results of all rounds at once. Raises `Unfollowed` if a round reads an array that another
    one has written to."""
    body, count = p.body, p.carried
    sizes = [
        c.out.aval.size for c in body.calls if len(c.outs) == 1 and not c.primitive.memory.updates
    ]
    if len(steps) * walk.rounds * sum(sizes) > AT_ONCE:
        raise Unfollowed
    owner = np.repeat(np.arange(walk.rounds), len(steps))  # the outer round of each inner one
    wide = walk.wider(len(owner))
    env: dict[Var, Any] = {}
    sure: dict[Var, Any] = {body.inputs[0]: Rounds(np.tile(steps, walk.rounds))}
    ready = {body.inputs[0]}
    handed = []
    for k, (x, value, number) in enumerate(zip(body.inputs[1:], values, numbers, strict=True)):
        end = body.outputs[k] if k < count else x
        if end is not x and not _grows(body, x, end):
            handed.append(k)
            continue
        ready.add(x)
        if end is not x:
            new = Log(x.aval.size, owner, [], [])
            env[x] = value.inner(owner) if isinstance(value, Log) else new
        elif value is not None:
            env[x] = value.inner(owner) if isinstance(value, Log) else _spread(value, owner, x)
        if end is x and number is not None:
            plain = not isinstance(number, Rounds)
            sure[x] = number if plain else Rounds(number.values[owner])
    _walk_in_order(wide, p, env, sure, ready, handed, values, numbers, len(steps))
    results: list[Any] = []
    last = np.arange(walk.rounds) * len(steps) + len(steps) - 1
    known: list[Any] = []
    for k in range(count):
        x, end, value = body.inputs[1 + k], body.outputs[k], values[k]
        if end is x:
            results.append(value)
            known.append(numbers[k])
        elif k in handed:
            found = env.get(end) if isinstance(end, Var) else None
            results.append(None if found is None else _of_rounds(walk, found, last, x))
            known.append(None)
        else:
            log = env.get(end)
            if not isinstance(log, Log):
                raise Unfollowed
            results.append(value.next() if isinstance(value, Log) else log.after(walk, value))
            known.append(None)
    return results, known


def _walk_in_order(
    wide: Any,
    p: Any,
    env: dict[Var, Any],
    sure: dict[Var, Any],
    ready: set[Any],
    handed: Sequence[int],
    values: Sequence[Any],
    numbers: Sequence[Any],
    rounds: int,
) -> None:
    """Walk through the calls of all rounds, each as soon as its operands are ready. A round's
    carried value is the result of the round before."""
    body = p.body
    waiting, calls = list(handed), list(body.calls)
    while calls or waiting:
        left = []
        for call in calls:
            if all(x in ready or not isinstance(x, Var) for x in call.operands):
                wide.call(call, env, sure)
                ready.update(call.outs)
            else:
                left.append(call)
        still = []
        for k in waiting:
            x, end = body.inputs[1 + k], body.outputs[k]
            if isinstance(end, Var) and end not in ready:
                still.append(k)
                continue
            made = env.get(end) if isinstance(end, Var) else None
            if isinstance(made, Log) or isinstance(values[k], Log):
                raise Unfollowed
            value = _handed_on(wide, values[k], made, x, rounds)
            if value is not None:
                env[x] = value
            number = _numbers_handed_on(wide, numbers[k], end, sure, x, rounds)
            if number is not None:
                sure[x] = number
            ready.add(x)
        if len(left) == len(calls) and len(still) == len(waiting):
            raise Unfollowed
        calls, waiting = left, still


def _grows(body: Tape, x: Var, end: Any) -> bool:
    """Whether a carried value becomes the next one by writes and additions only."""
    reached: set[Any] = {x}
    for call in body.calls:
        p: Any = call.primitive
        if p.repeats:
            given = p.given(call.operands)[: p.carried]
            reached.update(out for y, out in zip(given, call.outs, strict=False) if y in reached)
        elif p.memory.updates:
            reached.update(call.outs if call.operands[0] in reached else ())
        elif p.pointwise and call.out.shape == x.shape and is_active(call.out.aval):
            reached.update(call.outs if not reached.isdisjoint(call.operands) else ())
    return end in reached


def _spread(value: Any, owner: Any, x: Var) -> Any:
    """A value of the outer loop's rounds, for each round of the inner loop."""
    return (
        value
        if not value.each
        else value._replace(rows=value.rows.take(_elements(owner, x.aval.size)))
    )


def _elements(rounds: Any, size: int) -> Any:
    """The numbers of a value's elements in these rounds."""
    return (np.asarray(rounds)[:, None] * size + np.arange(size)).ravel()


def _of_rounds(walk: Any, value: Any, rounds: Any, x: Var) -> Any:
    """A value in the given rounds, one for each outer round."""
    if not value.each:
        return value
    return walk.value(value.rows.take(_elements(rounds, x.aval.size)), walk.rounds > 1)


def _handed_on(wide: Any, start: Any, made: Any, x: Var, rounds: int) -> Any:
    """A carried value at the start of each round: the result of the round before, or in the first
    round the initial value."""
    size, every = x.aval.size, np.arange(wide.rounds)
    first = np.repeat(every % rounds == 0, size)
    parts = []
    if made is not None:
        before = _elements(np.maximum(every - 1, 0), size)
        rows = wide.everywhere(made).take(np.where(first, -1, before))
        parts.append(wide.value(rows, True))
    if start is not None:
        outer = every // rounds if start.each else 0 * every
        rows = start.rows.take(np.where(first, _elements(outer, size), -1))
        parts.append(wide.value(rows, True))
    return wide.union(parts, True)


def _numbers_handed_on(
    wide: Any, start: Any, end: Any, sure: dict[Var, Any], x: Var, rounds: int
) -> Any:
    """The same for known integers."""
    made = sure.get(end) if isinstance(end, Var) else end.value
    if made is None or start is None or x.shape != () or is_active(x.aval):
        return None
    if isinstance(start, (Rounds, Among)) or isinstance(made, Among):
        return None
    plain = made.values if isinstance(made, Rounds) else made
    values = np.roll(np.broadcast_to(plain, wide.rounds), 1)
    values[::rounds] = start
    return Rounds(values)
