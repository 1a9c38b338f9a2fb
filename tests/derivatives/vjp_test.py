"""Pullbacks: cotangent of the value -> cotangents of the arguments."""

import numpy as np
import pytest
from scipy import stats

from tapegrad import defvjp, grad, gradcheck, jit, primitive, trace, vjp
from tapegrad.errors import ArgumentError

X = np.array([0.5, -1.0, 2.0])
A = np.arange(6.0).reshape(2, 3)


def test_a_pullback_is_the_transposed_jacobian():
    value, pullback = vjp(lambda a, x: np.sin(a @ x), A, X)
    np.testing.assert_array_equal(value, np.sin(A @ X))
    ct = np.array([2.0, -1.0])
    da, dx = pullback(ct)
    np.testing.assert_allclose(da, np.outer(ct * np.cos(A @ X), X))
    np.testing.assert_allclose(dx, A.T @ (ct * np.cos(A @ X)))


def test_it_is_linear_and_can_be_called_again():
    _, pullback = vjp(np.exp, X)
    u, v = np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.5, 0.0])
    (du,), (dv,), (both,) = pullback(u), pullback(v), pullback(2 * u - v)
    np.testing.assert_allclose(both, 2 * du - dv)
    np.testing.assert_array_equal(pullback(u)[0], du)


def test_structures_are_mirrored():
    def f(p, n, name):
        return {"y": p["w"] * n, "z": (p["b"], len(name))}

    value, pullback = vjp(f, {"w": X, "b": 2.0}, 3, "abc")
    assert value["z"] == (2.0, 3)
    dp, dn, dname = pullback({"y": X, "z": (5.0, None)})
    np.testing.assert_array_equal(dp["w"], 3 * X)
    assert dp["b"] == 5.0
    assert dn is None and dname is None


def test_integer_arguments_and_results_have_no_cotangent():
    value, pullback = vjp(lambda x, k: (x[k], np.argmax(x)), X, np.array([0, 2]))
    assert value[1] == 2
    dx, dk = pullback((np.array([1.0, 10.0]), None))
    np.testing.assert_array_equal(dx, [1.0, 0.0, 10.0])
    assert dk is None


def test_results_that_do_not_depend_on_the_arguments():
    value, pullback = vjp(lambda x: (1.0, X * 2), X)
    assert value[0] == 1.0
    np.testing.assert_array_equal(pullback((1.0, X))[0], np.zeros(3))


def test_dtypes_are_those_of_the_arguments():
    _, pullback = vjp(lambda x, y: x * y, X.astype(np.float32), X)
    dx, dy = pullback([1, 2, 3] * np.ones(3))
    assert dx.dtype == np.float32 and dy.dtype == np.float64


def test_writing_to_the_arguments_later_changes_nothing():
    x, y = X.copy(), X.copy()
    value, pullback = vjp(lambda x, y: x * y, x, y)
    x[:] = 0
    y[:] = 0
    np.testing.assert_array_equal(value, X * X)
    np.testing.assert_array_equal(pullback(np.ones(3))[0], X)


def test_results_belong_to_the_caller():
    value, pullback = vjp(lambda x: x, X)
    ct = np.ones(3)
    (dx,) = pullback(ct)
    assert not np.shares_memory(value, X)
    assert not np.shares_memory(dx, ct)


def test_the_forward_half_runs_once():
    calls = []

    @primitive
    def f(x):
        calls.append(1)
        return np.asarray(x) ** 2

    defvjp(f, lambda ct, out, x: 2 * x * ct)
    _, pullback = vjp(lambda x: np.sin(f(x)), X)
    made = len(calls)
    for _ in range(3):
        np.testing.assert_allclose(pullback(np.ones(3))[0], 2 * X * np.cos(X**2))
    assert len(calls) == made


# ---- inside other traces


