"""SciPy's optimisers of whole losses, on trees of parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.api import value_and_grad
from tapegrad.derivatives import hvp
from tapegrad.trees import flatten, tree_map

_WITH_PRODUCTS = frozenset(["newton-cg", "trust-ncg", "trust-krylov", "trust-constr"])


def minimise(
    loss: Callable[..., Any],
    params: Any,
    *args: Any,
    method: str = "L-BFGS-B",
    bounds: tuple[Any, Any] | None = None,
    **options: Any,
) -> Any:
    """`scipy.optimize.minimize` of a loss of nested parameters, with its exact gradient.

        fitted = minimise(loss, params, x, y)
        fitted.x          # a tree like params
        fitted.fun        # the loss there

    Parameters
    ----------
    loss : `loss(params, *args)`, a number.
    params : where to begin: a tree of arrays and floats, n numbers together.
    method : of `scipy.optimize.minimize`. Those that take products with the Hessian get exact ones.
    bounds : `(lower, upper)`, each a tree like `params`, or one number for all.
    options : what else SciPy's function takes (`tol=`, `options=`, `callback=`).

    Returns
    -------
    SciPy's `OptimizeResult`; `x` and `jac` are trees.
    """
    from scipy.optimize import Bounds, minimize

    start, back = flatten(params)
    derived, product = value_and_grad(loss), hvp(loss)

    def both(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, grads = derived(back(vector), *args)
        return float(value), flatten(grads)[0].astype(float)

    def times(vector: np.ndarray, direction: np.ndarray) -> np.ndarray:
        return flatten(product(back(vector), *args, back(direction)))[0].astype(float)

    if method.lower() in _WITH_PRODUCTS:
        options.setdefault("hessp", times)
    if bounds is not None:
        ends = [np.broadcast_to(_vector(end, params), start.shape) for end in bounds]
        options["bounds"] = Bounds(*ends)
    found = minimize(both, start.astype(float), jac=True, method=method, **options)
    found.x = back(found.x)
    if "jac" in found:
        found.jac = back(found.jac)
    return found


def _vector(end: Any, params: Any) -> Any:
    """A bound of each parameter: of a tree, the vector of its numbers, spread over the arrays."""
    if isinstance(end, (int, float)):
        return end
    return flatten(tree_map(lambda p, e: np.broadcast_to(e, np.shape(p)) + 0.0, params, end))[0]


lbfgs = functools.partial(minimise, method="L-BFGS-B")
conjugate_gradient = functools.partial(minimise, method="CG")
