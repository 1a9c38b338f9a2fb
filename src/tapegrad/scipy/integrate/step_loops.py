"""Reductions over all steps of a solution as one loop, for any number of steps.

  np.max(sol.y[0] ** 2)  -->  for k in range(count):
                                  t, y = a step
                                  most = maximum(most, y[0] ** 2)

A *row* is a time and the value then: one at the start, and one where each step ends. An *entry* is
what a program computes from one row, or from two consecutive ones: it is a function of rows, so no
array as long as the number of steps is needed. This file lists the operations on entries, and the
reductions that are loops over entries. Every other operation needs the array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from tapegrad.extending import unobserved
from tapegrad.extending.arrays import NumberTracer, ScalarTracer, deferred, record
from tapegrad.extending.primitives import elementwise as ew
from tapegrad.extending.runs import watched
from tapegrad.extending.tapes import Trace, current_trace
from tapegrad.scipy.solver_calls import stopped

MAX_LOOPS = 16  # loops over the steps of one solution
Row = tuple[Any, Any]
Entry = Callable[[Sequence[Row]], Any]
Each = Callable[[Any, Sequence[Row], Sequence[Any]], Sequence[Any]]


@dataclass(eq=False)
class Course:
    """The rows of a solution of `count` steps: from `first` to the result of `last`.

    `steps(init, each)` returns the carried values of `each(k, rows, carried)` after all steps,
    where `rows` are the rows at both ends of a step.
    """

    trace: Trace
    count: Any
    first: Row
    last: Callable[[], Row]
    steps: Callable[[Sequence[Any], Each], Sequence[Any]]
    rises: bool  # whether times increase
    loops: int = 0  # the number of loops over all steps so far

    @property
    def serves(self) -> bool:
        """Whether another loop over the steps is worth while. Inside of another loop, or after
        many such loops, an array whose entries are looked up takes less time."""
        return self.loops < MAX_LOOPS and current_trace() is self.trace and not watched(self.trace)

    def loop(self, init: Sequence[Any], each: Each) -> Sequence[Any]:
        self.loops += 1
        return self.steps(init, each)

    def number(self, span: int) -> Any:
        """The number of entries that are made of `span` rows each."""
        return (self.count + (2 - span))._as_pythons()

    def over(
        self, entry: Entry, span: int, init: Sequence[Any], then: Callable[..., Sequence[Any]]
    ) -> Sequence[Any]:
        """The carried values of `then(k, entry, carried)` after all entries of `span` rows."""
        if span == 2:
            return self.loop(init, lambda k, rows, s: then(k, entry(rows), s))
        begun = then(np.int64(0), entry([self.first]), init)
        return self.loop(begun, lambda k, rows, s: then(k + 1, entry(rows[1:]), s))

    def at(self, entry: Entry, span: int, k: Any) -> Any:
        """The entry at k, which is in range, by a loop over all steps."""
        init = 0 * stopped(entry([self.first] * span))
        return self.over(entry, span, [init], lambda i, v, s: [np.where(i == k, v, s[0])[()]])[0]


def time(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def value(rows: Sequence[Row]) -> Any:
    return rows[0][1]


def is_along(x: Any) -> bool:
    """Whether x is an array of all steps that hasn't been computed."""
    return hasattr(type(x), "_steps") and hasattr(type(x), "_entry") and x._is_open


def _serves(xs: Sequence[Any]) -> bool:
    """Whether some of `xs` are such arrays, and loops over the steps of all of these are worth
    while."""
    courses = [x._steps.course for x in xs if is_along(x)]
    return bool(courses) and all(course.serves for course in courses)


def _like(x: Any, y: Any) -> bool:
    """Whether two arrays have entries of the same rows, aligned with each other."""
    same = x._steps.course is y._steps.course and x._steps.span == y._steps.span
    return same and x._ndim - x._axis == y._ndim - y._axis


# ---- entries


def each(f: Callable[..., Any], xs: Sequence[Any]) -> Any:
    """f applied entry by entry; None if the arrays aren't aligned entry by entry."""
    first = next(x for x in xs if is_along(x))
    inner = first._ndim - 1 - first._axis  # axes within an entry that others are aligned with
    given, entries, ndim = [], [], first._ndim
    for x in xs:
        y = x
        if is_along(x):
            if not _like(first, x):
                return None
        else:
            x = y = _kept(first, x)
            if x is None or (np.ndim(x) > inner and x.shape[-1 - inner] != 1):
                return None
            if np.ndim(x) > inner:
                y = x[(..., 0, *[slice(None)] * inner)]
        given.append(x)
        entries.append(y)
        ndim = max(ndim, np.ndim(x))
    return _made_of(f, given, ndim, ndim - 1 - inner, entries=entries)


