"""Samples of every primitive: operands that the contract is checked on.

One entry a primitive, chosen to hurt: broadcast, square and not, a repeated index, a negative
step, ties, zeros, infinities, nothing at all. `samples()` lists them for any test that wants to
run over all primitives; `contract_test.py` fails if a primitive has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import permutations
from typing import Any

import mpmath
import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.special as sp
from tests.primitives.special_samples import NOT_SMOOTH, special_operands

from tapegrad.core.values import Span
from tapegrad.ir.tape import Aval, Builder, Literal, Tape
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import primitives, special, special_complex
from tapegrad.primitives.banded import BandedLU, BandedSolve
from tapegrad.primitives.base import Elementwise, Primitive, Slice, Writer
from tapegrad.primitives.beta import BetaDerivative
from tapegrad.primitives.contractions import Einsum
from tapegrad.primitives.control import CallTape, Custom, ForeignCall
from tapegrad.primitives.correlation import Correlate
from tapegrad.primitives.degenerate import (
    ChosenEigenvectors,
    ChosenSingularVectors,
    EigenvaluePullback,
    SingularValuePullback,
)
from tapegrad.primitives.determinants import Cofactors, Det
from tapegrad.primitives.eigen import Eig
from tapegrad.primitives.extrema import Max, Min, PickedOver, SharedOver
from tapegrad.primitives.filters import LinearFilter
from tapegrad.primitives.kinks import Leaning, Picked, Shared, Turned
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.multilinear import Products
from tapegrad.primitives.named import Named
from tapegrad.primitives.norms import Norm, NormPullback, Path
from tapegrad.primitives.odds import OddsCumulant, OddsDensity, OddsHeight, OddsSlope
from tapegrad.primitives.parts import AddPart, Part, PlacePart, SetPart
from tapegrad.primitives.ratios import RatioSlope
from tapegrad.primitives.reductions import (
    All,
    Any_,
    ArgMax,
    ArgMin,
    CumLinear,
    CumProd,
    CumSum,
    ExactSum,
    Prod,
    Sum,
)
from tapegrad.primitives.rises import Rise
from tapegrad.primitives.scatter import (
    Concatenate,
    Gather,
    Nonzero,
    ScatterAdd,
    ScatterSet,
    SetItem,
    Stack,
    Winners,
)
from tapegrad.primitives.softmax import LogSoftmax, LogSumExp, Softmax
from tapegrad.primitives.solving import (
    LU,
    Cholesky,
    CholeskyPullback,
    InverseT,
    LUSolve,
    SLogDet,
)
from tapegrad.primitives.sorting import ArgPartition, ArgSort, SearchSorted
from tapegrad.primitives.special_gamma import BetaDensity, GammaDensity, ParameterSlope
from tapegrad.primitives.special_integrals import Carlson
from tapegrad.primitives.special_polynomials import Chebyshev
from tapegrad.primitives.spectral import QR, SVD, Complement, EigH, PInv
from tapegrad.primitives.stated import Known, Stated
from tapegrad.primitives.triangles import Triangle, TriangularSolve
from tapegrad.primitives.views import (
    BroadcastTo,
    Diagonal,
    ExpandDims,
    GetItem,
    Place,
    PlaceDiagonal,
    Reshape,
    Squeeze,
    Transpose,
)
from tapegrad.primitives.windows import AddWindow, Empty, PlaceWindow, SetWindow, Window

Reference = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Sample:
    """A primitive applied to operands.

    `smooth`: differences exist here, in both directions and twice. `analytic`: NumPy evaluates it
    on complex operands, so a complex step gives derivatives to the last digit. `reverse` and
    `forward`: it has that rule. `reference` computes the result another way. `factored`: what
    makes operands 1 and 2 of operand 0, its LU factors; they follow it and have no derivatives.
    `narrow` is the primitive for operands in single precision, if that is another one. In the
    operands numbered `fixed` no derivative is known.
    """

    primitive: Primitive
    operands: tuple[Any, ...]
    reference: Reference
    smooth: bool = True
    analytic: bool = False
    reverse: bool = True
    forward: bool = True
    factored: Primitive | None = None
    narrow: Primitive | None = None
    fixed: tuple[int, ...] = ()
    label: str = ""

    def __str__(self) -> str:
        shapes = ",".join(f"{x.dtype}{list(x.shape)}" for x in self.operands)
        return f"{self.primitive.name}-{self.label or shapes}"

    @property
    def floats(self) -> list[int]:
        """The numbers of the operands that have derivatives."""
        found = [k for k, x in enumerate(self.operands) if x.dtype.kind in "fc"]
        return [k for k in found if not (self.factored and k == 1) and k not in self.fixed]

    def stepped(self, xs: Sequence[Any], k: int, step: Any) -> list[Any]:
        """Operands, and what else comes after them, with a step added to one."""
        moved = [x + step if n == k else x for n, x in enumerate(xs)]
        return self.with_factors(moved) if k == 0 else moved

    def with_factors(self, xs: list[Any]) -> list[Any]:
        """The same, with the factors of the first operand."""
        if self.factored:
            xs[1:3] = self.factored.evaluate(xs[0])
        return xs

    def with_operands(self, operands: Sequence[Any], label: str) -> Sample:
        return replace(self, operands=tuple(operands), label=label)


def normal(*shape: int, seed: int = 0) -> Any:
    """Random numbers that stay clear of 0 and of each other, where kinks and ties are."""
    rng = np.random.default_rng([seed, len(shape), *shape])
    size = int(np.prod(shape, dtype=int))
    spread = (np.arange(size) + 0.5 + 0.2 * rng.uniform(-1, 1, size)) / max(size, 1) - 0.5
    values = rng.permutation(3 * spread + np.where(spread < 0, -0.1, 0.1))
    return values.reshape(shape)[()]


def carlson(s: Any, m: Any, q: int) -> Any:
    """Moments of sin(t)^2 (DLMF 19.25.14)."""
    ends = (1.0, 1 - m * s * s) if q == 3 else (1 - m * s * s, 1.0)
    return s**3 / 3 * sp.elliprd(1 - s * s, *ends)


@np.vectorize(excluded={0, 1})
def carlson_by_quadrature(power: int, twice: tuple[int, ...], *xs: complex) -> Any:
    def integrand(t: float) -> Any:
        powers = [(t + x) ** (-b / 2) for b, x in zip(twice, xs, strict=True)]
        return t**power * math.prod(powers)

    real = not any(isinstance(x, complex) for x in xs)
    options = {"epsabs": 0, "epsrel": 1e-11, "complex_func": not real}
    return scipy.integrate.quad(integrand, 0, np.inf, **options)[0]


def chebyshev_slope(order: int, n: Any, x: Any) -> Any:
    t = np.arccos(x)
    if order == 1:
        return np.sin(n * t) / np.sin(t)
    return (np.sin(n * t) / np.tan(t) - n * np.cos(n * t)) / np.sin(t) ** 2


def within(low: float, high: float) -> Callable[..., Any]:
    """Random numbers of an open interval."""

    def draw(*shape: int, seed: int = 0) -> Any:
        rng = np.random.default_rng([seed, len(shape), *shape])
        return np.asarray(rng.uniform(low, high, shape))[()]

    return draw


positive = within(0.5, 2.0)
inside = within(-0.9, 0.9)


def each(function: Callable[..., Any], *dtype: Any) -> Reference:
    """A function of Python scalars, over arrays."""

    def over(*xs: Any) -> Any:
        arrays = np.broadcast_arrays(*xs)
        found = [function(*map(scalar, row)) for row in zip(*map(np.ravel, arrays), strict=True)]
        kind = dtype[0] if dtype else np.result_type(*xs)
        return np.array(found, kind).reshape(arrays[0].shape)

    def scalar(x: Any) -> Any:
        return x.item()

    return over


# ---- elementwise: name -> (how operands are drawn, a function of Python's scalars)

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


def _elementwise(name: str, entry: Elementwise) -> Iterator[Sample]:
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
        plain = getattr(np, names.get(name, name), None) or getattr(sp, names.get(name, name))
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
    elif name in TESTS:
        yield Sample(entry, (KINKED,), each(TESTS[name], bool), smooth=False, label="special")
        yield Sample(entry, (normal(2, 3),), each(TESTS[name], bool))
    elif name in INTEGERS:
        pair = (np.array([[1], [6], [12]]), np.array([1, 2, 3]))
        operands = pair[:1] if name in ("invert", "bitwise_count") else pair
        dtype = (np.uint8,) if name == "bitwise_count" else ()
        yield Sample(entry, operands, each(INTEGERS[name], *dtype))
    elif name == "again":
        pair = (normal(2, 1), normal(2, 3, seed=1))
        yield Sample(entry, pair, lambda after, x: x)
        yield Sample(entry, (normal(), normal(3, seed=1)), lambda after, x: x, label="scalar left")
    elif name == "kept":  # the derivative is that of the other operand
        pair = (normal(2, 3), normal(2, 3, seed=1))
        yield Sample(entry, pair, lambda again, kept: kept, smooth=False)
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


# ---- structural primitives

A, B = normal(3, 4), normal(2, 3, 4)
BACK = (Slice(2, 2, -2), Slice(0, 4))
I = np.array([2, 0, 2, -1])
J = np.array([1, 1, 1, 3])


def _loop_sum(x: Any, axes: Sequence[int], start: float, step: Callable[..., Any]) -> Any:
    """A fold written as a loop over elements."""
    kept = [k for k in range(x.ndim) if k not in axes]
    out = np.full([x.shape[k] for k in kept], start, x.dtype)
    for at in np.ndindex(x.shape):
        place = tuple(at[k] for k in kept)
        out[place] = step(out[place], x[at])
    return out


def _folds(make: Callable[..., Primitive], start: float, step: Any) -> Iterator[Sample]:
    for x, axes in (
        (B, (0,)),
        (B, (2,)),
        (B, (0, 2)),
        (B, (0, 1, 2)),
        (A, ()),
        (normal(3, 1), (1,)),
        (normal(5), (0,)),
        (normal(7), (0,)),
    ):
        yield Sample(
            make(axes),
            (x,),
            lambda x, axes=axes: _loop_sum(x, axes, start, step),
            label=f"{x.shape}{axes}",
        )


def _sum() -> Iterator[Sample]:
    yield from _folds(Sum, 0.0, lambda a, x: a + x)
    reference = each(lambda x: x)
    yield Sample(Sum((0,)), (normal(0, 3),), lambda x: np.zeros(3), label="empty")
    yield Sample(Sum((1,)), (np.arange(6).reshape(2, 3),), lambda x: np.array([3, 12]))
    yield Sample(Sum(()), (normal(3),), reference, label="no axes")


def _exact_sum() -> Iterator[Sample]:
    def reference(x: Any) -> Any:
        return np.array(math.fsum(x) if x.ndim == 1 else [math.fsum(row) for row in x])

    for shape in ((4,), (2, 3), (1,), (2, 0)):
        yield Sample(ExactSum(), (normal(*shape),), reference)
    yield Sample(ExactSum(), (np.array([1e100, 1.0, -1e100]),), reference, smooth=False)
    infinite = np.array([[np.inf, 1.0], [np.nan, 1.0]])
    yield Sample(ExactSum(), (infinite,), reference, smooth=False, label="infinite")


def _prod() -> Iterator[Sample]:
    yield from _folds(Prod, 1.0, lambda a, x: a * x)
    yield Sample(Prod((0,)), (normal(0, 3),), lambda x: np.ones(3), label="empty")
    zeros = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [4.0, 7.0, 1.0]])
    for axes in ((0,), (1,), (0, 1)):
        yield Sample(
            Prod(axes),
            (zeros,),
            lambda x, axes=axes: _loop_sum(x, axes, 1.0, lambda a, b: a * b),
            label=f"zeros{axes}",
        )


def _extremum(make: Callable[..., Primitive], pick: Any, start: float) -> Iterator[Sample]:
    yield from _folds(make, start, pick)
    ties = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    plain = lambda x: pick_over_rows(x, pick)  # noqa: E731
    yield Sample(make((1,)), (ties,), plain, smooth=False, label="ties")
    edge = np.array([[-np.inf, -np.inf], [np.inf, 1.0], [-np.inf, 2.0]])
    yield Sample(make((1,)), (edge,), plain, smooth=False, label="infinities")


def pick_over_rows(x: Any, pick: Any) -> Any:
    out = x[:, 0]
    for k in range(1, x.shape[1]):
        out = np.array([pick(a, b) for a, b in zip(out, x[:, k], strict=True)])
    return out


def _log_sum_exp() -> Iterator[Sample]:
    def plainly(axes: tuple[int, ...]) -> Reference:
        return lambda x: np.log(np.sum(np.exp(x), axes))

    for axes in ((0,), (1,), (0, 1), ()):
        yield Sample(LogSumExp(axes), (A,), plainly(axes), label=str(axes))
    yield Sample(LogSumExp((1,)), (normal(2, 1),), plainly((1,)), label="one")
    yield Sample(LogSumExp((0,)), (np.zeros((0, 3)),), plainly((0,)), False, label="empty")
    large = np.array([[1e3, 1e3 - 1], [-1e3, -1e3], [800.0, -800.0]])
    yield Sample(LogSumExp((1,)), (large,), lambda x: np.logaddexp.reduce(x, axis=1), label="large")
    edges = np.array([[-np.inf, -np.inf], [np.inf, 0.0], [np.inf, -np.inf], [np.nan, 1.0]])
    yield Sample(
        LogSumExp((1,)), (edges,), lambda x: np.logaddexp.reduce(x, axis=1), False, label="edges"
    )


def _shares(make: Any, plain: Callable[..., Any]) -> Iterator[Sample]:
    """Softmax and its logarithm; where elements tie, and where all but one are next to nothing."""
    for axes in ((0,), (1,), (0, 1), ()):
        yield Sample(make(axes), (A,), lambda x, axes=axes: plain(x, axes), label=str(axes))
    few = np.array([[1.0, 1.0, 0.3], [0.0, 3.0, -2.0], [2.0, 2.0, 2.0]])
    yield Sample(make((1,)), (few,), lambda x: plain(x, (1,)), label="ties")
    large = np.array([[1e3, 1e3 - 1], [-1e3, -1e3], [800.0, -800.0]])
    yield Sample(make((1,)), (large,), lambda x: plain(x, (1,)), False, label="large")
    yield Sample(make((1,)), (np.zeros((2, 0)),), lambda x: x, False, label="empty")


def _flags(make: Callable[..., Primitive], fold: Any) -> Iterator[Sample]:
    flags = np.array([[True, False], [True, True], [False, False]])
    yield Sample(make((1,)), (flags,), lambda x: np.array([fold(row) for row in x]))
    yield Sample(make((0, 1)), (flags,), lambda x: np.bool_(fold(x.ravel())))
    yield Sample(make((0,)), (flags[:0],), lambda x: np.array([fold([])] * 2))


def _arg(make: Callable[..., Primitive], sign: int) -> Iterator[Sample]:
    def reference(x: Any, axis: int) -> Any:
        rows = np.moveaxis(x, axis, -1)
        found = [
            max(range(rows.shape[-1]), key=lambda k: (sign * row[k], -k))
            for row in rows.reshape(-1, rows.shape[-1])
        ]
        return np.array(found).reshape(rows.shape[:-1])

    for x, axis in ((B, 0), (B, 2), (np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]), 1)):
        yield Sample(make(axis), (x,), lambda x, axis=axis: reference(x, axis))


def _running(make: Callable[..., Primitive], step: Any) -> Iterator[Sample]:
    def reference(x: Any, axis: int, reverse: bool) -> Any:
        rows = np.moveaxis(np.array(x), axis, 0)
        rows = rows[::-1] if reverse else rows
        for k in range(1, len(rows)):
            rows[k] = step(rows[k - 1], rows[k])
        return np.moveaxis(rows[::-1] if reverse else rows, 0, axis)

    backward = [False, True] if make is CumSum else [False]
    for x, axis in ((B, 0), (B, 2), (normal(7), 0), (normal(3, 0), 1), (normal(3, 1), 1)):
        for r in backward:
            primitive = CumSum(axis, r) if make is CumSum else CumProd(axis)
            yield Sample(
                primitive,
                (x,),
                lambda x, axis=axis, r=r: reference(x, axis, r),
                label=f"{x.shape}{axis}{'-reverse' * r}",
            )
    if make is CumProd:
        zeros = np.array([2.0, 0.0, 3.0, 0.0, 5.0])
        yield Sample(CumProd(0), (zeros,), lambda x: reference(x, 0, False), label="zeros")


def _recurrences() -> Iterator[Sample]:
    def reference(factors: Any, x: Any, axis: int, reverse: bool) -> Any:
        factors, rows = np.moveaxis(factors, axis, 0), np.moveaxis(np.array(x), axis, 0)
        if reverse:
            factors, rows = factors[::-1], rows[::-1]
        for k in range(1, len(rows)):
            rows[k] = rows[k] + factors[k - 1] * rows[k - 1]
        return np.moveaxis(rows[::-1] if reverse else rows, 0, axis)

    for shape, axis in (
        ((7,), 0),
        ((2, 3, 4), 1),
        ((3, 4), 1),
        ((1,), 0),
        ((3, 0), 1),
        ((2, 2), 0),
    ):
        between = tuple(max(0, n - 1) if a == axis else n for a, n in enumerate(shape))
        for reverse in (False, True):
            yield Sample(
                CumLinear(axis, reverse),
                (normal(*between, seed=1), normal(*shape)),
                lambda f, x, axis=axis, reverse=reverse: reference(f, x, axis, reverse),
                label=f"{shape}{axis}{'-reverse' * reverse}",
            )
    # What comes first is multiplied by nothing, and a factor of 0 forgets.
    factors = np.array([0.0, 2.0, 0.0])
    yield Sample(CumLinear(0), (factors, A[0]), lambda f, x: reference(f, x, 0, False), label="0")


def _correlations() -> Iterator[Sample]:
    def reference(x: Any, v: Any, before: int, count: int) -> Any:
        found = np.zeros(count, x.dtype)
        for k in range(count):
            for j in range(len(v)):
                if 0 <= k + j - before < len(x):
                    found[k] += v[j] * x[k + j - before]
        return found

    # Full, same and valid ones; of the longer one the other way round; with few or no terms.
    for n, m, before, count in (
        (7, 3, 2, 9),
        (7, 3, 1, 7),
        (7, 3, 0, 5),
        (3, 7, 6, 9),
        (3, 7, 4, 5),
        (5, 9, 4, 3),
        (1, 1, 0, 1),
        (4, 3, 6, 12),
        (40, 19, 11, 41),
    ):
        yield Sample(
            Correlate(before, count),
            (normal(n), normal(m, seed=1)),
            lambda x, v, b=before, c=count: reference(x, v, b, c),
            label=f"{n},{m},{before},{count}",
        )


def _indexed(x: Any, function: Callable[..., Any], shape: Sequence[int]) -> Any:
    """An array of this shape, whose element at an index is that of `x` at `function(index)`."""
    out = np.empty(shape, x.dtype)
    for at in np.ndindex(*shape):
        out[at] = x[function(*at)]
    return out


def _views() -> dict[type, list[Sample]]:
    return {
        Transpose: [
            Sample(
                Transpose((2, 0, 1)),
                (B,),
                lambda x: _indexed(x, lambda i, j, k: (j, k, i), (4, 2, 3)),
            ),
            Sample(Transpose((1, 0)), (A,), lambda x: _indexed(x, lambda i, j: (j, i), (4, 3))),
            Sample(Transpose((1, 0)), (normal(0, 2),), lambda x: np.empty((2, 0))),
            Sample(Transpose(()), (normal(),), lambda x: x),
        ],
        BroadcastTo: [
            Sample(BroadcastTo((2, 3)), (normal(3),), lambda x: np.stack([x, x])),
            Sample(BroadcastTo((3, 2)), (normal(3, 1),), lambda x: np.concatenate([x, x], 1)),
            Sample(BroadcastTo((2, 3, 4)), (normal(),), lambda x: np.full((2, 3, 4), x)),
            Sample(BroadcastTo((2, 3, 2)), (normal(3, 1),), lambda x: x * np.ones((2, 3, 2))),
            Sample(BroadcastTo((0, 3)), (normal(1, 3),), lambda x: np.empty((0, 3))),
            Sample(BroadcastTo((2, 3)), (normal(2, 3),), lambda x: x),
        ],
        Reshape: [
            Sample(Reshape((4, 3)), (A,), lambda x: np.array(x.ravel().tolist()).reshape(4, 3)),
            Sample(Reshape((24,)), (B,), lambda x: np.array(list(x.flat))),
            Sample(Reshape((1, 1)), (normal(),), lambda x: np.array([[x]])),
            Sample(Reshape(()), (normal(1, 1),), lambda x: x[0, 0]),
            Sample(Reshape((2, 0)), (normal(0, 3),), lambda x: np.empty((2, 0))),
        ],
        ExpandDims: [
            Sample(ExpandDims((0, 2)), (A,), lambda x: x[None, :, None]),
            Sample(ExpandDims((2,)), (A,), lambda x: x[..., None]),
            Sample(ExpandDims((0,)), (normal(),), lambda x: np.array([x])),
        ],
        Squeeze: [
            Sample(Squeeze((0, 2)), (normal(1, 3, 1),), lambda x: x[0, :, 0]),
            Sample(Squeeze((0,)), (normal(1),), lambda x: x[0]),
        ],
        GetItem: [
            Sample(GetItem((Slice(1, 2), 2)), (A,), lambda x: x[1:3, 2]),
            Sample(GetItem(BACK), (A,), lambda x: x[2::-2]),
            Sample(GetItem((Slice(2, 3, -1), Slice(0, 2, 3))), (A,), lambda x: x[::-1, ::3]),
            Sample(GetItem((1, 0, 3)), (B,), lambda x: x[1, 0, 3]),
            Sample(GetItem((Slice(0, 0), 1)), (A,), lambda x: x[:0, 1]),
            Sample(GetItem((0, Slice(0, 3), Slice(3, 2, -3))), (B,), lambda x: x[0, :, ::-3]),
        ],
        Diagonal: [
            Sample(Diagonal(0), (A,), lambda x: np.array([x[k, k] for k in range(3)])),
            Sample(Diagonal(2), (B,), lambda x: np.stack([x[:, 0, 2], x[:, 1, 3]], -1)),
            Sample(Diagonal(-1), (A,), lambda x: np.array([x[1, 0], x[2, 1]])),
            Sample(Diagonal(9), (A,), lambda x: np.empty(0)),
        ],
    }


def _placed(x: Any, shape: Sequence[int], places: Callable[..., Any], add: bool = False) -> Any:
    out = np.zeros(shape, x.dtype)
    for at in np.ndindex(x.shape):
        out[places(*at)] = x[at] + (out[places(*at)] if add else 0)
    return out


def _written(x: Any, y: Any, places: Callable[..., Any]) -> Any:
    out = np.array(x)
    for at in np.ndindex(y.shape):
        out[places(*at)] = y[at]
    return out


def _scatters() -> dict[type, list[Sample]]:
    y2 = normal(2, 4, seed=2)
    return {
        Place: [
            Sample(
                Place((3, 4), BACK),
                (y2,),
                lambda x: _placed(x, (3, 4), lambda i, j: (2 - 2 * i, j)),
            ),
            Sample(
                Place((3, 4), (1, 2)),
                (normal(),),
                lambda x: _placed(np.asarray(x), (3, 4), lambda: (1, 2)),
            ),
            Sample(Place((3, 4), (Slice(0, 0), 1)), (normal(0),), lambda x: np.zeros((3, 4))),
        ],
        PlaceDiagonal: [
            Sample(
                PlaceDiagonal((3, 3), 0),
                (normal(3),),
                lambda x: _placed(x, (3, 3), lambda i: (i, i)),
            ),
            Sample(
                PlaceDiagonal((3, 4), 2),
                (normal(2, 2),),
                lambda x: _placed(x, (2, 3, 4), lambda b, i: (b, i, i + 2)),
            ),
            Sample(
                PlaceDiagonal((3, 4), -1),
                (normal(2),),
                lambda x: _placed(x, (3, 4), lambda i: (i + 1, i)),
            ),
        ],
        SetItem: [
            Sample(
                SetItem(BACK), (A, y2), lambda x, y: _written(x, y, lambda i, j: (2 - 2 * i, j))
            ),
            Sample(
                SetItem((1, 2)),
                (A, normal(seed=3)),
                lambda x, y: _written(x, np.asarray(y), lambda: (1, 2)),
            ),
            Sample(SetItem((Slice(0, 0), 1)), (A, normal(0)), lambda x, y: x),
            Sample(SetItem((Slice(0, 3), Slice(0, 4))), (A, normal(3, 4, seed=4)), lambda x, y: y),
        ],
        Concatenate: [
            Sample(Concatenate(0), (A, y2), lambda x, y: np.array([*x, *y])),
            Sample(
                Concatenate(1),
                (A, normal(3, 1), A),
                lambda x, y, z: np.array([[*a, *b, *c] for a, b, c in zip(x, y, z, strict=True)]),
            ),
            Sample(Concatenate(0), (normal(0, 4), A), lambda x, y: y),
            Sample(Concatenate(0), (A,), lambda x: x),
        ],
        Stack: [
            Sample(Stack(0), (A, normal(3, 4, seed=1)), lambda x, y: np.array([x, y])),
            Sample(
                Stack(2),
                (A, normal(3, 4, seed=1), A),
                lambda x, y, z: np.moveaxis(np.array([x, y, z]), 0, 2),
            ),
            Sample(Stack(1), (B, B), lambda x, y: np.array([[a, a] for a in x])),
            Sample(
                Stack(0),
                (normal(), normal(seed=1), normal(seed=2)),
                lambda *xs: np.array(xs),
            ),
            Sample(Stack(1), (normal(2, 0), normal(2, 0)), lambda x, y: np.zeros((2, 2, 0))),
            Sample(Stack(0), (A,), lambda x: x[None]),
        ],
        Gather: [
            Sample(
                Gather(), (A, I), lambda x, i: np.array([x[k] for k in i]), label="rows, repeated"
            ),
            Sample(
                Gather(),
                (A, I, J),
                lambda x, i, j: np.array([x[a, b] for a, b in zip(i, j, strict=True)]),
                label="elements, repeated",
            ),
            Sample(
                Gather(),
                (B, np.array([[0, 1], [1, 1]])),
                lambda x, i: np.array([[x[b] for b in a] for a in i]),
                label="matrix of indices",
            ),
            Sample(Gather(), (A, I[:0]), lambda x, i: np.empty((0, 4)), label="none"),
            Sample(Gather(), (A, np.intp(1)), lambda x, i: x[1], label="scalar"),
            Sample(
                Gather(sure=True),
                (A, np.int32([2, 0, 2])),
                lambda x, i: np.array([x[k] for k in i]),
                label="known to be in range",
            ),
        ],
        ScatterAdd: [
            Sample(
                ScatterAdd((3, 4)),
                (normal(4, 4), I),
                lambda y, i: _placed(y, (3, 4), lambda a, b: (i[a], b), True),
                label="rows, repeated",
            ),
            Sample(
                ScatterAdd((3, 4)),
                (normal(4), I, J),
                lambda y, i, j: _placed(y, (3, 4), lambda a: (i[a], j[a]), True),
                label="elements, repeated",
            ),
            Sample(
                ScatterAdd((3, 4)),
                (normal(0, 4), I[:0]),
                lambda y, i: np.zeros((3, 4)),
                label="none",
            ),
        ],
        ScatterSet: [
            Sample(
                ScatterSet(sure=True),
                (A, normal(2, 4), np.int32([2, 0])),
                lambda x, y, i: _written(x, y, lambda a, b: (i[a], b)),
                label="known to be in range",
            ),
            Sample(
                ScatterSet(),
                (A, normal(4, 4), I),
                lambda x, y, i: _written(x, y, lambda a, b: (i[a], b)),
                label="rows, repeated",
            ),
            Sample(
                ScatterSet(),
                (A, normal(4), I, J),
                lambda x, y, i, j: _written(x, y, lambda a: (i[a], j[a])),
                label="elements, repeated",
            ),
            Sample(ScatterSet(), (A, normal(0, 4), I[:0]), lambda x, y, i: x, label="none"),
        ],
        Winners: [
            Sample(
                Winners((3, 4)),
                (I,),
                lambda i: _winners(i % 3),
            ),
            Sample(Winners((3, 4)), (I, J), lambda i, j: _winners(i % 3, j % 4)),
        ],
        Nonzero: [
            Sample(Nonzero(2, 1), (np.array([True, False, True]),), lambda m: np.array([0, 2])),
            Sample(
                Nonzero(3, 2),
                (np.array([[True, False], [True, True]]),),
                lambda m: (np.array([0, 1, 1]), np.array([0, 0, 1])),
            ),
            Sample(Nonzero(0, 1), (np.array([False]),), lambda m: np.empty(0, int)),
        ],
    }


def _winners(*indices: Any) -> Any:
    """Which write is the last one at its place."""
    places = list(zip(*[i.tolist() for i in indices], strict=True))
    return np.array([place not in places[k + 1 :] for k, place in enumerate(places)])


def _products(kind: Any) -> list[Sample]:
    def sum_of_products(subscripts: str) -> Any:
        *terms, out = subscripts.replace("->", ",").split(",")

        def reference(*xs: Any) -> Any:
            shapes = [n for x in xs for n in x.shape]
            extents = dict(zip("".join(terms), shapes, strict=True))
            result = np.zeros([extents[k] for k in out])
            for at in np.ndindex(*extents.values()):
                place = dict(zip(extents, at, strict=True))
                *ats, at_out = (tuple(place[k] for k in term) for term in (*terms, out))
                result[at_out] += math.prod(x[at] for x, at in zip(xs, ats, strict=True))
            return result

        return reference

    cases = [
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("ij,jk->ik", (3, 3), (3, 3)),
        ("ij,jk->ik", (1, 3), (3, 1)),
        ("ij,jk->ik", (2, 0), (0, 3)),
        ("i,i->", (3,), (3,)),
        ("i,i->", (0,), (0,)),
        ("ij,j->i", (2, 3), (3,)),
        ("i,ij->j", (2,), (2, 3)),
        ("ji,jk->ik", (3, 2), (3, 4)),
        ("ij,kj->ik", (2, 3), (4, 3)),
        ("ji,kj->ik", (3, 2), (4, 3)),
        ("hij,hjk->hik", (5, 2, 3), (5, 3, 2)),
        ("hij,jk->hik", (5, 2, 3), (3, 2)),
        ("ij,hjk->ihk", (2, 3), (5, 3, 2)),
        ("hj,hj->h", (4, 3), (4, 3)),
        ("ihj,khj->hik", (2, 3, 4), (3, 3, 4)),  # heads in the middle
        ("hik,khd->ihd", (2, 3, 4), (4, 2, 3)),
        ("nij,nik->jk", (2, 3, 4), (2, 3, 2)),  # two axes are summed
        ("ijk,kji->", (2, 3, 2), (2, 3, 2)),
        ("ikj,lk->jli", (2, 3, 2), (4, 3)),
    ]
    several = [
        ("ij,jk,k->", (2, 3), (3, 4), (4,)),
        ("ij,jk,kl->il", (2, 3), (3, 3), (3, 2)),
        ("ij,jk,ki->i", (2, 3), (3, 2), (2, 2)),
        ("i,jk,kl,l->j", (2,), (3, 2), (2, 3), (3,)),  # one operand is summed up alone
        ("hij,hjk,kl->hil", (2, 3, 2), (2, 2, 3), (3, 2)),
        (",ij,jk->ik", (), (3, 2), (2, 3)),
    ]
    each = {Einsum: cases, Products: several}
    return [
        Sample(
            kind(text),
            tuple(normal(*shape, seed=k) for k, shape in enumerate(shapes)),
            sum_of_products(text),
            label=text,
        )
        for text, *shapes in each[kind]
    ]


# ---- matrices


def regular(*shape: int, seed: int = 0) -> Any:
    """Square matrices that are far from singular, and need their rows swapped."""
    return np.roll(normal(*shape, seed=seed) + 2 * np.eye(shape[-1]), 1, -2)


def definite(*shape: int, seed: int = 0) -> Any:
    """Positive definite matrices in the lower triangle; above it stands something else."""
    x = normal(*shape, seed=seed)
    return np.tril(x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])) + np.triu(x, 1)


def triangular(*shape: int, seed: int = 0) -> Any:
    """Matrices whose lower and upper triangles are both far from singular."""
    return normal(*shape, seed=seed) / 2 + 2 * np.eye(shape[-1])


def rise(n: int, x: float, h: float) -> float:
    """What psi_n rises by; from 1 on, less what its leading term does."""
    y, z = mpmath.mpf(x), mpmath.mpf(x) + h
    whole = mpmath.psi(n, z) - mpmath.psi(n, y)
    if min(y, z) < 1:
        return float(whole)
    if n == 0:
        return float(whole - mpmath.log(z / y))
    return float(whole + (-1) ** n * math.factorial(n - 1) * (z**-n - y**-n))


def each_matrix(f: Callable[..., Any]) -> Reference:
    """A function of matrices over the axes before the last two, one matrix at a time."""

    def over(*xs: Any) -> Any:
        lead = np.broadcast_shapes(*[x.shape[:-2] for x in xs])
        wide = [np.broadcast_to(x, lead + x.shape[-2:]) for x in xs]
        found = [f(*[x[at] for x in wide]) for at in np.ndindex(*lead)]
        if not isinstance(found[0], tuple):
            return np.reshape(found, lead + np.shape(found[0]))
        return tuple(np.reshape(p, lead + np.shape(p[0])) for p in zip(*found, strict=True))

    return over


def _symmetric(a: Any) -> Any:
    return np.tril(a) + np.tril(a, -1).T


def _cholesky(a: Any) -> Any:
    n = len(a)
    out = np.zeros((n, n))
    for j in range(n):
        for i in range(j, n):
            rest = a[i, j] - sum(out[i, k] * out[j, k] for k in range(j))
            out[i, j] = math.sqrt(rest) if i == j else rest / out[j, j]
    return out, False


def _cholesky_pullback(factor: Any, ct: Any) -> Any:
    """The Jacobian of A = L L^T in the lower triangles, solved with."""
    places = list(zip(*np.tril_indices(len(factor)), strict=True))
    jacobian = np.zeros((len(places), len(places)))
    factor = np.tril(factor)
    for column, (k, m) in enumerate(places):
        step = np.zeros_like(factor)
        step[k, m] = 1
        change = step @ factor.T + factor @ step.T
        jacobian[:, column] = [change[at] for at in places]
    out = np.zeros_like(factor)
    found = np.linalg.solve(jacobian.T, [ct[at] for at in places])
    for at, value in zip(places, found, strict=True):
        out[at] = value
    return out


def _eliminated(a: Any) -> Any:
    """Gaussian elimination with partial pivoting: packed factors, transposed, and pivots."""
    a, pivots = np.array(a), []
    for k in range(len(a)):
        best = k + int(np.argmax(np.abs(a[k:, k])))
        pivots.append(best + 1)
        a[[k, best]] = a[[best, k]]
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a.T, np.array(pivots, np.int32)


def _aligned(v: Any, like: Any) -> Any:
    """Columns with the signs of others."""
    return v * np.sign(np.sum(v * like, axis=0))


def _eigenvectors(a: Any, lower: bool) -> Any:
    """From the null space of A - w I; LAPACK's signs."""
    a = _symmetric(a if lower else a.T)
    w = np.sort(np.linalg.eigvals(a))
    v = np.stack([np.linalg.svd(a - k * np.eye(len(a)))[2][-1] for k in w], axis=1)
    return w, _aligned(v, np.linalg.eigh(a, "L" if lower else "U")[1]), False


