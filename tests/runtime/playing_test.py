"""Variants that are played often: an entry takes arguments apart, and NumPy runs the tape."""

from __future__ import annotations

import gc
import math
import time
import warnings
import weakref
from array import array

import numpy as np
import pytest
from scipy import integrate, optimize

import tapegrad as tg
from tapegrad import pipeline
from tapegrad.backends.numpy.lives import reads, summed_places
from tapegrad.backends.numpy.play import run
from tapegrad.errors import ArgumentError
from tapegrad.ir.tape import Aval, Builder
from tapegrad.primitives.base import Slice
from tapegrad.primitives.elementwise import add
from tapegrad.primitives.views import Place
from tapegrad.runtime import playing, variant
from tapegrad.runtime.playing import Playing
from tapegrad.runtime.tier import Tier
from tapegrad.runtime.variant import OFTEN_PLAYED

X = np.array([[0.5, -1.0, 2.0], [1.5, 3.0, -0.5]])
CALLS = OFTEN_PLAYED + 4


def often(f, *args, **options):
    """The derivative of a function that was called often with these arguments."""
    options.setdefault("compile", "never")
    g = tg.value_and_grad(f, **options)
    for _ in range(CALLS):
        g(*args)
    return g


def is_in_front(g):
    return len(g.front.recent) > 0


def mixed(p, x, k, flag, name):
    y = p["w"] * x + p["b"][0] if flag else x
    return np.sum(y**k) if name == "sum" else np.mean(y**k)


def test_it_answers_as_the_first_call_does():
    p = {"w": np.array([1.0, 2.0, -0.5]), "b": (0.25, [X])}
    args = (p, X, 2, True, "sum")
    g = often(mixed, *args)
    first = tg.value_and_grad(mixed, compile="never")(*args)
    before = g.front.fast_hits
    value, found = g(*args)
    assert g.front.fast_hits == before + 1 and isinstance(g.front.recent[0], Playing)
    assert value == first[0] == mixed(*args) and type(value) is type(first[0])
    np.testing.assert_array_equal(found["w"], first[1]["w"])
    assert found["b"][0] == first[1]["b"][0] and type(found["b"][0]) is type(first[1]["b"][0])
    # Another kind of arguments is another variant's.
    for other in (
        ({**p, "w": p["w"].astype(np.float32)}, X, 2, True, "sum"),
        (p, X[:1], 2, True, "sum"),
        (p, X, 2.0, True, "sum"),
        (p, X, 2, False, "sum"),
        (p, X, 2, True, "mean"),
        ({"b": p["b"], "w": 0.5}, X, 2, True, "sum"),
        (p, np.asfortranarray(X), 2, True, "sum"),
        (p, X[::-1, ::-1], 2, True, "sum"),
        (p, X.astype(">f8"), 2, True, "sum"),
    ):
        for _ in range(CALLS):
            value, _ = g(*other)
        np.testing.assert_allclose(value, mixed(*other), rtol=1e-14)


def views(x):
    y = x.T
    return np.sum(x * x), (x, y, y, x[0], x.reshape(3, 2), np.exp(y), x[0, 0])


def test_results_are_nobody_elses():
    f = tg.jit(lambda x: views(x)[1], compile="never")
    x = X.copy()
    for _ in range(CALLS):
        f(x)
    assert is_in_front(f)
    found = f(x)
    for y, expected in zip(found, views(X)[1], strict=True):
        np.testing.assert_array_equal(y, expected)
        if y.ndim:
            assert y.flags.c_contiguous and y.flags.writeable and not np.shares_memory(y, x)
    arrays = [y for y in found if y.ndim]
    for k, y in enumerate(arrays):
        assert not any(np.shares_memory(y, z) for z in arrays[k + 1 :])
        y[...] = 7.0
    np.testing.assert_array_equal(x, X)
    for y, expected in zip(f(x), views(X)[1], strict=True):
        np.testing.assert_array_equal(y, expected)


def branches(x):
    if x[0] > 0:
        return np.sum(np.sin(x))
    if x[1] > 0:
        return np.sum(x * x)
    return np.sum(np.cos(x) * x)


def test_paths_take_turns():
    points = [np.array([a, b]) for a, b in ((1.0, 1.0), (-1.0, 1.0), (-1.0, -2.0))]
    g = often(branches, points[0])
    for _ in range(3 * CALLS):
        for x in points:
            value, gradient = g(x)
            np.testing.assert_allclose(value, branches(x), rtol=1e-15)
            step = 1e-6 * np.eye(2)
            differences = [(branches(x + d) - branches(x - d)) / 2e-6 for d in step]
            np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-9)
    assert g.cache_info().traces == 3


