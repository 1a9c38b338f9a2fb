"""Writes of traced values to tables of pandas.

A table that the run has created, and that no other code holds, becomes a traced one, which takes
traced values: `d = df.copy(); d["y"] = x * d["a"]`.

For any other table, pandas would make a column of objects, which would hold the traced value after
the trace. So the write is refused in advance: the table, or the function that is called, is
replaced by an object that raises the error.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NoReturn

from tapegrad.core.tables import (
    copies_on_write,
    is_frame,
    is_pandas_class,
    is_series,
    is_table,
    pandas,
    taken_apart,
    turned,
)
from tapegrad.errors import UnsupportedError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects import inspection
from tapegrad.observe.operands.holders import Search, Views, counted
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import operand_at
from tapegrad.observe.program.source import at_line


def guard_write(a: Activation, target: int, values: Sequence[Any], in_place: bool) -> None:
    """Prepare a write of `values` to operand number `target`, or an operation on it `in_place`."""
    if pandas() is None or not any(map(_is_traced, values)):
        return
    x = a.top(target)
    if _is_refused(a, x, values):
        frames.replace(operand_at(a.stack, target), _Refusing())
    elif is_frame(x) or is_series(x):
        by_name = is_frame(x) and len(values) == 2 and type(values[0]) is str
        key = id(x)
        del x
        if not fill(a, key, by_name) and in_place:
            frames.replace(operand_at(a.stack, target), _Held())
    elif is_pandas_class(type(x)) and is_table(getattr(x, "obj", None)):  # `x.loc`
        table, late = x.obj, dispatch.table_at(None, x.name)
        frames.replace(operand_at(a.stack, target), late)
        del x  # it holds the table
        if fill(a, id(table), False, 1):
            late._of = table
        else:
            frames.replace(operand_at(a.stack, target), _Refusing())


def written_by(f: Any, args: Sequence[Any]) -> Any:
    """The table that a method of pandas writes traced values to; None for other calls."""
    if not args or not _is_writing(f) or not (is_frame(args[0]) or is_series(args[0])):
        return None
    return args[0] if any(map(_is_traced, args)) else None


def put_method(a: Activation, f: Any, args: Sequence[Any], at: int) -> bool:
    """Replace a method of a pandas table by that of the traced table which it has become."""
    if not args or not _is_writing(f) or type(args[0]) not in (dispatch.frame, dispatch.series):
        return False
    name = f.__name__
    frames.replace(
        operand_at(a.stack, at), lambda x, *given, **named: getattr(x, name)(*given, **named)
    )
    return True


def _is_writing(f: Any) -> bool:
    """Whether this is a method of pandas' tables that writes to them."""
    if type(f) is not FunctionType or f.__name__ not in _WRITING or pandas() is None:
        return False
    kinds = pandas().DataFrame, pandas().Series
    return any(getattr(kind, f.__name__, None) is f for kind in kinds)


def fill(a: Activation, key: int, by_name: bool = False, holders: int = 0) -> bool:
    """Turn the table with this id into a traced one, if the run has created it and no other code
    holds it, except `holders` callers. A column that is set `by_name` changes no shared memory; an
    in-place operation may. Returns whether it was done."""
    family = Views(ctypes.cast(key, ctypes.py_object).value)
    search = Search(a, family, dispatch.began(), strict=dispatch.trace() is not a.o.trace)
    search.run()
    known = counted(filter(family.has, (*dispatch.held(), *a.o.captured)))
    known[key] += holders
    if not (by_name or copies_on_write() or family.counts[key] == 1):
        return False
    if not (family.is_whole(known) and search.is_own()):
        return False
    table: Any = family.owner
    branches, labels = taken_apart(table)
    object.__setattr__(table, "__class__", dispatch.frame if is_frame(table) else dispatch.series)
    vars(table).clear()
    vars(table).update(_labels=labels, _branches=turned(labels, branches))
    a.loops = {}  # a loop whose rounds aren't observed may create another one
    return True


def is_refused(a: Activation, f: Any, args: Sequence[Any]) -> bool:
    """Whether `f(*args)` writes a traced value to a table that isn't the run's own."""
    if pandas() is None or type(f) not in _FUNCTIONS or f.__name__ not in _WRITING:
        return False
    given = [f.__self__, *args] if type(f) in (MethodType, BuiltinFunctionType) else [*args]
    if f.__name__ in _IF_IN_PLACE and not any(x is True for x in given):
        return False
    return any(_is_refused(a, x, given) for x in given[:2])


_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)
_IF_IN_PLACE = {"fillna", "replace", "where", "mask", "clip"}
_WRITING = {
    *("insert", "update", "setitem", "setattr", "isetitem", "__setitem__", "__setattr__"),
    *_IF_IN_PLACE,
}


def refused_write(*args: Any, **kwargs: Any) -> Any:
    """The replacement of a function that writes: raise an error."""
    _refuse(
        f"a traced value is written to a Series or DataFrame from outside the function{at_line()}, "
        "or to one that others hold, where it would outlive the trace. Return the value from the "
        "function instead, or keep it in a NumPy array, a list or a dict, which are followed"
    )


def held_write(*args: Any) -> Any:
    """The replacement of an operator that would change a table that others hold, too: raise an
    error."""
    _refuse(
        "a traced value is written in place to a Series or DataFrame that code has which isn't "
        f"traced{at_line()}. Make another one: s = s + x"
    )


def _refuse(message: str) -> NoReturn:
    error = UnsupportedError(message)
    if (trace := dispatch.trace()) is not None:
        trace.refused(error)  # ends the trace, even if the error is caught
    raise error


class _Refusing:
    """The replacement of a table that is written to."""

    __array_ufunc__ = None  # else NumPy's arrays take precedence over its operators
    __setitem__ = __setattr__ = refused_write


class _Held:
    """The replacement of a table that an operator would change in place."""

    __array_ufunc__ = None


_OPERATORS = (
    "add",
    "sub",
    "mul",
    "matmul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
)
for _name in _OPERATORS:
    setattr(_Refusing, f"__i{_name}__", refused_write)
    setattr(_Held, f"__i{_name}__", held_write)


def _is_refused(a: Activation, x: Any, values: Sequence[Any]) -> bool:
    table = _table_of(x)
    return table is not None and a.o.reads.place(table) is not None and any(map(_is_traced, values))


def _is_traced(x: Any) -> bool:
    if type(x) is dict:
        return any(map(_is_traced, x.values()))
    return bool(dispatch.has_traced(x))


def _table_of(x: Any) -> Any:
    """The table that a write to `x` changes: `x` itself, the owner of `x.loc` and the like, or the
    table whose column `x` is. None for other objects."""
    if dispatch.has_traced(x):
        return None
    if is_table(x):
        held = (inspection.own_names(x) or {}).get("_cacher")
        of = held[1]() if type(held) is tuple and type(held[1]) is weakref.ref else None
        return x if of is None else of
    of = getattr(x, "obj", None) if is_pandas_class(type(x)) else None
    return _table_of(of) if is_table(of) else None
