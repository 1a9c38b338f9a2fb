"""Lists become arrays where rounds of an inner loop go through them.

    x = []                                  x = empty(n)
    for i in range(n):                      for i in range(n):
        s = b[i]                                s = b[i]
        for j in range(i):          -->         for j in range(i):
            s -= L[i, j] * x[j]                     s -= L[i, j] * x[j]
        x.append(s / L[i, i])                   x[i] = s / L[i, i]

On the tape nothing is left of a list: in each round of the inner loop an operand is another result
of one and the same line. Such results are numbered. Each is written to an array when it has been
computed, and read from there in such rounds, at an index that moves. The results of an inner loop's
rounds have two numbers, that of the run and that in it: no entry is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from tapegrad.ir.tape import Aval, Call, Operand, Tape, Var
from tapegrad.optimize.repetition import ROUNDS, Repetition, Run
from tapegrad.primitives.base import Slice
from tapegrad.primitives.scatter import SetItem, Stack
from tapegrad.primitives.views import GetItem, Transpose
from tapegrad.primitives.windows import Empty

LARGE = 1 << 24  # bytes of an array of results: larger ones aren't made


def with_stacks(tape: Tape) -> Tape:
    """The tape with arrays for lists that become longer and are stacked again and again: each part
    is written once, and a stack is what is there so far.

    stack(a), stack(a, b), stack(a, b, c), ...   -->   x[0] = a; x[:1]; x[1] = b; x[:2]; ...
    """
    last: dict[Any, list[Call]] = {}  # of the lists that begin with one variable
    for call in tape.calls:
        if isinstance(call.primitive, Stack):
            chain = last.setdefault((call.primitive, call.src, call.operands[0]), [])
            before = chain[-1].operands if chain else ()
            if call.operands[: len(before)] == before:
                chain.append(call)
    chains = {call.out: chain for chain in last.values() if len(chain) >= ROUNDS for call in chain}
    if not chains:
        return tape
    fresh = count(tape.last + 1)
    arrays: dict[Var, tuple[Var, int]] = {}  # by the last stack: an array, and how long it is
    calls: list[Call] = []

    def record(primitive: Any, operands: Sequence[Operand], src: Any) -> Var:
        (aval,) = primitive.avals(*[x.aval for x in operands])
        out = Var(next(fresh), aval)
        calls.append(Call(primitive, tuple(operands), (out,), src))
        return out

    for call in tape.calls:
        if not call.outs or call.outs[0] not in chains:
            calls.append(call)
            continue
        chain = chains[call.out]
        key, part = chain[-1].out, call.operands[0].aval
        rest = [Slice(0, n) for n in part.shape]
        if key not in arrays:
            most = len(chain[-1].operands)
            empty = Empty((most, *part.shape), part.dtype)
            arrays[key] = record(empty, (), call.src), 0
        array, done = arrays[key]
        for k in range(done, len(call.operands)):
            array = record(SetItem((k, *rest)), (array, call.operands[k]), call.src)
        arrays[key] = array, len(call.operands)
        axis = call.primitive.axis  # type: ignore[attr-defined]
        order = (*range(1, axis + 1), 0, *range(axis + 1, 1 + len(rest)))
        found = record(GetItem((Slice(0, len(call.operands)), *rest)), (array,), call.src)
        calls.append(Call(Transpose(order), (found,), call.outs, call.src, call.reason))
    return replace(tape, calls=tuple(calls))


Made = tuple[int, int]  # a mark, and the place of a result: the results of one line
Reading = tuple[int, int]  # a mark, and the number of an operand


def with_lists(found: Repetition, runs: Sequence[Run]) -> Tape | None:
    """The tape with arrays for the lists that `runs`, the rounds of inner loops, go through; None
    if there are none."""
    readings: dict[Reading, set[Made]] = {}
    for run in runs:
        for k, ways in enumerate(run.ways):
            for m, way in enumerate(ways):
                if way.kind == "entries":
                    made = [_made(found, x) for x in way.xs]
                    first = made[0]
                    if first is not None and all(x == first for x in made):
                        readings.setdefault((found.marks[run.start + k], m), set()).add(first)
    listed = {x for group in readings.values() for x in group}
    arrays = {made: _Array(found, made, runs) for made in listed}
    arrays = {made: array for made, array in arrays.items() if array.nbytes <= LARGE}
    if not arrays:
        return None
    return replace(found.tape, calls=tuple(_Rewritten(found, readings, arrays).calls()))


def _made(found: Repetition, x: Operand) -> Made | None:
    """The line that a variable is a result of."""
    known = found.made.get(x.id) if type(x) is Var else None
    return None if known is None else (found.marks[known[0]], known[1])


class _Array:
    """The array of the results of a line, and where in it each is."""

    def __init__(self, found: Repetition, made: Made, runs: Sequence[Run]) -> None:
        mark, self.place = made
        positions = found.places(mark)
        starts = {
            run.start + k: (run.rounds, run.period)
            for run in runs
            for k in range(run.period)
            if found.marks[run.start + k] == mark
        }
        self.at: dict[int, tuple[int, ...]] = {}
        if starts:
            rows = list(_rows(positions, starts))
            self.shape: tuple[int, ...] = (len(rows), max(map(len, rows)))
            for number, row in enumerate(rows):
                self.at.update({position: (number, k) for k, position in enumerate(row)})
        else:
            self.shape = (len(positions),)
            self.at.update({position: (number,) for number, position in enumerate(positions)})
        self.aval: Aval = found.calls[positions[0]].outs[self.place].aval
        self.nbytes = self.aval.nbytes
        for extent in self.shape:
            self.nbytes *= extent
        self.now: Var | None = None  # the array, as far as it is filled

    def index(self, position: int) -> tuple[int | Slice, ...]:
        """Where the result of a call is."""
        return (*self.at[position], *(Slice(0, n) for n in self.aval.shape))


def _rows(positions: Sequence[int], starts: dict[int, tuple[int, int]]) -> Iterator[list[int]]:
    """The calls at these positions, run by run; what stands between runs is a row, too."""
    row: list[int] = []
    stop = -1
    for position in positions:
        begins = position in starts and position > stop
        if begins or (stop >= 0 and position > stop):
            if row:
                yield row
            row = []
        if begins:
            rounds, period = starts[position]
            stop = position + (rounds - 1) * period
        elif position > stop:
            stop = -1
        row.append(position)
    if row:
        yield row


class _Rewritten:
    """The calls of a tape, with those that write to arrays and read from them."""

    def __init__(
        self,
        found: Repetition,
        readings: dict[Reading, set[Made]],
        arrays: dict[Made, _Array],
    ) -> None:
        self.found = found
        self.readings = readings
        self.arrays = arrays
        self.last = found.tape.last
        self.written: dict[int, list[_Array]] = {}
        for array in arrays.values():
            for position in array.at:
                self.written.setdefault(position, []).append(array)

    def fresh(self, aval: Aval) -> Var:
        self.last += 1
        return Var(self.last, aval)

    def calls(self) -> Iterator[Call]:
        for array in self.arrays.values():
            array.now = self.fresh(Aval((*array.shape, *array.aval.shape), array.aval.dtype))
            yield Call(Empty(array.now.shape, array.now.dtype), (), (array.now,))
        for position, call in enumerate(self.found.calls):
            mark = self.found.marks[position]
            operands = list(call.operands)
            for m, x in enumerate(operands):
                made = _made(self.found, x) if (mark, m) in self.readings else None
                if made in self.readings.get((mark, m), ()) and made in self.arrays:
                    assert made is not None and isinstance(x, Var)
                    array = self.arrays[made]
                    assert array.now is not None
                    operands[m] = part = self.fresh(x.aval)
                    index = array.index(self.found.made[x.id][0])
                    yield Call(GetItem(index), (array.now,), (part,), call.src)
            same = all(x is y for x, y in zip(operands, call.operands, strict=True))
            yield call if same else replace(call, operands=tuple(operands))
            for array in self.written.get(position, ()):
                assert array.now is not None
                before, array.now = array.now, self.fresh(array.now.aval)
                value = call.outs[array.place]
                yield Call(SetItem(array.index(position)), (before, value), (array.now,), call.src)
