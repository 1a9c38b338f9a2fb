"""Every elementwise function that has derivatives, as mpmath evaluates it.

A reference is the function itself, or its slopes where these are simpler than it (`Slopes`), or the
function whose inverse it is (`Inverse`). What its operands are drawn from stands before it: see
`RANGES` in ranges_test.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mpmath as mp
from mpmath import mpf

Function = Callable[..., Any]


@dataclass(frozen=True)
class Slopes:
    """The derivatives along the operands that have one, instead of the function."""

    along: tuple[Function, ...]


@dataclass(frozen=True)
class Inverse:
    """The inverse of `function` in its operand `solved`: of the others and, at the place `given` of
    the inverse's, the function's value."""

    function: Function
    solved: int
    given: int

    def operands(self, xs: tuple[Any, ...], out: Any) -> tuple[tuple[Any, ...], Any]:
        """The function's operands for `out`, and what the function should be there."""
        rest = [*xs[: self.given], *xs[self.given + 1 :]]
        return (*rest[: self.solved], out, *rest[self.solved :]), xs[self.given]


def of(slope: Function) -> Slopes:
    return Slopes((slope,))


def constant(value: Any) -> Function:
    return lambda *xs: mpf(value)


# ---- elementary functions


def cbrt(x: Any) -> Any:
    return mp.sign(x) * mp.cbrt(abs(x))


def expit(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x))


def exprel(x: Any) -> Any:
    return mp.expm1(x) / x


def boxcox(x: Any, p: Any) -> Any:
    return mp.expm1(p * mp.log(x)) / p


def boxcox1p(x: Any, p: Any) -> Any:
    return mp.expm1(p * mp.log1p(x)) / p


def inv_boxcox(y: Any, p: Any) -> Any:
    return mp.exp(mp.log1p(p * y) / p)


def inv_boxcox1p(y: Any, p: Any) -> Any:
    return mp.expm1(mp.log1p(p * y) / p)


def wrightomega(x: Any) -> Any:
    """By Newton's steps for w + log(w) = x."""
    if x < -50:
        return mp.lambertw(mp.exp(x))
    w = mpf(x if x > 1 else mp.exp(x - 1) + mpf("0.5"))
    for _ in range(200):
        step = (w + mp.log(w) - x) / (1 + 1 / w)
        w = w - step if step < w else w / 2
        if abs(step) <= abs(w) * mp.eps * 4:
            break
    return w


DEGREE = lambda: mp.pi / 180  # noqa: E731

