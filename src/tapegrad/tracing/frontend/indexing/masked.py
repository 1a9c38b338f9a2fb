"""Elements that a mask selects, whose number varies between calls.

    np.mean(np.log(x[m]))   -->   y = where(m, x, the first selected element)
                                  sum(where(m, log(y), 0)) / sum(m)

An array of just the selected elements needs a guard on their number. Once a line has met a second
number, all elements are kept instead. Elementwise operations apply to all of them, and reductions
skip the others. The others are replaced by the first selected element, so that they are in the
domain of every function, and their cotangents are zeros. The functions listed here need no more
than that. Any other operation makes the array of the selected elements.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from tapegrad.observe.activations.code_facts import UNEVEN, places
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.source import asks_itself, told_frame
from tapegrad.primitives.elementwise import stop_gradient
from tapegrad.tracing.memory.deferred import Answering, answered_by, axes_of
from tapegrad.tracing.recording.trace import Trace, current_trace, innermost
from tapegrad.tracing.runs.floating_errors import watched
from tapegrad.tracing.tracers.tracer import Tracer


@lru_cache(maxsize=4096)
def _numbers(code: CodeType) -> dict[int, int]:
    """The first number of elements that a mask has selected, for each instruction of a code."""
    return {}


def varies(count: int) -> bool:
    """Whether the current instruction has selected different numbers of elements."""
    frame = told_frame(sys._getframe(1))
    if frame is None:
        return False
    uneven = places(frame.f_code, UNEVEN)
    if _numbers(frame.f_code).setdefault(frame.f_lasti, count) != count:
        uneven.add(frame.f_lasti)
    return frame.f_lasti in uneven


def selects(index: Any) -> bool:
    """Whether an index is a mask that has selected different numbers of elements."""
    mask = _mask_of(index)
    value = None if mask is None else mask._read()[1]
    return value is not None and varies(int(np.count_nonzero(value)))


def _mask_of(index: Any) -> Any:
    """The traced mask in front of an index, followed by integers and slices only; else None."""
    mask, *others = index if type(index) is tuple and index else (index,)
    if not isinstance(mask, Tracer) or mask.dtype != np.bool_ or not mask.ndim:
        return None
    return mask if all(type(k) in (int, slice) for k in others) else None


class Selection:
    """A mask, and the number of elements that it selects."""

    def __init__(self, trace: Trace, mask: Any, count: Any) -> None:
        self.trace, self.mask, self.count = trace, mask, count
        self.operand = mask._read()[0]
        latest = trace.builder.calls[: -1 - LATEST : -1]
        made = next((call for call in latest if self.operand in call.outs), None)
        self._as = self.operand if made is None else (made.primitive, made.operands)

    def is_like(self, other: Selection) -> bool:
        return self.operand == other.operand or self._as == other._as

    def over(self, x: Any) -> Any:
        """The mask, with unit axes for those of the elements."""
        return np.reshape(self.mask, (*self.mask.shape, *[1] * (x.ndim - self.mask.ndim)))


LATEST = 64  # the most recent calls, which are searched for the one that made the mask


def select(x: Any, index: Any, taken: Callable[[Any, Any], Any]) -> Any:
    """`x[index]` as a `Selected`, if the index is a mask by which the current line has selected
    different numbers of elements; else None. `taken(x, index)` makes the array. If the index itself
    is a `Selected` of positions along the first axis, the result has the elements there."""
    if _is_selected(index) and index.dtype.kind == "i" and not index._inner and x.ndim:
        return index._with(taken(x, index._whole))
    mask = _mask_of(index)
    if mask is None or not mask.size or x.shape[: mask.ndim] != mask.shape:
        return None
    trace, others = innermost([x, mask]), index[1:] if type(index) is tuple else ()
    if x.ndim < mask.ndim + len(others) or x.dtype.kind not in "fiub":
        return None
    if current_trace() is not trace or watched(trace) or not selects(mask):
        return None
    return selected(x[(*[slice(None)] * mask.ndim, *others)] if others else x, mask, taken)


@unobserved
def selected(x: Any, mask: Any, taken: Callable[[Any, Any], Any]) -> Any:
    """The elements of `x` that a mask selects, of any number; None if it is 0."""
    trace, count = innermost([x, mask]), np.sum(mask)
    if not bool(count > 0):
        return None
    mask = mask._detached()  # a copy: the mask may be written to
    selection = Selection(trace, mask, count._as_pythons())
    rows = np.reshape(x, (mask.size, *x.shape[mask.ndim :]))
    first = np.take(rows, np.argmax(mask), axis=0, mode="clip")
    whole = np.where(selection.over(x), x, stop_gradient(first))
    kind: Any = Selected
    return kind(selection, whole, taken)


class Selected(Answering):
    """The elements of an array that a mask selects. In `whole`, the others are replaced by the
    first selected one; `taken` makes an array of the selected ones."""

    __slots__ = ("_selection", "_taken", "_whole")

    def __init__(self, selection: Selection, whole: Any, taken: Callable[[Any, Any], Any]) -> None:
        self._selection, self._whole, self._taken = selection, whole, taken
        self._found: Any = None

    _home = property(lambda self: self._selection.trace)

    def _make(self) -> Any:
        return self._taken(self._whole, self._selection.mask)

    @property
    def _serves(self) -> bool:
        """Whether the array wasn't made yet. Once it is, it could be written to."""
        home: Trace = self._home
        return self._found is None and current_trace() is home and not watched(home)

    @staticmethod
    def _by_operator(f: Callable[..., Any], xs: Sequence[Any]) -> Any:
        return each(f, xs)

    @staticmethod
    def _by_ufunc(f: np.ufunc, xs: Sequence[Any]) -> Any:
        if f is np.matmul:
            return _product(*xs)
        return each(f, xs) if f.nout == 1 and f.signature is None else None

    @staticmethod
    def _by_function(f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        given = args if f in _OF_SEVERAL else args[:1]
        if not any(_is_selected(x) for x in given):
            return None
        return answered_by(FUNCTIONS, f, args, kwargs)

    dtype = property(lambda self: self._whole.dtype)
    ndim = property(lambda self: 1 + self._inner)
    shape = property(
        lambda self: self._made().shape if asks_itself() else self._shape(), Answering.shape.fset
    )
    size = property(lambda self: self._made().size if asks_itself() else _size(self))

    @property
    def _inner(self) -> int:
        """The number of axes of an element."""
        axes: int = self._whole.ndim - self._selection.mask.ndim
        return axes

    @unobserved
    def _shape(self) -> tuple[Any, ...]:
        if not self._serves:
            found: tuple[Any, ...] = self._made().shape
            return found
        return (self._selection.count, *self._whole.shape[self._selection.mask.ndim :])

    def _with(self, whole: Any) -> Selected:
        """The same selection of another array."""
        kind: Any = Selected
        found: Selected = kind(self._selection, whole, self._taken)
        return found

    @unobserved
    def __getitem__(self, index: Any) -> Any:
        if _is_mask(index) and not index._inner and index._selection.is_like(self._selection):
            mask = np.where(self._selection.mask, index._whole, False)
            found = select(self._whole, mask, self._taken)
            return self._taken(self._whole, mask) if found is None else found
        found = self._element(index) if self._serves else None
        return super().__getitem__(index) if found is None else found

    def _ranks(self) -> Any:
        """The number of selected elements before each."""
        return np.cumsum(self._selection.mask) - 1

    @unobserved
    def _where(self, k: Any) -> Any:
        """The position in `whole` of the selected element number `k`, a Python integer or a traced
        one; None if there is no such element."""
        traced = isinstance(k, Tracer) and k._weak and k.dtype.kind == "i"
        if self._inner or not (traced or (type(k) is int and abs(k) < 2**31)):
            return None
        count = self._selection.count
        if traced:
            at = np.where(k < 0, k + count, k)
            is_there = bool((at >= 0) & (at < count))
        else:
            at = k if k >= 0 else count + k
            is_there = k in (0, -1) or bool(count > k if k >= 0 else count >= -k)
        return np.argmax(self._ranks() == at) if is_there else None

    def _element(self, k: Any) -> Any:
        """The selected element number `k`; None if there is none."""
        at = self._where(k)
        return None if at is None else np.reshape(self._whole, -1)[at]

    def _in_front(self, f: Callable[[Any], Any], fewer: int = 0) -> Any:
        """`f` of the selected elements moved to the front, with arbitrary ones behind them. The
        result has as many elements, minus `fewer`."""
        mask = self._selection.mask
        places = np.searchsorted(np.cumsum(mask), np.arange(1, mask.size + 1))
        found = f(np.reshape(self._whole, -1)[np.minimum(places, mask.size - 1)])
        return selected(found, np.arange(len(found)) < self._selection.count - fewer, self._taken)

    def _sorted(self) -> Any:
        """The selected elements in ascending order; None if NaN is among them."""
        if (
            self._inner
            or self.dtype.kind not in "fi"
            or (self.dtype.kind == "f" and bool(np.any(np.isnan(self._whole))))
        ):
            return None
        rest = np.where(self._selection.mask, self._whole, _most(self.dtype))
        found = np.sort(np.reshape(rest, -1), kind="stable")
        return selected(found, np.arange(found.size) < self._selection.count, self._taken)

    @unobserved
    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        if self._serves and not args and not kwargs:
            return self._with(self._whole.astype(dtype))
        return super().astype(dtype, *args, **kwargs)

    @unobserved
    def copy(self, *args: Any) -> Any:
        return self._with(self._whole) if self._serves and not args else super().copy(*args)


def _is_selected(x: Any) -> bool:
    return type(x) is Selected and x._serves


def _is_mask(x: Any) -> bool:
    return _is_selected(x) and x.dtype == np.bool_


def _in_place(name: str) -> Callable[..., Any]:
    run, plain = getattr(operator, f"__{name}__"), getattr(Answering, f"__i{name}__")

    def applied(self: Any, other: Any) -> Any:
        found = each(run, [self, other])
        same = found is not None and found.dtype == self.dtype
        if not same or found._whole.shape != self._whole.shape:
            return plain(self, other)
        self._whole = found._whole
        return self

    applied.__name__ = applied.__qualname__ = f"__i{name}__"
    return unobserved(applied)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Selected, f"__i{_name}__", _in_place(_name))


