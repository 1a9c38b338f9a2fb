"""Compiled tapes on disk: another process that traces the same finds the code there."""

from __future__ import annotations

from tapegrad.compiler import disk
from tapegrad.compiler.key import processor_key, program_key
from tapegrad.compiler.packed import Packed


def name_of(packed: Packed) -> str | None:
    """The name under which the code of a tape is kept; None if it isn't."""
    if disk.location() is None:
        return None
    key = program_key(packed)
    return None if key is None else f"{key}/{processor_key()}"


def find(name: str | None) -> bytes | None:
    """The code of the tape with this name, if an earlier process left it."""
    if name is None or not disk.has_any(name.partition("/")[0]):
        return None
    return disk.read(name)


def keep(name: str | None, content: bytes) -> None:
    """Leave the code of the tape with this name for later processes."""
    if name is not None:
        disk.write(name, content)
