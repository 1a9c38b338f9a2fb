"""Random numbers of SciPy's distributions.

They are drawn by the same calls of the generator as in SciPy, so the numbers are SciPy's; each
call of a gradient draws again (`tracing/frontend/python/draws.py`). Derivatives along the location
and the scale are exact. Derivatives along a shape exist where SciPy's algorithm is a formula in
it; elsewhere a traced shape is refused.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy._lib._util import check_random_state
from scipy.stats import _distn_infrastructure as theirs

from tapegrad.errors import UnsupportedError
from tapegrad.extending import (
    any_traced,
    as_parameter,
    at_line,
    declare_method,
    observed,
    unobserved,
)
from tapegrad.extending.arrays import Tracer, as_tracer, dispatch, stacked, unmade
from tapegrad.extending.runs import following, is_generator, randomness
from tapegrad.scipy.stats.laws import Law, Located, law_of, parameters_of, prepared
from tapegrad.scipy.stats.methods import Frozen
from tapegrad.scipy.stats.others import instance


class Stream:
    """A generator whose draws are recorded."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def __getattr__(self, name: str) -> Callable[..., Any]:
        here, generator = following.observer, self._generator
        method = getattr(generator, name)
        if here is None or not here.is_outside(generator) or not is_generator(generator):
            return method
        return functools.partial(dispatch.draw, here, generator, method)


def _stream(dist: Any, random_state: Any) -> Stream:
    """The generator from which SciPy would draw."""
    if isinstance(random_state, Stream):  # one distribution's _rvs calls another's
        return random_state
    if random_state is not None:
        return Stream(check_random_state(random_state))
    here = following.observer
    if here is not None:
        here.looked_up(dist, "_random_state")
    return Stream(dist._random_state)


# Distributions whose `_rvs` draws from the generator and then applies a formula of the shapes.
_BY_FORMULA = """uniform beta gamma erlang chi2 chi gengamma nakagami maxwell rayleigh halfnorm
    foldnorm lognorm gibrat expon norm t laplace logistic skewnorm exponnorm loggamma f binom
    bernoulli nbinom poisson geom logser zipf"""


def _formula(dist: Any) -> Callable[..., Any] | None:
    """The function that draws standardized numbers, `f(rng, size, *shapes)`; None if there is
    none. Where SciPy has no better algorithm, it is `ppf` of uniform numbers."""
    law: Law = law_of(dist, "rvs")
    if law.name in _BY_FORMULA.split():
        drawn = instance(dist)._rvs
        return lambda rng, size, *shapes: drawn(*shapes, size=size, random_state=rng)
    if type(dist)._rvs is not theirs.rv_generic._rvs or law.ppf is None:
        return None
    ppf = law.ppf
    return lambda rng, size, *shapes: ppf(rng.uniform(size=size), *shapes)


def _rvs(dist: Any, *args: Any, **kwds: Any) -> Any:
    args = tuple(map(stacked, args))
    kwds = {key: stacked(x) for key, x in kwds.items()}
    given = dict(kwds)
    random_state, discrete = given.pop("random_state", None), isinstance(dist, stats.rv_discrete)
    formula = _formula(dist) if type(dist).rvs in _GENERIC else None
    if formula is None:
        return _by_scipy(type(dist).rvs, dist, args, kwds)
    passed = inspect.signature(dist._parse_args_rvs).bind(*args, **given)
    asked = as_parameter(passed.arguments.pop("size", None))  # also as the last positional argument
    shapes, loc, scale = dist._parse_args(*passed.args, **passed.kwargs)
    *shapes, loc, scale = (_leading(x) for x in (*shapes, loc, scale))
    stand_ins = [np.broadcast_to(0.0, np.shape(x)) for x in (*shapes, loc, scale)]
    size = dist._argcheck_rvs(*stand_ins, size=asked)[3]
    if not np.all(scale >= 0) or not np.all(_valid(dist, shapes)):
        raise ValueError(
            "Domain error in arguments. The `scale` parameter must be positive for all "
            "distributions, and many distributions have restrictions on shape parameters. Please "
            f"see the `scipy.stats.{dist.name}` documentation for details."
        )
    z = formula(_stream(dist, random_state), size, *shapes)
    others = [x for x in (z, loc, scale) if isinstance(x, Tracer)]
    loc, scale = (as_tracer(x, *others) if others else x for x in (loc, scale))
    found = z * scale + loc
    if not discrete:
        return found
    if isinstance(found, Tracer) or np.ndim(found):
        return found.astype(np.int64)
    return int(found)


def _leading(x: Any) -> Any:
    """A parameter without its leading axes of length 1, as SciPy takes it."""
    x = x if isinstance(x, Tracer) else np.asarray(x)
    while x.ndim and x.shape[0] == 1:
        x = x[0]
    return x


def _valid(dist: Any, shapes: Any) -> Any:
    if any_traced(shapes):
        return Located(law_of(dist, "rvs"), prepared(*shapes), 0.0, 1.0).valid
    return dist._argcheck(*shapes)


def _by_scipy(original: Any, self: Any, args: Any, kwds: Any) -> Any:
    if any_traced((*args, *kwds.values())):
        raise _refused(self)
    with observed():
        return original(self, *map(unmade, args), **{key: unmade(x) for key, x in kwds.items()})


def _refused(dist: Any) -> Exception:
    name = getattr(dist, "name", type(dist).__name__)
    return UnsupportedError(
        f"rvs of scipy.stats.{name} with traced parameters can't be traced{at_line()}. What it "
        "draws is accepted and rejected by them: where they are constants for derivatives, draw "
        "outside of the function and pass the numbers in; else use the derivative of the log "
        "density"
    )


def _refuse(dist: Any, *args: Any, **kwds: Any) -> Any:
    raise _refused(dist)


def _answer(cls: Any) -> None:
    @functools.wraps(cls.rvs)
    @unobserved
    def rvs(dist: Any, *args: Any, **kwds: Any) -> Any:
        return _rvs(dist, *args, **kwds)

    _declare(cls, rvs)


def _declare(cls: Any, answer: Any) -> None:
    """Declare `rvs`. A draw reads and changes the generator's state, so its class is noted."""
    declare_method(cls, "rvs", answer, always=True)
    answer.notes = (cls, *randomness.kinds())


_GENERIC = (theirs.rv_generic.rvs, stats.rv_discrete.rvs)


def _of_frozen(self: Any, size: Any = None, random_state: Any = None) -> Any:
    """`rvs` of frozen distributions, SciPy's and ours."""
    if isinstance(self, Frozen):
        return _rvs(self.dist, *self.args, **self.kwds, size=size, random_state=random_state)
    args, kwds, done = parameters_of(self)
    return done(_rvs(self.dist, *args, **kwds, size=size, random_state=random_state))


_answer(theirs.rv_generic)
_answer(stats.rv_discrete)
for _cls in {type(x) for x in vars(stats).values() if isinstance(x, theirs.rv_generic)}:
    if "rvs" in vars(_cls):
        declare_method(_cls, "rvs", _refuse)
_declare(theirs.rv_frozen, unobserved(_of_frozen))
_own: Any = unobserved(_of_frozen)
_own.notes = (Frozen, *randomness.kinds())
Frozen.rvs = _own  # type: ignore[attr-defined]
