"""Least squares by scipy.optimize: least_squares, curve_fit.

The result is SciPy's own. It is differentiated as a zero of the gradient of the sum of squares,
with the full Hessian; the Gauss-Newton matrix is only one term of it.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import scipy.optimize as theirs

from tapegrad.extending import as_called, at_line, is_traced, refusal, stands_for
from tapegrad.extending.arrays import factored, solved
from tapegrad.extending.primitives import elementwise as ew
from tapegrad.extending.tapes import Literal
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.optimize.minima import Bounded, bounds_of, stationary
from tapegrad.scipy.optimize.roots import (
    WHY,
    Result,
    ending,
    example,
    number_of,
    reaching,
    with_status,
)
from tapegrad.scipy.results import Info
from tapegrad.scipy.solver_calls import Equations, SolverCall

HOME = "scipy.optimize"


def _weight(equations: Equations, loss: str, z: Any) -> Any:
    """rho'(z), for the losses of least_squares."""
    e, one = equations.apply, Literal(np.float64(1))
    if loss == "soft_l1":
        return e(ew.div, one, e(ew.sqrt, e(ew.add, one, z)))
    if loss == "cauchy":
        return e(ew.div, one, e(ew.add, one, z))
    if loss == "arctan":
        return e(ew.div, one, e(ew.add, one, e(ew.mul, z, z)))
    inside = e(ew.less_equal, z, one)  # huber
    safe = e(ew.where, inside, one, z)
    return e(ew.where, inside, one, e(ew.div, one, e(ew.sqrt, safe)))


@stands_for(HOME, callbacks=True, parameters="max_nfev", lists="args kwargs bounds x_scale")
def least_squares(
    fun: Any,
    x0: Any,
    jac: Any = "2-point",
    bounds: Any = (-np.inf, np.inf),
    method: Any = "trf",
    ftol: Any = 1e-8,
    xtol: Any = 1e-8,
    gtol: Any = 1e-8,
    x_scale: Any = None,
    loss: Any = "linear",
    f_scale: Any = 1.0,
    diff_step: Any = None,
    tr_solver: Any = None,
    tr_options: Any = None,
    max_nfev: Any = None,
    args: Any = (),
    kwargs: Any = None,
    **how: Any,
) -> Any:
    start = np.atleast_1d(example(x0))
    functions = [f for f in (fun, jac) if callable(f)]

    def bound(f: Any) -> Any:
        def called(x: Any) -> Any:
            return as_called(f)(x, *args, **(kwargs or {}))

        called.__name__ = getattr(f, "__name__", type(f).__name__)
        return called

    callbacks = [Callback(bound(f), [start]) for f in functions]
    how |= {"method": method, "ftol": ftol, "xtol": xtol, "gtol": gtol, "loss": loss}
    how |= {"f_scale": f_scale, "diff_step": diff_step, "max_nfev": max_nfev}
    how |= {"tr_solver": tr_solver}
    how |= {} if tr_options is None else {"tr_options": tr_options}
    how |= {} if x_scale is None else {"x_scale": x_scale}
    reaching(callbacks, x0, bounds)
    if callable(loss):
        raise refusal(
            f"scipy.optimize.least_squares(..., loss=f) can't be traced{at_line()}: a loss of "
            "one's own. Minimize the sum with scipy.optimize.minimize"
        )
    pair = [bounds.lb, bounds.ub] if isinstance(bounds, theirs.Bounds) else bounds
    free = not is_traced(pair) and bool(np.all(np.isinf(pair[0])) and np.all(np.isinf(pair[1])))
    limits = Bounded(None, ())
    limits.given = [] if free else [bounds_of(x, start.shape) for x in pair]
    facts: dict[str, Any] = {}

    def solver(fs: Any, values: Any) -> Any:
        x0, *ends = values
        at = tuple(ends) or (-np.inf, np.inf)
        slope = fs[1] if len(fs) > 1 else jac
        r = theirs.least_squares(fs[0], x0, slope, at, **how)
        facts["told"] = {k: r[k] for k in ("success", "status", "message")}
        counts = np.int64(r.nfev), np.int64(r.njev or 0)
        side = r.active_mask.astype(np.int64)
        told = number_of(facts["told"])
        return r.x, side, r.fun, np.float64(r.cost), *counts, told, ending(r.success)

    outside = SolverCall("least_squares", solver, callbacks, [x0], limits.given, at=(0,))
    told = dict(facts["told"])

    def write(equations: Equations, x: Any, side: Any, *bounds: Any) -> Any:
        e = equations.apply
        residuals = equations.value(0, x)
        seed = residuals
        if loss != "linear":
            scaled = e(ew.div, residuals, Literal(np.float64(f_scale)))
            seed = e(ew.mul, residuals, _weight(equations, loss, e(ew.mul, scaled, scaled)))
        return stationary(equations, x, side, bounds, equations.gradient(0, x, seed))

    found = outside.state % 2 == 0
    rule = outside.rule(write, further=1) if found else None
    x, side, _, _, nfev, njev, number = outside.record(rule, "" if found else WHY)
    value = outside.value(0, x, np.reshape(outside.values[2], callbacks[0].shape))
    value = np.reshape(value, (-1,)) if np.ndim(value) != 1 else value
    return Result(
        with_status(number),
        x=x,
        fun=value,
        cost=_cost(value, loss, f_scale),
        active_mask=side,
        nfev=nfev,
        njev=njev,
        **told,
    )


