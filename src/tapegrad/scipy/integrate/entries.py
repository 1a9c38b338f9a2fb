"""Arrays that loops fill and read entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.extending.arrays import Tracer, record
from tapegrad.extending.primitives import Empty, SetWindow, Window, entry_at
from tapegrad.extending.tapes import innermost


def unset(shape: tuple[int, ...], beside: Sequence[Any]) -> Any:
    """An uninitialized array that a loop fills, on the tape of the values `beside`."""
    tracers = [x for x in beside if isinstance(x, Tracer)]
    if not tracers:
        return np.zeros(shape)
    return record(innermost(tracers), Empty(shape, np.dtype(float)), [])


def with_entry(array: Any, k: Any, value: Any) -> Any:
    """The array with `value` at k, which is in range."""
    return recorded_on(SetWindow(*entry_at(0, array.shape[1:])), [array, value, k])


def entry(array: Any, k: Any) -> Any:
    """The entry at k, which is in range."""
    return recorded_on(Window(*entry_at(0, array.shape[1:])), [array, k])


def recorded_on(primitive: Any, operands: Sequence[Any]) -> Any:
    """The result of a primitive, recorded if an operand is traced."""
    tracers = [x for x in operands if isinstance(x, Tracer)]
    if not tracers:
        return primitive.evaluate(*operands)
    return record(innermost(tracers), primitive, operands)
