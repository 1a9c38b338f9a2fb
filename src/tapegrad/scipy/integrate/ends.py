"""A solution at all steps, of which a program may read the ends alone.

    sol = solve_ivp(f, (0, 5), y0)
    sol.y[:, -1], sol.y[0, -1], sol.t[-1]     any number of steps
    np.max(sol.y[0])                          a guard: so many steps

The arrays of all steps are made when more of them is used, or when they are written to. What was
read of the ends before is a view of them from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.tracing.deferred import Deferred
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.trace import Trace
from tapegrad.tracing.tracer import Tracer

View = Callable[[Any], Any]


class Steps:
    """An array of all steps in a trace, made by `make` when it is asked for, and its entries at
    both ends."""

    def __init__(
        self,
        trace: Trace,
        make: Callable[[], Any],
        first: Callable[[], Any],
        last: Callable[[], Any],
    ) -> None:
        self.trace = trace
        self._make, self._ends, self._read = make, (first, last), [None, None]
        self.array: Any = None

    @unobserved
    def whole(self) -> Any:
        if self.array is None:
            self.array = self._make()
        return self.array

    @unobserved
    def end(self, k: int) -> Any:
        """The entry at the first step, for 0, or at the last one, for -1."""
        if self._read[k] is None:
            self._read[k] = self._ends[k]()
        return self._read[k]


class Along(Deferred):
    """A view of all steps: what `view` gives of an array of them, or of an end for `of_end`. The
    steps are along `axis`, one of `ndim`."""

    __slots__ = ("_axis", "_found", "_ndim", "_of_end", "_steps", "_view")

    def __init__(self, steps: Steps, axis: int, ndim: int, view: View, of_end: View) -> None:
        self._steps, self._axis, self._ndim = steps, axis, ndim
        self._view, self._of_end = view, of_end
        self._found: Any = None

    @property
    def _trace(self) -> Trace:
        return self._steps.trace

    @_trace.setter
    def _trace(self, trace: Trace) -> None:
        self._made()._trace = trace

    @unobserved
    def _made(self) -> Any:
        if self._found is None:
            self._found = self._view(self._steps.whole())
        return self._found

    @property
    def T(self) -> Any:
        return self.transpose()

    @unobserved
    def transpose(self, *axes: Any) -> Any:
        if axes or self._steps.array is not None:
            return super().transpose(*axes)
        view, of_end, axis = self._view, self._of_end, self._ndim - 1 - self._axis
        return _along(
            self._steps, axis, self._ndim, lambda x: view(x).T, lambda x: np.transpose(of_end(x))
        )

    @unobserved
    def __len__(self) -> int:
        if self._axis and self._steps.array is None:
            return len(self._of_end(self._steps.end(0)))
        return super().__len__()

    @unobserved
    def __iter__(self) -> Any:
        if self._axis and self._steps.array is None:
            return iter([self[k] for k in range(len(self))])
        return super().__iter__()

    @unobserved
    def __getitem__(self, index: Any) -> Any:
        found = self._at(index) if self._steps.array is None else None
        return super().__getitem__(index) if found is None else found

    def _at(self, index: Any) -> Any:
        """What an index reads of the ends, or another view of all steps; None if it is more."""
        items = _expanded(index if isinstance(index, tuple) else (index,), self._ndim)
        if items is None:
            return None
        k, others = items[self._axis], (*items[: self._axis], *items[self._axis + 1 :])
        view, of_end = self._view, self._of_end
        if type(k) is int and k in (0, -1):
            end = of_end(self._steps.end(k))
            found = end[others] if others else end
            if np.ndim(found) == 0:
                return found
            kind: Any = End
            return kind(self._steps, lambda x: view(x)[items], found) if _is_traced(found) else None
        if k != slice(None):
            return None
        before = sum(type(x) is int for x in items[: self._axis])
        ndim = self._ndim - sum(type(x) is int for x in others)
        axis = self._axis - before
        return _along(
            self._steps, axis, ndim, lambda x: view(x)[items], lambda x: of_end(x)[others]
        )


class End(Deferred):
    """What was read of an end: this, until all steps are there, of which it is a `view` then."""

    __slots__ = ("_end", "_steps", "_view")

    def __init__(self, steps: Steps, view: View, end: Any) -> None:
        self._steps, self._end = steps, end
        self._view: View | None = view

    @unobserved
    def _made(self) -> Any:
        if self._view is not None and self._steps.array is not None:
            view, self._view = self._view, None
            self._end = view(self._steps.array)
        return self._end

    def _write(self, primitive: Any, *operands: Any) -> None:
        self._steps.whole()
        super()._write(primitive, *operands)


_along: Any = Along


def along(steps: Steps, ndim: int) -> Any:
    """The array of all steps, which are along the last of `ndim` axes."""
    return _along(steps, ndim - 1, ndim, _itself, _itself)


def _itself(x: Any) -> Any:
    return x


def _is_traced(x: Any) -> bool:
    return isinstance(x, Tracer)


def _expanded(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...] | None:
    """An index of integers and slices with an entry for each axis; None of another one."""
    places = [k for k, x in enumerate(items) if x is Ellipsis]
    if any(x is not Ellipsis and type(x) not in (int, slice) for x in items) or len(places) > 1:
        return None
    at = places[0] if places else len(items)
    missing = ndim - len(items) + len(places)
    if missing < 0:
        return None
    return (*items[:at], *[slice(None)] * missing, *items[at + 1 :])
