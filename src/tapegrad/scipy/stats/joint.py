"""Distributions of vectors and matrices: their methods, and frozen ones.

Each distribution is a table: the name of SciPy's method -> a formula of the parameters.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
from scipy import stats
from scipy.stats import _multivariate as theirs

from tapegrad.extending import (
    Carrier,
    any_traced,
    at_line,
    declare_calls,
    declare_method,
    held_in,
    read,
    refusal,
    unobserved,
)
from tapegrad.extending.arrays import as_tracer, settle, stacked, unmade
from tapegrad.extending.runs import accepted
from tapegrad.scipy.refusing import DEFAULT
from tapegrad.scipy.stats.formulas import LOG_2PI
from tapegrad.scipy.stats.matrices import (
    invwishart_logpdf,
    wishart_entropy,
    wishart_logpdf,
    wishart_mean_of,
)
from tapegrad.scipy.stats.vectors import (
    dirichlet_cov,
    dirichlet_entropy,
    dirichlet_logpdf,
    multinomial_cov,
    multinomial_logpmf,
    multinomial_mean,
    normal_entropy,
    normal_logpdf,
    points,
    positive_vector,
    squeezed,
    t_logpdf,
)

Table = dict[str, Callable[..., Any]]


def _exp(logarithm: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(logarithm)
    def density(*args: Any, **kwargs: Any) -> Any:
        return np.exp(logarithm(*args, **kwargs))

    return density


TABLES: dict[str, Table] = {
    "multivariate_normal": {
        "logpdf": normal_logpdf,
        "pdf": _exp(normal_logpdf),
        "entropy": normal_entropy,
    },
    "multivariate_t": {"logpdf": t_logpdf, "pdf": _exp(t_logpdf)},
    "dirichlet": {
        "logpdf": dirichlet_logpdf,
        "pdf": _exp(dirichlet_logpdf),
        "mean": lambda alpha: squeezed(positive_vector(alpha) / np.sum(alpha)),
        "var": lambda alpha: np.diagonal(dirichlet_cov(alpha)),
        "cov": dirichlet_cov,
        "entropy": dirichlet_entropy,
    },
    "multinomial": {
        "logpmf": multinomial_logpmf,
        "pmf": _exp(multinomial_logpmf),
        "mean": multinomial_mean,
        "cov": multinomial_cov,
    },
    "wishart": {
        "logpdf": wishart_logpdf,
        "pdf": _exp(wishart_logpdf),
        "mean": lambda df, scale: wishart_mean_of(scale, df),
        "entropy": wishart_entropy,
    },
    "invwishart": {"logpdf": invwishart_logpdf, "pdf": _exp(invwishart_logpdf)},
}
_OF_FROZEN = {  # parameter -> attribute of SciPy's frozen distributions
    "multivariate_t": {"loc": "loc", "shape": "shape", "df": "df"},
    "dirichlet": {"alpha": "alpha"},
    "multinomial": {"n": "n", "p": "p"},
    "wishart": {"df": "df", "scale": "scale"},
    "invwishart": {"df": "df", "scale": "scale"},
}


def _given(args: Any, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The operands. Arrays are traced too, since their elements may change between calls."""
    args = [stacked(x) for x in args]
    kwargs = {key: stacked(x) for key, x in kwargs.items()}
    every = (*args, *kwargs.values())
    return [_traced(x, every) for x in args], {k: _traced(x, every) for k, x in kwargs.items()}


def _traced(x: Any, others: Any) -> Any:
    if isinstance(x, list | tuple):
        x = np.asarray(x)
    return as_tracer(x, *others) if isinstance(x, np.ndarray) else x


def _declare(name: str, table: Table) -> None:
    dist = getattr(stats, name)
    cls = type(dist)
    for method in _methods(cls):
        original = vars(cls)[method]
        if method in table:
            declare_method(cls, method, _answer(name, original, table[method]))
        else:
            declare_method(cls, method, _refusal(original, name))
    freeze = _freezing(name, cls)
    declare_calls(cls, freeze)
    declare_method(cls, "__call__", freeze)
    frozen: Any = getattr(theirs, f"{name}_frozen", None)
    for method in _methods(frozen):
        original = vars(frozen)[method]
        if method in table and len(inspect.signature(original).parameters) == 2:
            declare_method(frozen, method, _answer_frozen(name, original, table[method]))
        elif method not in table:
            declare_method(frozen, method, _refusal(original, name))


def _methods(cls: Any) -> list[str]:
    """The names of the public methods that a class defines itself."""
    if cls is None:
        return []
    return [name for name, x in vars(cls).items() if name[0] != "_" and inspect.isfunction(x)]


