"""`jet` and `laplacian`: Taylor coefficients along a line, and what is made of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import integrate, optimize
from tests.primitives.samples import samples
from tests.primitives.samples.drawn import Sample, normal
from tests.primitives.special_samples import special_operands

from tapegrad import (
    defjvp,
    defvjp,
    gauss_newton_vp,
    grad,
    hessian,
    jacobian,
    jet,
    jit,
    jvp,
    laplacian,
    primitive,
    vmap,
    while_loop,
)
from tapegrad.checking.tape_verify import verify
from tapegrad.differentiate.forward import forward
from tapegrad.differentiate.taylor import expand
from tapegrad.errors import ArgumentError, GradientError
from tapegrad.ir.tape import Builder, Tape, aval_of

X, D = np.array([0.3, -1.0, 2.0]), np.array([1.0, 0.5, -1.0])
MODES = ["never", "always"]

# A function, the same in mpmath's terms, and a point.
FUNCTIONS: list[Any] = [
    (lambda x: np.exp(np.sin(x)), lambda x: mpmath.exp(mpmath.sin(x)), 0.5),
    (lambda x: np.log(1 + x * x), lambda x: mpmath.log(1 + x * x), 0.7),
    (lambda x: x**2.5 / (1 + x), lambda x: x**2.5 / (1 + x), 0.7),
    (lambda x: x**x, lambda x: x**x, 0.7),
    (lambda x: 1 / x**3 + x**5, lambda x: x**-3 + x**5, -0.7),
    (lambda x: np.tanh(x) * np.sqrt(x), lambda x: mpmath.tanh(x) * mpmath.sqrt(x), 0.7),
    (lambda x: np.arctan(x) + np.cosh(x), lambda x: mpmath.atan(x) + mpmath.cosh(x), 0.7),
]


@pytest.mark.parametrize("f, exact, x", FUNCTIONS)
def test_coefficients_are_those_of_the_taylor_series(f, exact, x):
    wanted = np.array([float(c) for c in mpmath.taylor(exact, x, 10)])
    for found in (jet(f, x, 10, compile="never"), jet(f, np.array([x]), 10)[:, 0]):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-14)


def _alone(sample: Sample) -> Tape:
    builder = Builder(sample.primitive.name)
    inputs = [builder.input(aval_of(x)) for x in sample.operands]
    return builder.finish(builder.call(sample.primitive, inputs))


def _nested(tape: Tape, sample: Sample, directions: list[Any], order: int) -> list[Any]:
    """The derivatives along the directions by forward mode of forward mode."""
    args, found = list(sample.operands), []
    for _ in range(order):
        count = len(tape.outputs)
        tape = forward(tape, sample.floats)
        tape = replace(tape, outputs=tape.outputs[count:], output_names=())
        args += directions
        found.append(tape.play(*args))
    return found


def _first(each: list[Sample]) -> list[Sample]:
    """A sample that has derivatives in every operand that moves."""
    return [s for s in each if s.smooth and s.forward and s.floats and not s.factored][:1]


SPECIAL = {name for name, *_ in special_operands()}  # SciPy's: elementwise, as others are
EACH = [s for name, each in samples().items() if name not in SPECIAL for s in _first(each)]


def test_coefficients_of_primitives_are_those_of_nested_forward_mode():
    """Nested, each order has a cost of its own, and none of its formulas is that of a series."""
    for sample in EACH:
        tape = _alone(sample)
        ds = [np.asarray(normal(*sample.operands[k].shape, seed=7)) for k in sample.floats]
        series = expand(tape, sample.floats, 2)
        verify(series, "expand")
        found = series.play(*sample.operands, *ds)
        for k, wanted in enumerate(_nested(tape, sample, ds, 2), start=1):
            for m, y in enumerate(wanted if len(tape.outputs) > 1 else [wanted]):
                if tape.outputs[m].dtype.kind == "f":
                    got = found[k * len(tape.outputs) + m]
                    np.testing.assert_allclose(
                        got, y / math.factorial(k), 1e-7, 1e-9, err_msg=str(sample)
                    )


@pytest.mark.parametrize("compile", MODES)
def test_the_result_has_the_structure_of_the_value(compile):
    """With all orders along a new first axis; what doesn't move has zeros behind its value."""

    def f(x):
        return {"sum": np.sum(x**3), "twice": 2 * x, "n": 3, "word": "w", "at": np.argmax(x)}

    for scale in (1.0, 2.0):
        found = jet(f, X * scale, 3, D, compile=compile)
        x, (a, b, c) = X * scale, (3 * D, 3 * D**2, D**3)
        np.testing.assert_allclose(found["sum"], [sum(x**3), a @ x**2, b @ x, sum(c)])
        np.testing.assert_array_equal(found["twice"], [2 * x, 2 * D, 0 * D, 0 * D])
        assert found["n"].tolist() == [3, 0, 0, 0] and found["at"].tolist() == [2, 0, 0, 0]
        assert found["word"] == "w"