# ---- elementwise


def each(f: Callable[..., Any], xs: Sequence[Any]) -> Any:
    """The elementwise function `f` of selections by like masks; None if it needs arrays."""
    first = next((x for x in xs if _is_selected(x)), None)
    if first is None:
        return None
    given = []
    for x in xs:
        if _is_selected(x):
            if x._inner != first._inner or not x._selection.is_like(first._selection):
                return None
            given.append(x._whole)
        elif _is_plain(x) and np.ndim(x) <= first._inner:
            given.append(x)
        else:
            return None
    return first._with(f(*given))


def _is_plain(x: Any) -> bool:
    """Whether `x` is a number or a full array."""
    if isinstance(x, Tracer):
        return not isinstance(x, Answering)
    return isinstance(x, (bool, int, float, np.generic, np.ndarray))


def _product(x: Any, y: Any) -> Any:
    """The matrix product; None if it needs arrays."""
    if _is_selected(x) and _is_selected(y):
        both = not x._inner and not y._inner
        return _sum(each(np.multiply, [x, y])) if both else None
    if _is_selected(x) and x._inner == 1 and _is_plain(y) and np.ndim(y) in (1, 2):
        return x._with(np.matmul(x._whole, y))
    return None


# ---- reductions

Neutral = Callable[[np.dtype[Any]], Any]


