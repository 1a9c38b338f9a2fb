"""Products, quotients and powers of series: the recurrences on which all others rest.

    product     y_k = sum over i of x_i z_(k-i)
    quotient    q_k = (x_k - sum over i > 0 of z_i q_(k-i)) / z_0
    power       y' = y (a' log x + a x' / x);  whole powers are products

(A. Griewank and A. Walther, "Evaluating derivatives", 2008, table 13.1.) `expansion` applies
primitives to series: it is that of `taylor`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.differentiate.series import Coefficient, Series
from tapegrad.ir.tape import DECLARED, Literal, Primitive
from tapegrad.primitives.base import Elementwise, Node, total
from tapegrad.primitives.elementwise import isnan, logical_and, where
from tapegrad.primitives.kinds import Bilinear

MOST_FACTORS = 64  # the largest power that is written as a product


def by_recurrence(
    expansion: Any, primitive: Primitive, xs: Sequence[Series], moves: Sequence[bool], start: Node
) -> Series | None:
    """The series of a product, a quotient or a power, with the value `start`; None for other
    primitives."""
    mul, div = DECLARED["mul"], DECLARED["div"]
    if is_product(primitive) and all(moves):
        x, y = xs
        return Series(start, lambda k: _product(expansion, primitive, x, y, k))
    if primitive is div and moves[1]:
        return _quotient(expansion, xs[0], xs[1], start)
    if primitive is DECLARED["square"]:
        return _as(start, expansion.one(mul, xs[0], xs[0]))
    if primitive is DECLARED["reciprocal"]:
        return _as(start, expansion.one(div, _number(expansion, 1, xs[0]), xs[0]))
    if primitive in (DECLARED["power"], DECLARED["power_of_all"]):
        return _power(expansion, xs[0], xs[1], start)
    return None


def is_product(primitive: Primitive) -> bool:
    """Whether the primitive is linear in each of its two operands."""
    return isinstance(primitive, Bilinear) or primitive.algebra.linear == (0, 1)


def over(x: Coefficient, k: int) -> Coefficient:
    """x / k, a derivative of order k divided."""
    return x if x is None or k == 1 else x / k


def _as(start: Node, series: Series) -> Series:
    """The series with the value `start`, as the primitive computes it."""
    return Series(start, series.__getitem__)


def _number(expansion: Any, value: Any, like: Series) -> Series:
    found: Series = expansion.still(like.start.constant(value).operand)
    return found


def _product(expansion: Any, primitive: Primitive, x: Series, y: Series, k: int) -> Coefficient:
    """The sum of x_i y_(k-i)."""
    return total([_term(expansion, primitive, x[i], y[k - i]) for i in range(k + 1)])


def _term(expansion: Any, primitive: Primitive, x: Coefficient, y: Coefficient) -> Coefficient:
    if x is None or y is None:
        return None
    found: Any = primitive(x, y)
    if isinstance(primitive, Elementwise):  # strong zeros are kept (see `masks`)
        for factor in (x, y):
            if expansion.masks.is_masked(factor):
                found = where(logical_and(factor.equals(0), isnan(found)), found.constant(0), found)
    return found


def _quotient(expansion: Any, x: Series, y: Series, start: Node) -> Series:
    """q = x / y: the coefficients of q y = x, solved for q_k."""
    mul, div = DECLARED["mul"], DECLARED["div"]

    def more(k: int) -> Coefficient:
        rest = total([_term(expansion, mul, q[k - i], y[i]) for i in range(1, k + 1)])
        above = x[k]
        if rest is not None:
            above = -rest if above is None else above - rest
        return None if above is None else div(above, y.start)

    q = Series(start, more)
    return q


def _power(expansion: Any, x: Series, a: Series, start: Node) -> Series:
    """x^a. Whole powers are products; otherwise y' = y (a' log x + a x' / x)."""
    exponent = a.start.operand
    if isinstance(exponent, Literal) and not a.moves:
        value: Any = exponent.value
        if abs(value) <= MOST_FACTORS and value == (whole := round(value.real)):
            return _as(start, _factors(expansion, x, whole))
    y: Series
    slope: Series | None = None

    def more(k: int) -> Coefficient:
        nonlocal slope
        if slope is None:  # the first coefficients are known by now
            slope = expansion.one(DECLARED["mul"], y, _rate(expansion, x, a))
        found = over(slope[k - 1], k)
        x_1 = x[1]
        if a.moves or x_1 is None or found is None or start.dtype.kind == "c":
            return found
        # At x = 0 this is 0 / 0. There take the term of the binomial series, with 0^(a-k).
        inf, zero, one = (a.start.constant(c) for c in (np.inf, 0, 1))
        infinite = where(a.start.equals(k), one, inf)
        choose: Any = functools.reduce(operator.mul, [over(a.start - j, j + 1) for j in range(k)])
        power = where(a.start > k, zero, infinite)
        own: Any = functools.reduce(operator.mul, [choose * power, *[x_1] * k])
        own = where(choose.equals(0), own.constant(0), own)
        return where(x.start.equals(0), own, found)

    y = Series(start, more)
    return y


def _rate(expansion: Any, x: Series, a: Series) -> Series:
    """a' log x + a x' / x."""
    mul, div = DECLARED["mul"], DECLARED["div"]
    parts = []
    if x.moves:
        parts.append(expansion.one(mul, a, expansion.one(div, x.derivative(), x)))
    if a.moves:
        parts.append(expansion.one(mul, a.derivative(), expansion.one(DECLARED["log"], x)))
    return parts[0] if len(parts) == 1 else expansion.one(DECLARED["add"], *parts)


def _factors(expansion: Any, x: Series, n: int) -> Series:
    if n < 0:
        return expansion.one(DECLARED["div"], _number(expansion, 1, x), _factors(expansion, x, -n))
    if n <= 1:
        return x if n else _number(expansion, 1, x)
    half = _factors(expansion, x, n // 2)
    whole = expansion.one(DECLARED["mul"], half, half)
    return expansion.one(DECLARED["mul"], whole, x) if n % 2 else whole
