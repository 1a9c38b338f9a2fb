"""Functions of scipy.special that aren't ufuncs. The ufuncs are primitives
(`primitives/special.py` and its neighbours)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.special
from scipy.special import _spherical_bessel

from tapegrad.extending import at_line, refusal, stands_for
from tapegrad.extending.arrays import (
    Tracer,
    applied,
    as_operand,
    as_tracer,
    axes_of,
    cast,
    common_dtype,
    is_weak,
    reduced,
    scalar,
)
from tapegrad.extending.primitives import (
    LogSoftmax,
    LogSumExp,
    Softmax,
    special_bessel,
    special_elementary,
    special_gamma,
    special_polynomials,
)
from tapegrad.extending.primitives import elementwise as ew
from tapegrad.extending.primitives import polygamma as _derivative_of_digamma

HOME = "scipy.special"

REFUSED = {
    "factorial2 factorialk": "scipy.special.gamma, of which these are products",
    "stirling2 bernoulli euler": "whole numbers that aren't traced",
    "sph_harm_y_all": "scipy.special.sph_harm_y for each degree and order",
    "legendre_p_all sph_legendre_p_all": (
        "scipy.special.legendre_p or sph_legendre_p for each degree and order"
    ),
    "assoc_legendre_p assoc_legendre_p_all": "scipy.special.lpmv",
    "lqn lqmn pbdn_seq pbdv_seq pbvv_seq riccati_jn riccati_yn": (
        "the function of one order, such as spherical_jn and pbdv"
    ),
}


def _applied(primitive: Any, like: np.ufunc, *xs: Any) -> Any:
    """A primitive, applied with the dtype rules of a SciPy ufunc `like` it."""
    if not any(isinstance(x, Tracer) for x in xs):
        return primitive(*xs)
    return scalar(applied(primitive, like, [as_operand(x) for x in xs]))


def _constant(x: Any) -> Any:
    """x without a derivative."""
    return ew.stop_gradient(x) if isinstance(x, Tracer) else x


def _strong(x: Any) -> Any:
    """x as an array: Python numbers become arrays of 64 bits, as np.asarray makes them."""
    return x if isinstance(x, Tracer) else np.asarray(x)


# ---- exponentials


def _plain_max(a: Any, axis: Any) -> Any:
    """The largest element as a constant, to be subtracted, which cancels; 0 where it isn't
    finite."""
    top = np.max(a, axis=axis, keepdims=True)
    return _constant(np.where(np.isfinite(top), top, 0.0 * np.zeros_like(top)))


def _floating(x: Any) -> Any:
    return x if x.dtype.kind in "fc" else cast(x, float)


@stands_for(HOME)
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """log(sum(b exp(a))) over `axis`, without overflow. With `return_sign` that of the absolute
    value of the sum, and its sign."""
    if b is None and not return_sign:
        a = np.atleast_1d(_floating(as_tracer(a)))
        return reduced(partial(LogSumExp, apart=True), a, axis, keepdims)
    weak = b is None or is_weak(b)
    a, b = (as_tracer(x, a, b) for x in (a, 1 if b is None else b))
    if a.dtype.kind == "c" or b.dtype.kind == "c":
        raise refusal(
            f"scipy.special.logsumexp of complex numbers with weights isn't supported{at_line()}. "
            "Use np.log(np.sum(b * np.exp(a)))"
        )
    dtype = common_dtype(a * 1.0, 1.0 if weak else b)
    a, b = np.broadcast_arrays(*[np.atleast_1d(cast(x, dtype)) for x in (a, b)])
    if a.size == 0:
        out = reduced(LogSumExp, a, axis, keepdims)
        return (out, np.sign(out)) if return_sign else out
    out, sign = _weighted(a, b, axis, return_sign)
    if not keepdims:
        out, sign = (np.squeeze(x, axis=axis) for x in (out, sign))
    return (out, sign) if return_sign else out


def _weighted(a: Any, b: Any, axis: Any, signed: bool) -> tuple[Any, Any]:
    """log(sum(b exp(a))), or that of the absolute value; and the sign.

    The value is computed as in SciPy: the largest elements are taken out of the sum, and the rest,
    divided by them, goes through log1p. The derivatives are those of the plain formula. Results
    that aren't finite are those of the plain formula, too.
    """
    counted = np.where(b == 0, -np.inf, a)  # elements of weight 0 add nothing, even NaN
    top = _plain_max(counted, axis)
    terms = b * np.exp(a - top)
    terms = np.where(np.logical_and(b == 0, np.logical_not(np.isfinite(terms))), 0.0, terms)
    total, direct = (np.sum(x, axis=axis, keepdims=True) for x in (terms, b * np.exp(a)))
    largest = counted == top
    count = np.sum(np.where(largest, b, 0.0), axis=axis, keepdims=True)
    rest = np.sum(np.where(largest, 0.0, terms), axis=axis, keepdims=True)
    share = np.where(rest == 0, rest, rest / count)
    sign = np.sign(share + 1) * np.sign(count)
    value = np.log1p(np.where(share < -1, -share - 2, share)) + np.log(np.abs(count)) + top
    if not signed:
        value = np.where(sign < 0, np.nan, value)
    finite = np.isfinite(value)
    plain = np.log(np.abs(total) if signed else total) + top
    exact = plain + _constant(np.where(finite, value - plain, 0.0))
    out = np.where(finite, exact, np.log(np.abs(direct) if signed else direct))
    return out, np.where(finite, sign, np.sign(direct))


def _along(primitive: Any, x: Any, axis: Any) -> Any:
    """A primitive applied along `axis`, whose result has the shape of x."""
    x = _floating(as_tracer(x))
    rows = np.atleast_1d(x)
    return np.reshape(primitive(axes_of(rows, axis))(rows), x.shape)


@stands_for(HOME)
def softmax(x: Any, axis: Any = None) -> Any:
    """exp(x) / sum(exp(x)) over `axis`; NaN where the largest element isn't finite."""
    top = np.max(x, axis=axis, keepdims=True)
    shares = _along(Softmax, x, axis)
    return shares + _constant(top - top)


