"""Plain `for` statements of which one round is traced: the replacement of their iterables.

The observer sees a statement begin. If its iterable is known to have the same entries in each pass
(`loops/entries.py`), it is replaced by one that returns entries by number (`for_statement.py`). If
a round turns out to do more than that allows, the trace is repeated, and all rounds are made.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType, GeneratorType, ModuleType
from typing import Any

import numpy as np

from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.pure_operations import ITERATORS, is_private
from tapegrad.observe.objects.comparing import is_empty
from tapegrad.observe.objects.purity import INERT
from tapegrad.observe.observer import following
from tapegrad.observe.program import frames
from tapegrad.observe.program.comprehensions import as_list
from tapegrad.observe.program.frames import operand_at
from tapegrad.observe.program.joins import Sides, sides_of
from tapegrad.observe.program.source import is_users, source_of
from tapegrad.primitives.loops import MIN_CALLS, MIN_ROUNDS
from tapegrad.tracing.loops.entries import Items, Numbers, Zipped, items_of
from tapegrad.tracing.operators.integer_bounds import span
from tapegrad.tracing.recording.trace import current_trace, traces_under_way
from tapegrad.tracing.statements.filled_lists import FilledList
from tapegrad.tracing.statements.for_statement import EntryIterator, LoopRange, TracedIterable
from tapegrad.tracing.statements.for_with_exit import IterableWithExit
from tapegrad.tracing.statements.frame_rounds import ENTRIES, Count
from tapegrad.tracing.statements.varying_lists import MAX_ROUNDS, VaryingIterator, VaryingList
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, stand_in

_DEEP = 4


def _plain(a: Activation) -> TracedIterable | IterableWithExit | None:
    """The replacement of the iterable of a `for` statement that is about to begin; None if its
    rounds must be traced one by one."""
    trace = current_trace()
    if trace is None or a.sides is not None or a.o.apart is not None:
        return None
    sides, place, function = _statement(a)
    if place is None:
        return None
    _note_length(a, sides.reasons.get(place) if place in sides.unrolled else None)
    if place in sides.unrolled:
        return None
    leaves = not sides.flow.body(place)
    if leaves and not sides.flow.is_left_by_tests(place):
        return None
    if function is not None and not any(map(reaches_traced, (a.top(), function))):
        return None
    holders = frames.references(operand_at(a.stack, 0))
    x = a.top()
    short = type(x) is LoopRange
    items, count = _entries_of(x.numbers if short else x, holders)
    short = short or count is not None or _varies(sides, place, items)
    if items is None or (len(items) < MIN_ROUNDS and not (short or (leaves and trace.in_frame))):
        return None
    is_unpacked = sides.flow.at[sides.flow.next[place]].opname == "UNPACK_SEQUENCE"
    if type(items) is Zipped and type(x) in (list, tuple) and not is_unpacked:
        return None  # other code may test whether its entries are those of the loop
    if leaves:
        items.settle()
        return None if count is not None else IterableWithExit(items, sides, place)
    return _once(sides, place, items, count, short)


def _note_length(a: Activation, why: Any) -> None:
    """Note for `explain`, by a statement's line: the least and the largest number of its entries,
    `why` one round doesn't stand for all, if that was tried, and how many calls come before it."""
    x, code = a.top(), a.frame.f_code
    kind: Any = type(x)
    is_array = kind in (np.ndarray, ArrayTracer) and x.ndim > 0
    if is_users(code) and (is_array or kind in (range, list, tuple, LoopRange)):
        outer, *inner = traces_under_way()
        at = -1 if inner else len(outer.builder.calls)
        place, n = source_of(code, a.frame.f_lineno), x.shape[0] if is_array else len(x)
        least, most, *_ = outer.begun.get(place, (n, n))
        outer.begun[place] = min(least, n), max(most, n), why, at


def _entries_of(x: Any, holders: int) -> tuple[Items | None, Count | None]:
    """The entries of an iterable, and the number of rounds, if it varies between calls."""
    kind: Any = type(x)
    if kind in (VaryingList, VaryingIterator, FilledList):
        return x.items() or (None, None)
    return items_of(x, holders), None


def _varies(sides: Sides, place: int, items: Items | None) -> bool:
    """Whether a loop along an axis had another number of rounds in an earlier trace. Then one round
    serves all lengths."""
    if items is None:
        return False
    trace, length = traces_under_way()[0], len(items)
    shapes = [var.shape for var in trace.builder.inputs]
    return sides.varies(place, trace.builder.name, trace.level, length, shapes) and length > 0


def _once(
    sides: Sides, place: int, items: Items, count: Count | None, short: bool = False
) -> TracedIterable | None:
    """The replacement of an iterable with these entries, if there are enough of them."""
    is_short = len(items) * sides.flow.weight(place) < MIN_CALLS
    few = len(items) < MIN_ROUNDS or (is_short and not sides.flow.chooses(place))
    sides.lengths[place] = len(items)
    if (few or sides.is_short(place)) and not short:
        return None
    items.settle()
    for each in traces_under_way():
        each.counted.append((sides, place))
    return TracedIterable(items, count, short)


