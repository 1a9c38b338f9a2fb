"""Signal handlers: code that Python runs by itself in the middle of a function.

They aren't part of the function. Their reads say nothing about its result, and their changes are
noticed where the function reads them. Finalisers, which garbage collection may run, are dealt with
in `garbage.py`.
"""

from __future__ import annotations

import inspect
import signal
from types import CellType, CodeType, FrameType
from typing import Any

from tapegrad.core.named import own_attribute
from tapegrad.observe.program.frames import local


def is_unasked(frame: FrameType, address: int) -> bool:
    """Whether a new frame runs a signal handler. Python passes a handler the signal's number and
    the interrupted frame."""
    code = frame.f_code
    if code.co_argcount < 2 and not code.co_flags & _VARARGS:
        return False
    number, interrupted = _last_arguments(code, address)
    if interrupted is not frame.f_back or type(number) is not int:
        return False
    return number in signal.valid_signals() and _runs(signal.getsignal(number), code)


def _last_arguments(code: CodeType, address: int) -> tuple[Any, Any]:
    """The last two positional arguments that a frame was passed."""
    given = [_content(local(address, k)) for k in range(code.co_argcount)]
    if code.co_flags & _VARARGS:
        given += _content(local(address, code.co_argcount + code.co_kwonlyargcount))
    return (given[-2], given[-1]) if len(given) > 1 else (None, None)


def _content(x: Any) -> Any:
    """The value of a variable. It may be in a cell, since an inner function reads it too."""
    if type(x) is not CellType:
        return x
    return x.cell_contents if x != CellType() else None  # the variable may have been deleted


def _runs(f: Any, code: CodeType) -> bool:
    """Whether a call of `f` (a function, a method or a callable object) runs this code first."""
    f = getattr(f, "func", f)  # of a functools.partial
    f = own_attribute(f, "__func__", f)
    found = own_attribute(f, "__code__") or getattr(type(f).__call__, "__code__", None)
    return found is code


_VARARGS = inspect.CO_VARARGS
