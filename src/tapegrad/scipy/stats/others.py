"""Formulas of distributions that are in no table here: the methods of their own class.

A subclass of `rv_continuous` or `rv_discrete`, of SciPy or of the user, defines its density by
`_pdf` or `_logpdf`, and maybe more methods. These are Python, and run on traced values. A quantity
for which SciPy would integrate or search numerically is refused. So is a formula of SciPy's with a
branch for a single value of a shape, since the slope in that branch is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dis import get_instructions
from functools import cache, partial
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from scipy import stats

from tapegrad.extending import at_line, observed, refusal
from tapegrad.extending.runs import let_through, library_code

FORMULAS = ("cdf", "sf", "logcdf", "logsf", "ppf", "isf")
ADVICE = "Use the logarithm of its density, written in NumPy's functions"


def formulas_of(dist: Any) -> dict[str, Any]:
    """The formulas of the standard form that a distribution's class defines, and where they are
    valid: only inside the support, since SciPy never calls them beyond the ends."""
    base, kind = _base(dist), type(dist)
    density = "pmf" if base is stats.rv_discrete else "pdf"
    names = {"logpdf": f"_log{density}", "pdf": f"_{density}", **{x: f"_{x}" for x in FORMULAS}}
    own = not kind.__module__.startswith("scipy.")
    found: dict[str, Any] = {
        name: _formula(getattr(dist if own else instance(dist), theirs), f"{dist.name}.{name}")
        for name, theirs in names.items()
        if getattr(kind, theirs) is not getattr(base, theirs) and (own or not _cases(kind, theirs))
    }
    if base is stats.rv_continuous:
        is_open = kind._support_mask is base._open_support_mask
        found |= {"finite": True, "inside": True, "open": is_open}
    return found | domain_of(dist)


def _base(dist: Any) -> Any:
    return stats.rv_discrete if isinstance(dist, stats.rv_discrete) else stats.rv_continuous


def domain_of(dist: Any) -> dict[str, Callable[..., Any]]:
    """The class's formulas `valid` (of the domain of the shapes) and `support`, where it overrides
    the defaults."""
    base, kind = _base(dist), type(dist)

    @cache
    def said(theirs: str) -> Callable[..., Any]:
        own = not kind.__module__.startswith("scipy.")
        return getattr(dist if own else instance(dist), theirs)

    return {
        name: lambda *shapes, theirs=theirs: _called(said(theirs), shapes, f"{dist.name}.{theirs}")
        for name, theirs in (("valid", "_argcheck"), ("support", "_get_support"))
        if getattr(kind, theirs) is not getattr(base, theirs)
    }


def moments_of(dist: Any, known: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """SciPy's formulas for the moments and the entropy. If one moment is among the `known`
    formulas, SciPy's moments aren't used."""
    base, kind = _base(dist), type(dist)

    @cache
    def said(name: str, *first: int) -> Callable[..., Any]:
        """The method of the distribution's class, or a function that returns None if there is none
        that can be traced."""
        if getattr(kind, name) is getattr(base, name) or _cases(kind, name):
            return lambda *shapes: None
        method = getattr(instance(dist), name)
        named = {"moments": "mvsk"} if "moments" in inspect.signature(method).parameters else {}
        return _formula(partial(method, *first, **named), f"{dist.name}.{name}", is_along=False)

    def told(place: int, *shapes: Any) -> Any:
        found = said("_stats")(*shapes)
        return None if found is None else found[place]

    def mean(*shapes: Any) -> Any:
        found = told(0, *shapes)
        return said("_munp", 1)(*shapes) if found is None else found

    def var(*shapes: Any) -> Any:
        found = told(1, *shapes)
        square = said("_munp", 2)(*shapes) if found is None else None
        return found if square is None else square - mean(*shapes) ** 2

    def entropy(*shapes: Any) -> Any:
        return said("_entropy")(*shapes)

    moments: dict[str, Callable[..., Any]] = {"mean": mean, "var": var}
    moments |= {"skew": partial(told, 2), "kurtosis": partial(told, 3)}
    return {"entropy": entropy} | ({} if moments.keys() & set(known) else moments)


def _cases(kind: type, name: str) -> bool:
    """Whether a method, or one of its class that it calls, compares for equality."""
    codes, known = [inspect.unwrap(getattr(kind, name)).__code__], {name}
    while codes:
        code = codes.pop()
        if any(
            x.opname == "COMPARE_OP" and x.argval in ("==", "!=") for x in get_instructions(code)
        ):
            return True
        codes += [x for x in code.co_consts if isinstance(x, CodeType)]
        for called in {*code.co_names} & {*vars(kind)} - known:
            known.add(called)
            codes += [x.__code__ for x in [vars(kind)[called]] if isinstance(x, FunctionType)]
    return False


def instance(dist: Any) -> Any:
    """A copy of one of SciPy's distributions whose methods run on traced values."""
    found: Any = object.__new__(library_code.of_class(type(dist)))
    vars(found).update(vars(dist))
    return found


def _formula(method: Callable[..., Any], shown: str, is_along: bool = True) -> Callable[..., Any]:
    """A method as a formula. Its operands are broadcast to one row, as SciPy passes them. A
    formula along the axis is NaN at NaN."""

    def formula(*xs: Any) -> Any:
        shape = np.broadcast_shapes(*map(np.shape, xs))
        rows = [np.reshape(np.broadcast_to(x, shape), (-1,)) for x in xs]
        found = _called(method, rows, shown)
        if isinstance(found, (tuple, list)):
            return tuple(None if x is None else _restored(x, shape) for x in found)
        if is_along:
            found = np.where(rows[0] == rows[0], found, np.nan)
        return _restored(found, shape)

    return formula


def _called(method: Callable[..., Any], xs: Iterable[Any], shown: str) -> Any:
    try:
        with observed():
            return method(*xs)
    except Exception as error:
        let_through(error)
        raise refusal(f"{shown} can't be traced{at_line()}: {error}. {ADVICE}") from error


def _restored(x: Any, shape: tuple[int, ...]) -> Any:
    return np.reshape(x, shape)[()] if np.ndim(x) else np.broadcast_to(x, shape)[()]
