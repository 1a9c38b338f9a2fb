"""Python's own complex numbers, which a function makes of traced floats"""

import cmath

import numpy as np
import pytest

from tapegrad import grad, jit, vjp

PROGRAMS = {
    "product": lambda x: abs(2 + 1j * x),
    "left and right": lambda x: ((1 - x * 1j) / (x + 2j) - 1j / x).real,
    "parts": lambda x: complex(x, 2 * x).imag * complex(real=x).real + complex(x * 1j, 3).imag,
    "conjugate": lambda x: (complex(x, x**2).conjugate() ** 3).imag,
    "powers": lambda x: ((x + 1j) ** 0.5 + (x + 1j) ** -2 + x**1j + (1 + 1j) ** x).real,
    "negative base": lambda x: (
        ((-float(x)) ** 0.4).imag + ((-2.0) ** float(x)).real + ((-2) ** float(x)).imag
    ),
    "exp": lambda x: np.abs(np.exp(1j * x) + 1) ** 2,
    "NumPy's": lambda x: np.sum(np.abs(np.array([1j * x, x, 3.0]) * np.arange(3) + (x + 1j))),
    "np.float64": lambda x: (
        abs(1j / np.float64(x) + np.float64(x) * 1j) + (1j ** np.float64(x)).real
    ),
    "cmath": lambda x: (cmath.exp(1j * x) * cmath.sqrt(-x) + cmath.log(x + 1j, 2)).real,
    "angles": lambda x: cmath.phase(x + 1j) * cmath.polar(1 + 1j * x)[0] + cmath.rect(x, x).imag,
    "inverses": lambda x: (cmath.acos(x * 1j) + cmath.atanh(x + 1j) + cmath.asinh(2j * x)).imag,
    "sum": lambda x: abs(sum([(x * 1j) ** k for k in range(5)])),
    "item": lambda x: (np.array([1j, 2]) * x).tolist()[0].imag * (np.array([x, 1j])[1].item()).imag,
    "truth": lambda x: 3 * x if 1j * x and x + 1j == 1j + x and x != 1j else x,
    "kind": lambda x: x**2 if isinstance(1j * x, complex) and not cmath.isnan(1j * x) else x,
}


@pytest.mark.every(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(derivative, name):
    """`1j * x`, `complex(x, y)`, `z.real`, `abs(z)`, `cmath.exp(z)` of floats -> as untraced"""
    df = derivative(PROGRAMS[name])
    for x in (1.3, 0.7, 1.3):
        df.at(x)


def test_loops_and_branches(derivative):
    """a recurrence of complex numbers that ends by its size -> as untraced at each call"""

    def escape(x):
        z, rounds = 0j, 0
        while abs(z) < 2 and rounds < 50:
            z = z * z + complex(x, x)
            rounds += 1
        return abs(z) * rounds

    df = derivative(escape)
    for x in (0.7, 1.1, 0.45, 0.7):
        df.at(x)


RAISES = {
    "quotient": (lambda x: (1j / (x - 1)).imag, ZeroDivisionError),
    "power of zero": (lambda x: (((x - 1) * 1j) ** -2).real, ZeroDivisionError),
    "complex power of zero": (lambda x: ((x - 1) ** 1j).real, ZeroDivisionError),
    "power": (lambda x: ((1e200 * x + 1j) ** (1 + 1 / x)).real * 0 + x, OverflowError),
    "size": (lambda x: x**2 if abs(complex(1.7e308 * x, 1e308)) > 0 else x, OverflowError),
    "logarithm": (lambda x: cmath.log(1 - x).real, ValueError),
    "exponential": (lambda x: cmath.exp(800 * x).real * 0 + x, OverflowError),
    "order": (lambda x: x if x > 1 or 1j * x < 2 else 2 * x, TypeError),
}
AT = {"order": 0.5}
FINE = {"power": 5.0, "size": 0.7, "logarithm": 0.5, "exponential": 0.5, "order": 2.0}


@pytest.mark.parametrize("name", RAISES)
def test_errors_are_pythons(derivative, name):
    """a division by zero, a power or size that no float holds, an order -> Python's error at each
    call where it has one, and at the others the value"""
    f, error = RAISES[name]
    df = derivative(f)
    fine, bad = FINE.get(name, 2.0), AT.get(name, 1.0)
    for x in (fine, bad, fine):
        if x == bad:
            with pytest.raises(error):
                f(x)
            with pytest.raises(error):
                df.call(x)
        else:
            df.at(x)


def test_dtypes_that_numbers_take():
    """`f4 * (1j * x)` -> complex64, as of Python's number; complex128 of NumPy's"""
    single = np.arange(3, dtype=np.float32)
    for f in (
        lambda x: single * (1j * x),
        lambda x: single * (1j * np.float64(x)),
        lambda x: single * (np.float64(x) * 1j),
        lambda x: np.float32(x) * (1j * x),
        lambda x: np.complex64(1j * x),
        lambda x: np.complex128(x),
        lambda x: np.full(2, 1j * x),
    ):
        found, expected = jit(f)(1.5), f(1.5)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_results_and_cotangents():
    """a result, and a cotangent of it -> NumPy's number, and dL/dx - i dL/dy"""
    value, pullback = vjp(lambda x: x * (2 + 3j), 2.0)
    assert value == 4 + 6j
    assert pullback(1.0) == (2.0,)
    assert pullback(1j) == (-3.0,)
    assert grad(lambda x: grad(lambda w: abs(w * (1j * x)))(x))(1.5) == 1.0