def _kept(beside: Any, x: Any) -> Any:
    """An operand as it is now, safe from later writes to it; None if its type isn't supported."""
    if type(x) in (int, float, bool) or isinstance(x, np.generic):
        return x
    if hasattr(type(x), "_steps"):
        x = x._made()
    if isinstance(x, ScalarTracer | NumberTracer):
        return x
    if type(x) is list and all(type(v) in (int, float) for v in x):
        x = np.array(x)
    if isinstance(x, np.ndarray) and x.dtype.kind in "fib":  # traced arrays included
        return record(beside._trace, ew.copy, [x])
    return None


def _made_of(
    f: Callable[..., Any],
    given: Sequence[Any],
    ndim: int,
    axis: int,
    entries: Sequence[Any] | None = None,
) -> Any:
    """f applied to `given`, some of which are arrays of all steps. `entries` replace `given` for
    one entry, if their shapes differ there."""
    first = next(x for x in given if is_along(x))
    alongs = [is_along(x) for x in given]
    singly = given if entries is None else entries

    def entry(rows: Sequence[Row]) -> Any:
        return f(*[x._entry(rows) if a else x for x, a in zip(singly, alongs, strict=True)])

    def make() -> Any:
        return f(*[x._anew() if a else x for x, a in zip(given, alongs, strict=True)])

    return first._derived(make, entry, ndim, axis, first._steps.span)


def operation(f: Callable[..., Any], xs: Sequence[Any]) -> Any:
    """An operator applied to `xs`; None if it needs the arrays."""
    return each(f, xs) if _serves(xs) else None


def ufunc(f: np.ufunc, xs: Sequence[Any]) -> Any:
    """A universal function applied to `xs`; None if it needs the arrays."""
    if f.nout > 1 or not _serves(xs):
        return None
    if f is np.matmul:
        return _product(*xs)
    return each(f, xs) if f.signature is None else None


def _product(x: Any, y: Any) -> Any:
    """A matrix product, or None if it needs the arrays."""
    if is_along(x) and is_along(y):
        both = x._ndim == y._ndim == 1 and _like(x, y)
        return _sum(each(operator.mul, [x, y])) if both else None
    if is_along(x):
        y = _kept(x, y)
        plain = x._ndim == 2 and x._axis == 0 and np.ndim(y) in (1, 2)
        return _made_of(np.matmul, [x, y], np.ndim(y), 0) if plain else None
    x = _kept(y, x)
    plain = y._ndim == 2 and y._axis == 1 and np.ndim(x) in (1, 2)
    return _made_of(np.matmul, [x, y], np.ndim(x), np.ndim(x) - 1) if plain else None


def shifted(x: Any, first: bool) -> Any:
    """All entries but the first one, or all but the last one."""
    cut = (slice(1, None) if first else slice(None, -1),)
    at = (*[slice(None)] * x._axis, *cut)
    rows = slice(1, None) if first else slice(None, 1)
    return x._cut(lambda a: a[at], lambda given: x._entry(given[rows]), 2)


def _diff(x: Any, n: Any = 1, axis: Any = -1) -> Any:
    along = type(axis) is int and type(n) is int and n == 1
    if not along or normalize_axis_index(axis, x._ndim) != x._axis or x._steps.span != 1:
        return None
    return each(operator.sub, [shifted(x, True), shifted(x, False)])


# ---- reductions by loops over entries


def _reduced(
    f: Callable[..., Any], neutral: Any, combine: Callable[..., Any]
) -> Callable[..., Any]:
    """The version of NumPy's reduction `f` for arrays of all steps, over any axes."""

    def reduce(x: Any, axis: Any = None) -> Any:
        axes = deferred.axes_of(x._ndim, axis)
        if axes is None:
            return None
        inside = tuple(a - (a > x._axis) for a in axes if a != x._axis)

        def within(v: Any) -> Any:
            return f(v, axis=inside) if inside else v

        if x._axis not in axes:
            before = sum(a < x._axis for a in axes)
            entry: Entry = lambda rows: within(x._entry(rows))  # noqa: E731
            make = lambda: f(x._anew(), axis=axes)  # noqa: E731
            return x._derived(make, entry, x._ndim - len(axes), x._axis - before, x._steps.span)
        example = f(np.reshape(within(x._example()), (1, -1)), axis=0)
        if example.dtype.kind != "f" and not np.isfinite(neutral):
            return None
        init = np.full(np.shape(within(x._example())), neutral, example.dtype)[()]
        return x._over([init], lambda k, v, s: [combine(s[0], within(v))])[0]

    return reduce


_sum = _reduced(np.sum, 0, np.add)


def _mean(x: Any, axis: Any = None) -> Any:
    total = _sum(x, axis)
    if total is None or is_along(total):
        return total if total is None else _reduced(np.mean, 0, np.add)(x, axis)
    axes = range(x._ndim) if axis is None else deferred.axes_of(x._ndim, axis)
    others = [n for k, n in enumerate(x._shape()) if k in axes]
    number: Any = 1
    for n in others:
        number = number * n
    return total / number


