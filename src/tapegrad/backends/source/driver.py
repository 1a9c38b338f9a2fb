"""The function between Python and the kernels: it allocates, calls them, and returns results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.arrays import is_half
from tapegrad.primitives.base import Primitive

INDENT = "    "
# What drivers and kernels find where they run, besides what `cpu.support` defines.
NUMBERS = {"nan": np.nan, "inf": np.inf}
DTYPES = (
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
# What is another thing in a compiled call than in a function that stands alone: scratch memory, a
# thread pool that is loaded when it is needed, and errors.
OUT_OF_RANGE = "OutOfRange"
BY_PLACE = ("np", "empty", "own", "scratch", "parallel", "Stale", OUT_OF_RANGE, "LinAlgError")


def global_words() -> set[str]:
    """The names by which drivers mean something that isn't a variable."""
    return {*NUMBERS, *DTYPES, *BY_PLACE}


def numpy_name(dtype: np.dtype) -> str:
    """The name of a dtype's scalar type in NumPy: what drivers call it."""
    return dtype.type.__name__ if dtype != np.bool_ else "bool_"


def dtypes() -> dict[str, Any]:
    """The scalar types that drivers name."""
    return {name: getattr(np, name) for name in DTYPES if hasattr(np, name)}


def result(name: str, shape: tuple[int, ...], dtype: np.dtype) -> str:
    """The expression of an output of this name."""
    kept = f".view({numpy_name(dtype)})" if is_half(dtype) else ""
    return name + kept + ("" if shape else "[()]")


@dataclass(frozen=True)
class Variable:
    """An argument or a result of a driver: what it is called there, its shape and dtype.

    `checked` tells whether kernels look that an argument is of this type, before anything else
    reads it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    checked: bool = False


@dataclass(frozen=True)
class Driver:
    """How the kernels of a program are called: plain data, which can be kept on disk.

    `scratch` is the names, sizes and dtypes of scratch memory. `calls` are the primitives that
    NumPy runs between the kernels, by name. `lines` allocate the outputs and call the kernels.
    """

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    scratch: tuple[tuple[str, int, np.dtype], ...]
    calls: tuple[tuple[str, Primitive], ...]
    lines: tuple[str, ...]

    def words(self) -> set[str]:
        """Every name that the driver says, and more: all words of its text."""
        places = {x.name for x in (*self.inputs, *self.outputs)} | {x[0] for x in self.scratch}
        return places | set(re.findall(r"\w+", " ".join(self.lines)))

    def results(self) -> list[str]:
        """The outputs' expressions: scalars leave as NumPy scalars."""
        return [result(x.name, x.shape, x.dtype) for x in self.outputs]


@dataclass(frozen=True)
class Executable:
    """A tape compiled: the driver, and the machine code of the kernels, and of the functions that
    they share, by name; and the axes, each with the number of its input, that the kernels take in
    any length."""

    driver: Driver
    kernels: dict[str, bytes]
    shared: dict[str, bytes]
    axes: Sequence[tuple[int, int]] = ()
