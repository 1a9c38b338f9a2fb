"""Sums over the support of discrete distributions. Terms of negligible probability are left out.
The number of terms is a power of 2, and guarded."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.extending import any_traced, at_line, refusal
from tapegrad.scipy.recomputed import decided

MAX_TERMS = 2**14  # terms of a sum
NOTHING = 1e-30  # a negligible probability


def _last(of: Any, first: float, *shapes: Any) -> np.ndarray:
    """The number of terms from `first` on that aren't negligible, rounded up to a power of 2."""
    count = 32
    while count <= MAX_TERMS and float(of.sf(first + count, *shapes)) > NOTHING:
        count *= 2
    return np.array([count])


def terms(of: Any, lb: Any = None, ub: Any = None) -> Any:
    """The terms of a sum over a discrete law: numbers of the standard form from `lb` to `ub`."""
    lb, ub = of.low if lb is None else lb, of.high if ub is None else ub
    if any_traced([lb, ub]) or np.isinf(lb) or any(map(np.ndim, of.shapes)):
        raise refusal(
            f"a sum over the numbers of scipy.stats.{of.law.name} from {lb} to {ub} can't be "
            f"traced{at_line()}. Sum f(k) * dist.pmf(k, ...) over numbers k that you choose"
        )
    if np.isinf(ub):
        (count,) = decided("how many terms a sum has", _last, of.law.dist, lb, *of.shapes)
        ub = lb + count
    if ub - lb > MAX_TERMS:
        raise refusal(f"a sum of {ub - lb:.0f} terms can't be traced{at_line()}")
    return np.arange(lb, ub + 1.0)
