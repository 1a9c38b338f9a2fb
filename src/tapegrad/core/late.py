"""Modules that are loaded on first use, in groups.

Importing a module takes a lock, and the child of a fork never gets a lock that another thread of
its parent held: it would wait forever for a module that the thread was importing. So forks wait
until a group is loaded, which takes some hundredths of a second. Other modules of tapegrad that
were being imported are imported anew by the child.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from tapegrad.core.ending import uncut

CALLS = (  # needed by a first call
    "optree",
    "tapegrad.pipeline",
    "tapegrad.runtime.traced",
    "tapegrad.optimize.dce",
    "tapegrad.tracing.runs.floating_errors",
    "tapegrad.tracing.outside.leaks",
    "tapegrad.tracing.frontend",
    "tapegrad.tracing.statements.for_statement",
    "tapegrad.tracing.statements.iterables",
)
BRANCHES = (  # needed by branches that are merged, and by loops that end by a test
    "tapegrad.tracing.branches.merging",
    "tapegrad.tracing.statements.while_statement",
    "tapegrad.tracing.statements.plain_tests",
)
LINEAR_MAPS = ("tapegrad.runtime.pullback",)  # needed by linear maps at a point
NEXT_DOOR = (  # needed to start the worker process, and to look on disk
    "_socket",
    "tapegrad.compiler.client",
    "tapegrad.compiler.code_store",
    "tapegrad.schedule.cost",  # expects the seconds that compiling takes
)
MACHINE_CODE = (  # needed to load and link machine code
    "select",
    "tapegrad.compiler.executable",
    "tapegrad.backends.cpu.layout",
    "tapegrad.backends.cpu.linking",
)
REPETITION = (  # needed for a tape that may be rerolled
    "tapegrad.optimize.reroll",
    "tapegrad.optimize.bodies",
)
HALVES = ("ml_dtypes",)  # needed by bfloat16
FRACTIONS = ("fractions",)  # needed by asymptotic series, and by extrema that may cancel
SERIES = ("tapegrad.differentiate.taylor",)  # needed by Taylor coefficients
COMPILER = (  # needed by the compiler in this process
    "tapegrad.compiler.in_process",
    "tapegrad.backends.source.names",
    "tapegrad.backends.source.emit",
    "tapegrad.backends.cpu.support",
    "tapegrad.schedule.buffers",
)


def is_loading_machine_code() -> bool:
    """Whether the modules for machine code are just being loaded. A signal handler's call in the
    middle of that finds them incomplete."""
    names = (*NEXT_DOOR, *MACHINE_CODE)
    specs = [getattr(sys.modules.get(name), "__spec__", None) for name in names]
    return any(getattr(spec, "_initializing", False) for spec in specs)


def _refuse_sub_interpreters() -> None:
    """Raise an ImportError in a sub-interpreter: optree would hang there."""
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
_loaded: dict[tuple[str, ...], Any] = {}  # group -> its last module


def load(group: tuple[str, ...]) -> Any:
    """Import a group of modules, unless that is done, and return the last one."""
    if group not in _loaded:
        _load(group)
    return _loaded[group] or importlib.import_module(group[-1])


@uncut
def _load(group: tuple[str, ...]) -> None:
    with _loading:
        _refuse_sub_interpreters()
        for name in group:
            with contextlib.suppress(ImportError):  # the module that needs it raises the error
                importlib.import_module(name)
        _loaded[group] = sys.modules.get(group[-1])


@contextlib.contextmanager
def no_forks() -> Iterator[None]:
    """Make forks of other threads wait until this context is left."""
    with _loading:
        yield


def _import_anew() -> None:
    """Forget modules that another thread was importing: in the child of a fork nobody will finish
    them."""
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    own = [name for name in locks if name.partition(".")[0] == "tapegrad"]
    lost = [name for name in own if _owner(locks[name]()) not in (None, threading.get_ident())]
    for name in lost:
        del locks[name]
    if "tapegrad" in lost:  # the package itself was being imported
        lost = [name for name in sys.modules if name.partition(".")[0] == "tapegrad"]
    for name in lost:
        sys.modules.pop(name, None)


def _owner(lock: Any) -> int | None:
    """The thread that holds a module's import lock."""
    return getattr(lock, "owner", None)


def _after_in_child() -> None:
    _loading.release()  # held by the thread that forked, which continues here
    _import_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_after_in_child
    )
