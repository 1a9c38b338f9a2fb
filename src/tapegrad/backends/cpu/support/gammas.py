"""The gamma function's logarithm and its derivative, for loops that LLVM vectorises.

No step decides a branch: the argument is brought near 2 by a recurrence of as many steps as it
takes at most, of which those that aren't needed multiply by 1.
"""

# mypy: disable-error-code="call-arg,var-annotated,unreachable"
from __future__ import annotations

from typing import Any

from tapegrad.backends.cpu.support.composed import INFINITY, composed
from tapegrad.backends.cpu.support.scalars import cos, floor, log, sin, where

NAN = float("nan")
PI = 3.141592653589793
LOG_PI = 1.1447298858494002
HALF_LOG_2PI = 0.91893853320467274178


@composed
def gammaln(x: Any) -> Any:
    """log|Gamma(x)|: below 13 from Gamma(u), 2 <= u < 3, by Gamma(u + 1) = u Gamma(u); above by
    Stirling's series (S. L. Moshier, Cephes, 1988: lgam); between 1/2 and 1, 3/2 and 2 by the
    series of log Gamma(2 + t), DLMF 5.7.3, whose coefficients are (-1)^k (zeta(k) - 1) / k. Of
    negative numbers by Gamma(-x) Gamma(x) = -pi / (x sin(pi x)), DLMF 5.5.3."""
    a = abs(x)
    near = a < 13.0
    # u = a - n, and z with Gamma(a) = z Gamma(u), or v with Gamma(u) = v Gamma(a)
    b = where(near, a, 2.5)
    n = floor(b) - 2.0
    u = b - n
    r = b - floor(b)  # u - 2, to the last digit
    close = where(b < 2.0, r, 0.0) > 0.5  # below a root, 1 or 2: from Gamma(2 + t) instead
    t = where(close, r - 1.0, 0.0)
    v = where(n < -1.0, b * where(close, 1.0, b + 1.0), where(close, 1.0, b))
    z = where(n > 0.0, u, 1.0) * where(n > 1.0, u + 1.0, 1.0) * where(n > 2.0, u + 2.0, 1.0)
    z = z * where(n > 3.0, u + 3.0, 1.0) * where(n > 4.0, u + 4.0, 1.0)
    z = z * where(n > 5.0, u + 5.0, 1.0) * where(n > 6.0, u + 6.0, 1.0)
    z = z * where(n > 7.0, u + 7.0, 1.0) * where(n > 8.0, u + 8.0, 1.0)
    z = z * where(n > 9.0, u + 9.0, 1.0)
    p = (
        (-1.37825152569120859100e3 * r - 3.88016315134637840924e4) * r - 3.31612992738871184744e5
    ) * r
    p = (
        (p - 1.16237097492762307383e6) * r - 1.72173700820839662146e6
    ) * r - 8.53555664245765465627e5
    q = (
        (r - 3.51815701436523470549e2) * r - 1.70642106651881159223e4
    ) * r - 2.20528590553854454839e5
    q = (
        (q * r - 1.13933444367982507207e6) * r - 2.53252307177582951285e6
    ) * r - 2.01889141433532773231e6
    logarithm = log(where(near, where(n < 0.0, v, z), a))
    e = (-2.7595228851242331452e-10 * t + 5.7313672416788620133e-10) * t
    e = (
        ((e - 1.1921401405860912074e-9) * t + 2.4836745438024783172e-9) * t
        - 5.1834750419700466551e-9
    ) * t
    e = (
        ((e + 1.0838659214896954091e-8) * t - 2.271109460894316491e-8) * t
        + 4.7698101693639805658e-8
    ) * t
    e = (
        ((e - 1.0043224823968099609e-7) * t + 2.1207184805554665869e-7) * t
        - 4.4924691987645660433e-7
    ) * t
    e = (
        ((e + 9.5514121304074198329e-7) * t - 2.0392157538013662368e-6) * t
        + 4.3748667899074878042e-6
    ) * t
    e = (
        ((e - 9.439488275268395904e-6) * t + 0.000020507212775670691553) * t
        - 0.0000449262367381331417
    ) * t
    e = (
        ((e + 0.000099457512781808533715) * t - 0.00022315475845357937976) * t
        + 0.00050966952474304242234
    ) * t
    e = (
        ((e - 0.0011927539117032609771) * t + 0.0028905103307415232858) * t
        - 0.0073855510286739852663
    ) * t
    e = (
        ((e + 0.020580808427784547879) * t - 0.067352301053198095133) * t + 0.32246703342411321824
    ) * t
    e = (e + 0.42278433509846713939) * t
    low = where(n < 0.0, -logarithm, logarithm) + where(close, e, r * p / q)
    i = 1.0 / where(near, 1.0, a)
    w = i * i
    s = (
        (8.11614167470508450300e-4 * w - 5.95061904284301438324e-4) * w + 7.93650340457716943945e-4
    ) * w
    s = (s - 2.77777777730099687205e-3) * w + 8.33333333333331927722e-2
    high = (a - 0.5) * logarithm - a + HALF_LOG_2PI + s * i
    found = where(near, low, high)
    found = where(a == INFINITY, INFINITY, found)
    turn = a - 2.0 * floor(a * 0.5)
    reflected = LOG_PI - log(a * abs(sin(PI * turn))) - found
    whole = where(floor(a) == a, INFINITY, reflected)
    below = where(a == INFINITY, x, whole)
    return where(x > 0.0, found, where(x == x, below, x))


