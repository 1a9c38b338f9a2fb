"""Deferred arrays of all steps of a solution, whose number may vary.

  sol = solve_ivp(f, (0, 5), y0)

  sol.y[:, -1], sol.y[0, 3], sol.t[-1]   a row
  np.max(sol.y[0] ** 2), len(sol.t)      a loop over the steps: `courses`
  np.fft.fft(sol.y[0])                   the array, with a guard on the number of steps

An array is computed when an operation needs more than its ends, or when it is written to. The ends
that were read before are views of it from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.extending import unobserved
from tapegrad.extending.arrays import IntTracer, ScalarTracer, Tracer, deferred
from tapegrad.extending.runs import asks_itself
from tapegrad.scipy.integrate import step_loops
from tapegrad.scipy.integrate.step_loops import Course, Entry

View = Callable[[Any], Any]


class Steps:
    """An array with an entry for each row of a course, or for `span` consecutive rows.

    `make` returns the array, and `entry` one entry from its rows.
    """

    def __init__(
        self, course: Course, make: Callable[[], Any], entry: Entry, span: int = 1
    ) -> None:
        self.course, self.make, self.entry, self.span = course, make, entry, span
        self.like = entry([course.first] * span)  # an example of an entry, for its type
        self._read: list[Any] = [None, None]
        self._array: Any = None

    @property
    def array(self) -> Any:
        """The array, or None if it hasn't been computed."""
        return self._array

    @unobserved
    def whole(self) -> Any:
        if self._array is None:
            self._array = self.make()
        return self._array

    @unobserved
    def end(self, k: int) -> Any:
        """The first entry, for 0, or the last one, for -1."""
        if self._read[k] is None:
            if self.span == 1:
                self._read[k] = self.entry([self.course.last() if k else self.course.first])
            else:
                at = self.course.number(self.span) - 1 if k else 0
                self._read[k] = self.course.at(self.entry, self.span, at)
        return self._read[k]


class Part(Steps):
    """All entries of another array but one: a view of that array, computed when that array is."""

    def __init__(self, whole: Along, view: View, entry: Entry, span: int) -> None:
        course = whole._steps.course
        super().__init__(course, lambda: view(whole._anew()), entry, span)
        self._of, self._view = whole, view

    @property
    def array(self) -> Any:
        return None if self._of._steps.array is None else self.whole()

    def whole(self) -> Any:
        if self._array is None:
            self._array = self._view(self._of._made())
        return self._array


