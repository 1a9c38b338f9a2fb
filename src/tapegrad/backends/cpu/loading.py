"""Object files into memory, in the simple cases.

numba's code for x86-64 has every address in full (LLVM's large code model). So a linker has little
to do: it places the sections, and writes 64-bit addresses where the file has relocations. LLVM's
linker can do that and everything else, but loading LLVM takes longer than all the rest of a process
whose code is on disk. All other cases are left to LLVM: other processors and formats, addresses of
other kinds, thread-local variables, code that runs at loading.

The constants have their names from the ELF specification and elf.h.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ADDRESS = struct.Struct("<Q")

_ELF64 = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_ET_REL, _EM_X86_64 = 1, 62
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 1, 2, 4, 8, 9
_SHT_X86_64_UNWIND = 0x70000001  # for exceptions; kernels throw none
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR = 1, 2, 4
_SHF_MERGE, _SHF_STRINGS, _SHF_X86_64_LARGE = 0x10, 0x20, 0x10000000
_PLAIN_FLAGS = (
    _SHF_WRITE | _SHF_ALLOC | _SHF_EXECINSTR | _SHF_MERGE | _SHF_STRINGS | _SHF_X86_64_LARGE
)
_SHN_UNDEF, _SHN_COMMON = 0, 0xFFF2
_PLAIN_SYMBOLS = range(4)  # no type, objects, functions, sections
_R_X86_64_64 = 1
_READ, _WRITE, _RUN = 1, 2, 4  # PROT_READ, PROT_WRITE, PROT_EXEC of POSIX's mman.h


class NotSimple(Exception):
    """The object file needs a real linker."""


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int

    @property
    def access(self) -> int:
        """The access to the section's memory."""
        if self.flags & _SHF_EXECINSTR:
            return _READ | _RUN
        return _READ | (_WRITE if self.flags & _SHF_WRITE else 0)


class Image:
    """An object file in memory, which is freed with this object. `address_of` returns the address
    of an external symbol; it raises NotSimple for one that it doesn't know."""

    def __init__(self, code: bytes, address_of: Callable[[str], int]) -> None:
        self._code = code
        self._address_of = address_of
        try:
            self._sections = self._read_sections()
            self._symbols = self._read_symbols()
            self._place()
            self._relocate()
            self._protect()
            self.addresses = dict(self._exported())
        except (struct.error, LookupError, ValueError, OverflowError, OSError) as error:
            raise NotSimple(str(error)) from error
        del self._code, self._address_of, self._sections, self._symbols

    # ---- reading

    def _read_sections(self) -> list[_Section]:
        ident, kind, machine, *_, start, _, _, _, _, size, count, _ = _HEADER.unpack_from(
            self._code
        )
        if (ident[:7], kind, machine, size) != (_ELF64, _ET_REL, _EM_X86_64, _SECTION.size):
            raise NotSimple("another kind of file")
        table = self._bytes(start, size * count)
        sections = [_Section(*entry) for entry in _SECTION.iter_unpack(table)]
        for section in sections:
            held = section.flags & _SHF_ALLOC
            known = (_SHT_PROGBITS, _SHT_NOBITS, _SHT_X86_64_UNWIND)
            if held and (section.type not in known or section.flags & ~_PLAIN_FLAGS):
                raise NotSimple(f"a section of type {section.type}, flags {section.flags:#x}")
        return sections

    def _read_symbols(self) -> list[tuple[str, int, int, int, int]]:
        """The name, type, section, value and size of each symbol."""
        (table,) = (s for s in self._sections if s.type == _SHT_SYMTAB)
        strings = self._content(self._sections[table.link])
        return [
            (strings[name : strings.index(b"\0", name)].decode(), info & 15, section, value, size)
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(self._content(table))
        ]

    def _content(self, section: _Section) -> bytes:
        return self._bytes(section.offset, section.size)

    def _bytes(self, start: int, size: int) -> bytes:
        found = self._code[start : start + size]
        if len(found) != size:
            raise NotSimple("the file ends too early")
        return found

    # ---- writing

    def _place(self) -> None:
        """Assign memory to each section and common symbol, and copy the sections' contents."""
        runs, writes = _READ | _RUN, _READ | _WRITE
        self._places: dict[int, int] = {}  # of sections, by number
        self._common: dict[int, int] = {}  # of common symbols, by number
        self._parts: list[tuple[int, int, int]] = []  # start, end, access
        end = 0
        for access in (runs, _READ, writes):
            start = end
            for k, s in enumerate(self._sections):
                if s.flags & _SHF_ALLOC and s.type != _SHT_X86_64_UNWIND and s.access == access:
                    self._places[k] = _aligned(end, s.align)
                    end = self._places[k] + s.size
            for k, (_, _, section, align, size) in enumerate(self._symbols):
                if section == _SHN_COMMON and access == writes:
                    self._common[k] = _aligned(end, align)
                    end = self._common[k] + size
            end = _aligned(end, mmap.PAGESIZE)
            self._parts.append((start, end, access))
        self.memory = memory_of(end)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for k, place in self._places.items():
            if self._sections[k].type == _SHT_PROGBITS:
                content = self._content(self._sections[k])
                self.memory[place : place + len(content)] = content

    def _relocate(self) -> None:
        """Write the addresses of all relocations."""
        for table in self._sections:
            place = self._places.get(table.info)
            if table.type not in (_SHT_RELA, _SHT_REL) or place is None:
                continue
            if table.type == _SHT_REL:
                raise NotSimple("relocations without addends")
            target = self._sections[table.info]
            for at, info, addend in _RELOCATION.iter_unpack(self._content(table)):
                if info & 0xFFFFFFFF != _R_X86_64_64 or at + _ADDRESS.size > target.size:
                    raise NotSimple(f"a relocation of type {info & 0xFFFFFFFF}")
                address = self._address(info >> 32) + addend
                _ADDRESS.pack_into(self.memory, place + at, address % 2**64)

    def _address(self, number: int) -> int:
        name, kind, section, value, _ = self._symbols[number]
        if kind not in _PLAIN_SYMBOLS:
            raise NotSimple(f"a symbol of type {kind}")
        if section == _SHN_UNDEF:
            return self._address_of(name)
        if section == _SHN_COMMON:
            return self._base + self._common[number]
        return self._base + self._places[section] + value

    def _exported(self) -> Iterator[tuple[str, int]]:
        for number, (name, _, section, _, _) in enumerate(self._symbols):
            if name and section in self._places:
                yield name, self._address(number)

    def _protect(self) -> None:
        for start, end, access in self._parts:
            if end > start and _mprotect()(self._base + start, end - start, access):
                raise NotSimple("the memory can't be protected")


def _aligned(at: int, align: int) -> int:
    """The next multiple of `align`."""
    if align > mmap.PAGESIZE:
        raise NotSimple(f"a section aligned to {align} bytes")
    return at + -at % max(align, 1)


def memory_of(size: int) -> mmap.mmap:
    """Private memory to read and write; the child of a fork has a copy."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@cache
def _mprotect() -> Any:
    if sys.platform == "win32":
        raise NotSimple("Windows protects memory otherwise")
    function = ctypes.CDLL(None).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
