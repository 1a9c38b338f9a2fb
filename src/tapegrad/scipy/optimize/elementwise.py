"""Traceable versions of scipy.optimize.elementwise: a root or a minimum for each element.

SciPy drops elements that have converged, so it calls f on fewer and fewer. f is traced on all
elements; when it is called on fewer, the others are filled in, since the result for an element
depends on that element alone. So for a root dx = -f_p / f_x, element by element, and a minimum is
a root of the slope. Brackets are found by comparisons, and have derivative 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import elementwise as theirs

from tapegrad.extending import Untraced, at_line, is_traced, refusal, stands_for
from tapegrad.extending.arrays import as_operand
from tapegrad.extending.primitives import BroadcastTo
from tapegrad.extending.solvers import Implicit, called
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.optimize.roots import (
    WHY,
    Result,
    as_tuple,
    ending,
    example,
    reaching,
    with_args,
)
from tapegrad.scipy.solver_calls import Constant, SolverCall

HOME = "scipy.optimize.elementwise"


class Each(Implicit):
    """The rule of a root of equations that each have one unknown of their own: the Jacobian is
    diagonal."""

    def solved(self, given: Sequence[Any], b: Any, transposed: bool) -> Any:
        one = BroadcastTo(self.tape.outputs[0].shape)(given[0].constant(1))
        (slope,) = called(self.of_x, [*given, one])
        return b / slope

    def known(self, seed: Any, ct: Any) -> Any:
        """The cotangent of an operand that has an element for each equation: those of other
        equations are 0."""
        return seed * seed.constant(0) if ct.shape == seed.shape else super().known(seed, ct)


@stands_for(HOME, callbacks=True, parameters="maxiter", lists="args init tolerances")
def find_root(
    f: Any,
    init: Any,
    args: Any = (),
    tolerances: Any = None,
    maxiter: Any = None,
    callback: Any = None,
) -> Any:
    how = {"tolerances": tolerances, "maxiter": maxiter, "callback": callback}
    return _found(theirs.find_root, _zero, f, init, args, how)


@stands_for(HOME, callbacks=True, parameters="maxiter", lists="args init tolerances")
def find_minimum(
    f: Any,
    init: Any,
    args: Any = (),
    tolerances: Any = None,
    maxiter: Any = 100,
    callback: Any = None,
) -> Any:
    how = {"tolerances": tolerances, "maxiter": maxiter, "callback": callback}
    return _found(theirs.find_minimum, _slope, f, init, args, how)


def _found(original: Any, write: Any, f: Any, init: Any, args: Any, how: dict[str, Any]) -> Any:
    """The result of SciPy's `original`, differentiated as a zero of the F that `write` returns."""
    name = original.__name__
    given = [as_operand(x) if is_traced(x) else np.asarray(x) for x in as_tuple(args)]
    ends = [as_operand(x) if is_traced(x) else np.asarray(x, float) for x in init]
    shape = np.broadcast_shapes(*map(np.shape, (*ends, *given)))
    count = int(np.prod(shape))
    flat = [np.reshape(np.broadcast_to(x, shape), (count,)) for x in given]
    start = np.broadcast_to(example(ends[0]), shape).reshape(count)
    if not count:
        raise Untraced
    (watched,) = reaching([Callback(with_args(f, tuple(flat)), [start])], ends)
    if how["callback"] is not None:
        raise refusal(f"{HOME}.{name}(..., callback) can't be traced{at_line()}")

    def solver(fs: Sequence[Callable[..., Any]], values: Any) -> Any:
        numbers = np.arange(float(count)).reshape(shape)
        whole = (np.array(values[0], float) + np.zeros(shape)).reshape(count)
        found = original(_of_some(fs[0], whole), tuple(values), args=(numbers,), **how)
        x = np.asarray(found.x, float).reshape(count)
        told = [np.asarray(found[key], np.int64).reshape(count) for key in _COUNTS]
        return x, *told, ending(bool(np.all(found.success)))

    outside = SolverCall(name, solver, [watched], ends, at=(0,))
    if outside.state % 2:
        x, *told = outside.record(why=WHY)
    else:
        rule = outside.rule(write)
        x, *told = outside.record(Each(rule.tape, rule.further, rule.lead))
    at_root = outside.value(0, x, watched(outside.values[0]))
    fields = {key: np.reshape(n, shape)[()] for key, n in zip(_COUNTS, told, strict=True)}
    x, at_root = np.reshape(x, shape)[()], np.reshape(at_root, shape)[()]
    return Result({}, x=x, f_x=at_root, success=fields["status"] == 0, **fields)


