"""Distributions and statistics of scipy.stats, in traced programs: what the table of names doesn't
hold. Values are SciPy's own at all edges, later calls follow what was changed, draws are SciPy's.
"""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
from scipy import optimize, stats

from tapegrad import grad, jacfwd, jit, trace, value_and_grad, vjp
from tapegrad.errors import GradientError, RandomnessError, UnsupportedError
from tapegrad.scipy.stats.laws import law_of, laws

SHAPES = {
    "bernoulli": (0.3,),
    "alpha": (3.57,),
    "argus": (1.0,),
    "beta": (2.31, 0.627),
    "betabinom": (5, 2.3, 0.63),
    "betanbinom": (5, 9.3, 1.0),
    "betaprime": (5.0, 6.0),
    "binom": (5, 0.4),
    "boltzmann": (1.4, 19),
    "bradford": (2.5,),
    "mielke": (2.5, 1.3),
    "burr": (2.5, 1.3),
    "kappa3": (1.7,),
    "burr12": (3.0, 2.0),
    "chi": (7.8,),
    "chi2": (5.5,),
    "dgamma": (1.7,),
    "dlaplace": (0.8,),
    "dweibull": (2.07,),
    "erlang": (3.0,),
    "exponnorm": (1.5,),
    "exponweib": (2.89, 1.95),
    "f": (2.9, 8.8),
    "fisk": (3.09,),
    "foldcauchy": (4.7,),
    "foldnorm": (1.95,),
    "gamma": (1.99,),
    "genexpon": (9.1, 16.2, 3.28),
    "genextreme": (-0.1,),
    "gengamma": (4.42, 3.12),
    "genhalflogistic": (0.77,),
    "genlogistic": (0.41,),
    "gennorm": (1.3,),
    "genpareto": (0.1,),
    "geom": (0.5,),
    "gompertz": (0.947,),
    "halfgennorm": (0.67,),
    "hypergeom": (30, 12, 6),
    "invgamma": (4.07,),
    "invgauss": (0.6,),
    "invweibull": (2.58,),
    "jf_skew_t": (8.0, 4.0),
    "johnsonsb": (0.43, 1.18),
    "johnsonsu": (0.55, 2.25),
    "laplace_asymmetric": (2.0,),
    "loggamma": (0.41,),
    "loglaplace": (3.25,),
    "lognorm": (0.95,),
    "logser": (0.6,),
    "lomax": (2.88,),
    "nakagami": (1.97,),
    "nbinom": (4.5, 0.4),
    "pareto": (2.62,),
    "planck": (0.51,),
    "poisson": (2.6,),
    "powerlaw": (1.66,),
    "randint": (2, 9),
    "rdist": (2.3,),
    "reciprocal": (0.01, 1.25),
    "rice": (0.77,),
    "skewcauchy": (0.5,),
    "skewnorm": (1.4,),
    "t": (4.74,),
    "triang": (0.158,),
    "truncexpon": (2.69,),
    "truncnorm": (-1.1, 2.73),
    "truncpareto": (1.8, 5.3),
    "truncweibull_min": (2.5, 0.25, 1.75),
    "vonmises": (1.99,),
    "vonmises_line": (1.99,),
    "weibull_max": (2.87,),
    "weibull_min": (1.79,),
    "wrapcauchy": (0.3,),
    "yulesimon": (3.0,),
    "zipf": (3.2,),
}
FURTHER = [
    ("beta", (1.0, 1.0)),
    ("burr", (0.4, 2.5)),
    ("argus", (5.0,)),
    ("gamma", (0.5,)),
    ("genhalflogistic", (1.0,)),
    ("genextreme", (0.0,)),
    ("genextreme", (0.4,)),
    ("gengamma", (2.0, -1.5)),
    ("genpareto", (0.0,)),
    ("genpareto", (-0.4,)),
    ("powerlaw", (0.6,)),
    ("skewnorm", (0.0,)),
    ("t", (1e9,)),
    ("t", (np.inf,)),
    ("triang", (0.0,)),
    ("triang", (1.0,)),
    ("nakagami", (0.4,)),
    ("truncpareto", (-2.0, 5.3)),
    ("truncweibull_min", (0.8, 0.0, 40.0)),
    ("truncnorm", (-5.0, -2.0)),
    ("truncnorm", (-np.inf, 1.0)),
]
OTHERS = [  # by SciPy's own formulas
    ("crystalball", (2.0, 3.0)),
    ("trapezoid", (0.2, 0.8)),
    ("tukeylambda", (3.13,)),
]
CASES = [(law.name, SHAPES.get(law.name, ())) for law in laws()] + FURTHER + OTHERS
LAWS = {law.name: law for law in laws()} | {x: law_of(getattr(stats, x), "") for x, _ in OTHERS}
# Where SciPy's own value is NaN at infinity, or what is left of a difference.
APART = {
    ("exponnorm", "pdf"): np.isinf,
    ("exponnorm", "logpdf"): np.isinf,
    ("f", "pdf"): np.isinf,
    ("f", "logpdf"): np.isinf,
    ("foldnorm", "logpdf"): lambda z: z > 30,
    ("cosine", "logcdf"): lambda z: z < -3.1,
    ("cosine", "logsf"): lambda z: z > 3.1,
    ("semicircular", "logcdf"): lambda z: z < -0.99,
    ("semicircular", "logsf"): lambda z: z > 0.99,
    ("truncexpon", "logsf"): lambda z: z > 2.68999,
    **{("vonmises", m): np.isinf for m in ("pdf", "logpdf")},
    **{("vonmises", m): lambda z: np.abs(z) > 3 for m in ("logcdf", "logsf")},
    **{("vonmises_line", m): lambda z: np.abs(z) > 3.14 for m in ("logcdf", "logsf")},
    ("boltzmann", "logsf"): lambda z: z > 5,
    ("laplace", "logpdf"): lambda z: np.abs(z) > 700,
    ("wrapcauchy", "logsf"): lambda z: z > 6.28318,
    ("pareto", "logcdf"): lambda z: z < 1 + 1e-12,
    ("burr12", "logcdf"): lambda z: z < 0.1,
    **{(x, m): np.isinf for x in ("mielke", "jf_skew_t", "nakagami") for m in ("pdf", "logpdf")},
    ("argus", "logcdf"): lambda z: z < 0.1,
    **{("truncpareto", m): lambda z: np.abs(z - 3.15) > 2.14999 for m in ("logcdf", "logsf")},
    **{("truncweibull_min", m): lambda z: np.abs(z - 1) > 0.74999 for m in ("logcdf", "logsf")},
    ("skewcauchy", "isf"): lambda q: q < 1e-4,
    ("mielke", "isf"): lambda q: q < 1e-4,
    ("levy_l", "ppf"): lambda q: q < 1e-4,
}


