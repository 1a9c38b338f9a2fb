"""Schedules of learning rates: functions of the number of updates so far, 0 at the first update.

    adam(rate=cosine(1e-3, steps=10_000))

Any function of an integer is a schedule. The functions here are pure arithmetic, so that one
compiled update serves all numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError
from tapegrad.optim.optimiser import Schedule


def constant(rate: float) -> Schedule:
    """rate"""
    return lambda n: rate


def exponential(rate: float, factor: float, steps: int = 1, staircase: bool = False) -> Schedule:
    """rate factor^(n / steps); with a staircase, rate factor^(n // steps)."""
    _counts(steps=steps)
    return lambda n: rate * factor ** (np.floor(n / steps) if staircase else n / steps)


def piecewise(boundaries: Sequence[int], rates: Sequence[float]) -> Schedule:
    """rates[k], where k is the number of boundaries <= n.

    Raises
    ------
    ArgumentError : boundaries don't increase, or the number of rates isn't theirs plus one.
    """
    if len(rates) != len(boundaries) + 1 or any(a >= b for a, b in pairwise(boundaries)):
        raise ArgumentError(
            f"piecewise: {len(boundaries)} boundaries, which must increase, need "
            f"{len(boundaries) + 1} rates, and there are {len(rates)}"
        )

    def at(n: Any) -> Any:
        found: Any = rates[0]
        for end, later in zip(boundaries, rates[1:], strict=True):
            found = np.where(n < end, found, later)
        return found

    return at


def polynomial(rate: float, final: float, steps: int, power: float = 1.0) -> Schedule:
    """final + (rate - final) (1 - n / steps)^power, and final after `steps` updates."""
    _counts(steps=steps)
    return lambda n: final + (rate - final) * (1 - np.minimum(n, steps) / steps) ** power


def linear(rate: float, final: float, steps: int) -> Schedule:
    """A straight line from rate to final, and final after `steps` updates."""
    return polynomial(rate, final, steps)


def cosine(rate: float, steps: int, final: float = 0.0, restarts: bool = False) -> Schedule:
    """final + (rate - final) (1 + cos(pi n / steps)) / 2, and final after `steps` updates.

    With restarts, the curve repeats after each `steps` updates. Loshchilov and Hutter, SGDR:
    stochastic gradient descent with warm restarts, 2017.
    """
    _counts(steps=steps)

    def at(n: Any) -> Any:
        n = n % steps if restarts else np.minimum(n, steps)
        return final + (rate - final) * (1 + np.cos(np.pi * n / steps)) / 2

    return at


def warmup(schedule: float | Schedule, steps: int, start: float = 0.0) -> Schedule:
    """A straight line from start to the schedule's first rate in `steps` updates, then the
    schedule from its beginning."""
    _counts(steps=steps)

    def at(n: Any) -> Any:
        first = schedule(0) if callable(schedule) else schedule
        later = schedule(np.maximum(n - steps, 0)) if callable(schedule) else schedule
        return np.where(n < steps, start + (first - start) * n / steps, later)

    return at


def one_cycle(
    rate: float, steps: int, rising: float = 0.3, start: float = 0.04, final: float = 4e-6
) -> Schedule:
    """A rise to `rate` and a fall, both along cosines.

    The first share `rising` of the updates leads from start * rate to rate, the rest down to
    final * rate at the last update. Smith and Topin, Super-convergence: very fast training of
    neural networks using large learning rates, 2018. The defaults are those of
    `torch.optim.lr_scheduler.OneCycleLR`.
    """
    _counts(steps=steps)
    top = rising * steps - 1
    last = steps - 1
    if not 0 < top < last:
        raise ArgumentError(f"one_cycle: {steps} updates have no share {rising} in which to rise")

    def along(low: float, high: float, share: Any) -> Any:
        return low + (high - low) * (1 + np.cos(np.pi * np.clip(share, 0, 1))) / 2

    def at(n: Any) -> Any:
        up = along(rate, rate * start, n / top)
        down = along(rate * final, rate, (n - top) / (last - top))
        return np.where(n <= top, up, down)

    return at


def inverse_sqrt(rate: float, steps: int) -> Schedule:
    """A straight rise to `rate` in the first `steps` updates, then a fall like 1 / sqrt(n):

        rate min((n + 1) / steps, sqrt(steps / (n + 1)))

    Vaswani et al., Attention is all you need, 2017.
    """
    _counts(steps=steps)
    return lambda n: rate * np.minimum((n + 1) / steps, np.sqrt(steps / (n + 1)))


def _counts(**numbers: int) -> None:
    for name, number in numbers.items():
        if not number >= 1:
            raise ArgumentError(f"{name} is {number}, and must be at least 1")
