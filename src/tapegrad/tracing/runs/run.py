"""Tracing: one run of a function on tracers, and its tape."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.core.arrays import computed_in, is_known, plain
from tapegrad.core.handlers import let_through, quiet
from tapegrad.core.late import CALLS, load
from tapegrad.core.request import Request
from tapegrad.core.trees import flatten, is_of_texts, is_traced, notes_in, unflatten
from tapegrad.errors import TapegradError, TraceError
from tapegrad.ir.inputs import renumbered, with_inputs
from tapegrad.ir.memory import last_uses
from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Source, Tape, Var
from tapegrad.observe.activations.retracing import Retrace
from tapegrad.observe.answers.answers import to_be_called
from tapegrad.observe.objects.settings import check_settings
from tapegrad.observe.observer import (
    compares,
    following,
    note_computed,
    note_failed,
    note_root,
    observed,
    unobserved,
)
from tapegrad.observe.program.source import at_line
from tapegrad.observe.queries import rebound
from tapegrad.primitives.control import tells
from tapegrad.tracing.draws.recorded import Draws, joined
from tapegrad.tracing.memory.aliasing import check_apart
from tapegrad.tracing.outside.captured_writes import inner, written_inside
from tapegrad.tracing.outside.state_inputs import arrays_found, check_found
from tapegrad.tracing.outside.stored import StoredValues
from tapegrad.tracing.recording.decisions import is_given, without_values
from tapegrad.tracing.recording.trace import (
    Trace,
    current_trace,
    traces_under_way,
    tracing_depth,
)
from tapegrad.tracing.runs.traced import Traced, input_aval, kept_as, plain_value
from tapegrad.tracing.tracers.subclass_tracers import check_has_value, check_stays
from tapegrad.tracing.tracers.tracer import Tracer, record, stand_in, to_operand
from tapegrad.tracing.tracers.union_numbers import makes_a_difference

if TYPE_CHECKING:
    from tapegrad.observe.observer import Observer


def trace_function(
    request: Request,
    observer: Observer | None = None,
    number: Number | None = None,
    repeats: bool = False,
    apart: bool = False,
    idle: bool = False,
) -> Traced:
    """Call the function on tracers of the arrays and numbers among the arguments' leaves. For
    `number`, `repeats`, `apart` and `idle` see `Run` and `Trace`."""
    with Run(request, observer, number, repeats, apart, idle) as run:
        args, kwargs = run.given
        f = to_be_called(request.f, (*args, *kwargs.values()))
        note_root(f)
        with observed():
            result = f(*args, **kwargs)
        run.returned(result)
    return run.traced()


class Run:
    """A call of a function on tracers, as a context.

    The first inputs of the tape are the arguments' leaves that are arrays and numbers, in order.
    With an `observer` the run is observed, and traced values that it leaves somewhere are an error.
    `number` makes the final tape from the recorded one, the captured values, and the numbers of
    those that nothing else references. The context ends at the latest when `frame` ends.
    """

    def __init__(
        self,
        request: Request,
        observer: Observer | None = None,
        number: Number | None = None,
        repeats: bool = False,
        apart: bool = False,
        idle: bool = False,
        frame: FrameType | None = None,
    ) -> None:
        load(CALLS)
        self.request, self.observer, self.number = request, observer, number
        self.name = "lambda" if request.name == "<lambda>" else request.name
        builder = Builder(self.name)
        around, lacks = current_trace(), without_values()
        self.trace = Trace(builder, repeats=repeats, apart=apart, idle=idle or lacks, frame=frame)
        if lacks and not (repeats or idle) and (around is None or around.stands is not None):
            self.trace.stands = set()
        self.given: Any = None  # positional and keyword arguments
        self.trace.holds_draws = request.holds_draws
        self._repeats, self._apart = repeats, apart and not idle
        self._leaves: list[Any] = []  # the traced leaves of the arguments
        self._tracers: list[Any] = []
        self._result: Any = None
        self._structure: Any = None
        self._taken: Any = None
        self._results: list[Any] = []  # leaves
        self._outputs: list[int | None] = []
        self._operands: list[Operand] = []
        self._halves: list[np.dtype | None] = []  # their dtypes outside, if of half precision
        self._values: list[Any] = []
        self._keeping: StoredValues | None = None  # the values that it has left outside

    def __enter__(self) -> Run:
        try:
            if not tracing_depth():  # else an interrupt kept an observer from leaving
                following.observer = self.observer
            self.trace.__enter__()
            if self.observer is not None:
                self.observer.trace = self.trace
            self._give()
        except BaseException:
            self.trace.__exit__()
            raise
        return self

    def _give(self) -> None:
        """Make tracers of the arguments' leaves, and arguments of them."""
        labels = iter(self.request.names)
        for leaf in self.request.leaves:
            if not is_traced(leaf):
                self._tracers.append(leaf.copy() if is_of_texts(leaf) else leaf)
                continue
            check_stays(leaf, f"an argument of {self.name}, which is traced by itself")
            self._leaves.append(leaf)
            aval = input_aval(leaf)
            var = self.trace.builder.input(aval, next(labels))
            tracer = stand_in(self.trace, var, plain_value(leaf), aval.weak)
            if self.trace.stands is not None and not is_given(leaf):
                self.trace.stands.add(var)
            self.trace.arguments.add(id(tracer))
            self.trace.given[var] = plain_value(leaf)
            tracer._ordered = leaf._owner._ordered if isinstance(leaf, Tracer) else True
            self.trace.keep_as(tracer, kept_as(leaf))
            self._tracers.append(tracer)
            if self.observer is not None:
                self.observer.identities.given(tracer, leaf, len(self._tracers) - 1)
        self.given = unflatten(self.request.structure, self._tracers)
        if self.observer is not None:
            self.observer.identities.copied(self.given)
        elif following.observer is not None:
            following.observer.identities.go_in(self._tracers, self.request.leaves)

    def returned(self, result: Any) -> None:
        """Record the function's result."""
        if self.trace.renounced is not None:  # the function has caught it
            raise self.trace.renounced
        for refusal in (self.trace.refusal, self.trace.unfinished):
            if refusal is not None:
                made_one = self.trace.merged or self.trace.counted
                raise self.trace.without_merging(refusal) if made_one else refusal
        from tapegrad.tracing.outside.leaks import check_returned

        if self.trace.raised:
            self._caught(self.trace.raised, self.trace.raised_at)
        observer = self.observer
        self._result = result
        self._taken = observer.taken([result]) if observer is not None else None
        self._results, self._structure = flatten(result)
        kept = [(f"a {type(x).__name__} with a {n!r}", v) for x, n, v in notes_in(result)]
        for leaf in self._results:
            check_has_value(leaf, self.name)
            if isinstance(leaf, Tracer) and (self._repeats or leaf._aval.shape):
                check_stays(leaf, f"among the results of {self.name}")
            if isinstance(leaf, Tracer) or _is_numeric(leaf):
                self._outputs.append(len(self._operands))
                self._halves.append(kept_as(leaf))
                self._operands.append(to_operand(self.trace, leaf)[0])
            else:
                self._outputs.append(None)
                kept.append((f"a {type(leaf).__name__}", leaf))
        for what, x in kept:
            check_returned(self.trace, x, what)
            if observer is not None:
                observer.given_back(x)
        self._values = [x._read()[1] if isinstance(x, Tracer) else x for x in self._results]
        if observer is not None:
            if observer.lent is not None:
                observer.lent.finish()
            check_found(observer)
            check_settings(observer.reads)
            reads, found = observer.reads, arrays_found(observer)
            streams = [stream for stream in observer.ahead.values() if stream.end()]
            self._keeping = StoredValues(
                self.trace, reads, observer.again, found=found, streams=streams
            )
            observer.waiting = self._keeping.waiting
        elif following.observer is not None:
            lent, passes_on = inner(following.observer, self.trace), self.request.passes_on
            if passes_on:
                reads = following.observer.reads
                f = None if self.request.holds_draws else self.request.f
                self._keeping = StoredValues(self.trace, reads, True, inside=True, lent=lent, f=f)
            elif lent:
                raise written_inside(self.name, lent[0][0])

    def _caught(self, name: str, where: Source | None) -> None:
        """Record that the function has caught an error, raised by a call that isn't on the tape.
        Values have decided it, and no guard tells whether it will be raised again."""
        if self._repeats:
            raise TraceError(
                f"an error that {name} raised in a loop's round was caught. Rounds are traced once "
                "for all, and whether it is raised again isn't known. Let the round compute "
                "something that can be told from a result, such as NaN, in the place of the error"
            )
        note_failed(name, where)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self.trace.__exit__()
        self.trace.broken = isinstance(error, Exception)
        if self.observer is None and following.observer is not None:
            following.observer.identities.go_out(self._tracers)
            if lent := inner(following.observer, self.trace):  # it has raised an error
                following.observer.refuse(written_inside(self.name, lent[0][0]))
        if isinstance(error, Exception) and self.trace.renounced is not None:
            let_through(error)
            raise self.trace.renounced from None
        if isinstance(error, Exception) and (self.trace.merged or self.trace.counted):
            let_through(error)
            raise self.trace.without_merging(error) from None
        if error is not None and self._apart and not isinstance(error, GeneratorExit):
            self.failed()
        inside = self.number is not None and self.observer is None and current_trace() is not None
        if inside and isinstance(error, Exception):  # the outer function may catch it
            note_failed(self.name)
        if isinstance(error, Exception) and not isinstance(error, TapegradError):
            if self.trace.refusal is not None:
                raise self.trace.refusal from error
            # NumPy wraps an error raised while it converts a tracer in its own.
            if isinstance(error.__cause__, TapegradError):
                raise error.__cause__ from None
            if isinstance(error, (TypeError, AttributeError)):
                from tapegrad.tracing.tracers.error_notes import explain

                explain(error, self.request)
            if current_trace() is None:
                from tapegrad.tracing.outside.leaks import release

                release(error)

    @staticmethod
    def failed() -> None:
        """Record that the run's assumptions are lost: code that catches the error must not rely on
        them."""
        if not note_failed("a loop's round"):
            for trace in traces_under_way():
                trace.unfinished = trace.unfinished or TraceError(
                    f"an error that a loop's round raised was caught{at_line()}, and with it what "
                    "the round assumed before is lost. Let it compute something that can "
                    "be told from a result, such as NaN, in the place of the error"
                )

    def traced(self) -> Traced:
        """The result of the run, after the end of the context."""
        from tapegrad.tracing.outside.leaks import check_leaks

        trace, observer, number = self.trace, self.observer, self.number
        objects: list[Any] = []
        if self._taken is not None:
            self._taken(self._result)
        trace.check_captured()
        keeping = self._keeping
        further = keeping.operands if keeping is not None and keeping.again else []
        raw = trace.builder.finish([*self._operands, *further])
        if trace.reconsidered or (trace.mixed and makes_a_difference(raw)):
            raise trace.without_mixing()
        if (trace.merged and compares()) or _reads_what_is_gone(trace, raw):
            raise trace.without_merging(None)
        if observer is not None and (loops := rebound()):
            raise Retrace(loops, None)
        if observer is not None:
            observer.check()
            sources = [d.generator for d in observer.drawn]
            sources += keeping.objects if keeping is not None and keeping.again else []
            objects = [*{id(x): x for x in sources}.values()]
            observer.reads.follow(objects, "random numbers")
            check_leaks(trace, observer.reads, raw)
        alone = _held_alone(trace) if number is not None else []
        captured: tuple[Any, ...] = tuple([outside for _, outside in trace.captured.values()])
        drawn = observer.drawn if observer is not None else []
        around = following.observer
        random = {id(d.value) for d in (drawn if around is None else around.drawn)}
        alone = [k for k in alone if id(captured[k]) not in random]
        fresh = [f"{'d' if id(x) in random else 'c'}{k}" for k, x in enumerate(captured)]
        tape = with_inputs(raw, [var for var, _ in trace.captured.values()], fresh)
        tape, used = (
            (renumbered(tape), captured) if number is None else number(tape, captured, alone)
        )
        draws = None
        kept = keeping.kept if keeping is not None and keeping.again else []
        if drawn or kept:
            tape, used, where = joined(tape, used, drawn)
            order = {id(x): k for k, x in enumerate(objects)}
            kept = keeping.numbered(order) if keeping is not None and kept else []
            draws = Draws(drawn, used, where, objects, kept)
            if observer is not None:
                reads = observer.reads
                draws.late = [k for k, d in enumerate(drawn) if reads.is_late(d.generator, d.at)]
        weak = [isinstance(leaf, Tracer) and leaf._weak for leaf in self._results]
        own = [x for x in self._tracers if isinstance(x, Tracer) and x._trace is trace]
        written = trace.written(own)
        if not self._repeats:  # arguments of rounds belong to the loop
            names = tape.names[: len(self._leaves)]
            check_apart(self.name, written, names, [*self._leaves, *captured])
        made = tuple([trace.made.get(id(x)) for x in used])
        trace.forget()
        return Traced(
            self.request.name,
            tape,
            used,
            self._structure,
            self._outputs,
            self._values,
            weak,
            written,
            draws,
            len(further),
            keeping.lines if keeping is not None else (),
            keeping if keeping is not None and keeping.inside else None,
            trace.seconds,
            made,
            {line: (*facts, _call_at(raw, at)) for line, (*facts, at) in trace.begun.items()},
            tuple(self._halves),
        )