REAL_SPECTRUM = np.array([[3.0, 0.5, -0.2], [0.3, 1.0, 0.4], [0.1, -0.3, -2.0]])


def _real_eigenvectors(a: Any) -> Any:
    """From the null space of A - w I; LAPACK's order and signs."""
    w, like = np.linalg.eig(a)
    v = np.stack([np.linalg.svd(a - k * np.eye(len(a)))[2][-1] for k in w], axis=1)
    return w, _aligned(v, like), False, False


def _further_columns(a: Any, of: str) -> Any:
    """The null space of the transpose, in LAPACK's basis."""
    a = a.T if of == "right" else a
    further = np.linalg.qr(a, "complete")[0] if of == "qr" else np.linalg.svd(a)[0]
    further = np.linalg.svd(a.T)[2].T if of == "right" else further
    null = scipy.linalg.null_space(a.T)
    return null @ (null.T @ further[:, a.shape[1] :])


def _singular_vectors(a: Any) -> Any:
    """From the eigenvectors of A^T A, or A A^T; LAPACK's signs."""
    like_u, _, like_vt = np.linalg.svd(a, full_matrices=False)
    k = min(a.shape)
    if a.shape[0] < a.shape[1]:
        u = _aligned(np.linalg.eigh(a @ a.T)[1][:, ::-1][:, :k], like_u)
        s = np.sqrt(np.diag(u.T @ a @ a.T @ u))
        return u, s, (u / s).T @ a, False
    v = _aligned(np.linalg.eigh(a.T @ a)[1][:, ::-1][:, :k], like_vt.T)
    s = np.sqrt(np.diag(v.T @ a.T @ a @ v))
    return a @ v / s, s, v.T, False


