"""Batching: the tape of a function becomes the tape of the function of many rows.

    inp %1 = x : f8[3]                      inp %1 = x : f8[100,3]
        %2 = exp(%1) : f8[3]         -->        %2 = exp(%1) : f8[100,3]
        %3 = sum(%2, axes=(0,))                 %3 = sum(%2, axes=(1,))
    out %3 : f8[]                           out %3 : f8[100]

Values that don't depend on a row are computed once for all. Primitives declare their batched form
(`primitives.batches`). A primitive without one, and a loop whose trip count depends on the row, run
row by row, in a loop over the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import DECLARED, Aval, Builder, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.batches import batched, repeated
from tapegrad.primitives.control import Applied
from tapegrad.primitives.kinds import Repeated
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.reductions import All
from tapegrad.primitives.windows import Empty, SetWindow, Window, entry_at


def batch(
    tape: Tape, rows: Collection[int], size: int, masks: bool = False
) -> tuple[Tape, list[bool]]:
    """The tape of `size` rows, and for each output whether it has rows.

    The inputs numbered in `rows` have the rows as a new first axis. A guard holds if it holds in
    all rows. With `masks` there are no guards; a further output says in which rows all of them
    hold.
    """
    batcher = Batcher(tape, rows, size)
    for call in tape.calls:
        batcher.add(call)
    return batcher.finish(masks)


class Batcher:
    """Rewrites a tape for many rows. `env` maps the old tape's variables to the new one's operands;
    `mapped` are the old variables that have rows."""

    def __init__(self, tape: Tape, rows: Collection[int], size: int) -> None:
        self.tape, self.size = tape, size
        self.builder = Builder(f"rows_{tape.name}")
        self.writer = Writer(self.builder)
        self.env: dict[Var, Operand] = {}
        self.mapped: set[Operand] = set()
        names = tape.names or ("",) * len(tape.inputs)
        self.rows = rows
        for k, (var, name) in enumerate(zip(tape.inputs, names, strict=True)):
            self.enter(k, var, name)

    def enter(self, k: int, var: Var, name: str) -> None:
        """Add the input of the new tape for an input of the old one."""
        aval = var.aval
        if k in self.rows:
            aval = aval.with_shape((self.size, *aval.shape))
            self.mapped.add(var)
        self.env[var] = self.builder.input(aval, name)

    def operand(self, x: Operand) -> Operand:
        return x if isinstance(x, Literal) else self.env[x]

    def add(self, call: Call) -> None:
        """Append a call, for all rows at once if possible."""
        operands = [self.operand(x) for x in call.operands]
        mapped = [x in self.mapped for x in call.operands]
        if not any(mapped):
            outs = self.builder.again(call, operands)
            self.env.update(zip(call.outs, outs, strict=True))
            return
        primitive: Any = call.primitive
        self.writer.src, self.writer.reason = call.src, call.reason
        if isinstance(primitive, Repeated):
            flags = self._loop(call, operands, mapped)
        elif isinstance(primitive, Applied) and not primitive.ruled:
            flags = self._applied(call, operands, mapped)
        else:
            nodes = [self.writer.node(x) for x in operands]
            found = batched(primitive, self.size, mapped, nodes)
            flags = None if found is None else self._found(call, found)
        if flags is None:
            flags = self._row_by_row(call, operands, mapped)
        self.mapped.update(out for out, flag in zip(call.outs, flags, strict=True) if flag)

    def _found(self, call: Call, found: Any) -> list[bool]:
        results = found if isinstance(found, tuple) else (found,)
        self.env.update(zip(call.outs, [x.operand for x in results], strict=True))
        return [True] * len(results)

    def _applied(self, call: Call, operands: list[Operand], mapped: list[bool]) -> list[bool]:
        """Batch a call with a sub-tape by batching the sub-tape."""
        primitive: Any = call.primitive
        body, flags = batch(primitive.tape, [k for k, m in enumerate(mapped) if m], self.size)
        outs = self.builder.call(primitive.changed(tape=body), operands, call.src, call.reason)
        self.env.update(zip(call.outs, outs, strict=True))
        return flags

    # ---- loops

    def _loop(self, call: Call, operands: list[Operand], mapped: list[bool]) -> list[bool] | None:
        """A loop for all rows, or None if its trip count depends on the row.

        A carried value has rows if its start has, or if a round gives it rows.
        """
        loop: Any = call.primitive
        heads = len(loop.heads(operands))
        if any(mapped[:heads]):
            return None
        flags = mapped[heads:]
        count = loop.carried
        while True:
            rows = [1 + k for k, flag in enumerate(flags) if flag]
            body, found = batch(loop.body, rows, self.size)
            if loop.until and found[count]:
                return None
            grown = [a or b for a, b in zip(flags[:count], found[:count], strict=True)]
            if grown == flags[:count]:
                break
            flags = [*grown, *flags[count:]]
        wanted = [*flags[:count], *([False] if loop.until else [])]
        body = _with_rows(body, found, wanted, self.size)
        given = [
            repeated(self.writer.node(x), self.size).operand if flag and not m else x
            for x, flag, m in zip(operands[heads:], flags, mapped[heads:], strict=True)
        ]
        outs = self.builder.call(
            loop.changed(body=body), [*operands[:heads], *given], call.src, call.reason
        )
        self.env.update(zip(call.outs, outs, strict=True))
        return [*flags[:count], *([False, False] if loop.until else [])]

    def _row_by_row(self, call: Call, operands: list[Operand], mapped: list[bool]) -> list[bool]:
        """A call as a loop over rows:

        for k in range(size):
            out[k] = primitive(x[k], y)
        """
        step = Aval((), np.dtype(np.int64))
        inner = Builder(str(call.primitive))
        writer = Writer(inner)
        at = inner.input(step)
        types = [Aval((self.size, *out.shape), out.dtype) for out in call.outs]
        arrays = [inner.input(aval) for aval in types]
        xs: list[Operand] = []
        for x, flag in zip(operands, mapped, strict=True):
            if isinstance(x, Literal):
                xs.append(x)
                continue
            var: Operand = inner.input(x.aval)
            if flag:
                var = Window(*entry_at(0, x.shape[1:]))(writer.node(var), writer.node(at)).operand
            xs.append(var)
        found = inner.call(call.primitive, xs, call.src, call.reason)
        ends = [
            SetWindow(*entry_at(0, y.shape))(
                writer.node(array), writer.node(y), writer.node(at)
            ).operand
            for array, y in zip(arrays, found, strict=True)
        ]
        loop = Loop(inner.finish(ends), len(arrays), self.size)
        start: list[Operand] = []
        for aval in types:
            start += self.builder.call(Empty(aval.shape, aval.dtype), [])
        given = [x for x in operands if not isinstance(x, Literal)]
        rounds = Literal(np.int64(self.size))
        outs = self.builder.call(loop, [rounds, *start, *given], call.src, call.reason)
        self.env.update(zip(call.outs, outs, strict=True))
        return [True] * len(outs)

    # ---- the end

    def output(self, k: int, x: Operand) -> Operand:
        """The output of the new tape for an output of the old one."""
        return self.operand(x)

    def finish(self, masks: bool) -> tuple[Tape, list[bool]]:
        tape, builder = self.tape, self.builder
        flags = [x in self.mapped for x in tape.outputs]
        outputs = [self.output(k, x) for k, x in enumerate(tape.outputs)]
        holds: Node | None = None
        self.writer.src, self.writer.reason = None, "guard"
        for guard in tape.guards:
            operand, is_mapped = self.operand(guard.operand), guard.operand in self.mapped
            if not is_mapped and not masks:
                builder.guards.append(replace(guard, operand=operand))
                continue
            same = _is_same(self.writer.node(operand), guard.expected)
            if masks:
                same = same if is_mapped else repeated(same, self.size)
                holds = same if holds is None else DECLARED["logical_and"](holds, same)
            else:
                found = All((0,))(same).operand
                builder.guards.append(Guard(found, _TRUE, guard.what, guard.src))
        if masks:
            if holds is None:
                holds = repeated(self.writer.node(_TRUE), self.size)
            outputs, flags = [*outputs, holds.operand], [*flags, True]
        names = tape.output_names if not masks else ()
        return builder.finish(outputs, tape.captured, names), flags


_TRUE = Literal(np.bool_(True))


def _is_same(x: Node, expected: Literal) -> Any:
    """Where the guarded value has the bits that the trace saw."""
    value = expected.value
    if value != value:
        return DECLARED["not_equal"](x, x)
    if expected.dtype.kind == "f" and value == 0:
        one = x.constant(1)
        return DECLARED["equal"](one / x, one / x.writer.node(expected))
    return DECLARED["equal"](x, x.writer.node(expected))


def _with_rows(tape: Tape, have: Sequence[bool], wanted: Sequence[bool], size: int) -> Tape:
    """The tape in which the outputs marked in `wanted` have rows. Outputs without rows are
    repeated."""
    if list(have) == list(wanted):
        return tape
    builder = Builder.after(tape, tape.name)
    builder.guards += tape.guards
    writer = Writer(builder)
    outputs = [
        repeated(writer.node(x), size).operand if want and not has else x
        for x, has, want in zip(tape.outputs, have, wanted, strict=True)
    ]
    return renumbered(builder.finish(outputs, tape.captured))


def with_rows(tape: Tape, have: Sequence[bool], size: int) -> Tape:
    """The tape with rows in all of its outputs."""
    return _with_rows(tape, have, [True] * len(have), size)
