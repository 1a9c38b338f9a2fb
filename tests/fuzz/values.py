"""What programs are given: each function draws a value with the generator of a call.

Real numbers stay away from 0 and from each other, where many functions have kinks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["flags", "indices", "number", "reals", "whole", "wholes"]

Rng = np.random.Generator
SHAPES = [
    (3,),
    (2, 3),
    (),
    (1,),
    (4,),
    (3, 3),
    (3, 2),
    (1, 3),
    (3, 1),
    (2, 2),
    (2, 1, 3),
    (0,),
    (2, 0),
]


def number(rng: Rng) -> float:
    """A Python float."""
    return float(reals(rng, 1)[0])


def whole(rng: Rng, low: int, high: int) -> int:
    """A Python integer."""
    return int(rng.integers(low, high + 1))


def wholes(rng: Rng, shape: Any, dtype: Any = np.int64) -> Any:
    """An array of integers."""
    return rng.integers(1 if np.dtype(dtype).kind == "u" else -3, 4, shape).astype(dtype)


def indices(rng: Rng, count: int, extent: int) -> Any:
    """Places on an axis, also counted from its end."""
    return rng.integers(-extent, extent, count)


def flags(rng: Rng, shape: Any) -> Any:
    """An array of booleans."""
    return rng.integers(0, 2, shape).astype(bool)


def reals(rng: Rng, shape: Any, dtype: Any = np.float64) -> Any:
    """An array of reals, in one of the layouts that arrays come in."""
    sign = np.where(rng.random(shape) < 0.4, -1.0, 1.0)
    x = np.asarray(sign * rng.uniform(0.2, 1.6, shape)).astype(dtype)
    return LAYOUTS[rng.integers(len(LAYOUTS))](x) if x.ndim else x


def _sliced(x: Any) -> Any:
    whole = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
    part = whole[tuple(slice(None, None, 2) for _ in x.shape)]
    part[...] = x
    return part


def _reversed(x: Any) -> Any:
    return np.ascontiguousarray(x[::-1])[::-1]


def _transposed(x: Any) -> Any:
    return np.asfortranarray(x)


def _repeated(x: Any) -> Any:
    """A row that is broadcast, and can't be written to."""
    return np.broadcast_to(x[:1], x.shape)


LAYOUTS = [lambda x: x, lambda x: x, lambda x: x, _sliced, _reversed, _transposed, _repeated]
