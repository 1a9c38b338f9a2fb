"""Normalisation, with the names of `torch.nn.functional`.

All but the last two compute weight * (x - mean) / sqrt(variance + eps) + bias, with the mean and
variance of some elements; the variance is the mean of squared differences. Arguments are not
changed: new running statistics are returned on request.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegrad.nn.arguments import (
    Array,
    axis_in,
    check_shape,
    chosen_axis,
)


def batch_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    mask: Array | None = None,
    return_statistics: bool = False,
) -> Any:
    """(x - mean) / sqrt(variance + eps) for each channel, of the batch or by running statistics.

    Parameters
    ----------
    input : (n, c) or (n, c, d1, ...), of c channels.
    running_mean, running_var, weight, bias : (c,), or None.
    training : whether mean and variance are the batch's.
    momentum : the weight of the batch in the new running statistics; the batch's variance there
        divides by n - 1.
    eps : a number that is added to the variance.
    mask : in training, the entries that count in mean and variance: bool, of the shape of `input`
        without c, or of the first axes of that shape, as (n,). All entries are normalised.
    return_statistics : whether the result is `(output, running_mean, running_var)` with the new
        running statistics (without training: the old ones). PyTorch writes into its arguments
        instead. Running statistics that are None start as 0 and 1.

    Returns
    -------
    An array of the shape of `input`, or the three results.

    Raises
    ------
    ValueError : shapes don't fit; without training, running statistics are missing; in training,
        there is one value for each channel.
    """
    if np.ndim(input) < 2:
        raise ValueError(f"batch_norm: input has shape {np.shape(input)}, not (n, c, ...)")
    count = np.shape(input)[1]
    axes = (0, *range(2, np.ndim(input)))
    _check_channels("batch_norm", count, running_mean, running_var, weight, bias)
    mean, var = running_mean, running_var
    if training:
        mean, var, number = _moments("batch_norm", input, axes, mask)
        if return_statistics:
            unbiased = var * (number / (number - 1))
            old_mean = np.zeros_like(mean) if running_mean is None else running_mean
            old_var = np.ones_like(var) if running_var is None else running_var
            running_mean = (1 - momentum) * old_mean + momentum * mean
            running_var = (1 - momentum) * old_var + momentum * unbiased
    elif mean is None or var is None:
        raise ValueError("batch_norm: without training it needs running_mean and running_var")
    found = _normalised(input, _channels(mean, input), _channels(var, input), eps)
    found = _scaled(found, _channels(weight, input), _channels(bias, input))
    return (found, running_mean, running_var) if return_statistics else found


def instance_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    return_statistics: bool = False,
) -> Any:
    """(x - mean) / sqrt(variance + eps) for each channel of each example, over the axes d1, ...

    `input` is (n, c, d1, ...). The other arguments are those of `batch_norm`, with
    `use_input_stats` for `training`; new running statistics are means over the batch.

    Raises ValueError if shapes don't fit, running statistics are missing, or there is one value for
    each channel.
    """
    if np.ndim(input) < 3:
        raise ValueError(f"instance_norm: input has shape {np.shape(input)}, not (n, c, d1, ...)")
    count = np.shape(input)[1]
    _check_channels("instance_norm", count, running_mean, running_var, weight, bias)
    if use_input_stats:
        axes = tuple(range(2, np.ndim(input)))
        mean, var, number = _moments("instance_norm", input, axes, None)
        if return_statistics:
            old_mean = 0 if running_mean is None else running_mean
            old_var = 1 if running_var is None else running_var
            unbiased = np.mean(var, axis=0) * (number / (number - 1))
            running_mean = (1 - momentum) * old_mean + momentum * np.mean(mean, axis=0)
            running_var = (1 - momentum) * old_var + momentum * unbiased
        mean, var = (np.reshape(x, (*np.shape(x), *(1,) * len(axes))) for x in (mean, var))
    elif running_mean is None or running_var is None:
        raise ValueError(
            "instance_norm: without use_input_stats it needs running_mean and running_var"
        )
    else:
        mean, var = _channels(running_mean, input), _channels(running_var, input)
    found = _normalised(input, mean, var, eps)
    found = _scaled(found, _channels(weight, input), _channels(bias, input))
    return (found, running_mean, running_var) if return_statistics else found


def layer_norm(
    input: Array,
    normalized_shape: int | tuple[int, ...],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """(x - mean) / sqrt(variance + eps) for each example, over the last axes.

    `normalized_shape` is the shape of those axes, and of `weight` and `bias`. Raises ValueError for
    shapes that don't fit.
    """
    shape = _last_axes("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    axes = tuple(range(-len(shape), 0))
    centred = input - np.mean(input, axis=axes, keepdims=True)
    var = np.mean(centred * centred, axis=axes, keepdims=True)
    return _scaled(centred * (1 / np.sqrt(var + eps)), weight, bias)


def rms_norm(
    input: Array,
    normalized_shape: int | tuple[int, ...],
    weight: Array | None = None,
    eps: float | None = None,
) -> Array:
    """x / sqrt(mean(x^2) + eps) over the last axes, times `weight`; see `layer_norm`.

    `eps` defaults to the machine epsilon of the dtype.
    """
    shape = _last_axes("rms_norm", input, normalized_shape, weight=weight)
    axes = tuple(range(-len(shape), 0))
    if eps is None:
        eps = float(np.finfo(np.result_type(input)).eps)
    square = np.mean(input * input, axis=axes, keepdims=True)
    return _scaled(input * (1 / np.sqrt(square + eps)), weight, None)


def group_norm(
    input: Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """(x - mean) / sqrt(variance + eps) for each group of channels of each example.

    `input` is (n, c, d1, ...), `weight` and `bias` are (c,). Raises ValueError if `num_groups`
    doesn't divide c, and for shapes that don't fit.
    """
    shape = np.shape(input)
    if len(shape) < 2:
        raise ValueError(f"group_norm: input has shape {shape}, not (n, c, ...)")
    if num_groups < 1 or shape[1] % num_groups:
        raise ValueError(f"group_norm: {shape[1]} channels aren't {num_groups} equal groups")
    _check_channels("group_norm", shape[1], weight, bias)
    groups = np.reshape(input, (shape[0], num_groups, math.prod(shape[1:]) // num_groups))
    centred = groups - np.mean(groups, axis=-1, keepdims=True)
    var = np.mean(centred * centred, axis=-1, keepdims=True)
    found = np.reshape(centred * (1 / np.sqrt(var + eps)), shape)
    return _scaled(found, _channels(weight, input), _channels(bias, input))


def local_response_norm(
    input: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Array:
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta.

    `input` is (n, c, d1, ...); channels outside it count as 0. Raises ValueError for other shapes
    and for a `size` that isn't positive.
    """
    if np.ndim(input) < 3:
        raise ValueError(
            f"local_response_norm: input has shape {np.shape(input)}, not (n, c, d1, ...)"
        )
    if size < 1:
        raise ValueError(f"local_response_norm: size={size} must be positive")
    edges = [(0, 0)] * np.ndim(input)
    edges[1] = (size // 2, (size - 1) // 2)
    squares = np.pad(input * input, edges)
    count = np.shape(input)[1]
    near = squares[:, :count]
    for shift in range(1, size):
        near = near + squares[:, shift : shift + count]
    return input / (k + near * (alpha / size)) ** beta


def weight_norm(v: Array, g: Array, dim: int | None = 0, *, axis: int | None = None) -> Array:
    """g v / |v|, with the norm over all axes but `dim` (or `axis`); over all axes for None.

    `g` has the length of v along that axis, and 1 along the others. Raises IndexError for an axis
    that doesn't exist, ValueError for another shape of `g`.
    """
    along = chosen_axis("weight_norm", dim, axis, 0)
    shape = np.shape(v)
    if along is not None:
        along = axis_in("weight_norm", along, len(shape))
    kept = tuple(n if i == along else 1 for i, n in enumerate(shape))
    if np.shape(g) != (kept if along is not None else ()):
        check_shape("weight_norm", "g", g, kept)
    axes = tuple(i for i in range(len(shape)) if i != along)
    return v * (g / np.sqrt(np.sum(v * v, axis=axes, keepdims=True)))


def normalize(
    input: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12, *, axis: int | None = None
) -> Array:
    """x / max(|x|, eps), with the p-norm along `dim` (or `axis`).

    Raises IndexError for an axis that doesn't exist.
    """
    along = axis_in("normalize", chosen_axis("normalize", dim, axis, 1), np.ndim(input))
    norm = np.linalg.norm(input, p, axis=along, keepdims=True)
    return input / np.where(norm < eps, eps, norm)


def _moments(
    function: str, input: Array, axes: tuple[int, ...], mask: Array | None
) -> tuple[Array, Array, Array]:
    """Mean and variance along the axes, and the number of elements."""
    if mask is None:
        number: Any = math.prod(np.shape(input)[axis] for axis in axes)
        if number < 2:
            raise ValueError(
                f"{function}: input has shape {np.shape(input)}, one value for each channel; a "
                "deviation needs more"
            )
        mean = np.mean(input, axis=axes, keepdims=True)
        centred = input - mean
        return np.squeeze(mean, axes), np.mean(centred * centred, axis=axes), number
    places = (np.shape(input)[0], *np.shape(input)[2:])
    if np.shape(mask) != places[: np.ndim(mask)] or np.result_type(mask).kind != "b":
        raise ValueError(
            f"{function}: mask is {np.result_type(mask)} of shape {np.shape(mask)}, and must be "
            f"bool, of {places} or its first axes"
        )
    shape = np.shape(mask)
    counts = np.reshape(mask, (*shape[:1], 1, *shape[1:], *(1,) * (len(places) - len(shape))))
    each = math.prod(places[len(shape) :])
    number = np.sum(mask) * each
    if number < 2:
        raise ValueError(f"{function}: mask leaves fewer than two values for each channel")
    number = number.astype(np.result_type(input))
    mean = np.sum(np.where(counts, input, 0), axis=axes) / number
    centred = np.where(counts, input - _channels(mean, input), 0)
    return mean, np.sum(centred * centred, axis=axes) / number, number


def _normalised(input: Array, mean: Array, var: Array, eps: float) -> Array:
    return (input - mean) * (1 / np.sqrt(var + eps))


def _scaled(x: Array, weight: Array | None, bias: Array | None) -> Array:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _channels(x: Array | None, input: Array) -> Array:
    """One number for each channel, in a shape that broadcasts with `input`."""
    return None if x is None else np.reshape(x, (-1, *(1,) * (np.ndim(input) - 2)))


def _check_channels(function: str, count: int, *arrays: Array | None) -> None:
    for array in arrays:
        if array is not None and np.shape(array) != (count,):
            raise ValueError(
                f"{function}: an array of shape {np.shape(array)} is for {count} channels; its "
                f"shape must be {(count,)}"
            )


def _last_axes(
    function: str, input: Array, shape: int | tuple[int, ...], **arrays: Array | None
) -> tuple[int, ...]:
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not shape or np.shape(input)[-len(shape) :] != shape:
        raise ValueError(
            f"{function}: normalized_shape={shape} isn't the end of input's shape {np.shape(input)}"
        )
    for name, array in arrays.items():
        if array is not None:
            check_shape(function, name, array, shape)
    return shape
