"""Distributions that stand in no table here: by the formulas that they are made of themselves.

A class of SciPy's or of the user's that derives from `rv_continuous` or `rv_discrete` says what its
density is, by `_pdf` or `_logpdf`, and maybe more. These are Python, and run on traced values. What
SciPy integrates or searches for where a class doesn't say it is refused. So is a formula of SciPy's
with a case of its own for one value of a shape, whose slope isn't the one beside it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dis import get_instructions
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from scipy import stats

from tapegrad.core.handlers import let_through
from tapegrad.scipy.declaring import refusal
from tapegrad.tracing.frontend import borrowing
from tapegrad.tracing.observe.observer import observed
from tapegrad.tracing.source import at_line

FORMULAS = ("cdf", "sf", "logcdf", "logsf", "ppf", "isf")
ADVICE = "Use the logarithm of its density, written in NumPy's functions"


def formulas_of(dist: Any) -> dict[str, Any]:
    """What a distribution's own class says of its standard form, and where it is defined: as SciPy
    asks for it, never beyond the ends."""
    base = stats.rv_discrete if isinstance(dist, stats.rv_discrete) else stats.rv_continuous
    density = "pmf" if base is stats.rv_discrete else "pdf"
    names = {"logpdf": f"_log{density}", "pdf": f"_{density}", **{x: f"_{x}" for x in FORMULAS}}
    domain = {"valid": "_argcheck", "support": "_get_support"}
    kind, own = type(dist), not type(dist).__module__.startswith("scipy.")
    said = dist if own else instance(dist)
    found: dict[str, Any] = {
        name: _formula(getattr(said, theirs), f"{dist.name}.{name}", name in names)
        for name, theirs in (names | domain).items()
        if getattr(kind, theirs) is not getattr(base, theirs)
        and (own or name in domain or not _cases(kind, theirs))
    }
    if base is stats.rv_continuous:
        is_open = kind._support_mask is base._open_support_mask
        found |= {"finite": True, "inside": True, "open": is_open}
    return found


def _cases(kind: type, name: str) -> bool:
    """Whether a method, or another one of its class that it calls, compares for equality."""
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
    """One of SciPy's distributions, whose methods run on traced values."""
    found: Any = object.__new__(borrowing.of_class(type(dist)))
    vars(found).update(vars(dist))
    return found


def _formula(method: Callable[..., Any], shown: str, is_along: bool) -> Callable[..., Any]:
    """A method, of operands that are rows of one length, as SciPy calls it. One along the axis is
    NaN at NaN."""

    def formula(*xs: Any) -> Any:
        shape = np.broadcast_shapes(*map(np.shape, xs))
        rows = [np.reshape(np.broadcast_to(x, shape), (-1,)) for x in xs]
        try:
            with observed():
                found = method(*rows)
        except Exception as error:
            let_through(error)
            raise refusal(f"{shown} can't be traced{at_line()}: {error}. {ADVICE}") from error
        if isinstance(found, tuple):
            return tuple(_restored(x, shape) for x in found)
        known = rows[0] == rows[0]
        return _restored(np.where(known, found, np.nan) if is_along else found, shape)

    return formula


def _restored(x: Any, shape: tuple[int, ...]) -> Any:
    return np.reshape(x, shape)[()] if np.ndim(x) else x
