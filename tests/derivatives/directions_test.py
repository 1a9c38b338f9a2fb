"""Passes in all directions: rows without their zeros."""

from __future__ import annotations

import types

import numpy as np
import pytest
import scipy.linalg

from tapegrad import grad, hessian, hvp, jacobian, jvp, pipeline
from tapegrad.backends.numpy.play import run
from tapegrad.differentiate import outer as outer_products
from tapegrad.differentiate.slices import in_slices
from tapegrad.ir.text import parse
from tapegrad.optimize.inline import inline_calls
from tapegrad.runtime import coloured_products, jacobians

N = 24
POINT = np.sin(np.arange(1.0, N + 1)) * 0.7
DENSE = np.cos(np.arange(N * N)).reshape(N, N) / 5


def product(x):
    return np.sum((DENSE @ x) ** 4)


def form(x):
    return x @ DENSE @ x


def of_a_form(x):
    return np.exp(-0.5 * (x @ DENSE @ x) / N)


def outer(x):
    return np.sum(np.outer(x, x) ** 3)


def outer_sine(x):
    return np.sum(np.sin(np.outer(x, x)))


def rank_one_and_diagonal(x):
    return np.sum(x) ** 2 * 0.5 + np.sum(x**4)


def kernel(x):
    return np.sum(np.exp(-((x[:, None] - x[None, :]) ** 2)))


def logsumexp(x):
    return np.log(np.sum(np.exp(x)))


def logsumexp_of_product(x):
    z = DENSE @ x
    return np.max(z) + np.log(np.sum(np.exp(z - np.max(z))))


def chain(x):
    return np.exp(-np.sum((x[1:] - x[:-1] ** 2) ** 2) / N)


def logistic(x):
    return np.sum(np.logaddexp(0, DENSE[:7] @ x)) + 0.5 * x @ x


def network(x):
    w = x.reshape(4, -1)
    return np.sum(np.tanh(np.tanh(w @ np.ones(w.shape[1]) * 0.1)) ** 2) + np.sum(
        np.tanh(w.T @ POINT[:4])
    )


def two_layers(x):
    return np.sum(np.tanh(DENSE @ np.tanh(DENSE @ x)) ** 2)


def products_of_sums(x):
    return np.sum(x) * np.sum(x**2) * np.sum(np.sin(x))


def norm(x):
    return np.sqrt(np.sum(x**2))


def gram(x):
    m = x.reshape(-1, 4)
    return np.sum((m.T @ m) ** 2)


def cumulated(x):
    return np.sum(np.cumsum(x) ** 4)


def fourier(x):
    return np.sum(np.abs(np.fft.rfft(x)) ** 4)


def convolved(x):
    return np.sum(np.convolve(x, x) ** 2)


def coulomb(x):
    d = x[:, None] - x[None, :]
    return np.sum(1 / np.sqrt(d * d + 1.0))


def distances(x):  # zeros beside infinite slopes, where both terms of d meet
    d = x[:, None] - x[None, :]
    s = d * d
    return np.sum(np.where(s > 0, np.sqrt(np.where(s > 0, s, 1.0)), 0.0) ** 3)


def masked(x):
    p = x.reshape(-1, 2)
    s = np.sum((p[:, None] - p) ** 2, -1)
    return np.sum(np.where(s > 0, np.log(s + (s == 0)), 0.0))


def turned(x):
    return np.sum(x[::-1] * x**2 * np.roll(x, 3)[::2].sum()) + np.prod(x[3:9:2])


def joined(x):
    parts = np.stack([x[1:], x[:-1] * x[0], x[1:]])
    return np.sum(parts**3) * np.sum(np.concatenate([x[::2], x]))


def parts_of_a_matrix(x):
    m = x.reshape(4, -1)
    inverse = np.linalg.inv(m @ m.T + np.eye(4))
    return (
        np.sum(inverse) + np.trace(m[:, :4] @ m[:, 2:]) + np.sum(np.diagonal(m)) * m[1:3, 2:5].sum()
    )


def sorted_and_cumulated(x):
    return np.sum(np.cumsum(np.sort(x)) ** 2) * np.max(x)


def elements(x):
    return x[0] * x[1] ** 2 * np.sin(x[2]) + x[3] * x[4]


def complex_parts(x):
    z = np.exp(1j * x) * np.sum(x)
    return np.sum(np.abs(z[1:] - z[:-1]) ** 2) * np.sum(z.imag)


def entropy(x):
    p = np.exp(x) / np.sum(np.exp(x))
    return -np.sum(p * np.log(p))


