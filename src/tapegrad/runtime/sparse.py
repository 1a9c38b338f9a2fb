"""Sparse matrices of derivatives: a few passes, by the colours of their columns and rows.

The structure of the matrix comes from the tape (`sparsity.pattern`), and colours from the structure
(`sparsity.colouring`): columns of one colour have no row in common, so one pass along the sum of
their unit vectors has the entries of all of them. Passes are rows of one tape, and a gather puts
the entries in their places.

The structure depends on what integers say, such as indices. They are compared at each call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad.core.request import Request
from tapegrad.core.trees import is_traced
from tapegrad.differentiate.batching import batch, with_rows
from tapegrad.differentiate.reverse import with_reached
from tapegrad.differentiate.seeds import Make, blocks, full, seeded
from tapegrad.errors import ConversionError, UnsupportedError
from tapegrad.ir.tape import Aval, Builder, Guard, Literal, Operand, Tape
from tapegrad.primitives.base import Writer
from tapegrad.primitives.batches import row_numbers
from tapegrad.primitives.elementwise import AsType, equal
from tapegrad.primitives.reductions import All
from tapegrad.primitives.scatter import Concatenate
from tapegrad.primitives.views import Reshape
from tapegrad.runtime.checks import check_scalar_result
from tapegrad.runtime.jacobians import Jacobian, without_hessian
from tapegrad.runtime.transformations import (
    Derivation,
    Selection,
    with_captured,
    with_constants,
    with_loss,
)
from tapegrad.tracing.decisions import is_given
from tapegrad.tracing.run import Traced, plain_value
from tapegrad.tracing.source import at_line
from tapegrad.tracing.tracer import Tracer


@dataclass(frozen=True)
class Valued(Selection):
    """A selection with the values of the integers among the arguments, by their inputs' numbers,
    and which of them are `given`."""

    values: Any = None
    given: Sequence[int] = ()


@dataclass(eq=False)
class Coloured(Derivation):
    """A derivation of the entries of a sparse matrix."""

    colouring: Any = field(kw_only=True)


@dataclass(frozen=True)
class SparseJacobian(Jacobian):
    """The Jacobian as a sparse matrix: a row for each element of the value, a column for each
    element of the arguments, each flattened and one after the other."""

    format: str = "csr"

    name = "sparse_jacobian"
    mirrors = False

    def select(self, request: Request) -> Valued:
        found = super().select(request)
        inputs = [plain_value(x) for x in request.leaves if is_traced(x)]
        values = {k: x for k, x in enumerate(inputs) if np.asarray(x).dtype.kind in "iub"}
        given = [k for k, x in enumerate(request.inputs) if is_given(x)]
        return Valued(found.wrt, found.structures, found.real, values, given)

    def derive(self, traced: Traced, selection: Any, final: bool) -> Derivation:
        from tapegrad.pipeline import finished, inlined, playable
        from tapegrad.sparsity.pattern import pattern

        traced = with_constants(traced)
        kept = self.kept(traced)
        free = len(traced.tape.inputs) - len(traced.captured)
        values = dict(selection.values)
        for k, x in enumerate(traced.captured, start=free):
            x = plain_value(x)
            if np.asarray(x).dtype.kind in "iub":
                values[k] = x
        whole, rows, wrt = self.differentiated_tape(traced, selection, kept)
        ins, outs = [whole.inputs[k] for k in wrt], [whole.outputs[k] for k in rows]
        mode = self._mode(traced.name, ins, outs)
        of = inlined(whole)
        structure = pattern(of, wrt, rows, values)
        colouring = self.coloured(structure, mode)
        head = len(kept)
        tape = _entries(whole, wrt, rows, range(head), colouring, self.checkpoint, values)
        read = {k: x for k, x in values.items() if _is_read(of, k)}
        for k in read:
            if k < free and k not in selection.given:
                raise ConversionError(
                    f"{self.name} of {traced.name}: where its matrix has entries is decided by the "
                    f"integers in {of.names[k]!r}, for which a shape was passed. Pass the array"
                )
        tape = _with_guards(tape, read)
        tape = _without_unread(playable(tape) if final else finished(tape))
        tape, traced = with_captured(tape, traced)
        done = Selection(selection.wrt, selection.structures, selection.real)
        return Coloured(self, tape, traced.without_values(), done, kept, colouring=colouring)

    def differentiated_tape(
        self, traced: Traced, selection: Selection, kept: Sequence[int]
    ) -> tuple[Tape, list[int], list[int]]:
        """The tape whose Jacobian it is, with outputs that are kept first; the outputs that are its
        rows, and the inputs that are its columns."""
        found = self.differentiated(traced)
        tape = traced.tape
        outputs = [*[tape.outputs[k] for k in kept], *[tape.outputs[k] for k in found]]
        tape = replace(tape, outputs=tuple(outputs), output_names=())
        return tape, [*range(len(kept), len(outputs))], [*selection.wrt]

    def coloured(self, structure: Any, mode: str) -> Any:
        """The colouring of this structure that takes the fewest products."""
        from tapegrad.sparsity.recovery import choose

        forward, reverse = mode != "reverse", mode != "forward"
        return choose(structure, forward=forward, reverse=reverse, price=1.5)

    def assemble(self, derivation: Any, values: Sequence[Any]) -> Any:
        entries = values[len(derivation.kept)]
        if isinstance(entries, Tracer):
            dense, products = ("hessian", "hvp") if self.second else ("jacobian", "jvp and vjp")
            raise UnsupportedError(
                f"{self.name} of {derivation.traced.name} is part of a function that is traced"
                f"{at_line()}, and a scipy.sparse array holds plain numbers. Use {dense}, or "
                f"products with it: {products}"
            )
        colouring = derivation.colouring
        for known, owner in colouring.levels:
            np.subtract.at(entries, owner, entries[known])
        if colouring.spread is not None:
            entries = entries[colouring.spread]
        matrix = colouring.matrix(entries).asformat(self.format)
        return (matrix, derivation.result(values)[1]) if self.has_aux else matrix

    def written(self, derivation: Any, marks: Sequence[Any]) -> Any:
        from tapegrad.backends.source.arguments import Made

        colouring = derivation.colouring
        entries = marks[len(derivation.kept)].text
        arrays = {"indices": colouring.pattern.indices, "indptr": colouring.pattern.indptr}
        lines = []
        for k, (known, owner) in enumerate(colouring.levels):
            arrays |= {f"known{k}": known, f"owner{k}": owner}
            lines.append(f"np.subtract.at({entries}, {{owner{k}}}, {entries}[{{known{k}}}])")
        if colouring.spread is not None:
            arrays["spread"] = colouring.spread
            lines.append(f"{entries} = {entries}[{{spread}}]")
        shape = tuple(map(int, colouring.pattern.shape))
        made = f"csr_array(({entries}, {{indices}}, {{indptr}}), {shape})"
        made += "" if self.format == "csr" else f".asformat({self.format!r})"
        matrix = Made(made, lines, arrays, "from scipy.sparse import csr_array")
        return (matrix, derivation.result(marks)[1]) if self.has_aux else matrix


@dataclass(frozen=True)
class SparseHessian(SparseJacobian):
    """The Hessian of a scalar function as a sparse matrix: products with it, forward over reverse,
    by the colours of a symmetric matrix."""

    name = "sparse_hessian"
    second = True

    def differentiated_tape(
        self, traced: Traced, selection: Selection, kept: Sequence[int]
    ) -> tuple[Tape, list[int], list[int]]:
        from tapegrad.pipeline import derive

        check_scalar_result(traced, self.has_aux, self.name)
        loss, before = with_loss(traced)
        if any(loss.inputs[k].dtype.kind == "c" for k in selection.wrt):
            raise without_hessian(self.name, traced.name)
        keep = [k + before for k in kept]
        tape = derive(loss, selection.wrt, keep=keep, checkpoint=self.checkpoint)
        return tape, [*range(len(kept), len(tape.outputs))], [*selection.wrt]

    def coloured(self, structure: Any, mode: str) -> Any:
        from tapegrad.sparsity.recovery import choose

        return choose(structure, is_symmetric=True)


# ---- tapes


def _entries(
    tape: Tape,
    wrt: Sequence[int],
    rows: Sequence[int],
    kept: Sequence[int],
    colouring: Any,
    checkpoint: Any,
    values: Mapping[int, Any],
) -> Tape:
    """The tape of the outputs `kept`, and the entries of the Jacobian of the outputs `rows`, in the
    order of the pattern. `values` has the integers among its inputs."""
    from tapegrad.pipeline import inlined
    from tapegrad.sparsity.entries import entries

    seeds: dict[int, Any] = {}  # the arrays that these are made of, by their ids
    parts: list[Tape] = []
    if colouring.of_columns:
        parts.append(_products(tape, wrt, rows, kept, colouring, seeds))
    if colouring.of_rows:
        parts.append(_transposed_products(tape, wrt, rows, kept, colouring, checkpoint, seeds))
    if not parts:  # a matrix without entries
        builder = Builder.after(tape, tape.name)
        builder.guards += tape.guards
        (empty,) = [full(0.0)(Writer(builder), _empty(tape, rows)).operand]
        return builder.finish([*[tape.outputs[k] for k in kept], empty], tape.captured)
    joined = inlined(_joined(parts, len(kept)))
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
    found = entries(writer, joined, whole, colouring.index, known, linear)
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
    """Products of the Jacobian, flattened: a row for each colour of its columns."""
    from tapegrad.pipeline import pushforward

    count, inputs = len(tape.outputs), len(tape.inputs)
    pushed = pushforward(tape, wrt)
    outputs = [*[pushed.outputs[k] for k in kept], *[pushed.outputs[count + k] for k in rows]]
    pushed = replace(pushed, outputs=tuple(outputs), output_names=())
    given = {inputs + n: tape.inputs[k].shape for n, k in enumerate(wrt)}
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
    """Products of its transpose: a row for each colour of its rows."""
    from tapegrad.pipeline import derive

    count, inputs = len(tape.outputs), len(tape.inputs)
    pulled = derive(tape, wrt, True, kept, checkpoint)
    pulled = seeded(pulled, {inputs + k: full(0.0) for k in range(count) if k not in rows})
    given = {inputs + n: tape.outputs[k].shape for n, k in enumerate(rows)}
    return _by_colours(pulled, given, colouring.rows, colouring.of_rows, len(kept), seeds)


def _by_colours(
    tape: Tape,
    given: Mapping[int, tuple[int, ...]],
    colours: Any,
    count: int,
    kept: int,
    seeds: dict[int, Any],
) -> Tape:
    """The tape in the direction of each colour: the outputs behind those kept are flattened, colour
    by colour, and one after the other. `given` has the shapes of the seeds, by their inputs'
    numbers, and `seeds` gets the arrays that they are made of."""
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
    """Rows of ones where the elements have the row's colour, and zeros elsewhere."""

    def make(writer: Writer, aval: Any) -> Any:
        if count == 1 and colours.min(initial=0) == 0:
            return full(1.0)(writer, aval)
        own = writer.capture(colours)
        wide = AsType(np.dtype(np.int64))(own) if own.dtype != np.int64 else own
        return AsType(aval.dtype)(equal(row_numbers(count, own, len(aval.shape)), wide))

    return make


def _joined(tapes: Sequence[Tape], kept: int) -> Tape:
    """Tapes of the same inputs as one: the outputs `kept` of the first, and the others of all."""
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


def _without_unread(tape: Tape) -> Tape:
    """The tape without the arrays that it captured and that nothing reads any more."""
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


def _is_read(tape: Tape, k: int) -> bool:
    """Whether anything but a guard reads an input."""
    var = tape.inputs[k]
    return any(var in call.operands for call in tape.calls)


def _with_guards(tape: Tape, values: dict[int, Any]) -> Tape:
    """The tape with guards that inputs hold these integers: the structure depends on them."""
    builder = Builder.after(tape, tape.name)
    builder.guards += tape.guards
    writer = Writer(builder)
    for k, value in values.items():
        var = tape.inputs[k]
        held = np.array(value, var.dtype)
        number: Any = held[()]
        known = writer.capture(held) if held.ndim else writer.node(Literal(number))
        same = equal(writer.node(var), known)
        found = All(tuple(range(held.ndim)))(same) if held.ndim else same
        builder.guards.append(Guard(found.operand, Literal(np.bool_(True)), "integers"))
    return with_reached(builder.finish(tape.outputs, tape.captured, tape.output_names), writer)
