"""What answers the functions and distributions of scipy.stats.

Distributions of one number are tables of formulas (`real_line.py`, ...), and `laws.py` says what
all of them have in common.
"""

from __future__ import annotations

from tapegrad.scipy.stats import (
    bounded,
    discrete,
    drawing,
    half_line,
    joint,
    kernels,
    methods,
    ranks,
    real_line,
    statistics,
    tails,
)

HOME = "scipy.stats"
REFUSED = {
    "fit": "a minimiser of the negative log likelihood, -np.sum(dist.logpdf(data, *parameters))",
    """
    alpha argus bradford crystalball dpareto_lognorm exponpow fatiguelife foldcauchy gausshyper
    genexpon genhalflogistic genhyperbolic geninvgauss irwinhall jf_skew_t kappa3 kappa4 ksone kstwo
    kstwobign landau levy_stable mielke ncf nct ncx2 norminvgauss pearson3 powerlognorm powernorm
    rdist recipinvgauss rel_breitwigner studentized_range trapezoid truncpareto truncweibull_min
    tukeylambda poisson_binom nchypergeom_fisher nchypergeom_wallenius nhypergeom skellam zipfian
    """: "the logarithm of its density, written in NumPy's functions",
}

__all__ = [
    "HOME",
    "bounded",
    "discrete",
    "drawing",
    "half_line",
    "joint",
    "kernels",
    "methods",
    "ranks",
    "real_line",
    "statistics",
    "tails",
]
