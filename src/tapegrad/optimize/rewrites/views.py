"""Rewrites of views, writes and reductions; mostly of axes of extent 1 that are added or removed.

Names: `x` the operand, `y` the written value; `shape` the result's; `s` the simplifier.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegrad.core.values import Length
from tapegrad.ir.tape import Literal, Operand, literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Slice
from tapegrad.primitives.kinds import StaticIndex
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.scatter import Concatenate, SetItem, Stack
from tapegrad.primitives.views import (
    BroadcastTo,
    ExpandDims,
    GetItem,
    Place,
    Reshape,
    Squeeze,
    Transpose,
)

_RESHAPING = (Reshape, ExpandDims, Squeeze)
_DEPTH = 100  # the most writes that a read is compared with: unrolled loops make long chains


def of_scalar(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """expand_dims(c), squeeze(broadcast_to(c)), ... --> broadcast_to(c), for a scalar c."""
    x = xs[0]  # a window's other operands are steps
    if shape == x.shape == ():
        return x
    call = s.made_by(x, BroadcastTo)
    c = call.operands[0] if call else x
    if c.shape != () or (isinstance(p, BroadcastTo) and c is x):
        return None
    return c if shape == () else s.make(BroadcastTo(shape), c)


# ---- axes that come and go


def _transpose(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    (x,) = xs
    if p.axes == tuple(range(len(p.axes))):
        return x
    if inner := s.made_by(x, Transpose):  # transpose twice --> once
        return s.make(Transpose(tuple(inner.primitive.axes[a] for a in p.axes)), *inner.operands)
    wide = [a for a in p.axes if x.shape[a] != 1]
    if wide == sorted(wide):
        return _reshaped(s, p, x, shape)
    return _joined_later(s, p, x, shape)


def _joined_later(s: Any, p: Any, x: Operand, shape: Any) -> Operand | None:
    """transpose(reshape(f(y))) --> reshape(transpose(f(y))), where the reshape joins axes: then f
    writes its elements in the order of the result."""
    call = s.made_by(x, Reshape)
    if call is None or not s.alone(x):
        return None
    (y,) = call.operands
    made = s.made.get(y) if s.alone(y) else None
    if made is None or not made.primitive.pointwise:
        return None
    parts: list[list[int]] = []
    axis = 0
    for n in x.shape:
        parts.append([])
        while axis < len(y.shape) and math.prod(y.shape[a] for a in parts[-1]) != n:
            parts[-1].append(axis)
            axis += 1
        if math.prod(y.shape[a] for a in parts[-1]) != n:
            return None
    if axis < len(y.shape):
        return None
    order = [a for k in p.axes for a in parts[k]]
    return s.make(Reshape(shape), s.make(Transpose(tuple(order)), y))


def _reshape(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    return _reshaped(s, p, xs[0], shape)


def _reshaped(s: Any, p: Any, x: Operand, shape: Any) -> Operand | None:
    """A chain of reshape, expand_dims and squeeze, and of transposes that move unit axes only, as a
    single one of them, if possible."""
    base, through_reshape = x, isinstance(p, Reshape)
    while call := s.made_by(base, _RESHAPING):
        (base,) = call.operands
        through_reshape |= isinstance(call.primitive, Reshape)
    if base.shape == shape:
        return base
    new = _unit_axes(base.shape, shape) or (Reshape(shape) if through_reshape else None)
    return None if new is None or (new == p and base == x) else s.make(new, base)


def _unit_axes(old: tuple[int, ...], new: tuple[int, ...]) -> ExpandDims | Squeeze | None:
    """The view that only adds or only removes axes of extent 1, if it leads from `old` to `new`."""
    if len(new) > len(old):
        axes = _inserted(old, new)
        return None if axes is None else ExpandDims(axes)
    axes = _inserted(new, old)
    return None if axes is None else Squeeze(axes)


def _inserted(few: tuple[int, ...], many: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of `many` that `few` lacks, if they are of extent 1 and nothing else differs."""
    axes, matched = [], 0
    for axis, extent in enumerate(many):
        if matched < len(few) and few[matched] == extent:
            matched += 1
        elif extent == 1:
            axes.append(axis)
        else:
            return None
    return tuple(axes) if matched == len(few) else None


