"""The encoding of executables, for other processes and for the disk.

The first line is JSON: the driver, and the sizes of the pieces of machine code, which follow.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.backends.source.driver import Driver, Executable, Variable
from tapegrad.compiler.packed import RemoteFunction, dumped, loaded
from tapegrad.core.values import dtype_called
from tapegrad.primitives.base import Primitive
from tapegrad.primitives.control import ForeignCall


def encoded(executable: Executable, opaque: Sequence[ForeignCall]) -> bytes:
    """An executable as bytes. Users' functions, `opaque`, are replaced by their numbers."""
    driver, kernels, shared = executable.driver, executable.kernels, executable.shared
    head = {
        "inputs": [_place(x) for x in driver.inputs],
        "outputs": [_place(x) for x in driver.outputs],
        "scratch": [[name, size, dtype.str] for name, size, dtype in driver.scratch],
        "calls": _text(dumped(driver.calls, opaque)) if driver.calls else "",
        "lines": driver.lines,
        "kernels": [[name, len(code)] for name, code in kernels.items()],
        "axes": list(executable.axes),
        "shared": [[name, len(code)] for name, code in shared.items()],
    }
    return b"".join([json.dumps(head).encode(), b"\n", *kernels.values(), *shared.values()])


def decoded(content: bytes, opaque: Sequence[ForeignCall]) -> Executable:
    """The executable encoded in `content`, with these users' functions."""
    line, _, rest = content.partition(b"\n")
    head: Any = json.loads(line)
    kernels: dict[str, bytes] = {}
    shared: dict[str, bytes] = {}
    at = 0
    for pieces, sizes in ((kernels, head["kernels"]), (shared, head["shared"])):
        for name, size in sizes:
            pieces[name] = rest[at : at + size]
            at += size
    calls = loaded(base64.b64decode(head["calls"])) if head["calls"] else ()
    driver = Driver(
        tuple(_placed(x) for x in head["inputs"]),
        tuple(_placed(x) for x in head["outputs"]),
        tuple((name, size, np.dtype(dtype)) for name, size, dtype in head["scratch"]),
        tuple((name, _here(primitive, opaque)) for name, primitive in calls),
        tuple(head["lines"]),
    )
    return Executable(driver, kernels, shared, [(k, axis) for k, axis in head["axes"]])


def _here(primitive: Primitive, opaque: Sequence[ForeignCall]) -> Primitive:
    if isinstance(primitive, ForeignCall) and isinstance(primitive.function, RemoteFunction):
        return opaque[primitive.function.number]
    return primitive


def _text(x: bytes) -> str:
    return base64.b64encode(x).decode()


def _place(x: Variable) -> list[Any]:
    return [x.name, x.shape, x.dtype.str, x.checked]


def _placed(x: list[Any]) -> Variable:
    name, shape, dtype, checked = x
    return Variable(name, tuple(shape), dtype_called(dtype), checked)
