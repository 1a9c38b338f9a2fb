"""The function between Python and the kernels: it allocates, calls kernels, and returns results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.arrays import is_half
from tapegrad.primitives.base import Primitive

INDENT = "    "
# The globals of drivers and kernels, besides the ones that `cpu.support` defines.
NUMBERS = {"nan": np.nan, "inf": np.inf}
DTYPES = (
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
# Names with another meaning in a compiled call than in a standalone function: scratch memory, the
# thread pool (loaded when it is needed), and errors.
OUT_OF_RANGE = "OutOfRange"
POOLED = ("parallel", "with_helpers")
BY_PLACE = ("np", "empty", "own", "scratch", *POOLED, "Stale", OUT_OF_RANGE, "LinAlgError")


def global_words() -> set[str]:
    """The names in drivers that aren't variables."""
    return {*NUMBERS, *DTYPES, *BY_PLACE}


def numpy_name(dtype: np.dtype) -> str:
    """The name of a dtype's scalar type in NumPy, as drivers write it."""
    return dtype.type.__name__ if dtype != np.bool_ else "bool_"


def dtypes() -> dict[str, Any]:
    """The scalar types whose names occur in drivers."""
    return {name: getattr(np, name) for name in DTYPES if hasattr(np, name)}


def result(name: str, shape: tuple[int, ...], dtype: np.dtype) -> str:
    """The expression that returns the output `name`."""
    kept = f".view({numpy_name(dtype)})" if is_half(dtype) else ""
    return name + kept + ("" if shape else "[()]")


@dataclass(frozen=True)
class Variable:
    """An argument or a result of a driver: its name, shape and dtype.

    `checked` tells whether kernels check the type of an argument before anything else reads it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    checked: bool = False


@dataclass(frozen=True)
class Driver:
    """How the kernels of a program are called: plain data, which can be kept on disk.

    `scratch` holds the names, sizes and dtypes of scratch memory. `calls` are the primitives that
    NumPy runs between the kernels, by name. `lines` allocate the outputs and call the kernels.
    """

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    scratch: tuple[tuple[str, int, np.dtype], ...]
    calls: tuple[tuple[str, Primitive], ...]
    lines: tuple[str, ...]

    def words(self) -> set[str]:
        """All words in the driver's text, among them every name that it uses."""
        places = {x.name for x in (*self.inputs, *self.outputs)} | {x[0] for x in self.scratch}
        return places | set(re.findall(r"\w+", " ".join(self.lines)))

    def results(self) -> list[str]:
        """The expressions of the outputs: scalars are returned as NumPy scalars."""
        return [result(x.name, x.shape, x.dtype) for x in self.outputs]


@dataclass(frozen=True)
class Executable:
    """A compiled tape: its driver, and by name the object code of its kernels and of the functions
    that these share. `axes` are the axes that may have any length, each with the number of its
    input."""

    driver: Driver
    kernels: dict[str, bytes]
    shared: dict[str, bytes]
    axes: Sequence[tuple[int, int]] = ()
