"""Equations solved by scipy.optimize: brentq, newton, root, ...

The result is SciPy's own. It is differentiated as the root that it approximates: F(x, p) = 0
defines x as a function of p (`primitives/implicit.py`). Brackets and starts have no influence on
it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize as theirs

from tapegrad.extending import (
    Carrier,
    Untraced,
    as_called,
    at_line,
    is_traced,
    observed,
    refusal,
    stands_for,
)
from tapegrad.extending.primitives import elementwise as ew
from tapegrad.extending.tapes import NOT_CONVERGED
from tapegrad.scipy.callbacks import Callback, plain_floats, values_of
from tapegrad.scipy.results import Info
from tapegrad.scipy.solver_calls import SolverCall

HOME = "scipy.optimize"
WHY = NOT_CONVERGED


_LEFT_OUT = (
    *("jac", "hess", "hess_inv", "grad", "optimality", "nit", "nfev", "njev", "nhev"),
    *("bracket", "f_bracket", "population", "population_energies", "convergence", "xl", "funl"),
    *("lowest_optimization_result", "minimization_failures", "nlfev", "nljev", "nlhev"),
)


class Result(theirs.OptimizeResult, Carrier):
    """A solver's result with traced values.

    Which of several convergence tests a solver has passed last depends on rounding. A call that
    passes another test is served by the same variant, unless the program reads the status.
    """

    def __init__(self, told: Any, **fields: Any) -> None:
        super().__init__(**fields)
        self.__dict__["_told"] = told  # key -> the traced number that decides its value

    def __getitem__(self, key: str) -> Any:
        if key in self._told:
            int(self._told[key])  # guarded
        if key not in self:
            raise KeyError(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        known = super().__contains__(key)
        if not known and key in _LEFT_OUT:
            raise refusal(f"{key} of what a solver of SciPy's finds can't be traced{at_line()}")
        return known

    def __iter__(self) -> Any:
        return iter(self.keys())

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]


class Roots(NamedTuple):
    """The result of newton for several roots."""

    root: Any
    converged: Any
    zero_der: Any


class RootResult(theirs.RootResults, Carrier):
    """The result for a scalar root with traced values."""

    def __init__(self, root: Any, counts: Any, converged: bool, method: str) -> None:
        super().__init__(root, *counts, 0 if converged else -2, method)


def ending(done: bool, *facts: Any) -> int:
    """The solver's status as a number: even if it has converged."""
    return 2 * zlib.crc32(repr(facts).encode()) + (not done)


def number_of(facts: Any) -> Any:
    """A number for the facts that a solver reports."""
    return np.int64(ending(True, *facts.values()))


def with_status(number: Any) -> dict[str, Any]:
    return {"status": number, "message": number}


def as_tuple(args: Any) -> tuple[Any, ...]:
    return args if isinstance(args, tuple) else (args,)


def with_args(f: Any, args: Any) -> Any:
    """f as a function of its first argument alone."""
    args, f_ = as_tuple(args), as_called(f)

    def called(x: Any) -> Any:
        return f_(x, *args)

    called.__name__ = getattr(f, "__name__", type(f).__name__)
    return called