def test_a_path_that_is_no_longer_taken_leaves_the_front():
    g = often(lambda x: branches(x), np.array([1.0, 1.0]))
    ((first, _),) = at_the_front(g)
    for _ in range(2 * CALLS):
        g(np.array([-1.0, 1.0]))
    assert first not in dict(at_the_front(g))
    for _ in range(2):
        g(np.array([1.0, 1.0]))
    assert first in dict(at_the_front(g))  # by another tape, if it has been optimised meanwhile


def at_the_front(g):
    """Which variants calls try first, and what answers for them."""
    return [(id(entry._variant()), entry) for entry in g.front.recent]


class Settings:
    rate = 0.5


def test_what_the_function_reaches_is_looked_at():
    weights, settings = np.array([1.0, 2.0, 3.0]), Settings()

    def f(x):
        return settings.rate * np.sum(weights * x * x)

    g = often(f, X)
    assert is_in_front(g)
    weights[1] = -2.0
    np.testing.assert_allclose(g(X)[1], 2 * 0.5 * weights * X)
    settings.rate = 3.0
    np.testing.assert_allclose(g(X)[1], 2 * 3.0 * weights * X)
    weights = np.array([1.0 + 0j, 2.0, 3.0]).real.astype(np.float32)
    np.testing.assert_allclose(g(X)[1], 2 * 3.0 * weights * X)


def test_errors_are_numpys():
    def f(a, b):
        return np.sum(np.linalg.solve(a, b))

    a, b = np.eye(3) * 2.0, np.ones(3)
    g = often(f, a, b)
    with pytest.raises(np.linalg.LinAlgError):
        g(np.zeros((3, 3)), b)
    np.testing.assert_allclose(g(a, b)[0], 1.5)

    def indexed(x, k):
        return x[k] * 2.0

    g = often(indexed, X[0], 1)
    with pytest.raises(IndexError):
        g(X[0], 5)
    assert g(X[0], 2)[0] == 4.0


@pytest.mark.parametrize("how", ["warn", "ignore"])
def test_numpys_warnings_stay_the_programs(how):
    def f(x):
        return np.sum(np.exp(x))

    with np.errstate(all=how), warnings.catch_warnings():
        warnings.simplefilter("error")
        g = often(f, np.array([1.0, 2.0]))
        assert g(np.array([1.0, 800.0]))[0] == np.inf
        assert is_in_front(g) and set(np.geterr().values()) == {how}
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        np.exp(np.array([1.0, 800.0]))


def test_random_numbers_are_drawn_at_each_call():
    rng, plain = np.random.default_rng(5), np.random.default_rng(5)

    def f(x, rng):
        return np.sum(x * rng.normal(size=3)) * rng.uniform()

    g = tg.value_and_grad(f, compile="never")
    for _ in range(2 * CALLS):
        np.testing.assert_allclose(g(X, rng)[0], f(X, plain), rtol=1e-14)
    assert is_in_front(g)
    assert rng.bit_generator.state == plain.bit_generator.state


def test_a_tape_with_a_users_function_has_none():
    """A call that misses is made again, and that function may do more than compute."""

    @tg.primitive
    def own(x):
        return sum(array("d", x)) * np.ones(3)

    def f(x):
        return np.sum(own(x) * x)

    g = tg.jit(f, compile="never")
    for _ in range(CALLS):
        assert g(X[0]) == pytest.approx(np.sum(X[0]) ** 2)
    assert g.cache_info().traces == 1 and not is_in_front(g)


@pytest.mark.parametrize(
    ("solve", "has_one"),
    [
        (lambda a: optimize.brentq(lambda x: x**3 - a * x - 1.0, 0.0, 10.0), True),
        (lambda a: integrate.quad(lambda t: np.exp(-a * t), 0.0, 1.0)[0], True),
        (lambda a: optimize.basinhopping(lambda x: (x[0] - a) ** 2, [0.0], niter=1).x[0], False),
    ],
)
def test_a_tape_with_a_solver_has_one(solve, has_one):
    """A solver of SciPy's only computes, but for one that draws random numbers."""
    g = tg.value_and_grad(solve, compile="never")
    first = g(1.5)
    for _ in range(CALLS):
        np.testing.assert_allclose(g(1.5), first, rtol=1e-6)
    assert g.cache_info().traces == 1 and is_in_front(g) == has_one
    np.testing.assert_allclose(g(0.5), tg.value_and_grad(solve)(0.5), rtol=1e-6)


