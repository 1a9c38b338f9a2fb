"""Linear least squares and linear programs: nnls, lsq_linear, isotonic_regression, linprog.

The result is SciPy's own. The active bounds and inequalities are held constant, and the remaining
linear equations are differentiated. Where the active set isn't certain, as at a vertex where more
inequalities meet than there are variables, there is no derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.optimize as theirs

from tapegrad.extending import stands_for
from tapegrad.extending.arrays import Tracer, as_operand
from tapegrad.scipy.optimize.minima import BESIDE, Bounded, bounds_of
from tapegrad.scipy.optimize.roots import Result, ending, number_of, with_status
from tapegrad.scipy.results import Untold
from tapegrad.scipy.solver_calls import Constant, SolverCall, valued

HOME = "scipy.optimize"
BOUND_DISTANCE = 1e-5  # so near to a bound
SLIGHT = 1e-6  # a multiplier too small to tell whether its bound or row is active


def _floats(x: Any) -> Any:
    """A plain or traced array of float64."""
    x = as_operand(x)
    x = x if isinstance(x, Tracer) else np.asarray(x)
    return x if x.dtype == np.float64 else x.astype(float)


def _held(
    label: str, solver: Callable[..., Any], given: Sequence[Any]
) -> tuple[SolverCall, list[Any]]:
    """SciPy's results as constants; their derivative is an error if the solver's status isn't
    certain."""
    outside = SolverCall(label, lambda fs, values: solver(*values), [], [], given)
    if outside.state % 2:
        return outside, outside.record(why=BESIDE, visible=len(outside.values))
    return outside, outside.record(Constant(), visible=len(outside.values))


def _free_part(a: Any, b: Any, free: Any, fixed: Any = 0.0) -> Any:
    """The x that minimizes |a x - b|^2, where the elements that aren't free have the values
    `fixed`."""
    columns = a * free
    rest = (1.0 - free) * fixed
    gram = columns.T @ columns + np.diag(1.0 - free)
    return np.linalg.solve(gram, columns.T @ (b - a @ rest) + rest)


def _side(a: Any, r: Any, x: Any, lower: Any, upper: Any) -> tuple[Any, bool]:
    """For each x the active bound: -1 (lower), 1 (upper) or 0; and whether that is certain. A
    bound is active if the slope a^T r points out of it."""
    slope = a.T @ r
    scale = SLIGHT * (np.abs(a).T @ np.abs(r) + np.finfo(float).tiny)
    near = BOUND_DISTANCE * (1 + np.abs(x))
    at_lower, at_upper = x - lower < near, upper - x < near
    side = np.where(at_lower & (slope > scale), -1, np.where(at_upper & (slope < -scale), 1, 0))
    return side, not np.any((at_lower | at_upper) & (side == 0))


@stands_for(HOME, parameters="maxiter")
def nnls(A: Any, b: Any, *, maxiter: Any = None, **how: Any) -> Any:
    a, b = _floats(A), _floats(b)

    def solver(a: Any, b: Any) -> Any:
        x, norm = theirs.nnls(a, b, maxiter=maxiter, **how)
        side, certain = _side(a, a @ x - b, x, 0.0, np.inf)
        return x, side, np.float64(norm), ending(certain)

    outside, (x, side, norm) = _held("nnls", solver, [a, b])
    if outside.state % 2:
        return x, norm
    x = valued(x, _free_part(a, b, np.where(side == 0, 1.0, 0.0)))
    r = a @ x - b
    return x, valued(norm, np.sqrt(np.sum(r * r)))


@stands_for(HOME, lists="bounds")
def lsq_linear(
    A: Any,
    b: Any,
    bounds: Any = (-np.inf, np.inf),
    method: Any = "trf",
    tol: Any = 1e-10,
    **how: Any,
) -> Any:
    a, b = _floats(A), _floats(b)
    pair = [bounds.lb, bounds.ub] if isinstance(bounds, theirs.Bounds) else bounds
    lower, upper = [bounds_of(x, a.shape[1:]) for x in pair]
    told: dict[str, Any] = {}

    def solver(a: Any, b: Any, lower: Any, upper: Any) -> Any:
        r = theirs.lsq_linear(a, b, (lower, upper), method, tol, **how)
        side, certain = _side(a, r.fun, r.x, lower, upper)
        told.update({k: r[k] for k in ("success", "status", "message")})
        number = number_of(told)
        found = r.x, r.fun, np.float64(r.cost), np.float64(r.optimality), np.int64(r.nit)
        active = np.asarray(r.active_mask, np.int64)
        return *found, active, side, number, ending(r.success and certain)

    outside, found = _held("lsq_linear", solver, [a, b, lower, upper])
    x, fun, cost, optimality, nit, active, side, number = found
    if outside.state % 2 == 0:
        ends = np.where(side < 0, lower, np.where(side > 0, upper, 0.0))
        x = valued(x, _free_part(a, b, np.where(side == 0, 1.0, 0.0), ends))
        fun = valued(fun, a @ x - b)
        cost = valued(cost, 0.5 * np.sum(fun * fun))
    fields = {"x": x, "fun": fun, "cost": cost, "optimality": optimality, "nit": nit}
    return Result(with_status(number), active_mask=active, **fields, **told)


@stands_for(HOME)
def isotonic_regression(y: Any, *, weights: Any = None, increasing: Any = True) -> Any:
    """The regression as weighted means over SciPy's blocks."""
    y = _floats(y)
    w = np.ones(y.shape) if weights is None else _floats(weights)

    def solver(y: Any, w: Any) -> Any:
        r = theirs.isotonic_regression(y, weights=w, increasing=increasing)
        return r.x, np.repeat(np.arange(len(r.blocks) - 1), np.diff(r.blocks)), ending(True)

    _, (x, label) = _held("isotonic_regression", solver, [y, w])
    weights, sums = 0.0 * y, 0.0 * y
    np.add.at(weights, label, w)
    np.add.at(sums, label, w * y)
    rest = Untold("scipy.optimize.isotonic_regression")
    means = sums[label] / weights[label]
    return Result({}, x=valued(x, means), weights=rest, blocks=rest)