def call_untraced(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """SciPy's own call, in which nothing is traced."""
    with observed():
        return f(*args, **kwargs)


def example(x: Any, flat: bool = False) -> Any:
    """The plain value from which a solver starts, as floats."""
    value = plain_floats(values_of([x if is_traced(x) else np.asarray(x)[()]])[0])
    return value.flatten() if flat else value[()]


def reaching(callbacks: list[Callback], *others: Any) -> list[Callback]:
    """The callbacks, if one of them or one of `others` is traced. Otherwise raises Untraced, so
    that SciPy's own function is called."""
    if not (any(c.is_traced for c in callbacks) or is_traced(others)):
        raise Untraced
    return callbacks


def watched(functions: Sequence[Any], args: Any, start: Any, *others: Any) -> list[Callback]:
    """Callbacks for those of the functions of x that are callable, traced at the solver's start."""
    found = [Callback(with_args(f, args), [start]) for f in functions if callable(f)]
    return reaching(found, *others)


def solved(outside: SolverCall, write: Any) -> list[Any]:
    """The recorded results of a solver; `write` returns F."""
    if outside.state % 2:
        return outside.record(why=WHY)
    return outside.record(outside.rule(write))


def zero(equations: Any, x: Any) -> Any:
    return equations.value(0, x)


# ---- scalar equations


def _scalar(label: str, original: Any, callbacks: Sequence[Callback], lead: Any, full: Any) -> Any:
    """The root that `original(fs, values)` finds, with its full result if `full`."""
    method = ""

    def solver(fs: Any, values: Any) -> Any:
        nonlocal method
        x, r = original(fs, values)
        method = r.method
        counts = [np.asarray(n)[()] for n in (r.iterations, r.function_calls)]  # may be NaN
        return x, *counts, ending(r.converged)

    outside = SolverCall(label, solver, callbacks, lead, at=(0,))
    x, *counts = solved(outside, zero)
    x = outside.own(x)
    return (x, RootResult(x, counts, outside.state % 2 == 0, method)) if full else x


def bracketed(f: Callable[[Any], Any], a: Any, b: Any, tolerance: float) -> Any:
    """The root of f between a and b, where f, a or b is traced."""

    def find(fs: Any, values: Any) -> Any:
        how = {"xtol": tolerance, "rtol": tolerance, "full_output": True}
        return theirs.brentq(fs[0], *map(float, values), **how)

    return _scalar("brentq", find, [Callback(f, [float(example(a))])], (a, b), False)


def _bracketing(name: str) -> None:
    original = getattr(theirs, name)

    def answer(
        f: Any,
        a: Any,
        b: Any,
        args: Any = (),
        xtol: Any = 2e-12,
        rtol: Any = 8.881784197001252e-16,
        maxiter: Any = 100,
        full_output: Any = False,
        disp: Any = True,
        k: Any = 1,
    ) -> Any:
        how = {"xtol": xtol, "rtol": rtol, "maxiter": maxiter, "disp": disp}
        if name == "toms748":
            how["k"] = k
        callbacks = watched([f], args, float(example(a)), a, b)

        def find(fs: Any, values: Any) -> Any:
            return original(fs[0], *map(float, values), full_output=True, **how)

        return _scalar(name, find, callbacks, (a, b), full_output)

    answer.__name__ = name
    declared = stands_for(HOME, name, True, "maxiter full_output disp", "args")
    declared(answer)


for _name in ("brentq", "brenth", "ridder", "bisect", "toms748"):
    _bracketing(_name)


@stands_for(HOME, callbacks=True, parameters="maxiter full_output disp", lists="args")
def newton(
    func: Any,
    x0: Any,
    fprime: Any = None,
    args: Any = (),
    tol: Any = 1.48e-08,
    maxiter: Any = 50,
    fprime2: Any = None,
    x1: Any = None,
    rtol: Any = 0.0,
    full_output: Any = False,
    disp: Any = True,
) -> Any:
    how = {"tol": tol, "maxiter": maxiter, "rtol": rtol}
    start = example(x0)
    lead = [x0] if x1 is None else [x0, x1]
    callbacks = watched([func, fprime, fprime2], (*args,), start, lead)

    def find(fs: Any, values: Any) -> Any:
        given = iter(fs)
        func, first, second = [None if f is None else next(given) for f in (func_, fprime, fprime2)]
        more = {"x1": values[1]} if len(values) > 1 else {}
        return theirs.newton(
            func, values[0], first, fprime2=second, full_output=True, disp=disp, **how, **more
        )

    func_ = func
    if np.ndim(start) == 0:
        return _scalar("newton", find, callbacks, lead, full_output)

    def solver(fs: Any, values: Any) -> Any:
        x, converged, flat = find(fs, values)
        return x, converged, flat, ending(bool(np.all(converged)) and not np.any(flat))

    found = solved(SolverCall("newton", solver, callbacks, lead, at=(0,)), zero)
    return Roots(*found) if full_output else found[0]


@stands_for(HOME, callbacks=True, parameters="maxiter", lists="args bracket options")
def root_scalar(
    f: Any,
    args: Any = (),
    method: Any = None,
    bracket: Any = None,
    fprime: Any = None,
    fprime2: Any = None,
    x0: Any = None,
    x1: Any = None,
    xtol: Any = None,
    rtol: Any = None,
    maxiter: Any = None,
    options: Any = None,
) -> Any:
    how = {"method": method, "xtol": xtol, "rtol": rtol, "maxiter": maxiter, "options": options}
    ends = [] if bracket is None else [bracket[0], bracket[1]]
    starts = [x for x in (x0, x1) if x is not None]
    if not (ends or starts):
        raise Untraced
    first = example((ends + starts)[0])
    start = first if not ends else float(first)
    functions = [g for g in (f, fprime, fprime2) if callable(g)]
    parts = 1 + (fprime is True) + (fprime2 is True)
    callbacks = [Callback(with_args(g, args), [start], parts if g is f else 1) for g in functions]
    reaching(callbacks, ends, starts)

    def find(fs: Any, values: Any) -> Any:
        given = iter(fs)
        function, *slopes = [next(given) if callable(g) else g for g in (f, fprime, fprime2)]
        values = iter(map(float, values))
        more: dict[str, Any] = {}
        if ends:
            more["bracket"] = [next(values), next(values)]
        more |= {name: next(values) for name, x in (("x0", x0), ("x1", x1)) if x is not None}
        r = theirs.root_scalar(function, fprime=slopes[0], fprime2=slopes[1], **how, **more)
        return r.root, r

    return _scalar("root_scalar", find, callbacks, [*ends, *starts], True)[1]


@stands_for(HOME, callbacks=True, parameters="maxiter", lists="args")
def fixed_point(
    func: Any, x0: Any, args: Any = (), xtol: Any = 1e-8, maxiter: Any = 500, method: Any = "del2"
) -> Any:
    """x = f(x, p) as a root of F = x - f."""
    callbacks = watched([func], (*args,), example(x0), x0)

    def solver(fs: Any, values: Any) -> Any:
        return theirs.fixed_point(fs[0], values[0], (), xtol, maxiter, method), ending(True)

    def write(equations: Any, x: Any) -> Any:
        return equations.apply(ew.sub, x, equations.value(0, x))

    outside = SolverCall("fixed_point", solver, callbacks, [x0], at=(0,))
    return outside.own(solved(outside, write)[0])


# ---- systems

NO_NEARER = (3, 6, 7, 8)  # MINPACK's status: the tolerance is too small for rounding
_NO_PROGRESS = (4, 5)  # MINPACK's status: hybrd makes no progress


def is_as_near(status: Any, f: Any, x: Any) -> bool:
    """Whether MINPACK ended as near to a root of f as rounding allows, although its tests failed:
    a Newton step from there is negligible."""
    if status not in _NO_PROGRESS:
        return status in NO_NEARER
    x = np.ravel(x)
    steps = np.diag(1e-6 * (1 + np.abs(x)))
    columns = [np.ravel(f(x + h)) - np.ravel(f(x - h)) for h in steps]
    try:
        step = np.linalg.solve(np.transpose(columns) / (2 * np.diagonal(steps)), np.ravel(f(x)))
    except np.linalg.LinAlgError:
        return False
    return bool(np.linalg.norm(step) <= np.finfo(float).eps ** 0.5 * np.linalg.norm(x))


@stands_for(HOME, callbacks=True, parameters="maxfev col_deriv full_output", lists="args band")
def fsolve(
    func: Any,
    x0: Any,
    args: Any = (),
    fprime: Any = None,
    full_output: Any = 0,
    col_deriv: Any = 0,
    xtol: Any = 1.49012e-08,
    maxfev: Any = 0,
    band: Any = None,
    epsfcn: Any = None,
    factor: Any = 100,
    diag: Any = None,
) -> Any:
    how = {"xtol": xtol, "maxfev": maxfev, "band": band, "epsfcn": epsfcn, "factor": factor}
    how |= {"col_deriv": col_deriv, "diag": diag}
    start = example(x0, flat=True)
    callbacks = watched([func, fprime], args, start, x0)
    told: dict[str, Any] = {}

    def solver(fs: Any, values: Any) -> Any:
        slope = fs[1] if len(fs) > 1 else None
        x, info, ier, message = theirs.fsolve(fs[0], values[0], (), slope, full_output=True, **how)
        if ier != 1 and not full_output:  # raises or warns itself
            x = theirs.fsolve(fs[0], values[0], (), slope, **how)
        told.update(ier=ier, message=message)
        facts = (ier, message) if full_output else ()
        found = ier == 1 or is_as_near(ier, fs[0], x)
        return x, info["fvec"], np.int64(info["nfev"]), ending(found, *facts)

    outside = SolverCall("fsolve", solver, callbacks, [x0], at=(0,))
    ier, message = told["ier"], told["message"]
    x, _, count = solved(outside, zero)
    if not full_output:
        return x
    value = np.reshape(outside.value(0, x, outside.values[1].reshape(callbacks[0].shape)), (-1,))
    return x, Info("scipy.optimize.fsolve", nfev=count, fvec=value), ier, message


@stands_for(HOME, callbacks=True, lists="args options")
def root(
    fun: Any,
    x0: Any,
    args: Any = (),
    method: Any = "hybr",
    jac: Any = None,
    tol: Any = None,
    options: Any = None,
) -> Any:
    start = example(x0, flat=method.lower() in ("hybr", "lm"))
    functions = [f for f in (fun, jac) if callable(f)]
    callbacks = [Callback(with_args(f, args), [start], 2 if jac is True else 1) for f in functions]
    reaching(callbacks, x0)
    how = {"method": method, "tol": tol, "options": options}
    facts: dict[str, Any] = {}

    def solver(fs: Any, values: Any) -> Any:
        slope = fs[1] if len(fs) > 1 else jac
        r = theirs.root(fs[0], values[0], jac=slope, **how)
        facts.update({k: r[k] for k in ("success", "status", "message", "method") if k in r})
        counts = [np.int64(r.get(k, 0)) for k in ("nfev", "nit")]
        value = (lambda x: fs[0](x)[0]) if jac is True else fs[0]
        found = r.success or is_as_near(facts.get("status"), value, r.x)
        return r.x, r.fun, *counts, number_of(facts), ending(found)

    outside = SolverCall("root", solver, callbacks, [x0], at=(0,))
    told = dict(facts)
    x, _, *counts, number = solved(outside, zero)
    value = outside.value(0, x, outside.values[1])
    return Result(with_status(number), x=x, fun=value, nfev=counts[0], **told)
