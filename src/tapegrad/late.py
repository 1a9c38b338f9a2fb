"""Modules that are loaded when they are first needed, each group of them at once.

Whoever imports a module holds a lock, and the child of a fork never gets the locks of its parent's
other threads: it would wait for ever for a module that one of them was importing. So forks wait
until this has been done, which takes some hundredths of a second.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading

CALLS = (  # what a first call takes
    *("optree", "tapegrad.pipeline", "tapegrad.optimize.dce", "tapegrad.tracing.floating"),
    *("tapegrad.tracing.leaks", "tapegrad.tracing.frontend", "tapegrad.tracing.frontend.making"),
    *("tapegrad.tracing.frontend.methods", "tapegrad.tracing.frontend.folding"),
    *("tapegrad.tracing.frontend.ufuncs", "tapegrad.tracing.frontend.scattering"),
    *(
        "tapegrad.tracing.frontend.linalg",
        "tapegrad.tracing.frontend.contracting",
        "tapegrad.ir.verify",
    ),
)
MACHINE_CODE = (  # what machine code takes: its compiler's other side, and what links it
    *("tapegrad.compiler.client", "tapegrad.compiler.kept", "tapegrad.compiler.executable"),
    *("socket", "select", "tapegrad.emit.layout", "tapegrad.emit.linking"),
)
_loading = threading.RLock()
_loaded: set[tuple[str, ...]] = set()


def load(group: tuple[str, ...]) -> None:
    """Import these modules, unless that has been done."""
    if group in _loaded:
        return
    with _loading:
        for name in group:
            with contextlib.suppress(ImportError):  # who needs it will say so
                importlib.import_module(name)
        _loaded.add(group)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_loading.acquire,
        after_in_parent=_loading.release,
        after_in_child=_loading.release,  # the thread that forked has it, and goes on there
    )
