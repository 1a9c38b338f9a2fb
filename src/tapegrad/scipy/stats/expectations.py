"""Expectations: `dist.expect(f)`, of SciPy's distributions and frozen ones.

For a continuous distribution it is the integral of f times the density, by `quad` over SciPy's
three ranges; for a discrete one it is the sum over the numbers whose probability isn't negligible
(`sums.py`).
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy.stats import _distn_infrastructure as theirs

from tapegrad.extending import (
    any_traced,
    as_called,
    at_line,
    declare_method,
    observed,
    refusal,
    unobserved,
)
from tapegrad.extending.arrays import Tracer, unmade
from tapegrad.extending.runs import library_code
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.integrate.quadrature import quad
from tapegrad.scipy.solver_calls import stopped
from tapegrad.scipy.stats.laws import Located, law_of, parameters_of, prepared
from tapegrad.scipy.stats.sums import terms

ADVICE = "Sum over the nodes of a quadrature, np.sum(w * f(x) * dist.pdf(x, *parameters))"


def _value(f: Any) -> Callable[[Any], Any]:
    return (lambda x: x) if f is None else as_called(f)


def _integral(of: Located, f: Any, lb: Any, ub: Any, conditional: bool, options: Any) -> Any:
    below, above = 0.0 if lb is None else of.cdf(lb), 1.0 if ub is None else of.cdf(ub)
    lb, ub = (_end(of, z) if x is None else x for x, z in ((lb, of.low), (ub, of.high)))
    inner = [stopped(of.ppf(below + (above - below) * part)) for part in (0.05, 0.95)]
    ends, value = [lb, *inner, ub], _value(f)
    parts = [
        quad(lambda x: value(x) * of.pdf(x), a, b, **options)[0]
        for a, b in itertools.pairwise(ends)
    ]
    total = sum(parts)
    return total / (above - below) if conditional else total


def _end(of: Located, z: Any) -> Any:
    """An end of the support, x = z scale + loc. An end that doesn't depend on the scale isn't
    traced through it."""
    still = not isinstance(z, Tracer) and (np.isinf(z) or z == 0.0)
    return (z if np.isinf(z) else of.loc) if still else z * of.scale + of.loc


def _given(x: Any) -> Any:
    """A bound, or None if it is infinite."""
    return None if x is None or (not isinstance(x, Tracer) and np.isinf(x)) else x


def _sum(of: Located, f: Any, lb: Any, ub: Any, conditional: bool) -> Any:
    k = terms(of, *[None if x is None else x - of.loc for x in (lb, ub)])
    total = np.sum((k + of.loc if f is None else library_code.followed(f, k + of.loc)) * of._pdf(k))
    if not conditional:
        return total
    between = k + 0.5 + of.loc  # halfway between numbers: safe from rounding
    return total / (of.sf(between[0] - 1.0) - of.sf(between[-1]))


def expected(
    dist: Any,
    func: Any = None,
    args: Any = (),
    loc: Any = 0,
    scale: Any = 1,
    lb: Any = None,
    ub: Any = None,
    conditional: bool = False,
    **options: Any,
) -> Any:
    """The result of `expect`, or None if neither the parameters nor `func` are traced."""
    others = [*args, loc, scale, *([] if lb is None else [lb]), *([] if ub is None else [ub])]
    if not any_traced(others):
        start = float(dist.median(*args, loc=loc))
        if func is None or not Callback(as_called(func), [start]).is_traced:
            return None
    if type(dist).expect not in (stats.rv_continuous.expect, stats.rv_discrete.expect):
        raise refusal(f"expect of scipy.stats.{dist.name} can't be traced{at_line()}. {ADVICE}")
    loc, scale, *shapes = prepared(loc, scale, *args)
    of = Located(law_of(dist, "expect"), shapes, loc, scale)
    lb, ub = _given(lb), _given(ub)
    if of.law.discrete:
        return _sum(of, func, lb, ub, conditional)
    return _integral(of, func, lb, ub, conditional, options)


def _answer(cls: Any, of_frozen: bool) -> None:
    original = cls.expect

    @functools.wraps(original)
    @unobserved
    def called(self: Any, *args: Any, **kwds: Any) -> Any:
        dist: Any = self
        done, given = lambda found: found, kwds
        if of_frozen:
            dist, (parameters, named, done) = self.dist, parameters_of(self)
            shapes, loc, scale = dist._parse_args(*parameters, **named)
            given = {**kwds, "args": shapes, "loc": loc, "scale": scale}
            given |= dict(zip(("func", "lb", "ub", "conditional"), args, strict=False))
        else:
            bound = inspect.signature(original).bind(self, *args, **kwds).arguments
            given = {**bound, **bound.pop("kwds", {})}
            given.pop("self", None)
        found = done(expected(dist, **given))
        if found is not None:
            return found
        with observed():
            return original(self, *map(unmade, args), **{k: unmade(x) for k, x in kwds.items()})

    declare_method(cls, "expect", called, always=True)


for _cls in (stats.rv_continuous, stats.rv_discrete):
    _answer(_cls, False)
_answer(theirs.rv_frozen, True)
