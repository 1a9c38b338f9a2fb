"""Functions of scipy.special that have kernels of their own, in units in the last place, against
numbers of 50 digits, and at the ends of their domains against SciPy's."""

from __future__ import annotations

from functools import partial

import mpmath
import numpy as np
import pytest
import scipy.special as sp
from tests.emit.accuracy_test import COUNT, both, inexact, positive, small, uniform

from tapegrad import jit


def with_tiny(low, high):
    return both(lambda dtype, rng: small(dtype, rng), uniform(low, high))


def below_0(x):
    """Not too near a pole."""
    return lambda dtype, rng: (rng.integers(x, 0, COUNT) + rng.uniform(0.05, 0.95, COUNT)).astype(
        dtype
    )


def log_ndtr(x):
    tail = mpmath.erfc(abs(x) / mpmath.sqrt(2)) / 2
    return mpmath.log(tail) if x < 0 else mpmath.log1p(-tail)


def large_squares(dtype, rng):
    """Negative numbers whose squares have exponentials."""
    return rng.uniform(-9.3 if dtype == np.float32 else -26.6, -5, COUNT).astype(dtype)


def erfcx(x):
    return mpmath.exp(x * x) * mpmath.erfc(x)


def ndtri(p):
    """By Newton's steps from the number that SciPy finds: mpmath's own is slow at the ends."""
    x = mpmath.mpf(float(sp.ndtri(float(p))))
    for _ in range(3):
        error = mpmath.erfc(-x / mpmath.sqrt(2)) / 2 - p
        x -= error * mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(x * x / 2)
    return x


def bessel_i(order, scaled=False):
    scale = (lambda x: mpmath.exp(-abs(x))) if scaled else (lambda x: 1)
    return lambda x: mpmath.besseli(order, x) * scale(x)


def bessel_k(order, scaled=False):
    scale = mpmath.exp if scaled else (lambda x: 1)
    return lambda x: mpmath.besselk(order, x) * scale(x)


NEAR, LARGE, TAIL = both(uniform(-9, 9), small), uniform(-85, 85), uniform(9, 85)

# SciPy's function, the same of mpmath, where it is asked, and the ulps that are allowed.
FUNCTIONS = {
    "trigamma": (partial(sp.polygamma, 1), partial(mpmath.psi, 1), uniform(1e-3, 200), 6),
    "trigamma near 0": (partial(sp.polygamma, 1), partial(mpmath.psi, 1), uniform(1e-3, 3), 6),
    "trigamma below 0": (partial(sp.polygamma, 1), partial(mpmath.psi, 1), below_0(-9), 6),
    "gamma": (sp.gamma, mpmath.gamma, uniform(1e-3, 34), 6),
    "gamma of small numbers": (sp.gamma, mpmath.gamma, both(small, uniform(1e-3, 5)), 6),
    "gamma of large numbers": (sp.gamma, mpmath.gamma, uniform(30, 171), 8),
    "gamma below 0": (sp.gamma, mpmath.gamma, below_0(-33), 8),
    "erfcx": (sp.erfcx, erfcx, both(uniform(-9, 30), small), 6),
    "erfcx of large numbers": (sp.erfcx, erfcx, large_squares, 6),
    "log_ndtr": (sp.log_ndtr, log_ndtr, uniform(-30, 12), 8),
    "ndtri": (sp.ndtri, ndtri, uniform(0.0, 1.0), 8),
    "ndtri of small numbers": (sp.ndtri, ndtri, small, 8),
    "erfcinv": (
        sp.erfcinv,
        lambda p: -ndtri(p / 2) / mpmath.sqrt(2),
        both(small, uniform(0.0, 2.0)),
        8,
    ),
    "exp1": (sp.exp1, mpmath.e1, with_tiny(0.0, 80.0), 6),
    "exp1 near 1": (sp.exp1, mpmath.e1, uniform(0.0, 3.0), 6),
    "i0": (sp.i0, bessel_i(0), both(NEAR, LARGE), 6),
    "i1": (sp.i1, bessel_i(1), both(NEAR, LARGE), 6),
    "i0e": (sp.i0e, bessel_i(0, scaled=True), both(NEAR, LARGE), 6),
    "i1e": (sp.i1e, bessel_i(1, scaled=True), both(NEAR, LARGE), 6),
    "k0": (sp.k0, bessel_k(0), both(with_tiny(0.0, 3.0), TAIL), 6),
    "k1": (sp.k1, bessel_k(1), both(with_tiny(0.0, 3.0), TAIL), 6),
    "k0e": (sp.k0e, bessel_k(0, scaled=True), both(with_tiny(0.0, 3.0), TAIL), 6),
    "k1e": (sp.k1e, bessel_k(1, scaled=True), both(with_tiny(0.0, 3.0), TAIL), 6),
    "entr": (sp.entr, lambda x: -x * mpmath.log(x), positive, 4),
    "rel_entr": (
        lambda x: sp.rel_entr(x, 1.25),
        lambda x: x * mpmath.log(x / mpmath.mpf(1.25)),
        both(with_tiny(0.0, 9.0), positive),
        4,
    ),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f8", "f4"])
def test_ulps(dtype):
    assert not inexact(FUNCTIONS, dtype, count=60)


EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -2.0, -0.5, 1e-310, -1e-310, 1e300, -1e300, 1.0]
AT_EDGES = [
    "gamma",
    "i0",
    "i1",
    "i0e",
    "i1e",
    "k0",
    "k1",
    "k0e",
    "k1e",
    "exp1",
    "erfcx",
    "log_ndtr",
    "ndtri",
    "erfcinv",
    "entr",
]


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f8", "f4"])
def test_special_functions_at_their_ends(dtype):
    """SciPy's numbers where formulas change, overflow or have poles, and at nothing's edge."""
    near = [700.0, 705.0, 740.0, 8.0, 3.5, 0.25, 0.5, 0.925, 1e17, -26.5, -27.0, -150.5, 171.5]
    with np.errstate(all="ignore"):
        x = np.array([*EDGES, *near, *np.nextafter([1.0, 2.0, 8.0, 3.5], 0.0)], dtype)
        y, z = map(np.ravel, np.meshgrid(*[np.array([*EDGES, 0.7, 1.9], dtype)] * 2))
        one = [getattr(sp, name) for name in AT_EDGES] + [partial(sp.polygamma, 1)]
        wanted = [*[f(x) for f in one], sp.rel_entr(y, z)]
    compiled = jit(lambda x, y, z: [*[f(x) for f in one], sp.rel_entr(y, z)], compile="always")
    names, results = [*AT_EDGES, "trigamma", "rel_entr"], compiled(x, y, z)
    eps, tiny = np.finfo(dtype).eps, np.finfo(dtype).smallest_subnormal
    for name, found, exact in zip(names, results, wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=60 * eps, atol=2 * tiny, err_msg=name)