def _zero(equations: Any, x: Any) -> Any:
    return equations.value(0, x)


def _slope(equations: Any, x: Any) -> Any:
    return equations.gradient(0, x)


_COUNTS = ("status", "nfev", "nit")


# ---- brackets, which are found by comparisons and so are piecewise constant


@stands_for(HOME, callbacks=True, parameters="maxiter", lists="args")
def bracket_root(
    f: Any,
    xl0: Any,
    xr0: Any = None,
    *,
    xmin: Any = None,
    xmax: Any = None,
    factor: Any = None,
    args: Any = (),
    maxiter: Any = 1000,
) -> Any:
    how = {"xr0": xr0, "xmin": xmin, "xmax": xmax, "factor": factor, "maxiter": maxiter}
    return _bracketed(theirs.bracket_root, f, xl0, args, how)


@stands_for(HOME, callbacks=True, parameters="maxiter", lists="args")
def bracket_minimum(
    f: Any,
    xm0: Any,
    *,
    xl0: Any = None,
    xr0: Any = None,
    xmin: Any = None,
    xmax: Any = None,
    factor: Any = None,
    args: Any = (),
    maxiter: Any = 1000,
) -> Any:
    how = {"xl0": xl0, "xr0": xr0, "xmin": xmin, "xmax": xmax, "factor": factor}
    return _bracketed(theirs.bracket_minimum, f, xm0, args, {**how, "maxiter": maxiter})


def _bracketed(original: Any, f: Any, first: Any, args: Any, how: dict[str, Any]) -> Any:
    """The bracket that SciPy's `original` finds from `first` on, and the values of f there."""
    name = original.__name__
    if is_traced((first, *how.values())):
        raise refusal(
            f"{HOME}.{name} from a traced point, or within traced bounds, can't be traced"
            f"{at_line()}. Use it from tapegrad.stop_gradient of that: what is found in the "
            "bracket doesn't depend on it"
        )
    given = [as_operand(x) if is_traced(x) else np.asarray(x) for x in as_tuple(args)]
    start = np.asarray(first, float)
    plain = [start, *[np.asarray(x) for x in how.values() if x is not None]]
    shape = np.broadcast_shapes(*map(np.shape, (*plain, *given)))
    count = int(np.prod(shape))
    flat = [np.reshape(np.broadcast_to(x, shape), (count,)) for x in given]
    whole = np.broadcast_to(start, shape).reshape(count)
    if not count:
        raise Untraced
    (watched,) = reaching([Callback(with_args(f, tuple(flat)), [whole])])

    def solver(fs: Sequence[Callable[..., Any]], values: Any) -> Any:
        numbers = np.arange(float(count)).reshape(shape)
        found = original(_of_some(fs[0], whole), start, args=(numbers,), **how)
        ends = [np.array(x, float).reshape(count) for x in found.bracket]
        told = [np.asarray(found[key], np.int64).reshape(count) for key in _COUNTS]
        return *ends, *told, ending(True)

    outside = SolverCall(name, solver, [watched])
    *ends, status, calls, rounds = outside.record(Constant(), visible=len(outside.values))
    known = zip(ends, outside.values[: len(ends)], strict=True)
    at_ends = [outside.value(0, x, watched(value)) for x, value in known]
    both = [tuple(np.reshape(x, shape)[()] for x in xs) for xs in (ends, at_ends)]
    told = zip(_COUNTS, (status, calls, rounds), strict=True)
    fields = {key: np.reshape(n, shape)[()] for key, n in told}
    success = fields["status"] == 0
    return Result({}, bracket=both[0], f_bracket=both[1], success=success, **fields)


def _of_some(f: Callable[..., Any], fill: Any) -> Callable[..., Any]:
    """A function for the elements that SciPy selects by number: the others have the values of
    `fill`. SciPy may request several points of one element in a call."""

    def some(x: Any, number: Any) -> Any:
        points, at = np.reshape(x, -1), np.asarray(number, int).reshape(-1)
        found, left = np.empty(np.shape(points)), np.arange(len(at))
        while len(left):
            _, first = np.unique(at[left], return_index=True)
            now, whole = left[first], fill.copy()
            whole[at[now]] = points[now]
            found[now] = np.asarray(f(whole))[at[now]]
            left = np.delete(left, first)
        return np.reshape(found, np.shape(x))

    return some
