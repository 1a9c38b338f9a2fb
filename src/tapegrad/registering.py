"""Classes of users as trees: `register_tree`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from tapegrad.core.instances import (
    Fields,
    Functions,
    declare,
    fields_of,
    is_declared,
    rest_key,
)
from tapegrad.core.values import Value
from tapegrad.errors import ArgumentError
from tapegrad.settings import clear_cache

C = TypeVar("C", bound=type)


@overload
def register_tree(
    cls: C,
    flatten: Callable[[Any], tuple[Sequence[Any], Any]] | None = None,
    unflatten: Callable[[Any, Sequence[Any]], Any] | None = None,
    *,
    fields: Sequence[str] | None = None,
    static: Sequence[str] = (),
) -> C: ...
@overload
def register_tree(
    cls: None = None, *, fields: Sequence[str] | None = None, static: Sequence[str] = ()
) -> Callable[[C], C]: ...
def register_tree(
    cls: Any = None,
    flatten: Callable[[Any], tuple[Sequence[Any], Any]] | None = None,
    unflatten: Callable[[Any, Sequence[Any]], Any] | None = None,
    *,
    fields: Sequence[str] | None = None,
    static: Sequence[str] = (),
) -> Any:
    """Make a class a kind of tree: its instances are arguments, results and what loops carry, as
    dicts are, and gradients with respect to them are instances too.

        @register_tree(fields=("rate", "level"))
        class Filter: ...

        register_tree(Layer, static=("name",))  # a dataclass, or a class of attrs'

        register_tree(
            Quadratic,
            lambda q: ([q.a, q.b], q.label),
            lambda label, branches: Quadratic(*branches, label),
        )

    Dataclasses are trees without it; it says which of their fields are `static`. By its fields an
    instance is put together without a call of `__init__`. What it holds besides them goes with it:
    that is compared from call to call, and not differentiated.

    Parameters
    ----------
    cls : the class. Without it, or alone, this is a decorator. Classes that derive from it are
        registered for themselves; a dataclass keeps what is static in those that it derives from.
    flatten : takes an instance apart: it returns a list of its branches (arrays, numbers, trees)
        and what else it takes to put it together, in numbers, strings and tuples of them, or
        objects that stay the same.
    unflatten : makes an instance of that and a list of branches. These may be traced values, or
        None or something else in the place of one, so it doesn't look into them. Both functions
        depend on nothing but what they are given.
    fields : the names of the attributes that are branches. All fields, of a dataclass or a class of
        attrs'.
    static : the names of the fields that are no branches.

    Returns
    -------
    The class itself; without one, the decorator.

    Raises
    ------
    ArgumentError : there is no telling what the branches are, or instances are arrays, numbers or
        Python's own containers.
    """
    if cls is None:
        return lambda c: register_tree(c, fields=fields, static=static)
    how = _declaration(cls, flatten, unflatten, fields, static)
    if is_declared(cls):
        clear_cache()  # what was traced with instances as they were
    declare(cls, how)
    return cls


def _declaration(
    cls: Any,
    flatten: Callable[[Any], Any] | None,
    unflatten: Callable[[Any, Sequence[Any]], Any] | None,
    fields: Sequence[str] | None,
    static: Sequence[str],
) -> Fields | Functions:
    """How instances are to be trees."""
    if not isinstance(cls, type):
        raise ArgumentError(f"register_tree needs a class, not {cls!r}")
    own = (list, tuple, dict, set, frozenset, str, bytes, int, float, complex, type)
    if issubclass(cls, (np.ndarray, np.generic, Value, *own)):
        raise ArgumentError(
            f"register_tree: instances of {cls.__name__} are arrays, numbers or containers of "
            "Python's, which tapegrad takes as such. Let an attribute of another class hold one"
        )
    if flatten is not None or unflatten is not None:
        if not (callable(flatten) and callable(unflatten)):
            raise ArgumentError(
                f"register_tree of {cls.__name__} needs two functions: one that takes instances "
                "apart, and one that puts them together"
            )
        if fields is not None or static:
            raise ArgumentError(
                f"register_tree of {cls.__name__}: either two functions say what the branches are, "
                "or fields and static do"
            )
        return Functions(flatten, unflatten, rest_key)
    if fields is not None:
        names = _names(cls, "fields", fields)
        return Fields(tuple([n for n in names if n not in static]), wanted=True)
    if dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__"):
        how = fields_of(cls, _names(cls, "static", static))
        unknown = [n for n in static if n not in _field_names(cls)]
        if unknown:
            raise ArgumentError(
                f"register_tree: {cls.__name__} has no field {unknown[0]!r}. Its fields are "
                f"{', '.join(_field_names(cls))}"
            )
        return how
    raise ArgumentError(
        f"register_tree of {cls.__name__}: it is no dataclass and no class of attrs', so say which "
        "attributes are branches (fields=...), or pass two functions, flatten and unflatten"
    )


def _names(cls: type, what: str, names: Any) -> tuple[str, ...]:
    """Names of attributes, as they were given."""
    if isinstance(names, str) or not all(isinstance(n, str) for n in names):
        raise ArgumentError(
            f"register_tree of {cls.__name__}: {what} is a tuple of names, not {names!r}"
        )
    return tuple(names)


def _field_names(cls: Any) -> list[str]:
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else cls.__attrs_attrs__
    return [f.name for f in fields]
