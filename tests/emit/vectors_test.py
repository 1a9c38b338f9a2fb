"""Convolutions, searches and recurrences are kernels, which compute what NumPy computes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.emit.packed_test import PROCESSORS, kernel

from tapegrad import grad, jit, value_and_grad
from tapegrad.backends.cpu import support
from tapegrad.backends.cpu.support import blocks, correlation, scalars

inf, nan = np.inf, np.nan
# Of a vector, of what moves along it, and of results; how many come before the vector. One and
# several blocks, ends that have none of the terms, and what is longer than a stretch of it.
CORRELATED = [
    (200, 9, 208, 8),
    (70, 40, 31, 0),
    (30, 90, 119, 89),
    (5, 3, 30, 20),
    (50, 130, 50, 65),
]


@pytest.mark.every(6)
@pytest.mark.parametrize("registers", PROCESSORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_correlations_are_sums_of_products(monkeypatch, registers, dtype):
    """With vectors of any processor. Where a sum hasn't a term there is nothing that an infinity
    meets."""
    monkeypatch.setattr(blocks, "registers", lambda: registers)
    monkeypatch.setattr(correlation, "registers", lambda: registers)
    monkeypatch.setattr(correlation, "STRETCH", 64)
    rng = np.random.default_rng(0)
    lines, arrays, wanted = [], [], []
    for n, m, count, before in CORRELATED:
        for worst in (1.0, inf):
            x, v = rng.normal(size=n), rng.normal(size=m)
            v[-1] *= worst
            names = [f"a{len(arrays) + k}" for k in range(3)]
            lines.append(f"correlate({names[2]}, {names[0]}, {names[1]}, {before})")
            arrays += [x, v, np.full(count, nan)]
            terms = [
                [v[j] * x[k + j - before] for j in range(m) if 0 <= k + j - before < n]
                for k in range(count)
            ]
            wanted.append([sum(row) for row in terms])
    arrays = [np.array(a, dtype) for a in arrays]
    function, parameters = kernel(lines, [("array", a.shape, dtype.__name__) for a in arrays])
    support.compiled(function, parameters)(*arrays)
    tolerance = 1e-12 if dtype is np.float64 else 1e-4
    for found, expected in zip(arrays[2::3], wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.every(6)
@pytest.mark.parametrize("registers", PROCESSORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_searches_find_what_numpy_finds(monkeypatch, registers, dtype):
    """Of any number, in vectors of any length: equal ones, infinities and NaN among them."""
    monkeypatch.setattr(blocks, "registers", lambda: registers)
    rng = np.random.default_rng(0)
    lines, arrays, wanted = [], [], []
    for count in (0, 1, 2, 7, 64, 65, 300):
        a = rng.integers(0, count // 2 + 2, count).astype(dtype)
        a[::5], a[::17] = nan, inf
        v = np.concatenate([np.arange(-1, count // 2 + 4), [nan, inf, -inf]]).astype(dtype)
        for side in ("left", "right"):
            k = len(arrays)
            lines.append(f"search_{side}(a{k + 2}, a{k}, a{k + 1})")
            arrays += [np.sort(a), v.reshape(-1, 1), np.full((v.size, 1), -7)]
            wanted.append(np.searchsorted(np.sort(a), v, side)[:, None])
    function, parameters = kernel(lines, [("array", a.shape, a.dtype.name) for a in arrays])
    support.compiled(function, parameters)(*arrays)
    for found, expected in zip(arrays[2::3], wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.skipif(not scalars.VECTORISED, reason="there is no libmvec")
@pytest.mark.parametrize("term", ["log(1.0 + x * x)", "power(2.0, x)", "power(x, 1.5)", "cos(-x)"])
def test_functions_are_computed_in_vectors_whatever_is_known_of_their_operands(term):
    """LLVM would take the logarithm of what is positive, one at a time."""
    lines = ["for i in range(64):", "    x = a0[i]", f"    a1[i] = {term}"]
    code = support.object_code(*kernel(lines, [("array", (64,), "float64")] * 2))
    assert b"_ZGV" in code
    x, y = np.linspace(0.1, 4.0, 64), np.empty(64)
    support.compiled(*kernel(lines, [("array", (64,), "float64")] * 2))(x, y)
    names = {"log": np.log, "power": np.power, "cos": np.cos, "x": x}
    np.testing.assert_allclose(y, eval(term, names), rtol=1e-14)


LENGTHS = ((9, 4), (4, 9), (6, 5), (5, 6), (5, 5), (1, 4))


@pytest.mark.every(2)
@pytest.mark.skipif(not scalars.VECTORISED, reason="there is no libmvec")
@pytest.mark.parametrize("extent", [8, 16, 24])
def test_along_a_short_row_there_is_one_vector_at_a_time(extent):
    """LLVM isn't told how long the row is, and would take several at once, which aren't there."""
    lines = [
        "for i in range(50):",
        "    t = 0.0",
        f"    for j in range(rolled({extent})):",
        "        t = plus(t, exp(a0[i, j] + a1[j]))",
        "    a2[i] = t",
    ]
    parameters = [("array", shape, "float64") for shape in ((50, extent), (extent,), (50,))]
    code = support.object_code(*kernel(lines, parameters))
    assert len({*re.findall(rb"_ZGV\w+_exp", code)}) == 1
    rng = np.random.default_rng(0)
    x, y, found = rng.normal(size=(50, extent)), rng.normal(size=extent), np.empty(50)
    support.compiled(*kernel(lines, parameters))(x, y, found)
    np.testing.assert_allclose(found, np.exp(x + y).sum(axis=1), rtol=1e-13)


@pytest.mark.every(4)
@pytest.mark.parametrize("function", [np.convolve, np.correlate])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_the_shorter_one_moves(function, mode):
    """Whichever that is, odd or even; both cotangents are those of a linear map. All lengths are
    one program, which compiles once."""
    rng = np.random.default_rng(0)
    xs, ts = ([rng.normal(size=n) for n, _ in LENGTHS] for _ in "xt")
    vs, us = ([rng.normal(size=m) for _, m in LENGTHS] for _ in "vu")
    weights = [rng.normal(size=function(x, v, mode).size) for x, v in zip(xs, vs, strict=True)]

    def results(xs, vs):
        return [function(x, v, mode) for x, v in zip(xs, vs, strict=True)]

    def losses(xs, vs):
        return [np.sum(y * w) for y, w in zip(results(xs, vs), weights, strict=True)]

    for tier in ("never", "always"):
        found = jit(results, compile=tier)(xs, vs)
        ct_xs, ct_vs = grad(lambda xs, vs: sum(losses(xs, vs)), (0, 1), compile=tier)(xs, vs)
        for k, lengths in enumerate(LENGTHS):
            np.testing.assert_allclose(found[k], results(xs, vs)[k], err_msg=f"{lengths}")
            slopes = [ct_xs[k] @ ts[k], ct_vs[k] @ us[k]]
            moved = [losses(ts, vs)[k], losses(xs, us)[k]]
            np.testing.assert_allclose(slopes, moved, err_msg=f"{lengths}")


def test_integers_and_complex_numbers_are_left_to_numpy():
    x, v = np.arange(5), np.array([3, -1])
    z = x + 1j * x**2
    convolved = jit(lambda x, v: np.convolve(x, v), compile="always")
    np.testing.assert_array_equal(convolved(x, v), np.convolve(x, v))
    np.testing.assert_array_equal(convolved(z, 1j * v), np.convolve(z, 1j * v))
    found = jit(lambda x, k: np.searchsorted(x, k), compile="always")(x, v)
    np.testing.assert_array_equal(found, np.searchsorted(x, v))


def test_numbers_are_interpolated_in_a_loop():
    """By one kernel for all: where a number is among the knots isn't assumed."""
    knots = np.linspace(0.0, 1.0, 30)

    def followed(x, slopes):
        for _ in range(60):
            x = x + 0.05 * np.interp(x, knots, slopes)
        return x

    slopes = np.random.default_rng(0).normal(size=30)
    derived = value_and_grad(followed, (0, 1), compile="always")
    for start in (0.1, 0.5, 0.9, -1.0, 2.0):
        value, (slope, ct) = derived(start, slopes)
        assert value == pytest.approx(followed(start, slopes), rel=1e-12)
        ahead, behind = followed(start + 1e-6, slopes), followed(start - 1e-6, slopes)
        assert slope == pytest.approx((ahead - behind) / 2e-6, rel=1e-4)
        moved = followed(start, slopes + 1e-6 * np.cos(knots))
        assert ct @ np.cos(knots) == pytest.approx((moved - value) / 1e-6, rel=1e-3, abs=1e-6)
    assert derived.cache_info().traces == 1
    (tape,) = derived.tapes
    assert any(call.primitive.repeats for call in tape.calls)


