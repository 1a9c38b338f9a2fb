"""Rewrites of elementwise calls.

Each keeps the bits of every result. So `x * a * b` doesn't become `x * (a * b)` if only one of the
orders may over- or underflow on the way, even if a or b is a power of two.

Names: `c` a literal; `s` the simplifier.
"""

from __future__ import annotations

import math
from typing import Any

from tapegrad.ir.tape import Literal, Operand, literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import kinked
from tapegrad.primitives.base import broadcast_shapes
from tapegrad.primitives.views import BroadcastTo, ExpandDims, Place, Reshape


def _is(x: Operand, value: float) -> bool:
    """Whether `x` is the literal `value`, the sign of a zero included."""
    if not isinstance(x, Literal) or x.open or x.value != value:
        return False
    return value != 0 or math.copysign(1, float(x.value)) == math.copysign(1, value)


def _is_float(x: Operand) -> bool:
    return x.dtype.kind == "f"


def _minus(x: Literal) -> Literal:
    value: Any = x.value
    return Literal(-value, x.open)


# ---- shapes


def small(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """Leave out broadcasts, or do them after the operation:

    op(broadcast_to(x), y)                -->  op(x, y), if it has the same shape anyway
    op(broadcast_to(x), broadcast_to(y))  -->  broadcast_to(op(x, y)), if that is less work
    """
    bare = [_bare(s, x) for x in xs]
    if bare == list(xs):
        return None
    least = broadcast_shapes(*[x.shape for x in bare])
    if least == () or math.prod(least) < math.prod(shape):
        return s.make(p, *bare)
    for k, x in enumerate(xs):  # from the left, drop as many broadcasts as the shape allows
        trial = [*bare[: k + 1], *xs[k + 1 :]]
        if broadcast_shapes(*[t.shape for t in trial]) != shape:
            bare[k] = x
    return None if bare == list(xs) else s.make(p, *bare)


def _bare(s: Any, x: Operand) -> Operand:
    """The operand of a broadcast `x`. Leading new axes count too, since broadcasting adds them
    anyway."""
    call = s.made_by(x, (BroadcastTo, ExpandDims))
    if call is None:
        return x
    p = call.primitive
    if isinstance(p, ExpandDims) and p.axes != tuple(range(len(p.axes))):
        return x
    return call.operands[0]


# ---- arithmetic


def _add(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    x, y = xs
    if _is(y, -0.0):  # x + -0.0 --> x
        return x
    if _is(x, -0.0):
        return y
    if x.dtype.kind in "iu" and (_is(x, 0) or _is(y, 0)):  # integers have no -0
        return y if _is(x, 0) else x
    if negated := s.made_by(y, ew.neg):  # x + -y --> x - y
        return s.make(ew.sub, x, *negated.operands)
    if negated := s.made_by(x, ew.neg):  # -x + y --> y - x
        return s.make(ew.sub, y, *negated.operands)
    left, right = [s.made_by(z, (Reshape, Place)) for z in xs]
    if left and right and left.primitive == right.primitive:
        (x,), (y,) = left.operands, right.operands
        if x.shape == y.shape:  # reshape(x) + reshape(y) --> reshape(x + y)
            return s.make(left.primitive, s.make(ew.add, x, y))
    return None


def _sub(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    x, y = xs
    if _is(y, 0.0):  # x - 0.0 --> x
        return x
    if negated := s.made_by(y, ew.neg):  # x - -y --> x + y
        return s.make(ew.add, x, *negated.operands)
    return None


def _mul(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    x, y = xs
    if _is(x, 1):  # 1 * y --> y
        return y
    if _is(y, 1):
        return x
    left, right = s.made_by(x, ew.neg), s.made_by(y, ew.neg)
    if left and right:  # -x * -y --> x * y
        return s.make(ew.mul, *left.operands, *right.operands)
    if x == y and x.dtype.kind != "b":  # x * x --> square(x)
        return s.make(ew.square, x)
    if not _is_float(x):
        return None
    if isinstance(x, Literal):
        x, y, left = y, x, right
    if not isinstance(y, Literal):
        return _negation_outward(s, p, xs, shape)
    if _is(y, -1):  # x * -1 --> -x
        return s.make(ew.neg, x)
    if left:  # -x * c --> x * -c
        return s.make(ew.mul, *left.operands, _minus(y))
    return _scaled_up_twice(s, x, y)


def _negation_outward(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """-x * y --> -(x * y), if x has the shape of the result. Outside it may meet another negation
    or a sum."""
    for k, x in enumerate(xs):
        negated = s.made_by(x, ew.neg)
        if negated and x.shape == shape and x.dtype.kind == "f" and s.alone(x):
            rest = [*xs[:k], *negated.operands, *xs[k + 1 :]]
            return s.make(ew.neg, s.make(p, *rest))
    return None


def _scaled_up_twice(s: Any, x: Operand, b: Literal) -> Operand | None:
    """(x * a) * b --> x * (a * b), where a is a power of two and neither is below 1: x * a is
    exact, or infinite as the result is."""
    call = s.made_by(x, ew.mul)
    if call is None:
        return None
    base, a = call.operands if isinstance(call.operands[1], Literal) else call.operands[::-1]
    if not isinstance(a, Literal) or a.open or b.open or not _is_power_of_two(a):
        return None
    sizes = abs(float(a.value)), abs(float(b.value))
    if not all(1 <= size < 1e15 for size in sizes):
        return None
    return s.make(ew.mul, base, literal(float(a.value) * float(b.value), b.dtype))


def _is_power_of_two(x: Literal) -> bool:
    return abs(math.frexp(float(x.value))[0]) == 0.5


def _div(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    x, y = xs
    if _is(y, 1):  # x / 1 --> x
        return x
    return _negation_outward(s, p, xs, shape)


def _neg(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    (x,) = xs
    if negated := s.made_by(x, ew.neg):  # -(-x) --> x
        return negated.operands[0]
    product = s.made_by(x, ew.mul)
    if product and _is_float(x):  # -(x * c) --> x * -c
        a, b = product.operands
        if isinstance(b, Literal):
            return s.make(ew.mul, a, _minus(b))
        if isinstance(a, Literal):
            return s.make(ew.mul, b, _minus(a))
    return None


def _square(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """square(f(x)) --> square(x), if f changes the sign only."""
    for kind in (kinked.absolute, ew.neg, kinked.copysign):  # square(abs(x)) --> square(x)
        call = s.made_by(xs[0], kind)
        if call and _is_float(xs[0]) and call.operands[0].shape == xs[0].shape:
            return s.make(ew.square, call.operands[0])
    return None


def _power(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    x, y = xs
    if not _is_float(x):
        return None
    if isinstance(y, Literal) and not y.open and y.value == 0:  # x ** 0 --> 1, for NaN too
        return literal(1, x.dtype)
    if _is(y, 2):  # x ** 2 --> square(x)
        return s.make(ew.square, x)
    if _is(y, 0.5):  # x ** 0.5 --> root(x), or sqrt(x) if one exponent is for all elements
        return s.make(ew.root if p is ew.power else ew.sqrt, x)
    return x if _is(y, 1) else None  # x ** 1 --> x


# ---- choices, casts and copies


def _and(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    return _decided(xs, by=False)


def _or(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    return _decided(xs, by=True)


def _decided(xs: Any, by: bool) -> Operand | None:
    """x and False --> False; x and True --> x, for Booleans; `or` with `by=True` likewise."""
    if any(x.dtype.kind != "b" for x in xs):
        return None
    for x, y in (xs, xs[::-1]):
        if isinstance(y, Literal):
            return y if bool(y.value) is by else x
    return None


def _where(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    condition, x, y = xs
    if isinstance(condition, Literal):  # where(True, x, y) --> x
        return x if condition.value else y
    if x == y:  # where(c, x, x) --> x
        return x
    inner = s.made_by(x, ew.where)
    if inner and inner.operands[0] == condition:  # where(c, where(c, x, _), y) --> where(c, x, y)
        return s.make(p, condition, inner.operands[1], y)
    inner = s.made_by(y, ew.where)
    if inner and inner.operands[0] == condition:  # where(c, x, where(c, _, y)) --> where(c, x, y)
        return s.make(p, condition, x, inner.operands[2])
    return None


def _copy(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    return xs[0]  # values don't change, so a copy is the value itself


def _astype(s: Any, p: Any, xs: Any, shape: Any) -> Operand | None:
    """astype(x, the dtype of x) --> x"""
    (x,) = xs
    return x if x.dtype == p.dtype else None


MOVES = (ew.where, ew.copy)  # they don't change any number

REWRITES: dict[Any, Any] = {
    ew.add: _add,
    ew.sub: _sub,
    ew.mul: _mul,
    ew.div: _div,
    ew.neg: _neg,
    ew.square: _square,
    ew.power: _power,
    ew.power_of_all: _power,
    ew.logical_and: _and,
    ew.logical_or: _or,
    ew.where: _where,
    ew.copy: _copy,
    ew.AsType: _astype,
}
