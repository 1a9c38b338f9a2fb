"""Memory layout of arrays, which determines whether a reshape is a view or a copy.

A write to a view reaches its base, a write to a copy doesn't, so a trace has to tell them apart. It
looks at its own values. Their layout is NumPy's wherever that is certain: for arguments, results of
elementwise operations, and results of row-major arrays. Then a tracer is `_ordered`. Where the
layout isn't certain, a reshape and its base *may alias*: each is treated as an array of its own,
and once one is written to, reading the other is an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Source
from tapegrad.observe.program.source import at_line, at_source
from tapegrad.observe.values.proxy import Proxy
from tapegrad.primitives.base import Elementwise, Value
from tapegrad.primitives.contractions import Einsum
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.kinds import View
from tapegrad.primitives.views import Reshape

# For these NumPy itself determines the layout of results, from operands of any layout.
_NUMPYS = (Elementwise, AsType, View)


def is_ordered(primitive: Any, operands: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether the results of a call have the memory layout that they would have without a trace."""
    free = isinstance(primitive, _NUMPYS)
    free = free or (isinstance(primitive, Einsum) and primitive.is_matmul)
    for x, value in zip(operands, values, strict=True):
        if value is None:
            return False
        if getattr(value, "ndim", 0) > 1:
            if hasattr(x, "_owner") and not x._owner._ordered:
                return False
            if not free and not value.flags.c_contiguous:
                return False
    return True


def is_doubtful(view: View, root: Proxy, operand: Any) -> bool:
    """Whether it is uncertain that `view` of `operand` is a view, and not a copy."""
    long = sum(n != 1 for n in operand.shape)  # a reshape of one axis is always a view
    certain = root._ordered and root._value is not None
    if certain and operand is not root:  # the value of a complex number's part may be a copy
        certain = np.may_share_memory(operand._value, root._value)
    moves = isinstance(view, Reshape) and view.shape != operand.shape
    return moves and long > 1 and not certain


def settle(result: Any, args: Sequence[Any], certain: bool) -> Any:
    """Mark the layout of the results of a function composed of primitives. NumPy's own result may
    have another layout if this one is a transpose, or generally if it isn't `certain`."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    tracers: list[Any] = [x for x in results if isinstance(x, Value) and x.ndim > 1]
    for x in tracers:
        made_here = all(x._owner is not getattr(a, "_owner", None) for a in args)
        if made_here and not (certain and x._owner is x):
            x._owner._ordered = False
    return result


def lay_out(x: Proxy, order: str) -> Proxy:
    """Bring `x`, which was just created, into this order: "C" or "F"; "K" leaves it as it is."""
    if order in ("C", "F") and x._value is not None and x.shape:
        x._value = np.asarray(x._value, order=order)  # type: ignore[call-overload]
        x._ordered = True
    return x


def note_may_alias(x: Proxy, y: Proxy) -> None:
    """Record that two arrays may share memory."""
    x._may_alias = [*x._may_alias, weakref.ref(y)]
    y._may_alias = [*y._may_alias, weakref.ref(x)]


def note_aliased_write(x: Proxy, src: Source | None) -> None:
    """Record a write to `x`: the contents of its aliases aren't known any more."""
    for reference in x._may_alias:
        alias = reference()
        if alias is not None:
            alias._doubt = at_source(src)


_BY = " by "


def overwritten(x: Any, by: str, results: Any) -> None:
    """Record that `by` was allowed to overwrite `x`, as by `overwrite_a=True`. Unless `x` is the
    result, its contents aren't known from then on."""
    owner = x._owner if isinstance(x, Proxy) and x.shape else None
    found = results if isinstance(results, (tuple, list)) else [results]
    if owner is not None and all(owner is not getattr(y, "_owner", None) for y in found):
        owner._doubt = f"{_BY}{by}{at_line()}"


def refuse_doubtful(x: Proxy) -> None:
    """Raise the error for reading an array that a write may have reached."""
    if x._doubt.startswith(_BY):
        raise UnsupportedError(
            f"an array is read{at_line()} after a write{x._doubt}, which leaves open what is in "
            "it. Pass a copy, or leave that out"
        )
    raise UnsupportedError(
        f"an array is read{at_line()} after a write{x._doubt} that may have reached it. Whether "
        "the two share memory depends on how arrays lie in memory, or on what a primitive returns, "
        "which a trace doesn't follow here. Write to a copy, or reshape after the write"
    )


def laid_out_like(value: Any, prototype: Any) -> Any:
    """A value in the memory layout of `prototype`, which has the same shape; None stays None."""
    if not (isinstance(value, np.ndarray) and isinstance(prototype, np.ndarray)):
        return value
    if value.strides == prototype.strides:
        return value
    if 0 in prototype.strides:  # it can't be written to
        return value
    low, high = np.lib.array_utils.byte_bounds(prototype)
    start = prototype.__array_interface__["data"][0] - low
    memory = np.empty(high - low, np.uint8).data
    out: np.ndarray = np.ndarray(value.shape, value.dtype, memory, start, prototype.strides)
    out[...] = value
    return out