ELEMENTARY: dict[str, tuple[str, Any]] = {
    "add": ("r r", lambda x, y: x + y),
    "sub": ("r r", lambda x, y: x - y),
    "mul": ("r r", lambda x, y: x * y),
    "neg": ("r", lambda x: -x),
    "div": ("r r", lambda x, y: x / y),
    "square": ("r", lambda x: x * x),
    "reciprocal": ("r", lambda x: 1 / x),
    "power": ("p b", lambda x, y: x**y),
    "power_of_all": ("p b", lambda x, y: x**y),
    "sqrt": ("p", mp.sqrt),
    "root": ("p", mp.sqrt),
    "cbrt": ("r", cbrt),
    "exp": ("r", mp.exp),
    "exp2": ("r", lambda x: mpf(2) ** x),
    "expm1": ("r", mp.expm1),
    "log": ("p", mp.log),
    "log2": ("p", lambda x: mp.log(x, 2)),
    "log10": ("p", mp.log10),
    "log1p": ("r", mp.log1p),
    "sin": ("r<1e4", mp.sin),
    "cos": ("r<1e4", mp.cos),
    "tan": ("r<1e4", mp.tan),
    "arcsin": ("i", mp.asin),
    "arccos": ("i", mp.acos),
    "arctan": ("r", mp.atan),
    "sinh": ("r", mp.sinh),
    "cosh": ("r", mp.cosh),
    "tanh": ("r", mp.tanh),
    "arcsinh": ("r", mp.asinh),
    "arccosh": ("p", mp.acosh),
    "arctanh": ("i", mp.atanh),
    "hypot": ("r r", mp.hypot),
    "arctan2": ("r r", mp.atan2),
    "abs": ("r", abs),
    "expit": ("r", expit),
    "log_expit": ("r", lambda x: -softplus(-x)),
    "logit": ("u", lambda x: mp.log(x) - mp.log1p(-x)),
    "logaddexp": ("r r", lambda x, y: max(x, y) + softplus(-abs(x - y))),
    "exprel": ("r", exprel),
    "entr": ("p", lambda x: -x * mp.log(x)),
    "rel_entr": ("p p", lambda x, y: x * mp.log(x / y)),
    "kl_div": ("p p", lambda x, y: x * mp.log(x / y) - x + y),
    "xlogy": ("r p", lambda x, y: x * mp.log(y)),
    "xlog1py": ("r r", lambda x, y: x * mp.log1p(y)),
    "boxcox": ("p r", boxcox),
    "boxcox1p": ("r r", boxcox1p),
    "inv_boxcox": ("r r", inv_boxcox),
    "inv_boxcox1p": ("r r", inv_boxcox1p),
    "powm1": ("p b", lambda x, y: x**y),
    "cosm1": ("r<1e4", mp.cos),
    "sindg": ("r<1e4", lambda x: mp.sin(x * DEGREE())),
    "cosdg": ("r<1e4", lambda x: mp.cos(x * DEGREE())),
    "tandg": ("r<1e4", lambda x: mp.tan(x * DEGREE())),
    "cotdg": ("r<1e4", lambda x: mp.cot(x * DEGREE())),
    "radian": ("r r r", lambda d, m, s: (d + m / 60 + s / 3600) * DEGREE()),
    "wrightomega": ("r", wrightomega),
    "sech_square": ("r", lambda x: mp.sech(x) ** 2),
    "arcsin_slope": ("i", lambda x: 1 / mp.sqrt(1 - x * x)),
    "arctan_slope": ("r", lambda x: 1 / (1 + x * x)),
    "arcsinh_slope": ("r", lambda x: 1 / mp.sqrt(1 + x * x)),
    "arccosh_slope": ("p", lambda x: 1 / mp.sqrt(x * x - 1)),
    "arctanh_slope": ("i", lambda x: 1 / (1 - x * x)),
    "bell": ("r", lambda x: mp.exp(-x * x)),
    "logit_slope": ("u", lambda x: 1 / (x * (1 - x))),
}

# ---- gamma functions


def log_abs_gamma(x: Any) -> Any:
    return mp.loggamma(x) if x > 0 else mp.log(abs(mp.gamma(x)))


def betaln(x: Any, y: Any) -> Any:
    if y < 0:
        return mp.log(abs(mp.beta(x, y)))
    return log_abs_gamma(x) + log_abs_gamma(y) - log_abs_gamma(x + y)


def beta(x: Any, y: Any) -> Any:
    return mp.gammaprod([x, y], [x + y])


def lower_gamma(a: Any, x: Any) -> Any:
    return x**a * mp.exp(-x) * mp.rgamma(a + 1) * mp.hyp1f1(1, a + 1, x)


def upper_gamma(a: Any, x: Any) -> Any:
    return 1 - lower_gamma(a, x)


def lower_beta(a: Any, b: Any, x: Any) -> Any:
    if x > a / (a + b):
        return 1 - _beta_series(b, a, 1 - x)
    return _beta_series(a, b, x)


def upper_beta(a: Any, b: Any, x: Any) -> Any:
    return 1 - lower_beta(a, b, x)


def _beta_series(a: Any, b: Any, x: Any) -> Any:
    return x**a * (1 - x) ** b / (a * mp.beta(a, b)) * mp.hyp2f1(a + b, 1, a + 1, x)


