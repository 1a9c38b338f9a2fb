"""Plain arrays that a run has made from plain ones: they take traced values, and so do all who hold
them. What isn't proven to be the run's own is refused."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import operator
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import tapegrad
from tapegrad import errors, grad, value_and_grad
from tapegrad.tracing.memory.strides import views_between

STATE = np.array([0.3, 0.7, 1.1, 0.2, 0.9])
TIMES = np.linspace(0, 1, 5)
MATRIX = np.eye(3) + 0.1 * np.arange(9.0).reshape(3, 3)
TABLE = np.arange(15.0).reshape(5, 3) / 7
WEIGHTS = np.arange(1.0, 6.0)
SEEDED = np.random.default_rng  # which loads that module
COMPILE = pytest.mark.parametrize("compile", ["never", "always"])


def check(f, compile="never", points=(0.8, 0.9, 1.1), rtol=1e-6):
    """Value and slope are those of plain NumPy at each of these points, in one trace."""
    derived = value_and_grad(f, compile=compile)
    for c in points:
        value, slope = derived(c)
        assert value == pytest.approx(f(c), rel=1e-13)
        h = 1e-6
        assert slope == pytest.approx((f(c + h) - f(c - h)) / (2 * h), rel=rtol, abs=1e-7)
    return derived.cache_info().traces


def weighted(*arrays):
    return sum(np.sum(x * x * WEIGHTS[: len(x)].reshape(-1, *[1] * (x.ndim - 1))) for x in arrays)


MADE: dict[str, Any] = {
    "copy": lambda: STATE.copy(),
    "arithmetic": lambda: STATE * 1.0,
    "integers": lambda: STATE + 0,
    "reflected": lambda: 1.0 - STATE,
    "negative": lambda: -STATE,
    "abs": lambda: abs(STATE),
    "divmod": lambda: divmod(STATE, 0.4)[1],
    "astype": lambda: STATE.astype(float),
    "flatten": lambda: TABLE.flatten(),
    "ravel": lambda: (TABLE * 1).ravel(),
    "indices": lambda: STATE[[0, 2, 1]],
    "mask": lambda: STATE[STATE > 0.25],
    "view": lambda: STATE.copy()[1:],
    "comparison": lambda: 1.0 + (TIMES < 0.5),
    "ufunc": lambda: np.cos(TIMES),
    "where": lambda: np.where(STATE > 0.5, STATE, 1.0),
    "tile": lambda: np.tile(STATE, 2),
    "repeat": lambda: np.repeat(STATE, 2),
    "concatenate": lambda: np.concatenate([STATE, TIMES]),
    "stack": lambda: np.stack([STATE, TIMES]),
    "cumsum": lambda: np.cumsum(STATE),
    "sort": lambda: np.sort(STATE),
    "pad": lambda: np.pad(STATE, 1),
    "roll": lambda: np.roll(STATE, 1),
    "outer": lambda: np.outer(STATE, TIMES),
    "einsum": lambda: np.einsum("i,j->ij", STATE, TIMES),
    "product": lambda: TABLE @ MATRIX,
    "transposed": lambda: TABLE.T.copy(),
    "fortran": lambda: np.asfortranarray(TABLE) * 1,
    "interp": lambda: np.interp(TIMES, TIMES, STATE),
    "gradient": lambda: np.gradient(STATE),
    "polyfit": lambda: np.polyfit(TIMES, STATE, 3),
    "histogram": lambda: np.histogram(STATE, 3)[1],
    "meshgrid": lambda: np.meshgrid(TIMES, STATE)[0],
    "inverse": lambda: np.linalg.inv(MATRIX),
    "factor": lambda: np.linalg.qr(MATRIX)[1],
    "deepcopy": lambda: copy.deepcopy(STATE),
    "shallow": lambda: copy.copy(STATE),
    "random": lambda: SEEDED(3).normal(size=5),
    "legacy random": lambda: np.random.RandomState(1).rand(5),
    "from a function": lambda: np.fromfunction(lambda i: i * 1.0, (5,)),
}


@pytest.mark.parametrize("name", MADE)
def test_whatever_makes_an_array_it_takes_traced_values(name):
    def f(c, make=MADE[name]):
        u = make()
        u[1:] = c * u[:-1]
        u[0] *= c
        return np.sum(np.sin(u))

    assert check(f) == 1


@COMPILE
def test_many_writes_are_as_in_a_made_array(compile):
    """Steps in time, from a state that isn't an argument."""

    def f(c):
        u = STATE.copy()
        for _ in range(40):
            u[1:-1] = u[1:-1] + 0.1 * c * (u[2:] - 2 * u[1:-1] + u[:-2])
        return weighted(u)

    assert check(f, compile) == 1


