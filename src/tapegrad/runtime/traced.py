"""One way in: how every transformation has a user's function traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tapegrad.core.request import Request
from tapegrad.errors import TapegradError
from tapegrad.observe.activations.reconsidered import Reconsidered, settled
from tapegrad.observe.guards.foreign import answers, one_call
from tapegrad.observe.objects.clocks import Clocks
from tapegrad.observe.observer import Observer, following
from tapegrad.observe.packages.libraries import failed_in
from tapegrad.pipeline import trace
from tapegrad.tracing.memory.escaped import give_back
from tapegrad.tracing.outside.found import without_found
from tapegrad.tracing.outside.kept import let_be_plain
from tapegrad.tracing.outside.lending import Choices, begin
from tapegrad.tracing.recording.trace import tracing_depth
from tapegrad.tracing.runs.traced import Traced
from tapegrad.tracing.tracers.tracer import Tracer

T = TypeVar("T")


def is_inside(request: Request) -> bool:
    """Whether a call is part of another trace, whose observer follows it."""
    return bool(tracing_depth()) or any(isinstance(x, Tracer) for x in request.leaves)


def observed(
    root: Any,
    request: Request,
    make: Callable[[Traced], T],
    again: bool = False,
    in_vain: int = 0,
) -> tuple[T, Observer]:
    """What `make` makes of the trace of a call, and what the run was observed to do. `root` is the
    function at the bottom; users' rules that `make` calls are observed as it is. Later calls may do
    `again` what the run does outside. What `in_vain` says stands at `pipeline.trace`."""
    choices = Choices()
    before: list[Observer] = []  # of runs that went for nothing: what they have done is done

    def run(clocks: Clocks) -> tuple[T, Observer]:
        outer = following.observer
        try:
            return followed(clocks)
        except Reconsidered:
            refusal = before[-1].undoing.refusal()
            if refusal is not None:
                raise refusal from None
            raise
        finally:
            following.observer = outer  # an interrupt may have kept the observer from leaving

    def followed(clocks: Clocks) -> tuple[T, Observer]:
        answers.renew()
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
                    other = Reconsidered(notes, error)
                sites = failed_in(observer, error)
                if other is None and sites:
                    other = Reconsidered(sites, error)
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
        # Something can't be done with what a clock shows: that is plain, and the tape is used once.
        return run(Clocks(are_inputs=False))

    try:
        with one_call(answers.given):
            return settled(with_clocks)
    finally:
        give_back()


def traced(request: Request, make: Callable[[Traced], T]) -> T:
    """What `make` makes of the trace of a call that is answered once, so it doesn't matter what the
    run read."""
    if is_inside(request):
        return make(trace(request))
    made, observer = observed(request.f, request, make)
    observer.forget()
    return made
