"""Rerolling: repeated calls become a loop.

A trace unrolls loops of the user's program. This pass finds them again, as rounds of equal calls:
the same primitive, from the same line, on operands of equal types. From round to round an operand
is

- the same value from before the loop: an invariant;
- computed in the same round, or in one some rounds earlier: the latter is carried;
- a different number or earlier value each time: an entry of an array.

The static index of a view or a write is the same, or changes by the same amount: then it becomes a
window (see `primitives.windows`). A value that is read after the loop is carried to its end, or
becomes an array with an entry for each round.

    %3 = sin(%1)                           body(t, h):
    %4 = add(%3, 0.1)                          %3 = sin(h)
    %5 = sin(%4)               -->             %4 = add(%3, 0.1)
    %6 = add(%5, 0.1)                      %9 = loop(4, %1, body)
    ...

The longest stretch of rounds is taken, so the outer loop of a nest first; then its body is searched
in turn. First rounds that differ stay before the loop, and calls that don't repeat stay as they
are. The recognition follows Ketterlin and Clauss, "Prediction and trace compression of data access
addresses through nested loop recognition" (CGO 2008).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad.ir.inputs import renumbered, with_inputs
from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Tape, Var
from tapegrad.optimize import repetition, unrolled
from tapegrad.optimize.entries import Entry, Row, Values, pieces, window_of
from tapegrad.optimize.growing_arrays import with_parts
from tapegrad.optimize.repetition import MAX_DISTANCE, OperandSource, Repetition, Run
from tapegrad.primitives.base import Slice
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.scatter import Concatenate, SetItem, Stack
from tapegrad.primitives.views import GetItem, Reshape, Transpose
from tapegrad.primitives.windows import Empty, SetWindow, Window


@dataclass(frozen=True)
class Rerolled:
    """A tape with loops, its variables numbered in order.

    `further` are the values of its new last inputs, which loops read. `dropped` are the numbers of
    the inputs that it lost.
    """

    tape: Tape
    further: tuple[np.ndarray, ...] = ()
    dropped: frozenset[int] = frozenset()


def reroll(tape: Tape, constants: Mapping[Var, np.ndarray] | None = None) -> Rerolled:
    """The tape with loops. `constants` are inputs with fixed values. Those that differ from round
    to round are collected in one array, and their inputs are dropped."""
    if unrolled.may_repeat(tape):
        found = Repetition(tape, constants or {})
        runs: Sequence[Run] = list(found.runs())
        if not found.is_done(runs):
            found, runs = _with_parts(found, runs)
        if runs:
            return _Rolled(found.tape, found, runs).result()
    return Rerolled(renumbered(tape))


def _left(found: Repetition, runs: Sequence[Run]) -> int:
    """The number of calls that a tape has once these runs are loops."""
    return len(found.calls) - sum(run.stop - run.start - run.period for run in runs)


def _with_parts(found: Repetition, runs: Sequence[Run]) -> tuple[Repetition, Sequence[Run]]:
    """The runs, including those in which arrays grow. For these the tape may be rewritten."""
    left = _left(found, runs)
    grown = with_parts(found.tape, found.constants) if left >= repetition.MIN_CALLS else None
    if grown is not None:
        other = Repetition(*grown, budget=found.budget)
        others = list(other.runs())
        if 2 * _left(other, others) < left:
            return other, others
    return found, runs


@dataclass(frozen=True)
class Carried:
    """A loop-carried value: result `out` of a call of the body, from `back` rounds earlier.

    `starts` are its values in the first rounds. If one result is read with two different starts,
    there are two slots.
    """

    call: int
    out: int
    back: int
    starts: tuple[Operand | None, ...]  # None: set by the loop before it is read
    stacked: bool = False

    @property
    def later(self) -> Carried:
        """The slot whose current value is this slot's value in the next round."""
        return replace(self, back=self.back - 1, starts=self.starts[1:])


@dataclass
class _Body:
    """The carried values and invariants of a loop's body."""

    run: Run
    carried: dict[Carried, Var] = field(default_factory=dict)
    invariants: dict[Operand, Var] = field(default_factory=dict)


