"""The gamma function, its logarithm and the derivatives of that, for loops that LLVM vectorises.

There are no branches: the formulas of all regions are computed everywhere, so they must be cheap:
below 7/2 a polynomial around 2, above that one in the place of Stirling's series. The coefficients
interpolate at Chebyshev nodes, computed with 80 digits; the errors are those of the roundings.
"""

# mypy: disable-error-code="call-arg,var-annotated,unreachable"
from __future__ import annotations

from typing import Any

from tapegrad.backends.cpu.support.composed import INFINITY, NAN, composed
from tapegrad.backends.cpu.support.scalars import exp, floor, log, minimum, power, rint, where

PI = 3.141592653589793
LOG_PI = 1.1447298858494002
INVERTIBLE = 5.562684646268004e-309  # SciPy returns inf for smaller numbers, as 1 / x is infinite
HALF_LOG_2PI_E = 0.41893853320467274178  # (log(2 pi) - 1) / 2


@composed
def gammaln_of_positive(a: Any) -> Any:
    """log(Gamma(a)).

    Below 7/2 log(Gamma(2 + t)), |t| <= 1/2, is t times a polynomial, since 1 and 2 are roots, and
    Gamma(a + 1) = a Gamma(a) around 0, 1 and 3. Above it is Stirling's formula (DLMF 5.11.1), with
    a polynomial of 1 / a^2 in the place of its series. NaN below 0.
    """
    near = a < 3.5
    k = floor(a + 0.5)
    t = a - k
    m = where(k == 1.0, a, where(k == 3.0, a - 1.0, 1.0))
    m = where(k == 0.0, a * (a + 1.0), m)
    logarithm = log(where(near, m, a))
    s = t * t
    # Two sums at once, of the even and the odd powers: neither waits for the other.
    even = (-5.811277768921246e-07 * s - 1.9743106888421067e-06) * s - 9.45628851510172e-06
    odd = (2.7475390051909663e-07 * s + 9.242852225162277e-07) * s + 4.3828545383846665e-06
    even = (even * s - 4.4923727564247656e-05) * s - 0.00022315497746292723
    odd = (odd * s + 2.050601970174762e-05) * s + 9.945761692157133e-05
    even = (even * s - 0.0011927539009983087) * s - 0.007385551028935545
    odd = (odd * s + 0.0005096695196526673) * s + 0.002890510330865901
    even = (even * s - 0.06735230105319563) * s + 0.42278433509846713
    odd = (odd * s + 0.02058080842778338) * s + 0.3224670334241132
    low = t * (odd * t + even) + where(k < 2.0, -logarithm, logarithm)
    i = 1.0 / a
    w = i * i
    v = w * w
    even = (0.06688177820923424 * v + 0.006043560536192271) * v + 0.0008415127599549598
    odd = (-0.11104695308738122 * v - 0.02188646223118823) * v - 0.0019058041797362663
    even = (even * v + 0.0007936507759935256) * v + 0.08333333333333331
    odd = (odd * v - 0.0005952352439092053) * v - 0.002777777777734769
    high = (a - 0.5) * (logarithm - 1.0) + HALF_LOG_2PI_E + i * (odd * w + even)
    low = where(a < INVERTIBLE, INFINITY, low)
    return where(a >= 0.0, where(near, low, high), NAN)


@composed
def _sine(q: Any) -> Any:
    """sin(pi q), |q| <= 1/2."""
    s = q * q
    sine = (7.697826768224191e-07 * s - 2.1903497074626018e-05) * s + 0.0004662998161898394
    sine = ((sine * s - 0.007370430505916944) * s + 0.0821458865731029) * s - 0.5992645293189447
    sine = ((sine * s + 2.5501640398773007) * s - 5.167712780049969) * s + 3.141592653589793
    return q * sine


@composed
def gammaln(x: Any) -> Any:
    """log|Gamma(x)|; for negative numbers by Gamma(x) Gamma(1 - x) = pi / sin(pi x) (DLMF
    5.5.3)."""
    positive = x > 0.0
    a = where(positive, x, 1.0 - x)
    found = gammaln_of_positive(a)
    q = x - rint(x)
    reflected = LOG_PI - log(abs(_sine(q))) - found
    below = where(abs(q) < INVERTIBLE, INFINITY, where(a == INFINITY, x, reflected))
    return where(positive, found, below)


