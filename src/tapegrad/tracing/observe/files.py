"""Files that a program reads: by their names, or open ones.

What was read of one follows from what is in it, so its contents are compared from call to call.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import Any

from tapegrad.tracing.observe.harmless import is_file, is_self_contained


def is_read(x: Any) -> bool:
    """Whether this is an open file, or text or bytes that are read as one, which leads to nothing
    but what is in it."""
    while is_file(type(x)):
        inner = getattr(x, "buffer", None) or getattr(x, "raw", None)
        if inner is None:
            return True
        x = inner
    return is_self_contained(type(x))


def is_path(x: Any) -> bool:
    """Whether this is one of Python's own paths, which never change."""
    paths = sys.modules.get("pathlib")
    return paths is not None and type(x) in (paths.PosixPath, paths.WindowsPath)


def only_reads(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a file is opened by its name, and not written to."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    known = args and type(args[0]) is str and type(mode) is str and set(mode) <= {*"rbt"}
    return bool(known) and kwargs.get("opener") is None and len(args) < 8


def contents_of(path: str) -> Any:
    """What tells the contents of a file, if it is an ordinary one and not huge."""
    import hashlib

    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
        return object()  # is like nothing
    with open(path, "rb") as file:
        return hashlib.blake2b(file.read()).digest()


MOST_BYTES = 2**24


def asked_by(frame: Any) -> str:
    """What one of Python's own functions (`exists`, `getsize`) has the system asked for: a name of
    what `os.stat` tells. Empty where somebody else asks."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OF_PATHS):
        name = _OF_STAT.get(frame.f_code.co_name)
        if name is not None:
            return name
        frame = frame.f_back
    return ""


_OF_PATHS = ("genericpath", "pathlib", "posixpath", "ntpath")
_KINDS = ("exists", "isfile", "isdir", "islink", "is_file", "is_dir", "is_symlink", "realpath")
_OF_STAT = {**dict.fromkeys(_KINDS, "st_mode"), "getsize": "st_size", "getmtime": "st_mtime"}


def told_of(name: str, f: Any, *args: Any, **kwargs: Any) -> Any:
    """That of what `os.stat` tells; of the mode only whether it is a file, a folder or something
    else."""
    found = getattr(f(*args, **kwargs), name)
    return stat.S_IFMT(found) if name == "st_mode" else found
