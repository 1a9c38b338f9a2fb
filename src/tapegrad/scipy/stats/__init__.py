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
    others,
    ranks,
    real_line,
    statistics,
    tails,
)

HOME = "scipy.stats"
REFUSED = {
    "fit": "a minimiser of the negative log likelihood, -np.sum(dist.logpdf(data, *parameters))",
    """
    dpareto_lognorm genhyperbolic geninvgauss irwinhall kappa4 ksone kstwo kstwobign landau
    levy_stable ncf nct ncx2 pearson3 studentized_range poisson_binom nchypergeom_fisher
    nchypergeom_wallenius nhypergeom skellam zipfian
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
    "others",
    "ranks",
    "real_line",
    "statistics",
    "tails",
]
