"""Values that a function stores in objects outside: each call stores its own.

    self.loudness = l            the attribute holds this call's number, as plain Python leaves it
    self.history.append(X)       the list is longer by this call's array
    self.calls += 1              and so has counted this call

When the run is over, traced values in these places become outputs of the tape, and are replaced by
plain numbers and arrays. A later call of the tape stores its own values there (`draws/recipes.py`).
If that isn't possible, as for items in the middle of a container, the tape is used once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.ir.plain_numbers import PLAIN
from tapegrad.ir.tape import Guard, Literal, Operand, Source
from tapegrad.observe.activations.later_values import AtTheTime
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.locations import ABSENT, ENDS, WHOLE, Write, leave
from tapegrad.observe.guards.queried import OF_FILES
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.guards.snapshots import Holding, is_equal_object
from tapegrad.observe.objects.randomness import put_back
from tapegrad.observe.program.source import user_source
from tapegrad.primitives.elementwise import where
from tapegrad.primitives.reductions import Sum
from tapegrad.tracing.draws.recipes import (
    CallData,
    Constant,
    Described,
    Existing,
    FoundArray,
    Output,
    Recipe,
    RepeatedCall,
    Replacing,
    Unknown,
)
from tapegrad.tracing.outside.captured_tracers import given_back
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import Tracer, to_operand


@dataclass(frozen=True, eq=False)
class StoredValue:
    """The value that each call stores in a place, built of `parts`. In a trace `source` is the
    object; later it is its number among the objects that a call looks up."""

    source: Any
    at: Any
    parts: Sequence[Recipe]

    def put(self, call: CallData) -> None:
        """Store the value."""
        leave(call.objects[self.source], self.at, [part.make(call) for part in self.parts])


@dataclass(frozen=True, eq=False)
class StoringCall:
    """A call that each call of the tape makes."""

    part: RepeatedCall

    def put(self, call: CallData) -> None:
        """Make the call."""
        self.part.make(call)


@dataclass(frozen=True, eq=False)
class AdvancedGenerator:
    """How far each call advances a generator: `ahead` tells how to, from the state that is number
    `number` among the values that it has looked up. In a trace `source` is the generator."""

    source: Any
    ahead: Any
    number: int
    used: Recipe

    def put(self, call: CallData) -> None:
        """Advance the generator."""
        generator = call.objects[self.source]
        put_back(generator, call.held[self.number])
        self.ahead.advance(generator, int(self.used.make(call)))


class StoredValues:
    """The values that a run has left outside: `kept` in `objects`, and the operands that they are
    built of. If `again`, later calls store their own. The values of a run `inside` another one are
    passed on to that one, including those in objects that the outer run has created and `f` has in
    its cells."""

    def __init__(
        self,
        trace: Trace,
        reads: Reads,
        again: bool,
        inside: bool = False,
        lent: Sequence[tuple[Any, Any]] = (),
        f: Any = None,
        found: Mapping[int, tuple[Any, int]] | None = None,
        streams: Sequence[Any] = (),
    ) -> None:
        self.trace, self.reads, self.again, self.inside = trace, reads, again, inside
        self.f = f
        self.lines: list[tuple[str, Source | None]] = []
        self.kept: list[StoredValue | StoringCall | AdvancedGenerator] = []
        self.outside: list[Existing] = []
        self.operands: list[Operand] = []
        self.values: list[Any] = []  # of these operands
        self._outputs: dict[int, tuple[Tracer, Recipe]] = {}
        self._found = found or {}
        self._lent: list[tuple[Any, int]] = []  # arrays that an inner run has written to
        if inside:
            for loan, x in lent:
                self._lent.append((loan, len(self.operands)))
                self._append(x)
            self._replace(self._noted)
            return
        for key, write in [*reads.written.items()]:
            same = not write.has_many and is_equal_object(write.before, write.now())
            if same or write.is_untouched():  # a package's object that a call may find unchanged
                write.undo()
                del reads.written[key]
        described = Described(reads, self._output)
        self.outside = described.objects
        for key, write in reads.written.items():
            if self._keeps(write, described):
                reads.kept.add(key)
        for change in reads.postponed:
            make = functools.partial(_change, change, described)
            self._does(make, change.holder.word, change.src)
        for call in reads.effects:
            if _is_passed_changed(call, reads):
                reads.where.setdefault(call.word, call.src)
                reads.use_once(call.word, OF_FILES)
            self._does(functools.partial(described.part, call), call.word, call.src)
        for stream in streams:
            where = stream.ahead, stream.number, self._noted_part(stream.at)
            self.kept.append(AdvancedGenerator(stream.generator, *where))
        self.waiting = made_plain(reads, lambda x: self._as_found(x))
        replacing = Replacing(reads, lambda x: self._plain(x, replacing.at))
        replacing.everywhere()
        del replacing.new  # it holds this object

    @property
    def objects(self) -> list[Any]:
        """The objects that a call looks up."""
        own = [kept.source for kept in self.kept if not isinstance(kept, StoringCall)]
        return [*own, *[x.source for x in self.outside]]

    def numbered(
        self, order: dict[int, int]
    ) -> list[StoredValue | StoringCall | AdvancedGenerator]:
        """The stored values, with numbers in place of objects."""
        for x in self.outside:
            x.source = order[id(x.source)]
        return [
            k if isinstance(k, StoringCall) else replace(k, source=order[id(k.source)])
            for k in self.kept
        ]

    def pass_on(self, values: Sequence[Any]) -> None:
        """Store the values in the outer run: these are the operands' values there."""
        numbers = {key: part.number for key, (_, part) in self._outputs.items()}  # type: ignore[attr-defined]

        def new(x: Tracer) -> Any:
            if (array := given_back(x)) is not None:
                return array
            return values[numbers[id(x)]] if id(x) in numbers else x

        self._replace(new)
        for loan, number in self._lent:
            dispatch.setitem(loan.root(), ..., values[number])

    def _replace(self, new: Callable[[Tracer], Any]) -> None:
        replacing = Replacing(self.reads, new)
        replacing.everywhere()
        if self.f is not None:
            replacing.of(self.f)

    def _keeps(self, write: Write, described: Described) -> bool:
        """Whether a later call can repeat a write; then it is added to `kept`."""
        value = write.now()
        if (write.at is WHOLE and write.opened is None) or value is ABSENT:
            return False
        if write.at in ENDS and (id(write.x), WHOLE) in self.reads.written:
            return False
        try:
            parts = [described.part(x) for x in (value if write.has_many else [value])]
        except Unknown:
            return False
        self.kept.append(StoredValue(write.x, write.at, parts))
        self.lines.append((write.word, write.src))
        return True

    def _does(self, make: Callable[[], Any], word: str, src: Source | None) -> None:
        """Have later calls make a call, if they can: a postponed change, or a call with an
        effect."""
        try:
            self.kept.append(StoringCall(make()))
        except Unknown:
            self.reads.where.setdefault(word, src)
            self.reads.never = self.reads.never or word
            return
        self.lines.append((word, src))

    def _output(self, x: Tracer | AtTheTime) -> Recipe:
        if isinstance(x, AtTheTime):
            self.operands.append(x.operand)
            self.values.append(x.value)
            return Output(len(self.operands) - 1, x.aval.dtype, x.weak, x.is_array)
        if x._trace is not self.trace:
            raise Unknown
        if id(x) in self._found and not x._version:
            return FoundArray(self._found[id(x)][1])
        if (array := given_back(x)) is not None:
            if self.reads.place(array) is None:  # a view that the run has made
                raise Unknown
            self.outside.append(Existing(array))
            return self.outside[-1]
        if x._is_constant():
            return Constant(np.array(x._value))
        return self._noted_part(x)

    def _append(self, x: Tracer) -> None:
        operand, value = to_operand(self.trace, x)
        self.operands.append(operand)
        self.values.append(value)

    def _noted_part(self, x: Tracer) -> Recipe:
        if x._either:  # the type of number in each call isn't known
            self.trace.reconsidered = True
        if id(x) not in self._outputs:
            self._append(x)
            is_array = isinstance(x, np.ndarray)
            number = len(self.operands) - 1
            self._outputs[id(x)] = x, Output(number, x._aval.dtype, x._weak, is_array)
        return self._outputs[id(x)][1]

    def _noted(self, x: Tracer) -> Any:
        if given_back(x) is not None:
            return x
        if x._trace is self.trace and not x._is_constant():
            self._noted_part(x)
        return x

    def _plain(self, x: Tracer, key: Any) -> Any:
        """The plain replacement of a traced value that was left at this place."""
        found = self._as_found(x)
        if found is not x and not x._is_constant() and key not in self.reads.kept:
            write = self.reads.written[key]
            self.reads.use_once(write.word)
            self.lines.append((write.word, write.src))
        return found

    def _as_found(self, x: Tracer) -> Any:
        if id(x) in self._found and not x._version:
            return self._found[id(x)][0]
        return plain(self.trace, x)


