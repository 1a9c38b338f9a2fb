"""NumPy's own code on traced arrays: values, gradients, what results share with arguments, what is
read at each call; and that no name of the front end goes without a test."""

from __future__ import annotations

import re
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy._core.overrides import array_function_dispatch
from tests.frontend import agreement_test as agreement
from tests.frontend import names_calls
from tests.frontend.check import assert_same, check, leaves, normal
from tests.primitives import samples

from tapegrad import grad, jit
from tapegrad.errors import TapegradError, UnsupportedError
from tapegrad.tracing.frontend.calling import library_code
from tapegrad.tracing.frontend.numpy import ufuncs
from tapegrad.tracing.frontend.numpy.functions import followed
from tapegrad.tracing.frontend.operands.declaring import FUNCTIONS, METHODS
from tapegrad.tracing.tracers.tracer import ArrayTracer

# Calls of borrowed functions on a matrix of four rows and three columns; `w` is a captured one.
CALLS = """np.rollaxis(y, 1)
np.atleast_1d(y, y[0, 0])
np.atleast_2d(y[0], y)
np.atleast_3d(y, y[0])
np.matrix_transpose(y)
np.flip(y)
np.flip(y, 0)
np.fliplr(y)
np.flipud(y)
np.rot90(y)
np.rot90(y, 2)
np.rot90(y, -1)
np.shape(y)
np.ndim(y)
np.size(y, 0)
np.real(y)
np.real_if_close(y)
np.iscomplexobj(y)
np.isrealobj(y)
np.common_type(y, w)
np.tril(y, 1)
np.triu(y)
np.tril_indices_from(y)
np.triu_indices_from(y, 1)
np.diag_indices_from(y[:3])
np.vstack([y, w[0], y[1]])
np.hstack([y, w])
np.dstack([y[0], w[0]])
np.column_stack([y, w[:, 0]])
np.append(y, w)
np.append(y, [[1, 2, 3]], axis=0)
np.split(y, 2)
np.vsplit(y, [1])
np.hsplit(y, 3)
np.hsplit(y[0], 3)
np.dsplit(y[None], 3)
np.unstack(y, axis=1)
np.block([[y, w[:, :1]], [np.ones((1, 4))]])
np.block(y)
np.apply_over_axes(np.sum, y, [0, 1])
np.average(y)
np.average(y, axis=1, weights=w[0] ** 2, returned=True)
np.average(w, weights=y**2)
np.average(y, axis=0, keepdims=True, returned=True)
np.ptp(y, axis=0)
np.diff(y)
np.diff(y, 2, axis=0, prepend=0.0)
np.diff(y, 0)
np.trapezoid(y, w)
np.trapezoid(y, dx=y[0, 0], axis=0)
np.unwrap(3 * y)
np.unwrap(y, axis=0, period=2.0)
np.piecewise(y, [y < 0], [lambda t: t * w[0, 0], 2.0])
np.piecewise(y, [y < 0], [lambda t, k: t * k, 1.5], 3.0)
np.polyval(y[0], w)
np.polyval([1, 2, 3], y)
np.cov(y)
np.cov(y.T, w.T, ddof=0)
np.cov(w, aweights=y[0] ** 2, fweights=[1, 2, 1])
np.allclose(y, w)
np.array_equal(y, w)
np.array_equal(y, y, equal_nan=True)
np.nan_to_num(np.where(y > w, np.inf, y), posinf=7.0)
np.nan_to_num(np.where(y > w, np.nan, y), nan=w[0, 0])
np.nan_to_num(y, copy=False)
np.outer(y[0], w)
np.extract(y > 0, w)
np.extract(w > 0, y)
np.flatnonzero(y > 0)
np.angle(y)
np.cumulative_sum(y, axis=1, include_initial=True)
np.cumulative_prod(y[0])
np.geomspace(1.0, y[0] ** 2, 4)
np.logspace(y[0, 0], 2.0, 4)
np.i0(y)
np.ix_(y[0] > 0, [0, 1])
np.nanargmax(y, axis=1)
np.nanargmin(y / (y != w))
np.poly(y[0])
np.polyadd(y[0], w[0, :2])
np.polysub(w[0, :2], y[0])
np.polyder(y[0])
np.polyint(y[0], k=3)
np.polydiv(y[0], w[0, :2])
np.polyfit(w[0], y[0], 1)
np.polyfit(y[:, 0], y[:, 1:], 2, w=w[:, 0])
np.trim_zeros(np.append(y, 0))
np.unique(np.round(y))
np.unique(y, return_index=True, return_inverse=True, return_counts=True)
np.unique_all(y)
np.unique_counts(y)
np.unique_inverse(y)
np.unique_values(y)
np.union1d(y, w)
np.intersect1d(y, w, return_indices=True)
np.setdiff1d(y, w)
np.setxor1d(y, w)
np.isin(y, w)
np.einsum_path('ij,kj', y, w)
np.row_stack([y, w])
np.ediff1d(y)
np.ediff1d(y, to_end=[1.0, 2.0], to_begin=y[0])
np.ediff1d(w, to_end=y[0])
np.kron(y, w)
np.kron(w[0], y)
np.array_split(y, 3)
np.array_split(y, [1, 2], axis=1)
np.resize(y, (5, 4))
np.fix(3 * y)
np.isneginf(y)
np.isposinf(1 / (y - y[0, 0]))
np.roots(np.concatenate([[1.0], y[0, :1], -(y[1, :1] ** 2) - 1]))
np.histogram(w, 4, weights=y)
np.histogram(y, np.linspace(-9, 9, 5))
np.histogram(w[0], 4, weights=y[0], density=True)
np.histogram2d(w[0], w[1], 4, weights=y[0])
np.histogramdd(w, 3, weights=y[:, 0])
np.histogram_bin_edges(y, 4)
np.fft.fftshift(y)
np.fft.ifftshift(y, axes=0)
np.emath.arccos(np.tanh(y))
np.emath.arcsin(np.tanh(y))
np.emath.arctanh(np.tanh(y))
np.emath.log(y**2)
np.emath.log10(y**2)
np.emath.log2(y**2)
np.emath.logn(3, y**2)
np.emath.power(y**2, w)
np.emath.sqrt(y**2)
np.linalg.vector_norm(y, axis=0)
np.linalg.vector_norm(y, ord=3)
np.linalg.matrix_norm(y)
np.linalg.matrix_power(y[:3], 3)
np.linalg.matrix_power(y[:3], 0)
np.linalg.matrix_power(y[:3], -1)
np.linalg.matrix_power(y[:3], 1)
np.linalg.multi_dot([y, w.T, y])
np.linalg.outer(y[0], w[0])
np.linalg.cross(y, w)
np.linalg.tensorinv(y[:3].reshape(3, 3), 1)
np.linalg.tensorsolve(y[:3].reshape(3, 1, 3), w[:3, :1])
np.linalg.tensorsolve(w[:3].reshape(3, 3, 1), y[:3, 0], axes=(1,))
np.linalg.svdvals(y)
np.linalg.matrix_rank(y)
np.linalg.matrix_transpose(y)
np.linalg.diagonal(y, offset=1)
np.linalg.trace(y)
np.linalg.matmul(y, w.T)
np.linalg.tensordot(y, w, axes=2)
np.linalg.vecdot(y, w)""".splitlines()
Y, W = normal(4, 3), normal(4, 3, seed=1)
Y[:3] += 2 * np.eye(3)


