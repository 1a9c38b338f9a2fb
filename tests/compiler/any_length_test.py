"""A program for other lengths of its axes finds the loops of one that was compiled before."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tapegrad
from tapegrad import defvjp, grad, jit, linearize, primitive, value_and_grad, vjp, vmap
from tapegrad.observe.program.joins import sides_of


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def logistic(w, x, y):
    return np.mean(np.log1p(np.exp(-y * (x @ w))))


def network(w, v, x, labels):
    z = np.tanh(x @ w) @ v
    z = z - np.max(z, axis=1, keepdims=True)
    p = np.exp(z) / np.sum(np.exp(z), axis=1, keepdims=True)
    return -np.mean(np.log(p)[np.arange(len(labels)), labels])


def rows(w, x):
    return np.sum(np.tanh(x * w[:, None]).mean(axis=1) ** 2)


def between(x, a):
    return np.sum(np.tanh(x @ a) * np.mean(x, axis=(0, 2), keepdims=True))


def filtered(k, x):
    return np.sum(np.convolve(x, k) ** 2)


def decayed(rate, x):
    h = 0.0
    for v in x:
        h = rate * h + np.sin(v)
    return h / len(x)


def singles(w, x):
    return np.mean((x @ w) ** 2) * np.float32(0.7)


# A function, its arguments for a length, and how many kernels all lengths from 3 on need. The first
# compiled has its own; a loop of rounds serves any number of them at once.
PROGRAMS = {
    "rows of a batch": (logistic, lambda n: (normal(4), normal(n, 4), np.sign(normal(n))), 2),
    "a network": (
        network,
        lambda n: (normal(6, 9), normal(9, 2), normal(n, 6), np.arange(n) % 2),
        2,
    ),
    "the last axis": (rows, lambda n: (normal(6), normal(6, n)), 2),
    "an axis between": (between, lambda n: (normal(3, n, 5), normal(5, 4)[:, :1]), 2),
    "a convolution": (filtered, lambda n: (normal(4), normal(n)), 2),
    "rounds": (decayed, lambda n: (0.4, normal(n)), 1),
    "single precision": (
        singles,
        lambda n: (normal(4).astype(np.float32), normal(n, 4).astype(np.float32)),
        2,
    ),
}
LENGTHS = (64, 100, 33, 240, 23, 200)


@pytest.fixture(autouse=True)
def nothing_known():
    tapegrad.clear_cache()


def agree(found, expected, single=False):
    """The value, and the derivatives, are the same up to rounding."""
    value, slopes = found
    slopes = slopes if isinstance(slopes, tuple) else (slopes,)
    other, others = expected
    others = others if isinstance(others, tuple) else (others,)
    for x, y in zip((value, *slopes), (other, *others), strict=True):
        assert np.dtype(type(x)) == np.dtype(type(y)) if np.ndim(x) == 0 else x.dtype == y.dtype
        size = np.max(np.abs(y), initial=1e-300)
        np.testing.assert_allclose(x, y, rtol=0, atol=(1e-5 if single else 1e-12) * size)


@pytest.mark.every(7)
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_lengths_are_compiled_and_serve_all(name):
    f, make, kernels = PROGRAMS[name]
    compiled, played = (value_and_grad(f, compile=mode) for mode in ("always", "never"))
    for n in LENGTHS:
        agree(compiled(*make(n)), played(*make(n)), name == "single precision")
    info = compiled.cache_info()
    assert (info.kernels, info.compiles, info.variants) == (kernels, len(LENGTHS), len(LENGTHS))


SHORT = {
    "first rows": "rows of a batch",
    "a network": "a network",
    "the last axis": "the last axis",
    "short loops": "rounds",
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", SHORT)
def test_one_row_says_that_the_axis_varies(name):
    """The next length has a kernel for all, in which loops of two rounds are loops, too."""
    sides_of.cache_clear()  # what other tests have found out about the loop
    f, make, _ = PROGRAMS[SHORT[name]]
    compiled, played = (value_and_grad(f, compile=mode) for mode in ("always", "never"))
    for n in (1, 3, 2, 4, 5, 7, 8, 12, 16, 31, 50):  # of the network two columns are others
        agree(compiled(*make(n)), played(*make(n)))
    assert compiled.cache_info().kernels == 2


def ranked(x):
    return np.sum(np.sort(x) * np.arange(len(x))) + np.sum(np.cumsum(x)[::-1] * x)


def gathered(x, rows):
    return np.sum(np.tanh(x[rows]) ** 2) + np.sum(x.T @ x)


def pairs(x):
    return np.sum(np.exp(-np.sum((x[:, None] - x) ** 2, axis=-1)))


MORE = {
    "sorting": (ranked, lambda n: (normal(n),), 2),
    "gathering": (gathered, lambda n: (normal(n, 3), np.arange(n + 3) % n), 2),
    "pairs": (pairs, lambda n: (normal(n, 3),), 2),
}
ORDERS = ((64, 100, 1, 7), (100, 1, 2, 33), (7, 512, 3, 1))


@pytest.mark.every(12)
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", sorted({*PROGRAMS, *MORE} - {"a convolution"}))
def test_one_row_is_a_length_like_any(name, order):
    """A kernel for any length serves one row, which makes another tape by itself: it sums nothing,
    and a mean of one divides by nothing. NumPy's convolution goes by which array is longer."""
    sides_of.cache_clear()
    f, make, _ = {**PROGRAMS, **MORE}[name]
    compiled = value_and_grad(f, compile="always")
    for n in order:
        if name != "pairs" or n < 300:  # else worth several cores
            alone = value_and_grad(lambda *args: f(*args), compile="never")
            agree(compiled(*make(n)), alone(*make(n)), name == "single precision")
    assert compiled.cache_info().kernels <= 2