def turned(x: GeneratorType[Any, Any, Any], short: bool) -> Callable[[], Any] | None:
    """Make a loop of a new generator expression, if that is possible, however `short` it is.
    Returns a function that makes the list of its entries; None if it isn't possible."""
    frame: Any = x.gi_frame
    entries, address = frame.f_locals[".0"], frames.address_of(frame)
    code = as_list(x.gi_code)
    if code is not None:
        sides = sides_of(code)
        place = sides.flow.comprehension
        traced = any(map(reaches_traced, (entries, *frame.f_locals.values())))
        may_be = place is not None and place not in sides.unrolled and traced
        items, count = _entries_of(entries, 1) if may_be else (None, None)
        given = None
        if place is not None and items is not None:
            short = short or count is not None or _varies(sides, place, items)
            given = _once(sides, place, items, count, short)
        if given is not None:
            return functools.partial(_function_of(code, frame), iter(given))
    watched = following.observer is not None and following.observer.effects is not None
    if watched and type(entries) in ITERATORS and is_private(entries):
        frames.set_local(address, 0, EntryIterator(entries))
    return None


def _function_of(code: CodeType, frame: Any) -> FunctionType:
    """A function of this code, which is the code of the frame except for the use of its entries."""
    address, first = frames.address_of(frame), len(code.co_varnames) + len(code.co_cellvars)
    cells = [frames.local(address, first + k) for k in range(len(code.co_freevars))]
    function = FunctionType(code, frame.f_globals, code.co_name, None, tuple(cells))
    if following.observer is not None:
        following.observer.made.add(code)
    return function


def _statement(a: Activation) -> tuple[Sides, int | None, FunctionType | None]:
    """The `for` that is about to begin, of a statement or a comprehension with its function."""
    sides = sides_of(a.frame.f_code)
    place = sides.flow.loop_at(a.frame.f_lasti)
    if place is None and sides.flow.is_called_on_iterator(a.frame.f_lasti):
        f = a.top(1)
        if type(f) is FunctionType and not f.__code__.co_flags & inspect.CO_GENERATOR:
            sides = sides_of(f.__code__)
            return sides, sides.flow.comprehension, f
    return sides, place, None


def reaches_traced(x: Any, depth: int = 0) -> bool:
    """Whether an object that a comprehension reads may contain a traced value. It is unknown for
    objects and functions of the program."""
    kind: Any = type(x)
    if isinstance(x, Tracer):
        return True
    if kind is FunctionType:
        return depth >= _DEEP or any(reaches_traced(c, depth + 1) for c in x.__closure__ or ())
    if kind is CellType:
        return not is_empty(x) and reaches_traced(x.cell_contents, depth)
    if kind in (list, tuple, dict):
        values = x.values() if kind is dict else x
        return depth >= _DEEP or any(reaches_traced(y, depth + 1) for y in values)
    return not (INERT[kind] or isinstance(x, (np.ndarray, type, ModuleType, range)))


def _ranged(a: Activation, args: Sequence[Any]) -> Any:
    """The replacement of a call of `range` with traced integers, for a `for` statement within a
    loop. Its number of rounds may then vary with the rounds of the outer loop."""
    trace, code = current_trace(), a.frame.f_code
    if trace is None or not trace.in_frame or a.sides is not None or a.o.apart is not None:
        return None
    sides = sides_of(code)
    after = sides.flow.next.get(a.frame.f_lasti)
    while after is not None and sides.flow.at[after].opname == "CACHE":
        after = sides.flow.next.get(after)
    if after is None or sides.flow.at[after].opname != "GET_ITER" or not 0 < len(args) < 4:
        return None
    place = sides.flow.loop_at(after)
    unknown = place is None or not sides.flow.body(place) or place in sides.unrolled
    if place is None or unknown or not all(_is_number(x) for x in args):
        return None
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if isinstance(step, Tracer) or not step:
        return None
    numbers = range(
        *[int(x._read()[1]) if isinstance(x, Tracer) else x for x in (start, stop, step)]
    )
    low, high = (start, stop) if step > 0 else (stop, start)
    count = high if type(low) is int and not low else high - low
    if not isinstance(count, Tracer):
        return None
    if not numbers:
        trace.guard(count > 0, False, ENTRIES)
        return functools.partial(_given, numbers)
    far, most = abs(step), span(count)[1]
    if most > MAX_ROUNDS:
        return None
    if far > 1:
        count, most = (count + (far - 1)) // far, -(-most // far)
    for each in traces_under_way():
        each.counted.append((sides, place))
    least = span(low)[0] + (step < 0)
    below = None  # another tracer than the variable's, which changes in rounds
    if step > 0 and isinstance(stop, Tracer):
        below = stand_in(stop._trace, *stop._read(), weak=True)
    items = Numbers(numbers, start, (least, max(least, span(high)[1] - (step > 0))), below)
    return functools.partial(_given, TracedIterable(items, Count(count, most)))


def _is_number(x: Any) -> bool:
    return type(x) is int or (isinstance(x, Tracer) and x._weak and x.dtype.kind == "i")


def _given(found: TracedIterable | range, *args: Any) -> TracedIterable | range:
    return found


dispatch.counted = _plain
dispatch.ranged = _ranged
