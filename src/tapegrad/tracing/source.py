"""Which line of the user's program is running."""

from __future__ import annotations

import dis
import importlib.util
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

from tapegrad.ir.tape import Source


def _folder(package: str) -> str:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return os.path.dirname(os.path.abspath(spec.origin)) + os.sep


_STDLIB = os.path.dirname(os.__file__) + os.sep

# The user calls NumPy and SciPy; their own lines tell nothing about the user's program.
_OWN = tuple(map(_folder, ("tapegrad", "numpy", "scipy")))
_DEMO = os.path.join(_OWN[0], "demo.py")  # a user's program, though it lies here
_foreign: dict[CodeType, bool] = {}


def is_users_path(file: str) -> bool:
    """Whether a file is none of tapegrad's, NumPy's and SciPy's."""
    return not file.startswith((*_OWN, "<__array_function__")) or file == _DEMO


def is_users(code: CodeType) -> bool:
    known = _foreign.get(code)
    if known is None:
        known = _foreign[code] = is_users_path(code.co_filename)
    return known


def _user_frame() -> FrameType | None:
    """The innermost frame that isn't tapegrad's, NumPy's or SciPy's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    return frame


def user_frames() -> Iterator[FrameType]:
    """The frames of the user's program, innermost first."""
    frame = _user_frame()
    while frame is not None:
        if is_users(frame.f_code):
            yield frame
        frame = frame.f_back


def user_source() -> Source | None:
    """The line that the user's program is at."""
    frame = _user_frame()
    if frame is None:
        return None
    return Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def users_own_source() -> Source | None:
    """The line that the user's program is at, outside of Python's library and of packages."""
    frames = list(user_frames())
    own = [f for f in frames if not f.f_code.co_filename.startswith(_STDLIB)]
    for frame in (*own, *frames):
        return Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    return None


def called_by_scipy() -> bool:
    """Whether the user's program has called SciPy, which is at work."""
    frame, users = sys._getframe(1), _user_frame()
    while frame is not users and frame is not None:
        if frame.f_code.co_filename.startswith(_OWN[2]):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def assigns_item() -> bool:
    """Whether the user's program is in the middle of an assignment `a[k] = x`."""
    frame = _user_frame()
    if frame is None or frame.f_lasti < 0:
        return False
    return frame.f_code.co_code[frame.f_lasti] == dis.opmap["STORE_SUBSCR"]


def at_line() -> str:
    """` (model.py:12: h = math.exp(x))`, to end a message with; empty if there is no such line."""
    return at_source(user_source())


def at_source(src: Source | None) -> str:
    """The same for a line that is known."""
    if src is None:
        return ""
    text = src.text
    return f" ({src}: `{text}`)" if text else f" ({src})"
