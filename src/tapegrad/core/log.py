"""What tapegrad says of its own work, through the logger `tapegrad`.

It is silent, but for programs that take long to compile, unless TAPEGRAD_LOG asks for more: a list
of `compile`, `trace` and `guards`. What is asked for is printed, also where the program hasn't set
up `logging`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

KINDS = ("compile", "trace", "guards")
_refused: set[str] = set()


def wanted(kind: str) -> bool:
    """Whether TAPEGRAD_LOG asks for what is said of this kind."""
    given = os.environ.get("TAPEGRAD_LOG")
    if not given:
        return False
    words = [word.strip().lower() for word in given.split(",")]
    wrong = ", ".join(word for word in words if word and word not in KINDS)
    if wrong and given not in _refused:
        _refused.add(given)
        warn(f"TAPEGRAD_LOG is {given!r}: {wrong} isn't among {', '.join(KINDS)}")
    return kind in words


def say(kind: str, text: str) -> None:
    """Say this, which somebody has asked for."""
    logger = _logger()
    if not logger.hasHandlers():
        import logging

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
        logger.addHandler(handler)
    if not logger.isEnabledFor(20):
        logger.setLevel(20)  # INFO
    with contextlib.suppress(Exception):  # there may be nowhere to say it
        logger.info("%s: %s", kind, text)


def warn(text: str) -> None:
    """Say this, which nobody has asked for."""
    with contextlib.suppress(Exception):
        _logger().warning("%s", text)


def _logger() -> Any:
    import logging  # takes milliseconds, and most programs never come here

    return logging.getLogger("tapegrad")