def _call_at(tape: Tape, at: int) -> Any:
    """The line and the primitive of a call; None if there is none."""
    call = tape.calls[at] if 0 <= at < len(tape.calls) else None
    return None if call is None else (call.src, call.primitive.name)


def _is_numeric(x: Any) -> bool:
    return isinstance(x, np.ndarray) and is_known(computed_in(x.dtype))


# A function that makes the final tape: of the recorded one, the values of its captured inputs, and
# the numbers of those that only the trace references.
Number = Callable[[Tape, Sequence[Any], Collection[int]], tuple[Tape, tuple[Any, ...]]]


def _reads_what_is_gone(trace: Trace, raw: Tape) -> bool:
    """Whether a value is used whose call was removed from the tape, as those of sides of branches
    and of first rounds of loops are."""
    if not (trace.merged or trace.failed or trace.counted):
        return False
    known = {*raw.inputs, *[var for var, _ in trace.captured.values()]}
    for call in raw.calls:
        if any(isinstance(x, Var) and x not in known for x in call.operands):
            return True
        known.update(call.outs)
    read = [*raw.outputs, *[guard.operand for guard in raw.guards]]
    return any(isinstance(x, Var) and x not in known for x in read)


def _held_alone(trace: Trace) -> list[int]:
    """The numbers of the captured arrays that only the trace references: the function created them,
    and their contents won't change. A probe, known to be such an array, tells the reference
    count."""
    if not trace.captured:
        return []
    probe = np.empty(1)
    trace.capture(probe, Aval((1,), probe.dtype))
    kept = list(trace.captured.values())
    *pairs, _ = kept
    known = trace.captured.pop(id(probe))
    counts = [sys.getrefcount(pair[1]) for pair in pairs]
    alone = sys.getrefcount(known[1]) - 1  # without the local name's
    return [
        k
        for k, ((_, x), count) in enumerate(zip(pairs, counts, strict=True))
        if type(x) is np.ndarray and x.base is None and count <= alone
    ]


