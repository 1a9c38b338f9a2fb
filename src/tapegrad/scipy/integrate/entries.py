"""Arrays that loops fill, and read, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.primitives.base import Slice
from tapegrad.primitives.windows import Empty, SetWindow, Window
from tapegrad.tracing.recording.trace import innermost
from tapegrad.tracing.tracers.tracer import Tracer, record


def unset(shape: tuple[int, ...], beside: Sequence[Any]) -> Any:
    """An array that a loop fills, on the tape of these values."""
    tracers = [x for x in beside if isinstance(x, Tracer)]
    if not tracers:
        return np.zeros(shape)
    return record(innermost(tracers), Empty(shape, np.dtype(float)), [])


def with_entry(array: Any, k: Any, value: Any) -> Any:
    """The array with another entry at k, which is in range."""
    return recorded_on(SetWindow(*entry_index(array.shape[1:])), [array, value, k])


def entry(array: Any, k: Any) -> Any:
    """The entry at k, which is in range."""
    return recorded_on(Window(*entry_index(array.shape[1:])), [array, k])


def entry_index(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The index of an entry of this shape, for k = 0, and how it moves."""
    return (0, *[Slice(0, n) for n in shape]), ((1, *[0] * len(shape)),)


def recorded_on(primitive: Any, operands: Sequence[Any]) -> Any:
    """What a primitive gives, on the tape of the operands that are traced, if any is."""
    tracers = [x for x in operands if isinstance(x, Tracer)]
    if not tracers:
        return primitive.evaluate(*operands)
    return record(innermost(tracers), primitive, operands)
