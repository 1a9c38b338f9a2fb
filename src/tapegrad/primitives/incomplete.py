"""Derivatives of the incomplete gamma and beta functions in their parameters, by quadrature.

Differentiated under the integral sign:

    d^k/da^k P(a, x) = int_0^x w_k(t) f(t) dt,           f(t) = t^(a-1) exp(-t) / Gamma(a)
    d^(i+j)/da^i db^j I_x(a, b) = int_0^x w_ij(t) f(t) dt,   f(t) = t^(a-1) (1-t)^(b-1) / B(a, b)

with the weights w of derivatives of f. 1 / Gamma(a) has a zero at 0, where the derivatives of its
logarithm are infinite. So f is a product c g: c = a, or c = a b / (a + b), has the zero, and g has
Gamma(1 + a), Gamma(1 + b) and Gamma(1 + a + b). Weights of g are Bell polynomials in the
derivatives of log g, v_0 = 1 and v_(k+1) = dv_k/da + v_k d(log g)/da; those of f follow by
Leibniz's rule. Over log(t), and log(t / (1-t)), the integrand is log-concave, so it has one peak.
Newton's method finds the interval on which it falls by `FALL` nats. There Gauss-Legendre quadrature
is practically exact. It integrates the side of x with less of f, so small results keep their
digits.

Constants of the densities are differences of large numbers for large parameters: Stirling's series
(DLMF 5.11.1, 5.11.2) removes the terms that cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

FALL = 45.0  # exp(-45) = 3e-20
NODES = 40
TINY = 1e-300  # derivatives at smaller parameters are the same
_CHUNK = 256  # elements at once
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


@cache
def rule(count: int = NODES) -> tuple[Any, Any]:
    """The nodes and weights of Gauss-Legendre quadrature on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def stirling(z: Any) -> Any:
    """z log(z) - z - log(Gamma(z))."""
    import scipy.special

    far, near = np.maximum(z, 10.0), np.minimum(z, 10.0)
    series = sum(c / far ** (2 * k + 1) for k, c in enumerate(STIRLING))
    small = z < 1e-3  # where SciPy's gammaln may be infinite
    log_gamma = scipy.special.gammaln(near + small) - np.where(small, np.log(near), 0.0)
    plain = near * np.log(near) - near - log_gamma
    return np.where(z >= 10, 0.5 * np.log(far / (2 * np.pi)) - series, plain)


def _log_minus_digamma(z: Any) -> Any:
    """log(z) - digamma(1 + z)."""
    import scipy.special

    far, near = np.maximum(z, 10.0), np.minimum(z, 10.0)
    terms = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
    series = -0.5 / far + sum(c / far ** (2 * k + 2) for k, c in enumerate(terms))
    return np.where(z >= 10, series, np.log(near) - scipy.special.digamma(1 + near))


def _polygamma(n: int, z: Any) -> Any:
    import scipy.special

    return scipy.special.polygamma(n, z)


def weights_of(cumulants: Callable[[int, int], Any], i: int, j: int) -> Any:
    """w_ij by the recurrence of Bell polynomials; `cumulants(p, q)` is d^(p+q) log f/da^p db^q."""
    known: dict[tuple[int, int], Any] = {(0, 0): 1.0}

    def weight(i: int, j: int) -> Any:
        if (i, j) not in known:
            (p, q), (up, right) = ((i - 1, j), (1, 0)) if i else ((i, j - 1), (0, 1))
            known[i, j] = sum(
                weight(p - k, q - m)
                * cumulants(k + up, m + right)
                * (math.comb(p, k) * math.comb(q, m))
                for k in range(p + 1)
                for m in range(q + 1)
            )
        return known[i, j]

    return weight(i, j)


def _weight_of_product(
    shares: dict[tuple[int, int], Any], cumulants: Callable[[int, int], Any], i: int, j: int
) -> Any:
    """w_ij of c g. `shares` are the derivatives of c over c, `cumulants` those of log g."""
    return sum(
        weights_of(cumulants, i - k, j - m) * share * (math.comb(i, k) * math.comb(j, m))
        for (k, m), share in shares.items()
    )


