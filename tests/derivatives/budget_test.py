"""`max_bytes=`: a call of a gradient takes no more than so many bytes at a time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from tests.primitives.samples.drawn import normal

import tapegrad as tg
from tapegrad import grad, jit, pipeline, scan, standalone, value_and_grad, vmap
from tapegrad.errors import ArgumentError
from tapegrad.pipeline import bytes_taken

X = normal(12, 4)
WEIGHTS = [normal(4, 4, seed=k) * 0.5 for k in range(1, 4)]


def network(x, weights=WEIGHTS):
    for w in weights:
        x = np.tanh(np.sin(x @ w)) * x
    return np.sum(x**2)


def mixed(x):
    z = x - np.max(x, axis=1, keepdims=True)
    root = np.linalg.cholesky(x.T @ x + np.eye(4))
    ordered = np.sort(x, axis=0)[::-1] * np.cumsum(x, axis=0)
    return np.sum(np.log(np.sum(np.exp(z), axis=1))) + np.sum(root**2) + np.sum(ordered**2)


def rounds(x):
    h, _ = scan(lambda h, _: (np.tanh(1.1 * h + x), None), x, None, 20)
    return np.sum(h * x)


def narrow(x):
    y = np.exp(np.sin(x.astype("f4")))
    return np.sum(np.tanh(y) * y)


def of_complex(x):
    z = np.exp(1j * np.sin(x))
    return np.sum(np.abs(z + x) ** 2 * np.cos(x))


def layer(x):
    return network(x, WEIGHTS[:1])


PLAYED = [network, mixed, rounds, narrow, of_complex]
COMPILED = [layer, rounds, narrow, of_complex]


def kept(tape):
    return tape.memory_report().saved_for_backward_bytes


def least(f, *args, **how):
    """The number of bytes that the error says, of a gradient."""
    with pytest.raises(ArgumentError, match="at a time at least") as error:
        grad(f, max_bytes=0, **how)(*args)
    return int(re.search(r"takes ([\d,]+) bytes", str(error.value))[1].replace(",", ""))


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("f", "compile"),
    [*[(f, "never") for f in PLAYED], *[(f, "always") for f in COMPILED]],
)
def test_values_and_gradients_are_the_same(f, compile, monkeypatch):
    """At other points, too, and whatever part of it is kept: to the last bit as NumPy computes
    them, and but for the order of sums in kernels, which depends on what else these do."""
    plain = value_and_grad(f, compile=compile)
    whole = [plain(x) for x in (X, 2 * X)]
    most = kept(plain.tapes[0])
    assert most > 0
    monkeypatch.setattr(pipeline, "bytes_taken", lambda tape, _: kept(tape))
    for share in (0.4, 0.0) if compile == "never" else (0.3,):
        limit = int(share * most)
        bounded = value_and_grad(f, compile=compile, max_bytes=limit)
        for x, (value, gradient) in zip((X, 2 * X), whole, strict=True):
            found = bounded(x)
            rtol = 0 if compile == "never" else 1e-13
            np.testing.assert_allclose(found[0], value, rtol=rtol)
            np.testing.assert_allclose(found[1], gradient, rtol=rtol, atol=rtol)
        # Equal calls don't become one again: neither when it is finished nor when it is compiled,
        # but for numbers that loops count with.
        (tape,) = bounded.tapes
        assert kept(tape) <= limit
        assert kept(pipeline.optimized(tape)) <= limit + 16


def rolled():
    """Layers that are alike: a loop."""

    def deep(weights, x):
        for w in weights:
            h = np.sin(x @ w)
            x = x + np.tanh(h) * np.exp(-h * h)
        return np.sum(x**2)

    return deep, ([normal(6, 6, seed=k) * 0.3 for k in range(40)], normal(100, 6))


def short():
    """Fewer of them."""
    deep, (weights, x) = rolled()
    return deep, (weights[:12], x)


def apart():
    """Layers of different widths: no loop."""

    def deep(weights, x):
        for w in weights:
            h = np.sin(x @ w)
            x = np.tanh(h) * np.exp(-h * h)
        return np.mean(x**2)

    return deep, ([normal(5 + k, 6 + k, seed=k) * 0.3 for k in range(14)], normal(100, 5))


@pytest.mark.every(2)
@pytest.mark.parametrize("made", [rolled, short, apart])
def test_what_is_computed_again_is_let_go(made):
    """Of many layers most of what was there at a time isn't any more, as far as it is asked for;
    where there is less room than that takes, what is kept still fits."""
    deep, args = made()
    plain = grad(deep, compile="never")
    expected = plain(*args)
    most, fewest = bytes_taken(plain.tapes[0], "never"), least(deep, *args, compile="never")
    assert fewest < 0.4 * most  # about twice the root of the layers
    for limit in (int(0.7 * most), (most + fewest) // 2, fewest):
        bounded = grad(deep, compile="never", max_bytes=limit)
        for found, wanted in zip(bounded(*args), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert bytes_taken(bounded.tapes[0], "never") <= limit


def test_what_takes_long_is_kept():
    """Products are computed once, as long as there is room for their results."""

    x, w = normal(10, 60), normal(60, 60)

    def f(x):
        z = x @ w @ w
        for _ in range(6):
            z = np.sin(z) * np.exp(-z * z)
        return np.sum(z)

    plain = grad(f, compile="never")
    plain(x)
    limit = (bytes_taken(plain.tapes[0], "never") + least(f, x, compile="never")) // 2
    derivative = grad(f, compile="never", max_bytes=limit)
    derivative(x)
    names = [call.primitive.name for call in derivative.tapes[0].calls]
    assert names.count("einsum") == 4  # two forwards, and two back
    assert "recompute_after" in names


def test_the_least_is_said_where_it_is_too_much():
    """And as many bytes do. A function that NumPy runs is called once, so what it gives is kept."""

    @tg.primitive
    def foreign(x):
        return np.frombuffer(x.tobytes()).reshape(x.shape) ** 2

    tg.defvjp(foreign, lambda ct, out, x: 2 * ct * x)

    def f(x):
        return np.sum(np.sin(foreign(x)) ** 2)

    fewest = least(f, X, compile="never")
    assert fewest >= X.nbytes
    limited = grad(f, compile="never", max_bytes=fewest)
    wanted = 4 * X * np.sin(X**2) * np.cos(X**2)
    np.testing.assert_allclose(limited(X), wanted, rtol=1e-12, atol=1e-15)
    names = [call.primitive.name for call in limited.tapes[0].calls]
    assert names.count("foreign_call") == 1
    for wrong in (-1, 2.5, "1 MB", True):
        with pytest.raises(ArgumentError, match="max_bytes is a number of bytes"):
            grad(f, max_bytes=wrong)


def test_it_is_differentiated_mapped_and_saved_as_others_are():
    f, x, compile = network, X[:3], "never"
    less = grad(f, max_bytes=least(f, x))
    second = grad(lambda x: np.sum(less(x) * x), compile=compile)(x)
    np.testing.assert_allclose(second, grad(lambda x: np.sum(grad(f)(x) * x))(x), rtol=1e-10)
    rows = vmap(less, compile=compile)(X[:, None, :])
    np.testing.assert_allclose(rows[:, 0], grad(f)(X), rtol=1e-10)
    np.testing.assert_allclose(jit(less, compile=compile)(x), grad(f)(x), rtol=1e-12)
    np.testing.assert_allclose(standalone(less, x)(x), grad(f)(x), rtol=1e-12)


def test_paths_are_guarded():
    def f(x):
        y = np.exp(np.sin(x))
        return np.sum(y * y) if np.sum(y) > 30 else np.sum(np.tanh(y) * y)

    most = max(least(f, x, compile="never") for x in (X, 0 * X - 1.5))
    bounded = grad(f, max_bytes=most, compile="never")
    for x in (X, 0 * X - 1.5, X):
        np.testing.assert_array_equal(bounded(x), grad(f, compile="never")(x))
    assert bounded.cache_info().traces == 2


MEASURED = """
import sys
import tracemalloc