def _gram_schmidt(a: Any) -> Any:
    """LAPACK's signs."""
    like, q = np.linalg.qr(a)[0], np.zeros_like(a)
    for j in range(a.shape[1]):
        rest = a[:, j] - q[:, :j] @ (q[:, :j].T @ a[:, j])
        rest -= q[:, :j] @ (q[:, :j].T @ rest)
        q[:, j] = rest / np.linalg.norm(rest)
    q = _aligned(q, like)
    return q, np.triu(q.T @ a)


def _factored(
    primitive: Primitive,
    a: Any,
    b: Any,
    f: Any,
    by: Primitive = LU(),  # noqa: B008
) -> Sample:
    rest = () if b is None else (b,)
    operands = (a, *by.evaluate(a), *rest)

    def reference(a: Any, factors: Any, pivots: Any, *rest: Any) -> Any:
        return each_matrix(f)(a, *rest)

    return Sample(primitive, operands, reference, factored=by)


def _systems() -> dict[type, list[Sample]]:
    inverse = np.linalg.inv
    batches = [(3, 3), (1, 1), (2, 3, 3)]
    pairs = [((3, 3), (3, 2)), ((1, 1), (1, 1)), ((2, 3, 3), (3, 1)), ((3, 3), (2, 3, 2))]
    rows = [((3, 3), (2, 3)), ((1, 1), (1, 1)), ((2, 3, 3), (1, 3)), ((3, 3), (2, 4, 3))]
    large = np.tril(triangular(40, 40)) / 2  # pulled back by blocks
    tri = {(True, 0): np.tril, (True, -1): lambda x: np.tril(x, -1), (False, 1): _strictly_above}

    def triangle(low: bool, unit: bool) -> Any:
        def solved(t: Any, b: Any) -> Any:
            t = (np.tril if low else np.triu)(t)
            if unit:
                np.fill_diagonal(t, 1)
            return inverse(t) @ b

        return solved

    return {
        Triangle: [
            Sample(Triangle(*key), (normal(*shape),), f)
            for key, f in tri.items()
            for shape in ((3, 3), (2, 4), (4, 2), (2, 3, 3))
        ],
        TriangularSolve: [
            Sample(
                TriangularSolve(low, unit),
                (triangular(*t), normal(*b, seed=1)),
                each_matrix(triangle(low, unit)),
                label=f"{low=}, {unit=}, {t}, {b}",
            )
            for low in (True, False)
            for unit in (True, False)
            for t, b in pairs
        ],
        Cholesky: [
            *[Sample(Cholesky(), (definite(*s),), each_matrix(_cholesky)) for s in batches],
            Sample(
                Cholesky(),
                (np.stack([-np.eye(2), np.eye(2)]),),
                lambda x: (np.stack([np.full((2, 2), np.nan), np.eye(2)]), [True, False]),
                smooth=False,
                label="failed",
            ),
        ],
        CholeskyPullback: [
            *[
                Sample(
                    CholeskyPullback(),
                    (triangular(*s), normal(*s, seed=1)),
                    each_matrix(_cholesky_pullback),
                )
                for s in batches
            ],
            Sample(CholeskyPullback(), (large, normal(40, 40)), _cholesky_pullback),
        ],
        LU: [
            Sample(LU(), (regular(*s),), each_matrix(_eliminated), reverse=False) for s in batches
        ],
        LUSolve: [
            _factored(
                LUSolve(turned),
                regular(*a),
                normal(*b, seed=1),
                lambda a, b, turned=turned: b @ inverse(a if turned else a.T),
            )
            for turned in (False, True)
            for a, b in rows
        ],
        InverseT: [
            _factored(InverseT(), regular(*s), None, lambda a: inverse(a.T)) for s in batches
        ],
        SLogDet: [
            _factored(SLogDet(), a, None, lambda a: tuple(np.linalg.slogdet(a)))
            for a in (*[regular(*s) for s in batches], regular(3, 3)[::-1])
        ],
        **_banded(),
        LinearFilter: [
            Sample(
                LinearFilter(), (normal(b), normal(a, seed=1) + 3.0, normal(*x, seed=2)), _filtered
            )
            for b, a, x in ((3, 2, (5,)), (1, 3, (2, 4)), (4, 1, (2, 2)), (2, 3, (1,)))
        ],
    }


