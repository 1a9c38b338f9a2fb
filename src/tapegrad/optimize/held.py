"""Repetition among calls that a trace holds as rounds (see `ir.recorded`).

That calls are like those a period earlier has been seen when they were recorded. So a few rounds
tell how operands stand to each other, and it is known for how many more that is so. Marks are known
for one round, and the sum of marks up to any place is that of a geometric series.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from tapegrad.ir.held import Column, Rounds, starts
from tapegrad.ir.recorded import Recorded
from tapegrad.ir.tape import Literal, Operand, Tape, Var
from tapegrad.optimize.repetition import BASE, CALLS, MODULUS, ROUNDS, Repetition, Run, Usable

FEW = 8  # there are so many times more calls than what is kept of them, or all are looked at,
PARTS = 32  # and no more parts than these


def found_in(tape: Tape, constants: Mapping[Var, np.ndarray]) -> tuple[Repetition, Sequence[Run]]:
    """The runs of a tape. If its calls aren't of a few runs, all of them have been looked at."""
    calls: Any = tape.calls
    if isinstance(calls, Recorded):
        if FEW * _kept(calls) <= len(calls) and len(calls.parts) <= PARTS:
            held = _Held(tape, constants)
            runs = held.found()
            if runs is not None and held.is_done(runs):
                return held, runs
        tape = replace(tape, calls=tuple(calls))
    found = Repetition(tape, constants)
    return found, list(found.runs())


def _kept(calls: Recorded) -> int:
    return sum(len(part.slots if isinstance(part, Rounds) else part) for part in calls.parts)


class _Made:
    """Which call makes a variable, and at which place, by the variable's number."""

    def __init__(self, rounds: Sequence[Rounds]) -> None:
        self.single: dict[int, tuple[int, int]] = {}
        self.rounds = rounds
        self.firsts = [part.slots[0].first for part in rounds]

    def get(self, number: int) -> tuple[int, int] | None:
        known = self.single.get(number)
        if known is None:
            at = bisect_right(self.firsts, number) - 1
            return self.rounds[at].where(number) if at >= 0 else None
        return known