@composed
def digamma_of_positive(a: Any) -> Any:
    """Gamma'(a) / Gamma(a).

    Below 3 it follows from digamma(u), 1 <= u < 2, by digamma(u + 1) = digamma(u) + 1 / u. There it
    is a quotient of polynomials times the distance from the root (J. Maddock and others, Boost).
    Above it is the asymptotic formula (DLMF 5.11.2), with a polynomial of 1 / a^2 in the place of
    the series. NaN below 0.
    """
    near = a < 3.0
    small, large = a < 1.0, a >= 2.0
    u = where(small, a + 1.0, where(large, a - 1.0, a))
    i = 1.0 / where(near, where(small, -a, where(large, u, INFINITY)), a)
    g = u - 1.4616321446374059  # the root, in three parts
    g = g - 3.309564689176888e-10 - 2.0574000666111322e-26
    t = u - 1.0
    p = ((-0.0020713321167745952 * t - 0.045251321448739056) * t - 0.28919126444774784) * t
    p = ((p - 0.65031853770896507) * t - 0.32555031186804491) * t + 0.25479851061131551
    q = ((-0.55789841321675513e-6 * t + 0.0021284987017821144) * t + 0.054151797245674225) * t
    q = (((q + 0.43593529692665969) * t + 1.4606242909763515) * t + 2.0767117023730469) * t + 1.0
    low = g * 0.99558162689208984375 + g * (p / q) + i
    w = i * i
    v = w * w
    even = (17.261883761190983 * v + 1.7458633558768843) * v + 0.08064047398067098
    odd = (-21.29861333701341 * v - 6.706334097588544) * v - 0.37430045081725144
    even = (even * v + 0.00757443060881869) * v + 0.003968253884920039
    odd = (odd * v - 0.02101916489697652) * v - 0.004166652178650307
    even = even * v + 0.08333333333333326
    odd = odd * v - 0.008333333333142599
    high = log(a) - 0.5 * i - w * (odd * w + even)
    return where(a >= 0.0, where(near, low, high), NAN)


@composed
def digamma(x: Any) -> Any:
    """Gamma'(x) / Gamma(x).

    For negative numbers by digamma(1 - x) - digamma(x) = pi / tan(pi x) (DLMF 5.5.4). That is
    (1 - 4 q^2) / q times a polynomial of q^2, with q from -1/2 to 1/2.
    """
    positive = x > 0.0
    a = where(positive, x, 1.0 - x)
    found = digamma_of_positive(a)
    q = x - rint(x)
    s = q * q
    v = s * s
    even = (5.336813851582661 * v + 3.7732941760284464) * v + 0.943486535801883
    odd = (-4.669712117726342 * v - 0.4612382746984015) * v + 0.6189955082114015
    even = (even * v + 0.67251558366827) * v + 0.6667306285204495
    odd = (odd * v + 0.6661642927130073) * v + 0.6667965658083592
    even = (even * v + 0.6671967920207549) * v + 0.6758809977968725
    odd = (odd * v + 0.6688378666170829) * v + 0.7101318663035304
    even = even * v + 1.0
    turn = (1.0 - (q + q)) * (1.0 + (q + q)) * (odd * s + even)
    by = where(q == 0.0, where(x == 0.0, x, NAN), q)  # -0.0 differs from 0.0
    return where(positive, found, found - turn / by)