def program(text: str) -> Any:
    return eval(f"lambda y, w=W: {text}", {"np": np, "W": W})


def missing(text: str) -> Any:
    """A mark for calls of functions that NumPy has only from a later version on."""
    home, name = re.match(r"np\.((?:linalg|fft|emath)\.)?(\w+)", text).groups()
    module = getattr(np, home[:-1]) if home else np
    return pytest.mark.skipif(not hasattr(module, name), reason="not in this NumPy")


EACH = [pytest.param(text, marks=missing(text)) for text in CALLS]


@pytest.mark.every(16)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", EACH)
def test_values_and_gradients(text):
    f = program(text)
    if any(
        isinstance(r, (np.ndarray, float)) and np.asarray(r).dtype.kind == "f" for r in leaves(f(Y))
    ):
        check(f, Y)
    with np.errstate(all="ignore"):
        arrays = (Y, np.asfortranarray(Y), Y.astype(np.float32), Y[::-1, ::-1])
        wanted = map(f, arrays)
        for x, found in zip(arrays, agreement.outcomes([f], arrays), strict=True):
            assert not agreement.differs(next(wanted), found, x is Y or x.dtype == "f4")
        played = jit(f, compile="never")
        for x in (Y, W + 0.25, 2 * Y, Y):
            assert not agreement.differs(f(x), played(x), False)


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", EACH)
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_write_reaches_what_it_reaches_in_numpy(text, order):
    f = program(text)

    def of_results(x: Any) -> Any:
        y = np.array(x, order=order) if type(x) is np.ndarray else np.copy(x, order)
        arrays = [r for r in leaves(f(y)) if isinstance(r, np.ndarray) and r.ndim]
        for k, r in enumerate(arrays):
            if r.dtype.kind == "f":
                r[...] = k + 1
        return y

    def of_arguments(x: Any) -> Any:
        y = np.array(x, order=order) if type(x) is np.ndarray else np.copy(x, order)
        result = f(y)
        y[...] = 5.0
        return result

    with np.errstate(all="ignore"):
        both = of_results, of_arguments
        wanted = [agreement.outcome(g, Y) for g in both]
        for k, found in enumerate(agreement.outcomes(both, [Y])):
            if isinstance(found, UnsupportedError):  # whether it reaches it isn't followed
                assert "after a write" in str(found)
            assert not agreement.differs(wanted[k], found, False)


