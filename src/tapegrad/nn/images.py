"""Images, and other arrays on grids, in other sizes and arrangements, as PyTorch names them.

They are (n, c, d1, ...): examples, channels, and the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.nn.arguments import Array
from tapegrad.nn.convolution import as_batch, for_each, overlaid, padded, windows

LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}  # of how many dimensions each is
NEAREST = ("nearest", "nearest-exact")


def interpolate(
    input: Array,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Array:
    """Values on a finer or coarser grid: (n, c, *size) of (n, c, d1, ...).

    Parameters
    ----------
    input : (n, c, d1, ...).
    size : of the new grid, one number for all dimensions or one for each; or
    scale_factor : of how many times the old one's lengths they are, rounded down.
    mode : "nearest" (to the left, as PyTorch), "nearest-exact", or "linear", "bilinear",
        "trilinear" of one, two, three dimensions. PyTorch's "bicubic" and "area" aren't there.
    align_corners : of the linear ones, whether the outermost points are the same in both grids;
        else the cells have the same outer edges.

    Raises
    ------
    ValueError : both or none of `size` and `scale_factor`, another mode, one for another number of
        dimensions, `align_corners` with a nearest one, a new length that isn't positive.
    """
    lengths = np.shape(input)[2:]
    count = len(lengths)
    if mode not in NEAREST and LINEAR.get(mode) != count:
        known = ", ".join(map(repr, (*NEAREST, *LINEAR)))
        raise ValueError(
            f"interpolate: mode={mode!r} isn't for {count} dimensions; there are {known}"
        )
    if mode in NEAREST and align_corners is not None:
        raise ValueError(f"interpolate: align_corners is for linear modes, not {mode!r}")
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: pass size or scale_factor, one of them")
    if scale_factor is None:
        sizes = for_each("size", size, count, 1)
        steps = [n / m if m else math.inf for n, m in zip(lengths, sizes, strict=True)]
    else:
        given: Any = scale_factor
        factors = tuple(given) if isinstance(given, (tuple, list)) else (given,) * count
        if len(factors) != count:
            raise ValueError(
                f"interpolate: scale_factor={scale_factor} isn't for {count} dimensions"
            )
        sizes = tuple(math.floor(n * f) for n, f in zip(lengths, factors, strict=True))
        steps = [1 / f if f else math.inf for f in factors]
    if min((*sizes, *lengths), default=1) < 1:
        raise ValueError(f"interpolate: no grid of {lengths} becomes one of {sizes}")
    found = input
    for axis, (n, m, step) in enumerate(zip(lengths, sizes, steps, strict=True), 2):
        if mode in NEAREST:
            found = np.take(found, _nearest(n, m, step, mode), axis=axis)
        else:
            found = _between(found, axis, m, step, bool(align_corners))
    return found


def _nearest(n: int, m: int, step: float, mode: str) -> np.ndarray:
    """Which of n points is the value of each of m. PyTorch computes them in float32."""
    shift = np.float32(0.5 if mode == "nearest-exact" else 0)
    at = np.floor((np.arange(m, dtype=np.float32) + shift) * np.float32(step))
    return np.minimum(at.astype(np.intp), n - 1)


def _between(x: Array, axis: int, m: int, step: float, align_corners: bool) -> Array:
    """m values along an axis, each between two neighbours."""
    n = np.shape(x)[axis]
    if align_corners:
        at = np.arange(m) * ((n - 1) / (m - 1) if m > 1 else 0.0)
    else:
        at = np.maximum((np.arange(m) + 0.5) * step - 0.5, 0)
    left = np.minimum(at.astype(np.intp), n - 1)
    right = np.minimum(left + 1, n - 1)
    share = np.reshape(at - left, (m, *(1,) * (np.ndim(x) - axis - 1)))
    share = np.minimum(share, 1).astype(np.result_type(x, np.float16))
    return np.take(x, left, axis=axis) * (1 - share) + np.take(x, right, axis=axis) * share


def pixel_shuffle(input: Array, upscale_factor: int) -> Array:
    """(*, c, h r, w r) of (*, c r^2, h, w), with r = `upscale_factor`.

    Raises ValueError where r^2 doesn't divide the number of channels.
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
    """(*, c r^2, h, w) of (*, c, h r, w r), with r = `downscale_factor`: back from `pixel_shuffle`.

    Raises ValueError where r doesn't divide height and width.
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
    """The patches of images as columns: (n, c k1 k2, l) of (n, c, h, w), or both without n.

    Each argument is an integer, or one for height and one for width. l counts the patches, row by
    row. Raises ValueError where none fits.
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
    """Images whose pixels are the sums of all patches' there: (n, c, h, w) of (n, c k1 k2, l), or
    both without n. It is the transpose of `unfold`, and undoes it where patches don't overlap.

    Raises ValueError where shapes don't fit.
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
    """Kernel, dilation, padding and stride, and how many patches there are, along both axes."""
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
