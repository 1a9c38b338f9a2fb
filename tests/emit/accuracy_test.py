"""Functions in compiled loops, in units in the last place, against numbers of 50 digits.

The loops are vectorised where the platform has vector functions; the bounds are those of glibc's,
4 ulps, and of what is composed of them. Arguments are drawn over each function's whole range.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.special as sp

from tapegrad import jit

COUNT = 400
mpmath.mp.dps = 50


def bits(dtype, rng, count=COUNT):
    """Finite numbers of all sizes: random bits."""
    kind = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]
    x = rng.integers(0, np.iinfo(kind).max, 2 * count, kind, endpoint=True).view(dtype)
    return x[np.isfinite(x)][:count]


def uniform(low, high):
    return lambda dtype, rng: rng.uniform(low, high, COUNT).astype(dtype)


def both(first, second):
    return lambda dtype, rng: np.concatenate([first(dtype, rng), second(dtype, rng)])


def positive(dtype, rng):
    return np.abs(bits(dtype, rng))


def above_minus_one(dtype, rng):
    x = bits(dtype, rng)
    return np.concatenate([x[x > -1], rng.uniform(-1, 1, COUNT).astype(dtype)])


def exponents(dtype, rng):
    edge = 87.0 if dtype == np.float32 else 708.0
    return both(uniform(-edge, edge), uniform(-1, 1))(dtype, rng)


def near_one(dtype, rng):
    apart = 10.0 ** rng.uniform(np.log10(np.finfo(dtype).eps), 0, COUNT)
    return (rng.choice([-1.0, 1.0], COUNT) * (1 - apart)).astype(dtype)


def small(dtype, rng):
    return (10.0 ** rng.uniform(-36, -1, COUNT)).astype(dtype)


def beside_its_root(dtype, rng):
    apart = 10.0 ** rng.uniform(-14, -3, COUNT)
    return (1.4616321449683623 + rng.choice([-1.0, 1.0], COUNT) * apart).astype(dtype)


def softplus(x):
    return mpmath.log1p(mpmath.exp(x)) if x < 200 else mpmath.mpf(x) + mpmath.exp(-x)


# NumPy's or SciPy's function, the same of mpmath, where it is asked, and the ulps that are allowed.
FUNCTIONS = {
    "exp": (np.exp, mpmath.exp, exponents, 4),
    "exp2": (np.exp2, lambda x: mpmath.power(2, x), uniform(-100, 100), 4),
    "expm1": (np.expm1, mpmath.expm1, exponents, 4),
    "log": (np.log, mpmath.log, positive, 4),
    "log near 1": (np.log, mpmath.log, uniform(0.5, 2.0), 4),
    "log2": (np.log2, lambda x: mpmath.log(x, 2), positive, 4),
    "log10": (np.log10, mpmath.log10, positive, 4),
    "log1p": (np.log1p, mpmath.log1p, above_minus_one, 4),
    "sqrt": (np.sqrt, mpmath.sqrt, positive, 1),
    "tanh": (np.tanh, mpmath.tanh, both(bits, uniform(-5, 5)), 4),
    "sinh": (np.sinh, mpmath.sinh, exponents, 4),
    "cosh": (np.cosh, mpmath.cosh, exponents, 4),
    "sin": (np.sin, mpmath.sin, both(uniform(-1e4, 1e4), uniform(-1, 1)), 4),
    "cos": (np.cos, mpmath.cos, both(uniform(-1e4, 1e4), uniform(-1, 1)), 4),
    "sin of large numbers": (np.sin, mpmath.sin, bits, 4),
    "cos of large numbers": (np.cos, mpmath.cos, bits, 4),
    "tan": (np.tan, mpmath.tan, uniform(-100, 100), 4),
    "arctan": (np.arctan, mpmath.atan, bits, 4),
    "arcsin": (np.arcsin, mpmath.asin, uniform(-1, 1), 4),
    "arccos": (np.arccos, mpmath.acos, uniform(-1, 1), 4),
    "cbrt": (np.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), bits, 4),
    "erf": (sp.erf, mpmath.erf, both(bits, uniform(-4, 4)), 4),
    "erfc": (sp.erfc, mpmath.erfc, uniform(-4, 9), 8),
    "erfinv": (sp.erfinv, mpmath.erfinv, uniform(-0.95, 0.95), 6),
    "erfinv near 1": (sp.erfinv, mpmath.erfinv, near_one, 8),
    "erfinv near 0": (sp.erfinv, mpmath.erfinv, small, 6),
    "gammaln": (sp.gammaln, mpmath.loggamma, uniform(1e-3, 200), 6),
    "gammaln near 1": (sp.gammaln, mpmath.loggamma, uniform(0.5, 3.0), 8),
    "gammaln of small numbers": (sp.gammaln, mpmath.loggamma, uniform(1.0, 6.0), 6),
    "gammaln below 0": (
        sp.gammaln,
        lambda x: mpmath.re(mpmath.loggamma(x)),
        lambda dtype, rng: -small(dtype, rng),
        6,
    ),
    "gammaln of large numbers": (sp.gammaln, mpmath.loggamma, uniform(200, 1e9), 6),
    "digamma": (sp.digamma, mpmath.digamma, uniform(1e-3, 200), 6),
    "digamma near its root": (sp.digamma, mpmath.digamma, uniform(1.4, 1.6), 6),
    "digamma beside its root": (sp.digamma, mpmath.digamma, beside_its_root, 6),
    "digamma below 0": (sp.digamma, mpmath.digamma, lambda dtype, rng: -small(dtype, rng), 6),
    "digamma of large numbers": (sp.digamma, mpmath.digamma, uniform(200, 1e9), 6),
    "expit": (sp.expit, lambda x: 1 / (1 + mpmath.exp(-x)), exponents, 4),
    "softplus": (lambda x: np.logaddexp(x, 0), softplus, exponents, 4),
    "pow": (lambda x: np.abs(x) ** 2.75, lambda x: abs(x) ** mpmath.mpf(2.75), uniform(0, 90), 4),
}


def ulps(found, exact, dtype):
    """How far a number is from an exact one, in units in the last place of what it should be."""
    with mpmath.workdps(50), np.errstate(over="ignore"):
        nearest = dtype(float(exact)) if dtype == np.float64 else dtype(np.float64(float(exact)))
        if not np.isfinite(nearest) or not np.isfinite(found):
            return 0.0 if found == nearest or abs(nearest) > np.finfo(dtype).max / 2 else np.inf
        unit = max(
            np.spacing(np.abs(nearest)), np.finfo(dtype).smallest_normal * np.finfo(dtype).eps
        )
        return float(abs(mpmath.mpf(float(found)) - exact) / mpmath.mpf(float(unit)))


def inexact(table, dtype, count=None):
    """Where functions of a table are further from the exact numbers than is allowed, of so many
    points each."""
    rng = np.random.default_rng(0)
    points = {name: where(dtype, rng) for name, (_, _, where, _) in table.items()}
    if count is not None:
        points = {name: rng.choice(x, count, replace=False) for name, x in points.items()}
    pairs = [(f, points[name]) for name, (f, *_) in table.items()]
    functions = [f for f, _ in pairs]
    compiled = jit(lambda xs: [f(x) for f, x in zip(functions, xs, strict=True)], compile="always")
    results = compiled([x for _, x in pairs])
    worst = {}
    for (name, (_, exact, _, allowed)), found in zip(table.items(), results, strict=True):
        off = [
            ulps(y, exact(mpmath.mpf(float(x))), dtype)
            for x, y in zip(points[name], found, strict=True)
        ]
        at = int(np.argmax(off))
        if off[at] > allowed:
            worst[name] = f"{off[at]:.3g} ulps at {points[name][at]!r}: {found[at]!r}"
    return worst


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f8", "f4"])
def test_ulps(dtype):
    assert not inexact(FUNCTIONS, dtype)


def test_gamma_functions_at_their_ends():
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -2.0, -1e17, 1e306, -1e306, 1.0, 2.0]
    x = np.array([*edges, 3.5, 3.0, 2.5, 0.5, *np.nextafter([3.5, 3.0, 2.5, 0.5], 0.0)])
    found = jit(lambda x: (sp.gammaln(x), sp.digamma(x)), compile="always")(x)
    for y, wanted in zip(found, (sp.gammaln(x), sp.digamma(x)), strict=True):
        np.testing.assert_allclose(y, wanted, rtol=2e-15)
