"""`jvp`, `linearize`, `vjp` and `hvp`: derivatives along a direction, at a point."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from tapegrad import (
    cond,
    elementwise_grad,
    gauss_newton_vp,
    grad,
    hvp,
    jet,
    jit,
    jvp,
    linearize,
    scan,
    vjp,
    while_loop,
)
from tapegrad.errors import ArgumentError, GradientError
from tapegrad.runtime.derived import Derived

X, T = np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.3])
MODES = ["auto", "never", "always"]


def f(x, y):
    return np.sin(x) * y, {"n": 3, "s": np.sum(x) * y, "word": "w"}


def quartic(x, s=1.0):
    return np.sum(x**4) * s


@pytest.mark.parametrize("compile", MODES)
def test_jvp_is_the_value_and_its_tangent(compile):
    for _ in range(3):
        value, tangent = jvp(f, (X, 2.0), (T, 1.0), compile=compile)
        np.testing.assert_allclose(value[0], np.sin(X) * 2)
        np.testing.assert_allclose(tangent[0], np.cos(X) * T * 2 + np.sin(X))
        np.testing.assert_allclose(tangent[1]["s"], np.sum(T) * 2 + np.sum(X))
        assert (value[1]["n"], tangent[1]["n"], tangent[1]["word"]) == (3, None, None)


def test_none_stands_for_the_tangents_of_a_whole_tree():
    tree, still = {"a": 2.0, "b": [X, 3]}, {"a": 0.0, "b": [0 * X, None]}

    def loss(tree, x):
        return np.sum(np.sin(tree["a"] * x) * tree["b"][0] ** 2)

    for found, wanted in (
        (jvp(loss, (tree, X), (None, T))[1], jvp(loss, (tree, X), (still, T))[1]),
        (linearize(loss, tree, X)[1](None, T), linearize(loss, tree, X)[1](still, T)),
        (hvp(loss, (0, 1))(tree, X, (None, T))[1], hvp(loss, (0, 1))(tree, X, (still, T))[1]),
    ):
        np.testing.assert_array_equal(found, wanted)


def test_none_is_a_tangent_that_is_zero():
    _, tangent = jvp(f, (X, 2.0), (None, 1.0))
    np.testing.assert_allclose(tangent[0], np.sin(X))


def test_a_tangent_is_converted_to_the_type_of_its_argument():
    _, tangent = jvp(lambda x: x**2, (X,), (np.array([1, 2, 3]),))
    np.testing.assert_allclose(tangent, 2 * X * [1, 2, 3])


def test_a_value_that_does_not_depend_on_the_arguments_has_a_tangent_of_zero():
    value, tangent = jvp(lambda x: (3.0, np.ones(2)), (X,), (T,))
    assert value[0] == 3.0 and tangent[0] == 0.0
    np.testing.assert_array_equal(tangent[1], np.zeros(2))


@pytest.mark.parametrize(
    "tangents, words",
    [
        ((T[:2],), "has shape"),
        ((T, T), "1 arguments were passed, and 2 tangents"),
        (("a",), "Directions are arrays"),
        ((T * 1j,), "Directions of real numbers are real"),
    ],
)
def test_a_tangent_that_does_not_fit_is_an_error(tangents, words):
    with pytest.raises(ArgumentError, match=words):
        jvp(lambda x: x, (X,), tangents)


def test_integers_have_no_tangent():
    with pytest.raises(ArgumentError, match="Pass None in its place"):
        jvp(lambda x, n: x * n, (X, 2), (T, 1.0))
    np.testing.assert_allclose(jvp(lambda x, n: x * n, (X, 2), (T, None))[1], 2 * T)


@pytest.mark.parametrize("compile", MODES)
def test_a_linearized_function_is_a_linear_map_of_tangents(compile):
    for x in (X, 2 * X):
        _, push = linearize(f, x, 2.0, compile=compile)
        for t in (T, -T):
            np.testing.assert_allclose(push(t, 1.0)[0], np.cos(x) * t * 2 + np.sin(x))
            np.testing.assert_allclose(push(t, None)[1]["s"], np.sum(t) * 2)


def rounds_of_scan(x, y):
    return scan(lambda c, e: (c * e, np.sin(c) + e), y, x)


def rounds_of_while_loop(x, y):
    return while_loop(lambda v: np.sum(v) < 100, lambda v: v * 1.5 + x * y, x)


def rounds_with_a_branch(x, y):
    v = x * 1
    for e in x:
        if e > 1.5:
            v = v * e * y
    return v


def rounds_until_small(x, y):
    while np.max(x) > 0.01:
        x = x * np.tanh(y) * 0.3
    return x


def one_of_two(x, y):
    return cond(y > 0, lambda v: v**3 * y, lambda v: v * 2, x)


@pytest.mark.every(8)
@pytest.mark.parametrize("compile", MODES)
@pytest.mark.parametrize(
    "looping",
    [rounds_of_scan, rounds_of_while_loop, rounds_with_a_branch, rounds_until_small, one_of_two],
)
def test_loops_are_linearized(looping, compile):
    """The value doesn't wait for the tangents, which the loop carries."""
    value, push = linearize(looping, X, 2.0, compile=compile)
    for t, s in ((T, 1.0), (-2 * T, None)):
        expected = jvp(looping, (X, 2.0), (t, s), compile="never")
        for a, b in zip((value, push(t, s)), expected, strict=True):
            np.testing.assert_allclose(np.hstack(a), np.hstack(b), rtol=1e-12)


