"""Tuples with some entries changed, and other names that programs import from here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tapegrad.autograd.absent import toposort
from tapegrad.autograd.misc.flatten import flatten, flatten_func

__all__ = [
    "flatten",
    "flatten_func",
    "func",
    "quick_grad_check",
    "subval",
    "subvals",
    "toposort",
]


def subvals(x: Sequence[Any], changes: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """`x` as a tuple, with new values at these positions."""
    found = [*x]
    for k, value in changes:
        found[k] = value
    return tuple(found)


def subval(x: Sequence[Any], k: int, value: Any) -> tuple[Any, ...]:
    """`x` as a tuple, with a new value at position `k`."""
    return subvals(x, [(k, value)])


def func(f: Any) -> Any:
    """`f`: in Python 3 a method of a class is a function."""
    return f


def quick_grad_check(
    fun: Callable[..., Any], arg0: Any, extra_args: Any = (), kwargs: Any = None, **options: Any
) -> None:
    """Compare the derivative by the first argument with differences; an AssertionError if they
    differ."""
    from tapegrad.autograd.test_util import check_grads

    check_grads(lambda x: fun(x, *extra_args, **(kwargs or {})), modes=["rev"], order=1)(arg0)
