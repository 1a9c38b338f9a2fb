"""Rearrangements of a table's entries by pandas, found without regard to the numbers in them.

pandas' own method runs on tables that have the *numbers* of entries, 1st, 2nd, ..., instead of
traced values. The result shows where each of its entries came from, and the traced values are taken
from there:

    x.sort_index()   with x = [a, b], 20 and 10 their labels
    [#0, #1].sort_index() = [#1, #0]   -->   x[[1, 0]]

That holds for methods that only move entries. To find out whether a method does, it is run several
times, with numbers that rise, that fall, and that are 0, infinite or NaN: all results must agree. A
method that depends on integers, on which entries are NaN, or on the order of entries, is run with
these as they are, and they are guarded. A method that computes is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.errors import TapegradError
from tapegrad.extending.arrays import Tracer, dispatch, strong
from tapegrad.extending.runs import let_through, observer
from tapegrad.extending.tables import (
    Column,
    Labels,
    built,
    copies_on_write,
    index_key,
    is_frame,
    is_of_numbers,
    is_series,
    is_table,
    pandas,
)
from tapegrad.pandas.dataframes import made_of_columns
from tapegrad.pandas.labelled import Labelled, made
from tapegrad.pandas.table_rows import Objects

WAYS = 14  # runs: numbers that rise, that fall, and special ones
_SCALES = (0.7390851332, -0.5671432904)  # multiples of these occur in no real data


class Looks(Exception):
    """A result depends on the values of the numbers."""


class Source:
    """Traced values that are replaced by the numbers of entries, from `first` on.

    `how` is one of:

    - `numbered`: all values are replaced
    - `plain`: no value is replaced; the values are used and guarded
    - `present`: all values but NaN are replaced; the places of NaN are guarded
    - `finite`: the same, for values without infinities
    - `infinite`: infinite values aren't replaced, either
    - `ordered`: the numbers of one column, `at`, have the order of its values, which is guarded
    """

    def __init__(self, given: Any, first: int, proven: bool) -> None:
        self.given, self.x = given, strong(given)
        self.first, self.size, dtype = first, given.size, self.x.dtype
        # pandas sees the dtype, if it has enough numbers
        self.is_itself = dtype.kind in "fiu" and dtype.itemsize > 2
        self.how, self.at = "numbered", 0
        self.shown: list[np.ndarray] = []  # the numbers of the first way
        if not (self.is_itself or proven):
            if dtype.kind in "fc":
                raise Looks
            self.how = "plain"

    @property
    def is_float(self) -> bool:
        return bool(self.x.dtype.kind == "f")

    def numbers(self, way: int) -> Any:
        """The numbers that pandas gets in a way."""
        x, seen = self.x, np.asarray(self.x._concrete)
        if self.how == "plain":
            return seen.copy()
        ids = np.arange(self.first, self.first + self.size).reshape(x.shape)
        dtype = x.dtype if self.is_itself else np.dtype(float)
        found = numbers_of(ids, way, dtype, self.how)
        if self.how == "ordered":
            rank = np.argsort(np.argsort(seen[self.column]))
            rising = _rising(rank, self.first + self.at, way)
            if way == 2:  # tests for infinite numbers find them
                infinite = np.isinf(seen[self.column])
                rising = np.where(infinite, seen[self.column], rising)
            found[self.column] = rising
        if self.how == "infinite":
            found = np.where(np.isinf(seen), seen, found)
        if self.how != "numbered":
            found = np.where(np.isnan(seen), np.nan, found)
        return found.astype(x.dtype) if self.is_itself else found

    @property
    def column(self) -> Any:
        """The index of the entries that are ordered."""
        return (slice(None), self.at) if self.x.ndim > 1 else slice(None)

    def may_be_ordered(self) -> bool:
        """Whether the values of a column are all different: equal ones have no order to
        preserve."""
        seen = np.asarray(self.x._concrete)[self.column]
        seen = seen[~np.isnan(seen)]
        return len(np.unique(seen)) == len(seen)

    def guard(self) -> None:
        """Guard the assumptions of a result."""
        x = self.x
        if self.how == "plain":
            x._guarded_array()
        elif self.how != "numbered" and self.is_float:
            np.isnan(x)._guarded_array()
            if self.how in ("finite", "infinite", "ordered"):
                infinite: Any = np.where(np.isinf(x), np.sign(x), 0.0)
                infinite._guarded_array()
            if self.how == "ordered":
                seen = np.asarray(x._concrete)[self.column]
                there = x[self.column][np.argsort(seen)[: np.sum(~np.isnan(seen))]]
                (there[1:] > there[:-1])._guarded_array()


def numbers_of(ids: np.ndarray, way: int, dtype: Any, how: str) -> np.ndarray:
    """The numbers of entries in one of the ways."""
    digit = _digit(ids, way)
    if dtype.kind in "iu":
        top = min(np.iinfo(dtype).max // 2, 2**50)  # exact as a float, too
        special = np.array([0, 1, top, 3])
        return (top - 7 - ids, top + 7 + ids)[way] if way < 2 else special[digit]
    special = np.array([0.0, np.inf, -np.inf, np.nan if how == "numbered" else -1.0])
    if how in ("finite", "infinite"):
        special = np.array([0.0, 3.0, -3.0, -1.0])
    return (ids + 1) * _SCALES[way] if way < 2 else special[digit]


def _digit(ids: np.ndarray, way: int) -> np.ndarray:
    """The index of one of four special numbers for each entry. Any two entries differ in some way,
    by the digits of their numbers; if there are many entries, they differ by chance."""
    k = (way - 2) // 4
    few = ids // 4**k
    many = ids * (1, 2654435761, 40503)[k] >> (0, 7, 5)[k]
    found: np.ndarray = (np.where(ids < 64, few, many) + way) % 4
    return found


def _rising(rank: np.ndarray, column: int, way: int) -> np.ndarray:
    """Numbers in the order of `rank`, with no fixed order relative to other columns or plain
    numbers: they are above these once, and below them once."""
    if way < 2:
        return (rank - 0.25) + (-1) ** way * 2.0**21 * (column + 1)
    return (rank - (way % 6) * len(rank) / 6) * (0.7 + way)


class Entries:
    """Traced values and the numbers that replace them while pandas runs, in one `way` at a time."""

    def __init__(self, proven: bool = False, first: int = 0) -> None:
        self.sources: list[Source] = []
        self.count, self.way, self.proven = first, 0, proven
        self._known: dict[int, Any] = {}

    def numbered(self, x: Any) -> Any:
        """The numbers that pandas gets instead of a traced value."""
        source = self._known.get(id(x))
        if source is None:
            source = self._known[id(x)] = Source(x, self.count, self.proven)
            self.sources.append(source)
            self.count += source.size
        found = source.numbers(self.way)
        if self.way == 0:
            source.shown.append(found)
        if found.ndim:
            return found
        return found.item() if x._weak else found[()]

    def of(self, x: Any) -> Any:
        """The same for containers of traced values: tables, lists, dicts."""
        if isinstance(x, Labelled):
            return self.table(x)
        if isinstance(x, Tracer):
            return self.numbered(x) if x.ndim or x.dtype.kind in "fc" else dispatch.whole(x)
        if isinstance(x, slice):
            return slice(*[self.of(v) for v in (x.start, x.stop, x.step)])
        if isinstance(x, dict):
            return {key: self.of(value) for key, value in x.items()}
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(self.of, x))
        if isinstance(x, (list, tuple)):
            return type(x)(map(self.of, x))
        here = observer()
        if is_table(x) and here is not None:
            here.read_all(x)
        return x

    def table(self, x: Any) -> Any:
        """A Series or DataFrame of pandas', with the numbers of entries."""
        whole = x._labels.columns is not None and x._labels.whole
        found = [self.numbered(b) if isinstance(b, Tracer) else b for b in x._branches]
        if isinstance(x._branches[0] if found else None, Objects):
            found = [Column(pandas().Series(self.of(x._branches[0].entries), dtype=object))]
        return built(x._labels, [b.T for b in found] if whole else found)

    def called(self, way: int, f: Callable[..., Any], given: Sequence[Any]) -> Any:
        """The result of pandas' `f(*given)` in a way, with the numbers of entries."""
        self.way = way
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return drawn(f(*self.of(list(given))))