def test_rows_of_vmap_and_a_function_itself():
    def one(w, x):
        return np.sum(np.tanh(w * x)) ** 2

    each = vmap(grad(one), in_axes=(None, 0), compile="always")
    own = jit(lambda w, x: np.mean(np.tanh(x * w), axis=0), compile="always")
    for n in (64, 7, 1, 5):
        w, x = normal(3), normal(n, 3)
        np.testing.assert_allclose(each(w, x), [grad(one)(w, row) for row in x], rtol=1e-10)
        np.testing.assert_allclose(own(w, x), np.mean(np.tanh(x * w), axis=0), rtol=1e-12)
    assert (each.cache_info().kernels, own.cache_info().kernels) == (2, 2)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_linear_maps_of_one_element_after_those_of_several(mode):
    def f(x):
        return np.cumsum(x) * x[0]

    for n in (64, 7, 1, 5):
        x, ct = normal(n), normal(n)
        slope = np.tril(np.full((n, n), x[0])) + np.outer(np.cumsum(x), np.eye(n)[0])
        _, pull = vjp(f, x, compile=mode)
        _, push = linearize(f, x, compile=mode)
        for _ in range(3):
            np.testing.assert_allclose(pull(ct)[0], ct @ slope, rtol=1e-10)
            np.testing.assert_allclose(push(ct), slope @ ct, rtol=1e-10)


def test_a_rule_of_the_users_sees_one_row():
    """Which it may treat by itself: nothing is made for any length then."""

    @primitive
    def centred(x):
        return x - np.mean(x, axis=0)

    def rule(ct, out, x):
        return ct * 0.0 if x.shape[0] == 1 else ct / (x.shape[0] - 1)

    defvjp(centred, rule)
    slope = grad(lambda x: np.sum(centred(x) * x), compile="always")
    for n in (64, 7, 1, 5):
        x = normal(n, 3)
        by = 0.0 if n == 1 else 1 / (n - 1)
        np.testing.assert_allclose(slope(x), x - np.mean(x, axis=0) + by * x, atol=1e-12)


