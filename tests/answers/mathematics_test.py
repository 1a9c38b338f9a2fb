"""The functions of `math`, and numbers of Python's, where NumPy's functions differ from them."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from tapegrad import jit, jvp, value_and_grad
from tapegrad.errors import ArgumentError

INF = math.inf


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize(
    "f", [lambda x: math.hypot(x[0]), lambda x: math.dist([x[0]], [1.0])], ids=["hypot", "dist"]
)
def test_a_distance_along_one_axis(f, mode):
    slope = value_and_grad(f, compile=mode)
    for x, sign in ((3.0, 1.0), (-3.0, -1.0)):
        value, found = slope(np.array([x]))
        assert value == f([x]) > 0
        assert found == [sign]
        assert jvp(f, (np.array([x]),), (np.ones(1),)) == (value, sign)


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize(
    ("f", "xs"),
    [
        (
            lambda x, y: math.log(x, y),
            [(3.0, 2.0), (3.0, 1.0), (3.0, 0.0), (-1.0, 2.0), (INF, 1.0)],
        ),
        (lambda x, y: math.log(x, y), [(3.0, 2.0), (5e-324, 0.0), (2.0, -1.0), (2.0, INF)]),
        (lambda x, y: math.log(x), [(3.0, 2.0), (0.0, 2.0), (INF, 0.0)]),
        (lambda x, y: math.ulp(x), [(3.0, 2.0), (INF, 2.0), (-INF, 2.0)]),
        (lambda x, y: math.lgamma(x), [(3.0, 2.0), (INF, 2.0), (-INF, 2.0), (-1.0, 0.0)]),
        (lambda x, y: math.pow(x, 0.5) + y, [(4.0, 2.0), (-INF, 2.0), (-1.0, 0.0), (INF, 0.0)]),
        (lambda x, y: x**0.5 + y, [(4.0, 2.0), (-INF, 2.0), (INF, 0.0), (-2.0, 1.0)]),
        (lambda x, y: x**y, [(4.0, 2.5), (-INF, 0.5), (-INF, 3.0), (-INF, -0.5), (-2.0, 0.5)]),
        (lambda x, y: x**y, [(4.0, -2.5), (0.0, -INF), (0.0, -2.0), (-0.0, -INF), (0.5, -INF)]),
        (lambda x, y: math.ldexp(x, int(y)), [(3.0, 2.0), (0.0, 1e308), (3.0, -1e308), (INF, 1e9)]),
        (lambda x, y: math.pow(x, y), [(-INF, 0.5), (-INF, 3.0), (0.5, -INF)]),
    ],
)
def test_infinities_and_errors_are_pythons(f, xs, mode):
    g = jit(f, compile=mode)
    for x in (*xs, *xs):
        try:
            expected = f(*x)
        except (ValueError, ZeroDivisionError) as error:
            with pytest.raises(type(error)):
                g(*x)
        else:
            np.testing.assert_allclose(g(*x), expected, rtol=1e-14)


def test_rounding_a_numpy_integer_keeps_all_digits():
    f = jit(lambda n: round(n), compile="never")
    for n in (5, 2**53 + 1, 2**63 - 1):
        assert f(np.int64(n)) == n


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("f", [operator.neg, abs])
def test_the_integer_without_a_negative_is_refused(f, mode):
    g = jit(lambda n: f(n), compile=mode)
    for _ in range(2):
        assert g(-(2**63) + 1) == 2**63 - 1
        with pytest.raises(ArgumentError, match="doesn't fit in 63 bits and a sign"):
            g(-(2**63))


def test_a_list_of_integers_beyond_64_bits_is_refused():
    g = jit(lambda x: np.array([int(v) for v in x]).sum() * x[0], compile="never")
    assert g(np.array([2.0, 3.0])) == 10.0
    with pytest.raises(ArgumentError, match="an array of dtype object can't be traced"):
        g(np.array([2.0, 1e30]))
