"""Functions of the same code: what one has left, another takes over."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

import tapegrad
from tapegrad import grad, hessian
from tapegrad.core import log

X = np.array([0.3, 0.7, -1.1])


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said of each trace."""
    said: list[str] = []
    monkeypatch.setattr(log, "wanted", lambda topic: topic == "trace")
    monkeypatch.setattr(log, "say", lambda event: said.append(event.text))
    return said


def fit(a: Any, scale: float, how: str = "never") -> Any:
    def loss(w: Any) -> Any:
        return np.sum((a * w) ** 2) * scale

    found = grad(lambda w: loss(w), compile=how)(X)
    return found, hessian(lambda w: loss(w), compile=how)(X)


@pytest.mark.parametrize("how", ["never", "always"])
def test_a_lambda_made_anew_is_traced_once(traces: list[str], how: str) -> None:
    """Two lambdas and a function in them, of which each call makes others."""
    a = np.array([1.0, 2.0, 3.0])
    for k in range(5):
        a[0] = k
        first, second = fit(a, 2.0, how)
        np.testing.assert_allclose(first, 4 * a**2 * X)
        np.testing.assert_allclose(second, np.diag(4 * a**2))
    assert len(traces) == 2


def test_what_differs_is_seen(traces: list[str]) -> None:
    """A number, an array, its shape, a function of other code, an attribute."""
    a, b = np.ones(3), np.full(3, 2.0)
    for array, scale in [(a, 2.0), (a, 3.0), (b, 3.0), (a, 2.0), (b, 3.0), (np.ones(1), 3.0)]:
        np.testing.assert_allclose(fit(array, scale)[0], 2 * scale * array**2 * X)
    assert len(traces) == 8

    def composed(inner: Any) -> Any:
        return grad(lambda w: np.sum(inner(w)), compile="never")(X)

    for _ in range(2):
        np.testing.assert_allclose(composed(lambda w: w**2), 2 * X)
        np.testing.assert_allclose(composed(lambda w: w**3), 3 * X**2)


class Model:
    def __init__(self, a: Any, rate: float) -> None:
        self.a, self.rate = a, rate

    def loss(self, w: Any) -> Any:
        return np.sum(self.a * w**2) * self.rate


def test_methods_of_new_objects(traces: list[str]) -> None:
    """Each of the same class and with the same array."""
    a = np.ones(3)
    for rate in (1.0, 1.0, 2.0, 1.0):
        np.testing.assert_allclose(grad(Model(a, rate).loss, compile="never")(X), 2 * rate * X)
    assert len(traces) == 2


def test_partial_functions(traces: list[str]) -> None:
    def loss(w: Any, a: Any, power: int) -> Any:
        return np.sum(a * w**power)

    a = np.ones(3)
    for power in (2, 2, 3, 2):
        found = grad(partial(loss, a=a, power=power), compile="never")(X)
        np.testing.assert_allclose(found, power * X ** (power - 1))
    assert len(traces) == 2


def test_which_function_it_is_may_count() -> None:
    """A function that is looked at as an object is that one."""
    first: list[Any] = []

    def made() -> Any:
        def one(w: Any) -> Any:
            return w**2

        first.append(one)
        return grad(lambda w: np.sum(one(w) * (2.0 if one is first[0] else 3.0)), compile="never")(
            X
        )

    for k in range(3):
        np.testing.assert_allclose(made(), (4 if k == 0 else 6) * X)


def test_branches_of_values_are_taken() -> None:
    for x in (1.0, -1.0, 1.0, -2.0):
        found = grad(lambda x: x**2 if x > 0 else x**3, compile="never")(x)
        assert found == (2 * x if x > 0 else 3 * x**2)


def test_results_and_arguments_of_any_kind() -> None:
    for k in range(3):
        value = tapegrad.jit(lambda t: {"a": t["w"] * 2, "n": t["n"], "s": "s"}, compile="never")(
            {"w": X, "n": k}
        )
        np.testing.assert_allclose(value["a"], 2 * X)
        assert value["n"] == k and value["s"] == "s"


@pytest.mark.every(2)
@pytest.mark.parametrize("how", ["never", "always"])
def test_nothing_keeps_an_array(how: str) -> None:
    """Those that a function reaches are freed with it."""
    freed = []
    for _ in range(2):
        a = np.ones(3)
        for _ in range(2):
            fit(a, 2.0, how)
        freed.append(weakref.ref(a))
        del a
    gc.collect()
    assert [r() for r in freed] == [None, None]


def test_a_cleared_cache_has_no_relatives(traces: list[str]) -> None:
    a = np.ones(3)

    def made() -> Any:
        return grad(lambda w: np.sum(a * w), compile="never")

    made()(X)
    made()(X)
    assert len(traces) == 1
    made().clear_cache()
    made()(X)
    tapegrad.clear_cache()
    made()(X)
    assert len(traces) == 3


def test_threads() -> None:
    a = np.ones(3)
    wrong = []

    def work(k: int) -> None:
        for n in range(20):
            x = X * (k + n + 1)
            if not np.allclose(grad(lambda w: np.sum(a * w**2), compile="always")(x), 2 * x):
                wrong.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def wrapped(f: Any) -> Any:
    """A function of tapegrad's own, whose cells aren't seen."""
    return tapegrad.checkpoint(f)


def keyed(f: Any) -> Any:
    return lambda w: np.sum(w * np.array(sorted([3.0, 1.0, 2.0], key=f)))


def in_c(f: Any) -> Any:
    return lambda w: np.sum(w) * np.sum(np.vectorize(f)(np.arange(3.0)))


def with_default(f: Any) -> Any:
    def inner(a: Any, k: Any = f(1.0)) -> Any:  # noqa: B008
        return a * k

    return lambda w: np.sum(inner(w))


def with_attribute(f: Any) -> Any:
    def inner(a: Any) -> Any:
        return a * inner.k  # type: ignore[attr-defined]

    inner.k = f(1.0)  # type: ignore[attr-defined]
    return lambda w: np.sum(inner(w))


def in_a_list(f: Any) -> Any:
    fs = [lambda: f(1.0), lambda: f(2.0)]
    return lambda w: np.sum(w) * sum(g() for g in fs)


@pytest.mark.parametrize("held", [keyed, in_c, with_default, with_attribute, in_a_list])
def test_functions_in_cells_are_told_apart(held: Any) -> None:
    for c in (2.0, -3.0, 2.0, 1.5):
        f = held(lambda t, c=c: t * c) if held is in_c else held(lambda t: t * c)  # noqa: B023
        found = tapegrad.value_and_grad(f, compile="never")(X)
        assert found[0] == pytest.approx(f(X))
        assert found[1] @ X == pytest.approx(f(X))  # they are linear


def test_functions_of_tapegrads_own_are_told_apart() -> None:
    for c in (2.0, -3.0, 2.0):
        f = wrapped(lambda w: np.sum(w) * c)  # noqa: B023
        assert np.all(grad(lambda w: f(w), compile="never")(X) == c)  # noqa: B023
