"""Progress bars and plots that installed packages show while a program runs.

Like `print` and logging, they report how far a trace is, and no result depends on them: later calls
show nothing. The iterable of a bar is read, and passed on as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dis import opname
from functools import lru_cache
from types import FunctionType
from typing import Any

from tapegrad.core.installed import package_of

_PACKAGES = ("tqdm",)
_PLOTTING = ("matplotlib", "mpl_toolkits", "seaborn")


def plots(f: Any) -> bool:
    """Whether a function or class belongs to a plotting package."""
    known = isinstance(f, (type, FunctionType))
    return known and str(f.__module__).partition(".")[0] in _PLOTTING


def is_bars(file: str) -> bool:
    """Whether a file belongs to a package of progress bars."""
    return os.path.basename(package_of(file)) in _PACKAGES


def is_bar(kind: Any) -> bool:
    """Whether a class is one of such a package, or derives from one."""
    return any(_has_bars(str(c.__module__)) for c in kind.__mro__)


@lru_cache(maxsize=1024)
def _has_bars(name: str) -> bool:
    """Whether a module belongs to such a package."""
    return is_bars(str(getattr(sys.modules.get(name), "__file__", None)))


def is_screen(x: Any) -> bool:
    """Whether `x` is the standard output or error stream."""
    return x is sys.stdout or x is sys.stderr


def tells_time(x: Any, name: str) -> bool:
    """Whether an attribute of a bar may depend on elapsed time."""
    if name in vars(x):
        return type(vars(x)[name]) not in (int, bool, str, type(None)) and name != "iterable"
    return isinstance(getattr(type(x), name, None), property)


def shown(o: Any, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Record that a function of such a package is about to be called."""
    note = o.taken([x for x in (*args, *kwargs.values()) if not is_bar(type(x))])
    unused = o.running is not None and is_unused(o.running.frame)

    def then(result: Any) -> None:
        if note is not None:
            note(result)
        if not (result is None or unused or is_bar(type(result))):
            o.reads.use_once(f.__name__)

    return then


def is_unused(frame: Any) -> bool:
    """Whether the result of the running call is dropped."""
    code = frame.f_code.co_code
    after = [k for k in range(frame.f_lasti + 2, len(code), 2) if opname[code[k]] != "CACHE"]
    return bool(after) and opname[code[after[0]]] == "POP_TOP"
