"""Functions of the program's that pandas calls: for each row, column, entry or group.

pandas calls a function and puts together what it returns, in blocks that hold no traced values. So
it is done twice: once to see what the function returns, and where that is traced once more, with
the numbers of entries in its place (`arranging.py`). In which order it is called, and what becomes
of numbers, of Series and of errors, pandas says.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.tables import pandas
from tapegrad.errors import TapegradError
from tapegrad.tracing.answers import declare, declare_late
from tapegrad.tracing.frontend.arranging import Entries, has_traced
from tapegrad.tracing.frontend.labelled import plain_of, refused, stood_in
from tapegrad.tracing.observe.observer import observer
from tapegrad.tracing.observe.settings import note_settings
from tapegrad.tracing.tracer import Tracer

APPLYING = frozenset(["apply", "map", "applymap", "agg", "aggregate", "transform"])
_OPTIONS = ("axis", "raw", "result_type", "args")  # others go to the function, or look at numbers


def applied(x: Any, name: str, func: Any, *args: Any, **kwargs: Any) -> Any:
    """`x.apply(func)` and the like, of what stands for a Series or DataFrame."""
    if isinstance(func, np.ufunc) and not (args or kwargs):
        return func(x)
    if isinstance(func, str) and name in ("agg", "aggregate"):
        return getattr(x, func)(*args, **kwargs)
    if not _is_function(func):
        raise refused(f"{x._kind}.{name} by a {type(func).__name__}")
    entries = Entries()
    own = {k: v for k, v in kwargs.items() if k not in _OPTIONS}

    def given(part: Any) -> Any:
        found = entries.taken(part) if isinstance(part, np.ndarray) else entries.put(part)
        return found.item() if isinstance(found, Tracer) and not found.shape else found

    @functools.wraps(func)
    def called(part: Any, *more: Any, **named: Any) -> Any:
        return func(given(part), *more, **{**named, **own})

    options = {k: v for k, v in kwargs.items() if k in _OPTIONS}
    return _applied(getattr(entries.table(x), name), called, args, options)


def _plainly(name: str) -> Callable[..., Any]:
    """What stands for the method of plain tables, which a function may make traced."""

    def method(x: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        here = observer()
        if here is not None:
            note_settings(here.reads, "pandas")  # as they are before it sets some for a while
            here.read_all(x)
        return _applied(getattr(x, name), func, args, kwargs)

    return method


def _applied(method: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`method(func, *args, **kwargs)`, where the function may return what is traced."""
    outcomes: list[Any] = []

    @functools.wraps(func)
    def called(*given: Any, **named: Any) -> Any:
        try:
            found = func(*given, **named)
        except TapegradError:
            raise
        except Exception as error:
            outcomes.append(error)
            raise
        outcomes.append(found)
        return plain_of(found)

    plain = method(called, *args, **kwargs)
    if not has_traced(outcomes):
        return plain
    entries, returned = Entries(), iter(outcomes)

    @functools.wraps(func)
    def again(*given: Any, **named: Any) -> Any:
        outcome = next(returned)
        if isinstance(outcome, Exception):
            raise outcome
        return entries.of(outcome)

    return entries.put(method(again, *args, **kwargs))


def _is_function(x: Any) -> bool:
    return isinstance(x, (types.FunctionType, types.MethodType, functools.partial))


def _is_meant(args: Sequence[Any]) -> bool:
    return any(map(_is_function, args))


def declare_all() -> None:
    declare_late("pandas", _declare)


def assigned(x: Any, /, **columns: Any) -> Any:
    """`x.assign(**columns)` of a plain DataFrame."""
    found = x.copy()
    for name, value in columns.items():
        value = value(found) if callable(value) else value
        found = stood_in(found) if has_traced([value]) else found
        found[name] = value
    return found


def _declare() -> None:
    pd = pandas()
    groups: Any = sys.modules["pandas.core.groupby"]
    windows: Any = sys.modules["pandas.core.window"]
    kinds = (pd.Series, pd.DataFrame, groups.SeriesGroupBy, groups.DataFrameGroupBy)
    for kind in (*kinds, windows.Rolling, windows.Expanding):
        for name in APPLYING:
            if hasattr(kind, name):
                declare(kind, name, _plainly(name), when=_is_meant)
    declare(pd.DataFrame, "assign", assigned, when=lambda args: any(map(_may_be, args)))


def _may_be(x: Any) -> bool:
    """Whether a column is traced, or a function in Python may make it so."""
    return _is_function(x) or has_traced([x])
