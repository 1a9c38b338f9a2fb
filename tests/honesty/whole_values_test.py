"""Values that are handed over whole"""

from __future__ import annotations

import array
import builtins
import collections
import copy
import datetime
import random
import threading
import types
from collections import OrderedDict, UserList, deque
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pytest
from tests.honesty.check import refused

from tapegrad import grad, jit, value_and_grad
from tapegrad.errors import UnsupportedError

X = np.array([0.7, 1.3, -0.43])


class Index:
    """An integer of the user's making."""

    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n


class Interface:
    """Memory of another array's, by NumPy's protocol."""

    def __init__(self, x):
        self.__array_interface__ = x.__array_interface__
        self.kept = x


class Module(types.ModuleType):
    scale = property(lambda self: 9.0)


def assigned(key, value):
    """Zeros, some of which are replaced."""
    a = np.zeros(3)
    a[key] = value
    return a


def traced_assigned(x, key, value):
    a = x * 2
    a[key] = value
    return a


def flat(x, value):
    a = x * 2
    a.flat = value
    return a


def plain_flat(value):
    a = np.zeros(3)
    a.flat = value
    return a


def reshaped(shape):
    a = np.arange(3.0)
    a.shape = shape
    return a


def spliced(values):
    some = [1.0, 2.0, 3.0]
    some[:2] = values
    return some


def caught(kinds):
    try:
        return {}["a"]
    except kinds:
        return 2.0
    except LookupError:
        return 3.0


