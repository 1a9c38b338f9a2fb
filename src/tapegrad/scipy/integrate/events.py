"""Events while a differential equation is solved: where g(t, y(t)) becomes zero.

SciPy looks at the signs of g at both ends of each step, and finds the time by `brentq` on the
polynomial that has the step's values. So does this: the signs are looked at in the loop that takes
the steps, their pattern is guarded, and each time is a root, which is differentiated as such
(`optimize/roots.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.optimize.roots import bracketed
from tapegrad.scipy.outside import stopped
from tapegrad.tracing.answers import as_called
from tapegrad.tracing.scan import scan

NEVER = 2**62  # so often a terminal event happens before it ends the solution
CLOSE = 4 * np.finfo(float).eps  # how near a root is found, as SciPy has it


@dataclass
class Event:
    """A function whose zeros are wanted: those with this `direction` of its slope, if any, of which
    the one with the number `most` ends the solution."""

    callback: Callback
    direction: float
    most: int

    def plain(self) -> Callable[..., Any]:
        """The function, as SciPy takes it."""

        def event(t: Any, y: Any) -> Any:
            return self.callback(t, y)

        found: Any = event
        found.direction, found.terminal = self.direction, self.most if self.most < NEVER else False
        return event


class Events:
    """The events of a solution."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.directions = np.array([e.direction for e in events])
        self.most = np.array([e.most for e in events])

    def values(self, t: Any, y: Any) -> Any:
        return np.stack([np.reshape(e.callback.applied(t, y), ()) for e in self.events]) * 1.0

    def begun(self, t: Any, y: Any) -> tuple[Any, Any, Any]:
        """What the loop of steps holds: the values, how often each event has happened, and whether
        one has ended the solution."""
        values = stopped(self.values(t, y))
        return values, np.zeros(len(self.events), np.int64), values[0] > np.inf

    def after(self, good: Any, t: Any, y: Any, values: Any, counts: Any, _: Any) -> list[Any]:
        """The same after a step, if it was accepted."""
        new = stopped(self.values(t, y))
        happened = np.logical_and(self._between(values, new), good)
        counts = counts + np.where(happened, 1, 0)
        over = np.any(np.logical_and(happened, counts >= self.most))
        return [np.where(good, new, values), counts, over]

    def _between(self, before: Any, after: Any) -> Any:
        """Which have happened between these values."""
        up = np.logical_and(before <= 0, after >= 0)
        down = np.logical_and(before >= 0, after <= 0)
        rising = np.logical_and(up, self.directions >= 0)
        return np.logical_or(rising, np.logical_and(down, self.directions <= 0))

    def happened(self, method: Any, steps: Any, count: Any, ended: bool) -> Happened:
        """What has happened in so many steps, the last of which may have `ended` the solution."""
        before, after, _, values, _, last = steps
        times = stopped(np.concatenate([before[:1], after]))
        rows = stopped(np.concatenate([values, np.reshape(last, (1, -1))]))
        _, found = scan(lambda _, x: (None, self.values(*x)), None, (times, rows), None, False)
        inside = np.reshape(np.arange(len(values)) < count, (-1, 1))
        times_of: list[list[Any]] = []
        in_last: list[bool] = []  # whether the last time of each is in the last step
        crossed = np.logical_and(self._between(found[:-1], found[1:]), inside)
        with_any = np.any(crossed, axis=1)
        for number, event in enumerate(self.events):
            so_often = np.cumsum(crossed[:, number])
            most = int(so_often[-1])
            places = [np.sum(so_often < k + 1) for k in range(most)]
            times_of.append([_root(event, method, steps, k) for k in places])
            in_last.append(ended and most > 0 and bool(places[-1] == count - 1))
        if not ended:
            return Happened(times_of, None, with_any)
        over = [
            ts[-1]
            for ts, late, event in zip(times_of, in_last, self.events, strict=True)
            if late and len(ts) >= event.most
        ]
        first = over[0]
        for t in over[1:]:
            if method.direction * t < method.direction * first:
                first = t
        for ts, late in zip(times_of, in_last, strict=True):
            if late and ts[-1] is not first and method.direction * (ts[-1] - first) > 0:
                ts.pop()
        return Happened(times_of, first, with_any)


@dataclass
class Happened:
    """The times of each event, that at which one ended the solution, if any did, and in which steps
    there was one."""

    times: list[list[Any]]
    end: Any
    steps: Any


def _root(event: Event, method: Any, steps: Any, k: Any) -> Any:
    """The time of an event in step k."""
    parts = method.parts(steps, np.reshape(k, (1,)))

    def at(t: Any) -> Any:
        return event.callback.applied(t, method.along(parts, np.reshape(t, (1,)))[0])

    at.__name__ = event.callback.name
    return bracketed(at, steps[0][k], steps[1][k], CLOSE)


def events_of(events: Any, args: tuple[Any, ...], start: float, y0: Any) -> Events | None:
    """The user's events."""
    given = (events,) if callable(events) else tuple(events or ())
    found = []
    for event in given:

        def g(t: Any, y: Any, event: Any = event) -> Any:
            return as_called(event)(t, y, *args)

        g.__name__ = getattr(event, "__name__", "event")
        terminal = getattr(event, "terminal", None)
        most = int(terminal) if terminal else NEVER
        found.append(Event(Callback(g, [start, y0]), float(getattr(event, "direction", 0)), most))
    return Events(found) if found else None
