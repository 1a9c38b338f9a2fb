"""The state that a function reaches through its closure and its object: whether a run has changed
it.

A callback of a solver, the function of a `scan` and those of a `cond` are traced once for all
calls: a counter or list that they change would stay as the trace left it. Changes of objects
outside are recorded by the observer (`observe.sides.outside_changes`). This file covers objects
that the traced function has created itself.
"""

from __future__ import annotations

import functools
from collections import deque
from types import FunctionType, MethodType
from typing import Any

from tapegrad.observe.objects.comparing import is_empty
from tapegrad.observe.objects.purity import INERT
from tapegrad.observe.observer import following
from tapegrad.observe.program.source import at_line, is_users
from tapegrad.observe.sides.outside_changes import OutsideChanges
from tapegrad.tracing.draws.recipes import attributes_of

MAX_SEARCH = 10_000  # maximal number of objects in a search


class Reached:
    """A snapshot of the objects that a function of the user's reaches."""

    def __init__(self, f: Any) -> None:
        self._f, self._held = f, holdings(f)
        self._done = OutsideChanges(following.observer)

    def changed(self) -> str | None:
        """A description of a change since then, with the line; None if there is none."""
        outside = self._done.changed()
        if outside is None and not are_same(self._held, holdings(self._f)):
            return f"a variable or a container{at_line()}"
        return outside


def holdings(f: Any) -> list[Any] | None:
    """The variables of a function's closure, and the contents of its containers, with lengths. None
    if there are more than `MAX_SEARCH`."""
    found: list[Any] = []
    seen: set[int] = set()
    todo: list[Any] = [f]
    while todo:
        x = todo.pop()
        found.append(x)
        kind: Any = type(x)
        if INERT[kind] or id(x) in seen:
            continue
        seen.add(id(x))
        if len(found) + len(todo) > MAX_SEARCH:
            return None
        if kind is FunctionType:
            users = is_users(x.__code__)
            todo += [c.cell_contents for c in x.__closure__ or () if not is_empty(c)]
            todo += [*(x.__defaults__ or ())] if users else []
        elif kind is MethodType:
            todo += [x.__func__, *attributes_of(x.__self__).values()]
        elif kind is functools.partial:
            todo += [x.func, *x.args, *x.keywords.values()]
        elif kind in (list, tuple, set, deque):
            found.append(len(x))
            todo += x
        elif kind is dict:
            found.append(len(x))
            todo += [*x, *x.values()]
        elif _is_users_callable(kind):
            todo += attributes_of(x).values()
    return found


def _is_users_callable(kind: type) -> bool:
    call = getattr(kind, "__call__", None)  # noqa: B004
    return type(call) is FunctionType and is_users(call.__code__)


def are_same(before: list[Any] | None, after: list[Any] | None) -> bool:
    """Whether a run has left everything unchanged. Assumed if there is too much to compare."""
    if before is None or after is None:
        return True
    return len(before) == len(after) and all(
        x is y or (INERT[type(x)] and type(x) is type(y) and (x == y or x != x))
        for x, y in zip(before, after, strict=True)
    )
