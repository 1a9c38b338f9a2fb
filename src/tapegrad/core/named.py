"""What a decorator makes of a function: a module has it by the function's name."""

from __future__ import annotations

import importlib
import operator
import sys
from typing import Any


class Named:
    """Pickled by its name, as functions are, where a module has it by that; else by its parts."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        function: Any = self
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        module, name = (getattr(function, x, "") for x in ("__module__", "__qualname__"))
        try:
            if operator.attrgetter(name)(sys.modules[module]) is self:
                return named, (module, name)
        except (KeyError, AttributeError, TypeError):  # of a function inside of another, say
            pass
        return super().__reduce_ex__(protocol)


def named(module: str, name: str) -> Any:
    return operator.attrgetter(name)(importlib.import_module(module))
