"""A tape as it would probably be for other lengths.

A program gets kernels for any length by comparison with a program of the same kind (`pipeline`). If
there is none yet, but axes are known to vary, this tape replaces it. It only tells which numbers
probably depend on the lengths: the kernels that contain their own numbers are right in any case.

    X[2, 5], sum over 2 rows, / 2.0     -->     X[4, 5], sum over 4 rows, / 4.0
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.core.values import Slice
from tapegrad.ir.tape import Aval, Builder, Call, Guard, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Parametric, Primitive
from tapegrad.primitives.kinds import Reduction, Repeated

OFFSETS = (0, 1, -1, 2, -2)  # distances of dependent numbers from a length: `range(n - 1)`, `x[n]`


def resized(tape: Tape, axes: Sequence[tuple[int, int]], far: bool = False) -> Tape | None:
    """The tape with inputs that are longer along these axes. With `far` they are so much longer
    that loops get other chunks. None if the tape for other lengths can't be derived."""

    def more(n: int) -> int:  # odd lengths stay odd, even ones even
        return n + 2 + n // 8 * 2 * far

    known = {tape.inputs[k].shape[axis] for k, axis in axes}
    if not known or min(known) < 2:  # an axis of one element may be broadcast
        return None
    shapes = [
        tuple([more(n) if (k, axis) in axes else n for axis, n in enumerate(v.shape)])
        for k, v in enumerate(tape.inputs)
    ]
    avals = [
        v.aval if v.shape == shape else v.aval.with_shape(shape)
        for v, shape in zip(tape.inputs, shapes, strict=True)
    ]
    try:
        return _Resized({n: more(n) for n in known}).tape(tape, avals)
    except ValueError:  # by an operation whose operands don't fit together
        return None


class _Resized:
    """Rebuilds the calls of a tape with other lengths. `sizes` maps old numbers to new ones."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes

    def tape(self, tape: Tape, avals: Sequence[Aval]) -> Tape:
        """The tape with inputs of these types."""
        builder = Builder(tape.name)
        names = tape.names or ("",) * len(avals)
        env: dict[Operand, Operand] = {}
        for v, aval, name in zip(tape.inputs, avals, names, strict=True):
            env[v] = builder.input(aval, name)
        for call in tape.calls:
            operands = [env.get(x, x) for x in self._literals(call)]
            primitive = self._primitive(call, operands)
            outs = builder.call(primitive, operands, call.src, call.reason)
            if list(map(_kind, outs)) != list(map(_kind, call.outs)):
                raise ValueError(f"{primitive} makes something else of other lengths")
            env.update(zip(call.outs, outs, strict=True))
            self._note(zip(call.outs, outs, strict=True))
            if isinstance(primitive, Reduction):  # a mean divides by that
                axes, (x, *_), (y, *_) = primitive.axes, call.operands, operands
                counts = [math.prod([z.shape[axis] for axis in axes]) for z in (x, y)]
                self.sizes.setdefault(counts[0], counts[1])
        for g in tape.guards:
            builder.guards.append(Guard(env.get(g.operand, g.operand), g.expected, g.what, g.src))
        first = len(avals) - len(tape.captured)
        captured = [np.zeros(x.shape, x.dtype) for x in avals[first:]]
        outputs = [env.get(x, x) for x in tape.outputs]
        made = builder.finish(outputs, captured, tape.output_names)
        return replace(made, ordered=tape.ordered, matrices=tape.matrices)

    def _note(self, pairs: Iterable[tuple[Var, Var]]) -> None:
        """Note the lengths of results, such as `n - 1`."""
        for x, y in pairs:
            for before, after in zip(x.shape, y.shape, strict=True):
                if before != after:
                    self.sizes.setdefault(before, after)

    def _literals(self, call: Call) -> list[Operand]:
        """The operands of a call for the new lengths. A literal may be a number of rounds, or of
        elements to divide by."""
        operands = list(call.operands)
        if isinstance(call.primitive, Repeated):
            operands[0] = self._as(operands[0], self._near)
        elif call.primitive.pointwise and call.primitive.algebra.linear == (0,) and operands[1:]:
            operands[1] = self._as(operands[1], lambda n: self.sizes.get(n, n))
        return operands

    def _as(self, x: Operand, made: Any) -> Operand:
        if not isinstance(x, Literal) or x.dtype.kind not in "if":
            return x
        value = made(x.value)
        return x if value == x.value else replace(x, value=type(x.value)(value))

    def _primitive(self, call: Call, operands: Sequence[Operand]) -> Primitive:
        primitive = call.primitive
        if isinstance(primitive, Repeated):
            step, *_ = primitive.body.inputs
            inside = [step.aval, *[x.aval for x in primitive.given(operands)]]
            body, most = self.tape(primitive.body, inside), self._near(primitive.most)
            return primitive.changed(body=body, most=most)
        if primitive.tapes:
            raise ValueError(f"{primitive} runs other tapes")
        changed: dict[str, Any] = {}
        if isinstance(primitive, Parametric):
            shapes = (
                call.operands[0].shape if operands else (),
                operands[0].shape if operands else (),
            )
            words = dict(primitive.parameters())
            if "shape" in words:
                changed["shape"] = self._shape(words["shape"], operands)
                shapes = words["shape"], changed["shape"]
            if "index" in words and len(words["index"]) == len(shapes[0]):
                entries = zip(words["index"], *shapes, strict=True)
                changed["index"] = tuple([_entry(*entry) for entry in entries])
        return type(primitive)(**{**vars(primitive), **changed}) if changed else primitive

    def _shape(self, shape: Sequence[int], operands: Sequence[Operand]) -> tuple[int, ...]:
        if not operands:  # a loop may have one entry more than rounds
            return tuple(map(self._near, shape))
        return tuple([self.sizes.get(n, n) for n in shape])

    def _near(self, n: int) -> int:
        """A number near a length, at the same distance from the new length."""
        return next((self.sizes[n + k] - k for k in OFFSETS if n + k in self.sizes), n)


def _entry(entry: Any, before: int, after: int) -> Any:
    """The entry of an index along an axis that has grown from `before` to `after`. A slice of all
    but a few elements grows as well."""
    if type(entry) is not Slice or abs(entry.step) > 1 or entry.count < before - max(OFFSETS):
        return entry
    start = entry.start + (after - before) * (entry.step < 0)
    return Slice(start, entry.count + after - before, entry.step)


def _kind(x: Var) -> tuple[int, np.dtype]:
    return len(x.shape), x.dtype
