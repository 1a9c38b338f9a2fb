"""Loggers of Python's `logging`, and whether their records go to the screen alone."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

from tapegrad.observe.objects.progress_bars import is_screen


def logger_of(f: Any, args: Sequence[Any]) -> tuple[Any, Sequence[Any], bool]:
    """The logger behind a logging call, the remaining arguments, and whether it is called through
    an adapter. `f` is a method of a logger that logs as Python's do, or a function of `logging`,
    which uses the root logger. The logger is None for any other call."""
    logging: Any = sys.modules.get("logging")
    if logging is None or type(f) not in (types.MethodType, types.FunctionType):
        return None, args, False
    if f.__name__ not in LEVELS and f.__name__ != "log":
        return None, args, False
    if type(f) is types.FunctionType and vars(logging).get(f.__name__) is f:
        return logging.root, args, False
    if type(f) is types.MethodType:
        x, function = f.__self__, f.__func__
    else:
        x, function, args = args[0] if args else None, f, args[1:]
    if function is not getattr(type(x), f.__name__, None):
        return None, args, False
    return _behind(x), args, type(x) is logging.LoggerAdapter


def _behind(x: Any) -> Any:
    """The logger that `x` is, or passes its records to."""
    logging: Any = sys.modules["logging"]
    x = logging.root if x is logging else x
    while type(x) is logging.LoggerAdapter:
        x = x.logger
    return x if is_logger(x) and _logs_as_pythons(type(x)) else None


def _logs_as_pythons(kind: Any) -> bool:
    """Whether a class of loggers keeps all methods of Python's `Logger`, except those that create
    or represent one. Additional methods are allowed."""
    own = {**vars(sys.modules["logging"].Logger), "__getattribute__": object.__getattribute__}
    methods = [name for name, f in own.items() if callable(f) and name not in _MAKING]
    return all(getattr(kind, name, None) is own[name] for name in methods)


_MAKING = ("__init__", "__repr__", "__reduce__")
LEVELS = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "exception": 40}
LEVELS |= {"critical": 50, "fatal": 50}
_NOWHERE, _SCREEN, ELSEWHERE = range(3)


def goes_to(logger: Any, level: int) -> int:
    """The destination of records of a level: nowhere, the screen alone, or elsewhere, too."""
    return handed_to(logger, level) if logger.isEnabledFor(level) else _NOWHERE


def handed_to(logger: Any, level: int) -> int:
    """The destination of records that are passed to a logger regardless of its own level."""
    found, logging = _NOWHERE, sys.modules["logging"]
    if logger.disabled or logger.filters:
        return _NOWHERE if logger.disabled else ELSEWHERE
    last = logging.lastResort  # used for records that no handler takes
    while logger is not None:
        last = None if logger.handlers else last
        for handler in logger.handlers:
            if level >= handler.level and type(handler) is not logging.NullHandler:
                if not shows(handler):
                    return ELSEWHERE
                found = _SCREEN
        logger = logger.parent if logger.propagate else None
    is_last = last is not None and level >= last.level
    return found if not is_last else _SCREEN if shows(last) else ELSEWHERE


def shows(handler: Any) -> bool:
    """Whether a handler writes all records to the screen, and nowhere else."""
    logging: Any = sys.modules["logging"]
    if isinstance(handler, logging.NullHandler):
        return True
    plain = type(handler) in (logging.StreamHandler, logging._StderrHandler)
    return plain and not handler.filters and is_screen(handler.stream)


def is_handler(x: Any) -> bool:
    return isinstance(x, sys.modules["logging"].Handler)


def is_logger(x: Any) -> bool:
    return isinstance(x, sys.modules["logging"].Logger)


def logs_elsewhere(x: Any, name: str) -> bool:
    """Whether the method `name` of a logger, or the function of `logging`, makes records that go
    elsewhere than to the screen."""
    logging = sys.modules.get("logging")
    if logging is None or name not in LEVELS:
        return False
    logger = _behind(x)
    return logger is not None and goes_to(logger, LEVELS[name]) == ELSEWHERE
