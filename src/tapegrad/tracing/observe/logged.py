"""Calls of loggers: each call of a derivative logs its own numbers.

    log.info("loss %.3f", loss)  -->  after the result, a record of this line, with its own loss

A record that is shown on the screen, and goes nowhere else, is that of the trace, as what is
printed. Where records of a logger and a level go is a guard: no program says so where it logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegrad.tracing.loggers import ELSEWHERE, LEVELS, goes_to, logger_of
from tapegrad.tracing.observe import libraries, threads
from tapegrad.tracing.observe.activation import Activation
from tapegrad.tracing.observe.afterwards import call, is_once, made_later
from tapegrad.tracing.observe.later import Later, pass_texts
from tapegrad.tracing.observe.opaque import FOLLOWED
from tapegrad.tracing.observe.postponed import postpone
from tapegrad.tracing.texts import numbers_in, that_are_shown

OF_LOGS = "Log outside of the function, of what it returns (has_aux=True)"


def made_as_one(a: Activation, f: Any, args: Any, kwargs: Any, at: int, passed: Any) -> Any:
    """What is noted of a call that isn't followed: it waits, or each call makes it anew."""
    note = threads.call(a, f, args, kwargs, at)
    note = postpone(a, f, args, kwargs, at) if note is FOLLOWED else note
    _logged(a, f, args, kwargs)
    note = call(a, f, args, kwargs, at) if note is FOLLOWED else note
    if note is FOLLOWED:
        note = libraries.call(a, f, args, kwargs, at, passed)
        pass_texts(a, f, [*args, *kwargs.values()], as_one=note is not FOLLOWED)
    return note


def _logged(a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """A logger is about to be called, if it is."""
    logger, args, is_adapted = logger_of(f, args)
    if logger is None:
        return
    name, reads = f.__name__, a.o.reads
    level = args[0] if name == "log" and args else LEVELS.get(name)
    if type(level) is not int:
        return
    goes = goes_to(logger, level)
    text = f"{reads._value(goes_to)}({reads._value(logger)}, {level}) == {goes}"
    reads.found(text, True, "where records of a logger go")
    if goes != ELSEWHERE:
        return
    message = args[name == "log" :]
    made = made_later(a, f, message, kwargs) if message and not is_adapted else None
    followed = made is not None and kwargs.keys() <= {"extra"} and name != "exception"
    if not followed or _is_shown(message[0]) or is_once(a):
        reads.lost(f"logging.{name}", OF_LOGS)
    else:
        later: Later = made[0]  # type: ignore[index]
        later.f, later.has_effect = _Record(a.frame, logger, level, name), True
        reads.effects.append(later)


class _Record:
    """What logs at a line, wherever it is called from."""

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
    """Whether a plain text holds a number that was only to be shown."""
    found = numbers_in(message) if type(message) is str else set()
    return any(shown.may_be_among(found) for _, shown in that_are_shown())
