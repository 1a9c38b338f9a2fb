"""What is read elsewhere is kept or computed again, whichever is cheaper."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tapegrad import grad, trace
from tapegrad.pipeline import schedule

R = np.random.default_rng(0)
X, W = R.normal(size=(2, 64, 64))


def text_of(f: Any, *args: Any) -> str:
    """The source of a function's kernels, without comments."""
    source = "".join(k.text for k in schedule(trace(f, *args)[1]).kernels)
    return re.sub("#.*", "", source)


def test_arithmetic_is_computed_again():
    """x + 1 is needed before and after a product."""

    def f(x, w):
        t = x + 1.0
        return (t * 2.0) @ w * t

    assert text_of(f, X, W).count("+ 1.0") == 2


def test_functions_are_kept():
    def f(x, w):
        t = np.exp(x)
        return (t * 2.0) @ w * t

    assert text_of(f, X, W).count("exp(") == 1


def test_two_values_of_one_function_keep_that():
    """Not t + 1 and t + 2, which would be two arrays, each cheaper kept than with its exp."""

    def f(x, w):
        t = np.exp(x)
        a, b = t + 1.0, t + 2.0
        return (a * b) @ w * a / b

    text = text_of(f, X, W)
    assert text.count("exp(") == 1
    assert text.count("+ 1.0") == text.count("+ 2.0") == 2


def test_what_runs_in_an_inner_loop_is_kept():
    """A row of 30 numbers isn't computed again for each of 1000 rows."""

    def f(x, w):
        return np.sum(np.tanh(x * (w * 2.0 + 1.0)), axis=0)

    text = text_of(f, R.normal(size=(1000, 30)), R.normal(size=30))
    (line,) = (line for line in text.splitlines() if "* 2.0" in line)
    assert re.match(r" {8}t\w*\[i\] = ", line), text


def test_truth_values_are_kept_rather_than_what_they_compare():
    """The backward half needs to know where the sum was positive, and not the sum."""

    def f(x, b):
        return np.sum(np.maximum(x @ W + b, 0.0) @ W @ W)

    gradient = grad(f, compile="never")
    gradient(X, X)
    kinds = {cell.dtype.kind for cell in schedule(gradient.tapes[0]).allocation.homes}
    assert "b" in kinds


def test_a_running_sum_is_not_read_after_it_has_run():
    """Its register holds another value at each step."""

    def f(x, w):
        t = np.cumsum(x, axis=1)
        return (t * 2.0) @ w * t

    compiled, x, w = trace(f, X, W)[1].compile(), np.abs(X), np.abs(W)  # nothing cancels
    np.testing.assert_allclose(compiled(x, w), f(x, w), rtol=1e-12)


@pytest.mark.every(2)
@pytest.mark.parametrize("price", [0.0, 1e6])
def test_values_do_not_depend_on_prices(monkeypatch, price):
    """All is kept if memory costs nothing, and all that can be is computed again if it costs
    much."""
    monkeypatch.setattr("tapegrad.schedule.cost.CACHES", ((np.inf, price),))

    def f(x, w):
        e = np.exp(x - np.max(x, axis=1, keepdims=True))
        p = e / np.sum(e, axis=1, keepdims=True)
        return np.sum(np.tanh(p @ w) * p[:, ::-1] * np.maximum(x.T @ p, 0.1))

    gradient = grad(f, argnums=(0, 1), compile="always")
    expected = grad(f, argnums=(0, 1), compile="never")(X, W)
    for found, e in zip(gradient(X, W), expected, strict=True):
        np.testing.assert_allclose(found, e, rtol=1e-9, atol=1e-12)
