"""Results are of the kinds that plain Python has: a number of NumPy's, one of Python's, an array.

Every call of the pages of NumPy's and SciPy's names is made of doubles, of floats, and of a vector,
with an element of these that is a number of NumPy's, one of Python's, or an array without axes.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import integrate, interpolate, linalg, optimize, stats
from scipy.spatial import distance
from tests.frontend import names_test as numpys
from tests.scipy import names_test as scipys

from tapegrad import jit, value_and_grad
from tapegrad.errors import TapegradError

X = numpys.X
GIVEN = {
    "doubles": (X, lambda x: x[0, 0]),
    "floats": (X.astype(np.float32), lambda x: x[0, 0]),
    "a vector": (X[0], lambda x: x[0]),
    "an array without axes": (X, lambda x: np.array(x[0, 0])),
    "Python's number": (X, lambda x: float(x[0, 0])),
}


DOUBLES = {"quad_vec"}  # functions that compute in double, whatever they are given


def described(x: Any, depth: int = 3) -> Any:
    """The types, dtypes and shapes of the parts of a result."""
    if isinstance(x, (np.ndarray, np.generic)):
        shape = tuple([n.__index__() for n in x.shape])  # some are traced
        return x.__class__.__name__, str(x.dtype), shape
    if isinstance(x, (int, float, complex)):
        return x.__class__.__name__
    if not depth:
        return None
    if isinstance(x, (tuple, list)):
        return [described(part, depth - 1) for part in x]
    fields = x if isinstance(x, dict) else {} if isinstance(x, type) or callable(x) else vars_of(x)
    return {str(k): described(part, depth - 1) for k, part in fields.items() if str(k)[0] != "_"}


def vars_of(x: Any) -> dict[str, Any]:
    return getattr(x, "__dict__", {})


def unlike(wanted: Any, found: Any) -> str:
    """Where two descriptions differ, if they do: of fields those that both have."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        parts = [unlike(wanted[k], found[k]) for k in wanted.keys() & found.keys()]
        return next(filter(None, parts), "")
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return next(filter(None, map(unlike, wanted, found)), "")
    return "" if wanted == found else f"{wanted} plain, {found} traced"


