"""Functions in compiled loops, in units in the last place, against numbers of 50 digits.

The loops are vectorised where the platform has vector functions; the bounds are those of glibc's,
4 ulps, and of what is composed of them. Arguments are drawn over each function's whole range.
"""

from __future__ import annotations

from functools import partial

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
    "trigamma": (partial(sp.polygamma, 1), partial(mpmath.psi, 1), uniform(1e-3, 200), 6),
    "trigamma near 0": (partial(sp.polygamma, 1), partial(mpmath.psi, 1), uniform(1e-3, 3), 6),
    "trigamma below 0": (partial(sp.polygamma, 1), partial(mpmath.psi, 1), below_0(-9), 6),
    "gamma": (sp.gamma, mpmath.gamma, uniform(1e-3, 34), 6),
    "gamma of small numbers": (sp.gamma, mpmath.gamma, both(small, uniform(1e-3, 5)), 6),
    "gamma of large numbers": (sp.gamma, mpmath.gamma, uniform(30, 171), 8),
    "gamma below 0": (sp.gamma, mpmath.gamma, below_0(-33), 8),
    "erfcx": (sp.erfcx, erfcx, both(uniform(-9, 30), small), 6),
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
    "expit": (sp.expit, lambda x: 1 / (1 + mpmath.exp(-x)), exponents, 4),
    "softplus": (lambda x: np.logaddexp(x, 0), softplus, exponents, 4),
    "pow": (lambda x: np.abs(x) ** 2.75, lambda x: abs(x) ** mpmath.mpf(2.75), uniform(0, 90), 4),
}


def ulps(found, exact, dtype):
    """How far a number is from an exact one, in units in the last place of what it should be."""
    with mpmath.workdps(50):
        nearest = dtype(float(exact)) if dtype == np.float64 else dtype(np.float64(float(exact)))
        if not np.isfinite(nearest) or not np.isfinite(found):
            return 0.0 if found == nearest or abs(nearest) > np.finfo(dtype).max / 2 else np.inf
        unit = max(
            np.spacing(np.abs(nearest)), np.finfo(dtype).smallest_normal * np.finfo(dtype).eps
        )
        return float(abs(mpmath.mpf(float(found)) - exact) / mpmath.mpf(float(unit)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f8", "f4"])
def test_ulps(dtype):
    rng = np.random.default_rng(0)
    points = {name: where(dtype, rng) for name, (_, _, where, _) in FUNCTIONS.items()}
    pairs = [(f, points[name]) for name, (f, *_) in FUNCTIONS.items()]
    functions = [f for f, _ in pairs]
    compiled = jit(lambda xs: [f(x) for f, x in zip(functions, xs, strict=True)], compile="always")
    results = compiled([x for _, x in pairs])
    worst = {}
    for (name, (_, exact, _, allowed)), found in zip(FUNCTIONS.items(), results, strict=True):
        off = [
            ulps(y, exact(mpmath.mpf(float(x))), dtype)
            for x, y in zip(points[name], found, strict=True)
        ]
        at = int(np.argmax(off))
        if off[at] > allowed:
            worst[name] = f"{off[at]:.3g} ulps at {points[name][at]!r}: {found[at]!r}"
    assert not worst


def test_gamma_functions_at_their_ends():
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -2.0, -1e17, 1e306, -1e306, 1.0, 2.0]
    x = np.array([*edges, 3.5, 3.0, 2.5, 0.5, *np.nextafter([3.5, 3.0, 2.5, 0.5], 0.0)])
    found = jit(lambda x: (sp.gammaln(x), sp.digamma(x)), compile="always")(x)
    for y, wanted in zip(found, (sp.gammaln(x), sp.digamma(x)), strict=True):
        np.testing.assert_allclose(y, wanted, rtol=2e-15)


EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -2.0, -0.5, 1e-310, -1e-310, 1e300, -1e300, 1.0]
AT_EDGES = "gamma i0 i1 i0e i1e k0 k1 k0e k1e exp1 erfcx log_ndtr ndtri erfcinv entr".split()


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f8", "f4"])
def test_special_functions_at_their_ends(dtype):
    """SciPy's numbers where formulas change, overflow or have poles, and at nothing's edge."""
    near = [700.0, 705.0, 740.0, 8.0, 3.5, 0.25, 0.5, 0.925, 1e17, -26.5, -27.0, -150.5, 171.5]
    with np.errstate(all="ignore"):
        x = np.array([*EDGES, *near, *np.nextafter([1.0, 2.0, 8.0, 3.5], 0.0)], dtype)
        y, z = map(np.ravel, np.meshgrid(*[np.array([*EDGES, 0.7, 1.9], dtype)] * 2))
        one = [getattr(sp, name) for name in AT_EDGES] + [partial(sp.polygamma, 1)]
        two = [sp.rel_entr, sp.kl_div]
        compiled = jit(
            lambda x, y, z: ([f(x) for f in one], [f(y, z) for f in two]), compile="always"
        )
        wanted = [f(x) for f in one] + [f(y, z) for f in two]
    of_one, of_two = compiled(x, y, z)
    eps, tiny = np.finfo(dtype).eps, np.finfo(dtype).smallest_subnormal
    for name, found, exact in zip(
        [*AT_EDGES, "trigamma", "rel_entr", "kl_div"], [*of_one, *of_two], wanted, strict=True
    ):
        extreme = {"kl_div"}  # whose terms SciPy lets overflow
        kept = np.abs(np.log(np.abs(y / z))) < 600 if name in extreme else slice(None)
        np.testing.assert_allclose(
            found[kept], exact[kept], rtol=20 * eps, atol=2 * tiny, err_msg=name
        )


def test_divergences_near_their_roots():
    """The terms cancel; what is left is right to the root of the precision and better."""
    x, y = 1.0 + np.array([1e-3, -1e-5, 1e-7]), np.ones(3)
    exact = [float(p * mpmath.log(p) - p + 1) for p in map(mpmath.mpf, x.tolist())]
    found = jit(sp.kl_div, compile="always")(x, y)
    np.testing.assert_allclose(found, exact, rtol=1e-8)
