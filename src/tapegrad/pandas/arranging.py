"""Series and DataFrames that the program builds from traced numbers, and calls of pandas' functions
with them. pandas does the work, with the numbers of entries (`numbering.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Literal

import numpy as np

from tapegrad.extending import declare, declare_late, unobserved
from tapegrad.extending.arrays import Tracer, dispatch, unmade
from tapegrad.extending.primitives import Value
from tapegrad.extending.runs import note_settings, observer
from tapegrad.extending.tables import copies_on_write, pandas
from tapegrad.pandas.dataframes import TracedFrame
from tapegrad.pandas.groups import aggregated
from tapegrad.pandas.keyed import asked
from tapegrad.pandas.labelled import Labelled, TracedSeries, plain_of, refused


@unobserved
def series(
    data: Any = None, index: Any = None, dtype: Any = None, name: Any = None, copy: Any = None
) -> Any:
    """pandas.Series(data, index, dtype, name)"""
    found = asked(
        lambda data: pandas().Series(data, index=index, name=name), "pd.Series", data, proven=True
    )
    return _of_dtype(_own(found, data, copy), dtype)


@unobserved
def frame(
    data: Any = None, index: Any = None, columns: Any = None, dtype: Any = None, copy: Any = None
) -> Any:
    """pandas.DataFrame(data, index, columns, dtype)"""
    found = asked(
        lambda data: pandas().DataFrame(data, index=index, columns=columns),
        *("pd.DataFrame", data),
        proven=True,
    )
    return _of_dtype(_own(found, data, copy), dtype)


def _own(x: Any, data: Any, copy: Any) -> Any:
    """`x` with a copy of its numbers, so that later writes to `data` don't change it. Before pandas
    3, a table of one array shares that array."""
    shares = not copy and isinstance(data, (Tracer, np.ndarray, Labelled))
    if shares and not copies_on_write():
        return x
    return x.copy() if isinstance(x, Labelled) else x


def _of_dtype(x: Any, dtype: Any) -> Any:
    return x if dtype is None else x.astype(dtype)


@unobserved
def cut(x: Any, bins: Any, *args: Any, **kwargs: Any) -> Any:
    """pandas.cut(x, bins, ...). The interval of each number is guarded."""
    values = x.to_numpy() if isinstance(x, Labelled) else x
    if np.ndim(bins) != 1 or not isinstance(values, Tracer) or dispatch.has_traced(bins):
        raise refused("pd.cut into intervals that depend on traced numbers", "Pass their edges")
    sides: tuple[Literal["left", "right"], ...] = ("left", "right")
    for side in sides:
        edges: Any = np.searchsorted(np.asarray(bins, float), values, side=side)
        edges._guarded_array()
    missing: Any = np.isnan(values)
    missing._guarded_array()
    return pandas().cut(plain_of(x), bins, *args, **kwargs)


def _of_module(name: str) -> Callable[..., Any]:
    """The replacement of a pandas function, for traced arguments."""

    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        f = getattr(pandas(), name)
        if "aggfunc" in inspect.signature(f).parameters:
            return aggregated(f, f"pd.{name}", args, kwargs)
        return asked(lambda args, kwargs: f(*args, **kwargs), f"pd.{name}", [*args], kwargs)

    return called


def _of_table(name: str) -> Callable[..., Any]:
    """The replacement of a method of plain tables, for traced arguments, which pandas would store
    as objects."""

    @unobserved
    def called(x: Any, *args: Any, **kwargs: Any) -> Any:
        here = observer()
        if here is not None:
            note_settings(here.reads, "pandas")
            if not isinstance(x, type):
                here.read_all(x)
        return placed(getattr(x, name), args, kwargs)

    return called


def placed(method: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The result of a method of plain tables that stores traced values in a table."""
    x = method.__self__
    what = f"{(x if isinstance(x, type) else type(x)).__name__}.{method.__name__}"
    return asked(lambda args, kwargs: method(*args, **kwargs), what, [*args], kwargs)


def _is_traced(args: Sequence[Any]) -> bool:
    return any(map(has_traced, args))


def _is_moved(args: Sequence[Any]) -> bool:
    return _is_traced(args) and not any(isinstance(x, FunctionType) for x in args)


def has_traced(x: Any) -> bool:
    if isinstance(x, dict):
        return any(map(has_traced, x.values()))
    if isinstance(x, (list, tuple)):
        return any(map(has_traced, x))
    return isinstance(x, (TracedSeries, TracedFrame)) or (
        isinstance(x, Value) and not dispatch.is_made(x)
    )


def _labels(data: Any = None, *args: Any, **kwargs: Any) -> Any:
    """pandas.Index of an array that the program has made, with its current values."""
    return pandas().Index(unmade(data).copy(), *args, **kwargs)


def _is_made(args: Sequence[Any]) -> bool:
    return any(isinstance(x, Value) and dispatch.is_made(x) for x in args[:1])


def _declare() -> None:
    declare(pandas(), "Index", _labels, when=_is_made)
    declare(pandas(), "Series", series, when=_is_traced)
    declare(pandas(), "DataFrame", frame, when=_is_traced)
    for name, f in vars(pandas()).items():
        if type(f) is FunctionType and not name.startswith("_"):
            declare(pandas(), name, _of_module(name), when=_is_traced)
    declare(pandas(), "cut", cut, when=_is_traced)
    for kind, names in _MOVING.items():
        for name in names.split():
            declare(getattr(pandas(), kind), name, _of_table(name), when=_is_moved)


# Methods that store values in another table, and make columns of them
_MOVING = {
    "DataFrame": "from_dict from_records join merge reindex replace shift unstack",
    "Series": "reindex replace shift unstack",
    "Index": "map",
}


def declare_all() -> None:
    declare_late("pandas", _declare)
