"""Passes in some directions at a time: a loop whose rounds write one panel of the result each.

    rows = pass(unit vectors)    -->    for k in range(size // count):
                                            here = slice(k * count, (k + 1) * count)
                                            rows[here] = pass(unit vectors[here])

So intermediates have `count` rows, not all of them. Values that don't depend on the direction are
computed before the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tapegrad.differentiate.batching import batch, with_rows
from tapegrad.differentiate.partial_eval import partial_eval
from tapegrad.differentiate.terms import number_of, row_major, rows_last
from tapegrad.ir.tape import Aval, Builder, Literal, Operand, Tape
from tapegrad.primitives.base import Slice, Writer
from tapegrad.primitives.batches import expanded, row_numbers
from tapegrad.primitives.control import CallTape
from tapegrad.primitives.elementwise import AsType, equal
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.windows import Empty, SetWindow


def in_panels(
    tape: Tape, seeds: Mapping[int, int], size: int, kept: int, last: bool, count: int
) -> Tape:
    """`directions.in_all_directions`, with `count` directions at a time."""
    early, each = partial_eval(tape, [*seeds], kept)
    builder = Builder(f"panels_{tape.name}")
    names = tape.names or ("",) * len(tape.inputs)
    others = [k for k in range(len(tape.inputs)) if k not in seeds]
    given = [builder.input(tape.inputs[k].aval, names[k]) for k in others]
    found = builder.call(CallTape(early), given)
    arrays: list[Operand] = []
    for y in each.outputs:
        shape = (*y.shape, size) if last else (size, *y.shape)
        arrays += builder.call(Empty(shape, y.dtype), [])
    done = 0
    while done < size:  # the whole panels, then the rest
        rounds, width = max(1, (size - done) // count), min(count, size - done)
        body = _round(each, [*seeds.values()], width, done, arrays, last)
        loop = Loop(body, len(arrays), rounds)
        arrays = [*builder.call(loop, [Literal(np.int64(rounds)), *arrays, *found[kept:]])]
        done += rounds * width
    return builder.finish([*found[:kept], *arrays], tape.captured)


def _round(
    each: Tape, firsts: Sequence[int], count: int, start: int, arrays: Sequence[Operand], last: bool
) -> Tape:
    """A round: `each` in `count` directions, from direction `start` on in the first round, written
    to its place in the arrays. The first inputs of `each` are seeds."""
    rows, have = batch(each, range(len(firsts)), count)
    rows = with_rows(rows, have, count)
    builder = Builder(each.name)
    writer = Writer(builder)
    step = writer.node(builder.input(Aval((), np.dtype(np.int64)), "panel"))
    ins = [builder.input(x.aval) for x in arrays]
    residuals = [builder.input(x.aval) for x in each.inputs[len(firsts) :]]
    numbers = row_numbers(count, step, 1) + (step * count + start)
    seeds = []
    for var, first in zip(each.inputs, firsts, strict=False):
        own = number_of(first, row_major(var.shape), var.shape, step)
        here = equal(expanded(numbers, len(var.shape)), own)
        seeds.append(AsType(var.dtype)(here).operand)
    parts = builder.call(CallTape(rows), [*seeds, *residuals])
    ends = []
    for array, part in zip(ins, map(writer.node, parts), strict=True):
        rest = [Slice(0, n) for n in part.shape[1:]]
        still = [0] * len(rest)
        at, moves = ((*rest, Slice(start, count)), (*still, count))
        if not last:
            at, moves = (at[-1], *rest), (count, *still)
        part = rows_last(part) if last else part
        ends.append(SetWindow(at, (moves,))(writer.node(array), part, step).operand)
    return builder.finish(ends)
