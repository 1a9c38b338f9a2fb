"""Functions of SciPy's and of packages that read what can't be compared, with plain arguments: each
call makes them anew, and is traced where they return something else."""

from __future__ import annotations

import itertools
import random

import networkx
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse as sparse
import scipy.sparse.linalg as solvers
import scipy.stats
from scipy.stats import qmc

from tapegrad import grad, value_and_grad

X = np.array([1.0, 2.0, 0.5])
MODES = pytest.mark.parametrize("compile", ["always", "never"])
A = sparse.csc_array(np.diag([1.0, 2.0, 3.0]) + np.eye(3, k=1))
LARGE = sparse.csc_array(np.diag(np.arange(1.0, 21.0)))
LU = solvers.splu(A)


def evolved():
    found = scipy.optimize.differential_evolution(
        lambda z: (z[0] - 0.3) ** 2, [(-1, 1)], rng=np.random.RandomState(1), maxiter=3
    )
    return found.fun + found.x[0]


CONSTANTS = {
    "eigsh": lambda: solvers.eigsh(LARGE, k=2, v0=np.ones(20), return_eigenvectors=False),
    "svds": lambda: solvers.svds(LARGE, k=2, return_singular_vectors=False, rng=0),
    "Sobol": lambda: qmc.Sobol(3, scramble=False).random(4),
    "scrambled": lambda: qmc.Sobol(3, rng=3).random(4),
    "Halton": lambda: qmc.Halton(3, scramble=False).random(4),
    "evolution": evolved,
    "histogram": lambda: scipy.stats.rv_histogram(np.histogram(np.arange(9.0), bins=3)).mean(),
    "factors": lambda: solvers.splu(A).solve(np.ones(3)),
    "incomplete factors": lambda: solvers.spilu(A).solve(np.ones(3)),
    "factors from outside": lambda: LU.solve(np.ones(3)),
    "a function that solves": lambda: solvers.factorized(A)(np.arange(3.0)),
}


@MODES
@pytest.mark.parametrize("name", CONSTANTS)
def test_what_it_returns_is_compared(name, compile):
    g = grad(lambda x: np.sum(CONSTANTS[name]()) * np.sum(x**2), compile=compile)
    for k in range(5):
        x = X * (1 + 0.1 * k)
        np.testing.assert_allclose(g(x), 2 * x * np.sum(CONSTANTS[name]()), rtol=1e-13)
    assert g.cache_info().traces <= 2


@MODES
def test_factors_solve_with_traced_values(compile):
    for solve in (lambda x: LU.solve(x), lambda x: solvers.splu(A).solve(x)):
        g = grad(lambda x, solve=solve: np.sum(solve(x) ** 2), compile=compile)
        for k in range(4):
            x = X * (1 + 0.1 * k)
            inverse = np.linalg.inv(A.toarray())
            np.testing.assert_allclose(g(x), 2 * inverse.T @ inverse @ x, rtol=1e-12)
        assert g.cache_info().traces == 1


RANDOM = {
    "eigsh": lambda x: np.sum(solvers.eigsh(LARGE, k=2)[0]) * np.sum(x**2),
    "vectors": lambda x: np.sum(np.abs(solvers.eigsh(LARGE, k=2)[1][-3:, 0]) * x**2),
    "a plain number": lambda x: float(np.sum(solvers.eigsh(LARGE, k=2)[0])) * np.sum(x**2),
    "a branch": lambda x: np.sum(x**2) if solvers.eigs(LARGE, k=2)[0][0] > 3 else np.sum(x),
    "written to": lambda x: written(solvers.eigsh(LARGE, k=2)[0]) * np.sum(x**2),
}


def written(values):
    values *= 2.0
    return np.sum(values)


