"""Guards on the range of numbers. If one fails, the same tape is run with all sums in NumPy's order
(see `optimize.rewrites.ranges`)."""

from __future__ import annotations

from tapegrad.ir.tape import Guard

RANGE = "numbers within the range in which the order of sums makes no difference"


def is_of_range(guard: Guard) -> bool:
    """Whether a guard is on the range of numbers."""
    return guard.what == RANGE
