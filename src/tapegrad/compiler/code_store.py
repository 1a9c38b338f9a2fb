"""Compiled tapes on disk, where another process that traces the same finds the code."""

from __future__ import annotations

from tapegrad.compiler import disk
from tapegrad.compiler.key import compiler_key, program_key
from tapegrad.compiler.packed import Packed


def key_of(packed: Packed) -> str | None:
    """The key under which the code of a tape is kept, or None if it isn't."""
    return None if disk.location() is None else program_key(packed)


def named(key: str | None) -> str | None:
    """The file name for a key, for this compiler's code; None if it isn't kept. Computing it reads
    all sources."""
    rest = None if key is None else compiler_key()
    return None if rest is None else f"{key}/{rest}"


def find(name: str | None) -> bytes | None:
    """The code of the tape with this name, if an earlier process kept it."""
    if name is None or not disk.has_any(name.partition("/")[0]):
        return None
    return disk.read(name)


def keep(name: str | None, content: bytes) -> None:
    """Keep the code of the tape with this name for later processes."""
    if name is not None:
        disk.write(name, content)