import numpy as np

from tapegrad import grad
from tapegrad.pipeline import bytes_taken

n, mode = 400_000, sys.argv[1]
weights = [np.random.default_rng(k).normal(size=(4 + k, 5 + k)) / 2 for k in range(5)]

def chained(x):
    for _ in range(4):
        x = np.sort(x) + 0.1 * np.cumsum(np.sin(x)) / n
    return np.sum(x * x)

def layers(x):
    x = x.reshape(-1, 4)
    for w in weights:
        h = np.sin(x @ w)
        x = np.tanh(h) * np.exp(-h * h)
    return np.mean(x**2)

def steps(x):
    for _ in range(50):
        x = x + 0.01 * np.sin(np.roll(x, 1))
    return np.sum(x**2)

x = np.linspace(-1, 1, n)
f = {f.__name__: f for f in (chained, layers, steps)}[sys.argv[2]]
plain = grad(f, compile=mode)
plain.lower(x)
most = bytes_taken(plain.lower(x).tape, mode)
limit = int(float(sys.argv[3]) * most)
bounded = grad(f, compile=mode, max_bytes=limit)
bounded.compile(x)
if mode == "never":
    bounded(x)
planned = bytes_taken(bounded.lower(x).tape, mode)
tracemalloc.start()
result = bounded(x)  # of compiled code the first call: scratch memory stays
print(most, limit, planned, tracemalloc.get_traced_memory()[1] - result.nbytes)
"""


@pytest.mark.every(4)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize(("name", "share"), [("chained", 0.8), ("layers", 0.7), ("steps", 0.3)])
def test_a_call_takes_no_more(name, share, mode):
    """Measured: all that compiled code allocates, and what NumPy does but for what a function needs
    inside, an array or two. Checks of compiled calls are left out, as they play."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, mode, name, str(share)],
        env={**os.environ, "TAPEGRAD_DEBUG": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    most, limit, planned, peak = map(int, done.stdout.split())
    inside = 2 * 900_000 * 8 if mode == "never" else 100_000
    assert planned <= limit < most
    assert peak <= planned + inside
