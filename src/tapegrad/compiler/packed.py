"""Tapes as bytes: for compilers in other processes, and for keys of compiled code.

A tape is packed as numbers that point into tables of its types, primitives and literals. That takes
one pass, a fifth of the time of pickling, and each primitive or type is processed once, however
often it occurs on the tape.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Generic, TypeVar

import numpy as np

from tapegrad.ir.tape import Aval, Call, Guard, Literal, Operand, Source, Tape, Var
from tapegrad.primitives.base import Primitive
from tapegrad.primitives.control import ForeignCall

T = TypeVar("T", bound=Hashable)


class Table(Generic[T]):
    """Distinct values, numbered in the order of their first occurrence."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}
        self._by_id: dict[int, int] = {}  # most are the same objects, and hashing is slow

    def number(self, value: T) -> int:
        known = self._by_id.get(id(value))
        if known is None:
            known = self._numbers.setdefault(value, len(self._numbers))
            if known == len(self.values):
                self.values.append(value)
            self._by_id[id(value)] = known
        return known


@dataclass(frozen=True)
class Packed:
    """A tape without the arrays that it captured.

    `numbers` are its inputs, calls, guards and outputs. An input or a result is the number of its
    type. A call is the number of its primitive, the number of operands, the operands, and the
    number of results. An operand is the number of a variable, or `~k` for literal k. `notes` are
    for people only: names, lines and reasons.
    """

    numbers: bytes
    types: list[Aval]
    primitives: list[Primitive]
    literals: list[Literal]
    captured: int
    notes: tuple[Any, ...]
    ordered: bool
    matrices: bool
    into: tuple[tuple[int, int], ...]

    def unpack(self) -> Tape:
        """The tape, with uninitialised arrays of the same types in place of the captured ones."""
        return _unpacked(self)


def pack(tape: Tape) -> Packed:
    """The packed form of a tape."""
    types: Table[Aval] = Table()
    primitives: Table[Primitive] = Table()
    literals: Table[Literal] = Table()
    sources: Table[Source | None] = Table()
    reasons: Table[str] = Table()
    numbers = array("q")
    defined: dict[int, int] = {}  # a variable's id -> its number

    def operand(x: Operand) -> int:
        return defined[x.id] if type(x) is Var else ~literals.number(x)  # type: ignore[arg-type]

    numbers.append(len(tape.inputs))
    for var in tape.inputs:
        defined[var.id] = len(defined)
        numbers.append(types.number(var.aval))
    numbers.append(len(tape.calls))
    lines, whys = array("q"), array("q")
    for call in tape.calls:
        numbers.append(primitives.number(call.primitive))
        numbers.append(len(call.operands))
        numbers.extend([operand(x) for x in call.operands])
        numbers.append(len(call.outs))
        for out in call.outs:
            defined[out.id] = len(defined)
            numbers.append(types.number(out.aval))
        lines.append(sources.number(call.src))
        whys.append(reasons.number(call.reason))
    numbers.append(len(tape.guards))
    for guard in tape.guards:
        numbers.extend((operand(guard.operand), operand(guard.expected)))
    numbers.append(len(tape.outputs))
    numbers.extend(map(operand, tape.outputs))
    guards = [(guard.what, guard.src) for guard in tape.guards]
    notes = (tape.name, tape.names, tape.output_names, lines, whys, guards)
    return Packed(
        numbers.tobytes(),
        types.values,
        primitives.values,
        literals.values,
        len(tape.captured),
        (*notes, sources.values, reasons.values),
        tape.ordered,
        tape.matrices,
        tape.into,
    )


def _unpacked(packed: Packed) -> Tape:
    name, names, output_names, lines, whys, guarded, sources, reasons = packed.notes
    types, primitives, literals = packed.types, packed.primitives, packed.literals
    numbers = array("q")
    numbers.frombytes(packed.numbers)
    next_ = iter(numbers).__next__
    defined: list[Var] = []

    def define() -> Var:
        defined.append(Var(len(defined) + 1, types[next_()]))
        return defined[-1]

    def operand() -> Operand:
        number = next_()
        return defined[number] if number >= 0 else literals[~number]

    def several(read: Callable[[], T]) -> tuple[T, ...]:
        return tuple([read() for _ in range(next_())])

    inputs = several(define)
    calls = []
    for k in range(next_()):
        primitive = primitives[next_()]
        operands = several(operand)
        outs = several(define)
        calls.append(Call(primitive, operands, outs, sources[lines[k]], reasons[whys[k]]))
    guards = []
    for k in range(next_()):
        what, src = guarded[k]
        x, expected = operand(), operand()
        assert isinstance(expected, Literal)
        guards.append(Guard(x, expected, what, src))
    outputs = several(operand)
    held = inputs[len(inputs) - packed.captured :]
    captured = tuple(np.empty(var.shape, var.dtype) for var in held)
    tape = Tape(name, inputs, tuple(calls), outputs, tuple(guards), captured, names, output_names)
    return replace(tape, ordered=packed.ordered, matrices=packed.matrices, into=packed.into)


# ---- pickles


@dataclass(frozen=True)
class RemoteFunction:
    """A stub for user function number `number`, which stays in the process that traced it."""

    number: int

    def __call__(self, *xs: Any) -> Any:
        raise AssertionError("a function of the user's was called in another process")


class _Pickler(pickle.Pickler):
    """Pickles sub-tapes of primitives in packed form, and replaces users' functions by stubs."""

    def __init__(self, file: Any, opaque: Sequence[ForeignCall]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.opaque = opaque

    def reducer_override(self, x: Any) -> Any:
        if type(x) is Tape:
            return Packed.unpack, (pack(x),)
        if type(x) is ForeignCall and not isinstance(x.function, RemoteFunction):
            here = RemoteFunction(self.opaque.index(x))
            effect = True if x.checks else None
            stub = replace(x, function=here, backward=None, forward=None, effect=effect)
            return _same, (stub,)
        return NotImplemented


def _same(x: Any) -> Any:
    return x


def opaque_of(primitives: Sequence[Primitive]) -> list[ForeignCall]:
    """The users' functions among these primitives. A `RemoteFunction` has the position in this
    list."""
    return [p for p in primitives if isinstance(p, ForeignCall)]


def dumped(x: Any, opaque: Sequence[ForeignCall] = ()) -> bytes:
    """An object made of primitives and packed tapes, as bytes."""
    file = BytesIO()
    _Pickler(file, opaque).dump(x)
    return file.getvalue()


def loaded(content: bytes) -> Any:
    """The object that was dumped."""
    return pickle.loads(content)
