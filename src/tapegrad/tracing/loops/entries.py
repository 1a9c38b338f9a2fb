"""The entries of a plain `for` statement, as functions of the step.

    for t in range(2, n):               t = step + 2
    for row in x:                       row = x[step]
    for k, (a, b) in enumerate(zip(x, y), 1):
                                        k, (a, b) = step + 1, (x[step], y[step])
    for a, b in combinations(x, 2):     a, b = x[first[step]], x[second[step]]

A list of traced floats is stacked to an array. Iterators are decomposed by `__reduce__`, their
pickling method. An iterator that has advanced already, or that anything but the statement refers
to, is left to Python.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.arrays import objection
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.tracing.loops.stacking import rows_of, strong
from tapegrad.tracing.operators.integer_bounds import may_vary
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, stand_in
from tapegrad.tracing.tracers.union_numbers import as_union

# Looks up the tracer of a plain array that a traced integer indexes
Found = Callable[[np.ndarray, Tracer], Any]


@dataclass(frozen=True)
class Numbers:
    """The numbers of a range, which may start at a traced number."""

    numbers: range
    start: Any = None
    span: tuple[int, int] = (0, 0)  # bounds of the numbers, if it has a traced start
    stop: Any = None  # the traced end, if it has one: the numbers are below it

    def __len__(self) -> int:
        return len(self.numbers)

    def settle(self) -> None:
        """Do nothing: numbers need no preparation."""

    def at(self, k: int) -> Any:
        """Entry number `k`."""
        return self.numbers[k]

    def item(self, trace: Trace, step: Tracer, done: int, found: Found) -> Any:
        """The entry at a step, as a Python number, for a loop with `done` rounds in front of it."""
        first, by = self.numbers[done], self.numbers.step
        span = min(first, self.numbers[-1]), max(first, self.numbers[-1])
        number: Any = step
        if by != 1:
            number = number * np.int64(by)
        if self.start is not None:
            number, span = number + self.start, self.span
            first = done * by
        if first:
            number = number + np.int64(first)
        operand, value = number._read()
        trace.bounds[operand] = span
        if self.stop is not None:
            trace.below[operand] = self.stop
        return stand_in(trace, operand, value, weak=True)


@dataclass(frozen=True)
class Entries:
    """The entries of an array along its first axis, or of a list of Python numbers."""

    given: Any  # the array, or a list of traced floats, to be stacked
    is_weak: bool = False
    either: int = 0  # whether numbers may be Python's or NumPy's: see `Tracer._either`
    backwards: bool = False
    whole: Any = None  # the list, kept so that a change of its length in rounds is seen

    def __len__(self) -> int:
        return len(self.given)

    @functools.cached_property
    def array(self) -> Any:
        is_list = type(self.given) in (list, tuple)
        return dispatch.stack(list(map(strong, self.given))) if is_list else self.given

    def settle(self) -> None:
        """Record the array of the entries in front of the loop."""
        _ = self.array

    def at(self, k: int) -> Any:
        x = self.array[len(self) - 1 - k if self.backwards else k]
        if not isinstance(x, Tracer):
            return x.item() if self.is_weak else x
        return _weak(x, self.array) if self.is_weak else as_union(x, self.either)

    def item(self, trace: Trace, step: Tracer, done: int, found: Found) -> Any:
        count = len(self)
        numbers = range(count - 1, -1, -1) if self.backwards else range(count)
        return self.entry(Numbers(numbers).item(trace, step, done, found), found)

    def entry(self, k: Any, found: Found) -> Any:
        """The entry at a traced number."""
        x = (found(self.array, k) if type(self.array) is np.ndarray else self.array)[k]
        return _weak(x, self.array) if self.is_weak else as_union(x, self.either)


@dataclass(frozen=True)
class Picked:
    """Traced entries in an order given by plain numbers."""

    entries: Entries
    numbers: Entries

    def __len__(self) -> int:
        return len(self.numbers)

    def settle(self) -> None:
        self.entries.settle()

    def at(self, k: int) -> Any:
        return self.entries.at(self.numbers.at(k))

    def item(self, trace: Trace, step: Tracer, done: int, found: Found) -> Any:
        return self.entries.entry(self.numbers.item(trace, step, done, found), found)


@dataclass(frozen=True)
class Zipped:
    """Tuples of the entries of several sequences."""

    parts: Sequence[Any]

    def __len__(self) -> int:
        return min(map(len, self.parts))

    def settle(self) -> None:
        for part in self.parts:
            part.settle()

    def at(self, k: int) -> Any:
        return tuple([part.at(k) for part in self.parts])

    def item(self, trace: Trace, step: Tracer, done: int, found: Found) -> Any:
        return tuple([part.item(trace, step, done, found) for part in self.parts])


Items = Numbers | Entries | Picked | Zipped


def entry_of(x: Any, k: Tracer) -> Any:
    """The entry of a list at a number that varies between rounds or calls; None unless all entries
    are of one type."""
    value = k._read()[1]
    varies = may_vary(k) or not k._trace.is_guarded(k)
    if k.dtype.kind != "i" or k.shape or not varies or not -len(x) <= value < len(x):
        return None
    known = _plain_array(x)
    if known is not None:
        entry = dispatch.gathered(known, k)[k]
        rows = x if known.ndim == 2 else (x,)
        weak = type(rows[0][0]) is not np.float64
        if known.ndim == 2:
            return type(x[0])(rows_of(entry, weak, False))
        return _weak(entry, known) if weak else entry
    items = _of_list(x)
    if not isinstance(items, Entries):
        return None
    entry = items.array[k]
    return _weak(entry, items.array) if items.is_weak else as_union(entry, items.either)


def _plain_array(x: Any) -> np.ndarray | None:
    """The array of a list of plain floats, Python's or NumPy's, or of plain integers, or of lists
    of these with equal lengths."""
    rows = x if type(x[0]) in (list, tuple) else (x,)
    if any(type(row) is not type(rows[0]) or len(row) != len(rows[0]) for row in rows):
        return None
    entries = [v for row in rows for v in row]
    kinds = set(map(type, entries))
    if kinds not in ({float}, {np.float64}) and (
        kinds != {int} or any(abs(v) >= 2**31 for v in entries)
    ):
        return None
    found = np.array(x)
    return _shared(found.tobytes(), found.dtype.str, found.shape)


@functools.lru_cache(maxsize=64)
def _shared(data: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """The same array for the same contents, also in another trace of the round."""
    return np.frombuffer(data, dtype).reshape(shape)


def _weak(x: Any, array: Any) -> Any:
    """A NumPy number from an array, as a Python number."""
    operand, value = x._read()
    if array.dtype.kind == "i" and type(array) is np.ndarray:
        x._trace.bounds[operand] = int(np.min(array)), int(np.max(array))
    return stand_in(x._trace, operand, value, weak=True)


def items_of(x: Any, holders: int) -> Items | None:
    """The entries of a statement's iterable. None unless they are known to be complete, and the
    same in each pass. `holders` is the number of references to `x` besides the statement's,
    including those of the count."""
    kind: Any = type(x)
    if kind is range:
        return Numbers(x)
    if kind is ArrayTracer or kind is np.ndarray:
        return _of_array(x)
    if kind in (list, tuple):
        return _of_list(x)
    if kind in _ITERATORS and holders <= 1:
        return _of_iterator(x)
    return None


def _of_array(x: Any, backwards: bool = False) -> Items | None:
    if isinstance(x, Tracer):
        fits = x.ndim > 0 and x._trace.alive
        fits = fits and not x._doubt and not x._may_alias
    else:
        fits = x.ndim > 0 and x.dtype.kind in "fib" and not objection(x)
    return Entries(x, backwards=backwards) if fits else None


def _of_list(x: Any, backwards: bool = False) -> Items | None:
    kinds = set(map(type, x))
    if kinds in ({float}, {bool}) or (kinds == {int} and all(abs(v) < 2**31 for v in x)):
        return Entries(np.array(x), is_weak=True, backwards=backwards, whole=x)
    if len(kinds) == 1 and issubclass(kinds.copy().pop(), (np.number, np.bool_)):
        array = np.array(x)
        fits = array.dtype.kind in "fib" and not objection(array)
        return Entries(array, backwards=backwards, whole=x) if fits else None
    if len(kinds) == 1 and _are_reals(x):
        return Entries([*x], x[0]._weak, x[0]._either, backwards, whole=x)
    if kinds == {tuple} and len(set(map(len, x))) == 1:
        columns = [_of_list(column, backwards) for column in zip(*x, strict=True)]
        found = [replace(part, whole=x) for part in columns if isinstance(part, Entries)]
        return Zipped(found) if found and len(found) == len(columns) else None
    return None


def _are_reals(x: Sequence[Any]) -> bool:
    """Whether all entries, which are of one class, are traced floats of one trace."""
    first = x[0]
    if not isinstance(first, Tracer) or isinstance(first, ArrayTracer) or first.dtype.kind != "f":
        return False
    return all(y._trace is first._trace and y._trace.alive and not y._doubt for y in x)


def _of_iterator(x: Any) -> Items | None:
    kind: Any = type(x)
    if kind is _GENERATOR:
        return _of_generator(x)
    if kind in (zip, enumerate):
        return _of_iterators(x)
    if kind in _COMBINING:
        return _of_combinations(x)
    made, (whole,), *state = x.__reduce__()
    if made is reversed:
        if state != [len(whole) - 1]:
            return None
        return _of_whole(whole, True)
    if made is not iter or state not in ([0], [None]):
        return None
    return _of_whole(whole)


def _of_combinations(x: Any) -> Items | None:
    """The entries of an iterator over tuples of entries: products, permutations, combinations."""
    kind: Any = type(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a warning from Python 3.12 on
        try:
            _, given, *state = x.__reduce__()
        except TypeError:  # from Python 3.14 on, what they are made of can't be asked
            return None
    is_product = kind is itertools.product
    pools = [_of_list(pool) for pool in (given if is_product else given[:1])]
    known = [pool for pool in pools if isinstance(pool, Entries)]
    if state or not known or len(known) < len(pools):
        return None
    numbers = [range(len(pool)) for pool in known]
    rows = list(itertools.islice(kind(*numbers, *([] if is_product else given[1:])), _MAX_ROWS + 1))
    if not rows or len(rows) > _MAX_ROWS:
        return None
    columns = [Entries(np.array(column), is_weak=True) for column in zip(*rows, strict=True)]
    pairs = zip(known if is_product else known * len(columns), columns, strict=True)
    return Zipped([_picked(*pair) for pair in pairs])


def _picked(entries: Entries, numbers: Entries) -> Items:
    if type(entries.given) is np.ndarray:
        return replace(entries, given=entries.given[numbers.given])
    return Picked(entries, numbers)


_MAX_ROWS = 1 << 20  # tuples

_COMBINING: tuple[Any, ...] = (
    *(itertools.product, itertools.permutations, itertools.combinations),
    itertools.combinations_with_replacement,
)


def _of_iterators(x: Any) -> Items | None:
    """The entries of `zip` or `enumerate` over iterators that nothing else refers to."""
    if any(count > _ALONE[type(x)] for count in _holders(x)):
        return None
    made, given, *state = x.__reduce__()
    inner = given[:1] if made is enumerate else given
    parts = [_of_iterator(part) if type(part) in _ITERATORS else None for part in inner]
    found = [part for part in parts if part is not None]
    if not found or len(found) < len(parts) or (state and len({*map(len, found)}) > 1):  # `strict`
        return None
    if made is enumerate:
        if abs(given[1]) >= 2**31:
            return None
        return Zipped([Numbers(range(given[1], given[1] + len(found[0]))), found[0]])
    return Zipped(found)


def _holders(x: Any) -> list[int]:
    """The number of references to each of the inner iterators, including those of the count."""
    made, given, *_ = x.__reduce__()
    return [sys.getrefcount(part) for part in (given[:1] if made is enumerate else given)]


# The number without other references
_PROBES: list[Any] = [zip(iter(())), enumerate(iter(()))]
_ALONE = {type(x): _holders(x)[0] for x in _PROBES}


def _of_whole(x: Any, backwards: bool = False) -> Items | None:
    kind: Any = type(x)
    if kind is range and not backwards:
        return Numbers(x)
    if kind is ArrayTracer or kind is np.ndarray:
        return _of_array(x, backwards)
    found = _of_list(x, backwards) if kind in (list, tuple) else None
    return found if isinstance(found, Entries) else None  # a list's tuples are objects of its own


def _of_generator(x: Any) -> Items | None:
    """The entries of a generator that iterates over a traced array."""
    if x.gi_code not in ArrayTracer.__iter__.__code__.co_consts:
        return None
    if inspect.getgeneratorstate(x) != inspect.GEN_CREATED:
        return None
    array = x.gi_frame.f_locals.get("self")
    return _of_array(array) if type(array) is ArrayTracer else None


def found_among(lent: Any) -> Found:
    """The lookup of tracers of plain arrays: those that are `lent`, or inputs of the tape."""

    def found(x: np.ndarray, k: Tracer) -> Any:
        known = lent.tracer_of(x)
        return dispatch.gathered(x, k) if known is None else known

    return found


dispatch.entry = entry_of

_GENERATOR: Any = type(x for x in "")
_ITERATORS = {
    *(zip, enumerate, reversed, _GENERATOR, *_COMBINING),
    *map(type, (iter([]), iter(()), iter(range(0)), iter(np.empty(0)), reversed([]))),
}
