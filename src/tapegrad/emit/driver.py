"""The function between Python and the kernels: it allocates, calls them, and returns results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

INDENT = "    "
DTYPES = [
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
]


def numpy_name(dtype: np.dtype) -> str:
    """The name of a dtype's scalar type in NumPy: what drivers call it."""
    return dtype.type.__name__ if dtype != np.bool_ else "bool_"


def dtypes() -> dict[str, Any]:
    """The scalar types that drivers name."""
    return {name: getattr(np, name) for name in DTYPES}


@dataclass(frozen=True)
class Place:
    """An argument or a result of a driver: what it is called there, its shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class Driver:
    """How the kernels of a program are called: plain data, which can be kept on disk.

    `scratch` is the sizes and dtypes of scratch memory. `calls` are the functions that NumPy runs
    between the kernels: the name, and the number of the call on the tape whose primitive it is.
    """

    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    scratch: tuple[tuple[int, np.dtype], ...]
    calls: tuple[tuple[str, int], ...]
    lines: tuple[str, ...]

    def results(self) -> list[str]:
        """The outputs' expressions: scalars leave as NumPy scalars."""
        return [x.name + ("" if x.shape else "[()]") for x in self.outputs]
