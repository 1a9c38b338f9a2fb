"""Derivatives of derivatives at ties: those of the function which the first derivative computes.

That function takes the table's number at a tie (docs/conventions.md), so along a parameter its
derivative is what differences of it show. Where the point of the tie moves itself, slopes of one
tie are multiplied, and the derivative is the mean of those on both sides.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

from tapegrad import grad, hessian, hvp, jacfwd, jacrev, jet, jit, jvp, trace, vjp
from tapegrad.backends.numpy.play import run
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import derive, derive_forward, settled

ONES, ZEROS = np.ones(4), np.zeros(4)
TIES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "minimum": (lambda t: np.minimum(t, 0.0), 0.0),
    "maximum": (lambda t: np.maximum(t, 0.0), 0.0),
    "fmax, fmin": (lambda t: np.fmax(t, 0.0) + 3 * np.fmin(0.0, t), 0.0),
    "clip": (lambda t: np.clip(t, 0.0, 1.0) + t.clip(-1, 0), np.array(0.0)),
    "abs": (np.abs, 0.0),
    "copysign": (lambda t: np.copysign(t, -1.0), 0.0),
    "twice": (lambda t: np.maximum(np.maximum(t, 0.0), 0.0), 0.0),
    "abs(abs)": (lambda t: np.abs(np.abs(t) + t), 0.0),
    "max": (np.max, ONES),
    "min": (lambda t: np.min(t.reshape(2, 2), axis=0) @ [1.0, 3.0], ONES),
    "ptp": (np.ptp, ONES),
    "sort": (lambda t: np.sort(t)[1], ONES),
    "median": (np.median, ONES),
    "quantile": (lambda t: np.quantile(t, 0.3), ONES),
    "norm": (np.linalg.norm, ZEROS),
    "norm 1": (lambda t: np.linalg.norm(t, 1), ZEROS),
    "norm inf": (lambda t: np.linalg.norm(t, np.inf), ONES),
    "hypot": (lambda t: np.hypot(t, 0.0), 0.0),
    "sqrt of a square": (lambda t: np.sqrt(np.sum(t**2)), ZEROS),
    "std": (np.std, ONES),
    "where": (lambda t: np.where(t > 0, t, 0.0), 0.0),
    "eigvalsh": (lambda t: np.linalg.eigvalsh(t)[0], np.eye(3)),
    "svdvals": (lambda t: np.linalg.svdvals(t)[0], np.eye(3)),
}
PENALISED: dict[str, Callable[[Any, Any], Any]] = {
    "l f": lambda l, f: l * f,
    "l f + f**2": lambda l, f: l * f + f**2,
    "sinh(l f)": lambda l, f: np.sinh(l * f),
    "exp(l f) + l**3 f": lambda l, f: np.exp(l * f) + l**3 * f,
}


def weighed(g: Any) -> Any:
    return np.sum(g * (1.0 + np.arange(np.size(g)).reshape(np.shape(g))))


def differences(f: Callable[[float], Any], x: float, order: int) -> float:
    h = 1e-3
    if order == 1:
        return float((8 * (f(x + h) - f(x - h)) - f(x + 2 * h) + f(x - 2 * h)) / (12 * h))
    return float((f(x + h) - 2 * f(x) + f(x - h)) / h**2)


@pytest.mark.every(24)
@pytest.mark.parametrize("outer", PENALISED)
@pytest.mark.parametrize("name", TIES)
def test_along_a_parameter(name: str, outer: str) -> None:
    """What the first derivative computes, as a function of a parameter, has its own derivatives:
    also where the tied argument is differentiated beside it."""
    f, point = TIES[name]
    combined = PENALISED[outer]

    def inner(l: Any, t: Any) -> Any:
        return weighed(grad(lambda t: combined(l, f(t)), compile="never")(t))

    def value(l: float) -> Any:
        return inner(l, point)

    for order, tolerance in ((1, 1e-8), (2, 1e-5)):
        wanted = differences(value, 0.3, order)
        alone: Any = value
        both: Any = inner
        for _ in range(order):
            alone = grad(alone, compile="never")
            both = grad(both, compile="never")
        np.testing.assert_allclose(alone(0.3), wanted, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(both(0.3, point), wanted, rtol=tolerance, atol=tolerance)
        if order == 1:
            pair = grad(inner, argnums=(0, 1), compile="never")(0.3, point)
            np.testing.assert_allclose(pair[0], wanted, rtol=tolerance, atol=tolerance)
            back = vjp(inner, 0.3, point)[1](1.0)
            np.testing.assert_allclose(back[0], wanted, rtol=tolerance, atol=tolerance)


def test_along_a_parameter_compiled() -> None:
    """All of these on one tape."""
    names = [name for name in TIES if name not in ("eigvalsh", "svdvals")]

    def inner(l: Any) -> Any:
        found = 0.0
        for k, name in enumerate(names):
            f, point = TIES[name]
            for outer in PENALISED.values():
                found = found + (k + 1) * weighed(grad(lambda t: outer(l, f(t)))(point))  # noqa: B023
        return found

    wanted = differences(jit(inner, compile="never"), 0.3, 1)
    np.testing.assert_allclose(grad(inner, compile="always")(0.3), wanted, rtol=1e-7)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_in_loops(compile: Any) -> None:
    """Inside loops too, which stay loops."""

    def penalised(t: Any, l: Any) -> Any:
        total = 0.0
        for k in range(40):
            total = total + l * np.minimum(t[k], 0.0) + np.exp(l * k) * np.abs(t[k])
            total = total + l**2 * np.maximum(t[k], t[k - 1])
        return total

    def inner(l: Any) -> Any:
        return weighed(grad(penalised)(np.zeros(40), l))

    wanted = differences(jit(inner, compile="never"), 0.3, 1)
    np.testing.assert_allclose(grad(inner, compile=compile)(0.3), wanted, rtol=1e-7)


@pytest.mark.parametrize(
    ("f", "wanted"),
    [
        (lambda x: np.maximum(x, 0) ** 2, 1.0),
        (lambda x: np.minimum(0, x) ** 2, 1.0),
        (lambda x: x * np.maximum(x, 0), 1.0),
        (lambda x: np.maximum(x, 0) ** 2 - x * np.maximum(x, 0), 0.0),
        (lambda x: x * np.abs(x), 0.0),
        (lambda x: np.abs(x) * np.maximum(x, 0), 1.0),
        (lambda x: np.abs(np.maximum(x, 0)) ** 2 + np.maximum(-x, 0) ** 2, 2.0),
        (lambda x: np.maximum(np.abs(x), 0) ** 2, 2.0),
        (lambda x: np.clip(x, 0, 1) ** 2 / 2 + np.clip(x, 0, 1), 0.5),
    ],
)
def test_the_mean_of_both_sides(f: Any, wanted: float) -> None:
    """Where the tied argument moves, the second derivative is the mean of those on both sides,
    whichever way it moves."""
    for sign in (1.0, -1.0):
        found = grad(lambda x, s=sign: s * grad(f, compile="never")(x), compile="never")(0.0)
        assert sign * found == wanted


def test_the_kink_of_a_scaled_bessel_function() -> None:
    """exp(-|x|) I_0(x), whose second derivative is 3/2 on both sides of 0."""
    assert hessian(sp.i0e, compile="never")(0.0) == 1.5


def test_a_kink_beside_a_derivative() -> None:
    """A kinked function keeps the table's slope beside a derivative through the same tie."""
    found = grad(lambda x: np.abs(x) + grad(lambda y: np.cosh(np.abs(y)))(x))(0.0)
    assert found == 1.0
    found = grad(lambda x: np.maximum(x, 0.0) + grad(lambda y: np.abs(y) * y)(x))(0.0)
    assert found == 0.5


