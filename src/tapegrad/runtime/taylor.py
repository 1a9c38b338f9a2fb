"""Taylor coefficients along a line, and the Laplacian, which is made of second coefficients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.request import Request, is_differentiable, without_derivative
from tapegrad.core.trees import flatten, is_traced, unflatten
from tapegrad.differentiate.batching import batch, with_rows
from tapegrad.differentiate.seeds import bases, blocks, full, seeded
from tapegrad.errors import GradientError
from tapegrad.ir.tape import Aval, Builder, Literal, Operand, Tape
from tapegrad.primitives.base import Node, Slice, Writer
from tapegrad.primitives.control import without_effects
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.scatter import Stack
from tapegrad.primitives.views import GetItem, Reshape
from tapegrad.primitives.windows import PlaceWindow
from tapegrad.runtime.checks import check_scalar_result, value_part
from tapegrad.runtime.directional import Along, Pushforward, among_arguments, leaves_of
from tapegrad.runtime.transformations import (
    Derivation,
    Gradient,
    Selection,
    with_captured,
    with_loss,
)
from tapegrad.tracing.runs.traced import Traced


@dataclass(frozen=True)
class Coefficients(Pushforward):
    """The Taylor coefficients of t -> f(x + t d) up to an order. The direction d is passed after x;
    if it isn't `given`, it is 1 everywhere."""

    order: int = 1
    given: bool = True

    name = "jet"

    def select(self, request: Request) -> Along:
        if self.given:
            return super().select(request)
        leaves, _ = flatten(request.args)
        if not any(map(is_differentiable, leaves)):
            raise without_derivative(request.f, leaves[0] if leaves else (), "argument 0", "jet")
        inputs = [x for x in leaves if is_traced(x)]
        wrt = [k for k, x in enumerate(inputs) if is_differentiable(x)]
        return Along(wrt=wrt, positional=len(leaves_of(request.args)))

    def derive(self, traced: Traced, selection: Any, final: bool) -> Derivation:
        from tapegrad.pipeline import expansion, finished, playable

        count, inputs = len(traced.tape.outputs), len(traced.tape.inputs)
        tape = expansion(traced.tape, selection.wrt, self.order)
        _, outputs = value_part(traced, self.has_aux, self.name)
        own = [at for at in outputs if at is not None]
        kept = [k for k in range(count) if k not in own]
        tape = _stacked(tape, count, kept, own)
        if not self.given:
            tape = seeded(tape, {inputs + k: full(1.0) for k in range(len(selection.wrt))})
        if self.given:
            tape, traced = among_arguments(tape, traced, selection)
        tape, traced = with_captured(playable(tape) if final else finished(tape), traced)
        return Derivation(self, tape, traced.without_values(), selection, kept)

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        traced, found = derivation.traced, iter(values[len(derivation.kept) :])
        structure, outputs = value_part(traced, self.has_aux, self.name)
        leaves = [
            self._still(traced.leaves[k]) if at is None else next(found)
            for k, at in enumerate(outputs)
        ]
        series = unflatten(structure, leaves)
        return (series, derivation.result(values)[1]) if self.has_aux else series

    def _still(self, x: Any) -> Any:
        """The coefficients of a number that doesn't depend on the argument."""
        if not isinstance(x, (bool, int, float, complex, np.generic)):
            return x
        return np.array([x, *[0] * self.order], np.result_type(x))


def _stacked(tape: Tape, count: int, kept: Sequence[int], own: Sequence[int]) -> Tape:
    """The tape of the outputs `kept`, and of the outputs `own` with their coefficients along a new
    first axis. There are `count` outputs for each order."""
    builder = Builder.after(tape, tape.name)
    builder.guards += tape.guards
    ends = [tape.outputs[k] for k in kept]
    for k in own:
        ends += builder.call(Stack(0), tape.outputs[k::count])
    return builder.finish(ends, tape.captured)


