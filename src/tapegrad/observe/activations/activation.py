"""Followed frames: the handlers of their instructions are called here."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import FrameType
from typing import Any

from tapegrad.core.handlers import of_handler
from tapegrad.errors import TraceError
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.uses import Then
from tapegrad.observe.program.frames import MISSING, operand
from tapegrad.observe.program.watching import Follower

Handler = Callable[["Activation", Any], "Then | None"]
_YIELDS = dis.opmap["YIELD_VALUE"]
# For each offset of a code: the handler of the instruction, and its argument.
Program = list["tuple[Handler, Any] | None"]


class Activation(Follower):
    """A frame that is followed, from its first instruction or from where it resumes."""

    __slots__ = (
        *(
            "address",
            "asked",
            "branches",
            "checks",
            "direct",
            "entered",
            "frame",
            "function",
            "hands_on",
            "is_opaque",
            "known",
            "leaving",
            "looping",
            "loops",
            "lowered",
            "numbers",
            "o",
            "program",
            "resting",
            "returning",
            "sides",
            "then",
            "tops",
        ),
        *("stack", "tests", "turning", "users"),
    )

    def __init__(
        self,
        o: RunRecord,
        frame: FrameType,
        address: int,
        function: Any,
        program: Program,
        tops: list[int],
        known: set[str],
    ) -> None:
        self.o, self.address = o, address
        self.entered = o.enters  # whether its caller's instruction may call the user's code
        self.frame: Any = frame
        self.function = function
        self.program, self.tops, self.known = program, tops, known
        self.stack = 0  # the address of the running instruction's topmost operand
        self.checks: Any = None  # see `sides/effects.py`
        self.branches: list[Any] = []  # see `sides/branches.py`, as for the next three
        self.returning: Any = None
        self.sides: Any = None  # of the code that this is part of, if it is a side run alone
        self.lowered = 0  # the number of stack entries missing in such a side
        self.users = o.is_users(frame)
        self.direct: Any = None  # the code that the running instruction calls directly
        self.hands_on: Any = None  # the code whose result the running look-up returns
        self.is_opaque = False  # whether the running instruction calls code that isn't followed
        self.numbers = (
            False  # whether the running comparison is of numbers and traced values, and tested
        )
        self.loops: dict[int, Any] = {}  # the loops that may be closed, the one whose rounds run,
        self.looping: Any = None
        self.resting = 0, 0  # and the offsets without callbacks: see `unwatched_loops.py`
        # The loop of which it runs a round for all, the first part of its condition, and the tests
        # that may be one: see `tracing.statements.while_statement`.
        self.turning: Any = None
        self.asked: Any = None
        self.tests: Any = None
        # For the `for` statements of which it runs such a round: the offset of this frame's handler
        # of an error, and the function to call there, or when the frame ends.
        self.leaving: list[tuple[int, Callable[[], Any]]] = []
        self.then: Then | None = None  # called when the running instruction is done

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Python's callback before each instruction, and when the frame ends or raises."""
        at = frame.f_lasti >> 1
        o, instruction = self.o, self.program[at]
        if self.then is None and event == "opcode" and o.effects is None and o.lent is None:
            if instruction is not None:
                o.enters = False
                self.stack = self.address + self.tops[at]
                try:
                    self.then = instruction[0](self, instruction[1])
                except Exception as error:
                    o.fault(error)
            return None  # the trace function stays
        if event == "exception":
            _end_by(arg[1])
            if self.leaving and of_handler(arg[1], arg[2]) is not None:
                self._interrupted()
        o.enters = False
        self.stack = self.address + self.tops[at]
        then = self.then
        if then is not None:
            self.then = None
            try:
                then(self.top() if event == "opcode" else MISSING)
            except Exception as error:
                o.fault(error)
        if event == "return":
            while self.turning is not None:
                self.turning.end()
            if self.branches:
                self.branches[-1].left(self, arg)
            o.returned(frame, arg)
            o.enters = self.entered
            self.frame = self.function = None  # the frame holds this activation
            if self.leaving and frame.f_code.co_code[frame.f_lasti] != _YIELDS:  # ended by an error
                self.leaving[-1][1]()
            return None
        if event == "opcode":
            try:
                if o.lent is not None:
                    o.lent.look(self)
                if self.returning is not None:
                    self.returning.arrived(self)
                while self.branches and self.branches[-1].join.offset == frame.f_lasti:
                    self.branches.pop().joined(self)
                if self.turning is not None:
                    self.turning.passes(frame.f_lasti)
                if self.leaving and self.leaving[-1][0] == frame.f_lasti:
                    self.leaving[-1][1]()
                if o.effects is not None:
                    o.effects.step(self, at)
                if instruction is not None:
                    self.then = instruction[0](self, instruction[1])
            except Exception as error:
                o.fault(error)
        return None

    def _interrupted(self) -> None:
        """Record that a signal's handler has raised an error in a loop. The error belongs to the
        program, and is no reason to trace the loop again. If the program catches it there, the
        trace ends with an error."""
        self.leaving.clear()
        for trace in dispatch.running():
            trace.unfinished = trace.unfinished or TraceError(
                "the function caught an error that a signal's handler raised in the middle of its "
                "trace, as a time limit does: what it does then depends on the time. Catch the "
                "error outside of the function"
            )

    def rest(self, first: int, last: int) -> None:
        """Have Python call back at each line only, between these offsets."""
        frame = self.frame
        self.resting = 2 * first, 2 * last
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self.rests, False, True

    def rests(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Python's callback at each line of a closed loop, and when the frame ends or raises."""
        first, last = self.resting
        if event == "line" and first <= frame.f_lasti <= last:
            return None
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self.step, True, False
        return None if event == "line" else self.step(frame, event, arg)

    def looked_up(self, result: Any) -> None:
        """Record that a look-up by a method is done."""
        self.hands_on = None

    def top(self, k: int = 0) -> Any:
        """The operand number `k`, counted from the top of the stack."""
        return operand(self.stack, k)


def _end_by(error: Any) -> None:
    """End the trace by an error that tracing can't follow, even if the program catches it: plain
    NumPy has no such error. An error that has ended an inner trace is an ordinary one."""
    if isinstance(error, TraceError) and not error.may_be_caught:
        trace = dispatch.trace()
        if trace is not None:
            trace.refused(error)
