"""The lengths of a tape's loops: numbers that may be different in another call.

`for t in range(n): h = rate * h + x[t]` has `n` rounds and an array of `n` elements; rounds of two
steps each have an array of `2 n`. Code compiled for one `n` serves others, if such numbers aren't
part of it (`backends/cpu/templates.py`).

Loops inside rounds don't count. The values that they keep for the derivative have an axis for the
outer rounds and one for their own, and the stride between rows is part of the code.
"""

from __future__ import annotations

from collections.abc import Collection

from tapegrad.ir.tape import Call, Tape, Var
from tapegrad.primitives.kinds import Moving, Repeated

# Numbers this close to a length depend on it, as in templates: `range(n - 1)`, `x[n]`.
MAX_SHIFT = 2


def is_length(n: int, lengths: Collection[int]) -> bool:
    """Whether a number may be different where loops have other lengths."""
    return any(n + k in lengths for k in range(-MAX_SHIFT, MAX_SHIFT + 1))


def varied(tape: Tape, like: Tape) -> tuple[tuple[int, int], ...]:
    """The (input, axis) pairs along which the inputs of a tape and of a tape like it have different
    lengths."""
    pairs = enumerate(zip(tape.inputs, like.inputs, strict=True))
    return tuple(
        (k, axis)
        for k, (x, y) in pairs
        for axis, (n, m) in enumerate(zip(x.shape, y.shape, strict=True))
        if n != m
    )


def open_lengths(tape: Tape) -> frozenset[int]:
    """The lengths of inputs along the axes that are to be of any length."""
    return frozenset([tape.inputs[k].shape[axis] for k, axis in tape.axes])


def lengths(tape: Tape) -> frozenset[int]:
    """The numbers of rounds of a tape's loops, and the lengths of arrays along the axes on which
    their windows move."""
    found: set[int] = set()
    for call in tape.calls:
        primitive = call.primitive
        if isinstance(primitive, Repeated):
            found |= {primitive.most, *_extents(primitive.body, {primitive.body.inputs[0]})}
        else:
            for inner in primitive.tapes:
                found |= lengths(inner)
    return frozenset(found)


def _extents(body: Tape, steps: Collection[Var]) -> set[int]:
    """The lengths of arrays along the axes on which windows move with one of these steps."""
    found = set()
    for call in body.calls:
        primitive = call.primitive
        if isinstance(primitive, Moving):
            found |= _along(call, primitive, steps)
        elif isinstance(primitive, Repeated):
            _, *inputs = primitive.body.inputs
            pairs = zip(inputs, primitive.given(call.operands), strict=True)
            found |= _extents(primitive.body, {v for v, x in pairs if x in steps})
    return found


def _along(call: Call, moving: Moving, steps: Collection[Var]) -> set[int]:
    shapes = [x.shape for x in (*call.operands, *call.outs) if isinstance(x, Var)]
    moves = [
        move
        for move, step in zip(moving.moves, moving.steps(call.operands), strict=True)
        if step in steps
    ]
    return {
        shape[axis]
        for shape in shapes
        for move in moves
        if len(shape) == len(move)
        for axis, by in enumerate(move)
        if by
    }
