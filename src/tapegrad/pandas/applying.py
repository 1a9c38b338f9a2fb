"""The program's functions called by pandas: for each row, column, entry or group.

pandas calls a function and assembles its results, in blocks that can't hold traced values. So
pandas runs twice: once to see the function's results; and if they are traced, once more with the
numbers of entries instead of the results (`arranging.py`). pandas decides the order of the calls,
and handles numbers, Series and errors.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.errors import TapegradError
from tapegrad.extending import declare, declare_late
from tapegrad.extending.runs import note_settings, observer
from tapegrad.extending.tables import pandas
from tapegrad.pandas.arranging import has_traced, placed
from tapegrad.pandas.groups import Recorder, recorded
from tapegrad.pandas.keyed import asked
from tapegrad.pandas.labelled import plain_of, stood_in

APPLYING = frozenset(["apply", "map", "applymap", "agg", "aggregate", "transform"])


def applied(x: Any, name: str, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`x.apply(func)` and the like, for a proxy `x` of a Series or DataFrame."""
    if isinstance(func, np.ufunc) and not (args or kwargs):
        return func(x)
    if isinstance(func, str) and name in ("agg", "aggregate"):
        return getattr(x, func)(*args, **kwargs)

    method = getattr(getattr(pandas(), x._kind), name)
    given = inspect.signature(method).bind(x, func, *args, **kwargs).arguments
    own = [n for n, p in inspect.signature(method).parameters.items() if p.kind not in _VARIOUS]
    options = {n: given[n] for n in own[2:] if n in given and n != "args"}
    more, named = given.get("args", ()), given.get("kwargs", {})

    def with_more(f: Any) -> Any:
        """One of the program's functions, with the further arguments bound to it."""
        if not _is_function(f) or not (more or named):
            return f
        return functools.wraps(f)(lambda part: f(part, *more, **named))

    by_name = not _is_function(func)

    def called(by: Recorder, table: Any, options: Any) -> Any:
        return getattr(table, name)(by.by(func if by_name else with_more(func)), **options)

    return recorded(called, f"{x._kind}.{name}", x, options)


_VARIOUS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _plainly(name: str) -> Callable[..., Any]:
    """The replacement of the method `name` of plain tables, whose function may return traced
    values."""

    def method(x: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        here = observer()
        if here is not None:
            note_settings(here.reads, "pandas")  # before pandas changes some for a while
            here.read_all(x)
        if not _is_function(func):
            return placed(getattr(x, name), [func, *args], kwargs)
        return _applied(getattr(x, name), func, args, kwargs)

    return method


def _applied(method: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`method(func, *args, **kwargs)`, where the function may return traced values."""
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
    returned: Iterator[Any] = iter(())

    def again(outcomes: Any) -> Any:
        nonlocal returned
        returned = iter(outcomes)
        return method(replayed, *args, **kwargs)

    @functools.wraps(func)
    def replayed(*given: Any, **named: Any) -> Any:
        outcome = next(returned)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return asked(again, "a function that pandas calls", outcomes, proven=True)


def _is_function(x: Any) -> bool:
    return isinstance(x, (types.FunctionType, types.MethodType, functools.partial))


def _is_meant(args: Sequence[Any]) -> bool:
    return any(map(_may_be, args))


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
    declare(pd.DataFrame, "assign", assigned, when=_is_meant)


def _may_be(x: Any) -> bool:
    """Whether a column is traced, or a Python function may make it so."""
    return _is_function(x) or has_traced([x])
