"""Weighted sums over the neighbours of each element: what filters of arrays come to."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.tracing.frontend.operands import as_tracer

MOST = 64  # terms that are written out, and become one loop; of more there is a product


def padded(x: Any, around: Sequence[tuple[int, int]], mode: str, fill: Any = 0.0) -> Any:
    """`x` with so many elements before and after along each axis, as `np.pad` makes them; where
    there are to be fewer than none, as many less."""
    wider = [(max(0, a), max(0, b)) for a, b in around]
    if any(a or b for a, b in wider):
        more = {"constant_values": fill} if mode == "constant" else {}
        x = np.pad(x, wider, mode, **more)  # type: ignore[call-overload]
    cut = [slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(around, x.shape, strict=True)]
    return x[tuple(cut)]


def parts(x: Any, sizes: Sequence[int]) -> list[Any]:
    """For each offset within a window of these sizes, the elements at that offset of all windows
    that are inside."""
    counts = [n - m + 1 for n, m in zip(x.shape, sizes, strict=True)]
    offsets = itertools.product(*map(range, sizes))
    return [
        x[tuple(slice(o, o + n) for o, n in zip(offset, counts, strict=True))] for offset in offsets
    ]


def ranked(x: Any, sizes: Sequence[int], rank: int, inside: Any = None) -> Any:
    """Of the elements of each window the one that `rank` smaller ones are there of; of those at
    which `inside` is true, if it is given."""
    found = parts(x, sizes)
    if inside is not None:
        found = [part for part, yes in zip(found, np.ravel(inside), strict=True) if yes]
    return np.sort(np.stack(found), axis=0)[rank]


def correlated(x: Any, weights: Any, zeros: bool = False) -> Any:
    """The sums of x[i + j] weights[j] over j, for each i at which all of these are inside; with the
    terms of `zeros` among the weights, too, which matter where x is NaN or infinite."""
    if math.prod(weights.shape) <= MOST:
        terms = parts(x, weights.shape)
        places = np.ndindex(*weights.shape)
        plain = isinstance(weights, np.ndarray)
        kept = [
            w * part
            for part, w in zip(terms, (weights[place] for place in places), strict=True)
            if zeros or not (plain and w == 0)
        ]
        return sum(kept[1:], kept[0]) if kept else 0.0 * terms[0]
    windows = np.lib.stride_tricks.sliding_window_view(as_tracer(x, weights), weights.shape)
    axes = list(range(-weights.ndim, 0))
    return np.tensordot(windows, weights, (axes, list(range(weights.ndim))))
