"""Files that outlive the process: the user's own folder of compiled code.

Machine code is run after it is read, so nothing is read that another user could have written. The
folder, the folders in it and the files must belong to this user, nobody else may write to them, and
nobody but root may replace the folder. Trust rests on owners and modes alone. A file is written
under a temporary name and then renamed. It carries a checksum of its name and content, which
detects a torn or damaged file; it is no signature, as anybody can compute it.

A failure here (a full disk, an unwritable folder, a torn file) is never the caller's error: code
that isn't found is compiled.
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
_GROUP = re.compile(r"[0-9a-f]{40}")  # our folders' names: nothing else is touched
# Don't follow links or wait for a FIFO's writer, if the system supports that.
_FLAGS = sum(
    getattr(os, flag, 0)
    for flag in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
_LINKS = 40  # symbolic links on one path, as in Linux
_warned: set[str] = set()
_written: int | None = None  # bytes since the folder's size was last checked


def location() -> str | None:
    """The folder, which may not exist yet. None if nothing is to be kept, or there is no home."""
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
    """An absolute path for one that starts with ~ or ~user, if that home is known."""
    if os.environ.get("HOME") == "":  # Python would take that for the root folder
        return path
    return os.path.expanduser(path)


def _asked_for(given: str) -> str | None:
    """The folder that the user names in TAPEGRAD_CACHE_DIR. An unknown user, or a home that isn't
    an absolute path, never means the current folder."""
    path = _in_home(given) if given.startswith("~") else given
    if given.startswith("~") and not os.path.isabs(path):
        _warn(
            f"TAPEGRAD_CACHE_DIR is {given}, and that home isn't known. Compiled code isn't kept. "
            'Name a folder by its full path, or set it to "off"'
        )
        return None
    try:
        return os.path.abspath(path)
    except OSError:  # the current folder no longer exists
        return None


def read(name: str) -> bytes | None:
    """The content written under this name, or None."""
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
        with contextlib.suppress(OSError):  # the folder may be read-only
            os.utime(file if os.utime in os.supports_fd else path)  # mark it as used
        return content
    except OSError:
        return None
    finally:
        os.close(file)


def _whole(file: int, size: int) -> bytes:
    """The first `size` bytes of a file, which may be growing."""
    parts = []
    while size > 0 and (part := os.read(file, size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def has_any(group: str) -> bool:
    """Whether there may be files whose names start with `group/`."""
    folder = location()
    return folder is not None and os.path.isdir(os.path.join(folder, group))


def is_empty() -> bool:
    """Whether there is no folder."""
    folder = location()
    return folder is None or not os.path.isdir(folder)


def write(name: str, content: bytes) -> None:
    """Keep the content under a name of the form `group/file`, if possible."""
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
    """A hash of these bytes, as 40 hexadecimal digits."""
    seen = blake2b(digest_size=20)
    for part in parts:
        seen.update(part)
    return seen.hexdigest()


# ---- trust


def _trusted(folder: str | None, make: bool = False) -> str | None:
    """The folder, if it exists (or can be made) and only this user could have written to it."""
    if folder is None:
        return None
    asked = "TAPEGRAD_CACHE_DIR" in os.environ  # the user chose it, so failures are reported
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
    if fault and (asked or not above or fault != _FOREIGN):  # with sudo, the home wasn't chosen
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
    """`_followed` for Windows, where the folders of a profile belong to the user."""
    if make:
        os.makedirs(folder, exist_ok=True)
    if not stat.S_ISDIR(os.stat(folder).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    return "", ""


def _followed(folder: str, make: bool) -> tuple[str, str]:
    """The reason why this folder could be another user's work, with the path of a folder above it
    that is at fault; or ("", "").

    The path is followed from the root, name by name and through links. So nothing is made in an
    untrusted folder, such as a home that root has kept from sudo, and new folders are this user's
    alone, whatever the umask.
    """
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
    """The names in a path, last one first."""
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
    """The reason why a user other than root could replace the contents of this folder, or "". If
    the sticky bit is set, as in a temporary folder, only owners can."""
    if found.st_uid not in (0, _user()):
        return _FOREIGN
    if found.st_mode & stat.S_ISVTX:
        return ""
    theirs = found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, _user())
    return _SHARED if theirs or found.st_mode & stat.S_IWOTH else ""


def _user() -> int:
    """This user's id; -1 on Windows, where it isn't used."""
    if sys.platform == "win32":
        return -1
    return os.geteuid()


@cache
def _is_private(group: int, user: int) -> bool:
    """Whether a group is root's, or has one user only. Many systems give each user a group of the
    same name, which may write to the user's files."""
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
    """A folder in the cache folder, if it exists (or can be made) and only this user can write to
    it."""
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
    """The reason why a file or folder could be another user's work, or ""."""
    if sys.platform == "win32":
        return ""  # the folders of a Windows profile are the user's own
    if found.st_uid != _user():
        return _FOREIGN
    return _SHARED if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def _warn(message: str) -> None:
    """Warn once per process. The cache never makes a call fail: if warnings are errors, or can't be
    shown, the text goes to stderr."""
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
    """The folder (None if nothing is kept), the number of files, their bytes, and the bound."""

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
    """What is on disk now."""
    folder = location()
    sizes = [size for _, size, _ in _files(folder)] if folder else []
    return DiskInfo(folder, len(sizes), sum(sizes), limit())


def clear() -> None:
    """Remove all kept files, and nothing else in the folder."""
    folder = _trusted(location())
    for _, _, path in list(_files(folder)) if folder else []:
        _remove(path)


def _files(folder: str) -> Iterator[tuple[float, int, str]]:
    """(time of last use, size, path) of each file. Files that vanish meanwhile were removed by
    another process."""
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
        os.rmdir(os.path.dirname(path))  # unless it has more files


def _trim(folder: str, written: int) -> None:
    """Remove the least recently used files beyond the bound. Checked at the first write, and then
    after writing a tenth of the bound."""
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
    """Warn if the folder can't be used: the processes that write to it may have no way to tell the
    user."""
    _trusted(location())


@contextlib.contextmanager
def claim(name: str | None) -> Iterator[None]:
    """Hold the claim on a name, so that no other process compiles the same, if it can be had within
    a minute.

    A claim is a lock on one byte of a shared file. It ends with the process.
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
            except (BlockingIOError, PermissionError):  # held by another process
                time.sleep(0.02)
            except OSError:  # locks aren't supported
                break
        yield
    finally:
        os.close(file)


def _claims() -> int | None:
    """The open file of claims, or None."""
    folder = _trusted(location(), make=True)
    if folder is None or sys.platform == "win32":
        return None
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(os.path.join(folder, "claims"), flags, 0o600)
    except OSError:
        return None
