"""Explicit Runge-Kutta methods, with SciPy's steps.

A first loop chooses the steps as `scipy.integrate.RK45` does, and stores the accepted ones. A
second loop over these steps is differentiated. So the derivative is that of the numbers that SciPy
computes, with the steps held constant, and its trip count is the number of steps. A traced end of
the time span moves the last step, and a traced start moves all steps.

The coefficients are those of SciPy's classes (Dormand and Prince, 1980; Bogacki and Shampine,
1989; Hairer, Norsett and Wanner, "Solving Ordinary Differential Equations I", II.4 and II.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.integrate as theirs

from tapegrad.extending.loops import scan, while_loop
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.integrate.entries import unset, with_entry
from tapegrad.scipy.integrate.events import Events
from tapegrad.scipy.solver_calls import stopped

METHODS = {"RK45": theirs.RK45, "RK23": theirs.RK23, "DOP853": theirs.DOP853}
MAX_STEPS = 1 << 40  # more steps than a user waits for
MIN_FACTOR, MAX_FACTOR, SAFETY = 0.2, 10.0, 0.9  # SciPy's factors between step sizes


@dataclass
class Method:
    """A Runge-Kutta method, and its step size control."""

    callback: Callback
    kind: Any
    rtol: Any
    atol: Any
    max_step: float
    direction: float
    room: int  # the largest number of steps
    first_step: float | None = None

    def fun(self, t: Any, y: Any, p: Any = None) -> Any:
        """The slopes. A scalar is broadcast, since SciPy assigns it to a row of an array."""
        found = self.callback.applied(t, y, p=p)
        return found if np.shape(found) == np.shape(y) else np.broadcast_to(found, np.shape(y))

    # ---- a step

    def stages(
        self, t: Any, y: Any, f: Any, h: Any, fun: Callable[[Any, Any], Any] | None = None
    ) -> tuple[Any, list[Any]]:
        """The value after a step, and the slopes of its stages."""
        fun = self.fun if fun is None else fun
        k = [f]
        for a, c in zip(self.kind.A[1:], self.kind.C[1:], strict=True):
            k.append(fun(t + c * h, y + _combined(a, k) * h))
        y_new = y + h * _combined(self.kind.B, k)
        return y_new, [*k, fun(t + h, y_new)]

    def error(self, k: list[Any], h: Any, scale: Any) -> Any:
        """The error of a step, relative to the tolerance: up to 1 is accepted."""
        if self.kind is not theirs.DOP853:
            return _norm(_combined(self.kind.E, k) * h / scale)
        fifth = np.sum((_combined(self.kind.E5, k) / scale) ** 2)
        third = np.sum((_combined(self.kind.E3, k) / scale) ** 2)
        total = fifth + 0.01 * third
        safe = np.where(total == 0, 1.0, total)
        size = np.abs(h) * fifth / np.sqrt(safe * np.size(scale))
        return np.where(total == 0, 0.0, size)

    # ---- the choice of steps

    def first(self, fun: Callable[[Any, Any], Any], t: Any, y: Any, f: Any, end: Any) -> Any:
        """The size of the first step: Hairer, Norsett and Wanner, II.4."""
        if self.first_step is not None:
            return self.first_step + 0.0 * t
        length = np.abs(end - t)
        scale = self.atol + np.abs(y) * self.rtol
        d0, d1 = _norm(y / scale), _norm(f / scale)
        small = np.logical_or(d0 < 1e-5, d1 < 1e-5)
        h = np.where(small, 1e-6, 0.01 * d0 / np.where(small, 1.0, d1))
        h = np.minimum(h, length)
        other = fun(t + h * self.direction, y + h * self.direction * f)
        d2 = _norm((other - f) / scale) / h
        flat = np.logical_and(d1 <= 1e-15, d2 <= 1e-15)
        exponent = 1 / (self.kind.error_estimator_order + 1)
        steep = np.where(flat, 1.0, np.maximum(d1, d2))
        guess = np.where(flat, np.maximum(1e-6, h * 1e-3), (0.01 / steep) ** exponent)
        return np.minimum(np.minimum(100 * h, guess), np.minimum(length, self.max_step))

    def chosen(
        self, t: Any, y: Any, end: Any, events: Events | None = None, often: Sequence[int] = ()
    ) -> tuple[Any, Any, Any, Any, Sequence[Any]]:
        """The ends of the accepted steps, in an array with room for more; their number; the number
        of attempted steps; whether the end was reached; and the loop-carried values of the events,
        each of which may happen `often`."""
        t, y, end = stopped(t) + 0.0, stopped(y), stopped(end)
        p = [stopped(x) for x in self.callback.p]  # the loop has no derivative

        def fun(t: Any, y: Any) -> Any:
            return self.fun(t, y, p)

        f = fun(t, y)
        exponent = -1 / (self.kind.error_estimator_order + 1)
        zero = 0 * np.size(y) + 0.0 * t
        ends = unset((self.room,), [t, y, f])
        count, tried = np.int64(0), np.int64(0)
        state: Any = (t + zero, y, f, self.first(fun, t, y, f, end), zero > 1.0, ends, count, tried)
        if events is not None:
            state = (*state, *events.begun(t + zero, y, often))

        def goes_on(s: Any) -> Any:
            inside = self.direction * (end - s[0]) > 0
            allowed = np.logical_or(np.logical_not(s[4]), s[3] >= self._smallest(s[0]))
            room = np.logical_and(np.logical_and(inside, allowed), s[6] < self.room)
            return room if events is None else np.logical_and(room, np.logical_not(s[-1]))

        def attempt(s: Any) -> Any:
            t, y, f, size, rejected, ends, count, tried, *seen = s
            bounded = np.minimum(np.maximum(size, self._smallest(t)), self.max_step)
            size = np.where(rejected, size, bounded)
            after = t + size * self.direction
            after = np.where(self.direction * (after - end) > 0, end, after)
            h = after - t
            y_new, k = self.stages(t, y, f, h, fun)
            scale = self.atol + np.maximum(np.abs(y), np.abs(y_new)) * self.rtol
            error = self.error(k, h, scale)
            good = error < 1
            safe = np.where(error == 0, 1.0, error)
            factor = SAFETY * safe**exponent
            larger = np.where(error == 0, MAX_FACTOR, np.minimum(MAX_FACTOR, factor))
            larger = np.where(rejected, np.minimum(1.0, larger), larger)
            size = np.abs(h) * np.where(good, larger, np.maximum(MIN_FACTOR, factor))
            return (
                np.where(good, after, t),
                np.where(good, y_new, y),
                np.where(good, k[-1], f),
                size,
                np.logical_not(good),
                with_entry(ends, count, after),  # a rejected step is overwritten by the next one
                count + np.where(good, 1, 0),
                tried + 1,
                *([] if events is None else events.after(good, count, after, y_new, seen)),
            )

        last = while_loop(goes_on, attempt, state, MAX_STEPS)
        done = self.direction * (end - last[0]) <= 0
        if events is not None:
            done = np.logical_or(done, last[-1])
        return last[5], last[6], last[7], done, last[8:]

    def _smallest(self, t: Any) -> Any:
        """The least step size: ten times the distance to the next float. The power of 2 in a
        number is a difference of two products (Rump, "Error estimation of floating-point summation
        and dot product", 2012)."""
        q = (2.0**52 + 1) * np.abs(t)
        power = np.abs(q - (1 - 2.0**-53) * q)
        inwards = np.logical_and(self.direction * t < 0, np.abs(t) == power)
        return 10 * np.maximum(2.0**-52 * np.where(inwards, 0.5 * power, power), 5e-324)

    # ---- the differentiated pass over the accepted steps

    def taken(self, t: Any, y: Any, end: Any, ends: Any) -> Any:
        """For each step its start, end, size, value and slopes; and the last value. Steps after
        the last one have size 0."""
        # A traced start moves all steps, and a traced end the last one.
        start = t - stopped(t)
        moved = np.where(ends == stopped(end), end, ends + start)
        before = np.concatenate([np.reshape(t + 0.0 * ends[0], (1,)), moved[:-1]])

        def step(state: Any, entry: Any) -> Any:
            y, f = state
            t, h = entry
            y_new, k = self.stages(t, y, f, h)
            return (y_new, k[-1]), (y, np.stack(k))

        (last, _), (values, slopes) = scan(
            step, (y, self.fun(t, y)), (before, moved - before), None, False
        )
        return before, moved, moved - before, values, slopes, last

    def held(self, steps: Any, times: Any, last: int) -> Any:
        """The numbers of the steps that contain `times`; `last` is the number of the last step."""
        before = self.direction * np.reshape(stopped(steps[1]), (1, -1))
        index = np.sum(self.direction * np.reshape(stopped(times), (-1, 1)) > before, axis=1)
        return np.minimum(index, last)

    def places(self, steps: Any, times: Any) -> Any:
        """A boolean row for each time that marks the step that contains it."""
        room = len(steps[0])
        return np.reshape(self.held(steps, times, room - 1), (-1, 1)) == np.arange(room)

    def between(self, steps: Any, times: Any, last: int) -> Any:
        """Values at `times`: the rows of an array."""
        return self.along(self.parts(steps, self.held(steps, times, last)), times)

    def parts(self, steps: Any, index: Any) -> tuple[Any, ...]:
        """The parts from which `along` interpolates within the steps of these numbers: their
        starts, sizes, values, following values, and slopes."""
        before, _, sizes, values, slopes, last = steps
        t, h, y = before[index], sizes[index], values[index]
        k = [slopes[:, s][index] for s in range(slopes.shape[1])]
        nexts = np.concatenate([values[1:], np.reshape(last, (1, -1))])[index]
        return self.with_further(t, h, y, nexts, k)

    def with_further(self, t: Any, h: Any, y: Any, nexts: Any, k: list[Any]) -> tuple[Any, ...]:
        if self.kind is theirs.DOP853:
            k = self._further(t, h, y, k)
        return (t, h, y, nexts, *k)

    def along(self, parts: Sequence[Any], times: Any) -> Any:
        """The value at one time in each of these steps."""
        t, h, y, nexts, *k = parts
        x = (times - t) / np.where(h == 0, 1.0, h)
        if self.kind is theirs.DOP853:
            return self._dense(h, y, nexts, k, x)
        total: Any = 0.0
        power = x
        for j in range(self.kind.P.shape[1]):
            total = total + _combined(self.kind.P[:, j], k) * power[:, None]
            power = power * x
        return h[:, None] * total + y

    @property
    def alternates(self) -> bool:
        """Whether every other factor of the interpolating polynomials is 1 - x."""
        return self.kind is theirs.DOP853

    def terms(self, t: Any, y: Any, after: Any, h: Any, k: list[Any]) -> list[Any]:
        """The terms of the interpolating polynomial in one step, in the form that `readings`
        evaluates."""
        if not self.alternates:
            return [h * _combined(column, k) for column in self.kind.P.T]
        k = self._with_more(t, h, y, k)
        change = after - y
        terms = [change, h * k[0] - change, 2 * change - h * (k[self.kind.n_stages] + k[0])]
        return [*terms, *[h * _combined(row, k) for row in self.kind.D]]

    def _with_more(self, t: Any, h: Any, y: Any, k: list[Any]) -> list[Any]:
        """The slopes of a step and the additional ones of the dense output (`A_EXTRA`)."""
        k = list(k)
        for a, c in zip(self.kind.A_EXTRA, self.kind.C_EXTRA, strict=True):
            k.append(self.fun(t + c * h, y + _combined(a, k) * h))
        return k

    def _further(self, t: Any, h: Any, y: Any, k: list[Any]) -> list[Any]:
        """The slopes and the additional ones of the dense output, for the requested steps only."""

        def further(_: Any, entry: Any) -> Any:
            t, h, y, *k = entry
            return None, np.stack(self._with_more(t, h, y, k))

        _, slopes = scan(further, None, (t, h, y, *k), None, False)
        return [slopes[:, s] for s in range(slopes.shape[1])]

    def _dense(self, h: Any, y: Any, after: Any, k: list[Any], x: Any) -> Any:
        """DOP853's interpolating polynomial of degree 7."""
        h, x = h[:, None], x[:, None]
        change = after - y
        terms = [change, h * k[0] - change, 2 * change - h * (k[self.kind.n_stages] + k[0])]
        terms += [h * _combined(row, k) for row in self.kind.D]
        total = 0.0 * y
        for i, term in enumerate(reversed(terms)):
            total = (total + term) * (x if i % 2 == 0 else 1 - x)
        return total + y


def _combined(a: Any, k: list[Any]) -> Any:
    """The sum of a[i] k[i]."""
    terms = [c * x for c, x in zip(a.tolist(), k, strict=False) if c]
    total = terms[0] if terms else 0.0 * k[0]
    for term in terms[1:]:
        total = total + term
    return total


def _norm(x: Any) -> Any:
    return np.sqrt(np.sum(x * x)) / np.sqrt(float(np.size(x)))
