"""Functions in C that take Python's integers by their type, and so don't ask a traced one for its
value: it goes there as a plain number, which is guarded."""

from __future__ import annotations

import collections
import functools
import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tapegrad.tracing.answers import declare, declare_late
from tapegrad.tracing.frontend.parameters import plain_parameter
from tapegrad.tracing.observe.observer import observed, unobserved
from tapegrad.tracing.tracer import Tracer

_NAMES: dict[ModuleType, str] = {
    collections: "deque",
    itertools: "permutations combinations combinations_with_replacement product",
    math: "ldexp",
}
_LATE = {"decimal": "Decimal", "struct": "pack", "json": "dumps dump"}  # programs import these


def _is_integer(x: Any) -> bool:
    return isinstance(x, Tracer) and not x.ndim and x.dtype.kind in "iub"


def _holds_integers(x: Any) -> bool:
    if isinstance(x, dict):
        return any(map(_holds_integers, x.values()))
    return any(map(_holds_integers, x)) if isinstance(x, (list, tuple)) else _is_integer(x)


def _declare(module: ModuleType, name: str) -> None:
    """Declare what answers a function: of containers for `json` the elements count, too."""
    original: Any = getattr(module, name)
    meant: Callable[[Any], bool] = _holds_integers if module.__name__ == "json" else _is_integer

    def when(args: Sequence[Any]) -> bool:
        return any(map(meant, args))

    @functools.wraps(original, updated=())
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        given = [plain_parameter(x, ()) if meant(x) else x for x in args]
        named = {key: plain_parameter(x, ()) if meant(x) else x for key, x in kwargs.items()}
        with observed():
            return original(*given, **named)

    declare(module, name, called, when=when)


def declare_all() -> None:
    """Fill the table."""
    for module, names in _NAMES.items():
        for name in names.split():
            _declare(module, name)
    for home, names in _LATE.items():
        declare_late(home, functools.partial(_declare_late, home, names))


def _declare_late(home: str, names: str) -> None:
    for name in names.split():
        _declare(importlib.import_module(home), name)
