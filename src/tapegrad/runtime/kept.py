"""Compiled tapes on disk: another process that traces the same finds the code there.

The first line is JSON, the driver and the sizes of the kernels' machine code, which follows.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tapegrad.emit.driver import Driver, Place
from tapegrad.ir.tape import Tape
from tapegrad.runtime import disk
from tapegrad.runtime.compile import Executable
from tapegrad.runtime.key import processor_key, program_key


def find(tape: Tape) -> Executable | None:
    """The code of an optimised tape, if an earlier process left it."""
    if disk.location() is None:
        return None
    key = program_key(tape)
    if key is None or not disk.has_any(key):
        return None
    content = disk.read(f"{key}/{processor_key()}")
    return None if content is None else decoded(content)


def keep(tape: Tape, executable: Executable) -> None:
    """Leave the code of a tape for later processes."""
    key = program_key(tape) if disk.location() is not None else None
    if key is not None:
        disk.write(f"{key}/{processor_key()}", encoded(executable))


def encoded(executable: Executable) -> bytes:
    driver, kernels = executable.driver, executable.kernels
    head = {
        "inputs": [_place(x) for x in driver.inputs],
        "outputs": [_place(x) for x in driver.outputs],
        "scratch": [[name, size, dtype.str] for name, size, dtype in driver.scratch],
        "calls": driver.calls,
        "lines": driver.lines,
        "kernels": [[name, len(code)] for name, code in kernels.items()],
    }
    return json.dumps(head).encode() + b"\n" + b"".join(kernels.values())


def decoded(content: bytes) -> Executable:
    line, _, rest = content.partition(b"\n")
    head: Any = json.loads(line)
    kernels = {}
    for name, size in head["kernels"]:
        kernels[name], rest = rest[:size], rest[size:]
    driver = Driver(
        tuple(_placed(x) for x in head["inputs"]),
        tuple(_placed(x) for x in head["outputs"]),
        tuple((name, size, np.dtype(dtype)) for name, size, dtype in head["scratch"]),
        tuple((name, number) for name, number in head["calls"]),
        tuple(head["lines"]),
    )
    return Executable(driver, kernels)


def _place(x: Place) -> list[Any]:
    return [x.name, x.shape, x.dtype.str, x.checked]


def _placed(x: list[Any]) -> Place:
    name, shape, dtype, checked = x
    return Place(name, tuple(shape), np.dtype(dtype), checked)
