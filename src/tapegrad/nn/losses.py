"""Losses that compare numbers with numbers, with the names of `torch.nn.functional`.

Compared arrays have one shape; PyTorch broadcasts some of them. `reduction` is "mean" (over all
elements), "sum", or "none" for one loss for each element.
"""

from __future__ import annotations

import math

import numpy as np

from tapegrad.nn.activations import logsigmoid
from tapegrad.nn.arguments import (
    REDUCTIONS,
    Array,
    check_reduction,
    check_same_shape,
    check_signs,
    reduced,
)
from tapegrad.nn.layers import pairwise_distance


def mse_loss(input: Array, target: Array, reduction: str = "mean") -> Array:
    """(x - t)^2."""
    check_reduction("mse_loss", reduction)
    check_same_shape("mse_loss", input=input, target=target)
    return reduced((input - target) ** 2, reduction)


def least_squares(input: Array, target: Array, reduction: str = "sum") -> Array:
    """(x - t)^2, summed by default."""
    check_reduction("least_squares", reduction)
    check_same_shape("least_squares", input=input, target=target)
    return reduced((input - target) ** 2, reduction)


def l1_loss(input: Array, target: Array, reduction: str = "mean") -> Array:
    """|x - t|, whose slope at 0 is 0."""
    check_reduction("l1_loss", reduction)
    check_same_shape("l1_loss", input=input, target=target)
    return reduced(np.abs(input - target), reduction)


def smooth_l1_loss(
    input: Array, target: Array, reduction: str = "mean", beta: float = 1.0
) -> Array:
    """(x - t)^2 / (2 beta) where |x - t| < beta, else |x - t| - beta / 2.

    Raises ValueError for a negative beta; beta = 0 gives `l1_loss`.
    """
    check_reduction("smooth_l1_loss", reduction)
    check_same_shape("smooth_l1_loss", input=input, target=target)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta={beta} must not be negative")
    off = np.abs(input - target)
    if beta == 0:
        return reduced(off, reduction)
    return reduced(np.where(off < beta, off * off * (0.5 / beta), off - 0.5 * beta), reduction)


def huber_loss(input: Array, target: Array, reduction: str = "mean", delta: float = 1.0) -> Array:
    """(x - t)^2 / 2 where |x - t| < delta, else delta (|x - t| - delta / 2).

    Raises ValueError unless delta is positive.
    """
    check_reduction("huber_loss", reduction)
    check_same_shape("huber_loss", input=input, target=target)
    if delta <= 0:
        raise ValueError(f"huber_loss: delta={delta} must be positive")
    off = np.abs(input - target)
    return reduced(np.where(off < delta, 0.5 * off * off, delta * (off - 0.5 * delta)), reduction)


def binary_cross_entropy(
    input: Array, target: Array, weight: Array | None = None, reduction: str = "mean"
) -> Array:
    """-w (t log(x) + (1 - t) log(1 - x)), for probabilities x and t.

    Logarithms below -100 count as -100, as in PyTorch. The slope there is 0, the slope of a
    constant; PyTorch has 10^12. `binary_cross_entropy_with_logits` has neither limit.

    Raises ValueError for an x outside [0, 1].
    """
    check_reduction("binary_cross_entropy", reduction)
    check_same_shape("binary_cross_entropy", input=input, target=target)
    if not np.all((input >= 0) & (input <= 1)):
        raise ValueError("binary_cross_entropy: input has numbers that aren't from 0 to 1")
    rest = np.where(input < 1, input, 0)
    log_rest = np.where(input < 1, np.log1p(-rest), -100.0)
    losses = -(target * _log_from_minus_100(input) + (1 - target) * log_rest)
    return reduced(losses if weight is None else losses * weight, reduction)


def _log_from_minus_100(x: Array) -> Array:
    large = x > math.exp(-100)
    return np.where(large, np.log(np.where(large, x, 1)), -100.0)