@dataclass(frozen=True)
class Laplacian(Gradient):
    """The sum of the second derivatives of a scalar function with respect to each element of its
    arguments."""

    name = "laplacian"
    pulls = False
    second = True

    def derive(self, traced: Traced, selection: Selection, final: bool) -> Derivation:
        from tapegrad.pipeline import expansion, finished, playable

        check_scalar_result(traced, self.has_aux, self.name)
        kept = self.kept(traced)
        loss, before = with_loss(traced)
        wrt = selection.wrt
        if any(loss.inputs[k].dtype.kind == "c" for k in wrt):
            raise GradientError(
                f"laplacian: {traced.name} has complex arguments, and it is the sum of second "
                "derivatives by real numbers. Pass real and imaginary parts as arguments"
            )
        tape = expansion(replace(loss, outputs=loss.outputs[:1], output_names=()), wrt, 2)
        tape = replace(without_effects(tape), outputs=tape.outputs[2:], output_names=())
        shapes = [loss.inputs[k].shape for k in wrt]
        seeds = range(len(loss.inputs), len(loss.inputs) + len(wrt))
        summed = _at_once if sum(map(math.prod, shapes)) <= MOST_ROWS else _one_by_one
        tape = summed(tape, seeds, shapes)
        tape = _behind(replace(loss, outputs=tuple(loss.outputs[before + k] for k in kept)), tape)
        tape, traced = with_captured(playable(tape) if final else finished(tape), traced)
        return Derivation(self, tape, traced.without_values(), selection, kept)

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        found = values[len(derivation.kept)]
        return (found, derivation.result(values)[1]) if self.has_aux else found


MOST_ROWS = 64  # the most unit vectors that are computed at once, which takes n^2 numbers of memory


def _at_once(tape: Tape, seeds: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> Tape:
    """Twice the sum of the tape's output over all unit vectors as `seeds`."""
    size = sum(map(math.prod, shapes))
    rows, have = batch(tape, seeds, size)
    rows = with_rows(rows, have, size)
    rows = seeded(rows, dict(zip(seeds, bases(shapes), strict=True)))
    builder = Builder.after(rows, rows.name)
    builder.guards += rows.guards
    node = Writer(builder).node(rows.outputs[0])
    return builder.finish([(Sum((0,))(node) * 2).operand], rows.captured)


def _one_by_one(tape: Tape, seeds: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> Tape:
    """`_at_once` as a loop over the unit vectors, which needs the memory of one direction only."""
    size = sum(map(math.prod, shapes))
    inner = Builder(tape.name)
    writer = Writer(inner)
    step = writer.node(inner.input(Aval((), np.dtype(np.int64)), "step"))
    result = tape.outputs[0].aval
    before = writer.node(inner.input(result, "sum"))
    env: dict[Operand, Operand] = {}
    others = [k for k in range(len(tape.inputs)) if k not in seeds]
    for k in others:
        env[tape.inputs[k]] = inner.input(tape.inputs[k].aval)
    for k, (start, extent), shape in zip(seeds, blocks(shapes), shapes, strict=True):
        one = writer.node(Literal(tape.inputs[k].dtype.type(1)))
        unit: Node = PlaceWindow((size,), (0,), ((1,),))(one, step)
        part = unit if extent == size else GetItem((Slice(start, extent),))(unit)
        env[tape.inputs[k]] = (part if part.shape == shape else Reshape(shape)(part)).operand
    (end,) = _written(inner, tape, env)
    body = inner.finish([(before + writer.node(end)).operand])
    outer = Builder(tape.name)
    given = [outer.input(tape.inputs[k].aval, tape.names[k] if tape.names else "") for k in others]
    head: list[Operand] = [Literal(np.int64(size)), Literal(result.dtype.type(0))]
    (total,) = outer.call(Loop(body, 1, size), [*head, *given])
    node = Writer(outer).node(total)
    return outer.finish([(node * 2).operand], tape.captured)


def _written(builder: Builder, tape: Tape, env: dict[Operand, Operand]) -> list[Operand]:
    """Append the calls of a tape, and return its outputs. `env` maps its inputs to operands."""
    for call in tape.calls:
        outs = builder.again(call, [env.get(x, x) for x in call.operands])
        env.update(zip(call.outs, outs, strict=True))
    builder.guards += [replace(g, operand=env.get(g.operand, g.operand)) for g in tape.guards]
    return [env.get(x, x) for x in tape.outputs]


def _behind(tape: Tape, further: Tape) -> Tape:
    """The tape with the outputs of another tape appended. That has the same inputs, and may capture
    more."""
    builder = Builder.after(tape, tape.name)
    builder.guards += tape.guards
    own = len(tape.inputs)
    env: dict[Operand, Operand] = dict(zip(further.inputs[:own], tape.inputs, strict=True))
    for var, name in zip(further.inputs[own:], further.names[own:], strict=True):
        env[var] = builder.input(var.aval, name)
    ends = _written(builder, further, env)
    return builder.finish([*tape.outputs, *ends], further.captured)