@pytest.mark.every(2)
@pytest.mark.parametrize("text", [t for t in CALLS if re.search(r"\bw\b", t)])
@pytest.mark.filterwarnings("ignore")
def test_what_is_captured_is_read_at_each_call(text):
    w = W.copy()
    f = eval(f"lambda y: {text}", {"np": np, "w": w})
    with np.errstate(all="ignore"):
        played = jit(f, compile="never")
        for k in range(3):
            assert not agreement.differs(f(Y), played(Y), False)
            w[...] = np.roll(w, 1) + k
        assert not agreement.differs(f(Y), played(Y), False)


def test_functions_of_the_users_are_followed():
    scale = {"by": 2.0}
    played = jit(
        lambda x: np.piecewise(x, [x > 0], [lambda t: t * scale["by"], 0.0]), compile="never"
    )
    assert_same(played(Y), np.where(Y > 0, 2.0 * Y, 0.0))
    scale["by"] = 3.0
    assert_same(played(Y), np.where(Y > 0, 3.0 * Y, 0.0))


def test_what_such_code_refuses_is_told_with_the_users_line():
    with pytest.raises(
        UnsupportedError, match=r"borrowed_test.py:\d+: `jit\(lambda x: np.setxor1d"
    ):
        jit(lambda x: np.setxor1d(1j * x, x))(Y)


def test_without_python_code_there_is_nothing_to_borrow():
    assert library_code.implementation_of(np.concatenate) is None
    assert library_code.implementation_of(len) is None
    with pytest.raises(UnsupportedError, match=r"np.save has no derivative rule"):
        jit(lambda x: np.save("none", x))(Y)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["asanyarray", "asarray", "array", "zeros"])
def test_a_numpy_that_makes_arrays_otherwise_is_refused(name, monkeypatch):
    """As a later one may: what isn't known makes a plain array, and that holds nothing traced."""
    monkeypatch.delitem(library_code._OURS, getattr(np, name))
    monkeypatch.setattr(library_code, "_made", {})
    library_code.module.cache_clear()
    refused = 0
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            wanted = [agreement.outcome(program(text), Y) for text in CALLS]
            for k, found in enumerate(agreement.outcomes([program(text) for text in CALLS], [Y])):
                refused += isinstance(found, TapegradError)
                assert not agreement.differs(wanted[k], found, False), CALLS[k]
    finally:
        library_code.module.cache_clear()
    assert refused


# ---- ties, callbacks, interrupts


TIED = np.array([2.0, 1, 2, 5, 5] * 20)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.isin(x, x),
        lambda x: np.unique(x, return_index=True)[1],
        lambda x: np.unique_all(x)[1],
        lambda x: np.intersect1d(x, np.array([1.0, 2, 7] * 8), return_indices=True)[2],
        lambda x: np.argsort(x, kind="mergesort"),
        lambda x: x.argsort(kind="mergesort"),
    ],
)
def test_equal_elements_stay_in_order(f):
    """NumPy's code asks for that by the name "mergesort"."""
    for how in ("never", "always"):
        np.testing.assert_array_equal(jit(f, compile=how)(TIED), f(TIED))


class Curve:
    power = 2.0

    def __call__(self, t):
        return self.power * t

    def method(self, t):
        return self.power * t


CALLBACKS = {
    "an object": lambda c: c,
    "a method": lambda c: c.method,
    "a partial": lambda c: partial(Curve.method, c),
    "a function": lambda c: lambda t: c.power * t,
}


@pytest.mark.parametrize("of", CALLBACKS.values(), ids=CALLBACKS)
def test_callbacks_are_followed(of):
    """What they read may change."""
    curve, chosen = Curve(), np.array([True, False, True])
    callback = of(curve)
    x = np.array([1.0, 2.0, 3.0])
    for how in ("never", "always"):
        curve.power = 2.0
        df = grad(lambda x: np.sum(np.piecewise(x, [chosen], [callback, 1.0])), compile=how)
        np.testing.assert_array_equal(df(x), [2, 0, 2])
        curve.power = 5.0
        np.testing.assert_array_equal(df(x), [5, 0, 5])


