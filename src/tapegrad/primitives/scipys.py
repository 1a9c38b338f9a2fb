"""Functions of `scipy.special` that SciPy evaluates, between the compiled kernels.

SciPy is imported when one of them is first evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.ir.tape import Call
from tapegrad.primitives.base import Elementwise, Kink, Missing, Node
from tapegrad.primitives.elementwise import FUNCTION, AsType, log, log1p, logical_and, trunc, where


def named(function: str, partials: Sequence[Any]) -> list[Any]:
    """The partials, with messages for the missing ones: the function, the argument and a remedy."""
    return [
        Missing(
            f"{function} has no derivative with respect to {x.message} here. Write a function that "
            "calls it, declare that with tapegrad.primitive, and give it a rule by defvjp, by "
            "differences of its values if need be"
        )
        if isinstance(x, Missing)
        else x
        for x in partials
    ]


def _as(dtype: Any, x: Any) -> Any:
    return x if x.dtype == dtype else AsType(np.dtype(dtype))(x)


def _widened(x: Any) -> Any:
    return x if x.dtype.kind in "biu" else _as(np.result_type(x.dtype, np.float64), x)


class InDouble(Elementwise):
    """An elementwise function whose derivatives are computed in double precision, then rounded,
    since the formulas overflow and cancel in single precision. SciPy does the same with values."""

    def __init__(
        self, function: Any, partials: Any = None, *, kink: Kink | None = None, **how: Any
    ) -> None:
        kink = kink and replace(kink, rule=self._precise_rule(kink.rule))
        super().__init__(function, partials and self._precise(partials), kink=kink, **how)

    def _precise(self, partials: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        def precise(out: Any, *xs: Any) -> Sequence[Any]:
            if out.dtype == np.result_type(out.dtype, np.float64):
                return partials(out, *xs)
            wide = {x.operand: _widened(x) for x in xs}  # one node for equal operands
            doubles = [wide[x.operand] for x in xs]
            found = partials(self(*doubles), *doubles)
            return [_as(out.dtype, x) if isinstance(x, Node) else x for x in found]

        precise.__wrapped__ = partials  # type: ignore[attr-defined]
        return precise

    def _precise_rule(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The same for a rule through a kink, of one operand."""

        def precise(directions: Any, ct: Any, out: Any, x: Any) -> Sequence[Any]:
            if out.dtype == np.result_type(out.dtype, np.float64):
                return rule(directions, ct, out, x)
            wide = _widened(x)
            sides = type(directions)(map(_widened, directions))
            (found,) = rule(sides, _widened(ct), self(wide), wide)
            return (_as(out.dtype, found),)

        return precise


class SciPys(InDouble):
    """An elementwise function of `scipy.special`, with the derivatives that are known.

    It is called by `text`, or by its name. `partials(out, *xs)` are those of `Elementwise`. One of
    them may be `Missing(argument)`: this derivative isn't known, and an error if it is needed. All
    operands but the last may be integers. The result has the last one's dtype.
    """

    def __init__(
        self,
        name: str,
        partials: Callable[..., Sequence[Any]] | None = None,
        text: str = "",
        cost: int = 4 * FUNCTION,
        of_complex: bool = False,
    ) -> None:
        self._text = f"scipy.special.{text or name}"
        self._call: Any = None
        known = self._text.partition("(")[0]
        rule = None if partials is None else lambda out, *xs: named(known, partials(out, *xs))
        super().__init__(
            self._evaluated, rule, name=name, scalar="", cost=cost, of_complex=of_complex
        )

    def _evaluated(self, *xs: Any) -> Any:
        if self._call is None:
            import scipy.special

            names = [f"x{k}" for k in range(len(xs))]
            body = self._expression(names)
            self._call = eval(f"lambda {', '.join(names)}: {body}", {"scipy": scipy})
        return self._call(*xs)

    def _expression(self, xs: Sequence[str]) -> str:
        text = self._text
        return text.format(*xs) if "(" in text else f"{text}({', '.join(xs)})"

    def numpy_text(self, outs: Sequence[str], xs: Sequence[str], call: Call) -> list[str]:
        return [f"{outs[0]} = {self._expression(xs)}"]


def as_real(n: Any, x: Any) -> Any:
    """An operand in the dtype of `x`."""
    return n if n.dtype == x.dtype else AsType(x.dtype)(n)


def whole(n: Any, x: Any) -> Any:
    """The integer part of an order, as SciPy takes it."""
    return trunc(as_real(n, x))


def near(x: Any, reach: float, series: Sequence[float], formula: Callable[[Any], Any]) -> Any:
    """`formula(x)`, but its power series for |x| < reach, where the formula is inaccurate. Neither
    is evaluated outside of its range, so that derivatives of any order are right."""
    small = logical_and(x < reach, x > -reach)
    inner = where(small, x, x.constant(0))
    total = x.constant(0)
    for coefficient in reversed(series):
        total = total * inner + coefficient
    return where(small, total, formula(where(small, x.constant(2 * reach), x)))


def tail(
    x: Any,
    reach: float,
    u: Callable[[Any], Any],
    series: Sequence[float],
    factor: Any,
    formula: Any,
) -> Any:
    """`formula`, but for |x| > reach, where it cancels, a factor times a power series in u(x)."""
    inside = logical_and(x <= reach, x >= -reach)
    small, total = u(where(inside, x.constant(2 * reach), x)), x.constant(0)
    for coefficient in reversed(series):
        total = total * small + coefficient
    return where(inside, formula, total * factor)


def ratio(y: Any, x: Any, at_0: Any) -> Any:
    """y / x, but `at_0` where x is 0."""
    nothing = x.equals(0)
    limit = at_0 if hasattr(at_0, "aval") else x.constant(at_0)
    return where(nothing, limit, y / where(nothing, x.constant(1), x))


def log_ratio(u: Any, s: Any) -> Any:
    """log(u / s)."""
    close = logical_and(u < s * 1.5, u > s * 0.5)
    return where(
        close,
        log1p((where(close, u, s) - s) / s),
        log(where(close, s, u) / s),
    )
