"""Tests of untraced values that end long loops.

    while i < len(x):       %going = less(%i, 50)
        h = f(h, x[i])  -->     loop(...)
        i += 1

If such a test has continued its loop many times, and the loop computes traced values, the test is
traced from then on, as if it were of a traced value (`while_statement.py`).
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import numpy as np

from tapegrad.ir.tape import Literal
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.retracing import Retrace
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.program.frames import READS_TRUTH, operand_at
from tapegrad.observe.program.frames import replace as replace_at
from tapegrad.observe.program.joins import sides_of
from tapegrad.primitives.loops import MIN_CALLS, MIN_ROUNDS
from tapegrad.tracing.recording.trace import current_trace
from tapegrad.tracing.statements.frame_rounds import each_round, renounce, retrace_with
from tapegrad.tracing.statements.while_statement import may_begin
from tapegrad.tracing.tracers.tracer import Tracer, stand_in


class _Tests:
    """The tests of a frame that leave loops, and for each the number of evaluations in a row, and
    the first variable on the tape since then."""

    def __init__(self, frame: FrameType) -> None:
        self.sides = sides_of(frame.f_code)
        self.exits = self.sides.flow.exits
        self.turns: dict[frozenset[int], tuple[int, int]] = {}


def tested(a: Activation, x: Any) -> None:
    """A conditional jump is about to test a value. If the value isn't traced, but the loop is long
    and computes traced values, the test is traced from then on."""
    if a.tests is None:
        a.tests = _Tests(a.frame)
    # From Python 3.13 on, the instruction before a jump reads the truth, and the jump takes nothing
    # but booleans. So if the loop under way hasn't been asked there, the test isn't of a traced
    # value, and can't become one.
    is_answered = a.turning is not None and a.turning.has_answered
    if a.turning is not None and type(x) is bool:
        a.turning.has_answered = False
    tests, jump, trace = a.tests, a.frame.f_lasti, current_trace()
    exit_ = tests.exits.get(jump)
    if exit_ is None or trace is None or isinstance(x, Tracer):
        return
    own = a.turning is not None and a.turning.exit.places == exit_.places
    if READS_TRUTH:
        return None if not own or is_answered else renounce(each_round(tests.sides, jump))
    if type(x) not in (bool, np.bool_):
        return _give_up(a, retrace_with(each_round(tests.sides, jump))) if own else None
    if not own and exit_.places.isdisjoint(tests.sides.turning):
        if bool(x) is not exit_.stays:
            tests.turns.pop(exit_.places, None)
            return
        turns, first = tests.turns.get(exit_.places, (0, trace.builder.following))
        tests.turns[exit_.places] = turns + 1, first
        is_long = turns > MIN_ROUNDS and trace.builder.following - first > 2 * MIN_CALLS
        if not (is_long and may_begin(a, tests.sides, exit_)):
            return
        # The trace will be repeated, and continues so that it finds all other such loops.
        renounce([(tests.sides.turning, o) for o, e in tests.exits.items() if e.body == exit_.body])
    replace_at(operand_at(a.stack, 0), stand_in(trace, Literal(np.bool_(x)), np.bool_(x)))


class _GivenUp:
    """An object that raises an error when it is tested. An error raised by the observer itself
    would end the observation, and handlers around the loop would run twice."""

    def __init__(self, error: Retrace) -> None:
        self._error = error

    def __bool__(self) -> bool:
        raise self._error


def _give_up(a: Activation, error: Retrace) -> None:
    """Make the next conditional jump raise this error."""
    replace_at(operand_at(a.stack, 0), _GivenUp(error))


dispatch.tested = tested
