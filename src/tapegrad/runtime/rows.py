"""The calls of a function for rows, and the paths that they take.

    paths     the traces of some rows, which hold for all others whose guards are the same
    in turn   the calls from one row on, one after the other, as a loop makes them

A row that only computes does the same whenever its tape runs, so one trace serves many rows. A row
that leaves something outside, or uses something that can't be compared, is a call of its own. It
comes after the earlier rows, which had no effects, and before the calls for the later ones. Random
numbers that all rows draw in the same way are drawn first, row by row.

If all effects of a row can be undone, the trace is repeated with the rows as parts of it. Then what
they read outside, such as `self.calls`, is an input of that trace, and later calls need no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.core.handlers import let_through
from tapegrad.core.request import Request
from tapegrad.core.trees import flatten, is_number, is_traced, unflatten
from tapegrad.differentiate.batching import batch
from tapegrad.errors import ArgumentError, TapegradError, TraceError
from tapegrad.ir.tape import Tape
from tapegrad.observe.activations.retracing import Retrace
from tapegrad.observe.objects import randomness
from tapegrad.observe.observer import code_of, following, note_root, observed
from tapegrad.observe.program.source import at_source
from tapegrad.observe.sides.outside_changes import OutsideChanges
from tapegrad.optimize.dce import remove_dead
from tapegrad.runtime.paths import Path, Rows
from tapegrad.runtime.transformations import Jit
from tapegrad.tracing.draws.recorded import Draw, as_input
from tapegrad.tracing.frontend.python.draws import Calls, holder_of_draws
from tapegrad.tracing.memory.aliasing import check_apart
from tapegrad.tracing.recording.decisions import without_values
from tapegrad.tracing.recording.layout import laid_out_like
from tapegrad.tracing.recording.trace import Trace, traces_under_way
from tapegrad.tracing.runs.traced import Traced, kept_as, plain_value
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand

MAX_PATHS = 16  # the most paths of one call


class Runs:
    """The calls for the rows of a request, by row number. `example` makes one with plain values,
    for tracing; `call` makes one that is part of the outer trace."""

    def __init__(
        self,
        request: Request,
        rows: Rows,
        example: Callable[[int], Request],
        call: Callable[[int], Request],
    ) -> None:
        self.size, self.example, self.call = rows.size, example, call
        self.label = f"vmap of {request.name}"
        self.inputs = [
            (plain_value(x), axis)
            for x, axis in zip(request.leaves, rows.axes, strict=True)
            if is_traced(x)
        ]
        self._names = request.names
        pairs = zip(request.words, request.leaves, strict=True)
        self._named = [(word, x) for word, x in pairs if is_traced(x)]
        self.paths: list[Path] = []
        self.drawn: dict[int, Any] = {}  # number of a captured value -> the draws of all rows
        self._which = np.full(self.size, -1)  # the path of each row, or -1
        self._observer: Any = following.observer

    def in_turn(self) -> list[Any] | None:
        """The results of all rows, if one of them has effects; otherwise None, and the paths are
        known."""
        lacks = any(x is None for x, _ in self.inputs)  # tracers without values
        if not self.size or without_values() or lacks:
            self.paths = [self._of_none(self.call(0) if self.size and lacks else self.example(0))]
            return None
        key = id(code_of(self.call(0).f))
        if self._is_alone() and key in self._observer.choices.in_turn:
            return [self._run(self.call(k)) for k in range(self.size)]
        row = 0
        while True:
            done, before = OutsideChanges(self._observer), self._count()
            request = self.example(row)
            request.passes_on = request.holds_draws = True
            traced = _traced(request)
            draws = _Draws(self._observer, before, traced)
            if (
                traced.left
                or not done.is_all()
                or (self.paths and (draws.entries or self._have_conditions(traced)))
            ):
                if self._is_alone() and done.can_be_undone():
                    raise Retrace([(self._observer.choices.in_turn, key)], None)
                return self._rest(row, traced, draws)
            draws.repeat(self.size - 1)
            holds = self._on(traced, draws)
            if not holds[row]:
                raise TraceError(
                    f"{self.label}: row {row} took another path when its guards were looked at "
                    "again: its control flow depends on something that isn't an argument"
                )
            if draws.entries and not holds.all():
                draws.take_back()
                return self._rest(row, traced, draws)
            self._note_writes(traced)
            self._which[holds & (self._which < 0)] = len(self.paths)
            example = [row_of(x, axis, row) for x, axis in self.inputs]
            self.paths.append(Path(traced, example))
            if draws.entries:
                self.drawn = draws.of_all()
            pending = self._which < 0
            if not pending.any():
                return None
            if len(self.paths) == MAX_PATHS:
                raise self._too_many(traced)
            row = int(np.argmax(pending))

    def _note_writes(self, traced: Traced) -> None:
        """Check and record that a row has written to its own copy. The arguments mustn't share
        memory, in later calls either; and an array that all rows share would hold the writes of
        earlier rows."""
        words, leaves = zip(*self._named, strict=True)
        check_apart(self.label, traced.written, self._names, [*leaves, *traced.captured])
        for k, src in traced.written:
            if self.inputs[k][1] is None:
                raise ArgumentError(
                    f"{self.label} writes to {words[k]}{at_source(src)}, which all rows share: in "
                    "a loop each would find what the rows before have left. Let the function write "
                    "to a copy"
                )
            if isinstance(leaves[k], Tracer):
                leaves[k]._trace.note_rows_written(leaves[k], src)

    def _have_conditions(self, traced: Traced) -> bool:
        """Whether a path has a loop with guards inside. Then running it is the only way to find out
        which rows meet them, and rows on other paths might not survive that."""
        return any(map(_has_conditions, [traced, *[path.traced for path in self.paths]]))

    def _is_alone(self) -> bool:
        """Whether the rows are called in the outermost trace, which is observed, for later calls
        with the same effects."""
        o = self._observer
        return o is not None and o.again and traces_under_way() == [o.trace]

    def _run(self, call: Request) -> Any:
        """The result of a call made within the outermost trace itself."""
        trace, f = self._observer.trace, call.f
        args, kwargs = unflatten(call.structure, [_own(trace, x) for x in call.leaves])
        note_root(f)
        with observed():
            found = f(*args, **kwargs)
        leaves, structure = flatten(found)
        return unflatten(structure, [_own(trace, x) for x in leaves])

    def _of_none(self, request: Request) -> Path:
        """The path where there are no rows, or none with values. No value may decide anything."""
        done, before = OutsideChanges(self._observer), self._count()
        try:
            with np.errstate(all="ignore"):  # the values are made up
                traced = _traced(request, idle=True)
        except TapegradError as error:
            raise ArgumentError(
                f"{self.label}: {self._lacks}, and without values it can't be told what the "
                f"function does with one, nor which shape its result has: {error}"
            ) from error
        if traced.left or not done.is_all() or self._count() > before:
            raise ArgumentError(
                f"{self.label}: {self._lacks}, and for each the function draws random numbers, "
                "or does something outside. Call it where there are rows alone"
            )
        return Path(traced, [])

    @property
    def _lacks(self) -> str:
        return "its rows have no values" if self.size else "there are no rows"

    def _rest(self, row: int, traced: Traced, draws: _Draws) -> list[Any]:
        """The results of all rows, given that row `row` is the first one with effects."""
        plain, found = Jit(), []
        paths = [
            plain.derive(path.traced, plain.select(self.call(0)), False) for path in self.paths
        ]
        found = [plain.recorded(self.call(k), paths[self._which[k]]) for k in range(row)]
        captured = tuple(draws.of_first(traced.captured))
        request, traced = self.call(row), replace(traced, captured=captured)
        found.append(plain.recorded(request, plain.derive(traced, plain.select(request), False)))
        return [*found, *[plain.inside(self.call(k)) for k in range(row + 1, self.size)]]

    def _too_many(self, traced: Traced) -> TraceError:
        guard = traced.tape.guards[-1]
        at = f" ({guard.src.quoted})" if guard.src else ""
        return TraceError(
            f"{self.label}: rows take more than {MAX_PATHS} paths through it{at}. Compute with "
            "arrays where it takes a number for a plain one, or choose by np.where"
        )

    def _count(self) -> int:
        return 0 if self._observer is None else len(self._observer.drawn)

    def _on(self, traced: Traced, draws: _Draws) -> Any:
        """Which rows are on the path of a trace."""
        from tapegrad.pipeline import settled

        inside, tape = _has_conditions(traced), settled(traced.tape)
        if not tape.guards and not inside:
            return np.ones(self.size, bool)
        tape = replace(tape, outputs=(), output_names=())
        rows = [k for k, (_, axis) in enumerate(self.inputs) if axis is not None]
        rows += [len(self.inputs) + k for k in draws.numbers if k is not None]
        values = [x if axis is None else np.moveaxis(x, axis, 0) for x, axis in self.inputs]
        captured = [plain_value(x) for x in traced.captured]
        for k, column in zip(draws.numbers, draws.values, strict=True):
            if k is not None:
                captured[k] = np.stack(column)
        inputs = [*values, *captured]
        if not inside:
            masks, _ = batch(tape, rows, self.size, masks=True)
            try:
                found, _ = run(remove_dead(masks), inputs)
                return np.broadcast_to(found[0], (self.size,))
            except Exception as error:  # raised by a row that has left the path
                let_through(error)
        tape = remove_dead(tape)
        each = [[x[k] if n in rows else x for n, x in enumerate(inputs)] for k in range(self.size)]
        return np.array([_holds(tape, given) for given in each])


class _Draws:
    """The random draws of a row's trace, which are noted after the first `before` entries: the
    captured values that they are, and the values that each row has drawn."""

    def __init__(self, observer: Any, before: int, traced: Traced) -> None:
        noted = [] if observer is None else observer.drawn[before:]
        self.observer = observer
        self.entries = [x for x in noted if isinstance(x, Draw)]
        places = {id(x): k for k, x in enumerate(traced.captured)}
        self.numbers = [None if x.value is None else places.get(id(x.value)) for x in self.entries]
        first = len(traced.tape.inputs) - len(traced.captured)
        self._weak = [
            k is not None and traced.tape.inputs[first + k].aval.weak for k in self.numbers
        ]
        self.values: list[list[Any]] = [[x.value] for x in self.entries]
        self._states: list[tuple[Any, Any]] = []

    def repeat(self, times: int) -> None:
        """Draw the same for other rows, one after the other."""
        generators = {id(x.generator): x.generator for x in self.entries}
        self._states = [(x, randomness.state_of(x)) for x in generators.values()]
        for _ in range(times):
            for entry, column in zip(self.entries, self.values, strict=True):
                column.append(entry.again(entry.generator))

    def take_back(self) -> None:
        """Undo the draws of the other rows."""
        for generator, state in self._states:
            randomness.put_back(generator, state)

    def of_first(self, captured: Sequence[Any]) -> list[Any]:
        """The captured values, with inputs of the outer trace in place of the first row's draws."""
        found = dict(zip(self.numbers, self._inputs(), strict=True))
        return [found.get(k, x) for k, x in enumerate(captured)]

    def _inputs(self) -> list[Any]:
        return [
            None if k is None else as_input(_holder(), x, weak, x.ndim > 0)
            for k, (x, *_), weak in zip(self.numbers, self.values, self._weak, strict=True)
        ]

    def of_all(self) -> dict[int, Any]:
        """Number of a captured value -> the draws of all rows, in the outer trace."""
        columns = [[x] for x in self._inputs()]
        for row in range(1, len(self.values[0])):
            for entry, drawn, column in zip(self.entries, self.values, columns, strict=True):
                calls = Calls(self.observer, _holder(), entry.generator)
                column.append(calls.drawn(entry.method, entry.args, entry.kwargs, drawn[row]))
        return {
            k: np.stack(column)
            for k, column in zip(self.numbers, columns, strict=True)
            if k is not None
        }


