"""Events of a differential equation: the times where g(t, y(t)) becomes zero.

SciPy compares the signs of g at both ends of each step, and finds the time by `brentq` on the
step's interpolating polynomial. So does this file. The loop that takes the steps compares the
signs and stores the steps in which each event has happened. The number of events is guarded. Each
time is a root within its step, and is differentiated implicitly (`optimize/roots.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.extending import as_called
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.integrate.entries import unset, with_entry
from tapegrad.scipy.optimize.roots import bracketed
from tapegrad.scipy.solver_calls import stopped

PartsOf = Callable[[Sequence[Any]], Sequence[Any]]
NEVER = 2**62  # `most` of an event that never ends the solution
CLOSE = 4 * np.finfo(float).eps  # SciPy's tolerance of roots


@dataclass
class Event:
    """A function whose zeros are events: those where its slope has this `direction`, if that isn't
    0. The event with the number `most` ends the solution."""

    callback: Callback
    direction: float
    most: int

    def plain(self) -> Callable[..., Any]:
        """The event function as SciPy takes it."""

        def event(t: Any, y: Any) -> Any:
            return self.callback(t, y)

        found: Any = event
        found.direction, found.terminal = self.direction, self.most if self.most < NEVER else False
        return event


class Events:
    """The event functions of one solution."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.directions = np.array([e.direction for e in events])
        self.most = np.array([e.most for e in events])

    def values(self, t: Any, y: Any) -> Any:
        return np.stack([np.reshape(e.callback.applied(t, y), ()) for e in self.events]) * 1.0

    def begun(self, t: Any, y: Any, often: Sequence[int]) -> tuple[Any, ...]:
        """The initial loop-carried values: the values of the functions, how often each event has
        happened, the number of steps with an event, for each event the steps in which it has
        happened (with room for `often`), and whether an event has ended the solution."""
        values = stopped(self.values(t, y))
        places = [unset((n + 1,), [t, values]) for n in often]
        counts = np.zeros(len(self.events), np.int64)
        return (values, counts, np.int64(0), *places, values[0] > np.inf)

    def after(self, good: Any, k: Any, t: Any, y: Any, seen: Sequence[Any]) -> list[Any]:
        """The loop-carried values after step k, if that was accepted."""
        values, counts, some, *places, _ = seen
        new = stopped(self.values(t, y))
        happened = np.logical_and(self._between(values, new), good)
        for e, place in enumerate(places):  # without an event the next step overwrites this
            at = np.minimum(counts[e], len(place) - 1)
            places[e] = with_entry(place, at, k + np.float64(0))
        counts = counts + np.where(happened, 1, 0)
        some = some + np.where(np.any(happened), 1, 0)
        over = np.any(np.logical_and(happened, counts >= self.most))
        return [np.where(good, new, values), counts, some, *places, over]

    def _between(self, before: Any, after: Any) -> Any:
        """Which events have happened between two values of the functions."""
        up = np.logical_and(before <= 0, after >= 0)
        down = np.logical_and(before >= 0, after <= 0)
        rising = np.logical_and(up, self.directions >= 0)
        return np.logical_or(rising, np.logical_and(down, self.directions <= 0))

    def happened(
        self, method: Any, seen: Sequence[Any], count: Any, ended: bool, parts_of: PartsOf
    ) -> Happened:
        """The events of `count` steps, the last of which may have `ended` the solution.
        `parts_of(numbers)` returns the parts and the ends of the steps with these numbers."""
        _, counts, _, *places, _ = seen
        often = [int(n) for n in counts]  # guarded
        steps = [x[:n].astype(np.int64) for x, n in zip(places, often, strict=True)]
        parts = parts_of(steps)
        times_of: list[list[Any]] = []
        in_last: list[bool] = []  # whether the last time of each is in the last step
        for event, at, known in zip(self.events, steps, parts, strict=True):
            times_of.append([_root(event, method, known, j) for j in range(len(at))])
            in_last.append(ended and len(at) > 0 and bool(at[-1] == count - 1))
        if not ended:
            return Happened(often, times_of, parts, None, None)
        over = [
            ts[-1]
            for ts, late, event in zip(times_of, in_last, self.events, strict=True)
            if late and len(ts) >= event.most
        ]
        first = over[0]
        for t in over[1:]:
            if method.direction * t < method.direction * first:
                first = t
        last = next(x for x, late in zip(parts, in_last, strict=True) if late)[0]
        value = method.along([x[-1:] for x in last], np.reshape(first, (1,)))[0]
        for ts, late in zip(times_of, in_last, strict=True):
            if late and ts[-1] is not first and method.direction * (ts[-1] - first) > 0:
                ts.pop()
        return Happened(often, times_of, parts, first, value)


@dataclass
class Happened:
    """The events of a solution: how often each has happened, the times, and the parts of their
    steps; the time at which one has ended the solution, if any, and the value then."""

    often: list[int]
    times: list[list[Any]]
    parts: Sequence[Any]
    end: Any
    value: Any

    def told(self, method: Any) -> dict[str, Any]:
        """The times and values as SciPy returns them."""
        times = [np.stack(ts) if ts else np.zeros(0) for ts in self.times]
        values = [
            method.along([x[: len(ts)] for x in parts], ts) if ts.size else np.zeros(0)
            for ts, (parts, _) in zip(times, self.parts, strict=True)
        ]
        return {"t_events": times, "y_events": values}


def _root(event: Event, method: Any, known: tuple[Sequence[Any], Any], j: int) -> Any:
    """The time of the j-th occurrence of an event, a root within its step."""
    parts, after = [x[j : j + 1] for x in known[0]], known[1]

    def at(t: Any) -> Any:
        return event.callback.applied(t, method.along(parts, np.reshape(t, (1,)))[0])

    at.__name__ = event.callback.name
    return bracketed(at, parts[0][0], after[j], CLOSE)


def events_of(events: Any, args: tuple[Any, ...], start: float, y0: Any) -> Events | None:
    """The user's events, or None."""
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
