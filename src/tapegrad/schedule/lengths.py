"""How long the loops of a tape are: the numbers that another call may have others for.

`for t in range(n): h = rate * h + x[t]` has `n` rounds, and goes along an array of `n` elements;
rounds of two steps each go along one of `2 n`. What is compiled for one `n` serves others, if such
numbers aren't part of it (`backends/cpu/templates.py`).

Loops inside rounds don't count. What these keep for the derivative has an axis for the rounds and
one for theirs, and how far apart its rows are is part of the code.
"""

from __future__ import annotations

from collections.abc import Collection

from tapegrad.ir.tape import Call, Tape, Var
from tapegrad.primitives.kinds import Moving, Repeated

NEAR = 2  # how far from a length a number may be, as in templates: `range(n - 1)`, `x[n]`


def is_length(n: int, lengths: Collection[int]) -> bool:
    """Whether a number may be another one where loops have other lengths."""
    return any(n + k in lengths for k in range(-NEAR, NEAR + 1))


def varied(tape: Tape, like: Tape) -> tuple[tuple[int, int], ...]:
    """The axes along which inputs of a tape are longer or shorter than those of a tape like it,
    with the inputs' numbers."""
    pairs = enumerate(zip(tape.inputs, like.inputs, strict=True))
    return tuple(
        (k, axis)
        for k, (x, y) in pairs
        for axis, (n, m) in enumerate(zip(x.shape, y.shape, strict=True))
        if n != m
    )


def open_lengths(tape: Tape) -> frozenset[int]:
    """How long inputs of a tape are along the axes that shall be of any length."""
    return frozenset([tape.inputs[k].shape[axis] for k, axis in tape.axes])


def lengths(tape: Tape) -> frozenset[int]:
    """The rounds of the loops on a tape, and how long the arrays are along the axes on which these
    move."""
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
    """How long arrays are along the axes on which windows move with one of these steps."""
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
