"""Series and DataFrames that pandas puts together of numbers, without looking at these.

Which entry goes where pandas says itself: it works on a table that has the numbers of entries in
the place of traced values, and what comes of that says which of them to take. So labels, orders and
errors are pandas' own. An entry that pandas makes up is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.tables import (
    Column,
    Labels,
    built,
    copies_on_write,
    is_frame,
    is_of_numbers,
    is_series,
    pandas,
)
from tapegrad.primitives.base import Value
from tapegrad.tracing.answers import declare, declare_late
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.frontend.frames import TracedFrame, made_of_columns
from tapegrad.tracing.frontend.labelled import Labelled, TracedSeries, made, refused, stood_in
from tapegrad.tracing.loops.stacking import strong
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.tracer import Tracer


class Entries:
    """The numbers that pandas arranges, as arrays of one axis, one after the other."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, Any]] = []  # where each begins
        self.count = 0
        self.given: list[Any] = []  # the arrays of their numbers

    def numbered(self, x: Any) -> Any:
        """The numbers of entries in the place of `x`: a number, or an array of them."""
        x = strong(x) if isinstance(x, Tracer) else np.asarray(x)
        first, shape = self.count, np.shape(x)
        self.parts.append((first, x if len(shape) == 1 else np.reshape(x, -1)))
        self.count += x.size
        numbers = np.arange(first, self.count, dtype=float).reshape(shape)
        self.given.append(numbers)
        return numbers if shape else float(first)

    def table(self, x: Any) -> Any:
        """A Series or DataFrame of pandas', with the numbers of entries."""
        numbers: list[Any] = [b if isinstance(b, Column) else self.numbered(b) for b in x._branches]
        whole = x._labels.columns is not None and x._labels.whole
        return built(x._labels, [b.T for b in numbers] if whole else numbers)

    def of(self, x: Any) -> Any:
        """The same of what a table is made of: numbers, arrays and tables, in lists and dicts."""
        x = stood_in(x)
        if isinstance(x, Labelled):
            return self.table(x)
        if isinstance(x, (Tracer, float, np.floating)) or _is_array(x):
            return self.numbered(x)
        if type(x) is int or isinstance(x, np.integer):
            return self.numbered(x)
        if isinstance(x, dict):
            return {key: self.of(value) for key, value in x.items()}
        if isinstance(x, (list, tuple)):
            return type(x)(map(self.of, x))
        if x is None or isinstance(x, (str, bool, np.bool_)) or not hasattr(x, "__iter__"):
            return x
        raise refused(f"a {type(x).__name__} among what a Series or DataFrame is made of")

    def taken(self, numbers: np.ndarray) -> Any:
        """The entries of these numbers; NaN where there is none."""
        wanted = numbers.reshape(-1)
        absent = np.isnan(wanted)
        if len(wanted) and absent.all():
            return np.full(numbers.shape, np.nan)
        at = np.where(absent, wanted[~absent][:1], wanted).astype(int)
        touched = [(k, x) for k, x in self.parts if np.any((k <= at) & (at < k + x.size))]
        if not touched:
            dtypes = {x.dtype for _, x in self.parts} or {np.dtype(float)}
            if len(dtypes) > 1:
                raise refused("nothing of columns of several dtypes")
            return np.zeros(numbers.shape, *dtypes)
        kinds = {x.dtype.kind for _, x in touched}
        inferred = any(x.dtype != np.float64 and x.size == 1 for _, x in touched)
        odd = absent.any() and (kinds != {"f"} or inferred)
        if odd or ("b" in kinds and len(kinds) > 1):
            raise refused("a Series or DataFrame of booleans or integers and of other things")
        starts = np.cumsum([0, *(x.size for _, x in touched)])
        places = at.copy()
        for (k, x), start in zip(touched, starts, strict=False):
            inside = (k <= at) & (at < k + x.size)
            places[inside] = at[inside] - k + start
        flat = touched[0][1] if len(touched) == 1 else np.concatenate([x for _, x in touched])
        steps = np.diff(places)
        if len(steps) and steps[0] > 0 and np.all(steps == steps[0]):
            found = flat[int(places[0]) : int(places[-1]) + 1 : int(steps[0])]
            if not (copies_on_write() or self._shares(numbers)):
                found = found.copy()
        else:
            found = flat[places]
        if absent.any():
            found = np.where(absent, np.nan, found)
        return found if numbers.ndim == 1 else np.reshape(found, numbers.shape)

    def _shares(self, numbers: np.ndarray) -> bool:
        """Whether pandas has made a view, and no copy."""
        return any(np.may_share_memory(numbers, x) for x in self.given)

    def put(self, x: Any) -> Any:
        """The entries in a table of numbers that pandas has made."""
        if isinstance(x, (float, np.floating)):
            return self.taken(np.asarray(x, float))[()]
        if is_series(x):
            if not is_of_numbers(x.dtype):
                return _without_numbers(x)
            return made(Labels(x.index, name=x.name), [self.taken(x.to_numpy(float))])
        if not is_frame(x):
            return x
        numbers = x.to_numpy(float) if all(map(is_of_numbers, x.dtypes)) and x.size else np.ones(0)
        if np.array_equal(numbers.reshape(-1), np.arange(self.count)) and len(self.parts) == 1:
            return made(Labels(x.index, x.columns), [self.taken(numbers)])
        columns = [x.iloc[:, k] for k in range(x.shape[1])]
        return made_of_columns(x.index, x.columns, [self._column(c) for c in columns])

    def _column(self, x: Any) -> Any:
        if is_of_numbers(x.dtype):
            return self.taken(x.to_numpy(float))
        return Column(_without_numbers(x))


