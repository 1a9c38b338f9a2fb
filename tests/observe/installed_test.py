"""What an installed package's code does is followed as what stands in the user's file."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from pandas._libs import algos

from tapegrad import grad, vjp
from tapegrad.core.installed import is_installed
from tapegrad.errors import UnsupportedError

X = np.array([1.0, 2.0])
PACKAGE = """
import functools
import inspect
import time
import types
import uuid
from dataclasses import dataclass

import numba
import numpy as np
from numpy import array
from scipy.integrate import odeint, solve_ivp
from scipy.optimize import brentq, minimize
from helpers_of_the_user import scaled

def stacked(x):
    return np.sum(array([x[0], x[1] * x[0]]) ** 2)

@numba.njit("float64(float64[:], int64)")
def compiled(x, n):
    rows = np.empty(n)
    for k in range(n):
        rows[k] = x[k] * x[0]
    return np.sum(rows)

def of_arrays_alone(x):
    for y in (x, array([[x[0]], [2.0]]), np.zeros((2, 1))):
        if type(y) != np.ndarray:
            raise TypeError(type(y))
    return np.sum(x**2)

@dataclass
class Law:
    rate: float
    offset: float

    def loss(self, x):
        return self.rate * np.sum(x**2) + self.offset

def by_law(x):
    return Law(x[0], 2.0).loss(x)

def helped(x):
    return scaled(np.sum(x))

SETTINGS = {"scale": 1.0, "offset": 2.0}

class Available:
    def __init__(self, method):
        self.method = method

    def __get__(self, x, kind=None):
        if not x.rate:
            raise AttributeError("it has no rate")
        return types.MethodType(self.method, x)

class Model:
    def __init__(self, rate):
        self.rate = rate

    def _rhs(self, y, t, k):
        return -self.rate * k * y

    @Available
    def available(self, x):
        return self.rate * np.sum(x)

    def timed(self, x):
        self.started = time.time()
        self.looked_for = inspect.getattr_static(x, "columns", None)
        number = uuid.uuid4()
        return np.sum(np.from_dlpack(x) ** 2)

    def configured(self, x):
        before = SETTINGS.copy()
        SETTINGS["scale"] = 3.0
        during = SETTINGS.copy()
        SETTINGS.update(before)
        return np.sum(x) * during["scale"] * SETTINGS["offset"]

    def solved(self, x):
        flow = lambda t, y: np.asarray([y[1], -x[0] * y[0]]).reshape(-1)
        root = brentq(lambda z: np.array([z, x[1]]).dot([1.0, -0.5]), -9.0, 9.0)
        square = lambda z: np.sum(np.array([z[0] - x[0], 0.0]) ** 2)
        bottom = minimize(square, np.zeros(1)).x[0]
        return solve_ivp(flow, (0, 1), x, rtol=1e-9).y[0, -1] + root + bottom

    @functools.cached_property
    def rates(self):
        return [self.rate, 2 * self.rate]

    def remembering(self, x):
        return np.sum(x) * self.rates[0] + self.rates[1]

    def run(self, x):
        return odeint(self._rhs, [1.0], [0.0, 1.0], args=(x[0],))[-1, 0]

def digest(x):
    return x.view("i1").sum()

class Graph:
    def __init__(self, edges):
        self.edges = edges
        self.stamp = object()  # which can't be compared

    @functools.cached_property
    def ends(self):
        return tuple(end for _, end in self.edges)

def by_text(f):
    names = {}
    exec("def g(*args): return f(*args)", {"f": f}, names)
    return functools.wraps(f)(names["g"])

@by_text
def order(graph):
    return [*graph.ends, id(graph) > 0]

@by_text
def walked(graph):
    for end in graph.ends:
        yield graph.ends.index(end)
"""
HELPERS = """
K = 3.0

def scaled(v):
    return K * v