def differing(f: Any, x: Any) -> str:
    """How the kinds of a traced function's results differ from those of a plain one's."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            wanted = described(f(x.copy()))
        except Exception:
            return ""  # nothing is said here of what it refuses
        seen: list[Any] = []
        try:
            jit(lambda x: (seen.append(iter([described(f(x))])), 0.0)[1], compile="never")(x.copy())
        except TapegradError:
            return ""
        return unlike(wanted, next(seen[0]))


CALLS = [
    *[("", f"{home}.{name}", numpys.call_of(home, name)) for home, name in numpys.NAMES],
    *[
        (home, name, text)
        for home, name in scipys.NAMES
        for text in scipys.calls_of(home, name)
        if not text.startswith("answer(")  # it is refused
    ],
]


@pytest.mark.every(48)
@pytest.mark.parametrize(("home", "name", "text"), CALLS)
def test_results_are_of_the_kinds_of_plain_ones(home, name, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for those that write files
    if name == "np.frombuffer":
        pytest.skip("it is refused by NumPy")
    if name.startswith(("pro_", "obl_")):
        pytest.skip("SciPy's own loops have no end for some floats")
    for given, (x, element) in GIVEN.items():
        if given == "floats" and name in DOUBLES:
            continue  # docs/limits.md says so
        make = scipys.function(home, text, element) if home else numpys.function(text, element)
        wrong = differing(make, x)
        assert not wrong, f"{text} of {given}: {wrong}"


# ---- what programs do with them


SAMPLE = np.array([0.7, 0.4, 1.3, 0.9])
AT = np.arange(4.0)


def in_place(f: Any) -> Any:
    """What is left of a result whose other name is added to."""

    def g(x: Any) -> Any:
        first = v = f(x)
        v += 1.0
        return first * v

    return g


RESULTS = {
    "a probability": lambda x: stats.poisson.logpmf(3, x[0]),
    "of a frozen distribution": lambda x: stats.norm(x[0], x[1]).ppf(0.3),
    "of one that is plain": lambda x: stats.norm(0.0, 2.0).cdf(x[0]),
    "of vectors": lambda x: stats.multivariate_normal.logpdf(x, np.zeros(4), np.eye(4)),
    "an entropy": lambda x: stats.norm.entropy(0, x[0]),
    "a mean": stats.gmean,
    "a range": stats.iqr,
    "a slope": lambda x: stats.linregress(AT, x).slope,
    "a distance": lambda x: distance.cosine(x, x**2),
    "a spline": lambda x: interpolate.CubicSpline(AT, x)(0.5),
    "a plain spline": lambda x: interpolate.CubicSpline(AT, AT**2)(x[0]),
    "a spline's integral": lambda x: interpolate.CubicSpline(AT, x).integrate(0, 1),
    "a contraction": lambda x: np.einsum("i,i,i->", x, x, x, optimize=True),
    "a fixed point": lambda x: optimize.fixed_point(lambda t: np.cos(t) * x[0] / 3, 0.5),
    "a norm": linalg.norm,
}


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_added_to_is_what_plain_python_adds_to(name):
    f = in_place(RESULTS[name])
    g, wanted = value_and_grad(f, compile="never"), f(SAMPLE)
    for _ in range(2):
        value, gradient = g(SAMPLE)
        np.testing.assert_allclose(value, wanted, rtol=1e-9)
    along, h = np.cos(AT), 1e-6
    slope = (f(SAMPLE + h * along) - f(SAMPLE - h * along)) / (2 * h)
    np.testing.assert_allclose(gradient @ along, slope, rtol=1e-5, atol=1e-7)


ZEROS = {
    "a norm": lambda x: linalg.norm(x - x),
    "a distance": lambda x: distance.euclidean(x, x),
    "an integral": lambda x: integrate.quad(lambda t: t * x[0], -1, 1)[0] * 0,
    "a root": lambda x: optimize.brentq(lambda t: t - (x[0] - x[0]), -1.0, 1.0),
    "a scalar's root": lambda x: (
        optimize.root_scalar(lambda t: t - (x[0] - x[0]), bracket=[-1.0, 1.0]).root
    ),
    "a residual": lambda x: optimize.nnls(np.eye(4), x)[1],
}


@pytest.mark.parametrize("name", ZEROS)
def test_a_number_of_pythons_divides_as_pythons_do(name):
    f = ZEROS[name]
    g = jit(lambda x: 1.0 / f(x), compile="never")
    for h in (lambda x: 1.0 / f(x), g, g):
        with pytest.raises(ZeroDivisionError):
            h(SAMPLE)


def test_a_fractional_power_of_a_negative_number_of_pythons_is_complex():
    f = lambda x: abs(integrate.quad(lambda t: -x[0] * t, 0, 1)[0] ** 0.5)  # noqa: E731
    g = jit(f, compile="never")
    for _ in range(2):
        np.testing.assert_allclose(g(SAMPLE), f(SAMPLE), rtol=1e-12)


@pytest.mark.parametrize("shape", [(2,), ()])
def test_a_number_that_is_spread_is_read_only(shape):
    def f(x):
        y = np.broadcast_to(x[0], shape)
        y += 1.0
        return np.sum(y)

    for g in (f, jit(f, compile="never")):
        with pytest.raises(ValueError, match="read-only"):
            g(SAMPLE)


def test_a_grid_takes_points_as_scipys_does():
    for xi in (0.5, np.zeros((3, 2))):
        f = lambda x: interpolate.RegularGridInterpolator((AT,), x)(xi)  # noqa: B023, E731
        with pytest.raises((IndexError, ValueError)) as plain:
            f(SAMPLE)
        with pytest.raises(plain.type, match=re.escape(str(plain.value))):
            jit(f, compile="never")(SAMPLE)
    two = lambda x: interpolate.RegularGridInterpolator((AT, AT), np.outer(x, x))  # noqa: E731
    for xi in ((0.5, 0.5), [0.5, 0.5, 1.5, 2.5], (AT, 1.5)):
        f = lambda x: two(x)(xi)  # noqa: B023, E731
        found = jit(f, compile="never")(SAMPLE)
        assert np.shape(found) == np.shape(f(SAMPLE))
        np.testing.assert_allclose(found, f(SAMPLE), rtol=1e-12)
