"""How shapes, dtypes and indices are written in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def dtype_text(dtype: np.dtype, before: str = ", ") -> str:
    """`, np.float32`: a further argument; empty for NumPy's default dtype."""
    return "" if dtype == np.float64 else f"{before}{dtype_called(dtype)}"


def dtype_called(dtype: np.dtype) -> str:
    if dtype.kind == "V":
        return f"ml_dtypes.{dtype.name}"
    return "bool" if dtype == np.bool_ else f"np.{dtype.name}"


def shape_text(shape: tuple[int, ...]) -> str:
    return str(tuple(int(n) for n in shape))


def zeros_text(shape: tuple[int, ...], dtype: np.dtype) -> str:
    return f"np.zeros({shape_text(shape)}{dtype_text(dtype)})"


def axes_text(axes: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """`, axis=0`; empty for all axes."""
    if len(axes) == len(shape):
        return ""
    return f", axis={axes[0] if len(axes) == 1 else axes}"


def index_text(index: Sequence[Any], shape: tuple[int, ...]) -> str:
    """`[1:, 0]`, without whole axes at the end."""
    entries = [
        str(k) if isinstance(k, int) else _slice(k, n) for k, n in zip(index, shape, strict=True)
    ]
    while len(entries) > 1 and entries[-1] == ":":
        entries.pop()
    return f"[{', '.join(entries) or '()'}]"


def box_text(index: Sequence[Any]) -> str:
    """`[1:4, 0]`, for arrays of any shape that contains the index."""
    entries = []
    for k in index:
        s = slice(k) if isinstance(k, int) else k.as_slice()
        stop = "" if s.stop is None else s.stop
        stride = "" if s.step == 1 else f":{s.step}"
        entries.append(str(k) if isinstance(k, int) else f"{s.start}:{stop}{stride}")
    return f"[{', '.join(entries) or '()'}]"


def _slice(k: Any, extent: int) -> str:
    s = k.as_slice()
    first, last = (0, extent) if s.step > 0 else (extent - 1, None)
    start = "" if s.start == first else s.start
    stop = "" if s.stop == last or (s.step > 1 and s.stop >= extent) else s.stop
    return f"{start}:{stop}" + ("" if s.step == 1 else f":{s.step}")
