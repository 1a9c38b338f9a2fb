"""`checkpoint(f)`: what `f` computes isn't kept for the derivative, but computed again."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.primitives.samples.drawn import normal

from tapegrad import (
    checkpoint,
    checkpoint_name,
    grad,
    hvp,
    jet,
    jit,
    jvp,
    scan,
    stop_gradient,
    vjp,
    vmap,
)
from tapegrad.errors import ArgumentError, UnsupportedError

X, V, W = normal(4), normal(4, seed=1), normal(4, 4)
MODES = ["never", "always"]


def layer(x, w=W):
    return np.tanh(w @ x) * np.exp(-(x**2))


kept_not = checkpoint(layer)


def of(layer):
    return lambda x: np.sum(layer(layer(x)) ** 2)


@pytest.mark.every(2)
@pytest.mark.parametrize("compile", MODES)
def test_derivatives_are_those_of_the_function(compile):
    """Of every kind, also where one such part stands in another one."""
    plain, f = of(layer), of(kept_not)
    options = {"compile": compile}
    nested = of(checkpoint(lambda x: kept_not(kept_not(x))))
    for x in (X, 2 * X):
        for found, wanted in [
            (jit(f, **options)(x), plain(x)),
            (grad(f, **options)(x), grad(plain)(x)),
            (hvp(f, **options)(x, V), hvp(plain)(x, V)),
            (grad(lambda x: grad(f)(x) @ V, **options)(x), hvp(plain)(x, V)),
            (jvp(f, (x,), (V,), **options)[1], grad(plain)(x) @ V),
            (vjp(kept_not, x, **options)[1](V), vjp(layer, x)[1](V)),
            (jet(f, x, 3, V, **options), jet(plain, x, 3, V)),
            (vmap(grad(f), **options)(np.stack([x, V]))[1], grad(plain)(V)),
            (grad(nested, **options)(x), grad(of(lambda x: layer(layer(x))))(x)),
        ]:
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def _chain(layer):
    def loss(weights, x):
        for w in weights:
            x = layer(x, w)
        return np.sum(x**2)

    return loss


@pytest.mark.parametrize("compile", MODES)
def test_a_part_that_branches_and_returns_what_it_is_passed(compile):
    """It stands for its guard alone, and has no cotangent of its own."""

    def clipped(x):
        largest = np.max(np.abs(x))
        return 10 * x / largest if largest > 10 else x

    def total(x):
        return np.sum(checkpoint(clipped)(checkpoint(clipped)(x)) ** 2)

    df = grad(total, compile=compile)
    np.testing.assert_allclose(df(np.array([1.0, 2.0, 3.0])), [2.0, 4.0, 6.0])
    np.testing.assert_allclose(df(np.array([1.0, 20.0])), [0.5, -0.025], atol=1e-14)


def test_the_memory_of_a_chain_is_that_of_one_layer_and_of_what_is_passed_on():
    def deep(x, w):
        return np.tanh(np.sin(np.exp(-np.square(np.cos(x @ w)))))

    weights, x = [normal(8, 8, seed=k) for k in range(20)], normal(200, 8)
    found, reports = [], []
    for f in (deep, checkpoint(deep)):
        derivative = grad(_chain(f), compile="never")
        found.append(derivative(weights, x))
        reports.append(derivative.tapes[0].memory_report())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
    kept, again = reports
    assert again.saved_for_backward_bytes < kept.saved_for_backward_bytes / 3
    assert again.peak_live_bytes < kept.peak_live_bytes / 3


# ---- what is kept by name


def named(x, w=W):
    a = np.sin(x)
    h = checkpoint_name(w @ a, "h")
    return np.tanh(h) * np.exp(-h * h) + a


@pytest.mark.every(2)
@pytest.mark.parametrize("compile", MODES)
def test_named_values_change_no_derivative(compile):
    """Values and gradients are the same to the last bit; second derivatives go through what is
    kept, too."""
    plain, f = of(named), of(checkpoint(named, keep="h"))
    again = of(checkpoint(named))
    options = {"compile": compile}
    for x in (X, 2 * X):
        np.testing.assert_array_equal(grad(f, **options)(x), grad(again, **options)(x))
        np.testing.assert_allclose(grad(f, **options)(x), grad(plain)(x), rtol=1e-12)
        np.testing.assert_allclose(hvp(f, **options)(x, V), hvp(plain)(x, V), rtol=1e-12)
        second = grad(lambda x: grad(f)(x) @ V, **options)(x)
        np.testing.assert_allclose(second, hvp(plain)(x, V), rtol=1e-12)
        found = vmap(grad(f), **options)(np.stack([x, V]))[1]
        np.testing.assert_allclose(found, grad(plain)(V), rtol=1e-12)


def _products(tape):
    own = sum(call.primitive.name == "einsum" for call in tape.calls)
    return own + sum(_products(inner) for call in tape.calls for inner in call.primitive.tapes)


@pytest.mark.parametrize("which", ["tape", "finished"])
def test_what_is_kept_is_not_computed_again(which):
    """The product that leads to a kept value runs once, and that for the derivative; without a name
    it runs again, and isn't merged with the first."""
    counts = []
    for keep in ((), ("h",)):
        f = checkpoint(named, keep=keep)
        derivative = grad(lambda x, f=f: np.sum(f(x) ** 2), compile="never")
        derivative(X)
        (variant,) = derivative.cache.all_variants()
        counts.append(_products(getattr(variant, which)))
    assert counts == [3, 2]