def _filtered(b: Any, a: Any, x: Any) -> Any:
    y = np.zeros(x.shape)
    for t in range(x.shape[-1]):
        lags = range(t + 1)
        terms = [b[k] * x[..., t - k] for k in lags if k < len(b)]
        terms += [-a[k] * y[..., t - k] for k in lags[1:] if k < len(a)]
        y[..., t] = sum(terms) / a[0]
    return y


def _banded() -> dict[type, list[Sample]]:
    def bands(*shape: int, lower: int) -> Any:
        """Columns whose main diagonal is large; what isn't in the matrix isn't 0, either."""
        upper = shape[-1] - 1 - 2 * lower
        return normal(*shape) + 3 * (np.arange(shape[-1]) == lower + upper)

    def matrix(columns: Any, lower: int) -> Any:
        n, middle = len(columns), columns.shape[1] - 1 - lower
        inside = [(i, j) for i in range(n) for j in range(n) if lower - middle <= i - j <= lower]
        found = np.zeros((n, n))
        for i, j in inside:
            found[i, j] = columns[j, middle + i - j]
        return found

    def stored(columns: Any, lower: int) -> Any:
        """With zeros for what isn't in the matrix."""
        n, middle = columns.shape[-2], columns.shape[-1] - 1 - lower
        row = np.arange(n)[:, None] + np.arange(columns.shape[-1]) - middle
        inside = (row >= 0) & (row < n) & (np.arange(columns.shape[-1]) >= lower)
        return np.where(inside, columns, 0.0)

    def eliminated(lower: int) -> Any:
        def by_columns(columns: Any) -> Any:
            x, n, middle = columns.copy(), len(columns), columns.shape[1] - 1 - lower
            pivots = np.zeros(n, np.int32)
            for k in range(n):
                below = range(k, min(n, k + lower + 1))
                pivot = max(below, key=lambda i: abs(x[k, middle + i - k]))
                pivots[k] = pivot + 1
                later = range(k, min(n, k + middle + 1))
                for j in later:
                    one, other = middle + k - j, middle + pivot - j
                    x[j, one], x[j, other] = x[j, other], x[j, one]
                for i in below[1:]:
                    x[k, middle + i - k] /= x[k, middle]
                    for j in later[1:]:
                        x[j, middle + i - j] -= x[k, middle + i - k] * x[j, middle + k - j]
            return x, pivots

        return by_columns

    def solution(lower: int, turned: bool) -> Any:
        def solved(columns: Any, b: Any) -> Any:
            a = matrix(columns, lower)
            return b @ np.linalg.inv(a if turned else a.T)

        return solved

    cases = [  # the columns' shape, how many diagonals there are below, and the shape of b
        ((4, 4), 1, (2, 4)),
        ((5, 6), 2, (1, 5)),
        ((3, 3), 0, (2, 3)),
        ((3, 3), 1, (2, 3)),
        ((2, 8), 2, (1, 2)),
        ((2, 4, 4), 1, (2, 3, 4)),
    ]
    return {
        BandedLU: [
            Sample(
                BandedLU(lower),
                (stored(bands(*shape, lower=lower), lower),),
                each_matrix(eliminated(lower)),
                reverse=False,
            )
            for shape, lower, _ in cases
        ],
        BandedSolve: [
            _factored(
                BandedSolve(lower, turned),
                bands(*shape, lower=lower),
                normal(*b, seed=1),
                solution(lower, turned),
                BandedLU(lower),
            )
            for turned in (False, True)
            for shape, lower, b in cases
        ],
    }


