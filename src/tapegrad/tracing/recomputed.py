"""Parts of a program whose insides aren't kept for the derivative.

    y = checkpoint(f)(x)      -->      %y = loop(1, %empty, %x, f, recomputed=True)

Such a part is a loop of one round that is recomputed: reverse mode runs it once more when it comes
to it, and keeps then what its derivative needs. Between both runs there is what it was passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.core.request import describe
from tapegrad.core.trees import unflatten
from tapegrad.ir.tape import Literal, Var
from tapegrad.primitives.loops import Loop
from tapegrad.tracing.cond import Operands, as_result, body_of
from tapegrad.tracing.conditional import empty
from tapegrad.tracing.observe.observer import observed, unobserved
from tapegrad.tracing.source import user_source
from tapegrad.tracing.trace import current_trace, innermost, tracing_depth
from tapegrad.tracing.tracer import Tracer, stand_in, to_operand


@unobserved
def checkpoint(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the function returns; in a trace it is recorded as one call."""
    if not tracing_depth():
        with observed():
            return f(*args, **kwargs)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (trace := current_trace()) is not None:
            trace.once = True
        return f(*args, **kwargs)

    call.__name__ = describe(f)
    given = Operands(f"checkpoint of {describe(f)}", (args, kwargs), user_source())
    side = given.side(call, idle=False)
    inputs = given.inputs(side)
    tracers = [x for x in inputs if isinstance(x, Tracer)]
    avals = [leaf.aval if isinstance(leaf.operand, Var) else None for leaf in side.leaves]
    slots = [aval for aval in avals if aval is not None]
    if not tracers or not slots:
        return unflatten(side.structure, [leaf.value for leaf in side.leaves])
    trace = innermost(tracers)
    loop = Loop(body_of(side, avals), len(slots), 1, recomputed=True, instead=True)
    start = [empty(trace.record, aval) for aval in slots]
    read = [to_operand(trace, x)[0] for x in inputs]
    ends = iter(trace.record(loop, [Literal(np.int64(1)), *start, *read]))
    found = [
        leaf.value
        if aval is None
        else stand_in(trace, next(ends), as_result(leaf.value, aval), aval.weak)
        for leaf, aval in zip(side.leaves, avals, strict=True)
    ]
    return unflatten(side.structure, found)
