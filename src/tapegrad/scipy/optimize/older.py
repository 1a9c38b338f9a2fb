"""The older functions of scipy.optimize: fmin and others, leastsq, broyden1 and others.

In SciPy they call `minimize`, `minimize_scalar`, `least_squares` and `root`. Their results have
the derivatives of those functions.
"""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Any

import numpy as np
import scipy.optimize as theirs

from tapegrad.extending import at_line, refusal, stands_for
from tapegrad.extending.arrays import factored
from tapegrad.extending.arrays import solved as solution
from tapegrad.scipy.optimize.minima import minimize, minimize_scalar
from tapegrad.scipy.optimize.roots import NO_NEARER, ending, example, solved, watched, zero
from tapegrad.scipy.results import Info, Untold
from tapegrad.scipy.solver_calls import Equations, SolverCall

HOME = "scipy.optimize"

# ---- minima: SciPy's own code unpacks the result of `minimize`, which replaces its method's

_METHODS = {
    "fmin": "Nelder-Mead",
    "fmin_powell": "Powell",
    "fmin_cg": "CG",
    "fmin_bfgs": "BFGS",
    "fmin_ncg": "Newton-CG",
    "fmin_l_bfgs_b": "L-BFGS-B",
    "fmin_tnc": "TNC",
    "fmin_slsqp": "SLSQP",
    "fmin_cobyla": "COBYLA",
    "brent": "Brent",
    "golden": "Golden",
    "fminbound": "Bounded",
}
_FIRST = {"func": "fun", "brack": "bracket"}  # older name --> name in `minimize`
_PASSED = {
    *("fun", "x0", "args", "jac", "hess", "hessp", "bounds", "constraints", "bracket"),
    "callback",
}


class _Found(dict[str, Any]):
    """A result with all keys. Using the value of an unsupported key is refused."""

    def __init__(self, name: str, result: Any) -> None:
        super().__init__()
        self.name, self.result = f"{HOME}.{name}", result

    def __missing__(self, key: str) -> Any:
        known = dict.__contains__(self.result, key)
        return self.result[key] if known else Untold(self.name)

    def __getattr__(self, key: str) -> Any:
        return self[key]


def _minimum(name: str, method: str) -> None:
    original = getattr(theirs, name)
    inner = next(x for x in original.__code__.co_names if x.startswith("_minimize"))
    form = inspect.signature(original.__globals__[inner])
    solve = minimize_scalar if inner.startswith("_minimize_scalar") else minimize

    def found(*args: Any, **kwargs: Any) -> Any:
        given = form.bind(*args, **kwargs).arguments
        given |= given.pop("unknown_options", {})
        given = {_FIRST.get(key, key): x for key, x in given.items()}
        how = {key: given.pop(key) for key in given.keys() - _PASSED}
        if hasattr(given["fun"], "derivative"):  # the function returns the slope, too
            given |= {"fun": given["fun"].fun, "jac": True}
        if "bounds" in given and not given["bounds"]:
            del given["bounds"]  # fmin_slsqp has none so
        if given.pop("callback", None) is not None:
            raise refusal(
                f"{HOME}.{name}(..., callback=...) can't be traced{at_line()}, only without it"
            )
        return _Found(name, solve(method=method, options=how, **given))

    room = {**original.__globals__, inner: found}
    code = FunctionType(original.__code__, room, name, original.__defaults__, original.__closure__)
    code.__kwdefaults__ = original.__kwdefaults__

    @functools.wraps(original)
    def answer(*args: Any, **kwargs: Any) -> Any:
        return code(*args, **kwargs)

    stands_for(HOME, name, True, lists="args bounds cons eqcons ieqcons brack")(answer)


for _name, _method in _METHODS.items():
    _minimum(_name, _method)


# ---- roots


def _quasi_newton(name: str) -> None:
    original = getattr(theirs, name)

    @functools.wraps(original)
    def answer(F: Any, xin: Any, **how: Any) -> Any:
        callbacks = watched([F], (), example(xin), xin)
        if how.get("callback") is not None:
            raise refusal(
                f"{HOME}.{name}(..., callback=...) can't be traced{at_line()}, only without it"
            )

        def solver(fs: Any, values: Any) -> Any:
            return original(fs[0], values[0], **how), ending(True)

        return solved(SolverCall(name, solver, callbacks, [xin], at=(0,)), zero)[0]

    stands_for(HOME, name, True)(answer)


for _name in (
    *("broyden1", "broyden2", "anderson", "linearmixing", "diagbroyden", "excitingmixing"),
    "newton_krylov",
):
    _quasi_newton(_name)


# ---- least squares


@stands_for(HOME, callbacks=True, parameters="maxfev col_deriv full_output", lists="args")
def leastsq(
    func: Any,
    x0: Any,
    args: Any = (),
    Dfun: Any = None,
    full_output: Any = False,
    col_deriv: Any = False,
    ftol: Any = 1.49012e-8,
    xtol: Any = 1.49012e-8,
    gtol: Any = 0.0,
    maxfev: Any = 0,
    epsfcn: Any = None,
    factor: Any = 100,
    diag: Any = None,
) -> Any:
    how = {"ftol": ftol, "xtol": xtol, "gtol": gtol, "maxfev": maxfev, "epsfcn": epsfcn}
    how |= {"col_deriv": col_deriv, "factor": factor, "diag": diag}
    start = example(x0, flat=True)
    callbacks = watched([func, Dfun], args, start, x0)
    told: dict[str, Any] = {}

    def solver(fs: Any, values: Any) -> Any:
        slope = fs[1] if len(fs) > 1 else None
        x, cov, info, message, ier = theirs.leastsq(fs[0], values[0], (), slope, True, **how)
        found = 1 <= ier <= 4 or ier in NO_NEARER
        if not (found or full_output):  # raises or warns itself
            theirs.leastsq(fs[0], values[0], (), slope, **how)
        told.update(ier=ier, message=message, regular=cov is not None)
        facts = (message, told["regular"]) if full_output else ()
        cov = np.full((x.size, x.size), np.nan) if cov is None else cov
        return x, info["fvec"], cov, np.int64(info["nfev"]), ending(found, ier, *facts)

    outside = SolverCall("leastsq", solver, callbacks, [x0], at=(0,))
    ier, message, regular = told["ier"], told["message"], told["regular"]

    def write(equations: Equations, x: Any) -> Any:
        return equations.gradient(0, x, equations.value(0, x))

    def covariance(cov: Any, x: Any, f: Any, jacobian: Any, one: Any) -> Any:
        """(J^T J)^-1 of the residuals' Jacobian J."""
        return solution(factored(jacobian.T @ jacobian), one)

    x, _, cov, count = solved(outside, write)
    if not full_output:
        return x, ier
    value = np.reshape(outside.value(0, x, outside.values[1].reshape(callbacks[0].shape)), (-1,))
    cov = outside.defined(cov, x, covariance) if regular else None
    return x, cov, Info("scipy.optimize.leastsq", nfev=count, fvec=value), message, ier
