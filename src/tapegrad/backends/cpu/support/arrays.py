"""Arrays of fixed shape.

A `FixedArray` is a bare pointer whose shape and strides are part of its type: indexing is constant
arithmetic, without bounds, reference counts or wraparound. It is checked once, when a function is
called.
"""

from __future__ import annotations

import functools
import math
import sys
from hashlib import blake2b
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import models, register_model

WORD, INT, BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)
POINTER = BYTE.as_pointer()


class FixedArray(types.Type):
    """A pointer to elements of one dtype, with shape and strides (in elements) in the type. In a
    template some of these are open: see `product`."""

    def __init__(self, dtype: Any, shape: tuple[Any, ...], strides: tuple[Any, ...] | None = None):
        if strides is None:
            strides = tuple(product(shape[k + 1 :]) for k in range(len(shape)))
        self.dtype, self.shape, self.strides = dtype, shape, strides
        super().__init__(f"FixedArray({dtype}, {shape}, {strides})")


@register_model(FixedArray)
class FixedArrayModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: FixedArray) -> None:
        element = manager.lookup(kind.dtype).get_data_type()
        super().__init__(manager, kind, element.as_pointer())


class Intrinsic:
    """A function that kernels call. `emit` takes the operands' types, and returns a signature and a
    function that writes the instructions.

    numba's own intrinsics would do the same, but to look one up loads all of numba.
    """

    def __init__(self, emit: Any) -> None:
        functools.update_wrapper(self, emit)
        self.emit = emit

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.__name__} is for kernels")  # type: ignore[attr-defined]


def reshaped(array: Any, shape: Any) -> Any:
    """The start of a row-major array with another shape. The translator turns this function and the
    next two into addresses."""


def part(array: Any, start: Any, shape: Any) -> Any:
    """The elements of a row-major array from `start` on, as an array of this shape."""


def panel(array: Any, start: Any, along: Any, shape: Any) -> Any:
    """The matrix that starts at an index of an array, with rows and columns along two of its axes.
    `shape` has the numbers of rows and columns, with the strides of the axes. For windows, `along`
    holds the number of axes of the rows, and then for each axis of the rows and the columns: the
    axis, its extent and its stride."""


def ways(strides: Any, along: Any) -> Any:
    """The strides of the rows and columns of a matrix that goes `along` two axes of an array. For
    windows, the extents and strides of each axis of the rows, and of the columns."""
    if len(along) == 2:
        return tuple([strides[axis] for axis in along])
    rows, *rest = along
    found = [
        (count, product([strides[axis], step]))
        for axis, count, step in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    ]
    return tuple(found[:rows]), tuple(found[rows:])


def are_windows(kind: Any) -> bool:
    """Whether the rows or columns of a matrix go along several axes."""
    return any(isinstance(step, tuple) for step in kind.strides)


@Intrinsic
def row_part(typingctx: Any, matrix: Any, start: Any, count: Any) -> Any:
    """`count` rows of a matrix, from `start` on."""
    return _part_of_axis(matrix, start, count, 0)


@Intrinsic
def column_part(typingctx: Any, matrix: Any, start: Any, count: Any) -> Any:
    """`count` columns of a matrix, from `start` on."""
    return _part_of_axis(matrix, start, count, 1)


def _part_of_axis(matrix: Any, start: Any, count: Any, axis: int) -> Any:
    shape = [*matrix.shape]
    shape[axis] = count.literal_value
    kind = FixedArray(matrix.dtype, tuple(shape), matrix.strides)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first = context.cast(builder, args[1], sig.args[1], types.int64)
        at = builder.mul(first, word(builder, matrix.strides[axis]))
        return builder.gep(args[0], [at], inbounds=True)

    return signature(kind, matrix, start, count), codegen


# ---- numbers that are filled in when machine code is loaded

WORD_BYTES = 8
NUMBER = "#"  # before a number's index: the names of numbers to be filled in


def placeholder(module: Any, name: str, count: int) -> Any:
    """A variable of `count` words in an object file, to be `filled` later. It is visible outside
    the module, so LLVM assumes nothing about its value."""
    kind = ir.ArrayType(WORD, count)
    symbol = f"tapegrad_{name}"
    if symbol not in module.globals:
        words = [int.from_bytes(x, sys.byteorder) for x in _holding(name, count)]
        place = ir.GlobalVariable(module, kind, symbol)
        place.initializer = ir.Constant(kind, words)
    return module.globals[symbol]


def number_place(builder: Any, name: str) -> Any:
    """The address of a template's number, by its name."""
    place = builder.module.globals["tapegrad_numbers"]
    return builder.gep(place, [INT(0), INT(int(name.removeprefix(NUMBER)))])


def is_open(extent: Any) -> bool:
    """Whether an extent or a stride is a number of a template, or a multiple of one."""
    return isinstance(extent, str) and NUMBER in extent


