"""Progress bars for what takes long: drawn by tqdm, where that is installed.

A bar is shown in terminals and in notebooks. TAPEGRAD_PROGRESS=1 shows it everywhere, 0 nowhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tapegrad.core.handlers import let_through

DELAY = 2.0  # seconds before a bar appears
INTERVAL = 0.1  # seconds from one update to the next


class _Here(threading.local):
    """The work under way in this thread."""

    progress: Progress | None = None


_here = _Here()


class Progress:
    """The progress of one piece of work, as a context. Work inside of other work has no bar.

    A bar counts up to what `total` says, which grows if more is done; without it, it only counts.
    It is drawn in a call of `quietly`.
    """

    def __init__(
        self,
        text: str,
        unit: str,
        total: Callable[[], float] | None = None,
        quietly: Callable[[Callable[..., None]], Callable[..., None]] = lambda f: f,
    ) -> None:
        self.text, self.unit, self.total = text, unit, total
        self.done: Any = 0
        self.due = time.monotonic() + DELAY
        self.bar: Any = None
        self.quietly = quietly

    def __enter__(self) -> Progress:
        self.outer = _here.progress
        if self.outer is None:
            _here.progress = self
        return self

    def __exit__(self, *_: object) -> None:
        if self.outer is None:
            _here.progress = None
        if self.bar is not None:
            self.bar.close()

    def at(self, done: float) -> None:
        """So much is done."""
        self.done = done
        now = time.monotonic()
        if now >= self.due and self.outer is None:
            self.due = now + INTERVAL
            self.quietly(self._shown)()

    def _shown(self) -> None:
        try:
            if self.bar is None:
                self.bar = _bar(self.text, self.unit, self.total)
            if self.bar is None:
                self.due = float("inf")
                return
            if self.total is not None:
                self.bar.total = max(self.bar.total, self.done)
            self.bar.n = self.done
            self.bar.refresh()
        except Exception as error:  # the work goes on
            let_through(error)
            self.due = float("inf")


def step() -> None:
    """One step of the work under way in this thread."""
    progress = _here.progress
    if progress is not None:
        progress.done += 1
        if not progress.done & 3:  # the time isn't asked each time
            progress.at(progress.done)


def _bar(text: str, unit: str, total: Callable[[], float] | None) -> Any:
    """A bar; None where none is wanted, or tqdm isn't installed."""
    in_notebook = "ipykernel" in sys.modules
    asked = os.environ.get("TAPEGRAD_PROGRESS", "")
    if asked == "0" or not (asked or in_notebook or (sys.stderr and sys.stderr.isatty())):
        return None
    has_widgets = in_notebook and importlib.util.find_spec("ipywidgets") is not None
    try:
        tqdm: Any = importlib.import_module("tqdm.auto" if has_widgets else "tqdm").tqdm
    except ImportError:
        return None
    form = "{desc}: {n:.0f}{unit} [{elapsed}]"
    if total is not None:
        form = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f} of about {total:.0f}{unit}"
    bar: Any = type("Bar", (tqdm,), {"monitor_interval": 0})  # no thread of its own
    end = None if total is None else total()
    return bar(total=end, desc=text, unit=unit, leave=False, bar_format=form)
