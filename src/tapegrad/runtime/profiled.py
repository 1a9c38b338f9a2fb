"""The profile of a call: kernels with a clock between them, or a tape played call by call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tapegrad.backends.host import HOST
from tapegrad.backends.numpy.play import Script
from tapegrad.backends.source.driver import POOLED
from tapegrad.core.handlers import quiet
from tapegrad.core.request import Request
from tapegrad.insight.measuring import (
    CLOCK,
    TICK,
    Known,
    Measured,
    Timed,
    of_script,
    of_ticks,
    ticking,
)
from tapegrad.insight.profiling import Profile, profile_of, program_of
from tapegrad.runtime.ahead import how
from tapegrad.runtime.entry import Entry, Text, driver_namespace
from tapegrad.tracing.draws.recorded import DrawnValues
from tapegrad.tracing.runs.traced import plain_value

if TYPE_CHECKING:
    from tapegrad.runtime.variant import Variant


def profiled(
    derived: Any, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], calls: int
) -> Profile:
    """The profile of a derived function's calls that this variant answers."""
    request, program = derived._request(args, kwargs), program_of(variant.shown)
    while True:
        entry = variant.entry
        found = profile_of(
            derived.__name__,
            how(variant),
            partial(derived, *args, **kwargs),
            calls,
            variant.shown,
            program,
            partial(_played if entry is None else _compiled, derived.root, variant, request),
            _values(variant, request),
        )
        if variant.entry is entry:  # otherwise its machine code has arrived in the middle
            return found


def _compiled(root: Any, variant: Variant, request: Request, known: Known) -> list[Measured]:
    """The parts of a compiled call, measured in the fastest of a few runs. If several threads share
    kernels, a run with one thread is measured too, for comparison."""
    executable: Any = variant.tier.found
    ticks: list[float] = []
    names = driver_namespace(executable) | {TICK: ticks.append, CLOCK: time.perf_counter}
    text = Text(ticking(executable.driver, executable.kernels), names)
    entry = Entry(variant.derivation, variant.state, text, request)

    def timed() -> Timed:
        ticks.clear()
        start = time.perf_counter()
        if entry.fast and variant.traced.draws is None:
            entry.call(root, request.args, request.kwargs)
        else:
            entry.call_flat(request.inputs, _taken(variant))
        return Timed(start, [*ticks], time.perf_counter())

    def fastest() -> Timed:
        return min([timed() for _ in range(5)], key=lambda x: x.seconds)

    found, threads = fastest(), HOST.threads_at_work if not names.keys().isdisjoint(POOLED) else 1
    alone = None
    if threads > 1:
        try:
            HOST.work_in(1)
            alone = fastest()
        finally:
            HOST.work_in(threads)
    return of_ticks(found, alone, threads, known)


def _played(root: Any, variant: Variant, request: Request, known: Known) -> list[Measured]:
    """The parts of a played call."""
    return quiet(of_script)(Script(variant.tape), _values(variant, request))


def _values(variant: Variant, request: Request) -> list[Any]:
    """The values of the inputs of the variant's tape."""
    return [*map(plain_value, request.inputs), *_taken(variant).among(variant.traced.captured)]


def _taken(variant: Variant) -> DrawnValues:
    """The random numbers for the call: those of the trace, so that profiling draws none."""
    draws = variant.traced.draws
    return DrawnValues.nothing if draws is None else draws.first(variant.traced.captured)
