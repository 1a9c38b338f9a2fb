"""A tape played with mpmath's numbers, each with its first and second derivatives.

What each call of a tape computes has a reference in mpmath. Its own derivatives are closed formulas
here or differences, and the chain rule puts these together: with so many digits that nothing is
lost, whatever cancels in the tape's formula.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mpmath as mp
import numpy as np
from mpmath import mpf
from tests.primitives.references import Inverse, Slopes
from tests.primitives.special_references import REFERENCES

from tapegrad.ir.tape import DECLARED, Call, Literal, Tape


class Unknown(Exception):
    """There is no reference for a call, or mpmath can't evaluate it."""


@dataclass(frozen=True)
class Jet:
    """A number; its slopes by the number of the variable, its second derivatives by two of them,
    the smaller one first."""

    value: Any
    slopes: dict[int, Any] = field(default_factory=dict)
    bends: dict[tuple[int, int], Any] = field(default_factory=dict)


def variable(x: Any, number: int) -> Jet:
    return Jet(mpf(x), {number: mpf(1)})


Partials = tuple[Any, dict[int, Any], dict[tuple[int, int], Any]]


def chain(of: Callable[[Sequence[Any], Sequence[int]], Partials], xs: Sequence[Jet]) -> Jet:
    """f of some numbers: `of` gives its value and partial derivatives along those that move."""
    live = [k for k, x in enumerate(xs) if x.slopes]
    value, first, second = of([x.value for x in xs], live)
    slopes: dict[int, Any] = {}
    bends: dict[tuple[int, int], Any] = {}
    for k in live:
        for i, s in xs[k].slopes.items():
            slopes[i] = slopes.get(i, 0) + first[k] * s
        for ij, s in xs[k].bends.items():
            bends[ij] = bends.get(ij, 0) + first[k] * s
    for k, m in itertools.product(live, live):
        bend = second[min(k, m), max(k, m)]
        if bend == 0:
            continue
        for i, s in xs[k].slopes.items():
            for j, t in xs[m].slopes.items():
                if i <= j:
                    bends[i, j] = bends.get((i, j), 0) + bend * s * t
    return Jet(value, slopes, bends)


# ---- partial derivatives

ROOT_PI = lambda: mp.sqrt(mp.pi)  # noqa: E731


def _power(x: Any, y: Any) -> Any:
    value, log = x**y, mp.log(x) if x > 0 else mpf(0)
    over, once = value / x, value * log
    first = y * over, once
    return value, first, (y * (y - 1) * over / x, over * (1 + y * log), once * log)


