"""Elementwise primitives of `scipy.special` that everyday models need.

A primitive without a scalar expression (`None`) is evaluated by SciPy between the compiled
kernels. SciPy is imported when one of them is first evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Literal
from tapegrad.primitives.base import Elementwise, Parametric, broadcast_shapes
from tapegrad.primitives.elementwise import FUNCTION, exp, log, log1p, where

TWO_OVER_SQRT_PI = 1.1283791670955126


def _scipy(name: str) -> Callable[..., Any]:
    """The function of `scipy.special`, looked up at its first call: SciPy is slow to import."""

    def evaluate(*xs: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*xs)

    return evaluate


expit = Elementwise(
    "expit", _scipy("expit"), "expit({0})", lambda out, x: (out * (1 - out),), cost=FUNCTION
)
log_expit = Elementwise(
    "log_expit",
    _scipy("log_expit"),
    "-logaddexp(0.0, -{0})",
    lambda out, x: (expit(-x),),
    cost=2 * FUNCTION,
)
logit = Elementwise(
    "logit",
    _scipy("logit"),
    "log({0} / (1.0 - {0}))",
    lambda out, x: (1 / (x * (1 - x)),),
    cost=FUNCTION,
)
erf = Elementwise(
    "erf",
    _scipy("erf"),
    "erf({0})",
    lambda out, x: (exp(-(x * x)) * TWO_OVER_SQRT_PI,),
    cost=FUNCTION,
)
erfc = Elementwise(
    "erfc",
    _scipy("erfc"),
    "erfc({0})",
    lambda out, x: (exp(-(x * x)) * -TWO_OVER_SQRT_PI,),
    cost=FUNCTION,
)
gammaln = Elementwise(
    "gammaln",
    _scipy("gammaln"),
    "lgamma({0})",
    lambda out, x: (digamma(x),),
    cost=2 * FUNCTION,
)
digamma = Elementwise(
    "digamma",
    _scipy("digamma"),
    "",
    lambda out, x: (Polygamma(1)(x),),
    cost=4 * FUNCTION,
)


def _is_zero(x: Any) -> Any:
    return x.equals(0)


def _xlogy_vjp(ct: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    zero = Literal(ct.dtype.type(0))
    return ct * log(y), where(_is_zero(x), zero, ct * x / y)


def _xlogy_jvp(ts: Any, out: Any, x: Any, y: Any) -> Any:
    zero = Literal(out.dtype.type(0))
    terms = []
    if ts[0] is not None:
        terms.append(ts[0] * log(y))
    if ts[1] is not None:
        terms.append(where(_is_zero(x), zero, ts[1] * x / y))
    return terms[0] + terms[1] if len(terms) == 2 else terms[0] if terms else None


xlogy = Elementwise(
    "xlogy",
    _scipy("xlogy"),
    "xlogy({0}, {1})",
    vjp=_xlogy_vjp,
    jvp=_xlogy_jvp,
    cost=FUNCTION,
)


def _xlog1py_vjp(ct: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    zero = Literal(ct.dtype.type(0))
    return ct * log1p(y), where(_is_zero(x), zero, ct * x / (y + 1))


def _xlog1py_jvp(ts: Any, out: Any, x: Any, y: Any) -> Any:
    zero = Literal(out.dtype.type(0))
    terms = []
    if ts[0] is not None:
        terms.append(ts[0] * log1p(y))
    if ts[1] is not None:
        terms.append(where(_is_zero(x), zero, ts[1] * x / (y + 1)))
    return terms[0] + terms[1] if len(terms) == 2 else terms[0] if terms else None


xlog1py = Elementwise(
    "xlog1py",
    _scipy("xlog1py"),
    "xlog1py({0}, {1})",
    vjp=_xlog1py_vjp,
    jvp=_xlog1py_jvp,
    cost=FUNCTION,
)


@dataclass(frozen=True)
class Polygamma(Parametric):
    """The n-th derivative of digamma; its derivative is the next one."""

    order: int

    name = "polygamma"

    def aval(self, *xs: Aval) -> Aval:
        return Aval(broadcast_shapes(*[x.shape for x in xs]), xs[0].dtype)

    def evaluate(self, *xs: Any) -> Any:
        import scipy.special

        return np.asarray(scipy.special.polygamma(self.order, xs[0])).astype(xs[0].dtype)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return (ct * Polygamma(self.order + 1)(xs[0]),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else ts[0] * Polygamma(self.order + 1)(xs[0])