def _reduced(f: Callable[..., Any], neutral: Neutral) -> Callable[..., Any]:
    """NumPy's reduction `f` over any axes; `neutral` returns its neutral element for a dtype."""

    def reduce(x: Any, axis: Any = None) -> Any:
        axes = axes_of(x.ndim, axis)
        if axes is None:
            return None
        masked = x._selection.mask.ndim
        inside = tuple(masked + a - 1 for a in axes if a)
        if 0 not in axes:
            return x._with(f(x._whole, axis=inside))
        rest = np.where(x._selection.over(x._whole), x._whole, neutral(x.dtype))
        return f(rest, axis=(*range(masked), *inside))

    return reduce


def _zero(dtype: np.dtype[Any]) -> Any:
    return dtype.type(0)


def _one(dtype: np.dtype[Any]) -> Any:
    return dtype.type(1)


def _least(dtype: np.dtype[Any]) -> Any:
    return dtype.type({"f": -np.inf, "b": False}.get(dtype.kind) or np.iinfo(dtype).min)


def _most(dtype: np.dtype[Any]) -> Any:
    return dtype.type({"f": np.inf, "b": True}.get(dtype.kind) or np.iinfo(dtype).max)


_sum = _reduced(np.sum, _zero)


def _mean(x: Any, axis: Any = None, ddof: int = 0) -> Any:
    if x is None or x.dtype == np.float16:
        return None
    x = x._with(x._whole.astype(np.float64)) if x.dtype.kind != "f" else x
    total, axes = _sum(x, axis), axes_of(x.ndim, axis)
    if total is None or 0 not in axes:
        return None if total is None else _reduced(np.mean, _zero)(x, axis)
    shape = x._shape()
    number: Any = shape[0]
    for a in axes:
        number = number * shape[a] if a else number
    number = number - ddof
    return total / number if not ddof or bool(number > 0) else None


