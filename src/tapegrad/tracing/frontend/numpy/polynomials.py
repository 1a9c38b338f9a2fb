"""`np.poly1d` of traced coefficients, and NumPy's polynomial functions that accept it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.observe.answers.answers import declare, row_of
from tapegrad.observe.observer import unobserved
from tapegrad.tracing.frontend.numpy.undispatched import stacked
from tapegrad.tracing.tracers.tracer import Tracer


@functools.wraps(np.poly1d, updated=())
@unobserved
def poly1d(c_or_r: Any, *args: Any, **kwargs: Any) -> Any:
    return np.poly1d(stacked(c_or_r), *args, **kwargs)


def _holds_traced(args: Any) -> bool:
    """Whether an argument is a `poly1d` with traced coefficients."""
    return any(type(x) is np.poly1d and isinstance(x.coeffs, Tracer) for x in args)


def _may_hold_traced(args: Any) -> bool:
    return _holds_traced(args) or any(isinstance(x, (list, tuple)) for x in args)


def _of_polynomials(name: str) -> Callable[..., Any]:
    """A polynomial function for `poly1d` with traced coefficients, which returns one, too."""
    numpys = getattr(np, name)
    of_lists = getattr(row_of(numpys), "by", numpys)

    @functools.wraps(numpys)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        if not _holds_traced(args):
            return of_lists(*args, **kwargs)
        if name == "polyval" and type(args[1]) is np.poly1d:
            found = poly1d(0.0)
            for c in poly1d(args[0]).coeffs:
                found = found * args[1] + c
            return found
        found = numpys(*[x.coeffs if type(x) is np.poly1d else x for x in args], **kwargs)
        if name in ("polyval", "roots"):
            return found
        return tuple(map(poly1d, found)) if isinstance(found, tuple) else poly1d(found)

    return called


def declare_all() -> None:
    declare(np, "poly1d", poly1d, lists=True)
    for name in [
        "polyadd",
        "polyder",
        "polydiv",
        "polyint",
        "polymul",
        "polysub",
        "polyval",
        "roots",
    ]:
        declare(np, name, _of_polynomials(name), when=_may_hold_traced)
