"""`sorted`, `list.sort`, and `max` and `min` with a key, of traced numbers.

    sorted(xs, key=f)  -->   %k = argsort([f(x) for x in xs])    xs[%k]

Python compares two entries at a time, which would make each order a path of its own. If a number is
NaN, which is unordered, Python's own comparisons decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.observe.answers.answers import answer_of
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import observed, unobserved
from tapegrad.tracing.frontend.indexing.indexing import as_python
from tapegrad.tracing.frontend.operands.operands import as_tracer
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer
from tapegrad.tracing.tracers.union_numbers import as_union


def is_ordered(entries: Any, *options: Any) -> bool:
    """Whether entries are traced, or may be sorted by traced keys."""
    if type(entries) not in (list, tuple, range, ArrayTracer):
        return False
    kinds = set() if type(entries) is range else {*map(type, entries)}
    return kinds <= {int} or any(issubclass(kind, Tracer) for kind in kinds)


@unobserved
def in_order(original: Any, entries: Any, *, key: Any = None, reverse: Any = False) -> Any:
    """sorted."""
    found = _ordered(entries, key, reverse)
    if found is not None:
        return found
    with observed():
        return original(entries, key=key, reverse=reverse)


@unobserved
def put_in_order(xs: list[Any], *, key: Any = None, reverse: Any = False) -> None:
    """list.sort."""
    found = _ordered(xs, key, reverse)
    if found is not None:
        xs[:] = found
        return
    with observed():
        xs.sort(key=key, reverse=reverse)


def first_by(original: Any, entries: Any, key: Callable[[Any], Any]) -> Any:
    """`max` or `min` with a key; None if it isn't followed."""
    known = _numbers(entries)
    if known is None or not len(entries):
        return None
    keys = _keys(entries, key)
    array = _comparable(keys)
    if array is None:
        with observed():
            return entries[original(range(len(keys)), key=keys.__getitem__)]
    values, made = known
    return made(as_tracer(values, array)[(np.argmax if original is max else np.argmin)(array)])


# ---- the order


def _ordered(entries: Any, key: Any, reverse: Any) -> list[Any] | None:
    """The sorted entries; None if Python has to compare them."""
    known = _numbers(entries)
    if known is None or len(entries) < 2:
        return None
    if key is None:
        keys, array = entries, _comparable(entries)
    else:
        keys = _keys(entries, key)
        array = _comparable(keys)
    if array is None:
        if key is None:
            return None
        with observed():
            order = sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
        return [entries[k] for k in order]
    values, made = known
    places = _places(array, bool(reverse))
    return [made(x) for x in as_tracer(values, array)[places]]


def _places(keys: Any, reverse: bool) -> Any:
    """The positions of the sorted entries. Equal ones keep their order, in reverse too."""
    if not reverse:
        return np.argsort(keys, kind="stable")
    return (len(keys) - 1 - np.argsort(keys[::-1], kind="stable"))[::-1]


def _keys(entries: Any, key: Callable[[Any], Any]) -> list[Any]:
    known = answer_of(key)
    of = key if known is None else known.by
    with observed():
        return [of(x) for x in entries]


def _comparable(keys: Any) -> Any:
    """Traced numbers as an array without NaN; None if they aren't."""
    known = _numbers(keys) if any(isinstance(x, Tracer) for x in keys) else None
    if known is None or (known[0].dtype.kind == "f" and bool(np.any(np.isnan(known[0])))):
        return None
    return known[0]


def _numbers(xs: Any) -> tuple[Any, Callable[[Any], Any]] | None:
    """Numbers of one type as an array, and the conversion of its elements to that type."""
    if type(xs) is ArrayTracer:
        return (xs, _itself) if xs.ndim == 1 and xs.dtype.kind in "fi" else None
    kinds = {*map(type, xs)}
    if kinds <= {int}:
        plain = np.array(xs)
        return (plain, as_python) if plain.dtype == np.int64 else None
    if len(kinds) != 1 or not issubclass(kind := kinds.pop(), Tracer) or kind is ArrayTracer:
        return None
    first = xs[0]
    if first.dtype.kind not in "fi" or any(x._aval != first._aval for x in xs):
        return None
    if first._either:
        return dispatch.as_operand([*xs]), lambda x: as_union(as_python(x), first._either)
    return dispatch.as_operand([*xs]), as_python if first._weak else _itself


def _itself(x: Any) -> Any:
    return x
