"""Slices whose bounds vary with the rounds of a loop: `x[:i]`.

    for i in range(n):             %y = part(%x, 0:i)    zeros behind i
        s = x[:i] @ w[:i]   -->    %z = part(%w, 0:i)
                                   %s = einsum(%y, %z)

The slice has another shape in each round, but the sum of its elements hasn't. So an array of the
maximal length is summed, with zeros behind the elements of the slice; the elements of `x` at those
positions are never read. Any other operation takes the slice itself, and guards its bounds. Then
rounds are traced one by one (`optimize/growing_arrays.py` finds repeated rounds among them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegrad.core.values import Span
from tapegrad.ir.tape import Operand
from tapegrad.observe.observer import unobserved
from tapegrad.primitives.parts import Part
from tapegrad.tracing.memory.deferred import Answering, answered_by
from tapegrad.tracing.operators.integer_bounds import Sum, added, may_vary, span, sum_of
from tapegrad.tracing.recording.trace import Trace, current_trace
from tapegrad.tracing.runs.floating_errors import watched
from tapegrad.tracing.tracers.tracer import Tracer, record, stand_in


def front(x: Tracer, index: Any, taken: Callable[[Any, Any], Any]) -> Any:
    """`x[index]` as a `Front`, if the index has one slice, whose bounds vary with the rounds; else
    None. `taken(x, index)` returns the slice as an array."""
    trace = current_trace()
    entries = [*index] if type(index) is tuple else [index]
    if trace is None or x._trace is not trace or not trace.in_frame or watched(trace):
        return None
    slices = [axis for axis, k in enumerate(entries) if type(k) is slice]
    if len(slices) != 1 or len(entries) != x.ndim or x.dtype.kind != "f":
        return None
    (along,) = slices
    bounds = _bounds(trace, entries[along], x.shape[along])
    each = zip(entries, x.shape, strict=True)
    places = [None if type(k) is slice else _place(trace, k, n) for k, n in each]
    if bounds is None or any(k is None for a, k in enumerate(places) if a != along):
        return None
    places[along], count, most = bounds
    forms: list[Any] = [*places, count]
    steps = {leaf.operand: leaf for place in forms for leaf in place.leaves}
    moves = tuple([tuple([place.terms.get(k, 0) for place in forms]) for k in steps])
    starts = [place.terms.get(None, 0) for place in forms]
    found: list[Any] = starts[:-1]
    found[along] = Span(starts[along], starts[-1], 1, most)
    tracers = [stand_in(trace, k, leaf.value) for k, leaf in steps.items()]
    kind: Any = Front
    return kind(x, index, taken, Part(tuple(found), moves, 0), tracers, count.terms)


class _Leaf(NamedTuple):
    """A variable of an affine integer expression, and its value."""

    operand: Operand
    value: Any


class _Form(NamedTuple):
    """An affine sum of variables with integer coefficients."""

    terms: Sum
    leaves: list[_Leaf]


def _form(trace: Trace, k: Any) -> _Form | None:
    """The affine form of an integer that is plain or depends on one variable; else None."""
    if type(k) is int:
        return _Form(added({}, {None: k}, 1), [])
    if not isinstance(k, Tracer) or k.ndim or k.dtype.kind != "i" or k._trace is not trace:
        return None
    operand, value = k._read()
    terms = sum_of(trace, operand)
    variables = [x for x in terms if x is not None]
    if len(variables) != 1 or value is None:
        return None
    (x,) = variables
    return _Form(terms, [_Leaf(x, np.int64((int(value) - terms.get(None, 0)) // terms[x]))])


def _place(trace: Trace, k: Any, extent: int) -> _Form | None:
    """The affine form of an index that is within bounds and nonnegative; else None."""
    if type(k) is int and -extent <= k < extent:
        k %= extent
    return _form(trace, k) if _is_integer(k) and _lies(k, extent - 1) else None


def _bounds(trace: Trace, k: slice, extent: int) -> tuple[_Form, _Form, int] | None:
    """The start of a slice, its length and its maximal length. None if the slice may reach beyond
    the array, or has the same length in all rounds."""
    start = 0 if k.start is None else k.start
    stop = extent if k.stop is None else k.stop
    inside = all(_is_integer(y) and _lies(y, extent) for y in (start, stop))
    if k.step not in (None, 1) or not inside:
        return None
    varies = any(isinstance(y, Tracer) and may_vary(y) for y in (start, stop))
    first, last = (_form(trace, y) for y in (start, stop)) if varies else (None, None)
    if first is None or last is None:
        return None
    terms = added(last.terms, first.terms, -1)
    low, most = span(stop - start)
    known = set(terms) - {None} and low >= 0 and 0 < most <= extent
    return (first, _Form(terms, [*first.leaves, *last.leaves]), int(most)) if known else None


def _is_integer(k: Any) -> bool:
    return type(k) is int or (isinstance(k, Tracer) and not k.ndim and k.dtype.kind == "i")


def _lies(k: Any, most: int) -> bool:
    low, high = span(k)
    return low >= 0 and high <= most


class Front(Answering):
    """A slice of one axis, whose bounds vary with the rounds."""

    __slots__ = ("_count", "_given", "_of", "_part", "_seen", "_steps")

    def __init__(
        self,
        x: Tracer,
        index: Any,
        taken: Callable[[Any, Any], Any],
        part: Part,
        steps: Sequence[Any],
        count: Sum,
    ) -> None:
        self._of, self._given, self._part, self._steps = x, (index, taken), part, steps
        self._count, self._seen = count, x._owner._version
        self._found: Any = None

    _home = property(lambda self: self._of._trace)

    def _make(self) -> Any:
        index, taken = self._given
        return taken(self._of, index)

    @property
    def _serves(self) -> bool:
        """Whether the base array is unchanged, and the slice wasn't converted to an array, which
        could be written to."""
        same = self._of._trace.alive and self._seen == self._of._owner._version
        return same and self._found is None and current_trace() is self._of._trace

    dtype = property(lambda self: self._of.dtype)
    ndim = property(lambda self: 1)

    def _is_as_long(self, other: Front) -> bool:
        same = self._part.where.extents == other._part.where.extents
        return same and self._count == other._count

    @unobserved
    def _whole(self) -> Any:
        """The elements, with zeros behind them."""
        return record(self._of._trace, self._part, [self._of, *self._steps])

    @staticmethod
    def _by_ufunc(f: np.ufunc, xs: Sequence[Any]) -> Any:
        return _product(*xs) if f is np.matmul else None

    @staticmethod
    def _by_function(f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return answered_by(_FUNCTIONS, f, args, kwargs)


def _product(x: Any, y: Any) -> Any:
    if not (_serves(x) and _serves(y)) or x.dtype != y.dtype or not x._is_as_long(y):
        return None
    return np.matmul(x._whole(), y._whole())


def _sum(x: Any, axis: Any = None) -> Any:
    return np.sum(x._whole()) if _serves(x) and axis in (None, 0, -1) else None


def _serves(x: Any) -> bool:
    return type(x) is Front and x._serves


_FUNCTIONS: dict[Any, Callable[..., Any]] = {np.dot: lambda x, y: _product(x, y), np.sum: _sum}
