"""Elementwise functions of NumPy and SciPy, and all operators: values, dtypes, gradients."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from tests.frontend.check import assert_same, check, check_value, normal, positive, source_line

from tapegrad import grad, trace
from tapegrad.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:numpy.fix:DeprecationWarning")  # of NumPy 2.5

X = normal(3, 4)
Y = normal(3, 4, seed=1)
P = positive(3, 4)
Q = positive(4, seed=1)

ANYWHERE = [
    lambda x: np.negative(x),
    lambda x: np.positive(x),
    lambda x: np.exp(x),
    lambda x: np.exp2(x),
    lambda x: np.expm1(x),
    lambda x: np.sin(x),
    lambda x: np.cos(x),
    lambda x: np.tan(x / 2),
    lambda x: np.tanh(x),
    lambda x: np.sinh(x),
    lambda x: np.cosh(x),
    lambda x: np.arctan(x),
    lambda x: np.arcsinh(x),
    lambda x: np.arcsin(np.tanh(x)),
    lambda x: np.arccos(np.tanh(x)),
    lambda x: np.arctanh(x / 9),
    lambda x: np.square(x),
    lambda x: np.cbrt(x),
    lambda x: np.reciprocal(x),
    lambda x: np.abs(x),
    lambda x: np.absolute(x),
    lambda x: np.fabs(x),
    lambda x: np.sign(x),
    lambda x: np.floor(x),
    lambda x: np.ceil(x),
    lambda x: np.trunc(x),
    lambda x: np.rint(x),
    lambda x: np.fix(x),
    lambda x: np.round(x),
    lambda x: np.round(x, 1) + x,
    lambda x: np.round(100 * x, -1),
    lambda x: np.around(x, decimals=2),
    lambda x: np.sinc(x),
    lambda x: np.deg2rad(x),
    lambda x: np.radians(x),
    lambda x: np.rad2deg(x),
    lambda x: np.degrees(x),
    lambda x: np.conjugate(x),
    lambda x: np.conj(x),
    lambda x: np.real(x),
    lambda x: np.imag(x),
    lambda x: np.nan_to_num(x),
    lambda x: np.modf(x),
    lambda x: np.divmod(x, 0.7),
    lambda x: np.heaviside(x, 0.5),
    lambda x: np.clip(x, -0.5, 0.5),
    lambda x: np.clip(x, None, 0.5),
    lambda x: np.clip(x, -0.5, None),
    lambda x: np.clip(x, min=-0.5),
    lambda x: np.clip(x, max=0.5),
    lambda x: np.clip(x, min=-0.5, max=np.linspace(0, 1, 4)),
    lambda x: np.where(x > 0, x, 0.1 * x),
    lambda x: np.where(x > 0, 1.0, x),
    lambda x: np.where(x > 0, x, 0),
    lambda x: np.where(x > 0, 1, 0),
    lambda x: np.where(x > 0, True, False),
    lambda x: np.where(x, x, 0.0),
    lambda x: np.where([True, False, True, False], x, -x),
    lambda x: np.select([x > 1, x > 0], [x, x**2]),
    lambda x: np.select([x > 1, x > 0], [x, x**2], default=np.sin(x)),
    lambda x: np.select([x > 1, x > 0], [2.0, x], -1.0),
    lambda x: np.piecewise(x, [x < 0, x >= 0], [lambda t: -t, lambda t: t**2]),
    lambda x: np.piecewise(x, [x < -0.5, x > 0.5], [-1.0, 1.0, np.sin]),
    lambda x: np.isnan(x),
    lambda x: np.isinf(x),
    lambda x: np.isfinite(x),
    lambda x: np.isneginf(x),
    lambda x: np.isposinf(x),
    lambda x: np.signbit(x),
    lambda x: np.isclose(x, 0.3, atol=0.2),
    lambda x: np.logical_not(x > 0),
    lambda x: np.copy(x),
    lambda x: np.copy(x > 0),
    lambda x: np.float_power(x, 2),
    lambda x: sp.expit(x),
    lambda x: sp.log_expit(x),
    lambda x: sp.erf(x),
    lambda x: sp.erfc(x),
    lambda x: sp.erfcx(x),
    lambda x: sp.ndtr(x),
    lambda x: sp.log_ndtr(x),
    lambda x: sp.ndtri(sp.ndtr(x)),
    lambda x: sp.erfinv(x / 4),
    lambda x: sp.erfcinv(1 + x / 4),
    lambda x: sp.exp2(x),
    lambda x: sp.exp10(x),
    lambda x: sp.cbrt(x),
    lambda x: sp.expm1(x),
    lambda x: sp.i0(x),
    lambda x: sp.i0e(x),
    lambda x: sp.i1(x),
    lambda x: sp.i1e(x),
    lambda x: sp.sinc(x),
    lambda x: sp.pseudo_huber(0.7, x),
    lambda x: sp.exprel(x),
    lambda x: sp.huber(0.7, x),
    lambda x: np.logaddexp(x, 0),
]

POSITIVE = [
    lambda x: np.log(x),
    lambda x: np.log2(x),
    lambda x: np.log10(x),
    lambda x: np.log1p(x),
    lambda x: np.sqrt(x),
    lambda x: np.arccosh(x + 1),
    lambda x: sp.logit(x / 2),
    lambda x: sp.gammaln(x),
    lambda x: sp.loggamma(x),
    lambda x: sp.gamma(x),
    lambda x: sp.digamma(x),
    lambda x: sp.psi(x),
    lambda x: sp.log1p(x),
    lambda x: sp.entr(x),
    lambda x: x**0.5,
    lambda x: x**0.3,
    lambda x: x**-1,
    lambda x: x**-2.5,
]

PAIRS = [
    lambda x, y: np.add(x, y),
    lambda x, y: np.subtract(x, y),
    lambda x, y: np.multiply(x, y),
    lambda x, y: np.divide(x, y),
    lambda x, y: np.true_divide(x, y),
    lambda x, y: np.power(x, y),
    lambda x, y: np.pow(x, y),
    lambda x, y: np.float_power(x, y),
    lambda x, y: np.mod(x, y),
    lambda x, y: np.remainder(-x, y),
    lambda x, y: np.fmod(-x, y),
    lambda x, y: np.floor_divide(5 * x, y),
    lambda x, y: np.divmod(5 * x, y),
    lambda x, y: np.maximum(x, y),
    lambda x, y: np.minimum(x, y),
    lambda x, y: np.fmax(x, y),
    lambda x, y: np.fmin(x, y),
    lambda x, y: np.clip(x, y - 0.2, y + 0.2),
    lambda x, y: np.clip(0.9, x, y),
    lambda x, y: np.where(x > y, x, y**2),
    lambda x, y: np.logaddexp(x, y),
    lambda x, y: np.logaddexp2(x, y),
    lambda x, y: np.hypot(x, y),
    lambda x, y: np.arctan2(x, y),
    lambda x, y: np.arctan2(-x, -y),
    lambda x, y: np.copysign(x, -y),
    lambda x, y: np.heaviside(x - 1, y),
    lambda x, y: np.isclose(x, y),
    lambda x, y: np.allclose(x, y),
    lambda x, y: np.array_equal(x, y),
    lambda x, y: np.array_equal(x, x * 1),
    lambda x, y: np.array_equiv(x, y),
    lambda x, y: np.logical_and(x > 1, y > 1),
    lambda x, y: np.logical_or(x > 1, y),
    lambda x, y: np.logical_xor(x > 1, y > 1),
    lambda x, y: sp.xlogy(x, y),
    lambda x, y: sp.xlog1py(x, y),
    lambda x, y: sp.rel_entr(x, y),
    lambda x, y: sp.kl_div(x, y),
    lambda x, y: sp.beta(x, y),
    lambda x, y: sp.betaln(x, y),
    lambda x, y: sp.pseudo_huber(x, y),
    lambda x, y: np.less(x, y),
    lambda x, y: np.less_equal(x, y),
    lambda x, y: np.greater_equal(x, y),
    lambda x, y: np.equal(x, np.where(y > 0, x, y)),
    lambda x, y: np.not_equal(x, np.where(y > 0, x, y)),
    lambda x, y: np.isreal(x) * y,
]

# Each operator with a traced operand on either side of an array, a NumPy scalar or a number.
OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    divmod,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
]
OTHERS = [
    Q,
    2,
    2.0,
    np.float64(1.5),
    np.float32(1.5),
    np.int32(3),
    np.int64(2),
    True,
    np.array(2),
    np.arange(1, 5),
    np.arange(1, 5, dtype=np.int32),
    np.array([True, True, True, True]),
    [1.5, 2, 3, 4],
]


@pytest.mark.every(2)
@pytest.mark.parametrize("f", ANYWHERE, ids=source_line)
def test_function_anywhere(f: Any) -> None:
    check(f, X)
    check(f, X[0, 1])


@pytest.mark.parametrize("f", POSITIVE, ids=source_line)
def test_function_of_positive_numbers(f: Any) -> None:
    check(f, P)


@pytest.mark.every(8)
@pytest.mark.parametrize("f", PAIRS, ids=source_line)
def test_function_of_two(f: Any) -> None:
    check(f, P, positive(3, 4, seed=2))
    check(f, P, Q)  # broadcast
    check(f, P[:, :1], Q)
    check(f, P[0, 0], Q)


@pytest.mark.every(8)
@pytest.mark.parametrize("f", [*ANYWHERE, *POSITIVE], ids=source_line)
def test_float32_stays_float32(f: Any) -> None:
    with np.errstate(all="ignore"):
        check(f, (P / 1.3).astype(np.float32))


@pytest.mark.every(8)
@pytest.mark.parametrize("f", PAIRS, ids=source_line)
def test_mixed_floats_promote(f: Any) -> None:
    check(f, P.astype(np.float32), (Q + 0.01).astype(np.float32))
    check(f, P.astype(np.float32), Q + 0.01)


@pytest.mark.every(4)
@pytest.mark.parametrize("f", [*ANYWHERE, *POSITIVE], ids=source_line)
def test_integers_give_what_numpy_gives(f: Any) -> None:
    for x in (np.array([[1, 2, 3, 4]]), np.array([[1, 2, 3, 4]], np.int16)):
        try:
            with np.errstate(all="ignore"):
                f(x)
        except (TypeError, ValueError):
            continue
        with np.errstate(all="ignore"):
            check_value(f, x)


@pytest.mark.every(16)
@pytest.mark.parametrize("other", OTHERS, ids=lambda o: f"{type(o).__name__} {o}")
@pytest.mark.parametrize("op", OPERATORS, ids=lambda o: o.__name__)
def test_operator(op: Any, other: Any) -> None:
    for x in (P, P.astype(np.float32), P[0, 0], np.float32(1.25)):
        if isinstance(other, list) and not x.shape:
            continue  # a list times a scalar is Python's own business
        check(lambda t: op(t, other), x)
        check(lambda t: op(other, t), x)
    for x in (
        np.arange(1, 5),
        np.array([True, False, True, True]),
        np.arange(1, 5, dtype=np.uint8),
    ):
        for f in (lambda t: op(t, other), lambda t: op(other, t)):
            try:
                with np.errstate(all="ignore"):
                    f(x)
            except (TypeError, ValueError) as error:
                with pytest.raises(type(error)), np.errstate(all="ignore"):
                    trace(f, x)
            else:
                with np.errstate(all="ignore"):
                    check_value(f, x)


INTEGERS = [
    lambda i, j: i & j,
    lambda i, j: i | j,
    lambda i, j: i ^ j,
    lambda i, j: ~i,
    lambda i, j: i << j,
    lambda i, j: i >> j,
    lambda i, j: np.bitwise_and(i, j),
    lambda i, j: np.bitwise_or(i, j),
    lambda i, j: np.bitwise_xor(i, j),
    lambda i, j: np.invert(i),
    lambda i, j: np.left_shift(i, j),
    lambda i, j: np.right_shift(i, j),
    lambda i, j: i * np.min_scalar_type(j[0]).itemsize,
    lambda i, j: 5 & i,
    lambda i, j: 1 << j,
    lambda i, j: i // j,
    lambda i, j: i % j,
    lambda i, j: -i // j,
    lambda i, j: i**j,
    lambda i, j: i / j,
    lambda i, j: -i,
    lambda i, j: +i,
    lambda i, j: abs(-i),
    lambda i, j: np.gcd(i, j),
    lambda i, j: np.lcm(i, j),
    lambda i, j: np.bitwise_count(i),
    lambda i, j: np.maximum(i, j),
    lambda i, j: np.clip(i, 2, 3),
    lambda i, j: np.sqrt(i),
    lambda i, j: np.where(i > j, i, 0.5),
    lambda i, j: np.where(i > j, i, 1),
]


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("f", INTEGERS, ids=source_line)
def test_integers(f: Any, dtype: Any) -> None:
    i, j = np.array([1, 2, 3, 12], dtype), np.array([3, 2, 1, 2], dtype)
    if f(i, j).dtype == np.float16:
        with pytest.raises(UnsupportedError, match="float16"):
            trace(f, i, j)
    else:
        check_value(f, i, j)


BOOLEANS = [
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: a ^ b,
    lambda a, b: ~a,
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a == b,
    lambda a, b: a < b,
    lambda a, b: np.maximum(a, b),
    lambda a, b: np.minimum(a, b),
    lambda a, b: np.logical_and(a, b),
    lambda a, b: np.where(a, b, ~b),
    lambda a, b: np.where(a, 1.0, b),
    lambda a, b: a * 2.5,
    lambda a, b: a + 1,
    lambda a, b: a / b[0],
    lambda a, b: np.abs(a),
    lambda a, b: np.sum(a) + np.mean(b),
    lambda a, b: np.max(a) ^ np.min(b),
    lambda a, b: a @ b,
]


@pytest.mark.parametrize("f", BOOLEANS, ids=source_line)
def test_booleans(f: Any) -> None:
    check_value(f, np.array([True, True, False, False]), np.array([True, False, True, False]))


PYTHON = [
    lambda x: abs(x),
    lambda x: -x,
    lambda x: +x,
    lambda x: pow(x, 2),
    lambda x: sum(x),
    lambda x: sum([x, x * 2]),
    lambda x: max(x[0, 0], x[0, 1]),
    lambda x: min(x[0, 0], x[0, 1], 0.5),
    lambda x: sorted([x[0, 0], x[1, 1], x[2, 2]])[0],
    lambda x: x.sum() if x[0, 0] > 0 else x.prod(),
    lambda x: round(x[0, 0], 1) + x[0, 1],
    lambda x: [row.sum() for row in x],
    lambda x: [a * b for a, b in zip(x[0], reversed(x[1]), strict=True)],
    lambda x: x * len(x),
    lambda x: x * x.shape[1] + x.size + x.ndim + x.nbytes + x.itemsize,
    lambda x: x.astype(x.dtype),
]


@pytest.mark.parametrize("f", PYTHON, ids=source_line)
def test_python_builtins(f: Any) -> None:
    check(f, X)


def test_a_python_number_stays_weak() -> None:
    f4 = P.astype(np.float32)
    check_value(lambda x: x * 0.1 + 2, f4)
    _, tape = trace(lambda x, c: np.sum(x * (c * 2 + 1) ** 2), f4, 0.5)
    assert tape.outputs[0].dtype == np.float32
    _, tape = trace(lambda x, c: np.sum(x * c**0.5 / (1 - c)), f4, 0.5)
    assert tape.outputs[0].dtype == np.float32
    assert isinstance(grad(lambda c: c**3)(2.0), (float, np.floating))


OUT = [
    lambda x, y: np.add(x, y, out=np.zeros_like(x)),
    lambda x, y: np.exp(x, out=np.empty_like(x)),
    lambda x, y: np.exp(x, np.empty_like(x)),
    lambda x, y: np.multiply(x, y, where=y > 1, out=np.zeros_like(x)),
    lambda x, y: np.divide(x, y, out=np.ones_like(x), where=y > 1),
    lambda x, y: np.log(x, where=x > 1, out=np.full_like(x, -5.0)),
    lambda x, y: np.modf(x, np.empty_like(x), np.empty_like(x)),
    lambda x, y: np.multiply(x, 2.0, dtype=np.float64),
    lambda x, y: np.add(x, y, dtype=np.float32),
    lambda x, y: np.add(np.ones(4), 1.0, out=np.zeros_like(x)),
    lambda x, y: np.add.outer(y, y),
    lambda x, y: np.multiply.outer(x, y),
    lambda x, y: np.subtract.outer(np.arange(3.0), y),
    lambda x, y: np.add.reduce(x),
    lambda x, y: np.add.reduce(x, axis=1, keepdims=True),
    lambda x, y: np.add.reduce(x, axis=(0, 1)),
    lambda x, y: np.add.reduce(x, axis=None),
    lambda x, y: np.multiply.reduce(x, 1),
    lambda x, y: np.maximum.reduce(x, axis=0),
    lambda x, y: np.minimum.reduce(np.stack([y, 2 - y]), axis=0),
    lambda x, y: np.logical_and.reduce(x > 0.7),
    lambda x, y: np.logical_or.reduce(x > 0.7, axis=1),
    lambda x, y: np.add.accumulate(x, axis=1),
    lambda x, y: np.multiply.accumulate(y),
    lambda x, y: np.logaddexp.reduce(x, axis=1),
    lambda x, y: np.hypot.reduce(y),
    lambda x, y: np.maximum.accumulate(x, axis=1),
]


@pytest.mark.parametrize("f", OUT, ids=source_line)
def test_forms_of_calling_a_ufunc(f: Any) -> None:
    check(f, P, Q)


def test_nan_and_infinities_go_through() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    for f in (np.exp, np.log, np.sqrt, np.tanh, np.abs, np.sign, np.floor, np.rint, np.isnan):
        with np.errstate(all="ignore"):
            check_value(f, x)
    for g in (np.maximum, np.minimum, np.fmax, np.fmin, np.add, np.divide, np.power, np.mod):
        with np.errstate(all="ignore"):
            check_value(lambda a, b, g=g: g(a, b), x[:, None], x)
    with np.errstate(all="ignore"):
        check_value(np.modf, x)
        check_value(np.nan_to_num, x)
        check_value(lambda a: np.nan_to_num(a, nan=1.0, posinf=2.0, neginf=-2.0), x)
        check_value(lambda a: np.isclose(a, a[:, None], equal_nan=True), x)
        check_value(lambda a: np.array_equal(a, a, equal_nan=True), x)
        check_value(lambda a: np.heaviside(a, 0.5), x)


def test_a_whole_network_of_operators() -> None:
    def f(x: Any, y: Any) -> Any:
        z = (x @ y - 1) ** 2 / (1 + abs(x) @ abs(y))
        z += 2 * z
        z -= z.mean()
        z *= z
        z /= 3
        z **= 2
        return z

    check(f, normal(3, 4), normal(4, 2))


def test_captured_arrays_take_part() -> None:
    c = normal(3, 4, seed=5)
    check(lambda x: c * x + np.maximum(c, x) - (c @ x.T).sum(axis=1, keepdims=True), X)
    value, _ = trace(lambda x: c + x, X)
    assert_same(value, c + X)


def test_the_slope_of_exprel_where_exp_overflows():
    x = np.array([-1e8, -3.0, 2.5, 100.0, 709.0, 750.0, np.inf])
    y = np.exp(x[1:5]) / x[1:5] - np.expm1(x[1:5]) / x[1:5] ** 2
    for how in ("never", "always"):
        found = grad(lambda x: np.sum(sp.exprel(x)), compile=how)(x)
        np.testing.assert_allclose(found, [1e-16, *y, np.inf, np.inf], rtol=1e-13)
