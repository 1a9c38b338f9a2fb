"""`vmap`: what a loop over rows computes."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import grad, hessian, jacobian, jit, jvp, scan, vmap
from tapegrad.errors import ArgumentError, RandomnessError, TraceError, UnsupportedError

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(6, 3)), RNG.normal(size=3)
MODES = ["never", "always"]


def model(w, x):
    return np.tanh(x @ w) ** 2


def branching(x):
    if x[0] > 0.5:
        return np.sum(x**2)
    if x[1] > 0:
        return np.sum(np.sin(x))
    return 7


def iterated(x):
    y = x
    while abs(y * y - 2 - x) > 1e-10:
        y = y - (y * y - 2 - x) / (2 * y)
    return y


@pytest.mark.parametrize("compile", MODES)
def test_rows_are_those_of_the_loop(compile):
    found = vmap(model, in_axes=(None, 0), compile=compile)
    for rows in (X, X[:2], -X):
        np.testing.assert_allclose(found(W, rows), [model(W, x) for x in rows])


@pytest.mark.parametrize("compile", MODES)
@pytest.mark.parametrize("derive", [grad, hessian, jacobian])
def test_derivatives_for_each_row(derive, compile):
    found = vmap(derive(model), in_axes=(None, 0), compile=compile)(W, X)
    np.testing.assert_allclose(found, [derive(model)(W, x) for x in X])


@pytest.mark.parametrize("compile", MODES)
def test_each_row_takes_its_own_path(compile):
    found = vmap(branching, compile=compile)
    smooth = lambda x: branching(x) * 1.0  # noqa: E731
    slopes = vmap(grad(smooth), compile=compile)
    for seed in range(4):
        rows = np.random.default_rng(seed).normal(size=(8, 3))
        np.testing.assert_allclose(found(rows), [branching(x) for x in rows])
        np.testing.assert_allclose(slopes(rows), [grad(smooth)(x) for x in rows])
        outside = grad(lambda rows: np.sum(vmap(branching)(rows)))(rows)
        np.testing.assert_allclose(outside, [grad(smooth)(x) for x in rows])


def test_paths_that_are_known_are_not_traced_again():
    found = vmap(lambda x: branching(x))
    rows = np.array([[1.0, 0, 0], [0, 1, 0], [0, -1, 0]])
    for order in ([0, 1, 2], [2, 1, 0], [0, 0, 0], [1, 2, 2]):
        found(rows[order])
    assert found.cache_info().traces == 1


def test_a_path_is_not_run_on_rows_that_do_not_take_it():
    """Of these the derivative of the root would be infinite, and 0 * inf is NaN."""

    def root(x):
        return np.sqrt(x) if x > 0 else x * 0

    rows = np.array([4.0, -1.0, 0.0])
    np.testing.assert_allclose(vmap(grad(root))(rows), [0.25, 0, 0])
    np.testing.assert_allclose(grad(lambda r: np.sum(vmap(root)(r)))(rows), [0.25, 0, 0])


def test_rows_go_round_a_loop_as_often_as_each_needs():
    xs = np.array([1.0, 5.0, 100.0])
    np.testing.assert_allclose(vmap(iterated)(xs), [iterated(x) for x in xs])
    slopes = [grad(iterated)(x) for x in xs]
    np.testing.assert_allclose(vmap(grad(iterated))(xs), slopes)


def test_axes_in_and_out():
    found = vmap(lambda a, b: {"o": a * b, "n": 3}, in_axes=(1, None), out_axes={"o": 1, "n": 0})
    result = found(X, 2.0)
    np.testing.assert_allclose(result["o"], 2 * X)
    np.testing.assert_array_equal(result["n"], [3, 3, 3])
    tree = vmap(lambda p, x: p["a"] + p["b"] * x, in_axes=({"a": None, "b": 0}, -1))
    result = tree({"a": 1.0, "b": W}, X[:2])
    np.testing.assert_allclose(result, [1 + b * x for b, x in zip(W, X[:2].T, strict=True)])
    by_name = vmap(lambda x, scale: x * scale, in_axes=0)
    np.testing.assert_allclose(by_name(X, scale=np.arange(6.0)), X * np.arange(6.0)[:, None])


def test_a_result_that_is_the_same_for_all_rows():
    np.testing.assert_allclose(vmap(lambda x: W * 2)(X), np.tile(W * 2, (6, 1)))
    np.testing.assert_allclose(vmap(lambda x, w: w * 2, (0, None), None)(X, W), W * 2)
    with pytest.raises(ArgumentError, match="differs from row to row"):
        vmap(lambda x: x, 0, None)(X)


@pytest.mark.parametrize(
    "function, arguments, words",
    [
        (vmap(model, (None, 0)), (W,), "in_axes has 2 entries, and 1 positional"),
        (vmap(model), (X, X[:2]), "different numbers of rows"),
        (vmap(lambda x: x), (2.0,), "which has no rows"),
        (vmap(lambda x: x, 2), (X,), "has 2 axes, and in_axes says 2"),
        (vmap(lambda x: x, None), (X,), "no argument has rows"),
        (vmap(lambda x: x), (X[:0],), "there are no rows"),
    ],
)
def test_rows_that_are_not_there_are_an_error(function, arguments, words):
    with pytest.raises(ArgumentError, match=words):
        function(*arguments)


def test_rows_of_different_shapes_are_an_error():
    with pytest.raises(TraceError, match="one shape"):
        vmap(lambda x: x if x[0] > 0 else x[:2])(X)
    with pytest.raises(TraceError, match="more than 16 paths"):
        vmap(lambda x: x * list(range(20))[int(x)])(np.arange(20.0))


def test_texts_that_differ_from_row_to_row_are_an_error():
    """One text can't stand for those of all rows; the same one on all paths can."""
    X = np.array([[1.0], [-1.0]])
    for other in ("down", 1.0):
        with pytest.raises(TraceError, match="'up' for some rows"):
            vmap(lambda x, other=other: (x, "up" if x[0] > 0 else other))(X)
    found, word = vmap(lambda x: (x, "up") if x[0] > 0 else (2 * x, "up"))(X)
    assert word == "up"
    np.testing.assert_array_equal(found, [[1.0], [-2.0]])


