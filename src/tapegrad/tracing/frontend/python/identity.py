"""Object identity and class attributes of traced values as in plain Python: `id`, `operator.is_`,
`hasattr`, `inspect.getattr_static`.

The operators `is` and `is not` are seen as instructions: see `observe.guards.identities`.
"""

from __future__ import annotations

import builtins
import inspect
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.observe.answers.answers import declare
from tapegrad.observe.guards.identities import same_single, single_of
from tapegrad.observe.observer import following, unobserved
from tapegrad.observe.program.source import is_users_line
from tapegrad.tracing.tracers.tracer import ScalarTracer, Tracer


@unobserved
def _is(x: Any, y: Any) -> bool:
    """operator.is_(x, y)."""
    here = following.observer
    if here is not None:
        return here.identities.same(x, y)
    single = same_single(x, y)
    return x is y if single is None else single


def _is_not(x: Any, y: Any) -> bool:
    return not _is(x, y)


@unobserved
def _id(x: Any) -> int:
    """id(x). The standard library uses it to recognise objects (`copy`, for example), and gets the
    real one, which distinguishes a tracer from its copy."""
    here = following.observer
    if not is_users_line():
        return id(x)
    if here is not None:
        return here.identities.number_of(x)
    single = single_of(x)
    return id(x if single is None else single)


def _static(x: Any, name: str, *default: Any) -> Any:
    """inspect.getattr_static(x, name), of the class that a tracer represents."""
    kind: Any = x.__class__
    return inspect.getattr_static(np.empty(()) if kind is np.ndarray else kind(), name, *default)


def _hasattr(x: Any, name: str) -> bool:
    """hasattr(x, "__iter__"), which is False for a NumPy scalar. The tracer's class has the
    attribute, as None, since Python would otherwise iterate by indices."""
    return not _of_iterator((x, name)) and hasattr(x, name)


def _of_iterator(args: Sequence[Any]) -> bool:
    return len(args) == 2 and isinstance(args[0], ScalarTracer) and args[1] == "__iter__"


def _two(args: Sequence[Any]) -> bool:
    return len(args) == 2 and any(isinstance(x, Tracer) for x in args)


def _one(args: Sequence[Any]) -> bool:
    return len(args) == 1


def _first(args: Sequence[Any]) -> bool:
    return len(args) > 1 and isinstance(args[0], Tracer)


def declare_all() -> None:
    """Register the replacements."""
    declare(operator, "is_", _is, when=_two)
    declare(operator, "is_not", _is_not, when=_two)
    declare(builtins, "id", _id, when=_one)
    declare(builtins, "hasattr", _hasattr, when=_of_iterator, here=True)
    declare(inspect, "getattr_static", _static, when=_first)