def _broadcast(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    (x,) = xs
    if x.shape == shape:
        return x
    if inner := s.made_by(x, BroadcastTo):  # broadcast twice --> once
        return s.make(p, *inner.operands)
    inner = s.made_by(x, ExpandDims)
    if inner and inner.primitive.axes == tuple(range(len(inner.primitive.axes))):
        return s.make(p, *inner.operands)  # broadcasting adds leading axes itself
    extra = len(shape) - len(x.shape)
    if x.shape and shape == (1,) * extra + x.shape:
        return s.make(ExpandDims(tuple(range(extra))), x)
    return None


# ---- indices


def _full(k: int | Slice, extent: int) -> bool:
    """Whether an entry of an index takes the whole axis in order."""
    if not isinstance(k, Slice) or k.count != extent:
        return False
    return extent == 0 or (k.start == 0 and (k.step == 1 or extent == 1))


def _whole(index: StaticIndex, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The unit axes that an index drops, if it takes every element in order; otherwise None."""
    taken = [
        _full(k, n) or (isinstance(k, int) and n == 1) for k, n in zip(index, shape, strict=True)
    ]
    return tuple(a for a, k in enumerate(index) if isinstance(k, int)) if all(taken) else None


def _ends(k: int | Slice) -> tuple[int, int]:
    """The least and the greatest position that an entry of an index takes."""
    if isinstance(k, int):
        return k, k
    last = k.start + (k.count - 1) * k.step
    return min(k.start, last), max(k.start, last)


def _is_empty(index: StaticIndex) -> bool:
    return any(isinstance(k, Slice) and k.count == 0 for k in index)


def _disjoint(first: StaticIndex, second: StaticIndex) -> bool:
    """Whether two indices take no element in common, because their ranges along some axis don't
    overlap."""
    for j, k in zip(first, second, strict=True):
        if type(j) is int and type(k) is int:
            if j != k:
                return True
            continue
        (low, high), (begin, end) = _ends(j), _ends(k)
        if high < begin or end < low:
            return True
    return _is_empty(first) or _is_empty(second)


def _getitem(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    (x,) = xs
    dropped = _whole(p.index, x.shape)
    if dropped is not None:  # x[:] --> x, x[0] of one element --> squeeze(x)
        return s.make(Squeeze(dropped), x) if dropped else x
    if inner := s.made_by(x, GetItem):  # x[a][b] --> x[c]
        return s.make(GetItem(_composed(inner.primitive.index, p.index)), *inner.operands)
    if (inner := s.made_by(x, Stack)) and (found := _of_stack(s, p, x, inner)):
        return found
    return _read_back(s, p, x)


def _of_stack(s: Any, p: Any, x: Operand, stack: Any) -> Operand | None:
    """stack(a, b, axis=1)[k, j] --> stack(a[k], b[k], axis=1)[:, j], if a and b are parts of
    arrays. So if only some windows of an array are read, the others get no cotangents."""
    at, xs = stack.primitive.axis, stack.operands
    if not s.alone(x) or any(y.dtype != x.dtype or not s.made_by(y, GetItem) for y in xs):
        return None
    rest = (*p.index[:at], *p.index[at + 1 :])
    if all(map(_full, rest, xs[0].shape)):
        return None
    axis = at - sum(isinstance(k, int) for k in p.index[:at])
    parts = s.make(Stack(axis), *[s.make(GetItem(rest), y) for y in xs])
    own = [Slice(0, n, 1) for n in parts.shape]
    return s.make(GetItem((*own[:axis], p.index[at], *own[axis + 1 :])), parts)


def _composed(first: StaticIndex, second: StaticIndex) -> StaticIndex:
    rest = iter(second)
    merged: list[int | Slice] = []
    for k in first:
        if isinstance(k, int):
            merged.append(k)
            continue
        then = next(rest)
        if isinstance(then, int):
            merged.append(k.start + then * k.step)
        else:
            merged.append(Slice(k.start + then.start * k.step, then.count, k.step * then.step))
    return tuple(merged)


def _read_back(s: Any, p: Any, x: Operand) -> Operand | None:
    """Read the value that was written at an index:

    setitem(x, y, k)[k]    -->  y
    setitem(x, y, j)[k]    -->  x[k], if j and k are disjoint
    place(y, k)[k]         -->  y
    concatenate(x, y)[k]   -->  x[k], if k lies in x
    """
    start = x
    for _ in range(_DEPTH):
        call = s.made.get(x)
        if call is None or not isinstance(call.primitive, SetItem):
            break
        below, written = call.operands
        if call.primitive.index == p.index and written.dtype == x.dtype:
            return written
        if not _disjoint(call.primitive.index, p.index):
            break
        x = below
    else:
        return None
    if call := s.made_by(x, Place):
        if call.primitive.index == p.index:
            return call.operands[0]
        if _disjoint(call.primitive.index, p.index):
            return literal(0, x.dtype)
    if (call := s.made_by(x, Concatenate)) and not _is_empty(p.index):
        at = call.primitive.axis
        k = p.index[at]
        low, high = _ends(k)
        for piece, place in zip(call.operands, call.primitive.boxes(*call.operands), strict=True):
            begin, end = _ends(place[at])
            if not _is_empty(place) and begin <= low and high <= end:
                moved = k - begin if isinstance(k, int) else Slice(k.start - begin, k.count, k.step)
                return s.make(GetItem((*p.index[:at], moved, *p.index[at + 1 :])), piece)
    return None if x is start else s.make(p, x)


def _setitem(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    x, y = xs
    if y.dtype != x.dtype:
        return None
    dropped = _whole(p.index, x.shape)
    if dropped is not None:  # x[:] = y --> y
        return s.make(ExpandDims(dropped), y) if dropped else y
    inner = s.made_by(x, SetItem)
    if inner and inner.primitive.index == p.index:  # overwritten at once
        return s.make(p, inner.operands[0], y)
    return None


def _place(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    (y,) = xs
    dropped = _whole(p.index, shape)
    if dropped is not None:
        return s.make(ExpandDims(dropped), y) if dropped else y
    if y.shape == shape and not any(isinstance(k, int) for k in p.index):
        return s.make(GetItem(p.index), y)  # it fills the result: the index only reverses axes
    return None


# ---- reductions


def of_one(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """max(x), ... --> squeeze(x), over axes of one element each."""
    (x,) = xs
    if any(x.shape[a] != 1 for a in p.axes) or p.aval(x.aval).dtype != x.dtype:
        return None
    return s.make(Squeeze(p.axes), x) if p.axes else x


def _sum(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """sum(x) --> squeeze(x) + 0.0, over axes of one element each. A sum starts at 0.0, so -0.0
    becomes 0.0."""
    one = of_one(s, p, xs, shape)
    if one is None:
        return _sum_of_equal(s, p, xs[0], shape)
    if one.dtype.kind not in "fc":
        return one
    return s.make(ew.add, one, Literal(one.dtype.type(0)))


def _sum_of_equal(s: Any, p: Any, x: Operand, shape: Any) -> Operand | None:
    """sum(broadcast_to(c)) --> broadcast_to(n * c), for a whole number c, so that nothing is
    rounded."""
    call = s.made_by(x, BroadcastTo)
    c = call.operands[0] if call else None
    if not isinstance(c, Literal) or x.dtype.kind != "f" or not float(c.value).is_integer():
        return None
    total = float(c.value) * math.prod([x.shape[a] for a in p.axes])
    if abs(total) > 2 ** np.finfo(x.dtype).nmant or p.aval(x.aval).dtype != x.dtype:
        return None
    open_ = c.open or any(isinstance(x.shape[a], Length) for a in p.axes)
    found = Literal(x.dtype.type(total + 0.0), open_)  # -0.0 becomes 0.0
    return s.make(BroadcastTo(shape), found) if shape else found


REWRITES: dict[type, Any] = {
    Transpose: _transpose,
    Reshape: _reshape,
    ExpandDims: _reshape,
    Squeeze: _reshape,
    BroadcastTo: _broadcast,
    GetItem: _getitem,
    SetItem: _setitem,
    Place: _place,
    Sum: _sum,
}
