"""Selection without branches, for played tapes.

`np.where` branches at each element. If the processor can't predict the branch, that takes ten times
as long as a product. The bits of numbers can be selected by arithmetic:

    where(c, x, y)  -->  ((x ^ y) * c) ^ y      on their bits, where c is 0 or 1
    where(c, x, 0)  -->  x * c
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.core.values import Aval
from tapegrad.primitives.base import broadcast_shapes

MIN_SELECTED = 1 << 13  # elements from which on branches take longer
BITS = {np.dtype(np.float64): np.dtype(np.int64), np.dtype(np.float32): np.dtype(np.int32)}


def where_of(condition: Aval, x: Aval, y: Aval) -> Callable[..., Any]:
    """A function that returns what `np.where` does, for operands of these types."""
    shape, dtype = broadcast_shapes(condition.shape, x.shape, y.shape), x.dtype
    bits = BITS.get(dtype)
    is_one_type = y.dtype == dtype and condition.dtype == np.bool_
    if bits is None or not is_one_type or math.prod(shape) < MIN_SELECTED:
        return np.where

    def select(c: Any, x: Any, y: Any) -> Any:
        out: Any = np.empty(shape, dtype)
        found, x, y = out.view(bits), x.view(bits), y.view(bits)
        if not y.shape and not y:
            np.multiply(x, c, out=found)
            return out
        np.bitwise_xor(x, y, out=found)
        np.multiply(found, c, out=found)
        np.bitwise_xor(found, y, out=found)
        return out

    return select
