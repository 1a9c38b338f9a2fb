"""The arguments of a call, taken apart: what it is recognised by when it is made again.

Names: a *source* is where an operand comes from. See `tracing.recipes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np

from tapegrad.core.arrays import plain
from tapegrad.ir.tape import Var
from tapegrad.tracing.made import MadeTracer
from tapegrad.tracing.trace import Trace
from tapegrad.tracing.tracer import ArrayTracer, IntTracer, Tracer

MOST_LEAVES = 16  # of a call's arguments
_TRACER, _ARRAY, _STATIC, _LIST, _SLICE, _OTHER = range(6)
_KINDS: dict[type, int] = {
    **dict.fromkeys((int, float, bool, str, NoneType, type(Ellipsis)), _STATIC),
    **dict.fromkeys((np.float64, np.float32, np.int64, np.bool_, type), _STATIC),
    **{type(np.dtype(t)): _STATIC for t in ("f8", "f4", "i8", "i4", "?")},
    **{np.ndarray: _ARRAY, list: _LIST, tuple: _LIST, slice: _SLICE},
}


_FLOATS = frozenset((float, np.float64, np.float32))


def _kind_of(kind: type) -> int:
    """How arguments of this type are told. Of Python's integers it is known how large they may be,
    of some numbers it isn't known whose they are, and what is made isn't on the tape: that decides
    on what is recorded, too."""
    others = issubclass(kind, (IntTracer, MadeTracer))
    traced = issubclass(kind, Tracer) and not others and not kind._either
    found = _KINDS[kind] = _TRACER if traced else _OTHER
    return found


class Given:
    """The arguments of a call, taken apart.

    Each tracer has two sources: its operand, and that of the array that it is a view of. One that
    isn't up to date has only the latter. An array from outside has one.
    """

    __slots__ = ("arrays", "key", "operands", "trace", "tracers", "values")

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.key: Any = []
        self.tracers: list[Any] = []
        self.arrays: list[Any] = []
        self.operands: list[Any] = []
        self.values: list[Any] = []

    def take(self, xs: Sequence[Any]) -> bool:
        """Take more of them; False where one isn't known to be of a kind that can be compared."""
        key = self.key
        if len(xs) > MOST_LEAVES:
            return False
        for x in xs:
            cls = type(x)
            kind = _KINDS.get(cls)
            if kind is None:
                kind = _kind_of(cls)
            key.append(cls)
            if kind == _TRACER:
                root, operand, value = x._root, x._operand, x._value
                if x._trace is not self.trace or value is None or type(operand) is not Var:
                    return False
                source = below = None
                if root is None:
                    if x._doubt:
                        return False
                    if cls is ArrayTracer:
                        key += (id(x._aval), x._ordered, value.strides, value.flags.num)
                    else:
                        key.append(id(x._aval))
                else:
                    source, below = root._operand, root._value
                    if root._doubt or below is None or type(source) is not Var:
                        return False
                    if type(root) is MadeTracer:
                        return False
                    key += (id(x._aval), id(root._aval), root._ordered)
                    key += (value.strides, value.flags.num)
                    if x._version != root._version:
                        operand = value = None
                        key.append("stale")
                    else:
                        key.append("view")
                self.tracers.append(x)
                self.operands += (operand, source)
                self.values += (value, below)
            elif kind == _STATIC:
                key.append(x)
                if cls in _FLOATS and x == 0.0:  # which has a sign
                    key.append(str(x))
            elif kind == _LIST:
                key.append(len(x))
                if not self.take(x):
                    return False
            elif kind == _SLICE:
                if not self.take((x.start, x.stop, x.step)):
                    return False
            elif kind == _ARRAY and id(x) in self.trace.captured:
                key.append(id(x))
                self.arrays.append(x)
            else:
                return False
        return True

    def settled(self) -> bool:
        """The key in the end: with which of the operands are the same, and which are inputs."""
        trace, operands, tracers = self.trace, self.operands, self.tracers
        inputs = len(trace.builder.inputs)
        if len(tracers) == 1 and operands[0] is not None and operands[1] is None:
            self.key.append(operands[0].id <= inputs)
        elif not tracers or len(tracers) > MOST_LEAVES:
            return False
        else:
            ids = [-1 if x is None else x.id for x in operands]
            self.key += map(ids.index, ids)
            self.key += [k <= inputs for k in ids]
        for x in self.arrays:
            operands.append(trace.capture(x, trace.captured[id(x)][0].aval))
            self.values.append(plain(x))
        self.key = tuple(self.key)
        return True
