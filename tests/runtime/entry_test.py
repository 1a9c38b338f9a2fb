"""The entry of a compiled variant: what it answers, and that nobody's memory is shared."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError
from tapegrad.runtime import cache
from tapegrad.runtime.entry import Entry, Miss

X = np.array([[0.5, -1.0, 2.0], [1.5, 3.0, -0.5]])


def grad(f, **options):
    return tg.grad(f, compile="always", **options)


class Tagged(np.ndarray):
    """An array of the user's own class."""


# ---- what the generated entry takes apart


def loss(x, *rest, **options):
    """A function of any tree: its arrays and numbers, each squared, and summed."""
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        return sum(map(loss, x))
    return np.sum(x * x)


FAST = {
    "array": ((X,), 2 * X),
    "number": ((3.0,), 6.0),
    "0-d array": ((np.array(3.0),), 6.0),
    "NumPy scalar": ((np.float64(3.0),), 6.0),
    "float32 scalar": ((np.float32(3.0),), np.float32(6.0)),
    "list": (([X, 3.0],), [2 * X, 6.0]),
    "tuple": (((X, 3.0),), (2 * X, 6.0)),
    "tuple of one": (((X,),), (2 * X,)),
    "dict": (({"w": X, "b": 3.0},), {"w": 2 * X, "b": 6.0}),
    "dict with numbers for keys": (({1: X, 0: 3.0},), {0: 6.0, 1: 2 * X}),
    "names like the entry's": (
        ({"a": X, "b": {"a0": X, "a1": 3.0}, "constant": np.float32(3.0), "require": 3.0},),
        {"a": 2 * X, "b": {"a0": 2 * X, "a1": 6.0}, "constant": np.float32(6.0), "require": 6.0},
    ),
    "nested": (({"layers": [(X, X), {"a": X}]},), {"layers": [(2 * X, 2 * X), {"a": 2 * X}]}),
    "None": ((X, None), 2 * X),
    "string": ((X, "it's"), 2 * X),
    "bytes": ((X, b"mean"), 2 * X),
    "boolean": ((X, True), 2 * X),
    "integer": ((X, 3), 2 * X),
    "integer array": ((X, np.arange(3)), 2 * X),
    "empty containers": ((X, (), [], {}), 2 * X),
}


