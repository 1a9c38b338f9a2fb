"""Integrals over two variables by scipy.integrate: nquad, dblquad.

As in SciPy they are a `quad` whose integrand is the integral over the inner variable. Each level
finds intervals for its derivatives at each node of the outer level: over three variables that
would take half a minute, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import scipy.integrate as theirs

from tapegrad.extending import Untraced, as_called, at_line, observed, refusal, stands_for
from tapegrad.scipy.callbacks import Callback
from tapegrad.scipy.integrate.quadrature import inside, quad
from tapegrad.scipy.optimize.roots import as_tuple, call_untraced, example, reaching
from tapegrad.scipy.results import Untold

HOME = "scipy.integrate"
MAX_VARIABLES = 2
BEYOND = (
    "Sum over the nodes of Gauss' rule in each variable, as numpy.polynomial.legendre.leggauss "
    "gives them"
)


def _called(f: Any) -> Callable[..., Any]:
    """A range or options as a function; they may be given as plain values."""
    return as_called(f) if callable(f) else lambda *xs: f


@stands_for(HOME, callbacks=True, parameters="full_output", lists="ranges args opts")
def nquad(
    func: Any, ranges: Any, args: Any = None, opts: Any = None, full_output: Any = False
) -> Any:
    given = () if args is None else as_tuple(args)
    each = opts if isinstance(opts, (list, tuple)) else [opts or {}] * len(ranges)
    limits, options = [_called(x) for x in ranges], [_called(x) for x in each]
    start: list[Any] = []
    ends: list[Any] = []
    for limit in reversed(limits):
        with observed():
            ends.append(limit(*start, *given))
        start.insert(0, inside(*[float(example(x)) for x in ends[-1]]))
    reaching([Callback(lambda *xs: as_called(func)(*xs, *given), start)], ends)
    if len(ranges) > MAX_VARIABLES:
        raise refusal(
            f"scipy.integrate.nquad over {len(ranges)} variables can't be traced{at_line()}, only "
            f"over {MAX_VARIABLES}. {BEYOND}"
        )
    value = _integral(as_called(func), limits, options, given)()
    untold = Untold("scipy.integrate.nquad")
    return (value, untold, untold) if full_output else (value, untold)


def _integral(
    f: Callable[..., Any],
    limits: Sequence[Callable[..., Any]],
    options: Sequence[Callable[..., Any]],
    given: tuple[Any, ...],
) -> Callable[..., Any]:
    """The integral over the variables of `limits`, innermost first, as a function of the outer
    ones."""
    if not limits:
        return lambda *xs: f(*xs, *given)
    *inner_limits, limit = limits
    *inner_options, option = options
    inner = _integral(f, inner_limits, inner_options, given)

    def integral(*xs: Any) -> Any:
        low, high = limit(*xs, *given)
        how = dict(option(*xs, *given))
        if "points" in how:
            how["points"] = [x for x in how["points"] if low <= x <= high]
        try:
            return quad(lambda x: inner(x, *xs), low, high, **how)[0]
        except Untraced:
            return call_untraced(theirs.quad, lambda x: inner(x, *xs), low, high, **how)[0]

    return integral


@stands_for(HOME, callbacks=True, lists="args")
def dblquad(
    func: Any,
    a: Any,
    b: Any,
    gfun: Any,
    hfun: Any,
    args: Any = (),
    epsabs: Any = 1.49e-8,
    epsrel: Any = 1.49e-8,
) -> Any:
    low, high = _called(gfun), _called(hfun)
    ranges = [lambda *xs: [low(xs[0]), high(xs[0])], [a, b]]
    return nquad(func, ranges, args=args, opts={"epsabs": epsabs, "epsrel": epsrel})
