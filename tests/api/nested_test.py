"""Derivatives of functions that take derivatives themselves."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg

X = np.array([0.5, -1.0, 2.0])


def grad(f, **options):
    return tg.grad(f, compile="never", **options)


def test_derivatives_of_a_number_to_fourth_order():
    def f(x):
        return x**4 + np.sin(x)

    x = 0.7
    expected = [4 * x**3 + np.cos(x), 12 * x**2 - np.sin(x), 24 * x - np.cos(x), 24 + np.sin(x)]
    derivative = f
    for value in expected:
        derivative = grad(derivative)
        assert derivative(x) == pytest.approx(value, rel=1e-13)


def test_derivatives_of_arrays_to_third_order():
    """A gradient that is summed before differentiating again: elementwise derivatives."""

    def summed(f):
        return lambda x: grad(f)(x).sum()

    def f(x):
        return (x**4).sum()

    np.testing.assert_allclose(grad(f)(X), 4 * X**3, rtol=1e-14)
    np.testing.assert_allclose(grad(summed(f))(X), 12 * X**2, rtol=1e-14)
    np.testing.assert_allclose(grad(summed(summed(f)))(X), 24 * X, rtol=1e-14)


def test_hessian_times_vector():
    matrix = np.arange(9.0).reshape(3, 3)

    def f(x):
        return np.tanh(matrix @ x).sum()

    def hvp(x, v):
        return grad(lambda x: (grad(f)(x) * v).sum())(x)

    v = np.array([1.0, -2.0, 0.5])
    step = 1e-6
    expected = (grad(f)(X + step * v) - grad(f)(X - step * v)) / (2 * step)
    np.testing.assert_allclose(hvp(X, v), expected, rtol=1e-6, atol=1e-8)


def test_the_function_closes_over_an_outer_traced_value():
    def outer(x):
        return grad(lambda y: x**2 * y**3)(2.0) + grad(lambda y: x * y)(x)

    # 12 x**2 + x, and its derivative
    assert grad(outer)(3.0) == 73.0


def test_outer_values_reach_through_two_levels():
    def f(x):
        def g(y):
            return grad(lambda z: x * y * z**2)(y)  # 2 x y**2

        return grad(g)(x)  # 4 x**2

    assert f(3.0) == pytest.approx(36.0)
    assert grad(f)(3.0) == pytest.approx(24.0)


def test_perturbations_are_not_confused():
    """d/dx (x * d/dy (x + y)) is 1: the inner derivative knows nothing of the outer one."""
    assert grad(lambda x: x * grad(lambda y: x + y)(1.0))(1.0) == 1.0
    assert grad(lambda x: x * grad(lambda y: x * y)(2.0))(3.0) == 6.0
    assert grad(lambda x: grad(lambda x: x**2)(x))(5.0) == 2.0


def test_a_gradient_step_is_differentiated_through():
    """The derivative of a loss after a step of gradient descent, with respect to the step size."""

    def loss(w):
        return ((w - 3.0) ** 2).sum()

    def after(rate, w):
        return loss(w - rate * grad(loss)(w))

    w, rate = np.array([1.0, 5.0]), 0.1
    # loss(w - r g) = (1 - 2 r)**2 loss(w)
    assert grad(after)(rate, w) == pytest.approx(-4 * (1 - 2 * rate) * loss(w))


def test_value_and_grad_inside():
    def f(x):
        value, gradient = tg.value_and_grad(lambda y: (y**3).sum(), compile="never")(x)
        return value + gradient.sum()

    np.testing.assert_allclose(grad(f)(X), 3 * X**2 + 6 * X, rtol=1e-14)


def test_aux_of_an_inner_derivative_is_differentiated():
    def f(x):
        gradient, aux = grad(lambda y: ((y**2).sum(), {"cube": y**3}), has_aux=True)(x)
        return gradient.sum() + aux["cube"].sum()

    np.testing.assert_allclose(grad(f)(X), 2 + 3 * X**2, rtol=1e-14)


def test_jit_inside_grad_and_grad_inside_jit():
    square = tg.jit(lambda x: x**2, compile="never")
    assert grad(lambda x: square(x) * x)(2.0) == 12.0
    assert tg.jit(lambda x: grad(square)(x) + 1, compile="never")(2.0) == 5.0


def test_an_inner_derivative_at_a_constant_is_a_constant():
    weights = np.array([1.0, 2.0, 3.0])

    def f(x):
        return (x * grad(lambda w: (w**2).sum())(weights)).sum()

    np.testing.assert_array_equal(grad(f)(X), 2 * weights)


def test_branches_of_an_inner_function_are_guarded():
    def f(x):
        return grad(lambda y: y**3 if y > 0 else -y)(x)

    df = grad(f)
    assert df(2.0) == 12.0
    assert df(-2.0) == 0.0
    assert df(3.0) == 18.0
    assert df.cache_info().traces == 2


def test_a_stopped_gradient_stays_stopped_inside():
    assert grad(lambda x: grad(lambda y: tg.stop_gradient(y) * y)(x))(3.0) == 0.0


def test_the_derivative_of_a_derivative_is_compiled_once():
    def f(x):
        return x**3

    for _ in range(3):
        assert grad(grad(f))(2.0) == 12.0
    assert grad(grad(f)).cache_info() == (2, 1, 1, 0, 0, 1, 0, 0, 0)


@pytest.mark.parametrize("compile", ["always", "never"])
def test_a_generator_is_handed_on_to_a_derivative(compile):
    """Which one it is makes no difference to a trace, in a dict as alone; each draw is its own."""
    x = np.arange(6.0).reshape(3, 2)
    inner = tg.grad(lambda p, rng: np.sum((x @ p) * (rng.random(3) < 0.5)))
    nested = tg.grad(lambda p, d: np.sum((x @ p) * (d["rng"][0].random(3) < 0.5)))

    def both(p, rng):
        return inner(p, rng) + nested(p, {"rng": [rng]})

    f = tg.jit(both, compile=compile)
    for seed in (1, 1, 2):
        rng, plain = np.random.default_rng(seed), np.random.default_rng(seed)
        for _ in range(2):
            expected = x.T @ (plain.random(3) < 0.5) + x.T @ (plain.random(3) < 0.5)
            np.testing.assert_allclose(f(np.ones(2), rng), expected)
        assert rng.random() == plain.random()
    assert f.cache_info().traces == 1
