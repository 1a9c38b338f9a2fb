"""Python functions that iterate over all entries of an argument: list, sum, max, reduce; and `int`
and `float` of an integer that varies with the rounds.

    sum(f(v) for v in x)  -->    %y = loop(n, ...)             y[k] = f(x[k])
                                 %s = loop(n, 0, %y, ...)      s = s + y[k]

The entries of a generator expression are computed by a loop, of which one round is traced
(`tracing/statements/iterables.py`). The results of its rounds are the rows of an array, which a
second loop adds up, or compares, in Python's order.
"""

from __future__ import annotations

import builtins
import functools
import itertools
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FrameType
from typing import Any

import numpy as np

from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.program.joins import sides_of
from tapegrad.observe.sides.effects import is_waiting
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.control import tells
from tapegrad.primitives.loops import MIN_CALLS
from tapegrad.tracing.frontend.python import in_python
from tapegrad.tracing.frontend.python.appended_lists import listed
from tapegrad.tracing.frontend.python.ordering import first_by, in_order, is_ordered, put_in_order
from tapegrad.tracing.loops.scan import scan
from tapegrad.tracing.loops.stacking import Rows, as_rows
from tapegrad.tracing.operators.integer_bounds import EXACT, may_vary
from tapegrad.tracing.statements.frame_rounds import retrace_with
from tapegrad.tracing.statements.iterables import turned
from tapegrad.tracing.statements.varying_lists import VaryingList, making
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, record, stand_in
from tapegrad.tracing.tracers.union_numbers import as_union

_BOUNDED = "fb"  # kinds of numbers that don't change their type, however many are added
Fold = Callable[[Any, Any], Any]


