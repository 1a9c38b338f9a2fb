"""Machine code of the kernels as text, by Capstone."""

from __future__ import annotations

import platform
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tapegrad.insight.explorer.numbers import table

MAX_LINES = 4_000  # limit of one kernel's lines
TABLE = {"x86_64": ("X86", "64"), "amd64": ("X86", "64"), "aarch64": ("ARM64", "ARM")}


class Listing(NamedTuple):
    """The instructions of a kernel.

    Each is a line with the number of its line in the source, 0 if unknown. `further` counts the
    omitted lines; `is_another` says that this code differs from the code that serves calls.
    """

    name: str
    nbytes: int
    lines: list[tuple[str, int]]
    further: int
    is_another: bool = False


def listings(kernels: Mapping[str, bytes], lined: Mapping[str, bytes]) -> list[Listing]:
    """The listings of object files.

    `lined` has some of them compiled once more, with line numbers of their sources. Raises
    ImportError if Capstone isn't installed.
    """
    processor = _processor()
    return (
        []
        if processor is None
        else [
            _listing(processor, name, code, lined.get(name, b"")) for name, code in kernels.items()
        ]
    )


def _processor() -> Any:
    import capstone

    known = TABLE.get(platform.machine().lower().replace("arm64", "aarch64"))
    if known is None:
        return None
    architecture, mode = known
    return capstone.Cs(
        getattr(capstone, f"CS_ARCH_{architecture}"), getattr(capstone, f"CS_MODE_{mode}")
    )


def _listing(processor: Any, name: str, code: bytes, lined: bytes) -> Listing:
    shown = [*_sections(lined or code)]
    rows = table(lined) if lined and len(shown) == 1 else []
    starts = [row.address for row in rows]
    lines: list[tuple[str, int]] = []
    further = 0
    for section in shown:
        for address, _, word, operands in processor.disasm_lite(section, 0):
            if len(lines) < MAX_LINES:
                k = bisect_right(starts, address)
                text = f"{address:6x}  {word:10} {operands}".rstrip()
                lines.append((text, rows[k - 1].line if k else 0))
            else:
                further += 1
    return Listing(name, sum(map(len, shown)), lines, further, shown != [*_sections(code)])


def _sections(code: bytes) -> Iterator[bytes]:
    """The executable sections of an object file."""
    from llvmlite import binding

    for section in binding.ObjectFileRef.from_data(code).sections():
        if section.is_text() and section.size():
            yield section.data()