def test_machine_code_takes_its_place():
    def f(x):
        return np.sum(np.sin(x) * x)

    g = tg.value_and_grad(f)
    expected = g(X)
    for _ in range(CALLS):
        g(X)
    g.compile(X)
    g(X)
    (entry,) = g.front.recent
    assert not isinstance(entry, Playing)
    np.testing.assert_allclose(g(X)[1], expected[1])


def test_machine_code_that_has_come_answers_the_next_call(monkeypatch, in_background):
    def f(x):
        return np.sum(np.cos(x) * x)

    with monkeypatch.context() as patched:
        patched.setattr(Tier, "executable", lambda self, wait=False: None)
        g = often(f, X, compile="auto")
    assert isinstance(g.front.recent[0], Playing)
    while g.cache_info().compiling:
        time.sleep(0.01)
    time.sleep(2 * playing.REPORT_INTERVAL)
    before = g.front.fast_hits
    np.testing.assert_allclose(g(X)[1], np.cos(X) - np.sin(X) * X)
    (entry,) = g.front.recent
    assert g.front.fast_hits == before and not isinstance(entry, Playing)


def test_it_goes_with_its_function():
    def f(x, held):
        return np.sum(x * x)

    held = Settings()
    known = weakref.ref(held)
    gc.disable()
    try:

        def made(held):
            return lambda x: np.sum(x * x) * held.rate

        g = often(made(held), X)
        assert is_in_front(g)
        del g, held
        assert known() is None
    finally:
        gc.enable()


def test_it_is_optimised_when_it_was_played_for_long(monkeypatch):
    monkeypatch.setattr(variant, "PASSES", np.inf)

    def f(x):
        y = x
        for _ in range(4):
            y = y * 1.0 + np.sin(x) * 0.0
        return np.sum(y * x)

    g = often(f, X)
    (before,) = g.front.recent
    monkeypatch.setattr(variant, "PASSES", 0.0)
    time.sleep(2 * playing.REPORT_INTERVAL)
    g(X)
    (after,) = g.front.recent
    assert len(after.tape.calls) < len(before.tape.calls)
    np.testing.assert_allclose(g(X)[1], 2 * X)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_arguments_by_name_have_an_entry(mode):
    def f(x, **given):
        scale = 1.0
        for name, y in given.items():  # which sees their order
            scale = scale * 2.0 if name == "a" else scale + 1.0
            x = x * y
        return np.sum(x) * scale

    def g(x, **given):
        return derived(x, **given)[0]

    a, b = np.array([1.0, 2.0, 3.0]), 0.5
    derived = often(f, X, compile=mode)
    for _ in range(CALLS):
        assert g(X, a=a, b=b) == f(X, a=a, b=b)
    assert len(derived.front.named) == 1
    before = derived.front.fast_hits
    for _ in range(3):  # one of them may give an account of the time
        found = derived(2 * X, a=a, b=b)
    assert derived.front.fast_hits >= before + 2
    np.testing.assert_allclose(found[1], 3.0 * a * b * np.ones_like(X))
    others = (
        {"b": b, "a": a},
        {"a": a},
        {"a": a, "b": 2},
        {"a": a, "c": b},
        {"a": a, "b": b, "c": b},
        {"a": a[:1], "b": b},
        {},
    )
    for _ in range(3):
        for given in others:
            np.testing.assert_allclose(g(X, **given), f(X, **given), rtol=1e-14)


def test_maps_have_an_entry():
    back = tg.vjp(lambda x, y: np.sin(x) * y, X, 2.0)[1]
    _, forth = tg.linearize(lambda x, y: np.sin(x) * y, X, 2.0)
    for k in range(CALLS):
        ct = X + k
        dx, dy = back(ct)
        np.testing.assert_allclose(dx, 2.0 * np.cos(X) * ct)
        np.testing.assert_allclose(dy, np.sum(np.sin(X) * ct))
        np.testing.assert_allclose(forth(ct, 1.0), 2.0 * np.cos(X) * ct + np.sin(X))
    assert len(back.tape.variant.front.recent) == 1
    with pytest.raises(ArgumentError):
        back(X[0])
    kept = back(X)[0]
    back(2.0 * X)
    np.testing.assert_allclose(kept, 2.0 * np.cos(X) * X)


def test_functions_that_are_made_anew_share_the_finished_tape(monkeypatch):
    monkeypatch.setattr(variant, "PASSES", 0.0)
    monkeypatch.setattr(pipeline, "finished", counted := Counted(pipeline.finished))
    for _ in range(6):
        g = tg.grad(lambda x: np.sum(x * x * x), compile="never")
        np.testing.assert_allclose(g(X), 3.0 * X * X)
    assert counted.calls == 1


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