def test_what_rows_would_do_in_turn_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(RandomnessError, match="rows take different paths"):
        vmap(lambda x: x + rng.normal() if x[0] > 0 else x - rng.normal())(X)
    kept = []
    with pytest.raises(UnsupportedError, match="leaves a value"):
        vmap(lambda x: kept.append(x[0]) or x)(X)


@pytest.mark.parametrize("compile", MODES)
def test_rows_draw_one_after_the_other_at_each_call(compile):
    def drawing():
        rng = np.random.default_rng(5)

        def f(x):
            noise, scale = rng.normal(size=3), rng.uniform()
            return np.sum(x * noise) * scale + rng.exponential(2.0)

        return rng, f

    (_, mapped), (rng, plain) = drawing(), drawing()
    found, slopes = vmap(mapped, compile=compile), grad(lambda rows: np.sum(vmap(mapped)(rows)))
    for k in range(3):
        np.testing.assert_allclose(found(X + k), [plain(x) for x in X + k])
        wanted = []
        for _ in X:
            noise, scale = rng.normal(size=3), rng.uniform()
            rng.exponential(2.0)
            wanted.append(noise * scale)
        np.testing.assert_allclose(slopes(X), wanted)


def test_maps_of_maps_and_of_everything():
    pairs = vmap(vmap(lambda a, b: a @ b, (None, 0)), (0, None))
    np.testing.assert_allclose(pairs(X, X), X @ X.T)
    np.testing.assert_allclose(jit(lambda x: vmap(np.sum)(x) * 2)(X), 2 * X.sum(1))
    _, tangent = jvp(vmap(model, (None, 0)), (W, X), (W, None))
    np.testing.assert_allclose(tangent, [grad(model)(W, x) @ W for x in X])

    def recurrence(x):
        return scan(lambda h, v: (np.tanh(h + v), h), 0.0, x)[0]

    np.testing.assert_allclose(vmap(recurrence)(X), [recurrence(x) for x in X])
    np.testing.assert_allclose(vmap(grad(recurrence))(X), [grad(recurrence)(x) for x in X])


def test_systems_and_factors_of_each_row():
    a = RNG.normal(size=(4, 3, 3)) + 3 * np.eye(3)
    b = RNG.normal(size=(4, 3))

    def solved(a, b):
        return np.sum(np.linalg.solve(a, b)) + np.linalg.slogdet(a @ a.T)[1]

    for compile in MODES:
        found = vmap(grad(solved, (0, 1)), compile=compile)(a, b)
        for k, part in enumerate(found):
            wanted = [grad(solved, (0, 1))(x, y)[k] for x, y in zip(a, b, strict=True)]
            np.testing.assert_allclose(part, wanted)


def test_indices_that_differ_from_row_to_row():
    table, places = RNG.normal(size=(5, 2)), np.array([[0, 3], [4, 4], [1, 0]])
    picked = lambda t, k: np.sum(t[k] ** 2)  # noqa: E731
    found = vmap(grad(picked), in_axes=(None, 0))(table, places)
    np.testing.assert_allclose(found, [grad(picked)(table, k) for k in places])


def test_captured_values_are_read_at_each_call():
    scale = np.array([1.0, 2.0, 3.0])
    found = vmap(lambda x: x * scale if x[0] > 0 else -x)
    for factor in (1.0, 5.0):
        scale[:] = [factor, 2.0, 3.0]
        np.testing.assert_allclose(found(X), [x * scale if x[0] > 0 else -x for x in X])
