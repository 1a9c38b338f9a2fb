"""Tables by groups of rows: `x.groupby(...)`, `x.resample(...)`, windows, pivot tables.

pandas forms the groups of a table of entry numbers (`numbering.py`). Instead of "sum" or "mean" it
gets a function that records the entries of each group, and returns the number of a new entry. The
new entries are then computed for all groups at once:

    x.groupby(keys).sum()   -->   np.add.at(zeros, group, x)
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.errors import TapegradError
from tapegrad.extending import unobserved
from tapegrad.extending.runs import let_through
from tapegrad.extending.tables import Column, is_frame, is_of_numbers, is_series, pandas
from tapegrad.pandas.dataframes import made_of_columns
from tapegrad.pandas.keyed import asked
from tapegrad.pandas.labelled import Labelled, made, plain_of, refused
from tapegrad.pandas.numbering import (
    WAYS,
    Entries,
    Looks,
    Reading,
    Source,
    moved,
    numbers_of,
    supposed,
)

REDUCED = frozenset(["sum", "mean", "std", "var", "sem", "min", "max", "prod", "median"])
_FIRST = 10**9  # the number of the first new entry; each reduction has as many numbers


class Batch(Source):
    """The results of one reduction, for all of its calls."""

    def __init__(self, name: str, ddof: int, dtype: Any, first: int) -> None:
        self.name, self.ddof, self.dtype, self.first = name, ddof, np.dtype(dtype), first
        self.is_itself, self.how, self.size = True, "numbered", 0
        self.shown = []
        self.parts: dict[int, list[np.ndarray]] = {}  # the groups that it was called with, by way

    def called(self, way: int, part: np.ndarray) -> Any:
        parts = self.parts.setdefault(way, [])
        parts.append(part)
        return numbers_of(np.array([self.first + len(parts) - 1]), way, self.dtype, "present")[0]

    def numbers(self, way: int) -> Any:
        ids = self.first + np.arange(self.size)
        return numbers_of(ids, way, self.dtype, "present")

    def evaluate(self, reading: Reading) -> None:
        lengths = [[len(part) for part in parts] for parts in self.parts.values()]
        if len(lengths) != WAYS or any(x != lengths[0] for x in lengths):
            raise Looks
        flat = reading.read([np.concatenate(parts) for parts in self.parts.values()])
        self.x = _reduced(self.name, flat, np.array(lengths[0]), self.ddof)
        self.size = len(lengths[0])

    def guard(self) -> None:
        """Do nothing: no assumption is made."""


def _reduced(name: str, flat: Any, lengths: np.ndarray, ddof: int) -> Any:
    """One number for each part of `flat`. `lengths` are the parts' lengths."""
    if name == "sem":
        return _reduced("std", flat, lengths, ddof) / np.sqrt(lengths)
    given = {"ddof": ddof} if name in ("std", "var") else {}
    f = getattr(np, name)
    if np.all(lengths == lengths[0]):
        return f(flat.reshape(len(lengths), lengths[0]), axis=1, **given)
    group = np.repeat(np.arange(len(lengths)), lengths)
    if name == "sum":
        found = np.zeros(len(lengths), flat.dtype) + 0 * flat[0]
        np.add.at(found, group, flat)
        return found
    if name == "mean":
        return _reduced("sum", flat, lengths, 0) / lengths
    if name in ("std", "var"):
        apart = flat - _reduced("mean", flat, lengths, 0)[group]
        found = _reduced("sum", apart**2, lengths, 0) / (lengths - ddof)
        return np.sqrt(found) if name == "std" else found
    ends = np.cumsum(lengths)
    parts, order = [], []
    for n in np.unique(lengths):
        at = np.flatnonzero(lengths == n)
        rows = (ends[at] - n)[:, None] + np.arange(n)
        parts.append(f(flat[rows], axis=1))
        order.append(at)
    return np.concatenate(parts)[np.argsort(np.concatenate(order))]