def test_what_an_array_was_made_of_is_read_at_each_call():
    """Another state from outside makes another result."""
    state = STATE.copy()

    def f(c):
        u = state.copy()
        u[0] = c * u[1]
        return np.sum(u * u)

    df = grad(f)
    assert df(2.0) == pytest.approx(4 * 0.7**2)
    state[1] = 3.0
    assert df(2.0) == pytest.approx(4 * 9.0)


# ---- who holds one


@dataclasses.dataclass
class Model:
    state: Any
    steps: int = 0


class Slotted:
    __slots__ = ("others", "state")


class Filling:
    def __init__(self, c):
        self.state = STATE.copy()
        self.state[0] = c
        self.rest = self.state[1:]
        self.rest[0] = c * c


Pair = collections.namedtuple("Pair", "first second")


def everywhere(c):
    u = STATE.copy()
    v = u[1:]
    held = {"u": u, "rest": [v, (u, v)]}

    def read():
        return u.sum()

    u[0] = c
    v[0] = c * c
    held["rest"][1][1][1] = 3 * c
    return weighted(u, v, held["u"], held["rest"][0], held["rest"][1][1]) + read()


def objects(c):
    model, slotted, filling = Model(STATE.copy()), Slotted(), Filling(c)
    other = dataclasses.replace(model, steps=2)
    slotted.state = STATE * 2
    slotted.others = [slotted.state]
    model.state[1] = c
    slotted.others[0][2] = c * c
    filling.rest[1] = c
    return weighted(model.state, other.state, slotted.state, filling.state, filling.rest)


def tuples(c):
    pair, queue = Pair(STATE.copy(), STATE * 2), collections.deque([STATE * 3, STATE * 4], maxlen=2)
    first, _ = pair
    first[0] = c
    pair.second[1] = c * c
    queue[0][1] = c
    queue.append(queue[0])
    return weighted(*pair, *queue)


def functions(c):
    u = STATE.copy()

    def put(k, where=u, *, again=u):
        where[k] = c * k
        return again[k]

    def recursive(x, k):
        if k == 0:
            return np.sum(x**2)
        x[k] = c * k + x[k - 1]
        return recursive(x, k - 1)

    times = functools.partial(np.multiply, u)
    return put(1) + put(2) + recursive(u, 4) + np.sum(times(u))


def generators(c):
    u = STATE.copy()

    def parts():
        w = u
        for k in range(3):
            w[k] = c * k
            yield np.sum(w**2)

    def read():
        for k in range(3):
            yield u[k]

    reading = read()
    total = next(reading) * c
    for part in parts():
        total = total + part
    return total + next(reading)


def iterators(c):
    x, y = TABLE.copy(), TABLE * 2
    for row in x:
        row[0] = c * row[1]
    for k, row in enumerate(y):
        row[1] = c * k
    for a, b in zip(x, y, strict=True):
        a[2] = c * b[1]
    for row in reversed(y):
        row[0] = c * row[1]
    return np.sum(x * y * TABLE)


def named(c):
    def filled(**kw):
        kw["u"][0] = c
        return weighted(kw["u"])

    def listed(*args):
        args[0][1] = c
        return weighted(*args)

    return filled(u=STATE.copy()) + listed(STATE.copy(), STATE * 2)


def remembered(c):
    known: dict[int, Any] = {}

    def get(k):
        if k not in known:
            known[k] = STATE * k
        return known[k]

    get(2)[0] = c
    return weighted(get(2), get(3))


def used_before(c):
    """What a tape has of it stays what it was then."""
    u = STATE.copy()
    v = u[1:]
    total = np.sum(c * u) + np.sum(c * v)
    u[0] = 5.0
    v[2] = 1.0
    u *= 2
    total = total + np.sum(c * u) + np.sum(c * v)
    u.sort()
    u[1] = c
    return total + np.sum(c * u * WEIGHTS) + np.sum(v * v)


def branches(c):
    x, u = np.sin(9 * TIMES) * c, STATE.copy()
    for i in range(5):
        if x[i] > 0:
            u[i] = x[i]
        else:
            u[i] = u[i - 1] * c
    return weighted(u)


HELD = [everywhere, objects, tuples, functions, generators, iterators, named, remembered]
HELD += [used_before, branches]


@pytest.mark.every(8)
@COMPILE
@pytest.mark.parametrize("f", HELD)
def test_all_who_hold_it_see_what_is_written(f, compile):
    check(f, compile)


def test_one_object_stays_one():
    def f(c):
        u = STATE.copy()
        w, v = u, u[1:]
        u[0] = c
        return np.sum(u) if w is u and v.base is u else 0.0 * c

    check(f)


