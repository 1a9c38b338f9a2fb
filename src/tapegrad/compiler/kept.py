"""Compiled tapes on disk: another process that traces the same finds the code there."""

from __future__ import annotations

from tapegrad.compiler import disk
from tapegrad.compiler.key import processor_key


def find(key: str | None) -> bytes | None:
    """The code of the tape with this key, if an earlier process left it."""
    if key is None or disk.location() is None or not disk.has_any(key):
        return None
    return disk.read(f"{key}/{processor_key()}")


def keep(key: str | None, content: bytes) -> None:
    """Leave the code of the tape with this key for later processes."""
    if key is not None and disk.location() is not None:
        disk.write(f"{key}/{processor_key()}", content)