def _by_rows(a: Any, *along: Any) -> Any:
    """D^m det(a)[along]: rows of each direction in the place of rows of the matrix, as it is linear
    in each row."""
    if not along:
        return _leibniz(a)
    total = 0.0
    for rows in permutations(range(len(a)), len(along)):
        moved = np.array(a)
        for row, e in zip(rows, along, strict=True):
            moved[row] = e[row]
        total += _leibniz(moved)
    return total


def _leibniz(a: Any) -> Any:
    n = len(a)
    total = 0.0
    for p in permutations(range(n)):
        odd = sum(p[i] > p[j] for j in range(n) for i in range(j)) % 2
        total += (-1) ** odd * math.prod(a[i, p[i]] for i in range(n))
    return np.float64(total)


def _cofactors(a: Any, *along: Any) -> Any:
    """The derivative along each element."""
    found = np.zeros_like(a)
    for at in np.ndindex(a.shape):
        unit = np.zeros_like(a)
        unit[at] = 1
        found[at] = _by_rows(a, *along, unit)
    return found


def _determinants() -> dict[type, list[Sample]]:
    rank = {r: normal(3, r) @ normal(r, 3, seed=1) for r in range(3)}
    every = [regular(3, 3), regular(1, 1), regular(2, 3, 3), *rank.values(), np.zeros((1, 1))]
    every.append(np.stack([*rank.values(), regular(3, 3)]))
    return {
        Det: [
            Sample(Det(), (a,), each_matrix(_by_rows), label=f"{k}, {a.shape}")
            for k, a in enumerate(every)
        ],
        Cofactors: [
            Sample(
                Cofactors(m),
                (a, *[normal(*a.shape, seed=2 + e) for e in range(m)]),
                each_matrix(_cofactors),
                label=f"{k}, {a.shape}, {m}",
            )
            for m in range(4)
            for k, a in enumerate(every)
        ],
    }


def _strictly_above(x: Any) -> Any:
    return x - np.tril(x)


def _spectral() -> dict[type, list[Sample]]:
    square = [(3, 3), (1, 1), (2, 3, 3)]
    shapes = [*square, (4, 2), (2, 4), (2, 4, 3)]
    return {
        Eig: [
            Sample(Eig(), (a,), each_matrix(_real_eigenvectors), label=str(a.shape))
            for a in (REAL_SPECTRUM[:1, :1], REAL_SPECTRUM, np.stack([REAL_SPECTRUM + 1] * 2))
        ],
        Complement: [
            Sample(
                Complement(of),
                (normal(2, 4) if of == "right" else normal(4, 2),),
                lambda a, of=of: _further_columns(a, of),
                smooth=False,
                label=of,
            )
            for of in ("left", "right", "qr")
        ],
        EigH: [
            Sample(
                EigH(low),
                (normal(*s),),
                each_matrix(lambda a, low=low: _eigenvectors(a, low)),
                label=f"{low=}, {s}",
            )
            for low in (True, False)
            for s in square
        ],
        SVD: [Sample(SVD(), (normal(*s),), each_matrix(_singular_vectors)) for s in shapes],
        **_degenerate(),
        QR: [
            Sample(QR(), (normal(*s),), each_matrix(_gram_schmidt))
            for s in shapes
            if s[-2] >= s[-1]
        ],
        PInv: [
            Sample(
                PInv(1e-12),
                (normal(*s),),
                each_matrix(lambda a: (np.linalg.lstsq(a, np.eye(len(a)))[0], False)),
            )
            for s in shapes
        ],
    }


def _degenerate() -> dict[type, list[Sample]]:
    """Of values that are equal, or 0, and of others. What they are good for is held by
    special_points_test.py: it can't be told from differences of the operands, some of which are
    functions of others."""
    options: dict[str, Any] = {"smooth": False}
    found: dict[type, list[Sample]] = {
        EigenvaluePullback: [],
        ChosenEigenvectors: [],
        SingularValuePullback: [],
        ChosenSingularVectors: [],
    }
    for a in (np.eye(3), _symmetric(normal(3, 3)), np.stack([np.eye(2), np.diag([1.0, 2.0])])):
        w, v = np.linalg.eigh(a)
        c, z = normal(*w.shape), _symmetric(normal(*a.shape, seed=1))
        found[EigenvaluePullback].append(
            Sample(EigenvaluePullback(True), (a, w, v, c), _recomposed_symmetric, **options)
        )
        found[ChosenEigenvectors].append(
            Sample(
                ChosenEigenvectors(),
                (w, v, z),
                each_matrix_of(1, lambda w, v, z: _diagonalised(w, v, v, z)[0]),
                **options,
            )
        )
    for a in (np.eye(3), normal(3, 2), np.diag([2.0, 1.0])):
        u, s, vt = np.linalg.svd(a, full_matrices=False)
        found[SingularValuePullback].append(
            Sample(
                SingularValuePullback(),
                (a, u, s, vt, normal(*s.shape)),
                lambda a, u, s, vt, c: u @ np.diag(c) @ vt,
                **options,
            )
        )
        z = _symmetric(normal(3, 3, seed=1))[: len(a), : a.shape[1]]
        found[ChosenSingularVectors].append(
            Sample(
                ChosenSingularVectors(),
                (u, s, vt, z),
                lambda u, s, vt, z: (lambda left, right: (left, right.T))(
                    *_diagonalised(s, u, vt.T, z, -1)
                ),
                **options,
            )
        )
    return found


def each_matrix_of(vectors: int, f: Callable[..., Any]) -> Reference:
    """`each_matrix` for a first operand that is a batch of vectors."""
    over = each_matrix(lambda w, *xs: f(w[:, 0], *xs))
    return lambda w, *xs: over(w[..., None], *xs)


def _recomposed_symmetric(a: Any, w: Any, v: Any, c: Any) -> Any:
    return np.einsum("...ij,...j,...kj->...ik", v, c, v)


def _diagonalised(s: Any, u: Any, v: Any, z: Any, order: int = 1) -> Any:
    """The vectors, turned together so that U^T Z V is diagonal where all values are equal."""
    if np.ptp(s) > 1e-6:
        return u, v
    turn = np.linalg.eigh(_symmetric(u.T @ z @ v))[1][:, ::order]
    return u @ turn, v @ turn


def small_tape() -> Tape:
    """f(x, y) = (x * y, sin(x))."""
    builder = Builder("f")
    x = builder.input(Aval((3,), np.dtype(float)), "x")
    y = builder.input(Aval((3,), np.dtype(float)), "y")
    (z,) = builder.call(ew.mul, [x, y])
    (s,) = builder.call(ew.sin, [x])
    return builder.finish([z, s])


def exp_tape() -> Tape:
    builder = Builder("my_exp")
    x = builder.input(Aval((3,), np.dtype(float)), "x")
    (y,) = builder.call(ew.exp, [x])
    return builder.finish([y])


def exp_backward(cts: Any, outs: Any, xs: Any) -> Any:
    """The reverse rule of the exponential function, as a user's."""
    return [cts[0] * outs[0]]


def exp_forward(ts: Any, outs: Any, xs: Any) -> Any:
    """The forward rule."""
    return [ts[0] * outs[0]]


def numpy_exp(x: Any) -> Any:
    return (np.exp(x),)


def _calls() -> dict[type, list[Sample]]:
    x = normal(3)
    pair = (x, normal(3, seed=1))
    types = (Aval((3,), np.dtype(float)),)
    exp = each(math.exp)
    return {
        # The `inline` pass puts the sub-tape's calls in its place before any rule runs.
        CallTape: [
            Sample(
                CallTape(small_tape()),
                pair,
                lambda x, y: (x * y, np.sin(x)),
                reverse=False,
                forward=False,
            )
        ],
        Custom: [
            Sample(Custom("my_exp", exp_tape(), exp_backward), (x,), exp),
            Sample(Custom("my_exp", exp_tape(), None, exp_forward), (x,), exp),
        ],
        ForeignCall: [
            Sample(ForeignCall("my_exp", numpy_exp, types, 1, exp_backward), (x,), exp),
            Sample(ForeignCall("my_exp", numpy_exp, types, 1, None, "", exp_forward), (x,), exp),
            Sample(
                ForeignCall("my_exp", numpy_exp, types, 1),
                (x,),
                exp,
                reverse=False,
                forward=False,
                label="no rule",
            ),
        ],
    }


