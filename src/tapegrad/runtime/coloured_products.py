"""Matrices of derivatives, computed from coloured columns and rows.

The structure of the matrix comes from the tape (`sparsity.pattern`), and its colouring from the
structure (`sparsity.colouring`). Columns of one colour share no row, so one pass along the sum of
their unit vectors gives the entries of them all. Passes are rows of one tape. A gather puts the
entries in their places; known formulas are written to their entries (`sparsity.entries`).

A sparse matrix gets the entries in the order of its structure. A dense one that is mostly zeros
gets them among zeros: for a tridiagonal matrix with n columns,

    n passes  -->  3 passes, and writes to out[0::n + 1], out[1::n + 1], out[n::n + 1]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.differentiate.batching import batch, with_rows
from tapegrad.differentiate.reverse import with_reached
from tapegrad.differentiate.seeds import Make, blocks, full, seeded
from tapegrad.errors import GradientError
from tapegrad.ir.tape import Aval, Builder, Call, Literal, Operand, Tape
from tapegrad.primitives.base import Slice, Writer
from tapegrad.primitives.batches import row_numbers
from tapegrad.primitives.elementwise import AsType, equal
from tapegrad.primitives.kinds import Contraction
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.views import GetItem, Reshape

SMALL_MATRIX = 1024  # elements: in smaller matrices zeros aren't searched for ...
WITHOUT = 10**6  # ... and scipy.sparse isn't loaded, which costs more than a thousand such matrices
FEWER = 4  # times fewer passes are needed: otherwise dense passes are as fast


def dense(
    tape: Tape, wrt: Sequence[int], kept: Sequence[int], mode: str, checkpoint: Any
) -> Tape | None:
    """The tape of the first outputs `kept` and of the derivatives of the other outputs with respect
    to each input in `wrt`; None if colours don't save much.

    The derivatives of a gradient aren't assumed to be symmetric: with a user's rule they may not
    be.
    """
    from tapegrad.optimize.inline import inline_calls

    rows = range(len(kept), len(tape.outputs))
    ins, outs = [tape.inputs[k] for k in wrt], [tape.outputs[k] for k in rows]
    width, height = sum(x.aval.size for x in ins), sum(y.aval.size for y in outs)
    passes = {"forward": width, "reverse": height}.get(mode, min(width, height))
    least = SMALL_MATRIX if "scipy.sparse" in sys.modules else WITHOUT
    if width * height < least or passes < FEWER:
        return None
    if len({x.dtype for x in (*ins, *outs)}) > 1 or ins[0].dtype.kind != "f":
        return None
    of = inline_calls(tape)
    if _elements(of) > width * height:
        return None
    from tapegrad.sparsity.pattern import pattern
    from tapegrad.sparsity.recovery import choose

    structure = pattern(of, wrt, rows)
    if structure.nnz * FEWER > width * height:
        return None
    found = choose(structure, forward=mode != "reverse", reverse=mode != "forward", price=1.5)
    if found.count * FEWER > passes:
        return None
    size, at = _placed(found.pattern, [y.aval.size for y in outs], [x.aval.size for x in ins])
    try:
        made = entries_of(tape, wrt, rows, kept, found, checkpoint, {}, (size, at))
    except GradientError:  # a user's function may have a rule for one mode only
        return None
    assert made is not None  # None is returned only with a share
    return _blocks(made, len(kept), [y.shape for y in outs], [x.shape for x in ins])


def _elements(tape: Tape) -> float:
    """The number of elements to examine to find the structure."""
    return _counted(tape, lambda call: sum(x.aval.size for x in call.outs))


def work_of(tape: Tape) -> float:
    """An estimate of a tape's operations: one for each element, and all products of
    contractions."""
    return _counted(tape, _work_of_call)


def _work_of_call(call: Call) -> float:
    p: Any = call.primitive
    if not isinstance(p, Contraction):
        return sum(x.aval.size for x in call.outs)
    letters = zip((p.terms.x, p.terms.y), call.operands, strict=True)
    extents = {k: n for term, x in letters for k, n in zip(term, x.shape, strict=True)}
    return math.prod(extents.values())


def _counted(tape: Tape, of: Callable[[Call], float]) -> float:
    """The sum of `of` over all calls, with loops counted once for each round."""
    total = 0.0
    for call in tape.calls:
        total += of(call)
        times: float = 1
        if call.primitive.repeats:
            steps = call.operands[0]
            whole = isinstance(steps, Literal) and steps.dtype.kind in "iu"
            times = int(steps.value) if whole else math.inf  # type: ignore[union-attr]
        total += sum(times * _counted(inner, of) for inner in call.primitive.tapes)
    return total


def _placed(pattern: Any, heights: Sequence[int], widths: Sequence[int]) -> tuple[int, Any]:
    """The total number of elements of all blocks, and each entry's number among these."""
    tops, lefts = np.cumsum([0, *heights]), np.cumsum([0, *widths])
    row = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    column = pattern.indices.astype(np.int64)
    k = np.searchsorted(tops, row, side="right") - 1
    j = np.searchsorted(lefts, column, side="right") - 1
    high, wide = np.diff(tops)[k], np.diff(lefts)[j]
    start = tops[k] * lefts[-1] + high * lefts[j]
    return int(tops[-1] * lefts[-1]), start + (row - tops[k]) * wide + column - lefts[j]


