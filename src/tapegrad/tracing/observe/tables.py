"""Tables of pandas' of the outside that a traced value is about to be written to.

pandas would make a column of objects of it, which holds the traced value when the trace is over. So
what writes is refused before it does: in the place of the table, or of the function that is called,
is put what raises the error.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from tapegrad.core.tables import is_pandas_class, is_table, pandas
from tapegrad.errors import UnsupportedError
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.observe import frames, plainly
from tapegrad.tracing.observe.activation import Activation
from tapegrad.tracing.observe.frames import operand_at
from tapegrad.tracing.source import at_line


def guard_write(a: Activation, target: int, values: Sequence[Any]) -> None:
    """Operand number `target` is about to be written to, with these."""
    if pandas() is not None and _is_refused(a, a.top(target), values):
        frames.replace(operand_at(a.stack, target), _Refusing())


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
    error = UnsupportedError(
        f"a traced value is written to a Series or DataFrame of the outside{at_line()}, where it "
        "would outlive the trace. Return the value from the function instead, or keep it in a "
        "NumPy array, a list or a dict, which are followed"
    )
    if (trace := dispatch.trace()) is not None:
        trace.refused(error)  # which ends it, also where the error is caught
    raise error


class _Refusing:
    """Stands in the place of a table that is written to."""

    __array_ufunc__ = None  # else NumPy's arrays answer before its operators do
    __setitem__ = __setattr__ = refused_write
    __iadd__ = __isub__ = __imul__ = __imatmul__ = __itruediv__ = __ifloordiv__ = refused_write
    __imod__ = __ipow__ = __iand__ = __ior__ = __ixor__ = refused_write


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