@pytest.mark.every(8)
@MODES
@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
def test_numbers_that_a_call_returns_anew_are_inputs(name, compile):
    """ARPACK begins at a random vector, so digits at the end are others at each call."""
    f = RANDOM[name]
    g = grad(f, compile=compile)
    for k in range(6):
        x = X * (1 + 0.1 * k)
        slope = [(f(x + s) - f(x - s)) / 2 for s in np.eye(3)]  # exact, as f is quadratic
        np.testing.assert_allclose(g(x), slope, rtol=1e-6, atol=1e-8)
    assert g.cache_info().traces <= 3 or name == "written to"


def test_what_is_random_is_drawn_by_each_call():
    g = grad(lambda x: np.sum(qmc.Sobol(3).random(4) @ x), compile="never")
    assert len({tuple(g(X)) for _ in range(6)}) == 6
    assert g.cache_info().traces <= 4


def test_the_message_for_a_result_that_changes():
    """says what can be done, at the line of the program's own"""
    sizes = iter(range(1, 9))

    def sized():
        return np.ones(sum(itertools.islice(sizes, 1)))

    solver = scipy.optimize.minimize
    g = grad(lambda x: solver(lambda z: np.sum(z**2), sized()).fun + np.sum(x), compile="never")
    with pytest.warns(RuntimeWarning, match=r"made_anew_test.py:\d+"):
        for _ in range(5):
            g(X)


