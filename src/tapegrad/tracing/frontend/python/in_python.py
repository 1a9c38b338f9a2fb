"""C functions of Python that call user functions or compare numbers, rewritten in Python: `max(a,
b, c)`, `functools.reduce`, `itertools.accumulate`.

So they are followed like user code: their comparisons become branches, and their iterations
loops.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def extreme(
    choose: Callable[..., Any], best: Any, *others: Any, key: Any = None, **options: Any
) -> Any:
    """`max` or `min` of at least three numbers."""
    if options:
        return choose(best, *others, key=key, **options)
    if key is not None:
        return choose([best, *others], key=key)
    for x in others:
        best = choose(best, x)
    return best


def extreme_of(choose: Callable[..., Any], entries: Sequence[Any]) -> Any:
    """`max` or `min` of a list of numbers."""
    return extreme(choose, *entries)


def reduce(function: Callable[[Any, Any], Any], entries: Sequence[Any], *initial: Any) -> Any:
    """functools.reduce."""
    if initial:
        (value,), rest = initial, entries
    elif not len(entries):
        return functools.reduce(function, entries)  # raises an error
    else:
        value, rest = entries[0], entries[1:]
    for x in rest:
        value = function(value, x)
    return value


def accumulate(
    entries: Sequence[Any], func: Callable[[Any, Any], Any] | None = None, *, initial: Any = None
) -> Iterator[Any]:
    """itertools.accumulate."""
    function = operator.add if func is None else func
    if initial is not None:
        value, rest = initial, entries
    elif len(entries):
        value, rest = entries[0], entries[1:]
    else:
        return
    yield value
    for x in rest:
        value = function(value, x)
        yield value
