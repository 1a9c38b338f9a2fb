"""Global minima by scipy.optimize: differential_evolution, basinhopping, brute, ...

Each is a local minimum like those of `minimize`, and has its derivative. Which local minimum is
the least one is found again at each call.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import scipy.optimize as theirs

from tapegrad.extending import at_line, is_traced, refusal, stands_for
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.integrate.quadrature import inside
from tapegrad.scipy.optimize.constraints import Constraints
from tapegrad.scipy.optimize.minima import Bounded, minimum
from tapegrad.scipy.optimize.roots import example, reaching, with_args
from tapegrad.scipy.results import Untold

HOME = "scipy.optimize"


def _start(bounds: Any) -> np.ndarray:
    """A point between bounds."""
    if isinstance(bounds, theirs.Bounds):
        bounds = zip(*np.broadcast_arrays(bounds.lb, bounds.ub), strict=True)
    pairs = [(x.start, x.stop) if isinstance(x, slice) else tuple(x)[:2] for x in bounds]
    ends = [(-np.inf if a is None else a, np.inf if b is None else b) for a, b in pairs]
    return np.array([inside(float(example(a)), float(example(b))) for a, b in ends])


def _widely(name: str, between: str, asked: str = "") -> None:
    """Declare a global minimizer. `between` is the name of its bounds, and `asked` names
    parameters with which it computes something other than a minimum of this function."""
    original = getattr(theirs, name)
    form = inspect.signature(original)

    @functools.wraps(original)
    def answer(*args: Any, **kwargs: Any) -> Any:
        given = form.bind(*args, **kwargs).arguments
        func, further = given.pop("func"), given.pop("args", ())
        inner = dict(given.pop("minimizer_kwargs", None) or {})
        bounds = given.pop(between, None) if between else inner.pop("bounds", None)
        x0, jac = given.pop("x0", None), inner.get("jac")
        start = _start(bounds) if x0 is None else np.atleast_1d(example(x0))
        further = further if between else inner.pop("args", ())
        callbacks = [Callback(with_args(func, further), [start], 2 if jac is True else 1)]
        callbacks += [Callback(with_args(jac, further), [start])] if callable(jac) else []
        own, held = len(callbacks), Constraints(given.pop("constraints", None) or (), start)
        is_brute = name == "brute"
        limits = Bounded(None if is_brute else bounds, start.shape)
        reaching([*callbacks, *held.callbacks], x0, bounds)
        of_brute = given.pop("full_output", 0)
        for key in given.keys() & {"rng", "seed"}:
            if not isinstance(given[key], (int, np.integer, type(None))):
                raise refusal(
                    f"{HOME}.{name}(..., {key}=...) can't be traced{at_line()} with a generator, "
                    "which draws other numbers at each call. Pass a whole number"
                )
        for key, x in (given | inner).items():
            told = form.parameters[key].default if key in asked.split() else x
            if is_traced(x) or x is not told or (key == "finish" and x is None):
                raise refusal(
                    f"{HOME}.{name}(..., {key}=...) can't be traced{at_line()}, only without it"
                )

        def search(fs: Any, x: Any, at: Any, constraints: Any) -> Any:
            more, how = dict(inner), dict(given)
            if own > 1:
                more["jac"] = fs[1]
            how |= {"constraints": constraints} if held.parts else {}
            if not between:
                more |= {} if at is None else {"bounds": at}
                return original(fs[0], x, minimizer_kwargs=more, **how)
            how |= {} if x0 is None else {"x0": x}
            how |= {"minimizer_kwargs": more} if more else {}
            if not is_brute:
                return original(fs[0], at, **how)
            x, value, *_ = original(fs[0], at, full_output=True, **how)
            return theirs.OptimizeResult(x=np.atleast_1d(x), fun=value, success=True)

        both = [*callbacks, *held.callbacks]
        state = np.random.get_state()
        found = minimum(name, search, both, start if x0 is None else x0, bounds, limits, held, True)
        np.random.set_state(state)  # the tape draws the same numbers again
        untold = Untold(f"{HOME}.{name}")
        if is_brute:
            return (found.x, found.fun, untold, untold) if of_brute else found.x
        return found

    stands_for(HOME, name, True, lists=f"args constraints minimizer_kwargs {between}")(answer)


_widely("basinhopping", "", "callback")
_widely("brute", "ranges", "workers")
_widely("differential_evolution", "bounds", "callback integrality vectorized workers")
_widely("direct", "bounds", "callback")
_widely("dual_annealing", "bounds", "callback no_local_search")
_widely("shgo", "bounds", "callback workers")
