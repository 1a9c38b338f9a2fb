"""Which line of the user's program is running."""

from __future__ import annotations

import os
import sys
from types import CodeType

import numpy as np

from tapegrad.ir.tape import Source

_OWN = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
    os.path.dirname(os.path.abspath(np.__file__)) + os.sep,
)
_foreign: dict[CodeType, bool] = {}


def _is_users(code: CodeType) -> bool:
    known = _foreign.get(code)
    if known is None:
        file = code.co_filename
        known = _foreign[code] = not file.startswith((*_OWN, "<__array_function__"))
    return known


def user_source() -> Source | None:
    """The innermost line that is neither tapegrad's nor NumPy's."""
    frame = sys._getframe(1)
    while frame is not None:
        if _is_users(frame.f_code):
            return Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def at_line() -> str:
    """` (model.py:12: h = math.exp(x))`, to end a message with; empty if there is no such line."""
    src = user_source()
    if src is None:
        return ""
    text = src.text
    return f" ({src}: `{text}`)" if text else f" ({src})"