def assert_same_tree(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for k in expected:
            assert_same_tree(found[k], expected[k])
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same_tree(one, other)
    else:
        np.testing.assert_allclose(found, expected)
        assert np.asarray(found).dtype == np.asarray(expected).dtype


@pytest.mark.every(2)
@pytest.mark.parametrize(("args", "expected"), FAST.values(), ids=FAST)
def test_trees_are_answered_by_the_generated_entry(args, expected):
    df = grad(lambda *args: loss(*args))
    for _ in range(3):
        assert_same_tree(df(*args), expected)
    assert len(df.front.recent) == 1
    assert df.front.fast_hits == 2
    assert df.cache_info()._replace(kernels=0) == (2, 1, 1, 1, 0, 1, 0, 0, 0)


# Second calls that the entry of the first must leave to another variant.
OTHERS = {
    "string": ((X, "sum"), (X, "mean")),
    "boolean": ((X, True), (X, False)),
    "boolean and integer": ((X, True), (X, 1)),
    "None and a number": ((X, None), (X, 1.0)),
    "list and tuple": (([X],), ((X,),)),
    "length": (([X],), ([X, X],)),
    "key": (({"a": X},), ({"b": X},)),
    "more keys": (({"a": X},), ({"a": X, "b": X},)),
    "number and 0-d array": ((3.0,), (np.array(3.0),)),
    "dtype": ((X,), (X.astype(np.float32),)),
    "dtype of a 0-d array": ((np.array(3.0),), (np.array(3.0, np.float32),)),
    "shape": ((X,), (X.reshape(3, 2),)),
    "more arguments": ((X,), (X, X)),
}


@pytest.mark.every(2)
@pytest.mark.parametrize(("one", "other"), OTHERS.values(), ids=OTHERS)
def test_the_entry_answers_for_its_own_structure_only(one, other):
    df, slow = grad(lambda *args: loss(*args)), tg.grad(loss, compile="never")
    for args in (one, other, one, other):
        assert_same_tree(df(*args), slow(*args))
    assert df.cache_info().traces == 2


# ---- arrays of any layout


def unaligned(x):
    data = np.zeros(x.nbytes + 1, np.uint8)
    data[1:] = np.frombuffer(x.tobytes(), np.uint8)
    return data[1:].view(x.dtype).reshape(x.shape)


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "non-contiguous": lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
    "Fortran": np.asfortranarray,
    "transposed": lambda x: x.T.copy().T,
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "unaligned": unaligned,
    "read-only": read_only,
    "subclass": lambda x: x.copy().view(Tagged),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("first", [True, False], ids=["first", "after a plain one"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_arrays_of_any_layout(layout, first):
    df = grad(lambda x: np.sum(np.exp(x) @ np.cumsum(x, axis=1).T))
    slow = tg.grad(df.f, compile="never")
    if not first:
        df(X)
    x = layout(X)
    before = np.array(x)
    expected = slow(np.array(x))
    for _ in range(2):
        found = df(x)
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, expected)
        np.testing.assert_allclose(df(X), slow(X))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("warm", [False, True])
def test_another_byte_order(warm):
    df = grad(lambda x: np.sum(x * x))
    if warm:
        df(X)
    found = df(X.astype(X.dtype.newbyteorder()))
    assert found.dtype.isnative
    np.testing.assert_allclose(found, 2 * X)
    np.testing.assert_allclose(df(X), 2 * X)


# ---- whose memory is whose


def arrays_of(tree):
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [a for part in tree for a in arrays_of(part)]
    return [tree] if isinstance(tree, np.ndarray) else []


# Functions whose results are made of few arrays, if nobody takes care.
SHARING = {
    "the argument itself": lambda x, y: (x, x, y),
    "views": lambda x, y: (x.T, x[0], x.reshape(-1)),
    "one value twice": lambda x, y: [x + y] * 2,
    "views of a value": lambda x, y: {"a": (z := x * y), "b": z.T, "c": z[0]},
    "scratch memory": lambda x, y: (np.cumsum(x @ y.T), np.sort(x * y)),
    "a constant": lambda x, y: (np.ones(3), x * 1.0),
}


@pytest.mark.parametrize("f", SHARING.values(), ids=SHARING)
def test_results_are_fresh(f):
    jf = tg.jit(f, compile="always")
    args = (X.copy(), 2 * X)
    calls = [arrays_of(jf(*args)) for _ in range(3)]
    for found in calls:
        for one, other in zip(found, arrays_of(f(*args)), strict=True):
            np.testing.assert_allclose(one, other)
    held = [*args, *(a for found in calls for a in found)]
    for k, one in enumerate(held):
        assert not any(np.shares_memory(one, other) for other in held[:k])


def test_equal_gradients_are_fresh():
    df = grad(lambda x, y: np.sum(x + y), argnums=(0, 1))
    (a, b), (c, d) = df(X, X), df(X, X)
    a[:] = 7.0
    for other in (b, c, d):
        np.testing.assert_array_equal(other, np.ones_like(X))


def test_arguments_are_never_written():
    def f(x, parts):
        y = x
        y += 1.0
        parts["w"][0] = 0.0
        return np.sum(y * parts["w"])

    x, w = X.copy(), X + 1

    def pure(x, w):
        return f(x.copy(), {"w": w.copy()})

    df = grad(pure, argnums=(0, 1))
    for _ in range(3):
        df(x, w)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(w, X + 1)


@pytest.mark.parametrize(
    "layout", [np.array, np.asfortranarray, unaligned], ids=lambda f: f.__name__
)
def test_captured_arrays_are_read_at_each_call(layout):
    w, bias = layout(X), np.array(1.0)
    df = grad(lambda x: np.sum(x * w * bias))
    np.testing.assert_allclose(df(X), X)
    w[0, 1] = 9.0
    bias[()] = 2.0
    for _ in range(2):
        np.testing.assert_allclose(df(X), 2 * w)
    assert df.cache_info().traces == 1


def test_scratch_memory_is_one_threads_own():
    df = grad(lambda x: np.sum(np.tanh(x @ x.T) @ x))
    slow = tg.grad(df.f, compile="never")
    inputs = [np.random.default_rng(k).normal(size=(40, 40)) / 6 for k in range(2)]
    expected = [slow(x) for x in inputs]
    df(inputs[0])
    assert df.front.recent[0].driver.scratch  # there is scratch memory to be shared by mistake
    barrier = threading.Barrier(2)

    def work(k):
        barrier.wait()
        return all(np.allclose(df(inputs[k]), expected[k]) for _ in range(200))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, range(2)))


# ---- other variants, and errors


def test_a_guard_that_fails_goes_to_another_variant_and_back():
    df = grad(lambda x: np.sum(x**2) if x[0] > 0 else np.sum(-x))
    up, down = np.array([1.0, 2.0]), np.array([-1.0, 2.0])
    for _ in range(3):
        np.testing.assert_allclose(df(up), 2 * up)
        np.testing.assert_allclose(df(down), [-1.0, -1.0])
    info = df.cache_info()
    assert (info.traces, info.compiles, info.hits) == (2, 2, 4)
    assert len(df.front.recent) == 2


