"""Rank statistics, which small changes of the samples leave unchanged.

SciPy computes them at each call, NaNs and axes included. Their derivative is 0.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from scipy import stats

from tapegrad.extending import answering, any_traced, declare
from tapegrad.scipy.recomputed import constant

HOME = "scipy.stats"
NAMES = """
    rankdata spearmanr kendalltau weightedtau somersd chatterjeexi mannwhitneyu wilcoxon ranksums
    kruskal friedmanchisquare brunnermunzel mood ansari cramervonmises_2samp page_trend_test
"""


def _of_ranks(name: str) -> None:
    original = getattr(stats, name, None)
    if original is None:
        return
    own: Any = partial(constant, name, original)
    own.__signature__, own.__name__ = inspect.signature(original), name
    declare(stats, name, answering(own, original, f"{HOME}.{name}"), when=any_traced)


for _name in NAMES.split():
    _of_ranks(_name)
