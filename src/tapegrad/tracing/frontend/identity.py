"""`id`, and `is` as a function: which object a traced value is, as plain Python has it.

The operators `is` and `is not` are seen as instructions: see `observe.identities`.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any

from tapegrad.tracing.answers import declare
from tapegrad.tracing.observe.identities import same_single, single_of
from tapegrad.tracing.observe.observer import following, unobserved
from tapegrad.tracing.source import is_users_line
from tapegrad.tracing.tracer import Tracer


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
    """id(x). Python's library looks with it for what it has met before, in `copy` for instance: it
    may be told tracers and copies apart."""
    here = following.observer
    if not is_users_line():
        return id(x)
    if here is not None:
        return here.identities.number_of(x)
    single = single_of(x)
    return id(x if single is None else single)


def _two(args: Sequence[Any]) -> bool:
    return len(args) == 2 and any(isinstance(x, Tracer) for x in args)


def _one(args: Sequence[Any]) -> bool:
    return len(args) == 1


def declare_all() -> None:
    """Fill the table."""
    declare(operator, "is_", _is, when=_two)
    declare(operator, "is_not", _is_not, when=_two)
    declare(builtins, "id", _id, when=_one)