def layered(x):  # the tie of a maximum, and a choice by a mask that moves
    y = np.maximum(x[:, None] * x, 0.1)
    return np.sum(np.where(y > 0.2, np.sqrt(y), y * x) ** 2)


def masked_and_spread(x):  # terms that agree get further axes before they are added up
    d = x[1:] - x[:-1]
    y = np.where(d > 0.1, np.sqrt(np.where(d > 0.1, d, 1.0)), 0.0)
    return np.sum(np.sin(y + d[:, None] * d))


def weighted_outer(x):  # many terms, all rows of which are three matrices
    return np.sum(np.tanh(np.outer(x, np.sin(x))) @ np.sin(np.arange(N))) ** 2


def softmax(x):  # a row of the matrix is as large as the matrix
    m = DENSE + x
    p = np.exp(m - np.max(m, axis=1, keepdims=True))
    return np.sum(p / np.sum(p, axis=1, keepdims=True) @ x) ** 2


def in_space(x):  # three coordinates each, and one number that belongs to no point
    p = x[: N // 3 * 3].reshape(-1, 3)
    d = p[:, None] - p
    return np.sum(1 / np.sqrt(np.sum(d * d, -1) + 0.01)) + np.sum(x) ** 3


def determinant(x):  # a direction is an outer product: no product of matrices is taken of it
    return np.linalg.slogdet(np.outer(x, x) / N + np.eye(N))[1]


def squared_outer(x):
    o = np.outer(x, x)
    return np.sum(o @ o) * np.sum(x)


def solved(x):  # a matrix isn't needed beside its factors
    weights = np.sin(np.arange(N))
    return weights @ np.linalg.solve(DENSE / N + np.diag(2 + x**2), weights)


def toeplitz(x):  # what is gathered is gathered again
    return np.sum(scipy.linalg.toeplitz(x) @ x) ** 2 / N


def stepped(x):  # a loop, whose rows are all there behind it
    z = x
    for _ in range(20):
        z = z - 0.05 * np.sin(z) * np.sum(z) / N
    return np.sum(z**2)


PROGRAMS = [
    *(product, form, of_a_form, outer, outer_sine, rank_one_and_diagonal, kernel, logsumexp),
    *(logsumexp_of_product, chain, logistic, network, two_layers, products_of_sums, norm, gram),
    *(cumulated, fourier, convolved, coulomb, distances, masked, turned, joined),
    *(parts_of_a_matrix, sorted_and_cumulated, elements, complex_parts, entropy, layered),
    *(masked_and_spread, weighted_outer, softmax, in_space, determinant, squared_outer, solved),
    *(toeplitz, stepped),
]


def kernel_of(x):
    d = x[:, None] - x
    return np.exp(-d * d) + 0.1 * np.eye(N)


def kernel_determinant(x):
    return np.linalg.slogdet(kernel_of(x))[1]


def kernel_solved(x):
    weights = np.sin(np.arange(N))
    return weights @ np.linalg.solve(kernel_of(x), weights)


def gaussian_process(x):
    kernel, weights = kernel_of(x), np.sin(np.arange(N))
    return (weights @ np.linalg.solve(kernel, weights) + np.linalg.slogdet(kernel)[1]) / 2


def kernel_inverse(x):
    return np.sum(np.linalg.inv(kernel_of(x)) @ np.sin(np.arange(N)))


def factor_determinant(x):
    return np.sum(np.log(np.diag(np.linalg.cholesky(kernel_of(x)))))


def factor_solved(x):
    half = scipy.linalg.solve_triangular(
        np.linalg.cholesky(kernel_of(x)), np.sin(np.arange(N)), lower=True
    )
    return half @ half


def inverse_under_axes(x):  # an outer product under other axes, and divided
    inverse = np.linalg.inv(kernel_of(x))[:, None]
    return np.sum(np.tanh(inverse.T) / np.exp(x)) + np.sum(np.squeeze(inverse, 1) * x @ DENSE)


def diagonal_of_an_inverse(x):  # two axes become one
    return np.sum(np.diagonal(np.linalg.inv(kernel_of(x))) ** 2 * x)


def distances_of_features(x):  # sums along axes that a factor lacks
    z = np.tanh(DENSE @ x)
    return np.sum(np.outer(z, np.sin(z)) @ DENSE * x) + np.sum(np.outer(z, z), 1) @ x


MATRICES = [
    *(kernel_determinant, kernel_solved, gaussian_process, kernel_inverse, inverse_under_axes),
    *(diagonal_of_an_inverse, distances_of_features),
]


def check_rows(f, compiled):
    gradient = grad(f, compile="never")
    columns = [jvp(gradient, (POINT,), (e,))[1] for e in np.eye(N)]
    wanted = np.stack(columns, -1)
    close = {"rtol": 1e-11, "atol": 1e-12 * np.abs(wanted).max()}
    np.testing.assert_allclose(hessian(f, compile=compiled)(POINT), wanted, **close)
    for mode in ("forward", "reverse"):
        found = jacobian(grad(f), mode=mode, compile="never")(POINT)
        np.testing.assert_allclose(found, wanted, **close)


@pytest.mark.every(24)
@pytest.mark.parametrize("f", PROGRAMS)
def test_rows_are_those_of_single_passes(f):
    check_rows(f, "always")


@pytest.mark.every(24)
@pytest.mark.parametrize("f", PROGRAMS)
def test_rows_of_panels_are_those_of_single_passes(f, monkeypatch):
    """The last of five panels has fewer directions."""
    made = []

    def narrow(whole, in_panels, in_slices, size):
        made.append(inline_calls(in_panels(5)))
        return made[-1]

    monkeypatch.setattr(jacobians, "narrow", narrow)
    monkeypatch.setattr(coloured_products, "SMALL_MATRIX", np.inf)
    again = types.FunctionType(f.__code__, f.__globals__, f.__name__)  # without its kept tapes
    check_rows(again, "always" if f in (convolved, fourier, layered, of_a_form) else "never")
    assert len(made) == 3


@pytest.mark.parametrize("f", [outer, outer_sine, kernel, coulomb, distances, gram])
def test_pairs_have_no_rows_of_their_own(f):
    derivative = hessian(f, compile="never")
    derivative(POINT)
    (tape,) = derivative.tapes
    assert max(x.aval.size for call in tape.calls for x in call.outs) <= N * N


def multiple(f, monkeypatch):
    """Of its result, what the Hessian of n = 1,000 needs, as it is planned."""
    n = 1000
    monkeypatch.setitem(globals(), "DENSE", np.cos(np.arange(n * n)).reshape(n, n))
    monkeypatch.setitem(globals(), "N", n)
    with np.errstate(all="ignore"):  # else each kernel looks for errors of floating point
        tape = hessian(f, compile="never").lower(np.linspace(-1, 1, n)).tape
    plan = pipeline.looped(pipeline.at_its_best(tape)).plan
    return 1 + pipeline.memory_of(plan) / (8 * n * n)


@pytest.mark.every(24)
@pytest.mark.parametrize("f", PROGRAMS)
def test_a_dense_hessian_needs_no_more_than_twice_its_result(f, monkeypatch):
    assert multiple(f, monkeypatch) < 2.04


KERNELS = [
    (kernel_determinant, 3.15),
    (kernel_solved, 3.16),
    (gaussian_process, 4.24),
    (kernel_inverse, 6.25),
    (squared_outer, 2.01),
    (factor_determinant, 8.02),
    (factor_solved, 8.02),
]


@pytest.mark.every(3)
@pytest.mark.parametrize(("f", "most"), KERNELS)
def test_those_of_kernels_need_a_few_matrices(f, most, monkeypatch):
    assert multiple(f, monkeypatch) < most


SCARCE = [kernel_determinant, gaussian_process, kernel_inverse, factor_determinant, factor_solved]


@pytest.mark.every(5)
@pytest.mark.parametrize("f", SCARCE)
def test_rounds_that_make_anew_what_is_quick_find_the_same(f, monkeypatch):
    """As where memory is scarce, which isn't so of matrices as small as these."""
    sunk = []
    sink = pipeline.sink
    monkeypatch.setattr(pipeline, "LARGE_RESULT", 0)
    monkeypatch.setattr(pipeline, "MUCH", 0)
    monkeypatch.setattr(pipeline, "sink", lambda tape: sunk.append(1) or sink(tape))
    monkeypatch.setattr(coloured_products, "SMALL_MATRIX", np.inf)
    again = types.FunctionType(f.__code__, f.__globals__, f.__name__)  # without its kept tapes
    check_rows(again, "always")
    assert sunk


@pytest.mark.every(7)
@pytest.mark.parametrize("f", MATRICES)
def test_outer_products_are_not_formed(f, monkeypatch):
    """Where a matrix moves by one in each direction, as systems and inverses of kernels do."""
    monkeypatch.setattr(outer_products, "MIN_UNFORMED", 0)
    again = types.FunctionType(f.__code__, f.__globals__, f.__name__)  # without its kept tapes
    check_rows(again, "always")
    derivative = hessian(again, compile="never")
    derivative(POINT)
    (tape,) = derivative.tapes
    formed = [c for c in tape.calls for x in c.outs if x.aval.size > N * N]
    assert not formed or f in MATRICES[4:]


@pytest.mark.every(24)
@pytest.mark.parametrize("f", [*MATRICES, *PROGRAMS])
def test_parts_of_rows_are_those_of_all(f, monkeypatch):
    """The last of five parts has fewer rows."""
    made = []

    def narrow(whole, in_panels, in_slices, size):
        made.append(in_slices(5))
        return made[-1] or whole

    monkeypatch.setattr(jacobians, "narrow", narrow)
    monkeypatch.setattr(coloured_products, "SMALL_MATRIX", np.inf)
    monkeypatch.setattr(outer_products, "MIN_UNFORMED", 0)
    again = types.FunctionType(f.__code__, f.__globals__, f.__name__)  # without its kept tapes
    check_rows(again, "always" if f in (kernel_inverse, softmax, in_space) else "never")
    assert any(made) or f in (network, gram, masked, parts_of_a_matrix)  # two axes count the rows


def test_a_diagonal_is_no_part_along_one_axis():
    """Rows along an axis of a result that is two of an operand need all of that."""
    tape = parse(
        """tape diagonals(x)
  inp   %1 : f8[6,6]                       # x
        %2 = exp(%1) : f8[6,6]
        %3 = diagonal(%2, offset=0) : f8[6]
        %4 = mul(%3, %1) : f8[6,6]
  out   %4
"""
    )
    x = DENSE[:6, :6]
    ((found,), _) = run(inline_calls(in_slices(tape, 6, 0, True, 4)), [x])
    np.testing.assert_allclose(found, np.diagonal(np.exp(x)) * x, rtol=1e-14)


def test_rows_of_several_arguments_and_of_trees():
    def f(p, y):
        return np.sum(p["w"] @ y[:3] * p["b"]) ** 3 + np.sum(np.outer(p["b"], y) ** 2)

    p = {"w": DENSE[:2, :3], "b": POINT[:2]}
    y = POINT[4:9]
    found = hessian(f, (0, 1), compile="never")(p, y)
    along = grad(f, (0, 1), compile="never")
    for e in np.eye(5):
        _, moved = jvp(lambda y: along(p, y), (y,), (e,))
        np.testing.assert_allclose(found[0]["w"][1] @ e, moved[0]["w"], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found[0]["b"][1] @ e, moved[0]["b"], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found[1][1] @ e, moved[1], rtol=1e-12, atol=1e-14)
    for k in range(6):
        e = np.zeros(6)
        e[k] = 1.0
        t = {"w": e.reshape(2, 3), "b": np.zeros(2)}
        _, moved = jvp(lambda p: along(p, y), (p,), (t,))
        np.testing.assert_allclose(found[1][0]["w"].reshape(5, 6) @ e, moved[1], rtol=1e-12)
        np.testing.assert_allclose(
            found[0]["b"][0]["w"].reshape(2, 6) @ e, moved[0]["b"], rtol=1e-12
        )


def test_zeros_for_their_place_stay():
    """The slope of the root at 0 isn't in the rows of other elements."""
    matrix = jacobian(lambda x: np.sqrt(x) * np.arange(3.0), compile="never")(
        np.array([0.0, 4.0, 9.0])
    )
    np.testing.assert_allclose(matrix[1:], [[0, 0.25, 0], [0, 0, 1 / 3]], rtol=1e-14)


@pytest.mark.parametrize("n", [0, 110, 140])  # products are formed, or are not
def test_hessians_of_single_precision_stay_so_where_matrices_are_of_double(n):
    def spread(x):
        return np.linalg.slogdet(np.exp(-((x[:, None] - x) ** 2)) + np.eye(len(x)))[1]

    x = np.linspace(-30, 30, n, dtype=np.float32)
    found = hessian(spread, compile="never")(x)
    assert (found.dtype, found.shape) == (np.float32, (n, n))
    exact = hessian(spread, compile="never")(x.astype(float))
    np.testing.assert_allclose(found, exact, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_hessians_through_complex_matrices(mode):
    """What casts, as from real to complex, isn't a number that factors are multiplied by."""

    def spread(x):
        inner = np.exp(-((x[:, None] - x) ** 2)) + np.eye(len(x))
        turned = np.linalg.inv(inner) * 1j + inner
        return np.sum(np.real(turned @ turned))

    x = np.linspace(-30, 30, 110)
    v = np.cos(np.arange(110.0))
    np.testing.assert_allclose(
        hessian(spread, compile=mode)(x) @ v, hvp(spread, compile=mode)(x, v), rtol=1e-9, atol=1e-9
    )
