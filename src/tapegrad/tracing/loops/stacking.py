"""Stacked results of rounds: each round writes its row of an array.

    loop(n, %h, %xs, body)     -->    loop(n, %h, %ys, %xs, body')
        out %h                            %ys = set_window(%ys, %y, step)
                                          out %h, %ys

Tracers of the rows know that they are rows: stacking them again, in order, is the array itself, or
a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from tapegrad.core.values import one_type
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Builder, Literal, Source, Tape, Var
from tapegrad.primitives.base import Slice
from tapegrad.primitives.views import BroadcastTo, GetItem
from tapegrad.primitives.windows import Empty, SetWindow, entry_at
from tapegrad.tracing.loops.rounds import Leaf
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import (
    PYTHONS,
    ArrayTracer,
    Tracer,
    kind_of,
    record,
    set_class,
    stand_in,
)
from tapegrad.tracing.tracers.union_numbers import CLASSES


def empty_stacks(trace: Trace, ys: Sequence[Leaf], rounds: int, *, filled: bool) -> list[Any]:
    """The initial arrays for the results of `rounds` rounds: uninitialised if all rounds are made
    (`filled`), else zeros."""
    return [
        record(trace, Empty((rounds, *y.aval.shape), y.aval.dtype), [])
        if filled
        else record(trace, BroadcastTo((rounds, *y.aval.shape)), [Literal(y.aval.dtype.type(0))])
        for y in ys
    ]


def with_stacks(
    tape: Tape, carried: int, ys: Sequence[Leaf], rounds: int, src: Source | None
) -> Tape:
    """The tape of a round that also writes these results to the arrays. Arrays follow the carried
    values in its inputs and outputs."""
    builder = Builder.after(tape, tape.name)
    stacks, outputs = [], list(tape.outputs)
    for y in ys:
        stacks.append(builder.fresh(Aval((rounds, *y.aval.shape), y.aval.dtype)))
        write = SetWindow(*entry_at(0, y.aval.shape))
        outputs += builder.call(write, [stacks[-1], y.operand, tape.inputs[0]], src)
    at = 1 + carried
    names = tape.names or ("",) * len(tape.inputs)
    return renumbered(
        replace(
            tape,
            inputs=(*tape.inputs[:at], *stacks, *tape.inputs[at:]),
            names=(*names[:at], *[f"y{k}" for k in range(len(ys))], *names[at:]),
            calls=tuple(builder.calls),
            outputs=tuple(outputs),
        )
    )


# ---- rows

_slot: Any = vars(Tracer)["_operand"]  # the slot of an ordinary tracer's operand


def rows_of(stack: Tracer, weak: bool, are_arrays: bool, either: int = 0) -> list[Tracer]:
    """The rows of an array that nothing else refers to, each a tracer. Rows without axes are
    scalars, unless they `are_arrays`; with `either`, numbers may be Python's.
    """
    kind: Any
    aval = one_type(Aval(stack.shape[1:], stack.dtype, weak))
    value = stack._value if type(_held(stack)) is tuple else stack._read()[1]
    found = []
    for k in range(stack.shape[0]):
        part = None if value is None else value[k, ...] if are_arrays else value[k]
        kind = PYTHONS[aval.dtype.kind] if weak else kind_of(part, aval)
        kind = ArrayTracer if are_arrays else CLASSES[either] or kind
        found.append(_row(stack, k, aval, kind, part))
    return found


def _row(stack: Tracer, k: int, aval: Aval, kind: Any, value: Any) -> Tracer:
    row: Tracer = object.__new__(_unread(kind))
    row._trace, row._value, row._aval = stack._trace, value, aval
    row._root, row._chain, row._version = None, (), 0
    row._ordered, row._may_alias, row._doubt = True, (), ""
    _slot.__set__(row, (stack, k))
    return row


def strong(x: Any) -> Any:
    """An entry of a list as a strong number, since np.array knows no weak ones."""
    if not isinstance(x, Tracer) or not x._weak:
        return x
    known = _place_of(x)
    if known is None:
        return stand_in(x._trace, *x._read())
    stack, k = known
    aval = one_type(Aval((), stack.dtype))
    return _row(stack, k, aval, kind_of(x._value, aval), x._value)


def known_as_row(x: Tracer, stack: Tracer, k: int) -> None:
    """Note that the present value of `x` is row `k` of `stack`."""
    if isinstance(x._operand, Var) and x._trace is stack._trace:
        x._trace.rows[x._operand] = stack, k


@cache
def _unread(kind: Any) -> Any:
    """The class of unread rows, which aren't on the tape. Reading a row records it, and makes it an
    ordinary tracer of class `kind`."""
    return type(kind.__name__, (kind,), {"__slots__": (), "_operand": property(_taken, _set)})


def _taken(row: Tracer) -> Any:
    stack, k = _slot.__get__(row)
    index, _ = entry_at(k, row._aval.shape)
    _set(row, record(stack._trace, GetItem(index), [stack])._operand)
    stack._trace.rows[row._operand] = stack, k
    return row._operand


def _set(row: Tracer, operand: Any) -> None:
    set_class(row, type(row).__base__)
    _slot.__set__(row, operand)


def _held(x: Tracer) -> Any:
    """The content of a tracer's operand slot."""
    try:
        return _slot.__get__(x)
    except AttributeError:  # it is computed on use
        return x._operand


