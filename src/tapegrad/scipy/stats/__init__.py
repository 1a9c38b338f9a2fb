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
    methods,
    real_line,
    statistics,
    tails,
)

HOME = "scipy.stats"

__all__ = [
    "HOME",
    "bounded",
    "discrete",
    "drawing",
    "half_line",
    "joint",
    "methods",
    "real_line",
    "statistics",
    "tails",
]
