"""Feed-forward networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tapegrad.nn.layers import flatten
from tapegrad.nn.models.layers import (
    activation,
    batch_norm,
    conv2d,
    dropout,
    for_each,
    linear,
    max_pool,
    pair,
)
from tapegrad.nn.models.model import Model, chain

__all__ = ["mlp", "spatial"]


def mlp(
    inputs: int,
    hidden: Sequence[int],
    activations: Any = "relu",
    classifier: bool = False,
    dropout: Any = 0.0,
    batch_norm: bool = False,
) -> Model:
    """Linear layers with functions between them: (n, inputs) --> (n, hidden[-1]).

    A layer consists of dropout, `linear`, batch normalisation and the function, each if asked for.

    Parameters
    ----------
    inputs : the number of input features.
    hidden : the number of outputs of each layer.
    activations : the name of a function of `tapegrad.nn`, or "tanh", or any function of an array;
        a list has one for each layer.
    classifier : whether the last layer is linear only: its outputs are scores for
        `nn.cross_entropy`.
    dropout : the probability that an input of a layer is dropped; a list has one for each layer.
    batch_norm : whether layers have batch normalisation; then pass `state=`.

    Returns
    -------
    A `Model`. Parameters are a list with `linear` and `norm` of each layer.

    Raises
    ------
    ValueError : a list has another length than `hidden`, or an activation is no such function.
    """
    count = len(hidden)
    functions = for_each("activations", activations, count)
    drops = for_each("dropout", dropout, count)
    layers = []
    for k, (before, size) in enumerate(zip([inputs, *hidden], hidden, strict=False)):
        is_last = classifier and k == count - 1
        layers.append(
            _layer(
                "linear",
                linear(before, size),
                size,
                None if is_last else functions[k],
                drops[k],
                batch_norm and not is_last,
            )
        )
    return chain("mlp", *layers)


def spatial(
    channels: int,
    size: tuple[int, int],
    features: Sequence[int],
    hidden: Sequence[int] = (),
    kernel_sizes: Any = 5,
    paddings: Any = None,
    input_stride: int = 1,
    poolings: Any = 1,
    activations: Any = "relu",
    classifier: bool = True,
    dropout: Any = 0.0,
    batch_norm: bool = False,
    hidden_dropout: Any = 0.0,
) -> Model:
    """Convolutions of images (n, channels, height, width), followed by an `mlp`.

        lenet = spatial(1, (28, 28), [6, 16], [120, 84, 10], paddings=[2, 0], poolings=2)

    A layer consists of dropout of whole channels, `conv2d`, batch normalisation, the function, and
    max pooling, each if asked for.

    Parameters
    ----------
    channels, size : the number of channels and the size of the images.
    features : the number of output channels of each convolution.
    hidden : the number of outputs of each layer of the `mlp`; without it the result is the maps.
    kernel_sizes, paddings, poolings : a number or pair for all convolutions, or a list with one for
        each. The default padding is half the kernel, which keeps the size. A pooling is a size or a
        pair (size, stride); 1 means none.
    input_stride : the stride of the first convolution.
    activations, dropout, batch_norm : as in `mlp`. The activation also applies to the `mlp`, unless
        it is a list.
    classifier, hidden_dropout : `classifier` and `dropout` of the `mlp`.

    Returns
    -------
    A `Model`. Parameters are a dict: `maps` is a list with `conv` and `norm` of each layer,
    `hidden` has the parameters of an `mlp`.

    Raises
    ------
    ValueError : a layer's result is empty, a list's length differs from the number of layers, or
        an activation is no such function.
    """
    count = len(features)
    kernels = [pair(k) for k in for_each("kernel_sizes", kernel_sizes, count)]
    given = for_each("paddings", paddings, count)
    pads = [
        (k[0] // 2, k[1] // 2) if p is None else pair(p)
        for k, p in zip(kernels, given, strict=True)
    ]
    pools = [pair(p) for p in for_each("poolings", poolings, count)]
    functions = for_each("activations", activations, count)
    drops = for_each("dropout", dropout, count)
    layers = []
    for k, outputs in enumerate(features):
        stride = input_stride if k == 0 else 1
        size = _left(size, kernels[k], stride, pads[k])
        pool, by = pools[k]
        size = _left(size, (pool, pool), by, (0, 0))
        if min(size) < 1:
            raise ValueError(f"spatial: nothing is left of the images after layer {k}")
        conv = conv2d(channels, outputs, kernels[k], stride, pads[k])
        layers.append(_layer("conv", conv, outputs, functions[k], drops[k], batch_norm, pools[k]))
        channels = outputs
    maps = chain("maps", *layers)
    if not hidden:
        return chain("spatial", maps=maps)
    dense = mlp(
        channels * math.prod(size),
        hidden,
        "relu" if isinstance(activations, list) else activations,
        classifier,
        hidden_dropout,
        batch_norm,
    )
    return chain("spatial", maps=maps, flatten=lambda x: flatten(x, 1), hidden=dense)


def _left(size: Any, kernel: Any, stride: int, padding: Any) -> tuple[int, int]:
    """The size of the result of a window that moves over images."""
    rows, columns = (
        (n + 2 * p - k) // stride + 1 for n, k, p in zip(size, kernel, padding, strict=True)
    )
    return rows, columns


def _layer(
    kind: str,
    operation: Model,
    features: int,
    function: Any,
    p: float,
    normalised: bool,
    pool: tuple[int, int] = (1, 1),
) -> Model:
    """Dropout, the operation, normalisation, the function and pooling, each if asked for."""
    parts: dict[str, Any] = {}
    if p:
        parts["dropout"] = dropout(p, channels=kind == "conv")
    parts[kind] = operation
    if normalised:
        parts["norm"] = batch_norm(features)
    if function is not None:
        parts["activation"] = activation(function)
    if pool != (1, 1):
        parts["pool"] = max_pool(pool)
    return chain("layer", **parts)
