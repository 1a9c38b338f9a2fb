"""Slopes of elementary functions that are functions of their own.

Each is right to the last digits over its whole range, and so is its own slope, the second
derivative. By the chain rule that would be a difference of nearly equal numbers, which loses small
results, as 1 - tanh(x)^2 does from x = 18 on, and (1 - x) (1 + x) around x = 0.

Names: `x` operand, `out` the result.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tapegrad.core.late import FRACTIONS, load
from tapegrad.primitives.base import Elementwise, by_name

# The costs of operations, in additions. They decide what is recomputed.
DIVISION = 4
FUNCTION = 12


def _sech_square(x: Any) -> Any:
    small = np.exp(-2 * np.abs(x))
    return 4 * small / np.square(1 + small)


sech_square = Elementwise(
    _sech_square,
    lambda out, x: (out * by_name("tanh")(x) * -2,),
    name="sech_square",
    cost=FUNCTION + DIVISION,
    numpy="4 * np.exp(-2 * np.abs({0})) / np.square(1 + np.exp(-2 * np.abs({0})))",
)
arcsin_slope = Elementwise(
    lambda x: 1 / np.sqrt((1 - x) * (1 + x)),
    lambda out, x: (out * x * out * out,),
    name="arcsin_slope",
    scalar="1.0 / sqrt((1.0 - {0}) * (1.0 + {0}))",
    cost=2 * DIVISION,
    numpy="1 / np.sqrt((1 - {0}) * (1 + {0}))",
)
arctan_slope = Elementwise(
    lambda x: 1 / (x * x + 1),
    lambda out, x: (x * out * out * -2,),
    name="arctan_slope",
    scalar="1.0 / ({0} * {0} + 1.0)",
    cost=DIVISION,
    numpy="1 / ({0} * {0} + 1)",
)
arcsinh_slope = Elementwise(
    lambda x: 1 / np.hypot(x, x.dtype.type(1)),
    lambda out, x: (-(x * out * out * out),),
    name="arcsinh_slope",
    scalar="1.0 / hypot({0}, 1.0)",
    cost=FUNCTION,
    numpy="1 / np.hypot({0}, {0}.dtype.type(1))",
)
arccosh_slope = Elementwise(
    lambda x: 1 / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    lambda out, x: (-(x * out * out * out),),
    name="arccosh_slope",
    scalar="1.0 / (sqrt({0} - 1.0) * sqrt({0} + 1.0))",
    cost=3 * DIVISION,
    numpy="1 / (np.sqrt({0} - 1) * np.sqrt({0} + 1))",
)
arctanh_slope = Elementwise(
    lambda x: 1 / ((1 - x) * (1 + x)),
    lambda out, x: (out * x * out * 2,),
    name="arctanh_slope",
    scalar="1.0 / ((1.0 - {0}) * (1.0 + {0}))",
    cost=DIVISION,
    numpy="1 / ((1 - {0}) * (1 + {0}))",
)


def _near(x: Any) -> Any:
    low = by_name("maximum")(x, x.constant(-30.0))
    return by_name("minimum")(low, x.constant(30.0))


bell = Elementwise(  # of erf; 0 from 28 on, and so are its slopes at infinity
    lambda x: np.exp(-(x * x)),
    lambda out, x: (out * _near(x) * -2,),
    name="bell",
    scalar="exp(-({0} * {0}))",
    cost=FUNCTION,
    numpy="np.exp(-({0} * {0}))",
)
logit_slope = Elementwise(
    lambda x: 1 / (x * (1 - x)),
    lambda out, x: (out * (x * 2 - 1) * out,),
    name="logit_slope",
    scalar="1.0 / ({0} * (1.0 - {0}))",
    cost=DIVISION,
    numpy="1 / ({0} * (1 - {0}))",
)


@cache
def bessel_log_slopes(order: int, turn: int = 1, count: int = 14) -> list[float]:
    """The slope of log(exp(x) K_n(x)) as a power series in 1 / x. By DLMF 10.40.2 the logarithm is
    -log(x) / 2 + log(1 + a_1 / x + a_2 / x^2 + ...). With `turn=-1` of log(exp(-x) I_n(x)), where
    every other sign is changed (DLMF 10.40.1)."""
    a = [load(FRACTIONS).Fraction(1)]
    for k in range(1, count):
        a.append(turn * a[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return [0.0, -0.5, *[-float(x) for x in log_slopes(a)]]


def log_slopes(a: list[Any]) -> list[Any]:
    """The power series S' / S, the slope of log(S), for the series S = sum of a_k u^k."""
    logs: list[Any] = []
    for k in range(len(a) - 1):
        logs.append((k + 1) * a[k + 1] - sum(logs[j] * a[k - j] for j in range(k)))
    return logs


@cache
def debye_polynomials(count: int) -> list[list[float]]:
    """U_k(p) / p^k as polynomials in p^2, of degree k (DLMF 10.41.9)."""
    fraction = load(FRACTIONS).Fraction
    found = [[fraction(1)]]
    for k in range(count - 1):
        after = [fraction(0)] * (k + 2)
        for j, c in enumerate(found[-1]):  # p^(k + 2 j) adds to two powers, one and three higher
            n = k + 2 * j
            after[j] += c * (fraction(n, 2) + fraction(1, 8 * (n + 1)))
            after[j + 1] -= c * (fraction(n, 2) + fraction(5, 8 * (n + 3)))
        found.append(after)
    return [[float(c) for c in polynomial] for polynomial in found]


@cache
def airy_log_slopes(derivative: bool, turn: int, count: int = 14) -> list[float]:
    """x times the slope of log(exp(z) Ai(x)) as a power series in 1 / z, where z = 2/3 x^(3/2)
    (DLMF 9.7.5), or of exp(z) Ai'(x) if `derivative` (DLMF 9.7.6). With `turn=1` of exp(-z) Bi and
    Bi'."""
    fraction = load(FRACTIONS).Fraction
    u = [fraction(1)]
    for k in range(1, count):
        u.append(u[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    if derivative:
        u = [fraction(1 + 6 * k, 1 - 6 * k) * x for k, x in enumerate(u)]
    logs = log_slopes([turn**k * x for k, x in enumerate(u)])
    return [0.25 if derivative else -0.25, *[-1.5 * float(x) for x in logs]]
