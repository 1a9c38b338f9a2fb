"""Lists whose length differs between calls, since a branch appends to them.

    for v in x:                      loop(n, %there, %ys, %x, body)
        if v > 0:                    selected = ys[there]
            out.append(f(v))  -->
    np.mean(out), len(out)           np.mean(selected), len(selected)

The entries of such a list are the elements of an array that a mask selects. A variable holds a
proxy of the list, which is no list, and supports the operations below;
`frontend/python/appended_lists.py` keeps it from all others. A list derived from it is another
array with another mask:

    out[1:]           ys[there & (rank >= 1)]       rank: the number of entries before one
    out.append(v)     concatenate([ys, [v]])[concatenate([there, [True]])]
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import unobserved
from tapegrad.tracing.loops.entries import Entries, Items, Numbers, Zipped, items_of
from tapegrad.tracing.loops.stacking import strong
from tapegrad.tracing.operators.integer_bounds import bound
from tapegrad.tracing.statements.frame_rounds import Count, retrace_with
from tapegrad.tracing.statements.growing_lists import is_one_of
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, stand_in
from tapegrad.tracing.tracers.union_numbers import as_union

MAX_ROUNDS = 100_000  # rounds of a loop with a traced number

Note = tuple[set[int], int]
Varying = tuple[Items, Count]


class VaryingList:
    """The proxy of a nonempty list of numbers: Python's if `weak`, of varying type if `either`. Its
    `entries` are the elements of an array that a mask selects. Any other operation repeats the
    trace, with a note."""

    def __init__(self, entries: Any, weak: bool, either: int, note: Note) -> None:
        self.entries, self.weak, self.either, self._note = entries, weak, either, note

    def give_up(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise retrace_with([self._note])

    @property
    def kind(self) -> str:
        if not self.entries._serves:
            self.give_up()
        kind: str = self.entries.dtype.kind
        return kind

    @property
    def _type(self) -> tuple[Any, bool, int]:
        """(dtype, weak, either) of all entries."""
        return self.entries.dtype, self.weak, self.either

    @property
    def whole(self) -> Any:
        """The entries of all rounds, with the first present one in the place of absent ones."""
        return self.entries._whole

    @property
    def mask(self) -> Any:
        """The mask of the present ones."""
        return self.entries._selection.mask

    @property
    def bound(self) -> int:
        """A bound on the absolute values of integer entries, valid at later calls too."""
        return bound(np.max(np.abs(self.whole)))

    @property
    def array(self) -> Any:
        """A new array of the entries."""
        return self.entries.copy()

    def _length(self) -> Any:
        return self.entries._selection.count

    def entry(self, x: Any) -> Any:
        if not self.weak and not self.either:
            return x
        operand, value = x._read()
        return as_union(stand_in(x._trace, operand, value, weak=self.weak), self.either)

    def rows(self, fill: Any) -> Any:
        """The entries of all rounds, with `fill` in the place of those that are absent."""
        return np.where(self.mask, self.whole, fill)

    def items(self) -> Varying | None:
        """The entries for a loop, and the number of its rounds, which varies between calls; None if
        it is unknown."""
        most = len(self.whole)
        if most > MAX_ROUNDS or not self.kind:
            return None
        before = np.cumsum(self.mask)
        places = np.minimum(np.searchsorted(before, np.arange(1, most + 1)), most - 1)
        entries = Entries(self.whole[places], is_weak=self.weak, either=self.either)
        return entries, Count(self._length(), most)

    def __iter__(self) -> VaryingIterator:
        return VaryingIterator(self.items, [self])

    def __getattr__(self, name: str) -> Any:
        self.give_up()

    def __bool__(self) -> bool:
        return True

    # ---- other lists, and entries

    def _selecting(self, column: Any, mask: Any) -> Any:
        """A list of the elements of a column that a mask selects."""
        if not self.kind or len(column) > MAX_ROUNDS:
            self.give_up()
        found = dispatch.varying(column, mask, self.weak, self.either, self._note)
        return [] if found is None else found

    def _become(self, x: Any) -> None:
        """Take over the entries of another list."""
        if type(x) is not VaryingList:
            self.give_up()
        self.entries = x.entries

    @unobserved
    def __getitem__(self, k: Any) -> Any:
        if not self.kind:
            self.give_up()
        if type(k) is slice:
            if (k.start, k.stop, k.step) == (None, None, -1):
                return self._selecting(self.whole[::-1], self.mask[::-1])
            return self._selecting(self.whole, self.mask & self._within(k))
        found = self.entries._element(k)
        return self.give_up() if found is None else self.entry(found)

    @unobserved
    def __setitem__(self, k: Any, x: Any) -> None:
        at = self.entries._where(k) if self.kind else None
        if at is None or not is_one_of(x, *self._type):
            self.give_up()
        column = self.whole.copy()
        column[at] = x
        self._become(self._selecting(column, self.mask))

    def _within(self, k: slice) -> Any:
        """The mask of the entries in a slice, by the number of entries before each."""
        rank, step = self.entries._ranks(), 1 if k.step is None else k.step
        if type(step) is not int or step < 1 or not all(map(_is_place, (k.start, k.stop))):
            self.give_up()
        first = 0 if k.start is None else self._counted(k.start)
        found = rank >= first
        if k.stop is not None:
            found = found & (rank < self._counted(k.stop))
        return found if step == 1 else found & ((rank - first) % step == 0)

    def _counted(self, k: Any) -> Any:
        """A bound of a slice, counted from the start."""
        if isinstance(k, Tracer):
            return np.where(k < 0, np.maximum(k + self._length(), 0), k)
        return k if k >= 0 else np.maximum(k + self._length(), 0)

    def _joined(self, parts: Sequence[Any]) -> Any:
        """The entries of several lists, one after the other."""
        columns, masks = [], []
        for x in parts:
            if type(x) is VaryingList and x._type == self._type:
                columns.append(x.whole)
                masks.append(x.mask)
            elif type(x) is list and all(is_one_of(y, *self._type) for y in x):
                columns += [dispatch.stack(list(map(strong, x)))] if x else []
                masks += [np.ones(len(x), bool)] if x else []
            else:
                self.give_up()
        return self._selecting(np.concatenate(columns), np.concatenate(masks))

    @unobserved
    def __add__(self, other: Any) -> Any:
        return self._joined([self, other])

    @unobserved
    def __radd__(self, other: Any) -> Any:
        return self._joined([other, self])

    @unobserved
    def extend(self, other: Any) -> None:
        self._become(self._joined([self, other]))

    def __iadd__(self, other: Any) -> VaryingList:
        self.extend(other)
        return self

    @unobserved
    def append(self, x: Any) -> None:
        self._become(self._joined([self, [x]]))

    @unobserved
    def copy(self) -> Any:
        return VaryingList(self.array, *self._type[1:], self._note) if self.kind else self.give_up()

    @unobserved
    def reverse(self) -> None:
        self._become(self[::-1])

    @unobserved
    def pop(self, k: Any = -1) -> Any:
        if k not in (0, -1) or type(k) is not int:
            self.give_up()
        found = self[k]
        self._become(self[1:] if k == 0 else self[:-1])
        return found

    @unobserved
    def sort(self) -> None:
        self._become(self.sorted())

    def sorted(self) -> Any:
        """A new list of the entries in ascending order; NaN is refused."""
        found = self.entries._sorted() if self.kind else None
        return self.give_up() if found is None else VaryingList(found, *self._type[1:], self._note)

    @unobserved
    def index(self, x: Any) -> Any:
        if not self.kind or not is_one_of(x, *self._type):
            self.give_up()
        found = self.mask & (self.whole == x)
        if not bool(np.any(found)):
            self.give_up()
        return _as_number(self.entries._ranks()[np.argmax(found)], len(self.whole))

    @unobserved
    def count(self, x: Any) -> Any:
        if not self.kind or not is_one_of(x, *self._type):
            self.give_up()
        return _as_number(np.sum(self.mask & (self.whole == x)), len(self.whole))


# Supported methods of such a list, with the numbers of their arguments
METHODS: dict[str, Sequence[int]] = {
    **dict.fromkeys(("append", "extend", "index", "count"), (1,)),
    **dict.fromkeys(("copy", "reverse", "sort"), (0,)),
    "pop": (0, 1),
}

_HERE = {
    *METHODS,
    "__getitem__",
    "__setitem__",
    "__iter__",
    "__add__",
    "__iadd__",
    "__class_getitem__",
}
for _name in {*dir(list)} - {*dir(object)} - _HERE | {"__eq__"}:
    setattr(VaryingList, _name, VaryingList.give_up)
for _name in ("__repr__", "__lt__", "__le__", "__gt__", "__ge__", "__ne__", "__reduce_ex__"):
    setattr(VaryingList, _name, VaryingList.give_up)


def _as_number(x: Any, most: int) -> Any:
    """An integer whose absolute value is at most `most`, as a Python number."""
    operand, value = x._read()
    x._trace.bounds[operand] = -most, most
    return stand_in(x._trace, operand, value, weak=True)


def _is_place(k: Any) -> bool:
    if isinstance(k, Tracer):
        return k._weak and k.dtype.kind == "i" and not k.shape
    return k is None or (type(k) is int and abs(k) < 2**31)


class VaryingIterator:
    """The iterator over such a list, or over several iterables among which there are such lists.
    `items` returns the entries and the number of rounds, which varies between calls."""

    def __init__(self, items: Callable[[], Varying | None], given: Sequence[VaryingList]) -> None:
        self._items, self._given = items, given
        self._begun = [x.entries for x in given]

    def items(self) -> Varying | None:
        if any(x.entries is not y for x, y in zip(self._given, self._begun, strict=True)):
            self.__next__()  # the list has changed
        return self._items()

    def __iter__(self) -> VaryingIterator:
        return self

    def __next__(self) -> NoReturn:
        self._given[0].give_up()


def _zip(given: Sequence[VaryingList], *parts: Any) -> Any:
    if any(type(x) in (list, tuple) and not x for x in parts):
        return zip()

    def items() -> Varying | None:
        found: list[Any] = []
        counts: list[Any] = []
        for x in parts:
            varies = type(x) is VaryingList
            known: Any = x.items() if varies else items_of(x, 1) if type(x) in _WHOLE else None
            if known is None:
                return None
            found.append(known[0] if varies else known)
            counts.append(known[1].rounds if varies else len(known))
        together = Zipped(found)
        rounds = functools.reduce(np.minimum, counts)
        return together, Count(_as_number(rounds, len(together)), len(together))

    return VaryingIterator(items, given)


_WHOLE = (range, list, tuple, np.ndarray, ArrayTracer)


def _enumerate(given: Sequence[VaryingList], x: Any, start: Any = 0) -> Any:
    def items() -> Varying | None:
        found = x.items()
        if found is None:
            return None
        entries, count = found
        return Zipped([Numbers(range(start, start + count.most)), entries]), count

    if type(start) is not int or abs(start) >= 2**31:
        x.give_up()
    return VaryingIterator(items, given)


def _reversed(given: Sequence[VaryingList], x: Any) -> Any:
    return VaryingIterator(lambda: x[::-1].items(), given)


# Functions that make iterators of such lists, and their numbers of arguments
MAKING: dict[Any, tuple[Callable[..., Any], int, int]] = {
    zip: (_zip, 1, 8),
    enumerate: (_enumerate, 1, 2),
    reversed: (_reversed, 1, 1),
    itertools.pairwise: (lambda given, x: _zip(given, x, x[1:]), 1, 1),
}


_NO_OPTIONS: Sequence[Any] = ({}, {"strict": False})


def making(f: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
    """The replacement of a function that makes an iterator, for arguments with such lists; None if
    it is unknown."""
    known = next((found for one, found in MAKING.items() if one is f), None)
    given = [x for x in args if type(x) is VaryingList]
    if known is None or not known[1] <= len(args) <= known[2]:
        return None
    if f is not zip and (len(given) > 1 or type(args[0]) is not VaryingList):
        return None
    make = known[0]

    def made(*args: Any, **kwargs: Any) -> Any:
        return make(given, *args) if kwargs in _NO_OPTIONS else given[0].give_up()

    return unobserved(made)