class Reading:
    """Determines where entries came from, given pandas' results in several ways."""

    def __init__(self, sources: Sequence[Source], ways: Sequence[int]) -> None:
        self.sources = [s for s in sources if s.size]
        self.starts = np.cumsum([0, *(s.size for s in self.sources)])
        none = np.zeros(0)
        self.numbers = [
            np.concatenate([none, *(np.reshape(s.numbers(way), -1) for s in self.sources)])
            for way in ways
        ]
        self.order = np.argsort(self.numbers[0], kind="stable")
        self.sorted = self.numbers[0][self.order]

    def read(self, found: Sequence[Any]) -> Any:
        """The traced result, given the results of all ways."""
        x = found[0]
        if any(type(y) is not type(x) for y in found) and not hasattr(x, "_fields"):
            raise Looks
        if is_series(x) or is_frame(x):
            return self._table(found)
        if isinstance(x, (list, tuple)):
            if any(len(y) != len(x) for y in found):
                raise Looks
            items = [self.read(part) for part in zip(*found, strict=True)]
            return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
        if isinstance(x, dict):
            if any(list(y) != list(x) for y in found):
                raise Looks
            return {key: self.read([y[key] for y in found]) for key in x}
        if isinstance(x, np.ndarray) and is_of_numbers(x.dtype):
            return self._numbers(found)
        if isinstance(x, (int, float, np.number)) and not isinstance(x, bool):
            value = self._numbers([np.asarray(y) for y in found])
            if not isinstance(value, Tracer):
                return x
            return value.item() if type(x) in (int, float) else value
        if isinstance(x, (np.ndarray, pandas().Index)) or hasattr(x, "dtype"):
            self._check_same([pandas().Series(np.asarray(y, object)) for y in found])
            return x
        if any(not _same(x, y) for y in found):
            raise Looks
        return x

    def _table(self, found: Sequence[Any]) -> Any:
        x = found[0]
        names = [y.columns if is_frame(y) else y.name for y in found]
        if any(index_key(y.index) != index_key(x.index) for y in found):
            raise Looks
        if is_series(x):
            if any(not _same(n, names[0]) for n in names):
                raise Looks
            column, labels = self._column(found, entries=True), Labels(x.index, name=x.name)
            if _is_traced(column) or isinstance(column, Objects):
                return made(labels, [column])
            return x if isinstance(column, Column) else built(labels, [column])
        if any(index_key(n) != index_key(names[0]) for n in names):
            raise Looks
        dtypes = set(x.dtypes)
        if len(dtypes) == 1 and is_of_numbers(*dtypes) and x.size:
            whole = self._numbers([y.to_numpy() for y in found], mixed=False)
            if whole is not None:
                return made(Labels(x.index, x.columns), [whole])
        columns = [self._column([y.iloc[:, k] for y in found]) for k in range(x.shape[1])]
        if x.size and not any(map(_is_traced, columns)):
            return x
        return made_of_columns(x.index, x.columns, columns)

    def _column(self, found: Sequence[Any], entries: bool = False) -> Any:
        x = found[0]
        if any(y.dtype != x.dtype for y in found):
            raise Looks
        if is_of_numbers(x.dtype):
            return self._numbers([y.to_numpy() for y in found])
        if entries and x.dtype == object and self.sources:
            each = [self.read(parts) for parts in zip(*found, strict=True)]
            if any(map(_is_traced, each)):
                return Objects(each)
        self._check_same(found)
        return Column(x)

    def _check_same(self, found: Sequence[Any]) -> None:
        x = found[0].array
        for y in found[1:]:
            if len(y) != len(x) or any(not _same(a, b) for a, b in zip(x, y.array, strict=True)):
                raise Looks

    def _numbers(self, found: Sequence[np.ndarray], mixed: bool = True) -> Any:
        """Traced values, or a plain array if none is traced; if only some are, None unless
        `mixed`."""
        x = found[0]
        if any(y.shape != x.shape or y.dtype != x.dtype for y in found):
            raise Looks
        values = [np.asarray(y.real, float).reshape(-1) for y in found]
        constant = np.ones(x.size, bool)
        if len(values) == 1 and len(self.order):
            constant = ~_alike(self.numbers[0][self._ids(values[0])], values[0])
        for y in values[1:]:
            constant &= _alike(values[0], y)
        if not x.size:
            return np.zeros(x.shape, self._dtype_of_none(x.dtype))
        if any(s.how == "infinite" for s in self.sources) and np.any(np.isinf(values[0])):
            raise Looks  # it is unknown which of them
        if constant.all():
            return x if mixed else None
        if constant.any() and not mixed:
            return None
        if x.dtype.kind == "b":
            raise Looks
        ids = self._ids(values[0][~constant])
        if any(
            not _alike(n[ids], y[~constant]).all()
            for n, y in zip(self.numbers, values, strict=True)
        ):
            raise Looks
        return self._taken(ids, constant, x)

    def _dtype_of_none(self, dtype: Any) -> Any:
        """The dtype of an empty result; `dtype` is that of pandas' result."""
        dtypes = {s.x.dtype for s in self.sources}
        if all(s.is_itself for s in self.sources):
            return dtype
        if len(dtypes) > 1:
            raise Looks
        return dtypes.pop()

    def _shares(self, x: np.ndarray) -> bool:
        """Whether pandas has made a view, not a copy."""
        return any(np.may_share_memory(x, y) for s in self.sources for y in s.shown)

    def _ids(self, numbers: np.ndarray) -> np.ndarray:
        at = np.minimum(np.searchsorted(self.sorted, numbers), len(self.sorted) - 1)
        return self.order[at] if len(self.order) else np.zeros(0, int)

    def _taken(self, ids: np.ndarray, constant: np.ndarray, like: np.ndarray) -> Any:
        """The entries `ids` at the places that aren't constant."""
        owner = np.searchsorted(self.starts, ids, side="right") - 1
        touched = np.unique(owner)
        substituted = {self.sources[k].x.dtype for k in touched if not self.sources[k].is_itself}
        if substituted and (len(touched) > len(substituted) or constant.any()):
            raise Looks
        places, start, parts = ids.copy(), 0, []
        for k in touched:
            x = self.sources[k].x
            places[owner == k] += start - self.starts[k]
            parts.append(x if x.ndim == 1 else x.reshape(-1))
            start += x.size
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts)
        at = _step(places)
        found = flat[at]
        if isinstance(at, slice) and not (copies_on_write() or self._shares(like)):
            found = found.copy()
        if not substituted and found.dtype != like.dtype:
            found = found.astype(like.dtype)
        if constant.any():
            full = np.zeros(like.size, int)
            full[~constant] = np.arange(len(ids))
            found = np.where(constant, like.reshape(-1), found[full])
        if like.shape == ():
            return found[0]
        return found if like.ndim == 1 else found.reshape(like.shape)


