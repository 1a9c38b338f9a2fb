"""Algebraic simplification. Each rewrite keeps every value, NaN, infinities and signed zeros too.

What isn't here on purpose: `x * 0 -> 0` (wrong for NaN and infinities), `x + 0.0 -> x` (wrong for
-0.0), `x - x -> 0` (wrong for infinities).

Names: `x`, `y` operands; `made` tells which call defines a variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.ir.tape import Call, Literal, Operand, Rewriter, Tape, Var, literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Elementwise, Primitive, Slice
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.views import (
    BroadcastTo,
    ExpandDims,
    GetItem,
    Index,
    Reshape,
    Squeeze,
    Transpose,
)

# A rewrite returns an operand that has the value already, a call to make instead, or None.
New = Operand | tuple[Primitive, tuple[Operand, ...]] | None
Made = dict[Var, Call]


def simplify(tape: Tape) -> Tape:
    """Apply the rewrites of this file to each call until none applies."""
    rewriter = Rewriter(tape)
    made: Made = {}
    for call in tape.calls:
        primitive, operands = call.primitive, tuple(rewriter.operands(call))
        shape = call.outs[0].shape
        result: Operand | None = None
        for _ in range(20):
            new = _rewrite(primitive, operands, shape, made)
            if new is None:
                break
            if not isinstance(new, tuple):
                result = new
                break
            primitive, operands = new
        if result is not None:
            rewriter.env[call.out] = result
            continue
        outs = rewriter.builder.call(primitive, operands, call.src, call.reason)
        made.update(dict.fromkeys(outs, rewriter.builder.calls[-1]))
        rewriter.env.update(zip(call.outs, outs, strict=True))
    return rewriter.finish()


def _rewrite(p: Primitive, xs: tuple[Operand, ...], shape: tuple[int, ...], made: Made) -> New:
    if isinstance(p, (Elementwise, ew.AsType)):
        new = _unbroadcast(p, xs, shape, made)
        if new is not None:
            return new
    rule = _ELEMENTWISE.get(p) if isinstance(p, Elementwise) else _CLASSES.get(type(p))
    new = rule(p, xs, shape, made) if rule is not None else None
    if new is not None and not isinstance(new, tuple) and new.shape != shape:
        return BroadcastTo(shape), (new,)
    return new


def _made_by(x: Operand, kind: Any, made: Made) -> Call | None:
    """The call that defines `x`, if it is of this primitive or class of primitives."""
    call = made.get(x) if isinstance(x, Var) else None
    if call is None:
        return None
    is_kind = isinstance(call.primitive, kind) if isinstance(kind, type) else call.primitive is kind
    return call if is_kind else None


def _is(x: Operand, value: float) -> bool:
    """Whether `x` is the literal `value`, the sign of a zero included."""
    if not isinstance(x, Literal) or x.value != value:
        return False
    return value != 0 or math.copysign(1, float(x.value)) == math.copysign(1, value)


def _unbroadcast(p: Primitive, xs: tuple[Operand, ...], shape: tuple[int, ...], made: Made) -> New:
    """op(broadcast_to(x), y) --> op(x, y), where y alone gives the result its shape."""
    bare = []
    for x in xs:
        call = _made_by(x, BroadcastTo, made)
        bare.append(x if call is None else call.operands[0])
    if tuple(bare) == xs:
        return None
    for k, x in enumerate(xs):  # as many as the shape allows, from the left
        trial = [*bare[: k + 1], *xs[k + 1 :]]
        if np.broadcast_shapes(*[t.shape for t in trial]) != shape:
            bare[k] = x
    return None if tuple(bare) == xs else (p, tuple(bare))


# ---- arithmetic


def _add(p: Any, xs: Any, shape: Any, made: Made) -> New:
    x, y = xs
    if _is(y, -0.0):  # x + -0.0 --> x
        return x
    if _is(x, -0.0):
        return y
    if negated := _made_by(y, ew.neg, made):  # x + -y --> x - y
        return ew.sub, (x, negated.operands[0])
    if negated := _made_by(x, ew.neg, made):  # -x + y --> y - x
        return ew.sub, (y, negated.operands[0])
    if x.dtype.kind in "iu" and (_is(x, 0) or _is(y, 0)):  # integers have no -0
        return y if _is(x, 0) else x
    return None


def _sub(p: Any, xs: Any, shape: Any, made: Made) -> New:
    x, y = xs
    if _is(y, 0.0):  # x - 0.0 --> x
        return x
    if negated := _made_by(y, ew.neg, made):  # x - -y --> x + y
        return ew.add, (x, negated.operands[0])
    return None


def _mul(p: Any, xs: Any, shape: Any, made: Made) -> New:
    x, y = xs
    if _is(x, 1):  # 1 * y --> y
        return y
    if _is(y, 1):
        return x
    if x.dtype.kind == "f" and (_is(x, -1) or _is(y, -1)):  # -1 * y --> -y
        return ew.neg, (y if _is(x, -1) else x,)
    left, right = _made_by(x, ew.neg, made), _made_by(y, ew.neg, made)
    if left and right:  # -x * -y --> x * y
        return ew.mul, (left.operands[0], right.operands[0])
    if left and isinstance(y, Literal):  # -x * c --> x * -c
        return ew.mul, (left.operands[0], Literal(-y.value))
    if right and isinstance(x, Literal):
        return ew.mul, (right.operands[0], Literal(-x.value))
    return _scale_twice(x, y, made)


def _scale_twice(x: Operand, y: Operand, made: Made) -> New:
    """(x * a) * b --> x * (a * b), where the product of the constants is exact."""
    if isinstance(x, Literal):
        x, y = y, x
    call = _made_by(x, ew.mul, made)
    if call is None or not isinstance(y, Literal) or y.dtype.kind != "f":
        return None
    inner = [o for o in call.operands if isinstance(o, Literal)]
    if len(inner) != 1:
        return None
    a, b = float(inner[0].value), float(y.value)
    powers = [v for v in (a, b) if v and math.isfinite(v) and abs(math.frexp(v)[0]) == 0.5]
    if not powers or not 1e-30 < abs(a * b) < 1e30:
        return None
    (base,) = [o for o in call.operands if o is not inner[0]]
    return ew.mul, (base, literal(a * b, y.dtype))


def _div(p: Any, xs: Any, shape: Any, made: Made) -> New:
    x, y = xs
    if _is(y, 1):  # x / 1 --> x
        return x
    if isinstance(y, Literal) and y.dtype.kind == "f":
        mantissa, exponent = math.frexp(float(y.value))
        if abs(mantissa) == 0.5 and abs(exponent) < 100:  # x / 2**n --> x * 2**-n
            return ew.mul, (x, literal(1 / float(y.value), y.dtype))
    return None


def _neg(p: Any, xs: Any, shape: Any, made: Made) -> New:
    (x,) = xs
    if negated := _made_by(x, ew.neg, made):  # -(-x) --> x
        return negated.operands[0]
    if difference := _made_by(x, ew.mul, made):  # -(x * c) --> x * -c
        a, b = difference.operands
        if isinstance(b, Literal):
            return ew.mul, (a, Literal(-b.value))
        if isinstance(a, Literal):
            return ew.mul, (b, Literal(-a.value))
    return None


def _power(p: Any, xs: Any, shape: Any, made: Made) -> New:
    x, y = xs
    if x.dtype.kind != "f":
        return None
    if _is(y, 2):  # x ** 2 --> x * x
        return ew.square, (x,)
    if _is(y, 1):
        return x
    return None


def _where(p: Any, xs: Any, shape: Any, made: Made) -> New:
    condition, x, y = xs
    if isinstance(condition, Literal):  # where(True, x, y) --> x
        return x if condition.value else y
    return x if x == y else None


def _copy(p: Any, xs: Any, shape: Any, made: Made) -> New:
    return xs[0]  # values don't change, so a copy is the value itself


def _astype(p: Any, xs: Any, shape: Any, made: Made) -> New:
    return xs[0] if xs[0].dtype == p.dtype else None


# ---- views


def _transpose(p: Any, xs: Any, shape: Any, made: Made) -> New:
    if p.axes == tuple(range(len(p.axes))):
        return xs[0]
    if inner := _made_by(xs[0], Transpose, made):  # transpose twice --> once
        first: Any = inner.primitive
        return Transpose(tuple(first.axes[a] for a in p.axes)), inner.operands
    return None


def _reshape(p: Any, xs: Any, shape: Any, made: Made) -> New:
    (x,) = xs
    if x.shape == p.shape:
        return x
    for kind in (Reshape, ExpandDims, Squeeze):  # reshape twice --> once
        if inner := _made_by(x, kind, made):
            return p, inner.operands
    return _unit_axes(x, p.shape)


def _unit_axes(x: Operand, shape: tuple[int, ...]) -> New:
    """A reshape that only adds or removes axes of extent 1 is an index map."""
    if [n for n in x.shape if n != 1] != [n for n in shape if n != 1]:
        return None
    if 1 not in shape:
        return Squeeze(tuple(a for a, n in enumerate(x.shape) if n == 1)), (x,)
    if 1 not in x.shape:
        return ExpandDims(tuple(a for a, n in enumerate(shape) if n == 1)), (x,)
    return None


def _broadcast(p: Any, xs: Any, shape: Any, made: Made) -> New:
    if xs[0].shape == p.shape:
        return xs[0]
    if inner := _made_by(xs[0], BroadcastTo, made):
        return p, inner.operands
    return None


def _expand_dims(p: Any, xs: Any, shape: Any, made: Made) -> New:
    inner = _made_by(xs[0], Squeeze, made)
    if inner is not None and inner.operands[0].shape == shape:  # expand(squeeze(x)) --> x
        return inner.operands[0]
    return None


def _squeeze(p: Any, xs: Any, shape: Any, made: Made) -> New:
    inner = _made_by(xs[0], ExpandDims, made)
    if inner is not None and inner.operands[0].shape == shape:  # squeeze(expand(x)) --> x
        return inner.operands[0]
    return None


def _getitem(p: Any, xs: Any, shape: Any, made: Made) -> New:
    (x,) = xs
    if all(k == Slice(0, n) for k, n in zip(p.index, x.shape, strict=True)):  # x[:] --> x
        return x
    if inner := _made_by(x, GetItem, made):  # x[a][b] --> x[c]
        first: Any = inner.primitive
        return GetItem(_composed(first.index, p.index)), inner.operands
    return None


def _composed(first: Index, second: Index) -> Index:
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


def _sum(p: Any, xs: Any, shape: Any, made: Made) -> New:
    if not p.axes:
        return xs[0]
    if all(xs[0].shape[a] == 1 for a in p.axes):  # a sum of single elements
        return Squeeze(p.axes), xs
    return None


_ELEMENTWISE: dict[Elementwise, Callable[..., New]] = {
    ew.add: _add,
    ew.sub: _sub,
    ew.mul: _mul,
    ew.div: _div,
    ew.neg: _neg,
    ew.power: _power,
    ew.where: _where,
    ew.copy: _copy,
}

_CLASSES: dict[type, Callable[..., New]] = {
    ew.AsType: _astype,
    Transpose: _transpose,
    Reshape: _reshape,
    BroadcastTo: _broadcast,
    ExpandDims: _expand_dims,
    Squeeze: _squeeze,
    GetItem: _getitem,
    Sum: _sum,
}


def drop_stops(tape: Tape) -> Tape:
    """stop_gradient(x) --> x: once differentiated, nothing is left to stop."""
    rewriter = Rewriter(tape)
    for call in tape.calls:
        if call.primitive is ew.stop_gradient:
            rewriter.env[call.out] = rewriter.operand(call.operands[0])
        else:
            rewriter.copy(call)
    return rewriter.finish()