def _var(x: Any, axis: Any = None, ddof: int = 0) -> Any:
    if (axis not in (None, 0) or x._inner) or type(ddof) is not int:
        return None
    centre = _mean(x)
    return None if centre is None else _mean(each(_square_of_difference, [x, centre]), None, ddof)


def _square_of_difference(x: Any, y: Any) -> Any:
    return (x - y) ** 2


def _std(x: Any, axis: Any = None, ddof: int = 0) -> Any:
    found = _var(x, axis, ddof)
    return None if found is None else np.sqrt(found)


def _norm(x: Any) -> Any:
    return None if x._inner or x.dtype.kind != "f" else np.sqrt(_sum(each(_square, [x])))


def _square(x: Any) -> Any:
    return x**2


def _along(f: Callable[..., Any], neutral: Neutral) -> Callable[..., Any]:
    """NumPy's `f`, which accumulates elements in order."""

    def accumulated(x: Any, axis: Any = None) -> Any:
        if axis not in (None, 0, -1) or x._inner or x.dtype.kind != "f":
            return None
        rest = np.where(x._selection.mask, x._whole, neutral(x.dtype))
        return selected(np.reshape(f(rest), x._selection.mask.shape), x._selection.mask, x._taken)

    return accumulated


def _diff(x: Any) -> Any:
    return None if x._inner or x.dtype.kind != "f" else x._in_front(np.diff, fewer=1)


def _sort(x: Any) -> Any:
    return x._sorted()


def _quantile(x: Any, q: Any) -> Any:
    """An interpolation between two of the sorted elements."""
    ordered = x._sorted() if x.dtype == np.float64 and type(q) in (int, float) else None
    if ordered is None or not 0 <= q <= 1:
        return None
    at = (x._selection.count - 1) * float(q)
    below = np.floor(at)
    share, k = at - below, below.astype(np.int64)
    lower, upper = ordered._whole[k], ordered._whole[np.minimum(k + 1, x._selection.count - 1)]
    return lower + (upper - lower) * share


def _percentile(x: Any, q: Any) -> Any:
    return _quantile(x, q / 100) if type(q) in (int, float) else None


def _count_nonzero(x: Any) -> Any:
    return np.count_nonzero(np.where(x._selection.over(x._whole), x._whole, _zero(x.dtype)))


def _size(x: Any) -> Any:
    number, *others = x._shape()
    return number * int(np.prod(others, dtype=int)) if others else number


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _sum,
    np.prod: _reduced(np.prod, _one),
    np.max: _reduced(np.max, _least),
    np.min: _reduced(np.min, _most),
    np.count_nonzero: _count_nonzero,
    np.any: _reduced(np.any, _zero),
    np.all: _reduced(np.all, _one),
    np.mean: lambda x, axis=None: _mean(x, axis),
    np.var: _var,
    np.std: _std,
    np.linalg.norm: _norm,
    np.cumsum: _along(np.cumsum, _zero),
    np.cumprod: _along(np.cumprod, _one),
    np.diff: _diff,
    np.sort: _sort,
    np.median: lambda x: _quantile(x, 0.5),
    np.quantile: _quantile,
    np.percentile: _percentile,
    np.where: lambda *xs: each(np.where, xs) if len(xs) == 3 else None,
    np.clip: lambda *xs: each(np.clip, xs) if len(xs) == 3 else None,
    np.dot: lambda x, y: _product(x, y),
    np.shape: lambda x: x._shape(),
    np.size: _size,
    np.ndim: lambda x: x.ndim,
}
FUNCTIONS[np.amax], FUNCTIONS[np.amin] = FUNCTIONS[np.max], FUNCTIONS[np.min]
_OF_SEVERAL = (np.where, np.clip, np.dot)


# ---- writing


def put_selected(x: Any, index: Any, value: Any) -> bool:
    """Do `x[index] = value` if the same mask has selected the elements of `value`. Returns whether
    it was done."""
    if not _is_selected(value) or value._inner or value.dtype != x.dtype:
        return False
    mask = value._selection.mask
    if not isinstance(index, Tracer) or index.dtype != np.bool_ or index.shape != x.shape:
        return False
    if not Selection(value._trace, index, None).is_like(value._selection):
        return False
    x[...] = np.where(mask, value._whole, x)
    return True