def programs():
    """What takes a value from outside whole, the value, and what changes in it."""

    def set_first(v):
        v[0] = 5.0

    def set_index(v):
        v[0] = 2

    def flip(v):
        v[0], v[1] = v[1], v[0]

    yield "a[:2] = array", np.array([0.0, 1.0]), lambda x, v: assigned(slice(2), v) * x, set_first
    yield "a[:] = list", [0.0, 1.0, 2.0], lambda x, v: assigned(slice(None), v) * x, set_first
    yield (
        "a[1] = row[0]",
        np.arange(4.0).reshape(2, 2),
        lambda x, v: assigned(slice(2), v[0]) * x,
        (lambda v: v[0].fill(5.0)),
    )
    yield (
        "a[[2]] = [array]",
        np.array(1.0),
        lambda x, v: assigned([2], [v]) * x,
        lambda v: v.fill(5),
    )
    yield (
        "a[:] = array.array",
        array.array("d", [0.0, 1.0, 2.0]),
        lambda x, v: assigned(slice(None), v) * x,
        set_first,
    )
    yield "a[array] = 5", np.array([0]), lambda x, v: assigned(v, 5.0) * x, set_index
    yield "a[list] = 5", [0], lambda x, v: assigned(v, 5.0) * x, set_index
    yield "a[mask] = 5", np.array([True, False, True]), lambda x, v: assigned(v, 5.0) * x, flip
    yield "a[[mask]] = 5", [True, False, True], lambda x, v: assigned(v, 5.0) * x, flip
    yield "a.flat = list", [0.0, 1.0, 2.0], lambda x, v: plain_flat(v) * x, set_first
    yield "a.shape = list", [3, 1], lambda x, v: np.sum(x) * reshaped(v).shape[0], flip
    yield "list[:2] = list", [0.0, 1.0], lambda x, v: np.array(spliced(v)) * x, set_first
    yield "x[list]", [0, 1], lambda x, v: x[v], set_index
    yield "x[list, ]", [0, 1], lambda x, v: x[v,], set_index
    yield "x[[list]]", [0, 1], lambda x, v: x[[v, v]], set_index
    yield "x[mask]", [True, False, False], lambda x, v: x[v] ** 2, flip
    yield "x[array]", np.array([0, 1]), lambda x, v: x[v], set_index
    yield "y[list] = 0", [0], lambda x, v: traced_assigned(x, v, 0.0) * x, set_index
    yield "y[:2] = list", [1.0, 2.0], lambda x, v: traced_assigned(x, slice(2), v) * x, set_first
    yield "y.flat = list", [1.0, 2.0, 3.0], lambda x, v: flat(x, v) * x, set_first
    yield (
        "x[:0-d array]",
        np.array(1),
        lambda x, v: x[:v] ** 2,
        (lambda v: v.fill(2)),
    )
    yield "list[:0-d array]", np.array(1), lambda x, v: x * len([1, 2, 3][:v]), lambda v: v.fill(2)
    yield (
        "array[:0-d array]",
        np.array(1),
        lambda x, v: x * sum(np.ones(3)[:v]),
        (lambda v: v.fill(2)),
    )
    yield "x[:index]", Index(1), lambda x, v: x[:v] ** 2, lambda v: setattr(v, "n", 2)
    yield "x[index]", Index(1), lambda x, v: x[v] ** 2, lambda v: setattr(v, "n", 2)
    yield "slice(index)", Index(1), lambda x, v: x[slice(None, v)], lambda v: setattr(v, "n", 2)
    yield (
        "a slice of an index",
        slice(None, Index(1)),
        lambda x, v: x[v],
        (lambda v: setattr(v.stop, "n", 2)),
    )
    yield (
        "np.roll(x, index)",
        Index(1),
        lambda x, v: np.roll(x, v) * X,
        lambda v: setattr(v, "n", 2),
    )
    yield (
        "np.sum(axis=index)",
        Index(0),
        lambda x, v: np.sum(np.outer(x, X), axis=v) * X,
        (lambda v: setattr(v, "n", 1)),
    )
    yield "UserList", UserList([1.0, 2.0, 3.0]), lambda x, v: np.multiply(x, v), set_first
    memory = np.arange(6.0)
    yield "view.base", memory[2:], lambda x, v: x * v.base[0], lambda v: set_first(v.base)
    yield "sum of view.base", memory[2:], lambda x, v: x * np.sum(v.base), lambda v: flip(v.base)
    yield (
        "__array_interface__",
        Interface(np.arange(3.0)),
        lambda x, v: x * np.array(v, copy=False)[0],
        (lambda v: set_first(v.kept)),
    )
    yield (
        "apply_along_axis",
        [1.0],
        lambda x, v: np.apply_along_axis(lambda r: np.sum(r**2) * v[0], 0, np.outer(x, x)),
        set_first,
    )
    yield (
        "an array of other shape in a list",
        [np.ones((2, 1))],
        lambda x, v: x * len(v[-1]),
        (lambda v: v.__setitem__(0, np.ones((1, 2)))),
    )


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # from NumPy 2.5 on
@pytest.mark.parametrize(
    ("value", "f", "change"), [pytest.param(v, f, c, id=n) for n, v, f, c in programs()]
)
def test_contents_that_change(value, f, change):
    """an array, list or object from outside is a key, a bound, a value that is assigned or an
    operand, and what it holds changes in place -> as plain NumPy computes at each call"""
    df = value_and_grad(lambda x: np.sum(f(x, value)), compile="never")
    for changed in (False, True):
        if changed:
            change(value)
        for _ in range(2):
            found, gradient = df(X)
            np.testing.assert_allclose(found, np.sum(f(X, value)))
            steps = 1e-6 * np.eye(3)
            slopes = [(np.sum(f(X + h, value)) - np.sum(f(X - h, value))) / 2e-6 for h in steps]
            np.testing.assert_allclose(gradient, slopes, atol=1e-8)


KINDS = (KeyError,)
NUMBERS = (float, str)


class Same:
    """All of these are equal."""

    def __init__(self, scale):
        self.scale = scale

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def replaced(*values):
    """A list, and how its items are replaced, from the first on."""
    held = list(values)
    return held, lambda *others: held.__setitem__(slice(len(others)), others)