# ---- ways of writing


def by_functions(c):
    u, v, w, z = (STATE * k for k in (1, 2, 3, 4))
    np.multiply(u, c, out=u)
    np.add(c, STATE, v)
    np.copyto(w, c * TIMES)
    np.put(w, [1, 2], c * c)
    np.add.at(z, [1, 1], c)
    np.putmask(z, STATE > 0.5, c)
    np.clip(c * STATE, 0.1, 0.5, u)
    np.add.accumulate(c * STATE, out=v)
    (c * TABLE).sum(axis=1, out=w)
    np.copyto(*(z, c * z))
    m = MATRIX.copy()
    np.fill_diagonal(m, c)
    q, r = STATE * 1, STATE * 1
    np.divmod(STATE * c, 0.3, out=(q, r))
    return weighted(u, v, w, z, r) + np.sum(m * m * MATRIX)


def by_methods(c):
    u, v, w = STATE.copy(), STATE * 2, STATE * 3
    u.fill(c)
    v.put([1, 2], [c, c * c])
    put = v.put
    put([3], [c])
    w.__setitem__(1, c)
    w.__setitem__(slice(2, 4), c * c)
    w.__imul__(c)
    operator.setitem(w, 0, c)
    operator.iadd(w, c)
    return weighted(u, v, w)


def by_views(c):
    m, n, u = MATRIX.copy(), TABLE.copy(), STATE.copy()
    m.T[0] = c
    m[1][2] = c * c
    m.flat[3] = c
    m.flat[5:] *= c
    np.einsum("ii->i", m)[...] *= c
    part = n[::-2, 1:][:, ::-1]
    part[0] = c
    n.reshape(3, 5)[1] += c
    n.ravel()[4:7] = c * c
    u[None, :, None][0, 1, 0] = c
    u[:, None][2] = c * c
    return np.sum(m**3 * MATRIX) + np.sum(n * n * TABLE) + weighted(u)


def by_statements(c):
    u = STATE.copy()
    u[1:3] = [c, c * c]
    u[[3, 4]] = (c, 1.0)
    u[2] += c
    u[:2] -= c * c
    u[0], u[1] = c * u[1], c * u[0]
    u[TIMES > 0.6] *= c
    w = u.view()
    w[...] = c * w
    w /= 1.0 + c
    m = MATRIX.copy()
    m.flat = c
    return weighted(u, w) + np.sum(m)


@pytest.mark.every(8)
@COMPILE
@pytest.mark.parametrize("f", [by_functions, by_methods, by_views, by_statements])
def test_all_ways_of_writing(f, compile):
    check(f, compile)


def test_a_derivative_inside_writes_to_its_own():
    def inner(a):
        u = STATE.copy()
        u[1:] = a * u[:-1]
        return weighted(u)

    def outer(c):
        w = STATE * 2
        w[0] = c
        return grad(inner)(c * c) + np.sum(w * w)

    check(outer)


def test_rounds_write_to_what_they_make():
    def f(c, scan=tapegrad.scan):
        def round_(carry, k):
            u = STATE.copy()
            u[0] = carry
            return 0.1 * np.sum(u * u), u[0]

        last, each = scan(round_, c, np.arange(4.0))
        return last + np.sum(each)

    def plainly(round_, carry, xs):
        each = []
        for x in xs:
            carry, y = round_(carry, x)
            each.append(y)
        return carry, np.array(each)

    value, slope = value_and_grad(f)(0.8)
    assert value == pytest.approx(f(0.8, plainly))
    expected = (f(0.8 + 1e-6, plainly) - f(0.8 - 1e-6, plainly)) / 2e-6
    assert slope == pytest.approx(expected, rel=1e-6)


# ---- what is refused


SHOWN = np.frombuffer(bytearray(24))  # memory that is another object's


def outside(c):
    SHOWN[0] = c


def outside_view(c):
    view = SHOWN[1:]
    view += c


def outside_method(c):
    SHOWN.fill(c)


def watched(c):
    u = STATE.copy()
    seen = weakref.ref(u)
    u[0] = c
    return seen


def lent(c):
    u = STATE.copy()
    seen = memoryview(u)
    u[0] = c
    return seen


def of_objects(c):
    u = STATE.copy()
    held = np.empty(1, object)
    held[0] = u
    u[0] = c


