"""Layers: functions of `tapegrad.nn` with their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tapegrad.nn.layers as of_arrays
import tapegrad.nn.normalisation as normalisation
from tapegrad.nn import activations
from tapegrad.nn.arguments import check_probability
from tapegrad.nn.convolution import conv2d as convolved
from tapegrad.nn.indexing import embedding as rows_of
from tapegrad.nn.models.model import Model, full, normal, uniform
from tapegrad.nn.pooling import max_pool2d

__all__ = ["batch_norm", "conv2d", "dropout", "embedding", "layer_norm", "linear"]

Pair = tuple[int, int]


def linear(inputs: int, outputs: int, bias: bool = True) -> Model:
    """x W^T + b, for x (..., inputs).

    Parameters: `weight` (outputs, inputs) and `bias` (outputs,), initially uniform in
    +-1 / sqrt(inputs), as in `torch.nn.Linear`.
    """
    bound = 1 / math.sqrt(max(inputs, 1))
    starts = {"weight": uniform(bound, outputs, inputs)}
    if bias:
        starts["bias"] = uniform(bound, outputs)
    return _simple(
        f"linear({inputs}, {outputs})",
        starts,
        lambda params, x: of_arrays.linear(x, params["weight"], params.get("bias")),
    )


def conv2d(
    channels: int,
    outputs: int,
    kernel_size: int | Pair,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    groups: int = 1,
    bias: bool = True,
) -> Model:
    """Convolution of x (n, channels, height, width); stride and so on as in `nn.conv2d`.

    Parameters: `weight` (outputs, channels / groups, height, width of the kernel) and `bias`
    (outputs,), initially uniform in +-1 / sqrt(f), where f is the number of weights of an output,
    as in `torch.nn.Conv2d`.
    """
    shape = (outputs, channels // groups, *pair(kernel_size))
    bound = 1 / math.sqrt(max(math.prod(shape[1:]), 1))
    starts = {"weight": uniform(bound, *shape)}
    if bias:
        starts["bias"] = uniform(bound, outputs)

    def apply(params: Any, x: Any) -> Any:
        return convolved(x, params["weight"], params.get("bias"), stride, padding, groups=groups)

    return _simple(f"conv2d({channels}, {outputs}, {kernel_size})", starts, apply)


def embedding(count: int, features: int, length: int = 0) -> Model:
    """The row of each integer: (...) --> (..., features).

    With a `length`, integers (..., k), k <= length, also get a row for their place along the last
    axis, which is added.

    Parameters: `weight` (count, features), and `places` (length, features) with a `length`;
    initially normal with standard deviation 1, as in `torch.nn.Embedding`.
    """
    starts = {"weight": normal(count, features)}
    if length:
        starts["places"] = normal(length, features)

    def apply(params: Any, x: Any) -> Any:
        found = rows_of(x, params["weight"])
        if not length:
            return found
        if np.ndim(x) < 1 or np.shape(x)[-1] > length:
            raise ValueError(f"embedding: there are {length} places, and integers {np.shape(x)}")
        return found + params["places"][: np.shape(x)[-1]]

    return _simple(f"embedding({count}, {features})", starts, apply)


def layer_norm(features: int, eps: float = 1e-5) -> Model:
    """`nn.layer_norm` along the last axis, of length `features`.

    Parameters: `weight`, initially 1, and `bias`, initially 0, both (features,).
    """
    return _simple(
        f"layer_norm({features})",
        {"weight": full(1.0, features), "bias": full(0.0, features)},
        lambda params, x: normalisation.layer_norm(
            x, features, params["weight"], params["bias"], eps
        ),
    )


def batch_norm(features: int, momentum: float = 0.1, eps: float = 1e-5) -> Model:
    """`nn.batch_norm` of x (n, features, ...).

    Parameters: `weight`, initially 1, and `bias`, initially 0. The state is `mean` and `var`,
    initially 0 and 1. All are (features,).

    Raises
    ------
    ValueError : a call without a state that isn't training.
    """

    def apply(params: Any, state: Any, training: bool, _: Any, x: Any) -> tuple[Any, Any]:
        if not training and not state:
            raise ValueError("batch_norm: without training it needs state=, of model.state()")
        before = state or {"mean": None, "var": None}
        found, mean, var = normalisation.batch_norm(
            x,
            before["mean"],
            before["var"],
            params["weight"],
            params["bias"],
            training,
            momentum,
            eps,
            return_statistics=True,
        )
        return found, {"mean": mean, "var": var}

    return Model(
        f"batch_norm({features})",
        {"weight": full(1.0, features), "bias": full(0.0, features)},
        apply,
        lambda n: {"mean": full(0.0, features), "var": full(1.0, features)},
    )


def dropout(p: float = 0.5, channels: bool = False) -> Model:
    """`nn.dropout` in training, else x; with `channels`, whole channels of x (n, channels, ...).

    It draws one number for each element, or for each channel. There are no parameters.
    """
    check_probability("dropout", "p", p)

    def apply(params: Any, state: Any, training: bool, rng: Any, x: Any) -> tuple[Any, Any]:
        if not channels or not training:
            return of_arrays.dropout(x, p, training, rng=rng), {}
        kept = np.ones((*np.shape(x)[:2], *[1] * (np.ndim(x) - 2)), np.result_type(x))
        return x * of_arrays.dropout(kept, p, rng=rng), {}

    return Model(f"dropout({p})", {}, apply)


# ---- shared by models


def _simple(name: str, starts: Any, function: Callable[[Any, Any], Any]) -> Model:
    """A model without a state."""

    def apply(params: Any, state: Any, training: bool, rng: Any, x: Any) -> tuple[Any, Any]:
        return function(params, x), {}

    return Model(name, starts, apply)


def pair(x: int | Pair) -> Pair:
    return (x, x) if isinstance(x, int) else x


def activation(function: Any) -> Callable[[Any], Any]:
    """The function of `tapegrad.nn` of this name, "tanh", or the function passed."""
    if callable(function):
        return function
    found = np.tanh if function == "tanh" else getattr(activations, str(function), None)
    if not callable(found):
        raise ValueError(f"activation {function!r} is no function of tapegrad.nn, nor 'tanh'")
    return found


def for_each(name: str, value: Any, count: int) -> Sequence[Any]:
    """One value for each layer: the items of a list, or the same value for all."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} has {len(value)} items for {count} layers")
    return value


def max_pool(size: int | Pair) -> Callable[[Any], Any]:
    """Max pooling over squares of a size, or of a pair (size, stride)."""
    kernel, stride = pair(size)
    return lambda x: max_pool2d(x, kernel, stride)