"""


@pytest.fixture
def installed(tmp_path, monkeypatch, request):
    """The package, and the module of the user's that it calls. It is installed in the folder of
    this name."""
    folder, mine = tmp_path / getattr(request, "param", "site-packages"), tmp_path / "mine"
    package, record = folder / "package_of_others", folder / "package_of_others-1.0.dist-info"
    package.mkdir(parents=True)
    record.mkdir()
    (record / "RECORD").write_text("package_of_others/__init__.py,,\n")
    mine.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(PACKAGE)
    (mine / "helpers_of_the_user.py").write_text(HELPERS)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.syspath_prepend(str(mine))
    import package_of_others

    yield package_of_others, sys.modules["helpers_of_the_user"]
    del sys.modules["package_of_others"], sys.modules["helpers_of_the_user"]


def times(f, *args, count=5):
    """The derivative, and how often it was traced for several calls."""
    g = grad(f)
    found = [g(*args) for _ in range(count)]
    return found[-1], g.cache_info().traces


def test_its_names_of_numpys_functions_are_answered_in_inner_derivatives(installed):
    """`from numpy import array` there, in a derivative of a derivative and in a pullback."""
    f = installed[0].stacked
    found, traces = times(lambda x: np.sum(grad(f)(x)), X)
    np.testing.assert_allclose(found, [18.0, 10.0])
    assert traces == 1
    inner = grad(f)
    np.testing.assert_allclose(vjp(lambda x: np.sum(inner(x)), X)[1](1.0)[0], [18.0, 10.0])


def test_arrays_have_the_type_of_arrays(installed):
    package, _ = installed
    np.testing.assert_array_equal(grad(package.of_arrays_alone)(X), 2 * X)


def test_what_numba_has_compiled_of_it(installed):
    np.testing.assert_array_equal(grad(lambda x: installed[0].compiled(x, 2))(X), [4.0, 1.0])


def test_its_dataclasses(installed):
    """Their methods are generated of a text, and are the package's."""
    found, traces = times(lambda x: installed[0].by_law(x), X)
    np.testing.assert_allclose(found, [7.0, 4.0])
    assert traces == 1


def test_a_helper_of_the_users_that_it_calls(installed):
    """What the helper reads is noticed, and so is another helper."""
    package, helpers = installed
    g = grad(lambda x: package.helped(x))
    for _ in range(5):
        np.testing.assert_allclose(g(X), 3.0)
    assert g.cache_info().traces == 1
    helpers.K = 5.0
    np.testing.assert_allclose(g(X), 5.0)
    package.scaled = lambda v: 7.0 * v
    np.testing.assert_allclose(g(X), 7.0)


def test_its_methods_as_callbacks_of_scipys_solvers(installed):
    """`odeint(self._rhs, ...)` there: what the method reads of the object is noticed."""
    model = installed[0].Model(2.0)
    g = grad(lambda x: model.run(x))
    for rate in (2.0, 2.0, 3.0):
        model.rate = rate
        np.testing.assert_allclose(g(X), [-rate * np.exp(-rate), 0.0], atol=1e-6)
    assert g.cache_info().traces == 2


def test_its_functions_that_make_arrays_for_scipys_solvers(installed):
    """`np.asarray([x[1], ...])` in a right-hand side, an equation and an objective of its own."""
    f = installed[0].Model(2.0).solved
    g = grad(lambda x: f(x))
    for x in (2 * X, X, X, X):
        found = [(f(x + h) - f(x - h)) / 2e-3 for h in 1e-3 * np.eye(2)]
        np.testing.assert_allclose(g(x), found, atol=1e-4)
    assert g.cache_info().traces == 1


def test_its_settings_that_it_sets_and_puts_back(installed):
    """What a dict held before it was written to is known, if all of it was read then."""
    package = installed[0]
    model = package.Model(2.0)
    g = grad(lambda x: model.configured(x))
    for offset in (2.0, 2.0, 2.0, 5.0, 5.0):
        package.SETTINGS["offset"] = offset
        np.testing.assert_allclose(g(X), 3 * offset)
        assert [*package.SETTINGS.items()] == [("scale", 1.0), ("offset", offset)]
    assert g.cache_info().traces == 2


def test_its_descriptors(installed):
    """One that makes a method at each look is followed, and what it reads is noticed."""
    model = installed[0].Model(2.0)
    g = grad(lambda x: model.available(x))
    for rate in (2.0, 2.0, 2.0, 3.0, 3.0):
        model.rate = rate
        np.testing.assert_allclose(g(X), rate)
    assert g.cache_info().traces == 2
    model.rate = 0.0
    with pytest.raises(AttributeError, match="no rate"):
        g(X)


