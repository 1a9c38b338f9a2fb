"""Classes of users as trees: `register_tree`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import register_tree
from tapegrad.errors import ArgumentError

X = np.array([1.0, 2.0])


@register_tree(fields=("w", "b"))
class Affine:
    """A tree by its fields, which counts its calls and knows a scale."""

    def __init__(self, w: Any, b: Any, scale: float = 2.0) -> None:
        self.w, self.b, self.scale, self.made = w, b, scale, "by __init__"

    def __call__(self, x: Any) -> Any:
        return (self.w * x + self.b) * self.scale


class Settings:
    rate = 3.0


class Parabola:
    """A tree by functions, which keep settings and a label."""

    def __init__(self, a: Any, parts: dict[str, Any], settings: Settings, label: str) -> None:
        self.a, self.parts, self.settings, self.label = a, parts, settings, label

    def __call__(self, x: Any) -> Any:
        return (self.a * x**2 + self.parts["b"]) * self.settings.rate

    def with_a(self, a: Any) -> Parabola:
        return Parabola(a, self.parts, self.settings, self.label)


register_tree(
    Parabola,
    lambda p: ([p.a, p.parts], (p.settings, p.label)),
    lambda rest, branches: Parabola(*branches, *rest),
)


@register_tree(static=("activation", "options"))
@dataclass
class Dense:
    w: Any
    activation: str = "tanh"
    options: Any = None


@dataclass
class Gated(Dense):
    gate: Any = 1.0


def parabola(a: Any, b: Any, settings: Settings | None = None) -> Parabola:
    return Parabola(a, {"b": b}, Settings() if settings is None else settings, "p")


@pytest.mark.parametrize("compile", ["never", "always"])
def test_gradients_are_instances(compile):
    df = tg.grad(lambda f, x: np.sum(f(x)), compile=compile)
    for _ in range(2):
        g = df(Affine(X, 1.0), X)
        np.testing.assert_array_equal(g.w, 2 * X)
        assert (type(g), g.b, g.scale, g.made) == (Affine, 4.0, 2.0, "by __init__")
    settings = Settings()
    for _ in range(2):
        g = df(parabola(X, 1.0, settings), X)
        np.testing.assert_array_equal(g.a, 3 * X**2)
        assert (type(g), g.parts, g.settings, g.label) == (Parabola, {"b": 6.0}, settings, "p")
    assert df.cache_info().traces == 2


@pytest.mark.parametrize("compile", ["never", "always"])
def test_what_instances_carry_along_is_compared(compile):
    df = tg.grad(lambda f, x: np.sum(f(x)), compile=compile)
    affine, p = Affine(X, 1.0), parabola(1.0, 1.0)
    assert df(affine, X).b == 4.0
    affine.scale = 5.0
    assert df(affine, X).b == 10.0
    assert df(p, 2.0).a == 12.0
    p.settings.rate = 5.0  # in place
    assert df(p, 2.0).a == 20.0
    assert df(parabola(1.0, 1.0), 2.0).a == 12.0  # other settings
    p.label = "q"
    assert df(p, 2.0).label == "q"


@pytest.mark.parametrize("compile", ["never", "always"])
def test_static_fields_of_dataclasses(compile):
    def f(layer, x):
        size = 1.0 if layer.options is None else layer.options[0]
        return np.sum(getattr(np, layer.activation)(layer.w * x)) * size

    df, options = tg.grad(f, compile=compile), [3.0]
    np.testing.assert_allclose(df(Dense(X), X).w, X / np.cosh(X * X) ** 2)
    np.testing.assert_allclose(df(Dense(X, "exp"), X).w, X * np.exp(X * X))
    np.testing.assert_allclose(df(Dense(X, "exp", options), X).w, 3 * X * np.exp(X * X))
    options[0] = 5.0
    g = df(Dense(X, "exp", options), X)
    np.testing.assert_allclose(g.w, 5 * X * np.exp(X * X))
    assert (g.activation, g.options) == ("exp", [5.0])
    g = tg.grad(lambda layer: np.sum(layer.w) * layer.gate, compile=compile)(Gated(X, gate=3.0))
    assert (g.activation, g.gate) == ("tanh", 3.0)  # static in what it derives from


@pytest.mark.parametrize("compile", ["never", "always"])
def test_results_loops_and_cotangents(compile):
    p = parabola(1.0, 2.0)

    def scanned(p, xs):
        def step(p, x):
            return p.with_a(p.a + x * p.parts["b"]), Affine(p.a, x)

        p, ys = tg.scan(step, p, xs)
        return p.a * 2 + np.sum(ys.w**2)

    def looped(p, n):
        for t in tg.range(n):
            p = p.with_a(p.a * p.parts["b"] + t)
        return p.a

    def waited(p, most):
        return tg.while_loop(lambda p: p.a < most, lambda p: p.with_a(p.a * p.parts["b"]), p).a

    def chosen(p, x):
        return tg.cond(x > 0, lambda p: p.with_a(p.a * x), lambda p: p, p).a

    for f, x in ((scanned, np.arange(3.0)), (looped, 4), (waited, 30.0), (chosen, 2.0)):
        df = tg.grad(f, compile=compile)
        for a in (1.0, 1.5):
            g, eps = df(parabola(a, 2.0), x), 1e-6
            slope = (f(parabola(a + eps, 2.0), x) - f(parabola(a - eps, 2.0), x)) / (2 * eps)
            np.testing.assert_allclose(g.a, slope, rtol=1e-6)
            slope = (f(parabola(a, 2.0 + eps), x) - f(parabola(a, 2.0 - eps), x)) / (2 * eps)
            np.testing.assert_allclose(g.parts["b"], slope, rtol=1e-6, atol=1e-9)
    made = tg.jit(lambda p, x: [p.with_a(p.a * x), Affine(x, 3)], compile=compile)
    for _ in range(2):
        first, second = made(p, X)
        np.testing.assert_array_equal(first.a, X)
        assert (first.label, second.b, second.scale) == ("p", 3, 2.0)
    value, pullback = tg.vjp(lambda p: p.with_a(3 * p.a), parabola(X, 1))
    (ct,) = pullback(value)
    np.testing.assert_array_equal(ct.a, 9 * X)
    assert ct.parts == {"b": None}


def test_a_function_may_write_to_its_own_copy():
    def f(affine):
        affine.w = affine.w * 2
        affine.w[0] = 0.0
        return np.sum(affine.w)

    affine = Affine(X.copy(), 1.0)
    np.testing.assert_array_equal(tg.grad(f, compile="never")(affine).w, [0.0, 2.0])
    np.testing.assert_array_equal(affine.w, X)


def test_a_class_that_is_registered_anew():
    class Pair:
        def __init__(self) -> None:
            self.a, self.b = 2.0, 3.0

    df = tg.grad(lambda p: p.a * p.b, compile="never")
    register_tree(Pair, fields=("a",))
    assert (df(Pair()).a, df(Pair()).b) == (3.0, 3.0)
    register_tree(Pair, fields=("a", "b"))
    assert (df(Pair()).a, df(Pair()).b) == (3.0, 2.0)

    for factor in (2.0, 3.0):  # the same branches, put together in another way
        register_tree(
            Pair, lambda p: ([p.a], None), lambda _, b, k=factor: scaled(Pair(), k * b[0])
        )
        assert df(Pair()).a == factor * 3 * factor


def scaled(pair: Any, a: Any) -> Any:
    pair.a = a
    return pair


def test_functions_that_look_into_the_branches():
    class Flat:
        def __init__(self, w: Any) -> None:
            self.w = w

    register_tree(Flat, lambda f: ([f.w], None), lambda _, b: Flat(b[0].reshape(-1)))
    made = tg.jit(lambda x: Flat(np.stack([x, 2 * x])), compile="always")
    for _ in range(2):
        np.testing.assert_array_equal(made(X).w, [1.0, 2.0, 2.0, 4.0])


def test_classes_of_attrs():
    attrs = pytest.importorskip("attrs")

    @attrs.frozen
    class Layer:
        w: Any
        name: str = "layer"

    with pytest.raises(ArgumentError, match="which has no derivative"):
        tg.grad(lambda p: np.sum(p.w**2), compile="never")(Layer(X))
    register_tree(Layer, static=("name",))
    g = tg.grad(lambda p: np.sum(p.w**2), compile="never")(Layer(X))
    np.testing.assert_array_equal(g.w, 2 * X)
    assert g.name == "layer"


class Odd:
    w = X


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ((3,), {}, "needs a class, not 3"),
        ((dict,), {"fields": ()}, "containers of Python's"),
        ((np.ndarray,), {"fields": ("T",)}, "are arrays"),
        ((Odd,), {}, r"say which attributes are branches \(fields="),
        ((Odd, lambda x: 1), {}, "needs two functions"),
        ((Odd, lambda x: 1, lambda r, b: 1), {"static": ("w",)}, "either two functions"),
        ((Odd,), {"fields": "w"}, "a tuple of names, not 'w'"),
        ((Dense,), {"static": ("z",)}, "no field 'z'. Its fields are w, activation, options"),
    ],
)
def test_what_cant_be_registered(given, options, message):
    with pytest.raises(ArgumentError, match=message):
        register_tree(*given, **options)


@pytest.mark.parametrize(
    ("flatten", "message"),
    [
        (lambda x: [x.w], "returns a pair"),
        (lambda x: (x.w, None), "returns a pair"),
        (lambda x: ([x.w], [1]), "holds a list, which can change"),
        (lambda x: ([x.w], ("a", {})), "holds a dict, which can change"),
        (lambda x: ([], x.w), "holds a ndarray"),
    ],
)
def test_functions_that_dont_keep_to_it(flatten, message):
    class Own(Odd):
        pass

    register_tree(Own, flatten, lambda rest, branches: Own())
    with pytest.raises(ArgumentError, match=message):
        tg.grad(lambda x: np.sum(x.w), compile="never")(Own())


def test_a_field_that_isnt_there():
    class Own(Odd):
        pass

    register_tree(Own, fields=("w", "v"))
    with pytest.raises(ArgumentError, match="has no attribute 'v', which was registered"):
        tg.grad(lambda x: np.sum(x.w), compile="never")(Own())


def test_a_function_that_stands_alone_takes_no_registered_class():
    for x in (Affine(X, 1.0), parabola(X, 1.0), Dense(X)):
        with pytest.raises(ArgumentError, match="dataclasses without static fields"):
            tg.simplegrad(lambda x: 1.0, x)
