"""The transformations of HIPS autograd: results, argument orders and structures as it has them."""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pytest

import tapegrad
import tapegrad.autograd as ag
from tapegrad.autograd.core import make_vjp as pull_at
from tapegrad.autograd.wrap_util import unary_to_nary
from tapegrad.runtime.cache import caches_of

X, V = np.array([1.0, 2.0, 3.0]), np.array([0.1, -0.2, 0.4])


def f(x, a=2.0, power=2):
    return np.sum(np.sin(a * x)) + a * np.sum(x) ** power


def gradient(x, a=2.0):
    return a * np.cos(a * x) + 2 * a * np.sum(x)


def curvature(x, a=2.0):
    return np.diag(-(a**2) * np.sin(a * x)) + 2 * a


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_argnum_is_a_number_and_a_list_of_them_gives_a_tuple():
    close(ag.grad(f)(X, a=3.0), gradient(X, 3.0))
    by_a = np.sum(X * np.cos(2 * X)) + np.sum(X) ** 2
    close(ag.grad(f, 1)(X, 2.0), by_a)
    for several in ([0, 1], (1, 0)):
        value, found = ag.value_and_grad(f, several)(X, 2.0)
        assert isinstance(found, tuple)
        close(value, f(X))
        close(found[several.index(0)], gradient(X))
        close(found[several.index(1)], by_a)
    close(ag.grad_named(f, "a")(X, 2.0), by_a)


def test_matrices():
    close(ag.jacobian(np.tanh)(X), np.diag(1 - np.tanh(X) ** 2))
    close(ag.hessian(f)(X), curvature(X))
    close(ag.hessian(lambda x: x**3)(X)[1], np.diag([0, 6 * X[1], 0]))  # of vectors too
    close(ag.elementwise_grad(ag.elementwise_grad(np.sin))(X), -np.sin(X))


def test_products_take_the_vector_behind_the_arguments():
    close(ag.hessian_vector_product(f)(X, 3.0, V), curvature(X, 3.0) @ V)
    by_rows = ag.tensor_jacobian_product(lambda x, a: np.outer(x, x) * a)
    close(by_rows(X, 2.0, np.eye(3)), 4 * X)
    close(ag.vector_jacobian_product(lambda x: np.outer(x, x))(X, V).shape, (3, 3))


def test_at_a_point_the_map_comes_first_and_the_value_second():
    vjp, value = ag.make_vjp(f, 0)(X, a=3.0)
    close(value, f(X, 3.0))
    close(vjp(2.0), 2 * gradient(X, 3.0))
    vjp, _ = ag.make_vjp(f, (1, 0))(X, 2.0)
    assert isinstance(vjp(1.0), tuple)
    close(vjp(1.0)[1], gradient(X))
    value, tangent = ag.make_jvp(f)(X, 3.0)(V)
    close([value, tangent], [f(X, 3.0), gradient(X, 3.0) @ V])
    close(ag.make_jvp(f, [0, 1])(X, 3.0)((V, 0.0))[1], gradient(X, 3.0) @ V)
    close(ag.make_jvp_reversemode(f)(X)(V), gradient(X) @ V)
    hvp, found = ag.make_hvp(f)(X)
    close(found, gradient(X))
    close(hvp(V), curvature(X) @ V)


def test_the_gauss_newton_product():
    J = np.diag(np.cos(X))
    close(ag.make_ggnvp(np.sin)(X)(V), J.T @ J @ V)
    found = ag.make_ggnvp(np.sin, lambda y: np.sum(y**4))(X)(V)
    close(found, J.T @ np.diag(12 * np.sin(X) ** 2) @ J @ V)


def test_what_isnt_differentiated_may_have_no_derivative():
    """The order of a Bessel function has none, and none is asked for."""
    from scipy import special

    vjp, _ = ag.make_vjp(special.jv, 1)(2.0, 3.0)
    close(vjp(1.0), special.jvp(2.0, 3.0))


def test_other_forms():
    close(ag.deriv(np.sin)(1.0), np.cos(1.0))
    close(ag.holomorphic_grad(lambda z: z**3)(1 + 2j), 3 * (1 + 2j) ** 2)
    with pytest.warns(UserWarning, match="not complex"):
        ag.holomorphic_grad(lambda z: z**3)(1.0)
    slope, aux = ag.grad_and_aux(lambda x: (np.sum(x**2), x.shape))(X)
    close(slope, 2 * X)
    assert aux == (3,)

    def g(a, *b, c=3.0, **d):
        return a * b[0] * c * d["e"]

    found = ag.multigrad_dict(g)(2.0, 3.0, e=4.0)
    assert list(found) == ["a", "b", "c", "d"]
    assert found == {"a": 36.0, "b": (24.0,), "c": 24.0, "d": {"e": 18.0}}
    close(ag.grad(ag.checkpoint(f))(X), gradient(X))