def _body(function: Callable[..., Any], *avals: Aval) -> Tape:
    """The tape of a function of a step and of values of these types."""
    builder = Builder("body")
    writer = Writer(builder)
    step = builder.input(Aval((), np.dtype(np.int64)), "t")
    found = function(*[writer.node(x) for x in (step, *map(builder.input, avals))])
    return builder.finish([x.operand for x in found])


def _narrow(aval: Aval) -> Aval:
    return Aval(aval.shape, np.dtype(np.float32)) if aval.dtype.kind == "f" else aval


def _loop(
    function: Callable[..., Any],
    reference: Reference,
    rounds: int,
    operands: Sequence[Any],
    carried: int = 1,
    most: int | None = None,
    backwards: bool = False,
    until: bool = False,
    recomputed: bool = False,
    label: str = "",
) -> Sample:
    """A loop of so many rounds of a function; the operands are what is carried, and invariants."""
    avals = [Aval(np.shape(x), np.asarray(x).dtype) for x in operands]
    fields = (carried, rounds if most is None else most, backwards, until, recomputed)
    return Sample(
        Loop(_body(function, *avals), *fields),
        (np.int64(rounds), *([np.bool_(True)] * until), *operands),
        reference,
        narrow=Loop(_body(function, *map(_narrow, avals)), *fields),
        label=label,
    )


ROW = Window((0, Slice(0, 3)), ((1, 0),))  # x[t]
LAST = Window((4, Slice(0, 3)), ((-1, 0),))  # x[4 - t]
PUT = SetWindow((0, Slice(0, 3)), ((1, 0),))  # x[t] = ...
PUT_NEXT = SetWindow((1, Slice(0, 3)), ((1, 0),))  # x[t + 1] = ...
ADD = AddWindow((Slice(0, 2),), ((1,),))  # x[t:t + 2] += ...


def _loops() -> dict[type, list[Sample]]:
    s, h, w = normal(seed=5), normal(3, seed=6), normal(3, seed=7)
    x, y = normal(5, 3, seed=8), normal(5, 3, seed=9)

    def chain(t: Any, s: Any, h: Any, w: Any, x: Any) -> Any:
        h = ew.sin(h * w) + ROW(x, t)
        return s + Sum((0,))(h * h), h

    def chained(order: Any) -> Reference:
        def run(n: Any, s: Any, h: Any, w: Any, x: Any) -> Any:
            for t in order(int(n)):
                h = np.array([math.sin(a * b) + c for a, b, c in zip(h, w, x[t], strict=True)])
                s = s + sum(a * a for a in h)
            return s, h

        return run

    def turning(t: Any, a: Any, b: Any, w: Any) -> Any:
        return b, a * b + w

    def turned(n: Any, a: Any, b: Any, w: Any) -> Any:
        for _ in range(n):
            a, b = b, a * b + w
        return a, b

    def filling(t: Any, x: Any, w: Any) -> Any:
        return (PUT_NEXT(x, ew.sin(ROW(x, t) * w), t),)

    def filled(n: Any, x: Any, w: Any) -> Any:
        rows = [x[0]]
        for _ in range(n):
            rows.append(np.sin(rows[-1] * w))
        return np.array([*rows, *x[n + 1 :]])

    def recording(t: Any, h: Any, out: Any, w: Any) -> Any:
        h = ew.tanh(h * w)
        return h, PUT(out, h * h, t)

    def recorded(n: Any, h: Any, out: Any, w: Any) -> Any:
        states = []
        for _ in range(n):
            h = np.tanh(h * w)
            states.append(h * h)
        return h, np.array([*(states[::-1] if n == 5 else states), *out[n:]])

    def collecting(t: Any, total: Any, w: Any, x: Any) -> Any:
        total = ADD(total, GetItem((Slice(0, 2),))(LAST(x, t) * w), t)
        return (AddWindow((0,), ())(total, Sum((0,))(w * w)),)

    def collected(n: Any, total: Any, w: Any, x: Any) -> Any:
        total = list(total)
        for t in range(n):
            total[t] += x[4 - t, 0] * w[0]
            total[t + 1] += x[4 - t, 1] * w[1]
            total[0] += sum(a * a for a in w)
        return np.array(total)

    def inner(t: Any, s: Any, rows: Any, outer: Any) -> Any:
        """s = sin(s * rows[outer, 2 - t])"""
        at = Window((0, 2), ((0, -1), (1, 0)))
        return (ew.sin(s * at(rows, t, outer)),)

    def nested(t: Any, s: Any, h: Any, rows: Any) -> Any:
        dtype = rows.aval.dtype
        step = Aval((), np.dtype(np.int64))
        body = _body(inner, Aval((), dtype), rows.aval, step)
        s = Loop(body, 1, 3)(Literal(np.int64(3)), s, rows, t)
        return s, h * s

    def nests(n: Any, s: Any, h: Any, rows: Any) -> Any:
        for t in range(n):
            for j in range(3):
                s = math.sin(s * rows[t, 2 - j])
            h = h * s
        return s, h

    def counting(t: Any, n: Any, h: Any, start: Any) -> Any:
        return n + start, ew.where(ew.greater(n, t), ew.sin(h), h * 0.5)

    def counted(rounds: Any, n: Any, h: Any, start: Any) -> Any:
        for t in reversed(range(rounds)):
            n, h = n + start, np.sin(h) if n > t else h * 0.5
        return n, h

    def growing(t: Any, s: Any, w: Any, end: Any) -> Any:
        s = s + ew.sin(w) * w
        return s, ew.less(s, end)

    def grown(most: Any, more: Any, s: Any, w: Any, end: Any) -> Any:
        made = 0
        while more and made < most:
            s, made = s + math.sin(w) * w, made + 1
            more = s < end
        return s, np.int64(made), more

    zeros, start, end = np.zeros((5, 3)), np.float64(0.3), np.float64(2.0)
    size = np.float64(0.7)
    return {
        Loop: [
            _loop(
                chain,
                chained(range),
                5,
                (s, h, w, x),
                2,
                recomputed=True,
                label="run again",
            ),
            _loop(growing, grown, 9, (start, size, end), until=True, label="until"),
            _loop(growing, grown, 2, (start, size, end), until=True, label="until it has to stop"),
            _loop(chain, chained(range), 5, (s, h, w, x), 2, label="forwards"),
            _loop(
                chain,
                chained(lambda n: reversed(range(n))),
                5,
                (s, h, w, x),
                2,
                backwards=True,
                label="backwards",
            ),
            _loop(chain, chained(range), 2, (s, h, w, x), 2, most=5, label="fewer than most"),
            _loop(chain, lambda n, *xs: xs[:2], 0, (s, h, w, x), 2, most=5, label="no rounds"),
            _loop(turning, turned, 5, (h, w, 0.5 * h), 2, label="places that turn"),
            _loop(filling, filled, 4, (x, w), label="read where it was written"),
            _loop(filling, filled, 2, (x, w), most=4, label="written in part"),
            _loop(recording, recorded, 3, (h, x, w), 2, most=5, label="states kept"),
            _loop(
                recording,
                recorded,
                5,
                (h, zeros, w),
                2,
                backwards=True,
                label="states kept backwards",
            ),
            _loop(collecting, collected, 5, (normal(6), w, y), label="added to in place"),
            _loop(nested, nests, 4, (s, h, y), 2, label="nested"),
            _loop(
                counting,
                counted,
                4,
                (np.int64(0), h, np.int64(1)),
                2,
                backwards=True,
                label="integers",
            ),
        ]
    }


def _windows() -> dict[type, list[Sample]]:
    one, two = np.int64(1), np.int64(2)
    back = (Slice(0, 2, 1), Slice(3, 2, -2))  # x[t:t + 2, 3 - u::-2], of two elements
    moves = ((1, 0), (0, -1))
    y = normal(2, 2, seed=2)
    rows = ((2, Slice(0, 4)), ((-1, 0),))  # x[2 - t]

    def at(i: int, j: int, t: int = 1, u: int = 1) -> Any:
        return i + t, 3 - u - 2 * j

    def taken(x: Any, t: Any, u: Any) -> Any:
        return np.array([[x[at(i, j, t, u)] for j in range(2)] for i in range(2)])

    def placed(y: Any, t: Any, u: Any) -> Any:
        return _placed(y, (3, 4), lambda i, j: at(i, j, t, u))

    def written(x: Any, y: Any, t: Any, u: Any) -> Any:
        return _written(x, y, lambda i, j: at(i, j, t, u))

    def added(x: Any, y: Any, t: Any, u: Any) -> Any:
        return x + placed(y, t, u)

    element = ((0, 1), ((1, 1),))  # x[t, 1 + t]
    whole = ((Slice(0, 3), Slice(0, 4)), ())
    row, number = normal(4, seed=3), normal(seed=4)
    f4 = np.dtype(np.float32)
    return {
        Empty: [  # whose elements are nobody's business
            Sample(Empty((2, 3), np.dtype(float)), (), lambda: np.zeros((2, 3))),
            Sample(Empty((), f4), (), lambda: np.zeros((), f4), label="a number"),
        ],
        Window: [
            Sample(Window(back, moves), (A, one, one), taken),
            Sample(Window(back, moves), (A, np.int64(0), np.int64(0)), taken, label="at first"),
            Sample(Window(*rows), (A, two), lambda x, t: x[0], label="a row"),
            Sample(Window(*element), (A, two), lambda x, t: x[2, 3], label="an element"),
            Sample(Window(*whole), (A,), lambda x: x, label="everything"),
        ],
        PlaceWindow: [
            Sample(PlaceWindow((3, 4), back, moves), (y, one, one), placed),
            Sample(
                PlaceWindow((3, 4), *rows),
                (row, two),
                lambda y, t: np.array([y, 0 * y, 0 * y]),
                label="a row",
            ),
            Sample(
                PlaceWindow((3, 4), *element),
                (number, two),
                lambda y, t: _placed(np.asarray(y), (3, 4), lambda: (2, 3)),
                label="an element",
            ),
        ],
        SetWindow: [
            Sample(SetWindow(back, moves), (A, y, one, one), written),
            Sample(
                SetWindow(*rows),
                (A, row, two),
                lambda x, y, t: np.array([y, x[1], x[2]]),
                label="a row",
            ),
            Sample(
                SetWindow(*element),
                (A, number, two),
                lambda x, y, t: _written(x, np.asarray(y), lambda: (2, 3)),
                label="an element",
            ),
            Sample(SetWindow(*whole), (A, 2 * A), lambda x, y: y, label="everything"),
        ],
        AddWindow: [
            Sample(AddWindow(back, moves), (A, y, one, one), added),
            Sample(
                AddWindow(*rows),
                (A, row, two),
                lambda x, y, t: np.array([x[0] + y, x[1], x[2]]),
                label="a row",
            ),
            Sample(
                AddWindow(*element),
                (A, number, two),
                lambda x, y, t: x + _placed(np.asarray(y), (3, 4), lambda: (2, 3)),
                label="an element",
            ),
            Sample(AddWindow(*whole), (A, 2 * A), lambda x, y: 3 * x, label="everything"),
        ],
    }


