"""What a function may read that is nobody's value: the clock, files, the environment.

Nothing there can be compared from call to call, so a function whose code says one of these is
traced at each call.
"""

from __future__ import annotations

import builtins
import datetime
import dis
import inspect
import io
import os
import sys
import time
import types
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

import numpy as np

_CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_READERS: list[tuple[Any, tuple[str, ...]]] = [
    (builtins, ("open", "input", "eval", "exec", "globals")),
    (io, ("open",)),
    (os, ("environ", "getenv", "environb", "urandom", "listdir", "getcwd", "stat")),
    (os.path, ("exists", "isfile", "getmtime", "getsize")),
    (time, (*_CLOCKS, *[f"{name}_ns" for name in _CLOCKS], "localtime", "gmtime", "ctime")),
    (datetime.datetime, ("now", "utcnow", "today")),
    (datetime.date, ("today",)),
    (np, ("load", "loadtxt", "genfromtxt", "fromfile")),
    (np, ("geterr", "geterrcall", "seterr", "seterrcall")),  # of the caller's as well
]
# Of pathlib.Path. It takes milliseconds to load, and who has a path has loaded it.
_PATH_READERS = (
    *("open", "read_text", "read_bytes", "exists", "stat"),
    *("is_file", "is_dir", "iterdir", "glob", "rglob", "cwd", "home"),
)
_NAMED = {"read_text", "read_bytes"}  # which nothing else is called


def read_by(f: types.FunctionType, codes: Iterable[types.CodeType]) -> str:
    """The name of something outside that a function reads, whose code is `codes`; or nothing."""
    codes = list(codes)
    chains = [chain for code in codes for chain in _chains(code)]
    found = next(filter(None, (_read(f, chain) for chain in chains)), "")
    said = {name for code in codes for name in code.co_names}
    if not found and not said.isdisjoint(_PATH_READERS):  # perhaps of a path that is made here
        found = next(filter(None, (_path_class(f, chain) for chain in chains)), "")
    return found


def _path_class(f: types.FunctionType, chain: tuple[str, ...]) -> str:
    """The name that a chain has for pathlib.Path, if it is that."""
    path = getattr(sys.modules.get("pathlib"), "Path", None)
    x = _looked_up(f, chain[0])
    for name in chain[1:]:
        if x is path:
            break
        x = inspect.getattr_static(x, name, None)
    return ".".join(chain) if path is not None and x is path else ""


def _read(f: types.FunctionType, chain: tuple[str, ...]) -> str:
    """What a name and its attributes, `("np", "load")`, stand for, if it reads from outside."""
    if not _NAMED.isdisjoint(chain):
        return chain[-1]
    x = _looked_up(f, chain[0])
    for k, name in enumerate(chain):
        if k:
            x = inspect.getattr_static(x, name, None)
        if x is None:
            return ""
        if _reads(x):
            return ".".join(chain[: k + 1])
    return ""


def _reads(x: Any) -> bool:
    """Whether this is one of the functions that read something outside."""
    path = getattr(sys.modules.get("pathlib"), "Path", None)
    return id(x) in _ids(None) or (path is not None and id(x) in _ids(path))


@cache
def _ids(path: type | None) -> frozenset[int]:
    """Of the functions that read, or of a path's methods that do; none is ever freed."""
    readers = _READERS if path is None else [(path, _PATH_READERS)]
    found = (inspect.getattr_static(x, name, None) for x, names in readers for name in names)
    return frozenset(id(f) for f in found if f is not None)


def _looked_up(f: types.FunctionType, name: str) -> Any:
    """What a name stands for in a function's code: the first of what it may."""
    for known, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        if known == name:
            try:
                return cell.cell_contents
            except ValueError:
                return None
    if name in f.__globals__:
        return f.__globals__[name]
    if hasattr(builtins, name):
        return getattr(builtins, name)
    return sys.modules.get(name)  # which the function itself has imported


@lru_cache(maxsize=4096)
def _chains(code: types.CodeType) -> list[tuple[str, ...]]:
    """The names with attributes, `np.load`, that a code object says."""
    chains: list[tuple[str, ...]] = []
    before = ""
    for i in dis.get_instructions(code):
        if i.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if before and chains:
                chains[-1] = (*chains[-1], i.argval)
            else:
                chains.append(("", i.argval))
        elif (
            i.opname.startswith("LOAD_") and isinstance(i.argval, str) and i.opname != "LOAD_CONST"
        ):
            chains.append((i.argval,))
        elif i.opname not in ("CACHE", "EXTENDED_ARG", "PUSH_NULL"):
            before = ""
            continue
        before = i.opname
    return chains