class Recorder:
    """The functions that pandas gets instead of functions of a group."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources, self.way = sources, 0
        self.batches: dict[Any, Batch] = {}
        self.made = Entries(first=2 * _FIRST)
        self.outcomes: list[Any] = []
        self.seen: list[list[Any]] = []  # the arguments of the program's functions, by way

    def begin(self, way: int) -> None:
        self.way = self.made.way = way
        self.seen.append([])

    def by(self, x: Any) -> Any:
        """`x` with functions, and names of reductions, replaced by recording ones."""
        if isinstance(x, str) and x in REDUCED:
            return self.reduction(x)
        if isinstance(x, dict):
            return {key: self.by(value) for key, value in x.items()}
        if type(x) in (list, tuple):
            return type(x)(map(self.by, x))
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(self.by, x))
        for name in REDUCED:
            if x is getattr(np, name, None) or x is getattr(pandas().Series, name, None):
                return self.reduction(name)
        return self.function(x) if callable(x) else x

    def reduction(self, name: str, ddof: int = 1) -> Any:
        def called(part: Any, *args: Any, **kwargs: Any) -> Any:
            if not (is_series(part) or isinstance(part, np.ndarray)):
                raise ValueError("a reduction of one number")
            values = np.asarray(part)
            if not is_of_numbers(part.dtype) or part.dtype.kind in "bc":
                return getattr(part, name)(*args, **kwargs)
            values = values[~np.isnan(values)] if values.dtype.kind == "f" else values
            if len(values) <= (ddof if name in ("std", "var", "sem") else 0):
                return getattr(pandas().Series(part), name)(*args, **kwargs)
            dtype = values.dtype if values.dtype.kind == "f" else np.dtype(float)
            if values.dtype.kind != "f" and name in ("sum", "min", "max", "prod"):
                dtype = np.dtype(np.int64)
            key = name, ddof, dtype
            if key not in self.batches:
                first = _FIRST + len(self.batches) * 10**7
                self.batches[key] = Batch(name, ddof, dtype, first)
            return self.batches[key].called(self.way, values)

        called.__name__ = name
        return called

    def function(self, f: Any) -> Any:
        @functools.wraps(f)
        def called(part: Any, *args: Any, **kwargs: Any) -> Any:
            seen = self.seen[self.way]
            seen.append(part)
            if self.way:
                if len(seen) > len(self.outcomes):
                    raise Looks
                outcome = self.outcomes[len(seen) - 1]
            else:
                try:
                    outcome = f(Reading(self.sources, [0]).read([part]), *args, **kwargs)
                except TapegradError:
                    raise
                except Exception as error:
                    let_through(error)
                    outcome = error
                self.outcomes.append(outcome)
            if isinstance(outcome, Exception):
                raise outcome
            return self.made.of(outcome)

        return called

    def read(self, found: Sequence[Any]) -> Any:
        reading = Reading(self.sources, range(WAYS))
        if any(len(seen) != len(self.seen[0]) for seen in self.seen):
            raise Looks
        for parts in zip(*self.seen, strict=True):
            reading.read(parts)
        for batch in self.batches.values():
            batch.evaluate(reading)
        sources = [*self.sources, *self.batches.values(), *self.made.sources]
        return Reading(sources, range(WAYS)).read(found)


def recorded(f: Callable[..., Any], what: str, *given: Any) -> Any:
    """The result of pandas' `f(recorder, *given)` for tables with traced values, if it computes
    with them only through the recorder's functions."""
    entries = Entries()
    entries.of(list(given))
    for source in entries.sources:
        if source.is_float:
            source.how = "present"  # pandas leaves out NaN

    def result() -> Any:
        recorder, found = Recorder(entries.sources), []
        for way in range(WAYS):
            recorder.begin(way)
            found.append(entries.called(way, functools.partial(f, recorder), given))
        return recorder.read(found)

    try:
        return supposed(entries.sources, result)
    except Looks:
        reason = f"{what} of traced numbers, or by a column of traced numbers,"
        raise refused(reason) from None


def aggregated(f: Callable[..., Any], what: str, args: Sequence[Any], kwargs: Any) -> Any:
    """The result of pandas' `f(*args, **kwargs)` for a function with a parameter `aggfunc`, like
    pivot tables."""
    given = inspect.signature(f).bind(*args, **kwargs)
    given.apply_defaults()
    by = given.arguments.pop("aggfunc")
    options = {
        k: v for k, v in given.arguments.items() if v is not pandas().api.extensions.no_default
    }
    options.update(options.pop("kwargs", {}))
    return recorded(lambda recorder, options: f(**options, aggfunc=recorder.by(by)), what, options)