@composed
def digamma(x: Any) -> Any:
    """Gamma'(x) / Gamma(x): below 10 from digamma(u), 1 <= u < 2, a quotient of polynomials times
    the distance from the root there (J. Maddock and others, Boost), by
    digamma(u + 1) = digamma(u) + 1 / u; above by its asymptotic series, DLMF 5.11.2. Of negative
    numbers by digamma(1 - x) - digamma(x) = pi / tan(pi x), DLMF 5.5.4."""
    positive = x > 0.0
    a = where(positive, x, 1.0 - x)
    near = a < 10.0
    b = where(near, a, 1.5)
    small = b < 1.0
    n = where(small, 0.0, floor(b) - 1.0)
    u = where(small, b + 1.0, b - n)
    # The sum of 1 / (u + k), k < n, as a quotient
    d = where(n > 0.0, u, 1.0)
    c = where(n > 0.0, 1.0, 0.0)
    f = where(n > 1.0, u + 1.0, 1.0)
    c = c * f + where(n > 1.0, d, 0.0)
    d = d * f
    f = where(n > 2.0, u + 2.0, 1.0)
    c = c * f + where(n > 2.0, d, 0.0)
    d = d * f
    f = where(n > 3.0, u + 3.0, 1.0)
    c = c * f + where(n > 3.0, d, 0.0)
    d = d * f
    f = where(n > 4.0, u + 4.0, 1.0)
    c = c * f + where(n > 4.0, d, 0.0)
    d = d * f
    f = where(n > 5.0, u + 5.0, 1.0)
    c = c * f + where(n > 5.0, d, 0.0)
    d = d * f
    f = where(n > 6.0, u + 6.0, 1.0)
    c = c * f + where(n > 6.0, d, 0.0)
    d = d * f
    f = where(n > 7.0, u + 7.0, 1.0)
    c = c * f + where(n > 7.0, d, 0.0)
    d = d * f
    c = where(small, -1.0, c)
    d = where(small, b, d)
    g = u - 1.4616321446374058723449707  # the root, in three parts
    g = g - 3.3095646883275798e-10 - 9.0163120932586959186e-20
    t = u - 1.0
    p = ((-0.0020713321167745952 * t - 0.045251321448739056) * t - 0.28919126444774784) * t
    p = ((p - 0.65031853770896507) * t - 0.32555031186804491) * t + 0.25479851061131551
    q = ((-0.55789841321675513e-6 * t + 0.0021284987017821144) * t + 0.054151797245674225) * t
    q = (((q + 0.43593529692665969) * t + 1.4606242909763515) * t + 2.0767117023730469) * t + 1.0
    low = g * 0.99558162689208984375 + g * (p / q) + c / d
    i = 1.0 / where(near, 1.0, a)
    w = i * i
    s = (
        (8.33333333333333333333e-2 * w - 2.10927960927960927961e-2) * w + 7.57575757575757575758e-3
    ) * w
    s = (
        (s - 4.16666666666666666667e-3) * w + 3.96825396825396825397e-3
    ) * w - 8.33333333333333333333e-3
    s = (s * w + 8.33333333333333333333e-2) * w
    high = log(where(near, 1.0, a)) - 0.5 * i - s
    found = where(near, low, high)
    turn = x - floor(x)
    turned = found - PI * cos(PI * turn) / sin(PI * turn)
    turned = where(turn == 0.0, where(x == 0.0, -1.0 / x, NAN), turned)
    return where(positive, found, turned)