def alike():
    """What a function finds, and equal values that aren't the same."""

    def ordered(s):
        s.clear()
        s.update([16, 8])

    numbers = {8, 16}
    yield "the order of a set", lambda: float(next(iter(numbers))), lambda: ordered(numbers)
    keyed = {Same(1.0): 1.0}

    def rekey():
        keyed.clear()
        keyed[Same(2.0)] = 1.0

    yield "an equal key", lambda: next(iter(keyed)).scale, rekey
    aware = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
    later = datetime.timezone(datetime.timedelta(hours=1))
    for before, after, read in (
        (range(0), range(5, 2), lambda x: x.start + 1),
        (range(0, 4, 2), range(0, 3, 2), lambda x: x.stop),
        (slice(1, 2), slice(1, 2.0), lambda x: len(repr(x))),
        (slice(0, 2), slice(False, 2), lambda x: 1.0 + (x.start is False)),
        (Decimal("1.0"), Decimal("1.00"), lambda x: len(str(x))),
        (aware, aware.astimezone(later), lambda x: x.hour),
        (datetime.time(1), datetime.time(1, fold=1), lambda x: 1.0 + x.fold),
        (complex(1, 0.0), complex(1, -0.0), lambda x: np.copysign(2.0, x.imag)),
        (np.dtype("f8"), np.dtype("f8", metadata={"a": 1}), lambda x: 2.0 + bool(x.metadata)),
    ):
        held, replace = replaced(before)
        yield repr(after), lambda r=read, h=held: r(h[0]), lambda s=replace, v=after: s(v)
    twice = [1.0]
    pair, repair = replaced(twice, twice)

    def grown():
        p, q = pair
        p.append(2.0)
        count = len(q)
        p.pop()
        return count

    yield "one list twice", grown, lambda: repair(twice, [1.0])
    other, reother = replaced([1.0], [1.0])
    yield (
        "two lists, then one",
        lambda: (other[0].append(2.0), len(other[1]), other[0].pop())[1],
        lambda: reother(*2 * [[1.0]]),
    )
    row = [1.0]
    rows, rerow = replaced(row, row)
    yield "their ids", lambda: len({id(r) for r in rows}), lambda: rerow(row, [1.0])
    copies, recopy = replaced(row, row)

    def copied():
        m = copy.deepcopy(copies)
        m[0].append(5.0)
        return len(m[1])

    yield "a deep copy", copied, lambda: recopy(row, [1.0])
    nan = float("nan")
    nans, renan = replaced(nan)
    yield "a NaN", lambda: 1.0 + (nan in nans), lambda: renan(float("nan"))
    made = collections.defaultdict(float)
    yield (
        "default_factory",
        lambda: 1.0 + copy.copy(made)["a"],
        lambda: setattr(made, "default_factory", lambda: 3.0),
    )
    yield "a builtin that appears", builtin, lambda: setattr(builtins, "appearing", 5.0)


def builtin():
    try:
        return appearing
    except NameError:
        return 2.0


@pytest.mark.parametrize(("read", "change"), [pytest.param(r, c, id=n) for n, r, c in alike()])
def test_equal_values_that_are_not_the_same(read, change):
    """a value is replaced by an equal one that can be told apart; the order of a set, which of
    several lists are one list, which NaN it is -> as plain NumPy computes at each call"""
    df = grad(lambda x: x * read(), compile="never")
    before = read()
    for _ in range(2):
        assert df(1.0) == before
    change()
    assert read() != before
    for _ in range(2):
        assert df(1.0) == read()


def test_writes_that_come_to_be_refused():
    """an array that the function writes to becomes read-only, or writeable again; a class gets a
    property where the function sets an attribute -> as plain NumPy does at each call"""
    a = np.arange(3.0) + 1.0

    def f(x):
        try:
            a[0] = 3.0
        except ValueError:
            return 3.0 * x
        return 2.0 * x

    def added(x):
        try:
            np.multiply(a, 1.0, out=a)
            np.copyto(a, a.copy())
        except ValueError:
            return 3.0 * x
        return 2.0 * x

    class Held:
        rate = 1.0

    held = Held()

    def g(x):
        try:
            held.rate = 1.0
        except AttributeError:
            return 3.0 * x
        return 2.0 * x

    df, dg = grad(f, compile="never"), grad(g, compile="never")
    for writeable in (True, True, False, False, True):
        a.flags.writeable = writeable
        assert df(1.0) == (2.0 if writeable else 3.0)
    for first in (True, False):
        da = grad(added, compile="never")
        for writeable in (first, first, not first, first):
            a.flags.writeable = writeable
            assert da(1.0) == (2.0 if writeable else 3.0)
    assert [dg(1.0), dg(1.0)] == [2.0, 2.0]
    Held.rate = property(lambda self: 1.0)
    assert dg(1.0) == 3.0


