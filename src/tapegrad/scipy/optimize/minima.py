"""Minima by scipy.optimize: minimize, minimize_scalar.

The result is SciPy's own. It is differentiated as a zero of the gradient, by the Hessian.
Variables at a bound follow that bound; the others are free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.optimize as theirs
from scipy.sparse.linalg import LinearOperator, minres

from tapegrad.extending import as_called, is_traced, stands_for
from tapegrad.extending.arrays import as_operand
from tapegrad.extending.primitives import elementwise as ew
from tapegrad.extending.tapes import Literal
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.optimize.constraints import Constraints, slopes_of
from tapegrad.scipy.optimize.roots import (
    WHY,
    Result,
    as_tuple,
    ending,
    example,
    number_of,
    reaching,
    watched,
    with_args,
    with_status,
)
from tapegrad.scipy.solver_calls import Equations, SolverCall

HOME = "scipy.optimize"
BOUND_DISTANCE = 1e-5  # so near to a bound, but not on it: uncertain
ROUNDED = 1e-12  # so near: on the bound
BESIDE = (
    "its result is next to a bound or a constraint, and whether that holds it isn't known: it may "
    "be where the derivative jumps. Methods of minimize that end on bounds, such as L-BFGS-B, tell "
    "of bounds; of constraints, leave out those that follow from others"
)
LOSS = 2  # the status of a search that makes no progress


class Bounded:
    """The bounds of a minimum as operands of the shape of x; no operands if there are no bounds."""

    def __init__(self, bounds: Any, shape: tuple[int, ...]) -> None:
        self.given: list[Any] = []
        if bounds is None:
            return
        if isinstance(bounds, theirs.Bounds):
            sides = [bounds.lb, bounds.ub]
        else:
            pairs = [tuple(pair) for pair in bounds]
            sides = [_side([p[k] for p in pairs], (-np.inf, np.inf)[k]) for k in (0, 1)]
        self.given = [bounds_of(x, shape) for x in sides]


def bounds_of(x: Any, shape: tuple[int, ...]) -> Any:
    """One side of the bounds as float64, broadcast to the shape of x."""
    x = as_operand(x) if is_traced(x) else np.asarray(x, float)
    return np.broadcast_to(x if x.dtype == np.float64 else x.astype(float), shape)


def _side(values: list[Any], none: float) -> Any:
    values = [none if x is None else x for x in values]
    return as_operand(values) if is_traced(values) else np.array(values, float)


def side_of(x: Any, bounds: Any) -> tuple[Any, bool]:
    """For each variable whether it is at its lower bound (-1), at its upper bound (1) or free (0);
    and whether that is certain."""
    if not bounds:
        return np.zeros(np.shape(x), np.int64), True
    lower, upper = bounds
    size = 1 + np.abs(x)
    with np.errstate(invalid="ignore"):
        below, above = np.abs(x - lower), np.abs(x - upper)
        side = np.where(above < ROUNDED * size, 1, np.where(below < ROUNDED * size, -1, 0))
        near = np.minimum(below, above) < BOUND_DISTANCE * size
    return side.astype(np.int64), not np.any(near & (side == 0))


def stationary(equations: Equations, x: Any, side: Any, bounds: Any, slope: Any) -> Any:
    """The F that is 0 at a minimum: the slope where x is free, else its distance from its bound."""
    if not bounds:
        return slope
    lower, upper = bounds
    none = Literal(np.int64(0))
    bound = equations.apply(ew.where, equations.apply(ew.less, side, none), lower, upper)
    free = equations.apply(ew.equal, side, none)
    return equations.apply(ew.where, free, slope, equations.apply(ew.sub, x, bound))


def is_as_low(callback: Callback, f: Any, x: Any, way: Any, free: Any) -> bool:
    """Whether a search that failed is as near to a minimum as rounding allows: a Newton step from
    there is negligible relative to x and `way`."""
    size = np.abs(x) + np.abs(way)
    size = np.where(free, np.where(size > 0, size, 1.0), 0.0)

    def slope(u: Any) -> Any:
        return size * slopes_of(callback, f, x + size * u).ravel()

    def bent(u: Any) -> Any:
        h = 1e-6 * u / np.max(np.abs(u), initial=1e-300)
        return (slope(h) - slope(-h)) * (np.max(np.abs(u)) / 2e-6)

    slopes = LinearOperator((len(x),) * 2, bent, dtype=float)
    step = size * minres(slopes, slope(np.zeros(len(x))), maxiter=200)[0]
    return bool(np.linalg.norm(step) <= 1e-4 * max(np.linalg.norm(x), np.linalg.norm(way)))


@stands_for(HOME, callbacks=True, lists="args bounds options constraints")
def minimize(
    fun: Any,
    x0: Any,
    args: Any = (),
    method: Any = None,
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    tol: Any = None,
    options: Any = None,
) -> Any:
    start = np.atleast_1d(example(x0))
    how: dict[str, Any] = {"method": method, "tol": tol, "options": options}
    callbacks = [Callback(with_args(fun, args), [start], 2 if jac is True else 1)]
    more = {"jac": jac, "hess": hess}
    callbacks += [Callback(with_args(f, args), [start]) for f in more.values() if callable(f)]
    if callable(hessp):

        def product(x: Any, p: Any) -> Any:
            return as_called(hessp)(x, p, *as_tuple(args))

        callbacks.append(Callback(product, [start, start]))
    limits, held = Bounded(bounds, start.shape), Constraints(constraints, start)
    own, callbacks = len(callbacks), [*callbacks, *held.callbacks]
    reaching(callbacks, x0, bounds)

    def search(fs: Any, x0: Any, at: Any, constraints: Any) -> Any:
        rest = iter(fs[1:own])
        slopes = {name: next(rest) if callable(f) else f for name, f in more.items()}
        hessians = next(rest, None)
        slopes |= {"constraints": constraints} if held.parts else {}
        return theirs.minimize(fs[0], x0, bounds=at, hessp=hessians, **slopes, **how)

    return minimum("minimize", search, callbacks, x0, bounds, limits, held)


def minimum(
    label: str,
    search: Callable[..., Any],
    callbacks: Sequence[Callback],
    x0: Any,
    bounds: Any,
    limits: Bounded,
    held: Constraints,
    draws: bool = False,
) -> Result:
    """The result of `search(fs, x0, bounds, constraints)`, which may draw random numbers."""
    facts: dict[str, Any] = {}
    are_plain, own = not is_traced(bounds), len(callbacks) - len(held.callbacks)

    def solver(fs: Any, values: Any) -> Any:
        at = bounds if are_plain else theirs.Bounds(*values[1:3])
        x0, *ends = values[: 1 + len(limits.given)]
        r = search(fs, x0, at, held.passed(fs[own:]))
        x = np.asarray(r.x, float)
        side, certain = side_of(x, ends)
        side, active, is_known = held.holding(callbacks[0], [fs[0], *fs[own:]], x, side)
        certain = certain and is_known
        facts["told"] = {k: r[k] for k in ("success", "status", "message") if k in r}
        facts["certain"] = certain
        found = r.success or (
            (r.get("status") == LOSS and not held.parts)
            and is_as_low(callbacks[0], fs[0], x, x - x0, side == 0)
        )
        counts = [np.int64(r.get(k, 0)) for k in ("nit", "nfev", "njev")]
        told = np.int64(r.success), number_of(facts["told"])
        ended = ending(found and certain, certain)
        return x, side, active, _scalar(r.fun) * 1.0, *counts, *told, ended

    given = [*limits.given, *held.constants]
    outside = SolverCall(label, solver, callbacks, [x0], given, at=(0,), draws=draws)
    x, counts = _recorded(outside, bool(limits.given), facts["certain"], held)
    value = outside.value(0, x, np.reshape(outside.values[3], callbacks[0].shape))
    names = ("nit", "nfev", "njev")
    *counts, success, number = counts[1:]
    told = dict(zip(names, counts, strict=True)) | facts["told"]
    value = outside.own(_scalar(value), 3)
    return Result({"success": success, **with_status(number)}, x=x, fun=value, **told)


def _scalar(x: Any) -> Any:
    return np.reshape(x, ())[()] if np.ndim(x) else x


def _recorded(
    outside: SolverCall, bounded: bool, certain: bool, held: Constraints
) -> tuple[Any, list[Any]]:
    if outside.state % 2:
        x, _, _, *rest = outside.record(why=WHY if certain else BESIDE)
        return x, rest

    def write(equations: Equations, x: Any, side: Any, active: Any, *bounds: Any) -> Any:
        return stationary(equations, x, side, bounds, equations.gradient(0, x))

    rule = held.equations(outside, bounded) if held.parts else write
    x, _, _, *rest = outside.record(outside.rule(rule, further=2))
    return x, rest


def _pushed(callback: Callback, f: Any, x: float, ends: Any) -> tuple[int, bool]:
    """Near which of its bounds a variable is, and whether that bound is active for certain. If the
    minimum were in between, the slope at x would be at most as large as the curvature allows."""
    lower, upper = ends
    side = 1 if abs(x - upper) < abs(x - lower) else -1
    step = 1e-4 * (1 + abs(x))
    inside = x - side * min(step, (upper - lower) / 2)
    slope, further = (float(slopes_of(callback, f, y).ravel()[0]) for y in (x, inside))
    bend = (slope - further) / (x - inside)
    return side, side * slope < -100 * BOUND_DISTANCE * (1 + abs(x)) * abs(bend)


@stands_for(HOME, callbacks=True, lists="args bounds bracket options")
def minimize_scalar(
    fun: Any,
    bracket: Any = None,
    bounds: Any = None,
    args: Any = (),
    method: Any = None,
    tol: Any = None,
    options: Any = None,
) -> Any:
    given = bounds if bounds is not None else bracket
    lead = [] if given is None else [*given]
    start = example(lead[0]) if lead else np.float64(0.0)
    (callback,) = watched([fun], args, np.float64(start), lead)
    how: dict[str, Any] = {"method": method, "tol": tol, "options": options}
    facts: dict[str, Any] = {}

    def solver(fs: Any, values: Any) -> Any:
        values = [float(x) for x in values]
        ends = {} if not values else {"bracket" if bounds is None else "bounds": values}
        r = theirs.minimize_scalar(fs[0], **ends, **how)
        side, certain = side_of(r.x, values if bounds is not None else ())
        if not certain:
            side, certain = _pushed(callback, fs[0], float(r.x), values)
        facts["certain"] = certain
        facts["told"] = {k: r[k] for k in ("success", "status", "message") if k in r}
        counts = [np.int64(r.get(k, 0)) for k in ("nit", "nfev")]
        ended = ending(r.success and certain, certain)
        value, told = _scalar(r.fun) * 1.0, number_of(facts["told"])
        return _scalar(r.x) * 1.0, np.int64(side), np.int64(0), value, *counts, told, ended

    lead, ends = (lead, []) if bounds is None else ([], [bounds_of(x, ()) for x in lead])
    outside = SolverCall("minimize_scalar", solver, [callback], lead, ends, at=(0,))
    x, counts = _recorded(outside, bool(ends), facts["certain"], Constraints((), np.zeros(1)))
    value = outside.value(0, x, np.reshape(outside.values[3], callback.shape))
    _, nit, nfev, number = counts
    told = facts["told"]
    x, value = outside.own(x), outside.own(_scalar(value), 3)
    return Result(with_status(number), x=x, fun=value, nit=nit, nfev=nfev, **told)
