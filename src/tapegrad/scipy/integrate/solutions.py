"""Solutions with any number of steps, of which only the parts that are read are computed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.integrate as theirs

from tapegrad.extending import Carrier, is_traced, unobserved
from tapegrad.extending.arrays import Tracer
from tapegrad.scipy.integrate import jumps, step_loops
from tapegrad.scipy.integrate.all_steps import Steps, along
from tapegrad.scipy.integrate.dense_output import over_steps, parts_in, values_at
from tapegrad.scipy.integrate.rungekutta import Method
from tapegrad.scipy.integrate.step_loops import Course
from tapegrad.scipy.solver_calls import stopped


class Solution(theirs.OdeSolution, Carrier):
    """A solution as a function of time, with traced values.

    `steps()` returns the steps. A first request for times in order is answered `on_the_way`, in
    the loop over the steps, for any number of steps.
    """

    def __init__(
        self,
        method: Method,
        steps: Callable[[], Any],
        ts: Any,
        on_the_way: Callable[[Any], Any] | None = None,
    ) -> None:
        self.method, self.ts = method, ts
        self._steps, self._on_the_way = steps, on_the_way
        self.t_min, self.t_max = (ts[0], ts[-1]) if method.direction > 0 else (ts[-1], ts[0])
        self.ascending = method.direction > 0

    @property
    @unobserved
    def n_segments(self) -> int:
        return len(self.ts) - 1

    @unobserved
    def __call__(self, t: Any) -> Any:
        times = t if is_traced(t) else np.asarray(t, float)
        rows = self._at(np.reshape(times, (-1,)))
        y = np.transpose(rows)
        return y[:, 0] if np.ndim(times) == 0 else y

    def _at(self, times: Any) -> Any:
        read, self._on_the_way = self._on_the_way, None
        found = None if read is None or not np.size(times) else read(times)
        if found is not None:
            return found
        return self.method.between(self._steps(), times, self.n_segments - 1)


class Run:
    """`count` steps that end at `ends`. Only the parts that are read are computed.

    If an event has ended them, `final` is that time and the value then.
    """

    def __init__(
        self, method: Method, span: tuple[Any, Any], y0: Any, ends: Any, count: Any
    ) -> None:
        self.method, self.span, self.y0, self.ends, self.count = method, span, y0, ends, count
        self.final: Any = None
        self.steps = functools.cache(self._steps)
        self.last = functools.cache(self._last)

    @property
    def end(self) -> Any:
        return self.span[1] if self.final is None else self.final[0]

    def _steps(self) -> Any:
        """All steps, in the form of `Method.taken`."""
        start, end = self.span
        return taken(self.method, start, self.y0, end, self.ends[: int(self.count)])  # guarded

    def _last(self) -> tuple[Any, Any]:
        """The last time, and the value there."""
        return self.final or (self.span[1], self._over([], lambda k, rows, slopes, carried: [])[1])

    def _over(self, init: Any, each: Any) -> Any:
        return over_steps(self.method, self.span, self.y0, self.ends, self.count, init, each)

    def over(self, init: Any, each: Any) -> Any:
        """The carried values after all steps: see `Course`."""

        def step(k: Any, rows: Any, slopes: Any, carried: Any) -> Any:
            if self.final is not None:
                ended = k == self.count - 1
                rows[1] = tuple(
                    [np.where(ended, x, y)[()] for x, y in zip(self.final, rows[1], strict=True)]
                )
            return each(k, rows, carried)

        return self._over(init, step)[2]

    def at(self, times: Any) -> Any:
        """Values at `times`, which are in order: the rows of an array."""
        if not np.size(times):
            return np.zeros((0, self.y0.size))
        return values_at(self.method, self.span, self.y0, self.ends, self.count, times)[0]

    def parts(self, numbers: Sequence[Any]) -> Any:
        """The parts of steps by their numbers: see `Events.happened`."""
        return parts_in(self.method, self.span, self.y0, self.ends, self.count, numbers)

    def on_the_way(self, times: Any) -> Any:
        ends = self.span[0], self.end
        if not ordered(self.method.direction, *map(stopped, (*ends, times))):
            return None
        return self.at(times)

    def times(self) -> Any:
        found = times_of(self.steps())
        return found if self.final is None else with_end(found, self.end)

    def values(self) -> Any:
        last = self.steps()[5] if self.final is None else self.final[1]
        return np.transpose(values_of(self.y0, self.steps(), last))

    def of_any_number(self) -> tuple[Any, Any, Solution]:
        """The times and values of all steps as deferred arrays, and the solution between them."""
        first = self.span[0] + np.float64(0), self.y0
        rises = self.method.direction > 0
        course = Course(self.ends._trace, self.count, first, self.last, self.over, rises)
        t = along(Steps(course, self.times, step_loops.time), 1)
        y = along(Steps(course, self.values, step_loops.value), 2)
        return t, y, Solution(self.method, self.steps, t, self.on_the_way)


def times_of(steps: Any) -> Any:
    """The start of the first step, and the ends of all steps."""
    return np.concatenate([steps[0][:1], steps[1]])


def values_of(y0: Any, steps: Any, last: Any) -> Any:
    """The values at `times_of`: the rows of an array."""
    return np.concatenate([np.reshape(y0, (1, -1)), steps[3][1:], np.reshape(last, (1, -1))])


def taken(method: Method, start: Any, y0: Any, end: Any, ends: Any) -> Any:
    """The steps as in `Method.taken`. If the right-hand side jumps, their derivative is an
    error."""
    steps = method.taken(start, y0, end, ends)
    if not jumps.along(method.callback, stopped(steps[0]), stopped(steps[3])):
        return steps
    return tuple(jumps.barred(x) if isinstance(x, Tracer) else x for x in steps)


def ordered(direction: float, start: Any, end: Any, times: Any) -> Any:
    """Whether times are strictly ordered on the way from start to end."""
    if not np.size(times):
        return True
    along = direction * np.stack([start, times[0], times[-1], end])
    apart = direction * np.diff(times)
    return np.logical_and(np.all(np.diff(along) >= 0), np.all(apart > 0))


def with_end(t: Any, end: Any) -> Any:
    """The times with the last one replaced by `end`."""
    return np.concatenate([t[:-1], np.reshape(end, (1,))])