def test_named_values_stay_what_they_are_elsewhere():
    """Outside of such a part a name does nothing; a Python number stays one, and arrays are new
    ones, in a trace or not."""
    narrow = np.ones(2, "f4")

    def f(a, s):
        return a * checkpoint_name(s, "s") * stop_gradient(s)

    assert f(narrow, 2.0).dtype == jit(f)(narrow, 2.0).dtype == np.float32
    for same in (lambda y: checkpoint_name(y, "y"), stop_gradient):

        def write(x, same=same):
            y = 1.0 * x
            other = same({"y": y})["y"]
            other[0] = 5.0
            return np.sum(y)

        assert write(X) == jit(write, compile="never")(X) == np.sum(X)


def test_names_that_nothing_has_are_refused():
    """A slip in a name would keep nothing, without a word."""
    f = checkpoint(keep=["g"])(named)
    with pytest.raises(ArgumentError, match=r"keep says 'g'.*What is named there: h"):
        grad(lambda x: np.sum(f(x)))(X)
    with pytest.raises(ArgumentError, match="Nothing is named there"):
        jit(checkpoint(layer, keep="h"))(X)
    with pytest.raises(ArgumentError, match="a name is a string, not 3"):
        checkpoint_name(X, 3)
    with pytest.raises(ArgumentError, match="keep has the names of values"):
        checkpoint(layer, keep=(1,))


@pytest.mark.parametrize("compile", MODES)
def test_it_takes_what_functions_take(compile):
    """Trees, names, what isn't traced, traced values around it; a branch is guarded."""
    c = 2.0

    @checkpoint
    def part(p, *, k=2, name="a"):
        y = p["x"] * k if p["x"][0] > 0 else p["x"] ** 2
        return {"y": y * c, "n": 3, "at": np.argmax(y), "word": name}, p["none"]

    def f(x, part=part):
        found, none = part({"x": x, "none": None}, k=3)
        assert none is None and found["word"] == "a"
        inner = checkpoint(lambda: np.sum(x * found["y"]))
        return inner() * found["n"] + found["at"]

    derivative = grad(f, compile=compile)
    for x in (np.abs(X), -np.abs(X), np.abs(V)):
        np.testing.assert_allclose(derivative(x), 36 * x if x[0] > 0 else 18 * x**2)
    assert derivative.cache_info().traces == 2


class Model:
    def __init__(self):
        self.w, self.scale = W, 2.0

    @checkpoint
    def layer(self, x):
        return np.tanh(self.w @ x) * self.scale

    def loss(self, x):
        return np.sum(self.layer(self.layer(x)))


