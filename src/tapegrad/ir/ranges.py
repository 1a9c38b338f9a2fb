"""Guards on the range of numbers: where one doesn't hold, the same tape answers, with all sums in
NumPy's order (see `optimize.rewrites.ranges`)."""

from __future__ import annotations

from tapegrad.ir.tape import Guard

RANGE = "numbers within the range in which the order of sums makes no difference"


def is_of_range(guard: Guard) -> bool:
    """Whether a guard is one of these."""
    return guard.what == RANGE