def differs(found, wanted, apart=False):
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return f"{found.shape} and {wanted.shape}"
    with np.errstate(all="ignore"):
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        same |= np.abs(found - wanted) <= 1e-11 * (1e-3 + np.abs(wanted))
    return "" if np.all(same | apart) else f"{found} and {wanted}"


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "shapes"), CASES)
def test_a_distribution_is_scipys_everywhere(name, shapes):
    dist, law = getattr(stats, name), LAWS[name]
    density = ("pmf", "logpmf") if law.discrete else ("pdf", "logpdf")
    q = np.array([0.0, 1e-6, 0.01, 0.3, 0.5, 0.7, 0.99, 1.0, -1.0, 2.0, np.nan])
    if law.discrete:
        x, located = np.array([*np.arange(-3.0, 12.0), 2.5, np.nan, np.inf, -np.inf]), (1.0,)
        z = x - 1.0
    else:
        low, high = map(float, dist.support(*shapes))
        inner = np.asarray(dist.ppf(q[1:7], *shapes))
        edges = [np.nextafter(e, to) for e in (low, high) for to in (-9.0, 9.0)]
        z = np.array([*inner, low, high, *edges, -np.inf, np.inf, np.nan, -40.0, 40.0, 0.0, 1.0])
        x, located = 2.0 * z + 0.25, (0.25, 2.0)
        z = (x - 0.25) / 2.0
    names = [
        m for m in (*density, "cdf", "sf", "logcdf", "logsf") if law.has("cdf") or m in density
    ]
    if law.discrete:
        names = [m for m in names if m in density or name not in ("binom", "nbinom", "poisson")]
    quantiles = [m for m in ("ppf", "isf") if law.ppf or (law.cdf and not law.discrete)]

    def all_of_it(x, q, *p):
        along = [getattr(dist, m)(x, *p) for m in names]
        return along + [getattr(dist, m)(q, *p) for m in quantiles]

    p = [np.array([float(v)]) for v in (*shapes, *located)]
    found, wanted = trace(all_of_it, x, q, *p)[0], all_of_it(x, q, *p)
    for m, a, b in zip([*names, *quantiles], found, wanted, strict=True):
        apart = APART.get((name, m), lambda z: False)(q if m in quantiles else z)
        if name == "truncnorm" and m in ("logcdf", "logsf"):
            apart = b < -30  # what is left of a difference, there and here
        assert not differs(a, b, apart), m


