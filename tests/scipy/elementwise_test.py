"""scipy.optimize.elementwise: roots and minima are SciPy's, with the derivatives of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapegrad import grad, value_and_grad
from tapegrad.errors import GradientError, UnsupportedError

elementwise = pytest.importorskip("scipy.optimize.elementwise")

C = np.array([2.0, 3.0, 5.0])
EYE = 1e-5 * np.eye(3)


def roots(c: Any, s: Any = 1.3) -> Any:
    ends = 0.0, np.array([5.0, 6.0, 7.0])
    found = elementwise.find_root(lambda x, c: x**3 + s * x - c, ends, args=(c,))
    return np.sum(np.array([1.0, 2, 3]) * found.x + found.f_x)


def minima(c: Any, s: Any = 1.3) -> Any:
    start = -20.0, np.array([2.0, 3.0, 4.0]), 20.0
    found = elementwise.find_minimum(lambda x, c: np.cosh(x - c) + s * x, start, args=(c,))
    return np.sum(np.array([1.0, 2, 3]) * found.x)


@pytest.mark.parametrize("f", [roots, minima])
@pytest.mark.parametrize("mode", ["always", "never"])
def test_derivatives_by_arguments_and_by_what_is_captured(f: Any, mode: str) -> None:
    df = value_and_grad(f, (0, 1), compile=mode)
    for k in range(3):
        c = C + k
        value, (by_c, by_s) = df(c, 1.3)
        assert value == pytest.approx(f(c, 1.3), rel=1e-14)
        if f is minima:  # sinh(x - c) = -s, found to half the digits: too few for differences
            np.testing.assert_allclose(by_c, [1, 2, 3], rtol=1e-6)
            assert by_s == pytest.approx(-6 / np.sqrt(1 + 1.3**2), rel=1e-6)
            continue
        expected = [(f(c + h) - f(c - h)) / 2e-5 for h in EYE]
        np.testing.assert_allclose(by_c, expected, rtol=1e-6)
        assert by_s == pytest.approx((f(c, 1.3 + 1e-5) - f(c, 1.3 - 1e-5)) / 2e-5, rel=1e-6)


def test_second_derivatives() -> None:
    first = grad(roots)
    expected = [(first(C + h)[0] - first(C - h)[0]) / 2e-5 for h in EYE]
    found = grad(lambda c: grad(roots)(c)[0], compile="never")(C)
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_one_number_and_what_scipy_tells() -> None:
    def f(c: Any) -> Any:
        found = elementwise.find_root(lambda x: x**2 - c, (0.0, 5.0))
        assert found.success and found.status == 0 and found.nfev > 3
        return found.x

    assert grad(f, compile="never")(2.0) == pytest.approx(0.5 / np.sqrt(2))


def test_what_is_not_found_and_what_is_refused() -> None:
    with pytest.raises(GradientError, match="converged"):
        grad(lambda c: elementwise.find_root(lambda x: x**2 - c, (4.0, 5.0)).x)(2.0)
    with pytest.raises(UnsupportedError, match="bracket"):
        grad(lambda c: elementwise.find_root(lambda x: x - c, (0.0, 5.0)).bracket[0])(2.0)
    with pytest.raises(UnsupportedError, match="bracket_root"):
        grad(lambda c: elementwise.bracket_root(lambda x: x - 1, c).bracket[0])(2.0)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_brackets_have_no_slope(compile: str) -> None:
    """each call finds its own; f at their ends has a slope along what f depends on"""

    def f(x: Any, a: Any) -> Any:
        return x**3 - a

    def root(a: Any) -> Any:
        found = elementwise.bracket_root(f, 0.0, 1.0, args=(a,))
        ends = np.sum(found.bracket[1] * a) + np.sum(found.f_bracket[0])
        return ends + np.sum(elementwise.find_root(f, found.bracket, args=(a,)).x)

    g = value_and_grad(root, compile=compile)
    for a in (np.array([2.0, 3.0]), np.array([5.0, 700.0])):
        value, slope = g(a)
        assert value == pytest.approx(root(a), rel=1e-12)
        ends = elementwise.bracket_root(f, 0.0, 1.0, args=(a,)).bracket[1]
        np.testing.assert_allclose(slope, ends - 1 + a ** (-2 / 3) / 3, rtol=1e-7)