def test_calls_with_many_shapes_in_turn_find_their_entries_at_once():
    """No other one is asked, and no variant looked up."""
    df = grad(lambda w, x: np.sum(np.tanh(w * x)))
    sizes = range(2, 12)
    for n in [*sizes, *sizes]:
        df(0.5, np.ones(n))
    before = df.front.fast_hits
    for n in [*sizes, *sizes]:
        np.testing.assert_allclose(df(0.5, np.ones(n)), n / np.cosh(0.5) ** 2)
    assert df.front.fast_hits == before + 2 * len(sizes)
    (entry,) = df.front.of_shapes((None, (2,)))
    df.front.drop(entry)
    assert len(df.front.shaped) == len(sizes) - 1
    assert df(0.5, np.ones(2)) == df(0.5, np.ones(2))


def test_the_shapes_of_the_last_calls_are_tried_before_any_are_looked_up(monkeypatch):
    df = grad(lambda x: np.sum(x * x))
    looked_up = []
    known = cache.shapes_of
    monkeypatch.setattr(
        "tapegrad.runtime.derived.shapes_of", lambda args: looked_up.append(1) or known(args)
    )
    lengths = [2, 3, 3, 3, 3, 3, 2, 3, 2, 2, 2, 2, 4, 2]
    for n in lengths:
        np.testing.assert_array_equal(df(np.arange(n + 0.0)), 2.0 * np.arange(n))
    assert df.front.fast_hits == len(lengths) - 3
    assert len(looked_up) == len(lengths) - 5


@pytest.mark.filterwarnings("ignore:.*kinds of arguments")
def test_entries_go_with_their_variants(monkeypatch):
    monkeypatch.setattr(cache, "MAX_SIGNATURES", 3)
    df = grad(lambda x: np.sum(x**2))
    for n in range(2, 8):
        np.testing.assert_array_equal(df(np.ones(n)), np.full(n, 2.0))
    assert list(df.front.shaped) == [((n,),) for n in (5, 6, 7)]


@pytest.mark.filterwarnings("ignore:.* calls in a row")
def test_more_paths_than_are_tried_first():
    df = grad(lambda x: math.prod([x] * int(x)))
    for _ in range(2):
        for n in range(1, 7):
            assert df(n + 0.5) == pytest.approx(n * (n + 0.5) ** (n - 1))
    assert df.cache_info().traces == 6


def test_an_index_out_of_range_is_numpys_error():
    df = grad(lambda x, i: np.sum(x[i] ** 2))
    good = np.array([0, 2])
    expected = np.array([2.0, 0.0, 6.0])
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(df(x, good), expected)
    for bad in ([0, 3], [-4, 0], [10**15, 0]):
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 3"):
            df(x, np.array(bad))
        np.testing.assert_allclose(df(x, good), expected)
    assert df.cache_info().variants == 1


def test_keyword_arguments():
    df = grad(lambda x, *, scale, w=None: np.sum(x * scale if w is None else x * w))
    for _ in range(2):
        np.testing.assert_allclose(df(X, scale=2.0), np.full_like(X, 2.0))
        np.testing.assert_allclose(df(X, scale=3.0), np.full_like(X, 3.0))
        np.testing.assert_allclose(df(X, scale=3.0, w=X), X)
    assert df.cache_info().traces == 2


def test_machine_code_that_decides_otherwise(monkeypatch):
    """Its numbers may differ from NumPy's in the last bits; where a tie falls the other way than in
    the trace, the tape is played."""
    refuse = []

    def call_flat(self, leaves, once=Entry.call_flat):
        if refuse:
            raise Miss
        return once(self, leaves)

    monkeypatch.setattr(Entry, "call_flat", call_flat)
    df = tg.grad(lambda x: np.sum(x**2) if np.sum(np.tanh(x)) > 0 else np.sum(x), compile="always")
    x = np.linspace(0.5, 1.0, 7)
    refuse.append(True)
    np.testing.assert_allclose(df(x), 2 * x, rtol=1e-14)
    refuse.clear()
    np.testing.assert_allclose(df(x), 2 * x, rtol=1e-14)
    assert df.cache_info().compiles == 1