def _var(x: Any, axis: Any = None) -> Any:
    if axis is not None and x._ndim > 1:
        return None
    centre = _mean(x)
    return _mean(each(lambda v, m: abs(v - m) ** 2, [x, centre]))


def _std(x: Any, axis: Any = None) -> Any:
    found = _var(x, axis)
    return None if found is None else np.sqrt(found)


def _norm(x: Any, axis: Any = None) -> Any:
    if axis is not None and deferred.axes_of(x._ndim, axis) == (x._axis,) and x._ndim > 1:
        return None
    if axis is not None and x._ndim > 1:
        return _reduced(np.linalg.norm, 0, np.add)(x, axis) if type(axis) is int else None
    return np.sqrt(_sum(each(lambda v: abs(v) ** 2, [x])))


def _place(sign: float) -> Callable[..., Any]:
    """argmax (`sign` 1) or argmin (-1): the first of the largest elements, or the first NaN."""

    def place(x: Any, axis: Any = None) -> Any:
        if x._ndim > 1:
            return None

        def then(k: Any, v: Any, s: Sequence[Any]) -> list[Any]:
            v = sign * stopped(v)
            more = (k == 0) | (v > s[0]) | ((v != v) & (s[0] == s[0]))
            return [np.where(more, v, s[0])[()], np.where(more, k, s[1])[()]]

        return x._over([np.float64(0), np.int64(0)], then)[1]

    return place


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    if not is_along(y) or y._steps.span != 1 or normalize_axis_index(axis, y._ndim) != y._axis:
        return None
    if x is not None and not (is_along(x) and x._ndim == 1 and x._steps.course is y._steps.course):
        return None
    if x is not None and x._steps.span != 1:
        return None
    widths = dx if x is None else _diff(x)
    if x is None and np.ndim(_kept(y, dx)):
        return None

    def part(before: Any, after: Any, d: Any) -> Any:
        return d * (after + before) / 2.0

    parts = [shifted(y, False), shifted(y, True), widths]
    return _sum(_made_of(part, parts, y._ndim, y._axis), y._axis)


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """np.interp between the times of steps, which increase."""
    if not (is_along(xp) and xp._steps.entry is time and xp._steps.course.rises and is_along(fp)):
        return None
    if fp._ndim != 1 or fp._steps.span != 1 or fp._steps.course is not xp._steps.course:
        return None
    x = _kept(xp, x)
    if x is None:
        return None
    first, last = fp[0], fp[-1]
    init = np.where(x == x, first if left is None else left, x)[()]

    def then(k: Any, rows: Sequence[Row], s: Sequence[Any]) -> list[Any]:
        (t, _), (after, _) = rows
        low, high = fp._entry(rows[:1]), fp._entry(rows[1:])
        line = (high - low) / (after - t) * (x - t) + low
        return [np.where(x >= t, np.where(x >= after, high, line), s[0])[()]]

    (found,) = xp._steps.course.loop([init], then)
    return np.where(x > xp[-1], last if right is None else right, found)[()]


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _sum,
    np.prod: _reduced(np.prod, 1, np.multiply),
    np.max: _reduced(np.max, -np.inf, np.maximum),
    np.min: _reduced(np.min, np.inf, np.minimum),
    np.any: _reduced(np.any, False, np.logical_or),
    np.all: _reduced(np.all, True, np.logical_and),
    np.mean: _mean,
    np.var: _var,
    np.std: _std,
    np.argmax: _place(1.0),
    np.argmin: _place(-1.0),
    np.linalg.norm: lambda x, ord=None, axis=None: _norm(x, axis) if ord is None else None,
    np.diff: _diff,
    np.trapezoid: _trapezoid,
    np.interp: _interp,
    np.where: lambda *xs: each(np.where, xs) if len(xs) == 3 else None,
    np.clip: lambda *xs: each(np.clip, xs) if len(xs) == 3 else None,
    np.dot: lambda x, y: _product(x, y),
    np.shape: lambda x: x._shape(),
    np.size: lambda x: x._size(),
    np.ndim: lambda x: x._ndim,
    np.transpose: lambda x: x.T,
}
FUNCTIONS[np.amax], FUNCTIONS[np.amin] = FUNCTIONS[np.max], FUNCTIONS[np.min]
_OF_SEVERAL = (np.interp, np.where, np.clip, np.dot)


@unobserved
def answer(f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a NumPy function; None if it needs the arrays."""
    given = args if f in _OF_SEVERAL else args[:1]
    return deferred.answered_by(FUNCTIONS, f, args, kwargs) if _serves(given) else None
