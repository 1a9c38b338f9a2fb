"""`checkpoint`: parts of a program whose intermediate values aren't kept for the derivative.

    y = checkpoint(f)(x)   -->   %y = loop(1, %empty, %x, f, recomputed=True)

Such a part is a loop of one round that is recomputed: the backward half runs it again, and keeps
the residuals of its derivative then. Between the two runs, only its operands are kept, and the
values that are kept by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.core.request import describe
from tapegrad.core.trees import array_leaves, flatten, is_array, unflatten
from tapegrad.errors import ArgumentError
from tapegrad.ir.tape import Literal, Tape, Var
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.program.source import user_source
from tapegrad.primitives.control import has_effects
from tapegrad.primitives.elementwise import stop_gradient
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.named import Named
from tapegrad.tracing.branches.cond import NOTHING, Operands, Side, as_result, body_of
from tapegrad.tracing.branches.conditional import empty
from tapegrad.tracing.loops.rounds import own_copies
from tapegrad.tracing.recording.trace import current_trace, innermost, is_untraced
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand


@unobserved
def checkpoint(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], keep: tuple[str, ...] = ()
) -> Any:
    """The result of the function, which is recorded as one call in a trace. Returned arrays are
    copied if they are operands of the function or views of them."""
    if is_untraced((args, kwargs)):
        with observed():
            found = f(*args, **kwargs)
        passed = array_leaves((args, kwargs))
        leaves, structure = flatten(found)
        if not any(is_array(x) and np.may_share_memory(x, y) for x in leaves for y in passed):
            return found
        return unflatten(structure, own_copies(leaves))

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (trace := current_trace()) is not None:
            trace.once = True
        return f(*args, **kwargs)

    call.__name__ = describe(f)
    given = Operands(f"checkpoint of {describe(f)}", (args, kwargs), user_source())
    side = given.side(call, idle=False, passes_on=True)
    leaves = [*side.leaves, *side.left]
    inputs = given.inputs(side)
    tracers = [x for x in inputs if isinstance(x, Tracer)]
    avals = [leaf.aval if isinstance(leaf.operand, Var) else None for leaf in leaves]
    count = len(leaves)
    if not any(avals) and has_effects(side.traced.tape):
        leaves, avals = [*leaves, NOTHING], [*avals, NOTHING.aval]
    slots = [aval for aval in avals if aval is not None]
    if not tracers or not slots:
        return _returned(side, [leaf.value for leaf in leaves])
    trace = innermost(tracers)
    body = body_of(replace(side, leaves=leaves), avals)
    _check_names(describe(f), body, keep)
    loop = Loop(body, len(slots), 1, recomputed=True, instead=True, keep=keep)
    start = [empty(trace.record, aval) for aval in slots]
    read = [to_operand(trace, x)[0] for x in inputs]
    ends = iter(trace.record(loop, [Literal(np.int64(1)), *start, *read]))
    found = [
        leaf.value
        if aval is None
        else stand_in(trace, next(ends), as_result(leaf.value, aval), aval.weak)
        for leaf, aval in zip(leaves, avals, strict=True)
    ]
    return _returned(side, found[:count])


def _returned(side: Side, found: Sequence[Any]) -> Any:
    """The function's own result, from the values of all leaves. The other values are passed on as
    captured state."""
    count = len(side.leaves)
    if side.traced.keeping is not None:
        side.traced.keeping.pass_on(found[count:])
    return unflatten(side.structure, found[:count])


def _check_names(name: str, body: Tape, keep: Sequence[str]) -> None:
    """Raise an ArgumentError if `keep` has a name that no value has."""
    calls = [c.primitive for c in body.calls if isinstance(c.primitive, Named)]
    known = sorted({primitive.label for primitive in calls})
    for wanted in keep:
        if wanted not in known:
            there = (
                f"What is named there: {', '.join(known)}" if known else "Nothing is named there"
            )
            raise ArgumentError(
                f"checkpoint of {name}: keep says {wanted!r}, and it names no value so outside of "
                f"its loops. {there}. Name one with h = checkpoint_name(h, {wanted!r})"
            )


@unobserved
def named(x: Any, name: str) -> Any:
    """A copy of the tree with its traced leaves named."""
    return marked(x, Named(name))


@unobserved
def stopped(x: Any) -> Any:
    """A copy of the tree with its traced leaves constant for derivatives."""
    return marked(x, stop_gradient)


def marked(tree: Any, primitive: Any) -> Any:
    """A copy of the tree with a primitive applied to its traced leaves. Arrays are new, traced or
    not, so that writes to them don't change others."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [_marked(x, primitive) for x in own_copies(leaves)])


def _marked(x: Any, primitive: Any) -> Any:
    if not isinstance(x, Tracer):
        return x
    trace = x._trace
    trace.check_alive()
    operand, value = x._read()
    (var,) = trace.record(primitive, [operand])
    return stand_in(trace, var, value, x._weak)
