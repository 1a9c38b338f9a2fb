"""Parameters that are fitted to data: `dist.fit(data)`.

Where SciPy has a formula or an equation for a distribution, its code is run on traced values. For
other distributions SciPy minimizes -sum(log(pdf(data))). The minimum is differentiated as a zero
of the gradient of that sum.
"""

from __future__ import annotations

import inspect
from types import MethodType
from typing import Any

import numpy as np
from scipy import stats
from scipy.stats import _distn_infrastructure as theirs

from tapegrad.extending import any_traced, as_called, at_line, declare_method, refusal, unobserved
from tapegrad.extending.arrays import stacked
from tapegrad.extending.runs import accepted, aside, library_code
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.optimize.constraints import slopes_of
from tapegrad.scipy.optimize.roots import ending, example
from tapegrad.scipy.solver_calls import Equations, SolverCall
from tapegrad.scipy.stats.others import instance

FLAT = 1e-2  # how large a slope of a datum's part of the sum may be, where a parameter moves by 1
WHY = (
    "the slope of the likelihood isn't 0 at what was found: a parameter is at the end of what the "
    "data allow. Fix that one, such as by floc=0"
)


def _names(dist: Any) -> list[set[str]]:
    """For each parameter, the keywords that fix it."""
    shapes = (dist.shapes or "").replace(",", " ").split()
    fixed = [{f"f{k}", f"f{name}", f"fix_{name}"} for k, name in enumerate(shapes)]
    return [*fixed, {"floc"}, {"fscale"}]


def _most_likely(made: Any, data: Any, *args: Any, **kwds: Any) -> Any:
    """SciPy's search for the maximum of the likelihood. It runs on plain values; the result is
    differentiated implicitly."""
    dist, data = made.theirs, np.ravel(data)
    keys = [next(iter(names & kwds.keys()), None) for names in _names(dist)]
    free = [k for k, key in enumerate(keys) if key is None]
    given: dict[Any, Any] = {**dict(enumerate(args)), **kwds}
    moving = [key for key, x in given.items() if any_traced([x])]
    lead = [data, *[given[key] for key in moving]]

    def found(values: Any) -> tuple[Any, ...]:
        plain = given | dict(zip(moving, values[1:], strict=True))
        starts = [plain.pop(k) for k in range(len(args))]
        return tuple(dist.fit(values[0], *starts, **plain))

    def cost(x: Any) -> Any:
        """-sum(log(pdf(data)))"""
        rest = iter(x)
        parameters = [next(rest) if key is None else kwds[key] for key in keys]
        return -np.sum(as_called(dist.logpdf)(data, *parameters))

    def solver(fs: Any, values: Any) -> Any:
        parameters = np.array(found(values), float)
        x, scale = parameters[free], parameters[-1]
        size = np.maximum(np.abs(parameters), 0.1)
        size[-2:] = scale
        slope = np.ravel(slopes_of(callback, fs[0], x))
        flat = np.abs(slope) * size[free] <= FLAT * np.size(values[0])
        return x, ending(bool(np.all(flat)))

    with aside():
        start = np.array(found(list(map(example, lead))), float)[free]
    callback = Callback(cost, [start])
    outside = SolverCall(f"{dist.name}.fit", solver, [callback], lead, at=(0,))

    def write(equations: Equations, x: Any) -> Any:
        return equations.gradient(0, x)

    rule = {"why": WHY} if outside.state % 2 else {"rule": outside.rule(write)}
    (x,) = outside.record(**rule)
    rest = iter(x)
    return tuple([next(rest) if key is None else kwds[key] for key in keys])


def _nnlf(made: Any, theta: Any, x: Any) -> Any:
    """-sum(log(pdf(x)))"""
    if np.any(theta[-1] <= 0):
        return np.inf
    return -np.sum(as_called(made.theirs.logpdf)(x, *theta))


library_code.know({stats.rv_continuous.fit: _most_likely, theirs.rv_generic.nnlf: _nnlf})


def _declare(cls: Any) -> None:
    original = cls.fit
    library_code.know_converting(inspect.unwrap(original))

    @unobserved
    def answer(dist: Any, *args: Any, **kwds: Any) -> Any:
        args, kwds = tuple(map(stacked, args)), {key: stacked(x) for key, x in kwds.items()}
        if str(kwds.get("method", "mle")).lower() == "mm":
            raise refusal(
                f"fit(..., method='MM') of scipy.stats.{dist.name} can't be traced{at_line()}, "
                "only 'MLE'"
            )
        if args and np.ndim(args[0]) != 1:
            raise refusal(
                f"fit of scipy.stats.{dist.name} can't be traced{at_line()} of data along several "
                "axes. Pass data.ravel()"
            )
        made = instance(dist)
        made.theirs = dist
        own = MethodType(original, dist)
        return accepted(own, args, kwds, lambda: made.fit(*args, **kwds), f"{dist.name}.fit")

    declare_method(cls, "fit", answer)


_dists = [x for x in vars(stats).values() if isinstance(x, theirs.rv_generic)]
for _cls in {cls for x in _dists for cls in type(x).__mro__ if "fit" in vars(cls)}:
    _declare(_cls)