def called_by_c(c):
    def put(u):
        u[0] = c

    list(map(put, [STATE.copy()]))


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (outside, "whose memory belongs to an object of type"),
        (outside_view, "plain NumPy array"),
        (outside_method, "by x.fill"),
        (watched, r"weak reference, made before \(own_arrays_test.py:\d+: `u = STATE.copy"),
        (lent, r"code has which isn't traced, made before \(own_arrays_test.py:\d+: `u = STATE"),
        (of_objects, r"code has which isn't traced, made before"),
        (called_by_c, r"code has which isn't traced"),
    ],
)
def test_what_others_may_have_is_refused(f, why):
    """The message says why, and which line made the array; nothing was written to it."""
    before = STATE.copy()

    def run(c):
        f(c)
        return c

    with pytest.raises(errors.ConversionError, match=why):
        grad(run)(0.5)
    np.testing.assert_array_equal(STATE, before)


def test_views_are_told_from_where_they_lie():
    """What is found between an array and a view of it gives that view."""
    x = np.arange(24.0).reshape(2, 3, 4)
    f = np.asfortranarray(x)
    for whole in (x, f, x.reshape(6, 4), np.arange(24.0)):
        parts = [whole, whole[:], whole[1:], whole[::-1], whole[..., 0], whole[..., ::-2], whole.T]
        parts += [whole[None], whole[..., None], whole[1:2], whole.reshape(-1, 2)[::2]]
        for part in parts:
            if part.base is not whole and part is not whole:
                continue
            found = views_between(whole, part)
            assert found is not None
            y: Any = whole
            for view in found:
                y = view.evaluate(y)
            assert y.__array_interface__["data"] == part.__array_interface__["data"]
            np.testing.assert_array_equal(y, part)
    assert views_between(x, x.view(np.int64)) is None
    assert views_between(x, np.broadcast_to(x, (5, 2, 3, 4))) is None
    assert views_between(x, np.lib.stride_tricks.sliding_window_view(x, 2, 2)) is None


def test_what_is_read_from_files(tmp_path):
    """An array that is compared with what a file or a pickle holds later is the run's own, too."""
    path = tmp_path / "table.txt"
    path.write_text("1 2 3 4 5\n")
    stored = pickle.dumps({"a": STATE, "b": [STATE + 1.0]})

    def f(c):
        u, v = np.loadtxt(path), np.genfromtxt(path)
        w = np.fromfile(path, sep=" ")
        u[1], v[2:], w[0] = c, c * c, 1 / c
        held = pickle.loads(stored)
        held["a"][1] = np.sin(c)
        held["b"][0][0] *= c
        return weighted(u, v, w, held["a"], held["b"][0])

    assert check(f) == 1
    assert check(f, "always") == 1
    slope = grad(f)
    slope(0.8)
    path.write_text("2 7 1 8 2\n")
    h = 1e-6
    assert slope(0.8) == pytest.approx((f(0.8 + h) - f(0.8 - h)) / (2 * h), rel=1e-6)


IN_PLACE = {
    "argmax": lambda x: np.eye(4).argmax(0, np.zeros(4, int)) * x,
    "np.argmin": lambda x: np.argmin(np.eye(4), 0, np.zeros(4, int)) * x,
    "cumsum": lambda x: np.eye(4).cumsum(0, None, np.zeros((4, 4))) @ x,
    "np.cumsum": lambda x: np.cumsum(WEIGHTS[:4], 0, None, np.zeros(4)) * x,
    "plain cumsum": lambda x: WEIGHTS[:4].cumsum(out=np.zeros(4)) * x,
    "plain take": lambda x: WEIGHTS.take([0, 1, 2, 3], None, np.zeros(4)) * x,
    "plain clip": lambda x: WEIGHTS[:4].clip(2, 3, np.zeros(4)) * x,
    "plain argmax": lambda x: MATRIX.argmax(0, out=np.zeros(3, int)) * x[:3],
    "sum": lambda x: np.sum(np.eye(4), 0, None, np.zeros(4)) * x,
    "traced": lambda x: np.cumsum(x, 0, None, np.zeros(4)) * x,
    "dot": lambda x: np.dot(np.eye(4), WEIGHTS[:4], np.zeros(4)) * x,
    "einsum": lambda x: np.einsum("ij,j->i", np.eye(4), WEIGHTS[:4], out=np.zeros(4)) * x,
}


@COMPILE
@pytest.mark.parametrize("name", IN_PLACE)
def test_results_are_written_to_arrays_by_place(name, compile):
    """`out` may be an argument by its place: it was left as it was."""
    f = IN_PLACE[name]
    x = np.array([0.4, -0.3, 1.1, 0.8])
    np.testing.assert_allclose(tapegrad.jit(f, compile=compile)(x), f(x), rtol=1e-15)
    written = tapegrad.jit(lambda x: (np.cumsum(x, 0, None, y := np.zeros(4)), y * x)[1])
    np.testing.assert_allclose(written(x), np.cumsum(x) * x, rtol=1e-15)
