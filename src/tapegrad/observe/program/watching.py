"""Callbacks before each instruction of a frame.

In Python 3.11 they are switched on for a frame. Later versions switch them on for the code that the
frame runs, and off again when another frame of this code, in another thread for instance, didn't
ask for them. So from 3.12 on `sys.monitoring` is used, which leaves the code's events unchanged
until they are set again.
"""

from __future__ import annotations

import dis
import functools
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from tapegrad.observe.program import frames
from tapegrad.observe.program.stack_heights import heights_of


class Follower:
    """Follows a frame: its method `step` is the frame's trace function."""

    __slots__ = ()

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        raise NotImplementedError


if sys.version_info < (3, 12):
    # Whether there is a callback for EXTENDED_ARG, the prefix of an instruction, too.
    PREFIX_TOLD = True
    CAN_REST = True  # whether callbacks can be limited to lines: see `unwatched_loops.py`

    def follow(frame: FrameType, codes: dict[int, CodeType]) -> None:
        """Have Python call back before each instruction of this frame. `codes` holds the followed
        codes by their ids, since different codes may be equal."""
        frame.f_trace_opcodes = True

    def release(codes: dict[int, CodeType]) -> None:
        """Stop following the frames that run these codes."""

    def is_possible() -> bool:
        """Whether the interface for callbacks is free."""
        return True

    def is_intact() -> bool:
        """Whether no callback has been lost up to now."""
        return True

else:
    PREFIX_TOLD = False
    CAN_REST = False

    _monitoring = sys.monitoring
    _lock = threading.RLock()
    _tool: int | None = None
    _watched: dict[int, int] = {}  # the number of followers of each code, by its id

    def is_possible() -> bool:
        """Whether a tool id of `sys.monitoring` is free, or already ours."""
        global _tool
        with _lock:
            for tool in (4, 3):  # the ids that aren't meant for debuggers and profilers
                if _tool is None and _monitoring.get_tool(tool) is None:
                    _monitoring.use_tool_id(tool, _NAME)
                    _monitoring.register_callback(tool, _INSTRUCTION, _told)
                    _tool = tool
            return _tool is not None

    def is_intact() -> bool:
        """Whether no callback has been lost up to now: the tool id is still ours."""
        return _tool is not None and _monitoring.get_tool(_tool) == _NAME

    def follow(frame: FrameType, codes: dict[int, CodeType]) -> None:
        """Have Python call back before each instruction of this frame. `codes` holds the followed
        codes by their ids, since different codes may be equal."""
        code = frame.f_code
        if id(code) in codes:
            return
        codes[id(code)] = code
        with _lock:
            count = _watched[id(code)] = _watched.get(id(code), 0) + 1
            if count == 1:
                _set(code, _INSTRUCTION)

    def release(codes: dict[int, CodeType]) -> None:
        """Stop following the frames that run these codes."""
        with _lock:
            for at, code in codes.items():
                _watched[at] -= 1
                if not _watched[at]:
                    del _watched[at]
                    _set(code, 0)
        codes.clear()

    def _set(code: CodeType, events: int) -> None:
        if _tool is not None and is_intact():
            _monitoring.set_local_events(_tool, code, events)

    _NAME = "tapegrad"
    _INSTRUCTION = _monitoring.events.INSTRUCTION

    def _told(code: CodeType, offset: int) -> None:
        """Python's callback before an instruction. It may belong to another frame of the code,
        which isn't followed or is another thread's."""
        frame = sys._getframe(1)
        follower = getattr(frame.f_trace, "__self__", None)
        if isinstance(follower, Follower) and sys.gettrace() is not None:  # following isn't paused
            follower.step(frame, "opcode", None)


class _Trial(Follower):
    """Follows a function whose operands are known."""

    def __init__(self, code: CodeType, expected: tuple[object, ...], by: object) -> None:
        self.code, self.expected, self.by = code, expected, by
        self.heights = heights_of(code) or []
        self.found: list[bool] = []
        self.codes: dict[int, CodeType] = {}

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is not self.code:
            return None
        follow(frame, self.codes)
        return self.step

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        at = frame.f_lasti
        if event == "opcode" and frame.f_code.co_code[at] == dis.opmap["COMPARE_OP"]:
            height = self.heights[at >> 1]
            # Two parameters, two variables, one of them free, and two operands.
            holds = height == 6 and frames.holds(frame, height, *self.expected)
            second = self.expected[2]
            self.found.append(holds and frames.can_replace(frame, height, second, self.by))
        return self.step


@functools.cache
def can_watch() -> bool:
    """Whether this interpreter makes the callbacks, and its frames have the expected layout in
    memory."""
    if not frames.is_described() or sys.gettrace() is not None or not is_possible():
        return False
    first, second, free = object(), object(), object()

    def probe(x: object, y: object) -> bool:
        found = (x, free) == y
        return found

    by = first, free
    trial = _Trial(probe.__code__, (probe, first, second, (first, free)), by)
    count = sys.getrefcount(by)
    try:
        sys.settrace(trial.enter)
        trial.found.append(probe(first, second))
    finally:
        sys.settrace(None)
        release(trial.codes)
    return trial.found == [True, True] and sys.getrefcount(by) == count
