"""Attention: means of values, weighted by the products of queries and keys.

The rows of scores are computed in blocks, so that a block's scores stay in cache; with a causal
mask a block skips the keys after its last row. For many rows the blocks are the iterations of a
loop that recomputes the scores in the reverse pass: memory grows with the length, not with its
square.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.api import stop_gradient
from tapegrad.loops import checkpoint, scan
from tapegrad.nn.arguments import as_array
from tapegrad.nn.layers import drawing, uniforms
from tapegrad.nn.normalisation import layer_norm

__all__ = ["scaled_dot_product_attention", "soft_attention"]

ROWS = 128  # rows of a block
MAX_SCORES = 1 << 21  # with more scores, only those of one block are kept
PARTS = 4  # parts of a causal mask, each with its own loop


@drawing
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
    *,
    rng: Any = None,
) -> Any:
    """The mean of the values for each query, weighted by the softmax of its products with the keys.

        scores = scale * query @ key.T + bias
        out = softmax(scores, axis=-1) @ value

    `attn_mask` and `is_causal` may be combined (PyTorch refuses that). A query that sees no key
    gets zeros.

    Parameters
    ----------
    query : (..., l, e). The leading axes are broadcast against the leading axes of key and value.
    key : (..., s, e).
    value : (..., s, v).
    attn_mask : broadcastable to (..., l, s): booleans, True where a query sees a key, or numbers
        that are added to the scores. None for no mask.
    dropout_p : the probability that a weight becomes 0; the other weights are divided by
        1 - dropout_p. Every call with a `dropout_p` other than 0 draws.
    is_causal : whether query i sees only the keys up to i.
    scale : a number; None for 1 / sqrt(e).
    enable_gqa : whether query has a multiple of the heads (third axis from the end) of key and
        value. Each head of key and value then serves a run of consecutive heads of query.
    rng : the source of the draws for `dropout_p`, of the shape of the scores: a NumPy generator, a
        key of `tapegrad.random`, or None for `np.random`.

    Returns
    -------
    (..., l, v).

    Raises
    ------
    ValueError : the shapes don't fit, or `dropout_p` is not in [0, 1).
    """
    query, key, value = map(as_array, (query, key, value))
    if min(query.ndim, key.ndim, value.ndim) < 2 or not (
        query.shape[-1] == key.shape[-1] and key.shape[-2] == value.shape[-2]
    ):
        raise ValueError(_unfit(query, key, value))
    if not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p={dropout_p!r} should be a probability below 1")
    mask = None if attn_mask is None else as_array(attn_mask)
    if enable_gqa:
        return _grouped(query, key, value, mask, dropout_p, is_causal, scale, rng)
    rows, keys = query.shape[-2], key.shape[-2]
    try:
        ahead = np.broadcast_shapes(*[x.shape[:-2] for x in (query, key, value)])
    except ValueError:
        raise ValueError(_unfit(query, key, value)) from None
    if mask is not None:
        wanted = (rows, keys)[2 - min(mask.ndim, 2) :]
        if any(n not in (1, m) for n, m in zip(mask.shape[-2:], wanted, strict=True)):
            raise ValueError(
                f"scaled_dot_product_attention: attn_mask has the shape {mask.shape}, and should "
                f"broadcast to (..., {rows}, {keys})"
            )
    query = query * (max(query.shape[-1], 1) ** -0.5 if scale is None else scale)
    seen = np.arange(rows)[:, None] if is_causal else None
    drawn = None
    if dropout_p:
        drawn = uniforms(rng, (*ahead, rows, keys))
    size = ROWS
    of_rows: Callable[..., Any] = functools.partial(_weighted, dropout_p=dropout_p)
    if rows * keys > MAX_SCORES and not dropout_p:
        # A causal mask gets one loop for each part, since the first parts need few keys.
        of_rows, size = _in_rounds, -(-rows // PARTS // ROWS) * ROWS if is_causal else rows
    blocks = []
    for start in range(0, max(rows, 1), size):
        part = slice(start, min(start + size, rows))
        last = min(part.stop, keys) if is_causal else keys
        found = of_rows(
            query[..., part, :],
            key[..., :last, :],
            value[..., :last, :],
            None if mask is None else _part(mask, part, last),
            None if seen is None else seen[part],
            None if drawn is None else drawn[..., part, :last],
        )
        blocks.append(found)
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=-2)


def _unfit(query: Any, key: Any, value: Any) -> str:
    return (
        "scaled_dot_product_attention: query, key and value have the shapes "
        f"{query.shape}, {key.shape} and {value.shape}, and should have (..., l, e), (..., s, e) "
        "and (..., s, v), with leading axes that broadcast"
    )


def _part(mask: Any, rows: slice, keys: int) -> Any:
    """The mask of some rows and of the first keys."""
    if mask.ndim > 1 and mask.shape[-2] > 1:
        mask = mask[..., rows, :]
    return mask[..., :keys] if mask.ndim and mask.shape[-1] > 1 else mask


def _weighted(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    at: Any,
    drawn: Any,
    dropout_p: float = 0.0,
) -> Any:
    """The means for some scaled queries. `at` holds their row numbers if later keys are hidden."""
    scores = query @ np.swapaxes(key, -1, -2)
    if at is not None:
        scores = np.where(np.arange(scores.shape[-1]) <= at, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    # The subtracted maximum cancels, so it has no derivative.
    top = stop_gradient(np.max(scores, axis=-1, keepdims=True, initial=-np.inf))
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = np.sum(weights, axis=-1, keepdims=True)
    if dropout_p:
        weights = np.where(drawn >= dropout_p, weights, 0) / (1 - dropout_p)
    return weights @ value / np.where(total == 0, 1, total)


def _in_rounds(query: Any, key: Any, value: Any, mask: Any, seen: Any, drawn: None) -> Any:
    """The same, block by block in a loop that keeps no scores."""
    rows = query.shape[-2]
    count = -(-rows // ROWS)

    def in_blocks(x: Any) -> Any:
        """Blocks of rows along a new first axis; the last block is padded with zeros."""
        x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, count * ROWS - rows), (0, 0)])
        return np.moveaxis(x.reshape(*x.shape[:-2], count, ROWS, x.shape[-1]), -3, 0)

    parts = {"query": in_blocks(query)}
    moves = mask is not None and mask.ndim > 1 and mask.shape[-2] > 1
    if moves:
        parts["mask"] = in_blocks(mask)
    if seen is not None:
        parts["at"] = in_blocks(seen)

    def of_block(_: Any, part: Any) -> Any:
        def means(query: Any, key: Any, value: Any, mask: Any) -> Any:
            return _weighted(query, key, value, mask, part.get("at"), drawn)

        hidden = part["mask"] if moves else mask
        return None, checkpoint(means)(part["query"], key, value, hidden)

    _, found = scan(of_block, None, parts)
    found = np.moveaxis(found, 0, -3)
    return found.reshape(*found.shape[:-3], count * ROWS, found.shape[-1])[..., :rows, :]


def _grouped(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: Any,
    rng: Any,
) -> Any:
    """Attention where each head of key and value serves several heads of query."""
    heads = min(query.ndim, key.ndim, value.ndim) > 2 and [x.shape[-3] for x in (query, key, value)]
    if not heads or heads[1] != heads[2] or not heads[1] or heads[0] % heads[1]:
        raise ValueError(
            "scaled_dot_product_attention: with enable_gqa key and value should have the same "
            "number of heads, and query a multiple of it; the shapes are "
            f"{query.shape}, {key.shape} and {value.shape}"
        )
    each = heads[0] // heads[1]

    def split(x: Any) -> Any:
        return x.reshape(*x.shape[:-3], heads[1], each, *x.shape[-2:])

    if mask is not None and mask.ndim > 2:
        mask = split(mask) if mask.shape[-3] > 1 else mask[..., None, :, :]
    out = scaled_dot_product_attention(
        split(query),
        key[..., None, :, :],
        value[..., None, :, :],
        mask,
        dropout_p,
        is_causal,
        scale,
        rng=rng,
    )
    return out.reshape(*out.shape[:-4], heads[0], *out.shape[-2:])


def soft_attention(
    subject: Any,
    hidden: Any,
    weight_subject: Any,
    weight_hidden: Any,
    bias: Any = None,
    norm: Any = None,
) -> tuple[Any, Any]:
    """The mean of some choices, with weights computed from a hidden state and the choices.

        scores[n, k] = sum over f of weight_subject[f, k] subject[n, f, k]
                       + sum over h of hidden[n, h] weight_hidden[h, k] + bias[k]
        weights = softmax(scores, axis=1)
        out[n, f] = sum over k of weights[n, k] subject[n, f, k]

    Parameters
    ----------
    subject : (n, features, choices).
    hidden : (n, hidden).
    weight_subject : (features, choices).
    weight_hidden : (hidden, choices).
    bias : (choices,), or None.
    norm : None, or a dict of `weight` and `bias`, both (choices,), of a `layer_norm` of the scores.

    Returns
    -------
    The means, (n, features), and the weights, (n, choices).

    Raises
    ------
    ValueError : the shapes don't fit.
    """
    subject, hidden = as_array(subject), as_array(hidden)
    wanted = (subject.shape[1:], (hidden.shape[-1], subject.shape[-1]))
    if subject.ndim != 3 or (np.shape(weight_subject), np.shape(weight_hidden)) != wanted:
        raise ValueError(
            f"soft_attention: subject and hidden have the shapes {subject.shape} and "
            f"{hidden.shape}, so the weights should have {wanted[0]} and {wanted[1]}, not "
            f"{np.shape(weight_subject)} and {np.shape(weight_hidden)}"
        )
    scores = np.sum(weight_subject * subject, axis=1) + hidden @ weight_hidden
    if bias is not None:
        scores = scores + bias
    if norm is not None:
        scores = layer_norm(scores, scores.shape[1], **norm)
    weights = np.exp(scores - stop_gradient(np.max(scores, axis=1, keepdims=True)))
    weights = weights / np.sum(weights, axis=1, keepdims=True)
    return np.sum(weights[:, None] * subject, axis=2), weights