@stands_for(HOME)
def log_softmax(x: Any, axis: Any = None) -> Any:
    """x - log(sum(exp(x))) over `axis`."""
    return _along(LogSoftmax, x, axis)


@stands_for(HOME)
def softplus(x: Any, **kwargs: Any) -> Any:
    """log(1 + exp(x))."""
    return np.logaddexp(0, x, **kwargs)


# ---- gamma and zeta functions, and combinatorics


@stands_for(HOME, parameters="n")
def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of digamma."""
    if isinstance(n, list):
        n = np.asarray(n)
    if isinstance(n, (int, np.integer)) and isinstance(x, Tracer):
        x = cast(x, float)  # SciPy makes n an array of 64 bits
        return _derivative_of_digamma(int(n), x)
    factor = np.power(-1.0, n + 1) * scipy.special.gamma(n + 1.0)
    found = factor * _applied(special_gamma.zeta, scipy.special.beta, n + 1, x)
    return np.where(n == 0, scipy.special.digamma(x), found)


@stands_for(HOME)
def zeta(x: Any, q: Any = None) -> Any:
    """Riemann's zeta function, or Hurwitz' with q."""
    if q is None:
        return _applied(special_gamma.riemann_zeta, scipy.special.gammaln, x)
    return _applied(special_gamma.zeta, scipy.special.powm1, x, q)


@stands_for(HOME, parameters="d")
def multigammaln(a: Any, d: Any) -> Any:
    """d (d-1) / 4 log(pi) + sum over j of gammaln(a - j/2)."""
    if np.ndim(d) or np.floor(d) != d:
        raise ValueError("d should be a positive integer (dimension)")
    if np.any(a <= 0.5 * (d - 1)):
        raise ValueError(f"condition a ({a}) > 0.5 * (d-1) ({0.5 * (d - 1)}) not met")
    found = sum(scipy.special.gammaln(a - j / 2) for j in range(d))  # in the precision of a
    return found + d * (d - 1) * 0.25 * np.log(np.pi)


def _not_exact(name: str, exact: Any) -> None:
    if exact:
        raise refusal(
            f"scipy.special.{name}(..., exact=True) of traced values can't be traced{at_line()}. "
            "Use exact=False"
        )


@stands_for(HOME)
def comb(N: Any, k: Any, *, exact: Any = False, repetition: Any = False) -> Any:
    """N! / (k! (N - k)!) where 0 <= k <= N, else 0."""
    _not_exact("comb", exact)
    N, k = _strong(N), _strong(k)
    if repetition:
        none_chosen = np.logical_and(k == 0, N >= 0)
        return np.where(none_chosen, 1.0, scipy.special.binom(N + k - 1, k))
    inside = np.logical_and(np.logical_and(k <= N, N >= 0), k >= 0)
    return np.where(inside, scipy.special.binom(N, k), 0.0)


@stands_for(HOME)
def perm(N: Any, k: Any, exact: Any = False) -> Any:
    """N! / (N - k)! where 0 <= k <= N, else 0."""
    _not_exact("perm", exact)
    N, k = _strong(N), _strong(k)
    inside = np.logical_and(np.logical_and(k <= N, N >= 0), k >= 0)
    return np.where(inside, scipy.special.poch(N - k + 1, k), 0.0)


@stands_for(HOME)
def factorial(n: Any, exact: Any = False) -> Any:
    """Gamma(n + 1), and 0 for n < 0."""
    _not_exact("factorial", exact)
    below = n < 0
    found = np.where(below, 0.0, scipy.special.gamma(np.where(below, 1.0, n) + 1.0))
    return found if np.ndim(n) == 0 else found.astype(float)


@stands_for(HOME)
def diric(x: Any, n: Any) -> Any:
    """sin(n x/2) / (n sin(x/2)), for whole n > 0; 1 or -1 where sin(x/2) is 0."""
    x, n = _strong(x), _strong(n)
    x, n = np.broadcast_arrays(x + 0.0 * n, n + 0.0 * x)
    least = 1e-7 if x.dtype == np.float64 else 1e-3
    half = x / 2
    below = np.sin(half)
    close = np.abs(below) < least
    turns = np.round(half / np.pi) * (n - 1)
    d = half - np.pi * np.round(half / np.pi)
    bend = (n * n - 1) * d * d / 6  # negligible, but its slopes aren't
    limit = (1.0 - 2.0 * np.mod(turns, 2.0)) * (1.0 - (bend - _constant(bend)))
    found = np.where(close, limit, np.sin(n * half) / (n * np.where(close, 1.0, below)))
    return np.where(np.logical_or(n <= 0, n != np.floor(n)), np.nan, found)


# ---- Bessel functions


def _derivative(function: Callable[..., Any], v: Any, z: Any, n: Any, sign: int) -> Any:
    """The n-th derivative of a cylinder function, by functions of neighbouring orders (DLMF
    10.6.7)."""
    if n == 0:
        return function(v, z)
    terms = [math.comb(n, i) * sign**i * function(v - n + 2 * i, z) for i in range(n + 1)]
    return sum(terms[1:], terms[0]) / 2.0**n


def _derivatives(name: str, function: np.ufunc, sign: int, turn: int = 1) -> None:
    def found(v: Any, z: Any, n: Any = 1) -> Any:
        if int(n) != n or n < 0:
            raise ValueError("n must be a non-negative integer")
        v = _strong(v) if n else v
        return turn ** int(n) * _derivative(function, v, z, int(n), sign)

    found.__name__ = name
    stands_for(HOME, parameters="n")(found)


_derivatives("jvp", scipy.special.jv, -1)
_derivatives("yvp", scipy.special.yv, -1)
_derivatives("h1vp", scipy.special.hankel1, -1)
_derivatives("h2vp", scipy.special.hankel2, -1)
_derivatives("ivp", scipy.special.iv, 1)
_derivatives("kvp", scipy.special.kv, 1, -1)


def _spherical(name: str) -> None:
    plain, slope = (getattr(special_bessel, name + more) for more in ("", "_d"))
    like = getattr(_spherical_bessel, f"_{name}", scipy.special.eval_legendre)

    def found(n: Any, z: Any, derivative: Any = False) -> Any:
        n = n.astype(np.int64) if isinstance(n, Tracer) else np.asarray(n).astype(np.int64)
        return _applied(slope if derivative else plain, like, n, z)

    found.__name__ = name
    stands_for(HOME, parameters="derivative")(found)


for _name in ("spherical_jn", "spherical_yn", "spherical_in", "spherical_kn"):
    _spherical(_name)

# ---- Legendre functions and polynomials


@stands_for(HOME)
def assoc_laguerre(x: Any, n: Any, k: Any = 0.0) -> Any:
    return scipy.special.eval_genlaguerre(n, k, x)


def _along_theta(n: Any, m: Any, theta: Any) -> Any:
    primitive: Any = special_polynomials.sph_legendre_p
    return _applied(
        primitive,
        _TWO_INTEGERS,
        *[np.asarray(k) if not isinstance(k, Tracer) else k for k in (n, m)],
        theta,
    )


_TWO_INTEGERS = scipy.special.nbdtr  # "lld->d": whole numbers stay whole


@stands_for(HOME)
def sph_legendre_p(n: Any, m: Any, theta: Any) -> Any:
    return np.expand_dims(_along_theta(n, m, theta), 0)


@stands_for(HOME)
def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any) -> Any:
    """The spherical harmonic: a function of theta times exp(i m phi)."""
    turned = m * phi
    size = _along_theta(n, m, theta)
    return size * np.cos(turned) + 1j * (size * np.sin(turned))


@stands_for(HOME)
def legendre_p(n: Any, z: Any) -> Any:
    return np.expand_dims(scipy.special.eval_legendre(n, z), 0)


# ---- Lambert W function


@stands_for(HOME)
def lambertw(z: Any, k: Any = 0) -> Any:
    """The branch k of the inverse of w exp(w), as complex numbers."""
    z, k = as_tracer(z, k), as_tracer(k, z)
    if k.dtype.kind not in "iu":
        k = np.trunc(cast(_constant(k), np.float64))  # SciPy's conversion to an integer
    return scalar(special_elementary.lambertw(cast(k, np.int64), cast(z, complex)))
