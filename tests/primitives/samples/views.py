"""Of views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.primitives.samples.drawn import BACK, A, B, Sample, normal

from tapegrad.primitives.base import Slice
from tapegrad.primitives.views import (
    BroadcastTo,
    Diagonal,
    ExpandDims,
    GetItem,
    Reshape,
    Squeeze,
    Transpose,
)


def _indexed(x: Any, function: Callable[..., Any], shape: Sequence[int]) -> Any:
    """An array of this shape, whose element at an index is that of `x` at `function(index)`."""
    out = np.empty(shape, x.dtype)
    for at in np.ndindex(*shape):
        out[at] = x[function(*at)]
    return out


def of_views() -> dict[type, list[Sample]]:
    return {
        Transpose: [
            Sample(
                Transpose((2, 0, 1)),
                (B,),
                lambda x: _indexed(x, lambda i, j, k: (j, k, i), (4, 2, 3)),
            ),
            Sample(Transpose((1, 0)), (A,), lambda x: _indexed(x, lambda i, j: (j, i), (4, 3))),
            Sample(Transpose((1, 0)), (normal(0, 2),), lambda x: np.empty((2, 0))),
            Sample(Transpose(()), (normal(),), lambda x: x),
        ],
        BroadcastTo: [
            Sample(BroadcastTo((2, 3)), (normal(3),), lambda x: np.stack([x, x])),
            Sample(BroadcastTo((3, 2)), (normal(3, 1),), lambda x: np.concatenate([x, x], 1)),
            Sample(BroadcastTo((2, 3, 4)), (normal(),), lambda x: np.full((2, 3, 4), x)),
            Sample(BroadcastTo((2, 3, 2)), (normal(3, 1),), lambda x: x * np.ones((2, 3, 2))),
            Sample(BroadcastTo((0, 3)), (normal(1, 3),), lambda x: np.empty((0, 3))),
            Sample(BroadcastTo((2, 3)), (normal(2, 3),), lambda x: x),
        ],
        Reshape: [
            Sample(Reshape((4, 3)), (A,), lambda x: np.array(x.ravel().tolist()).reshape(4, 3)),
            Sample(Reshape((24,)), (B,), lambda x: np.array(list(x.flat))),
            Sample(Reshape((1, 1)), (normal(),), lambda x: np.array([[x]])),
            Sample(Reshape(()), (normal(1, 1),), lambda x: x[0, 0]),
            Sample(Reshape((2, 0)), (normal(0, 3),), lambda x: np.empty((2, 0))),
        ],
        ExpandDims: [
            Sample(ExpandDims((0, 2)), (A,), lambda x: x[None, :, None]),
            Sample(ExpandDims((2,)), (A,), lambda x: x[..., None]),
            Sample(ExpandDims((0,)), (normal(),), lambda x: np.array([x])),
        ],
        Squeeze: [
            Sample(Squeeze((0, 2)), (normal(1, 3, 1),), lambda x: x[0, :, 0]),
            Sample(Squeeze((0,)), (normal(1),), lambda x: x[0]),
        ],
        GetItem: [
            Sample(GetItem((Slice(1, 2), 2)), (A,), lambda x: x[1:3, 2]),
            Sample(GetItem(BACK), (A,), lambda x: x[2::-2]),
            Sample(GetItem((Slice(2, 3, -1), Slice(0, 2, 3))), (A,), lambda x: x[::-1, ::3]),
            Sample(GetItem((1, 0, 3)), (B,), lambda x: x[1, 0, 3]),
            Sample(GetItem((Slice(0, 0), 1)), (A,), lambda x: x[:0, 1]),
            Sample(GetItem((0, Slice(0, 3), Slice(3, 2, -3))), (B,), lambda x: x[0, :, ::-3]),
        ],
        Diagonal: [
            Sample(Diagonal(0), (A,), lambda x: np.array([x[k, k] for k in range(3)])),
            Sample(Diagonal(2), (B,), lambda x: np.stack([x[:, 0, 2], x[:, 1, 3]], -1)),
            Sample(Diagonal(-1), (A,), lambda x: np.array([x[1, 0], x[2, 1]])),
            Sample(Diagonal(9), (A,), lambda x: np.empty(0)),
        ],
    }
