"""The methods of SciPy's distributions, and frozen distributions.

`stats.norm.logpdf(x, loc, scale)` calls a method of `rv_continuous`, which all distributions
share; the object tells which distribution it is. A distribution frozen with traced parameters is
an object of ours. SciPy's frozen distributions have plain parameters, which guards compare at
later calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
from scipy import stats
from scipy.stats import _distn_infrastructure as theirs

from tapegrad.extending import (
    Carrier,
    any_traced,
    as_parameter,
    at_line,
    declare_calls,
    declare_method,
    observed,
    refusal,
    taken_by,
    unobserved,
)
from tapegrad.extending.arrays import Tracer, settle, stacked, unmade
from tapegrad.extending.primitives import Known
from tapegrad.extending.runs import accepted, library_code
from tapegrad.scipy.recomputed import constant
from tapegrad.scipy.refusing import advice_on
from tapegrad.scipy.stats.expectations import ADVICE, expected
from tapegrad.scipy.stats.laws import Located, is_known, law_of, parameters_of, prepared

ALONG = ["cdf", "sf", "logcdf", "logsf", "ppf", "isf"]  # methods of x or q
FROM_AXIS = {"cdf", "sf", "logcdf", "logsf", "pdf", "logpdf", "pmf", "logpmf"}
DENSITIES = {True: ("pmf", "logpmf"), False: ("pdf", "logpdf")}
WHOLE = ["median", "mean", "var", "std", "entropy", "support"]  # functions of the parameters alone
REFUSED = {
    "expect": ADVICE,
    "fit_loc_scale": "It is the data's mean and standard deviation, made to fit those of dist",
}


def located(dist: Any, method: str, args: Any, kwds: dict[str, Any], *xs: Any) -> Any:
    """The distribution as `Located`, followed by the further operands `xs`."""
    of = law_of(dist, method)
    shapes, loc, scale = dist._parse_args(*args, **kwds)
    loc, scale, *rest = prepared(loc, scale, *shapes, *xs)
    count = len(shapes)
    return Located(of, rest[:count], loc, scale), *rest[count:]


def ask(dist: Any, name: str, given: Any, args: Any, kwds: dict[str, Any]) -> Any:
    """The result of a method, from its own arguments `given` and the parameters."""
    parameters = (*args, *kwds.values())
    # SciPy's location and scale are arrays: x minus a float64 or int64 array is float64.
    if not any(map(_is_narrow, parameters if name in FROM_AXIS else (*given, *parameters))):
        return _by_formulas(dist, name, given, args, kwds)
    # SciPy computes these in their own precision: the value is SciPy's, the derivative the
    # formulas'.
    found = _by_formulas(dist, name, given, args, dict(kwds))
    args, kwds = spelled(name, given, args, kwds)
    theirs = constant(f"{dist.name}.{name}", getattr(dist, name), *args, **kwds)
    if isinstance(found, tuple):
        return tuple(map(_with_derivative, theirs, found))
    return _with_derivative(theirs, found)


def spelled(name: str, given: Any, args: Any, kwds: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments in the order in which the method takes them."""
    return (args, {"moments": given[0], **kwds}) if name == "stats" else ((*given, *args), kwds)


def _is_narrow(x: Any) -> bool:
    """Whether functions of x are computed in less than double precision."""
    dtype = getattr(x, "dtype", None)
    known = dtype is not None and dtype.kind in "biuf"
    return known and np.result_type(dtype, np.float16).itemsize < 8


def _with_derivative(value: Any, found: Any) -> Any:
    if not (isinstance(value, Tracer) and isinstance(found, Tracer)):
        return value
    return Known()(value, found)


def _by_formulas(dist: Any, name: str, given: Any, args: Any, kwds: dict[str, Any]) -> Any:
    if name in ("stats", "moment"):
        plain = [as_parameter(x) for x in given]
        return getattr(located(dist, name, args, kwds)[0], name)(*plain)
    found, *xs = located(dist, name, args, kwds, *given)
    return getattr(found, name)(*xs)


