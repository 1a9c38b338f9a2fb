"""Connectionist temporal classification: the probability of labels, at whatever times they occur.

A path emits one label or the blank at each time. Joining its repeats and dropping its blanks gives
the labels that it stands for. The loss sums over all paths that stand for the targets, in
logarithms:

    alpha[t, s] = log of the probability of all ways to be at place s of the targets at time t

where places 0, 2, 4, ... are blanks, and 1, 3, ... the targets. A step stays, advances by one
place, or by two: from a target to the next one if they differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.loops import scan
from tapegrad.nn.arguments import as_array

__all__ = ["ctc_loss"]


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Minus the log-probability of the targets, summed over all alignments in time.

    The derivative is the derivative of this formula with respect to `log_probs`. PyTorch assumes
    that `log_probs` comes from `log_softmax` and includes that function's derivative; behind a
    `log_softmax` both agree.

    Parameters
    ----------
    log_probs : (time, n, classes), or (time, classes): logarithms of probabilities.
    targets : integers, (n, longest), or all entries concatenated, (sum of lengths,).
    input_lengths, target_lengths : the lengths of each entry: (n,), or integers without a batch.
    blank : the class of the blank.
    reduction : "none"; "sum"; or "mean", the mean of the losses divided by their target lengths.
    zero_infinity : whether the loss of targets that don't fit into their time is 0, with zero
        derivatives.

    Returns
    -------
    (n,), or a number.

    Raises
    ------
    ValueError : the shapes don't fit, a length or label is out of range, or the reduction has
        another value.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f'reduction={reduction!r} should be "none", "mean" or "sum"')
    x = as_array(log_probs)
    if x.ndim not in (2, 3):
        raise ValueError(
            f"ctc_loss: log_probs has the shape {x.shape}, and should have (time, n, classes), or "
            "(time, classes)"
        )
    is_batch = x.ndim == 3
    x = x if is_batch else x[:, None]
    time, n, classes = x.shape
    lengths, counts = (np.ravel(as_array(k)) for k in (input_lengths, target_lengths))
    labels = as_array(targets)
    if any(k.dtype.kind not in "iu" and k.size for k in (labels, lengths, counts)):
        raise ValueError("ctc_loss: targets and lengths should be integers")
    if lengths.shape != (n,) or counts.shape != (n,):
        raise ValueError(
            f"ctc_loss: there are {n} entries in log_probs, of the shape {x.shape}, and lengths of "
            f"{lengths.shape} and {counts.shape}"
        )
    if not is_batch and labels.ndim == 1:
        labels = labels[None]
    if labels.ndim == 1:
        longest = int(np.max(counts, initial=0))
        if labels.size != np.sum(counts):
            raise ValueError(
                f"ctc_loss: there are {labels.size} targets, and target_lengths add up to "
                f"{np.sum(counts)}"
            )
        places = (np.cumsum(counts) - counts)[:, None] + np.arange(longest)
        labels = np.append(labels, blank)[np.minimum(places, labels.size)]
    if labels.ndim != 2 or len(labels) != n:
        raise ValueError(f"ctc_loss: {n} entries have targets of the shape {labels.shape}")
    longest = labels.shape[1]
    inside = np.arange(longest) < counts[:, None]
    labels = np.where(inside, labels, blank)
    if np.any((lengths < 0) | (lengths > time) | (counts < 0) | (counts > longest)):
        raise ValueError(
            f"ctc_loss: lengths are {lengths} and {counts}, of {time} times and {longest} targets"
        )
    if not 0 <= blank < classes or np.any((labels < 0) | (labels >= classes)):
        raise ValueError(f"ctc_loss: blank and targets should be from 0 to {classes - 1}")
    loss = _losses(x, labels, lengths, counts, blank)
    if zero_infinity:
        loss = np.where(np.isinf(loss), 0, loss)
    if reduction == "mean":
        return np.mean(loss / np.maximum(counts, 1).astype(x.dtype))
    if reduction == "sum":
        return np.sum(loss)
    return loss if is_batch else loss[0]


def _losses(x: Any, labels: Any, lengths: Any, counts: Any, blank: int) -> Any:
    """One loss for each entry; targets after its last one are blanks."""
    time, n, _ = x.shape
    size = 2 * labels.shape[1] + 1
    blanks = np.full((n, labels.shape[1], 1), blank)
    said = np.concatenate([blanks, labels[:, :, None]], axis=2).reshape(n, size - 1)
    said = np.concatenate([said, np.full((n, 1), blank)], axis=1)
    never = np.full((n, 2), -np.inf, x.dtype)
    skips = np.concatenate([np.zeros((n, 2), bool), said[:, 2:] != said[:, :-2]], axis=1)[:, :size]
    gains = np.take_along_axis(x, np.broadcast_to(said, (time, n, size)), axis=2)
    # With no time steps the path is at its end, if there are no targets.
    alpha = np.broadcast_to(np.where(np.arange(size) < 1, 0, -np.inf).astype(x.dtype), (n, size))
    if time:
        first = np.where(np.arange(size) < 2, gains[0], -np.inf)
        alpha = np.where((lengths > 0)[:, None], first, alpha)

    def step(alpha: Any, entry: Any) -> Any:
        gain, t = entry
        behind = np.concatenate([never, alpha], axis=1)
        moved = np.logaddexp(alpha, behind[:, 1 : size + 1])
        moved = np.logaddexp(moved, np.where(skips, behind[:, :size], -np.inf)) + gain
        return np.where((t < lengths)[:, None], moved, alpha), None

    alpha, _ = scan(step, alpha, (gains[1:], np.arange(1, time)))
    ends = np.take_along_axis(alpha, np.stack([2 * counts, np.maximum(2 * counts - 1, 0)], 1), 1)
    return -np.logaddexp(ends[:, 0], np.where(counts > 0, ends[:, 1], -np.inf))