class Along(deferred.Answering):
    """A view of the array of all steps: `view(array)`, or `of_end(entry)` for a single entry. The
    steps are along `axis`, one of `ndim` axes."""

    __slots__ = ("_axis", "_ndim", "_of_end", "_steps", "_view")
    _by_operator = staticmethod(step_loops.operation)
    _by_ufunc = staticmethod(step_loops.ufunc)
    _by_function = staticmethod(step_loops.answer)

    def __init__(self, steps: Steps, axis: int, ndim: int, view: View, of_end: View) -> None:
        self._steps, self._axis, self._ndim = steps, axis, ndim
        self._view, self._of_end = view, of_end
        self._found: Any = None

    _home = property(lambda self: self._steps.course.trace)

    def _make(self) -> Any:
        return self._view(self._steps.whole())

    # ---- results of one loop over the steps

    @property
    def _is_open(self) -> bool:
        """Whether the array hasn't been computed yet."""
        return self._steps.array is None

    @property
    def _serves(self) -> bool:
        """Whether a loop over the steps may compute a result."""
        return self._is_open and self._steps.course.serves

    def _entry(self, rows: Any) -> Any:
        return self._of_end(self._steps.entry(rows))

    def _over(self, init: Any, then: Callable[..., Any]) -> Any:
        return self._steps.course.over(self._entry, self._steps.span, init, then)

    def _anew(self) -> Any:
        """A new array, independent of writes to the present one."""
        return self._view(self._steps.make())

    def _derived(
        self, make: Callable[[], Any], entry: Entry, ndim: int, axis: int, span: int
    ) -> Along:
        """Another array over the same course."""
        steps = Steps(self._steps.course, make, entry, span)
        return _along(steps, axis, ndim, _itself, _itself)

    def _cut(self, view: View, entry: Entry, span: int) -> Along:
        """A view of some entries."""
        return _along(Part(self, view, entry, span), self._axis, self._ndim, _itself, _itself)

    ndim = property(lambda self: self._ndim)
    shape = property(
        lambda self: self._made().shape if asks_itself() else self._shape(),
        deferred.Deferred.shape.fset,
    )
    size = property(lambda self: self._made().size if asks_itself() else self._size())

    @unobserved
    def _shape(self) -> tuple[Any, ...]:
        if not self._serves:
            found: tuple[Any, ...] = self._made().shape
            return found
        lengths: list[Any] = list(np.shape(self._example()))
        lengths.insert(self._axis, self._steps.course.number(self._steps.span))
        return tuple(lengths)

    def _example(self) -> Any:
        """A value with the type of an entry."""
        return self._of_end(self._steps.like)

    @unobserved
    def _size(self) -> Any:
        return math.prod(self._shape())

    @property
    def T(self) -> Any:
        return self.transpose()

    @unobserved
    def transpose(self, *axes: Any) -> Any:
        if axes or not self._is_open:
            return super().transpose(*axes)
        view, of_end, axis = self._view, self._of_end, self._ndim - 1 - self._axis
        return _along(
            self._steps, axis, self._ndim, lambda x: view(x).T, lambda x: np.transpose(of_end(x))
        )

    @unobserved
    def _length(self) -> Any:
        """The result of `len` where the program calls it: traced if the number of steps is."""
        return self._shape()[0]

    @unobserved
    def __len__(self) -> int:
        if self._axis and self._is_open:
            return len(self._example())
        return super().__len__()

    @unobserved
    def __iter__(self) -> Any:
        if self._axis and self._is_open:
            return iter([self[k] for k in range(len(self))])
        return super().__iter__()

    @unobserved
    def __getitem__(self, index: Any) -> Any:
        found = self._at(index) if self._is_open else None
        return super().__getitem__(index) if found is None else found

    def _at(self, index: Any) -> Any:
        """The value at an index that reads one entry, another view for an index that takes all
        steps, or None for any other index."""
        items = _expanded(index if isinstance(index, tuple) else (index,), self._ndim)
        if items is None:
            return None
        k, others = items[self._axis], (*items[: self._axis], *items[self._axis + 1 :])
        view, of_end = self._view, self._of_end
        if not isinstance(k, slice):
            end = self._row(k)
            if end is None:
                return None
            found = end[others] if others else end
            if np.ndim(found) == 0:
                return found
            kind: Any = End
            return kind(self._steps, lambda x: view(x)[items], found) if _is_traced(found) else None
        cut = _CUTS.get((k.start, k.stop, k.step)) if _is_plain(k) else None
        if cut is None or (cut and self._steps.span > 1):
            return None
        x = step_loops.shifted(self, cut == 1) if cut else self
        if not others:
            return x
        items = (*items[: self._axis], slice(None), *items[self._axis + 1 :])
        before = sum(not isinstance(i, slice) for i in items[: self._axis])
        ndim = self._ndim - sum(not isinstance(i, slice) for i in others)
        view, of_end = x._view, x._of_end
        return _along(
            x._steps,
            self._axis - before,
            ndim,
            lambda a: view(a)[items],
            lambda a: of_end(a)[others],
        )

    def _row(self, k: Any) -> Any:
        """The entry at k; None if k is out of range, or no loop over the steps can find it."""
        if type(k) is int and k in (0, -1):
            return self._of_end(self._steps.end(k))
        course, span = self._steps.course, self._steps.span
        if not course.serves or (_is_traced(k) and k._trace is not course.trace):
            return None
        number = course.number(span)
        k = np.where(k < 0, k + number, k)[()] if _is_traced(k) else k + number if k < 0 else k
        return course.at(self._entry, span, k) if bool((k >= 0) & (k < number)) else None


# The supported slices: all entries (0), all but the first (1), and all but the last (2).
_CUTS = {(None, None, None): 0, (1, None, None): 1, (None, -1, None): 2, (0, -1, None): 2}


class End(deferred.Deferred):
    """An end of an array of all steps. Once the array is computed, it is a `view` of it."""

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
    """The deferred array of all steps, which are along the last of `ndim` axes."""
    return _along(steps, ndim - 1, ndim, _itself, _itself)


def _itself(x: Any) -> Any:
    return x


def _is_traced(x: Any) -> bool:
    return isinstance(x, Tracer)


def _expanded(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...] | None:
    """An index of integers and slices, expanded to one entry for each axis; None for another
    index."""
    places = [k for k, x in enumerate(items) if x is Ellipsis]
    if not all(map(_is_plain, items)) or len(places) > 1:
        return None
    at = places[0] if places else len(items)
    missing = ndim - len(items) + len(places)
    if missing < 0:
        return None
    return (*items[:at], *[slice(None)] * missing, *items[at + 1 :])


def _is_plain(x: Any) -> bool:
    """Whether x is an integer, possibly traced, or a slice of plain integers."""
    if isinstance(x, slice):
        return all(type(k) in (int, type(None)) for k in (x.start, x.stop, x.step))
    is_number = isinstance(x, (IntTracer, ScalarTracer)) and x._aval.dtype.kind == "i"
    return x is Ellipsis or type(x) is int or is_number
