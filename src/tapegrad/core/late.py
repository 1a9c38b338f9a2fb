"""Modules that are loaded when they are first needed, each group of them at once.

Whoever imports a module holds a lock, and the child of a fork never gets the locks of its parent's
other threads: it would wait for ever for a module that one of them was importing. So forks wait
until a group has been loaded, which takes some hundredths of a second. What else of tapegrad's was
just being imported, the child imports anew.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

CALLS = (  # what a first call takes
    "optree",
    "tapegrad.pipeline",
    "tapegrad.runtime.traced",
    "tapegrad.optimize.dce",
    "tapegrad.tracing.runs.floating",
    "tapegrad.tracing.outside.leaks",
    "tapegrad.tracing.frontend",
    "tapegrad.tracing.statements.counted",
    "tapegrad.tracing.statements.entered",
)
BRANCHES = (  # what branches take that go both ways, and loops that tests end
    "tapegrad.tracing.branches.merging",
    "tapegrad.tracing.statements.turning",
    "tapegrad.tracing.statements.plain_tests",
)
LINEAR_MAPS = ("tapegrad.runtime.pullback",)  # what linear maps at a point take
NEXT_DOOR = (  # what starts the compiler next door, and asks the disk
    "_socket",
    "tapegrad.compiler.client",
    "tapegrad.compiler.kept",
)
MACHINE_CODE = (  # what machine code takes, on disk or as it comes, and what links it
    "select",
    "tapegrad.compiler.executable",
    "tapegrad.backends.cpu.layout",
    "tapegrad.backends.cpu.linking",
)
REPETITION = (  # what a tape takes that may repeat itself
    "tapegrad.optimize.reroll",
    "tapegrad.optimize.bodies",
)
HALVES = ("ml_dtypes",)  # what bfloat16 takes
FRACTIONS = ("fractions",)  # what the coefficients of asymptotic series take
SERIES = ("tapegrad.differentiate.taylor",)  # what Taylor coefficients take
COMPILER = (  # what a compiler in this process takes
    "tapegrad.compiler.inside",
    "tapegrad.backends.source.names",
    "tapegrad.backends.source.emit",
    "tapegrad.backends.cpu.support",
    "tapegrad.schedule.buffers",
)


def is_loading_machine_code() -> bool:
    """Whether what machine code takes is just being loaded: where a handler calls in the middle of
    that, it isn't whole."""
    names = (*NEXT_DOOR, *MACHINE_CODE)
    specs = [getattr(sys.modules.get(name), "__spec__", None) for name in names]
    return any(getattr(spec, "_initializing", False) for spec in specs)


def _refuse_sub_interpreters() -> None:
    """An ImportError in an interpreter that isn't the process's first: optree would hang there."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # Python 3.13, and before
        try:
            known: Any = importlib.import_module(name)
            first = known.get_current() == known.get_main()
        except (ImportError, AttributeError):
            continue
        if not first:
            raise ImportError(
                "tapegrad doesn't run in a sub-interpreter: optree, by which it takes arguments "
                "apart, can't be loaded there. Use threads or processes"
            )


_loading = threading.RLock()
_loaded: dict[tuple[str, ...], Any] = {}  # the last module of each group


def load(group: tuple[str, ...]) -> Any:
    """Import these modules, unless that has been done; the last one is returned."""
    if group not in _loaded:
        with _loading:
            _refuse_sub_interpreters()
            for name in group:
                with contextlib.suppress(ImportError):  # who needs it will say so
                    importlib.import_module(name)
            _loaded[group] = sys.modules.get(group[-1])
    return _loaded[group] or importlib.import_module(group[-1])


@contextlib.contextmanager
def no_forks() -> Iterator[None]:
    """Forks of other threads wait until this has been left."""
    with _loading:
        yield


def _import_anew() -> None:
    """Forget what another thread was importing: in the child of a fork, nobody will finish it."""
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    own = [name for name in locks if name.partition(".")[0] == "tapegrad"]
    lost = [name for name in own if _owner(locks[name]()) not in (None, threading.get_ident())]
    for name in lost:
        del locks[name]
    if "tapegrad" in lost:  # the whole was just being imported
        lost = [name for name in sys.modules if name.partition(".")[0] == "tapegrad"]
    for name in lost:
        sys.modules.pop(name, None)


def _owner(lock: Any) -> int | None:
    """The thread that imports a module."""
    return getattr(lock, "owner", None)


def _after_in_child() -> None:
    _loading.release()  # the thread that forked has it, and goes on here
    _import_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_after_in_child
    )