def binary_cross_entropy_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    reduction: str = "mean",
    pos_weight: Array | None = None,
) -> Array:
    """w (p t softplus(-x) + (1 - t) softplus(x)), for logits x and probabilities t.

    p is `pos_weight`, w is `weight`; both may broadcast. No part is a difference: a loss near 0
    keeps its digits, and so does its slope.
    """
    check_reduction("binary_cross_entropy_with_logits", reduction)
    check_same_shape("binary_cross_entropy_with_logits", input=input, target=target)
    below = input < 0
    both = np.log1p(np.exp(np.where(below, input, -input)))
    if_one = target * (both + np.where(below, -input, 0))
    if_zero = (1 - target) * (both + np.where(below, 0, input))
    losses = (if_one if pos_weight is None else pos_weight * if_one) + if_zero
    return reduced(losses if weight is None else losses * weight, reduction)


def kl_div(input: Array, target: Array, reduction: str = "mean", log_target: bool = False) -> Array:
    """t (log(t) - x), for log-probabilities x and probabilities t; 0 where t is 0.

    With `log_target`, t is a logarithm too: exp(t) (t - x). `reduction` may be "batchmean": the sum
    divided by the length of the first axis.
    """
    check_reduction("kl_div", reduction, (*REDUCTIONS, "batchmean"))
    check_same_shape("kl_div", input=input, target=target)
    if log_target:
        losses = np.exp(target) * (target - input)
    else:
        absent = target == 0
        losses = np.where(absent, 0, target * (np.log(np.where(absent, 1, target)) - input))
    if reduction == "batchmean":
        if not np.ndim(input):
            raise IndexError(
                "kl_div: reduction='batchmean' needs a batch axis, and input is a number"
            )
        return np.sum(losses) / max(len(input), 1)
    return reduced(losses, reduction)


