"""The evaluations of a run in a file, from which a killed run continues.

    value and gradient at x0, at x1, ...   -->    asked again: known answers aren't computed again

A minimiser's next point depends only on the answers at the points before. So a minimiser that is
restarted and given the same answers reaches the same point, bit for bit, whatever its state.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError

_MAGIC = b"tapegrad evaluations 1\n"
_HEAD = struct.Struct("<16sQI")  # digest of the point, number of answers, checksum of the answers
_TOLERANCE = 1e-9  # relative; the last answer is computed again, maybe on another machine


class Journal:
    """The file of a run; `said` holds the settings that a continued run must share."""

    def __init__(self, path: str | os.PathLike[str], said: dict[str, Any]) -> None:
        self.path = os.fspath(path)
        self._file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        start = _MAGIC + json.dumps(said).encode() + b"\n"
        found = self._file.readline(len(_MAGIC)) + self._file.readline(len(start))
        if start.startswith(found) and found != start:  # a new file, or one with a partial header
            self._file.seek(0)
            self._file.write(start)
        elif found != start:
            self._file.close()
            raise ArgumentError(
                f"{self.path} isn't the file of such a run: it begins with {found[:200]!r}, and "
                f"this one with {start[:200]!r}. Pass another file"
            )
        self.known = 0  # number of answers taken from the file
        self._next = self._read()

    def close(self) -> None:
        self._file.close()

    def kept(self, f: Callable[..., np.ndarray], kind: str) -> Callable[..., np.ndarray]:
        """A function of vectors whose answers are kept in the file.

        The last known answer is computed again: it detects a loss or data that have changed.
        """

        def answered(*vectors: np.ndarray) -> np.ndarray:
            asked = blake2b(kind.encode(), digest_size=16)
            for vector in vectors:
                asked.update(np.ascontiguousarray(vector).tobytes())
            if self._next is None:
                found = f(*vectors)
                self._write(asked.digest(), found)
                return found
            question, answer = self._next
            if question != asked.digest():
                raise ArgumentError(
                    f"{self.path} is of another run: evaluation {self.known + 1} was at another "
                    "point. Pass the arguments of the run that wrote it (or another file)"
                )
            self.known, self._next = self.known + 1, self._read()
            if self._next is None and not _are_near(f(*vectors), answer):
                raise ArgumentError(
                    f"{self.path} is of another run: the {kind} at the point of evaluation "
                    f"{self.known} is another one now. Pass the loss and the data of the run that "
                    "wrote it (or another file)"
                )
            return answer

        return answered

    def _read(self) -> tuple[bytes, np.ndarray] | None:
        """The next evaluation; None after the last whole one, where the file is truncated."""
        place = self._file.tell()
        head = self._file.read(_HEAD.size)
        if len(head) == _HEAD.size:
            question, count, checksum = _HEAD.unpack(head)
            held = self._file.read(8 * count)
            if len(held) == 8 * count and zlib.crc32(question + held) == checksum:
                return question, np.frombuffer(held, "<f8").astype(float)
        self._file.seek(place)
        self._file.truncate()
        return None

    def _write(self, question: bytes, answer: np.ndarray) -> None:
        held = np.asarray(answer, "<f8").tobytes()
        self._file.write(_HEAD.pack(question, len(answer), zlib.crc32(question + held)) + held)
        self._file.flush()
        os.fsync(self._file.fileno())


def _are_near(a: np.ndarray, b: np.ndarray) -> bool:
    size = max(1e-300, float(np.max(np.abs(b), initial=0.0)))
    return a.shape == b.shape and np.allclose(
        a, b, rtol=_TOLERANCE, atol=_TOLERANCE * size, equal_nan=True
    )