def _is_passed_changed(call: Any, reads: Reads) -> bool:
    """Whether a call with an effect has an argument that the run changes, before or after it."""
    given = [x for x in (*call.args, *call.kwargs.values()) if reads.place(x) is not None]
    held = Holding(given).held if given else {}
    changed = {*reads.waiting, *reads.mutated, *(id(w.x) for w in reads.written.values())}
    return not changed.isdisjoint(held)


def _change(change: Any, described: Described) -> RepeatedCall:
    """The description of a postponed change, for each call to make it."""
    parts = [described.part(x) for x in (change.holder.x, *change.args)]
    return RepeatedCall(
        change.f, parts, {name: described.part(x) for name, x in change.kwargs.items()}
    )


def at_the_time(trace: Trace, x: Tracer) -> tuple[Any, Any] | None:
    """A traced value at this moment, and its number or array; None if that isn't possible. A value
    of an inner trace is that number itself: then the outer tape is used once."""
    if x._subclass is not None or given_back(x) is not None:
        return None
    now = plain(x._trace, x)
    if isinstance(now, Tracer):
        return None
    if x._is_constant() or x._trace is not trace:
        return now, now
    if x._either:
        trace.reconsidered = True
    is_array = isinstance(x, np.ndarray)
    return AtTheTime(to_operand(trace, x)[0], now, x._aval, x._weak, is_array), now


