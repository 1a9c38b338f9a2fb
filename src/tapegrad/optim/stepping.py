"""Gradient and update in one: a training step as one compiled call, and steps by any function."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from tapegrad.api import jit, value_and_grad
from tapegrad.errors import ArgumentError
from tapegrad.optim.optimiser import Optimiser, State, check_places, written
from tapegrad.runtime.derived import derived
from tapegrad.runtime.transformations import Into
from tapegrad.trees import Path, parts_at, tree_flatten
from tapegrad.typing import Compile

Step = Callable[..., tuple[Any, Any, State]]


def training_step(
    loss: Callable[..., Any],
    optimiser: Optimiser,
    *,
    has_aux: bool = False,
    inplace: bool = False,
    compile: Compile = None,
) -> Step:
    """A function that takes one step of training, compiled as a whole.

        step = training_step(loss, adam())
        value, params, state = step(params, state, x, y)

    The call equals `value, grads = value_and_grad(loss)(params, x, y)`, then
    `params, state = optimiser.update(grads, state, params)`.

    Parameters
    ----------
    loss : a function of the parameters and a batch that returns a number; with `has_aux`,
        `(number, more)`.
    inplace : write the new parameters and the new state into the arrays of the old ones.
    compile : "auto", "always" or "never", as in `grad`. With "auto" the first steps are played
        while machine code is made, and may round differently.

    Returns
    -------
    `step(params, state, *batch, **options)`, which returns `(value, params, state)`. The value is
    the loss before the step.
    """
    both = value_and_grad(loss, has_aux=has_aux)

    def step(params: Any, state: State, *batch: Any, **options: Any) -> tuple[Any, Any, State]:
        value, grads = both(params, *batch, **options)
        return value, *optimiser.plain_update(grads, state, params)

    if not inplace:
        return jit(step, compile=compile)
    within = derived(step, Into(into=((1, 0), (2, 1))), compile)

    def step_in_place(params: Any, state: State, *batch: Any, **options: Any) -> Any:
        places = check_places(params=params, state=state)
        value, *after = within(params, state, *batch, **options)
        return value, *written(places, tuple(after))

    return step_in_place


def update(
    params: Any,
    grads: Any,
    function: Callable[[Any, Any], Any] = np.subtract,
    ignore: Collection[Any] = (),
) -> Any:
    """Write `function(p, g)` into each array p of the parameters, in place, and return them.

        update(params, grads, lambda p, g: p - 0.1 * g, ignore={("embedding", "w")})

    Parameters
    ----------
    params : a tree of arrays.
    grads : a tree like it. An array with the gradient None stays unchanged.
    function : a function of an array and its gradient; it returns an array of the same shape.
    ignore : paths of arrays or subtrees that stay unchanged: tuples of keys, positions and names,
        or a single one of these for a path of length one.

    Raises
    ------
    ArgumentError : a leaf with a gradient isn't an array; a path leads to no leaf; or the trees
        differ.
    """
    paths, leaves, structure = tree_flatten(params, paths=True)
    left = [path if isinstance(path, tuple) else (path,) for path in ignore]
    for path in left:
        if not any(_is_below(place, path) for place in paths):
            raise ArgumentError(f"ignore has {path}, to which no leaf of the parameters belongs")
    for place, p, g in zip(paths, leaves, parts_at(structure, grads), strict=True):
        if g is None or any(_is_below(place, path) for path in left):
            continue
        if not isinstance(p, np.ndarray):
            raise ArgumentError(
                f"params{''.join(f'[{key!r}]' for key in place)} is {p!r}, which can't be written "
                "into. Make it an array: np.array(...)"
            )
        np.copyto(p, function(p, g))
    return params


def _is_below(place: Path, path: Path) -> bool:
    """Whether a leaf lies in the subtree at a path."""
    return place[: len(path)] == path
