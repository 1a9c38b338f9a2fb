"""Losses of class scores, with the names of `torch.nn.functional`.

Scores are (c,), (n, c) or (n, c, d1, ...), for c classes; labels have the same shape without c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tapegrad.numpy as filled  # whose arrays can be filled with traced values
from tapegrad.api import stop_gradient
from tapegrad.nn.activations import log_softmax, logsigmoid
from tapegrad.nn.arguments import (
    Array,
    as_array,
    check_integers,
    check_reduction,
    check_same_shape,
    check_shape,
    labels_in,
    reduced,
)


def nll_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Array:
    """-w[t] x[t], for log-probabilities x of classes and labels t.

    `weight` has one number for each class; the mean divides by the sum of the weights used. Labels
    equal to `ignore_index` are left out; if all of them are, the mean is NaN.

    Raises ValueError for shapes that don't fit, IndexError for labels out of range.
    """
    check_reduction("nll_loss", reduction)
    axis, labels, kept = _labels("nll_loss", input, target, weight, ignore_index)
    picked = np.squeeze(np.take_along_axis(input, np.expand_dims(labels, axis), axis), axis)
    losses = -picked
    return _weighted(losses, labels, kept, weight, reduction)


def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """-w[t] log(softmax(x)[t]), for scores x of classes and labels t; see `nll_loss`.

    With labels it is computed as log(1 + exp(l - x[t])), l = log(sum over j != t of exp(x[j])): a
    loss near 0 keeps its digits, and so do all slopes.

    A `target` of floats, of the shape of `input`, holds probabilities: -sum(w t log(softmax(x))).
    `label_smoothing` = s replaces the label by (1 - s) of the label and s / c of each class.

    Raises ValueError for shapes that don't fit and for a smoothing outside [0, 1], IndexError
    for labels out of range.
    """
    check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing={label_smoothing} isn't from 0 to 1")
    target = as_array(target)
    if target.dtype.kind == "f":
        return _of_probabilities(input, target, weight, reduction, label_smoothing)
    axis, labels, kept = _labels("cross_entropy", input, target, weight, ignore_index)
    losses = _of_labels(input, labels, axis)
    found = _weighted(losses, labels, kept, weight, reduction)
    if label_smoothing == 0:
        return found
    logs = log_softmax(input, axis)
    smooth = -np.mean(logs if weight is None else logs * _along(weight, axis, input), axis=axis)
    smooth = np.where(kept, smooth, 0)
    if reduction == "mean":
        smooth = np.sum(smooth) / _total(smooth, labels, kept, weight)
    else:
        smooth = reduced(smooth, reduction)
    return (1 - label_smoothing) * found + label_smoothing * smooth


def _of_labels(input: Array, labels: Array, axis: int) -> Array:
    """log(1 + exp(l - x[t])) with l = log(sum over j != t of exp(x[j]))."""
    shape = np.shape(input)
    if shape[axis] == 1:
        return np.squeeze(input - input, axis)
    at: list[Any] = [*np.ogrid[tuple(slice(n) for n in (*shape[:axis], *shape[axis + 1 :]))]]
    at.insert(axis, labels)
    others = filled.array(input)
    others[tuple(at)] = -np.inf
    largest = stop_gradient(np.max(others, axis=axis, keepdims=True))
    largest = np.where(np.isfinite(largest), largest, 0)
    total = np.sum(np.exp(others - largest), axis=axis)
    none = total == 0
    ahead = np.log(np.where(none, 1, total)) + (np.squeeze(largest, axis) - input[tuple(at)])
    return -logsigmoid(np.where(none, np.inf, -ahead))


def _of_probabilities(
    input: Array, target: Array, weight: Array | None, reduction: str, label_smoothing: float
) -> Array:
    check_same_shape("cross_entropy", input=input, target=target)
    axis = _class_axis("cross_entropy", input)
    count = np.shape(input)[axis]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / count
    logs = log_softmax(input, axis)
    if weight is not None:
        check_shape("cross_entropy", "weight", weight, (count,))
        logs = logs * _along(weight, axis, input)
    return reduced(-np.sum(logs * target, axis=axis), reduction)


def multi_margin_loss(
    input: Array,
    target: Array,
    p: int = 1,
    margin: float = 1.0,
    weight: Array | None = None,
    reduction: str = "mean",
) -> Array:
    """sum over j != t of w[t] max(0, margin - x[t] + x[j])^p / c, for scores (n, c) or (c,).

    Raises ValueError for a p that is neither 1 nor 2 and for shapes that don't fit, IndexError for
    labels out of range.
    """
    check_reduction("multi_margin_loss", reduction)
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: p={p} is neither 1 nor 2")
    if np.ndim(input) > 2:
        raise ValueError(
            f"multi_margin_loss: input has shape {np.shape(input)}, not (n, c) or (c,)"
        )
    _, labels, _ = _labels("multi_margin_loss", input, target, weight, None)
    count = np.shape(input)[-1]
    at = np.expand_dims(labels, -1)
    u = margin - np.take_along_axis(input, at, -1) + input
    terms = np.where((u <= 0) | (np.arange(count) == at), 0, u)
    terms = terms if p == 1 else terms * terms
    losses = np.sum(terms, axis=-1) / count
    return reduced(losses if weight is None else losses * weight[labels], reduction)


def multilabel_soft_margin_loss(
    input: Array, target: Array, weight: Array | None = None, reduction: str = "mean"
) -> Array:
    """-mean over c of w (t log(sigmoid(x)) + (1 - t) log(sigmoid(-x))), for t from 0 to 1."""
    check_reduction("multilabel_soft_margin_loss", reduction)
    check_same_shape("multilabel_soft_margin_loss", input=input, target=target)
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    return reduced(np.mean(losses if weight is None else losses * weight, axis=-1), reduction)


def _class_axis(function: str, input: Array) -> int:
    if np.ndim(input) == 0:
        raise ValueError(f"{function}: input is a number, and needs an axis of classes")
    return 0 if np.ndim(input) == 1 else 1


def _labels(
    function: str, input: Array, target: Array, weight: Array | None, ignore_index: int | None
) -> tuple[int, Array, Array]:
    """The axis of classes, the labels in range, and a mask of the labels that count."""
    axis = _class_axis(function, input)
    shape = np.shape(input)
    target = as_array(target)
    check_integers(function, "target", target)
    check_shape(function, "target", target, shape[:axis] + shape[axis + 1 :])
    if weight is not None:
        check_shape(function, "weight", weight, (shape[axis],))
    kept = target == target if ignore_index is None else target != ignore_index
    labels = target if ignore_index is None else np.where(kept, target, 0)
    return axis, labels_in(function, "target", labels, shape[axis]), kept


def _weighted(
    losses: Array, labels: Array, kept: Array, weight: Array | None, reduction: str
) -> Array:
    losses = np.where(kept, losses if weight is None else losses * weight[labels], 0)
    if reduction != "mean":
        return reduced(losses, reduction)
    return np.sum(losses) / _total(losses, labels, kept, weight)


def _total(losses: Array, labels: Array, kept: Array, weight: Array | None) -> Array:
    """The number of labels that count, or the sum of their weights, in the dtype of the losses."""
    if weight is None:
        return np.sum(kept).astype(np.result_type(losses))
    return np.sum(np.where(kept, weight[labels], 0))


def _along(values: Array, axis: int, input: Array) -> Array:
    """One number for each class, in a shape that broadcasts with `input`."""
    return np.reshape(values, (-1, *(1,) * (np.ndim(input) - axis - 1)))
