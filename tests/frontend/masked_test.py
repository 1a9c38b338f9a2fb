"""np.matrix and masked arrays: their code is NumPy's, in Python, and is followed."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import numpy.ma as ma
import pytest
from tests.frontend.check import name_of

from tapegrad import grad, hessian, jit, jvp, value_and_grad
from tapegrad.errors import UnsupportedError

MASK = np.array([False, True, False, False])
HALF = np.array([[False, True], [False, False]])
POINTS = np.array([1.1, 2.0, 3.0, 2.5]), np.array([4.0, 5.2, 6.0, 0.5])
OUTSIDE = ma.array([1.0, 2.0, 3.0, 4.0], mask=MASK)
EYE = (np.eye(4) * 2.0).view(np.matrix)


def with_masked_entries(x):
    a = ma.array(x)
    a[1] = ma.masked
    a[a > 4.5] = ma.masked
    return (a**2).sum()


def filled_one_by_one(x):
    a = ma.zeros(4)
    a[0], a[2], a[3] = x[0], x[1] * 2, ma.masked
    return (a * a).sum()


def in_place(x):
    a = ma.array(x * 1, mask=MASK.copy())
    a += x
    a *= 2
    a /= ma.masked_less(x, 1.5)
    return a.sum() + np.sum(a.data)


def a_view_that_shares(x):
    a = ma.array(x * 1)
    b = a[1:]
    b[0] = 5 * x[0]
    return a.sum()


def hard(x):
    a = ma.array(x * 1, mask=MASK, hard_mask=True)
    a[1] = x[0] * 10
    return a.sum() + a.data.sum()


def of_what_is_left(x):
    return sum(v for v in ma.array(x, mask=MASK) if v is not ma.masked)


def kalman(x):
    a, h = np.matrix([[1.0, 0.1], [0.0, 1.0]]), np.matrix([[1.0, 0.0]])
    p, state, total = np.matrix(np.eye(2)), np.matrix([[0.0], [0.0]]), 0.0
    for k in range(3):
        state, p = a * state, a * p * a.T + x[0] * np.matrix(np.eye(2))
        s = h * p * h.T + x[3]
        gain, miss = p * h.T * s.I, x[k] - h * state
        state, p = state + gain * miss, (np.matrix(np.eye(2)) - gain * h) * p
        total += (miss.T * s.I * miss)[0, 0]
    return total


def set_rows(x):
    m = np.asmatrix(np.zeros((4, 4)))
    m[0, 1], m[1] = x[0], x
    m *= 2
    return np.linalg.det(m + np.eye(4)) + np.trace(m)


def a_matrix_in_the_memory_of_an_array(x):
    a = np.ones((2, 2))
    m = np.matrix(a, copy=False)
    a[0] = x[:2]
    m[1, 0] = x[2]
    return np.sum(a * x[3]) + (m * m).sum() + m.A[1:].sum()


def columns_of_a_matrix_are_written(x):
    m = np.asmatrix(np.outer(x, x))
    m[:, 0] *= 2
    m[:, 1] = m[:, 2]
    m[..., 3] = x[:, None]
    return (m * m).trace()[0, 0]


PROGRAMS = [
    columns_of_a_matrix_are_written,
    a_matrix_in_the_memory_of_an_array,
    with_masked_entries,
    filled_one_by_one,
    in_place,
    a_view_that_shares,
    hard,
    of_what_is_left,
    kalman,
    set_rows,
    lambda x: ma.array(x**2, mask=MASK).mean(),
    lambda x: np.sum(ma.masked_where(x > 2.2, x) ** 2),
    lambda x: ma.masked_invalid(np.log(x - 1.5)).sum(),
    lambda x: (OUTSIDE * x).sum() + np.sum(x / OUTSIDE),
    lambda x: (ma.array(x) / ma.array([0.0, 1, 2, 3])).sum(),
    lambda x: ma.sqrt(x - 2.2).sum(),
    lambda x: np.log(ma.array(x - 2.2)).sum(),
    lambda x: ma.average(ma.array(x, mask=MASK), weights=x),
    lambda x: ma.array(np.vstack([x, x**2]), mask=np.vstack([MASK, ~MASK])).var(axis=0).sum(),
    lambda x: ma.std(ma.masked_greater(x, 2.7)),
    lambda x: ma.cov(ma.array(np.vstack([x, x**2]), mask=np.vstack([MASK, MASK]))).sum(),
    lambda x: ma.median(ma.array(x, mask=MASK)),
    lambda x: ma.sort(ma.array(x, mask=MASK))[:2].prod(),
    lambda x: ma.array(x, mask=MASK).cumsum().sum(),
    lambda x: ma.where(x > 2.2, x, 0 * x).sum(),
    lambda x: ma.concatenate([ma.array(x, mask=MASK), x]).mean(),
    lambda x: ma.dot(ma.array(x.reshape(2, 2), mask=HALF), x.reshape(2, 2)).sum(),
    lambda x: np.dot(ma.array(x, mask=MASK), x),
    lambda x: ma.array(x, mask=MASK, fill_value=-1.0).filled().prod(),
    lambda x: ma.array(x.reshape(2, 2), mask=HALF).T[0].sum(),
    lambda x: ma.array(x, mask=MASK).reshape(2, 2).sum(axis=1)[0],
    lambda x: ma.compressed(ma.array(x, mask=x > 2.2)).prod(),
    lambda x: ma.array(np.arange(4.0), mask=x > 2.2).sum() * x[0],
    lambda x: ma.polyfit(np.arange(4.0), ma.array(x, mask=MASK), 1)[1],
    lambda x: ma.array(x, mask=MASK).clip(1.5, 2.7).sum(),
    lambda x: ma.squeeze(ma.array(x[None], mask=MASK[None])).sum(),
    lambda x: x[0] * 2 if ma.array(x, mask=True).sum() is ma.masked else x[1],
    lambda x: np.exp(ma.array(x, mask=MASK)).max() - ma.array(x, mask=MASK).ptp(),
    lambda x: x.view(ma.MaskedArray).copy().__array__().sum(),
    lambda x: np.sum(np.matrix(np.outer(x, x)) * EYE) + np.sum(EYE @ x),
    lambda x: (np.asmatrix(x) * np.asmatrix(x).T)[0, 0],
    lambda x: np.sum(np.matrix(np.diag(x)).I.A1),
    lambda x: np.sum(np.matrix([[x[0], x[1]], [0, 1]]) ** 2 * np.matrix([[1], [2]])),
    lambda x: np.sum(np.bmat([[np.outer(x, x), EYE], [EYE, np.outer(x, x)]]).H[0]),
    lambda x: np.linalg.solve(np.matrix(np.diag(x)), np.matrix(x).T).sum() + np.matrix(x).mean(),
    lambda x: sum((r * r.T)[0, 0] for r in np.matrix(np.outer(x, x))),
    lambda x: np.matrix(np.outer(x, x)).ptp() * np.cumsum(np.matrix(x))[0, -1],
    lambda x: np.kron(np.matrix(x), np.matrix(x).T)[0, 1:].sum(),
    lambda x: np.nanmax(np.matrix(np.outer(x, x)), axis=1)[2, 0],
    lambda x: np.apply_along_axis(np.sum, 0, np.matrix(np.outer(x, x)))[0, 1],
    lambda x: ma.cov(ma.array(x, mask=MASK), x**2)[0, 1],
    lambda x: np.matrix(np.outer(x, x))[1, np.matrix(x).argmax()] * np.matrix(x)[0, 0],
    lambda x: np.matrix(np.outer(x, x))[np.matrix(np.diag(x)).argmin(0), 0].sum(),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.every(6)
@pytest.mark.parametrize("f", PROGRAMS, ids=name_of)
def test_values_and_gradients_are_those_of_numpys_own_code(f):
    df = value_and_grad(f, compile="never")
    for x in (*POINTS, *POINTS):
        value, slope = df(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-12)
        steps = 1e-6 * np.eye(4)
        expected = [(f(x + h) - f(x - h)) / 2e-6 for h in steps]
        np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-6)
    assert df.cache_info().traces <= 2


def test_other_derivatives_and_masks_that_change():
    def spread(x):
        return ma.std(ma.masked_greater(x, 2.7) ** 2)

    assert jvp(lambda x: ma.median(ma.masked_greater(x, 2.7)), (POINTS[0],), (np.ones(4),))[1] == 1
    found = hessian(lambda x: (ma.array(x, mask=MASK) ** 3).sum())(POINTS[0])
    np.testing.assert_allclose(found, np.diag(np.where(MASK, 0.0, 6 * POINTS[0])), rtol=1e-12)
    df = value_and_grad(spread, compile="never")
    for k in range(9):  # more or fewer of them are masked
        x = np.random.default_rng(k).uniform(1, 4, 4)
        value, slope = df(x)
        np.testing.assert_allclose(value, float(spread(x)), rtol=1e-12)
        d = np.array([0.3, -0.2, 0.5, 0.1])
        expected = (spread(x + 1e-6 * d) - spread(x - 1e-6 * d)) / 2e-6
        np.testing.assert_allclose(slope @ d, float(expected), rtol=1e-5, atol=1e-7)


def test_masked_arrays_of_the_outside_are_compared_and_kept_ones_are_numpys():
    masked, kept = ma.array([1.0, 2.0, 3.0, 4.0], mask=MASK), SimpleNamespace()

    def f(x):
        kept.r = masked * x
        return kept.r.sum()

    df = grad(f, compile="never")
    np.testing.assert_array_equal(df(POINTS[0]), [1, 0, 3, 4])
    assert type(kept.r) is ma.MaskedArray
    assert kept.r.mask.tolist() == MASK.tolist()
    masked[0] = ma.masked
    np.testing.assert_array_equal(df(POINTS[0]), [0, 0, 3, 4])
    masked.mask = False
    masked[0] = 7
    np.testing.assert_array_equal(df(POINTS[0]), [7, 2, 3, 4])
    np.testing.assert_array_equal(kept.r.mask, False)


def test_shapes_that_are_set_to_what_they_are_and_methods_by_their_call():
    """What masked arrays do, others do too: `np.zeros.__call__`, and a captured array's shape."""
    mask = np.arange(4.0)

    def f(x):
        made, squeezed = np.zeros.__call__, np.squeeze.__call__
        out = made(4)
        out[1] = x[0]
        y = x * 2
        y.shape = (4,)
        if mask.shape != y.shape:
            y.shape = mask.shape
        v = (y - y.mean(keepdims=True)).reshape(2, 2).view()
        v *= 2
        return np.sum(out) + np.sum(v**2) + squeezed(x[:1])

    df = value_and_grad(f, compile="never")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (*POINTS, *POINTS):
            assert df(x)[0] == pytest.approx(f(x), rel=1e-12)
    assert df.cache_info().traces == 1


