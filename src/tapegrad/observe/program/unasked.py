"""What Python runs by itself in the middle of a function: handlers of signals. Garbage, whose
objects may be finalised by code, is collected elsewhere meanwhile: see `garbage.py`.

They are no part of what the function does. What they read says nothing about its result; what they
change is seen where the function reads it.
"""

from __future__ import annotations

import inspect
import signal
from types import CellType, CodeType, FrameType
from typing import Any

from tapegrad.observe.program.frames import local


def is_unasked(frame: FrameType, address: int) -> bool:
    """Whether a frame that begins is one that Python called by itself. A signal's handler is passed
    its number and the frame that was interrupted."""
    code = frame.f_code
    if code.co_argcount < 2 and not code.co_flags & _VARARGS:
        return False
    number, interrupted = _last_arguments(code, address)
    if interrupted is not frame.f_back or type(number) is not int:
        return False
    return number in signal.valid_signals() and _runs(signal.getsignal(number), code)


def _last_arguments(code: CodeType, address: int) -> tuple[Any, Any]:
    """The two that a frame was passed last, by position."""
    given = [_content(local(address, k)) for k in range(code.co_argcount)]
    if code.co_flags & _VARARGS:
        given += _content(local(address, code.co_argcount + code.co_kwonlyargcount))
    return (given[-2], given[-1]) if len(given) > 1 else (None, None)


def _content(x: Any) -> Any:
    """What a variable holds, that may be in a cell, since an inner function reads it too."""
    if type(x) is not CellType:
        return x
    return x.cell_contents if x != CellType() else None  # it may have been deleted


def _runs(f: Any, code: CodeType) -> bool:
    """Whether a call of this runs that code first: a function, a method, or an object's."""
    f = getattr(f, "func", f)  # functools.partial
    f = getattr(f, "__func__", f)
    found = getattr(f, "__code__", None) or getattr(type(f).__call__, "__code__", None)
    return found is code


_VARARGS = inspect.CO_VARARGS
