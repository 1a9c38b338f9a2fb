"""The arrays that can be traced: those that hold numbers and behave like ndarrays.

Types are looked up with `type`, since a traced value's `__class__` is that of the value it stands
for.
"""

from __future__ import annotations

import array
from functools import cache
from typing import Any

import numpy as np

KNOWN = "booleans, integers, float32, float64, complex64 and complex128, and float16 as float32"
BITS = np.dtype(np.uint16)  # half-precision numbers are passed to kernels as their bits

# Attributes that a subclass may define and still compute like an ndarray.
HARMLESS = {
    *("__new__", "__init__", "__del__", "__init_subclass__", "__class_getitem__"),
    *("__doc__", "__module__", "__dict__", "__firstlineno__", "__static_attributes__"),
    *("__array_finalize__", "__array_wrap__", "__array_priority__", "__hash__"),
    *("__repr__", "__str__", "__format__"),
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"),
}


def is_known(dtype: np.dtype) -> bool:
    """Whether tapegrad has rules for numbers of this dtype."""
    if dtype.kind == "c":
        return dtype.itemsize <= 16
    return dtype.kind in "fiub" and dtype.itemsize <= 8 and dtype.type is not np.float16


def is_half(dtype: np.dtype) -> bool:
    """Whether this is float16, or ml_dtypes' bfloat16. Such numbers are stored in half precision
    and computed in float32."""
    if dtype.num <= 22:  # NumPy's other dtypes
        return False
    return dtype.type is np.float16 or (dtype.name == "bfloat16" and dtype.kind == "V")


def computed_in(dtype: np.dtype) -> np.dtype:
    """The dtype that numbers of this dtype have on a tape: float32 for half precision."""
    return _SINGLE if is_half(dtype) else dtype


_SINGLE = np.dtype(np.float32)


def in_kernels(dtype: np.dtype) -> np.dtype:
    """The dtype in which kernels take arrays of this dtype: uint16 for half precision, as the
    bits."""
    return BITS if is_half(dtype) else dtype


def native(dtype: np.dtype) -> np.dtype:
    """The dtype in the machine's byte order, which all values on a tape have."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def plain(x: Any) -> Any:
    """An array as an ndarray in the machine's byte order: itself, a view or a copy. Anything else
    is returned as it is."""
    kind = type(x)
    if not issubclass(kind, np.ndarray) or (kind is np.ndarray and x.dtype.isnative):
        return x
    return np.asarray(x, native(x.dtype))


def read(x: Any) -> Any:
    """`plain`, with half-precision numbers as float32, as traces have them."""
    x = plain(x)
    numeric = isinstance(x, (np.ndarray, np.generic))
    return x.astype(_SINGLE) if numeric and is_half(x.dtype) else x


@cache
def own_behaviour(kind: type) -> str:
    """The name of a method that a subclass of ndarray overrides in a way that matters, or ""."""
    for base in kind.__mro__:
        if base in (np.ndarray, np.memmap):  # a memmap only closes its file
            break
        for name in vars(base):
            if name not in HARMLESS and (hasattr(np.ndarray, name) or name == "__getattr__"):
                return name
    return ""


def objection(x: Any) -> tuple[str, str] | None:
    """The reason why an array or number can't be traced, and the advice, to follow its name; or
    None."""
    kind: Any = type(x)
    if kind.__name__ == "MaskedConstant" and issubclass(kind, np.ndarray):  # `np.ma` loads modules
        return "is np.ma.masked, a masked element", (
            ", which has no value. Use np.ma.filled(x, value), or ask whether x is np.ma.masked"
        )
    if issubclass(kind, np.ndarray) and (own := own_behaviour(kind)):
        return f"is of type {kind.__name__}", (
            f", whose operators differ from an ndarray's (it has its own {own}), so tapegrad can't "
            "follow them. Pass np.asarray(x) (for a masked array, its data and mask)"
        )
    if not issubclass(kind, (np.ndarray, np.generic)) or issubclass(kind, np.character):
        return None
    if kind is np.ndarray and x.dtype.kind in "SU":  # an array of strings is static
        return None
    if x.dtype.kind == "O":
        return "is an array of dtype object", (
            ", which holds Python objects and no numbers. It often comes from nested lists of "
            "unequal lengths. Make it float64"
        )
    if not is_known(computed_in(x.dtype)):
        advice = {
            "c": "Convert it first with x.astype(np.complex128)",
            "V": "Pass its fields, each with astype if need be",
        }.get(x.dtype.kind, "Convert it first with astype")
        return f"has dtype {x.dtype}", f", and tapegrad traces {KNOWN}. {advice}"
    return None


def is_foreign(x: Any) -> bool:
    """Whether an object isn't an array, but NumPy would convert it to one. Its contents would be
    read once, when the function is traced, and not again."""
    if isinstance(x, (np.ndarray, np.generic)):
        return False
    kind = type(x)
    arrays = hasattr(kind, "__array__") or hasattr(kind, "__array_interface__")
    return arrays or isinstance(x, (memoryview, array.array))
