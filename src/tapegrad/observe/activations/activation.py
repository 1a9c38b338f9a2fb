"""The frames that are followed: what is noted of each of their instructions."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import FrameType
from typing import Any

from tapegrad.core.handlers import of_handler
from tapegrad.errors import TraceError
from tapegrad.observe.activations.notes import Notes
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.uses import Then
from tapegrad.observe.program.frames import MISSING, operand
from tapegrad.observe.program.watching import Follower

Handler = Callable[["Activation", Any], "Then | None"]
_YIELDS = dis.opmap["YIELD_VALUE"]
# For each place in the code: what is noted of the instruction there, and its argument.
Program = list["tuple[Handler, Any] | None"]


class Activation(Follower):
    """A frame that is followed, from its first instruction or from where it goes on."""

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
        o: Notes,
        frame: FrameType,
        address: int,
        function: Any,
        program: Program,
        tops: list[int],
        known: set[str],
    ) -> None:
        self.o, self.address = o, address
        self.entered = o.enters  # whether its caller runs an instruction that may call the user's
        self.frame: Any = frame
        self.function = function
        self.program, self.tops, self.known = program, tops, known
        self.stack = 0  # where the topmost operand of the running instruction is
        self.checks: Any = None  # see `sides/effects.py`
        self.branches: list[Any] = []  # see `sides/branches.py`, as of the next three
        self.returning: Any = None
        self.sides: Any = None  # of the code that this one is part of, if it is a side run apart
        self.lowered = 0  # how many entries of the stack aren't there then
        self.users = o.is_users(frame)
        self.direct: Any = None  # the code that the running instruction calls by itself
        self.hands_on: Any = None  # the code whose result is the running look-up's, by a method
        self.is_opaque = False  # whether the running instruction calls what isn't followed
        self.numbers = (
            False  # whether it compares numbers and traced values, and asks for the truth
        )
        self.loops: dict[int, Any] = {}  # those that may be closed, the one that goes round,
        self.looping: Any = None
        self.resting = 0, 0  # and from where to where nobody is called back: see `closed.py`
        # The loop of which it makes a round for all, the first part of its condition, and which
        # tests may be one: see `tracing.statements.turning`
        self.turning: Any = None
        self.asked: Any = None
        self.tests: Any = None
        # Of the `for` statements of which it makes such a round: where what an error in it leads to
        # begins, in this frame, and what is done there, or where the frame ends
        self.leaving: list[tuple[int, Callable[[], Any]]] = []
        self.then: Then | None = None  # what is noted when the running instruction is done

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Python calls this before each instruction, and when the frame ends or raises."""
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
            return None  # it goes on being called
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
            self.frame = self.function = None  # which holds this activation
            if self.leaving and frame.f_code.co_code[frame.f_lasti] != _YIELDS:  # by an error
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
        """A signal's handler has raised an error in a loop: it is the program's, and no reason to
        trace the loop again. A program that catches it there gets an error in its place."""
        self.leaving.clear()
        for trace in dispatch.running():
            trace.unfinished = trace.unfinished or TraceError(
                "the function caught an error that a signal's handler raised in the middle of its "
                "trace, as a time limit does: what it does then depends on the time. Catch the "
                "error outside of the function"
            )

    def rest(self, first: int, last: int) -> None:
        """Between these places Python calls back at each line only."""
        frame = self.frame
        self.resting = 2 * first, 2 * last
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self.rests, False, True

    def rests(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Python calls this at each line, and when the frame ends or raises."""
        first, last = self.resting
        if event == "line" and first <= frame.f_lasti <= last:
            return None
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self.step, True, False
        return None if event == "line" else self.step(frame, event, arg)

    def looked_up(self, result: Any) -> None:
        """A look-up by a method is done."""
        self.hands_on = None

    def top(self, k: int = 0) -> Any:
        """The operand number `k`, counted from the top of the stack."""
        return operand(self.stack, k)


def _end_by(error: Any) -> None:
    """What a trace can't follow ends it, though the program catches the error: plain NumPy goes on
    there. One that has ended an inner trace is an error like others."""
    if isinstance(error, TraceError) and not error.may_be_caught:
        trace = dispatch.trace()
        if trace is not None:
            trace.refused(error)
