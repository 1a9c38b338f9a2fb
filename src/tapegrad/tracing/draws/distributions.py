"""Methods of random generators: which are followed, and how numbers of a distribution are computed
from standard ones and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.tracing.tracers.tracer import Tracer


def real(x: Any) -> Any:
    """A parameter in the precision that NumPy computes with."""
    if isinstance(x, Tracer):
        return x if x._weak or x.dtype == np.float64 else x.astype(np.float64)
    return x if type(x) in (int, float) else np.asarray(x, float)[()]


REQUIRED = object()


class Form(NamedTuple):
    """How numbers of a distribution are computed from standard ones: `formula(z, *parameters)`.
    Parameters that are `held` aren't passed to the formula, but to the draw itself."""

    parameters: tuple[tuple[str, Any], ...]
    standard: str
    formula: Callable[..., Any]
    positive: tuple[str, ...] = ()
    given: Callable[..., Sequence[Any]] = lambda held, moved: ()
    held: tuple[str, ...] = ()


def _at_zero_and_one(held: Any, moved: Any) -> tuple[float, float]:
    return 0.0, 1.0


def _shifted(z: Any, loc: Any, scale: Any) -> Any:
    return loc + scale * z


def _exponential(z: Any, mu: Any, sigma: Any) -> Any:
    """The result as `math.exp` returns it: a Python number."""
    x = mu + z * sigma
    if np.shape(x):
        float(np.ones(np.shape(x)))  # NumPy's own error, if it raises one
    return dispatch.number(np.exp(real(x)))


_LOCATED = (("loc", 0.0), ("scale", 1.0))
_SCALED = (("scale", 1.0),)
_A = (("a", REQUIRED),)

NUMPYS: dict[str, Form] = {
    "normal": Form(_LOCATED, "standard_normal", _shifted, ("scale",)),
    **{
        name: Form(_LOCATED, name, _shifted, ("scale",), _at_zero_and_one)
        for name in ("laplace", "logistic", "gumbel")
    },
    "uniform": Form(
        (("low", 0.0), ("high", 1.0)), "random", lambda z, low, high: low + (high - low) * z
    ),
    "exponential": Form(_SCALED, "standard_exponential", lambda z, s: s * z, ("scale",)),
    "rayleigh": Form(_SCALED, "rayleigh", lambda z, s: s * z, ("scale",), lambda h, m: (1.0,)),
    "lognormal": Form(
        (("mean", 0.0), ("sigma", 1.0)),
        "standard_normal",
        lambda z, mean, sigma: np.exp(mean + sigma * z),
        ("sigma",),
    ),
    "gamma": Form(
        (("shape", REQUIRED), *_SCALED),
        "standard_gamma",
        lambda z, s: s * z,
        ("scale",),
        lambda held, moved: held,
        ("shape",),
    ),
    "weibull": Form(_A, "standard_exponential", lambda z, a: z ** (1 / a), ("a",)),
    "pareto": Form(_A, "standard_exponential", lambda z, a: np.expm1(z / a), ("a",)),
    "power": Form(_A, "standard_exponential", lambda z, a: (-np.expm1(-z)) ** (1 / a), ("a",)),
    "multivariate_normal": Form(
        (("mean", REQUIRED), ("cov", REQUIRED)),
        "multivariate_normal",
        lambda z, mean: mean + z,
        given=lambda held, moved: (np.zeros(np.shape(moved[0])), held[0]),
        held=("cov",),
    ),
}

PYTHONS: dict[str, Form] = {
    **{
        name: Form((("mu", 0.0), ("sigma", 1.0)), name, _shifted, (), _at_zero_and_one)
        for name in ("gauss", "normalvariate")
    },
    "lognormvariate": Form(
        (("mu", 0.0), ("sigma", 1.0)),
        "normalvariate",
        _exponential,
        (),
        _at_zero_and_one,
    ),
    "uniform": Form((("a", REQUIRED), ("b", REQUIRED)), "random", lambda z, a, b: a + (b - a) * z),
    "expovariate": Form(
        (("lambd", 1.0),), "expovariate", lambda z, lambd: z / lambd, (), lambda h, m: (1.0,)
    ),
}

# Their results are new arrays or numbers, which depend on the arguments and the state alone.
_OF_NUMPYS = """
    beta binomial chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric
    integers laplace logistic lognormal logseries multinomial multivariate_hypergeometric
    multivariate_normal negative_binomial noncentral_chisquare noncentral_f normal pareto
    permutation permuted poisson power rand randint randn random random_integers random_sample
    ranf rayleigh sample standard_cauchy standard_exponential standard_gamma standard_normal
    standard_t tomaxint triangular uniform vonmises wald weibull zipf
"""
_OF_PYTHONS = """
    betavariate binomialvariate expovariate gammavariate gauss getrandbits lognormvariate
    normalvariate paretovariate randint random randrange triangular uniform vonmisesvariate
    weibullvariate
"""
WITH_OUT = {  # their parameters
    "random": ("size", "dtype", "out"),
    "standard_normal": ("size", "dtype", "out"),
    "standard_exponential": ("size", "dtype", "method", "out"),
    "standard_gamma": ("shape", "size", "dtype", "out"),
}
# Python-written methods of `random` that select or move the items of a list or an array.
OF_LISTS = frozenset(["choice", "choices", "sample", "shuffle"])
STATES = frozenset(["seed", "set_state", "setstate"])  # they return nothing


_FOLLOWED = {
    "numpy": frozenset([*_OF_NUMPYS.split(), *STATES]),
    "random": frozenset([*_OF_PYTHONS.split(), *STATES]),
}


def followed(generator: Any) -> frozenset[str]:
    return _FOLLOWED[type(generator).__module__.partition(".")[0]]


# Methods by which NumPy draws number by number, whatever the size; with their parameters.
ONE_BY_ONE: dict[str, tuple[str, ...]] = {
    "exponential": ("scale", "size"),
    "normal": ("loc", "scale", "size"),
    "random": ("size",),
    "random_sample": ("size",),
    "standard_exponential": ("size",),
    "standard_normal": ("size",),
    "uniform": ("low", "high", "size"),
}
