"""Functions that users' rules call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.autograd.numpy.numpy_wrapper import metadata

__all__ = ["match_complex", "repeat_to_match_shape", "replace_zero", "unbroadcast", "unbroadcast_f"]


def unbroadcast(x: Any, target_meta: Any, broadcast_idx: int = 0) -> Any:
    """`x`, summed to the shape that was broadcast: the first entry of its `metadata`."""
    shape, _, _, is_complex = target_meta
    extra = max(np.ndim(x) - len(shape), 0)
    at = broadcast_idx % np.ndim(x) if extra else 0
    if extra:
        x = np.sum(x, axis=tuple(range(at, at + extra)))
    thin = tuple([k for k, n in enumerate(shape) if n == 1 and np.shape(x)[k] != 1])
    if thin:
        x = np.sum(x, axis=thin, keepdims=True)
    return np.real(x) if np.iscomplexobj(x) and not is_complex else x


def unbroadcast_f(target: Any, g: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function that sums what `g` returns to the shape of `target`."""
    meta = metadata(target)
    return lambda ct: unbroadcast(g(ct), meta)


def repeat_to_match_shape(
    g: Any, shape: Any, dtype: Any, axis: Any, keepdims: bool
) -> tuple[Any, Any]:
    """The cotangent `g` of a reduction along `axis`, broadcast to the operand's shape; and the
    number of the operand's elements for each element of the result."""
    if shape == ():
        return g, 1
    axes = [axis] if isinstance(axis, int) else range(len(shape)) if axis is None else axis
    thin = [*shape]
    for k in axes:
        thin[k] = 1
    made = np.reshape(g, thin) * np.ones(shape, dtype)
    return made, np.prod([shape[k] for k in axes])


def replace_zero(x: Any, val: Any) -> Any:
    """`x`, with `val` where it is 0."""
    return np.where(x, x, val)


def match_complex(target: Any, x: Any) -> Any:
    """`x` as a complex number if `target` is one, else its real part."""
    if np.iscomplexobj(target):
        return x if np.iscomplexobj(x) else x + 0j
    return np.real(x) if np.iscomplexobj(x) else x