def _blocks(tape: Tape, kept: int, outs: Sequence[Any], ins: Sequence[Any]) -> Tape:
    """The tape with its last output divided into blocks of these shapes, in order."""
    builder = Builder.after(tape, tape.name)
    builder.guards += tape.guards
    flat = Writer(builder).node(tape.outputs[-1])
    shapes = [(*y, *x) for y in outs for x in ins]
    parts = []
    for shape, (start, size) in zip(shapes, blocks(shapes), strict=True):
        part = flat if size == flat.size else GetItem((Slice(start, size),))(flat)
        parts.append((part if part.shape == shape else Reshape(shape)(part)).operand)
    return builder.finish([*tape.outputs[:kept], *parts], tape.captured)


def entries_of(
    tape: Tape,
    wrt: Sequence[int],
    rows: Sequence[int],
    kept: Sequence[int],
    colouring: Any,
    checkpoint: Any,
    values: Mapping[int, Any],
    among: tuple[int, Any] | None = None,
    share: float = 0.0,
) -> Tape | None:
    """The tape of the outputs `kept` and of the entries of the Jacobian of the outputs `rows`.

    The entries are in the order of the pattern; or with `among` = (size, positions), at these
    positions among zeros. `values` has the values of integer inputs. With a `share`, returns None
    unless each entry takes at most that share of the work.
    """
    from tapegrad.optimize.inline import inline_calls
    from tapegrad.sparsity.entries import entries

    seeds: dict[int, Any] = {}  # id -> array from which seeds are made
    parts: list[Tape] = []
    if colouring.of_columns:
        parts.append(_products(tape, wrt, rows, kept, colouring, seeds))
    if colouring.of_rows:
        parts.append(_transposed_products(tape, wrt, rows, kept, colouring, checkpoint, seeds))
    if not parts:  # the matrix has no entries
        builder = Builder.after(tape, tape.name)
        builder.guards += tape.guards
        (empty,) = [full(0.0)(Writer(builder), _empty(tape, rows)).operand]
        return builder.finish([*[tape.outputs[k] for k in kept], empty], tape.captured)
    joined = inline_calls(_joined(parts, len(kept)))
    free = len(tape.inputs) - len(tape.captured)
    known = {joined.inputs[k]: x for k, x in values.items() if k < free}
    given = {id(tape.captured[k - free]): x for k, x in values.items() if k >= free}
    for var, array in zip(joined.inputs[free:], joined.captured, strict=True):
        if (value := seeds.get(id(array), given.get(id(array)))) is not None:
            known[var] = value
    linear = {var for var in known if id(known[var]) in seeds}
    builder = Builder.after(joined, tape.name)
    builder.guards += joined.guards
    writer = Writer(builder)
    flat = [writer.node(x) for x in joined.outputs[len(kept) :]]
    dtype = np.result_type(*[x.dtype for x in flat])
    flat = [x if x.dtype == dtype else AsType(dtype)(x) for x in flat]
    whole = Concatenate(0)(*flat) if len(flat) > 1 else flat[0]
    found = entries(writer, joined, whole, colouring.index, known, linear, among, share)
    if found is None:
        return None
    done = builder.finish([*joined.outputs[: len(kept)], found.operand], joined.captured)
    return with_reached(done, writer)


def _empty(tape: Tape, rows: Sequence[int]) -> Any:
    dtype = tape.outputs[rows[0]].dtype if rows else np.dtype(np.float64)
    return Aval((0,), dtype)


def _products(
    tape: Tape,
    wrt: Sequence[int],
    rows: Sequence[int],
    kept: Sequence[int],
    colouring: Any,
    seeds: dict[int, Any],
) -> Tape:
    """Products of the Jacobian with vectors, flattened: a row for each colour of its columns."""
    from tapegrad.pipeline import pushforward

    count, first = len(tape.outputs), len(tape.free_inputs)
    pushed = pushforward(tape, wrt)
    outputs = [*[pushed.outputs[k] for k in kept], *[pushed.outputs[count + k] for k in rows]]
    pushed = replace(pushed, outputs=tuple(outputs), output_names=())
    given = {first + n: tape.inputs[k].shape for n, k in enumerate(wrt)}
    return _by_colours(pushed, given, colouring.columns, colouring.of_columns, len(kept), seeds)


