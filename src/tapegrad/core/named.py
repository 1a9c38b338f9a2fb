"""Decorated functions that pickle by name."""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
import sys
import types
from typing import Any


class Named:
    """Pickled by its name, as functions are, if a module holds it under that name; otherwise by its
    attributes."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        function: Any = self
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        module, name = (getattr(function, x, "") for x in ("__module__", "__qualname__"))
        try:
            if operator.attrgetter(name)(sys.modules[module]) is self:
                return named, (module, name)
        except (KeyError, AttributeError, TypeError):  # such as a nested function
            pass
        return super().__reduce_ex__(protocol)


class Telling(Named):
    """A derived function that says what it is: by repr, by help and in notebooks."""

    _what: str  # what was derived, and of what
    _held: str  # what it holds

    def __init_subclass__(cls) -> None:
        own: Any = _Doc(cls.__doc__)
        cls.__doc__ = own
        if "__call__" in vars(cls):
            # Its own is (*args, **kwargs), which IPython would show beside that of the instance
            vars(cls)["__call__"].__signature__ = inspect.Signature()

    def __repr__(self) -> str:
        return f"<tapegrad {self._what}{': ' * bool(self._held)}{self._held}>"

    def _users_doc(self) -> str:
        """What the user says of the function that is derived."""
        f: Any = self
        while isinstance(f, Telling) or isinstance(getattr(f, "__func__", None), Telling):
            f = f.__wrapped__
        doc: str = getattr(f, "__doc__", None) or ""
        return doc

    def _rows(self) -> list[tuple[str, str, int]]:
        """Of each thing that it holds: the arguments that it is for, how it is answered, how many
        calls it has."""
        return []

    def _repr_html_(self) -> str:
        from tapegrad.core.pages import page, paragraph, table

        head, doc = f"{self.__name__}: {self._what}", self._users_doc()  # type: ignore[attr-defined]
        rows = self._rows()
        held = table(("variant", "answered", "calls of the tape"), rows) if rows else ""
        first = doc.partition("\n\n")[0]
        return page(head, paragraph(first) if first else "", held or paragraph("not called yet"))


class _Doc:
    """`__doc__`: a class has its own, its instances that of the user's function, with what was
    derived of it."""

    def __init__(self, own: str | None) -> None:
        self.own = own

    def __get__(self, instance: Any, owner: Any = None) -> str | None:
        if instance is None:
            return self.own
        doc, held = instance._users_doc(), f": {instance._held}" if instance._held else ""
        told = f"Derived by tapegrad: {instance._what}{held}. See explain(*args)."
        return f"{inspect.cleandoc(doc)}\n\n{told}" if doc else told


def named(module: str, name: str) -> Any:
    return operator.attrgetter(name)(importlib.import_module(module))


def own_attribute(x: Any, name: str, default: Any = None) -> Any:
    """`getattr` without the `__getattr__` of x's class, which may answer for any name, as that of
    polars' `col`."""
    kind: Any = type(x)
    if not _answers_for_names(kind):
        return getattr(x, name, default)
    try:
        return (type if isinstance(x, type) else object).__getattribute__(x, name)
    except AttributeError:
        return default


@functools.lru_cache(maxsize=4096)
def _answers_for_names(kind: Any) -> bool:
    """Whether a class has a `__getattr__` in Python."""
    return isinstance(getattr(kind, "__getattr__", None), types.FunctionType)
