"""The degree in which outputs depend on inputs: constant, linear, quadratic, or general.

A polynomial's degree is one more than that of its derivative. So the forward rule of each call
determines the degree in its operands, and no list of linear functions is needed: the rule of a
product contains the other factor, that of a square contains 2 x, that of an exponential contains
the exponential again, and so on. Along the tape degrees multiply. A result that isn't known to be a
polynomial of degree 2 or less is general, so a result that is called linear is linear. If an input
decides a condition, an index or a number of rounds, the output is general too: it isn't one
polynomial.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Call, Operand, Tape, Var
from tapegrad.primitives.base import tape_of_rule
from tapegrad.primitives.kinds import Repeated
from tapegrad.sparsity.relations import is_active

NOT, LINEAR, QUADRATIC, GENERAL = range(4)
WORDS = ("not", "linear", "quadratic", "general")  # linear: also with a constant added

DEPTH = 4  # the number of times that a rule is differentiated


class Deciding(Exception):
    """A value that depends on the inputs decides the control flow."""


def degrees(tape: Tape, groups: Sequence[Sequence[int]]) -> Any:
    """The degree of each output (a row) in the elements of each group of inputs (a column), if all
    other inputs are constants. A degree is an index of `WORDS`.

    With the groups [[0], [1]] a product of two inputs is linear in each; with [[0, 1]] it is
    quadratic.
    """
    found = np.zeros((len(tape.outputs), len(groups)), np.int8)
    for column, group in enumerate(groups):
        given = [LINEAR if k in group else NOT for k in range(len(tape.inputs))]
        try:
            found[:, column] = _tape(tape, given, 0)
        except Deciding:
            found[:, column] = GENERAL
    return found


def _tape(tape: Tape, given: Sequence[int], depth: int) -> list[int]:
    """The degrees of a tape's outputs, given those of its inputs."""
    env: dict[Operand, int] = dict(zip(tape.inputs, given, strict=True))

    def of(x: Operand) -> int:
        return env[x] if isinstance(x, Var) else NOT

    for call in tape.calls:
        env.update(zip(call.outs, _call(call, [*map(of, call.operands)], depth), strict=True))
    if any(of(guard.operand) and not guard.error for guard in tape.guards):
        raise Deciding
    return [*map(of, tape.outputs)]


def _call(call: Call, of: Sequence[int], depth: int) -> Sequence[int]:
    """The degrees of a call's results, given those of its operands."""
    p: Any = call.primitive
    if not any(of):
        return [NOT] * len(call.outs)
    if isinstance(p, Repeated):
        return _loop(p, of, depth)
    if p.tapes and p.inlined:
        return _tape(p.tape, of, depth)
    active = tuple([k for k, degree in enumerate(of) if degree])
    types = tuple([x.aval for x in call.operands])
    plain = not all(is_active(types[k]) for k in active)
    if plain or p.flat or p.foreign or depth >= DEPTH:
        return [GENERAL] * len(call.outs)
    own = _own(p, types, active, depth)
    return [min(GENERAL, degree * max(of)) for degree in own]


@lru_cache(maxsize=2048)
def _own(p: Any, types: tuple[Aval, ...], active: tuple[int, ...], depth: int) -> tuple[int, ...]:
    """The degrees of a primitive's results in the operands `active` together."""
    tape = tape_of_rule(p, types, active)
    if tape is None or (p.pointwise and not _is_polynomial(p, len(types), active)):
        return (GENERAL,) * p.results
    given = [NOT] * len(active) + [LINEAR if k in active else NOT for k in range(len(types))]
    of_rule = _tape(tape, [*given, *[GENERAL] * p.results], depth + 1)
    return tuple([min(GENERAL, LINEAR + degree) for degree in of_rule])


@lru_cache(maxsize=1024)
def _is_polynomial(p: Any, count: int, active: tuple[int, ...]) -> bool:
    """Whether an elementwise function may be a polynomial of degree 2 or less. The derivative alone
    doesn't tell: a function with jumps, such as x mod y, has the derivative of a line. Along lines
    in the space of these operands the third differences of such a polynomial are 0."""
    rng = np.random.default_rng(0)
    start, way = rng.normal(scale=10, size=(2, count, 64))
    steps = np.arange(4)[:, None]
    xs = [start[k] + steps * way[k] if k in active else start[k] for k in range(count)]
    with np.errstate(all="ignore"):
        try:
            found = np.asarray(p.evaluate(*xs), float)
        except (TypeError, ValueError):
            return True
    size = np.abs(found).max(axis=0, initial=1.0)
    return bool(np.all(np.abs(np.diff(found, 3, axis=0)) <= 1e-9 * size))


def _loop(p: Any, of: Sequence[int], depth: int) -> list[int]:
    """The degrees of the carried values after any number of rounds. Degrees only grow."""
    if any(p.heads(of)):
        raise Deciding
    values = list(p.given(of))
    while True:
        found = _tape(p.body, [NOT, *values], depth)
        if p.until and found[-1]:
            raise Deciding
        after = [*map(max, values, found[: p.carried])]
        if after == values[: p.carried]:
            return [*after, *[NOT] * (2 * p.until)]
        values[: p.carried] = after
