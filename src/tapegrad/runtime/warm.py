"""Starting numba in the background.

Importing numba and its first compilation take most of a second, once a process. The first played
call starts that in a thread, so that a loop of calls finds numba ready when compiling pays. The
thread is stopped when the interpreter exits, and waited for before a fork.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import threading

_lock = threading.Lock()
_thread: threading.Thread | None = None


def start() -> None:
    """Begin to load numba, unless that has begun."""
    global _thread
    if _thread is not None:
        return
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_load, name="tapegrad-numba", daemon=True)
            atexit.register(_stop)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(before=wait)
            _thread.start()


def wait() -> None:
    """Return when numba is loaded, if that has begun."""
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join()


def _load() -> None:
    """Import the support module, and compile a loop with it: that fills numba's registries. And
    networkx, with which the scheduler cuts."""
    from tapegrad.emit import support
    from tapegrad.runtime.compile import kernel_function

    text = (
        "def first(x, y):\n"
        "    t = 0.0\n"
        "    for i in range(4):\n"
        "        y[i] = exp(-x[i]) / 2.0\n"
        "        t = plus(t, where(y[i] < 1.0, y[i], 0.0))\n"
        "    return int(t)\n"
    )
    names = {**support.namespace(), "__name__": "tapegrad.generated.first"}
    support.compiled(kernel_function(text, "first", names), [("array", (4,), "float64")] * 2)
    importlib.import_module("networkx")


def _stop() -> None:
    """End the thread at its next line of Python, so that nothing runs on while all is torn down."""
    if _thread is not None and _thread.is_alive() and _thread.ident is not None:
        ident = ctypes.c_ulong(_thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        _thread.join(5.0)
