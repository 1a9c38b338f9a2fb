"""Slopes of complex functions on their branch cuts: those of the side on which the value is."""

from __future__ import annotations

import cmath
from typing import Any

import numpy as np
import pytest

from tapegrad import grad, jvp

ARCS = ["arcsin", "arccos", "arcsinh", "arccosh"]
NAMES = [*ARCS, "arctan", "arctanh", "log", "log2", "log10", "log1p", "sqrt"]
POINTS = [(1.4, 0.0, 1), (1.4, -0.0, 1), (-1.4, 0.0, 1), (-1.4, -0.0, 1), (-0.3, -0.0, 1),
          (0.0, 1.4, 1j), (-0.0, 1.4, 1j), (0.0, -1.4, 1j), (-0.0, -1.4, 1j)]  # fmt: skip


def near(f: Any, x: float, y: float, along: complex) -> Any:
    """The slope along the cut, by differences, in which neither part loses the sign of its zero."""
    h = 1e-5
    ends = [complex(x + s, y) if along == 1 else complex(x, y + s) for s in (h, -h)]
    return (f(ends[0]) - f(ends[1])) / (2 * h)


def loss(z: Any) -> Any:
    return np.sum(np.real(z) + 2 * np.imag(z))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["never", "always"])
def test_the_slope_on_a_cut_is_that_of_the_side_of_the_value(name, mode):
    f = getattr(np, name)
    for x, y, along in POINTS:
        z = np.full(3, complex(x, y))
        wanted = near(f, x, y, along)
        found = grad(lambda z: loss(f(z)), compile=mode)(z)
        np.testing.assert_allclose((found * along).real, loss(wanted), 1e-6, 1e-8)
        np.testing.assert_allclose(jvp(f, (z,), (np.full(3, along),))[1], wanted, 1e-6, 1e-8)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ARCS)
def test_so_is_the_second_derivative(name):
    f = getattr(np, name)

    def slope(z: Any) -> Any:
        return jvp(f, (z,), (1 + 0j,))[1]

    for x, y, along in POINTS:
        found = jvp(slope, (np.array(complex(x, y)),), (np.array(along, complex),))[1]
        wanted = near(lambda z: slope(np.array(z)), x, y, along)
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-8)


@pytest.mark.parametrize("f", [np.emath.arcsin, np.emath.arccos, cmath.asin, cmath.acos])
def test_real_numbers_beyond_a_functions_range(f):
    def of(x: float) -> Any:
        z = f(x)
        return z.real + 2 * z.imag

    for x in (1.4, -1.4):
        np.testing.assert_allclose(grad(of)(x), (of(x + 1e-5) - of(x - 1e-5)) / 2e-5, 1e-6)