class _Rolled:
    """The tape with its runs turned into loops."""

    def __init__(self, tape: Tape, found: Repetition, runs: Sequence[Run]) -> None:
        self.tape = tape
        self.found = found
        self.all_runs = runs
        self.starts = [run.start for run in runs]
        self.builder = Builder(tape.name)
        names = tape.names or ("",) * len(tape.inputs)
        self.env: dict[int, Operand | Entry] = {
            var.id: self.builder.input(var.aval, name)
            for var, name in zip(tape.inputs, names, strict=True)
        }
        self.made: dict[Var, Call] = {}
        self.further: list[tuple[Var, np.ndarray]] = []
        self.wanted = self._wanted()

    def result(self) -> Rerolled:
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
            made = self.found.made.get(guard.operand.id) if type(guard.operand) is Var else None
            if made is None or self._run_at(made[0]) is None:  # otherwise the guard is in a round
                self.builder.guards.append(replace(guard, operand=self._operand(guard.operand)))
        outputs = [self._operand(x) for x in tape.outputs]
        done = self.builder.finish(outputs, tape.captured, tape.output_names)
        names = [f"v{k}" for k in range(len(self.further))]
        done = with_inputs(done, [var for var, _ in self.further], names)
        done = _without_idle(replace(done, form=tape.form))
        read = {x for call in done.calls for x in call.operands}
        read |= {*done.outputs, *(guard.operand for guard in done.guards)}
        constants = {k for k, var in enumerate(tape.inputs) if var in self.found.constants}
        dropped = frozenset(k for k in constants if done.inputs[k] not in read)
        kept = [k for k in range(len(done.inputs)) if k not in dropped]
        done = replace(
            done,
            inputs=tuple([done.inputs[k] for k in kept]),
            names=tuple([done.names[k] for k in kept]),
        )
        return Rerolled(renumbered(done), tuple(array for _, array in self.further), dropped)

    def _wanted(self) -> dict[int, dict[tuple[int, int], set[int]]]:
        """The results of each run that are read after it: start of the run -> (call, result) ->
        rounds."""
        found: dict[int, dict[tuple[int, int], set[int]]] = {run.start: {} for run in self.all_runs}

        def read(x: Any, by: Run | None) -> None:
            made = self.found.made.get(x.id) if type(x) is Var else None
            run = self._run_at(made[0]) if made is not None else None
            if made is not None and run is not None and run is not by:
                round_, k = divmod(made[0] - run.start, run.period)
                found[run.start].setdefault((k, made[1]), set()).add(round_)

        for position, x in self.found.reads(self.all_runs):
            read(x, self._run_at(position))
        for x in self.tape.outputs:
            read(x, None)
        return found

    def _run_at(self, position: int) -> Run | None:
        """The run that contains a position, or None."""
        k = bisect_right(self.starts, position) - 1
        return self.all_runs[k] if k >= 0 and position < self.all_runs[k].stop else None

    # ---- outside

    def _call(self, primitive: Any, xs: Sequence[Operand], src: Any = None) -> Var:
        (out,) = self.builder.call(primitive, xs, src)
        self.made[out] = self.builder.calls[-1]
        return out

    def _operand(self, x: Operand) -> Operand:
        if isinstance(x, Literal):
            return x
        known = self._known(x)
        if isinstance(known, Entry):
            rest = [Slice(0, n) for n in x.shape]
            known = self.env[x.id] = self._call(GetItem((known.number, *rest)), [known.array])
        return known

    def _known(self, x: Operand) -> Any:
        """The new value of an operand: a variable, a literal, or an `Entry` of an array."""
        if type(x) is not Var:
            return x
        if x.id not in self.env:  # a constant table
            self.env[x.id] = self._further(self.found.constants[x])
        return self.env[x.id]

    def _copy(self, call: Call) -> None:
        if isinstance(call.primitive, (Stack, Concatenate)):
            whole = self._joined(call.primitive, call.operands, call.src)
            if whole is not None:
                self.env[call.out.id] = whole
                return
        outs = self.builder.again(call, [self._operand(x) for x in call.operands])
        self.made.update(dict.fromkeys(outs, self.builder.calls[-1]))
        self.env.update(zip([out.id for out in call.outs], outs, strict=True))

    def _joined(self, primitive: Any, xs: Sequence[Operand], src: Any = None) -> Var | None:
        """The stack or concatenation of results of rounds, from the arrays that hold them already;
        None if no operand is in one."""
        entries = [self._known(x) for x in xs]
        found = pieces(entries)
        if not any(isinstance(piece, Row) for piece in found):
            return None
        axis = primitive.axis
        parts = []
        for piece in found:
            if isinstance(piece, Row):
                array = self._row(piece)
                if axis:
                    order = [*range(1, axis + 1), 0, *range(axis + 1, len(array.shape))]
                    array = self._call(Transpose(tuple(order)), [array], src)
                if isinstance(primitive, Concatenate):
                    shape = list(array.shape)
                    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
                    array = self._call(Reshape(tuple(shape)), [array], src)
                parts.append(array)
            else:
                others = [self._operand(xs[k]) for k in piece]
                parts.append(self._call(primitive, others, src))
        return parts[0] if len(parts) == 1 else self._call(Concatenate(axis), parts, src)

    def _row(self, row: Row) -> Var:
        """The array of consecutive entries."""
        array = row.array
        if row.start == 0 and row.step == 1 and row.count == array.shape[0]:
            return array
        rest = [Slice(0, n) for n in array.shape[1:]]
        return self._call(GetItem((Slice(row.start, row.count, row.step), *rest)), [array])

    # ---- inside

    def _loop(self, run: Run) -> None:
        calls = self.found.calls[run.start : run.start + run.period]
        body = _Body(run)
        values = Values()
        sources: dict[tuple[int, int], Any] = {}  # (call, operand) -> slot, or array and window
        for k, here in enumerate(run.sources):
            for m, way in enumerate(here):
                if way.kind == "before":
                    sources[k, m] = self._chain(body, way)
                elif way.kind == "entries":
                    sources[k, m] = self._entries(way, values)
        results = self._results(body)
        if not body.carried:  # the loop may only be there for its guards: carry a guarded value
            for k, place in [*_guarded(calls, self.found.guards)][:1]:
                body.carried[Carried(k, place, 1, (None,))] = None  # type: ignore[assignment]
        array = self._array_of(values)
        builder = Builder(
            f"round_{self.tape.name}" if not self.tape.name.startswith("round") else self.tape.name
        )
        step = builder.input(Aval((), np.dtype(np.int64)), "t")
        for slot in body.carried:
            body.carried[slot] = builder.input(self._aval(calls, slot, run))
        local: dict[int, Operand] = {}
        inner = _Inside(self, body, builder, step, local, array)
        inner.invariants_of(run, sources)
        for k, call in enumerate(calls):
            operands = [
                inner.operand(way, sources.get((k, m)), x)
                for m, (way, x) in enumerate(zip(run.sources[k], call.operands, strict=True))
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
        outputs = [inner.leaving(slot, calls) for slot in body.carried]
        inside = reroll(builder.finish(outputs))
        tape, further = inside.tape, [self._further(x) for x in inside.further]
        start = [self._start(slot, var) for slot, var in body.carried.items()]
        primitive = Loop(tape, len(start), run.rounds)
        src = calls[0].src
        rounds = Literal(np.int64(run.rounds))
        if start:
            outs = self.builder.call(primitive, [rounds, *start, *body.invariants, *further], src)
            found = dict(zip(body.carried, outs, strict=True))
            for slot, named in results.items():
                for round_, id_ in named:
                    self.env[id_] = Entry(found[slot], round_) if slot.stacked else found[slot]

    def _chain(self, body: _Body, way: OperandSource) -> Carried:
        """Add slots for a value of `way.back` rounds ago and for the rounds in between. Return the
        first."""
        for back in range(1, way.back + 1):
            slot = Carried(way.call, way.out, back, way.xs[-back:])
            body.carried.setdefault(slot, None)  # type: ignore[arg-type]
        return slot

    def _results(self, body: _Body) -> dict[Carried, list[tuple[int, int]]]:
        """The slots of the values that are read after the loop, each with its (round, variable)
        pairs."""
        run = body.run
        found: dict[Carried, list[tuple[int, int]]] = {}
        for (k, out), rounds in self.wanted[run.start].items():
            stacked = min(rounds) < run.rounds - MAX_DISTANCE
            for r in sorted(rounds):
                back = 0 if stacked else run.rounds - r
                slot = (
                    Carried(k, out, 0, (None,), True) if stacked else self._last(body, k, out, back)
                )
                body.carried.setdefault(slot, None)  # type: ignore[arg-type]
                var = self.found.calls[run.start + r * run.period + k].outs[out]
                found.setdefault(slot, []).append((r, var.id))
        return found

    @staticmethod
    def _last(body: _Body, k: int, out: int, back: int) -> Carried:
        """The slot for the result of one of the last rounds."""
        starts: tuple[Operand | None, ...] = ()
        for b in range(1, back + 1):
            known = (s for s in body.carried if (s.call, s.out, s.back) == (k, out, b))
            slot = next(known, Carried(k, out, b, (None, *starts)))
            starts = slot.starts
            body.carried.setdefault(slot, None)  # type: ignore[arg-type]
        return slot

    def _aval(self, calls: Sequence[Call], slot: Carried, run: Run) -> Aval:
        aval = calls[slot.call].outs[slot.out].aval
        return aval.with_shape((run.rounds, *aval.shape)) if slot.stacked else aval

    def _start(self, slot: Carried, var: Var) -> Operand:
        if slot.starts[0] is not None:
            return self._operand(slot.starts[0])
        if var.shape == ():
            return Literal(var.dtype.type(0))
        return self._call(Empty(var.shape, var.dtype), [])

    def _further(self, array: np.ndarray) -> Var:
        var = self.builder.fresh(Aval(array.shape, array.dtype))
        self.further.append((var, array))
        return var

    def _array_of(self, values: Values) -> dict[np.dtype, Var]:
        return {dtype: self._further(array) for dtype, array in values.arrays().items()}

    def _entries(self, way: OperandSource, values: Values) -> Any:
        """The source of an operand that differs each round: a column of an array of numbers, or
        (array, window, steps)."""
        xs = way.xs
        if all(isinstance(x, Literal) for x in xs):
            return values.column(xs)
        if all(x in self.found.constants for x in xs):
            arrays = [self.found.constants[x] for x in xs]
            if all(x.tobytes() == arrays[0].tobytes() for x in arrays):
                return self._operand(xs[0]), None, ()
            return self._rows_of(self._further(np.stack(arrays)))
        known = [self._known(x) for x in xs]
        first = known[0]
        if isinstance(first, Entry):
            numbers = [e.number for e in known if isinstance(e, Entry) and e.array is first.array]
            far = numbers[1] - numbers[0] if len(numbers) > 1 else 0
            if numbers == [numbers[0] + far * k for k in range(len(xs))]:
                rest = [Slice(0, n) for n in first.array.shape[1:]]
                moves = ((far, *[0] * len(rest)),)
                return first.array, Window((numbers[0], *rest), moves), ()
        if (array := self._joined(Stack(0), xs)) is not None:
            return self._rows_of(array)
        operands = [self._operand(x) for x in xs]
        made = [self.made.get(x) if type(x) is Var else None for x in operands]
        window = window_of(made)
        if window is not None:
            return window
        return self._rows_of(self._call(Stack(0), operands))

    @staticmethod
    def _rows_of(array: Var) -> Any:
        rest = [Slice(0, n) for n in array.shape[1:]]
        return array, Window((0, *rest), ((1, *[0] * len(rest)),)), ()


def _moving(primitive: Any, move: tuple[int, ...]) -> Any:
    """The primitive whose index also moves with the loop's step."""
    kinds: dict[type, Any] = {GetItem: Window, SetItem: SetWindow}
    kind = kinds.get(type(primitive), type(primitive))
    return kind(**{**vars(primitive), "moves": (*primitive.moves, move)})


class _Inside:
    """Builds the operands of a body's calls."""

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
        """Add inputs for the invariants: values from before the loop that are the same in each
        round."""
        for array in self.arrays.values():
            self._invariant(array)
        for k, here in enumerate(run.sources):
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

    def operand(self, way: OperandSource, source: Any, x: Operand) -> Operand:
        if way.kind == "here":
            assert isinstance(x, Var)
            return self.local[x.id]
        if way.kind == "before":
            return self.body.carried[source]
        if way.kind == "same":
            return self._known(self.outer._operand(way.x))
        if len(source) == 2:
            dtype, column = source
            array = self.arrays[dtype]
            window, steps = Window((0, column), ((1, 0),)), ()
        else:
            array, window, steps = source
            if window is None:
                return self._known(array)
        given = [self._known(array), *map(self._known, steps), self.step]
        return self.builder.call(window, given)[0]

    def _known(self, x: Operand) -> Operand:
        return x if isinstance(x, Literal) else self.body.invariants[x]

    def leaving(self, slot: Carried, calls: Sequence[Call]) -> Operand:
        """The value of a slot at the end of a round."""
        value = self.local[calls[slot.call].outs[slot.out].id]
        if slot.stacked:
            rest = [Slice(0, n) for n in value.shape]
            window = SetWindow((0, *rest), ((1, *[0] * len(rest)),))
            return self.builder.call(window, [self.body.carried[slot], value, self.step])[0]
        if slot.back == 1:
            return value
        return self.body.carried[slot.later]


def _guarded(calls: Sequence[Call], guards: Container[int]) -> Iterator[tuple[int, int]]:
    """(call, result) of each result that a guard reads, here or inside of the call."""
    for k, call in enumerate(calls):
        for number, out in enumerate(call.outs):
            if call.primitive.checks or out.id in guards:
                yield k, number


def _without_idle(tape: Tape) -> Tape:
    """The tape without unread `getitem` calls, whose work windows do now."""
    live: set[Operand] = {*tape.outputs, *(guard.operand for guard in tape.guards)}
    kept: list[Call] = []
    for call in reversed(tape.calls):
        if not live.isdisjoint(call.outs) or not isinstance(call.primitive, GetItem):
            kept.append(call)
            live.update(x for x in call.operands if type(x) is Var)
    return replace(tape, calls=tuple(reversed(kept)))
