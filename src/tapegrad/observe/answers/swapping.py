"""Names of modules that stand for something else while a traced function runs.

Where a run isn't observed, because a debugger or a coverage tool has `sys.settrace`, or because
Python's frames aren't described, what the program calls isn't seen. Then the names in the table
(`answers.py`) are swapped: as attributes of their modules, and where the user's modules hold them,
from the first such run in any thread to the end of the last one. Who isn't meant gets the original:
another thread, and code of NumPy's, SciPy's and tapegrad's.

A name that somebody else has put another thing behind is left alone, before and after. Names are
set for a whole module at once, in C, so an interrupt finds all of them swapped or none. A run that
an interrupt has kept from its end is over when the object that stands for it is gone.
"""

from __future__ import annotations

import os
import sys
import threading
from builtins import id  # the original: `builtins.id` is among what is swapped
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from tapegrad.core.locks import new_lock
from tapegrad.observe.answers.answers import Answer, rows, stand_in, version
from tapegrad.observe.objects.harmless import is_users_file

_lock = new_lock()
_open: dict[int, int] = {}  # the runs under way, and their threads, by the ids of their `Names`


class Swap:
    """Names of a module or a class that mean something in the table: by name the original and its
    stand-in.

    No tuple with names: what makes one is a text of Python's, which an observer would follow.
    """

    def __init__(self, names: Any, pairs: dict[str, tuple[Any, Any]]) -> None:
        self.names, self.pairs = names, pairs


_changed: list[Swap] = []


class Names:
    """The names are swapped from when this is entered until it is left, or gone."""

    __slots__ = ("__weakref__",)

    def __enter__(self) -> Names:
        with _lock:
            _open[id(self)] = threading.get_ident()
            if not _changed:
                _swap()
        return self

    def __exit__(self, *exc: object) -> None:
        _close(id(self))

    def __del__(self) -> None:
        _close(id(self))


def _close(number: int) -> None:
    with _lock:
        if _open.pop(number, None) is not None and not _open:
            _put_back()


def pause() -> None:
    """The names mean the originals until `go_on` is called as often as this, unless another thread
    has runs under way."""
    with _lock:
        here = threading.get_ident()
        _paused[here] = _paused.get(here, 0) + 1
        if all(thread == here for thread in _open.values()):
            _put_back()


def go_on() -> None:
    with _lock:
        here = threading.get_ident()
        left = _paused.pop(here) - 1
        if left:
            _paused[here] = left
        elif _open and not _changed:
            _swap()


_paused: dict[int, int] = {}  # how often, by threads


class _Seen:
    """The table, and modules as they were last looked through: `tables` of those in the table."""

    def __init__(
        self,
        state: tuple[int, int],
        table: dict[int, Answer],
        tables: list[Swap],
        users: list[dict[str, Any]],
    ) -> None:
        self.state, self.table, self.tables, self.users = state, table, tables, users


def _meant(names: dict[str, Any], table: dict[int, Answer]) -> Swap:
    if table.keys().isdisjoint(map(id, [*names.values()])):  # as of most modules
        return Swap(names, {})
    found = [(name, table.get(id(x))) for name, x in [*names.items()]]
    pairs = {name: (row.original, stand_in(row)) for name, row in found if row is not None}
    return Swap(names, pairs)


def _looked_through() -> _Seen:
    """As it was, where nothing was declared and no module loaded since."""
    global _seen
    state = version(), len(sys.modules)
    if _seen is None or _seen.state != state:
        known = [row for row in rows() if not isinstance(row.module, type)]
        table = {id(row.original): row for row in known if _can_be_swapped(row.original)}
        held = [vars(module) for module in {id(row.module): row.module for row in known}.values()]
        main = sys.modules.get("__main__")
        users = [vars(x) for x in [*sys.modules.values()] if _is_users(x) or x is main]
        tables = [_meant(names, table) for names in held]
        for row in table.values():  # also where a name means another thing now
            for swap in tables:
                if swap.names is vars(row.module):
                    swap.pairs.setdefault(row.name, (row.original, stand_in(row)))
        tables += _methods()
        _seen = _Seen(state, table, tables, users)
    return _seen


_seen: _Seen | None = None


def _methods() -> list[Swap]:
    """Of classes written in Python, as SciPy's distributions."""
    found: dict[type, Swap] = {}
    for row in rows():
        if isinstance(row.module, type) and type(row.original) is FunctionType:
            swap = found.setdefault(row.module, Swap(row.module, {}))
            swap.pairs[row.name] = row.original, stand_in(row)
    return list(found.values())


def _can_be_swapped(x: Any) -> bool:
    """A type of numbers or arrays is also what others are compared with, passed to NumPy, and
    looked for by what Cython has compiled, when that is imported; SciPy's classes are called."""
    if not isinstance(x, type) or x in (np.ndenumerate, np.nditer):
        return True
    return x.__module__.startswith("scipy.")


def _is_users(module: Any) -> bool:
    return type(module) is ModuleType and is_users_file(vars(module).get("__file__"))


def _set(swap: Swap, stand_ins: bool) -> None:
    """Put the stand-ins behind the names that mean the originals, or the other way."""
    names, put = swap.names, {}
    if isinstance(names, type):
        for name, pair in swap.pairs.items():
            old, new = pair if stand_ins else pair[::-1]
            if vars(names).get(name) is old:
                setattr(names, name, new)
        return
    for name, (original, swapped) in swap.pairs.items():
        old, new = (original, swapped) if stand_ins else (swapped, original)
        if names.get(name) is old:
            put[name] = new
    names.update(put)


def _swap() -> None:
    seen = _looked_through()
    for swap in _with_users(seen):
        _changed.append(swap)
        _set(swap, True)


def _with_users(seen: _Seen) -> Iterable[Swap]:
    yield from seen.tables
    for names in seen.users:
        swap = _meant(names, seen.table)
        if swap.pairs:
            yield swap


def _put_back() -> None:
    while _changed:
        _set(_changed[-1], False)
        _changed.pop()


def _forked() -> None:
    """In the child of a fork there is one thread: what others have begun is over there."""
    here = threading.get_ident()
    for number in [n for n, thread in _open.items() if thread != here]:
        del _open[number]
    if not _open:
        _put_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