def _parts() -> dict[type, list[Sample]]:
    one, two = np.int64(1), np.int64(2)
    lower = ((Slice(0, 3), Span(0, 1, 1, 4)), ((0, 0, 1),))  # x[:, :t + 1]
    row = ((0, Span(3, 3, -1, 5)), ((1, 0, -1),))  # x[t, 3:t:-1], of at most five elements
    corner = ((Span(1, 1, 1, 3), Span(0, 4, 2, 4)), ((0, 0, 1, -2),))  # x[1:t + 2, :4 - 2 * t:2]
    nothing = ((0, Span(1, 2, 1, 5)), ((1, 0, -1),))
    y, z, w = normal(3, 4, seed=2), normal(5, seed=3), normal(3, 4, seed=5)

    def front(x: Any, shape: tuple[int, ...], fill: float = 0.0) -> Any:
        out = np.full(shape, fill, x.dtype)
        out[tuple([slice(n) for n in x.shape])] = x
        return out

    def changed(x: Any, at: Any, y: Any, adds: bool) -> Any:
        out = x.copy()
        out[at] = out[at] * adds + y[tuple([slice(n) for n in out[at].shape])]
        return out

    down = np.s_[1, 3:1:-1]  # after one step
    found: dict[type, list[Sample]] = {
        Part: [
            Sample(Part(*lower, 0), (A, one), lambda x, t: front(x[:, :2], (3, 4))),
            Sample(Part(*row, -2.0), (A, one), lambda x, t: front(x[down], (5,), -2.0)),
            Sample(Part(*corner, 1), (A, one), lambda x, t: front(x[1:3, :4:2], (3, 4), 1.0)),
            Sample(Part(*nothing, 0), (A, two), lambda x, t: np.zeros(5), label="nothing"),
        ],
        PlacePart: [
            Sample(
                PlacePart((3, 4), *lower),
                (y, one),
                lambda y, t: changed(0 * A, np.s_[:, :2], y, False),
            ),
            Sample(PlacePart((3, 4), *row), (z, one), lambda z, t: changed(0 * A, down, z, False)),
        ],
    }
    for kind in (SetPart, AddPart):
        adds = kind is AddPart
        found[kind] = [
            Sample(
                kind(*lower),
                (A, y, one),
                lambda x, y, t, adds=adds: changed(x, np.s_[:, :2], y, adds),
            ),
            Sample(
                kind(*row),
                (A, z, one),
                lambda x, z, t, adds=adds: changed(x, down, z, adds),
                label="a row",
            ),
            Sample(
                kind(*corner),
                (A, w, one),
                lambda x, w, t, adds=adds: changed(x, np.s_[1:3, :4:2], w, adds),
                label="a corner",
            ),
            Sample(kind(*nothing), (A, z, two), lambda x, z, t: x, label="nothing"),
        ]
    return found


def _other() -> dict[Any, list[Sample]]:
    flags = np.array([True, False])
    f4 = np.dtype(np.float32)
    ordered = np.array([0.5, 1.0, 1.0, 3.0])
    ties = np.array([[1.0, 0.0, 1.0], [np.nan, 2.0, -1.0]])
    return {
        Sum: list(_sum()),
        ExactSum: list(_exact_sum()),
        Prod: list(_prod()),
        Max: list(_extremum(Max, max, -np.inf)),
        Min: list(_extremum(Min, min, np.inf)),
        LogSumExp: list(_log_sum_exp()),
        Softmax: list(_shares(Softmax, sp.softmax)),
        LogSoftmax: list(_shares(LogSoftmax, sp.log_softmax)),
        Any_: list(_flags(Any_, any)),
        All: list(_flags(All, all)),
        ArgMax: list(_arg(ArgMax, 1)),
        ArgMin: list(_arg(ArgMin, -1)),
        CumSum: list(_running(CumSum, lambda a, x: a + x)),
        CumProd: list(_running(CumProd, lambda a, x: a * x)),
        CumLinear: list(_recurrences()),
        Correlate: list(_correlations()),
        Einsum: _products(Einsum),
        Products: _products(Products),
        ArgSort: [
            Sample(
                ArgSort(1),
                (A,),
                lambda x: np.array([sorted(range(4), key=row.__getitem__) for row in x]),
            ),
            Sample(
                ArgSort(0),
                (A,),
                lambda x: np.array([sorted(range(3), key=c.__getitem__) for c in x.T]).T,
            ),
            Sample(
                ArgSort(1, True),
                (ties,),
                lambda x: np.array([[1, 0, 2], [2, 1, 0]]),
                smooth=False,
                label="ties, nan",
            ),
        ],
        ArgPartition: [
            Sample(ArgPartition(axis, kth), (x,), lambda x, a=axis, k=kth: np.argpartition(x, k, a))
            for axis, kth, x in ((1, (1,), A), (0, (0, 2), A), (0, (0,), A[:0]))
        ],
        SearchSorted: [
            Sample(
                SearchSorted(r),
                (ordered, np.array([[0.0, 1.0], [2.0, 9.0]])),
                lambda a, v, r=r: np.array([[0, 3 if r else 1], [3, 4]]),
                smooth=False,
                label=f"right={r}",
            )
            for r in (False, True)
        ],
        Named: [
            Sample(Named("h"), (normal(2, 3),), lambda x: x),
            Sample(Named("h"), (normal(),), lambda x: x, label="scalar"),
        ],
        ew.AsType: [
            # Differences can't see a slope through the steps of float32.
            Sample(ew.AsType(f4), (normal(2, 3),), lambda x: x.astype("f4"), smooth=False),
            Sample(
                ew.AsType(np.dtype(float)),
                (normal(2, 3).astype("f4"),),
                lambda x: x.astype("f8"),
                smooth=False,
            ),
            Sample(ew.AsType(np.dtype(float)), (flags,), lambda x: np.array([1.0, 0.0])),
            Sample(ew.AsType(np.dtype(np.int64)), (normal(3),), each(int, np.int64)),
            Sample(ew.AsType(np.dtype(bool)), (KINKED,), each(bool, bool), smooth=False),
            Sample(ew.AsType(f4), (normal(),), lambda x: np.float32(x), smooth=False),
        ],
        special.BesselI: [
            Sample(
                special.BesselI(n, scaled),
                (normal(2, 3),),
                lambda x, n=n, scaled=scaled: _bessel_series(n, x) * np.exp(-abs(x) * scaled),
            )
            for n in (0, 1, 2)
            for scaled in (False, True)
        ],
        ParameterSlope: [
            Sample(
                ParameterSlope(of, orders),
                (within(*bounds)(3), *[positive(2, 3, seed=k) for k in range(more)], x),
                _slope_by_differences(of, orders),
                label=f"{of} {orders}",
            )
            for of, orders, bounds, more, x in (
                ("gammainc", (1,), (0.5, 2), 0, positive(2, 3)),
                ("gammainc", (2,), (0.5, 2), 0, positive(2, 3)),
                ("betainc", (1, 0), (0.5, 2), 1, within(0.1, 0.9)(2, 3)),
                ("betainc", (1, 1), (0.5, 2), 1, within(0.1, 0.9)(2, 3)),
                ("zeta", (1,), (1.5, 3), 0, positive(2, 3)),
            )
        ],
        BetaDerivative: [
            Sample(
                BetaDerivative(orders),
                (positive(3), positive(2, 3, seed=1)),
                _by_differences(mpmath.beta, orders),
                label=str(orders),
            )
            for orders in ((0, 0), (1, 0), (1, 1), (2, 1))
        ],
        Carlson: [
            Sample(
                Carlson(power, twice),
                (positive(3), positive(2, 3, seed=1), positive(2, 3, seed=2)),
                lambda *xs, power=power, twice=twice: carlson_by_quadrature(power, twice, *xs),
                label=f"{power} {twice}",
            )
            for power, twice in ((0, (3, 1, 3)), (0, (1, 1, 5)), (1, (3, 1, 1)))
        ],
        Chebyshev: [
            Sample(
                Chebyshev(order),
                (np.array([3, 5, -2]), within(-0.9, 0.9)(2, 3)),
                lambda n, x, order=order: chebyshev_slope(order, n, x),
                label=str(order),
                fixed=(0,),
            )
            for order in (1, 2)
        ],
        GammaDensity: [
            Sample(
                GammaDensity(fall),
                (positive(3), positive(2, 3, seed=1)),
                lambda a, x, fall=fall: x ** (a - 1 - fall) * np.exp(-x) / sp.gamma(a),
            )
            for fall in (-1, 0, 1)
        ],
        BetaDensity: [
            Sample(
                BetaDensity(i, j),
                (positive(3), positive(2, 3, seed=1), within(0.1, 0.9)(2, 3)),
                lambda a, b, x, i=i, j=j: x ** (a - 1 - i) * (1 - x) ** (b - 1 - j) / sp.beta(a, b),
            )
            for i, j in ((-1, -1), (0, 0), (1, 2))
        ],
        **{
            kind: [
                Sample(
                    kind(orders),
                    (positive(3), positive(2, 3, seed=1), normal(2, 3, seed=2)),
                    _by_differences(function, (*orders, 0, 0, 0)[:3]),
                    label=str(orders),
                )
                for orders in rows
            ]
            for kind, function, rows in (
                (OddsDensity, _odds_density, [()]),
                (OddsHeight, lambda *xs: mpmath.log(_odds_density(*xs)), [()]),
                (
                    OddsCumulant,
                    lambda *xs: mpmath.log(_odds_density(*xs)),
                    [(1, 0, 0), (0, 1, 0), (1, 1, 0), (2, 0, 1), (0, 0, 2)],
                ),
            )
        },
        OddsSlope: [
            Sample(
                OddsSlope(orders, over),
                (positive(3), positive(2, 3, seed=1), normal(2, 3, seed=2)),
                _by_differences(_odds_share, (*orders, 0), _odds_density if over else None),
                label=f"{orders} {over}",
            )
            for orders, over in (((1, 0), False), ((1, 1), False), ((0, 1), False), ((1, 0), True))
        ],
        RatioSlope: [
            Sample(
                RatioSlope(order),
                (np.array([1.5, 12.0, 3.0]), normal(2, 3, seed=2)),
                each(partial(_share_over_density, order)),
                label=str(order),
            )
            for order in (1, 2)
        ],
        Rise: [
            Sample(
                Rise(n),
                (positive(3), positive(2, 3, seed=1) * scale),
                each(partial(rise, n)),
                label=f"{n} {scale}",
            )
            for n in (0, 1, 2)
            for scale in (0.1, 1.0)
        ],
        special.Polygamma: [
            Sample(
                special.Polygamma(n),
                (positive(2, 3),),
                lambda x, n=n: (-1.0) ** (n + 1) * math.factorial(n) * sp.zeta(n + 1, x),
            )
            for n in (1, 2)
        ],
    }


