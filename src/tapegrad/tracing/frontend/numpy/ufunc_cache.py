"""A cache of ufunc calls: a repeated call records one primitive without new resolution."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.loud import aloud
from tapegrad.ir.tape import Aval, Literal, Operand, Var
from tapegrad.observe.answers.answers import original_of
from tapegrad.observe.program.source import user_source
from tapegrad.primitives.base import Elementwise
from tapegrad.tracing.memory.created import CreatedTracer
from tapegrad.tracing.operators.inline_cache import made
from tapegrad.tracing.recording.layout import is_ordered
from tapegrad.tracing.recording.trace import innermost
from tapegrad.tracing.runs.floating_errors import watched
from tapegrad.tracing.tracers.tracer import Tracer, kind_of

# The ufunc and its operands' kinds --> the primitive, its operands' dtype and the result's type,
# for calls that record one primitive. A program repeats the same calls, and resolving NumPy's
# dtypes and shapes for each takes most of the time of a trace.
KNOWN: dict[tuple[np.ufunc, tuple[Any, ...]], tuple[Elementwise, np.dtype, Aval]] = {}
_NUMBERS = (float, int, np.float64, np.float32)


def kinds_of(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The cache key of the operands: the types of floating-point tracers and numbers; empty if
    there are other operands."""
    kinds: list[Any] = []
    for x in inputs:
        kind = type(x)
        if kind in _NUMBERS:
            if kind is int and not -(2**53) < x < 2**53:
                return ()
            kinds.append(kind)
        elif isinstance(x, Tracer) and x._aval.dtype.kind == "f" and not x._either:
            if x._subclass is not None:
                return ()
            aval = x._aval  # the tracer of a Python number may represent a variable that isn't weak
            if aval.weak is not x._weak:
                aval = Aval(aval.shape, aval.dtype, weak=x._weak)
            kinds.append(aval)
        else:
            return ()
    return tuple(kinds)


def known_call(ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """The cache entry of a call on operands of these kinds; None if there is none."""
    kinds = kinds_of(inputs)
    return KNOWN.get((ufunc, kinds)) if kinds else None


def again(known: tuple[Elementwise, np.dtype, Aval], inputs: Sequence[Any]) -> Tracer | None:
    """Record a call by its cache entry and return the result; None if the entry doesn't fit."""
    primitive, dtype, aval = known
    trace = innermost(inputs)
    operands: list[Operand] = []
    values = []
    for x in inputs:
        if isinstance(x, Tracer):
            if x._trace is not trace:
                return None
            operand, value = x._read()
            if value is None:
                return None
        else:
            value = dtype.type(x)
            operand = Literal(value)
        operands.append(operand)
        values.append(value)
    if watched(trace):
        return None
    run = primitive.for_types(*[x.aval for x in operands])  # as the tape is played
    found = aloud(run, values)
    if type(found) is np.ndarray and not aval.shape:
        found = found[()]
    src = trace.src or user_source()
    tracer: Tracer = made(trace, primitive, tuple(operands), aval, src, kind_of(found, aval), found)
    if len(aval.shape) > 1 and not is_ordered(primitive, inputs, values):
        tracer._ordered = False
    return tracer


def like_earlier(ufunc: np.ufunc, inputs: Sequence[Any]) -> Tracer | None:
    """The result of a call that is in the cache; None if it isn't."""
    if any(type(x) is CreatedTracer for x in inputs):
        return None
    known = known_call(ufunc, inputs)
    return None if known is None else again(known, inputs)


def learn(
    ufunc: np.ufunc, primitive: Any, kinds: tuple[Any, ...], inputs: Sequence[Any], result: Any
) -> None:
    """Cache a call that recorded one call of `primitive` on its own operands."""
    if not isinstance(primitive, Elementwise) or not isinstance(result, Tracer):
        return
    last = result._trace.builder.calls[-1]
    types = {x.dtype for x in last.operands}
    given = {kind.dtype for kind in kinds if isinstance(kind, Aval)}
    made_of = [x._operand for x in inputs if isinstance(x, Tracer)]
    if (
        last.primitive is primitive
        and last.outs == (result._operand,)
        and len(last.operands) == len(inputs)
        and [x for x in last.operands if isinstance(x, Var)] == made_of
        and types == given
        and len(types) == 1
        and result._root is None
    ):
        KNOWN[ufunc, kinds] = primitive, types.pop(), last.out.aval


def is_scipys(ufunc: np.ufunc) -> bool:
    """Whether `ufunc` is SciPy's function of its name; other ufuncs may have the same name."""
    module = sys.modules.get("scipy.special")
    return original_of(getattr(module, ufunc.__name__, None)) is ufunc