def ndtr(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _exponential(x: Any, shift: int = 0) -> Any:
    e = mp.exp(x)
    return e - shift, e, e


# By name, of one operand: the function with its first and second derivative.
CLOSED: dict[str, Callable[[Any], tuple[Any, Any, Any]]] = {
    "neg": lambda x: (-x, -1, 0),
    "square": lambda x: (x * x, 2 * x, 2),
    "reciprocal": lambda x: (1 / x, -1 / x**2, 2 / x**3),
    "sqrt": lambda x: ((r := mp.sqrt(x)), 1 / (2 * r), -1 / (4 * r * x)),
    "exp": _exponential,
    "expm1": lambda x: _exponential(x, 1),
    "log": lambda x: (mp.log(x), 1 / x, -1 / x**2),
    "log1p": lambda x: (mp.log(1 + x), 1 / (1 + x), -1 / (1 + x) ** 2),
    "sin": lambda x: ((s := mp.sin(x)), mp.cos(x), -s),
    "cos": lambda x: ((c := mp.cos(x)), -mp.sin(x), -c),
    "tan": lambda x: ((t := mp.tan(x)), 1 + t * t, 2 * t * (1 + t * t)),
    "tanh": lambda x: ((t := mp.tanh(x)), 1 - t * t, -2 * t * (1 - t * t)),
    "sinh": lambda x: ((s := mp.sinh(x)), mp.cosh(x), s),
    "cosh": lambda x: ((c := mp.cosh(x)), mp.sinh(x), c),
    "arcsin": lambda x: (mp.asin(x), (r := 1 / mp.sqrt(1 - x * x)), x * r**3),
    "arccos": lambda x: (mp.acos(x), -(r := 1 / mp.sqrt(1 - x * x)), -x * r**3),
    "arctan": lambda x: (mp.atan(x), (r := 1 / (1 + x * x)), -2 * x * r * r),
    "arcsinh": lambda x: (mp.asinh(x), (r := 1 / mp.sqrt(1 + x * x)), -x * r**3),
    "arctanh": lambda x: (mp.atanh(x), (r := 1 / (1 - x * x)), 2 * x * r * r),
    "expit": lambda x: ((p := 1 / (1 + mp.exp(-x))), p * (1 - p), p * (1 - p) * (1 - 2 * p)),
    "log_expit": lambda x: (
        -mp.log(1 + mp.exp(-x)),
        (p := 1 / (1 + mp.exp(x))),
        -p * (1 - p),
    ),
    "logit": lambda x: (mp.log(x / (1 - x)), (r := 1 / (x * (1 - x))), (2 * x - 1) * r * r),
    "erf": lambda x: (mp.erf(x), (d := 2 * mp.exp(-x * x) / ROOT_PI()), -2 * x * d),
    "erfc": lambda x: (mp.erfc(x), -(d := 2 * mp.exp(-x * x) / ROOT_PI()), 2 * x * d),
    "log_ndtr": lambda x: (
        mp.log(ndtr(x)) if x < 0 else mp.log1p(-ndtr(-x)),
        (r := mp.npdf(x) / ndtr(x)),
        -r * (x + r),
    ),
    "gammaln": lambda x: (mp.loggamma(x), mp.psi(0, x), mp.psi(1, x)),
    "gammaln_of_positive": lambda x: (mp.loggamma(x), mp.psi(0, x), mp.psi(1, x)),
    "digamma": lambda x: (mp.psi(0, x), mp.psi(1, x), mp.psi(2, x)),
    "abs": lambda x: (abs(x), mp.sign(x), 0),
    "sign": lambda x: (mp.sign(x), 0, 0),
    "floor": lambda x: (mp.floor(x), 0, 0),
    "rint": lambda x: (mp.nint(x), 0, 0),
}

# Of two operands: the function, its slopes, and its second derivatives (0, 0), (0, 1), (1, 1).
OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: (x + y, (1, 1), (0, 0, 0)),
    "sub": lambda x, y: (x - y, (1, -1), (0, 0, 0)),
    "mul": lambda x, y: (x * y, (y, x), (0, 1, 0)),
    "div": lambda x, y: (x / y, (1 / y, -x / y**2), (0, -1 / y**2, 2 * x / y**3)),
    "power": _power,
    "power_of_all": _power,
    "maximum": lambda x, y: (max(x, y), (int(x >= y), int(y > x)), (0, 0, 0)),
    "minimum": lambda x, y: (min(x, y), (int(x <= y), int(y < x)), (0, 0, 0)),
    "xlogy": lambda x, y: (
        x * mp.log(y) if y else y,
        (mp.log(y) if y else y, x / y),
        (0, 1 / y, -x / y**2),
    ),
    "xlog1py": lambda x, y: (
        x * mp.log(1 + y),
        (mp.log(1 + y), x / (1 + y)),
        (0, 1 / (1 + y), -x / (1 + y) ** 2),
    ),
}
COMPARED: dict[str, Callable[..., bool]] = {
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "logical_and": lambda x, y: bool(x) and bool(y),
    "logical_or": lambda x, y: bool(x) or bool(y),
    "logical_not": lambda x: not x,
    "isfinite": lambda x: bool(mp.isfinite(x)),
    "isinf": lambda x: bool(mp.isinf(x)),
    "isnan": lambda x: bool(mp.isnan(x)),
}


def closed(name: str) -> Callable[[Sequence[Any], Sequence[int]], Partials]:
    def partials(xs: Sequence[Any], live: Sequence[int]) -> Partials:
        if name in CLOSED:
            value, slope, bend = CLOSED[name](xs[0])
            return value, {0: slope}, {(0, 0): bend}
        value, slopes, bends = OF_TWO[name](*xs)
        return (
            value,
            dict(enumerate(slopes)),
            dict(zip([(0, 0), (0, 1), (1, 1)], bends, strict=True)),
        )

    return partials


