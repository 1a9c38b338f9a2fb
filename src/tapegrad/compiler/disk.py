"""Files that outlive the process: a folder of the user's own, in which compiled code is kept.

Machine code is run as it is read, so nothing is read that another user could have written: the
folder and its files must belong to this user, and nobody else may write to them. A file is written
under another name and then renamed, and carries a checksum of its name and content. What fails
here (a full disk, a folder that can't be written to, a torn file) is never the caller's error:
code that isn't found is compiled.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator
from typing import NamedTuple

try:  # hashlib's own, without OpenSSL, which hashlib takes milliseconds to load
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

LIMIT = 500  # megabytes; the least recently used files go first
PATIENCE = 60.0  # seconds that a process waits for another one that compiles the same
_MAGIC = b"tapegrad 2 "
_GROUP = re.compile(r"[0-9a-f]{40}")  # a folder of ours: whatever else is there isn't touched
_warned: set[str] = set()
_written: int | None = None  # bytes since the size of the folder was last looked at


def location() -> str | None:
    """The folder, which needn't be there; None if nothing is to be kept, or there is no home."""
    given = os.environ.get("TAPEGRAD_CACHE_DIR")
    if given is not None:
        off = given.strip().lower() in ("", "off")
        return None if off else os.path.abspath(os.path.expanduser(given))
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    return os.path.join(base, "tapegrad") if os.path.isabs(base) else None


def read(name: str) -> bytes | None:
    """The content that was written under this name, or None."""
    folder = _trusted(location())
    if folder is None:
        return None
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            if _mistrust(os.fstat(file.fileno())):
                return None
            head, _, content = file.read().partition(b"\n")
        if head != _head(name, content):
            return None
    except OSError:
        return None
    with contextlib.suppress(OSError):  # the folder may be there to be read only
        os.utime(path)  # it was used
    return content


def has_any(group: str) -> bool:
    """Whether something may be kept under a name that starts with `group/`."""
    folder = location()
    return folder is not None and os.path.isdir(os.path.join(folder, group))


def write(name: str, content: bytes) -> None:
    """Keep the content under a name of the form `group/file`, if that is possible."""
    import tempfile

    folder = _trusted(location(), make=True)
    if folder is None:
        return
    path = os.path.join(folder, name)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_head(name, content) + b"\n" + content)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _trim(folder, len(content))
    except OSError:
        return


def _head(name: str, content: bytes) -> bytes:
    return _MAGIC + digest(name.encode(), b"\n", content).encode()


def digest(*parts: bytes) -> str:
    """40 letters that stand for these bytes, one part after the other, and for no others."""
    seen = blake2b(digest_size=20)
    for part in parts:
        seen.update(part)
    return seen.hexdigest()


# ---- whom to trust


def _trusted(folder: str | None, make: bool = False) -> str | None:
    """The folder, if it is there (or can be made) and only this user could have written to it."""
    if folder is None:
        return None
    try:
        if make:
            os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        fault = _mistrust(os.stat(folder))
    except FileNotFoundError:
        return None
    except OSError as error:
        if "TAPEGRAD_CACHE_DIR" in os.environ:  # asked for, so the user wants to know
            _warn(
                f"the folder {folder}, which TAPEGRAD_CACHE_DIR names, can't be used: "
                f"{error.strerror}. Compiled code isn't kept"
            )
        return None
    if fault:
        _warn(
            f"the cache folder {folder} {fault}, so what is in it can't be trusted, and compiled "
            "code isn't kept. Make it yours alone (chmod go-w), or set TAPEGRAD_CACHE_DIR to "
            'another folder, or to "off"'
        )
        return None
    return folder


def _mistrust(found: os.stat_result) -> str:
    """Why what was found could be another user's work; empty if it couldn't."""
    if not hasattr(os, "geteuid"):
        return ""  # the folders of a Windows profile are the user's own
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written to by other users"
    return ""


def _warn(message: str) -> None:
    """Say it, once in a process."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)


# ---- its size


class DiskInfo(NamedTuple):
    """The folder (None if nothing is kept), how many files, how many bytes, and the bound."""

    folder: str | None
    files: int
    bytes: int
    limit: int


def limit() -> int:
    """The bound on the folder's size in bytes."""
    given = os.environ.get("TAPEGRAD_CACHE_SIZE", "")
    try:
        return int(float(given or LIMIT) * 1e6)
    except (ValueError, OverflowError):
        _warn(f"TAPEGRAD_CACHE_SIZE is {given!r}, and not a number of megabytes, such as {LIMIT}")
        return int(LIMIT * 1e6)


def info() -> DiskInfo:
    """What is kept now."""
    folder = location()
    sizes = [size for _, size, _ in _files(folder)] if folder else []
    return DiskInfo(folder, len(sizes), sum(sizes), limit())


def clear() -> None:
    """Remove all that is kept, and nothing else that is in the folder."""
    folder = _trusted(location())
    for _, _, path in list(_files(folder)) if folder else []:
        _remove(path)


def _files(folder: str) -> Iterator[tuple[float, int, str]]:
    """When each file was last used, its size and path."""
    try:
        found = [g for g in os.scandir(folder) if _GROUP.fullmatch(g.name)]
        groups = [g.path for g in found if g.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for group in groups:
        try:
            for file in os.scandir(group):
                state = file.stat(follow_symlinks=False)
                yield state.st_mtime, state.st_size, file.path
        except OSError:
            continue  # another process removed it


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
        os.rmdir(os.path.dirname(path))  # unless there is more in it


def _trim(folder: str, written: int) -> None:
    """Remove the least recently used files beyond the bound. It is looked at first, and then
    whenever a tenth of the bound was written."""
    global _written
    bound = limit()
    if _written is not None and _written + written < bound / 10:
        _written += written
        return
    _written = 0
    files = sorted(_files(folder))
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= bound:
            break
        _remove(path)
        total -= size


# ---- one at a time


@contextlib.contextmanager
def claim(name: str | None) -> Iterator[None]:
    """Work on what will be kept under this name while no other process does, if that can be had
    within a minute. The claims are locks on one byte each of one file: they go with their process.
    """
    file = _claims() if name is not None else None
    if file is None or name is None:
        yield
        return
    import fcntl
    import time

    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(name[:7], 16))
                break
            except (BlockingIOError, PermissionError):  # another process has it
                time.sleep(0.02)
            except OSError:  # no locks here
                break
        yield
    finally:
        os.close(file)


def _claims() -> int | None:
    """The file of claims, open; None where there can't be one."""
    folder = _trusted(location(), make=True)
    if folder is None or os.name != "posix":
        return None
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(os.path.join(folder, "claims"), flags, 0o600)
    except OSError:
        return None
