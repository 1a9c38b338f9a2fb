"""Whole matrices of derivatives: Jacobians by either mode, Hessians by forward over reverse.

One pass of a mode gives the derivative along one tangent, or for one cotangent. The passes for all
unit vectors are rows of one tape (`differentiate.batching`). So whatever doesn't depend on the
vector is computed once, and the tape is as long as that of one pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tapegrad.core.trees import unflatten
from tapegrad.differentiate.batching import batch, with_rows
from tapegrad.differentiate.directions import in_all_directions
from tapegrad.differentiate.panels import in_panels
from tapegrad.differentiate.seeds import blocks, each, full, seeded
from tapegrad.differentiate.slices import in_slices
from tapegrad.errors import GradientError
from tapegrad.ir.tape import Builder, Operand, Tape
from tapegrad.primitives.base import Node, Slice, Writer
from tapegrad.primitives.complexes import cartesian
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.views import GetItem, Reshape
from tapegrad.runtime.checks import check_real_results, check_scalar_result, value_part
from tapegrad.runtime.coloured_products import dense, without_unread
from tapegrad.runtime.row_blocks import narrow
from tapegrad.runtime.transformations import (
    Derivation,
    Gradient,
    Selection,
    with_captured,
    with_constants,
    with_loss,
)
from tapegrad.tracing.runs.traced import Traced

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Jacobian(Gradient):
    """The derivative of each element of the result with respect to each element of an argument. For
    a leaf y of the result and a leaf x of an argument it is an array of shape (*y.shape, *x.shape).
    """

    mode: str = "auto"
    holomorphic: bool = False

    name = "jacobian"
    pulls = False

    def derive(self, traced: Traced, selection: Selection, final: bool) -> Derivation:
        from tapegrad.pipeline import finished, playable

        traced = with_constants(traced)
        rows = self.differentiated(traced)
        kept = self.kept(traced)
        tape = self._derived(traced, selection, rows, kept)
        tape = in_types_of(tape, len(kept), [traced.tape.inputs[k] for k in selection.wrt])
        tape = without_unread(playable(tape) if final else finished(tape))
        tape, traced = with_captured(replace(tape, matrices=True), traced)
        return Derivation(self, tape, traced.without_values(), selection, kept)

    def differentiated(self, traced: Traced) -> list[int]:
        """The outputs to differentiate: the real and complex ones of the function's value."""
        _, outputs = value_part(traced, self.has_aux, self.name)
        found = [at for at in outputs if at is not None]
        real = [at for at in found if traced.tape.outputs[at].dtype.kind in "fc"]
        check_real_results(traced, real, self.name)
        return real

    def _derived(
        self, traced: Traced, selection: Selection, rows: Sequence[int], kept: Sequence[int]
    ) -> Tape:
        tape = traced.tape
        ins = [tape.inputs[k] for k in selection.wrt]
        outs = [tape.outputs[k] for k in rows]
        mode = self._mode(traced.name, ins, outs)
        every = [*[tape.outputs[k] for k in kept], *[tape.outputs[k] for k in rows]]
        whole = replace(tape, outputs=tuple(every), output_names=())
        few = dense(whole, selection.wrt, range(len(kept)), mode, self.checkpoint)
        if few is not None:
            return few
        if mode == "auto":
            wide = sum(math.prod(x.shape) for x in ins) > sum(math.prod(y.shape) for y in outs)
            mode = "reverse" if wide else "forward"
            if mode == "forward":
                try:
                    return _by_columns(tape, selection.wrt, rows, kept)
                except GradientError:  # a user's function may have a reverse rule only
                    mode = "reverse"
        if mode == "forward":
            return _by_columns(tape, selection.wrt, rows, kept)
        return _by_rows(tape, selection.wrt, rows, kept, self.checkpoint)

    def _mode(self, name: str, ins: Sequence[Any], outs: Sequence[Any]) -> str:
        """The mode. Raises an error if complex numbers need another one, or `holomorphic`."""
        of_complex = any(x.dtype.kind == "c" for x in ins)
        to_complex = any(y.dtype.kind == "c" for y in outs)
        if not (of_complex or to_complex):
            return self.mode
        if of_complex and to_complex and not self.holomorphic:
            raise GradientError(
                f"{self.name}: {name} takes complex numbers to complex ones, which has a Jacobian "
                "only if it is holomorphic. Say holomorphic=True if it is, or take the real and "
                "imaginary parts"
            )
        if all(x.dtype.kind == "c" for x in [*ins, *outs]):
            return self.mode  # a complex derivative is the same in both
        wanted = "forward" if to_complex else "reverse"
        if self.mode not in ("auto", wanted):
            kind = "values" if to_complex else "arguments"
            raise GradientError(
                f"{self.name}: {name} has complex {kind} and real "
                f"{'arguments' if to_complex else 'values'}, so its Jacobian is computed by "
                f"mode={wanted!r}, not {self.mode!r}"
            )
        return wanted

    def _wanted(self, outputs: Sequence[int | None]) -> Sequence[int | None]:
        return outputs if self.has_aux else []

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        matrices = self.matrices(derivation, values)
        return (matrices, derivation.result(values)[1]) if self.has_aux else matrices

    def matrices(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        """The matrices in the structure of the value, and for each leaf in that of the arguments.
        None for leaves that aren't differentiated."""
        traced = derivation.traced
        structure, outputs = value_part(traced, self.has_aux, self.name)
        found = iter(values[len(derivation.kept) :])
        leaves: list[Any] = []
        for at in outputs:
            real = at is not None and traced.tape.outputs[at].dtype.kind in "fc"
            leaves.append(self.of_arguments(derivation.selection, found) if real else None)
        return unflatten(structure, leaves)

    def of_arguments(self, selection: Selection, found: Any) -> Any:
        """The next values, in the structure of the arguments."""
        each = zip(selection.structures, selection.real, strict=True)
        parts = [unflatten(s, [next(found) if yes else None for yes in real]) for s, real in each]
        return tuple(parts) if isinstance(self.argnums, tuple) else parts[0]


@dataclass(frozen=True)
class ValueAndJacobian(Jacobian):
    """The value and the Jacobian."""

    name = "value_and_jacobian"

    def _wanted(self, outputs: Sequence[int | None]) -> Sequence[int | None]:
        return outputs

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        result = derivation.result(values)
        return tuple(result) if self.has_aux else result, self.matrices(derivation, values)


@dataclass(frozen=True)
class ElementwiseGradient(Gradient):
    """The derivative of the sum of all elements of the result. For an elementwise function it is
    the derivative of each element."""

    name = "elementwise_grad"

    def derive(self, traced: Traced, selection: Selection, final: bool) -> Derivation:
        from tapegrad.pipeline import derive, finished, playable

        traced = with_constants(traced)
        _, outputs = value_part(traced, self.has_aux, self.name)
        kept = self.kept(traced)
        real = [at for at in outputs if at is not None]
        real = [at for at in real if traced.tape.outputs[at].dtype.kind in "fc"]
        check_real_results(traced, real, self.name)
        if any(traced.tape.outputs[at].dtype.kind == "c" for at in real):
            raise GradientError(
                f"elementwise_grad: {traced.name} returned complex numbers. Take their real and "
                "imaginary parts, or use jacobian, with holomorphic=True where it is"
            )
        tape = derive(traced.tape, selection.wrt, True, kept, self.checkpoint)
        first, count = len(traced.tape.inputs), len(traced.tape.outputs)
        ones = {first + k: full(1.0 if k in real else 0.0) for k in range(count)}
        tape = seeded(tape, ones)
        tape, traced = with_captured(playable(tape) if final else finished(tape), traced)
        return Derivation(self, tape, traced.without_values(), selection, kept)


def without_hessian(label: str, name: str) -> GradientError:
    """The error for a real function of complex numbers."""
    return GradientError(
        f"{label}: {name} takes complex numbers to a real one, and the second derivatives with "
        "respect to real and imaginary parts aren't one complex matrix. Pass these parts as "
        f"arguments, {label}(lambda x, y: f(x + 1j * y), (0, 1)), or use hvp, which has the change "
        "of the gradient along a direction"
    )


@dataclass(frozen=True)
class Hessian(Gradient):
    """The second derivatives of a scalar function, forward over reverse. For leaves x and y of the
    arguments it is an array of shape (*x.shape, *y.shape).

    For a complex value f = u + iv of real arguments they are those of u plus i times those of v.
    For complex arguments it is the complex second derivative. A real value of complex z = x + iy
    has four real matrices, of x and y, which don't make up one complex matrix.
    """

    holomorphic: bool = False

    value: ClassVar[bool] = False  # whether the value and the gradient are results as well

    name = "hessian"
    pulls = False
    second = True

    def derive(self, traced: Traced, selection: Selection, final: bool) -> Derivation:
        from tapegrad.pipeline import derive, finished, playable

        check_scalar_result(traced, self.has_aux, self.name, may_be_complex=True)
        kept = self.kept(traced)
        loss, before = with_loss(traced)
        wrt = selection.wrt
        keep = [k + before for k in kept]
        if self._is_complex(traced.name, loss, wrt):
            gradient = _complex_gradient(loss, wrt, keep, self.checkpoint)
        else:
            gradient = derive(loss, wrt, keep=keep, checkpoint=self.checkpoint)
        head = len(gradient.outputs) if self.value else len(kept)
        outputs = [*gradient.outputs[:head], *gradient.outputs[len(kept) :]]
        gradient = replace(gradient, outputs=tuple(outputs), output_names=())
        few = dense(gradient, wrt, range(head), "forward", self.checkpoint)
        rows = range(head, len(outputs))
        tape = few or _by_columns(gradient, wrt, rows, range(head))
        tape = in_types_of(tape, head, [loss.inputs[k] for k in wrt])
        tape = without_unread(playable(tape) if final else finished(tape))
        tape, traced = with_captured(replace(tape, matrices=True), traced)
        return Derivation(self, tape, traced.without_values(), selection, kept)

    def _is_complex(self, name: str, loss: Tape, wrt: Sequence[int]) -> bool:
        """Whether the value is complex. Raises an error if the second derivatives aren't one
        matrix."""
        of_complex = any(loss.inputs[k].dtype.kind == "c" for k in wrt)
        to_complex = loss.outputs[0].dtype.kind == "c"
        if of_complex and not to_complex:
            raise without_hessian(self.name, name)
        if of_complex and not self.holomorphic:
            raise GradientError(
                f"hessian: {name} takes complex numbers to a complex one, which has a Hessian only "
                "if it is holomorphic. Say holomorphic=True if it is, or take the real and "
                "imaginary parts"
            )
        return to_complex

    def _wanted(self, outputs: Sequence[int | None]) -> Sequence[int | None]:
        return outputs if self.value else super()._wanted(outputs)

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        selection, kept = derivation.selection, len(derivation.kept)
        count = len(selection.wrt) if self.value else 0
        found = iter(values[kept + count :])
        rows = [
            unflatten(s, [self._row(selection, found) if yes else None for yes in real])
            for s, real in zip(selection.structures, selection.real, strict=True)
        ]
        matrix = tuple(rows) if isinstance(self.argnums, tuple) else rows[0]
        if self.value:
            result = derivation.result(values)
            value = tuple(result) if self.has_aux else result
            return value, self._gradient(derivation, values), matrix
        return (matrix, derivation.result(values)[1]) if self.has_aux else matrix

    def _row(self, selection: Selection, found: Any) -> Any:
        each = zip(selection.structures, selection.real, strict=True)
        parts = [unflatten(s, [next(found) if yes else None for yes in real]) for s, real in each]
        return tuple(parts) if isinstance(self.argnums, tuple) else parts[0]


@dataclass(frozen=True)
class ValueGradientAndHessian(Hessian):
    """The value, the gradient and the Hessian, computed together."""

    value = True

    name = "value_grad_and_hessian"


# ---- tapes


def _by_columns(tape: Tape, wrt: Sequence[int], rows: Sequence[int], kept: Sequence[int]) -> Tape:
    """The tape of the outputs `kept` and of the derivatives of each output in `rows` with respect
    to each input in `wrt`, by forward mode: a pass for each element of the inputs."""
    from tapegrad.pipeline import pushforward

    count, first = len(tape.outputs), len(tape.free_inputs)
    shapes = [tape.inputs[k].shape for k in wrt]
    pushed = pushforward(tape, wrt)
    outputs = [*[pushed.outputs[k] for k in kept], *[pushed.outputs[count + k] for k in rows]]
    pushed = replace(pushed, outputs=tuple(outputs), output_names=())
    found = _in_all_directions(pushed, range(first, first + len(wrt)), shapes, len(kept), last=True)
    return _columns_apart(found, len(kept), shapes)


def _by_rows(
    tape: Tape,
    wrt: Sequence[int],
    rows: Sequence[int],
    kept: Sequence[int],
    checkpoint: Any,
) -> Tape:
    """The same by reverse mode: a pass for each element of the outputs in `rows`."""
    from tapegrad.pipeline import derive

    first, count = len(tape.free_inputs), len(tape.outputs)
    pulled = derive(tape, wrt, True, kept, checkpoint)
    others = [k for k in range(count) if k not in rows]
    # Remove the seeds of other outputs first.
    pulled = seeded(pulled, {first + k: full(0.0) for k in others})
    shapes = [tape.outputs[k].shape for k in sorted(rows)]
    seeds = range(first, first + len(rows))
    found = _in_all_directions(pulled, seeds, shapes, len(kept), last=False)
    place = {k: n for n, k in enumerate(sorted(rows))}
    where = blocks(shapes)

    def parts(writer: Writer, matrices: Sequence[Operand]) -> list[Operand]:
        cut = []
        for k in rows:
            start, size = where[place[k]]
            for matrix in matrices:
                node = writer.node(matrix)
                rest = node.shape[1:]
                index = (Slice(start, size), *[Slice(0, n) for n in rest])
                part = GetItem(index)(node) if size != node.shape[0] else node
                cut.append(_shaped(part, (*tape.outputs[k].shape, *rest)).operand)
        return cut

    return _ending(found, len(kept), parts)


def _complex_gradient(loss: Tape, wrt: Sequence[int], keep: Sequence[int], checkpoint: Any) -> Tape:
    """The tape of the outputs `keep` and of the derivatives of the first output, f = u + iv, which
    is complex: f' with respect to complex inputs, and u' + iv' with respect to real ones. The
    pullback of 1 gives f' and u', that of -i gives v'."""
    from tapegrad.pipeline import derive

    first, count = len(loss.free_inputs), len(loss.outputs)
    tape = derive(loss, wrt, True, keep, checkpoint)
    tape = seeded(tape, {first + k: full(0.0) for k in range(1, count)})
    whole = [loss.inputs[k].dtype.kind == "c" for k in wrt]
    if all(whole):
        return seeded(tape, {first: full(1.0)})
    rows, have = batch(tape, [first], 2)
    kept = len(keep)
    rows = with_rows(rows, [*[True] * kept, *have[kept:]], 2)
    rows = seeded(rows, {first: each((1.0, -1j))})

    def parts(writer: Writer, found: Sequence[Operand]) -> list[Operand]:
        ends = []
        for x, is_whole in zip(found, whole, strict=True):
            node = writer.node(x)
            u, v = [GetItem((k, *[Slice(0, n) for n in node.shape[1:]]))(node) for k in (0, 1)]
            ends.append((u if is_whole else cartesian(u, v)).operand)
        return ends

    return _ending(rows, kept, parts)


def _in_all_directions(
    tape: Tape, seeds: Sequence[int], shapes: Sequence[Shape], kept: int, last: bool
) -> Tape:
    """The tape without the inputs `seeds`, in the direction of each of their elements. `shapes` are
    their shapes. Outputs after the first `kept` have a row for each direction, as their first axis
    or, if `last`, as their last."""
    from tapegrad.pipeline import finished

    size = sum(math.prod(shape) for shape in shapes)
    if size == 1:  # a single pass, so that further derivatives see kinks beside their pullbacks
        once = seeded(tape, {k: full(1.0) for k in seeds})

        def parts(writer: Writer, found: Sequence[Operand]) -> list[Operand]:
            nodes = [writer.node(x) for x in found]
            return [Reshape((*x.shape, 1) if last else (1, *x.shape))(x).operand for x in nodes]

        return _ending(once, kept, parts)
    firsts = dict(zip(seeds, [start for start, _ in blocks(shapes)], strict=True))
    found = in_all_directions(tape, firsts, size, kept, last)
    return narrow(
        found,
        lambda count: in_panels(tape, firsts, size, kept, last, count),
        lambda count: in_slices(finished(found), size, kept, last, count),
        size,
    )


def _columns_apart(tape: Tape, kept: int, shapes: Sequence[Shape]) -> Tape:
    """The tape with the last axis of its outputs after the first `kept`, which counts the elements
    of arrays of these shapes, divided into these arrays' axes."""

    def parts(writer: Writer, matrices: Sequence[Operand]) -> list[Operand]:
        cut = []
        for matrix in matrices:
            node = writer.node(matrix)
            rest = node.shape[:-1]
            for (start, size), shape in zip(blocks(shapes), shapes, strict=True):
                index = (*[Slice(0, n) for n in rest], Slice(start, size))
                part = node if size == node.shape[-1] else GetItem(index)(node)
                cut.append(_shaped(part, (*rest, *shape)).operand)
        return cut

    return _ending(tape, kept, parts)


def in_types_of(tape: Tape, kept: int, ins: Sequence[Any]) -> Tape:
    """The tape with each derivative in the dtype of its input, as gradients are. The outputs after
    the first `kept` cycle through the inputs `ins`. Forward mode gives them the dtype of the value.
    """
    pairs = list(zip(tape.outputs[kept:], itertools.cycle(ins), strict=False))
    if all(y.dtype == x.dtype for y, x in pairs):
        return tape

    def parts(writer: Writer, matrices: Sequence[Operand]) -> list[Operand]:
        return [_in_type_of(x, writer.node(y)).operand for y, x in pairs]

    return _ending(tape, kept, parts)


def _in_type_of(x: Any, y: Node) -> Any:
    """A derivative with respect to x in the dtype of x, or in the complex dtype of that
    precision."""
    of_real = y.dtype.kind == "c" != x.dtype.kind
    dtype = np.result_type(x.dtype, np.complex64) if of_real else x.dtype
    return y if y.dtype == dtype else AsType(dtype)(y)


def _shaped(x: Node, shape: Shape) -> Node:
    return x if x.shape == shape else Reshape(shape)(x)


def _ending(tape: Tape, kept: int, parts: Any) -> Tape:
    """The tape with its outputs after the first `kept` replaced by `parts` of them."""
    builder = Builder.after(tape, tape.name)
    builder.guards += tape.guards
    ends = parts(Writer(builder), tape.outputs[kept:])
    return builder.finish([*tape.outputs[:kept], *ends], tape.captured)
