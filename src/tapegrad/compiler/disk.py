"""Files that outlive the process: a folder of the user's own, in which compiled code is kept.

Machine code is run as it is read, so nothing is read that another user could have written: the
folder, the folders in it and the files must belong to this user, nobody else may write to them, and
nobody but root may put another folder in their place. Owners and modes are all that trust rests on.
A file is written under another name and then renamed, and carries a checksum of its name and
content, by which a torn or damaged file is known; it is no signature, as anybody can compute it.

What fails here (a full disk, a folder that can't be written to, a torn file) is never the caller's
error: code that isn't found is compiled.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

try:  # hashlib's own, without OpenSSL, which hashlib takes milliseconds to load
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

LIMIT = 500  # megabytes; the least recently used files go first
PATIENCE = 60.0  # seconds that a process waits for another one that compiles the same
_MAGIC = b"tapegrad 2 "
_GROUP = re.compile(r"[0-9a-f]{40}")  # a folder of ours: whatever else is there isn't touched
# Neither follow a link nor wait for somebody to write to a FIFO, where the system can be told so.
_FLAGS = sum(
    getattr(os, flag, 0)
    for flag in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
_LINKS = 40  # symbolic links on one path: as many as Linux follows
_warned: set[str] = set()
_written: int | None = None  # bytes since the size of the folder was last looked at


def location() -> str | None:
    """The folder, which needn't be there; None if nothing is to be kept, or there is no home."""
    given = os.environ.get("TAPEGRAD_CACHE_DIR")
    if given is not None:
        return None if given.strip().lower() in ("", "off") else _asked_for(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = _in_home("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        base = base if os.path.isabs(base) else _in_home("~/.cache")
    return os.path.join(base, "tapegrad") if os.path.isabs(base) else None


def _in_home(path: str) -> str:
    """A path that starts with ~, or with ~ and a user's name: absolute, if that home is known."""
    if os.environ.get("HOME") == "":  # which Python would take for the root of all files
        return path
    return os.path.expanduser(path)


def _asked_for(given: str) -> str | None:
    """The folder that the user names. Neither a user who isn't known nor a home that isn't a path
    from the root stands for a folder where the process happens to be."""
    path = _in_home(given) if given.startswith("~") else given
    if given.startswith("~") and not os.path.isabs(path):
        _warn(
            f"TAPEGRAD_CACHE_DIR is {given}, and that home isn't known. Compiled code isn't kept. "
            'Name a folder by its full path, or set it to "off"'
        )
        return None
    try:
        return os.path.abspath(path)
    except OSError:  # the folder that it starts from isn't there anymore
        return None


def read(name: str) -> bytes | None:
    """The content that was written under this name, or None."""
    folder = _trusted(location())
    group = folder and _trusted_group(os.path.join(folder, os.path.dirname(name)))
    if not group:
        return None
    path = os.path.join(group, os.path.basename(name))
    try:
        file = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or _mistrust(found) or found.st_size > limit():
            return None
        head, _, content = _whole(file, found.st_size).partition(b"\n")
        if head != _head(name, content):
            return None
        with contextlib.suppress(OSError):  # the folder may be there to be read only
            os.utime(file if os.utime in os.supports_fd else path)  # it was used
        return content
    except OSError:
        return None
    finally:
        os.close(file)


def _whole(file: int, size: int) -> bytes:
    """As much of a file as its size says: one that goes on growing has no end."""
    parts = []
    while size > 0 and (part := os.read(file, size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def has_any(group: str) -> bool:
    """Whether something may be kept under a name that starts with `group/`."""
    folder = location()
    return folder is not None and os.path.isdir(os.path.join(folder, group))


def is_empty() -> bool:
    """Whether nothing can be found."""
    folder = location()
    return folder is None or not os.path.isdir(folder)


def write(name: str, content: bytes) -> None:
    """Keep the content under a name of the form `group/file`, if that is possible."""
    import tempfile

    folder = _trusted(location(), make=True)
    if folder is None or len(content) > limit():
        return
    try:
        group = _trusted_group(os.path.join(folder, os.path.dirname(name)), make=True)
        if group is None:
            return
        handle, temporary = tempfile.mkstemp(dir=group)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_head(name, content) + b"\n" + content)
            os.replace(temporary, os.path.join(group, os.path.basename(name)))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _trim(folder, len(content))
    except (OSError, ValueError):
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
    asked = "TAPEGRAD_CACHE_DIR" in os.environ  # then the user wants to know
    try:
        path, fault = _followed(folder, make) if sys.platform != "win32" else _there(folder, make)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        if asked:
            _warn(
                f"the folder {folder}, which TAPEGRAD_CACHE_DIR names, can't be used: "
                f"{getattr(error, 'strerror', None) or error}. Compiled code isn't kept"
            )
        return None
    above = path != ""
    if fault and (asked or not above or fault != _FOREIGN):  # who runs sudo didn't choose this home
        what = (
            f"the folder {path}, above the cache folder {folder},"
            if above
            else (f"the cache folder {folder}")
        )
        _warn(
            f"{what} {fault}, so what is in it can't be trusted, and compiled "
            "code isn't kept. Make it yours alone (chmod go-w), or set TAPEGRAD_CACHE_DIR to "
            'another folder, or to "off"'
        )
    return None if fault else folder


_FOREIGN = "belongs to another user"
_SHARED = "can be written to by other users"


def _there(folder: str, make: bool) -> tuple[str, str]:
    """As `_followed`, on Windows: the folders of a profile are the user's own."""
    if make:
        os.makedirs(folder, exist_ok=True)
    if not stat.S_ISDIR(os.stat(folder).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    return "", ""


def _followed(folder: str, make: bool) -> tuple[str, str]:
    """Why this folder could be another user's work, and the path of one above it if that is at
    fault; or nothing. It is followed from the root, one name after the other and through links. So
    nothing is made in a folder that isn't trusted, such as a home that root has kept from sudo, and
    what is made is this user's alone, whatever the umask."""
    at, names, links = os.sep, _names(folder), 0
    found = os.lstat(at)
    while names:
        if fault := _replaceable(found):
            return at, fault
        name = names.pop()
        path = os.path.dirname(at) if name == os.pardir else os.path.join(at, name)
        found = _looked_at(path, make)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)
            if found.st_uid not in (0, _user()):
                return path, _FOREIGN
            target = os.readlink(path)
            names += _names(target)
            at = os.sep if os.path.isabs(target) else at
            found = os.lstat(at)
        else:
            at = path
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    return "", _mistrust(found)


def _names(path: str) -> list[str]:
    """The names that a path is made of, the last one first."""
    return [name for name in reversed(path.split(os.sep)) if name not in ("", os.curdir)]


def _looked_at(path: str, make: bool) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):  # another process was faster
        os.mkdir(path, 0o700)
    return os.lstat(path)


def _replaceable(found: os.stat_result) -> str:
    """Why another user than root could put something else in the place of what is in this folder;
    empty if nobody could. In a temporary folder, whose sticky bit is set, only owners can."""
    if found.st_uid not in (0, _user()):
        return _FOREIGN
    if found.st_mode & stat.S_ISVTX:
        return ""
    theirs = found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, _user())
    return _SHARED if theirs or found.st_mode & stat.S_IWOTH else ""


def _user() -> int:
    """This user's number; on Windows, where nobody asks for it, none."""
    if sys.platform == "win32":
        return -1
    return os.geteuid()


@cache
def _is_private(group: int, user: int) -> bool:
    """Whether a group is root's, or that of one user alone: many systems give each user a group of
    the same name, and let it write to what that user makes."""
    if sys.platform == "win32":
        return True
    import grp
    import pwd

    try:
        who, members = pwd.getpwuid(user), grp.getgrgid(group)
    except (KeyError, OSError):
        return group == 0
    own = (members.gr_gid, members.gr_name) == (who.pw_gid, who.pw_name)
    return group == 0 or (own and set(members.gr_mem) <= {who.pw_name})


def _trusted_group(path: str, make: bool = False) -> str | None:
    """A folder in the cache folder, if it is there (or can be made) and this user's alone."""
    try:
        found = _looked_at(path, make)
    except (OSError, ValueError):
        return None
    if not stat.S_ISDIR(found.st_mode):
        return None
    if fault := _mistrust(found):
        _warn(
            f"the folder {path} {fault}, so the compiled code in it isn't used. Remove it, or make "
            "it yours alone (chmod go-w)"
        )
    return None if fault else path


def _mistrust(found: os.stat_result) -> str:
    """Why what was found could be another user's work; empty if it couldn't."""
    if sys.platform == "win32":
        return ""  # the folders of a Windows profile are the user's own
    if found.st_uid != _user():
        return _FOREIGN
    return _SHARED if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def _warn(message: str) -> None:
    """Say it, once in a process. The cache is never a reason for a call to fail: where warnings are
    errors, or can't be shown, it goes to stderr."""
    if message in _warned:
        return
    _warned.add(message)
    text = message.encode("utf-8", "backslashreplace").decode()  # paths may hold any bytes
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except Exception:
        with contextlib.suppress(Exception):
            print(f"RuntimeWarning: {text}", file=sys.stderr)


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
        return max(int(float(given or LIMIT) * 1e6), 0)
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
    """When each file was last used, its size and path. What vanishes meanwhile, another process
    has removed."""
    for group in _entries(folder):
        if _GROUP.fullmatch(group.name) and _is_folder(group):
            for file in _entries(group.path):
                with contextlib.suppress(OSError):
                    state = file.stat(follow_symlinks=False)
                    if not stat.S_ISDIR(state.st_mode):
                        yield state.st_mtime, state.st_size, file.path


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return entry.is_dir(follow_symlinks=False)
    return False


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


def look() -> None:
    """Warn if the folder can't be used: those who write to it may have nobody to tell."""
    _trusted(location())


@contextlib.contextmanager
def claim(name: str | None) -> Iterator[None]:
    """Work on what will be kept under this name while no other process does, if that can be had
    within a minute. The claims are locks on one byte each of one file: they go with their process.
    """
    file = _claims() if name is not None else None
    if file is None or name is None or sys.platform == "win32":
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
    if folder is None or sys.platform == "win32":
        return None
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(os.path.join(folder, "claims"), flags, 0o600)
    except OSError:
        return None
