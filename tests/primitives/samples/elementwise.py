"""Of primitives that work element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.special as sp
from tests.primitives.samples.drawn import Sample, each, inside, normal, positive, within

from tapegrad.primitives.base import Elementwise

_NAMES = """
    add sub mul div neg square reciprocal power sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan
    arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh
"""


ANALYTIC = frozenset(_NAMES.split())


def _sign_of(x: float) -> float:
    return (x > 0) - (x < 0)


ONE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "neg": (normal, lambda x: -x),
    "square": (normal, lambda x: x * x),
    "reciprocal": (normal, lambda x: 1 / x),
    "sqrt": (positive, math.sqrt),
    "root": (positive, math.sqrt),
    "cbrt": (normal, lambda x: math.copysign(abs(x) ** (1 / 3), x)),
    "exp": (normal, math.exp),
    "exp2": (normal, lambda x: 2**x),
    "expm1": (normal, math.expm1),
    "log": (positive, math.log),
    "log2": (positive, math.log2),
    "log10": (positive, math.log10),
    "log1p": (positive, math.log1p),
    "sin": (normal, math.sin),
    "cos": (normal, math.cos),
    "tan": (inside, math.tan),
    "arcsin": (inside, math.asin),
    "arccos": (inside, math.acos),
    "arctan": (normal, math.atan),
    "sinh": (normal, math.sinh),
    "cosh": (normal, math.cosh),
    "tanh": (normal, math.tanh),
    "arcsinh": (normal, math.asinh),
    "arccosh": (within(1.2, 3), math.acosh),
    "arctanh": (inside, math.atanh),
    "abs": (normal, abs),
    "sign": (normal, _sign_of),
    "floor": (normal, math.floor),
    "ceil": (normal, math.ceil),
    "trunc": (normal, math.trunc),
    "rint": (normal, round),
    "sech_square": (normal, lambda x: 1 / math.cosh(x) ** 2),
    "arcsin_slope": (inside, lambda x: 1 / math.sqrt(1 - x * x)),
    "arctan_slope": (normal, lambda x: 1 / (1 + x * x)),
    "arcsinh_slope": (normal, lambda x: 1 / math.sqrt(1 + x * x)),
    "arccosh_slope": (within(1.2, 3), lambda x: 1 / math.sqrt(x * x - 1)),
    "arctanh_slope": (inside, lambda x: 1 / (1 - x * x)),
    "bell": (normal, lambda x: math.exp(-x * x)),
    "logit_slope": (within(0.1, 0.9), lambda x: 1 / (x - x * x)),
    "expit": (normal, lambda x: 1 / (1 + math.exp(-x))),
    "log_expit": (normal, lambda x: -math.log1p(math.exp(-x))),
    "logit": (within(0.1, 0.9), lambda x: math.log(x / (1 - x))),
    "erf": (normal, math.erf),
    "erfc": (normal, math.erfc),
    "erfcx": (normal, lambda x: math.exp(x * x) * math.erfc(x)),
    "erfinv": (within(-0.7, 0.7), lambda x: sp.ndtri((x + 1) / 2) / math.sqrt(2)),
    "erfcinv": (within(0.3, 1.7), lambda x: -sp.ndtri(x / 2) / math.sqrt(2)),
    "log_ndtr": (normal, lambda x: math.log(0.5 * math.erfc(-x / math.sqrt(2)))),
    "ndtri": (within(0.1, 0.9), lambda x: math.sqrt(2) * sp.erfinv(2 * x - 1)),
    "exprel": (normal, lambda x: math.expm1(x) / x),
    "gamma": (positive, math.gamma),
    "gammaln": (positive, math.lgamma),
    "digamma": (positive, lambda x: sp.digamma(x + 1) - 1 / x),
    "gammaln_of_positive": (positive, math.lgamma),
    "digamma_of_positive": (positive, lambda x: sp.digamma(x + 1) - 1 / x),
    "trigamma": (positive, lambda x: sp.polygamma(1, x + 1) + 1 / (x * x)),
    "exp1": (positive, lambda x: sp.expn(1, x)),
    "k0": (positive, lambda x: sp.kv(0, x)),
    "k1": (positive, lambda x: sp.kv(1, x)),
    "k0e": (positive, lambda x: sp.kve(0, x)),
    "k1e": (positive, lambda x: sp.kve(1, x)),
    "entr": (positive, lambda x: -x * math.log(x)),
    "i0": (normal, lambda x: sp.iv(0, x)),
    "i1": (normal, lambda x: sp.iv(1, x)),
    "i0e": (normal, lambda x: sp.iv(0, x) * math.exp(-abs(x))),
    "i1e": (normal, lambda x: sp.iv(1, x) * math.exp(-abs(x))),
    "stop_gradient": (normal, lambda x: x),
    "copy": (normal, lambda x: x),
}


TWO: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (normal, lambda x, y: x + y),
    "sub": (normal, lambda x, y: x - y),
    "mul": (normal, lambda x, y: x * y),
    "div": (normal, lambda x, y: x / y),
    "power": (positive, lambda x, y: x**y),
    "power_of_all": (positive, lambda x, y: x**y),
    "mod": (normal, lambda x, y: x % y),
    "fmod": (normal, math.fmod),
    "floor_divide": (normal, lambda x, y: x // y),
    "logaddexp": (normal, lambda x, y: math.log(math.exp(x) + math.exp(y))),
    "arctan2": (normal, math.atan2),
    "hypot": (normal, math.hypot),
    "copysign": (normal, math.copysign),
    "maximum": (normal, max),
    "minimum": (normal, min),
    "fmax": (normal, max),
    "fmin": (normal, min),
    "xlogy": (positive, lambda x, y: x * math.log(y)),
    "xlog1py": (positive, lambda x, y: x * math.log1p(y)),
    "beta": (positive, lambda x, y: math.exp(math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y))),
    "betaln": (positive, lambda x, y: math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)),
    "boxcox": (positive, lambda x, p: (x**p - 1) / p),
    "boxcox1p": (positive, lambda x, p: ((1 + x) ** p - 1) / p),
    "inv_boxcox": (positive, lambda y, p: (1 + p * y) ** (1 / p)),
    "inv_boxcox1p": (positive, lambda y, p: (1 + p * y) ** (1 / p) - 1),
    "rel_entr": (positive, lambda x, y: x * math.log(x / y)),
    "kl_div": (positive, lambda x, y: x * math.log(x / y) - x + y),
}


COMPARE: dict[str, Callable[..., Any]] = {
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
}


LOGIC: dict[str, Callable[..., Any]] = {
    "logical_and": lambda x, y: x and y,
    "logical_or": lambda x, y: x or y,
    "logical_xor": lambda x, y: x != y,
    "logical_not": lambda x: not x,
}


TESTS: dict[str, Callable[..., Any]] = {
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "signbit": lambda x: math.copysign(1, x) < 0,
}


INTEGERS: dict[str, Callable[..., Any]] = {
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "invert": lambda x: ~x,
    "left_shift": lambda x, y: x << y,
    "right_shift": lambda x, y: x >> y,
    "gcd": math.gcd,
    "lcm": math.lcm,
    "bitwise_count": lambda x: x.bit_count(),
}


def _binary(name: str, entry: Elementwise) -> Iterator[Sample]:
    """Exponents of 2, and neighbours: nothing of the latter shows in differences."""
    if name == "ldexp":
        pair = np.array([[1], [-6], [0]], np.int32), normal(2, 1, 3)
        yield Sample(entry, pair, each(lambda n, x: x * 2.0**n))
        far = np.int32(2000), np.array([1e-310, 0.0])
        yield Sample(entry, far, lambda n, x: np.ldexp(x, n), smooth=False, label="far")
        return
    plain: dict[str, Any] = {
        "exponent": each(lambda x: math.frexp(x)[1], np.int32),
        "nextafter": each(math.nextafter),
        "spacing": each(lambda x: math.copysign(math.ulp(x), x)),
    }
    two = name == "nextafter"
    yield Sample(entry, (normal(2, 3), normal(3, seed=1))[: 1 + two], plain[name])
    edge = (KINKED[:, None], KINKED) if two else (KINKED,)
    numpys = np.nextafter if two else np.spacing if name == "spacing" else entry.ufunc
    yield Sample(entry, edge, numpys, smooth=False, label="special")


# Steps and copies without derivative: differences see the steps' zero slope, so these are smooth.
KINKED = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.5])


def of_elementwise(name: str, entry: Elementwise) -> Iterator[Sample]:
    special_values = KINKED if name != "bitwise" else None
    if name in ONE:
        draw, scalar = ONE[name]
        reference = each(scalar)
        # stop_gradient is the identity to differences, and a constant to the rules.
        smooth = name != "stop_gradient"
        base = Sample(entry, (draw(2, 3),), reference, smooth, analytic=name in ANALYTIC)
        yield base
        yield base.with_operands([draw()], "scalar")
        yield base.with_operands([draw(3, 0)], "empty")
        yield base.with_operands([draw(1, 1)], "one")
        plain = getattr(np, name, None) or getattr(sp, name, None) or entry.ufunc
        yield Sample(entry, (special_values,), plain, smooth=False, label="special")
    elif name in TWO:
        draw, scalar = TWO[name]
        base = Sample(
            entry, (draw(2, 3), draw(2, 3, seed=1)), each(scalar), analytic=name in ANALYTIC
        )
        yield base
        yield base.with_operands([draw(4, 1), draw(3, seed=1)], "outer")
        yield base.with_operands([draw(2, 1, 3), draw(2, 1, seed=1)], "crossed")
        yield base.with_operands([draw(), draw(2, 3, seed=1)], "scalar left")
        yield base.with_operands([draw(2, 3), draw(seed=1)], "scalar right")
        yield base.with_operands([draw(0, 3), draw(1, seed=1)], "empty")
        names = {"sub": "subtract", "mul": "multiply", "div": "divide"}
        called = names.get(name, name)
        plain = getattr(np, called, None) or getattr(sp, called, None) or entry.ufunc
        pair = (KINKED[:, None], KINKED)
        yield Sample(entry, pair, plain, smooth=False, label="special")
    elif name in COMPARE:
        reference = each(COMPARE[name], bool)
        yield Sample(entry, (normal(2, 3), normal(3, seed=1)), reference)
        yield Sample(entry, (KINKED[:, None], KINKED), reference, smooth=False, label="special")
        yield Sample(entry, (np.arange(3), np.array([[1], [2]])), reference, label="integers")
    elif name in LOGIC:
        flags = (np.array([[True], [False]]), np.array([True, False, True]))
        operands = flags[:1] if name == "logical_not" else flags
        yield Sample(entry, operands, each(LOGIC[name], bool))
    elif name == "moderate":
        ends = np.array([4.0, 0.25, 4.1, -0.24, 1e-40, 1e38, -4.0])
        reference = each(lambda x, bound: x == 0 or 1 / bound <= abs(x) <= bound, bool)
        for xs in (KINKED, ends, ends.astype(np.float32)):
            bound = xs.dtype.type(4.0)
            yield Sample(entry, (xs, bound), reference, smooth=False, label=f"ends {xs.dtype}")
        yield Sample(entry, (normal(2, 3), np.float64(1e6)), reference)
    elif name in TESTS:
        yield Sample(entry, (KINKED,), each(TESTS[name], bool), smooth=False, label="special")
        yield Sample(entry, (normal(2, 3),), each(TESTS[name], bool))
    elif name in INTEGERS:
        pair = (np.array([[1], [6], [12]]), np.array([1, 2, 3]))
        operands = pair[:1] if name in ("invert", "bitwise_count") else pair
        dtype = (np.uint8,) if name == "bitwise_count" else ()
        yield Sample(entry, operands, each(INTEGERS[name], *dtype))
    elif name == "recompute_after":
        pair = (normal(2, 1), normal(2, 3, seed=1))
        yield Sample(entry, pair, lambda after, x: x)
        yield Sample(entry, (normal(), normal(3, seed=1)), lambda after, x: x, label="scalar left")
    elif name == "kept":  # the derivative is that of the other operand
        pair = (normal(2, 3), normal(2, 3, seed=1))
        yield Sample(entry, pair, lambda again, kept: kept, smooth=False)
    elif name.startswith("known_"):  # the derivative isn't known where the first one is small
        far = np.array([[0.0, np.inf, 1e-9], [0.5, 0.9, 0.0]])
        yield Sample(entry, (far, normal(2, 3)), lambda c, x: x, smooth=False, label="at some")
        yield Sample(entry, (np.full((2, 3), 0.5), normal(2, 3)), lambda c, x: x)
    elif name in ("exponent", "ldexp", "nextafter", "spacing"):
        yield from _binary(name, entry)
    elif name == "where":
        mask = np.array([[True, False, True], [False, False, True]])
        reference = each(lambda c, x, y: x if c else y, float)
        base = Sample(entry, (mask, normal(2, 3), normal(2, 3, seed=1)), reference)
        yield base
        yield base.with_operands([mask, normal(3), normal(2, 1, seed=1)], "crossed")
        yield base.with_operands([mask[0], normal(), normal(2, 3, seed=1)], "scalar")
        yield base.with_operands([np.bool_(True), normal(2, 3), normal(seed=1)], "one condition")
        yield base.with_operands([mask, normal(1, 3), normal(seed=1)], "condition is largest")
        yield base.with_operands([mask[:0], normal(3), normal(3)], "empty")
        nan = np.full(3, np.nan)
        yield replace(base, operands=(mask, normal(3), nan), smooth=False, label="nan not taken")