def product(extents: Any) -> Any:
    """The product of extents, of which some may be open: 6, or "6*#0*#2"."""
    known = math.prod([n for n in extents if not is_open(n)])
    return (
        "*".join([str(known), *filter(is_open, extents)]) if any(map(is_open, extents)) else known
    )


def larger(builder: Any, x: Any, y: Any) -> Any:
    """The larger of two integers, as a value in LLVM."""
    return builder.select(builder.icmp_signed(">", x, y), x, y)


def word(builder: Any, extent: Any) -> Any:
    """An extent or a stride, which may be open, as a value in LLVM."""
    if not is_open(extent):
        return WORD(extent)
    found = None
    for factor in extent.split("*"):
        if not factor.startswith(NUMBER):
            n = WORD(int(factor))
        else:
            n = builder.load(number_place(builder, factor))
            n.set_metadata("invariant.load", builder.module.add_metadata([]))
        found = n if found is None else builder.mul(found, n, flags=("nsw",))
    return found


def _holding(name: str, count: int) -> list[bytes]:
    """The words that mark a placeholder in an object file, and occur nowhere else in it."""
    return [blake2b(f"{name} {k}".encode(), digest_size=WORD_BYTES).digest() for k in range(count)]


def filled(code: bytes, name: str, words: list[bytes]) -> bytes:
    """An object file with `words` in the place of a placeholder."""
    held = b"".join(_holding(name, len(words)))
    if held and code.count(held) != 1:
        raise RuntimeError(f"machine code has no place for {len(words)} {name}")
    return code.replace(held, b"".join(words)) if held else code


# ---- the arguments of a standalone function


def argument(
    x: Any, shape: tuple[int, ...], dtype: Any, name: str, strides: tuple[int, ...] | None = None
) -> Any:
    """`x` as a row-major array of this shape and dtype; a TypeError or ValueError if it isn't one.
    The strides must agree, too: they decide which of NumPy's results are views."""
    if type(x) not in (np.ndarray, np.memmap):
        raise TypeError(
            f"{name} is of type {type(x).__name__}, but this function was made for an array. Pass "
            f"np.asarray({name})"
        )
    if x.shape != shape or x.dtype != dtype:
        raise ValueError(
            f"{name} has shape {x.shape} and dtype {x.dtype}, but this function was made for "
            f"shape {shape} and dtype {np.dtype(dtype)}"
        )
    if not x.flags.c_contiguous if strides is None else x.strides != strides:
        raise ValueError(
            f"{name} has strides {x.strides}, but this function was made for an array that is "
            + ("row-major" if strides is None else f"strided by {strides}")
            + (f". Pass np.ascontiguousarray({name})" if strides is None else "")
        )
    return np.require(x, dtype, ["C", "A"])


def number(x: Any, kind: Any, name: str) -> Any:
    """`x`, if it is a number of exactly this type; a TypeError if not. Others compute differently:
    an int divides without rounding, and a NumPy scalar passes its dtype on to results."""
    if type(x) is not kind:
        raise TypeError(
            f"{name} is {x!r} ({type(x).__name__}), but this function was made for a number of "
            f"type {kind.__name__}. Pass one, or make it anew for such arguments"
        )
    if kind is int and not -(2**63) < x < 2**63:
        raise ValueError(f"{name} is {x}, which doesn't fit in 63 bits and a sign")
    return x


def parts(x: Any, kind: Any, keys: list[Any], name: str) -> None:
    """A TypeError if a container has another class, a ValueError if a dict has other keys, or a
    sequence another length. `kind` is the class, or its name if it isn't one of Python's."""
    if (type(x).__qualname__ if isinstance(kind, str) else type(x)) != kind:
        wanted = kind if isinstance(kind, str) else kind.__name__
        raise TypeError(
            f"{name} is a {type(x).__name__}, but this function was made for a {wanted}"
        )
    if isinstance(x, dict):
        found = list(x)
        if found != keys or [*map(type, found)] != [*map(type, keys)]:
            raise ValueError(
                f"{name} has the keys {found}, but this function was made for the keys {keys}"
            )
    elif isinstance(x, (list, tuple)) and len(x) != len(keys):
        raise ValueError(
            f"{name} has {len(x)} elements, but this function was made for {len(keys)}"
        )


def static(x: Any, value: Any, name: str) -> None:
    """A ValueError if a string, boolean or None isn't the one that the function was made for."""
    if type(x) is not type(value) or x != value:
        raise ValueError(f"{name} is {x!r}, but this function was made for {value!r}")


def apart(written: Any, name: str, *others: Any) -> None:
    """A ValueError if an array that the function writes to shares memory with another."""
    if any(np.shares_memory(np.asarray(written), np.asarray(x)) for x in others):
        raise ValueError(
            f"{name} shares memory with another array, and this function was made of one that "
            "writes to it: NumPy would show the write in both. Pass a copy of one of them"
        )
