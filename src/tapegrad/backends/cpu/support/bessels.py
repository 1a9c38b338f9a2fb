"""Modified Bessel functions of the orders 0 and 1, for loops that LLVM vectorises.

Near 0 they are power series in x^2 (DLMF 10.25.2, 10.31.1, 10.31.2), far from it an exponential
over a root (DLMF 10.40.1, 10.40.2), with polynomials in the place of all series. The coefficients
interpolate at Chebyshev nodes, computed with 60 digits; the errors are those of the roundings.
"""

# mypy: disable-error-code="call-arg,var-annotated,unreachable"
from __future__ import annotations

from typing import Any

from tapegrad.backends.cpu.support.composed import INFINITY, composed
from tapegrad.backends.cpu.support.scalars import copysign, exp, log, sqrt, where

LOG_2 = 0.6931471805599453  # log(x / 2) + LOG_2 is SciPy's log(x): it underflows for the least x

# ---- of the first kind


@composed
def _bessel_i0_near(x: Any) -> Any:
    """I_0(x), |x| <= 8."""
    w = x * x
    v = w * w
    even = (8.487698345602824e-37 * v + 5.0327117729737235e-31) * v + 2.5987841051325663e-25
    odd = 4.601357767863732e-34 * v + 3.829411247002327e-28
    even = (even * v + 7.242279005317181e-20) * v + 9.385967122158306e-15
    odd = (odd * v + 1.4962822964042478e-22) * v + 2.896902788810415e-17
    even = (even * v + 4.709502797312111e-10) * v + 6.781684027778812e-06
    odd = (odd * v + 2.4028075474081917e-12) * v + 6.781684027758202e-08
    even = (even * v + 0.015625000000000007) * v + 1.0
    odd = (odd * v + 0.00043402777777777445) * v + 0.25
    low = odd * w + even
    return low


@composed
def _bessel_i0_far(a: Any) -> Any:
    """exp(-a) I_0(a), a >= 8: a polynomial of 1 / a over the root of a."""
    r = 16.0 / a - 1.0
    v = r * r
    even = (-7.06893851181878e-11 * v + 5.181936971288284e-10) * v - 1.7789375042917173e-09
    odd = -1.9216763724933513e-11 * v + 1.4672236659214398e-10
    even = (even * v + 3.881151253996067e-09) * v - 6.188265090497361e-09
    odd = (odd * v - 5.562201990080394e-10) * v + 1.497880830187091e-09
    even = (even * v + 7.58022133915272e-09) * v - 5.4685974495866e-09
    odd = (odd * v - 3.4857887470034955e-09) * v + 7.540601378890834e-09
    even = (even * v - 6.729724111923548e-09) * v + 2.1545177650836005e-08
    odd = (odd * v - 1.3404241991980871e-08) * v + 7.553516470355896e-09
    even = (even * v + 8.87225351128584e-08) * v + 1.4838475473607391e-06
    odd = (odd * v + 3.932602459703109e-08) * v + 2.973598432479169e-07
    even = (even * v + 0.00013621607439232746) * v + 0.4021765094450081
    odd = (odd * v + 1.1143033791556743e-05) * v + 0.003360551983667854
    high = odd * r + even
    return high / sqrt(a)


@composed
def bessel_i0(x: Any) -> Any:
    """I_0(x); infinite, as SciPy's, where exp(x) is."""
    a = abs(x)
    far = exp(a) * _bessel_i0_far(a)
    return where(a <= 8.0, _bessel_i0_near(x), far)


@composed
def bessel_i0e(x: Any) -> Any:
    """exp(-|x|) I_0(x)."""
    a = abs(x)
    return where(a <= 8.0, _bessel_i0_near(x) * exp(-a), _bessel_i0_far(a))