def picking(x, y):
    s = x[0, 1] * y[2] + np.sin(x[1, 0]) * x[0, 1]
    s = s + np.sum(x[1] * y) * x[0, 2] - np.sum(x[:, 1] ** 2) + np.sum(x[0, ::2]) * y[0]
    return s * x[1, 2] + y[1]


def test_parts_are_added_to_one_array():
    """The values are those of the first calls, in which each part is an array of its own."""
    x, y = X.copy(), np.array([0.3, -1.2, 0.7])
    g = tg.value_and_grad(picking, argnums=(0, 1), compile="never")
    value, (dx, dy) = g(x, y)
    (tape,) = g.tapes
    sums = summed_places(tape, reads(tape))
    parts = [k for k, c in enumerate(tape.calls) if isinstance(c.primitive, Place)]
    assert len(set(parts) & set(sums)) > 6
    for _ in range(CALLS):
        again, (ex, ey) = g(x, y)
    assert again == value == picking(x, y)
    np.testing.assert_allclose(ex, dx, rtol=1e-15)
    np.testing.assert_allclose(ey, dy, rtol=1e-15)
    for at in np.ndindex(2, 3):
        step = np.zeros((2, 3))
        step[at] = 1e-6
        slope = (picking(x + step, y) - picking(x - step, y)) / 2e-6
        assert ex[at] == pytest.approx(slope, rel=1e-7, abs=1e-8)
    for k, step in enumerate(1e-6 * np.eye(3)):
        slope = (picking(x, y + step) - picking(x, y - step)) / 2e-6
        assert ey[k] == pytest.approx(slope, rel=1e-7, abs=1e-8)


def test_a_part_that_is_read_elsewhere_stays_by_itself():
    builder = Builder("f")
    a, b, c = [builder.input(Aval((), np.dtype(float))) for _ in range(3)]
    p, q, r = [builder.call(Place((4,), (k,)), [x])[0] for k, x in enumerate((a, b, c))]
    (first,) = builder.call(add, [p, q])
    (last,) = builder.call(add, [first, r])
    (twice,) = builder.call(add, [last, q])
    tape = builder.finish([last, first, twice])
    assert summed_places(tape, reads(tape)) == {}
    for _ in range(CALLS):
        (s, f, t), _ = run(tape, [np.float64(1.0), np.float64(2.0), np.float64(3.0)])
        np.testing.assert_array_equal(s, [1.0, 2.0, 3.0, 0.0])
        np.testing.assert_array_equal(f, [1.0, 2.0, 0.0, 0.0])
        np.testing.assert_array_equal(t, [1.0, 4.0, 3.0, 0.0])


def test_a_part_that_is_repeated_stays_by_itself():
    """one element of a row, in all rows, beside a part of all rows"""
    builder = Builder("repeated")
    x, y = builder.input(Aval((), np.dtype(float))), builder.input(Aval((2,), np.dtype(float)))
    (row,) = builder.call(Place((2,), (1,)), [x])
    (rows,) = builder.call(Place((2, 2), (Slice(0, 2), 0)), [y])
    tape = builder.finish(builder.call(add, [row, rows]))
    assert summed_places(tape, reads(tape)) == {}
    (found,), _ = run(tape, [np.float64(1), np.array([5.0, 6.0])])
    np.testing.assert_array_equal(found, [[5.0, 1.0], [6.0, 1.0]])


def test_what_no_operator_says_is_called():
    """`4 * np.exp(-2 * np.abs(x)) / ...` is an expression that names a module."""
    x = np.array([0.5, 1.0, 2.5])
    g = often(lambda x: np.sum(np.tanh(x)), x)
    before = g.front.fast_hits
    np.testing.assert_allclose(g(x)[1], 1 / np.cosh(x) ** 2)
    assert g.front.fast_hits == before + 1


@pytest.mark.parametrize("value", [-math.inf, math.inf, math.nan])
def test_results_may_be_constants_that_are_not_finite(value):
    def f(x):
        return x**2 if x > 0 else value, [value]

    df = tg.value_and_grad(f, has_aux=True, compile="never")
    for k in range(90):  # so often that entries answer
        (found, (aux,)), _ = df((-1.0) ** k)
        assert found == (value if k % 2 else 1.0) or np.isnan([found, value]).all()
        assert aux == value or np.isnan([aux, value]).all()
