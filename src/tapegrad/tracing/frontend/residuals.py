"""The residuals of np.linalg.lstsq, computed when they are used.

Whether there are any depends on the rank. That costs a guard, and a rank at each call, which a
program that drops them does without.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.tracing.tracer import ArrayTracer, stand_in


class Residuals(ArrayTracer):
    """The sums of squares of B - A X, by columns: none, unless A has full rank and more rows than
    columns. All that is asked of it, it asks of the array that it stands for."""

    __slots__ = ("_found", "_given")

    def __init__(self, a: Any, b: Any, x: Any, rank: Any) -> None:
        # What is written to these later doesn't count.
        self._given: list[Any] = [stand_in(v._trace, *v._read()) for v in (a, b, x, rank)]
        self._found: Any = None

    def _made(self) -> Any:
        if self._found is None:
            a, b, x, rank = self._given
            m, n = a.shape
            if m > n and int(rank) == n:
                self._found = np.sum(np.square(b - a @ x).reshape(m, -1), axis=0)
            else:
                self._found = np.zeros_like(x, shape=0)
        return self._found


def _passed_on(name: str) -> property:
    def set_to(self: Any, value: Any) -> None:
        setattr(self._made(), name, value)

    return property(lambda self: getattr(self._made(), name), set_to)


_NAMES = """_aval _operand _value _trace _root _chain _version _ordered _may_alias _doubt"""
for _name in _NAMES.split():
    setattr(Residuals, _name, _passed_on(_name))
