"""Shapes without values, for arrays that don't exist yet.

A function can be traced for arguments of given shapes and dtypes. Other arrays stand in for them
meanwhile. Their values decide nothing: see `tracing.recording.decisions`.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError


class ShapeDtype:
    """The shape and dtype of an array. It is passed in place of an array where only these count: to
    `eval_shape`, and to `compile` and `lower` of functions derived by `grad` and others.

        >>> ShapeDtype((3, 4), np.float64)
        ShapeDtype((3, 4), float64)

    Parameters
    ----------
    shape : a tuple of integers, or one integer. An array of this shape is row-major; without axes
        it is a NumPy scalar.
    dtype : a NumPy dtype, or anything that NumPy converts to one.

    Raises
    ------
    ArgumentError : the shape isn't one, or NumPy knows no such dtype.
    """

    __slots__ = ("dtype", "shape")
    shape: tuple[int, ...]
    dtype: np.dtype

    def __init__(self, shape: Any, dtype: Any = np.float64) -> None:
        try:
            self.shape = tuple(map(operator.index, shape if np.iterable(shape) else (shape,)))
        except TypeError:
            self.shape = (-1,)
        if any(n < 0 for n in self.shape):
            raise ArgumentError(f"ShapeDtype: the shape is {shape!r}, not a tuple of lengths")
        try:
            self.dtype = np.dtype(dtype)
        except TypeError as error:
            raise ArgumentError(f"ShapeDtype: {dtype!r} isn't a dtype: {error}") from None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShapeDtype):
            return NotImplemented
        return (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ShapeDtype({self.shape}, {self.dtype})"
