"""What a process and the compiler next door say to each other.

A message is a number, a length and as many bytes. A request is answered with its own number; a
`BEAT` says that work goes on.
"""

from __future__ import annotations

import os
import struct
from typing import Any, NamedTuple

from tapegrad.compiler import disk

HEAD = struct.Struct("<QQ")
BEAT = 0  # a message's number; requests count from 1
WORKER = "TAPEGRAD_WORKER"  # set in a worker's environment: what it loads starts no other
FORGET = 0  # the same number, said to the worker: it knows no kernels any more


class Request(NamedTuple):
    """A program to compile: the packed tape, the key under which to keep it on disk, the settings
    of the process that wants it, and whether what is on disk has proven to be useless."""

    packed: Any
    kept_as: str | None
    settings: dict[str, str]
    anew: bool = False


class Answer(NamedTuple):
    """The executable, encoded if it travels, or what went wrong; the seconds that each part took;
    how many kernels were compiled; whether it was on disk; and whether another try may go better,
    since the compiler died, or couldn't read the program."""

    content: Any = b""
    error: str = ""
    times: dict[str, float] = {}  # noqa: RUF012  # never changed
    kernels: int = 0
    found: bool = False
    died: bool = False
    foreign: bool = False


def settings() -> dict[str, str]:
    """The part of the environment that compiling depends on. The cache folder is told in full: the
    other process works in another folder."""
    found = {x: y for x, y in os.environ.items() if x.startswith(("NUMBA_", "TAPEGRAD_"))}
    found.pop(WORKER, None)  # which only a worker has
    if "TAPEGRAD_CACHE_DIR" in found:
        found["TAPEGRAD_CACHE_DIR"] = disk.location() or "off"
    return found


def messages(buffer: bytearray) -> list[tuple[int, bytes]]:
    """The messages that have arrived in full, which are taken out of the buffer."""
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
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
