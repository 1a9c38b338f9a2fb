"""Batching: applying a primitive to many rows at once.

A value that differs from row to row is *mapped*: its rows are along a new first axis. A value that
isn't mapped is the same for all rows. A primitive declares one of four ways to add rows:

    pointwise    operands broadcast: axes of extent 1 are inserted after the rows
    cores        the number of trailing axes of each operand on which it works; the axes before
                 them are a batch, as in the signature of a generalised ufunc
    of_rows      another primitive, which applies this one to each row
    batched      calls of its own

Any other primitive runs row by row, in a loop (see `differentiate.batching`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import DECLARED, Literal

Mapped = Sequence[bool]

_ONE = Literal(np.int64(1))


def batched(primitive: Any, size: int, mapped: Mapped, xs: Sequence[Any]) -> Any:
    """The results for `size` rows, all of them mapped. None if the primitive declares no way to add
    rows. At least one operand is mapped."""
    if primitive.pointwise:
        return primitive(*aligned(xs, mapped, [0] * len(xs)))
    found = primitive.batched(size, mapped, xs)
    if found is not None:
        return found
    if primitive.cores is not None:
        return _of_cores(primitive, size, mapped, xs)
    return _of_rows(primitive, size, mapped, xs)


def aligned(xs: Sequence[Any], mapped: Mapped, cores: Sequence[int]) -> list[Any]:
    """The operands with equally many axes before their last `cores[k]`, so that rows broadcast
    against rows."""
    leads = [x.ndim - core - m for x, core, m in zip(xs, cores, mapped, strict=True)]
    most = max(leads)
    return [
        expanded(x, most - lead) if m else x for x, m, lead in zip(xs, mapped, leads, strict=True)
    ]


def expanded(x: Any, further: int) -> Any:
    """A mapped value with `further` axes of extent 1 inserted after its rows."""
    return DECLARED["expand_dims"](tuple(range(1, 1 + further)))(x) if further else x


def repeated(x: Any, size: int, further: int = 0) -> Any:
    """An unmapped value as a mapped one, by broadcasting it to all rows."""
    return DECLARED["broadcast_to"]((size, *(1,) * further, *x.shape))(
        DECLARED["expand_dims"](tuple(range(further)))(x) if further else x
    )


def all_mapped(xs: Sequence[Any], mapped: Mapped, size: int) -> list[Any]:
    """The operands, all of them mapped."""
    return [x if m else repeated(x, size) for x, m in zip(xs, mapped, strict=True)]


def cores_of(primitive: Any, count: int) -> Sequence[int] | None:
    """For each of `count` operands, the number of trailing axes on which the primitive works. None
    if it declares no `cores`."""
    given = getattr(primitive, "cores", None)
    return (given,) * count if isinstance(given, int) else given


def _of_cores(primitive: Any, size: int, mapped: Mapped, xs: Sequence[Any]) -> Any:
    """Add the rows as one more batch axis. Unmapped operands broadcast, or are repeated."""
    cores = cores_of(primitive, len(xs)) or ()
    lined = aligned(xs, mapped, cores)
    rows = [x.aval.with_shape(x.shape[m:]) for x, m in zip(xs, mapped, strict=True)]
    wanted = [(size, *x.shape) for x in primitive.avals(*rows)]
    try:
        fits = [x.shape for x in primitive.avals(*[x.aval for x in lined])] == wanted
    except ValueError:
        fits = False
    if not fits:
        most = max(x.ndim - core - m for x, m, core in zip(xs, mapped, cores, strict=True))
        lined = [
            y if m else repeated(x, size, most - (x.ndim - core))
            for x, y, m, core in zip(xs, lined, mapped, cores, strict=True)
        ]
    try:
        return primitive(*lined)
    except ValueError:  # an operand can't have a batch
        return None


def _of_rows(primitive: Any, size: int, mapped: Mapped, xs: Sequence[Any]) -> Any:
    """Apply the primitive's `of_rows`. All operands become mapped, except the steps of a loop."""
    steps = len(getattr(primitive, "moves", ()))
    if steps and any(mapped[len(xs) - steps :]):
        return None
    changed = primitive.of_rows(size)
    if changed is None:
        return None
    count = len(xs) - steps
    return changed(*all_mapped(xs[:count], mapped[:count], size), *xs[count:])


def row_numbers(size: int, like: Any, ndim: int) -> Any:
    """The number of each row, an array of shape (size, 1, ..., 1) with `ndim` axes. `like` is a
    node of the same tape."""
    ones = DECLARED["broadcast_to"]((size,))(like.writer.node(_ONE))
    numbers = DECLARED["cumsum"](0)(ones) - 1
    return expanded(numbers, ndim - 1)


def put_last(x: Any) -> Any:
    """The value with its rows as the last axis."""
    return DECLARED["transpose"]((*range(1, x.ndim), 0))(x)


def put_first(x: Any) -> Any:
    """The value with its last axis as rows."""
    return DECLARED["transpose"]((x.ndim - 1, *range(x.ndim - 1)))(x)