def _transposed_products(
    tape: Tape,
    wrt: Sequence[int],
    rows: Sequence[int],
    kept: Sequence[int],
    colouring: Any,
    checkpoint: Any,
    seeds: dict[int, Any],
) -> Tape:
    """Products of the transposed Jacobian: a row for each colour of its rows."""
    from tapegrad.pipeline import derive

    count, first = len(tape.outputs), len(tape.free_inputs)
    pulled = derive(tape, wrt, True, kept, checkpoint)
    pulled = seeded(pulled, {first + k: full(0.0) for k in range(count) if k not in rows})
    given = {first + n: tape.outputs[k].shape for n, k in enumerate(rows)}
    return _by_colours(pulled, given, colouring.rows, colouring.of_rows, len(kept), seeds)


def _by_colours(
    tape: Tape,
    given: Mapping[int, tuple[int, ...]],
    colours: Any,
    count: int,
    kept: int,
    seeds: dict[int, Any],
) -> Tape:
    """The tape in the direction of each colour.

    The outputs after the first `kept` are flattened, colour by colour, and concatenated. `given`
    maps inputs that are seeds to their shapes. The arrays from which seeds are made are added to
    `seeds`.
    """
    rows, have = batch(tape, [*given], count)
    rows = with_rows(rows, [*[True] * kept, *have[kept:]], count)
    small: Any = np.promote_types(np.min_scalar_type(-count), np.int8)
    makes = {}
    for (k, shape), (start, size) in zip(given.items(), blocks([*given.values()]), strict=True):
        own = np.array(colours[start : start + size].reshape(shape), small)
        seeds[id(own)] = own
        makes[k] = _colour_seeds(own, count)
    rows = seeded(rows, makes)
    builder = Builder.after(rows, rows.name)
    builder.guards += rows.guards
    writer = Writer(builder)
    flat = []
    for x in rows.outputs[kept:]:
        node = writer.node(x)
        flat.append(Reshape((count, math.prod(node.shape[1:])))(node))
    whole = Concatenate(1)(*flat) if len(flat) > 1 else flat[0]
    found = Reshape((whole.size,))(whole)
    return builder.finish([*rows.outputs[:kept], found.operand], rows.captured)


def _colour_seeds(colours: Any, count: int) -> Make:
    """A seed with a row for each colour: ones where the element has this colour, zeros
    elsewhere."""

    def make(writer: Writer, aval: Any) -> Any:
        if count == 1 and colours.min(initial=0) == 0:
            return full(1.0)(writer, aval)
        own = writer.capture(colours)
        wide = AsType(np.dtype(np.int64))(own) if own.dtype != np.int64 else own
        return AsType(aval.dtype)(equal(row_numbers(count, own, len(aval.shape)), wide))

    return make


def _joined(tapes: Sequence[Tape], kept: int) -> Tape:
    """Tapes with the same inputs merged into one: the first tape's outputs `kept`, then the other
    outputs of all."""
    if len(tapes) == 1:
        return tapes[0]
    first = tapes[0]
    builder = Builder(first.name)
    free = len(first.inputs) - len(first.captured)
    names = first.names or ("",) * len(first.inputs)
    shared = [
        builder.input(x.aval, name) for x, name in zip(first.inputs[:free], names, strict=False)
    ]
    arrays: list[Any] = []
    outputs: list[Operand] = []
    for n, tape in enumerate(tapes):
        own = tape.inputs[len(tape.inputs) - len(tape.captured) :]
        env: dict[Any, Any] = dict(zip(tape.inputs, shared, strict=False))
        for var, array in zip(own, tape.captured, strict=True):
            env[var] = builder.input(var.aval, f"r{len(arrays)}")
            arrays.append(array)
        for call in tape.calls:
            outs = builder.again(call, [env.get(x, x) for x in call.operands])
            env.update(zip(call.outs, outs, strict=True))
        if not n:
            builder.guards += [
                replace(g, operand=env.get(g.operand, g.operand)) for g in tape.guards
            ]
        ends = tape.outputs if not n else tape.outputs[kept:]
        outputs += [env.get(x, x) for x in ends]
    return builder.finish(outputs, arrays)


def without_unread(tape: Tape) -> Tape:
    """The tape without captured arrays that nothing reads."""
    read: set[Operand] = {*tape.outputs, *[guard.operand for guard in tape.guards]}
    read.update(x for call in tape.calls for x in call.operands)
    free = len(tape.inputs) - len(tape.captured)
    kept = [k for k, x in enumerate(tape.inputs) if k < free or x in read]
    return replace(
        tape,
        inputs=tuple([tape.inputs[k] for k in kept]),
        captured=tuple([tape.captured[k - free] for k in kept[free:]]),
        names=tuple([tape.names[k] for k in kept]) if tape.names else (),
    )
