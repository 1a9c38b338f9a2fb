"""SciPy's module, with HIPS autograd's `convolve`, which sums over some axes and keeps others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.signal

__all__ = ["convolve"]

Axes = Sequence[Sequence[int]]


def __getattr__(name: str) -> Any:
    return getattr(scipy.signal, name)


def convolve(
    A: Any,
    B: Any,
    axes: Axes | None = None,
    dot_axes: Axes = ((), ()),
    mode: str = "full",
) -> Any:
    """The convolution of two arrays along `axes`: a list of the axes of `A`, and one of those of
    `B`; along all by default. Along `dot_axes` products are summed:

        y[i..., j..., k...] = sum over l, m of A[i..., l..., k + m] B[j..., l..., -m]

    The result has the other axes of `A`, then those of `B`, then those of the convolution. Mode
    "full" returns all overlaps, "valid" those where one array covers the other, and "same" as many
    as `A` is long, from the middle.
    """
    if mode not in ("full", "valid", "same"):
        raise ValueError(f'convolve: mode is "full", "valid" or "same", not {mode!r}')
    both = [*range(np.ndim(A))]
    A, shape = _arranged(A, both if axes is None else axes[0], dot_axes[0])
    B, other = _arranged(B, both if axes is None else axes[1], dot_axes[1])
    if mode == "valid" and any(m < n for m, n in zip(shape, other, strict=True)):
        if any(m > n for m, n in zip(shape, other, strict=True)):
            raise ValueError(f'convolve: with mode "valid" one array is the longer one along all '
                             f"axes, and these are {shape} and {other}")  # fmt: skip
        return _slid(B, A, shape, len(dot_axes[0]), swapped=True)
    if mode != "valid":
        before = [n - 1 - (n - 1) // 2 if mode == "same" else n - 1 for n in other]
        after = [(n - 1) // 2 if mode == "same" else n - 1 for n in other]
        ends = [*zip(before, after, strict=True)]
        A = np.pad(A, [(0, 0)] * (np.ndim(A) - len(ends)) + ends)
    return _slid(A, B, other, len(dot_axes[0]), swapped=False)


def _arranged(x: Any, axes: Sequence[int], dots: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    """`x` with its other axes first, then those that are summed, then those of the convolution; and
    the extents of the last."""
    last = [k % np.ndim(x) for k in (*dots, *axes)]
    order = [*[k for k in range(np.ndim(x)) if k not in last], *last]
    x = np.transpose(x, order)
    return x, np.shape(x)[np.ndim(x) - len(axes) :]


def _slid(A: Any, B: Any, sizes: tuple[int, ...], dots: int, swapped: bool) -> Any:
    """`B`, reversed, slid along the last axes of `A`. `sizes` are the extents of these axes of
    `B`."""
    count = len(sizes)
    windows = np.lib.stride_tricks.sliding_window_view(A, sizes, axis=tuple(range(-count, 0)))
    turned = np.flip(B, axis=tuple(range(-count, 0)))
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    mine, summed, at, within, theirs = (
        "".join(next(letters) for _ in range(n))
        for n in (np.ndim(A) - dots - count, dots, count, count, np.ndim(B) - dots - count)
    )
    rest = theirs + mine if swapped else mine + theirs
    how = f"{mine}{summed}{at}{within},{theirs}{summed}{within}->{rest}{at}"
    return np.einsum(how, windows, turned)