@composed
def trigamma(x: Any) -> Any:
    """The derivative of digamma.

    Above 1 it is a polynomial of (a - 3) / (a + 1), over a; below, trigamma(a) = trigamma(a + 1) +
    1 / a^2; and for negative numbers, trigamma(1 - x) + trigamma(x) = (pi / sin(pi x))^2. Both
    follow from DLMF 5.5.2 and 5.5.4.
    """
    positive = x > 0.0
    a = where(positive, x, 1.0 - x)
    small = a < 1.0
    b = where(small, a + 1.0, a)
    r = where(b > 1e17, 1.0, (b - 3.0) / (b + 1.0))
    v = r * r
    even = 8.302333218530581e-11 * v + 2.6852962834514304e-10
    odd = (-2.4788551152620775e-10 * v - 8.111063434065119e-10) * v - 1.0839976697026698e-08
    even = (even * v + 3.606323735882138e-09) * v + 3.0840115760329103e-08
    odd = (odd * v - 9.233893087523007e-08) * v - 8.366015527220982e-07
    even = (even * v + 2.7908731020209066e-07) * v + 2.506899203977165e-06
    odd = (odd * v - 7.5337945248427425e-06) * v - 6.768446453865437e-05
    even = (even * v + 2.257294629199711e-05) * v + 0.0002035368451027376
    odd = (odd * v - 0.0006092964811138537) * v - 0.00551718999397688
    even = (even * v + 0.0018241852255413459) * v + 0.0165163722184658
    odd = (odd * v - 0.04663497941314958) * v - 0.2696294084373573
    even = (even * v + 0.11909534485952539) * v + 1.1848022005446792
    found = odd * r + even
    found = found / b + where(small, 1.0 / (a * a), 0.0)
    turn = PI / _sine(where(a == INFINITY, 0.0, x - rint(x)))
    return where(positive, found, turn * turn - found)


@composed
def gamma(x: Any) -> Any:
    """Gamma(x).

    Below 7/2 it is computed from 1 / Gamma(2 + t), |t| <= 1/2, a polynomial, by Gamma(a + 1) = a
    Gamma(a). Above it is a^(a - 1/2) exp(-a) times a polynomial of 1 / a, in the place of
    Stirling's series (DLMF 5.11.3); the power is taken in two steps, since it overflows first.
    Below -1/2 it is Gamma(x) Gamma(-x) = -pi / (x sin(pi x)): -x is exact, unlike 1 - x. Where x
    Gamma(-x) is infinite the result is 0, as SciPy's.
    """
    left = x < -0.5
    a = where(left, -x, x)
    near = a < 3.5
    k = floor(a + 0.5)
    t = a - k
    v = t * t
    even = -1.4258717168188387e-09 * v + 1.3390150218113123e-06
    odd = 6.365451850342688e-09 * v - 2.0551047374863304e-07
    even = (even * v - 1.7545968270676578e-05) * v - 0.0003608378035444817
    odd = (odd * v - 2.588987414363024e-06) * v + 0.00014559614124980513
    even = (even * v + 0.008023273021458766) * v - 0.024552490005374752
    odd = (odd * v - 0.0008043297755476945) * v - 0.017645244550146086
    even = (even * v - 0.23309373642178705) * v + 1.0
    odd = (odd * v + 0.19109110138769153) * v - 0.42278433509846713
    inverse = odd * t + even
    below = inverse * where(k == 0.0, a * (a + 1.0), where(k == 1.0, a, 1.0))
    c = where(near, 4.0, minimum(a, 200.0))
    i = 1.0 / c
    v = i * i
    even = -0.004284599275333637 * v - 0.0004897578536403105
    odd = 0.0018546790648661113 * v + 0.0036864002675081834
    even = (even * v + 0.00016889535130641683) * v - 0.000575220708703203
    odd = (odd * v - 0.0014287249533122691) * v + 0.001965715389066245
    even = (even * v + 0.008703570390053214) * v + 2.5066282746310002
    odd = (odd * v - 0.006721089931143685) * v + 0.20888568955263007
    scale = odd * i + even
    half = power(c, c * 0.5 - 0.25)
    first = where(near, where(k == 3.0, a - 1.0, 1.0) / below, half * (exp(-c) * scale))
    second = where(near, 1.0, half)
    n = rint(x) * 0.5
    q = x - rint(x)
    right = first * second
    reflected = (4.0 * (n - floor(n)) - 1.0) * PI / (x * _sine(q) * right)
    return where(left, where(q == 0.0, NAN, reflected), right)
