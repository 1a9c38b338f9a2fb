"""Attention: means of values, weighted by how well keys fit a query.

Rows of scores are worked through in blocks: a block's scores stay in cache, and with a causal mask
it takes no keys behind its last row. Where there are many, the blocks are the rounds of a loop that
computes scores anew for derivatives, so that memory grows with the length and not with its square.
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

ROWS = 128  # of a block
MAX_SCORES = 1 << 21  # scores, of which no more than a block's are kept
PARTS = 4  # of a causal mask, each with a loop


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
    """Of each query the mean of values, weighted by the softmax of its products with keys.

        scores = scale * query @ key.T + bias
        out = softmax(scores, axis=-1) @ value

    PyTorch refuses `attn_mask` beside `is_causal`; here both hold. A query that sees no key gets
    zeros.

    Parameters
    ----------
    query : (..., l, e). The axes in front are broadcast against those of key and value.
    key : (..., s, e).
    value : (..., s, v).
    attn_mask : broadcastable to (..., l, s): booleans, which are true where a query sees a key, or
        numbers that are added to the scores. None for neither.
    dropout_p : the probability with which a weight becomes 0, where the others are divided by the
        probability of the rest. It is drawn whenever it isn't 0.
    is_causal : whether query i sees only the keys up to i.
    scale : a number; 1 / sqrt(e) if it is None.
    enable_gqa : whether query has several times as many heads (the third axis from the end) as key
        and value, of which each serves so many in a row.
    rng : what draws for `dropout_p`, numbers of the shape of the scores: a generator of NumPy's, a
        key of `tapegrad.random`, or None for `np.random`.

    Returns
    -------
    (..., l, v).

    Raises
    ------
    ValueError : the shapes don't fit, or `dropout_p` is no probability below 1.
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
        # With a causal mask a loop for each part, since the first ones need few keys.
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
        "and (..., s, v), whose axes in front broadcast"
    )


def _part(mask: Any, rows: slice, keys: int) -> Any:
    """What a mask says of some rows, and of the first keys."""
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
    """The means for some queries, which are scaled; those of the numbers `at`, if keys behind them
    are hidden."""
    scores = query @ np.swapaxes(key, -1, -2)
    if at is not None:
        scores = np.where(np.arange(scores.shape[-1]) <= at, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    # Whatever is subtracted cancels, so it has no derivative.
    top = stop_gradient(np.max(scores, axis=-1, keepdims=True, initial=-np.inf))
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = np.sum(weights, axis=-1, keepdims=True)
    if dropout_p:
        weights = np.where(drawn >= dropout_p, weights, 0) / (1 - dropout_p)
    return weights @ value / np.where(total == 0, 1, total)


def _in_rounds(query: Any, key: Any, value: Any, mask: Any, seen: Any, drawn: None) -> Any:
    """The same, block by block in a loop, which keeps no scores."""
    rows = query.shape[-2]
    count = -(-rows // ROWS)

    def in_blocks(x: Any) -> Any:
        """Blocks of rows, along a first axis; the last one is filled up with zeros."""
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
    """Where each head of key and value serves several of query."""
    heads = min(query.ndim, key.ndim, value.ndim) > 2 and [x.shape[-3] for x in (query, key, value)]
    if not heads or heads[1] != heads[2] or not heads[1] or heads[0] % heads[1]:
        raise ValueError(
            "scaled_dot_product_attention: with enable_gqa key and value should have as many "
            f"heads, and query a multiple; the shapes are {query.shape}, {key.shape} and "
            f"{value.shape}"
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
    """The mean of some choices, by weights that a hidden state decides with the choices themselves.

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
    norm : if it is there, a dict of `weight` and `bias`, both (choices,), of a `layer_norm` of the
        scores.

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
            f"{hidden.shape}, which take weights of {wanted[0]} and {wanted[1]}, and not of "
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
