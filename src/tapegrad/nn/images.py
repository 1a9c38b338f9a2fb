"""Resampling and rearranging of images and other grids, with PyTorch's names.

Arrays are (n, c, d1, ...): examples, channels, and the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.nn.arguments import Array
from tapegrad.nn.convolution import as_batch, for_each, overlaid, padded, windows
from tapegrad.nn.pooling import adapted

BETWEEN = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}  # mode --> dimensions
NEAREST = ("nearest", "nearest-exact")
BEND = -0.75  # slope of the cubic weights at distance 1


def interpolate(
    input: Array,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Array:
    """Values on a finer or coarser grid: (n, c, d1, ...) --> (n, c, *size).

    Parameters
    ----------
    input : (n, c, d1, ...).
    size : the lengths of the new grid, one number for all dimensions or one for each; or
    scale_factor : the ratio of the new lengths to the old, likewise; lengths are rounded down.
    mode : "nearest" (rounds to the left, as PyTorch does), "nearest-exact", "linear" (one
        dimension), "bilinear" (two), "trilinear" (three), "bicubic" (two; cubic polynomials of four
        neighbours), or "area": each value is the mean of the cells that it covers, as in
        `adaptive_avg_pool2d`.
    align_corners : for the linear and cubic modes, whether the outermost points coincide in both
        grids; otherwise the outer edges of the cells do.
    recompute_scale_factor : whether the distance of the points follows from the rounded lengths
        instead of `scale_factor`.

    Raises
    ------
    ValueError : both or none of `size` and `scale_factor`; an unknown mode, or one for another
        number of dimensions; `align_corners` with a mode that has none; `recompute_scale_factor`
        with `size`; a new length that isn't positive.
    """
    lengths = np.shape(input)[2:]
    count = len(lengths)
    if mode not in (*NEAREST, "area") and BETWEEN.get(mode) != count:
        known = ", ".join(map(repr, (*NEAREST, "area", *BETWEEN)))
        raise ValueError(
            f"interpolate: mode={mode!r} isn't for {count} dimensions; there are {known}"
        )
    if mode not in BETWEEN and align_corners is not None:
        raise ValueError(f"interpolate: align_corners is for linear and cubic modes, not {mode!r}")
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: pass size or scale_factor, one of them")
    if recompute_scale_factor and scale_factor is None:
        raise ValueError("interpolate: recompute_scale_factor is for scale_factor, not for size")
    if scale_factor is None:
        sizes = for_each("size", size, count, 1)
        factors = None
    else:
        given: Any = scale_factor
        factors = tuple(given) if isinstance(given, (tuple, list)) else (given,) * count
        if len(factors) != count:
            raise ValueError(
                f"interpolate: scale_factor={scale_factor} isn't for {count} dimensions"
            )
        sizes = tuple(math.floor(n * f) for n, f in zip(lengths, factors, strict=True))
    if min((*sizes, *lengths), default=1) < 1:
        raise ValueError(f"interpolate: no grid of {lengths} becomes one of {sizes}")
    if mode == "area":
        return adapted(input, sizes)
    if factors is None or recompute_scale_factor:
        steps = [n / m for n, m in zip(lengths, sizes, strict=True)]
    else:
        steps = [1 / f for f in factors]
    found = input
    for axis, (n, m, step) in enumerate(zip(lengths, sizes, steps, strict=True), 2):
        if mode in NEAREST:
            if count == 2 and mode == "nearest" and m in (n, 2 * n):
                step = n / m  # as in PyTorch, whatever the factor was
            kind = np.float32 if count == 2 else np.result_type(input, np.float32)
            found = np.take(found, _nearest(n, m, step, mode, kind), axis=axis)
        else:
            found = _between(found, axis, m, step, bool(align_corners), mode == "bicubic")
    return found


def _nearest(n: int, m: int, step: float, mode: str, kind: Any) -> np.ndarray:
    """For each of m points, the index of the nearest of n points.

    PyTorch computes the positions in `kind` and rounds them to float32.
    """
    at = (np.arange(m) + (0.5 if mode == "nearest-exact" else 0.0)).astype(kind)
    at = (at * np.array(step, kind)).astype(np.float32)
    return np.minimum(np.floor(at).astype(np.intp), n - 1)


def _between(x: Array, axis: int, m: int, step: float, align_corners: bool, cubic: bool) -> Array:
    """m values along an axis, each a weighted sum of two or four neighbours.

    The outermost points stand for neighbours outside the grid.
    """
    n = np.shape(x)[axis]
    if align_corners:
        at = np.arange(m) * ((n - 1) / (m - 1) if m > 1 else 0.0)
    else:
        at = (np.arange(m) + 0.5) * step - 0.5
    if not cubic:
        at = np.clip(at, 0, n - 1)
    left = np.floor(at)
    t = at - left
    if cubic:
        shares = [_far(1 + t), _near(t), _near(1 - t), _far(2 - t)]
    else:
        shares = [1 - t, t]
    first = left.astype(np.intp) + 1 - len(shares) // 2
    dtype, shape = np.result_type(x, np.float16), (m, *(1,) * (np.ndim(x) - axis - 1))
    terms = [
        np.take(x, np.clip(first + k, 0, n - 1), axis=axis) * share.astype(dtype).reshape(shape)
        for k, share in enumerate(shares)
    ]
    return sum(terms[1:], terms[0])


def _near(t: np.ndarray) -> np.ndarray:
    """The weight of a point at a distance t <= 1: 1 at t=0, 0 at t=1; slopes 0 and `BEND`."""
    return ((BEND + 2) * t - (BEND + 3)) * t * t + 1


def _far(t: np.ndarray) -> np.ndarray:
    """The weight of a point at a distance 1 <= t <= 2: 0 at both ends, slopes `BEND` and 0."""
    return BEND * (((t - 5) * t + 8) * t - 4)


def pixel_shuffle(input: Array, upscale_factor: int) -> Array:
    """(*, c r^2, h, w) --> (*, c, h r, w r), with r = `upscale_factor`.

    Raises ValueError if r^2 doesn't divide the number of channels.
    """
    shape, r = np.shape(input), upscale_factor
    if len(shape) < 3 or r < 1 or shape[-3] % (r * r):
        raise ValueError(f"pixel_shuffle: input has shape {shape}, not (*, c * {r} * {r}, h, w)")
    *lead, channels, h, w = shape
    parts = np.reshape(input, (*lead, channels // (r * r), r, r, h, w))
    k = len(lead) + 1
    parts = np.transpose(parts, (*range(k), k + 2, k, k + 3, k + 1))
    return np.reshape(parts, (*lead, channels // (r * r), h * r, w * r))


def pixel_unshuffle(input: Array, downscale_factor: int) -> Array:
    """(*, c, h r, w r) --> (*, c r^2, h, w), with r = `downscale_factor`: undoes `pixel_shuffle`.

    Raises ValueError if r doesn't divide height and width.
    """
    shape, r = np.shape(input), downscale_factor
    if len(shape) < 3 or r < 1 or shape[-1] % r or shape[-2] % r:
        raise ValueError(f"pixel_unshuffle: input has shape {shape}, not (*, c, h * {r}, w * {r})")
    *lead, channels, h, w = shape
    parts = np.reshape(input, (*lead, channels, h // r, r, w // r, r))
    k = len(lead) + 1
    parts = np.transpose(parts, (*range(k), k + 1, k + 3, k, k + 2))
    return np.reshape(parts, (*lead, channels * r * r, h // r, w // r))


def unfold(
    input: Array, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Array:
    """The patches of images as columns: (n, c, h, w) --> (n, c k1 k2, l), or both without n.

    Each argument is an integer, or one for height and one for width. l counts the patches, row by
    row. Raises ValueError if no patch fits.
    """
    x, is_batch = as_batch("unfold", input, 2)
    k, dilations, pads, strides, counts = _patches(
        "unfold", np.shape(x)[2:], kernel_size, dilation, padding, stride
    )
    parts = windows(padded(x, pads, pads), k, strides, dilations, counts)
    found = np.reshape(parts, (*np.shape(x)[:1], -1, math.prod(counts)))
    return found if is_batch else found[0]


def fold(
    input: Array,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Array:
    """Images of summed patches: (n, c k1 k2, l) --> (n, c, h, w), or both without n.

    Each pixel is the sum of the patches at its place. It is the transpose of `unfold`, and its
    inverse where patches don't overlap. Raises ValueError for shapes that don't fit.
    """
    sizes = for_each("output_size", output_size, 2, 1)
    k, dilations, pads, strides, counts = _patches(
        "fold", sizes, kernel_size, dilation, padding, stride
    )
    x, is_batch = as_batch("fold", input, 1)
    n, channels, places = np.shape(x)
    if channels % math.prod(k) or places != math.prod(counts):
        raise ValueError(
            f"fold: input has shape {np.shape(input)}, and must be "
            f"(n, c * {math.prod(k)}, {math.prod(counts)}) for these sizes"
        )
    parts = np.reshape(x, (n, channels // math.prod(k), *k, *counts))
    found = overlaid(parts, k, strides, dilations)
    ends = [size - m + p for size, m, p in zip(sizes, np.shape(found)[2:], pads, strict=True)]
    found = padded(found, [-p for p in pads], ends)
    return found if is_batch else found[0]


def _patches(
    function: str, sizes: Sequence[int], kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> list[tuple[int, ...]]:
    """Kernel, dilation, padding, stride and number of patches, each along both axes."""
    options = [
        for_each("kernel_size", kernel_size, 2, 1),
        for_each("dilation", dilation, 2, 1),
        for_each("padding", padding, 2, 0),
        for_each("stride", stride, 2, 1),
    ]
    counts = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(sizes, *options, strict=True)
    )
    if min(counts) < 1:
        raise ValueError(f"{function}: no kernel of {options[0]} fits into {tuple(sizes)}")
    return [*options, counts]