# Distributions whose class doesn't say it, or in what can't be followed.
NO_MOMENTS = {
    *(
        "johnsonsb",
        "truncexpon",
        "wrapcauchy",
        "vonmises",
        "vonmises_line",
        "exponweib",
        "gompertz",
    ),
    *(
        "boltzmann",
        "genexpon",
        "genhalflogistic",
        "jf_skew_t",
        "truncpareto",
        "kappa3",
        "halfgennorm",
        "reciprocal",
        "loguniform",
        "betaprime",
        *[name for name, _ in OTHERS],
    ),
}
NO_HIGHER_MOMENTS = {
    *(
        "argus",
        "truncweibull_min",
        "rdist",
        "bernoulli",
        "invweibull",
        "halfgennorm",
        "truncnorm",
        "gengamma",
        "rice",
        "weibull_min",
    ),
    *(
        "weibull_max",
        "gennorm",
        "dweibull",
        "lomax",
        "burr",
        "fisk",
        "burr12",
        "loglaplace",
        "mielke",
    ),
    *("genextreme", "halflogistic", "nbinom", "hypergeom", "yulesimon", "zipf"),
}


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "shapes"), CASES)
def test_moments_are_scipys_and_have_their_slopes(name, shapes):
    dist = getattr(stats, name)
    p = [np.array([float(v)]) for v in (*shapes, 0.25)]
    moments = [partial(dist.stats, moments=m) for m in ("mv", "sk")]
    for f, without in zip(moments, (NO_MOMENTS, NO_MOMENTS | NO_HIGHER_MOMENTS), strict=True):
        try:
            found = trace(f, *p)[0]
        except UnsupportedError:
            assert name in without
            continue
        assert not any(map(differs, found, f(*p)))
        for k, shape in enumerate(shapes):
            if isinstance(shape, float) and shape and np.all(np.isfinite(found)):
                step = [1e-6 * (j == k) for j in range(len(p))]
                above = np.asarray(f(*[x + h for x, h in zip(p, step, strict=True)]))
                below = np.asarray(f(*[x - h for x, h in zip(p, step, strict=True)]))
                slope = np.asarray(jacfwd(f, k, compile="never")(*p)).ravel()
                wanted = ((above - below) / 2e-6).ravel()
                at_end = np.isnan(wanted)
                np.testing.assert_allclose(slope[~at_end], wanted[~at_end], rtol=1e-5, atol=1e-6)


@pytest.mark.every(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*SHAPES])
def test_bad_parameters_give_nan(name):
    dist, law = getattr(stats, name), LAWS[name]
    method = dist.logpmf if law.discrete else dist.logpdf
    at = np.array([2.0 if law.discrete else 1.5])
    for k in range(len(SHAPES[name])):
        p = [np.array([float(s)]) for s in SHAPES[name]]
        p[k] = np.array([-1.5, 0.0, np.nan])
        assert not differs(trace(lambda x, *p: method(x, *p), at, *p)[0], method(at, *p))
    if not law.discrete:
        s = np.array([-1.0, 0.0, np.nan, 2.0])
        found = trace(lambda x, s: method(x, *SHAPES[name], scale=s), at, s)[0]
        assert not differs(found, method(at, *SHAPES[name], scale=s))


@pytest.mark.filterwarnings("ignore")
def test_outside_of_the_support_slopes_are_zero():
    names = "gamma beta expon uniform pareto lognorm invgauss triang weibull_max genpareto rayleigh"
    for name in names.split():
        dist, shapes = getattr(stats, name), SHAPES.get(name, ())
        x = np.array([-3.0, 7.0 if name == "weibull_max" else -2.0])
        for of in (dist.logpdf, dist.pdf, dist.cdf, dist.sf):

            def f(x, s, *p, of=of):
                return np.sum(np.where(np.isfinite(x), of(x, *p, 0.5, s), 0.0))

            inside = -4.0 if name == "weibull_max" else 0.9
            found = grad(f, argnums=(0, 1), compile="never")(np.array([7.0, inside]), 2.0, *shapes)
            assert np.all(np.isfinite(found[0])) and np.isfinite(found[1]), (name, of)
            if name != "weibull_max":
                slopes = grad(f, argnums=(0, 1), compile="never")(x, 2.0, *shapes)
                assert not np.any(slopes[0]) and not slopes[1], (name, of)


def test_a_model_of_densities_and_tails_computes_what_they_share_once():
    def censored(scale, shape, time):
        density = stats.weibull_min.logpdf(time, shape, scale=scale)
        return np.where(time < 2.0, density, stats.weibull_min.logsf(time, shape, scale=scale))

    _, tape = trace(censored, 1.5, 1.2, np.linspace(0.5, 3.0, 9))
    names = [call.primitive.name for call in tape.calls]
    assert names.count("power_of_all") + names.count("power") == 1


