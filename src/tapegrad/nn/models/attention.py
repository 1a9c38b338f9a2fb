"""Networks with attention: transformers, and soft attention to some choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tapegrad.nn.attention as attention
from tapegrad.nn.arguments import check_probability
from tapegrad.nn.layers import dropout as dropped
from tapegrad.nn.layers import linear as product
from tapegrad.nn.models.layers import activation as function_of
from tapegrad.nn.models.layers import layer_norm as norm_of
from tapegrad.nn.models.layers import linear
from tapegrad.nn.models.model import Model, full, keys_of, uniform
from tapegrad.nn.normalisation import layer_norm as normalised

__all__ = ["soft_attention", "transformer", "transformer_block"]


def transformer_block(
    features: int,
    heads: int,
    feed_forward: int | None = None,
    activation: Any = "relu",
    dropout: float = 0.0,
    causal: bool = False,
    pre_norm: bool = True,
) -> Model:
    """Self-attention of a sequence, then two linear layers, each with a residual connection.

        x = x + attend(norm1(x));  x = x + linear2(activation(linear1(norm2(x))))

    and without `pre_norm`

        x = norm1(x + attend(x));  x = norm2(x + linear2(activation(linear1(x))))

    Call it by `model(params, x)` or `model(params, x, mask)`, for x (..., length, features) and a
    mask of `nn.scaled_dot_product_attention`.

    Parameters
    ----------
    features : the number of features of an entry.
    heads : the number of heads.
    feed_forward : the number of features between the linear layers; 4 * features by default.
    activation : the name of a function of `tapegrad.nn`, or "tanh", or any function of an array.
    dropout : the probability of dropout of attention weights, of the terms added to x, and between
        the linear layers.
    causal : whether an entry sees only entries up to itself.
    pre_norm : see above.

    Returns
    -------
    A `Model`. Parameters have the names and the initial values of
    `torch.nn.TransformerEncoderLayer`: `in_proj_weight` uniform in +-sqrt(1.5 / features), its bias
    and the bias of `out_proj` 0, the others as in `linear` and `layer_norm`.

    Raises
    ------
    ValueError : the heads don't divide the features, or the activation is no such function.
    """
    if heads < 1 or features % heads:
        raise ValueError(f"transformer_block: {features} features aren't {heads} equal parts")
    check_probability("transformer_block", "dropout", dropout)
    function, inner = function_of(activation), feed_forward or 4 * features
    parts = {
        "norm1": norm_of(features),
        "out_proj": linear(features, features),
        "norm2": norm_of(features),
        "linear1": linear(features, inner),
        "linear2": linear(inner, features),
    }
    starts = {name: part._starts for name, part in parts.items()}
    starts["self_attn"] = {
        "in_proj_weight": uniform(math.sqrt(1.5 / max(features, 1)), 3 * features, features),
        "in_proj_bias": full(0.0, 3 * features),
        "out_proj": {**starts.pop("out_proj"), "bias": full(0.0, features)},
    }

    def apply(
        params: Any, state: Any, training: bool, rng: Any, x: Any, mask: Any = None
    ) -> tuple[Any, Any]:
        if np.ndim(x) < 2 or np.shape(x)[-1] != features:
            raise ValueError(
                f"transformer_block: entries have the shape {np.shape(x)}, and should have (..., "
                f"length, {features})"
            )
        draws = iter(keys_of(rng, 4))

        def drop(x: Any) -> Any:
            return dropped(x, dropout, training, rng=next(draws))

        def attend(x: Any) -> Any:
            own = params["self_attn"]
            x = product(x, own["in_proj_weight"], own["in_proj_bias"])
            x = np.reshape(x, (*np.shape(x)[:-1], 3, heads, features // heads))
            query, key, value = (np.swapaxes(x[..., k, :, :], -3, -2) for k in range(3))
            found = attention.scaled_dot_product_attention(
                query,
                key,
                value,
                mask,
                dropout if training else 0.0,
                causal,
                rng=next(draws),
            )
            found = np.swapaxes(found, -3, -2)
            found = np.reshape(found, (*np.shape(found)[:-2], features))
            return drop(product(found, **own["out_proj"]))

        def feed(x: Any) -> Any:
            x = drop(function(product(x, **params["linear1"])))
            return drop(product(x, **params["linear2"]))

        for name, add in (("norm1", attend), ("norm2", feed)):
            own = params[name]
            if pre_norm:
                x = x + add(normalised(x, features, **own))
            else:
                x = normalised(x + add(x), features, **own)
        return x, {}

    return Model(f"transformer_block({features}, {heads})", starts, apply)


def transformer(
    features: int,
    heads: int,
    layers: int,
    feed_forward: int | None = None,
    activation: Any = "relu",
    dropout: float = 0.0,
    causal: bool = False,
    pre_norm: bool = True,
) -> Model:
    """A stack of `transformer_block`, followed by a `layer_norm` with `pre_norm`.

    Options and inputs are those of `transformer_block`.

    Returns
    -------
    A `Model`. Parameters are a dict: the list `layers`, and `norm` of the last norm.

    Raises
    ------
    ValueError : as `transformer_block`, or `layers` is less than 1.
    """
    if layers < 1:
        raise ValueError(f"transformer: layers={layers} should be at least 1")
    block = transformer_block(features, heads, feed_forward, activation, dropout, causal, pre_norm)
    starts: dict[str, Any] = {"layers": [block._starts] * layers}
    if pre_norm:
        starts["norm"] = norm_of(features)._starts

    def apply(
        params: Any, state: Any, training: bool, rng: Any, x: Any, mask: Any = None
    ) -> tuple[Any, Any]:
        for k, draws in enumerate(keys_of(rng, layers)):
            x, _ = block._apply(params["layers"][k], None, training, draws, x, mask)
        return (normalised(x, features, **params["norm"]) if pre_norm else x), {}

    return Model(f"transformer({features}, {heads}, {layers})", starts, apply)


def soft_attention(features: int, choices: int, hidden: int, layer_norm: bool = False) -> Model:
    """`nn.soft_attention`: `model(params, subject, hidden)` returns means and weights.

    subject : (n, features, choices).
    hidden : (n, hidden).

    Parameters and their initial values: `weight_subject` (features, choices), uniform in
    +-1 / sqrt(features); `weight_hidden` (hidden, choices), uniform in +-1 / sqrt(hidden); `bias`
    (choices,), 0. With `layer_norm` of the scores, `norm` has a `weight`, 1, and a `bias`, 0.
    """
    starts: dict[str, Any] = {
        "weight_subject": uniform(1 / math.sqrt(max(features, 1)), features, choices),
        "weight_hidden": uniform(1 / math.sqrt(max(hidden, 1)), hidden, choices),
    }
    if layer_norm:
        starts["norm"] = norm_of(choices)._starts
    else:
        starts["bias"] = full(0.0, choices)

    def apply(
        params: Any, state: Any, training: bool, rng: Any, subject: Any, hidden: Any
    ) -> tuple[Any, Any]:
        return attention.soft_attention(subject, hidden, **params), {}

    return Model(f"soft_attention({features}, {choices}, {hidden})", starts, apply)