def test_arrays_of_integers_are_floats_where_they_are_differentiated():
    whole = np.array([1, 2, 3])
    close(ag.grad(f)(whole), gradient(X))
    close(ag.elementwise_grad(ag.elementwise_grad(lambda x: x**3))(whole), 6 * X)
    close(ag.hessian(f)(whole, 2.0), curvature(X))
    close(ag.make_vjp(f)(whole)[0](1.0), gradient(X))
    close(ag.make_jvp(f)(whole)(V)[1], gradient(X) @ V)
    close(ag.grad(lambda a, k: a * np.sum(X[k]))(2.0, whole - 1), 6)  # those stay as they are
    with pytest.raises(TypeError):
        ag.grad(lambda x: x**2)(3)


def test_a_gradient_of_many_values_is_a_type_error():
    with pytest.raises(TypeError):
        ag.grad(np.sin)(X)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: ag.make_vjp(f, 0)(x, 2.0)[0](1.0),
        lambda f, x: ag.make_jvp(f)(x)(V)[1],
        lambda f, x: ag.make_hvp(f)(x)[0](V),
        lambda f, x: ag.tensor_jacobian_product(f)(x, np.float64(1.0)),
        lambda f, x: ag.holomorphic_grad(f)(x + 0j),
        lambda f, x: ag.multigrad_dict(f)(x)["x"],
    ],
)
def test_a_function_is_traced_once_wherever_it_is_derived(call):
    """Each of these is made anew in every call; what is derived stays with the function."""

    def loss(x, a=2.0, power=2):
        return np.sum(np.sin(a * x)) + a * np.sum(x) ** power

    found = [call(loss, X * k) for k in (1.0, 2.0, 3.0)]
    infos = [cache.info() for cache in caches_of(loss)]
    assert sum(info.traces for info in infos) <= 2 and sum(info.hits for info in infos) >= 2
    for k, value in zip((1.0, 2.0, 3.0), found, strict=True):
        close(value, call(copied(loss), X * k))


def copied(f):
    """The same function, as another object."""
    return FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)


def test_programs_make_operators_of_their_own():
    @unary_to_nary
    def squared(fun, x):
        vjp, value = pull_at(fun, x)
        return vjp(value)

    close(squared(lambda a, x: a * x, 1)(3.0, 2.0), 18.0)
    close(squared(lambda a, x: a * x, (0, 1))(3.0, 2.0), (12.0, 18.0))


def quartic(x):
    return np.sum(np.sin(x) * x**3)


INSIDE = {
    "grad": (ag.grad(quartic), lambda d, x: d(x) @ x),
    "of several": (ag.grad(quartic, [0]), lambda d, x: d(x)[0] @ x),
    "value_and_grad": (ag.value_and_grad(quartic), lambda d, x: d(x)[1] @ x),
    "jacobian": (ag.jacobian(np.sin), lambda d, x: np.sum(d(x))),
    "hessian": (ag.hessian(quartic), lambda d, x: x @ d(x) @ x),
    "elementwise_grad": (ag.elementwise_grad(np.sin), lambda d, x: d(x) @ x),
    "deriv": (ag.deriv(np.sin), lambda d, x: d(x) @ x),
    "make_vjp": (ag.make_vjp(np.sin), lambda d, x: d(x)[0](x) @ x),
    "make_jvp": (ag.make_jvp(np.sin), lambda d, x: d(x)(x)[1] @ x),
    "make_hvp": (ag.make_hvp(quartic), lambda d, x: d(x)[0](x) @ x),
    "hessian_vector_product": (ag.hessian_vector_product(quartic), lambda d, x: d(x, x) @ x),
    "grad_named": (ag.grad_named(quartic, "x"), lambda d, x: d(x) @ x),
    "multigrad_dict": (ag.multigrad_dict(quartic), lambda d, x: d(x)["x"] @ x),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", INSIDE)
def test_one_inside_a_function_is_traced_once(name):
    """Nothing of what was made outside changes from call to call."""
    inner, total = INSIDE[name]

    def outer(x):
        return total(inner, x)

    derived = ag.grad(outer)
    for k in range(1, 5):
        derived(np.arange(1.0, 4.0) / k)
    assert tapegrad.cache_info(outer).traces == 1


def test_integers_of_the_outside_are_those_of_each_call():
    whole, inner = np.array([1, 2, 3]), ag.grad(quartic)
    derived = ag.grad(lambda x: np.sum(x * inner(whole)))
    for k in range(2):
        whole[0] = k
        np.testing.assert_allclose(derived(np.ones(3)), inner(whole))
