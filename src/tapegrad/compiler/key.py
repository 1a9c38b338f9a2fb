"""The key under which compiled code is kept on disk: everything that the code depends on.

The first part depends on the program: the packed tape without names, lines and comments, and
numba's settings. The second part depends on the processor and on the versions of all code that took
part in compiling. It is separate because computing it reads all sources, which isn't needed if
nothing is kept under the first part.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import struct
import sys
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from tapegrad.backends.host import HOST
from tapegrad.compiler import LOADED as LOADED
from tapegrad.compiler import disk
from tapegrad.compiler.disk import digest
from tapegrad.compiler.packed import Packed, pack
from tapegrad.core.values import Span
from tapegrad.ir.tape import Aval, Literal, Tape
from tapegrad.primitives.base import Elementwise, Parametric, Primitive, Slice
from tapegrad.primitives.control import ForeignCall

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class _Nameless(Exception):
    """Something on the tape has no exact text, so its code couldn't be found again."""


def program_key(packed: Packed) -> str | None:
    """The program's part of the key; None if the code of this tape can't be kept."""
    try:
        content = exact(packed)
    except _Nameless:
        return None
    settings = sorted(x for x in os.environ.items() if x[0].startswith("NUMBA_"))
    return digest(repr(settings).encode(), b"\n", content)


def kernel_key(identity: Any) -> str:
    """The key of a kernel, from its identity in this process."""
    return digest(b"kernel\n", repr(identity).encode())


def compiler_key() -> str | None:
    """The compiler's part of the key; None if code can't be kept."""
    sources = _sources()
    return digest(sources.encode(), HOST.key().encode()) if sources else None


def _paths() -> list[str]:
    """The files of tapegrad's sources."""
    return sorted(file.path for file in _files(PACKAGE))


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    """The Python files in a folder and all folders below it."""
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name.endswith(".py"):
                yield entry
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)


def sources_have_changed(loaded: float) -> bool:
    """Whether tapegrad's sources changed after the time `loaded`, at which another process loaded
    them."""
    try:
        return any(file.stat().st_ctime > loaded for file in _files(PACKAGE))
    except OSError:  # a file is gone
        return True


@cache
def _sources() -> str:
    """A digest of tapegrad's sources, and of the versions of what it uses. Empty if the sources
    can't be read, or were changed since they were loaded.

    Reading all sources takes longer than checking when each was changed. So the digest is kept too,
    under the sizes, times and paths of the files. Any change alters these, once the clock that
    dates files has moved on.
    """
    paths = _paths()
    numba = importlib.util.find_spec("numba")  # finds the package without importing it
    if not paths or numba is None or numba.origin is None:
        return ""
    paths.append(os.path.join(os.path.dirname(numba.origin), "_version.py"))
    versions = (sys.version, sys.implementation.cache_tag, np.__version__, platform.machine())
    rest = repr((versions, sys.platform, struct.calcsize("P"))).encode()
    try:
        found = [os.stat(path) for path in paths]
        last = max(state.st_ctime for state in found)
        if last > LOADED:
            return ""
        states = [(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in found]
        name = f"{_DIGESTS}/{digest(repr([*zip(paths, states, strict=True)]).encode(), rest)}"
        dated = sys.platform != "win32"  # there st_ctime is the time of creation
        known = disk.read(name) if dated else None
        if known is not None:
            return known.decode()
        made = digest(*_contents(paths), rest)
    except (OSError, ValueError):
        return ""
    if dated and time.time() - last > SETTLED:
        disk.write(name, made.encode())
    return made


_DIGESTS = digest(b"digests of sources")
SETTLED = 2.0  # seconds; the resolution of file times is finer


def _contents(paths: list[str]) -> Iterator[bytes]:
    """The names, sizes and contents of the files. Raises a ValueError for a file changed since it
    was loaded."""
    for path in paths:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_ctime > LOADED:
                raise ValueError(path)
            content = file.read()
        yield f"{os.path.basename(path)} {len(content)}\n".encode()
        yield content


# ---- the tape


def exact(packed: Packed) -> bytes:
    """Everything on a tape that its code depends on. Equal bytes mean equal code."""
    # NumPy runs foreign calls between the kernels, so they only need to be told apart.
    calls = [p for p in packed.primitives if isinstance(p, ForeignCall)]
    number: dict[Any, int] = {p: k for k, p in enumerate(calls)}
    names = [
        f"foreign{number[p]}{'!' * p.checks}" if p in number else _name(p)
        for p in packed.primitives
    ]
    literals = map(_value, packed.literals)
    lists = [map(_type, packed.types), names, literals]
    lines = ["\x1f".join(one) for one in lists]
    rest = f"{packed.captured} {packed.ordered} {packed.matrices} {packed.into}"
    return "\n".join([*lines, rest, ""]).encode() + packed.numbers


def _type(aval: Aval) -> str:
    return f"{aval.dtype.str}{list(aval.shape)}{'*' * aval.weak}"


def _name(primitive: Primitive) -> str:
    if isinstance(primitive, Elementwise):
        return str(primitive.name)
    if isinstance(primitive, Parametric):
        kind = type(primitive)
        parameters = [f"{name}={_value(x)}" for name, x in primitive.parameters()]
        return f"{kind.__module__}.{kind.__qualname__}<{','.join(parameters)}>"
    raise _Nameless


def _value(x: Any) -> str:
    """A parameter or literal: floats by their bits, everything with its type."""
    if isinstance(x, Literal):
        return _value(x.value)
    if isinstance(x, np.generic):
        return f"{x.dtype.str}:{x.tobytes().hex()}"
    if type(x) in (bool, int, str, type(None)):
        return repr(x)
    if type(x) is float:
        return f"float:{struct.pack('>d', x).hex()}"
    if isinstance(x, np.dtype):
        return f"dtype:{x.str}"
    if type(x) is tuple:
        return f"({','.join(map(_value, x))})"
    if isinstance(x, (Slice, Span)):
        return str(x)
    if isinstance(x, Tape):
        return f"tape[{exact(pack(x)).hex()}]"
    raise _Nameless
