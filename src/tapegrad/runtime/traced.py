"""Tracing of users' functions, as all transformations do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tapegrad.core import callback_log
from tapegrad.core.request import Request
from tapegrad.errors import TapegradError
from tapegrad.observe.activations.retracing import Retrace, settled
from tapegrad.observe.guards.package_calls import answers, one_call
from tapegrad.observe.objects.clocks import Clocks
from tapegrad.observe.observer import Observer, following
from tapegrad.observe.packages.library_calls import failed_in
from tapegrad.pipeline import trace
from tapegrad.tracing.memory.escaped import give_back
from tapegrad.tracing.outside.captured_writes import Choices, begin
from tapegrad.tracing.outside.state_inputs import without_found
from tapegrad.tracing.outside.stored import let_be_plain
from tapegrad.tracing.recording.trace import tracing_depth
from tapegrad.tracing.runs.traced import Traced
from tapegrad.tracing.tracers.tracer import Tracer

T = TypeVar("T")


def is_inside(request: Request) -> bool:
    """Whether a call is part of another trace, which is observed itself."""
    return bool(tracing_depth()) or any(isinstance(x, Tracer) for x in request.leaves)


def observed(
    root: Any,
    request: Request,
    make: Callable[[Traced], T],
    again: bool = False,
    in_vain: int = 0,
) -> tuple[T, Observer]:
    """The result of `make` for the trace of a call, and the observer of the run.

    `root` is the innermost function; users' rules that `make` calls are observed like it. If
    `again`, later calls may repeat the run's effects. For `in_vain` see `pipeline.trace`.
    """
    choices = Choices()
    before: list[Observer] = []  # observers of runs that were given up, whose effects have happened

    def run(clocks: Clocks) -> tuple[T, Observer]:
        outer = following.observer
        try:
            return followed(clocks)
        except Retrace:
            refusal = before[-1].undoing.refusal()
            if refusal is not None:
                raise refusal from None
            raise
        finally:
            following.observer = outer  # an interrupt may have skipped the observer's exit

    def followed(clocks: Clocks) -> tuple[T, Observer]:
        answers.renew()
        callback_log.current().recorded.clear()
        with Observer(root, request.args, request.kwargs, request.name) as observer:
            observer.clocks, observer.again = clocks, again
            begin(observer, choices)
            observer.silent = max((o.told for o in before), default=0)
            observer.known = max((o.done for o in before), default=[], key=len)
            before.append(observer)
            try:
                made = make(trace(request, observer, in_vain=in_vain))
            except Exception as error:
                other = without_found(observer, error)
                if observer.lent is not None and (notes := observer.lent.without(error)):
                    other = Retrace(notes, error)
                sites = failed_in(observer, error)
                if other is None and sites:
                    other = Retrace(sites, error)
                if other is not None and (other.notes or not sites or observer.unfollowed):
                    raise other from None
                if observer.lent is not None:
                    observer.lent.finish(raised=True)
                let_be_plain(observer.trace, observer.reads)
                raise
        observer.check()
        return made, observer

    def with_clocks() -> tuple[T, Observer]:
        clocks = Clocks()
        try:
            return run(clocks)
        except (TapegradError, TypeError):
            if not clocks.are_read:
                raise
        # A traced clock reading doesn't work here: use plain numbers, and the tape once only.
        return run(Clocks(are_inputs=False))

    try:
        with one_call(answers.given):
            return settled(with_clocks)
    except Exception:
        callback_log.current().again()
        for tell in callback_log.current().recorded:
            callback_log.current().tell(tell)
        raise
    finally:
        give_back()


def traced(request: Request, make: Callable[[Traced], T]) -> T:
    """The result of `make` for the trace of a call that is answered once, so that the run's reads
    don't matter."""
    if is_inside(request):
        return make(trace(request))
    made, observer = observed(request.f, request, make)
    observer.forget()
    return made
