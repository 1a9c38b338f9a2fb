"""Tuples with some entries changed."""

from collections.abc import Iterable, Sequence
from typing import Any

from tapegrad.autograd.absent import toposort
from tapegrad.autograd.misc.flatten import flatten, flatten_func

__all__ = [
    "flatten",
    "flatten_func",
    "subval",
    "subvals",
    "toposort",
]


def subvals(x: Sequence[Any], changes: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """`x` as a tuple, with the values for these numbers."""
    found = [*x]
    for k, value in changes:
        found[k] = value
    return tuple(found)


def subval(x: Sequence[Any], k: int, value: Any) -> tuple[Any, ...]:
    """`x` as a tuple, with this value for number `k`."""
    return subvals(x, [(k, value)])
