"""Sums over the numbers of discrete distributions that matter: as many as a power of 2, which is
guarded."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.extending import any_traced, at_line, refusal
from tapegrad.scipy.anew import decided

MOST = 2**14  # terms of a sum
NOTHING = 1e-30  # a probability that doesn't matter


def _last(of: Any, first: float, *shapes: Any) -> np.ndarray:
    """How many numbers from the first one on matter, as a power of 2."""
    count = 32
    while count <= MOST and float(of.sf(first + count, *shapes)) > NOTHING:
        count *= 2
    return np.array([count])


def terms(of: Any, lb: Any = None, ub: Any = None) -> Any:
    """The numbers of a discrete law's standard form that a sum goes over."""
    lb, ub = of.low if lb is None else lb, of.high if ub is None else ub
    if any_traced([lb, ub]) or np.isinf(lb) or any(map(np.ndim, of.shapes)):
        raise refusal(
            f"a sum over the numbers of scipy.stats.{of.law.name} from {lb} to {ub} can't be "
            f"traced{at_line()}. Sum f(k) * dist.pmf(k, ...) over numbers k that you choose"
        )
    if np.isinf(ub):
        (count,) = decided("how many terms a sum has", _last, of.law.dist, lb, *of.shapes)
        ub = lb + count
    if ub - lb > MOST:
        raise refusal(f"a sum of {ub - lb:.0f} terms can't be traced{at_line()}")
    return np.arange(lb, ub + 1.0)
