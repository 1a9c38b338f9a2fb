"""The kind of a result without axes: a NumPy scalar, a Python number, or a 0-d array.

They behave differently in the program,

    v = f(x); w = v; w += 1      a 0-d array: v changes too; a number: it doesn't
    1.0 / v, (-v) ** 0.5         a Python float: ZeroDivisionError, a complex number

and neither NumPy's functions nor SciPy's follow one rule. So the kind is that of the library's own
result for arguments of the same types (`validation.py`), or declared with the function.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.primitives import elementwise as ew
from tapegrad.tracing.frontend.indexing.indexing import as_python
from tapegrad.tracing.frontend.operands.memory import copy_of, scalar
from tapegrad.tracing.tracers.tracer import Tracer

_DEPTH = 3  # maximal nesting of objects


def as_number(x: Any) -> Any:
    """A NumPy scalar from an array without axes or a number; other objects unchanged."""
    if isinstance(x, Tracer):
        return x if x.ndim or (x._is_scalar() and not x._weak) else scalar(copy_of(x))
    return np.asarray(x)[()] if isinstance(x, _LEAVES) else x


def as_array(x: Any) -> Any:
    """An array from a number, which can be written to; other objects unchanged."""
    if isinstance(x, Tracer):
        return copy_of(x) if x._weak or x._is_scalar() else x
    return np.array(x) if isinstance(x, _LEAVES) and type(x) is not np.ndarray else x


def as_pythons(x: Any) -> Any:
    """A Python number from a NumPy scalar or an array without axes; other objects unchanged."""
    if isinstance(x, Tracer):
        return x if x.ndim or x._weak else as_python(ew.copy(x))
    return x.item() if isinstance(x, (np.generic, np.ndarray)) and not np.ndim(x) else x


def with_numbers(result: Any) -> Any:
    """A result with scalars in the place of arrays without axes, as most SciPy functions return."""
    return of_kinds(result, kinds_of(result, _but_pythons))


def _but_pythons(x: Any) -> Any:
    return x if getattr(x, "_weak", not isinstance(x, (np.ndarray, np.generic))) else as_number(x)


_LEAVES = (np.ndarray, np.generic, float, int, complex)


# ---- parts of a result


def kinds_of(found: Any, kind: Any = None, depth: int = _DEPTH) -> Any:
    """The kinds of the parts of a library's result; None if all parts have axes. If a `kind` is
    given, it applies to each part without axes."""
    if isinstance(found, (np.ndarray, np.generic)):
        if found.ndim or found.dtype.kind not in "biufc":
            return None
        return kind or (as_array if isinstance(found, np.ndarray) else as_number)
    if isinstance(found, (int, float, complex)):
        return kind or as_pythons
    if not depth:
        return None
    parts = [kinds_of(part, kind, depth - 1) for part in _items(found)]
    fields = {key: kinds_of(part, kind, depth - 1) for key, part in _fields(found).items()}
    fields = {key: kind for key, kind in fields.items() if kind is not None}
    return (parts, fields) if fields or any(kind is not None for kind in parts) else None


def of_kinds(result: Any, kinds: Any) -> Any:
    """A result with its parts converted to these kinds."""
    if kinds is None or callable(kinds):
        return kinds(result) if kinds else result
    parts, fields = kinds
    items = _items(result)
    if parts and len(items) == len(parts):
        made = [of_kinds(part, kind) for part, kind in zip(items, parts, strict=True)]
        if any(a is not b for a, b in zip(made, items, strict=True)):
            result = _with_items(result, made)
    own = _fields(result)
    there = own.keys() & fields.keys()  # a result may raise an error when a field is read
    own.update({key: of_kinds(own[key], fields[key]) for key in there})
    return result


def _items(x: Any) -> Any:
    return x if isinstance(x, (list, tuple)) else ()


def _with_items(x: Any, items: list[Any]) -> Any:
    """A list or tuple of the same class, with other items."""
    if isinstance(x, list):
        return items
    new: Any = tuple.__new__(type(x), items)
    _fields(new).update(_fields(x))
    return new


def _fields(x: Any) -> dict[str, Any]:
    """The items of a dict, or the attributes of a test statistic or a tuple with attributes."""
    if isinstance(x, dict):
        return x
    try:
        own: dict[str, Any] = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return {}
    return own if isinstance(x, tuple) or "statistic" in own else {}
