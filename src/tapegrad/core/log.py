"""Logging of tapegrad's own work, through the logger `tapegrad` and its children.

    tapegrad.trace      a function was traced, and why                          INFO
    tapegrad.compile    a program was compiled, in how long                     INFO
    tapegrad.guards     a variant was passed over, and why                      DEBUG
    tapegrad.cache      code was found on disk, variants were forgotten         DEBUG

They obey the levels and handlers that the program sets. Records have the event's fields, for
formatters that write JSON. With TAPEGRAD_LOG, a list of these names or `all`, events are printed
even if the program hasn't configured `logging`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any

from tapegrad.core.handlers import let_through

_LEVELS = {"trace": 20, "compile": 20, "guards": 10, "cache": 10}  # INFO, DEBUG
_refused: set[str] = set()


@dataclass(frozen=True)
class Event:
    """An event of one of these kinds, as text and as fields."""

    kind: str
    text: str
    fields: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


def wanted(kind: str) -> bool:
    """Whether events of this kind are logged."""
    return _asked(kind) or _is_enabled(f"tapegrad.{kind}", _LEVELS[kind])


def _is_enabled(name: str, level: int) -> bool:
    """Whether a logger with this name takes records of this level. No logger is created or changed,
    since a traced function may look at the program's loggers."""
    logging: Any = sys.modules.get("logging")
    if logging is None:
        return False
    manager = logging.root.manager
    known = [manager.loggerDict.get(x) for x in (name, "tapegrad")]
    logger = next((x for x in known if isinstance(x, logging.Logger)), logging.root)
    enabled = not logger.disabled and manager.disable < level
    return enabled and bool(logger.getEffectiveLevel() <= level)


def _asked(kind: str) -> bool:
    """Whether TAPEGRAD_LOG asks for events of this kind."""
    given = os.environ.get("TAPEGRAD_LOG")
    if not given:
        return False
    words = [word.strip().lower() for word in given.split(",")]
    wrong = ", ".join(word for word in words if word and word not in (*_LEVELS, "all"))
    if wrong and given not in _refused:
        _refused.add(given)
        warn(f"TAPEGRAD_LOG is {given!r}: {wrong} isn't among {', '.join(_LEVELS)}, all")
    return kind in words or "all" in words


def say(event: Event) -> None:
    """Log an event that is `wanted`."""
    logger, level = _logger(f"tapegrad.{event.kind}"), _LEVELS[event.kind]
    if _asked(event.kind) and not logger.hasHandlers():
        import logging

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        _logger("tapegrad").addHandler(handler)
    _said(logger, level, _timed(event), {"event": event.kind, **event.fields})


def _timed(event: Event) -> str:
    seconds = event.fields.get("seconds")
    return event.text if seconds is None else f"{event.text} [{1000 * seconds:.0f} ms]"


def warn(text: str) -> None:
    """Log a warning."""
    logger = _logger("tapegrad")
    if logger.isEnabledFor(30):  # WARNING
        _said(logger, 30, text)


def _said(logger: Any, level: int, text: str, fields: dict[str, Any] | None = None) -> None:
    record = logger.makeRecord(logger.name, level, __file__, 0, "%s", (text,), None, extra=fields)
    try:
        logger.handle(record)  # bypasses the logger's level, since the event is wanted
    except Exception as error:  # the handler may have nowhere to write
        let_through(error)


def _logger(name: str) -> Any:
    import logging  # slow to import, and most programs never log

    return logging.getLogger(name)
