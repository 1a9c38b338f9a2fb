"""A tape in which one is a length like any: where another tape of the same function has more.

    loss(w, X[64, 20])     sum(%3, axes=(0,)) : f8[],   div(%4, 64.0)
    loss(w, X[1, 20])      sum(%3, axes=(0,)) : f8[],   div(%4, 1.0)

By itself the second is a squeeze, and divides by nothing. What differs from the first in numbers
alone is marked (`Length`, `Literal.open`), so all that is made of it later is made for any number
of rows, and machine code for any length serves one, too. It is the same tape: nothing is taken for
granted of how its numbers follow from lengths.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any

from tapegrad.core.values import Length, Slice, Span, one_type
from tapegrad.ir.tape import Aval, Call, Guard, Literal, Operand, Primitive, Tape, Var

_OWN = re.compile(r"tapegrad\.")  # modules


class _Unlike(Exception):
    """The tapes differ in more than numbers."""


def opened(tape: Tape, like: Tape) -> Tape | None:
    """A tape whose numbers are marked where they differ from those of a tape like it; None if no
    axis of an input and no loop is of length 1 in this one alone, or if more differs."""
    ours, theirs = ([(len(x.shape), x.dtype) for x in t.inputs] for t in (tape, like))
    lengths = map(_lengths, (tape, like))
    single = any(n == 1 != m for n, m in zip(*lengths, strict=False))
    if not single or ours != theirs or len(tape.calls) != len(like.calls):
        return None
    try:
        return _Opened().tape(tape, like)
    except _Unlike:
        return None


def _lengths(tape: Tape) -> list[int]:
    """The lengths of inputs' axes, and the most rounds of loops."""
    loops: list[Any] = [call.primitive for call in tape.calls if call.primitive.repeats]
    return [*itertools.chain(*[v.shape for v in tape.inputs]), *[loop.most for loop in loops]]


def closed(tape: Tape) -> Tape:
    """The same tape without marks."""
    return _Closed().tape(tape, tape)


def unmarked(primitive: Primitive) -> Primitive:
    """The same primitive without marks."""
    return _Closed().primitive(primitive, primitive)


class _Opened:
    """Goes through two tapes side by side, and marks the numbers of the first that differ."""

    def tape(self, tape: Tape, like: Tape) -> Tape:
        known: dict[Operand, Operand] = {}  # of a variable the one that is in its place
        beside: dict[Operand, Operand] = {}  # and the other tape's

        def defined(x: Var, y: Var) -> Var:
            beside[x] = y
            known[x] = made = Var(x.id, self._type(x.aval, y.aval))
            return made

        def read(x: Operand, y: Operand) -> Operand:
            if isinstance(x, Literal):
                if not isinstance(y, Literal) or x.dtype != y.dtype:
                    raise _Unlike
                return self.literal(x, y)
            if beside[x] != y:
                raise _Unlike
            return known[x]

        def each(make: Any, xs: Sequence[Any], ys: Sequence[Any]) -> Any:
            if len(xs) != len(ys):
                raise _Unlike
            return tuple(map(make, xs, ys))

        def call(x: Call, y: Call) -> Call:
            operands = each(read, x.operands, y.operands)
            primitive = self.primitive(x.primitive, y.primitive)
            return replace(
                x, primitive=primitive, operands=operands, outs=each(defined, x.outs, y.outs)
            )

        def guard(x: Guard, y: Guard) -> Guard:
            if x.expected.value != y.expected.value:
                raise _Unlike
            return replace(x, operand=read(x.operand, y.operand))

        return replace(
            tape,
            inputs=each(defined, tape.inputs, like.inputs),
            calls=each(call, tape.calls, like.calls),
            guards=each(guard, tape.guards, like.guards),
            outputs=each(read, tape.outputs, like.outputs),
        )

    def number(self, x: int, y: int) -> int:
        return Length(x) if x != y and 0 <= x <= 1 else x

    def literal(self, x: Literal, y: Literal) -> Literal:
        return x if x == y else Literal(x.value, open=True)

    def _type(self, x: Aval, y: Aval) -> Aval:
        if (x.ndim, x.dtype, x.weak) != (y.ndim, y.dtype, y.weak):
            raise _Unlike
        if any(n != m and not n * m for n, m in zip(x.shape, y.shape, strict=True)):
            raise _Unlike  # what is done for no elements isn't done for some
        return one_type(replace(x, shape=tuple(map(self.number, x.shape, y.shape))))

    def primitive(self, x: Primitive, y: Primitive) -> Primitive:
        is_users = x.foreign or getattr(x, "ruled", False) or not _OWN.match(type(x).__module__)
        if type(x) is not type(y) or is_users:  # whose rule may ask whether a length is 1
            raise _Unlike
        return self._changed(x, y)

    def _changed(self, x: Any, y: Any) -> Any:
        if not x.parameters():
            if x != y:
                raise _Unlike
            return x
        pairs = zip(vars(x).items(), vars(y).values(), strict=True)
        return x.changed(**{name: self.parameter(ours, theirs) for (name, ours), theirs in pairs})

    def parameter(self, x: Any, y: Any) -> Any:
        if isinstance(x, int) and not isinstance(x, bool) and isinstance(y, int):
            return self.number(x, y)
        if type(x) is not type(y):
            raise _Unlike
        if isinstance(x, tuple) and len(x) == len(y):
            return tuple(map(self.parameter, x, y))
        if isinstance(x, (Slice, Span)) and x.step == y.step:
            return type(x)(*map(self.number, astuple(x), astuple(y)))
        if isinstance(x, Literal):
            return self.literal(x, y)
        if isinstance(x, Tape):
            return self.tape(x, y)
        if x != y:
            raise _Unlike
        return x


class _Closed(_Opened):
    """Leaves out all marks."""

    def primitive(self, x: Primitive, y: Primitive) -> Primitive:
        return x if x.foreign else self._changed(x, y)

    def number(self, x: int, y: int) -> int:
        return int(x)

    def literal(self, x: Literal, y: Literal) -> Literal:
        return Literal(x.value)