def test_without_a_direction_every_element_moves_alike():
    k = np.arange(4)[:, None]
    wanted = np.exp(X) / np.array([math.factorial(n) for n in range(4)])[:, None]
    np.testing.assert_allclose(jet(np.exp, X, 3), wanted)
    found = jet(lambda p: p["a"] * p["b"], {"a": 2.0, "b": X}, 3, {"a": None, "b": D})
    np.testing.assert_allclose(found, np.where(k == 0, 2 * X, np.where(k == 1, 2 * D, 0)))
    assert jet(np.exp, 0.0, 0).tolist() == [1.0]


KINKS: list[Any] = [
    (np.abs, [0, 0, 0, 0]),  # |t|: 1 and -1
    (lambda x: np.abs(x) ** 2, [0, 0, 1, 0]),
    (lambda x: np.abs(x) ** 3, [0, 0, 0, 0]),
    (lambda x: np.maximum(x, 0.0) ** 2, [0, 0, 0.5, 0]),
    (lambda x: np.maximum(np.sin(x), x * x), [0, 0.5, 0.5, -1 / 12]),
    (lambda x: np.max(np.stack([x, x * x, -x])), [0, 0, 0, 0]),
    (lambda x: np.abs(x * x) + np.copysign(x, -1.0), [0, 0, 1, 0]),
    (np.sqrt, [0, 0, 0, 0]),  # by convention
    (lambda x: np.where(x > 0, np.sqrt(np.where(x > 0, x, 0.0)) / x, 1.0), [1, 0, 0, 0]),
    (lambda x: x**2.5, [0, 0, 0, np.inf]),
    (lambda x: x ** np.float64(2), [0, 0, 1, 0]),
    (lambda x: np.linalg.norm(np.stack([x, 2 * x])), [0, 0, np.nan, np.nan]),
    (lambda x: np.linalg.svd(x * np.eye(2), compute_uv=False)[0] ** 2, [0, 0, np.nan, np.nan]),
]


@pytest.mark.parametrize("f, wanted", KINKS)
def test_at_a_kink_a_coefficient_is_the_mean_of_both_sides(f, wanted):
    for compile in MODES[: 1 + (f is np.abs)]:
        with np.errstate(all="ignore"):
            found = jet(f, 0.0, 3, compile=compile)
        np.testing.assert_allclose(found, wanted, atol=1e-15)


def _fixed(x):
    for k in range(20):
        x = np.sin(x) + 0.1 * k * np.abs(x - 1)
    return x


def _until(x):
    return while_loop(lambda c: c[0] < 2, lambda c: (1.5 * c[0] + np.sin(c[1]), 0.9 * c[1]), (x, x))


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [_fixed, lambda x: _until(x)[0]])
def test_loops_carry_all_coefficients(f):
    wanted = [f(0.03), grad(f)(0.03), grad(grad(f))(0.03) / 2, grad(grad(grad(f)))(0.03) / 6]
    for compile in MODES:
        np.testing.assert_allclose(jet(f, 0.03, 3, compile=compile), wanted, rtol=1e-9)


