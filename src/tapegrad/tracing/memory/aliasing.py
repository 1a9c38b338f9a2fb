"""Arguments that share memory.

On a tape each argument is a value of its own. NumPy would show a write to one argument in another
that shares its memory. So a function that writes to an argument is refused such arguments, at each
call, since their shapes don't tell whether they share memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError
from tapegrad.ir.tape import Source
from tapegrad.observe.program.source import at_source
from tapegrad.tracing.tracers.tracer import Tracer

Written = tuple[tuple[int, Source | None], ...]  # written inputs, with the line of the first write


def check_apart(label: str, written: Written, names: Sequence[str], inputs: Sequence[Any]) -> None:
    """Raise an ArgumentError if an input that the function writes to shares memory with another.

    The inputs beyond those with names are captured arrays.
    """
    for k, src in written:
        if overlaps_itself(inputs[k]):
            raise ArgumentError(
                f"{label} writes to its argument {names[k]}{at_source(src)}, whose elements share "
                "memory with each other. NumPy would show the write in all of them, and a trace "
                "keeps them apart. Pass a copy"
            )
        for other, x in enumerate(inputs):
            if other != k and share_memory(inputs[k], x):
                what = f"argument {names[other]}" if other < len(names) else "an array that it uses"
                raise ArgumentError(
                    f"{label} writes to its argument {names[k]}{at_source(src)}, which shares "
                    f"memory with {what}. NumPy would show the write in both, and a trace keeps "
                    "them apart. Pass a copy of one of them"
                )


def check_places(label: str, places: Sequence[Any], captured: Sequence[Any]) -> None:
    """Raise an ArgumentError if results would be written over a captured array."""
    for place in places:
        if any(share_memory(place, x) for x in captured):
            raise ArgumentError(
                f"{label} writes a result into an array of shape {np.shape(place)} that shares "
                "memory with one that the function reads. Pass an array of its own"
            )


def lie_apart(arrays: Sequence[np.ndarray]) -> bool:
    """Whether each array's memory has another owner, so that none share any. The check takes a
    tenth of the time of comparing addresses."""
    owners = set()
    for x in arrays:
        owner = x if x.base is None else x.base
        if type(owner) is not np.ndarray or not owner.flags.owndata:
            return False
        owners.add(id(owner))
    return len(owners) == len(arrays)


def overlaps_itself(x: Any) -> bool:
    """Whether elements of an array may share memory, as those of a broadcast one do. They don't if
    each stride is longer than the span of all shorter ones."""
    x = x._read()[1] if isinstance(x, Tracer) else x
    if not isinstance(x, np.ndarray):
        return False
    span = x.itemsize
    for stride, n in sorted(zip(map(abs, x.strides), x.shape, strict=True)):
        if n > 1 and stride < span:
            return x.size > 0
        span += stride * (n - 1)
    return False


def share_memory(x: Any, y: Any) -> bool:
    """Whether two arrays, traced or not, share memory."""
    x, y = (v._read()[1] if isinstance(v, Tracer) else v for v in (x, y))
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        return False
    return np.shares_memory(x, y)
