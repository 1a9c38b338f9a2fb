"""Sparse matrices of derivatives, by colours (`coloured`).

The structure depends on the values of integers, such as indices. They are compared at each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad.core.request import Request
from tapegrad.core.trees import is_traced
from tapegrad.differentiate.reverse import with_reached
from tapegrad.errors import ConversionError, GradientError, UnsupportedError
from tapegrad.ir.tape import Aval, Builder, Guard, Literal, Tape
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.base import Writer
from tapegrad.primitives.elementwise import equal
from tapegrad.primitives.reductions import All
from tapegrad.runtime.checks import check_scalar_result
from tapegrad.runtime.coloured_products import entries_of, without_unread
from tapegrad.runtime.jacobians import Jacobian, in_types_of, without_hessian
from tapegrad.runtime.transformations import (
    Derivation,
    Selection,
    with_captured,
    with_constants,
    with_loss,
)
from tapegrad.tracing.recording.decisions import is_given
from tapegrad.tracing.runs.traced import Traced, plain_value
from tapegrad.tracing.tracers.tracer import Tracer


@dataclass(frozen=True)
class Valued(Selection):
    """A selection with the values of integer inputs, by number, and the numbers of the inputs that
    have values (`given`)."""

    values: Any = None
    given: Sequence[int] = ()


@dataclass(eq=False)
class Coloured(Derivation):
    """The derivation of a sparse matrix' entries."""

    colouring: Any = field(kw_only=True)


@dataclass(frozen=True)
class SparseJacobian(Jacobian):
    """The Jacobian as a sparse matrix. It has a row for each element of the value and a column for
    each element of the arguments, flattened and concatenated."""

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
        from tapegrad.optimize.inline import inline_calls
        from tapegrad.pipeline import finished, playable
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
        of = inline_calls(whole)
        structure = pattern(of, wrt, rows, values)
        head = len(kept)
        for colouring, share in self.colourings(structure, mode):
            try:
                found = entries_of(
                    whole, wrt, rows, range(head), colouring, self.checkpoint, values, share=share
                )
            except GradientError:  # a user's function may have a rule for one mode only
                if not share:
                    raise
                continue
            if found is not None:
                break
        assert found is not None  # the last share is 0
        tape = found
        if ins:
            widest = Aval((), np.result_type(*[x.dtype for x in ins]))
            tape = in_types_of(tape, head, [widest])
        read = {k: x for k, x in values.items() if _is_read(of, k)}
        for k in read:
            if k < free and k not in selection.given:
                raise ConversionError(
                    f"{self.name} of {traced.name}: where its matrix has entries is decided by the "
                    f"integers in {of.names[k]!r}, for which a shape was passed. Pass the array"
                )
        tape = _with_guards(tape, read)
        tape = without_unread(playable(tape) if final else finished(tape))
        tape, traced = with_captured(tape, traced)
        done = Selection(selection.wrt, selection.structures, selection.real)
        return Coloured(self, tape, traced.without_values(), done, kept, colouring=colouring)

    def differentiated_tape(
        self, traced: Traced, selection: Selection, kept: Sequence[int]
    ) -> tuple[Tape, list[int], list[int]]:
        """The tape whose Jacobian this is, with kept outputs first; the outputs that are rows; and
        the inputs that are columns."""
        found = self.differentiated(traced)
        tape = traced.tape
        outputs = [*[tape.outputs[k] for k in kept], *[tape.outputs[k] for k in found]]
        tape = replace(tape, outputs=tuple(outputs), output_names=())
        return tape, [*range(len(kept), len(outputs))], [*selection.wrt]

    def colourings(self, structure: Any, mode: str) -> Iterator[tuple[Any, float]]:
        """Colourings of this structure; see `sparsity.recovery.colourings`."""
        from tapegrad.sparsity.recovery import colourings

        forward, reverse = mode != "reverse", mode != "forward"
        return colourings(structure, forward=forward, reverse=reverse, price=1.5)

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
        from tapegrad.backends.source.arguments import ComputedPart

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
        matrix = ComputedPart(made, lines, arrays, "from scipy.sparse import csr_array")
        return (matrix, derivation.result(marks)[1]) if self.has_aux else matrix


@dataclass(frozen=True)
class SparseHessian(SparseJacobian):
    """The Hessian of a scalar function as a sparse matrix, by products with it, forward over
    reverse, for the colours of a symmetric matrix."""

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

    def colourings(self, structure: Any, mode: str) -> Iterator[tuple[Any, float]]:
        from tapegrad.sparsity.recovery import colourings

        return colourings(structure, is_symmetric=True)


# ---- tapes


def _is_read(tape: Tape, k: int) -> bool:
    """Whether a call reads input `k`."""
    var = tape.inputs[k]
    return any(var in call.operands for call in tape.calls)


def _with_guards(tape: Tape, values: dict[int, Any]) -> Tape:
    """The tape with guards that inputs have these integer values, on which the structure
    depends."""
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
