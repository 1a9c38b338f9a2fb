"""`jacobian`, `hessian` and their like."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import tapegrad
from tapegrad import (
    elementwise_grad,
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    sparse_jacobian,
    value_and_grad,
    value_and_jacobian,
    value_grad_and_hessian,
    vmap,
)
from tapegrad.errors import ArgumentError, GradientError

X = np.array([1.0, 2.0, 3.0])
MODES = ["never", "always"]


def f(x):
    return np.array([x[0] * x[1], np.sin(x[2]), x[0] ** 2, np.sum(x)])


F = np.array([[2.0, 1, 0], [0, 0, np.cos(3.0)], [2, 0, 0], [1, 1, 1]])


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@pytest.mark.parametrize("compile", MODES)
@pytest.mark.parametrize("derive", [jacobian, jacfwd, jacrev])
def test_a_row_for_each_result_and_a_column_for_each_argument(derive, compile):
    found = derive(f, compile=compile)
    for _ in range(2):
        np.testing.assert_allclose(found(X), F, atol=1e-15)


def test_axes_of_the_value_come_first():
    a = np.arange(6.0).reshape(2, 3)
    for mode in ("forward", "reverse"):
        found = jacobian(lambda a: a.T @ a, mode=mode)(a)
        assert found.shape == (3, 3, 2, 3)
        eye = np.eye(3)
        wanted = np.einsum("ki,jl->ijkl", a, eye) + np.einsum("kj,il->ijkl", a, eye)
        np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_trees_of_values_hold_trees_of_arguments(mode):
    def g(p):
        return {"a": p["w"] @ p["b"], "n": 3, "s": np.sum(p["b"] ** 2)}

    p = {"w": np.arange(6.0).reshape(2, 3), "b": X, "k": 2}
    found = jacobian(g, mode=mode)(p)
    np.testing.assert_allclose(found["a"]["b"], p["w"])
    np.testing.assert_allclose(found["a"]["w"], np.einsum("ij,k->ijk", np.eye(2), X))
    np.testing.assert_allclose(found["s"]["b"], 2 * X)
    assert found["n"] is None and found["a"]["k"] is None
    assert found["s"]["w"].shape == (2, 3)


def test_several_arguments_give_a_tuple_and_aux_comes_along():
    found, aux = jacobian(lambda x, y: (x * y, "aux"), argnums=(1, "x"), has_aux=True)(X, 2.0)
    np.testing.assert_allclose(found[0], X)
    np.testing.assert_allclose(found[1], 2 * np.eye(3))
    assert aux == "aux"


def test_the_value_comes_along():
    value, found = value_and_jacobian(f)(X)
    np.testing.assert_allclose(value, f(X))
    np.testing.assert_allclose(found, F, atol=1e-15)
    (value, aux), found = value_and_jacobian(lambda x: (x**2, 7), has_aux=True)(X)
    assert aux == 7 and found.shape == (3, 3)


def test_numbers_have_jacobians_without_axes():
    assert jacobian(np.sin)(0.0) == 1.0
    np.testing.assert_allclose(jacobian(lambda x: x * X)(2.0), X)
    np.testing.assert_allclose(jacobian(lambda x: np.sum(x**2))(X), 2 * X)


def test_arrays_without_elements():
    assert jacobian(lambda x: x * 2)(np.zeros(0)).shape == (0, 0)
    assert jacobian(lambda x: x[:0])(X).shape == (0, 3)
    assert jacrev(lambda x: x[:0])(X).shape == (0, 3)


@pytest.mark.parametrize("mode", ["never", "always", "auto"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: np.sum(x**2),
        lambda x: np.sum(np.exp(-((x[:, None] - x) ** 2))),
        lambda x: x @ np.linalg.solve(np.outer(x, x) + np.eye(len(x)), x),
        lambda x: np.linalg.slogdet(np.outer(x, x) + np.eye(len(x)))[1],
        lambda x: np.sum(np.linalg.inv(np.outer(x, x) + np.eye(len(x))) @ x),
        lambda x: np.sum(np.log(np.diag(np.linalg.cholesky(np.outer(x, x) + np.eye(len(x)))))),
    ],
    ids=["squares", "pairs", "solve", "slogdet", "inv", "cholesky"],
)
def test_functions_of_arrays_without_elements(program, mode):
    """Systems without rows have kernels, too, and sums of no products any order."""
    x = np.zeros(0)
    assert hessian(program, compile=mode)(x).shape == (0, 0)
    assert jacobian(program, compile=mode)(x).shape == (0,)
    assert grad(program, compile=mode)(x).shape == (0,)
    assert jvp(program, (x,), (x,))[1] == 0
    rows = np.zeros((2, 0))
    assert vmap(program, compile=mode)(rows).shape == (2,)
    assert vmap(hessian(program), compile=mode)(rows).shape == (2, 0, 0)
    assert vmap(grad(program), compile=mode)(np.zeros((0, 0))).shape == (0, 0)


def test_complex_numbers_by_the_conventions_of_grad():
    z = X + 1j
    with pytest.raises(GradientError, match="holomorphic=True"):
        jacobian(np.exp)(z)
    np.testing.assert_allclose(jacobian(np.exp, holomorphic=True)(z), np.diag(np.exp(z)))
    np.testing.assert_allclose(jacobian(lambda z: np.abs(z) ** 2)(z), np.diag(2 * z.conj()))
    np.testing.assert_allclose(jacobian(lambda x: np.exp(1j * x))(X), np.diag(1j * np.exp(1j * X)))
    with pytest.raises(GradientError, match="mode='forward'"):
        jacobian(lambda x: np.exp(1j * x), mode="reverse")(X)
    for holomorphic in (False, True):
        with pytest.raises(GradientError, match="parts as arguments"):
            hessian(lambda z: np.sum(np.abs(z) ** 2), holomorphic=holomorphic)(z)
    with pytest.raises(GradientError, match="Say holomorphic=True"):
        hessian(lambda z: np.sum(z**2))(z)
    with pytest.raises(GradientError, match="returned complex numbers"):
        elementwise_grad(np.conj)(z)


@pytest.mark.parametrize("compile", MODES)
def test_hessians_of_complex_values(compile):
    """Of real arguments they are those of both parts, of complex ones those of the holomorphic
    function; and of both together."""
    z = X + 1j * X[::-1]

    def f(x, z):
        return np.sum(np.exp(1j * x) * z**2) + x[0] * x[1] * np.exp(z[0])

    both = hessian(f, (0, 1), holomorphic=True, compile=compile)(X, z)
    e = np.eye(len(X))
    real = -np.exp(1j * X) * z**2 * e + np.exp(z[0]) * (np.outer(e[0], e[1]) + np.outer(e[1], e[0]))
    mixed = 2j * np.exp(1j * X) * z * e
    mixed[:, 0] += np.exp(z[0]) * np.array([X[1], X[0], 0])
    whole = 2 * np.exp(1j * X) * e + X[0] * X[1] * np.exp(z[0]) * np.outer(e[0], e[0])
    for found, wanted in zip(sum(both, ()), (real, mixed, mixed.T, whole), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-12)
    value, slope, matrix = value_grad_and_hessian(f, compile=compile)(X, z)
    np.testing.assert_allclose((value, *slope), (f(X, z), *jacobian(f)(X, z)))
    np.testing.assert_allclose(matrix, real, atol=1e-12)
    np.testing.assert_allclose(hessian(lambda x: 1j + 0 * x[0])(X), np.zeros((3, 3)))


def test_numbers_that_do_not_depend_on_the_arguments_have_zeros():
    for mode in ("forward", "reverse"):
        found = jacobian(lambda x: (3.0, x[0], np.float64(2.0)), mode=mode)(X)
        np.testing.assert_array_equal(found, [[0, 0, 0], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("compile", MODES)
def test_hessian_of_rosenbrock(compile):
    found = hessian(rosenbrock, compile=compile)
    for x in (X, np.linspace(-1, 1, 7)):
        np.testing.assert_allclose(found(x), scipy.optimize.rosen_hess(x), atol=1e-12)


def test_hessian_of_several_arguments_is_a_matrix_of_blocks():
    (aa, ab), (ba, bb) = hessian(lambda a, b: np.sum(a**2 * b), argnums=(0, 1))(X, 2 * X)
    np.testing.assert_allclose(aa, np.diag(4 * X))
    np.testing.assert_allclose(ab, np.diag(2 * X))
    np.testing.assert_allclose(ba, np.diag(2 * X))
    np.testing.assert_allclose(bb, np.zeros((3, 3)))


def test_value_gradient_and_hessian_are_those_of_each():
    value, gradient, matrix = value_grad_and_hessian(rosenbrock)(X)
    np.testing.assert_allclose((value, *gradient), np.hstack(value_and_grad(rosenbrock)(X)))
    np.testing.assert_allclose(matrix, scipy.optimize.rosen_hess(X))


def test_hessian_is_the_jacobian_of_the_gradient_in_all_modes():
    def loss(x):
        return np.sum(np.tanh(np.outer(x, x))) + np.linalg.norm(x) ** 3

    wanted = hessian(loss)(X)
    for inner in (grad, jacfwd, jacrev):
        for outer in (jacfwd, jacrev):
            np.testing.assert_allclose(outer(inner(loss))(X), wanted)


def test_elementwise_grad():
    np.testing.assert_allclose(elementwise_grad(np.tanh)(X), 1 - np.tanh(X) ** 2)
    np.testing.assert_allclose(elementwise_grad(elementwise_grad(np.sin))(X), -np.sin(X))


def test_they_differentiate_each_other():
    np.testing.assert_allclose(
        grad(lambda x: np.sum(hessian(rosenbrock)(x)))(X), [1600, 3600, -400]
    )
    third = jacobian(hessian(lambda x: np.sum(x**4)))(X)
    np.testing.assert_allclose(third[range(3), range(3), range(3)], 24 * X)


def test_as_decorators_and_methods():
    class Model:
        power = 3

        @jacobian(argnums=1)
        def slopes(self, x):
            return x**self.power

        @hessian(argnums="x")
        def curvature(self, x):
            return np.sum(x**self.power)

    model = Model()
    np.testing.assert_allclose(model.slopes(X), np.diag(3 * X**2))
    np.testing.assert_allclose(model.curvature(X), np.diag(6 * X))
    Model.power = 2
    np.testing.assert_allclose(model.curvature(X), 2 * np.eye(3))


def test_an_unknown_mode_is_an_error():
    with pytest.raises(ArgumentError, match='"auto", "forward" or "reverse"'):
        jacobian(f, mode="fwd")


def test_the_tape_is_as_long_for_many_rows_as_for_few():
    found = jacobian(lambda x: np.tanh(x) * np.sum(x))
    found(np.ones(3))
    found(np.ones(300))
    calls = [len(tape.calls) for tape in found.tapes]
    assert calls[0] == calls[1]


def test_a_function_with_a_reverse_rule_alone_has_its_jacobian_by_that():
    @tapegrad.primitive
    def cube(x):
        return np.array([float(v) ** 3 for v in x])

    tapegrad.defvjp(cube, lambda ct, out, x: ct * 3 * x**2)
    np.testing.assert_allclose(jacobian(cube)(X), np.diag(3 * X**2))


def test_loops_and_solvers_are_differentiated_in_both_modes():
    def steps(p):
        u = np.ones(3)
        for _ in range(40):
            u = u + 0.05 * np.array([u[1], -p[0] * u[0] - p[1] * u[1], u[0] * u[2] * p[1]])
        return np.linalg.solve(np.eye(3) * 2 + np.outer(p[0] * u, u), u)

    p = np.array([1.3, 0.4])
    wanted = [(steps(p + h) - steps(p - h)) / 2e-6 for h in 1e-6 * np.eye(2)]
    for mode in ("forward", "reverse"):
        for compile in MODES:
            found = jacobian(steps, mode=mode, compile=compile)(p)
            np.testing.assert_allclose(found, np.transpose(wanted), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_the_jacobian_of_a_holomorphic_function_is_the_same_in_both_modes(compile):
    a, z = np.array([[1, 2j, 0], [1j, 1, 3 - 1j]]), np.array([1 + 1j, 0.5, -2j])

    def f(z):
        return np.exp(a @ z / 4) * z[0]

    e = np.exp(a @ z / 4)
    exact = e[:, None] * (z[0] * a / 4 + np.array([1, 0, 0]))
    for mode in ("auto", "forward", "reverse"):
        found = jacobian(f, mode=mode, holomorphic=True, compile=compile)(z)
        np.testing.assert_allclose(found, exact)


@pytest.mark.parametrize("compile", MODES)
def test_a_matrix_has_the_type_of_its_argument_in_both_modes(compile):
    """Forward mode has tangents of the value's type, reverse mode cotangents of the argument's."""
    single, double = np.ones(2, np.float32), np.arange(1.0, 4.0)

    def wide(a, b):
        return np.sum(a) * b**2

    def narrow(a, b):
        return np.sum(b).astype(np.float32) * a**2

    for function in (wide, narrow):
        every = [
            transform(function, (0, 1), compile=compile)(single, double)
            for transform in (jacfwd, jacrev, jacobian)
        ]
        for matrices in every:
            assert [x.dtype for x in matrices] == [np.float32, np.float64]
            np.testing.assert_allclose(matrices[0], every[0][0], rtol=1e-6)
            np.testing.assert_allclose(matrices[1], every[0][1], rtol=1e-6)
        sparse = sparse_jacobian(function, 0, compile=compile)(single, double)
        assert sparse.dtype == np.float32
    loss = hessian(lambda a, b: np.sum(a**2) * np.sum(b**3), (0, 1), compile=compile)
    rows = loss(single, double)
    assert [[x.dtype for x in row] for row in rows] == [[np.float32, np.float64]] * 2
    turned = jacfwd(lambda a: np.exp(1j * a), compile=compile)(single)
    assert turned.dtype == np.complex64


def test_memory_is_looked_for_in_proportion_to_the_program(monkeypatch):
    """Plans of long programs take longer than some megabytes are worth."""
    from tapegrad import pipeline
    from tapegrad.runtime import row_blocks

    def unlike(x):
        y = x * 1.0
        for k, f in enumerate([np.sin, np.exp, np.tanh, np.cos] * 10):
            y[k] = f(y[(k * k + 3) % 40]) * y[(7 * k) % 40] + (k + 1) ** 0.5
        return np.sum(y)

    planned = []
    monkeypatch.setattr(pipeline, "LARGE_RESULT", 2000)  # bytes; the Hessian has 12,800
    monkeypatch.setattr(row_blocks, "_memory_of", lambda tape, *_: planned.append(tape) or 0)
    x = np.linspace(0, 1, 40)
    found = hessian(unlike, compile="never")(x)
    assert not planned
    hessian(lambda x: np.sum(np.sin(x) * x[::-1]) ** 2, compile="never")(x)
    assert planned
    np.testing.assert_allclose(found, found.T, rtol=1e-9, atol=1e-9)