def test_a_model_of_pieces() -> None:
    """A piecewise constant hazard is the derivative of its cumulated one; times at a change."""
    times = np.array([0.5, 1.0, 1.0, 2.0, 3.0])

    def cumulated(rates: Any, t: Any) -> Any:
        pieces = [np.minimum(t, 1.0), np.clip(t - 1.0, 0.0, 1.0), np.maximum(t - 2.0, 0.0)]
        return sum(np.exp(rates[k]) * piece for k, piece in enumerate(pieces))

    def hazard(rates: Any, t: Any) -> Any:
        return grad(lambda t: np.sum(cumulated(rates, t)))(t)

    def loss(rates: Any) -> Any:
        return np.sum(cumulated(rates, times)) - np.sum(np.log(hazard(rates, times)))

    rates = np.array([0.1, -0.4, 0.7])
    found = grad(loss, compile="never")(rates)
    for k, unit in enumerate(np.eye(3)):
        wanted = differences(lambda s, unit=unit: loss(rates + s * unit), 0.0, 1)
        np.testing.assert_allclose(found[k], wanted, rtol=1e-7)


@pytest.mark.every(16)
@pytest.mark.parametrize("outer", PENALISED)
@pytest.mark.parametrize("name", [name for name in TIES if name not in ("twice", "abs(abs)")])
def test_both_modes_differentiate_a_gradient_alike(name: str, outer: str) -> None:
    """Second derivatives along a parameter, and along it and the tied argument. (Behind a tie of
    another tie reverse mode counts sides for the argument alone, and forward mode for both.)"""
    f, point = TIES[name]
    l, t = np.float64(0.3), np.asarray(point)[()]
    v = np.random.default_rng(0).normal(size=t.shape)[()]
    once = derive(trace(lambda l, t: PENALISED[outer](l, f(t)), l, t)[1], [0, 1], keep=())
    pushed, pulled = derive_forward(once, [0, 1]), derive(once, [0, 1], seed=True, keep=())
    for a in (0.0, 0.7):
        given = (l, t, np.float64(a), v, *pushed.captured)
        for found, wanted in zip(play(pushed, *given), play(pulled, *given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    alone = play(derive_forward(once, [0]), l, t, np.float64(1), *once.captured)
    sides = [play(once, x, t, *once.captured) for x in (l - 1e-6, l + 1e-6)]
    for found, below, above in zip(alone, *sides, strict=True):
        wanted = (above - below) / 2e-6
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def play(tape: Tape, *values: Any) -> Any:
    return run(settled(tape), values)[0]


def written(choose: random.Random, depth: int) -> str:
    """A random expression of t, of functions that tie at 0, one inside of another."""
    if not depth:
        return "t"
    inner, other = written(choose, depth - 1), written(choose, choose.randrange(depth))
    of_one = (
        "np.abs({0})|np.maximum({0}, 0)|np.fmin(0, {0})|np.clip({0}, 0, 1)|np.sqrt(({0}) ** 2)"
        "|np.hypot({0}, 0)|np.linalg.norm([{0}, 2 * ({0})])|-({0})|np.sinh({0})|np.copysign({0}, 1)"
    )
    of_two = (
        "np.maximum({0}, {1})|np.minimum({0}, {1})|np.max(np.stack([{0}, {1}]))|np.hypot({0}, {1})"
        "|{0} + 3 * ({1})|np.ptp(np.stack([{0}, {1}]))"
    )
    return choose.choice(f"{of_one}|{of_two}".split("|")).format(inner, other)


SETTLED = [
    "np.maximum(np.abs(t), 0)",
    "np.maximum(np.maximum(t, 0), 0)",
    "np.abs(np.hypot(t, t))",
    "np.clip(np.maximum(np.maximum(t, 0), 0), 0, 1)",
    "np.minimum(np.maximum(t, 0), 0)",
]
NESTS = [*SETTLED, *[written(random.Random(k), 2 + k % 3) for k in range(20)]]


@pytest.mark.every(24)
@pytest.mark.parametrize("text", NESTS)
def test_ties_inside_of_ties(text: str) -> None:
    """The mean of both sides, in each way to a second derivative; `jet` has it or NaN."""
    u = eval(f"lambda t: {text}", {"np": np})
    f = lambda t: np.expm1(u(t)) - u(t)  # noqa: E731
    second = hessian(f, compile="never")
    slope = grad(u, compile="never")
    middle = np.isclose(slope(0.0), (slope(1e-7) + slope(-1e-7)) / 2)
    wanted = (second(1e-7) + second(-1e-7)) / 2
    if not (middle or text in SETTLED):  # the first derivative isn't the mean: all have one number
        wanted = second(0.0)
    for found in (
        second(0.0),
        grad(grad(f, compile="never"), compile="never")(0.0),
        -grad(lambda t: -grad(f)(t), compile="never")(0.0),
        jvp(grad(f), (0.0,), (1.0,))[1],
        jacrev(jacrev(f), compile="never")(0.0),
        jacfwd(jacrev(f), compile="never")(0.0),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    if middle:
        series = 2 * jet(f, 0.0, 2)[2]
        assert np.isnan(series) or np.isclose(series, wanted, rtol=1e-4, atol=1e-4)


TOUCHED: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "square": (lambda x: np.maximum(x * x, 0), 1.0, 2.0),
    "clipped": (lambda x: np.clip(x * x, 0, 1), 1.0, 2.0),
    "twice": (lambda x: np.maximum(np.clip(x * x, 0, 1), 0), 0.5, 2.0),
    "abs": (lambda x: np.abs(x * x), 0.0, 2.0),
    "both": (lambda x: np.maximum(x * x, -x * x), 0.0, 2.0),
    "inside": (lambda x: x * np.maximum(np.maximum(x, 0), 0), 0.75, 1.0),
    "crossed": (lambda x: np.maximum(x, x * x) * np.maximum(x + x**3, 0), 1.0, 1.0),
    "crossed by cubes": (lambda x: np.abs(x**3) + x * np.maximum(x**3, 0) + x * x, 2.0, 2.0),
}


@pytest.mark.parametrize("name", TOUCHED)
def test_ties_that_are_touched(name: str) -> None:
    """Second derivatives keep the table's slope of a kink, and `jet` the mean of both sides'."""
    f, wanted, of_jet = TOUCHED[name]
    np.testing.assert_allclose(hessian(f, compile="never")(0.0), wanted, atol=1e-12)
    np.testing.assert_allclose(grad(grad(f), compile="never")(0.0), wanted, atol=1e-12)
    np.testing.assert_allclose(2 * jet(f, 0.0, 2)[2], of_jet, atol=1e-12)


@pytest.mark.every(16)
@pytest.mark.parametrize("inner", ["t", "t * t", "t + t * t", "t - t**3"])
@pytest.mark.parametrize("seed", range(12))
def test_jet_has_the_mean_of_both_sides(seed: int, inner: str) -> None:
    """Of random nests of ties; NaN at the origins of norms, where it isn't known."""
    text = written(random.Random(seed), 2 + seed % 2).replace("t)", f"({inner}))")
    u = eval(f"lambda t: np.expm1({text})", {"np": np})
    found = jet(u, 0.0, 2, compile="never")
    near = [jet(u, t, 2, compile="never") for t in (1e-6, -1e-6)]
    known = ~np.isnan(found)
    assert known[:2].all()
    np.testing.assert_allclose(found[known], np.mean(near, axis=0)[known], rtol=1e-4, atol=1e-4)


def test_no_operand_of_a_tie_inside_of_a_tie_moves() -> None:
    for f in (lambda t: np.abs(np.abs(t) + t), lambda t: np.maximum(np.abs(t), t)):
        assert hessian(f, compile="never")(0.0) == jacfwd(jacrev(f), compile="never")(0.0) == 0


@pytest.mark.parametrize("compile", ["never", "always"])
def test_layers_at_a_tie(compile: Any) -> None:
    """Products with Hessians of layers of which all elements tie."""
    rng = np.random.default_rng(0)
    w1, w2, v = rng.normal(size=(4, 3)), rng.normal(size=(2, 4)), rng.normal(size=3)

    def f(x: Any) -> Any:
        return np.sum(np.maximum(w2 @ np.abs(np.maximum(w1 @ x, 0.0)), 0.0) ** 2)

    product = hvp(f, compile=compile)
    near = (product(1e-7 * v, v) + product(-1e-7 * v, v)) / 2
    np.testing.assert_allclose(product(np.zeros(3), v), near, rtol=1e-10)


@pytest.mark.parametrize(
    ("root", "x", "wanted"),
    [
        (np.linalg.norm, np.zeros(1), np.ones((1, 1))),
        (lambda x: np.sqrt(x @ x), np.zeros(2), np.eye(2)),
        (lambda x: np.sqrt(np.einsum("i,i", x, x) / 2), np.zeros(2), np.eye(2) / 2),
        (lambda x: np.sqrt(sum(v**2 for v in x)), np.zeros(2), np.eye(2)),
        (lambda x: np.sqrt((x**2)[0] + (x**2)[1]), np.zeros(2), np.eye(2)),
        (lambda x: np.sqrt(np.sum((x**2)[1:])), np.zeros(2), np.diag([0.0, 1.0])),
        (lambda t: np.linalg.norm(t * np.ones(2)), 0.0, 2.0),
        (lambda x: np.sum(np.sqrt(np.einsum("ij,ij->i", x, x))), np.zeros((1, 2)), np.eye(2)),
    ],
)
def test_roots_of_sums_of_squares_as_they_are_written(root: Any, x: Any, wanted: Any) -> None:
    """cosh of a length is smooth at the origin."""
    found = hessian(lambda x: np.cosh(root(x)), compile="never")(x)
    np.testing.assert_allclose(np.reshape(found, np.shape(wanted)), wanted)
    beside = hessian(lambda x: root(x) ** 2 / 2, compile="never")(x + 0.5)
    np.testing.assert_allclose(np.reshape(beside, np.shape(wanted)), wanted, atol=1e-14)


def test_a_length_and_a_maximum_of_the_same_two() -> None:
    """Two kinds of kinks with the same operands have directions of their own."""
    found = hessian(lambda t: (np.hypot(t, t) + np.maximum(t, t)) ** 2, compile="never")(0.0)
    np.testing.assert_allclose(found, 2 * (2 + 1), rtol=1e-12)


SMOOTH: dict[str, tuple[Callable[[Any], Any], Any, float]] = {
    "abs": (lambda x: np.sum(np.abs(x) ** 2), ZEROS, 2.0),
    "norm": (lambda x: np.linalg.norm(x) ** 2, ZEROS, 2.0),
    "hypot": (lambda x: np.hypot(x[0], x[1]) ** 2, np.zeros(2), 2.0),
    "relu": (lambda x: np.sum(np.maximum(x, 0.0) ** 2), ZEROS, 1.0),
    "eigvalsh": (lambda x: np.sum(np.linalg.eigvalsh(np.diag(x)) ** 2), ONES, 2.0),
    "svdvals": (lambda x: np.sum(np.linalg.svdvals(np.diag(x)) ** 2), ONES, 2.0),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_hessians_at_ties(name: str) -> None:
    """Forward mode over reverse mode: those of the function, or the mean of both sides."""
    f, x, wanted = SMOOTH[name]
    found = hessian(f, compile="never")(x)
    np.testing.assert_allclose(found, wanted * np.eye(len(x)), rtol=1e-12, atol=1e-12)


def of_degree(n: int, seed: int) -> Callable[[Any], Any]:
    """A sum of products of n numbers, some of them kinked at 0, each a multiple of x on either
    side: so its derivative of order n is n! f(1) there, and (-1)^n n! f(-1) back."""
    draw = random.Random(seed)
    kinks: list[Callable[[Any, int, int], Any]] = [
        lambda x, a, b: np.maximum(a * x, b * x),
        lambda x, a, b: np.minimum(a * x, b * x),
        lambda x, a, b: np.fmin(a * x, b * x),
        lambda x, a, b: np.abs(a * x) + b * x,
        lambda x, a, b: np.max(np.array([a * x, b * x])),
        lambda x, a, b: a * x,
    ]
    factors = [(draw.choice(kinks), draw.randint(-3, 3), draw.randint(-3, 3)) for _ in range(2)]
    terms = [draw.choices((0, 1, 2), k=n) for _ in range(2)]

    def f(x: Any) -> Any:
        known = [*[kink(x, a, b) for kink, a, b in factors], x]
        return sum(k * np.prod([known[i] for i in term]) for k, term in enumerate(terms, start=1))

    return f


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", range(30))
def test_third_derivatives_are_the_mean_of_both_sides(seed: int) -> None:
    f = of_degree(3, seed)
    third = f
    for _ in range(3):
        third = grad(third, compile="never")
    np.testing.assert_allclose(third(0.0), 3 * (f(1.0) - f(-1.0)), atol=1e-9)


@pytest.mark.parametrize(("order", "wanted"), [(3, 0.0), (4, 24.0), (5, 0.0), (6, 720.0)])
def test_powers_of_a_distance(order: int, wanted: float) -> None:
    derivative: Any = lambda x: np.abs(x) ** order  # noqa: E731
    for _ in range(order):
        derivative = grad(derivative, compile="never")
    assert derivative(0.0) == wanted


def test_kinks_in_a_function_and_its_derivatives() -> None:
    """A pullback of the first order beside those of the second, in one function: u = 2 x or x."""

    def steep(x: Any) -> Any:
        return np.maximum(x, 2 * x)

    first = grad(lambda x: steep(x) ** 3, compile="never")
    second = grad(first, compile="never")
    mixed = grad(lambda x: second(x) + 5 * first(x) + steep(x) * first(x), compile="never")
    assert mixed(0.0) == 27.0
    inner = grad(lambda x: steep(x) * grad(lambda y: steep(y) ** 2)(x), compile="never")
    assert grad(inner, compile="never")(0.0) == 18.0


def test_ties_that_stay_in_a_third_derivative():
    """breakpoints that are observed: the hazard is a derivative along the times, whose ties the
    parameters don't move; that of the logarithm's bound has sides"""
    breakpoints, times = np.array([1.0, 5.0]), np.array([0.5, 1.0, 3.0, 5.0, 5.0, 7.0])

    def cumulative(p, t):
        return np.minimum(breakpoints, t[:, None]) @ (1 / p)

    def loss(p, t):
        hazard = grad(lambda t: np.sum(cumulative(p, t)))(t)
        return np.sum(cumulative(p, t)) - np.sum(np.log(np.maximum(hazard, 1e-50)))

    p, h = np.array([2.0, 3.0]), 1e-4
    steps = h * np.eye(2)
    found = [
        [
            sum(s * r * loss(p + s * a + r * b, times) for s in (1, -1) for r in (1, -1))
            for a in steps
        ]
        for b in steps
    ]
    for outer, inner in itertools.product((jacfwd, jacrev), repeat=2):
        second = outer(inner(loss), compile="never")(p, times)
        np.testing.assert_allclose(second, np.array(found) / (4 * h**2), atol=1e-6)


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("inner", "at", "slopes"),
    [
        (lambda x: np.clip(x, 0.0, 1.0), 0.0, (0, 1)),
        (lambda x: np.clip(x, 0.0, 1.0), 1.0, (1, 0)),
        (lambda x: np.minimum(np.maximum(x, 0.0), 1.0), 1.0, (1, 0)),
        (lambda x: np.maximum(x, 0.0), 0.0, (0, 1)),
        (np.abs, 0.0, (-1, 1)),
    ],
)
def test_what_isnt_known_stays_unknown(inner: Any, at: float, slopes: tuple[int, int]) -> None:
    """A derivative of one that is NaN at a tie is NaN, too, unless it is the mean of both sides."""
    f: Any = lambda x: np.exp(inner(x))  # noqa: E731
    for order in range(1, 6):
        f = grad(f, compile="never")
        right = np.exp(inner(at)) * np.mean([slope**order for slope in slopes])
        assert np.isnan(f(at)) or np.isclose(f(at), right), order


@pytest.mark.every(2)
@pytest.mark.parametrize("p", [1.1, 1.5, 1.9])
def test_powers_between_1_and_2_at_0(p: float) -> None:
    """The slope is a root, whose own slope at 0 is 0."""
    f: Any = lambda x: x**p  # noqa: E731
    for modes in itertools.product((jacfwd, jacrev), repeat=2):
        assert modes[0](modes[1](f, compile="never"), compile="never")(0.0) == 0
    for _ in range(4):
        f = grad(f, compile="never")
        assert f(0.0) == 0