def test_linear_maps_keep_what_they_need_of_the_arguments():
    x = X.copy()
    _, push = linearize(lambda x: x**3, x)
    _, pull = vjp(lambda x: x**3, x)
    x[:] = 0
    np.testing.assert_allclose(push(T), 3 * X**2 * T)
    np.testing.assert_allclose(pull(T)[0], 3 * X**2 * T)


def test_a_pullback_is_traced_once_and_compiled():
    def cube(x):
        return x**3

    for k in range(4):
        _, pull = vjp(cube, X + k, compile="always")
        np.testing.assert_allclose(pull(T)[0], 3 * (X + k) ** 2 * T)
        assert pull.tape.variant.entry is not None
    assert vjp_traces(cube) == 1


def vjp_traces(g):
    from tapegrad.runtime.derived import Derived
    from tapegrad.runtime.pullback import Pulling

    return Derived(g, Pulling("always"), "always").cache_info().traces


@pytest.mark.parametrize("compile", MODES)
def test_hvp_is_the_hessian_times_a_vector(compile):
    product = hvp(quartic, compile=compile)
    for _ in range(3):
        np.testing.assert_allclose(product(X, T), 12 * X**2 * T)
        np.testing.assert_allclose(product(X, T, s=2.0), 24 * X**2 * T)


def test_hvp_of_several_arguments_takes_a_vector_of_each():
    product = hvp(lambda a, b: np.sum(a**2 * b), argnums=(0, 1))
    along_a, along_b = product(X, T, (T, X))
    np.testing.assert_allclose(along_a, 2 * T * T + 2 * X * X)
    np.testing.assert_allclose(along_b, 2 * X * T)
    with pytest.raises(ArgumentError, match="a tuple of one for each"):
        product(X, T, T)


def test_hvp_of_a_tree_by_name_with_aux():
    def loss(p, scale=1.0):
        return np.sum(p["w"] ** 3) * scale * p["n"], "aux"

    product = hvp(loss, argnums="p", has_aux=True)
    found, aux = product({"w": X, "n": 2}, {"w": T, "n": None})
    np.testing.assert_allclose(found["w"], 12 * X * T)
    assert found["n"] is None and aux == "aux"


