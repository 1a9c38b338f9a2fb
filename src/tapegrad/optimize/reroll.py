"""Rerolling: calls that repeat themselves become a loop.

A trace unrolls the loops of the user's program. What they recorded is found again: rounds of equal
calls, that is of one primitive, from one line, on operands of equal types, which stand to each
other in one of a few ways. From round to round an operand is

- the same, from before the loop: an invariant;
- of the round itself, or of one some rounds earlier: it is carried;
- a number, or a value from before, that is another one each time: an entry of an array;

and the static index of a view or of a write is the same, or changes by the same amount: it becomes
a window (see `primitives.windows`). What is read after the loop is carried to its end, or becomes
an array with an entry a round.

    %3 = sin(%1)                           body(t, h):
    %4 = add(%3, 0.1)                          %3 = sin(h)
    %5 = sin(%4)               -->             %4 = add(%3, 0.1)
    %6 = add(%5, 0.1)                      %9 = loop(4, %1, body)
    ...

The longest stretch of rounds is taken, so of a nest the outer loop first; its body is looked
through in turn. First rounds that differ stay in front of the loop, and what doesn't repeat itself
stays as it is. Recognising repetition follows Ketterlin and Clauss, "Prediction and trace
compression of data access addresses through nested loop recognition" (CGO 2008).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad.ir.inputs import renumbered, with_inputs
from tapegrad.ir.tape import Aval, Builder, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Slice
from tapegrad.primitives.kinds import Library, Routine, StaticIndex
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.scatter import Concatenate, SetItem, Stack
from tapegrad.primitives.views import BroadcastTo, GetItem, Reshape, Transpose
from tapegrad.primitives.windows import AddWindow, SetWindow, Window

ROUNDS = 4  # that a loop has at the least,
CALLS = 64  # and so many calls in all of them: LLVM is better at less than that
NUMPYS = 2000  # calls, where NumPy has to make some of them: in a loop it makes all
BACK = 4  # rounds: what is older isn't carried
TRIED = 64  # periods, from the shortest on
SMALL = 1024  # bytes of values that are put in an array, if they aren't parts of one already
INDEXED = (GetItem, SetItem, Window, SetWindow, AddWindow)

_MODULUS = (1 << 61) - 1
_BASE = 1_000_003


def reroll(tape: Tape) -> tuple[Tape, tuple[np.ndarray, ...]]:
    """The tape with loops, its variables numbered in order, and the values of further inputs that
    loops read, its last ones."""
    if len(tape.calls) >= CALLS:
        found = _Rolling(tape)
        runs = list(found.runs())
        if runs:
            return _Rolled(tape, found, runs).result()
    return renumbered(tape), ()


# ---- repetition


def _starts(index: StaticIndex) -> tuple[int, ...]:
    """Where an index starts, along each axis."""
    return tuple([k if isinstance(k, int) else k.start for k in index])


def _shape_of(index: StaticIndex) -> tuple[Any, ...]:
    """An index but for where it starts."""
    return tuple([None if isinstance(k, int) else (k.count, k.step) for k in index])


class _Numbers:
    """Numbers for values that are equal. Most are the same objects again."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._by_id: dict[int, int] = {}

    def of(self, value: Any, key: Any = None) -> int:
        """The number of an object that lives as long as this does."""
        known = self._by_id.get(id(value))
        if known is None:
            known = self._numbers.setdefault(value if key is None else key, len(self._numbers))
            self._by_id[id(value)] = known
        return known

    def of_key(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


@dataclass(frozen=True)
class Way:
    """How an operand of a call in a round is come by.

    `kind` is "same" (`x`, from before), "here" (the call numbered `call` in the same round, its
    result `out`), "before" (the same, `back` rounds earlier; at first, `xs`), "entries" (of `xs`,
    one each round).
    """

    kind: str
    x: Any = None
    call: int = 0
    out: int = 0
    back: int = 0
    xs: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Run:
    """Rounds of `period` calls each, from `start` on: how operands are come by, and by how much the
    indices of calls move a round."""

    start: int
    period: int
    rounds: int
    ways: tuple[tuple[Way, ...], ...]
    moves: tuple[tuple[int, ...] | None, ...]

    @property
    def stop(self) -> int:
        return self.start + self.period * self.rounds


class _Rolling:
    """Finds runs."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.calls = tape.calls
        self.made: dict[int, tuple[int, int]] = {}  # a variable's number -> its call and place
        self.guards: dict[int, list[Guard]] = {}
        for guard in tape.guards:
            if isinstance(guard.operand, Var):
                self.guards.setdefault(guard.operand.id, []).append(guard)
        primitives, sources, avals, marks = _Numbers(), _Numbers(), _Numbers(), _Numbers()
        self.marks: list[int] = []
        for position, call in enumerate(tape.calls):
            primitive = call.primitive
            if isinstance(primitive, INDEXED):
                key: Any = (
                    type(primitive),
                    _shape_of(primitive.index),
                    getattr(primitive, "moves", ()),
                )
            elif isinstance(primitive, Library) and primitive.foreign:
                key = (id(primitive),)
            else:
                key = primitive
            mark = [primitives.of(primitive, key), -1 if call.src is None else sources.of(call.src)]
            for x in call.operands:
                if type(x) is Var:
                    mark.append(avals.of(x.aval, (x.aval.shape, x.aval.dtype.num)))
                else:  # a number may stand where there is a variable in the next round
                    mark.append(avals.of_key(((), x.dtype.num)))
            for place, out in enumerate(call.outs):
                self.made[out.id] = position, place
                mark.append(avals.of(out.aval, (out.aval.shape, out.aval.dtype.num)))
                for guard in self.guards.get(out.id, ()):
                    mark.append(marks.of_key((place, guard.expected, guard.what, guard.src)))
            self.marks.append(marks.of_key(tuple(mark)))
        self._sums = [0]
        powers = [1]
        for number in self.marks:
            self._sums.append((self._sums[-1] * _BASE + number + 1) % _MODULUS)
            powers.append(powers[-1] * _BASE % _MODULUS)
        self._powers = powers
        self._places: dict[int, list[int]] = {}
        for position, number in enumerate(self.marks):
            self._places.setdefault(number, []).append(position)

    def _digest(self, start: int, stop: int) -> int:
        return (self._sums[stop] - self._sums[start] * self._powers[stop - start]) % _MODULUS

    def runs(self) -> Iterator[Run]:
        """The runs, in order; they don't overlap."""
        at, end = 0, len(self.calls)
        while at < end:
            run = self._longest(at) if end - at >= CALLS else None
            if run is None:
                at += 1
            else:
                yield run
                at = run.stop

    def _longest(self, at: int) -> Run | None:
        """The run from here on that has the most calls."""
        places = self._places[self.marks[at]]
        first = bisect_right(places, at)
        if len(places) - first < ROUNDS - 1:
            return None
        best: Run | None = None
        broken: list[int] = []  # periods whose rounds end before what repeats itself does
        waiting = [place - at for place in places[first : first + TRIED]]
        waiting.reverse()
        while waiting:
            period = waiting.pop()
            rounds = self._repeated(at, period)
            if (
                rounds < ROUNDS
                or rounds * period < CALLS
                or (best and rounds * period <= best.stop - best.start)
            ):
                continue
            run = self._checked(at, period, rounds)
            if run is None:
                continue
            if best is None or run.stop > best.stop:
                best = run
            if run.rounds == rounds:
                break
            # Maybe these are the rounds of an inner loop, and all of them one of an outer loop.
            broken.append(period)
            waiting = [k for k in waiting if all(k % p for p in broken)]
            if (outer := period * run.rounds) not in broken:
                waiting.append(outer)
        if best is None or best.stop - best.start < self._least(best):
            return None
        return best

    def _least(self, run: Run) -> int:
        """The calls that a loop has at least."""
        calls = self.calls[run.start : run.start + run.period]
        numpys = any(
            isinstance(c.primitive, Library) and not isinstance(c.primitive, Routine) for c in calls
        )
        return NUMPYS if numpys else CALLS

    def _repeated(self, at: int, period: int) -> int:
        """How many rounds of equal marks there are."""
        if at + 2 * period > len(self.calls):
            return 1
        digest = self._digest(at, at + period)
        rounds, end = 1, at + 2 * period
        while end <= len(self.calls) and self._digest(end - period, end) == digest:
            rounds += 1
            end += period
        return rounds

    # ---- operands

    def _checked(self, start: int, period: int, rounds: int) -> Run | None:
        """The run as far as operands stand in one way to each other."""
        moves: list[tuple[int, ...] | None] = []
        for k in range(period):
            move = None
            if isinstance(self.calls[start + k].primitive, INDEXED):
                move, rounds = self._move(start + k, period, rounds)
            if rounds < ROUNDS:
                return None
            moves.append(move)
        ways: list[list[Way]] = []
        for k in range(period):
            here = []
            for m in range(len(self.calls[start + k].operands)):
                calls = self.calls[start + k : start + rounds * period : period]
                way, rounds = self._way([c.operands[m] for c in calls], start, period)
                if rounds < ROUNDS:
                    return None
                here.append(way)
            ways.append(here)
        cut = [tuple([_cut(way, rounds) for way in here]) for here in ways]
        return Run(start, period, rounds, tuple(cut), tuple(moves))

    def _way(self, xs: Sequence[Operand], start: int, period: int) -> tuple[Way, int]:
        """How an operand is come by, and for how many rounds that holds."""
        inside = [self._inside(x, start) for x in xs[: BACK + 1]]
        for r, made in enumerate(inside):
            if made is None:
                continue
            round_, k = divmod(made[0] - start, period)
            back = r - round_
            if back != r:  # made in the first rounds, and read later
                return Way("none"), r
            break
        else:
            return self._outside(xs, start)
        kind = "before" if back else "here"
        out = made[1]  # type: ignore[index]
        rounds = back
        position = start + k
        for x in xs[back:]:
            if type(x) is not Var or x.id != self.calls[position].outs[out].id:
                break
            position += period
            rounds += 1
        return Way(kind, None, k, out, back, tuple(xs[:back])), rounds

    def _inside(self, x: Operand, start: int) -> tuple[int, int] | None:
        """Where a variable is made, if that isn't before the run."""
        made = self.made.get(x.id) if type(x) is Var else None
        return made if made is not None and made[0] >= start else None

    def _outside(self, xs: Sequence[Operand], start: int) -> tuple[Way, int]:
        first = xs[0]
        rounds = 0
        same = True
        for x in xs:
            if x is not first and x != first:
                same = False
            if not same and self._inside(x, start) is not None:
                break
            rounds += 1
        if same:
            return Way("same", first), rounds
        count = next((k for k, x in enumerate(xs) if x is not first and x != first), len(xs))
        small = all(x.aval.nbytes <= SMALL or self._is_entry(x) for x in xs[:rounds])
        if small:
            return Way("entries", xs=tuple(xs[:rounds])), rounds
        return Way("same", first), count

    def _is_entry(self, x: Operand) -> bool:
        """Whether this is a part of an array, that a window may be."""
        made = self.made.get(x.id) if type(x) is Var else None
        return made is not None and isinstance(self.calls[made[0]].primitive, GetItem)

    def _move(self, first: int, period: int, rounds: int) -> tuple[tuple[int, ...], int]:
        """By how much an index moves a round, and for how many rounds it does."""
        calls: Any = self.calls[first : first + rounds * period : period]
        start = _starts(calls[0].primitive.index)
        move = tuple(b - a for a, b in zip(start, _starts(calls[1].primitive.index), strict=True))
        for r, call in enumerate(calls):
            index = call.primitive.index
            if index is calls[0].primitive.index and not any(move):
                continue
            expected = tuple(a + r * far for a, far in zip(start, move, strict=True))
            if _starts(index) != expected:
                return move, r
        return move, rounds


def _cut(way: Way, rounds: int) -> Way:
    return replace(way, xs=way.xs[:rounds]) if way.kind == "entries" else way


# ---- the loops


@dataclass(frozen=True)
class Entry:
    """Entry `number` of an array of results, one a round."""

    array: Var
    number: int


@dataclass(frozen=True)
class Row:
    """Entries of one array, from `start` on."""

    array: Var
    start: int
    step: int
    count: int


def _pieces(entries: Sequence[Any]) -> list[Row | range]:
    """The longest rows among operands, and the others in between, by their numbers."""
    found: list[Row | range] = []
    at = 0
    while at < len(entries):
        stop, first = at + 1, entries[at]
        step = 0
        while stop < len(entries) and isinstance(first, Entry):
            x = entries[stop]
            if not isinstance(x, Entry) or x.array is not first.array:
                break
            step = step or x.number - first.number
            if not step or x.number != first.number + step * (stop - at):
                break
            stop += 1
        if stop - at >= ROUNDS:
            found.append(Row(first.array, first.number, step, stop - at))
        elif found and isinstance(found[-1], range):
            found[-1] = range(found[-1].start, at + 1)
            stop = at + 1
        else:
            stop = at + 1
            found.append(range(at, stop))
        at = stop
    return found


@dataclass(frozen=True)
class Slot:
    """Something that is carried: the result of a call of the body, from `back` rounds before; at
    first, `start`."""

    call: int
    out: int
    back: int
    start: Operand | None  # None where the loop sets it before it is read
    stacked: bool = False


@dataclass
class _Body:
    """What a loop's body is made of."""

    run: Run
    slots: dict[Slot, Var] = field(default_factory=dict)
    invariants: dict[Operand, Var] = field(default_factory=dict)


class _Rolled:
    """The tape with its runs as loops."""

    def __init__(self, tape: Tape, found: _Rolling, runs: Sequence[Run]) -> None:
        self.tape = tape
        self.found = found
        self.all_runs = runs
        self.builder = Builder(tape.name)
        names = tape.names or ("",) * len(tape.inputs)
        self.env: dict[int, Operand | Entry] = {
            var.id: self.builder.input(var.aval, name)
            for var, name in zip(tape.inputs, names, strict=True)
        }
        self.made: dict[Var, Call] = {}
        self.further: list[tuple[Var, np.ndarray]] = []
        self.rolled_guards: set[int] = set()
        self.wanted = self._wanted()

    def result(self) -> tuple[Tape, tuple[np.ndarray, ...]]:
        at = 0
        for run in self.all_runs:
            for call in self.found.calls[at : run.start]:
                self._copy(call)
            self._loop(run)
            at = run.stop
        for call in self.found.calls[at:]:
            self._copy(call)
        tape = self.tape
        for guard in tape.guards:
            if isinstance(guard.operand, Literal) or guard.operand.id not in self.rolled_guards:
                self.builder.guards.append(replace(guard, operand=self._operand(guard.operand)))
        outputs = [self._operand(x) for x in tape.outputs]
        done = self.builder.finish(outputs, tape.captured, tape.output_names)
        done = replace(done, form=tape.form)
        done = with_inputs(
            done, [v for v, _ in self.further], [f"v{k}" for k in range(len(self.further))]
        )
        return _without_idle(renumbered(done)), tuple(array for _, array in self.further)

    def _wanted(self) -> dict[Run, dict[tuple[int, int], set[int]]]:
        """Of each run, the results that are read after it: by call and place, in which rounds."""
        owner: list[Run | None] = [None] * len(self.found.calls)
        for run in self.all_runs:
            owner[run.start : run.stop] = [run] * (run.stop - run.start)
        found: dict[Run, dict[tuple[int, int], set[int]]] = {run: {} for run in self.all_runs}

        def read(x: Any, by: Run | None) -> None:
            made = self.found.made.get(x.id) if type(x) is Var else None
            run = owner[made[0]] if made is not None else None
            if made is not None and run is not None and run is not by:
                round_, k = divmod(made[0] - run.start, run.period)
                found[run].setdefault((k, made[1]), set()).add(round_)

        for position, call in enumerate(self.found.calls):
            for x in call.operands:
                read(x, owner[position])
        for x in self.tape.outputs:
            read(x, None)
        return found

    # ---- outside

    def _call(self, primitive: Any, xs: Sequence[Operand], src: Any = None) -> Var:
        (out,) = self.builder.call(primitive, xs, src)
        self.made[out] = self.builder.calls[-1]
        return out

    def _operand(self, x: Operand) -> Operand:
        if isinstance(x, Literal):
            return x
        known = self.env[x.id]
        if isinstance(known, Entry):
            rest = [Slice(0, n) for n in x.shape]
            known = self.env[x.id] = self._call(GetItem((known.number, *rest)), [known.array])
        return known

    def _copy(self, call: Call) -> None:
        if isinstance(call.primitive, (Stack, Concatenate)):
            whole = self._whole(call)
            if whole is not None:
                self.env[call.out.id] = whole
                return
        outs = self.builder.again(call, [self._operand(x) for x in call.operands])
        self.made.update(dict.fromkeys(outs, self.builder.calls[-1]))
        self.env.update(zip([out.id for out in call.outs], outs, strict=True))

    def _whole(self, call: Call) -> Operand | None:
        """What joins results of rounds, in terms of the arrays that they are in already; None if it
        doesn't."""
        primitive: Any = call.primitive
        entries = [self.env[x.id] if type(x) is Var else x for x in call.operands]
        pieces = _pieces(entries)
        if not any(isinstance(piece, Row) for piece in pieces):
            return None
        axis = primitive.axis
        parts = []
        for piece in pieces:
            if isinstance(piece, Row):
                array = self._row(piece)
                if axis:
                    order = [*range(1, axis + 1), 0, *range(axis + 1, len(array.shape))]
                    array = self._call(Transpose(tuple(order)), [array], call.src)
                if isinstance(primitive, Concatenate):
                    shape = list(array.shape)
                    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
                    array = self._call(Reshape(tuple(shape)), [array], call.src)
                parts.append(array)
            else:
                xs = [self._operand(call.operands[k]) for k in piece]
                parts.append(self._call(primitive, xs, call.src))
        return parts[0] if len(parts) == 1 else self._call(Concatenate(axis), parts, call.src)

    def _row(self, row: Row) -> Var:
        """The entries of an array that follow each other."""
        array = row.array
        if row.start == 0 and row.step == 1 and row.count == array.shape[0]:
            return array
        rest = [Slice(0, n) for n in array.shape[1:]]
        return self._call(GetItem((Slice(row.start, row.count, row.step), *rest)), [array])

    # ---- inside

    def _loop(self, run: Run) -> None:
        calls = self.found.calls[run.start : run.start + run.period]
        body = _Body(run)
        values = _Values(run)
        sources: dict[tuple[int, int], Any] = {}  # of operands: a slot, or what a window is of
        for k, here in enumerate(run.ways):
            for m, way in enumerate(here):
                if way.kind == "before":
                    sources[k, m] = self._chain(body, way)
                elif way.kind == "entries":
                    sources[k, m] = self._entries(way, values)
        results = self._results(body)
        array = self._array_of(values)
        builder = Builder(
            f"round_{self.tape.name}" if not self.tape.name.startswith("round") else self.tape.name
        )
        step = builder.input(Aval((), np.dtype(np.int64)), "t")
        for slot in body.slots:
            body.slots[slot] = builder.input(self._aval(calls, slot, run))
        local: dict[int, Operand] = {}
        inner = _Inside(self, body, builder, step, local, array)
        inner.invariants_of(run, sources)
        for k, call in enumerate(calls):
            operands = [
                inner.operand(way, sources.get((k, m)), x)
                for m, (way, x) in enumerate(zip(run.ways[k], call.operands, strict=True))
            ]
            move = run.moves[k]
            if move is not None and any(move):
                primitive = _moving(call.primitive, move)
                outs = builder.call(primitive, [*operands, step], call.src, call.reason)
            else:
                outs = builder.again(call, operands)
            local.update(zip([out.id for out in call.outs], outs, strict=True))
            for out in call.outs:
                for guard in self.found.guards.get(out.id, ()):
                    builder.guards.append(replace(guard, operand=local[out.id]))
        outputs = [inner.leaving(slot, calls) for slot in body.slots]
        tape, arrays = reroll(builder.finish(outputs))
        further = [self._further(x) for x in arrays]
        start = [self._start(slot, var) for slot, var in body.slots.items()]
        primitive = Loop(tape, len(start), run.rounds)
        src = calls[0].src
        rounds = Literal(np.int64(run.rounds))
        if start:
            outs = self.builder.call(primitive, [rounds, *start, *body.invariants, *further], src)
            found = dict(zip(body.slots, outs, strict=True))
            for slot, named in results.items():
                for round_, id_ in named:
                    self.env[id_] = Entry(found[slot], round_) if slot.stacked else found[slot]
        for r in range(run.rounds):
            for call in self.found.calls[
                run.start + r * run.period : run.start + (r + 1) * run.period
            ]:
                self.rolled_guards.update(out.id for out in call.outs)

    def _chain(self, body: _Body, way: Way) -> Slot:
        """The slots of a value of some rounds ago, and of those in between."""
        slot = Slot(way.call, way.out, 1, way.xs[-1])
        body.slots.setdefault(slot, None)  # type: ignore[arg-type]
        for back in range(2, way.back + 1):
            slot = Slot(way.call, way.out, back, way.xs[-back])
            body.slots.setdefault(slot, None)  # type: ignore[arg-type]
        return slot

    def _results(self, body: _Body) -> dict[Slot, list[tuple[int, int]]]:
        """What is read after the loop: by slot, the rounds and variables."""
        run, found = body.run, {}
        for (k, out), rounds in self.wanted[run].items():
            if rounds == {run.rounds - 1}:
                known = (s for s in body.slots if (s.call, s.out, s.back) == (k, out, 1))
                slot = next(known, Slot(k, out, 1, None))
            else:
                slot = Slot(k, out, 0, None, stacked=True)
            body.slots.setdefault(slot, None)  # type: ignore[arg-type]
            calls = self.found.calls
            found[slot] = [
                (r, calls[run.start + r * run.period + k].outs[out].id) for r in sorted(rounds)
            ]
        return found

    def _aval(self, calls: Sequence[Call], slot: Slot, run: Run) -> Aval:
        aval = calls[slot.call].outs[slot.out].aval
        return aval.with_shape((run.rounds, *aval.shape)) if slot.stacked else aval

    def _start(self, slot: Slot, var: Var) -> Operand:
        if slot.start is not None:
            return self._operand(slot.start)
        zero = Literal(var.dtype.type(0))
        return zero if var.shape == () else self._call(BroadcastTo(var.shape), [zero])

    def _further(self, array: np.ndarray) -> Var:
        var = self.builder.fresh(Aval(array.shape, array.dtype))
        self.further.append((var, array))
        return var

    def _array_of(self, values: _Values) -> dict[np.dtype, Var]:
        return {dtype: self._further(array) for dtype, array in values.arrays().items()}

    def _entries(self, way: Way, values: _Values) -> Any:
        """Where the entries of an operand are: numbers of an array of numbers; or an array and a
        window of it."""
        xs = way.xs
        if all(isinstance(x, Literal) for x in xs):
            return values.column(xs)
        known = [self.env[x.id] if type(x) is Var else x for x in xs]
        first = known[0]
        if isinstance(first, Entry):
            numbers = [e.number for e in known if isinstance(e, Entry) and e.array is first.array]
            far = numbers[1] - numbers[0] if len(numbers) > 1 else 0
            if numbers == [numbers[0] + far * k for k in range(len(xs))]:
                rest = [Slice(0, n) for n in first.array.shape[1:]]
                moves = ((far, *[0] * len(rest)),)
                return first.array, Window((numbers[0], *rest), moves), ()
        operands = [self._operand(x) for x in xs]
        made = [self.made.get(x) if type(x) is Var else None for x in operands]
        window = _window_of(made)
        if window is not None:
            return window
        array = self._call(Stack(0), operands)
        rest = [Slice(0, n) for n in array.shape[1:]]
        return array, Window((0, *rest), ((1, *[0] * len(rest)),)), ()


def _window_of(made: Sequence[Call | None]) -> Any:
    """The array, the window and the further steps, where calls take parts of one array that follow
    each other; None if they don't."""
    first = made[0]
    if first is None or not isinstance(first.primitive, (GetItem, Window)):
        return None
    p: Any = first.primitive
    indices = []
    for call in made:
        if call is None or type(call.primitive) is not type(p) or call.operands != first.operands:
            return None
        other: Any = call.primitive
        if _shape_of(other.index) != _shape_of(p.index):
            return None
        if isinstance(p, Window) and other.moves != p.moves:
            return None
        indices.append(_starts(other.index))
    move = tuple(b - a for a, b in zip(indices[0], indices[1], strict=True))
    for r, at in enumerate(indices):
        if at != tuple(a + r * far for a, far in zip(indices[0], move, strict=True)):
            return None
    x, *steps = first.operands
    return x, Window(p.index, (*getattr(p, "moves", ()), move)), tuple(steps)


def _moving(primitive: Any, move: tuple[int, ...]) -> Any:
    """The primitive, moving with the loop's step too."""
    kinds: dict[type, Any] = {GetItem: Window, SetItem: SetWindow}
    kind = kinds.get(type(primitive), type(primitive))
    return kind(primitive.index, (*getattr(primitive, "moves", ()), move))


class _Values:
    """Numbers that differ from round to round: arrays of a row a round, one for each dtype."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.columns: dict[np.dtype, dict[tuple[Literal, ...], int]] = {}

    def column(self, xs: tuple[Any, ...]) -> tuple[np.dtype, int]:
        columns = self.columns.setdefault(xs[0].dtype, {})
        return xs[0].dtype, columns.setdefault(tuple(xs), len(columns))

    def arrays(self) -> dict[np.dtype, np.ndarray]:
        return {
            dtype: np.array([[x.value for x in xs] for xs in columns], dtype).T.copy()
            for dtype, columns in self.columns.items()
        }


class _Inside:
    """The operands of a body's calls."""

    def __init__(
        self,
        outer: _Rolled,
        body: _Body,
        builder: Builder,
        step: Var,
        local: dict[int, Operand],
        arrays: dict[np.dtype, Var],
    ) -> None:
        self.outer, self.body, self.builder = outer, body, builder
        self.step, self.local, self.arrays = step, local, arrays

    def invariants_of(self, run: Run, sources: dict[tuple[int, int], Any]) -> None:
        """Inputs for what comes from before the loop and is the same in each round."""
        for array in self.arrays.values():
            self._invariant(array)
        for k, here in enumerate(run.ways):
            for m, way in enumerate(here):
                if way.kind == "same":
                    self._invariant(self.outer._operand(way.x))
                elif way.kind == "entries" and len(sources[k, m]) == 3:
                    array, _, steps = sources[k, m]
                    for x in (array, *steps):
                        self._invariant(x)

    def _invariant(self, x: Operand) -> None:
        if isinstance(x, Var) and x not in self.body.invariants:
            self.body.invariants[x] = self.builder.input(x.aval)

    def operand(self, way: Way, source: Any, x: Operand) -> Operand:
        if way.kind == "here":
            assert isinstance(x, Var)
            return self.local[x.id]
        if way.kind == "before":
            return self.body.slots[source]
        if way.kind == "same":
            return self._known(self.outer._operand(way.x))
        if len(source) == 2:
            dtype, column = source
            array = self.arrays[dtype]
            window, steps = Window((0, column), ((1, 0),)), ()
        else:
            array, window, steps = source
        given = [self._known(array), *map(self._known, steps), self.step]
        return self.builder.call(window, given)[0]

    def _known(self, x: Operand) -> Operand:
        return x if isinstance(x, Literal) else self.body.invariants[x]

    def leaving(self, slot: Slot, calls: Sequence[Call]) -> Operand:
        """What a round leaves in a slot."""
        value = self.local[calls[slot.call].outs[slot.out].id]
        if slot.stacked:
            rest = [Slice(0, n) for n in value.shape]
            window = SetWindow((0, *rest), ((1, *[0] * len(rest)),))
            return self.builder.call(window, [self.body.slots[slot], value, self.step])[0]
        if slot.back == 1:
            return value
        same = [s for s in self.body.slots if (s.call, s.out) == (slot.call, slot.out)]
        return self.body.slots[next(s for s in same if s.back == slot.back - 1)]


def _without_idle(tape: Tape) -> Tape:
    """The tape without calls that only took parts of arrays, which windows take now."""
    live: set[Operand] = {*tape.outputs, *(guard.operand for guard in tape.guards)}
    kept: list[Call] = []
    for call in reversed(tape.calls):
        if not live.isdisjoint(call.outs) or not isinstance(call.primitive, GetItem):
            kept.append(call)
            live.update(x for x in call.operands if type(x) is Var)
    if len(kept) == len(tape.calls):
        return tape
    return renumbered(replace(tape, calls=tuple(reversed(kept))))