class Groups:
    """A proxy of `x.groupby(...)` and the like: of the result of pandas' `make(*given)`."""

    def __init__(self, what: str, make: Callable[..., Any], *given: Any) -> None:
        self._what, self._make, self._given = what, make, given
        self._plain = make(*map(plain_of, given))  # raises pandas' own errors

    @unobserved
    def __getitem__(self, key: Any) -> Any:
        return Groups(self._what, lambda *given: self._make(*given)[key], *self._given)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._asked(lambda groups: list(groups)))

    def __len__(self) -> int:
        return len(self._plain)

    @unobserved
    def _asked(self, f: Callable[..., Any], *more: Any) -> Any:
        count = len(self._given)
        return asked(
            lambda *given: f(self._make(*given[:count]), *given[count:]),
            self._what,
            *self._given,
            *more,
        )

    def _recorded(self, f: Callable[[Any, Any], Any], given: Sequence[Any] | None = None) -> Any:
        given = self._given if given is None else given
        return recorded(lambda by, *given: f(by, self._make(*given)), self._what, *given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        kind = type(self._plain)
        if not hasattr(kind, name):
            getattr(self._plain, name)  # raises pandas' own error
            return self[name]
        if not (callable(getattr(kind, name)) or callable(getattr(self._plain, name))):
            return self._asked(lambda groups: getattr(groups, name))
        if name in REDUCED:
            return functools.partial(self._reduce, name)
        if name in ("agg", "aggregate", "transform", "apply", "filter", "pipe"):
            return functools.partial(self._apply, name)
        return functools.partial(self._call, name)

    @unobserved
    def _reduce(self, name: str, numeric_only: bool = False, ddof: int = 1, **kwargs: Any) -> Any:
        self._check_applies(name)
        if kwargs:
            raise refused(f"{self._what}.{name} with {', '.join(kwargs)}=")
        options: dict[str, Any] = {"numeric_only": True} if numeric_only else {}
        if name in ("std", "var", "sem"):
            options["ddof"] = ddof
        plain = getattr(self._plain, name)(**options)

        def called(by: Recorder, groups: Any) -> Any:
            f = by.reduction(name, ddof)
            if hasattr(groups, "window"):
                return groups.apply(f, raw=True)
            if is_frame(plain) and numeric_only:
                groups = groups[[c for c in plain.columns if c in groups.obj.columns]]
            return groups.agg(f)

        found = self._recorded(called, [*map(_widened, self._given)])
        return checked(found, plain, f"{self._what}.{name}")

    def _apply(self, name: str, f: Any = None, *args: Any, **kwargs: Any) -> Any:
        if name in ("agg", "aggregate") and isinstance(f, str) and f in REDUCED:
            return self._reduce(f, *args, **kwargs)
        if name == "pipe":
            return f(self, *args, **kwargs)

        def called(by: Recorder, groups: Any) -> Any:
            named = {k: by.by(v) for k, v in kwargs.items()}
            own = () if f is None else (by.by(f),)
            return getattr(groups, name)(*own, *args, **named)

        return self._recorded(called)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        running = ("cumsum", "cumprod", "cummax", "cummin", "diff", "pct_change", "rank")
        if name in running and hasattr(self._plain, "transform"):
            return self._apply("transform", lambda s: getattr(s, name)(*args, **kwargs))
        plain = getattr(self._plain, name)(*plain_of(args), **plain_of(kwargs))
        if isinstance(plain, _kinds_of_groups()):
            return Groups(
                f"{self._what}.{name}(...)",
                lambda *given: getattr(self._make(*given), name)(*args, **kwargs),
                *self._given,
            )

        def direct(a: Any, k: Any, *given: Any) -> Any:
            return getattr(self._make(*given), name)(*a, **k)

        def of_part(part: Any) -> Any:
            found = getattr(part, name)(*args, **kwargs)
            return found.iloc[-1] if isinstance(found, Labelled) else found

        def called(by: Recorder, groups: Any) -> Any:
            f = by.by(of_part)
            return groups.apply(f) if hasattr(groups, "window") else groups.agg(f)

        try:
            return moved(direct, [*args], dict(kwargs), *self._given)
        except Looks:
            if hasattr(pandas().Series, name) and (is_series(plain) or is_frame(plain)):
                return checked(self._recorded(called), plain, f"{self._what}.{name}")
            raise refused(f"{self._what}.{name} of traced numbers") from None

    def _check_applies(self, name: str) -> None:
        if not hasattr(self._plain, "apply"):
            raise refused(f"{self._what}.{name}")


def _kinds_of_groups() -> tuple[type, ...]:
    windows, resampling = sys.modules["pandas.core.window"], sys.modules["pandas.core.resample"]
    return windows.Rolling, windows.Expanding, resampling.Resampler


def checked(x: Any, plain: Any, what: str) -> Any:
    """A result in the dtypes of pandas' result for plain numbers, after a check that the two
    agree."""
    own = plain_of(x)
    try:
        if is_series(plain):
            pandas().testing.assert_series_equal(own, plain, check_dtype=False, rtol=1e-4)
        else:
            pandas().testing.assert_frame_equal(own, plain, check_dtype=False, rtol=1e-4)
    except AssertionError:
        raise refused(what) from None
    if not isinstance(x, Labelled):
        return x
    if is_series(plain):
        x._branches = [_of_dtype(b, plain.dtype) for b in x._branches]
        return x
    columns = [b if isinstance(b, Column) else x._column(k) for k, b in x._parts()]
    if all(
        isinstance(b, Column) or b.dtype == d for b, d in zip(columns, plain.dtypes, strict=True)
    ):
        return x
    found = [_of_dtype(b, d) for b, d in zip(columns, plain.dtypes, strict=True)]
    return made_of_columns(x._labels.index, x._labels.columns, found)


def _of_dtype(x: Any, dtype: Any) -> Any:
    return x if isinstance(x, Column) or x.dtype == dtype else x.astype(dtype)


def _widened(x: Any) -> Any:
    """A table with float64 instead of float32, which has too few numbers to tell entries apart."""
    if not isinstance(x, Labelled):
        return x
    return made(x._labels, [_of_dtype(b, float) if _is_small(b) else b for b in x._branches])


def _is_small(x: Any) -> bool:
    return not isinstance(x, Column) and x.dtype == np.float32


def grouping(name: str) -> Callable[..., Any]:
    """A method of pandas' tables that returns groups of rows, or windows of them."""

    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        made = lambda table, args, kwargs: getattr(table, name)(*args, **kwargs)  # noqa: E731
        return Groups(f"{x._kind}.{name}(...)", made, x, [*args], kwargs)

    method.__name__ = name
    return unobserved(method)