def end_derivative(trace: Trace, x: Operand, why: str) -> None:
    """Make it an error, `why`, to differentiate with respect to the values that a real one is
    computed from. The tape records this as a number that depends on them and is always 0:

        guard where(False, sum(x), 0) == 0
    """
    if isinstance(x, Literal) or x.dtype.kind not in "fc":
        return
    zero = Literal(x.dtype.type(0))
    if x.shape:
        (x,) = trace.record(Sum(tuple(range(len(x.shape)))), [x])
    (never,) = trace.record(where, [Literal(np.bool_(False)), x, zero])
    trace.builder.guards.append(Guard(never, zero, PLAIN + why, user_source()))


def made_plain(reads: Reads, new: Callable[[Tracer], Any]) -> Callable[[], None]:
    """A function that makes the postponed changes, with plain values."""
    changes, reads.postponed = reads.postponed, []
    reads.waiting.clear()
    replacing = Replacing(reads, new)
    calls = [
        functools.partial(
            change.f,
            change.holder.x,
            *[replacing.of(x) for x in change.args],
            **{name: replacing.of(x) for name, x in change.kwargs.items()},
        )
        for change in changes
    ]

    def make() -> None:
        for call in calls:
            call()

    return make


def plain(trace: Any, x: Tracer) -> Any:
    """The plain value of a tracer that a run leaves, or that a failed inner run has left."""
    if (array := given_back(x)) is not None:
        return array
    if x._trace is not trace and (x._trace.repeats or not x._trace.broken):
        return x
    if x._is_constant():
        return x._value
    value = x._read()[1]
    if value is None:
        return x
    if isinstance(x, np.ndarray):
        return np.array(value)
    number = x._aval.dtype.type(np.asarray(value)[()])
    return number.item() if x._weak else number


def let_be_plain(trace: Any, reads: Reads) -> None:
    """Replace the traced values that a run has left, which has ended with an error of the
    user's."""
    Replacing(reads, lambda x: plain(trace, x)).everywhere()
    made_plain(reads, lambda x: plain(trace, x))()