def poisson_nll_loss(
    input: Array,
    target: Array,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Array:
    """exp(x) - t x, for the logarithm x of a rate; x - t log(x + eps) without `log_input`.

    `full` adds Stirling's t log(t) - t + log(2 pi t) / 2 where t > 1.
    """
    check_reduction("poisson_nll_loss", reduction)
    check_same_shape("poisson_nll_loss", input=input, target=target)
    if log_input:
        losses = np.exp(input) - target * input
    else:
        losses = input - target * np.log(input + eps)
    if full:
        t = np.where(target > 1, target, 1)
        stirling = t * np.log(t) - t + 0.5 * np.log(2 * math.pi * t)
        losses = losses + np.where(target > 1, stirling, 0)
    return reduced(losses, reduction)


def gaussian_nll_loss(
    input: Array,
    target: Array,
    var: Array,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Array:
    """(log(v) + (x - t)^2 / v) / 2, where v = max(var, eps).

    `var` has the shape of `input`, the shape without its last axis, or 1 as its last axis. `full`
    adds log(2 pi) / 2. The slope along a `var` below eps is 0; PyTorch has the slope at eps.

    Raises ValueError for a negative `var`, and for an eps that isn't positive.
    """
    check_reduction("gaussian_nll_loss", reduction)
    check_same_shape("gaussian_nll_loss", input=input, target=target)
    if eps <= 0:
        raise ValueError(f"gaussian_nll_loss: eps={eps} must be positive")
    shape = np.shape(input)
    if shape and np.shape(var) == shape[:-1]:
        var = np.expand_dims(var, -1)
    if np.shape(var) not in (shape, (*shape[:-1], 1), ()):
        raise ValueError(
            f"gaussian_nll_loss: var has shape {np.shape(var)}, which doesn't fit input's {shape}"
        )
    if np.any(var < 0):
        raise ValueError("gaussian_nll_loss: var has negative numbers; it is a variance")
    v = np.where(var <= eps, eps, var)
    losses = 0.5 * (np.log(v) + (input - target) ** 2 / v)
    return reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


# ---- margins


def hinge_embedding_loss(
    input: Array, target: Array, margin: float = 1.0, reduction: str = "mean"
) -> Array:
    """x where t is 1, max(0, margin - x) where t is -1. Raises ValueError for other t."""
    check_reduction("hinge_embedding_loss", reduction)
    check_same_shape("hinge_embedding_loss", input=input, target=target)
    check_signs("hinge_embedding_loss", "target", target)
    return reduced(np.where(target == 1, input, _hinge(margin - input)), reduction)


def margin_loss(input: Array, target: Array, margin: float = 1.0, reduction: str = "sum") -> Array:
    """max(0, margin - x[i] + x[j]), for all i and j with t[i] = 1 and t[j] = 0.

    It is torch-autograd's loss for scores that should be larger where t is 1. The arrays may have
    any shape, of n elements. "none" gives the matrix (n, n), with zeros where there is no such
    pair; "mean" is the mean over the pairs. Raises ValueError for other t.
    """
    check_reduction("margin_loss", reduction)
    check_same_shape("margin_loss", input=input, target=target)
    if np.any((target != 0) & (target != 1)):
        raise ValueError("margin_loss: target has numbers that are neither 0 nor 1")
    x, ones = np.ravel(input), np.ravel(target) == 1
    pairs = ones[:, None] & ~ones
    losses = np.where(pairs, _hinge(margin - x[:, None] + x), 0)
    if reduction == "mean":
        return np.sum(losses) / np.sum(pairs).astype(np.result_type(losses))
    return reduced(losses, reduction)


def soft_margin_loss(input: Array, target: Array, reduction: str = "mean") -> Array:
    """log(1 + exp(-t x)), for t equal to 1 or -1. Raises ValueError for other t."""
    check_reduction("soft_margin_loss", reduction)
    check_same_shape("soft_margin_loss", input=input, target=target)
    check_signs("soft_margin_loss", "target", target)
    return reduced(-logsigmoid(target * input), reduction)


def margin_ranking_loss(
    input1: Array, input2: Array, target: Array, margin: float = 0.0, reduction: str = "mean"
) -> Array:
    """max(0, margin - t (x1 - x2)), for t equal to 1 or -1. Raises ValueError for other t."""
    check_reduction("margin_ranking_loss", reduction)
    check_same_shape("margin_ranking_loss", input1=input1, input2=input2, target=target)
    check_signs("margin_ranking_loss", "target", target)
    return reduced(_hinge(margin - target * (input1 - input2)), reduction)


def cosine_embedding_loss(
    input1: Array, input2: Array, target: Array, margin: float = 0.0, reduction: str = "mean"
) -> Array:
    """1 - cos(x1, x2) where t is 1, max(0, cos(x1, x2) - margin) where t is -1.

    `input1` and `input2` are (n, d) and `target` (n,), or (d,) and (). Raises ValueError for other
    shapes and other t.
    """
    check_reduction("cosine_embedding_loss", reduction)
    check_same_shape("cosine_embedding_loss", input1=input1, input2=input2)
    if np.ndim(input1) not in (1, 2) or np.shape(target) != np.shape(input1)[:-1]:
        raise ValueError(
            f"cosine_embedding_loss: target has shape {np.shape(target)} and the inputs have "
            f"{np.shape(input1)}; they must be (n,) and (n, d), or () and (d,)"
        )
    check_signs("cosine_embedding_loss", "target", target)
    squares = [np.sum(x * x, axis=-1) + 1e-12 for x in (input1, input2)]
    cosine = np.sum(input1 * input2, axis=-1) / np.sqrt(squares[0] * squares[1])
    return reduced(np.where(target == 1, 1 - cosine, _hinge(cosine - margin)), reduction)


def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Array:
    """max(0, margin + d(a, p) - d(a, n)), where d is `pairwise_distance` along the last axis.

    With `swap`, min(d(a, n), d(p, n)) replaces d(a, n). Raises ValueError unless margin is
    positive.
    """
    check_reduction("triplet_margin_loss", reduction)
    check_same_shape("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)
    if margin <= 0:
        raise ValueError(f"triplet_margin_loss: margin={margin} must be positive")
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = np.minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced(_hinge(margin + near - far), reduction)


def _hinge(u: Array) -> Array:
    """max(u, 0). The slope at 0 is 1, as in PyTorch's losses."""
    return np.where(u < 0, 0, u)