@pytest.mark.parametrize(
    "lay",
    [
        np.asfortranarray,
        lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
        lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
        lambda x: x.astype(x.dtype.newbyteorder()),
    ],
)
def test_arrays_in_other_orders_are_taken_at_once(lay):
    """Each has its own variant, whose entry says how it lies; another one misses."""
    x, y = np.arange(12.0).reshape(3, 4), np.arange(12.0, 24.0).reshape(3, 4)
    df = tg.grad(lambda x, y: np.sum(np.tanh(x) * y), (0, 1), compile="always")
    expected = df(x, y)
    df(lay(x), y)
    before = df.front.fast_hits
    for args in ((lay(x), y), (lay(x), y), (x, y), (lay(x), y)):
        for found, known in zip(df(*args), expected, strict=True):
            np.testing.assert_allclose(found, known, 1e-12)
    assert df.front.fast_hits == before + 4
    with pytest.raises(ValueError, match="broadcast"):
        df(lay(x)[:2], y)


FAULTS = """
import resource
import numpy as np
import tapegrad as tg

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

f = tg.jit(lambda x: [x + k for k in range(1, 7)], compile="always")
x = np.ones(100_000)
for _ in range(5):
    f(x)
before = faults()
for _ in range(20):
    f(x)
print((faults() - before) // 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others keep memory otherwise")
def test_results_lie_where_earlier_ones_were():
    """Else their 1,200 pages would be taken from the system again."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    found = subprocess.run(
        [sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True
    )
    assert int(found.stdout) < 50


# ---- linear maps


def fitted(w, n, data):
    """Of arguments and results nested in each other, some of which have no derivative."""
    return {"name": "fit", "value": w * n, "rest": [data["x"] ** 2, 3], "count": np.arange(3)}


@pytest.mark.parametrize("compile", ["always", "never"])
def test_linear_maps_are_answered_by_entries(compile, monkeypatch):
    """What makes them is, and they themselves: nothing is looked up at a call."""
    args = 2.0, 3, {"x": np.array([1.0, 2.0])}
    ct = {"name": None, "value": 1.0, "rest": [np.ones(2), None], "count": None}
    for k in range(40):
        if k == 39:
            monkeypatch.delattr("tapegrad.runtime.variant.Variant.answer")
            monkeypatch.delattr("tapegrad.runtime.pullback.flatten_up_to")
            monkeypatch.delattr("tapegrad.runtime.pullback.flatten_each")
        value, pull = tg.vjp(fitted, *args, compile=compile)
        same, push = tg.linearize(fitted, *args, compile=compile)
        assert value["value"] == same["value"] == 6.0
        along, none, inside = pull(ct)
        assert (along, none, inside["x"].tolist()) == (3.0, None, [2.0, 4.0])
        moved = push(1.0, None, {"x": np.ones(2)})
        assert (moved["name"], moved["value"]) == (None, 3.0)
        assert moved["rest"][0].tolist() == [2.0, 4.0]


@pytest.mark.parametrize("compile", ["always", "never"])
def test_linear_maps_hold_the_arguments_as_they_were(compile):
    for _ in range(40):
        x, ct = np.arange(3.0), np.full(3, 2.0)
        y, pull = tg.vjp(lambda x: np.exp(x) * x, x, compile=compile)
        z, push = tg.linearize(np.exp, x, compile=compile)
        one, other = 2 * np.exp(x) * (1 + x), 2 * np.exp(x)
        x[:], y[:], z[:] = 7.0, 8.0, 9.0
        for _ in range(2):
            (along,), moved = pull(ct), push(ct)
            np.testing.assert_allclose(along, one)
            np.testing.assert_allclose(moved, other)
            along[:], moved[:] = 0.0, 0.0
        assert ct.tolist() == [2.0, 2.0, 2.0]


def test_linear_maps_of_results_that_are_one_value():
    y, pull = tg.vjp(lambda x: (np.sin(x),) * 2, 0.5, compile="always")
    assert y[0] == y[1]
    for _ in range(3):
        np.testing.assert_allclose(pull((1.0, 2.0))[0], 3 * np.cos(0.5))


@pytest.mark.parametrize("transform", [tg.vjp, tg.linearize])
def test_a_mode_that_is_none_is_an_error_of_linear_maps_too(transform):
    for mode in ("later", ["auto"]):
        with pytest.raises(ArgumentError, match="compile is"):
            transform(np.sin, 1.0, compile=mode)


@pytest.mark.parametrize("compile", ["always", "never"])
def test_a_function_that_is_traced_may_return_linear_maps(compile):
    """They are trees of what they hold."""

    def f(x):
        return np.sin(x) * x

    maps = tg.jit(lambda x: (tg.vjp(f, x)[1], tg.linearize(f, x)[1]), compile=compile)
    for pull, push in (maps(X), maps(X)):
        ct = np.ones(X.shape)
        np.testing.assert_allclose(pull(ct)[0], np.sin(X) + X * np.cos(X))
        np.testing.assert_allclose(push(ct), np.sin(X) + X * np.cos(X))
