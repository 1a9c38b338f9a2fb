"""Fixed points, with their derivatives by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.api import stop_gradient
from tapegrad.autograd.misc.flatten import flatten
from tapegrad.loops import while_loop
from tapegrad.scipy.optimize import roots

__all__ = ["fixed_point"]


def fixed_point(
    f: Callable[[Any], Callable[[Any], Any]],
    a: Any,
    x0: Any,
    distance: Callable[[Any, Any], Any],
    tol: float,
) -> Any:
    """The x with f(a)(x) = x, found by iterating x <- f(a)(x) from `x0` until the distance of two
    successive iterates is `tol` or less.

    Its derivative is that of the fixed point, (1 - F_x)^-1 F_a with F(a, x) = f(a)(x), and doesn't
    depend on the iteration, of which nothing is kept.
    """
    step = f(a)

    def near(pair: Any) -> Any:
        return distance(*pair) > tol

    last, _ = while_loop(near, lambda pair: (step(pair[0]), pair[0]), (step(x0), x0))
    flat, unflatten = flatten(stop_gradient(last))
    # The last iterate is accepted: the call of SciPy's function only supplies the equation's
    # derivative.
    found = roots.fixed_point(
        lambda x: flatten(step(unflatten(x)))[0], flat, xtol=np.inf, method="iteration"
    )
    return unflatten(found)