def test_it_decorates_methods_which_read_what_stands_on_their_object():
    model = Model()
    derivative = grad(model.loss)
    for scale in (2.0, 3.0):
        model.scale = scale
        step = 1e-6 * np.eye(4)[1]
        slope = (model.loss(X + step) - model.loss(X - step)) / 2e-6
        np.testing.assert_allclose(derivative(X)[1], slope, rtol=1e-6)


@pytest.mark.every(2)
@pytest.mark.parametrize("compile", MODES)
def test_it_stands_in_rounds_of_loops(compile):
    def rounds(x):
        for _ in range(20):
            x = kept_not(x)
        return np.sum(x)

    def plainly(x):
        for _ in range(20):
            x = layer(x)
        return np.sum(x)

    scanned = grad(
        lambda x: np.sum(scan(lambda h, _: (kept_not(h), None), x, None, 20)[0]), compile=compile
    )
    wanted = grad(plainly)(X)
    np.testing.assert_allclose(grad(rounds, compile=compile)(X), wanted, rtol=1e-9)
    np.testing.assert_allclose(scanned(X), wanted, rtol=1e-9)


def test_what_it_draws_is_drawn_once():
    """The second run has the same numbers, and the generator goes on as in plain NumPy."""
    rng = np.random.default_rng(3)

    @checkpoint
    def dropped(x):
        return np.sin(x) * (rng.random(4) < 0.5)

    derivative, plain = grad(lambda x: np.sum(dropped(x) ** 2)), np.random.default_rng(3)
    for _ in range(3):
        mask = plain.random(4) < 0.5
        np.testing.assert_allclose(derivative(X), 2 * np.sin(X) * np.cos(X) * mask)


def test_what_it_cannot_take_is_an_error():
    with pytest.raises(ArgumentError, match="checkpoint needs a function, not 3"):
        checkpoint(3)

    @checkpoint
    def writes(x):
        x[0] = 1.0
        return x

    buffer = np.zeros(4)

    @checkpoint
    def fills(x):
        buffer[:] = x
        return np.sum(x)

    with pytest.raises(
        UnsupportedError, match=r"'buffer', .* in a checkpoint, which runs again\. Let"
    ):
        grad(fills)(X)
    with pytest.raises(UnsupportedError, match=r"checkpoint of writes: .* writes to an operand"):
        grad(lambda x: np.sum(writes(x)))(X)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_what_a_part_leaves_outside_is_its_values(mode):
    """In a list of the module's, or in one that the function around it has made: the same values,
    and derivatives that go through them."""

    def loss(x, around):
        sums = []

        def layer(h, k):
            sums.append(np.sum(h * k))
            left.append(sums[-1])
            return np.tanh(h * k)

        for k in (1.0, 2.0):
            x = around(layer)(x, k)
        return np.sum(x) + sums[0] * sums[1]

    left = []
    g = grad(lambda x: loss(x, checkpoint), compile=mode)
    for x in (np.array([0.3, 0.7]), np.array([0.1, 0.4])):
        found, there = g(x), [*left]
        left.clear()
        np.testing.assert_allclose(found, grad(lambda x: loss(x, lambda f: f))(x), rtol=1e-13)
        np.testing.assert_allclose(there, left, rtol=1e-13)
        assert [type(value) for value in there] == [np.float64, np.float64]
        left.clear()
    by_jit = grad(lambda x: loss(x, jit))(x)
    np.testing.assert_allclose(by_jit, found, rtol=1e-13)


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * np.sum(x)

    def method(self, x):
        return self.factor * np.sum(x)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "of",
    [lambda c: c, lambda c: c.method, lambda c: functools.partial(Scaled.method, c)],
    ids=["an object", "a method", "a partial function"],
)
def test_what_the_function_holds_is_read_at_each_call(of, inside):
    held = Scaled(1.0)
    f = of(held)
    g = grad((lambda x: checkpoint(f)(x)) if inside else checkpoint(f))
    for held.factor in (1.0, 2.0, 2.0, 5.0):
        np.testing.assert_array_equal(g(np.ones(2)), held.factor)
