"""Files that a program reads, by name or as open files.

What was read depends on the file's contents, so these are compared from call to call.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import Any

from tapegrad.core.named import own_attribute
from tapegrad.observe.objects.progress_bars import is_screen, is_unused
from tapegrad.observe.objects.purity import is_file, is_self_contained


def is_read(x: Any) -> bool:
    """Whether `x` is an open file, or text or bytes in memory that are read as one, whose reads
    depend on its contents alone."""
    while is_file(type(x)):
        inner = getattr(x, "buffer", None) or getattr(x, "raw", None)
        if inner is None:
            return True
        x = inner
    return is_self_contained(type(x))


def is_path(x: Any) -> bool:
    """Whether `x` is one of `pathlib`'s own paths, which are immutable."""
    paths = sys.modules.get("pathlib")
    return paths is not None and type(x) in (paths.PosixPath, paths.WindowsPath)


def only_reads(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a file is opened by its name for reading only."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    known = args and type(args[0]) is str and type(mode) is str and set(mode) <= {*"rbt"}
    return bool(known) and kwargs.get("opener") is None and len(args) < 8


def writes(f: Any, args: Sequence[Any], kwargs: dict[str, Any], frame: Any) -> bool:
    """Whether a call changes files, folders or the environment. Such a call opens a file for
    writing, is one of Python's functions for it, writes to an open file, or has a name like `save`,
    is passed a file's name, and its result is unused in `frame`:

        open(name, "w"), h5py.File(name, "w"), os.mkdir(name), path.touch(), log.write(text)
        np.save(name, x), table.to_csv(name), figure.savefig(name)
    """
    name, module = own_attribute(f, "__name__", ""), str(own_attribute(f, "__module__", ""))
    x = args[0] if args else None
    if name == "open" or (isinstance(f, type) and (is_path(x) or _is_name(x))):
        mode = kwargs.get("mode", args[1] if len(args) > 1 else "r")
        known = type(mode) is str and {*mode} <= {*"rwaxbt+-"}
        return known and not {*mode} <= {*"rbt"}
    if module in _CHANGING:
        return name in _CHANGING[module]
    if is_path(x) and name in _CHANGING["pathlib"]:
        return True
    if f is print:
        return is_file(type(kwargs.get("file"))) and not is_screen(kwargs["file"])
    if is_file(type(x)):
        return name in ("write", "writelines", "flush") and not is_screen(x)
    if not name.startswith(_WRITING):
        return False
    named = any(is_path(x) or _is_name(x) or is_file(type(x)) for x in (*args, *kwargs.values()))
    return named and is_unused(frame)


def may_write(name: str) -> bool:
    """Whether `writes` may be true for a function of this name."""
    known = name in ("open", "print", "flush") or name[:1].isupper() or name.startswith(_WRITING)
    return known or any(name in names for names in _CHANGING.values())


def may_tell(f: Any, calls: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether a function that is passed these values may read what `calls` of this run have
    written. Functions of the system don't read a file's contents, except `open`."""
    module, name = own_attribute(f, "__module__", ""), own_attribute(f, "__name__", "")
    return (module not in ("posix", "nt") or name == "open") and are_changed(calls, values)


def are_changed(calls: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether one of these values names a file or folder that `calls` of this run have changed, or
    a folder that contains such a file."""
    asked = list(filter(None, map(path_of, values)))
    for call in calls if asked else ():
        made = getattr(call.f, "__name__", "") in ("mkdir", "makedirs")
        for path in filter(None, map(path_of, (*call.args, *call.kwargs.values()))):
            for other in asked:
                if (path + os.sep).startswith(other + os.sep) or _is_same(path, other):
                    return True
                if not made and other.startswith((path + os.sep, path + ".")):
                    return True  # np.save("a", x) writes a.npy
    return False


def path_of(x: Any) -> str | None:
    """The path that a value names, with links resolved; for an open file, its path."""
    x = getattr(x, "name", None) if is_file(type(x)) else x
    if not (type(x) in (str, bytes) or is_path(x)):
        return None
    path = os.fsdecode(x)
    if len(path) > MOST_LETTERS or "\0" in path or not any(map(str.isalnum, path)):
        return None  # an ordinary text: "" would be the current folder
    return os.path.realpath(path)


def _is_same(path: str, other: str) -> bool:
    """Whether two paths name the same file."""
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def _is_name(x: Any) -> bool:
    """Whether a text looks like the name of a file."""
    return type(x) is str and "\n" not in x and (os.sep in x or os.path.splitext(x)[1] != "")


_OF_SYSTEM = """
    makedirs mkdir putenv remove removedirs rename renames replace rmdir symlink truncate unlink
    unsetenv utime
"""
_OF_TREES = "copy copy2 copyfile copytree move rmtree"
_OF_PATHLIB = "mkdir rename replace rmdir touch unlink write_bytes write_text"
_CHANGING = {
    **dict.fromkeys(["os", "posix", "nt"], frozenset(_OF_SYSTEM.split())),
    "shutil": frozenset(_OF_TREES.split()),
    "pathlib": frozenset(_OF_PATHLIB.split()),
}
_WRITING = ("dump", "export", "imsave", "imwrite", "save", "to_", "tofile", "write")


def contents_of(path: str) -> Any:
    """A hash of a file's contents. For a file that isn't ordinary, or is huge, an object that
    equals nothing."""
    import hashlib

    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
        return object()  # equals nothing
    with open(path, "rb") as file:
        return hashlib.blake2b(file.read()).digest()


MOST_BYTES = 2**24
MOST_LETTERS = 4096  # of a path


def asked_by(frame: Any) -> str:
    """The field of `os.stat` that one of Python's functions (`exists`, `getsize`) reads. Empty for
    other callers."""
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
    """This field of an `os.stat` result. Of the mode, only whether it is a file, a folder or
    something else."""
    found = getattr(f(*args, **kwargs), name)
    return stat.S_IFMT(found) if name == "st_mode" else found
