"""SciPy's minimisers on trees of parameters."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tapegrad.api import value_and_grad
from tapegrad.derivatives import hvp
from tapegrad.errors import ArgumentError
from tapegrad.optim.fitting import bar
from tapegrad.optim.journal import Journal
from tapegrad.trees import flatten, tree_map
from tapegrad.typing import Compile

_WITH_PRODUCTS = frozenset(["newton-cg", "trust-ncg", "trust-krylov", "trust-constr"])
_WITH_HESSIANS = frozenset(["dogleg", "trust-exact"])


def minimise(
    loss: Callable[..., Any],
    params: Any,
    *args: Any,
    method: str = "L-BFGS-B",
    bounds: tuple[Any, Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **options: Any,
) -> Any:
    """`scipy.optimize.minimize` of a loss of nested parameters, with its exact gradient.

        fitted = minimise(loss, params, x, y)
        fitted.x          # a tree like params
        fitted.fun        # the loss there

    Parameters
    ----------
    loss : `loss(params, *args)`, a number.
    params : the start: a tree of arrays and floats, with n numbers in total.
    method : a method of `scipy.optimize.minimize`. Methods that take Hessian-vector products get
        exact ones; "dogleg" and "trust-exact" get the Hessian, computed by n products.
    bounds : `(lower, upper)`, each a tree like `params`, or one number for all.
    checkpoint : a file, to which each value, gradient and product is appended. A killed run that is
        started again continues from it, bit for bit: SciPy is given the known answers. The last
        known answer is computed again, and it is an error if it differs.
    progress : show a progress bar (tqdm) of the evaluations, with the loss.
    options : other arguments of SciPy's function (`tol=`, `options=`, `callback=`).

    Returns
    -------
    SciPy's `OptimizeResult`; `x` and `jac` are trees (for "trust-constr": `x` and `grad`).
    """
    compile: Compile = "always" if checkpoint is not None else None
    derived, product = value_and_grad(loss, compile=compile), hvp(loss, compile=compile)
    run = Minimisation(method, bounds, checkpoint, progress, options)
    return run.found(derived, product, params, args)


class Minimisation(NamedTuple):
    """The settings of a minimisation, independent of the place where the loss is computed."""

    method: str
    bounds: tuple[Any, Any] | None
    checkpoint: str | os.PathLike[str] | None
    progress: bool
    options: dict[str, Any]

    def found(
        self,
        derived: Callable[..., Any],
        product: Callable[..., Any],
        params: Any,
        args: tuple[Any, ...],
    ) -> Any:
        """SciPy's result, from a loss's value and gradient, and its Hessian-vector products."""
        from scipy.optimize import Bounds, minimize

        start, back = flatten(params)
        options = dict(self.options)

        def both(vector: np.ndarray) -> np.ndarray:
            value, grads = derived(back(vector), *args)
            return np.append(float(value), flatten(grads)[0].astype(float))

        def times(vector: np.ndarray, direction: np.ndarray) -> np.ndarray:
            return flatten(product(back(vector), *args, back(direction)))[0].astype(float)

        def hessian(vector: np.ndarray) -> np.ndarray:
            return np.stack([times(vector, unit) for unit in np.eye(start.size)])

        with contextlib.ExitStack() as stack:
            if self.checkpoint is not None:
                journal = Journal(self.checkpoint, {"method": self.method, "numbers": start.size})
                stack.callback(journal.close)
                both = journal.kept(both, "value and gradient")
                times = journal.kept(times, "product with the Hessian")
            shown = stack.enter_context(bar(self.progress, None, 0, "evaluation"))

            def loss_and_slope(vector: np.ndarray) -> tuple[float, np.ndarray]:
                answer = both(vector)
                shown.update(1)
                shown.set_postfix({"loss": answer[0]})
                return float(answer[0]), answer[1:]

            if self.method.lower() in _WITH_PRODUCTS:
                options.setdefault("hessp", times)
            elif self.method.lower() in _WITH_HESSIANS:
                options.setdefault("hess", hessian)
            if self.bounds is not None:
                _check_ends(self.bounds, params)
                ends = [np.broadcast_to(_vector(end, params), start.shape) for end in self.bounds]
                options["bounds"] = Bounds(*ends)
            start = start.astype(float)
            found = minimize(loss_and_slope, start, jac=True, method=self.method, **options)
        found.x = back(found.x)
        for name in ("jac", "grad"):  # the jac of "trust-constr" is a list, one for each constraint
            if isinstance(found.get(name), np.ndarray):
                found[name] = back(found[name])
        return found


def _check_ends(bounds: Any, params: Any) -> None:
    """Check the form of bounds: for one array, a tuple is no bound, but one of SciPy's pairs."""
    is_array = isinstance(params, np.ndarray)
    is_pair = isinstance(bounds, (tuple, list, np.ndarray)) and len(bounds) == 2
    if not is_pair or (is_array and any(isinstance(end, tuple) for end in bounds)):
        raise ArgumentError(
            "bounds are (lower, upper), each a tree like the parameters or a number, not "
            f"{bounds!r}. For SciPy's pairs, one for each number, pass "
            "np.array(pairs, float).T, with infinities instead of None"
        )


def _vector(end: Any, params: Any) -> Any:
    """A bound for each parameter: a number, or the vector of a tree broadcast to the arrays."""
    if isinstance(end, (int, float)):
        return end
    return flatten(tree_map(lambda p, e: np.broadcast_to(e, np.shape(p)) + 0.0, params, end))[0]


lbfgs = functools.partial(minimise, method="L-BFGS-B")
conjugate_gradient = functools.partial(minimise, method="CG")