@composed
def _bessel_i1_near(x: Any) -> Any:
    """I_1(x), |x| <= 8."""
    w = x * x
    v = w * w
    even = 1.3808181584914298e-32 * v + 9.956969230500738e-27
    odd = 2.716505589516919e-35 * v + 1.408926251589232e-29
    even = (even * v + 3.2918259018287706e-21) * v + 5.214425120919993e-16
    odd = (odd * v + 6.2370206832638684e-24) * v + 1.448455537254395e-18
    even = (even * v + 3.3639305668982475e-11) * v + 6.781684027764357e-07
    odd = (odd * v + 1.5017547367976848e-13) * v + 5.651403356704746e-09
    even = (even * v + 0.0026041666666666574) * v + 0.5000000000000001  # half of the least isn't 0
    odd = (odd * v + 5.42534722222271e-05) * v + 0.06250000000000001
    low = odd * w + even
    return x * low + 0.0  # -0.0 becomes 0.0


@composed
def _bessel_i1_far(x: Any) -> Any:
    """exp(-|x|) I_1(x), |x| >= 8."""
    a = abs(x)
    r = 16.0 / a - 1.0
    v = r * r
    even = (7.347992441734663e-11 * v - 5.388285995923524e-10) * v + 1.8513716745511988e-09
    odd = 1.7502497778701306e-11 * v - 1.342266320082222e-10
    even = (even * v - 4.047785403711858e-09) * v + 6.4870195719816896e-09
    odd = (odd * v + 5.146498826087142e-10) * v - 1.4171698018664596e-09
    even = (even * v - 8.044231276166508e-09) * v + 6.040877342160988e-09
    odd = (odd * v + 3.406636130196794e-09) * v - 7.630751970065577e-09
    even = (even * v + 6.715795128085017e-09) * v - 2.337059627111857e-08
    odd = (odd * v + 1.4029693589852716e-08) * v - 8.426622829598154e-09
    even = (even * v - 1.0001323461066435e-07) * v - 1.8349101134666435e-06
    odd = (odd * v - 4.312935369971356e-08) * v - 3.483855609009937e-07
    even = (even * v - 0.00021923576383430274) * v + 0.38939845902587233
    odd = (odd * v - 1.5038547201176271e-05) * v - 0.009749577193235728
    high = odd * r + even
    return copysign(high / sqrt(a), x)


@composed
def bessel_i1(x: Any) -> Any:
    """I_1(x)."""
    far = exp(abs(x)) * _bessel_i1_far(x)
    return where(abs(x) <= 8.0, _bessel_i1_near(x), far)


@composed
def bessel_i1e(x: Any) -> Any:
    """exp(-|x|) I_1(x)."""
    return where(abs(x) <= 8.0, _bessel_i1_near(x) * exp(-abs(x)), _bessel_i1_far(x))


# ---- of the second kind, for positive numbers: the logarithm is NaN for others


@composed
def _bessel_k0_near(x: Any) -> Any:
    """K_0(x), x <= 1: a series less log(x) I_0(x)."""
    w = x * x
    v = w * w
    even = 1.2082515207624246e-09 * v + 1.4914719229859212e-05
    odd = 6.615903551644314e-12 * v + 1.6271070900264265e-07
    even = (even * v + 0.025248929932160484) * v + 0.11593151565841245
    odd = (odd * v + 0.0008460350907258961) * v + 0.2789828789146032
    low = odd * w + even
    even = 4.708886739799705e-10 * v + 6.781684003298254e-06
    odd = 2.4406278948541674e-12 * v + 6.781689246632508e-08
    even = (even * v + 0.015624999999999221) * v + 1.0
    odd = (odd * v + 0.00043402777778401143) * v + 0.25000000000000006
    by = odd * w + even
    return low - (log(where(x < 0.0, x, 0.5 * x)) + LOG_2) * by