def test_no_warning_at_the_ends_of_the_support():
    """As in SciPy, which computes nothing there: a formula of the inside isn't used."""
    for law in LAWS.values():
        if law.discrete or law.name == "genpareto":  # an end of the latter depends on its shape
            continue
        shapes = [float(s) for s in dict(OTHERS, **SHAPES).get(law.name, ())]
        dist = getattr(stats, law.name)
        ends = np.array([float(e) for e in dist.support(*shapes) if np.isfinite(e)])
        methods = [dist.cdf, dist.sf, dist.logcdf, dist.logsf] if law.has("cdf") else []
        for of in methods:
            found = trace(lambda x, *p, of=of: of(x, *p), ends, *shapes)[0]
            assert not differs(found, of(ends, *shapes)), law.name

            def finite(x, *p, of=of):
                y = of(x, *p)
                return np.sum(np.where(np.isfinite(y), y, 0.0))

            assert not np.any(grad(finite, compile="never")(ends, *shapes)), law.name


def same(g, f, *args):
    value, _ = g(*args)
    np.testing.assert_allclose(value, f(*args), rtol=1e-13)


@pytest.mark.filterwarnings("ignore:.*was traced for three calls")
def test_later_calls_follow_frozen_distributions_and_arrays():
    y, loc, scale = np.linspace(0.1, 1, 4), np.array([0.1, 0.2, 0.3, 0.4]), [1.0, 2.0, 3.0, 4.0]
    held = stats.norm(loc=loc, scale=2.0)

    def f(x):
        return held.logpdf(x).sum() + stats.norm.cdf(x, loc, scale).sum()

    g = value_and_grad(f, compile="never")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it isn't traced each time
        for _ in range(5):
            same(g, f, y)
    loc[1] = 5.0
    same(g, f, y)
    held.kwds["scale"] = 3.0
    same(g, f, y)
    held.kwds["loc"] = np.array([1.0, 2.0, 3.0, 4.0])
    same(g, f, y)
    scale[0] = 9.0
    same(g, f, y)
    held = stats.gamma(2.0, scale=1.5)
    same(g, f, y)


@pytest.mark.filterwarnings("ignore:.*was traced for three calls")
def test_frozen_distributions_are_made_and_asked_in_a_program():
    y, cov = np.linspace(0.1, 1, 4), np.diag([1.0, 2.0, 3.0, 4.0])
    held = stats.multivariate_normal(np.zeros(4), cov)

    def f(x, m):
        plain, traced = stats.norm(0.5, scale=2.0), stats.norm(m, 2.0)
        joint = stats.multivariate_normal(0 * x + m, cov)
        made = traced.cdf(x).sum() + traced.interval(0.9)[0] + joint.logpdf(x)
        return plain.logpdf(x).sum() + made + held.logpdf(x) + traced.stats("mv")[0]

    g = value_and_grad(f, compile="always")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shift in range(4):
            same(g, f, y + shift, 0.3)
    cov[0, 0] = 7.0
    held.mean[1] = 2.0
    same(g, f, y, 0.3)
    value, pull = vjp(f, y, 0.3)
    assert value == pytest.approx(f(y, 0.3))
    np.testing.assert_allclose(pull(1.0)[0], g(y, 0.3)[1])


