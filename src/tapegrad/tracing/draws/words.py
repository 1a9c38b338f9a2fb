"""A generator's random bits as a list of words: the result of a draw that begins at each word, and
the word where it ends.

    rng.normal() takes the word w[k], or some more:     rows[k], ends[k] = 0.31, k + 1

So a program that mixes kinds of draws advances along one stream, as NumPy does. NumPy itself makes
the draws, from a generator whose bits are those words.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

SPARE = 64  # additional words behind those at which draws begin
BLOCK = 16  # draws at once, most of which take one word each

_WORD = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_HALF = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_REAL = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)


class _Bits(ctypes.Structure):
    """NumPy's `bitgen_t`, by which its generators ask for bits."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("next_uint64", _WORD),
        ("next_uint32", _HALF),
        ("next_double", _REAL),
        ("next_raw", _WORD),
    )


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _Words:
    """A bit generator that reads from a list of words, from the position `at` on. It `are_whole`
    until half of a word is read, whose other half a generator would keep, or the list is
    exhausted."""

    def __init__(self, words: list[int]) -> None:
        self.at, self.are_whole = 0, True

        def word(state: Any = None) -> int:
            at, self.at = self.at, self.at + 1
            if at >= len(words):
                self.are_whole = False
            return words[at % len(words)]

        def half(state: Any = None) -> int:
            self.are_whole = False
            return word() >> 32

        def real(state: Any = None) -> float:
            return (word() >> 11) * 2.0**-53

        self._bits = _Bits(None, _WORD(word), _HALF(half), _REAL(real), _WORD(word))
        self.capsule = _capsule(ctypes.addressof(self._bits), b"BitGenerator", None)
        self.lock = threading.Lock()


def has_words(generator: Any) -> bool:
    """Whether a generator's bits are words of 64 bits, and no half of one is left over."""
    bits: Any = getattr(generator, "bit_generator", None)
    known = (np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)
    whole = type(generator) is np.random.Generator and type(bits) in known
    return whole and not bits.state["has_uint32"]


def table(generator: Any, call: Any, room: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The results of the call if it begins at each of `room` words, and the words where they end.
    None if it doesn't take whole words. The generator advances."""
    if not has_words(generator):
        return None
    words = _Words(generator.bit_generator.random_raw(room + SPARE).tolist())
    reader: Any = np.random.Generator(words)  # type: ignore[arg-type]
    found: list[Any] = []
    ends = np.arange(1, room + 1)
    for first in range(0, room, BLOCK):
        words.at, count = first, min(BLOCK, room - first)
        several = call.many(reader, (count,))
        if several is None or words.at > first + count:  # else each has taken one word
            several = []
            for k in range(first, first + count):
                words.at = k
                several.append(call.again(reader))
                ends[k] = words.at
        found += [*several]
        if not words.are_whole:
            return None
    return np.stack(found), ends


def advance(generator: Any, count: int) -> None:
    """Advance the generator by `count` words."""
    generator.bit_generator.random_raw(count, output=False)
