"""The targets: the one of this process, and the languages."""

from __future__ import annotations

from tapegrad.backends.cpu.target import Cpu
from tapegrad.backends.target import Language, Machine

HOST: Machine = Cpu()  # the target that programs are compiled for in this process


def language(ending: str) -> Language | None:
    """The language of files with this ending; None if no programs are written in it."""
    if ending != ".c":
        return None
    from tapegrad.backends.c.target import C

    return C()
