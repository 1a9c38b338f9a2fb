"""Values that a function keeps on objects of the outside: each call keeps its own.

    self.loudness = l            the attribute holds this call's number, as plain Python leaves it
    self.history.append(X)       the list is longer by this call's array
    self.calls += 1              and so has counted this call

When the run is over, what it has written is taken apart: traced values become outputs of the tape,
and stand in their places as plain numbers and arrays. A later call of the tape puts its own there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.trees import flatten, unflatten
from tapegrad.ir.tape import Operand, Source
from tapegrad.tracing.observe.harmless import PLAIN_TYPES
from tapegrad.tracing.observe.places import ABSENT, END, Write, put_at
from tapegrad.tracing.observe.reads import Reads
from tapegrad.tracing.trace import Trace
from tapegrad.tracing.tracer import Tracer, to_operand


@dataclass(frozen=True)
class Output:
    """A number or array of each call's own: the output that gives it."""

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool

    def of(self, values: Sequence[Any]) -> Any:
        value = values[self.number]
        if self.shape:
            return value
        number = self.dtype.type(value)
        return number.item() if self.weak else number


@dataclass(frozen=True, eq=False)
class Kept:
    """What each call leaves in a place of an object. In a trace `source` is that, later the number
    of the object among those that a call asks for."""

    source: Any
    at: Any
    structure: Any
    leaves: tuple[Any, ...]

    def put(self, x: Any, values: Sequence[Any]) -> None:
        """Leave it there; `values` are those of the outputs."""
        made = [x.of(values) if isinstance(x, Output) else _own(x) for x in self.leaves]
        value = unflatten(self.structure, made)
        if self.at is END:
            x.extend(value)
        else:
            put_at(x, self.at, value)


def _own(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


class Keeping:
    """What a run has left outside: `kept` in `objects`, and the operands that it is made of. Later
    calls leave theirs if they do it `again`. What a run that is part of another one has left is
    `passed` on to that."""

    def __init__(self, trace: Trace, reads: Reads, again: bool, inside: bool = False) -> None:
        self.trace, self.reads, self.again, self.inside = trace, reads, again, inside
        self.passed: list[tuple[Write, Any, Sequence[Any]]] = []
        self.lines: list[tuple[str, Source | None]] = []
        self.kept: list[Kept] = []
        self.objects: list[Any] = []
        self.operands: list[Operand] = []
        containers: set[int] = set()
        for key, write in reads.written.items():
            value = write.now()
            if value is ABSENT or reads.place(value) is not None:
                continue
            leaves, structure = flatten(value)
            if structure.num_nodes > 1 and write.at is not END:
                if id(value) in containers:  # one object in two places
                    continue
                containers.add(id(value))
            if not all(map(self._is_known, leaves)):
                continue
            if inside:
                if any(isinstance(x, Tracer) and x._trace is trace for x in leaves):
                    self.passed.append((write, structure, [*map(self._said, leaves)]))
                continue
            if any(isinstance(x, Tracer) for x in leaves):
                write.put(unflatten(structure, [*map(_plain, leaves)]))
            said = tuple(map(self._said, leaves))
            self.kept.append(Kept(write.x, write.at, structure, said))
            self.objects.append(write.x)
            self.lines.append((write.word, write.src))
            reads.kept.add(key)

    def pass_on(self, values: Sequence[Any]) -> None:
        """What was left is this for the run around: the values of the operands."""
        for write, structure, leaves in self.passed:
            found = [values[x.number] if isinstance(x, Output) else x for x in leaves]
            write.put(unflatten(structure, found))

    def _is_known(self, x: Any) -> bool:
        """Whether this may stand in a place: a traced value, or what is made anew of itself."""
        if isinstance(x, Tracer):
            return x._trace is self.trace or (self.inside and x._trace.alive)
        if type(x) is np.ndarray:
            return not x.dtype.hasobject and not self.reads.arrays_of(x)
        return type(x) in PLAIN_TYPES or isinstance(x, np.generic)

    def _said(self, x: Any) -> Any:
        if not isinstance(x, Tracer) or x._trace is not self.trace:
            return _own(x)
        if x._is_constant():
            return np.array(x._value)
        operand, _ = to_operand(self.trace, x)
        self.operands.append(operand)
        return Output(len(self.operands) - 1, x._aval.shape, x._aval.dtype, x._weak)


def _plain(x: Any) -> Any:
    """A leaf as the run leaves it."""
    if not isinstance(x, Tracer):
        return x
    value = np.asarray(x._read()[1])
    if x._aval.shape:
        return value.copy()
    number = x._aval.dtype.type(value[()])
    return number.item() if x._weak else number


def let_be_plain(trace: Any, reads: Reads) -> None:
    """A run has ended with an error of the user's: what it has left holds no traced values."""
    for write in reads.written.values():
        value = write.now()
        leaves, structure = ([], None) if value is ABSENT else flatten(value)
        if any(isinstance(x, Tracer) and x._trace is trace for x in leaves):
            write.put(unflatten(structure, [*map(_plain, leaves)]))