def answer(frame: FrameType, f: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
    """The replacement for a function that a frame calls with `args`; None if it needs none."""
    if any(type(x) is VaryingList for x in args):
        of_varying = _OF_VARYING.get(id(f)) if type(args[0]) is VaryingList else None
        return making(f, args) if of_varying is None else functools.partial(of_varying, f)
    if type(f) is BuiltinFunctionType and f.__name__ == "sort" and type(f.__self__) is list:
        may_be = dispatch.trace() is not None and is_ordered(f.__self__)
        return functools.partial(put_in_order, f.__self__) if may_be else None
    known = _ANSWERS.get(id(f))
    if known is None or dispatch.trace() is None or not args:
        return None
    is_meant, by = known
    if not is_meant(*args):
        return None
    if by in _FOLLOWED:
        return by
    if by is in_order:
        return functools.partial(by, f)
    if by is _extreme and len(args) > 1 and not callable(args[1]):
        return functools.partial(in_python.extreme, f)
    if by is _extreme and len(args) == 1 and _are_few(args[0]):
        return functools.partial(in_python.extreme_of, f)
    if not is_waiting(args[0]):
        return functools.partial(_of_entries, by, f)
    sides, place = sides_of(frame.f_code), frame.f_lasti
    if by is _tested and not sides.flow.is_called_on_expression(place):
        return None  # other code may use the rest of it
    make = None if place in sides.unrolled else turned(args[0], short=by is _tested)
    if make is not None and by is _tested:
        make = functools.partial(_silently, make, (sides.unrolled, place))
    return None if make is None else functools.partial(_collected, by, f, make)


def _silently(make: Callable[[], Any], note: Any) -> Any:
    """All entries of a generator expression. If one of its calls has an effect, such as printing,
    entries behind the deciding one must not run: the trace is repeated without this."""
    calls = dispatch.trace().builder.calls
    first = len(calls)
    found = make()
    if any(call.primitive.checks and tells(call.primitive) for call in calls[first:]):
        raise retrace_with([note])
    return found


# ---- tests of arguments


def _is_one(*args: Any) -> bool:
    return len(args) == 1 and is_waiting(args[0])


def _is_added(x: Any, *start: Any) -> bool:
    many = type(x) is ArrayTracer and x.ndim > 0 and x.shape[0] >= MIN_CALLS
    return len(start) < 2 and (many or is_waiting(x) or (type(x) is list and _are_many(x)))


def _is_tested(*args: Any) -> bool:
    return len(args) == 1 and (_is_gone_over(args[0]) or _are_few(args[0], 1))


def _is_gone_over(x: Any) -> bool:
    return is_waiting(x) or _are_numbers(x)


def _is_compared(*args: Any) -> bool:
    if len(args) == 2 and callable(args[1]):  # the second is the key
        return is_ordered(args[0])
    return _are_few(args) if len(args) > 1 else _is_gone_over(*args) or _are_few(*args)


def _is_of_round(*args: Any) -> bool:
    x = args[0]
    is_one = len(args) == 1 and isinstance(x, Tracer) and not isinstance(x, ArrayTracer)
    return is_one and x.dtype.kind == "i" and may_vary(x)


def _are_many(x: Any) -> bool:
    return len(x) >= MIN_CALLS and isinstance(x[-1], Tracer)


def _is_reduced(function: Any, *args: Any) -> bool:
    return len(args) in (1, 2) and _is_gone_through(args[0])


def _is_gone_through(entries: Any, *others: Any) -> bool:
    if type(entries) in (list, tuple):
        return any(isinstance(x, Tracer) for x in entries)
    return type(entries) is ArrayTracer and entries.ndim > 0


def _are_few(x: Any, least: int = 3) -> bool:
    """Whether `x` is a short list of numbers, some of them traced, of at least `least`: Python
    compares two at a time."""
    if type(x) not in (list, tuple) or not least <= len(x) < MIN_CALLS:
        return False
    kinds = {*map(type, x)}
    return any(issubclass(kind, Tracer) for kind in kinds) and not any(
        kind is ArrayTracer or not issubclass(kind, (Tracer, float, int)) for kind in kinds
    )


def _are_numbers(x: Any) -> bool:
    """Whether `x` is a long list of traced numbers of one type."""
    if type(x) is ArrayTracer:
        return x.ndim == 1 and x.shape[0] >= MIN_CALLS
    if type(x) not in (list, tuple) or not _are_many(x):
        return False
    first = x[-1]._aval
    return not isinstance(x[-1], ArrayTracer) and all(
        isinstance(y, Tracer) and (y._aval is first or y._aval == first) for y in x
    )


# ---- loops over entries


def _folded(f: Fold, start: Any, entries: Any) -> Any:
    """f(...f(f(start, entries[0]), entries[1])...), in loops where entries are rows of arrays."""
    if type(entries) is ArrayTracer and entries.dtype.kind in _BOUNDED:
        return _along(f, start, entries, False)
    k = 0
    for part in as_rows(entries) or entries:
        is_run = isinstance(part, Rows)
        count = len(part.stacks) * part.rounds if is_run else 1
        is_loop = is_run and len(part.stacks) == 1 and count >= MIN_CALLS
        if is_loop and part.stacks[0].dtype.kind in _BOUNDED:
            either = entries[k]._either
            start = as_union(_along(f, start, part.parts()[0], entries[k]._weak), either)
        else:
            for entry in entries[k : k + count]:
                start = f(start, entry)
        k += count
    return start


def _along(f: Fold, start: Any, rows: Any, weak: bool) -> Any:
    def step(carried: Any, row: Any) -> tuple[Any, None]:
        return f(carried, _as_pythons(row) if weak else row), None

    return scan(step, start, rows, None, False)[0]


def _as_pythons(x: Any) -> Any:
    operand, value = x._read()
    return stand_in(x._trace, operand, value, weak=True)


def _add(total: Any, entry: Any) -> Any:
    return total + entry


def _chosen(is_larger: bool) -> Fold:
    def choose(best: Any, entry: Any) -> Any:
        beyond = entry > best if is_larger else entry < best
        found = record(entry._trace, ew.where, [beyond, entry, best])
        return _as_pythons(found) if entry._weak else found

    return choose


# ---- replacements


@unobserved
def _of_entries(by: Any, original: Any, entries: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The replacement `by` applied to entries; the original's result if `by` returns None."""
    found = by(original, entries, *args, **kwargs)
    if found is not None:
        return found
    with observed():
        return original(entries, *args, **kwargs)


@unobserved
def _collected(by: Any, f: Any, make: Any, given: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The same for a generator expression, whose entries are collected first."""
    found = listed(make)
    if type(found) is VaryingList:
        of_varying = _OF_VARYING.get(id(f), VaryingList.give_up)
        return of_varying(f, found, *args, **kwargs)
    if by is _tested and as_rows(found) is not None:
        return _as_pythons(_TESTING[f](dispatch.as_operand(found)))
    return _of_entries(by, f, found, *args, **kwargs)


def _whole(kind: Any, x: Any) -> Any:
    if not x._weak:
        x = _as_pythons(x.astype(np.int64))
    return x if kind is int else x * 1.0


def _listed(kind: Any, entries: Any) -> Any:
    return entries if kind is list else kind(entries)


def _sum(original: Any, entries: Any, start: Any = 0) -> Any:
    fits = not isinstance(start, (str, bytes, bytearray)) and _is_added(entries)
    return _folded(_add, start, entries) if fits else None


def _extreme(original: Any, entries: Any, *others: Any, **options: Any) -> Any:
    if not others and options.keys() == {"key"} and options["key"] is not None:
        return first_by(original, entries, options["key"])
    if others or options or not _are_numbers(entries):
        return None
    return _folded(_chosen(original is builtins.max), entries[0], entries[1:])


def _tested(original: Any, entries: Any) -> Any:
    """`any` and `all` of known entries. Entries behind the deciding one are evaluated, too; their
    rounds have changed nothing."""
    if not (_are_numbers(entries) or _are_few(entries, 1)):
        return None
    return _as_pythons(_TESTING[original](dispatch.as_operand(entries)))


_TESTING: dict[Any, Any] = {builtins.any: np.any, builtins.all: np.all}


# ---- lists of varying length


def _varying_sum(f: Any, x: VaryingList, start: Any = 0) -> Any:
    if x.kind == "f":
        return as_union(_along(_add, start, x.rows(-0.0), x.weak), x.either)  # v + -0.0 is v
    total: Any = np.sum(x.rows(x.entries.dtype.type(0)))
    if x.weak:
        total = _as_pythons(total)
    if x.kind == "i":
        most = x.bound * len(x.whole)
        if not x.weak or most > EXACT:
            x.give_up()
        total._trace.bounds[total._operand] = -most, most
    return total + start


def _varying_extreme(f: Any, x: VaryingList) -> Any:
    is_max = f is builtins.max
    if x.kind == "f":
        return as_union(_along(_chosen(is_max), x[0], x.whole, x.weak), x.either)
    return x.entry((np.max if is_max else np.min)(x.whole))


def _varying_tested(f: Any, x: VaryingList) -> Any:
    return _as_pythons(_TESTING[f](x.whole))


_OF_VARYING: dict[int, Callable[..., Any]] = {
    id(sum): unobserved(_varying_sum),
    id(list): lambda f, x: x.copy(),
    id(sorted): unobserved(lambda f, x: x.sorted()),
    **{id(f): unobserved(_varying_extreme) for f in (max, min)},
    **{id(f): unobserved(_varying_tested) for f in (any, all)},
    **{id(f): unobserved(lambda f, x: x.array) for f in (np.array, np.asarray, np.asanyarray)},
}

_ANSWERS: dict[int, tuple[Callable[..., bool], Callable[..., Any]]] = {
    **{id(f): (_is_one, _listed) for f in (list, tuple)},
    **{id(f): (_is_compared, _extreme) for f in (max, min)},
    **{id(f): (_is_tested, _tested) for f in (any, all)},
    **{id(f): (_is_of_round, _whole) for f in (int, float)},
    id(sum): (_is_added, _sum),
    id(sorted): (is_ordered, in_order),
    id(list.sort): (is_ordered, put_in_order),
    id(functools.reduce): (_is_reduced, in_python.reduce),
    id(itertools.accumulate): (_is_gone_through, in_python.accumulate),
}
_FOLLOWED = (put_in_order, in_python.reduce, in_python.accumulate)