@composed
def _bessel_k0_far(x: Any) -> Any:
    """exp(x) K_0(x), x >= 1: a polynomial of (x - 3) / (x + 1), between -1 and 1."""
    r = where(x > 1e17, 1.0, (x - 3.0) / (x + 1.0))
    v = r * r
    even = (3.443068000080339e-11 * v - 1.0201554588342103e-10) * v - 8.322696770629892e-12
    odd = (2.2964349455115336e-11 * v - 4.096528003473446e-11) * v + 2.2505673175835275e-10
    even = (even * v - 2.4515872223003684e-09) * v - 2.7097521529616173e-08
    odd = (odd * v + 9.759190480875032e-10) * v + 1.0079741023170381e-08
    even = (even * v - 3.1009517086887545e-07) * v - 3.5911464513557478e-06
    odd = (odd * v + 1.0309182076384598e-07) * v + 1.1249553709307915e-06
    even = (even * v - 4.352561024872352e-05) * v - 0.0005746200406164772
    odd = (odd * v + 1.301058149043755e-05) * v + 0.00016278282384305602
    even = (even * v - 0.00904785430370246) * v + 1.2085585393824039
    odd = (odd * v + 0.0023443540383616024) * v + 0.05190414200069995
    high = odd * r + even
    return high / sqrt(x)


@composed
def bessel_k0(x: Any) -> Any:
    """K_0(x)."""
    return where(x <= 1.0, _bessel_k0_near(x), _bessel_k0_far(x) * exp(-x))


@composed
def bessel_k0e(x: Any) -> Any:
    """exp(x) K_0(x)."""
    return where(x <= 1.0, _bessel_k0_near(x) * exp(x), _bessel_k0_far(x))


@composed
def _bessel_k1_near(x: Any) -> Any:
    """K_1(x), x <= 1: 1 / x + log(x) I_1(x) and a series."""
    w = x * x
    v = w * w
    even = -8.870907975584019e-11 * v - 1.5592887662774348e-06
    odd = -4.2224747994537033e-13 * v - 1.403017207152258e-08
    even = (even * v - 0.004642182766471435) * v - 0.3079657578292062
    odd = (odd * v - 0.00011253607036730547) * v - 0.08537071972865079
    low = odd * w + even
    even = 3.363588648332749e-11 * v + 6.781684014193744e-07
    odd = 1.522750603604819e-13 * v + 5.6514062526881675e-09
    even = (even * v + 0.0026041666666666236) * v + 0.5
    odd = (odd * v + 5.425347222256812e-05) * v + 0.0625
    by = odd * w + even
    return where(
        x == 0.0, INFINITY, 1.0 / x + x * ((log(where(x < 0.0, x, 0.5 * x)) + LOG_2) * by + low)
    )


@composed
def _bessel_k1_far(x: Any) -> Any:
    """exp(x) K_1(x), x >= 1."""
    r = where(x > 1e17, 1.0, (x - 3.0) / (x + 1.0))
    v = r * r
    even = (3.349365803404663e-11 * v + 3.8542665498193403e-10) * v + 3.548758040335184e-09
    odd = (-4.790708023294031e-11 * v - 4.574093744599674e-11) * v - 1.3945125935283777e-09
    even = (even * v + 3.5090626882967956e-08) * v + 3.415040974037129e-07
    odd = (odd * v - 1.1570500594379251e-08) * v - 1.1167069809574695e-07
    even = (even * v + 3.3583861432545085e-06) * v + 3.3556311143128015e-05
    odd = (odd * v - 1.082019380340721e-06) * v - 1.0673196869277312e-05
    even = (even * v + 0.0003441268507636094) * v + 0.0036928469287954967
    odd = (odd * v - 0.00010771774063493306) * v - 0.0011269348876062793
    even = (even * v + 0.04365061563750166) * v + 1.3970089271126294
    odd = (odd * v - 0.012635408079178474) * v - 0.1775377338208504
    high = odd * r + even
    return high / sqrt(x)


@composed
def bessel_k1(x: Any) -> Any:
    """K_1(x)."""
    return where(x <= 1.0, _bessel_k1_near(x), _bessel_k1_far(x) * exp(-x))


@composed
def bessel_k1e(x: Any) -> Any:
    """exp(x) K_1(x)."""
    return where(x <= 1.0, _bessel_k1_near(x) * exp(x), _bessel_k1_far(x))