IN_SINGLE = {
    "beta": (2.31, 0.627),
    "betaprime": (5.0, 0.6),
    "genextreme": (0.1,),
    "semicircular": (),
    "rayleigh": (),
    "gamma": (2.3,),
}


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", IN_SINGLE)
@pytest.mark.parametrize("compile", ["never", "always"])
def test_numbers_of_single_precision_are_scipys(name, compile):
    """SciPy computes with parameters in their precision. Derivatives are those of double."""
    dist, single = getattr(stats, name), np.float32
    x, q = single([-0.3, 0.2, 0.9, 1e20]), single([1e-30, 1e-3, 0.3, 1 - 2.0**-24])
    p = [single(s) for s in (*IN_SINGLE[name], 0.3, 1.7)]

    def all_of_it(x, q, *p):
        frozen = dist(*p)
        along = [getattr(dist, m)(x, *p) for m in ("pdf", "logpdf", "cdf", "sf", "logcdf", "logsf")]
        of_q = [frozen.ppf(q), frozen.isf(q), *frozen.interval(q)]
        whole = [frozen.mean(), dist.stats(*p, moments="m"), frozen.moment(1), *dist.support(*p)]
        return [*along, *of_q, *whole]

    found = vjp(all_of_it, x, q, *p, compile=compile)[0]
    for y, right in zip(found, all_of_it(x, q, *p), strict=True):
        np.testing.assert_array_equal(y, right)
        assert np.asarray(y).dtype == np.asarray(right).dtype
    slopes = grad(lambda *p: np.sum(dist.logpdf(single(0.9), *p)), 0, compile=compile)
    np.testing.assert_allclose(slopes(*p), slopes(*map(float, p)), rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_parameters_that_the_function_makes():
    """no traced value is in their comparisons"""
    for f in (
        lambda a: stats.beta.logpdf(0.3, a, np.array([1, 2, 1])),
        lambda a: stats.beta.ppf(np.array([0.3, 0.0, 1.0]), a, np.array([1.0, 2.0, -1.0])),
        lambda a: stats.triang.cdf(0.5, np.array([0.0, 0.3, 1.0, 2.0]), a),
        lambda a: stats.norm.logpdf(a, np.zeros(3), np.array([1.0, 0.0, 2.0])),
        lambda a: stats.norm.cdf(np.float32(0.3), a, np.array([1, 2], np.int16)),
    ):
        assert not differs(trace(f, 2.3)[0], f(2.3))


def test_shapes_dtypes_and_keywords():
    k = np.array([0, 2, 3], dtype=np.int32)
    cases = [
        (lambda x: stats.gamma.logpdf(x, a=2, scale=1.5), np.float32([0.5, 1.0])),
        (lambda x: stats.norm.logpdf(x, [[0.0], [1.0]], [1.0, 2.0, 3.0]), np.ones(3)),
        (lambda x: stats.norm.logpdf(x), np.zeros((0, 3))),
        (lambda x: stats.norm.logpdf(x), 0.5),
        (lambda x: stats.norm.pdf(0.3, loc=x), 0.5),
        (lambda x: stats.norm.var(x, 2.0), np.ones(3)),
        (lambda x: stats.poisson.logpmf(k, x, loc=-1), np.ones((2, 1))),
        (lambda x: stats.binom.pmf(k=k, n=5, p=x), 0.3),
        (lambda x: stats.norm.support(x), np.ones(2)),
        (lambda x: stats.gamma(x, 2).stats("vs"), 0.5),
        (lambda x: stats.norm.moment(2, x), 0.5),
    ]
    for f, x in cases:
        found, wanted = trace(f, x)[0], f(x)
        assert np.shape(found) == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert np.asarray(found).dtype == np.float64


def test_numbers_are_drawn_as_scipy_draws_them():
    w = np.array([1.0, 2.0, 3.0, 4.0])
    cases = [
        lambda r, m: (stats.norm.rvs(m, 2.0, size=4, random_state=r) * w).sum(),
        lambda r, m: stats.norm([m, 1.0], m).rvs(random_state=r).sum(),
        lambda r, m: (stats.gamma.rvs(2.5, scale=m, size=4, random_state=r) * w).sum(),
        lambda r, m: (stats.weibull_min.rvs(m, size=4, random_state=r) * w).sum(),
        lambda r, m: m * stats.poisson(3.0).rvs(4, r).sum(),
        lambda r, m: (stats.norm.rvs(m, 2.0, 4, random_state=r) * w).sum(),
        lambda r, m: (stats.gamma.rvs(2.5, 0.0, m, (2, 4), random_state=r) * w).sum(),
        lambda r, m: m * stats.poisson.rvs(3.0, 0, 4, random_state=r).sum(),
        lambda r, m: (stats.norm.rvs(m, 2.0, size=4, random_state=7) * w).sum(),
    ]
    for f in cases:
        for make in (np.random.default_rng, np.random.RandomState):
            r = make(3)
            wanted = [f(r, 1.3) for _ in range(3)]
            r = make(3)
            g = value_and_grad(lambda m, f=f, r=r: f(r, m), compile="never")
            found = [g(1.3) for _ in range(3)]
            np.testing.assert_allclose([v for v, _ in found], wanted, rtol=1e-13)
            slope = (f(make(3), 1.3 + 1e-6) - f(make(3), 1.3 - 1e-6)) / 2e-6
            assert found[0][1] == pytest.approx(slope, rel=1e-6)


POWER = 1.0


class Own(stats.rv_continuous):
    def _pdf(self, x, c):
        return POWER * c * np.exp(-c * x**POWER) * x ** (POWER - 1)

    def _cdf(self, x, c):
        return -np.expm1(-c * x**POWER)


def test_a_class_of_the_users_says_what_its_density_is(monkeypatch):
    own = Own(a=0.0, name="own")

    def f(x, c):
        return np.sum(own.logpdf(x, c, scale=2.0) + own.logsf(x, c) + own.ppf(x / 9, c))

    x = np.array([0.3, 0.5, 0.9])
    same(value_and_grad(f, argnums=(0, 1)), f, x, 1.3)
    monkeypatch.setitem(globals(), "POWER", 1.4)
    same(value_and_grad(f, argnums=(0, 1)), f, x, 1.3)


def test_a_formula_with_a_case_at_one_value_of_a_shape_is_refused():
    """At h = 0 SciPy's formula has no h in it: its slope would be 0."""
    with pytest.raises(UnsupportedError, match="kappa4"):
        grad(lambda h: stats.kappa4.logpdf(0.5, h, 0.2))(0.0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "shapes"), [("expon", ()), ("gamma", (1.99,)), ("t", (4.74,))])