def _step(places: np.ndarray) -> Any:
    """A slice for equally spaced positions; other positions unchanged."""
    steps = np.diff(places)
    if len(steps) and steps[0] > 0 and np.all(steps == steps[0]):
        return slice(int(places[0]), int(places[-1]) + 1, int(steps[0]))
    return places


def _alike(x: np.ndarray, y: np.ndarray) -> Any:
    return (x == y) | (np.isnan(x) & np.isnan(y))


def _same(x: Any, y: Any) -> bool:
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    try:
        return bool(x == y) or bool(x != x and y != y)
    except (TypeError, ValueError):
        return False


def _is_traced(x: Any) -> bool:
    return isinstance(x, Tracer)


def moved(f: Callable[..., Any], *given: Any, proven: bool = False) -> Any:
    """The result of pandas' `f(*given)` for tables with traced values; raises `Looks` if it
    computes with them. `proven` tells that it is known not to."""
    ways = range(2 if proven else WAYS)
    entries = Entries(proven)
    entries.of(list(given))

    def result() -> Any:
        found = [entries.called(way, f, given) for way in ways]
        return Reading(entries.sources, ways).read(found)

    return supposed(entries.sources, result)


def supposed(sources: Sequence[Source], result: Callable[[], Any]) -> Any:
    """The first result that succeeds, under more and more assumptions. The assumptions of that are
    guarded."""
    failed: Exception = Looks()
    for _ in assumptions(sources):
        try:
            found = result()
        except TapegradError:
            raise
        except Exception as error:
            let_through(error)
            failed = error
            continue
        for source in sources:
            source.guard()
        return found
    raise failed


def drawn(x: Any) -> Any:
    return list(x) if hasattr(x, "__next__") else x


def assumptions(sources: Sequence[Source]) -> Iterator[None]:
    """Set the sources' assumptions about their values, the weakest first."""
    yield
    looked_at = [s for s in sources if not s.is_float and s.how == "numbered"]
    floats = [s for s in sources if s.is_float]
    for s in looked_at:
        s.how = "plain"
    if looked_at:
        yield
    for s in floats:
        s.how = "present"
    if floats:
        yield
    if floats and all(np.all(~np.isinf(s.x._concrete)) for s in floats):
        for s in floats:
            s.how = "finite"
        yield
    elif floats:
        for s in floats:
            s.how = "infinite"
        yield
    for s in floats:
        s.how = "ordered"
        for at in range(s.x.shape[1] if s.x.ndim > 1 else s.x.ndim):
            s.at = at
            if s.may_be_ordered():
                yield
        s.how = "present"