def test_coefficients_are_differentiated_mapped_and_compiled_in_turn():
    third = grad(lambda x: jet(np.sin, x, 3)[3])
    np.testing.assert_allclose(third(0.4), np.sin(0.4) / 6)
    np.testing.assert_allclose(vmap(lambda x: jet(np.sin, x, 2))(X), jet(np.sin, X, 2).T)
    np.testing.assert_allclose(jit(lambda x: jet(np.sin, x, 2))(0.4), jet(np.sin, 0.4, 2))
    inner = jet(lambda x: jet(np.sin, x, 2)[2], 0.4, 2)
    np.testing.assert_allclose(inner, -jet(np.sin, 0.4, 2) / 2)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: jet(np.sin, 0.5, 2.5), "the order n is an integer, not 2.5"),
        (lambda: jet(np.sin, 0.5, -1), "must be 0 or more"),
        (lambda: jet(np.sin, X, 2, D[:2]), "jet of sin: a direction of primal 0 has shape"),
        (lambda: jet(np.sin, 1, 2), "no derivative with respect to integers"),
    ],
)
def test_an_order_or_a_direction_that_does_not_fit_is_an_error(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


def _waves(x):
    return np.sum(np.sin(x) * np.roll(x, 1) ** 2)


@pytest.mark.parametrize("compile", MODES)
@pytest.mark.parametrize("n", [3, 70])
def test_the_laplacian_is_the_trace_of_the_hessian(compile, n):
    """For few elements, of which all directions are taken at once, and for many."""
    for seed in range(2):
        x = normal(n, seed=seed)
        np.testing.assert_allclose(
            laplacian(_waves, compile=compile)(x), np.trace(hessian(_waves)(x)), rtol=1e-10
        )


def test_the_laplacian_of_several_arguments_is_the_sum_over_all_and_has_aux():
    def f(p, y):
        return p["a"] ** 3 * np.sum(y**2), "aux"

    found, aux = laplacian(f, argnums=(0, "y"), has_aux=True)({"a": 2.0}, X)
    np.testing.assert_allclose(found, 12 * X @ X + 2 * 3 * 8)
    assert aux == "aux"


@pytest.mark.parametrize("n", [3, 70])
def test_the_laplacian_is_differentiated(n):
    """As the loss of a network that solves a partial differential equation is."""
    w, x = normal(2, n, seed=1) / 5, normal(n)

    def residual(w: Any) -> Any:
        return laplacian(lambda x: np.sum(np.tanh(w @ x)))(x)

    step = np.zeros_like(w)
    step[1, 2] = 1e-6
    slope = (residual(w + step) - residual(w - step)) / 2e-6
    np.testing.assert_allclose(grad(residual)(w)[1, 2], slope, rtol=1e-6)


A = normal(5, 3, seed=2)


def _residuals(x):
    return np.sin(A @ x) * np.exp(x[0])


def _convex(r):
    return np.sum(np.log(np.cosh(r))) + r[0] * r[1]


@pytest.mark.parametrize("compile", MODES)
def test_the_gauss_newton_product_is_that_of_jacobians_and_the_hessian_of_the_loss(compile):
    for x in (X, X / 2):
        j = jacobian(_residuals)(x)
        h = hessian(_convex)(_residuals(x))
        found = gauss_newton_vp(_residuals, compile=compile)(x, D)
        np.testing.assert_allclose(found, j.T @ j @ D)
        product = gauss_newton_vp(_residuals, _convex, compile=compile)
        np.testing.assert_allclose(product(x, D), j.T @ h @ j @ D)
    assert product.cache_info().traces == 1  # it is kept with the function


def _decay(p, t, scale=1.0):
    return {"r": p["a"] * np.exp(-p["b"] * t) * scale, "n": 3}


def test_the_gauss_newton_product_takes_trees_and_names():
    p, t, v = {"a": 1.3, "b": 0.4}, np.arange(4.0), {"a": 1.0, "b": 2.0}
    slopes = np.stack([np.exp(-0.4 * t), -1.3 * t * np.exp(-0.4 * t)])
    wanted = slopes @ (slopes.T @ [1.0, 2.0])
    for found in (
        gauss_newton_vp(_decay)(p, t, v),
        gauss_newton_vp(_decay, lambda y: np.sum(y["r"] ** 2) / 2, argnums="p")(p, t, v),
        gauss_newton_vp(_decay, argnums=(0, "t"))(p, t, (v, None))[0],
    ):
        np.testing.assert_allclose([found["a"], found["b"]], wanted)
    with pytest.raises(ArgumentError, match="no argument 2 among the 2"):
        gauss_newton_vp(_decay, argnums=2)(p, t, v)


class Fit:
    def __init__(self):
        self.scale = 1.0

    def residuals(self, x):
        return self.scale * np.sin(x)

    def loss(self, r):
        return self.scale * np.sum(r**2)


def test_the_gauss_newton_product_of_methods_reads_their_objects_anew():
    fit = Fit()
    for product, power in [
        (gauss_newton_vp(fit.residuals), 2),
        (gauss_newton_vp(np.sin, fit.loss), 1),
    ]:
        fit.scale = 1.0
        before = product(X, D)
        fit.scale = 3.0
        np.testing.assert_allclose(product(X, D), before * 3**power)


@pytest.mark.parametrize("compile", MODES)
def test_a_kink_whose_point_stands_has_a_series(compile):
    """`copysign(w, x)` is smooth in x, which never reaches the kink of |w|."""
    w = np.array([1.0, -2.0, 0.5])
    found = jet(lambda x: np.copysign(w, x) * x**2, X, 2, D, compile=compile)
    signs = np.abs(w) * np.sign(X)
    np.testing.assert_allclose(found, [signs * X**2, signs * 2 * X * D, signs * D**2])
    f = laplacian(lambda x: np.sum(np.copysign(w, x) * x**2), compile=compile)
    assert f(X) == pytest.approx(2 * np.sum(signs))


TABLE = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize("compile", MODES)
@pytest.mark.parametrize("forwards", [True, False])
def test_users_rules_serve_and_may_read_arrays_around_them(compile, forwards):
    @primitive
    def waves(x):
        return np.sin(x) * TABLE

    if forwards:
        defjvp(waves, lambda t, out, x: t * np.cos(x) * TABLE)
    else:
        defvjp(waves, lambda ct, out, x: ct * np.cos(x) * TABLE)
    found = jet(lambda x: np.exp(waves(x)), X, 4, D, compile=compile)
    np.testing.assert_allclose(found, jet(lambda x: np.exp(np.sin(x) * TABLE), X, 4, D))
    tangent = jvp(waves, (X,), (D,), compile=compile)[1]
    np.testing.assert_allclose(tangent, np.cos(X) * TABLE * D)


@pytest.mark.parametrize(
    "f",
    [
        lambda t: optimize.brentq(lambda y, t: y**3 + y - 1 - t, 0, 2, args=(t,)),
        lambda t: integrate.quad(lambda y: np.exp(-y * (1 + t)), 0, 1)[0],
    ],
)
def test_coefficients_of_what_is_known_implicitly(f):
    slope = grad(f)
    wanted = [f(0.0), slope(0.0), grad(slope)(0.0) / 2]
    np.testing.assert_allclose(jet(f, 0.0, 2), wanted, rtol=1e-7)


def test_the_laplacian_of_complex_arguments_is_refused():
    with pytest.raises(GradientError, match=r"laplacian: <?lambda>? has complex arguments"):
        laplacian(lambda z: np.abs(z) ** 2)(1 + 1j)
