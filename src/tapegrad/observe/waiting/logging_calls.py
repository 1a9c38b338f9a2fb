"""Calls of loggers: each call of a derivative logs its own numbers.

    log.info("loss %.3f", loss)  -->  after the result, a record of this line, with its own loss

A record that goes to the screen alone is made by the trace, as printed text is. The destination of
a logger's records of a level is a guard, since the call itself doesn't show it.

Other records come from the program's own logger classes, from `partial(log.info, x)`, packages and
warnings. They are noticed by the frames of `logging`. No later call repeats such a record, so if
one reaches a handler the function is traced at each call.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.installed import PYTHONS
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.later_values import Later, pass_texts
from tapegrad.observe.answers.answers import answer_of, is_answered
from tapegrad.observe.objects.loggers import (
    ELSEWHERE,
    LEVELS,
    goes_to,
    handed_to,
    is_handler,
    is_logger,
    logger_of,
    shows,
)
from tapegrad.observe.objects.purity import DISPATCHER, INERT, is_librarys_code, is_pure
from tapegrad.observe.packages import library_calls
from tapegrad.observe.packages.opaque import FOLLOWED
from tapegrad.observe.program.source import TAPEGRAD
from tapegrad.observe.values.texts import numbers_in, that_are_shown
from tapegrad.observe.waiting import threads
from tapegrad.observe.waiting.postponed import postpone
from tapegrad.observe.waiting.repeated_calls import call, is_once, made_later, may_begin
from tapegrad.primitives.base import Value

OF_LOGS = "Log outside of the function, of what it returns (has_aux=True)"


def made_as_one(a: Activation, f: Any, args: Any, kwargs: Any, at: int, passed: Any) -> Any:
    """The recorder of a call that isn't followed, since it is postponed, or repeated by each call
    of the derivative."""
    a.o.logs = 0, 0
    note = threads.call(a, f, args, kwargs, at)
    note = postpone(a, f, args, kwargs, at) if note is FOLLOWED else note
    _logged(a, f, args, kwargs)
    answered = library_calls.answers(a, f, args, kwargs)
    note = call(a, f, args, kwargs, at) if note is FOLLOWED and not answered else note
    if note is FOLLOWED:
        note = note if answered else library_calls.call(a, f, args, kwargs, at, passed)
        pass_texts(a, f, [*args, *kwargs.values()], as_one=note is not FOLLOWED)
    return note


def stays(a: Activation, f: Any, args: Sequence[Any]) -> bool:
    """Whether `f(*args)` is a call of a NumPy function with traced values and numbers alone, with
    nothing to replace or record, as most calls are."""
    o = a.o
    if _numpys().get(id(f)) is not f or o.lent is not None or o.workers or o.pending:
        return False
    for x in args:
        kind = type(x)
        if kind is not float and kind is not int and not (INERT[kind] and isinstance(x, Value)):
            return False
    answer = answer_of(f)
    if answer is not None and is_answered(answer, a.frame.f_code, args):
        return False
    o.logs, o.running, a.direct = (0, 0), a, None
    return True


@functools.cache
def _numpys() -> dict[int, Any]:
    """NumPy's functions that dispatch on their arguments, read nothing else and make no texts, by
    id."""
    asking = [f for f in vars(np).values() if type(f) in (np.ufunc, DISPATCHER)]
    return {id(f): f for f in asking if is_pure(f) and not may_begin(f.__name__)}


def _logged(a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Record a call of a logger."""
    logger, args, is_adapted = logger_of(f, args)
    if logger is None:
        return
    name, reads = f.__name__, a.o.reads
    level = args[0] if name == "log" and args else LEVELS.get(name)
    if type(level) is not int:
        return
    a.o.logs = id(a.frame), a.frame.f_lasti
    if _guarded(reads, goes_to, logger, level) != ELSEWHERE:
        return
    message = args[name == "log" :]
    made = made_later(a, f, message, kwargs) if message and not is_adapted else None
    followed = made is not None and kwargs.keys() <= {"extra"} and name != "exception"
    followed = followed and "_log" not in vars(logger)
    if not followed or _is_shown(message[0]) or is_once(a):
        reads.use_once(f"logging.{name}", OF_LOGS)
    else:
        later: Later = made[0]  # type: ignore[index]
        later.f, later.has_effect = _Record(a.frame, logger, level, name), True
        reads.effects.append(later)


def _guarded(reads: Any, where: Any, logger: Any, level: int) -> int:
    """The destination of a logger's records of a level, which is guarded."""
    goes: int = where(logger, level)
    text = f"{reads._value(where)}({reads._value(logger)}, {level}) == {goes}"
    reads.found(text, True, "where records of a logger go")
    return goes


_ASKS, _HANDS_ON, _MAKES = "isEnabledFor", ("handle", "callHandlers"), ("handle", "emit")
_TELLING = {_ASKS, *_HANDS_ON, *_MAKES}
_LENGTH = 10  # maximal size of a call in bytes, with its caches; `f_lasti` may be at any of these
_FILES = tuple(PYTHONS + name for name in ("logging.py", f"logging{os.sep}"))


def told(o: Any, frame: Any, is_silent: bool, muted: Any) -> None:
    """Record that a frame begins that isn't followed: its code only reports something (it
    `is_silent`), or was called by such code. All these frames have the mark `muted`. It may be
    `logging` making a record, or the program's code that `logging` calls, whose decisions and
    changes aren't known."""
    code, back = frame.f_code, frame.f_back
    if is_silent and code.co_name not in _TELLING:
        return
    if back is None or not (code if is_silent else back.f_code).co_filename.startswith(_FILES):
        return
    name = code.co_name
    while back is not None and back.f_trace is muted:
        name, back = back.f_code.co_name, back.f_back
    if back is None or back.f_code.co_filename.startswith(TAPEGRAD):
        return
    caller, at = o.logs
    if id(back) == caller and 0 <= back.f_lasti - at <= _LENGTH:
        return  # recorded already
    x, given = [*(frame.f_locals.get(name) for name in code.co_varnames[:2]), None, None][:2]
    if not is_silent:
        is_lost = not (is_librarys_code(code) or code.co_filename.startswith("<frozen "))
    elif code.co_name in _MAKES and is_handler(x):
        is_lost = not shows(x)
    else:
        is_lost = False
        if isinstance(getattr(back.f_trace, "__self__", None), Activation) and name != _ASKS:
            asks = code.co_name == _ASKS
            level = given if asks else getattr(given, "levelno", None)
            if is_logger(x) and type(level) is int:
                _guarded(o.reads, goes_to if asks else handed_to, x, level)
    if is_lost:
        o.reads.use_once(f"logging.{name}", OF_LOGS)


class _Record:
    """Logs a record of one line, wherever it is called from."""

    def __init__(self, frame: Any, logger: Any, level: int, name: str) -> None:
        code = frame.f_code
        self.__name__ = self.__qualname__ = name
        self.__module__ = "logging"
        self.logger, self.level = logger, level
        self.line = code.co_filename, frame.f_lineno, code.co_name

    def __call__(self, message: Any, *args: Any, extra: Any = None) -> None:
        file, line, name = self.line
        made = self.logger.makeRecord(
            *(self.logger.name, self.level, file, line, message, args, None, name, extra)
        )
        self.logger.handle(made)


def _is_shown(message: Any) -> bool:
    """Whether a plain text contains a number that was only to be shown."""
    found = numbers_in(message) if type(message) is str else set()
    return any(shown.may_be_among(found) for _, shown in that_are_shown())
