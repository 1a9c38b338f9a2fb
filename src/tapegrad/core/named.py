"""Decorated functions that pickle by name."""

from __future__ import annotations

import importlib
import operator
import sys
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


def named(module: str, name: str) -> Any:
    return operator.attrgetter(name)(importlib.import_module(module))