def test_the_thread_that_calls():
    """`threading.current_thread()` -> traced anew in another one"""

    def f(x):
        return x * (2.0 if threading.current_thread() is threading.main_thread() else 3.0)

    df, found = grad(f, compile="never"), []
    for _ in range(2):
        assert df(1.0) == 2.0
    thread = threading.Thread(target=lambda: found.append(df(1.0)))
    thread.start()
    thread.join()
    assert found == [3.0]


def test_whether_memory_is_shared():
    """`np.shares_memory` of an argument and another one, or an array from outside -> error; of
    what was made on the way, no"""
    a = np.arange(3.0)
    for f, args in (
        (lambda x, y: np.sum(x) * (2.0 if np.shares_memory(x, y) else 1.0), (a, a[1:])),
        (lambda x: np.sum(x) * (2.0 if np.may_share_memory(x, a[:2]) else 1.0), (a,)),
    ):
        with refused(UnsupportedError, "shares memory with another array", "Pass a flag"):
            jit(f, compile="never")(*args)
    assert jit(lambda x: np.shares_memory(x, x + 1), compile="never")(a) is False


def test_tuples_of_classes(monkeypatch):
    """`except T`, `isinstance(x, T)` and `issubclass(c, T)` of a tuple T that is rebound -> traced
    anew"""
    df = grad(lambda x: np.sum(x) * caught(KINDS), compile="never")
    dg = grad(lambda x: np.sum(x) * (2.0 if isinstance(x, NUMBERS) else 3.0), compile="never")
    dh = grad(lambda x: x * (2.0 if issubclass(bool, NUMBERS) else 3.0), compile="never")
    assert (df(X)[0], dg(X)[0], dh(1.0)) == (2.0, 3.0, 3.0)
    monkeypatch.setitem(globals(), "KINDS", (IndexError,))
    monkeypatch.setitem(globals(), "NUMBERS", (np.ndarray, int))
    assert (df(X)[0], dg(X)[0], dh(1.0)) == (3.0, 2.0, 2.0)


def test_draws_in_a_callback():
    """a function that is handed to np.apply_along_axis draws -> drawn at each call"""
    df = grad(lambda x: np.sum(np.apply_along_axis(lambda r: r * random.random(), 0, x)))
    for seed in range(3):
        random.seed(seed)
        expected = random.random() + 0 * X
        random.seed(seed)
        np.testing.assert_allclose(df(X), expected, rtol=1e-15)


def test_the_class_of_a_module():
    """`__class__` of a module is set -> traced anew"""
    module = types.ModuleType("settings")
    module.scale = 1.0
    df = grad(lambda x: x * module.scale, compile="never")
    assert df(1.0) == 1.0
    module.__class__ = Module
    assert df(1.0) == 9.0


@dataclass
class Parameters:
    w: float


SHARED = [1.0, 2.0]


@pytest.mark.parametrize("make", [lambda: [1.0, 2.0], lambda: {0: 1.0}, lambda: deque([1.0])])
def test_containers_that_are_passed_twice(make):
    """a list, dict or dataclass is passed twice, and one of the two is written to, or it is asked
    whether they are one -> error with the line; two of them, right at each call"""

    def writes(x, p, q):
        p[0] = 5.0
        return x * q[0]

    def asks(x, p, q):
        return x * (2 if p is q else 3)

    df, dg = grad(writes, compile="never"), grad(asks, compile="never")
    one, other = make(), make()
    assert df(1.0, one, other) == 1.0
    assert dg(1.0, one, other) == 3.0
    with refused(UnsupportedError, "reaches it in two ways", "p[0] = 5.0", "Pass a copy"):
        df(1.0, one, one)
    with refused(UnsupportedError, "p is q", "Pass a flag"):
        dg(1.0, one, one)
    with refused(UnsupportedError, "reaches it in two ways"):
        grad(lambda x, pair: writes(x, *pair), compile="never")(1.0, [one, one])
    held = Parameters(1.0)
    with refused(UnsupportedError, "a Parameters", "p.w = x"):
        grad(set_attribute, compile="never")(1.0, held, held)