@unobserved
@quiet
def replay(tape: Tape, inputs: Sequence[Any]) -> list[Any]:
    """Record a tape's calls again on the tracers and arrays given as inputs, in their trace, which
    captures the arrays as they are. Warnings are off, since the user's own calls warned when they
    were traced. Each call keeps its line. Dead values are released: reusing memory is faster than
    new pages, which take longer than to compute."""
    env: dict[int, Any] = {x.id: y for x, y in zip(tape.inputs, inputs, strict=True)}
    dead = last_uses(tape)

    def value(x: Operand) -> Any:
        return x if isinstance(x, Literal) else env[x.id]

    for position, call in enumerate(tape.calls):
        results = _applied(call, [value(x) for x in call.operands])
        if call.primitive.results == 1 and not isinstance(results, tuple):
            results = (results,)
        env.update(zip([out.id for out in call.outs], results, strict=True))
        del results
        for x in dead.get(position, ()):
            env.pop(x, None)
    for guard in tape.guards:
        found = value(guard.operand)
        if isinstance(found, Tracer):
            found._trace.guard(found, guard.expected.value, guard.what, guard.src, True)
    return [plain(value(x)) for x in tape.outputs]


replay.notes = (Tape,)  # type: ignore[attr-defined]  # a tape never changes: nothing of it is read


def own_result(x: Any) -> Any:
    """An output of `replay` as a derivative returns it: no result is a view."""
    if isinstance(x, Literal):
        return x.value
    return x._detached() if isinstance(x, Tracer) else x


def _applied(call: Call, operands: Sequence[Any]) -> Any:
    """The result of a call: recorded if a tracer is among the operands, else evaluated."""
    primitive = call.primitive
    tracer = next((x for x in operands if isinstance(x, Tracer)), None)
    trace: Any = None if tracer is None else tracer._trace
    here = current_trace() if primitive.checks and tells(primitive) else None
    if here is not None:  # a callback is recorded even if no operand is traced
        trace = here if here.inside is None else here.inside
    if trace is not None:
        before = trace.src, trace.reason
        trace.src, trace.reason = call.src or trace.src, call.reason or trace.reason
        try:
            return primitive(*operands) if here is None else record(trace, primitive, operands)
        finally:
            trace.src, trace.reason = before
    note_computed(operands)
    return primitive.evaluate(*[x.value if isinstance(x, Literal) else plain(x) for x in operands])
