"""Fast paths for parts of arrays by integers and slices: the reads of `tracer.record` and the
writes of `Tracer._write`, for known elements, which is nearly always the case."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tapegrad.core.values import one_type
from tapegrad.ir.tape import Aval, Literal
from tapegrad.observe.program.source import user_source
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem
from tapegrad.tracing.operators.inline_cache import made
from tapegrad.tracing.recording.chains import show
from tapegrad.tracing.recording.layout import laid_out_like
from tapegrad.tracing.tracers.elements import note_element
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, kind_of


def part(view: GetItem, x: Tracer) -> Tracer:
    """`view(x)`."""
    trace, root = x._trace, x._root
    if root is None and not x._doubt:
        operand, value, owner = x._operand, x._value, x
    else:
        (operand, value), owner = x._read(), x._owner
    if type(value) is not np.ndarray or trace.inside is not None or not trace.alive:
        return view(x)
    found = view.evaluate(value)
    src = trace.src or user_source()
    if type(found) is not np.ndarray:
        aval = _aval((), operand.aval)
        out: Tracer = made(trace, view, (operand,), aval, src, kind_of(found, aval), found)
        out._ordered = owner._ordered or value.ndim < 2
        if value.ndim == 1 and aval.dtype.kind == "f":
            note_element(operand.aval, aval, type(out))
        return out
    aval = _aval(found.shape, operand.aval)
    out = made(trace, view, (operand,), aval, src, kind_of(found, aval), found)
    if not owner._ordered and value.ndim > 1:
        out._ordered = False
    if found.size:
        show(out, owner, (*x._chain, view))
    return out


def put(view: SetItem, x: Tracer, y: Any) -> None:
    """Assign `y`, a tracer or a number that fits, to the part `view` of `x`."""
    trace = x._trace
    if x._root is None:
        x._let_be_written()
    if isinstance(y, Tracer):
        known = y._trace is trace and y._value is not None
    else:
        known = type(y) is Literal
    if not known or x._root is not None or x._value is None:
        x._write(view, y)
        return
    if trace.inside is not None or not trace.alive or trace.writable is not None:
        x._write(view, y)
        return
    part, elements = y._read() if isinstance(y, Tracer) else (y, y.value)
    change = view.updating() if x._is_alone() else view.evaluate
    operand, value = x._read()
    found = change(value, elements)
    src = trace.src or user_source()
    aval = operand.aval
    out = made(trace, view, (operand, part), aval, src, ArrayTracer, None)
    trace.note_write(x, src)
    x._operand = out._operand
    x._value = value if found is value else laid_out_like(found, value)
    x._version += 1


@lru_cache(maxsize=4096)
def _aval(shape: tuple[int, ...], whole: Aval) -> Aval:
    return one_type(whole.with_shape(shape))
