"""NumPy's warnings of floating-point errors, at the line of the program.

NumPy warns at the line that calls it. In a trace that is a line of tapegrad's, and the same one for
all lines of the program, so that a filter which shows each warning once shows one of them. While a
value of a trace is computed, NumPy writes what it would warn of to an object instead, which warns.
That takes nothing but setting a variable, unless there is something to warn of.
"""

from __future__ import annotations

import sys
import warnings
from contextvars import Context, copy_context
from typing import Any

import numpy as np

from tapegrad.core.frames import users_frame
from tapegrad.core.handlers import FLOATING_ERRORS

HEAD = "Warning: "  # what NumPy writes before the text of a warning


class _Warner:
    """What NumPy writes to."""

    def write(self, text: str) -> None:
        frame = users_frame(sys._getframe())
        names = frame.f_globals
        warnings.warn_explicit(
            text.removeprefix(HEAD).rstrip("\n"),
            RuntimeWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            names.get("__name__", "<string>"),
            names.setdefault("__warningregistry__", {}),
        )


def _written() -> Any:
    """NumPy's state in which it writes what it warns of in the present one."""
    modes: Any = {k: "log" if mode == "warn" else mode for k, mode in np.geterr().items()}
    np.seterrcall(_Warner())
    np.seterr(**modes)
    return VARIABLE.get()


# NumPy's context variable of errors, if it keeps the setting there; and states of it, each with the
# one in which it writes, None if it warns of nothing: its default, that without warnings, and the
# last other one.
_known: Any = FLOATING_ERRORS[0] if FLOATING_ERRORS else (None, None, None)
VARIABLE, DEFAULT, QUIET = _known
WRITTEN: Any = Context().run(_written) if FLOATING_ERRORS else None
_last: tuple[Any, Any] = QUIET, None


def aloud(function: Any, values: Any) -> Any:
    """`function(*values)`, a computation of tapegrad's own, whose warnings stand at the line of the
    program that asks for it."""
    if VARIABLE is None:
        return function(*values)
    state = VARIABLE.get()
    written = WRITTEN if state is DEFAULT else _written_in(state)
    if written is None:
        return function(*values)
    token = VARIABLE.set(written)
    try:
        return function(*values)
    finally:
        VARIABLE.reset(token)


def _written_in(state: Any) -> Any:
    """The state in which NumPy writes what it warns of in another one than its default."""
    global _last
    before, written = _last
    if state is QUIET:
        return None
    if state is not before:
        modes = {*np.geterr().values()}
        warns = "warn" in modes and not modes & {"call", "log"}  # these have an object of their own
        written = copy_context().run(_written) if warns else None
        _last = state, written
    return written