def test_its_clocks_and_looks_at_classes(installed):
    """A clock that it reads is read anew, kept on an object too; `inspect.getattr_static` looks at
    the class of an array; a UUID, which is no number, isn't one that is drawn."""
    model = installed[0].Model(2.0)
    np.testing.assert_allclose(grad(lambda x: model.timed(x))(X), 2 * X)
    assert model.looked_for is None
    g, started = grad(lambda x: model.timed(x)), []
    for _ in range(5):
        np.testing.assert_allclose(g(X), 2 * X)
        started.append(model.started)
    assert g.cache_info().traces == 1
    assert type(model.started) is float
    assert len({*started}) == 5


@pytest.mark.every(2)
@pytest.mark.parametrize("installed", ["site-packages", "packages", "mine"], indirect=True)
def test_where_it_is_installed(installed):
    """`pip install --target` makes a folder of any name, maybe the program's own: what counts is
    the package's record. What only the package uses the clock for isn't looked at."""
    package, helpers = installed
    assert is_installed(package.__file__)
    assert not is_installed(helpers.__file__)
    model = package.Model(2.0)
    g = grad(lambda x: model.timed(x))
    for _ in range(4):
        np.testing.assert_allclose(g(X), 2 * X)
    assert g.cache_info().traces == 1


def test_what_to_do_about_bits_that_a_package_reads(installed):
    """Its line isn't the user's to change."""
    with pytest.raises(UnsupportedError, match=r"called at .*in the place of that package's"):
        grad(lambda x: np.sum(x) * installed[0].digest(x))(X)
    with pytest.raises(UnsupportedError, match=r"Use astype"):
        grad(lambda x: np.sum(x) * x.view("i1").sum())(X)


def test_functions_in_c_of_an_installed_package():
    """One that computes with arrays depends on them; their contents are compared."""
    a = np.array([3.0, 1.0, 2.0])
    g = grad(lambda x: np.sum(x) * algos.kth_smallest(a.copy(), 1))
    for _ in range(5):
        np.testing.assert_allclose(g(X), 2.0)
    assert g.cache_info().traces == 1
    a[2] = 2.5
    np.testing.assert_allclose(g(X), 2.5)


def test_an_array_of_objects():
    """Its elements are read one by one: arrays by their contents, numbers by their values."""
    parts = np.empty(2, object)
    parts[:] = [np.array([1.0, 2.0]), 3.0]
    g = grad(lambda x: np.sum(x) * sum(np.sum(p) for p in parts.tolist()))
    for _ in range(5):
        np.testing.assert_allclose(g(X), 6.0)
    assert g.cache_info().traces == 1
    parts[0][0] = 2.0
    for _ in range(2):
        np.testing.assert_allclose(g(X), 7.0)
    parts[1] = 4.0
    np.testing.assert_allclose(g(X), 8.0)


class Unit(np.ndarray):
    """An array that doesn't say its bytes, as one with a unit may not."""

    def tobytes(self, *args, **kwargs):
        raise NotImplementedError


def test_an_array_that_hides_its_bytes():
    """Its contents are compared as NumPy has them."""
    a = np.array([1.0, 2.0]).view(Unit)
    g = grad(lambda x: np.sum(x) * float(np.max(a.view(np.ndarray))))
    for _ in range(5):
        np.testing.assert_allclose(g(X), 2.0)
    a.view(np.ndarray)[0] = 5.0
    np.testing.assert_allclose(g(X), 5.0)


def test_its_cached_properties(installed):
    """Whether a property has kept its value makes no difference, and what it is made of is read."""
    model = installed[0].Model(2.0)
    g = grad(lambda x: model.remembering(x))
    for _ in range(3):
        np.testing.assert_array_equal(g(X), [2.0, 2.0])
    assert g.cache_info().traces == 1
    model.rates = [5.0, 1.0]
    for _ in range(3):
        np.testing.assert_array_equal(g(X), [5.0, 5.0])
    del model.rates
    model.rate = 3.0
    for _ in range(3):
        np.testing.assert_array_equal(g(X), [3.0, 3.0])
    assert g.cache_info().traces <= 4


def test_its_functions_that_decorators_have_made_of_a_text(installed):
    """They are the package's: one that can't be followed is called anew, and so is what it is
    passed made anew. A generator is followed."""
    package = installed[0]

    def f(x):
        graph = package.Graph([(0, 1), (1, 0)])
        first = package.order(graph)[0]
        return first * sum(x[k] for k in package.walked(graph))

    found, traces = times(f, X)
    np.testing.assert_array_equal(found, [1.0, 1.0])
    assert traces <= 2