def test_a_call_of_a_metaclass_goes_on_to_types():
    class Single(type):
        def __call__(cls, x):
            call = super().__call__
            return call(x)

    class Holder(metaclass=Single):
        def __init__(self, x):
            self.x = x

    assert grad(lambda x: Holder(x).x ** 2)(3.0) == 6.0


CALLS = [
    "A.trace()",
    "A.trace(1)",
    "A.argmax()",
    "A.argmin(0)",
    "A.argsort(None)",
    "A.compress([1,0,1])",
    "A.cumsum()",
    "A.cumprod(1)",
    "A.diagonal()",
    "A.dot(x)",
    "A.item(3)",
    "A.ptp()",
    "A.ptp(0)",
    "A.ptp(1)",
    "A.ravel()",
    "A.repeat(2)",
    "A.take(1)",
    "A.take([0,1])",
    "A.take([0,2],1)",
    "A.clip(1,2)",
    "A.round(1)",
    "A.swapaxes(0,1)",
    "A.squeeze()",
    "np.trace(A)",
    "np.cumsum(A)",
    "np.kron(A,x)",
    "np.diagonal(A)",
    "np.diag(A)",
    "np.ravel(A)",
    "np.expand_dims(A,0)",
    "np.take(A,1)",
    "np.nansum(A,axis=0)",
    "np.nanmean(A,axis=1)",
    "np.apply_along_axis(np.sum,1,A)",
    "np.resize(A,9)",
    "np.unique(A)",
    "np.flatnonzero(A>1)",
    "np.gradient(A)",
    "np.extract(A>1,A)",
    "np.sort(A,axis=None)",
    "np.median(A)",
    "np.argmax(A)",
]


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [np.matrix, type("Plain", (np.ndarray,), {})])
def test_methods_and_functions_give_what_they_give_numpy(kind, call):
    def f(x):
        found = eval(call, {"np": np, "A": np.outer(x, x).view(kind), "x": x})
        found = found if isinstance(found, tuple) else (found,)
        kinds.append([(a.__class__ if np.ndim(a) else None, np.shape(a)) for a in found])
        return [np.asarray(a) for a in found]

    if kind is not np.matrix and ".ptp" in call:
        return
    x, kinds = np.array([1.1, 0.7, 1.6]), []
    expected, found = f(x), jit(f, compile="never")(x)
    assert kinds[1] == kinds[0]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def writes(x, key, value):
    m = np.asmatrix(np.outer(x, x))
    m[key] = value
    return np.asarray(m)


