"""Which targets there are."""

from __future__ import annotations

from tapegrad.backends.cpu.target import Cpu
from tapegrad.backends.target import Language, Machine

HOST: Machine = Cpu()  # for which programs are compiled in this process


def language(ending: str) -> Language | None:
    """That of files whose names end so; None if no program is written in one."""
    if ending != ".c":
        return None
    from tapegrad.backends.c.target import C

    return C()