def test_the_gradient_of_a_pullback():
    """d/dx of u . J(x)^T u, elementwise."""

    def f(x):
        value, pullback = vjp(np.sin, x)
        return np.sum(pullback(np.ones(3))[0]) + np.sum(value)

    np.testing.assert_allclose(grad(f, compile="never")(X), -np.sin(X) + np.cos(X))


def test_the_gradient_with_respect_to_the_cotangent():
    _, pullback = vjp(np.sin, X)
    found = grad(lambda ct: np.sum(pullback(ct)[0] ** 2), compile="never")(np.ones(3))
    np.testing.assert_allclose(found, 2 * np.cos(X) ** 2)


def test_a_hessian_vector_product():
    def f(x):
        return np.sum(x**3) * x[0]

    _, pullback = vjp(grad(f), X)
    v = np.array([1.0, 2.0, 3.0])
    eps = 1e-5
    expected = (grad(f)(X + eps * v) - grad(f)(X - eps * v)) / (2 * eps)
    np.testing.assert_allclose(pullback(v)[0], expected, rtol=1e-8)


def test_inside_jit():
    f = jit(lambda x, ct: vjp(np.tanh, x)[1](ct)[0], compile="never")
    np.testing.assert_allclose(f(X, X), X * (1 - np.tanh(X) ** 2))


def test_users_rules_are_used_and_differentiated():
    f = primitive(np.round)
    defvjp(f, lambda ct, out, x: ct * out)

    def g(x):
        return np.sum(vjp(f, x)[1](np.ones(3))[0])

    np.testing.assert_array_equal(grad(g, compile="never")(X), np.round(X))


# ---- cotangents that don't fit


@pytest.mark.parametrize(
    ("ct", "message"),
    [
        (np.ones(2), r"cotangent has shape \(2,\), and the value has shape \(3,\)"),
        (1.0, r"cotangent has shape \(\), and the value has shape \(3,\)"),
        (np.ones(3) * 1j, "has dtype complex128, and the value has dtype float64"),
        (np.array(["a"] * 3), "has dtype <U1"),
        (None, r"cotangent has shape \(\)"),
    ],
)
def test_wrong_cotangents(ct, message):
    _, pullback = vjp(np.sin, X)
    with pytest.raises(ArgumentError, match=message):
        pullback(ct)


def test_cotangents_of_another_structure():
    _, pullback = vjp(lambda x: (x, {"y": x}), X)
    with pytest.raises(ArgumentError, match="isn't put together as the function's value is"):
        pullback((X, X))
    with pytest.raises(ArgumentError, match=r"of result 1 has shape \(2,\)"):
        pullback((X, {"y": np.ones(2)}))


LOGPDF = stats.norm.logpdf


@pytest.mark.parametrize(
    "f",
    [
        lambda x: float(np.sum(x**2)),
        lambda x: -np.sum(LOGPDF(x)),
        grad(lambda x: -np.sum(LOGPDF(x) ** 2)),
        lambda x: np.float64(np.sum(x**3)) * 2,
    ],
)
def test_one_way_in(f):
    """What `grad` follows, `vjp`, `gradcheck`, `trace` and `jit` follow."""
    x = np.array([0.3, -0.7])
    expected = f(x)
    assert gradcheck(f, x)
    np.testing.assert_allclose(vjp(f, x)[0], expected, rtol=1e-14)
    np.testing.assert_allclose(trace(f, x)[0], expected, rtol=1e-14)
    np.testing.assert_allclose(jit(f)(x), expected, rtol=1e-14)


def test_rules_are_followed_as_functions_are():
    """A rule may convert traced numbers, under `vjp` as under `grad`."""
    double = primitive(lambda x: 2 * x)
    defvjp(double, lambda ct, out, x: ct * float(np.sum(ct * 0 + 2.0)))
    assert vjp(lambda x: double(x), 3.0)[1](1.0) == (2.0,)
    assert grad(lambda x: double(x))(3.0) == 2.0
