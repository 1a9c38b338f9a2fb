"""Runs that aren't observed, as under a debugger."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


def unobserved(f: Callable[..., Any]) -> Callable[..., Any]:
    """Calls a function as under a debugger, so that the run isn't observed."""

    @functools.wraps(f)
    def run(*args: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(lambda *event: None)
        try:
            return f(*args)
        finally:
            sys.settrace(before)

    return run
