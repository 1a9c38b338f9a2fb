"""The messages between a process and its worker.

A message is a number, a length and that many bytes. A request is answered with its own number; a
`BEAT` says that the worker is busy.
"""

from __future__ import annotations

import os
import struct
from typing import Any, NamedTuple

from tapegrad.compiler import disk

HEAD = struct.Struct("<QQ")
BEAT = 0  # a message's number; requests count from 1
WORKER = "TAPEGRAD_WORKER"  # set in a worker's environment: nothing in it starts another worker
FORGET = 0  # the same number, sent to the worker: forget all kernels


class Request(NamedTuple):
    """A program to compile: the packed tape, the key under which to keep it on disk, the settings
    of the requesting process, and whether to ignore the code on disk, which proved useless."""

    packed: Any
    kept_as: str | None
    settings: dict[str, str]
    anew: bool = False


class Answer(NamedTuple):
    """The answer to a request.

    `content` is the executable, encoded if it is sent; `error` says what went wrong; `times` are
    the seconds that each part took; `kernels` is the number of kernels compiled; `found` says
    whether the code was on disk. If the compiler `died`, or if the program is `foreign` (it
    couldn't be read there), another try may succeed.
    """

    content: Any = b""
    error: str = ""
    times: dict[str, float] = {}  # noqa: RUF012  # never changed
    kernels: int = 0
    found: bool = False
    died: bool = False
    foreign: bool = False


def settings() -> dict[str, str]:
    """The environment variables that compiling depends on. The cache folder is an absolute path,
    since the worker has another current folder."""
    found = {x: y for x, y in os.environ.items() if x.startswith(("NUMBA_", "TAPEGRAD_"))}
    found.pop(WORKER, None)  # set for workers only
    if "TAPEGRAD_CACHE_DIR" in found:
        found["TAPEGRAD_CACHE_DIR"] = disk.location() or "off"
    return found


def messages(buffer: bytearray) -> list[tuple[int, bytes]]:
    """The complete messages in the buffer, which are removed from it."""
    found = []
    while len(buffer) >= HEAD.size:
        number, size = HEAD.unpack_from(buffer)
        if len(buffer) < HEAD.size + size:
            break
        found.append((number, bytes(buffer[HEAD.size : HEAD.size + size])))
        del buffer[: HEAD.size + size]
    return found


def message(number: int, content: bytes) -> bytes:
    """A message as bytes."""
    return HEAD.pack(number, len(content)) + content


def available_cores() -> int:
    """The number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