def _answer(name: str, original: Any, formula: Callable[..., Any]) -> Callable[..., Any]:
    shown = original.__name__
    signature, own = inspect.signature(original), inspect.signature(formula).parameters

    @functools.wraps(original)
    @unobserved
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = tuple(map(stacked, args)), {key: stacked(x) for key, x in kwargs.items()}

        def run() -> Any:
            bound = signature.bind(self, *args, **kwargs)
            _, given = _given((), {key: x for key, x in bound.arguments.items() if key in own})
            return settle(formula(**given), (), certain=False)

        return accepted(MethodType(original, self), args, kwargs, run, f"{name}.{shown}")

    return called


def _refusal(original: Any, name: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise refusal(
            f"{original.__name__} of scipy.stats.{name} can't be traced{at_line()}. {DEFAULT}"
        )

    return refused


class FrozenJoint(Carrier):
    """A frozen distribution of vectors or matrices with traced parameters. Its methods are those
    of the table."""

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        self._name, self._parameters = name, parameters

    def __getattr__(self, name: str) -> Any:
        table, parameters = TABLES[self._name], self._parameters
        if name.startswith("__"):
            raise AttributeError(name)
        if name in parameters and name not in table:
            return parameters[name]
        formula = table.get(name)
        if formula is None:
            raise refusal(
                f"{name} of a frozen scipy.stats.{self._name} with traced parameters can't be "
                f"traced{at_line()}. Call the method of scipy.stats.{self._name} with plain ones"
            )

        original = getattr(getattr(stats, self._name), name)
        own, theirs = (inspect.signature(f).parameters for f in (formula, original))

        @unobserved
        def called(*args: Any) -> Any:
            def run() -> Any:
                given, named = _given(args, {k: x for k, x in parameters.items() if k in own})
                return settle(formula(*given, **named), (), certain=False)

            named = {key: x for key, x in parameters.items() if key in theirs}
            return accepted(original, args, named, run, f"{self._name}.{name}")

        return called


def _freezing(name: str, cls: Any) -> Callable[..., Any]:
    original = vars(cls)["__call__"]
    signature = inspect.signature(original)

    @functools.wraps(original)
    @unobserved
    def freeze(dist: Any, *args: Any, **kwargs: Any) -> Any:
        if not any_traced((*args, *kwargs.values())):
            plain = {key: unmade(x) for key, x in kwargs.items()}
            return original(dist, *map(unmade, args), **plain)
        if name not in TABLES:
            raise refusal(
                f"scipy.stats.{name} of traced values can't be traced{at_line()}. {DEFAULT}"
            )
        bound = signature.bind(dist, *args, **kwargs)
        bound.apply_defaults()
        given = {k: x for k, x in bound.arguments.items() if k not in ("self", "seed", "kwds")}
        return FrozenJoint(name, {key: stacked(x) for key, x in given.items()})

    return freeze


def _answer_frozen(name: str, original: Any, formula: Callable[..., Any]) -> Callable[..., Any]:
    def followed(self: Any, x: Any) -> Any:
        if name == "multivariate_normal":
            found = _of_normal(self, x)
            found = np.exp(found) if original.__name__ == "pdf" else found
        else:
            names = _OF_FROZEN[name]
            parameters, noted = held_in(self, names.values())
            given, named = _given((x,), dict(zip(names, parameters, strict=True)))
            found = noted(formula(*given, **named))
        return settle(found, (), certain=False)

    @functools.wraps(original)
    @unobserved
    def called(self: Any, x: Any) -> Any:
        method, run = MethodType(original, self), lambda: followed(self, x)
        return accepted(method, (x,), {}, run, f"{name}.{original.__name__}", False)

    return called


def _of_normal(frozen: Any, x: Any) -> Any:
    """The log density by SciPy's frozen normal distribution, which holds the factored matrix."""
    read(frozen, "dim", "cov_object")
    of = frozen.cov_object
    read(of, "_rank")
    if not np.all(of.rank == frozen.dim) or not isinstance(of, theirs._covariance.CovViaPSD):
        raise refusal(
            f"logpdf of a frozen multivariate_normal whose matrix is singular, or a Covariance "
            f"object, can't be traced{at_line()}. Pass the matrix"
        )
    (mean,), noted = held_in(frozen, ["mean"])
    (root, log_pdet), noted_too = held_in(of, ["_LP", "_log_pdet"])
    (x, mean, root), _ = _given((x, mean, root), {})
    whitened = (points(x, frozen.dim) - mean) @ root
    distance = np.sum(whitened * whitened, axis=-1)
    found = squeezed(-0.5 * (frozen.dim * LOG_2PI + log_pdet + distance))
    return noted(noted_too(found))


for _name, _dist in vars(stats).items():
    if isinstance(_dist, theirs.multi_rv_generic):
        _declare(_name, TABLES.get(_name, {}))
