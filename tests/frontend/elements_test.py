"""What goes through the elements of arrays, and numbers that are made of them: Python's functions
as NumPy's, iterators, casts, strides, and lists of traced values. Each call is seen before it is
made, as it is where a derivative is asked for.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from tests.debugged import unobserved
from tests.frontend import agreement_test as agreement
from tests.frontend.check import check_gradient, leaves, normal

from tapegrad import grad, jit, vjp
from tapegrad.core.request import Request
from tapegrad.errors import ConversionError, UnsupportedError
from tapegrad.observe.observer import Observer
from tapegrad.tracing.runs.run import trace_function

X = np.array([[1.3, 2.0, 0.3], [0.4, 0.5, 0.6]])
W = np.array([[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]])


def seen(f: Any, x: Any) -> Any:
    """What `f` gives while it is traced, and every call of it is seen."""
    results: list[Any] = []

    def kept(x: Any) -> None:
        results.append(iter([agreement.plain(f(x))]))

    with Observer(kept, [x], {}) as observer:
        trace_function(Request(kept, [x]), observer)
    return next(results[0])


# ---- functions of elements, and loops over them


def piece(v: float) -> float:
    return v * v if v > 1 else math.sin(v)


whole = np.vectorize(piece)
single = np.vectorize(piece, otypes="f")
both = np.vectorize(lambda a, b: (a * b, a + b), cache=True)
rows = np.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")
scaled = np.vectorize(lambda a, b: a * b[0], signature="(n),(m)->(n)", otypes=[np.float32])
cubic = np.vectorize(lambda c, x: c[0] * x**2 + c[1], excluded={0})
named = np.vectorize(lambda x, c=None: c[0] * x**2 + c[1], excluded=["c"], otypes=[float])
made = np.frompyfunc(lambda a, b: a * b + math.exp(a), 2, 1)


def written(x):
    y = x.copy()
    with np.nditer(y, op_flags=["readwrite"]) as it:
        for v in it:
            v[...] = v * v
    return y


def allocated(x):
    it = np.nditer([x, W, None], op_dtypes=[None, None, "f4"])
    for a, b, c in it:
        c[...] = a * b
    return it.operands[2]


def reduced(x):
    out = np.zeros(x.shape[0])
    it = np.nditer([x, out[:, None]], flags=["reduce_ok"], op_flags=[["readonly"], ["readwrite"]])
    for a, b in it:
        b[...] += a
    return out


def stepped(x):
    it, found = np.nditer(x, flags=["c_index"]), []
    while not it.finished:
        found.append(it[0] * it.index)
        it.iternext()
    return found


def placed(x):
    it = np.nditer(x, flags=["multi_index"], order="F")
    return [v * (1 + it.multi_index[0]) for v in it], it.shape, it.itersize


def read_only(x):
    for v in np.nditer(x):
        v[...] = 3


def enumerated(x):
    return [v * (i + 2 * j) for (i, j), v in np.ndenumerate(x)]


def broadcasted(x):
    b = np.broadcast(x, W[0])
    return [u * v for u, v in b], b.shape, b.size, b.nd, b.index, b.numiter


as_strided = np.lib.stride_tricks.as_strided
ELEMENTS: list[Any] = [
    *(written, reduced, stepped, placed, read_only, enumerated, broadcasted),
    lambda x: whole(x),
    lambda x: whole(x[0, 0]),
    lambda x: single(x),
    lambda x: both(x, 2),
    lambda x: rows(x, x),
    lambda x: scaled(x, x),
    lambda x: cubic([x[0, 0], 2], x),
    lambda x: named(x, c=x[0]),
    lambda x: np.vectorize(piece)([[x[0, 0], 2], (1.5, x[0, 1])]),
    lambda x: np.vectorize(lambda k: x[0, k])(np.arange(3)),
    lambda x: np.vectorize(lambda v: 1 if v < 1 else v)(x),
    lambda x: np.vectorize(lambda v: v * 3)(np.round(x).astype(int)),
    lambda x: np.vectorize(lambda v: v, otypes=[np.int8])(300 * x),
    lambda x: np.vectorize(lambda v: v > 1)(x),
    lambda x: whole(x[:0]),
    lambda x: made(x, x[0]).astype(float),
    lambda x: made(x[0, 0], 2),
    lambda x: made.reduce(x, axis=1).astype(float),
    lambda x: made.outer(x[0], x[1]).astype(float),
    lambda x: [v * 2 for v in np.nditer(x)],
    lambda x: [a * b for a, b in np.nditer([x, W[0]], order="F")],
    lambda x: [v.sum() for v in np.nditer(x, flags=["external_loop"])],
    lambda x: [v + 0 for v in np.nditer(x.T[::-1])],
    lambda x: [float(v) for v in np.nditer(x)],
    lambda x: list(np.nditer(x[:0])),
    lambda x: np.float64(x[0, 0]) * np.intp(3.1 * x[0, 1]),
    lambda x: (np.float64(x), np.float32(x), np.float64([x[0, 0], 2]), np.bool_(x)),
    lambda x: (np.int64(3 * x[0, 0]), np.uint8(-3 * x[0, 0]), np.int16(100 * x)),
    lambda x: np.int8(float(x[0, 0])),
    lambda x: np.int8(1000 * float(x[0, 0])),
    lambda x: (float(x[0, 0]), sum(map(float, x[0])), math.dist(x[0], [1, 2, x[1, 0]])),
    lambda x: float(x),
    lambda x: np.unique_values(np.round(x)),
    # lists
    lambda x: np.concatenate([[x[0], x[1]], W]),
    lambda x: np.einsum("ij,kj", W, [x[0], [x[1, 0], 1, 2]]),
    lambda x: np.interp(0.7, [0, x[0, 0]], [x[0, 1], 5]),
    lambda x: np.histogram([1, 2, 2], weights=[x[0, 0], 1, x[0, 1]])[0],
    lambda x: np.linspace([x[0, 0], 1], [2, x[0, 1]], 3),
    lambda x: np.emath.sqrt([x[0, 0], 2]),
    lambda x: np.subtract.outer([x[0, 0], 1], [2, x[0, 1]]),
    lambda x: np.maximum.reduce([x[0], x[1], W[0] / 4]),
    lambda x: np.broadcast_arrays(x, [[x[0, 0]], [2]]),
]  # fmt: skip
LAYOUTS = {
    "rows": X,
    "columns": np.asfortranarray(X),
    "reversed": X[::-1],
    "single": X.astype("f4"),
}


@pytest.mark.every(16)
@pytest.mark.parametrize("f", ELEMENTS, ids=range(len(ELEMENTS)))
def test_traced_is_untraced(f):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, x in LAYOUTS.items():
            wanted, found = agreement.outcome(f, x), agreement.outcome(lambda x: seen(f, x), x)
            assert not agreement.differs(wanted, found, True), name
            assert not isinstance(found, (UnsupportedError, ConversionError)), name
        if isinstance(agreement.outcome(f, X), Exception):
            return
        played = jit(f, compile="never")
        for x in (X, 1.1 * X + 0.3, X[:, ::-1], normal(2, 3)):
            found = agreement.outcome(played, x)
            assert not agreement.differs(agreement.outcome(f, x), found, False)
        real = [getattr(np.asarray(r), "dtype", None) == np.float64 for r in leaves(f(X))]
        if any(real):
            check_gradient(f, X)


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "f",
    [
        lambda x: as_strided(x[0], (2, 2), (x.strides[1],) * 2),
        lambda x: as_strided(x[0, 1:], (2, 2), (x.strides[1], -x.strides[1])),
        lambda x: as_strided(x, (2,), (sum(x.strides),)),
        lambda x: as_strided(x[0, 0:1], (3,), (0,)),
        lambda x: as_strided(x, (0, 4), (8, 8)),
        allocated,
    ],
)
def test_up_to_the_layout(f):
    for x in LAYOUTS.values():
        assert not agreement.differs(f(x), seen(f, x), False)
        for how in ("never", "always"):
            again = jit(f, compile=how)
            assert not agreement.differs(f(x), again(x), False)
            assert not agreement.differs(f(2 * x), again(2 * x), False)
    check_gradient(f, X)


def test_iterators_where_calls_are_not_seen():
    for f in (enumerated, written, allocated):
        value = unobserved(vjp)(f, X)[0]
        assert not agreement.differs(f(X), value, False)
    assert np.nditer is type(np.nditer(X))
    with pytest.raises(ConversionError):
        unobserved(vjp)(lambda x: broadcasted(x)[0], X)


def test_windows_of_a_signal_by_their_strides():
    def f(x):
        return np.sum(as_strided(x, (4, 3), (8, 8)) @ np.array([1.0, 2, 3]))

    for how in ("never", "always"):
        np.testing.assert_array_equal(grad(f, compile=how)(np.arange(6.0)), [1, 3, 6, 6, 5, 3])


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: as_strided(x, (9,), (8,)), "isn't an element of the array"),
        (lambda x: as_strided(x, (2,), (4,)), "isn't an element of the array"),
        (lambda x: list(np.nditer(x, op_dtypes=["f4"])), "op_dtypes="),
        (lambda x: list(np.nditer(x, flags=["f_index", "ranged"])), "'ranged'"),
        (lambda x: np.nditer(x).itviews, "itviews"),
        (
            lambda x: list(np.nditer(x + 1, ["external_loop"], [["readwrite"]])),
            "'external_loop' and arrays that are written to",
        ),
        (lambda x: made(x, 1, where=x > 1), "where"),
        (lambda x: np.frompyfunc(lambda v: x, 1, 1)(x), "returns arrays"),
        (lambda x: np.var(x, dtype=int), "rounds on the way"),
    ],
)
def test_what_is_refused_by_name(f, words):
    with pytest.raises(UnsupportedError, match=words):
        seen(f, X)


def test_writes_to_what_shares_memory_are_not_lost():
    def apart(x):
        y = x * 1
        as_strided(y, (2,), (16,))[0] = 7
        return y

    def windows(x):
        y = x * 1
        v = as_strided(y, (2, 2), (8, 8))
        y[1] = 7
        return v * 1

    for f in (apart, windows):
        with pytest.raises(UnsupportedError, match="after a write"):
            seen(f, np.arange(6.0))
    with pytest.raises(ValueError, match="read-only"):
        seen(lambda x: as_strided(x * 1, (2, 2), (8, 8)).fill(1), np.arange(6.0))


def test_what_functions_of_elements_read_is_read_at_each_call():
    factor = 2.0

    class Number:
        def __float__(self):
            return factor

    vector = np.vectorize(lambda v: v * factor)
    ufunc = np.frompyfunc(lambda v: v * factor, 1, 1)

    def f(x):
        return np.sum(vector(x)) + ufunc(x)[0, 0] * math.exp(Number()) * float(Number())

    played = jit(f, compile="never")
    for factor in (2.0, 3.0):  # noqa: B007  (functions read it)
        assert played(X) == pytest.approx(f(X))
    vector.pyfunc = np.square
    assert played(X) == pytest.approx(f(X))


def test_a_function_in_c_that_reads_what_changes():
    known = {1.0: 2.0}
    ufunc = np.frompyfunc(known.get, 1, 1)
    plain = np.array([1.0])
    played = jit(lambda x: x * ufunc(plain)[0], compile="never")
    assert played(3.0) == 6.0
    known[1.0] = 5.0
    assert played(3.0) == 15.0


def test_functions_of_many_elements_are_loops():
    played = grad(lambda x: np.sum(whole(x)), compile="never")
    x = np.linspace(0.1, 0.9, 400)
    np.testing.assert_allclose(played(x), np.cos(x))
    assert len(played.tapes[0].calls) < 400


def test_a_type_stays_an_argument():
    f = jit(lambda x: np.array([x, 2], dtype=float) * np.zeros(2, np.float64).itemsize)
    np.testing.assert_array_equal(f(3.0), [24, 16])
