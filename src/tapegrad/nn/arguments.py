"""Checks of the arguments in this folder: axes, reductions, shapes, labels.

A check of values stands on the tape as a condition that must hold. Later calls test the condition
in the loop that reads the values anyway; a call that fails it raises the same error.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import tapegrad.numpy as filled  # whose arrays can be made of traced values

Array = Any  # an array, or its stand-in while a function is traced

REDUCTIONS = ("none", "mean", "sum")


def as_array(x: Any) -> Array:
    """x as an array; a list of numbers, traced or not, becomes a new array."""
    return x if isinstance(x, np.ndarray) else filled.asarray(x)


def chosen_axis(function: str, dim: Any, axis: Any, default: Any) -> Any:
    """The axis: PyTorch's `dim`, unless NumPy's `axis` is passed."""
    if axis is None:
        return dim
    if dim != default:
        raise TypeError(f"{function}: dim={dim} and axis={axis} are the same argument; pass one")
    return axis


def axis_in(function: str, axis: Any, ndim: int) -> int:
    """The axis, counted from the front."""
    try:
        place = operator.index(axis)
    except TypeError:
        raise TypeError(f"{function}: an axis is an integer, not {axis!r}") from None
    if not -ndim <= place < ndim:
        raise IndexError(f"{function}: there is no axis {axis} in an array of {ndim} dimensions")
    return place % ndim


def check_reduction(function: str, reduction: str, known: Sequence[str] = REDUCTIONS) -> None:
    if reduction not in known:
        names = ", ".join(map(repr, known))
        raise ValueError(f"{function}: reduction={reduction!r} is none of {names}")


def reduced(losses: Array, reduction: str) -> Array:
    """The losses, their mean or their sum."""
    if reduction == "none":
        return losses
    return np.mean(losses) if reduction == "mean" else np.sum(losses)


def check_same_shape(function: str, **arrays: Array) -> None:
    """Check that all shapes are equal: losses of (n,) and (n, 1) would broadcast to n * n pairs."""
    shapes = {name: np.shape(x) for name, x in arrays.items()}
    if len(set(shapes.values())) > 1:
        told = " and ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise ValueError(f"{function}: {told}; they must be equal")


def check_shape(function: str, name: str, array: Array, shape: tuple[int, ...]) -> None:
    if np.shape(array) != shape:
        raise ValueError(f"{function}: {name} has shape {np.shape(array)}, and must have {shape}")


def check_integers(function: str, name: str, array: Array) -> None:
    if np.result_type(array).kind not in "iu":
        raise TypeError(f"{function}: {name} must be integers, not {np.result_type(array)}")


def labels_in(function: str, name: str, labels: Array, count: int) -> Array:
    """Labels as an array of integers in 0, ..., count - 1.

    Negative labels raise too: NumPy would count them from the end.
    """
    labels = as_array(labels)
    check_integers(function, name, labels)
    if np.any((labels < 0) | (labels >= count)):
        raise IndexError(f"{function}: {name} has numbers that aren't in 0, ..., {count - 1}")
    return labels


def check_signs(function: str, name: str, signs: Array) -> None:
    """Check that every element is 1 or -1."""
    if np.any((signs != 1) & (signs != -1)):
        raise ValueError(f"{function}: {name} has numbers that are neither 1 nor -1")


def check_probability(function: str, name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"{function}: {name}={p} is no probability: it must be from 0 to 1")
