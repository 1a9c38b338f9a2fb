"""Expressions in texts, beside what numexpr makes of them."""

import numpy as np
import pytest

from tapegrad import grad, gradcheck, value_and_grad
from tapegrad.errors import UnsupportedError

ne = pytest.importorskip("numexpr")

X = np.array([0.7, 1.3, 0.4])
K = 2.0
A = np.array([1.0, -2.0, 0.5])

TEXTS = [
    "2 * x + 1",
    "sin(x) ** 2 + exp(-x)",
    "where(x > 0.5, x, x ** 2)",
    "arctan2(x, 2) + sqrt(x) * log1p(x) + x ** 3 + abs(x - 1) + x % 0.3 + maximum(x, 1)",
    "real((x + 1j) ** 2) - imag(conj(x * 1j)) + x ** 2.5 + x / 3 + x ** -2",
    "(x > 0.5) * x + x * i / 2 + (~(x > 1) & (x > 0.1)) * x ** 2",
    "sum(x ** 2)",
    "prod(x)",
    "max(x)",
    "sum(m * x, axis=0)",
    "tanh(a * x) // 1 + hypot(x, a) + floor(x) * x",
]


a, i, m = A, np.arange(3), np.ones((2, 3))  # which the texts name


@pytest.mark.every(2)
@pytest.mark.parametrize("text", TEXTS)
def test_as_its_own_code_and_as_differences(text):
    def f(x):
        return np.sum(ne.evaluate(text) * 1.0)

    assert gradcheck(f, X)
    g = value_and_grad(f, compile="never")
    for k in range(3):
        x = X * (1 + k / 16)
        assert np.allclose(g(x)[0], f(x), rtol=1e-14)
    assert g.cache_info().traces == 1


def test_single_precision_as_it_counts():
    def f(x):
        return ne.evaluate("y * 2 + 1", {"y": x.astype(np.float32)})

    assert value_and_grad(lambda x: (np.sum(f(x)), f(x).dtype), has_aux=True)(X)[0][1] == "f4"
    assert np.allclose(grad(lambda x: np.sum(f(x)))(X), 2.0)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.sum(ne.evaluate("x * K")),
        lambda x: np.sum(ne.evaluate(f"x * {K}")),
        lambda x: np.sum(ne.evaluate("x * c", {"x": x, "c": K})),
    ],
    ids=["a global", "a text", "a dict"],
)
def test_what_it_reads_may_change(f, monkeypatch):
    g = grad(f, compile="never")
    for k in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "K", k)
        assert np.array_equal(g(X), np.full(3, k))


def test_out_is_filled():
    def f(x):
        found = np.empty(3)
        ne.evaluate("x * 2", out=found)
        return np.sum(found**2)

    assert np.allclose(grad(f)(X), 8 * X)


def test_what_isnt_followed_is_refused():
    def again(x):
        ne.evaluate("x * 2")
        return np.sum(ne.re_evaluate({"x": x}))

    with pytest.raises(UnsupportedError, match=r"numexpr.re_evaluate isn't followed"):
        grad(again)(X)
    with pytest.raises(UnsupportedError, match="an array from outside"):
        grad(lambda x: np.sum(ne.evaluate("x * 2", out=A)))(X)


def test_plain_expressions_are_its_own():
    g = grad(lambda x: np.sum(ne.evaluate("2 * A + 1") * x), compile="never")
    for _ in range(3):
        assert np.array_equal(g(X), 2 * A + 1)
    assert g.cache_info().traces <= 2