def set_attribute(x, p, q):
    p.w = x * 2
    return q.w * x


def test_a_container_that_is_passed_and_found():
    """a list is passed that the function finds in a global, too, and is written to -> error"""

    def f(x, p):
        p[0] = 5.0
        return x * SHARED[0]

    df = grad(f, compile="never")
    assert df(1.0, [3.0, 4.0]) == 1.0
    with refused(UnsupportedError, "passed and found outside"):
        df(1.0, SHARED)


def test_writes_to_containers_that_are_passed():
    """a list, dict or dataclass argument is written to -> the function sees it, and the caller's
    stays as it was"""
    given = OrderedDict(n=1.0)

    def f(x, d):
        d["n"] = d["n"] + 1.0
        return x * d["n"]

    df = grad(f, compile="never")
    assert [df(1.0, given), df(1.0, given)] == [2.0, 2.0]
    assert given == {"n": 1.0}


def test_ranges_and_sequences_as_indices():
    """a range, deque or UserList as an index, also of what is assigned -> as NumPy's"""
    labels = np.array([0, 2, 1])

    def f(x):
        p = np.outer(x, x + 1)
        q = x * 1.0
        q[range(2)] = 0.0
        picked = p[range(3), labels].sum() + x[deque([0, 1])].sum() + x[UserList([1, 2])].prod()
        return picked + np.sum(q**2)

    value, gradient = value_and_grad(f, compile="never")(X)
    np.testing.assert_allclose(value, f(X))
    steps = 1e-6 * np.eye(3)
    np.testing.assert_allclose(gradient, [(f(X + h) - f(X - h)) / 2e-6 for h in steps], atol=1e-8)


QUEUE = types.SimpleNamespace()


def global_deleted(x):
    global WAITING
    try:
        del WAITING
    except NameError:
        WAITING = 1  # noqa: F841
        return x * 3
    return x * 2


def attribute_deleted(x):
    try:
        del QUEUE.waiting
    except AttributeError:
        QUEUE.waiting = 1
        return x * 3
    return x * 2


def attribute_deleted_by_name(x):
    try:
        delattr(QUEUE, "waiting")
    except AttributeError:
        object.__setattr__(QUEUE, "waiting", 1)
        return x * 3
    return x * 2


def cell_deleted():
    waiting = 1
    del waiting

    def f(x):
        nonlocal waiting
        try:
            del waiting
        except NameError:
            waiting = 1  # noqa: F841
            return x * 3
        return x * 2

    return f


@pytest.mark.filterwarnings("ignore:.*traced for three calls:RuntimeWarning")
@pytest.mark.parametrize(
    "f", [global_deleted, attribute_deleted, attribute_deleted_by_name, cell_deleted()]
)
def test_what_is_deleted(f):
    """a name or an attribute is deleted, if it is there -> whether it is there is compared"""
    globals().pop("WAITING", None)
    vars(QUEUE).clear()
    g = jit(f, compile="never")
    assert [float(g(1.0)) for _ in range(5)] == [3.0, 2.0, 3.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x, a: x * a["u"],
        lambda x, a: x * a["u"][0],
        lambda x, a: x * np.sum(a["u"]),
        lambda x, a: x * a[0]["u"],
        lambda x, a: x * len(a.dtype.names[0]),
    ],
)
def test_names_of_fields(f):
    """the names of a structured array's fields are set -> compared"""
    a = np.array([(1.0, 2.0)], dtype=[("u", float), ("v", float)])
    g = jit(lambda x: f(x, a), compile="never")
    assert g(1.0) == 1.0
    a.dtype.names = ("vv", "u")
    assert g(1.0) == 2.0
