"""Programs of which one round is traced for all, and how they are held against plain NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapegrad import value_and_grad

Program = Callable[[Any, Any], Any]
LENGTHS = (80, 80, 81, 70, 9, 80)


class Programs(list[Program]):
    """Those that this decorates."""

    def __call__(self, f: Program) -> Program:
        self.append(f)
        return f


def by_program(*programs: Program) -> Any:
    return pytest.mark.parametrize("f", programs, ids=lambda f: f.__name__)


def noted(x: Any) -> Any:
    """What is counted: calls of this."""
    return x


def calls_of(f: Any, run: Callable[[], Any]) -> int:
    """How often this makes a function run."""
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is f.__code__

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def arguments(k: int) -> tuple[Any, float]:
    rng = np.random.default_rng(k)
    x = rng.standard_normal(LENGTHS[k])
    return -np.abs(x) if k == 3 else x, float(rng.uniform(0.4, 1.4))


def held(f: Program) -> None:
    """Values are those of plain NumPy, and derivatives those of differences."""
    derivative = value_and_grad(f, (0, 1), compile="never")
    for k in range(len(LENGTHS)):
        x, a = arguments(k)
        value, (dx, da) = derivative(x, a)
        assert value == pytest.approx(f(x.copy(), a), rel=1e-13)
        along = np.random.default_rng(k).standard_normal(len(x))
        ends = [f(x + h * along, a + h) for h in (1e-6, -1e-6)]
        assert dx @ along + da == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-6)
