"""Tables of pandas' that a traced value is about to be written to.

One that the run has made, and that nobody else holds, becomes what stands for a table, which takes
traced values: `d = df.copy(); d["y"] = x * d["a"]`.

Of one of the outside pandas would make a column of objects, which holds the traced value when the
trace is over. So what writes is refused before it does: in the place of the table, or of the
function that is called, is put what raises the error.
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
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.observe import frames, plainly
from tapegrad.tracing.observe.activation import Activation
from tapegrad.tracing.observe.frames import operand_at
from tapegrad.tracing.observe.holders import Family, Search, counted
from tapegrad.tracing.source import at_line


def guard_write(a: Activation, target: int, values: Sequence[Any], in_place: bool) -> None:
    """Operand number `target` is about to be written to with these, or computed with `in_place`."""
    if pandas() is None or not any(map(_is_traced, values)):
        return
    if _is_refused(a, a.top(target), values):
        frames.replace(operand_at(a.stack, target), _Refusing())
    elif is_frame(a.top(target)) or is_series(a.top(target)):
        by_name = is_frame(a.top(target)) and len(values) == 2 and type(values[0]) is str
        alone = by_name or (in_place and copies_on_write())
        if not _fill(a, id(a.top(target)), alone) and in_place:
            frames.replace(operand_at(a.stack, target), _Held())


def _fill(a: Activation, key: int, alone: bool) -> bool:
    """The table with this id becomes what stands for one, if the run has made it and nobody else
    holds it. Says whether it does. A column that is put there by its name changes no memory that
    something else shows; nor does what computes in place, if it is done to the table `alone`, or
    if nothing but the operand holds that."""
    family = Family(ctypes.cast(key, ctypes.py_object).value)
    search = Search(a, family, dispatch.began(), strict=dispatch.trace() is not a.o.trace)
    search.run()
    known = counted(filter(family.has, (*dispatch.held(), *a.o.captured)))
    if not (alone or family.counts[key] == 1):
        return False
    if not (family.is_whole(known) and search.is_own()):
        return False
    table: Any = family.owner
    branches, labels = taken_apart(table)
    object.__setattr__(table, "__class__", dispatch.frame if is_frame(table) else dispatch.series)
    vars(table).clear()
    vars(table).update(_labels=labels, _branches=turned(labels, branches))
    a.loops = {}  # a loop whose rounds nobody sees may make another
    return True


def is_refused(a: Activation, f: Any, args: Sequence[Any]) -> bool:
    """Whether `f(*args)` writes a traced value to such a table."""
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
    """Stands in the place of a function that writes."""
    _refuse(
        f"a traced value is written to a Series or DataFrame of the outside{at_line()}, where it "
        "would outlive the trace. Return the value from the function instead, or keep it in a "
        "NumPy array, a list or a dict, which are followed"
    )


def held_write(*args: Any) -> Any:
    """Stands in the place of an operator that would change a table which others hold, too."""
    _refuse(
        "a traced value is written in place to a Series or DataFrame that code has which isn't "
        f"traced{at_line()}. Make another one: s = s + x"
    )


def _refuse(message: str) -> NoReturn:
    error = UnsupportedError(message)
    if (trace := dispatch.trace()) is not None:
        trace.refused(error)  # which ends it, also where the error is caught
    raise error


class _Refusing:
    """Stands in the place of a table that is written to."""

    __array_ufunc__ = None  # else NumPy's arrays answer before its operators do
    __setitem__ = __setattr__ = refused_write


class _Held:
    """Stands in the place of a table that is computed with in place."""

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
    """The table that is written to by `x`: itself, or what `x.loc` and the like belong to, or what
    a column was taken of; None for all else."""
    if dispatch.has_traced(x):
        return None
    if is_table(x):
        held = (plainly.own_names(x) or {}).get("_cacher")
        of = held[1]() if type(held) is tuple and type(held[1]) is weakref.ref else None
        return x if of is None else of
    of = getattr(x, "obj", None) if is_pandas_class(type(x)) else None
    return _table_of(of) if is_table(of) else None
