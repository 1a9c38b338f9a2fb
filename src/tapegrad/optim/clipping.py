"""Clipping of gradients, by norm or by value."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.core.arrays import computed_in
from tapegrad.errors import ArgumentError
from tapegrad.trees import tree_leaves, tree_map


def is_trained(leaf: Any) -> bool:
    """Whether gradients move a leaf: a float, or an array of floats or complex numbers."""
    dtype = getattr(leaf, "dtype", None)
    return isinstance(leaf, float) or (dtype is not None and computed_in(dtype).kind in "fc")


def global_norm(tree: Any) -> Any:
    """The Euclidean norm of all floats of a tree: sqrt(sum of the squares).

    Other leaves, such as integers, are ignored, and clipping leaves them unchanged. The numbers are
    scaled by the largest one, so that squares don't overflow.
    """
    leaves = [leaf for leaf in tree_leaves(tree) if is_trained(leaf)]
    if not leaves:
        return np.float64(0.0)
    largest = np.max(np.stack([np.max(np.abs(leaf), initial=0.0) for leaf in leaves]))
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    squares = [np.sum(np.square(leaf / unit.astype(np.result_type(leaf)))) for leaf in leaves]
    return unit * np.sqrt(np.sum(np.stack(squares)))


def clip_by_norm(tree: Any, largest: float) -> Any:
    """The tree, scaled down to a global norm of at most `largest`.

        tree min(1, largest / norm)

    `torch.nn.utils.clip_grad_norm_` adds 1e-6 to the norm. If the norm is NaN, so are all numbers.

    Raises
    ------
    ArgumentError : `largest` isn't positive.
    """
    _positive("norm", largest)
    norm = global_norm(tree)
    scale = np.where(norm <= largest, 1.0, largest / norm)
    return tree_map(lambda g: g * scale.astype(np.result_type(g)) if is_trained(g) else g, tree)


def clip_by_value(tree: Any, largest: float) -> Any:
    """The tree with each number clipped to [-largest, largest].

    Raises
    ------
    ArgumentError : `largest` isn't positive.
    """
    _positive("value", largest)
    return tree_map(lambda g: np.clip(g, -largest, largest) if is_trained(g) else g, tree)


def _positive(name: str, largest: float) -> None:
    if not largest > 0:
        raise ArgumentError(f"gradients are clipped by a {name} of {largest}, which isn't positive")