def _by_differences(
    function: Callable[..., Any], orders: tuple[int, ...], over: Callable[..., Any] | None = None
) -> Reference:
    def slope(*xs: float) -> float:
        with mpmath.workdps(50):
            return float(mpmath.diff(function, xs, orders) / (over(*xs) if over else 1))

    return each(slope)


def _odds_share(a: Any, b: Any, d: Any) -> Any:
    odds = a / b * mpmath.exp(d)
    return mpmath.betainc(a, b, 0, odds / (1 + odds), regularized=True)


def _odds_density(a: Any, b: Any, d: Any) -> Any:
    odds = a / b * mpmath.exp(d)
    return odds**a * (1 + odds) ** -(a + b) / mpmath.beta(a, b)


def _share_over_density(order: int, s: float, d: float) -> float:
    with mpmath.workdps(50):

        def share(s: Any, d: Any) -> Any:
            return mpmath.gammainc(s, 0, s * mpmath.exp(d), regularized=True)

        return float(mpmath.diff(share, (s, d), (order, 0)) / mpmath.diff(share, (s, d), (0, 1)))


def _slope_by_differences(of: str, orders: tuple[int, ...]) -> Reference:
    """The derivative in the first parameters, by differences of fifty digits."""
    functions: dict[str, Callable[..., Any]] = {
        "gammainc": lambda a, x: mpmath.gammainc(a, 0, x, regularized=True),
        "betainc": lambda a, b, x: mpmath.betainc(a, b, 0, x, regularized=True),
        "zeta": mpmath.zeta,
    }

    def slope(*xs: float) -> float:
        with mpmath.workdps(50):
            first, last = xs[: len(orders)], xs[len(orders)]
            along = lambda *p: functions[of](*p, last)  # noqa: E731
            one = len(orders) == 1
            found = mpmath.diff(along, first[0] if one else first, orders[0] if one else orders)
            return float(found)

    return each(slope)


def _bessel_series(n: int, x: Any) -> Any:
    terms = [(x / 2) ** (2 * k + n) / math.factorial(k) / math.factorial(k + n) for k in range(30)]
    return np.sum(terms, 0)


def _kinks() -> dict[type, list[Sample]]:
    """Pullbacks and their transposes: of what ties nowhere, of ties, and of ties that one or two
    directions settle."""
    ties = np.array([0.0, -0.0, 0.0, 0.0, 2.0, -3.0])
    first = np.array([0.0, 1.0, -2.0, 0.0, -1.0, 1.0])
    second = np.array([0.0, -1.0, 1.0, 5.0, -1.0, 1.0])
    x, y, c = normal(6), normal(6, seed=1), [normal(6, seed=2), normal(6, seed=3)]
    grid = np.array([[1.0, 3.0, 3.0, 3.0], [2.0, 0.0, 2.0, 1.0]])
    moved = np.array([[9.0, 1.0, 1.0, 0.0], [1.0, 9.0, 2.0, 9.0]])
    found: dict[type, list[Sample]] = {k: [] for k in (Turned, Shared, Picked)}
    for n, ds in enumerate([(), (first,), (first, second)]):
        found[Turned].append(Sample(Turned(n), (ties, *ds, c[0]), _turned, smooth=False))
        found[Turned].append(Sample(Turned(n), (x, *ds, c[0]), _turned))
        for larger in (True, False):
            choose = np.maximum if larger else np.minimum
            for a, b in ((x, y), (ties, 0 * ties)):
                points = (a, b, *ds, choose(a, b))
                options = {"smooth": False, "label": f"{larger}, {n}, {b[0]:.1f}"}
                share = Shared(larger, n)
                found[Shared].append(Sample(share, (*points, c[0]), _shared(larger), **options))
                pick = Picked(larger, n)
                found[Picked].append(Sample(pick, (*points, *c), _picked(larger), **options))
    over: dict[type, list[Sample]] = {SharedOver: [], PickedOver: []}
    weights = np.array([[0, 1 / 3, 1 / 3, 1 / 3], [0.5, 0, 0.5, 0]])
    chosen = np.array([[0, 0.5, 0.5, 0], [0, 0, 1, 0.0]])
    for sign in (1, -1):  # the smallest of the negative ones, which move the other way
        for ds, w in (((), weights), ((sign * moved,), chosen)):
            points = (sign * grid, *ds, sign * np.array([3.0, 2.0]))
            fields = ((1,), sign > 0, len(ds))
            options = {"smooth": False, "label": f"{sign}, {len(ds)}"}
            share, pick = SharedOver(*fields), PickedOver(*fields)
            over[SharedOver].append(
                Sample(share, (*points, normal(2)), lambda *xs, w=w: w * xs[-1][:, None], **options)
            )
            over[PickedOver].append(
                Sample(
                    pick, (*points, normal(2, 4)), lambda *xs, w=w: np.sum(w * xs[-1], 1), **options
                )
            )
    return {**found, **over}


def _norms() -> dict[type, list[Sample]]:
    """Away from the origin, at it, and left along one direction or two."""
    rows: Path = (0.5, (("sum", (1,)), ("expand_dims", (1,))))
    x, y, ct = normal(2, 3), normal(2, 3, seed=1), normal(2, 1, seed=2)
    flat, still = x * np.array([[1.0], [0.0]]), 0 * x
    r = np.sqrt(0.5 * np.sum(x**2 + y**2, 1, keepdims=True))
    pair: tuple[Path, Path] = ((1.0, ()), (1.0, ()))
    hypot = np.hypot(x, y[0])
    options: dict[str, Any] = {"smooth": False}
    return {
        Norm: [
            Sample(Norm((rows, rows)), (r**2, x, y), lambda u, x, y: np.sqrt(u), **options),
            Sample(Norm((rows,)), (0 * ct, still), lambda u, x: np.sqrt(u), **options),
        ],
        NormPullback: [
            Sample(
                NormPullback((rows, rows)),
                (x, y, r, ct),
                lambda x, y, r, ct: (0.5 * x * ct / r, 0.5 * y * ct / r),
                label="of rows",
                **options,
            ),
            Sample(
                NormPullback(pair),
                (x, y[0], hypot, x),
                lambda x, y, r, ct: (x * ct / r, y * ct / r),
                label="broadcast",
                **options,
            ),
            Sample(
                NormPullback((rows,), 1),
                (still, x, 0 * ct, ct),
                lambda z, d, r, ct: 0.5 * d * ct / np.sqrt(0.5 * np.sum(d**2, 1, keepdims=True)),
                label="along one direction",
                **options,
            ),
            Sample(
                NormPullback((rows,), 2),
                (still, flat, x, 0 * ct, ct),
                lambda z, d, e, r, ct: 0.5 * e * ct / np.sqrt(0.5 * np.sum(e**2, 1, keepdims=True)),
                label="along two directions",
                **options,
            ),
        ],
        Known: [Sample(Known(), (x, y), lambda x, y: x, smooth=False)],
        Stated: [Sample(Stated(1), (x, y, x), lambda x, y, z: x, smooth=False)],
        Leaning: [Sample(Leaning(), (x, y), lambda x, y: x)],
    }


def _side(*numbers: float) -> float:
    """The sign of the first number that isn't 0."""
    return next((math.copysign(1, s) for s in numbers if s), 0.0)


_turned = each(lambda *xs: xs[-1] * _side(*xs[:-1]))


def _part(larger: bool, x: float, y: float, *ds: float) -> float:
    """How much of a cotangent x gets, of x and y."""
    return 0.5 + 0.5 * _side(x - y, *ds) * (1 if larger else -1)


def _shared(larger: bool) -> Reference:
    part = each(lambda *xs: _part(larger, *xs))
    return lambda *xs: (part(*xs[:-2]) * xs[-1], (1 - part(*xs[:-2])) * xs[-1])


def _picked(larger: bool) -> Reference:
    part = each(lambda *xs: _part(larger, *xs))
    return lambda *xs: part(*xs[:-3]) * xs[-2] + (1 - part(*xs[:-3])) * xs[-1]


# These are of complex numbers, or give some: their samples are in `complexes`.
OF_COMPLEX = {"real", "imag", "conj", "cartesian", "fft", "rfft", "irfft"}
OF_COMPLEX |= {"hermitian_cholesky", "hermitian_eigh", "complex_eig", "complex_svd"}
OF_COMPLEX |= {"complex_slogdet"}
OF_COMPLEX |= {p.name for p in special_complex.OF_COMPLEX.values()}
OF_COMPLEX |= {"wofz", "lambertw", "hankel1", "hankel1e", "hankel2", "hankel2e"}


@cache
def samples() -> dict[str, list[Sample]]:
    """The samples of each primitive, by its name; an empty list for one that has none."""
    from tests.primitives.matrices import of_matrices

    structural: dict[Any, list[Sample]] = {
        **_views(),
        **_scatters(),
        **_windows(),
        **_parts(),
        **_calls(),
        **_loops(),
        **_other(),
        **_systems(),
        **_determinants(),
        **_kinks(),
        **_norms(),
        **_spectral(),
        **of_matrices(),
    }
    found: dict[str, list[Sample]] = {}
    by_scipy = {name: (operands, fixed) for name, operands, fixed in special_operands()}
    for name, entry in primitives().items():
        if name in OF_COMPLEX:
            continue
        if name in by_scipy:
            operands, fixed = by_scipy[name]
            one = each(lambda *row, entry=entry: entry.evaluate(*row), float)
            smooth = name not in NOT_SMOOTH
            found[name] = [Sample(entry, tuple(operands), one, smooth, fixed=fixed)]
        elif isinstance(entry, Elementwise):
            found[name] = list(_elementwise(name, entry))
        else:
            found[name] = structural.get(entry, [])
    return found


def all_samples() -> list[Sample]:
    """Every sample of every primitive."""
    return [sample for each_of in samples().values() for sample in each_of]
