"""Traceable versions of scipy.stats.

Distributions of one variable are tables of formulas (`real_line.py`, ...). `laws.py` holds what
all of them have in common.
"""

from __future__ import annotations

from tapegrad.scipy.stats import (
    bounded,
    discrete,
    drawing,
    fitting,
    half_line,
    joint,
    kernels,
    methods,
    others,
    ranks,
    real_line,
    statistics,
    tails,
    truncated,
)

REFUSED = {
    "fit": "dist.fit, or a minimiser of -np.sum(dist.logpdf(data, *parameters))",
    "kstest ks_1samp": (
        "the largest of k / n - c[k - 1] and c[k] - k / n, for c = dist.cdf(np.sort(x))"
    ),
    """
    dpareto_lognorm genhyperbolic geninvgauss irwinhall kappa4 ksone kstwo kstwobign landau
    levy_stable ncf nct ncx2 pearson3 studentized_range poisson_binom nchypergeom_fisher
    nchypergeom_wallenius nhypergeom skellam zipfian
    """: "the logarithm of its density, written in NumPy's functions",
}

__all__ = [
    "bounded",
    "discrete",
    "drawing",
    "fitting",
    "half_line",
    "joint",
    "kernels",
    "methods",
    "others",
    "ranks",
    "real_line",
    "statistics",
    "tails",
    "truncated",
]
