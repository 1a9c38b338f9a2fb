"""Parts of arrays that integers and slices say: views, or elements."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tapegrad.ir.tape import Aval, one_type
from tapegrad.primitives.views import GetItem
from tapegrad.tracing.again import made
from tapegrad.tracing.source import user_source
from tapegrad.tracing.tracer import Tracer, kind_of


def part(view: GetItem, x: Tracer) -> Tracer:
    """`view(x)`: what `tracer.record` comes to where the elements of an array are known."""
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


@lru_cache(maxsize=4096)
def _aval(shape: tuple[int, ...], whole: Aval) -> Aval:
    return one_type(whole.with_shape(shape))
