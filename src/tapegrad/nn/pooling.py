"""Maxima and means of windows.

Both are computed axis by axis: first within the rows of a window, then over the results. All steps
are elementwise on shifted parts of the input, so they fuse with the surrounding calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.nn.convolution import as_batch, for_each, padded, shifted

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "max_pool1d",
    "max_pool2d",
]


class _Windows:
    """The positions of windows: `counts` along each axis, of elements `dilation` apart."""

    def __init__(
        self,
        name: str,
        sizes: Sequence[int],
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
    ) -> None:
        count = len(sizes)
        self.sizes = sizes
        self.k = for_each("kernel_size", kernel_size, count, 1)
        self.stride = self.k if stride is None else for_each("stride", stride, count, 1)
        self.padding = for_each("padding", padding, count, 0)
        self.dilation = for_each("dilation", dilation, count, 1)
        extents = [d * (n - 1) + 1 for n, d in zip(self.k, self.dilation, strict=True)]
        if any(2 * p > n for p, n in zip(self.padding, self.k, strict=True)):
            raise ValueError(
                f"{name}: padding={padding!r} should be at most half of kernel_size, "
                f"which is {self.k}"
            )
        counts = []
        for n, m, p, s in zip(sizes, extents, self.padding, self.stride, strict=True):
            free = n + 2 * p - m
            found = (-(-free // s) if ceil_mode else free // s) + 1
            if ceil_mode and (found - 1) * s >= n + p:
                found -= 1  # it would begin after the input
            counts.append(found)
        if min(counts) < 1:
            raise ValueError(
                f"{name}: windows of {tuple(extents)} are larger than the input with its padding, "
                f"of {tuple(sizes)} and {self.padding} at each end"
            )
        self.counts = tuple(counts)
        # The distance by which the last window exceeds the input.
        ends = [(o - 1) * s + m for o, s, m in zip(counts, self.stride, extents, strict=True)]
        self.after = [e - p - n for e, p, n in zip(ends, self.padding, sizes, strict=True)]

    def over(self, x: Any, value: Any) -> Any:
        """The input padded with a value, as far as windows reach."""
        return padded(x, self.padding, [max(0, n) for n in self.after], value)

    def parts(self, x: Any, axis: int) -> list[Any]:
        """For each place along an axis in a window, the elements of all windows at that place."""
        step, count, d = self.stride[axis], self.counts[axis], self.dilation[axis]
        return [shifted(x, 2 + axis, j * d, count, step) for j in range(self.k[axis])]

    def starts(self, axis: int) -> np.ndarray:
        """The starts of the windows in the input."""
        return np.arange(self.counts[axis]) * self.stride[axis] - self.padding[axis]

    def places(self, axis: int) -> list[np.ndarray]:
        """The positions of the parts in the input; before the input, the window's first inside."""
        d, starts = self.dilation[axis], self.starts(axis)
        first = starts + np.maximum(0, -(starts // d)) * d
        return [np.maximum(starts + j * d, first) for j in range(self.k[axis])]


def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`max_pool2d` of sequences, (n, c, length) or (c, length).

    Options, results and errors are those of `max_pool2d`, with one axis instead of two.
    """
    options = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool1d", 1, input, options, return_indices)


def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of images.

        out[n, c, y, x] = max over i, j of input[n, c, y stride + i dilation - padding, ...]

    over the elements inside the input. A NaN is larger than any number. Among equal elements the
    first, in the order of rows, has the derivative; NumPy's `max` shares it among them.

    Parameters
    ----------
    input : (n, c, height, width), or (c, height, width).
    kernel_size, stride, dilation : the lengths of a window, the distance between windows, and the
        distance between the elements of a window: an integer, or one for each axis. The stride
        defaults to `kernel_size`: windows don't overlap.
    padding : the number of elements by which windows reach beyond each end, at most half of
        `kernel_size`.
    ceil_mode : whether elements left over at an end get one more window.
    return_indices : whether to return the places of the maxima too: integers of the shape of the
        result, flat indices into an image of the input.

    Returns
    -------
    (n, c, height', width') with height' = (height + 2 padding - dilation (rows - 1) - 1) // stride
    + 1, rounded up with `ceil_mode`; width' likewise; or a pair of that and the places.

    Raises
    ------
    ValueError : a window is larger than the input, or an option has another value.
    """
    options = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool2d", 2, input, options, return_indices)


def _max_pool(name: str, count: int, x: Any, options: tuple[Any, ...], with_places: bool) -> Any:
    x, is_batch = as_batch(name, x, count)
    where = _Windows(name, x.shape[2:], *options)
    is_inexact = x.dtype.kind not in "iub"
    x = where.over(x, -np.inf if is_inexact else np.iinfo(x.dtype).min)
    places: Any = np.zeros(x.shape, int) if with_places else None
    for axis in reversed(range(count)):
        first, *rest = where.parts(x, axis)
        x = first
        if with_places:
            far = math.prod(where.sizes[axis + 1 :])
            along = [a.reshape(-1, *[1] * (count - 1 - axis)) * far for a in where.places(axis)]
            numbers = [a + b for a, b in zip(where.parts(places, axis), along, strict=True)]
            places = numbers[0]
        for j, part in enumerate(rest, start=1):
            wins = (part > x) | (part != part) if is_inexact else part > x
            x = np.where(wins, part, x)
            if with_places:
                places = np.where(wins, numbers[j], places)
    x = x if is_batch else x[0]
    if not with_places:
        return x
    return x, (places if is_batch else places[0])


def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """`avg_pool2d` of sequences, (n, c, length) or (c, length).

    Options, results and errors are those of `avg_pool2d`, with one axis instead of two.
    """
    options = (kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool("avg_pool1d", 1, input, options, count_include_pad, None)


def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:
    """The mean of each window of images.

        out[n, c, y, x] = sum over i, j of input[n, c, y stride + i - padding, ...] / divisor

    Parameters
    ----------
    input, kernel_size, stride, padding, ceil_mode : as in `max_pool2d`.
    count_include_pad : whether zeros of the padding count as elements of a window.
    divisor_override : the divisor of the sums, instead of the number of elements.

    Returns
    -------
    The means, of the shape of `max_pool2d`'s result.

    Raises
    ------
    ValueError : a window is larger than the input, or an option has another value.
    """
    options = (kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool("avg_pool2d", 2, input, options, count_include_pad, divisor_override)


def _avg_pool(
    name: str,
    count: int,
    x: Any,
    options: tuple[Any, ...],
    count_include_pad: bool,
    divisor_override: Any,
) -> Any:
    x, is_batch = as_batch(name, x, count)
    where = _Windows(name, x.shape[2:], *options)
    if divisor_override is not None and divisor_override == 0:
        raise ValueError(f"{name}: divisor_override should be a number other than 0")
    x = where.over(x, 0)
    divisor: Any = 1
    for axis in reversed(range(count)):
        first, *rest = where.parts(x, axis)
        x = sum(rest, first)
        starts, reach = where.starts(axis), where.padding[axis] if count_include_pad else 0
        ends = np.minimum(starts + where.k[axis], where.sizes[axis] + reach)
        own = ends - np.maximum(starts, -reach)
        divisor = (
            own[0] * divisor
            if (own == own[0]).all()
            else own.reshape(-1, *[1] * (count - 1 - axis)) * divisor
        )
    if divisor_override is not None:
        divisor = divisor_override
    elif np.ndim(divisor):
        divisor = divisor.astype(x.dtype if x.dtype.kind == "f" else float)
    else:
        divisor = int(divisor)
    x = x / divisor
    return x if is_batch else x[0]


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """`adaptive_avg_pool2d` of sequences, (n, c, length) or (c, length).

    The option, the result and errors are those of `adaptive_avg_pool2d`, with one axis instead of
    two.
    """
    return _adaptive("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """The means of windows that cover an image, a given number of them along each axis.

        out[n, c, y, x] = mean of input[n, c, y height // rows : -(-(y + 1) height // rows), ...]

    Parameters
    ----------
    input : (n, c, height, width), or (c, height, width).
    output_size : rows and columns of the result, or one integer for both. None keeps the length of
        an axis.

    Returns
    -------
    (n, c, rows, columns).

    Raises
    ------
    ValueError : an axis of the input is empty, or the option has another value.
    """
    return _adaptive("adaptive_avg_pool2d", 2, input, output_size)


def _adaptive(name: str, count: int, x: Any, output_size: Any) -> Any:
    x, is_batch = as_batch(name, x, count)
    asked = output_size if isinstance(output_size, (tuple, list)) else [output_size] * count
    sizes = x.shape[2:]
    if len(asked) != count or 0 in sizes:
        raise ValueError(
            f"{name}: output_size={output_size!r} doesn't fit an input of the shape {x.shape}"
        )
    filled = [n if m is None else m for m, n in zip(asked, sizes, strict=True)]
    x = adapted(x, for_each("output_size", filled, count, 1))
    return x if is_batch else x[0]


def adapted(x: Any, sizes: Sequence[int]) -> Any:
    """The means of sizes[k] windows along each axis k of a grid: (n, c, d1, ...) -->
    (n, c, *sizes)."""
    for along, out in enumerate(sizes, 2):
        n = x.shape[along]
        if n % out == 0:
            x = x.reshape(*x.shape[:along], out, n // out, *x.shape[along + 1 :])
            x = np.mean(x, axis=along + 1)
            continue
        ends = [(k * n // out, -(-(k + 1) * n // out)) for k in range(out)]
        parts = [shifted(x, along, start, end - start, 1) for start, end in ends]
        x = np.stack([np.mean(part, axis=along) for part in parts], axis=along)
    return x