def over(panels: list[Any], integrand: Callable[..., Any], columns: list[Any]) -> Any:
    """The integral from the first to the last bound, panel by panel. The arguments of `integrand`
    are points and columns, of the rows whose panel isn't empty."""
    nodes, weights = rule()
    total = np.zeros_like(panels[0])
    for low, high in pairwise(panels):
        (rows,) = np.nonzero(high > low)
        if rows.size:
            width = (high - low)[rows, None]
            points = low[rows, None] + width * nodes
            found = integrand(points, *[column[rows, None] for column in columns])
            total[rows] += (found * width) @ weights
    return total


def _newton(length: Any, fall: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Any:
    """Where a convex function reaches FALL, approached from the right: no step overshoots."""
    for _ in range(60):
        excess = fall(length) - FALL
        step = excess / slope(length)
        length = length - np.where(step > 0, step, 0.0)
        if not np.any((excess > 5) & (step > 1e-3 * length)):
            break
    return length


def elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of vectors as a function of arrays that broadcast."""

    def over(*xs: Any) -> Any:
        dtype = np.result_type(*xs)
        arrays = np.broadcast_arrays(*[np.asarray(x, float) for x in xs])
        flat = [x.ravel() for x in arrays]
        out = np.empty(flat[0].shape)
        with np.errstate(all="ignore"):
            for k in range(0, out.size, _CHUNK):
                out[k : k + _CHUNK] = function(*[x[k : k + _CHUNK] for x in flat])
        return out.reshape(arrays[0].shape).astype(dtype)[()]

    return over


def _log_ratio(x: Any, a: Any, gap: Any) -> Any:
    """log(x / a), where `gap` is x - a."""
    plain = np.where(x / a > 2.3e-308, np.log(x / a), np.log(x) - np.log(a))
    return np.where(np.abs(gap) < 0.5 * a, np.log1p(gap / a), plain)


def gamma_slope(order: int, a: Any, x: Any) -> Any:
    """d^k/da^k of the regularised lower incomplete gamma function P(a, x), for k > 0."""
    return elementwise(lambda a, x: _gamma_slope(order, a, x))(a, x)


def _gamma_slope(order: int, a: Any, x: Any) -> Any:
    import scipy.special

    a = np.where((a > 0) & (a < TINY), TINY, a)
    below = scipy.special.gammainc(a, x) <= 0.5
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    a, t = np.where(inside, a, 1.0), np.where(inside, x, 1.0)
    gap = t - a
    ratio = _log_ratio(t, a, gap)
    # log(f) over log(t) at the end, and d log(g)/da there
    scale = np.minimum(a, 1.0)  # a factor of c, which may be tiny
    height = a * ratio - gap + stirling(a) - np.log(scale)
    first = ratio + _log_minus_digamma(a)
    rest = [-_polygamma(k, 1 + a) for k in range(1, order)]
    panels = gamma_panels(a, t, gap, below)

    def integrand(
        s: Any, sign: Any, height: Any, scale: Any, a: Any, t: Any, *logarithmic: Any
    ) -> Any:
        moved = sign * s
        cumulants = [logarithmic[0] + moved, *logarithmic[1:]]
        shares = {(0, 0): 1.0, (1, 0): 1 / a}
        weight = _weight_of_product(shares, lambda k, _: cumulants[k - 1], order, 0)
        far = moved > 1.0  # exp may overflow, but not t * exp
        grown = np.where(far, np.exp(moved + np.log(t)) - t, t * np.expm1(np.minimum(moved, 1.0)))
        return np.exp(height + a * moved - grown) * (weight * scale)

    columns = [np.where(below, -1.0, 1.0), height, scale, a, t, first, *rest]
    found = over(panels, integrand, columns)
    found = np.where(below, found, -found)
    outside = np.where((x == 0) & (a > 0) | (np.isposinf(x)), 0.0, np.nan)
    return np.where(inside, found, outside)


def gamma_panels(a: Any, t: Any, gap: Any, below: Any) -> list[Any]:
    """The panels of the density over log(t), from t on, down or up; `gap` is t - a. It falls by a
    s - t (1 - exp(-s)) below, t (exp(s) - 1) - a s above."""
    down = _newton(
        np.where(below, (FALL + t) / a, 1.0),
        lambda s: a * s + t * np.expm1(-s),
        lambda s: np.where(below, a - t * np.exp(-s), np.inf),
    )
    up = 2 * FALL / (gap + np.sqrt(gap * gap + 2 * FALL * t))
    up = np.where(t < 10, np.minimum(up, np.log(2 * FALL + t) - np.log(t)), up)
    length = np.where(below, down, up)
    corners = [
        np.where(below, np.minimum(36, length), np.clip(k - np.log(t), 0.0, length))
        for k in (-36, -2)
    ]
    return [np.zeros_like(length), *corners, length]


def gamma_density(fall: int, a: Any, x: Any) -> Any:
    """x^(a-1-fall) exp(-x) / Gamma(a)."""
    return elementwise(lambda a, x: _gamma_density(fall, a, x))(a, x)


def _gamma_density(fall: int, a: Any, x: Any) -> Any:
    import scipy.special

    gap = x - a
    ratio = _log_ratio(x, a, gap)
    inside = np.exp(a * ratio - gap + stirling(a) - (1 + fall) * np.log(x))
    found = np.where(x == 0, x ** (a - 1 - fall) * scipy.special.rgamma(a), inside)
    return np.where((x == np.inf) & np.isfinite(a), 0.0, found)


def beta_density(i: int, j: int, a: Any, b: Any, x: Any) -> Any:
    """x^(a-1-i) (1-x)^(b-1-j) / B(a, b)."""
    return elementwise(lambda a, b, x: _beta_density(i, j, a, b, x))(a, b, x)


def _beta_density(i: int, j: int, a: Any, b: Any, x: Any) -> Any:
    import scipy.special

    low, high = np.log(x), np.log1p(-x)
    d = low - high - (np.log(a) - np.log(b))
    height = stirling(a) + stirling(b) - stirling(a + b) + over_odds(a, b, d)
    inside = np.exp(height - (1 + i) * low - (1 + j) * high)
    ends = x ** (a - 1 - i) * (1 - x) ** (b - 1 - j) * np.exp(-scipy.special.betaln(a, b))
    return np.where((x == 0) | (x == 1), ends, inside)


def beta_slope(along_a: int, along_b: int, a: Any, b: Any, x: Any) -> Any:
    """d^(i+j)/da^i db^j of the regularised incomplete beta function I_x(a, b), for i + j > 0."""
    return elementwise(lambda a, b, x: _beta_slope(along_a, along_b, a, b, x))(a, b, x)


def _beta_slope(i: int, j: int, a: Any, b: Any, x: Any) -> Any:
    import scipy.special

    given = a, b
    a, b = (np.where((p > 0) & (p < TINY) & (q > 1e-250), TINY, p) for p, q in ((a, b), (b, a)))
    fallen = [p / q for p, q, order in zip(given, (a, b), (i, j), strict=True) if not order]
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & np.isfinite(a) & np.isfinite(b)
    a, b, t = np.where(inside, a, 1.0), np.where(inside, b, 1.0), np.where(inside, x, 0.5)
    middle = np.log(a) - np.log(b)
    end = np.log(t) - np.log1p(-t) - middle
    below = scipy.special.betainc(a, b, t) <= 0.5
    # above, I_x(a, b) = 1 - I_(1-x)(b, a): p and q change places
    p, q = np.where(below, a, b), np.where(below, b, a)
    end, middle = np.where(below, end, -end), np.where(below, middle, -middle)
    both = p + q
    scale = np.minimum(np.minimum(p, q), 1.0)
    height = stirling(p) + stirling(q) - stirling(both) - np.log(scale)
    shared = _log_minus_digamma(both)
    means = [_log_minus_digamma(p) - shared, _log_minus_digamma(q) - shared]

    panels = beta_panels(p, q, end)
    orders = [(k, m) for k in range(i + 1) for m in range(j + 1)]
    higher = [(k, m) for k, m in orders if k + m > 1]

    def integrand(
        s: Any,
        end: Any,
        height: Any,
        scale: Any,
        p: Any,
        q: Any,
        low: Any,
        high: Any,
        below: Any,
        *more: Any,
    ) -> Any:
        d = end - s
        rest = log_mixture(d, p / (p + q), q / (p + q))
        lower, upper = low + d - rest, high - rest
        shares = dict(zip(orders, more, strict=False))
        cumulants = dict(zip(higher, more[len(orders) :], strict=True))
        cumulants[1, 0] = np.where(below, lower, upper)
        cumulants[0, 1] = np.where(below, upper, lower)
        weight = _weight_of_product(shares, lambda k, m: cumulants[k, m], i, j)
        return np.exp(height + over_odds(p, q, d)) * (weight * scale)

    shares = [np.broadcast_to(_share(k, m, a, b), a.shape) for k, m in orders]
    columns = [end, height, scale, p, q, *means, below, *shares]
    columns += [_beta_cumulant(k, m, a, b) for k, m in higher]
    found = over(panels, integrand, columns) * math.prod(fallen)
    ends = (a > 0) & (b > 0) & ((x == 0) | (x == 1))
    return np.where(inside, np.where(below, found, -found), np.where(ends, 0.0, np.nan))


def beta_panels(p: Any, q: Any, end: Any) -> list[Any]:
    """The panels of the density over the log-odds, from `end` downwards. `end` is relative to the
    logarithm of the mean's odds."""
    both, part, other, middle = p + q, p / (p + q), q / (p + q), np.log(p) - np.log(q)

    length = _newton(
        (FALL + both * np.logaddexp(0, end + middle)) / p,
        lambda s: over_odds(p, q, end) - over_odds(p, q, end - s),
        lambda s: (
            p * other * np.expm1(gap := np.clip(s - end, -700, 700)) / (part + other * np.exp(gap))
        ),
    )
    around = [np.clip(end + middle + k, 0.0, length) for k in (-36, -9, 0, 9, 36)]
    around += [np.clip(end + k, 0.0, length) for k in (-2, 2)]  # the mean, for small p and large q
    return [np.zeros_like(end), *np.sort(around, 0), length]


def over_odds(p: Any, q: Any, d: Any) -> Any:
    """The density's logarithm over that of the odds, p d - (p + q) M, M = log_mixture(d,
    p / (p + q), q / (p + q)). As p (d - M) - q M it subtracts no large numbers."""
    part, other = p / (p + q), q / (p + q)
    return -p * log_mixture(-d, other, part) - q * log_mixture(d, part, other)


def log_mixture(d: Any, part: Any, other: Any) -> Any:
    """log(other + part exp(d)), part + other = 1."""
    up, down = np.maximum(d, 0.0), np.minimum(d, 0.0)
    rise = part * np.expm1(np.minimum(d, 700.0))
    whole = other * np.exp(-up) + part * np.exp(down)
    return np.where(np.abs(rise) < 0.5, np.log1p(rise), up + np.log(whole))


def _share(k: int, m: int, a: Any, b: Any) -> Any:
    """d^(k+m) c / da^k db^m over c. c = b - b^2 / (a + b) = a - a^2 / (a + b) is derived along the
    larger one first, so that derivatives along the other one don't cancel."""
    if k + m == 0:
        return 1.0
    return np.where(a < b, _share_along(m, k, b, a), _share_along(k, m, a, b))


def _share_along(k: int, m: int, a: Any, b: Any) -> Any:
    """The same, along a first: for k > 0 it is the derivative of -b^2 / (a + b) over c."""
    if k == 0:
        return _share_along(m, 0, b, a)
    both = a + b
    terms: Any = 0.0
    for n, square in enumerate((b, 2.0, 2 / b)[: m + 1]):
        rate = math.comb(m, n) * (-1) ** (m - n) * math.prod(range(k + 1, k + 1 + m - n))
        terms = terms + rate * square * both ** -float(k + m - n)
    return terms * (-((-1) ** k) * math.factorial(k)) / a


def _beta_cumulant(k: int, m: int, a: Any, b: Any) -> Any:
    """d^(k+m) log(g)/da^k db^m, for k + m > 1."""
    from tapegrad.primitives.polygamma_differences import whole_rise

    n = k + m - 1
    if k and m:
        return _polygamma(n, 1 + a + b)
    return whole_rise(n, 1 + a, b) if k else whole_rise(n, 1 + b, a)


def zeta_slope(order: int, s: Any, q: Any) -> Any:
    """d^k/ds^k of Hurwitz's zeta(s, q), by the Euler-Maclaurin formula (DLMF 25.11.28): the first
    terms, the integral of the rest and its corrections. Right for s > -3."""
    return elementwise(lambda s, q: _zeta_slope(order, s, q))(s, q)


_BERNOULLI: tuple[float, ...] = (
    1 / 6,
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
    7 / 6,
    -3617 / 510,
)
_BERNOULLI += (43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730)
_TERMS = 12


def _zeta_slope(order: int, s: Any, q: Any) -> Any:
    found: Any = 0.0
    for k in range(_TERMS):
        found = found + (-np.log(q + k)) ** order * (q + k) ** -s
    end = q + _TERMS
    rate = -np.log(end)

    def along(jet: list[Any], more: float = 0.0) -> Any:
        """The derivative of f(s) end^(more - s), where `jet` has the derivatives of f."""
        power = end ** (more - s)
        terms = [math.comb(order, i) * jet[i] * rate ** (order - i) for i in range(order + 1)]
        return np.where(power == 0.0, 0.0, sum(terms) * power)

    inverse = [(-1) ** i * math.factorial(i) / (s - 1) ** (i + 1) for i in range(order + 1)]
    found = found + along(inverse, 1.0) + along([0.5, *[0.0] * order])
    rising = [np.ones_like(s), *[np.zeros_like(s)] * order]  # s (s+1) (s+2) ... and its derivatives
    factors = 0
    for j, number in enumerate(_BERNOULLI, start=1):
        while factors < 2 * j - 1:
            shifted = s + factors
            rising = [r * shifted + (k * rising[k - 1] if k else 0.0) for k, r in enumerate(rising)]
            factors += 1
        scale = number / math.factorial(2 * j) * end ** (1 - 2 * j)
        found = found + along([r * scale for r in rising])
    return np.where((s > -3) & (s != 1) & (q > 0), found, np.nan)


SLOPES: dict[str, Callable[..., Any]] = {
    "gammainc": gamma_slope,
    "betainc": beta_slope,
    "zeta": zeta_slope,
}


def carlson(power: int, twice: tuple[int, ...], zs: Any) -> Any:
    """`Carlson` by the trapezoidal rule over u = log(t). The integrand is analytic for |Im(u)| < r,
    r = pi, so steps of 0.4 leave an error of exp(-2 pi^2 / 0.4) = 4e-22. Beyond the logarithms of
    the extreme arguments it falls by known rates. J is homogeneous: complex arguments are rotated
    until their angles go up to pi - r on both sides."""
    b, logs, reach, turn = np.array(twice)[:, None] / 2, np.log(zs), np.pi, 1.0
    valid = np.all(np.isfinite(zs) & ((zs.real >= 0) | (zs.imag != 0)), 0)
    if np.iscomplexobj(zs):
        most, least = np.max(logs.imag, 0), np.min(logs.imag, 0)
        logs, reach = logs - 0.5j * (most + least), np.pi - (most - least) / 2
        turn, valid = (
            np.exp(0.5j * (most + least) * (power + 1 - np.sum(b))),
            valid & (reach > 0.01),
        )
    least = np.min(np.where(zs == 0, np.inf, logs.real), 0)
    rises, falls = power + 1 - np.sum(b * (zs == 0), 0), np.sum(b) - power - 1
    bounded = (rises > 0) & np.isfinite(least) & valid
    start = np.where(bounded, least - 45 / rises, 0)
    width = np.where(bounded, np.max(logs.real, 0) + 45 / falls - start, 1)
    steps = int(np.ceil(np.max(np.where(bounded, width / reach, 1), initial=1) * np.pi / 0.4))
    value: Any = 0.0
    for k in range(0, steps + 1, _CHUNK):
        u = start + width * (np.arange(k, min(k + _CHUNK, steps + 1)) / steps)[:, None]
        size = (power + 1) * u - sum(c * _log_sum(u, log) for c, log in zip(b, logs, strict=True))
        value = value + np.sum(np.exp(size), 0)
    return np.where(bounded, value * turn * width / steps, np.where(valid, np.inf, np.nan))


def _log_sum(u: Any, v: Any) -> Any:
    """log(exp(u) + exp(v)), v real or complex."""
    if not np.iscomplexobj(v):
        return np.logaddexp(u, v)
    most = np.maximum(u, v.real)
    return most + np.log(np.exp(u - most) + np.exp(v - most))


def hyperu(a: Any, b: Any, x: Any) -> Any:
    """Tricomi's function. For a >= 1/2 and x > 0 it is the integral

        U(a, b, x) Gamma(a) = integral of exp(-x t) t^(a-1) (1+t)^(b-a-1) over t > 0   (DLMF 13.4.4)

    by the trapezoidal rule over log(t). There the integrand is analytic and has one peak, where x
    t^2 - (b - 1 - x) t = a. Elsewhere it is SciPy's, which has few digits, or NaN, for large a.
    """
    import scipy.special

    dtype = np.asarray(x).dtype
    a, b, x = np.broadcast_arrays(*[np.asarray(v, float) for v in (a, b, x)])
    known = (a >= 0.5) & (x > 1e-290) & (x < 1e290) & np.isfinite(a) & np.isfinite(b)
    theirs = scipy.special.hyperu(*[np.where(known, 1.0, v) for v in (a, b, x)])
    ours = elementwise(_hyperu)(*[np.where(known, v, 1.0) for v in (a, b, x)])
    return np.where(known, ours, theirs).astype(dtype)[()]


def _reach(fall: Callable[[Any], Any], like: Any) -> Any:
    """The distance at which `fall` reaches FALL, or a little more."""
    low, high = np.zeros_like(like), np.ones_like(like)
    for halved in (False, True):
        for _ in range(12):
            at = (low + high) / 2 if halved else high
            inside = fall(at) < FALL
            low = np.where(inside, at, low)
            high = np.where(inside, high if halved else 2 * high, at if halved else high)
    return high


def _hyperu(a: Any, b: Any, x: Any) -> Any:
    import scipy.special

    half = (b - 1 - x) / 2
    root = np.hypot(half, np.sqrt(a * x))
    peak = np.log(np.where(half > 0, (half + root) / x, a / (root - half)))

    def height(u: Any) -> Any:
        return a * u - x * np.exp(u) + (b - a - 1) * np.logaddexp(0, u)

    top = height(peak)
    start = peak - _reach(lambda s: top - height(peak - s), peak)
    end = peak + _reach(lambda s: top - height(peak + s), peak)
    share = 1 / (1 + np.exp(-peak))
    bend = x * np.exp(peak) - (b - a - 1) * share * (1 - share)
    step = np.minimum(0.15, 0.5 / np.sqrt(np.maximum(bend, 1e-300)))
    count = int(np.ceil(np.max((end - start) / step, initial=1)))
    width = (end - start) / count
    total = np.zeros_like(peak)
    for k in range(count + 1):
        total += np.exp(height(start + k * width) - top)
    return np.exp(top - scipy.special.gammaln(a)) * total * width
