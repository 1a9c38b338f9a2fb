"""Training on data in parts by optimisers and SciPy's minimisers; a step passes over all data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tapegrad import api
from tapegrad.dask.derivatives import Function, Over, Reduce, hvp, value_and_grad
from tapegrad.errors import ArgumentError
from tapegrad.optim.fitting import Ending, Fitted, Order, Run
from tapegrad.optim.minimising import Minimisation
from tapegrad.optim.optimiser import Optimiser, State
from tapegrad.optim.rules import adam
from tapegrad.trees import tree_leaves
from tapegrad.typing import Compile


def fit(
    loss: Function,
    params: Any,
    *args: Any,
    over: Over,
    optimiser: Optimiser | None = None,
    steps: int = 100,
    reduce: Reduce = "sum",
    plus: Function | None = None,
    rows: int | None = None,
    check: bool = True,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
    callback: Callable[[dict[str, float], Any], Any] | None = None,
    compile: Compile = "always",
) -> Fitted:
    """Train by the gradient of a loss whose data come in parts.

        fitted = td.fit(loss, params, X, Y, over=("x", "y"), optimiser=adam(1e-2), steps=50)

    Parameters
    ----------
    loss, over, reduce, plus, rows, check, compile : as in `value_and_grad`. A parameter `rng` of
        the loss receives a generator whose draws follow from the seed.
    params, args : the arguments of the loss; `params` is a tree of arrays and floats.
    optimiser : the optimiser; `adam()` by default.
    steps : the number of steps, each a pass over all data.
    checkpoint : a file. If it exists, the run continues from it, bit for bit; it is written after
        each step.
    progress : show a progress bar (tqdm) of the steps.
    callback : called after each step with its entry of the history, "epoch" and "loss", and the
        parameters. If it returns True, the run stops.

    Returns
    -------
    `tapegrad.optim.Fitted`: parameters, state and history.
    """
    _check_again(args, checkpoint)
    optimiser = optimiser or adam()
    derived = value_and_grad(
        loss, over=over, reduce=reduce, plus=plus, rows=rows, check=check, compile=compile
    )
    update = api.jit(optimiser.plain_update, compile=compile)

    def trained(params: Any, state: State, *data: Any, **drawn: Any) -> tuple[Any, Any, State]:
        children = {name: np.random.default_rng(x.integers(1 << 62)) for name, x in drawn.items()}
        value, grads = derived(params, *data, **children)
        return value, *update(grads, state, params)

    order = Order(rows=1, size=None, shuffle=False, drop_last=False, seed=seed)  # all at once
    run = Run(loss, trained, params, optimiser, order)
    end = Ending(steps, callback=callback)
    return run.to_the_end(lambda _: args, end, checkpoint, None, progress)


def minimise(
    loss: Function,
    params: Any,
    *args: Any,
    over: Over,
    method: str = "L-BFGS-B",
    reduce: Reduce = "sum",
    plus: Function | None = None,
    rows: int | None = None,
    check: bool = True,
    bounds: tuple[Any, Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
    compile: Compile = "always",
    **options: Any,
) -> Any:
    """`scipy.optimize.minimize` of a loss whose data come in parts, with its exact gradient.

        fitted = td.minimise(loss, params, X, Y, over=("x", "y"), method="trust-ncg")

    Parameters
    ----------
    loss, over, reduce, plus, rows, check, compile : as in `value_and_grad`.
    params, args : the arguments of the loss; `params` is a tree of arrays and floats.
    method, bounds, checkpoint, progress, options : as in `tapegrad.optim.minimise`. Methods that
        take Hessian-vector products ("trust-ncg", "Newton-CG") get sums over the parts.

    Returns
    -------
    SciPy's `OptimizeResult`; `x` and `jac` are trees.
    """
    _check_again(args, checkpoint)
    derived, product = (
        make(loss, over=over, reduce=reduce, plus=plus, rows=rows, check=check, compile=compile)
        for make in (value_and_grad, hvp)
    )
    run = Minimisation(method, bounds, checkpoint, progress, options)
    return run.found(derived, product, params, args)


def _check_again(args: tuple[Any, ...], checkpoint: Any) -> None:
    """Check that the arguments can be iterated repeatedly, and that a run can continue with
    them."""
    for x in args:
        if isinstance(x, Iterator):
            raise ArgumentError(
                f"a {type(x).__name__} is exhausted after one step. Pass a list of parts, or an "
                "object whose `__iter__` begins anew"
            )
    if checkpoint is not None and any(
        isinstance(x, np.random.Generator) for x in tree_leaves(args)
    ):
        raise ArgumentError(
            "a checkpoint doesn't hold the state of a generator among the arguments. Call the "
            "loss's parameter `rng`, and leave it out here: fit passes one whose draws follow from "
            "seed="
        )
