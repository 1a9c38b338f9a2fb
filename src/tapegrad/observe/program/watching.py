"""How Python calls back before each instruction of a frame.

In Python 3.11 a frame asks for it by itself, with `f_trace_opcodes`. Later versions switch it for
the code that the frame runs, and switch it off when another frame that didn't ask for it comes by:
one of another thread, for instance. So from 3.12 on `sys.monitoring` calls back, which leaves the
code as it is until it is told otherwise.
"""

from __future__ import annotations

import dis
import functools
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from tapegrad.observe.program import frames
from tapegrad.observe.program.heights import heights_of


class Follower:
    """What follows a frame: its `step` is the frame's trace function, which is called back."""

    __slots__ = ()

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        raise NotImplementedError


if sys.version_info < (3, 12):
    # Whether the prefix of an instruction, EXTENDED_ARG, is told in its place.
    PREFIX_TOLD = True
    CAN_REST = True  # whether a frame can be called back at its lines alone: see `closed`

    def follow(frame: FrameType, codes: dict[int, CodeType]) -> None:
        """Python calls back before each instruction of this frame. The codes of those that are
        followed are held in `codes`, by their ids, since equal ones aren't the same."""
        frame.f_trace_opcodes = True

    def release(codes: dict[int, CodeType]) -> None:
        """No frame that runs one of these codes is followed any more."""

    def is_possible() -> bool:
        """Whether nobody else has what it takes."""
        return True

    def is_intact() -> bool:
        """Whether what was followed up to now was told to its end."""
        return True

else:
    PREFIX_TOLD = False
    CAN_REST = False

    _monitoring = sys.monitoring
    _lock = threading.RLock()
    _tool: int | None = None
    _watched: dict[int, int] = {}  # how many follow a code, by its id

    def is_possible() -> bool:
        """Whether nobody else has what it takes."""
        global _tool
        with _lock:
            for tool in (4, 3):  # those that aren't meant for debuggers and the like
                if _tool is None and _monitoring.get_tool(tool) is None:
                    _monitoring.use_tool_id(tool, _NAME)
                    _monitoring.register_callback(tool, _INSTRUCTION, _told)
                    _tool = tool
            return _tool is not None

    def is_intact() -> bool:
        """Whether what was followed up to now was told to its end."""
        return _tool is not None and _monitoring.get_tool(_tool) == _NAME

    def follow(frame: FrameType, codes: dict[int, CodeType]) -> None:
        """Python calls back before each instruction of this frame. The codes of those that are
        followed are held in `codes`, by their ids, since equal ones aren't the same."""
        code = frame.f_code
        if id(code) in codes:
            return
        codes[id(code)] = code
        with _lock:
            count = _watched[id(code)] = _watched.get(id(code), 0) + 1
            if count == 1:
                _set(code, _INSTRUCTION)

    def release(codes: dict[int, CodeType]) -> None:
        """No frame that runs one of these codes is followed any more."""
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
        """An instruction is about to run, in a frame that is followed or in another one, that may
        be another thread's."""
        frame = sys._getframe(1)
        follower = getattr(frame.f_trace, "__self__", None)
        if isinstance(follower, Follower) and sys.gettrace() is not None:  # and it isn't paused
            follower.step(frame, "opcode", None)


class _Trial(Follower):
    """Follows a function whose operands are known."""

    def __init__(self, code: CodeType, expected: tuple[object, ...]) -> None:
        self.code, self.expected = code, expected
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
            # Two parameters, a free variable, two operands.
            self.found.append(height == 5 and frames.holds(frame, height, *self.expected))
        return self.step


@functools.cache
def can_watch() -> bool:
    """Whether this interpreter calls back, and its frames are as they are described."""
    if not frames.is_described() or sys.gettrace() is not None or not is_possible():
        return False
    first, second, free = object(), object(), object()

    def probe(x: object, y: object) -> bool:
        return (x, free) == y

    trial = _Trial(probe.__code__, (probe, first, second, (first, free)))
    try:
        sys.settrace(trial.enter)
        probe(first, second)
    finally:
        sys.settrace(None)
        release(trial.codes)
    return trial.found == [True]
