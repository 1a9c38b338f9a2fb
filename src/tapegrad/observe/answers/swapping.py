"""Swapping of names in modules while a traced function runs, in runs that aren't observed.

A run isn't observed if a debugger or coverage tool holds `sys.settrace`, or if the layout of
Python's frames is unknown. Then calls of the program aren't seen. Instead, the names in the table
(`answers.py`) are swapped, as attributes of their modules and in the user's modules, from the first
such run in any thread to the end of the last one. Other threads, and code of NumPy, SciPy and
tapegrad, still get the original.

A name that somebody else has rebound is left alone, before and after. All names of a module are set
at once, in C, so an interrupt finds either all of them swapped or none. If an interrupt prevents
the end of a run, the run is over when its `Names` object is freed.
"""

from __future__ import annotations

import os
import sys
import threading
from builtins import id  # the original: `builtins.id` itself is swapped
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from tapegrad.core.locks import new_lock
from tapegrad.observe.answers.answers import Answer, rows, stand_in, version
from tapegrad.observe.objects.purity import is_users_file

_lock = new_lock()
_open: dict[int, int] = {}  # the threads of the runs under way, by the ids of their `Names`


class Swap:
    """The names of a module or class that are in the table, each with the original and its
    replacement.

    It isn't a named tuple: Python generates code to make these, which an observer would follow.
    """

    def __init__(self, names: Any, pairs: dict[str, tuple[Any, Any]]) -> None:
        self.names, self.pairs = names, pairs


_changed: list[Swap] = []


class Names:
    """A context in which the names are swapped, until it is left or freed."""

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
    """Restore the originals until `go_on` is called as often as this, unless another thread has
    runs under way."""
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


_paused: dict[int, int] = {}  # how often each thread has paused


class _Seen:
    """The table and the modules as of the last scan. `tables` are the modules that are in the
    table."""

    def __init__(
        self,
        state: tuple[int, int],
        table: dict[int, Answer],
        tables: list[Swap],
        users: list[dict[str, Any]],
    ) -> None:
        self.state, self.table, self.tables, self.users = state, table, tables, users


def _meant(names: dict[str, Any], table: dict[int, Answer]) -> Swap:
    if table.keys().isdisjoint(map(id, [*names.values()])):  # as in most modules
        return Swap(names, {})
    found = [(name, table.get(id(x))) for name, x in [*names.items()]]
    pairs = {name: (row.original, stand_in(row)) for name, row in found if row is not None}
    return Swap(names, pairs)


def _looked_through() -> _Seen:
    """The scan of all modules, repeated only after a declaration or an import."""
    global _seen
    state = version(), len(sys.modules)
    if _seen is None or _seen.state != state:
        known = [row for row in rows() if not isinstance(row.module, type)]
        table = {id(row.original): row for row in known if _can_be_swapped(row.original)}
        held = [vars(module) for module in {id(row.module): row.module for row in known}.values()]
        main = sys.modules.get("__main__")
        users = [vars(x) for x in [*sys.modules.values()] if _is_users(x) or x is main]
        tables = [_meant(names, table) for names in held]
        for row in table.values():  # also names that are bound to another object now
            for swap in tables:
                if swap.names is vars(row.module):
                    swap.pairs.setdefault(row.name, (row.original, stand_in(row)))
        tables += _methods()
        _seen = _Seen(state, table, tables, users)
    return _seen


_seen: _Seen | None = None


def _methods() -> list[Swap]:
    """The swaps in classes written in Python, such as SciPy's distributions."""
    found: dict[type, Swap] = {}
    for row in rows():
        if isinstance(row.module, type) and type(row.original) is FunctionType:
            swap = found.setdefault(row.module, Swap(row.module, {}))
            swap.pairs[row.name] = row.original, stand_in(row)
    return list(found.values())


def _can_be_swapped(x: Any) -> bool:
    """Whether the name of `x` may be swapped. Types of numbers and arrays aren't: they are
    compared, passed to NumPy, and looked up by Cython modules at import. SciPy's classes are only
    called."""
    if not isinstance(x, type) or x in (np.ndenumerate, np.nditer):
        return True
    return x.__module__.startswith("scipy.")


def _is_users(module: Any) -> bool:
    return type(module) is ModuleType and is_users_file(vars(module).get("__file__"))


def _set(swap: Swap, stand_ins: bool) -> None:
    """Bind the names to the replacements, or back to the originals, where nobody has rebound
    them."""
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
    """After a fork, forget the runs of other threads: the child has only one thread."""
    here = threading.get_ident()
    for number in [n for n, thread in _open.items() if thread != here]:
        del _open[number]
    if not _open:
        _put_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
