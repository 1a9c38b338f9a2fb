"""The result of a run: its tape, and the structure of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapegrad.core.arrays import computed_in, is_half, native, read
from tapegrad.core.trees import is_number, unflatten
from tapegrad.ir.tape import Aval, Source, Tape
from tapegrad.tracing.draws.recorded import Draws
from tapegrad.tracing.memory.aliasing import Written
from tapegrad.tracing.tracers.tracer import Tracer

if TYPE_CHECKING:
    from tapegrad.tracing.outside.stored import StoredValues


class Computed(NamedTuple):
    """The values of a tape's outputs for the arguments of its trace, and the time to compute
    them."""

    values: Sequence[Any]
    seconds: float


@dataclass
class Traced:
    """The result of a run of the function `name`: its tape, and the structure of its results.

    `captured` are the values of the tape's last inputs: arrays that the function reached without
    being passed them, or tracers of an outer trace. `outputs` has an entry for each leaf of the
    result: the position of a tape output, or None for a leaf that isn't traced, whose value
    `leaves` then holds. The leaves are those of this very run; `weak` tells which are Python
    numbers, and `written` which inputs the function wrote to. `draws` are the captured inputs that
    later calls draw or find anew, and the values that they leave outside. The last `left` outputs
    are what these are made of; `lines` are their names and lines. `keeping` passes on the values
    that a nested run has left.
    """

    name: str
    tape: Tape
    captured: tuple[Any, ...]
    structure: Any
    outputs: list[int | None]
    leaves: list[Any]
    weak: list[bool]
    written: Written = ()
    draws: Draws | None = None
    left: int = 0
    lines: Sequence[tuple[str, Source | None]] = ()
    keeping: StoredValues | None = None
    seconds: float = 0.0  # the time to compute its values
    made: tuple[Source | None, ...] = ()  # the lines where captured arrays were made, if known
    # By the line of a `for` statement: the least and the largest number of its entries, why one
    # round didn't stand for all, if that was tried, and the first call in it
    begun: Mapping[Source, tuple[int, int, Any, Any]] = field(default_factory=dict)
    halves: Sequence[np.dtype | None] = ()  # the first outputs' dtypes outside, if half precision

    @property
    def computed(self) -> Computed | None:
        """The values that the run itself has computed; None if it has other effects than its
        result."""
        if self.has_tracers or self.draws is not None or self.left or self.written:
            return None
        values: list[Any] = [None] * len(self.tape.outputs)
        for at, leaf in zip(self.outputs, self.leaves, strict=True):
            if at is not None:
                values[at] = plain_value(leaf)
        kinds = [(np.shape(x), getattr(x, "dtype", None)) for x in values]
        told = [(x.shape, x.dtype) for x in self.tape.outputs]
        return Computed(values, self.seconds) if kinds == told else None

    def rebuild(self, values: Sequence[Any]) -> Any:
        """The function's result, for these values of the tape's outputs."""
        found = [self.leaf(k) if at is None else values[at] for k, at in enumerate(self.outputs)]
        return unflatten(self.structure, found)

    def leaf(self, k: int) -> Any:
        """A leaf that isn't traced; an array is copied, as each call returns its own."""
        leaf = self.leaves[k]
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf

    def without_values(self) -> Traced:
        """The same without the values of this run, which may be large, for storing."""
        leaves = [
            leaf if at is None else None for at, leaf in zip(self.outputs, self.leaves, strict=True)
        ]
        return replace(self, leaves=leaves)

    def bound_tape(self) -> Tape:
        """The tape with the captured inputs' values bound to it, so that it can be played alone."""
        if self.has_tracers:
            return self.tape
        return replace(self.tape, captured=tuple(self.captured))

    @property
    def has_tracers(self) -> bool:
        """Whether a value of an outer trace is captured."""
        return any(isinstance(x, Tracer) for x in self.captured)


def input_aval(x: Any) -> Aval:
    """The type of an argument's leaf on the tape; a Python number is weak."""
    if isinstance(x, Tracer):
        return Aval(x.shape, x.dtype, weak=x._weak)
    if is_number(x):
        return Aval((), plain_value(x).dtype, weak=True)
    return Aval(x.shape, computed_in(native(x.dtype)))


def plain_value(x: Any) -> Any:
    """The NumPy value of a leaf; None for a tracer of which only the type is known."""
    if isinstance(x, Tracer):
        return x._read()[1]
    if is_number(x):
        kind = np.float64 if isinstance(x, float) else np.int64
        return np.complex128(x) if isinstance(x, complex) else kind(x)
    return read(x)


def kept_as(x: Any) -> np.dtype | None:
    """The dtype of half precision that a value has outside the tape, or None."""
    if isinstance(x, Tracer):
        known: tuple[Any, np.dtype | None] = x._trace.halves.get(id(x._owner), (x, None))
        return known[1]
    dtype = getattr(x, "dtype", None)
    return native(dtype) if isinstance(dtype, np.dtype) and is_half(dtype) else None