def test_two_axes_that_vary_by_themselves():
    def apart(w, x, y):
        return np.sum(np.exp(-(x @ w)[:, None] * (y @ w)))

    compiled, played = (value_and_grad(apart, compile=mode) for mode in ("always", "never"))
    for n, m in ((32, 30), (7, 49), (64, 30), (20, 11), (64, 11)):
        args = normal(3), normal(n, 3), normal(m, 3)
        agree(compiled(*args), played(*args))
    assert compiled.cache_info().kernels == 2


def test_a_length_that_is_that_of_a_tile():
    """Loops serve any number of rounds at once, of 64 too, which a number of the code's own is."""
    sides_of.cache_clear()

    def loss(w, x):
        h = 0.0
        for row in x:
            h = h + np.tanh(row @ w) ** 2
        return h

    compiled, played = (grad(loss, compile=mode) for mode in ("always", "never"))
    for n in (512, 300, 64, 128, 31):
        found, expected = (g(normal(5), normal(n, 5)) for g in (compiled, played))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert compiled.cache_info().kernels == 1


def test_no_row_and_a_single_row():
    """Whose axis is gone, so they have loops of their own."""

    def total(w, x):
        return np.sum(np.exp(x @ w))

    compiled, played = (value_and_grad(total, compile=mode) for mode in ("always", "never"))
    for n in (5, 0, 1, 7, 0, 1, 2):
        args = normal(3), normal(n, 3)
        agree(compiled(*args), played(*args))


def test_a_length_that_another_axis_has():
    """It is told from the axis that stays: by where numbers differ, not by what they are."""
    compiled, played = (value_and_grad(network, compile=mode) for mode in ("always", "never"))
    make = PROGRAMS["a network"][1]
    for n in (40, 9, 6, 2, 50, 9, 18, 54):
        agree(compiled(*make(n)), played(*make(n)))
    assert compiled.cache_info().kernels == 2


def test_programs_that_differ_in_more_than_lengths():
    """The same primitives, with other constants: their numbers are their own."""
    for factor, power in ((2.0, 2.5), (3.0, 3.5), (2.0, 1.5)):

        def loss(x, factor=factor, power=power):
            return np.sum(factor * np.abs(x) ** power)

        compiled, played = (value_and_grad(loss, compile=mode) for mode in ("always", "never"))
        for n in (20, 30, 41):
            agree(compiled(normal(n)), played(normal(n)))


def test_functions_share_what_is_compiled():
    """Two losses of the same form, or one over arrays that it reaches: a batch made anew."""
    w = normal(4)
    kernels = []
    for n in (31, 45, 23, 77):
        x, y = normal(n, 4), np.sign(normal(n))
        compiled = value_and_grad(lambda w, x=x, y=y: logistic(w, x, y) + 1.0, compile="always")
        played = value_and_grad(lambda w, x=x, y=y: logistic(w, x, y) + 1.0, compile="never")
        agree(compiled(w), played(w))
        kernels.append(compiled.cache_info().kernels)
    assert kernels[2:] == [0, 0]


def test_the_tape_tells_which_axes():
    compiled = value_and_grad(rows, compile="always")
    for n in (10, 12):
        compiled(normal(6), normal(6, n))
    first, last = sorted(map(str, compiled.tapes), key=len)
    assert "# x, axis 1 of any length" in last
    assert "any length" not in first


PROCESS = """
import numpy as np
from tapegrad import value_and_grad

def loss(w, x):
    return np.mean(np.tanh(x @ w) ** 2)

compiled = value_and_grad(loss, compile="always")
for n in {lengths}:
    compiled(np.arange(3.0), np.ones((n, 3)))
print(compiled.cache_info().kernels)
"""


def test_the_next_process_finds_them(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path / "cache"))
    found = []
    for lengths in ((64, 100), (81, 100, 200)):
        code = PROCESS.format(lengths=lengths)
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found.append(int(ran.stdout))
    assert found == [2, 0]
