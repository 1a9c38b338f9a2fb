"""The source lines of an object file's instructions, read from its DWARF line table (section 6.2 of
version 4): a program whose steps increment an address and a line.

address 0x30, line 7;  +14, +1;  +6, +1     -->     [(0x30, 7), (0x3e, 8), (0x44, 9)]
"""

from __future__ import annotations

import struct
from typing import NamedTuple

NAMES = (b".debug_line", b"__debug_line")  # in ELF, and in Mach-O
ADDED = b".rela.debug_line"  # in ELF, relocations of the addresses in the table
COPY, ADVANCE, ADVANCE_LINE, FAR, FIXED = 1, 2, 3, 8, 9  # standard opcodes
END, BEGIN = 1, 2  # extended opcodes: end a sequence, set the address
VERSIONS = 2, 3, 4  # equal except for one field


class Row(NamedTuple):
    """The line of the instructions from an address on."""

    address: int
    line: int


def table(code: bytes) -> list[Row]:
    """The rows of a file with one section of instructions, by address. Empty without a line table,
    or for an unknown version. Line 0 means no line."""
    from llvmlite import binding

    found, added = b"", b""
    for section in binding.ObjectFileRef.from_data(code).sections():
        if section.name() in NAMES:
            found = section.data()
        elif section.name() == ADDED:
            added = section.data()
    starts = {at: addend for at, _, addend in struct.iter_unpack("=QQq", added)}
    return sorted(_read(found, starts), key=lambda row: row.address) if found else []


class _Reader:
    """A reader of consecutive numbers."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, kind: str) -> int:
        found: int = struct.unpack_from(f"={kind}", self.data, self.at)[0]
        self.at += struct.calcsize(kind)
        return found

    def whole(self, signed: bool = False) -> int:
        """A LEB128 number: groups of seven bits, the lowest first."""
        found = shift = 0
        while True:
            byte = self.take("B")
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found - (1 << shift) if signed and byte & 0x40 else found


def _read(data: bytes, starts: dict[int, int]) -> list[Row]:
    """The rows of a line table. `starts` has the relocations of its addresses, by offset."""
    reader = _Reader(data)
    end = reader.take("I") + reader.at
    version = reader.take("H")
    if version not in VERSIONS:
        return []
    program = reader.take("I") + reader.at
    least = reader.take("B")  # bytes of the shortest instruction
    reader.at += 2 if version >= 4 else 1  # skip operations for each instruction, and is_stmt
    base, width, first = reader.take("b"), reader.take("B"), reader.take("B")
    operands = [reader.take("B") for _ in range(first - 1)]
    reader.at = program
    rows: list[Row] = []
    address, line = 0, 1
    while reader.at < end:
        code = reader.take("B")
        if code >= first:  # a special opcode: both increments at once
            address += (code - first) // width * least
            line += base + (code - first) % width
            rows.append(Row(address, line))
        elif code == 0:
            after = reader.whole() + reader.at
            kind = reader.take("B")
            if kind == END:
                rows.append(Row(address, 0))
                address, line = 0, 1
            elif kind == BEGIN:
                address = starts.get(reader.at, 0) + reader.take("Q")
            reader.at = after
        elif code == FIXED:
            address += reader.take("H")
        else:
            given = [reader.whole(code == ADVANCE_LINE) for _ in range(operands[code - 1])]
            if code == COPY:
                rows.append(Row(address, line))
            elif code == ADVANCE:
                address += given[0] * least
            elif code == ADVANCE_LINE:
                line += given[0]
            elif code == FAR:
                address += (255 - first) // width * least
    return rows
