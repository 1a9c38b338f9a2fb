"""The offsets at which machine code reads the fields of NumPy arrays, and a check of them.

The fields are those of NumPy's public C structures. If another NumPy or Python had them elsewhere,
nothing would notice: results would be wrong, or the process would crash. So a few example arrays
are read at these offsets, once per process, before the first compiled call.
"""

from __future__ import annotations

import os
import struct
import sys
from functools import cache

import numpy as np

# Offsets in bytes from the start of the object: of the array, and of its dtype.
ARRAY_FIELDS = {
    "type": 8,
    "data": 16,
    "ndim": 24,
    "dimensions": 32,
    "strides": 40,
    "dtype": 56,
    "flags": 64,
}
DTYPE_FIELDS = {"byteorder": 26, "number": 28}
ALIGNED = 0x0100  # in the flags
SWAPPED = ">"  # the byte order that isn't the machine's


@cache
def layout_fault() -> str:
    """Why machine code can't read arrays in this process; empty if it can."""
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8:
        return "this Python isn't CPython for 64 bits"
    if sys.byteorder != "little":
        return "this processor has the highest byte of a number first"
    for x in _examples():
        if fault := _misread(x):
            return f"NumPy {np.__version__} doesn't have {fault} where tapegrad expects it"
    return ""


def _examples() -> list[np.ndarray]:
    """Arrays that differ in every field that is read."""
    plain = np.arange(6.0).reshape(2, 3)
    cube = np.zeros((2, 3, 5), np.float32)
    bytewise = np.zeros(33, np.int8)
    unaligned = bytewise[1:].view(np.int64)
    return [
        plain,
        plain.T,
        plain[::-1, 1:],
        cube,
        cube[:, ::2, 3],
        unaligned,
        bytewise,
        np.zeros((3, 2), ">f8"),
        np.zeros(4, bool),
        np.array(1.5),
        np.zeros((0, 7), np.int32),
    ]


def _misread(x: np.ndarray) -> str:
    """The first of an array's fields that isn't at its offset; empty if all are. Nothing is read
    beyond an object, and what should be a pointer is followed with care."""
    import ctypes

    def word(fields: dict[str, int], name: str, kind: str) -> int:
        content = array if fields is ARRAY_FIELDS else dtype
        try:
            return int(struct.unpack_from(kind, content, fields[name])[0])
        except struct.error:  # beyond its end
            return -1

    array = ctypes.string_at(id(x), type(x).__basicsize__)
    dtype = ctypes.string_at(id(x.dtype), type(x.dtype).__basicsize__)
    wanted = {
        "type": ("Q", id(type(x))),
        "data": ("Q", x.__array_interface__["data"][0]),
        "ndim": ("i", x.ndim),
        "dtype": ("Q", id(x.dtype)),
        "flags": ("i", x.flags.num),
    }
    for name, (kind, value) in wanted.items():
        if word(ARRAY_FIELDS, name, kind) != value:
            return f"an array's {name}"
    if bool(x.flags.num & ALIGNED) != x.flags.aligned:
        return "the flag of aligned arrays"
    if word(DTYPE_FIELDS, "number", "i") != x.dtype.num:
        return "a dtype's number"
    order = word(DTYPE_FIELDS, "byteorder", "B")
    if order != ord(x.dtype.byteorder) or (order == ord(SWAPPED)) == x.dtype.isnative:
        return "a dtype's order of bytes"
    for name, sizes in (("dimensions", x.shape), ("strides", x.strides)):
        found = _content(word(ARRAY_FIELDS, name, "Q"), 8 * x.ndim)
        if x.ndim and found != struct.pack(f"{x.ndim}q", *sizes):
            return f"an array's {name}"
    return ""


def _content(place: int, size: int) -> bytes:
    """The bytes at an address that may be invalid. The system copies them to a pipe: for an invalid
    address that fails, where reading them from Python would crash."""
    import ctypes

    if place < 4096 or place % 8:  # not a pointer
        return b""
    if os.name != "posix":
        return ctypes.string_at(place, size)
    reading, writing = os.pipe()
    try:
        write = ctypes.CDLL(None).write
        write.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        write.restype = ctypes.c_ssize_t
        return os.read(reading, size) if write(writing, place, size) > 0 else b""
    finally:
        os.close(reading)
        os.close(writing)