def _own(trace: Trace, x: Any) -> Any:
    """An array that nothing else holds, as a value of a trace."""
    if not is_traced(x) or is_number(x) or not (isinstance(x, Tracer) or x.ndim):
        return x
    operand, value = to_operand(trace, x)
    return stand_in(trace, operand, value, isinstance(x, Tracer) and x._weak)


def _has_conditions(traced: Traced) -> bool:
    from tapegrad.optimize.inline import inline_calls

    return any(call.primitive.checks for call in inline_calls(traced.tape).calls)


def _holds(tape: Tape, inputs: Sequence[Any]) -> bool:
    """Whether all guards of a tape hold for these inputs."""
    try:
        return run(tape, inputs)[1] is None
    except Exception as error:
        let_through(error)
        return False


def _holder() -> Trace:
    return holder_of_draws(traces_under_way())


def _traced(request: Request, idle: bool = False) -> Traced:
    from tapegrad.pipeline import trace

    return trace(request, idle=idle)


def row_of(x: Any, axis: int | None, row: int) -> Any:
    """A row of a plain value, as an array or number of its own, with the same memory layout; zeros
    if there are no rows."""
    if axis is None:
        return x
    dtype = kept_as(x) or x.dtype
    if not x.shape[axis]:
        return np.zeros([n for k, n in enumerate(x.shape) if k != axis], dtype)[()]
    found = np.moveaxis(plain_value(x), axis, 0)[row].astype(dtype, copy=False)
    return laid_out_like(np.array(found), found) if found.ndim else found[()]
