"""Tests of what isn't traced, by which long loops are left.

    while i < len(x):         %going = less(%i, 50)
        h = f(h, x[i])  -->   loop(...)
        i += 1

Where such a test stays in its loop time and again, and what the loop computes is traced, its truth
is a traced one from then on, as if it had been asked of a traced value (`turning.py`).
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import numpy as np

from tapegrad.ir.tape import Literal
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.reconsidered import Reconsidered
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.program.frames import operand_at
from tapegrad.observe.program.frames import replace as replace_at
from tapegrad.observe.program.joins import sides_of
from tapegrad.primitives.loops import CALLS, ROUNDS
from tapegrad.tracing.recording.trace import current_trace
from tapegrad.tracing.statements.framed import again_with, each_round, renounce
from tapegrad.tracing.statements.turning import may_begin
from tapegrad.tracing.tracers.tracer import Tracer, stand_in


class _Tests:
    """The tests of a frame by which loops are left, and how often they were reached in a row, from
    which variable of the tape on."""

    def __init__(self, frame: FrameType) -> None:
        self.sides = sides_of(frame.f_code)
        self.exits = self.sides.flow.exits
        self.turns: dict[frozenset[int], tuple[int, int]] = {}


def tested(a: Activation, x: Any) -> None:
    """A conditional jump is about to ask for the truth of a value. If that isn't traced, but what
    the loop computes is, and the loop is long, it is left by a traced test from then on."""
    if a.tests is None:
        a.tests = _Tests(a.frame)
    tests, jump, trace = a.tests, a.frame.f_lasti, current_trace()
    exit_ = tests.exits.get(jump)
    if exit_ is None or trace is None or isinstance(x, Tracer):
        return
    own = a.turning is not None and a.turning.exit.places == exit_.places
    if type(x) not in (bool, np.bool_):
        return _give_up(a, again_with(each_round(tests.sides, jump))) if own else None
    if not own and exit_.places.isdisjoint(tests.sides.turning):
        if bool(x) is not exit_.stays:
            tests.turns.pop(exit_.places, None)
            return
        turns, first = tests.turns.get(exit_.places, (0, trace.builder.following))
        tests.turns[exit_.places] = turns + 1, first
        is_long = turns > ROUNDS and trace.builder.following - first > 2 * CALLS
        if not (is_long and may_begin(a, tests.sides, exit_)):
            return
        # The trace will be made again, and goes on as that will: it finds all other such loops.
        renounce([(tests.sides.turning, o) for o, e in tests.exits.items() if e.body == exit_.body])
    replace_at(operand_at(a.stack, 0), stand_in(trace, Literal(np.bool_(x)), np.bool_(x)))


class _GivenUp:
    """Raises where its truth is asked for. If the observer raised, it would see nothing any more,
    and what handlers around the loop do would be done twice."""

    def __init__(self, error: Reconsidered) -> None:
        self._error = error

    def __bool__(self) -> bool:
        raise self._error


def _give_up(a: Activation, error: Reconsidered) -> None:
    """The conditional jump that is about to run raises this."""
    replace_at(operand_at(a.stack, 0), _GivenUp(error))


dispatch.tested = tested