def test_all_of_them_nest():
    cube = lambda x: np.sum(x**3)  # noqa: E731
    np.testing.assert_allclose(grad(lambda x: jvp(cube, (x,), (x,))[1])(X), 9 * X**2)
    np.testing.assert_allclose(jvp(grad(cube), (X,), (T,))[1], 6 * X * T)
    np.testing.assert_allclose(vjp(grad(cube), X)[1](T)[0], 6 * X * T)
    np.testing.assert_allclose(grad(lambda x: np.sum(hvp(cube)(x, T)))(X), 6 * T)
    np.testing.assert_allclose(hvp(lambda x: jvp(cube, (x,), (x,))[1])(X, T), 18 * X * T)
    _, pull = vjp(lambda x: x**3, X)
    np.testing.assert_allclose(grad(lambda ct: np.sum(pull(ct)[0]))(T), 3 * X**2)
    assert jit(lambda x: linearize(cube, x)[1](x))(X) == pytest.approx(3 * np.sum(X**3))


def test_a_tangent_inside_is_not_that_outside():
    """Perturbation confusion: d/dx (x d/dy (x + y)) is 1, and not 2."""
    outer = jvp(lambda x: x * jvp(lambda y: x + y, (1.0,), (1.0,))[1], (1.0,), (1.0,))
    assert outer[1] == 1.0


def test_captured_values_are_read_at_each_call():
    scale = np.array([1.0, 2.0, 3.0])
    g = lambda x: scale * x  # noqa: E731
    np.testing.assert_allclose(jvp(g, (X,), (T,))[1], scale * T)
    scale[:] = 7.0
    np.testing.assert_allclose(jvp(g, (X,), (T,))[1], 7 * T)
    np.testing.assert_allclose(vjp(g, X)[1](T)[0], 7 * T)


def test_complex_functions_have_complex_tangents():
    z, t = X + 1j * T, T - 2j * X
    np.testing.assert_allclose(jvp(np.exp, (z,), (t,))[1], np.exp(z) * t)
    np.testing.assert_allclose(
        jvp(lambda z: np.abs(z) ** 2, (z,), (t,))[1], 2 * (z.conj() * t).real
    )


def test_they_may_be_made_anew_where_they_are_called():
    def g(x):
        return np.sum(x**2)

    for _ in range(5):
        np.testing.assert_allclose(hvp(g)(X, T), 2 * T)
    assert hvp(g).cache_info().traces == 1


def test_directions_as_lists():
    """A list where an array moves is an array; what an argument that is a list has is a list."""

    def f(x):
        return np.sum(np.sin(x) ** 2)

    x, t = np.array([0.3, 0.7]), [1.0, 2]
    v = np.array(t)
    assert jvp(f, (x,), (t,)) == jvp(f, (x,), (v,))
    np.testing.assert_array_equal(hvp(f)(x, t), hvp(f)(x, v))
    np.testing.assert_array_equal(hvp(f, (0,))(x, (t,))[0], hvp(f)(x, v))
    np.testing.assert_array_equal(gauss_newton_vp(np.sin)(x, t), gauss_newton_vp(np.sin)(x, v))
    assert jvp(lambda p: p["a"][0] * p["a"][1], ({"a": [2.0, 3.0]},), ({"a": [1.0, 0.0]},)) == (
        6,
        3,
    )
    inner = grad(lambda s: jvp(f, (x * s,), ([s, 2.0],))[1])(1.0)
    assert inner == grad(lambda s: jvp(f, (x * s,), (np.stack([s, 2.0]),))[1])(1.0)
    with pytest.raises(ArgumentError, match="shape"):
        jvp(f, (x,), ([1.0, 2.0, 3.0],))
    with pytest.raises(ArgumentError, match="Directions are arrays and numbers"):
        jvp(f, (x,), ([[1.0], 2.0],))


def test_a_known_call_makes_nothing_anew(monkeypatch):
    """A derivative of a function that is called again finds its entries at once; where what it
    reads has changed it doesn't."""
    scale = 2.0

    def f(x):
        return np.sin(scale * x)

    def calls(x):
        yield jvp(f, (x,), (1.0,), compile="always")[1]
        yield jet(f, x, 1, compile="always")[1]

    x = np.array(0.5)
    for _ in range(2):
        np.testing.assert_allclose([*calls(x)], 2 * np.cos(2 * x))
    made, init = [], Derived.__init__

    def noted(self, *given):
        made.append(given)
        init(self, *given)

    monkeypatch.setattr(Derived, "__init__", noted)
    np.testing.assert_allclose([*calls(x)], 2 * np.cos(2 * x))
    assert not made
    scale = 3.0
    np.testing.assert_allclose([*calls(x)], 3 * np.cos(3 * x))
    assert made


