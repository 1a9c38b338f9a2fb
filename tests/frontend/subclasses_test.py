"""Arrays of subclasses of ndarray that are written in Python: traced, they are what they are."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from tests.frontend.check import check, name_of

from tapegrad import cond, errors, grad, jit, primitive, vjp

X = np.array([1.5, 2.5, 0.7])


class Signal(np.ndarray):
    """As NumPy's guide to subclassing has it."""

    info: Any
    unit = 2.0

    def __new__(cls, values, info=3.0):
        made = np.asarray(values).view(cls)
        made.info = info
        return made

    def __array_finalize__(self, parent):
        if parent is not None:
            self.info = getattr(parent, "info", 1.0)

    def energy(self):
        return np.sum(np.asarray(self) ** 2) * self.info * self.unit

    @property
    def head(self):
        return self[0]

    @head.setter
    def head(self, value):
        self[0] = value

    @classmethod
    def twice(cls, values):
        return cls(values, 2.0)

    def __call__(self, k):
        return self[k] * self.info


class Child(Signal):
    """Goes on to the class above, in both ways of saying so."""

    def __array_finalize__(self, parent):
        super().__array_finalize__(parent)
        self.further = 7.0

    def energy(self):
        return super(Child, self).energy() * self.further  # noqa: UP008

    def __getitem__(self, key):
        return super().__getitem__(key) * 2

    def __add__(self, other):
        return np.ndarray.__add__(self, other) * 5


class Reflected(np.ndarray):
    """Its operators are asked first, on the right too."""

    def __radd__(self, other):
        return 10 * np.asarray(self) + other * other

    def __lt__(self, other):
        return np.asarray(self) < 2 * other


class Buffer(np.ndarray):
    """Made in memory that it is given."""

    def __new__(subtype, values):
        values = np.array(values, dtype=float)
        made = super(Buffer, subtype).__new__(subtype, values.shape, float, values)  # noqa: UP008
        made.own = values
        return made

    def __array_finalize__(self, parent):
        self.own = getattr(parent, "own", None)

    def product(self):
        return self.own @ np.asarray(self) + self.own[0]


class Begun(np.ndarray):
    """Has an `__init__`."""

    def __new__(cls, values, by=1.0):
        return np.array(values, float).view(cls)

    def __init__(self, values, by=1.0):
        self.by = by


class Wrapped(np.ndarray):
    """Says itself what becomes of results."""

    def __array_wrap__(self, array, context=None, return_scalar=False):
        made = super().__array_wrap__(array, context, return_scalar)
        made.by = context[0].__name__ if context else ""
        return made