def _without_numbers(x: Any) -> Any:
    """A column of other things: an error if the numbers of entries may be among these."""
    mixed = x.dtype == object and any(isinstance(v, float) and v == v for v in x)
    if mixed or pandas().api.types.is_numeric_dtype(x.dtype):
        raise refused("numbers and other things in one Series or column")
    return x


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "fiub"


def arranged(f: Callable[..., Any], *tables: Any) -> Any:
    """What pandas' `f` makes of tables, where it looks at no number."""
    entries = Entries()
    found = f(*map(entries.table, tables))
    if isinstance(found, float) and any(isinstance(b, Column) for x in tables for b in x._branches):
        others = Entries()  # a number in a column of other things stays what it is
        others.numbered(np.zeros(1 + entries.count))
        if f(*map(others.table, tables)) == found:
            return found
    return entries.put(found)


# ---- tables that the program makes


@unobserved
def series(
    data: Any = None, index: Any = None, dtype: Any = None, name: Any = None, copy: Any = None
) -> Any:
    """pandas.Series(data, index, dtype, name)"""
    entries = Entries()
    given = stood_in(data)
    name = given.name if name is None and isinstance(given, TracedSeries) else name
    plain = pandas().Series(entries.of(given), index=index, name=name)
    return _of_dtype(_own(entries.put(plain), data, copy), dtype)


@unobserved
def frame(
    data: Any = None, index: Any = None, columns: Any = None, dtype: Any = None, copy: Any = None
) -> Any:
    """pandas.DataFrame(data, index, columns, dtype)"""
    entries = Entries()
    plain = pandas().DataFrame(entries.of(data), index=index, columns=columns)
    return _of_dtype(_own(entries.put(plain), data, copy), dtype)


def _own(x: Any, data: Any, copy: Any) -> Any:
    """With numbers of its own, whatever is written to those that it was made of; before pandas 3
    one array is shared."""
    shares = not copy and isinstance(data, (Tracer, np.ndarray, Labelled))
    if shares and not copies_on_write():
        return x
    return x.copy() if isinstance(x, Labelled) else x


def _of_dtype(x: Any, dtype: Any) -> Any:
    return x if dtype is None else x.astype(dtype)


@unobserved
def concat(objs: Any, **kwargs: Any) -> Any:
    """pandas.concat(objs, axis, keys, ...)"""
    entries = Entries()
    if isinstance(objs, dict):
        return entries.put(pandas().concat(entries.of(objs), **kwargs))
    return entries.put(pandas().concat([entries.of(x) for x in objs], **kwargs))


def _is_traced(args: Sequence[Any]) -> bool:
    return any(map(has_traced, args))


def has_traced(x: Any) -> bool:
    if isinstance(x, dict):
        return any(map(has_traced, x.values()))
    if isinstance(x, (list, tuple)):
        return any(map(has_traced, x))
    return isinstance(x, (TracedSeries, TracedFrame)) or (
        isinstance(x, Value) and not dispatch.is_made(x)
    )


def _declare() -> None:
    declare(pandas(), "Series", series, when=_is_traced)
    declare(pandas(), "DataFrame", frame, when=_is_traced)
    declare(pandas(), "concat", concat, when=_is_traced)


def declare_all() -> None:
    declare_late("pandas", _declare)
