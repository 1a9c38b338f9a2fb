"""Elementwise primitives of `scipy.special` for everyday models.

A primitive without a scalar expression (`""`) is evaluated by SciPy between the compiled kernels.
SciPy is imported when one of them is first evaluated.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call, Literal
from tapegrad.primitives.base import (
    Elementwise,
    Kink,
    Parametric,
    broadcast_shapes,
    parametric,
)
from tapegrad.primitives.elementwise import (
    DIVISION,
    FUNCTION,
    exp,
    isinf,
    isnan,
    log,
    log1p,
    logical_and,
    logical_or,
    sign,
    where,
)
from tapegrad.primitives.kinks import turned
from tapegrad.primitives.scipys import InDouble, tail
from tapegrad.primitives.slopes import bell, bessel_log_slopes, logit_slope, sech_square
from tapegrad.primitives.stated import Known, stated
from tapegrad.primitives.texts import dtype_called

TWO_OVER_SQRT_PI = 1.1283791670955126
HALF_SQRT_PI = 0.8862269254527580
SQRT_2PI = 2.5066282746310005
SQRT_HALF = 0.7071067811865476
SQRT_2_OVER_PI = 0.7978845608028654


def _scipy(name: str) -> Callable[..., Any]:
    """The function of `scipy.special`, looked up at its first call: SciPy is slow to import."""

    def evaluate(*xs: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*xs)

    evaluate.__module__, evaluate.__name__ = "scipy.special", name  # its name in the NumPy source
    return evaluate


def _expit(x: Any) -> Any:
    """SciPy's function if the program has loaded it, else the formula. Derivatives of NumPy's
    functions use it too, and loading SciPy takes longer than a first call."""
    if "scipy.special" in sys.modules or np.asarray(x).dtype.char not in "fd":
        return _scipy("expit")(x)
    with np.errstate(all="ignore"):
        return 1 / (1 + np.exp(-x))


_expit.__module__, _expit.__name__ = "scipy.special", "expit"  # its name in the NumPy source

expit = Elementwise(
    _expit,
    lambda out, x: (sech_square(x * 0.5) * 0.25,),
    name="expit",
    scalar="1.0 / (1.0 + exp(-{0}))",
    cost=FUNCTION,
)
log_expit = Elementwise(
    _scipy("log_expit"),
    lambda out, x: (expit(-x),),
    scalar="-where(-{0} == 0.0, 0.6931471805599453, maximum(-{0}, 0.0) + log1p(exp(-abs({0}))))",
    cost=2 * FUNCTION,
)
logit = Elementwise(
    _scipy("logit"),
    lambda out, x: (logit_slope(x),),
    scalar="log({0} / (1.0 - {0}))",
    cost=FUNCTION,
)


def _bell(x: Any) -> Any:
    return exp(-(x * x)) if x.dtype.kind == "c" else bell(x)


erf = Elementwise(
    _scipy("erf"),
    lambda out, x: (_bell(x) * TWO_OVER_SQRT_PI,),
    cost=FUNCTION,
    of_complex=True,
    numpys=True,
)
erfc = Elementwise(
    _scipy("erfc"),
    lambda out, x: (_bell(x) * -TWO_OVER_SQRT_PI,),
    cost=FUNCTION,
    of_complex=True,
    numpys=True,
)
gammaln = Elementwise(_scipy("gammaln"), lambda out, x: (digamma(x),), cost=2 * FUNCTION)


def polygamma_at(n: int, x: Any) -> Any:
    """The n-th derivative of digamma by SciPy.

    Left of -1/2 SciPy loses digits near poles, or steps up to 0 one by one. There it is reflected
    twice (DLMF 5.15.6). With r = x - rint(x) only the first term has the pole:

        psi_n(x) = psi_n(r) + (-1)^n (psi_n(1 - x) - psi_n(1 - r)).
    """
    import scipy.special

    turn, scale = (-1.0) ** n, float(math.factorial(n))

    def psi(x: Any) -> Any:
        return scipy.special.zeta(n + 1.0, x) * (-turn * scale) if n else scipy.special.digamma(x)

    left = np.less(x, -0.5) & np.isfinite(x) & (x != np.rint(x))
    found = psi(np.where(left, x.dtype.type(1), x))
    if not np.any(left):
        return found
    at = np.where(left, x, x.dtype.type(-0.75))
    r = at - np.rint(at)
    reflected = psi(r) + turn * (psi(1 - at) - psi(1 - r))
    return np.where(left, reflected, found).astype(x.dtype)[()]


def _digamma(x: Any) -> Any:
    return polygamma_at(0, x)


def _trigamma(x: Any) -> Any:
    return polygamma_at(1, x)


digamma: Elementwise = Elementwise(
    _digamma, lambda out, x: (trigamma(x),), name="digamma", cost=4 * FUNCTION
)


trigamma: Elementwise = Elementwise(
    _trigamma, lambda out, x: (Polygamma(2)(x),), name="trigamma", cost=4 * FUNCTION
)


def _of_positive(name: str, slope: Callable[[Any], Any]) -> Elementwise:
    """A function of `scipy.special` that is NaN below 0. Distributions need it for positive numbers
    only. Without the formulas for other numbers a loop takes half as long."""
    function = _scipy(name)
    return Elementwise(
        lambda x: np.where(x >= 0, function(x), np.nan)[()],
        lambda out, x: (slope(x),),
        name=f"{name}_of_positive",
        scalar=name + "_of_positive({0})",
        cost=2 * FUNCTION,
        numpy="np.where({0} >= 0, scipy.special." + name + "({0}), np.nan)[()]",
    )


digamma_of_positive: Elementwise = _of_positive("digamma", lambda x: trigamma(x))
gammaln_of_positive = _of_positive("gammaln", lambda x: digamma_of_positive(x))


gamma = Elementwise(_scipy("gamma"), lambda out, x: (out * digamma(x),), cost=4 * FUNCTION)

# ---- the normal distribution and its relatives

_FAR = 12.0  # from here on a difference has few digits left


def _erfcx_partials(out: Any, x: Any) -> tuple[Any]:
    """2 x erfcx(x) - 2 / sqrt(pi). For large x it is a series, the derivative term by term of

    erfcx(x) sqrt(pi) = 1/x - 1/(2 x^3) + 3/(4 x^5) - ...    (DLMF 7.12.1).
    """
    far = x > _FAR
    q = 1 / where(far, x, x.constant(_FAR))
    series, square = x.constant(0), q * q
    for n in range(13, -1, -1):
        odd = math.prod(range(1, 2 * n + 2, 2))
        series = series * square + (-0.5) ** n * -odd
    near = where(far, x.constant(0), x)
    return (
        where(far, square * series * (0.5 * TWO_OVER_SQRT_PI), near * out * 2 - TWO_OVER_SQRT_PI),
    )


erfcx = InDouble(_scipy("erfcx"), _erfcx_partials, cost=2 * FUNCTION)
erfinv = Elementwise(
    _scipy("erfinv"), lambda out, x: (exp(out * out) * HALF_SQRT_PI,), cost=2 * FUNCTION
)
erfcinv = Elementwise(
    _scipy("erfcinv"), lambda out, x: (exp(out * out) * -HALF_SQRT_PI,), cost=2 * FUNCTION
)


def _log_ndtr_partials(out: Any, x: Any) -> tuple[Any]:
    """The density over the distribution function. Left of 0 their common factor is cancelled."""
    left = x < 0
    below, above = where(left, x, x.constant(0)), where(left, x.constant(0), x)
    ratio = SQRT_2_OVER_PI / erfcx(below * -SQRT_HALF)
    density = exp(-(above * above * 0.5 + where(left, x.constant(0), out)))
    return (where(left, ratio, density * (1 / SQRT_2PI)),)


log_ndtr = Elementwise(_scipy("log_ndtr"), _log_ndtr_partials, cost=2 * FUNCTION)
ndtri = Elementwise(
    _scipy("ndtri"), lambda out, x: (exp(out * out * 0.5) * SQRT_2PI,), cost=2 * FUNCTION
)

# ---- (exp(x) - 1) / x


def exprel_slope(value: Any, x: Any) -> Any:
    """(exp(x) - exprel(x)) / x, where `value` is exprel(x). If exp may overflow, it is exprel(x)
    (1 - 1 / x) + 1 / x."""
    return _moment(1, x, lambda x: (exp(x) - value) / x, lambda x: value * (1 - 1 / x) + 1 / x)


def exprel_bend(value: Any, slope: Any, x: Any) -> Any:
    """(exp(x) - 2 exprel'(x)) / x, where `value` is exprel(x) and `slope` is exprel'(x)."""
    return _moment(2, x, lambda x: (exp(x) - slope * 2) / x, lambda x: value + (1 - slope * 2) / x)


def _moment(order: int, x: Any, plain: Any, far: Any) -> Any:
    """A derivative of exprel(x), the integral of s^order exp(s x) over 0 < s < 1. Around 0, where
    differences lose their digits, it is the series, the sum of x^n / (n! (n + order + 1))."""
    one, series = x.constant(1), x.constant(0)
    near, large = logical_and(x > -0.5, x < 0.5), x > 2
    small, other = where(near, x, x.constant(0)), where(logical_or(near, large), one, x)
    for n in range(14, -1, -1):
        series = series * small + 1 / (math.factorial(n) * (n + order + 1))
    return where(near, series, where(large, far(where(large, x, one)), plain(other)))


exprel = Elementwise(
    _scipy("exprel"),
    lambda out, x: (exprel_slope(out, x),),
    scalar="where({0} == 0.0, 1.0, where({0} == inf, {0}, expm1({0}) / {0}))",
    cost=FUNCTION + DIVISION,
)

# ---- modified Bessel functions


i0 = Elementwise(_scipy("i0"), lambda out, x: (i1(x),), scalar="bessel_i0({0})", cost=2 * FUNCTION)
i1: Elementwise = Elementwise(
    _scipy("i1"),
    lambda out, x: ((i0(x) + BesselI(2)(x)) * 0.5,),
    scalar="bessel_i1({0})",
    cost=2 * FUNCTION,
)


def _scaled(name: str, order: int, slope: Callable[[Any], Any]) -> Elementwise:
    """exp(-|x|) I_n(x). Far from 0 its slope is a difference of nearly equal numbers, so there it
    is the value times the slope of its logarithm. At 0 it has the kink of |x|."""

    def through(out: Any, x: Any, ct: Any, fallen: Any) -> Any:
        """The slope times ct. `fallen` is the contribution of |x|: out times ct, with the sign of
        x."""
        series = bessel_log_slopes(order, turn=-1)
        reach = 50.0
        inside = where(logical_and(x <= reach, x >= -reach), x, x.constant(reach))
        near = slope(inside) * ct - fallen
        return tail(x, reach, lambda x: sign(x) / x, series, fallen, near)

    def partials(out: Any, x: Any) -> tuple[Any]:
        return (through(out, x, out.constant(1), sign(x) * out),)

    def along(directions: Any, ct: Any, out: Any, x: Any) -> tuple[Any]:
        return (through(out, x, ct, turned(directions, x, ct * out)),)

    text, cost = f"bessel_{name}({{0}})", 2 * FUNCTION
    return InDouble(_scipy(name), partials, name=name, scalar=text, kink=Kink(along), cost=cost)


i0e: Elementwise = _scaled("i0e", 0, lambda x: i1e(x))
i1e: Elementwise = _scaled("i1e", 1, lambda x: (i0e(x) + BesselI(2, scaled=True)(x)) * 0.5)

# ---- entropies

entr = Elementwise(_scipy("entr"), lambda out, x: (-(log(x) + 1),), cost=FUNCTION)
rel_entr = Elementwise(
    _scipy("rel_entr"), lambda out, x, y: (_log_ratio(x, y) + 1, -(x / y)), cost=2 * FUNCTION
)


def _log_ratio(x: Any, y: Any) -> Any:
    """log(x / y). By their difference if they are close, and by the difference of logarithms if the
    quotient is out of range. Its slopes are 1 / x and -1 / y."""
    close = logical_and(x > y * 0.5, x < y * 2)
    share = where(close, (x - y) / where(close, y, y.constant(1)), x.constant(0))
    quotient = x / y
    lost = logical_or(isinf(quotient), quotient < np.finfo(x.dtype).tiny)
    apart = log(where(lost, x, x.constant(1))) - log(where(lost, y, y.constant(1)))
    plain = log(where(logical_or(close, lost), y, x) / y)
    found = where(close, log1p(share), where(lost, apart, plain))
    return stated(found, (x, 1 / x), (y, -(1 / y)))


kl_div = Elementwise(
    _scipy("kl_div"),
    lambda out, x, y: (_log_ratio(x, y), Known()((y - x) / y, -(x / y))),
    scalar="",
    cost=2 * FUNCTION,
)


def _x_log(name: str, scalar: str, logarithm: Any, argument: Callable[[Any], Any]) -> Elementwise:
    """x * log(...). For x = 0 it is 0, even if the logarithm is infinite, and so is its slope along
    y where that is 0 / 0. Elsewhere the slope has to be the quotient, which has a derivative along
    x."""

    def along_y(ct: Any, x: Any, y: Any) -> Any:
        slope = x / argument(y)
        return ct * where(logical_and(x.equals(0), isnan(slope)), ct.constant(0), slope)

    def vjp(ct: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
        return ct * logarithm(y), along_y(ct, x, y)

    def jvp(ts: Any, out: Any, x: Any, y: Any) -> Any:
        tx, ty = ts
        if ty is None:
            return None if tx is None else tx * logarithm(y)
        return along_y(ty, x, y) if tx is None else tx * logarithm(y) + along_y(ty, x, y)

    return Elementwise(_scipy(name), name=name, scalar=scalar, vjp=vjp, jvp=jvp, cost=FUNCTION)


xlogy = _x_log(
    "xlogy", "where({0} == 0.0, where(isnan({1}), {1}, 0.0), {0} * log({1}))", log, lambda y: y
)
xlog1py = _x_log(
    "xlog1py",
    "where({0} == 0.0, where(isnan({1}), {1}, 0.0), {0} * log1p({1}))",
    log1p,
    lambda y: y + 1,
)


def _cast(text: str, outs: Any, call: Call) -> list[str]:
    """The NumPy source of a function that returns float64, with the result cast to its dtype."""
    dtype = call.out.dtype
    return [f"{outs[0]} = {text}{'' if dtype == np.float64 else f'.astype({dtype_called(dtype)})'}"]


@parametric
class BesselI(Parametric):
    """The modified Bessel function of the first kind I_n, times exp(-|x|) if `scaled`.

    I_n' = (I_(n-1) + I_(n+1)) / 2, which doesn't divide by x.
    """

    order: int
    scaled: bool = False

    name = "bessel_i"
    cores = 0

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        sized = f"{xs[0]} * (abs({xs[0]}) >= 2.3e-308)"  # SciPy returns NaN for smaller numbers
        return _cast(f"scipy.special.iv{'e' * self.scaled}({self.order}, {sized})", outs, call)

    def evaluate(self, *xs: Any) -> Any:
        import scipy.special

        function = scipy.special.ive if self.scaled else scipy.special.iv
        (x,) = xs
        return np.asarray(function(self.order, x * (abs(x) >= 2.3e-308))).astype(x.dtype)[()]

    def slope(self, out: Any, x: Any) -> Any:
        neighbours = [_bessel_i(abs(self.order + k), self.scaled)(x) for k in (-1, 1)]
        slope = (neighbours[0] + neighbours[1]) * 0.5
        return slope - sign(x) * out if self.scaled else slope

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (ct * self.slope(out, xs[0]),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else ts[0] * self.slope(out, xs[0])


def _bessel_i(order: int, scaled: bool) -> Any:
    """I_n as a primitive with a kernel, if there is one. SciPy's function for any order is 0 near
    0."""
    known = {(0, False): i0, (1, False): i1, (0, True): i0e, (1, True): i1e}
    return known.get((order, scaled), BesselI(order, scaled))


@parametric
class Polygamma(Parametric):
    """The n-th derivative of digamma; its derivative is the next one."""

    order: int

    name = "polygamma"
    cores = 0

    def aval(self, *xs: Aval) -> Aval:
        return Aval(broadcast_shapes(*[x.shape for x in xs]), xs[0].dtype)

    def numpy_text(self, outs: Any, xs: Any, call: Call) -> list[str]:
        return _cast(f"scipy.special.polygamma({self.order}, {xs[0]})", outs, call)

    def evaluate(self, *xs: Any) -> Any:
        return polygamma_at(self.order, np.asarray(xs[0]))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (ct * Polygamma(self.order + 1)(xs[0]),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else ts[0] * Polygamma(self.order + 1)(xs[0])


def polygamma(order: int, x: Any) -> Any:
    """The derivative of digamma of this order, as a primitive with a kernel, if there is one."""
    return {0: digamma, 1: trigamma}.get(order, Polygamma(order))(x)


# ---- of NumPy's, by the logistic function


def _logaddexp_partials(out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The logistic function of the difference. Equal infinities, which have no difference, get a
    half each."""
    half = Literal(x.dtype.type(0.5))
    tie = logical_and(x.equals(y), isinf(x))
    return where(tie, half, expit(x - y)), where(tie, half, expit(y - x))


logaddexp = Elementwise(
    np.logaddexp,
    _logaddexp_partials,
    scalar="where({0} == {1}, {0} + 0.6931471805599453, "
    "maximum({0}, {1}) + log1p(exp(-abs({0} - {1}))))",
    cost=2 * FUNCTION,
)