def test_logarithms_of_probabilities_that_are_nearly_1(name, shapes):
    """as SciPy's, relative to their own size, and so are their slopes"""
    dist = getattr(stats, name)
    for method, quantile in ((dist.logcdf, dist.isf), (dist.logsf, dist.ppf)):
        x = quantile(np.array([1e-30, 1e-12, 1e-6, 0.3, 0.49, 0.51, 0.9]), *shapes)
        value, slope = value_and_grad(lambda x, m=method: np.sum(m(x, *shapes)))(x)
        np.testing.assert_allclose(jit(method)(x, *shapes), method(x, *shapes), rtol=1e-12)
        assert value == pytest.approx(np.sum(method(x, *shapes)), rel=1e-12)
        sign = 1.0 if method.__name__ == "logcdf" else -1.0
        expected = sign * np.exp(dist.logpdf(x, *shapes) - method(x, *shapes))
        np.testing.assert_allclose(slope, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("f", "error", "words"),
    [
        (lambda x: stats.norm.fit(x, method="MM")[0], UnsupportedError, "only .MLE."),
        (lambda x: stats.beta.fit(x.reshape(3, 1))[0], UnsupportedError, "data.ravel"),
        (lambda x: stats.kappa4.logpdf(x, 0.1, 0.2).sum(), UnsupportedError, "NumPy's functions"),
        (lambda x: stats.gamma(x[0]).moment(5), UnsupportedError, "no formula"),
        (
            lambda x: stats.vonmises(x[0]).expect(),
            UnsupportedError,
            "expect of scipy.stats.vonmises",
        ),
        (lambda x: stats.zipf(x[0] + 2).expect(), UnsupportedError, "a sum of .* terms"),
        (lambda x: stats.gamma.rvs(x)[0], RandomnessError, "standard_gamma"),
        (lambda x: stats.vonmises.rvs(x)[0], UnsupportedError, "rvs of scipy.stats.vonmises"),
        (lambda x: stats.entropy(x * np.nan, nan_policy="omit"), UnsupportedError, "nan_policy"),
        (lambda x: stats.multivariate_normal.cdf(x), UnsupportedError, "cdf"),
        (lambda x: stats.norm.logpdf(x, 0, 1, 2).sum(), TypeError, "positional"),
        (lambda x: stats.dirichlet.logpdf(x, x), ValueError, "simplex"),
    ],
)
def test_what_has_no_formula_is_refused_by_its_name(f, error, words):
    with pytest.raises(error, match=words):
        grad(f, compile="never")(np.array([0.3, 0.5, 0.9]))


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "text",
    [
        *("skew(x, axis=(0, 1))", "kurtosis(x, 1, False, False)", "tvar(x, (0.2, 1.8), axis=None)"),
        *("hmean(x, keepdims=True)", "trim_mean(x, 0.2)", "sem(x, ddof=0)", "zscore(x, axis=None)"),
        *("tsem(x)", "variation(x, 1, ddof=1)", "median_abs_deviation(x, scale='normal')"),
        *("entropy(x, x + 1, axis=None)", "ttest_rel(x, x * x, alternative='greater')[1]"),
        *("circstd(x, axis=-1)", "moment(x, [2, 3], axis=1)", "gmean(x, weights=x)"),
    ],
)
def test_statistics_are_scipys(text):
    f = eval(f"lambda x: stats.{text}", {"stats": stats})
    rng = np.random.default_rng(0)
    nans = np.array([[0.1, np.nan, 0.3], [0.2, 0.3, 0.5]])
    for x in (rng.random((3, 4)), nans, rng.random((3, 4)).astype("f4"), np.ones((2, 2))):
        found, wanted = trace(f, x)[0], f(x)
        assert np.shape(found) == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-6 if x.dtype == "f4" else 1e-12)


# Densities that have a kink at 0, or whose slope has one
KINKED = ("laplace", "gennorm", "laplace_asymmetric", "dgamma", "dweibull", "skewcauchy")
LINES = [law.name for law in laws() if not law.discrete and law.ends == (-np.inf, np.inf)]
LINES.remove("reciprocal")  # whose shapes are its ends
LINES.remove("truncweibull_min")