GAMMA: dict[str, tuple[str, Any]] = {
    "gammaln": ("p", mp.loggamma),
    "gammaln_of_positive": ("p", mp.loggamma),
    "digamma": ("p", partial(mp.psi, 0)),
    "digamma_of_positive": ("p", partial(mp.psi, 0)),
    "trigamma": ("p", partial(mp.psi, 1)),
    "gamma": ("r<200", mp.gamma),
    "rgamma": ("r<200", mp.rgamma),
    "betaln": ("p<1e200 p<1e200; O t", betaln),
    "beta": ("k k; O t; j j", beta),
    "poch": ("t O; k k", mp.rf),
    "binom": ("k k", mp.binomial),
    "gammainc": ("g g", lower_gamma),
    "gammaincc": ("g g", upper_gamma),
    "betainc": ("g g u", lower_beta),
    "betaincc": ("g g u", upper_beta),
    "zeta": ("s p", mp.zeta),
    "riemann_zeta": ("r<200", mp.zeta),
    "zetac": ("r<200", mp.zeta),
}

# ---- distributions


def ncdf(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def gdtr(a: Any, b: Any, x: Any) -> Any:
    return lower_gamma(b, a * x)


def chdtr(v: Any, x: Any) -> Any:
    return lower_gamma(v / 2, x / 2)


def pdtr(k: Any, m: Any) -> Any:
    return upper_gamma(k + 1, m)


def bdtr(k: Any, n: Any, p: Any) -> Any:
    return upper_beta(k + 1, n - k, p)


def nbdtr(k: Any, n: Any, p: Any) -> Any:
    return lower_beta(n, k + 1, p)


def fdtr(n: Any, d: Any, x: Any) -> Any:
    return lower_beta(n / 2, d / 2, n * x / (d + n * x))


def stdtr(v: Any, t: Any) -> Any:
    tail = lower_beta(v / 2, mpf(1) / 2, v / (v + t * t)) / 2
    return tail if t < 0 else 1 - tail


def chi_density(x: Any, v: Any, c: Any) -> Any:
    return (
        mp.exp(-(x + c) / 2) * (x / c) ** (v / 4 - 0.5) * mp.besseli(v / 2 - 1, mp.sqrt(c * x)) / 2
    )


def complement(f: Function) -> Function:
    return lambda *xs: 1 - f(*xs)


def tukey(x: Any, shape: Any) -> Any:
    """The quantile, of the probability x."""
    return (x**shape - (1 - x) ** shape) / shape


def kolmogorov(x: Any) -> Any:
    """2 sum of (-1)^(k-1) exp(-2 k^2 x^2), of small x by the other series of the theta function."""
    if x < 1:
        rates = [(2 * k - 1) ** 2 * mp.pi**2 / 8 for k in range(1, 25)]
        return 1 - mp.sqrt(2 * mp.pi) / x * mp.fsum(mp.exp(-c / x**2) for c in rates)
    return 2 * mp.fsum((-1) ** (k - 1) * mp.exp(-2 * k * k * x * x) for k in range(1, 25))


def smirnov(n: int, d: Any) -> Any:
    terms = [
        mp.binomial(n, v) * (d + mpf(v) / n) ** (v - 1) * (1 - d - mpf(v) / n) ** (n - v)
        for v in range(n)
        if v < n * (1 - d)
    ]
    return d * mp.fsum(terms)


DISTRIBUTIONS: dict[str, tuple[str, Any]] = {
    "erf": ("r", mp.erf),
    "erfc": ("r", mp.erfc),
    "erfcx": ("r<1e60", lambda x: mp.exp(x * x) * mp.erfc(x)),
    "erfinv": ("i", Inverse(mp.erf, 0, 0)),
    "erfcinv": ("u", Inverse(mp.erfc, 0, 0)),
    "log_ndtr": ("r<1e60", lambda x: mp.log(ncdf(x))),
    "ndtri": ("u", Inverse(ncdf, 0, 0)),
    "ndtri_exp": ("l", Inverse(lambda x: mp.log(ncdf(x)), 0, 0)),
    "gammaincinv": ("n c", Inverse(lower_gamma, 1, 1)),
    "gammainccinv": ("n c", Inverse(upper_gamma, 1, 1)),
    "gdtr": ("g g g", gdtr),
    "gdtrc": ("g g g", lambda a, b, x: upper_gamma(b, a * x)),
    "gdtria": ("c n n", Inverse(gdtr, 0, 0)),
    "gdtrib": ("n c n", Inverse(gdtr, 1, 1)),
    "gdtrix": ("n n c", Inverse(gdtr, 2, 2)),
    "chdtr": ("g g", chdtr),
    "chdtrc": ("g g", lambda v, x: upper_gamma(v / 2, x / 2)),
    "chdtri": ("n c", Inverse(lambda v, x: upper_gamma(v / 2, x / 2), 1, 1)),
    "chdtriv": ("c n", Inverse(chdtr, 0, 0)),
    "pdtr": ("K g", pdtr),
    "pdtrc": ("K g", lambda k, m: lower_gamma(k + 1, m)),
    "pdtri": ("K c", Inverse(pdtr, 1, 1)),
    "pdtrik": ("c n", Inverse(pdtr, 0, 0)),
    "betaincinv": ("n n c", Inverse(lower_beta, 2, 2)),
    "betainccinv": ("n n c", Inverse(upper_beta, 2, 2)),
    "btdtria": ("c n c", Inverse(lower_beta, 0, 0)),
    "btdtrib": ("n c c", Inverse(lower_beta, 1, 1)),
    "bdtr": ("K F u", bdtr),
    "bdtrc": ("K F u", lambda k, n, p: lower_beta(k + 1, n - k, p)),
    "bdtri": ("K F c", Inverse(bdtr, 2, 2)),
    "bdtrik": ("c n c", Inverse(bdtr, 0, 0)),
    "bdtrin": ("n c c", Inverse(bdtr, 1, 1)),
    "nbdtr": ("K F u", nbdtr),
    "nbdtrc": ("K F u", lambda k, n, p: upper_beta(n, k + 1, p)),
    "nbdtri": ("K F c", Inverse(nbdtr, 2, 2)),
    "nbdtrik": ("c n c", Inverse(nbdtr, 0, 0)),
    "nbdtrin": ("n c c", Inverse(nbdtr, 1, 1)),
    "fdtr": ("n n n", fdtr),
    "fdtrc": ("n n n", lambda n, d, x: lower_beta(d / 2, n / 2, d / (d + n * x))),
    "fdtri": ("n n c", Inverse(fdtr, 2, 2)),
    "fdtridfd": ("n c n", Inverse(fdtr, 1, 1)),
    "stdtr": ("g r<1e3", stdtr),
    "stdtridf": ("c n", Inverse(stdtr, 0, 0)),
    "stdtrit": ("n c", Inverse(stdtr, 1, 1)),
    "chndtr": (
        "g V g",
        Slopes((chi_density, lambda x, v, c: -chi_density(x, v + 2, c))),
    ),
    "nrdtrimn": ("c r r", lambda p, d, x: x - d * quantile(p)),
    "nrdtrisd": ("r c r", lambda m, p, x: (x - m) / quantile(p)),
    "tklmbda": ("y y", Inverse(tukey, 0, 0)),
    "kolmogorov": ("z<1e3", kolmogorov),
    "kolmogi": ("u", Inverse(kolmogorov, 0, 0)),
    "smirnov": ("N u", smirnov),
    "smirnovi": ("N u", Inverse(smirnov, 1, 1)),
}


def quantile(p: Any) -> Any:
    """The normal distribution's, by Newton's steps from SciPy's."""
    import scipy.special

    x = mpf(float(scipy.special.ndtri(float(p))))
    for _ in range(9):
        step = (ncdf(x) - p) / mp.npdf(x)
        x -= step
        if abs(step) < abs(x) * mp.eps * 1000:
            break
    return x