def differences(f: Callable[..., Any], xs: Sequence[Any], live: Sequence[int]) -> Partials:
    """Central ones, whose steps are a quarter of the digits."""
    step = mpf(10) ** (-mp.mp.dps // 4)
    h = {k: abs(xs[k]) * step if xs[k] else step for k in live}

    def at(*moves: tuple[int, int]) -> Any:
        moved = list(xs)
        for k, sign in moves:
            moved[k] = moved[k] + sign * h[k]
        return f(*moved)

    here = at()
    sides = {k: (at((k, 1)), at((k, -1))) for k in live}
    first = {k: (up - down) / (2 * h[k]) for k, (up, down) in sides.items()}
    second = {(k, k): (up - 2 * here + down) / h[k] ** 2 for k, (up, down) in sides.items()}
    for k, m in itertools.combinations(live, 2):
        corners = [s * t * at((k, s), (m, t)) for s in (1, -1) for t in (1, -1)]
        second[k, m] = mp.fsum(corners) / (4 * h[k] * h[m])
    return here, first, second


def stated(name: str, ref: Slopes) -> Callable[[Sequence[Any], Sequence[int]], Partials]:
    """By the slopes; the value is SciPy's, or a slope's along another operand isn't asked for."""

    def partials(xs: Sequence[Any], live: Sequence[int]) -> Partials:
        value = mpf(float(DECLARED[name].evaluate(*[float(x) for x in xs])))
        first, second = {}, {}
        along = dict(enumerate(ref.along))
        for k in live:
            if k not in along:
                raise Unknown(name)
            first[k], slopes, _ = differences(along[k], xs, live)
            second |= {(min(k, m), max(k, m)): slope for m, slope in slopes.items()}
        return value, first, second

    return partials


def partials_of(name: str) -> Callable[[Sequence[Any], Sequence[int]], Partials]:
    if name in CLOSED or name in OF_TWO:
        return closed(name)
    ref = REFERENCES.get(name, (None, None))[1]
    if ref is None or isinstance(ref, Inverse):
        raise Unknown(name)
    if isinstance(ref, Slopes):
        return stated(name, ref)
    return lambda xs, live: differences(ref, xs, live)


# ---- tapes


def played(tape: Tape, given: Sequence[Any]) -> list[Any]:
    """The outputs, of a jet for each input or an array of numbers."""
    values: dict[Any, Any] = {}
    for var, x in zip(tape.inputs, given, strict=True):
        values[var] = lifted(x)

    def operand(x: Any) -> Any:
        return lifted(x.value) if isinstance(x, Literal) else values[x]

    needed, calls = {x for x in tape.outputs if not isinstance(x, Literal)}, []
    for call in reversed(tape.calls):
        if call.outs[0] in needed:
            calls.append(
                (call, call.operands[:1] if call.primitive.name in SAME else call.operands)
            )
            needed.update(x for x in calls[-1][1] if not isinstance(x, Literal))
    for call, operands in reversed(calls):
        values[call.outs[0]] = applied(call, [operand(x) for x in operands])
    return [operand(x)[()] for x in tape.outputs]


ADDED = np.frompyfunc(lambda x, y: chain(closed("add"), [x, y]), 2, 1)


SAME = {"astype", "copy", "positive", "stated", "recompute_after"}  # the value is the first operand


def lifted(x: Any) -> Any:
    """An array of jets, and of what is true or false."""
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x
    if isinstance(x, Jet):
        found = np.empty((), object)
        found[()] = x
        return found
    xs = np.asarray(x)
    found = np.empty(xs.shape, object)
    for at in np.ndindex(xs.shape):
        v = xs[at].item()
        found[at] = v if isinstance(v, bool) else Jet(mpf(v))
    return found


def applied(call: Call, xs: list[Any]) -> Any:
    name = call.primitive.name
    if name == "sum":
        axes = dict(call.primitive.parameters())["axes"]
        found = xs[0]
        for axis in sorted(axes, reverse=True):
            found = ADDED.reduce(found, axis)
        return lifted(found)
    if name == "broadcast_to":
        return np.broadcast_to(xs[0], call.outs[0].aval.shape)
    if name in ("reshape", "expand_dims", "squeeze"):
        return np.reshape(xs[0], call.outs[0].aval.shape)
    if name in SAME:
        return xs[0]
    shape = np.broadcast_shapes(*[x.shape for x in xs])
    rows = [np.broadcast_to(x, shape) for x in xs]
    found = np.empty(shape, object)
    for at in np.ndindex(shape):
        found[at] = of_element(name, [row[at] for row in rows])
    return found


def of_element(name: str, xs: list[Any]) -> Any:
    if name == "where":
        return xs[1] if truth(xs[0]) else xs[2]
    if name in COMPARED:
        return COMPARED[name](*[x.value if isinstance(x, Jet) else x for x in xs])
    jets = [x if isinstance(x, Jet) else Jet(mpf(int(x))) for x in xs]
    slopes = {i: mp.nan for x in jets for i in x.slopes}
    unknown = Jet(mp.nan, slopes, {(i, j): mp.nan for i in slopes for j in slopes if i <= j})
    if any(mp.isnan(x.value) for x in jets):
        return unknown
    try:
        return chain(partials_of(name), jets)
    except (ArithmeticError, ValueError, TypeError, mp.libmp.NoConvergence):
        return unknown


def truth(x: Any) -> bool:
    return bool(x.value) if isinstance(x, Jet) else bool(x)