def test_convolutions_of_rows_are_a_loop():
    """A call for each row, on the row where it stands."""

    def smoothed(x, taps):
        return np.sum(np.apply_along_axis(lambda row: np.convolve(row, taps, "same"), 1, x) ** 2)

    x, taps = np.random.default_rng(0).normal(size=(40, 12)), np.array([0.2, 0.5, 0.3])
    derived = grad(smoothed, compile="always")
    direction = np.cos(np.arange(x.size)).reshape(x.shape)
    change = smoothed(x + 1e-6 * direction, taps) - smoothed(x - 1e-6 * direction, taps)
    assert np.sum(derived(x, taps) * direction) == pytest.approx(change / 2e-6, rel=1e-7)
    assert derived.tapes[0].source.count("correlate(") == 2


def test_running_products_take_one_pass_back():
    """However long they are: a tape that grows with the logarithm of the length it isn't."""

    def loss(x):
        return np.sum(np.cumprod(x))

    def tape(size):
        derived = grad(loss, compile="never")
        derived(np.ones(size))
        return derived.tapes[0]

    assert len(tape(2000).calls) == len(tape(20).calls)
    x = np.array([2.0, 0.0, 3.0, 5.0])
    np.testing.assert_array_equal(grad(loss, compile="always")(x), [1.0, 2 * 19, 0.0, 0.0])


def test_float32_in_terms_of_float64():
    """A loop over float32 has twice as many lanes for float64 as a vector of this processor may
    hold: functions of libm are called for as many as it has."""
    from scipy import special

    x = np.linspace(-3, 3, 4096, dtype=np.float32)

    def f(x):
        return special.erfcx(x) + special.digamma(x)

    compiled, played = (jit(f, compile=c)(x) for c in ("always", "never"))
    np.testing.assert_allclose(compiled, played, rtol=1e-4)