# ---- methods of distributions


def _answer(cls: Any, name: str, split: Callable[..., tuple[Any, Any, Any]]) -> None:
    """Declare the answer to a method. `split` separates its own arguments from the parameters."""

    original = getattr(cls, name)

    @functools.wraps(original)
    @unobserved
    def called(dist: Any, *args: Any, **kwds: Any) -> Any:
        args = tuple(map(stacked, args))
        kwds = {key: stacked(x) for key, x in kwds.items()}

        def run() -> Any:
            given, parameters, named = split(*args, **dict(kwds))
            return settle(ask(dist, name, given, parameters, named), parameters, certain=False)

        shown = f"{dist.name}.{name}"
        return accepted(MethodType(original, dist), args, kwds, run, shown)

    declare_method(cls, name, called)


def _first(key: str) -> Callable[..., tuple[Any, Any, Any]]:
    """A `split` for methods whose first argument is their own."""

    def split(*args: Any, **kwds: Any) -> tuple[Any, Any, Any]:
        if args:
            return args[:1], args[1:], kwds
        if key not in kwds:
            raise TypeError(f"missing 1 required positional argument: {key!r}")
        return (kwds.pop(key),), (), kwds

    return split


def _of_stats(*args: Any, **kwds: Any) -> tuple[Any, Any, Any]:
    """The `split` of `stats`: `moments` comes after the parameters."""
    if args and isinstance(args[-1], str):
        return args[-1:], args[:-1], kwds
    return (kwds.pop("moments", "mv"),), args, kwds


def _refuse(cls: Any, name: str, advice: str = "") -> None:
    @functools.wraps(getattr(cls, name))
    def refused(dist: Any, *args: Any, **kwds: Any) -> Any:
        raise refusal(
            f"{name} of scipy.stats.{dist.name} can't be traced{at_line()}. "
            + (advice or advice_on("scipy.stats", dist.name))
        )

    declare_method(cls, name, refused)


def _declare_methods() -> None:
    for cls in (stats.rv_continuous, stats.rv_discrete):
        discrete = cls is stats.rv_discrete
        for name in (*ALONG, *DENSITIES[discrete]):
            key = "q" if name in ("ppf", "isf") else "k" if discrete else "x"
            _answer(cls, name, _first(key))
    dists = [x for x in vars(stats).values() if isinstance(x, theirs.rv_generic)]
    for cls in {cls for x in dists for cls in type(x).__mro__}:
        for name in REFUSED.keys() & vars(cls).keys():
            if name != "expect" or cls not in (stats.rv_continuous, stats.rv_discrete):
                _refuse(cls, name, REFUSED[name])
        if cls.__module__.endswith("_distns") or "levy_stable" in cls.__module__:
            for name in {*ALONG, *DENSITIES[True], *DENSITIES[False]} & vars(cls).keys():
                _refuse(cls, name)
    splits = dict.fromkeys(WHOLE, lambda *args, **kwds: ((), args, kwds))
    splits |= {"interval": _first("confidence"), "moment": _first("order"), "stats": _of_stats}
    for cls in (theirs.rv_generic, stats.rv_continuous, stats.rv_discrete):
        for name in (
            splits.keys() & vars(cls).keys()
        ):  # rv_discrete has its own, too, from SciPy 1.18 on
            _answer(cls, name, splits[name])


# ---- frozen distributions