class _Held(Repetition):
    """Finds runs among calls of which some are held."""

    calls: Recorded

    def found(self) -> list[Run] | None:
        """The runs; None if what is held isn't found to be of one."""
        if not self._is_regular():
            return None
        runs = []
        at, end = 0, len(self.calls)
        while at < end:
            run = self._longest(at) if self.size(at, end) >= CALLS else None
            if run is None:
                part = self._part(at)
                if part is not None and part.stop - at >= max(CALLS, ROUNDS * part.period):
                    return None
                at += 1
            else:
                runs.append(run)
                at = run.stop
        return runs

    def _part(self, position: int) -> Rounds | None:
        part = self.calls.parts[self.calls.part_at(position)]
        return part if isinstance(part, Rounds) else None

    def _is_regular(self) -> bool:
        """Whether each round that is held is guarded as the first one of its part is."""
        found: dict[tuple[int, int], dict[int, list[object]]] = {}  # by part and call: by round
        parts: dict[int, Rounds] = {}
        for number, guards in self.guards.items():
            made = self.made.get(number)
            part = None if made is None else self._part(made[0])
            if made is not None and part is not None:
                parts[part.start] = part
                round_, k = divmod(made[0] - part.start, part.period)
                facts = [(made[1], g.expected, g.what, g.src) for g in guards]
                found.setdefault((part.start, k), {}).setdefault(round_, []).extend(facts)
        for (start, k), rounds in found.items():
            part = parts[start]
            count = (part.count - k - 1) // part.period + 1
            if len(rounds) < count or any(facts != rounds[0] for facts in rounds.values()):
                return False
        return True

    # ---- marks

    def _look(self) -> None:
        parts, self.made = self.calls.parts, _Made([])
        rounds = [part for part in parts if isinstance(part, Rounds)]
        self.made = _Made(rounds)
        self._parts_marks: list[list[int]] = []
        self._inner: list[list[int]] = []  # of each part the sums of marks, by themselves
        self._before: list[int] = []  # the sum up to each part
        self._places = {}
        self._ranges: dict[int, list[range]] = {}
        total = 0
        for part, start in zip(parts, self.calls.starts, strict=True):
            marks, sums = [], [0]
            held = isinstance(part, Rounds)
            for k in range(min(part.period, part.count) if isinstance(part, Rounds) else len(part)):
                call = self.calls[start + k]
                mark = self._mark(call)
                marks.append(mark)
                sums.append((sums[-1] * BASE + mark + 1) % MODULUS)
                if isinstance(part, Rounds):
                    places = range(start + k, part.stop, part.period)
                    self._ranges.setdefault(mark, []).append(places)
                else:
                    self._places.setdefault(mark, []).append(start + k)
                    for place, out in enumerate(call.outs):
                        self.made.single[out.id] = start + k, place
            self._parts_marks.append(marks)
            self._inner.append(sums)
            self._before.append(total)
            count = part.count if isinstance(part, Rounds) else len(part)
            inner = self._inner_sum(len(self._inner) - 1, count, held)
            total = (total * pow(BASE, count, MODULUS) + inner) % MODULUS

    def _inner_sum(self, number: int, count: int, held: bool) -> int:
        """The sum of the first marks of a part."""
        sums = self._inner[number]
        if not held:
            return sums[count]
        rounds, rest = divmod(count, len(sums) - 1)
        ratio = pow(BASE, len(sums) - 1, MODULUS)
        series = (pow(ratio, rounds, MODULUS) - 1) * pow(ratio - 1, -1, MODULUS)
        return (series * sums[-1] * pow(BASE, rest, MODULUS) + sums[rest]) % MODULUS

    def _sum(self, position: int) -> int:
        number = self.calls.part_at(position)
        count = position - self.calls.starts[number]
        held = isinstance(self.calls.parts[number], Rounds)
        inner = self._inner_sum(number, count, held)
        return (self._before[number] * pow(BASE, count, MODULUS) + inner) % MODULUS

    def _digest(self, start: int, stop: int) -> int:
        return (self._sum(stop) - self._sum(start) * pow(BASE, stop - start, MODULUS)) % MODULUS

    def _stretch(self, at: int, period: int) -> int:
        return self._by_sums(at, period, 0)

    def next_places(self, at: int, count: int, behind: int | None = None) -> list[int]:
        number = self.calls.part_at(at)
        marks = self._parts_marks[number]
        mark = marks[(at - self.calls.starts[number]) % len(marks)]
        first = at + 1 if behind is None else behind
        places = self._places.get(mark, [])
        k = bisect_left(places, first)
        found = places[k : k + count]
        for held in self._ranges.get(mark, ()):
            k = max(0, -((held.start - first) // held.step))
            found += held[k : k + count]
        return sorted(found)[:count]

    def size(self, start: int, stop: int) -> int:
        return stop - start

    def _periods(self, at: int, places: Sequence[int]) -> list[int]:
        return [place - at for place in places]  # of few calls

    # ---- operands

    def run(self, start: int, period: int, rounds: int, usable: Usable = None) -> Run | None:
        run = self._checked(start, period, rounds)
        if run is not None and run.rounds == rounds:  # then it is so for fewer rounds, too
            return run
        return super().run(start, period, rounds, usable)

    def operands(self, at: int, m: int, period: int, rounds: int) -> list[Operand]:
        xs: list[Operand] = []
        while len(xs) < rounds:
            position = at + len(xs) * period
            x, part = self.calls.operand(position, m), self._part(position)
            count = 1
            if part is not None and part.period == period and len(xs) > 4:
                first, k = divmod(position - part.start, period)
                spec, slot = part.slots[k].specs[m], part.slots[k]
                count = min(rounds - len(xs), (part.stop - position - 1) // period + 1)
                if type(spec) is int:
                    numbers = range(x.id, x.id + count * part.stride, part.stride)  # type: ignore[union-attr]
                    aval = slot.avals[m]
                    xs += [Var(number, aval) for number in numbers]
                elif isinstance(spec, Column):
                    xs += [spec[r] for r in range(first, first + count)]
                else:
                    xs += [x] * count
            else:
                xs.append(x)
        return xs

    def _following(
        self, reading: tuple[int, int], made: tuple[int, int], period: int, rounds: int
    ) -> int:
        (position, m), (target, out) = reading, made
        r = 0
        while r < rounds:
            x = self.calls.operand(position, m)
            if type(x) is not Var or x.id != self.calls.number(target) + out:
                return r
            # If both calls are held, that goes on: from round to round the numbers of variables
            # grow as much.
            part = self._part(position)
            count = 1
            if part is not None and part.period == period and part.start <= target:
                spec = part.slots[(position - part.start) % period].specs[m]
                if type(spec) is int:
                    count += (part.stop - 1 - position) // period
            r += count
            position += count * period
            target += count * period
        return rounds

    def _move(self, first: int, period: int, rounds: int) -> tuple[tuple[int, ...], int]:
        index = [starts(self.calls[first + r * period].primitive.index) for r in (0, 1)]  # type: ignore[attr-defined]
        move = tuple([b - a for a, b in zip(*index, strict=True)])
        r = 0
        while r < rounds:
            position = first + r * period
            expected = tuple([a + r * far for a, far in zip(index[0], move, strict=True)])
            if starts(self.calls[position].primitive.index) != expected:  # type: ignore[attr-defined]
                return move, r
            part, r = self._part(position), r + 1
            held = part is not None and part.period == period
            if (
                part is not None
                and held
                and part.slots[(position - part.start) % period].move == move
            ):
                r += (part.stop - 1 - position) // period
        return move, rounds

    def reads(self, runs: Sequence[Run]) -> Iterator[tuple[int, Operand]]:
        edges = sorted({0, len(self.calls), *chain(*[(run.start, run.stop) for run in runs])})
        inside = {run.start for run in runs}
        for part, start in zip(self.calls.parts, self.calls.starts, strict=True):
            stop = start + (part.count if isinstance(part, Rounds) else len(part))
            at = start
            while at < stop:
                k = bisect_right(edges, at)
                end = min(stop, edges[k])
                if isinstance(part, Rounds) and edges[k - 1] in inside:
                    yield from self._reads_in_run(part, at, end)
                else:
                    for position in range(at, end):
                        for x in self.calls[position].operands:
                            yield position, x
                at = end

    def _reads_in_run(self, part: Rounds, start: int, stop: int) -> Iterator[tuple[int, Operand]]:
        """What calls from `start` to `stop` read, but for what these make; all are of one run."""
        least = self.calls.number(start)
        for first in range(start, min(stop, start + part.period)):
            slot = part.slots[(first - part.start) % part.period]
            for m, spec in enumerate(slot.specs):
                if isinstance(spec, (Var, Literal)):
                    yield first, spec
                    continue
                for position in range(first, stop, part.period):
                    x = part.operand(position, m)
                    if type(spec) is int and isinstance(x, Var) and x.id >= least:
                        break
                    yield position, x