def test_what_is_derived_of_a_function_goes_with_it():
    def made():
        def f(x):
            return np.sin(x)

        for _ in range(3):
            jvp(f, (0.5,), (1.0,), compile="never")
        return weakref.ref(f)

    gone = made()
    gc.collect()
    assert gone() is None


def with_aux(x):
    value = {"sine": np.sin(x) * x[0], "count": 3, "two": 2.0}
    return value, {
        "sum": np.sum(x),
        "word": "w",
        "same": value["sine"],
        "at": np.arange(3) + len(x),
    }


@pytest.mark.parametrize("compile", MODES)
def test_what_is_returned_besides_the_value_has_no_derivative(compile):
    def alone(x):
        return with_aux(x)[0]

    def check(aux):
        assert aux["word"] == "w" and aux["at"].tolist() == [3, 4, 5]
        np.testing.assert_allclose(aux["sum"], np.sum(X))
        np.testing.assert_array_equal(aux["same"], alone(X)["sine"])

    value, moved, aux = jvp(with_aux, (X,), (T,), has_aux=True, compile=compile)
    check(aux)
    slopes = np.diag(np.cos(X)) * X[0] + np.outer(np.sin(X), [1, 0, 0])
    np.testing.assert_allclose(moved["sine"], slopes @ T)
    np.testing.assert_allclose(value["sine"], np.sin(X) * X[0])
    assert moved["count"] is None and moved["two"] == 0
    value, along, aux = linearize(with_aux, X, has_aux=True, compile=compile)
    check(aux)
    np.testing.assert_allclose(along(T)["sine"], slopes @ T)
    value, pullback, aux = vjp(with_aux, X, has_aux=True, compile=compile)
    check(aux)
    np.testing.assert_allclose(pullback({"sine": T, "count": None, "two": 1.0})[0], T @ slopes)
    series, aux = jet(with_aux, X, 3, T, has_aux=True, compile=compile)
    check(aux)
    np.testing.assert_allclose(series["sine"], jet(alone, X, 3, T)["sine"])
    found, aux = elementwise_grad(
        lambda x: (np.sin(x), with_aux(x)[1]), has_aux=True, compile=compile
    )(X)
    check(aux)
    np.testing.assert_allclose(found, np.cos(X))
    found, aux = gauss_newton_vp(
        lambda x: (alone(x)["sine"], with_aux(x)[1]), has_aux=True, compile=compile
    )(X, T)
    check(aux)
    np.testing.assert_allclose(found, slopes.T @ slopes @ T)


def test_has_aux_asks_for_a_pair():
    for call in (
        lambda: jvp(np.sin, (X,), (T,), has_aux=True),
        lambda: linearize(np.sin, X, has_aux=True),
        lambda: vjp(np.sin, X, has_aux=True),
        lambda: jet(np.sin, X, 2, has_aux=True),
        lambda: elementwise_grad(np.sin, has_aux=True)(X),
        lambda: gauss_newton_vp(np.sin, has_aux=True)(X, T),
    ):
        with pytest.raises(GradientError, match=r"has_aux=True: .* must return a pair"):
            call()


def test_what_is_passed_on_has_derivatives_outside():
    def outer(x):
        _, moved, aux = jvp(with_aux, (x,), (x,), has_aux=True)
        pulled = vjp(with_aux, x, has_aux=True)
        (back,) = pulled[1]({"sine": x, "count": None, "two": 0.0})
        return np.sum(moved["sine"]) + aux["sum"] ** 2 + np.sum(back) * pulled[2]["sum"]

    def plain(x):
        slopes = np.diag(np.cos(x)) * x[0] + np.outer(np.sin(x), [1, 0, 0])
        return np.sum(slopes @ x) + np.sum(x) ** 2 + np.sum(x @ slopes) * np.sum(x)

    h = 1e-6
    steps = [(plain(X + h * e) - plain(X - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(grad(outer)(X), steps, rtol=1e-7)