class Doubled(np.ndarray):
    def __getitem__(self, key):
        return np.asarray(super().__getitem__(key)) * 2


class Backwards(np.ndarray):
    def __getitem__(self, key):
        return np.asarray(self)[key][::-1]


@pytest.mark.filterwarnings("ignore")
def test_where_a_write_goes_is_what_the_class_gives_for_the_index():
    x = np.array([1.1, 0.7, 1.6])
    for key in ((slice(None), 0), (slice(None), np.int64(0)), (..., 0)):
        with pytest.raises(ValueError, match="could not broadcast"):
            jit(lambda x, key=key: writes(x, key, x))(x)
    for key in ((slice(None), 0), (slice(None), slice(2))):
        found = jit(lambda x, key=key: writes(x, key, x[:, None]))(x)
        np.testing.assert_array_equal(found, writes(x, key, x[:, None]))
    for key in (0, (0, 0), ([0, 1], 2), (..., slice(1, 2)), (1, slice(2)), ()):
        found = jit(lambda x, key=key: writes(x, key, x[0]))(x)
        np.testing.assert_array_equal(found, writes(x, key, x[0]))

    def through(x, kind):
        a = (x * 1).view(kind)
        a[1:] = x[:2]
        a[0] = x[2] if kind is Doubled else 5.0
        return np.asarray(a)

    for kind in (Doubled, Backwards):
        found = jit(lambda x, kind=kind: through(x, kind), compile="never")(x)
        np.testing.assert_array_equal(found, through(x, kind))


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "f",
    [
        lambda m: m.var(),
        lambda m: m.std() * 2,
        lambda m: m.sum(),
        lambda m: m[0],
        lambda m: ma.dot(m, m),
        lambda m: {"mean": m.mean(), "n": 1.0},
    ],
)
def test_a_masked_number_is_no_result(f):
    df = jit(lambda x: f(ma.masked_less(x, 0)), compile="never")
    df(np.array([1.0, 2, 3]))
    with pytest.raises(UnsupportedError, match=r"is masked.*filled\(x, value\)"):
        df(np.array([-1.0, -2, -3]))
    filled = jit(lambda x: ma.filled(ma.masked_less(x, 0).var(), 9.0), compile="never")
    assert (filled(np.array([1.0, 2, 3])), filled(np.array([-1.0, -2, -3]))) == (2 / 3, 9.0)


def test_a_masked_result_is_refused():
    with pytest.raises(UnsupportedError, match=r"mask would be lost. Let it return x\.filled"):
        jit(lambda x: ma.array(x, mask=MASK) * 2)(POINTS[0])
    with pytest.raises(UnsupportedError, match=r"MaskedArray.* class would be lost.* x\.filled"):
        jit(lambda x: ma.array(x) * 2)(POINTS[0])
