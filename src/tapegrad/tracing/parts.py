"""Parts of arrays that integers and slices say, read and written: what `tracer.record` and writes
come to where elements are known, which is nearly always."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Literal, one_type
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import GetItem
from tapegrad.tracing.again import made
from tapegrad.tracing.layout import laid_out_like
from tapegrad.tracing.source import user_source
from tapegrad.tracing.tracer import Tracer, kind_of


def part(view: GetItem, x: Tracer) -> Tracer:
    """`view(x)`."""
    trace, (operand, value) = x._trace, x._read()
    if type(value) is not np.ndarray or trace.inside is not None or not trace.alive:
        return view(x)
    found = view.evaluate(value)
    aval = _aval(found.shape, operand.aval)
    src = trace.src or user_source()
    out: Tracer = made(trace, view, (operand,), aval, src, kind_of(found, aval), found)
    root = x._owner
    if not root._ordered and value.ndim > 1:
        out._ordered = False
    if type(found) is np.ndarray and found.size:
        out._root, out._chain, out._version = root, (*x._chain, view), root._version
    return out


def put(view: SetItem, x: Tracer, y: Any) -> None:
    """`x` gets the elements of `y`, a tracer or a number that fits."""
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
    if trace.inside is not None or not trace.alive:
        x._write(view, y)
        return
    part, elements = y._read() if isinstance(y, Tracer) else (y, y.value)
    change = view.update if x._is_alone() else view.evaluate
    operand, value = x._read()
    found = change(value, elements)
    src = trace.src or user_source()
    aval = operand.aval
    (out,) = trace.builder.define(view, (operand, part), [aval], src, trace.reason)
    trace.note_write(x)
    x._operand, x._value = out, laid_out_like(found, value)
    x._version += 1


@lru_cache(maxsize=4096)
def _aval(shape: tuple[int, ...], whole: Aval) -> Aval:
    return one_type(whole.with_shape(shape))