class Handled(np.ndarray):
    """Treats universal functions itself."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [x.view(np.ndarray) if isinstance(x, Handled) else x for x in inputs]
        found = super().__array_ufunc__(ufunc, method, *plain, **kwargs)
        return (found * 3).view(Handled) if np.ndim(found) else found


class ByName(np.ndarray):
    """Goes on to ndarray by its name."""

    def __array_finalize__(self, parent):
        np.ndarray.__array_finalize__(self, parent)
        self.seen = True

    def __getitem__(self, key):
        return np.ndarray.__getitem__(self, key) * 2

    def __len__(self):
        return np.ndarray.__len__(self) + 1

    def sum(self, *args, **kwargs):
        return np.ndarray.sum(self, *args, **kwargs) * 3

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return np.ndarray.__array_wrap__(self, array, context, return_scalar)


class Plain(np.ndarray):
    """Adds nothing."""


def written(x):
    base = x * 1.0
    y = base.view(Signal)
    y.info = 2.0
    y.head = x[1] ** 2
    y += x
    y[1:] *= 2
    base[[0]] = Child(x)[:1]
    y[y > 5] = 2.0
    return np.sum(base**2) + y.energy()


def filled(x):
    y = np.ndarray.__new__(Plain, (3,))
    y[:] = x**2
    z = np.zeros_like(Signal(x))
    z[:2] = x[1:] ** 3
    return y.sum() + z.energy()


PROGRAMS = [
    lambda x: Signal(x, 2.0).energy(),
    lambda x: x.view(type=Signal).energy() if x.view(Signal).info == 1.0 else x[0],
    lambda x: Signal(x)[1:].energy() + Signal(x).head ** 2,
    lambda x: (Signal(x) * x + 1).energy() + (2.0 - Signal(x)).energy(),
    lambda x: (x[0] * Signal(x)).energy() + (np.float64(2.0) * Signal(x)).energy(),
    lambda x: Signal.twice(x).energy() + Signal(x).twice(x * x).energy(),
    lambda x: type(Signal(x))(x**2, 2.0).energy() + Signal(x).__class__(x).energy(),
    lambda x: Signal(x)(1) + sum(y**2 for y in Signal(x)) + math.exp(Signal(x)[0]),
    lambda x: Signal(x).energy() if (Signal(x) > 1).any() else x[0],
    lambda x: copy.copy(Signal(x)).energy() + copy.deepcopy(Signal(x, 2.0)).energy(),
    lambda x: Child(x).energy() + Child(x)[0] * Child(x, 4.0).further,
    lambda x: (Child(x) + x).energy() + np.diff(Child(x)).energy(),
    lambda x: np.sum(x + x.view(Reflected)) + np.sum(np.ones(3) + x.view(Reflected)),
    lambda x: np.sum(X + x.view(Reflected)) + np.sum(1.0 + x.view(Reflected)),
    lambda x: Buffer(x).product() + Buffer([x[0], 1.0]).product() + (Buffer(x) * x).product(),
    lambda x: ByName.sum((x.view(ByName) * x)[1:]) * len(x.view(ByName)) + sum(x.view(ByName)),
    lambda x: Begun(x, by=3.0).sum() * Begun([x[0], 2.0], x[1]).by,
    lambda x: np.sum(np.exp(x.view(Wrapped)) ** 2) * len(np.exp(x.view(Wrapped)).by),
    lambda x: np.sum(np.asarray(np.exp(x.view(Handled)) + x)) + np.sum((x * x.view(Handled))[1:]),
    lambda x: np.sum(x + TURNED) + np.sum((x > TURNED) * x) + np.sum(TURNED + x),
    lambda x: (HELD * x).energy() + (x - HELD).energy() + np.sum(np.sin(HELD) * x),
    written,
    filled,
]
TURNED = np.array([1.0, 2.0, 3.0]).view(Reflected)
HELD = Signal(np.array([1.0, 2.0, 3.0]), 5.0)


@pytest.mark.every(8)
@pytest.mark.parametrize("f", PROGRAMS, ids=name_of)
def test_what_a_subclass_does_is_followed(f):
    """Methods, properties, operators, `super()`, attributes, writes: values and slopes are NumPy's,
    and so are second derivatives."""
    check(f, X)
    df, along, h = grad(f, compile="never"), np.array([0.3, 1.0, -0.5]), 1e-5
    second = grad(lambda x: np.sum(along * grad(f)(x)), compile="never")(X) @ along
    expected = (df(X + h * along) - df(X - h * along)) @ along / (2 * h)
    np.testing.assert_allclose(second, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("f", [PROGRAMS[k] for k in (0, 14)], ids=name_of)
def test_compiled_as_played(f):
    compiled, played = grad(f, compile="always"), grad(f, compile="never")
    for x in (X, X * 1.1):
        np.testing.assert_allclose(compiled(x), played(x), rtol=1e-13)


M = np.array([[2.0, 1.0], [0.5, 3.0]])
CALLS = [
    lambda y: (y + 1, 1 - y, y * y, y / M, M @ y, y @ M, -y, abs(y), y**2, y > 1, y == y),
    lambda y: (y[0], y[0, 0], y[...], y[[0, 1]], y[y > 1], y[:, None], y[()], y[0][0]),
    lambda y: (y.sum(), y.sum(0), y.mean(), y.std(1), y.max(), y.cumsum(), y.prod(axis=0)),
    lambda y: (y.T, y.copy(), y.ravel(), y.reshape(4), y.flatten(), y.astype(float), y.real),
    lambda y: (y.view(), y.view(np.ndarray), y.view(Plain), y.imag, y.dot(M), y.clip(0, 1)),
    lambda y: (y.diagonal(), y.trace(), y.item(0), y.argmax(), y.round(), y.squeeze(), y.take([0])),
    lambda y: (
        np.exp(y),
        np.add(y, M),
        np.maximum(M, y),
        np.add.reduce(y),
        np.multiply.outer(y, y),
    ),
    lambda y: (np.sum(y), np.mean(y, 0), np.diff(y), np.cumsum(y), np.roll(y, 1), np.median(y)),
    lambda y: (np.asarray(y), np.asanyarray(y), np.array(y), np.array(y, subok=True), np.copy(y)),
    lambda y: (np.where(y > 1, y, 0), np.concatenate([y, M]), np.stack([y, y]), np.outer(y, y)),
    lambda y: (
        np.zeros_like(y),
        np.full_like(y, 2.0),
        np.broadcast_to(y, (2, 2)),
        y.flat[1:],
        y.flat[1],
    ),
    lambda y: (np.linalg.inv(y), np.linalg.solve(M, y[0]), np.linalg.norm(y), np.linalg.det(y)),
    lambda y: (np.einsum("ij->i", y), np.trapezoid(y), np.transpose(y), np.sort(y), np.ravel(y)),
    lambda y: (np.add(y, 1, out=y), np.add(M, y, out=np.zeros((2, 2))), y.sum(0, out=np.zeros(2))),
    lambda y: (np.dot(y, y), np.vstack([y, y]), np.interp(y[0], [0, 3], [0, 1]), np.pad(y, 1)),
]


def kinds(xs):
    return [(type(x).__name__, np.shape(x), getattr(x, "info", None)) for x in xs]


@pytest.mark.every(2)
@pytest.mark.parametrize("f", CALLS, ids=name_of)
def test_results_are_of_the_class_that_numpy_gives(f):
    """And know where they come from."""
    seen = []

    def traced(x):
        found = f(Signal(x * 1.0, 4.0))
        seen.append(kinds(found))
        return sum(np.sum(np.asarray(y)) for y in found)

    traced(M * 1.0)
    grad(traced, compile="never")(M * 1.0)
    assert seen[1] == seen[0]


def test_instances_are_those_of_the_class():
    def f(x):
        y = Child(x)
        assert isinstance(y, Child)
        assert isinstance(y, Signal)
        assert type(y) is Child
        assert not hasattr(y, "missing")
        assert vars(y) == {"info": 3.0, "further": 7.0}
        assert callable(y)
        return np.sum(np.asarray(y))

    grad(f, compile="never")(X)


def test_what_is_read_of_the_class_is_compared(monkeypatch):
    """Methods, properties and attributes of classes, and attributes of captured arrays."""
    energy = grad(lambda x: Signal(x).energy(), compile="never")
    head = grad(lambda x: Signal(x).head, compile="never")
    plus = grad(lambda x: np.sum(np.asarray(Signal(x) + 1)), compile="never")
    held = grad(lambda x: (x * HELD).info * np.sum(x), compile="never")
    for f in (energy, head, plus, held):
        f(X)
        f(X * 2)
        assert len(f.tapes) == 1
    monkeypatch.setattr(Signal, "unit", 10.0)
    np.testing.assert_allclose(energy(X), 60 * X)
    monkeypatch.setattr(Signal, "energy", lambda self: np.sum(np.asarray(self) ** 3))
    np.testing.assert_allclose(energy(X), 3 * X**2)
    monkeypatch.setattr(Signal, "head", property(lambda self: self[1]))
    np.testing.assert_array_equal(head(X), [0, 1, 0])
    monkeypatch.setattr(Signal, "__add__", lambda self, y: np.asarray(self) * 100, raising=False)
    np.testing.assert_array_equal(plus(X), [100] * 3)
    monkeypatch.setattr(HELD, "info", 50.0)
    np.testing.assert_array_equal(held(X), [50] * 3)
    monkeypatch.setattr(Signal, "__array_finalize__", lambda self, y: setattr(self, "info", 9.0))
    np.testing.assert_array_equal(held(X), [9] * 3)


def test_one_that_is_kept_on_an_object_is_of_its_class():
    class Model:
        pass

    model = Model()

    def f(x):
        model.signal = Signal(x) * 2
        return model.signal.energy()

    df = grad(f, compile="never")
    for x in (X, X * 3):
        df(x)
        assert type(model.signal) is Signal
        assert model.signal.info == 3.0
        np.testing.assert_array_equal(model.signal, 2 * x)


class Reading(np.ndarray):
    def __array_finalize__(self, parent):
        self.first = None if parent is None else float(np.asarray(parent).flat[0])


class Named(np.ndarray):
    def __array_function__(self, func, types, args, kwargs):
        return NotImplemented


class Slotted(np.ndarray):
    def set(self, value):
        self._value = value
        return self


class Unit(Named):
    def __array_ufunc__(self, *args, **kwargs):
        return NotImplemented


def test_what_numpy_calls_back_is_called_once_and_scipys_arrays_are_plain():
    calls = []

    def f(x):
        y = np.apply_along_axis(lambda v: calls.append(v) or v * x, 0, Signal(x))
        assert type(scipy.stats.norm.logpdf(Signal(x))) is np.ndarray
        assert type(math.exp(Signal(x).sum())) is float
        return np.sum(np.asarray(y)) + np.sum(scipy.stats.norm.logpdf(Signal(x)))

    np.testing.assert_allclose(grad(f, compile="never")(X), X, rtol=1e-12)
    assert len(calls) == 1


@primitive
def squared(x):
    return np.asarray(x) ** 2


REFUSED = {
    r"NumPy goes on to a function that it calls back": lambda x: np.frompyfunc(abs, 1, 1)(
        Signal(x)
    ),
    r"Unit.* with its own __array_function__": lambda x: np.ones(3).view(Unit) * x,
    r"recarray.* NumPy's own recarray, .*np\.asarray\(x\)": lambda x: x.view(np.recarray),
    r"Named.* with its own __array_function__": lambda x: x.view(Named),
    r"Slotted.* an attribute '_value'": lambda x: x.view(Slotted).set(x),
    r"an __array_finalize__ reads the elements": lambda x: np.diff(x.view(Reading)),
    r"among the results of .* its class would be lost": lambda x: jit(lambda y: y.view(Plain))(x),
    r"an argument of a function of np\.vectorize": lambda x: np.vectorize(lambda v: v)(Signal(x)),
    r"an argument of squared.* its class would be lost": lambda x: squared(x.view(Plain)),
    r"an argument of .* np\.asarray\(x\)": lambda x: cond(
        x[0] > 0, lambda y: y, lambda y: -y, x.view(Plain)
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_not_followed_is_refused_by_name(said):
    """With the class, the line, and the way out."""
    with pytest.raises(errors.UnsupportedError, match=said) as caught:
        grad(lambda x: np.sum(REFUSED[said](x)))(X)
    assert "subclasses_test.py" in str(caught.value)


def test_results_of_vjp_are_refused_too():
    with pytest.raises(errors.UnsupportedError, match="class Plain"):
        vjp(lambda x: x.view(Plain), X)