def _cost(r: Any, loss: str, scale: float) -> Any:
    """Half of the sum of rho((r / scale)^2) scale^2."""
    if loss == "linear":
        return 0.5 * np.dot(r, r)
    z = (r / scale) ** 2
    if loss == "soft_l1":
        rho = 2 * ((1 + z) ** 0.5 - 1)
    elif loss == "cauchy":
        rho = np.log1p(z)
    elif loss == "arctan":
        rho = np.arctan(z)
    else:
        inside = z <= 1
        rho = np.where(inside, z, 2 * np.sqrt(np.where(inside, 1.0, z)) - 1)
    return 0.5 * scale**2 * np.sum(rho)


@stands_for(HOME, callbacks=True, lists="p0 bounds")
def curve_fit(
    f: Any,
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: Any = False,
    check_finite: Any = None,
    bounds: Any = (-np.inf, np.inf),
    method: Any = None,
    jac: Any = None,
    *,
    full_output: Any = False,
    **kwargs: Any,
) -> Any:
    how: dict[str, Any] = {"absolute_sigma": absolute_sigma, "bounds": bounds, "method": method}
    how |= {"check_finite": check_finite, **kwargs}
    if is_traced(bounds) or not np.all(np.isinf(np.hstack(_pair(bounds)))):
        raise refusal(
            f"scipy.optimize.curve_fit(..., bounds=...) can't be traced{at_line()}. Use "
            "scipy.optimize.least_squares, whose bounds can"
        )
    slopes = [jac] if callable(jac) else []
    if p0 is None:
        kinds = [x.kind for x in inspect.signature(f).parameters.values()]
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        start = np.ones(sum(kind in by_place for kind in kinds) - 1)
    else:
        start = np.atleast_1d(example(p0))
    at = as_floats_of(xdata)

    def of(g: Any) -> Any:
        def called(p: Any) -> Any:
            return as_called(g)(at, *p)

        called.__name__ = getattr(g, "__name__", type(g).__name__)
        return called

    callbacks = reaching([Callback(of(g), [start]) for g in (f, *slopes)], xdata, ydata, p0, sigma)
    if sigma is not None and np.ndim(sigma) > 1:
        raise refusal(
            f"scipy.optimize.curve_fit(..., sigma=...) can't be traced{at_line()} with a matrix. "
            "Use scipy.optimize.least_squares, of residuals that are whitened"
        )
    if kwargs.get("nan_policy"):
        raise refusal(
            f"scipy.optimize.curve_fit(..., nan_policy=...) can't be traced{at_line()}. Leave out "
            "the observations that are NaN before"
        )
    given = [as_floats_of(ydata)] + ([] if sigma is None else [as_floats_of(sigma)])
    lead = [] if p0 is None else [p0]
    told: dict[str, Any] = {}

    def solver(fs: Any, values: Any) -> Any:
        first = values[0] if lead else start
        y, *rest = values[len(lead) :]
        s = rest[0] if rest else None
        slope = (lambda _, *p: fs[1](np.array(p))) if slopes else jac
        place = np.zeros(np.size(y))  # the function has its own abscissas
        popt, pcov, info, message, ier = theirs.curve_fit(
            lambda _, *p: fs[0](np.array(p)), place, y, first, s, jac=slope, full_output=True, **how
        )
        told.update(message=message, ier=ier)
        facts = (message, ier) if full_output else ()
        return popt, pcov, np.int64(info["nfev"]), ending(True, *facts)

    outside = SolverCall("curve_fit", solver, callbacks, lead, given, at=(0,))

    def write(equations: Equations, p: Any, y: Any, *s: Any) -> Any:
        r = equations.apply(ew.sub, equations.value(0, p), y)
        for x in s:
            r = equations.apply(ew.div, r, equations.apply(ew.mul, x, x))
        return equations.gradient(0, p, r)

    def covariance(pcov: Any, p: Any, f: Any, jacobian: Any, one: Any, y: Any, *sigma: Any) -> Any:
        """(J^T J)^-1 s^2, where the m residuals r = (f - y) / sigma of n parameters have the
        Jacobian J and the variance s^2 = r^T r / (m - n), or s^2 = 1 if sigma is absolute. NaN
        where SciPy's is."""
        r = f - y
        for s in sigma:
            r, jacobian = r / s, jacobian / np.reshape(s, (-1, 1))
        variance = 1.0 if absolute_sigma else np.dot(r, r) / max(r.size - p.size, 1)
        known = np.where(np.isfinite(pcov), 1.0, np.nan)
        return solved(factored(jacobian.T @ jacobian), one) * variance * known

    message, ier = told["message"], told["ier"]
    popt, pcov, count = outside.record(outside.rule(write))
    found = popt, outside.defined(pcov, popt, covariance)
    info = Info("scipy.optimize.curve_fit", nfev=count)
    return (*found, info, message, ier) if full_output else found


def _pair(bounds: Any) -> Any:
    if isinstance(bounds, theirs.Bounds):
        return [np.atleast_1d(bounds.lb), np.atleast_1d(bounds.ub)]
    return [np.atleast_1d(x) for x in bounds]


def as_floats_of(x: Any) -> Any:
    if is_traced(x):
        return x if x.dtype == np.float64 else x.astype(float)
    return np.asarray(x, float) if isinstance(x, (list, tuple, np.ndarray)) else x