class Frozen(Carrier):
    """A frozen distribution with traced parameters, instead of SciPy's `rv_frozen`."""

    def __init__(self, dist: Any, args: tuple[Any, ...], kwds: dict[str, Any]) -> None:
        law_of(dist, "a frozen distribution")
        dist._parse_args(*args, **kwds)  # raises SciPy's own error
        self.dist, self.args, self.kwds = dist, args, kwds

    def _asked(self, name: str, *given: Any) -> Any:
        given, dist = tuple(map(stacked, given)), self.dist

        def run() -> Any:
            return settle(ask(dist, name, given, self.args, self.kwds), given, certain=False)

        args, kwds = spelled(name, given, self.args, self.kwds)
        return accepted(getattr(dist, name), args, kwds, run, f"{dist.name}.{name}")

    def __getattr__(self, name: str) -> Any:
        if name in REFUSED:
            raise refusal(
                f"{name} of a frozen distribution can't be traced{at_line()}. {REFUSED[name]}"
            )
        raise AttributeError(f"a frozen distribution has no attribute {name!r}")


def _expected(self: Frozen, func: Any = None, *given: Any, **named: Any) -> Any:
    shapes, loc, scale = self.dist._parse_args(*self.args, **self.kwds)
    return expected(self.dist, func, shapes, loc, scale, *given, **named)


def _of_frozen(name: str, parameters: str) -> Callable[..., Any]:
    """A method of `Frozen` that has the signature `(self, parameters)`."""
    text = f"lambda self, {parameters}: self._asked({name!r}, {_names(parameters)})"
    method: Any = unobserved(eval(text))
    method.notes = (Frozen,)
    return method


def _names(parameters: str) -> str:
    return ", ".join(p.partition("=")[0] for p in parameters.split(", ") if p)


_PARAMETERS = {
    **dict.fromkeys(WHOLE, ""),
    **dict.fromkeys(("cdf", "sf", "logcdf", "logsf", "pdf", "logpdf"), "x"),
    **dict.fromkeys(("ppf", "isf"), "q"),
    **dict.fromkeys(("pmf", "logpmf"), "k"),
    "stats": "moments='mv'",
    "moment": "order=None",
    "interval": "confidence=None",
}
for _name, _given in _PARAMETERS.items():
    setattr(Frozen, _name, _of_frozen(_name, _given))
Frozen.expect = unobserved(_expected)  # type: ignore[attr-defined]
Frozen.expect.notes = (Frozen,)  # type: ignore[attr-defined]


def _freeze(dist: Any, *args: Any, **kwds: Any) -> Any:
    if any_traced((*args, *kwds.values())):
        return Frozen(dist, tuple(map(stacked, args)), {k: stacked(x) for k, x in kwds.items()})
    return theirs.rv_generic.freeze(
        dist, *map(unmade, args), **{key: unmade(x) for key, x in kwds.items()}
    )


def _answer_frozen(cls: Any, name: str) -> None:
    original = getattr(cls, name)

    @functools.wraps(original)
    @unobserved
    def called(self: Any, *args: Any, **kwds: Any) -> Any:
        given, dist = (*map(stacked, args), *map(stacked, kwds.values())), self.dist
        if not is_known(dist) and not any_traced(given):
            with observed():
                return original(self, *args, **kwds)
        parameters, named, done = parameters_of(self)
        if not any_traced((*given, *parameters, *named.values())):
            noted = taken_by([*args, *kwds.values()])
            found = original(self, *args, **kwds)
            return noted(done(found))

        def run() -> Any:
            found = ask(dist, name, given, parameters, named)
            return settle(done(found), given, certain=False)

        return accepted(MethodType(original, self), args, kwds, run, f"{dist.name}.{name}", False)

    declare_method(cls, name, called, always=True)


def _declare_frozen() -> None:
    for name in _PARAMETERS:
        for cls in (theirs.rv_frozen, theirs.rv_continuous_frozen, theirs.rv_discrete_frozen):
            if name in vars(cls):
                _answer_frozen(cls, name)
    kinds = {type(x) for x in vars(stats).values() if isinstance(x, theirs.rv_generic)}
    freeze = unobserved(_freeze)
    for kind in kinds:
        declare_calls(kind, freeze)
    for name in ("__call__", "freeze"):
        declare_method(theirs.rv_generic, name, freeze)


library_code.know_objects(theirs.rv_generic)
_declare_methods()
_declare_frozen()