class Package:
    """What an installed package does: it draws from the global generators, for nothing."""

    text = """
import random
import numpy as np

def fitted(x):
    np.random.uniform(size=3)
    random.random()
    return float(np.sum(x))

class Model:
    def fit(self, x):
        self.start = np.random.randint(10)
        self.coef = np.asarray(x) * 2
        return self

class Fitted:
    def __init__(self):
        self.weights, self.scale = np.ones(3), np.arange(3.0)

    def forecast(self, n):
        np.random.uniform()
        self.weights = self.weights.copy()  # equal, and another one
        return np.sum(self.scale) * np.ones(n)

class Delayed:
    def __init__(self, f, *args):
        np.random.uniform()
        self.f, self.args = f, args

    def __add__(self, other):
        return Delayed(lambda a, b: computed(a) + computed(b), self, other)

def totalled(table, more):
    np.random.uniform()
    more[0][1] += 1.0
    return float(np.sum(table["a"]) + np.sum(table["b"][0]) + np.sum(more[0]))

def computed(x):
    return x.f(*x.args) if isinstance(x, Delayed) else x

class Net:
    def __init__(self, n):
        self.x, self.w = np.ones(n + 1), np.random.normal(0, 1, n + 1)

    def train(self, rows):
        errors = np.zeros(len(rows))
        for k in range(len(rows)):
            self.x[1:] = rows[k]
            errors[k] = 1.0 - np.sum(self.w * self.x)
            self.w += 0.1 * errors[k] * self.x
        return errors

class Wrapper:
    def __init__(self):
        np.random.uniform()
        self._results = {"scale": 3.0}

    def __getattribute__(self, name):
        results = object.__getattribute__(self, "_results")
        return results[name] if name in results else object.__getattribute__(self, name)

    def forecast(self, n):
        return self.scale * np.ones(n)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "drawing_package.py").write_text(Package.text)
    monkeypatch.syspath_prepend(str(folder))
    import drawing_package

    yield drawing_package
    import sys

    del sys.modules["drawing_package"]


def of_function(package, x):
    return package.fitted(np.arange(4.0)) * np.sum(x**2)


def of_object(package, x):
    return np.sum(package.Model().fit(np.arange(4.0)).coef) * np.sum(x**2)


def of_both(package, x):
    a = package.fitted(np.arange(4.0))
    return np.sum(package.Model().fit(np.arange(3.0)).coef) * np.sum(x**2) * a


def on_a_path(package, x):
    if x[0] > 1.15:
        return package.fitted(np.arange(4.0)) * np.sum(x**2)
    return np.sum(x**2)


def of_a_list(package, x):
    """of objects that calls have made"""
    parts = [package.Delayed(np.sum, np.ones(3) * k) for k in range(3)]
    return package.computed(sum(parts[1:], parts[0])) * np.sum(x**2)


def of_a_wrapper(package, x):
    return np.sum(package.Wrapper().forecast(3)) * np.sum(x**2)


def of_arrays_in_containers(package, x):
    """that the function makes"""
    a, held = np.ones(3), [np.arange(3.0)]
    y = package.totalled({"a": a, "b": (np.arange(3.0),)}, held) * np.sum(x**2)
    a[0] = held[0][0] = 5.0
    return y + np.sum(a * held[0] * x)


def with_own(package, x):
    return package.fitted(np.arange(4.0)) * np.sum(x**2) * np.random.uniform()


def with_own_before(package, x):
    return np.random.uniform() * package.fitted(np.arange(4.0)) * np.sum(x**2)


PROGRAMS = [of_function, of_object, of_both, on_a_path, of_a_list, of_a_wrapper]
PROGRAMS += [of_arrays_in_containers]
PROGRAMS += [with_own, with_own_before]


@pytest.mark.every(8)
@MODES
@pytest.mark.parametrize("f", PROGRAMS)
@pytest.mark.filterwarnings("ignore:grad_<lambda> was traced for three calls")
def test_a_packages_function_draws_as_in_plain_python(package, f, compile):
    """The streams are where plain Python leaves them, after each call."""

    def run(call):
        np.random.seed(3)
        random.seed(3)
        found = []
        for k in range(6):
            x = X * (1 + 0.1 * (k if k % 2 else -k))
            found += [call(x), np.random.uniform(), random.random()]
        return found

    def slope(x):
        if f is of_arrays_in_containers:
            return 2 * x * 10.0 + np.array([25.0, 2.0, 2.0]) + 0.0 * f(package, x)
        return 2 * x * f(package, x) / np.sum(x**2)

    g = grad(lambda x: f(package, x), compile=compile)
    for found, expected in zip(run(g), run(slope), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert g.cache_info().traces <= 3 or f is with_own_before


@MODES
def test_an_object_of_the_outside_may_put_an_equal_array_in_the_place_of_another(package, compile):
    fitted = package.Fitted()
    g = grad(lambda x: np.sum(fitted.forecast(3)) * np.sum(x**2), compile=compile)
    for k in range(5):
        np.testing.assert_allclose(g(X * (1 + k)), 18 * X * (1 + k), rtol=1e-14)
    assert g.cache_info().traces <= 2
    fitted.scale[0] = 1.0
    np.testing.assert_allclose(g(X), 24 * X, rtol=1e-14)


@MODES
@pytest.mark.filterwarnings("ignore:grad_f was traced for three calls")
def test_a_generator_that_another_attempt_asks_for_is_another_one(compile):
    """What a package's function returned to one attempt isn't compared, and is gone through: the
    next one calls it again. It was an error of tapegrad's own."""
    graph = networkx.DiGraph([("a", "b", {"w": 1.0})])

    def f(x):
        t = 0.0
        for _ in networkx.topological_sort(graph):
            t = t + np.sum(x)
        graph["a"]["b"]["w"] *= 0.5
        return t

    f(X)
    g = grad(f, compile=compile)
    for _ in range(5):
        f(X)
        np.testing.assert_array_equal(g(X), np.full(3, 2.0))
    assert graph["a"]["b"]["w"] == 0.5**11


@MODES
@pytest.mark.filterwarnings("ignore:value_and_grad_f was traced for three calls")
def test_arrays_that_each_attempt_is_given_anew_are_written_to(package, compile):
    """Each is another one, and is read before it is written to: no attempt was the last."""

    def f(x):
        np.random.seed(0)
        return np.sum(package.Net(3).train(x) ** 2)

    g = value_and_grad(f, compile=compile)
    x = 0.3 * np.random.default_rng(0).normal(size=(4, 3))
    for k in range(3):
        z, along = x * (1 + 0.1 * k), 1e-6 * x
        value, slope = g(z)
        assert value == pytest.approx(f(z), rel=1e-13)
        assert np.sum(slope * along) == pytest.approx((f(z + along) - f(z - along)) / 2, rel=1e-6)