@stands_for(HOME, lists="bounds options")
def linprog(
    c: Any,
    A_ub: Any = None,
    b_ub: Any = None,
    A_eq: Any = None,
    b_eq: Any = None,
    bounds: Any = (0, None),
    method: Any = "highs",
    *,
    options: Any = None,
) -> Any:
    """The solution at a vertex: as many rows are active as there are variables. With these, M x =
    h and f = c^T x."""
    c = np.reshape(_floats(c), (-1,))
    n = c.shape[0]
    bounds = (0, None) if bounds is None or len(bounds) == 0 else bounds
    are_pairs = isinstance(bounds[0], (list, tuple)) or np.ndim(bounds[0]) == 1
    lower, upper = Bounded(bounds if are_pairs else [bounds] * n, (n,)).given
    none = np.zeros((0, n)), np.zeros(0)
    ub, eq = [
        none if a is None else (_rows(a, n), np.reshape(_floats(b), (-1,)))
        for a, b in ((A_ub, b_ub), (A_eq, b_eq))
    ]
    told: dict[str, Any] = {}

    def solver(c: Any, a: Any, b: Any, e: Any, d: Any, lower: Any, upper: Any) -> Any:
        ends = np.stack([lower, upper], 1)
        r = theirs.linprog(c, a, b, e, d, ends, method, options=options)
        told.update({k: r[k] for k in ("success", "status", "message")}, is_none=r.x is None)
        ended, x = number_of(told), r.x
        if x is None:
            return np.zeros(0), *none, np.int64(0), ending(False, *told.values())
        rest = [np.zeros(len(d)), b - a @ x, x - lower, upper - x]
        scale = 1e-9 * (1 + np.concatenate([np.abs(d), np.abs(b), *[1 + np.abs(x)] * 2]))
        rows = np.flatnonzero(np.concatenate(rest) <= scale)
        matrix = np.concatenate([e, a, np.eye(n), np.eye(n)])[rows]
        certain = r.success and matrix.shape == (n, n)
        certain = certain and np.linalg.cond(matrix) < 1e12
        rows = rows if certain else np.zeros(n, np.int64)
        facts = () if r.success else told.values()
        return x, rows, np.int64(r.nit), ended, ending(certain, *facts)

    outside, found = _held("linprog", solver, [c, *ub, *eq, lower, upper])
    told = {k: told[k] for k in ("success", "status", "message", "is_none")}
    if told.pop("is_none"):
        return Result({}, x=None, fun=None, slack=None, con=None, **told)
    x, rows, nit, number = found
    fields: dict[str, Any] = {"nit": nit, **told}
    if outside.state % 2 == 0:
        eye = np.eye(n)
        matrix = np.concatenate([eq[0], ub[0], eye, eye])[rows]
        side = np.concatenate([eq[1], ub[1], lower, upper])[rows]
        x = valued(x, np.linalg.solve(matrix, side))
        y = np.linalg.solve(matrix.T, c)
        several = len(eq[1]) + len(ub[1]) + 2 * n
        price = np.where(np.reshape(np.arange(several), (-1, 1)) == rows, 1.0, 0.0) @ y
        first, second = len(eq[1]), len(eq[1]) + len(ub[1])
        parts = price[:first], price[first:second], price[second:-n], price[-n:]
        rests = eq[1] - eq[0] @ x, ub[1] - ub[0] @ x, x - lower, upper - x
        names = ("eqlin", "ineqlin", "lower", "upper")
        for name, part, rest in zip(names, parts, rests, strict=True):
            fields[name] = Result({}, residual=rest, marginals=part)
    fields |= {"x": x, "fun": c @ x, "slack": ub[1] - ub[0] @ x, "con": eq[1] - eq[0] @ x}
    return Result(with_status(number), **fields)


def _rows(a: Any, n: int) -> Any:
    return np.reshape(_floats(a), (-1, n))
