"""Seeds: values for the tangents and cotangents that a derivative's tape takes as inputs.

inp %1 = x, %2 = t_x              inp %1 = x
    %3 = cos(%1)          -->         %2 = place_diagonal(1.0)      a row for each element of x
    %4 = mul(%2, %3)                  %3 = cos(%1)
out %4                                %4 = mul(%2, %3)
                                  out %4
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tapegrad.differentiate.reverse import with_reached
from tapegrad.ir.tape import Aval, Builder, Guard, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.scatter import Stack
from tapegrad.primitives.views import BroadcastTo, PlaceDiagonal, Reshape

Make = Callable[[Writer, Aval], Node]


def seeded(tape: Tape, seeds: Mapping[int, Make]) -> Tape:
    """The tape without the inputs numbered in `seeds`. Their values are computed on the tape:
    `seeds` maps each to a function of the input's type."""
    builder = Builder(tape.name)
    writer = Writer(builder)
    env: dict[Var, Operand] = {}
    names = tape.names or ("",) * len(tape.inputs)
    for k, (var, name) in enumerate(zip(tape.inputs, names, strict=True)):
        if k not in seeds:
            env[var] = builder.input(var.aval, name)
    for k, make in seeds.items():
        var = tape.inputs[k]
        env[var] = make(writer, var.aval).operand

    def operand(x: Operand) -> Operand:
        return x if isinstance(x, Literal) else env[x]

    for call in tape.calls:
        outs = builder.again(call, [operand(x) for x in call.operands])
        env.update(zip(call.outs, outs, strict=True))
    builder.guards += [Guard(operand(g.operand), g.expected, g.what, g.src) for g in tape.guards]
    outputs = [operand(x) for x in tape.outputs]
    return with_reached(builder.finish(outputs, tape.captured, tape.output_names), writer)


def each(values: Sequence[complex]) -> Make:
    """Make a seed of these numbers, one for each row."""

    def make(writer: Writer, aval: Aval) -> Node:
        return Stack(0)(*[writer.node(Literal(aval.dtype.type(x))) for x in values])

    return make


def full(value: float) -> Make:
    """Make a seed with the same number everywhere."""

    def make(writer: Writer, aval: Aval) -> Node:
        number = writer.node(Literal(aval.dtype.type(value)))
        return BroadcastTo(aval.shape)(number) if aval.shape else number

    return make


def bases(shapes: Sequence[tuple[int, ...]]) -> list[Make]:
    """The unit vectors of the space of all elements of arrays of these shapes, as a seed for each
    array. There is a row for each element of all arrays.

        x : f8[2], y : f8[1]    -->    1 0    0
                                       0 1    0
                                       0 0    1
    """
    sizes = [math.prod(shape) for shape in shapes]
    total, before = sum(sizes), 0
    found = []
    for shape, size in zip(shapes, sizes, strict=True):
        found.append(_basis(total, before, size, shape))
        before += size
    return found


def _basis(total: int, before: int, size: int, shape: tuple[int, ...]) -> Make:
    def make(writer: Writer, aval: Aval) -> Node:
        ones = BroadcastTo((size,))(writer.node(Literal(aval.dtype.type(1))))
        matrix = PlaceDiagonal((total, size), -before)(ones)
        return matrix if shape == (size,) else Reshape((total, *shape))(matrix)

    return make


def blocks(shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """(start, size) of each array among the elements of all."""
    sizes = [math.prod(shape) for shape in shapes]
    starts = np.cumsum([0, *sizes]).tolist()
    return list(zip(starts, sizes, strict=False))
