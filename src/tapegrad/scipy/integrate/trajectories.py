"""Ordinary differential equations of scipy.integrate: solve_ivp, odeint.

For explicit Runge-Kutta methods the steps are SciPy's own (`rungekutta.py`), and the whole
computation is on the tape. For other methods the values are SciPy's own, and the derivative is
that of DOP853's solution with tolerances of 1e-10: both approximate the same solution.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.integrate as theirs
from scipy.integrate._ivp.ivp import OdeResult

from tapegrad.errors import UnsupportedError
from tapegrad.extending import Carrier, as_called, at_line, is_traced, refusal, stands_for
from tapegrad.extending.arrays import Tracer, as_operand
from tapegrad.extending.loops import while_loop
from tapegrad.extending.runs import aside
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.integrate import step_loops
from tapegrad.scipy.integrate.all_steps import Steps, along
from tapegrad.scipy.integrate.dense_output import values_at
from tapegrad.scipy.integrate.entries import entry
from tapegrad.scipy.integrate.events import Events, events_of
from tapegrad.scipy.integrate.rungekutta import METHODS, Method
from tapegrad.scipy.integrate.solutions import (
    Run,
    Solution,
    ordered,
    taken,
    times_of,
    values_of,
    with_end,
)
from tapegrad.scipy.integrate.step_loops import Course
from tapegrad.scipy.optimize.roots import ending, example, reaching
from tapegrad.scipy.results import Untold
from tapegrad.scipy.solver_calls import Constant, SolverCall, stopped

HOME = "scipy.integrate"
ROOM = 1 << 26  # bytes of the residuals of all steps
MIN_ROOM, MAX_ROOM = 1 << 11, 1 << 16  # bounds on the number of steps there is room for
SUCCESS = "Integration successful."  # odeint's message
UNFINISHED = "it hasn't come to the last of the times"
FINE = {"rtol": 1e-10, "atol": 1e-12}


class Trajectory(OdeResult, Carrier):
    """The result of `solve_ivp`, with traced values."""


def _refused(what: str, instead: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"scipy.integrate.solve_ivp(..., {what}) can't be traced{at_line()}, only without it"
        f"{instead}"
    )


def _times(t: Any) -> Any:
    """Times as floats: traced integers are possible, too."""
    return t * 1.0 if is_traced(t) else np.asarray(t, float)


@stands_for(HOME, callbacks=True, lists="t_span args events")
def solve_ivp(
    fun: Any,
    t_span: Any,
    y0: Any,
    method: Any = "RK45",
    t_eval: Any = None,
    dense_output: Any = False,
    events: Any = None,
    vectorized: Any = False,
    args: Any = None,
    **options: Any,
) -> Any:
    further = tuple(args or ())

    def slope(t: Any, y: Any) -> Any:
        return as_called(fun)(t, y, *further)

    slope.__name__ = getattr(fun, "__name__", "fun")
    start, end = t_span
    first = example(y0)
    callback = Callback(slope, [float(example(start)), np.atleast_1d(first)])
    watched = events_of(events, further, float(example(start)), np.atleast_1d(first))
    of_events = [] if watched is None else [e.callback for e in watched.events]
    reaching([callback, *of_events], start, end, y0, t_eval)
    if np.iscomplexobj(y0) or np.ndim(first) != 1:
        raise refusal(
            f"scipy.integrate.solve_ivp can't be traced{at_line()} with complex values: split "
            "them into real and imaginary parts"
        )
    if any(is_traced(x) for x in options.values()):
        raise _refused(next(name for name, x in options.items() if is_traced(x)))
    y0 = y0 if is_traced(y0) else np.array(y0, float)
    y0 = y0 if y0.dtype == np.float64 else y0.astype(float)
    start, end = [x if is_traced(x) else float(x) for x in (start, end)]
    name = method if isinstance(method, str) else method.__name__
    times = None if t_eval is None else _times(t_eval)
    if name in METHODS:
        problem = _Problem(callback, METHODS[name], (start, end), y0, times, options)
        return _explicit(problem, watched, dense_output)
    for word, given in (("dense_output", dense_output), ("events", watched is not None)):
        if given:
            others = ", ".join(map(repr, METHODS))
            raise _refused(f"{word}, method={name!r}", f", or by one of the methods {others}")
    return _others(_Problem(callback, method, (start, end), y0, times, options))


@dataclass(frozen=True)
class _Problem:
    """The arguments of one call of `solve_ivp`: the function, method, time span, start value and
    times."""

    callback: Callback
    method: Any
    span: tuple[Any, Any]
    y0: Any
    t_eval: Any
    options: Any

    def plain(self, events: Events | None = None) -> Any:
        """SciPy's own result for the present values. After it, all branches that the functions
        take are known."""
        ends = float(example(self.span[0])), float(example(self.span[1]))
        times = None if self.t_eval is None else example(self.t_eval)
        watched = None if events is None else [e.plain() for e in events.events]
        given = self.callback, ends, example(self.y0), self.method, times
        with aside():
            return theirs.solve_ivp(*given, events=watched, **self.options)

    def outside(self, room: int = 0) -> SolverCall:
        """SciPy's own call, repeated at each call: values, times, their number, and the counts of
        evaluations. With `room` there is space for more steps."""

        def solver(fs: Sequence[Callable[..., Any]], values: Any) -> Any:
            lower, upper, y, *times = values
            span, how = (float(lower), float(upper)), self.options
            r = theirs.solve_ivp(fs[0], span, y, self.method, *times, **how)
            counts = [np.int64(x) for x in (r.t.size, r.nfev, r.njev, r.nlu)]
            found = _widened(np.reshape(r.y, (len(y), -1)), room), _widened(np.asarray(r.t), room)
            return *found, *counts, ending(r.success, r.status, r.message)

        times = [] if self.t_eval is None else [self.t_eval]
        return SolverCall("solve_ivp", solver, [self.callback], [*self.span, self.y0, *times])

    def unfinished(self, plain: Any) -> Any:
        """The result of a solution that hasn't reached its end: its values have no derivative."""
        y, t, _, *counts = self.outside().record(why=UNFINISHED, visible=2)
        told = dict(zip(("nfev", "njev", "nlu"), counts, strict=True))
        told |= {k: plain[k] for k in ("status", "message", "success")}
        rest = Untold("scipy.integrate.solve_ivp")
        return Trajectory(t=t, y=y, sol=rest, t_events=rest, y_events=rest, **told)

    def begun(self, tried: int) -> Method:
        """The method, with room for steps when `tried` steps were attempted."""
        lower, upper = (float(example(x)) for x in self.span)
        given = self.method(self.callback, lower, example(self.y0), upper, **self.options)
        return _method(self.callback, given, tried, self.options)


