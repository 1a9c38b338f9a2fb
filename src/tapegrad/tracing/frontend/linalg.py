"""numpy.linalg on traced arrays, as far as products and norms go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tapegrad.errors import UnsupportedError
from tapegrad.tracing.frontend.contracting import einsum
from tapegrad.tracing.frontend.operands import as_tracer, cast
from tapegrad.tracing.source import at_line


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm of vectors and matrices; the derivative at 0 is 0."""
    if x.dtype.kind != "f":
        x = cast(x, np.float64)
    if axis is None:
        plain = ord is None or (ord in ("f", "fro") and x.ndim == 2) or (ord == 2 and x.ndim == 1)
        if plain:
            return np.sqrt(np.sum(np.square(x), axis=None, keepdims=keepdims))
        axes = tuple(range(x.ndim))
    else:
        axes = normalize_axis_tuple(axis, x.ndim)
    if len(axes) == 1:
        return _vector_norm(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


def _vector_norm(x: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    if ord == 2:
        return np.sqrt(np.sum(np.square(x), axis=axes, keepdims=keepdims))
    size = np.abs(x)
    if ord == np.inf:
        return np.max(size, axis=axes, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(size, axis=axes, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return cast(np.sum(x != 0, axis=axes, keepdims=keepdims), x.dtype)
    return np.power(np.sum(np.power(size, ord), axis=axes, keepdims=keepdims), 1.0 / ord)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    rows, columns = axes
    if ord in (None, "f", "fro"):
        return np.sqrt(np.sum(np.square(x), axis=axes, keepdims=keepdims))
    if ord in (1, -1, np.inf, -np.inf):
        summed, left = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = np.sum(np.abs(x), axis=summed, keepdims=True)
        extremum = np.max if ord > 0 else np.min
        result = extremum(sums, axis=left, keepdims=True)
        return result if keepdims else np.squeeze(result, axes)
    if ord in (2, -2, "nuc"):
        raise UnsupportedError(
            f"np.linalg.norm of a matrix with ord={ord!r} needs singular values, which have no "
            f"derivative rule in tapegrad{at_line()}"
        )
    raise ValueError("Invalid norm order for matrices.")


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """np.linalg.vector_norm."""
    if x.dtype.kind != "f":
        x = cast(x, np.float64)
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    return _vector_norm(x, ord, axes, keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """np.linalg.matrix_norm."""
    return norm(x, ord, (-2, -1), keepdims)


def matrix_power(a: Any, n: int) -> Any:
    """np.linalg.matrix_power, by squaring; negative powers need an inverse."""
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    n = n.__index__()
    if n < 0:
        raise UnsupportedError(f"np.linalg.matrix_power of a negative power{at_line()}")
    if n == 0:
        return np.zeros_like(a) + np.eye(a.shape[-1], dtype=a.dtype)
    result = None
    while True:
        if n & 1:
            result = a if result is None else np.matmul(result, a)
        n >>= 1
        if not n:
            return np.copy(result) if result is a else result
        a = np.matmul(a, a)


def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Any:
    """np.linalg.multi_dot, in the cheapest order."""
    xs = [as_tracer(x, *arrays) for x in arrays]
    if len(xs) < 2:
        raise ValueError("Expecting at least two arrays.")
    first, last = xs[0].ndim, xs[-1].ndim
    inner = [f"{chr(97 + k)}{chr(98 + k)}" for k in range(len(xs))]
    inner[0] = inner[0] if first == 2 else inner[0][1]
    inner[-1] = inner[-1] if last == 2 else inner[-1][0]
    result = (inner[0][0] if first == 2 else "") + (inner[-1][1] if last == 2 else "")
    return einsum(f"{','.join(inner)}->{result}", *xs, out=out)
