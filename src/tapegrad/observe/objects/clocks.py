"""Clocks that return numbers. A reading is an input of the tape, which each call reads again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

_NAMES = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_CLOCKS = {id(f): f for name in _NAMES for f in (getattr(time, name), getattr(time, f"{name}_ns"))}


@dataclass
class Clocks:
    """Whether clock readings in a run are inputs, and whether there was one."""

    are_inputs: bool = True
    are_read: bool = False


def is_clock(f: Any) -> bool:
    """Whether a function of the module `time` returns the time as a number."""
    return f is not None and _CLOCKS.get(id(f)) is f