def _explicit(problem: _Problem, events: Events | None, dense: Any) -> Any:
    (start, end), y0, t_eval = problem.span, problem.y0, problem.t_eval
    kind, options, plain = problem.method, problem.options, problem.plain(events)
    if not plain.success and events is not None:  # an event may end a later call before the failure
        raise refusal(
            f"scipy.integrate.solve_ivp fails{at_line()} before an event ends it, and so has no "
            f"derivative: {plain.message}"
        )
    if not plain.success:
        return problem.unfinished(plain)
    told = {k: plain[k] for k in ("status", "message", "success", "njev", "nlu")}
    told |= {"sol": None, "t_events": None, "y_events": None}
    made = problem.begun(plain.nfev // kind.n_stages)
    if t_eval is not None and events is None and not dense:
        y, tried, asked = _at_times(made, start, y0, end, t_eval)
        evaluations = _evaluations(made, tried, asked, options)
        return Trajectory(t=t_eval, y=np.transpose(y), nfev=evaluations, **told)
    often = [] if events is None else [len(t) + 1 for t in plain.t_events]  # room for one more
    ends, count, tried, done, seen = made.chosen(start, y0, end, events, often)
    _hold(done, True, "whether there are more steps than there is room for")
    if events is not None:
        _hold(seen[-1], plain.status == 1, "whether an event ends the solution")
    ways = isinstance(ends, Tracer) and (t_eval is None or made.kind is not theirs.DOP853)
    if ways and _stays_whole(made, start, y0, end):
        run = Run(made, (start, end), y0, ends, count)
        asked = count if dense else 0  # the steps in which SciPy interpolates
        if events is not None:
            happened = events.happened(made, seen, count, plain.status == 1, run.parts)
            told |= happened.told(made)
            asked = asked if dense else seen[2]
            if happened.end is not None:
                run.final = happened.end, happened.value
        t, y, sol = run.of_any_number()
        told["sol"] = sol if dense else None
        if t_eval is not None:
            _hold_order(made, start, end, t_eval)
            t = _until(made, t_eval, run.end) if plain.status == 1 else t_eval
            y = np.transpose(run.at(t))
        return Trajectory(t=t, y=y, nfev=_evaluations(made, tried, asked, options), **told)
    held = int(count)  # guarded
    steps = taken(made, start, y0, end, ends[:held])
    t, last = times_of(steps), steps[5]
    asked = np.full(held, bool(dense))  # the steps in which SciPy interpolates
    if events is not None:

        def parts_of(numbers: Sequence[Any]) -> list[Any]:
            return [(made.parts(steps, x), steps[1][x]) for x in numbers]

        happened = events.happened(made, seen, held, plain.status == 1, parts_of)
        told |= happened.told(made)
        for place, n in zip(seen[3:-1], happened.often, strict=True):
            asked = np.logical_or(asked, np.any(np.arange(held) == place[:n, None], axis=0))
        if happened.end is not None:
            t = np.concatenate([t[:-1], np.reshape(happened.end, (1,))])
            last = happened.value
    if dense:
        told["sol"] = Solution(made, lambda: steps, t)
    y = values_of(y0, steps, last)
    if t_eval is not None:
        t = _until(made, t_eval, t[-1]) if plain.status == 1 else t_eval
        y = made.between(steps, t, held - 1)
        asked = np.logical_or(asked, np.any(made.places(steps, t), axis=0))
    evaluations = _evaluations(made, tried, np.sum(asked), options)
    return Trajectory(t=t, y=np.transpose(y), nfev=evaluations, **told)


def _until(method: Method, times: Any, end: Any) -> Any:
    """The times that the solution reaches."""
    return times[: int(np.sum(method.direction * (stopped(end) - stopped(times)) >= 0))]


def _stays_whole(method: Method, start: Any, y0: Any, end: Any) -> bool:
    """Whether one loop may serve any number of steps: no step has to be examined by itself."""
    return bool(not method.callback.may_jump and np.size(y0) and start != end)


def _evaluations(method: Method, tried: Any, asked: Any, options: Any) -> Any:
    """How often SciPy calls the function."""
    found = 2 + (options.get("first_step") is None) - 1 + method.kind.n_stages * tried
    if method.kind is not theirs.DOP853:
        return found
    return found + len(method.kind.A_EXTRA) * asked


def _at_times(
    method: Method, start: Any, y0: Any, end: Any, times: Any, number: Any = None
) -> tuple[Any, Any, Any]:
    """The values at `times`, which are in order, as rows of an array; the number of attempted
    steps; and the number of steps with a time in them. Only the first `number` times are used, by
    default all."""
    if number is None:
        _hold_order(method, start, end, times)
    ends, count, tried, done, _ = method.chosen(start, y0, end)
    _hold(done, True, "whether there are more steps than there is room for")
    if np.size(times) and _stays_whole(method, start, y0, end):
        y, asked = values_at(method, (start, end), y0, ends, count, times, number)
        return y, tried, asked
    # All steps are computed, so that each can be examined.
    ends = np.where(np.arange(method.room) < count, ends, stopped(end))
    steps = taken(method, start, y0, end, ends)
    asked = np.sum(np.any(method.places(steps, times), axis=0))
    return method.between(steps, times, method.room - 1), tried, asked


def _hold_order(method: Method, start: Any, end: Any, times: Any) -> None:
    held = ordered(method.direction, *map(stopped, (start, end, times)))
    _hold(held, True, "whether times are in order, between the ends")


def _method(callback: Callback, given: Any, tried: int, options: Any) -> Method:
    """The method with its limits. It has room for more steps than were attempted while tracing."""
    room = max(tried + tried // 2, 8)
    if not callback.may_jump:  # no array of all steps is needed
        size = 8 * given.n * (given.n_stages + 4)  # the residuals of a step, at most
        room = max(room, MIN_ROOM, min(ROOM // max(size, 1), MAX_ROOM))
    return Method(
        callback,
        type(given),
        given.rtol,
        given.atol,
        given.max_step,
        float(given.direction) or 1.0,
        1 << room.bit_length(),
        options.get("first_step"),
    )


def _hold(x: Any, expected: bool, what: str) -> None:
    """Guard a condition if it is traced."""
    if isinstance(x, Tracer):
        x._trace.guard(x, expected, what)


def _others(problem: _Problem) -> Any:
    """SciPy's own values, with the derivative of a more accurate solution."""
    if callable(problem.options.get("jac")):
        raise _refused("jac")
    (start, end), y0, t_eval = problem.span, problem.y0, problem.t_eval
    callback, plain = problem.callback, problem.plain()
    if not plain.success:
        return problem.unfinished(plain)
    outside = problem.outside(0 if t_eval is not None else 1 << (2 * plain.t.size).bit_length())
    y, t, count, *counts = outside.record(Constant(), visible=len(outside.values))

    def corrected(y: Any, times: Any) -> Any:
        fine = _fine(callback, start, end, y0, times)
        return y + np.transpose(fine - stopped(fine))

    if t_eval is not None:
        t, y = t_eval, corrected(y, t_eval)
    else:
        t, y = _of_room(callback, y, t, count, problem.span, y0, corrected)
    told = {k: plain[k] for k in ("status", "message", "success")}
    told |= dict(zip(("nfev", "njev", "nlu"), counts, strict=True))
    events = {"sol": None, "t_events": None, "y_events": None}
    return Trajectory(t=t, y=y, **told, **events)


def _widened(x: Any, room: int) -> Any:
    """An array with room for more steps."""
    wide = np.zeros((*x.shape[:-1], max(room, x.shape[-1])))
    wide[..., : x.shape[-1]] = x
    return wide


def _of_room(
    callback: Callback,
    y: Any,
    t: Any,
    count: Any,
    span: tuple[Any, Any],
    y0: Any,
    corrected: Callable[[Any, Any], Any],
) -> tuple[Any, Any]:
    """The times and values of `count` steps from arrays with room for more."""
    start, end = span

    def times() -> Any:
        found = t[: int(count)]  # guarded
        return with_end(found, end) if is_traced(end) else found

    def last() -> Any:
        return corrected(np.reshape(y[:, count - 1], (-1, 1)), np.reshape(end, (1,)))[:, 0]

    def values() -> Any:
        return corrected(y[:, : int(count)], times())

    if not (isinstance(y, Tracer) and np.size(y0) and start != end) or callback.may_jump:
        return times(), values()

    @functools.cache
    def rows() -> tuple[Any, Any]:
        moved = np.where(np.arange(len(t)) == count - 1, end, t)
        fine = _fine(callback, start, end, y0, moved, count)
        return moved, np.transpose(y) + (fine - stopped(fine))

    def loop(init: Any, each: Any) -> Any:
        at, found = rows()

        def step(state: Any) -> Any:
            k, *before, carried = state
            after = [entry(x, k + 1) for x in (at, found)]
            return k + 1, *after, each(k, [before, after], carried)

        begun = (np.int64(0), start + np.float64(0), y0, list(init))
        return while_loop(lambda s: s[0] < count - 1, step, begun, len(t))[-1]

    first = start + np.float64(0), y0
    course = Course(y._trace, count - 1, first, lambda: (end, last()), loop, end > start)
    of_times = along(Steps(course, times, step_loops.time), 1)
    return of_times, along(Steps(course, values, step_loops.value), 2)


def _fine(callback: Callback, start: Any, end: Any, y0: Any, times: Any, number: Any = None) -> Any:
    """Values at `times` by DOP853 with small tolerances: the rows of an array. Only the first
    `number` times are used, by default all."""
    problem = _Problem(callback, theirs.DOP853, (start, end), y0, None, FINE)
    plain = problem.plain()
    if not plain.success:
        raise refusal(
            f"scipy.integrate.solve_ivp fails{at_line()} with the tolerances that a derivative "
            f"needs: {plain.message}"
        )
    made = problem.begun(plain.nfev // theirs.DOP853.n_stages)
    return _at_times(made, start, y0, end, times, number)[0]


@stands_for(HOME, callbacks=True, lists="args")
def odeint(
    func: Any,
    y0: Any,
    t: Any,
    args: Any = (),
    rtol: Any = None,
    atol: Any = None,
    tcrit: Any = None,
    h0: Any = 0.0,
    hmax: Any = 0.0,
    hmin: Any = 0.0,
    mxstep: Any = 0,
    tfirst: Any = False,
    full_output: Any = False,
    **more: Any,
) -> Any:
    how = {"rtol": rtol, "atol": atol, "tcrit": tcrit, "h0": h0, "hmax": hmax, "hmin": hmin}
    how |= {"mxstep": mxstep, **more}
    further = args if isinstance(args, tuple) else (args,)

    def slope(t: Any, y: Any) -> Any:
        return as_called(func)(*((t, y) if tfirst else (y, t)), *further)

    slope.__name__ = getattr(func, "__name__", "func")
    first = np.atleast_1d(example(y0))
    times = _times(t)
    (callback,) = reaching([Callback(slope, [float(example(times)[0]), first])], y0, t)
    apart = np.diff(example(times))
    if not apart.size or not (np.all(apart > 0) or np.all(apart < 0)):
        raise refusal(
            f"scipy.integrate.odeint can't be traced{at_line()} at times that don't rise, or don't "
            "fall, all the way"
        )
    y0 = as_operand(y0) if is_traced(y0) else np.array(y0, float)
    y0 = np.reshape(y0, (-1,)).astype(np.float64)

    told: dict[str, Any] = {}

    def solver(fs: Sequence[Callable[..., Any]], values: Any) -> Any:
        y, t = values
        y, info = theirs.odeint(fs[0], y, t, tfirst=True, full_output=True, **how)
        message = told["message"] = info.pop("message")
        told["keys"] = tuple(info)
        counts = [np.asarray(x, float if k == "hu" else None) for k, x in info.items()]
        return y, *counts, ending(message == SUCCESS, message)

    outside = SolverCall("odeint", solver, [callback], [y0, times])
    message, keys = told["message"], told["keys"]
    if outside.state % 2:
        y, *counts = outside.record(why=UNFINISHED)
    else:
        y, *counts = outside.record(Constant(), visible=len(outside.values))
        fine = _fine(callback, times[0], times[-1], y0, times)
        y = y + (fine - stopped(fine))
    return (y, {**dict(zip(keys, counts, strict=True)), "message": message}) if full_output else y
