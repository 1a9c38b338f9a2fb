"""Convolutions and their transposes, as matrix products.

A product multiplies all windows of an array with the weights of all output channels. The windows
keep one axis for each of their dimensions, so that the compiled product reads them from the array
and copies none. If a group has one channel, the sum runs over the window only: then shifted parts
of the array, each times one number, are added.

Names: `n` the size of a batch, `c` channels, `g` groups, `k` the sizes of a kernel, one for each
axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import tapegrad.numpy as filled  # whose arrays can be filled with traced values
from tapegrad.nn.arguments import as_array

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]

MAX_TERMS = 64  # largest number of terms of a sum that is written out


# ---- arguments


def for_each(name: str, given: Any, count: int, least: int) -> tuple[int, ...]:
    """An option, one integer or one for each axis, as a tuple; a ValueError if it is neither."""
    found = np.ravel(given)
    if found.size not in (1, count) or found.dtype.kind not in "iu" or (found < least).any():
        what = "an integer" if count == 1 else f"an integer or {count} of them"
        raise ValueError(f"{name}={given!r} should be {what}, from {least} up")
    return tuple(int(k) for k in np.broadcast_to(found, count))


def as_batch(name: str, x: Any, count: int) -> tuple[Any, bool]:
    """The operand with a batch axis, and whether it was passed with one."""
    x = as_array(x)
    if x.ndim not in (count + 1, count + 2):
        raise ValueError(
            f"{name}: the input has the shape {x.shape}, and should have {count + 2} axes "
            f"(batch, channels and {count}), or {count + 1} without a batch"
        )
    return (x, True) if x.ndim == count + 2 else (x[None], False)


# ---- windows


def padded(x: Any, before: Sequence[int], after: Sequence[int], value: Any = 0) -> Any:
    """Pad the last axes by `before` and `after`; a negative number cuts elements off."""
    pairs = list(zip(before, after, strict=True))
    if any(k < 0 for pair in pairs for k in pair):
        ends = [n - max(0, -m) for n, (_, m) in zip(x.shape[2:], pairs, strict=True)]
        x = x[(..., *[slice(max(0, -k), end) for end, (k, _) in zip(ends, pairs, strict=True)])]
    wide = [(max(0, k), max(0, m)) for k, m in pairs]
    return np.pad(x, [(0, 0), (0, 0), *wide], constant_values=value) if any(map(any, wide)) else x


def shifted(x: Any, axis: int, start: int, count: int, step: int) -> Any:
    """The `count` elements start, start + step, ... along an axis."""
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, start + (count - 1) * step + 1, step)
    return x[tuple(index)]


def windows(
    x: Any, k: Sequence[int], stride: Sequence[int], dilation: Sequence[int], counts: Sequence[int]
) -> Any:
    """The windows over the last axes: (n, c, *sizes) --> (n, c, *k, *counts)."""
    first, along = x.ndim - len(k), x.ndim - 1
    for axis in reversed(range(len(k))):  # always the last axis not yet split
        starts = [j * dilation[axis] for j in range(k[axis])]
        parts = [shifted(x, along, start, counts[axis], stride[axis]) for start in starts]
        x = np.stack(parts, axis=first) if len(parts) > 1 else np.expand_dims(parts[0], first)
    return x


def _places(
    x: Any, k: Sequence[int], stride: Sequence[int], dilation: Sequence[int], counts: Sequence[int]
) -> Iterator[Any]:
    """For each place in a window, the elements of all windows at that place."""
    for place in np.ndindex(*k):
        part = x
        for axis, j in enumerate(place):
            part = shifted(part, 2 + axis, j * dilation[axis], counts[axis], stride[axis])
        yield part


def overlaid(x: Any, k: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """The transpose of `windows`: (n, c, *k, *counts) --> (n, c, *sizes); overlaps are added."""
    axis = 1 + len(k)
    for size, step, spacing in zip(k, stride, dilation, strict=True):
        parts = [x[:, :, j] for j in range(size)]
        end = (parts[0].shape[axis] - 1) * step + (size - 1) * spacing + 1
        if step == 1:
            x = _added(parts, axis, [j * spacing for j in range(size)], end)
            continue
        shape = [*parts[0].shape]
        shape[axis] = end
        x = filled.zeros(shape, parts[0].dtype)
        for phase in range(min(step, end)):  # no other phase adds to these elements
            those = [j for j in range(size) if j * spacing % step == phase]
            if those:
                far, many = [j * spacing // step for j in those], -(-(end - phase) // step)
                place = (slice(None),) * axis + (slice(phase, None, step),)
                x[place] = _added([parts[j] for j in those], axis, far, many)
    return x


def _added(parts: Sequence[Any], axis: int, starts: Sequence[int], end: int) -> Any:
    """The sum of arrays shifted by `starts` along an axis, padded with zeros to length `end`."""
    ends = [end - start - part.shape[axis] for part, start in zip(parts, starts, strict=True)]
    none = [(0, 0)]
    wide = [
        np.pad(part, none * axis + [pair] + none * (part.ndim - axis - 1)) if any(pair) else part
        for part, pair in zip(parts, zip(starts, ends, strict=True), strict=True)
    ]
    return sum(wide[1:], wide[0])


# ---- convolutions


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """`conv2d` of sequences: input (n, c, length), weight (out, c / groups, size).

    Shapes, options and errors are those of `conv2d`, with one axis instead of two.
    """
    return _conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """The sums of products of a kernel with the windows of images.

        out[n, o, y, x] = bias[o] + sum over c, i, j of
            weight[o, c, i, j] input[n, c, y stride + i dilation - padding, ...]

    The input is zero outside its bounds. With several groups, each group of output channels sums
    over the same group of input channels.

        >>> conv2d(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2))).shape
        (1, 1, 2, 2)

    Parameters
    ----------
    input : (n, c, height, width), or (c, height, width), which gives (out, height, width).
    weight : (out, c / groups, rows, columns).
    bias : (out,), or None.
    stride, dilation : the distance between neighbouring windows, and between neighbouring elements
        of a window: an integer, or one for each axis.
    padding : the number of zeros at each end: an integer, or one for each axis. "valid" means 0;
        "same" keeps the size and needs a stride of 1; an odd number puts one zero more at the end.
    groups : a divisor of c and of out.

    Returns
    -------
    (n, out, height', width') with height' = (height + 2 padding - dilation (rows - 1) - 1) //
    stride + 1; width' likewise. The dtype is the dtype of `input * weight`.

    Raises
    ------
    ValueError : the shapes don't fit, a window is larger than the padded input, or an option has
        another value.
    """
    return _conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """`conv2d` of volumes: input (n, c, depth, height, width), weight (out, c / groups, ...).

    Shapes, options and errors are those of `conv2d`, with three axes instead of two.
    """
    return _conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _conv(
    name: str,
    count: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    x, is_batch = as_batch(name, x, count)
    weight = _kernel(name, weight, count)
    stride = for_each("stride", stride, count, 1)
    dilation = for_each("dilation", dilation, count, 1)
    (groups,) = for_each("groups", groups, 1, 1)
    out, own, *k = weight.shape
    if x.shape[1] != own * groups or out % groups:
        raise ValueError(
            f"{name}: a weight of the shape {weight.shape} with groups={groups} takes "
            f"{own * groups} channels to a multiple of {groups}; the input has the shape {x.shape}"
        )
    extents = [spacing * (size - 1) + 1 for size, spacing in zip(k, dilation, strict=True)]
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f'padding={padding!r} should be "same", "valid" or integers')
        if padding == "same" and any(step > 1 for step in stride):
            raise ValueError(f'padding="same" needs a stride of 1, not {stride}')
        total = [n - 1 if padding == "same" else 0 for n in extents]
        before = [n // 2 for n in total]
        after = [n - m for n, m in zip(total, before, strict=True)]
    else:
        before = after = list(for_each("padding", padding, count, 0))
    x = padded(x, before, after)
    counts = [(n - m) // s + 1 for n, m, s in zip(x.shape[2:], extents, stride, strict=True)]
    if any(n < 1 for n in counts):
        raise ValueError(
            f"{name}: windows of {tuple(extents)} are larger than the padded input, whose shape "
            f"is {x.shape}"
        )
    if own == 1 and groups > 1 and math.prod(k) <= MAX_TERMS:
        found = _each_channel(x, weight, groups, stride, dilation, counts)
    else:
        if groups > 1:
            x = x.reshape(len(x), groups, own, *x.shape[2:])
            weight = weight.reshape(groups, out // groups, own, *k)
        found = _of_windows(windows(x, k, stride, dilation, counts), weight, len(k))
    return _finished(name, found.reshape(len(x), out, *counts), bias, is_batch)


def _each_channel(
    x: Any,
    weight: Any,
    groups: int,
    stride: Sequence[int],
    dilation: Sequence[int],
    counts: Sequence[int],
) -> Any:
    """The convolution with one channel a group, of shape (n, g, out / g, *counts)."""
    out, _, *k = weight.shape
    rest = (None,) * len(k)
    weight = weight.reshape(groups, out // groups, *k)
    factors = [weight[(..., *place, *rest)] for place in np.ndindex(*k)]
    parts = _places(x, k, stride, dilation, counts)
    terms = [w * part[:, :, None] for w, part in zip(factors, parts, strict=True)]
    return sum(terms[1:], terms[0])


def _of_windows(columns: Any, weight: Any, axes: int) -> Any:
    """The convolution as a product with all windows, (n, c, *k, *counts) or (n, g, c, ...)."""
    if type(columns) is type(weight) is np.ndarray:  # einsum would choose another order of axes
        n, *groups, _ = columns.shape[: -2 * axes]
        depth, many = math.prod(weight.shape[-1 - axes :]), math.prod(columns.shape[-axes:])
        rows = weight.reshape(*weight.shape[: -1 - axes], depth)
        return rows @ columns.reshape(n, *groups, depth, many)
    places, sizes, g = "ijk"[:axes], "xyz"[:axes], "g" * (weight.ndim - axes - 2)
    terms = f"{g}oc{places},n{g}c{places}{sizes}->n{g}o{sizes}"
    return np.einsum(terms, weight, columns, optimize=True)


def _kernel(name: str, weight: Any, count: int) -> Any:
    weight = as_array(weight)
    if weight.ndim != count + 2 or 0 in weight.shape[2:]:
        raise ValueError(
            f"{name}: the weight has the shape {weight.shape}, and should have {count + 2} axes, "
            f"the last {count} of them the sizes of the kernel"
        )
    return weight


def _finished(name: str, found: Any, bias: Any, is_batch: bool) -> Any:
    if bias is not None:
        if np.shape(bias) != (found.shape[1],):
            raise ValueError(
                f"{name}: the bias has the shape {np.shape(bias)}, and the result has "
                f"{found.shape[1]} channels"
            )
        found = found + np.reshape(bias, (-1, *[1] * (found.ndim - 2)))
    return found if is_batch else found[0]


# ---- transposed convolutions


def conv_transpose1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """`conv_transpose2d` of sequences: input (n, c, length), weight (c, out / groups, size).

    Shapes, options and errors are those of `conv_transpose2d`, with one axis instead of two.
    """
    options = (stride, padding, output_padding, groups, dilation)
    return _conv_transpose("conv_transpose1d", 1, input, weight, bias, *options)


def conv_transpose2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """The transpose of `conv2d` as a linear map of its input, with the same weight and options.

        out[n, o, y stride + i dilation - padding, ...] += weight[c, o, i, j] input[n, c, y, x]

    Elements outside the result are dropped. It is not the inverse, but has the inverse's shapes.

        >>> conv_transpose2d(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), stride=2).shape
        (1, 1, 6, 6)

    Parameters
    ----------
    input : (n, c, height, width), or (c, height, width), which gives (out, height, width).
    weight : (c, out / groups, rows, columns).
    bias : (out,), or None.
    stride, dilation : as in `conv2d`.
    padding : the number of elements dropped at each end: an integer, or one for each axis.
    output_padding : the number of elements added at the end of each axis, less than the stride or
        the dilation. It chooses among the sizes that `conv2d` maps to the size of `input`.
    groups : a divisor of c and of out.

    Returns
    -------
    (n, out, height', width') with height' = (height - 1) stride - 2 padding + dilation (rows - 1) +
    1 + output_padding; width' likewise. The dtype is the dtype of `input * weight`.

    Raises
    ------
    ValueError : the shapes don't fit, the result is empty, or an option has another value.
    """
    options = (stride, padding, output_padding, groups, dilation)
    return _conv_transpose("conv_transpose2d", 2, input, weight, bias, *options)


def conv_transpose3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """`conv_transpose2d` of volumes: input (n, c, depth, height, width), weight (c, out / groups,
    ...).

    Shapes, options and errors are those of `conv_transpose2d`, with three axes instead of two.
    """
    options = (stride, padding, output_padding, groups, dilation)
    return _conv_transpose("conv_transpose3d", 3, input, weight, bias, *options)


def _conv_transpose(
    name: str,
    count: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Any:
    x, is_batch = as_batch(name, x, count)
    weight = _kernel(name, weight, count)
    stride = for_each("stride", stride, count, 1)
    dilation = for_each("dilation", dilation, count, 1)
    (groups,) = for_each("groups", groups, 1, 1)
    padding = for_each("padding", padding, count, 0)
    more = for_each("output_padding", output_padding, count, 0)
    c, own, *k = weight.shape
    if x.shape[1] != c or c % groups:
        raise ValueError(
            f"{name}: a weight of the shape {weight.shape} with groups={groups} takes {c} "
            f"channels, a multiple of {groups}; the input has the shape {x.shape}"
        )
    if any(m >= max(s, d) for m, s, d in zip(more, stride, dilation, strict=True)):
        raise ValueError(
            f"{name}: output_padding={output_padding!r} should be less than the stride or the "
            f"dilation, which are {stride} and {dilation}"
        )
    n, counts = len(x), x.shape[2:]
    split = (groups,) if groups > 1 else ()
    rows = weight.reshape(*split, c // groups, own * math.prod(k))
    columns = x.reshape(n, *split, c // groups, math.prod(counts))
    found = np.swapaxes(rows, -1, -2) @ columns
    found = overlaid(found.reshape(n, groups * own, *k, *counts), k, stride, dilation)
    after = [m - p for m, p in zip(more, padding, strict=True)]
    found = padded(found, [-p for p in padding], after)
    if 0 in found.shape[2:]:
        raise ValueError(
            f"{name}: padding={padding} leaves nothing of an input of the shape {x.shape}"
        )
    return _finished(name, found, bias, is_batch)
