"""Machine code as text, by Capstone: what the processor runs of each kernel."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MAX_LINES = 4_000  # lines of one kernel
TABLE = {"x86_64": ("X86", "64"), "amd64": ("X86", "64"), "aarch64": ("ARM64", "ARM")}


class Listing(NamedTuple):
    """The instructions of a kernel, each a line, and how many more there are."""

    name: str
    nbytes: int
    lines: list[str]
    further: int


def listings(kernels: Mapping[str, bytes]) -> list[Listing]:
    """Those of object files. Raises ImportError where Capstone isn't installed."""
    processor = _processor()
    return [] if processor is None else [_listing(processor, *x) for x in kernels.items()]


def _processor() -> Any:
    import capstone

    known = TABLE.get(platform.machine().lower().replace("arm64", "aarch64"))
    if known is None:
        return None
    architecture, mode = known
    return capstone.Cs(
        getattr(capstone, f"CS_ARCH_{architecture}"), getattr(capstone, f"CS_MODE_{mode}")
    )


def _listing(processor: Any, name: str, code: bytes) -> Listing:
    lines: list[str] = []
    further = nbytes = 0
    for section in _sections(code):
        nbytes += len(section)
        for address, _, word, operands in processor.disasm_lite(section, 0):
            if len(lines) < MAX_LINES:
                lines.append(f"{address:6x}  {word:10} {operands}".rstrip())
            else:
                further += 1
    return Listing(name, nbytes, lines, further)


def _sections(code: bytes) -> Iterator[bytes]:
    """What is run of an object file."""
    from llvmlite import binding

    for section in binding.ObjectFileRef.from_data(code).sections():
        if section.is_text() and section.size():
            yield section.data()