@pytest.mark.every(8)
@pytest.mark.parametrize("name", LINES)
def test_the_middle_of_the_real_line(name):
    """At 0 formulas of positive and of negative numbers meet."""
    law, shapes, x, h = getattr(stats, name), SHAPES.get(name, ()), 0.0, 1e-5
    for method in ("cdf", "sf") if name in KINKED else ("logpdf", "cdf", "sf"):

        def f(x, method=method):
            return getattr(law, method)(x, *shapes)

        try:
            slope = grad(f, compile="never")
            found = slope(x)
        except UnsupportedError:  # there is no formula
            continue
        wanted = (f(x + h) - f(x - h)) / (2 * h)
        if method != "logpdf":  # whose slope is the density, which differences miss where it is 0
            wanted = law.pdf(x, *shapes) * (1 if method == "cdf" else -1)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-9)
        if name not in KINKED:
            second = grad(lambda x, slope=slope: slope(x), compile="never")(x)
            expected = (slope(x + h) - slope(x - h)) / (2 * h)
            np.testing.assert_allclose(second, expected, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("method", ["cdf", "sf", "logcdf", "logsf", "pdf"])
def test_shapes_outside_their_domain_give_nan(method):
    """also where a formula would do without x, as nan ** 0 does"""
    f = getattr(stats.burr12, method)
    x, c = np.array([0.9, 0.1, 0.4]), np.array([2, 0, -1])
    found = jit(lambda x: f(x, c, 0.7), compile="never")(x)
    np.testing.assert_allclose(found, f(x, c, 0.7), rtol=1e-12)
    assert list(np.isnan(found)) == [False, True, True]


@pytest.mark.parametrize("mode", ["never", "always"])
def test_rows_beside_one_that_is_not_finite(mode):
    """A NaN in one data point is that point's alone."""
    data = np.array([[0.5, 1.0], [np.nan, 2.0], [np.inf, 1.0]])

    def f(s):
        return stats.multivariate_normal.logpdf(data, [0.0, 0.0], np.eye(2) * s)

    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(jit(f, compile=mode)(1.3), f(1.3))
        slopes = (f(1.3 + 1e-6) - f(1.3 - 1e-6)) / 2e-6
    np.testing.assert_allclose(jacfwd(f, compile=mode)(1.3), slopes, rtol=1e-6)


SAMPLES = np.random.default_rng(3).normal(size=(2, 3, 9))
RANKED = [
    lambda x, **how: stats.rankdata(x, axis=1, **how),
    lambda x, **how: stats.spearmanr(x[0], x[1] ** 2, **how),
    lambda x, **how: stats.mannwhitneyu(x, SAMPLES[1], axis=1, **how),
    lambda x, **how: stats.kruskal(x, SAMPLES[1], axis=1, keepdims=True, **how),
    lambda x, **how: stats.wilcoxon(x, axis=1, **how),
]
TESTED = [
    lambda x, **how: stats.f_oneway(x, SAMPLES[1], axis=1, **how),
    lambda x, **how: stats.f_oneway(x[0], x[1] ** 2, x[2], **how),
    lambda x, **how: stats.levene(x, SAMPLES[1], axis=1, keepdims=True, **how),
    lambda x, **how: stats.bartlett(x, SAMPLES[1] * x[0, 0], axis=0, **how),
    lambda x, **how: stats.skewtest(x, axis=1, **how),
    lambda x, **how: stats.jarque_bera(x, axis=None, keepdims=True, **how),
    lambda x, **how: stats.ttest_1samp(x, 0.2, axis=1, keepdims=True, **how),
    lambda x, **how: stats.ttest_ind(x, SAMPLES[1], axis=1, keepdims=True, **how),
]


def total(found):
    return sum(np.sum(part) for part in (found if isinstance(found, tuple) else (found,)))


@pytest.mark.every(8)
@pytest.mark.parametrize("f", [*RANKED, *TESTED])
@pytest.mark.parametrize("mode", ["never", "always"])
def test_tests_of_hypotheses_are_scipys(f, mode):
    """Of ranks the slope is 0, also at a later call, whose ranks are others."""
    both = value_and_grad(lambda x: total(f(x)) + 0.0 * x[0, 0], compile=mode)
    for x in (SAMPLES[0], SAMPLES[0][:, ::-1] + 0.1 * SAMPLES[1]):
        value, slope = both(x)
        assert np.isclose(value, total(f(x)), rtol=1e-12)
        for k in ((0, 0), (2, 4)):
            step = np.zeros_like(x)
            step[k] = 1e-6
            expected = (total(f(x + step)) - total(f(x - step))) / 2e-6
            assert np.isclose(slope[k], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("f", [*RANKED, *TESTED])
def test_a_refused_nan_is_scipys_error(f):
    unknown = SAMPLES[0].copy()
    unknown[1, 2] = np.nan
    strict = jit(lambda x: total(f(x, nan_policy="raise")) + 0.0 * x[0, 0], compile="never")
    strict(SAMPLES[0])
    with pytest.raises(ValueError, match="contains nan values"):
        strict(unknown)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: stats.ks_2samp(x, x, nan_policy="raise")[0],
        lambda x: stats.mode(x, nan_policy="raise")[0],
        lambda x: stats.boxcox(x - 2.0)[0],
    ],
)
def test_a_call_that_is_refused_has_scipys_error_first(f):
    x = np.array([1.0, np.nan, 2.0])
    with pytest.raises(ValueError) as theirs:
        f(x)
    with pytest.raises(ValueError) as ours:
        grad(f)(x)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["invgauss", "skewnorm", "foldnorm", "dgamma", "exponnorm"])