def _place_of(x: Any) -> tuple[Tracer, int] | None:
    """(array, number) if `x` is a row of an array, else None."""
    if not isinstance(x, Tracer) or x._root is not None:
        return None
    found = _held(x)
    return found if type(found) is tuple else x._trace.rows.get(found)


class Rows(NamedTuple):
    """Rows of one or more arrays in turn: `rounds` rows of each, from `start` on, `step` apart."""

    stacks: list[Tracer]
    start: int
    rounds: int
    step: int

    def parts(self) -> list[Tracer]:
        """These rows of each array, as a new array."""
        return [self._part(x) for x in self.stacks]

    @property
    def whole(self) -> Tracer | None:
        """The array, if these are all rows of one array; else None."""
        of_one = len(self.stacks) == 1 and self._are_all(self.stacks[0])
        return self.stacks[0] if of_one else None

    def _are_all(self, stack: Tracer) -> bool:
        return (self.start, self.rounds, self.step) == (0, stack.shape[0], 1)

    def _part(self, stack: Tracer) -> Tracer:
        part = stack
        if not self._are_all(stack):
            rows = Slice(self.start, self.rounds, self.step)
            index = (rows, *[Slice(0, n) for n in stack.shape[1:]])
            part = record(stack._trace, GetItem(index), [stack])
        return stand_in(stack._trace, *part._read())


def as_rows(xs: Sequence[Any]) -> list[Any] | None:
    """The list with `Rows` in the place of consecutive rows; None if it has none."""
    places = [_place_of(x) for x in xs]
    found: list[Any] = []
    k = 0
    while k < len(xs):
        rows = _turns(places, k)
        found.append(xs[k] if rows is None else rows)
        k += 1 if rows is None else len(rows.stacks) * rows.rounds
    return found if len(found) < len(xs) else None


def _turns(places: Sequence[tuple[Tracer, int] | None], at: int) -> Rows | None:
    """The consecutive rows from position `at` on; None if there are none."""
    first = places[at]
    if first is None:
        return None
    stack, start = first
    turn = [stack]
    step = 0
    for known in places[at + 1 :]:
        if known is not None and known[0] is stack:
            step = known[1] - start
        if known is None or known[0] is stack or known[1] != start:
            break
        turn.append(known[0])
    if not step:
        return None
    count, k = len(turn), at
    while k < len(places):
        rounds, which = divmod(k - at, count)
        place = places[k]
        if place is None or place[0] is not turn[which] or place[1] != start + rounds * step:
            break
        k += 1
    return Rows(turn, start, (k - at) // count, step) if k >= at + 2 * count else None
