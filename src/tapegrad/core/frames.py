"""Tracebacks that show the user's program, without tapegrad's own frames.

fit.py, <module>    fit = grad(loss)(w)            fit.py, <module>    fit = grad(loss)(w)
derived.py          return self._slow(...)    -->  fit.py, loss        return np.sum(x @ w)
... fifteen more                                   ValueError: matmul: ...
fit.py, loss        return np.sum(x @ w)
... sixteen more
ValueError: matmul: ...
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from tapegrad.errors import InternalError

F = TypeVar("F", bound=Callable[..., Any])

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_OWN = (_HERE, "<tapegrad ")  # the package, and the code that it generates
# In tapegrad's own code these are faults, and their full traceback is needed to mend them.
_FAULTS = (NameError, KeyError, RecursionError)
FULL = bool(os.environ.get("TAPEGRAD_DEBUG")) or os.environ.get("TAPEGRAD_TRACEBACK") == "full"


def shorten(error: BaseException | None, of_command: bool = False) -> None:
    """Remove tapegrad's frames from the traceback of an error, and of its causes.

    An error that tapegrad caught to raise a clearer one is left out completely. Inside of a
    function that is being traced nothing is removed, since the tracing code may look at the frames.
    A command runs programs inside, too.
    """
    hidden = FULL or (not of_command and _is_inside())
    seen: set[int] = set()  # a chain of causes may have a cycle
    while error is not None and not hidden and id(error) not in seen:
        seen.add(id(error))
        caught = error.__context__
        while caught is not None and _was_caught_here(caught) and caught is not error:
            caught = caught.__context__
        error.__context__ = caught
        if not _is_fault(error):
            error.__traceback__ = _users(error.__traceback__)
        hidden = error.__cause__ is None and error.__suppress_context__
        error = error.__cause__ or caught


def short_traceback(function: F) -> F:
    """Wrap a public function so that its errors show the user's frames only."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return cast(F, called)


def warn(text: str) -> None:
    """Warn at the line of the program that called tapegrad."""
    frame, level = sys._getframe(0), 1
    while _is_own(frame) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def users_frame(frame: FrameType) -> FrameType:
    """The innermost frame around this one that is neither tapegrad's nor NumPy's."""
    while frame.f_code.co_filename.startswith((*_OWN, _NUMPY)) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_inside() -> bool:
    """Whether the public function was called from code that tapegrad itself runs."""
    owners = [_is_own_file(file) for file in _files()]
    return True in owners[owners.index(False) :] if False in owners else False


def _files() -> Iterator[str]:
    """The files of the running frames, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


def _was_caught_here(error: BaseException) -> bool:
    trace = error.__traceback__
    return trace is None or _is_own(trace.tb_frame)


def _is_fault(error: BaseException) -> bool:
    """Whether an error is likely to be a fault of tapegrad: an InternalError, or one of `_FAULTS`
    in its own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_here = trace is not None and _is_own(trace.tb_frame)
    return isinstance(error, InternalError) or (is_here and isinstance(error, _FAULTS))


def _users(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without tapegrad's frames."""
    kept = []
    while trace is not None:
        if not _is_own(trace.tb_frame):
            kept.append(trace)
        trace = trace.tb_next
    for frame in reversed(kept):
        line = frame.tb_lineno or 0  # an interrupt may come between two lines
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, line)
    return trace


def _is_own(frame: FrameType) -> bool:
    return _is_own_file(frame.f_code.co_filename)


def _is_own_file(file: str) -> bool:
    return file.startswith(_OWN)