def test_piecewise_of_plain_arrays():
    """Its functions may return traced values, and among them may be some, of a plain x, too."""
    points = np.array([0.3, 0.7])
    for f in (
        lambda a: np.piecewise(0.3, [True, False], [lambda u: a * u, lambda u: u**2]),
        lambda a: np.sum(np.piecewise([0.3, 0.7], [[True, False]], [lambda u: a * u, 3.0])),
        lambda a: np.sum(np.piecewise(points, [points < 0.5, points >= 0.5], [a, lambda u: a * u])),
    ):
        for how in ("never", "always"):
            for a in (1.3, 2.0):
                expected = f(a + 1.0) - f(a)  # which are linear
                np.testing.assert_allclose(grad(f, compile=how)(a), expected, rtol=1e-14)


def test_an_order_that_is_open_is_refused():
    with pytest.raises(UnsupportedError, match=r"np.unique\(sorted=False\) leaves open"):
        jit(lambda x: np.unique(x.astype(int), sorted=False))(TIED)


def test_an_interrupt_leaves_no_function_half_made(monkeypatch):
    x = np.array([1.0, 2.0, 4.0, 1.0])
    monkeypatch.setattr(library_code, "_made", {})
    for k in range(1, 40):
        calls = iter(range(1, 1000))

        def strike(frame, what, _, k=k, calls=calls):
            if what == "call" and frame.f_code.co_name == "_ours" and next(calls) == k:
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(strike)
        try:
            jit(lambda x: np.polydiv(x, x[:2])[0], compile="never")(x)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        found = jit(lambda x: np.polydiv(x, x[:2])[0], compile="never")(x)
        np.testing.assert_allclose(found, np.polydiv(x, x[:2])[0])
        library_code._made.clear()


# ---- no name without a test


def _tested() -> str:
    here = Path(__file__).parent
    files = [
        *here.glob("*_test.py"),
        *here.parent.glob("honesty/*_test.py"),
        *Path(samples.__file__).parent.glob("*.py"),
    ]
    text = [file.read_text() for file in files]
    return "\n".join([*text, *agreement.CALLS, *agreement.WRITES, *names_calls.CALLS.values()])


def _names() -> dict[str, str]:
    """Each name that the front end answers, and what a call of it looks like in a test."""
    linalg = {f: name for name, f in vars(np.linalg).items() if callable(f)}
    homes = {"numpy.fft": "np.fft.", "numpy.lib.scimath": "np.emath."}
    homes["numpy.lib.stride_tricks"] = "np.lib.stride_tricks."
    found = {}
    for _, _, f in followed():
        home = homes.get(f.__module__, "np.")
        name = f"np.linalg.{linalg[f]}" if "linalg" in f.__module__ else f"{home}{f.__name__}"
        found[name] = re.escape(name) + r"\("
    for f in (*ufuncs._DIRECT, *ufuncs._COMPOSED):
        found[f"np.{f.__name__}"] = rf"np\.{f.__name__}\b"
    for name in METHODS:
        found[f"ndarray.{name}"] = rf"[\w)\]]\.{name}\("
    own = {n for c in ArrayTracer.__mro__ if c is not object for n in vars(c)}
    for name in own & {n for n in dir(np.ndarray) if not n.startswith("_")} - METHODS.keys():
        found[f"ndarray.{name}"] = rf"[\w)\]]\.{name}\b"
    return found


def untested(names: dict[str, str]) -> set[str]:
    text = _tested()
    return {name for name, call in names.items() if not re.search(call, text)}


def test_each_name_of_the_front_end_has_a_test():
    assert not untested(_names())
    assert untested({"np.nonsense": r"np\.nonsense\("}) == {"np.nonsense"}


def test_a_function_that_isnt_known_runs_by_numpys_code():
    def halves(x, n=2):
        return np.asarray(x) / n

    halves.__module__ = "numpy.lib._later_impl"
    of_numpy = array_function_dispatch(lambda x, n=None: (x,), module="numpy")(halves)
    of_others = array_function_dispatch(lambda x, n=None: (x,))(lambda x, n=2: x / n)
    x = np.arange(3.0)
    np.testing.assert_array_equal(grad(lambda x: np.sum(of_numpy(x)))(x), 0.5)
    with pytest.raises(UnsupportedError, match="has no derivative rule"):
        grad(lambda x: np.sum(of_others(x)))(x)


PREFIXES = {np: "np.", np.linalg: "np.linalg.", np.fft: "np.fft.", np.emath: "np.emath."}


def test_each_borrowed_function_is_in_the_table_here():
    text = "\n".join(CALLS)
    for module, name, f in followed():
        assert f in FUNCTIONS or f"{PREFIXES[module]}{name}(" in text, name