def test_quantiles_that_scipy_looks_for_have_the_slope_of_the_inverse(name):
    """Along probabilities and shapes, to second order."""
    dist, q = getattr(stats, name), np.array([0.02, 0.3, 0.77])

    def f(t):
        return np.sum(dist.ppf(t[:3], t[3], scale=t[4]) ** 2) + dist.isf(0.1, t[3])

    t, rule = np.array([*q, 1.7, 0.6]), grad(f, compile="never")
    for order, g in ((1, f), (2, lambda t: np.sum(rule(t) ** 2))):
        steps = 1e-5 * np.eye(5)
        wanted = [(8 * (g(t + e) - g(t - e)) - g(t + 2 * e) + g(t - 2 * e)) / 12e-5 for e in steps]
        found = grad(g, compile="never")(t)
        np.testing.assert_allclose(found, wanted, rtol=1e-5 * order, atol=1e-6)
    ends = np.array([0.0, 1.0, np.nan, 2.0])
    np.testing.assert_array_equal(trace(lambda q: dist.ppf(q, 1.7), ends)[0], dist.ppf(ends, 1.7))


def test_entropy_to_a_base_keeps_single_precision():
    p = np.array([0.2, 0.8], np.float32)
    for f in (lambda p: stats.entropy(p, base=2), lambda p: stats.entropy(p, p[::-1], base=2)):
        found = trace(f, p)[0]
        assert (found.dtype, found) == (np.float32, f(p))


def test_a_matrix_that_is_no_covariance_is_refused_as_by_scipy():
    x, bad = np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]])
    for dist in (stats.multivariate_normal, stats.multivariate_t):
        with pytest.raises(ValueError, match="positive semidefinite") as caught:
            grad(lambda m, dist=dist: dist.logpdf(x, x, m))(bad)
        assert caught.type is ValueError


def test_distributions_that_had_no_quantiles():
    for f in (
        lambda b: stats.rice.isf(0.3, b),
        lambda b: stats.rice.logcdf(0.3, b),
        lambda c: stats.rdist.isf(0.3, c),
    ):
        h = 1e-5
        np.testing.assert_allclose(grad(f)(2.3), (f(2.3 + h) - f(2.3 - h)) / (2 * h), rtol=1e-8)


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("name", ["norm", "expon", "gamma", "weibull_min", "nakagami"])
def test_a_fit_has_scipys_values_and_the_derivative_of_what_is_most_likely(name, mode):
    def weighted(s):
        found = getattr(stats, name).fit(DATA * s**POWERS, floc=0.0, optimizer=finely)
        return sum((k + 1.0) * x for k, x in enumerate(found))

    fast = value_and_grad(weighted, compile=mode)
    for s in (1.02, 1.1, 0.95):
        value, slope = fast(s)
        assert value == pytest.approx(weighted(s), rel=1e-7)
        steps = [(weighted(s + h) - weighted(s - h)) / (2 * h) for h in (0.02, 0.01)]
        assert slope == pytest.approx((4 * steps[1] - steps[0]) / 3, rel=1e-5)


DATA = np.abs(np.random.default_rng(1).normal(size=20)) + 0.2
POWERS = np.linspace(0.0, 1.0, 20)


def finely(f, x0, args=(), disp=0):
    return optimize.fmin(f, x0, args, 1e-12, 1e-15, 5000, 9000, disp=disp)


def test_a_fit_that_ends_where_the_likelihood_rises_has_no_derivative():
    def fitted(s):
        return stats.triang.fit(DATA * s)[0]

    with pytest.raises(GradientError, match="floc=0"):
        grad(fitted)(1.1)


def test_what_a_fit_refuses_is_what_scipy_refuses():
    for data in (np.array([0.5, np.nan]), np.array([-0.5, 0.5])):
        with pytest.raises(ValueError, match="data") as expected:
            stats.gamma.fit(data, floc=0)
        with pytest.raises(type(expected.value)):
            grad(lambda x: sum(stats.gamma.fit(x, floc=0)))(data)
