"""Undoing a run's changes to objects that C code changes.

A repeated trace runs everything again. Writes to lists, dicts and attributes are undone by place
(`places.Write`). For streams and buffers, the state is stored before the first call that may change
it. Iterators that have advanced can't be put back: then repeating the run is an error.
"""

from __future__ import annotations

import array
import io
import itertools
import os
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tapegrad.core.named import own_attribute
from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line


class Undoing:
    """The objects that a run has changed, by id, with their states before; and changes that can't
    be undone."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, Any]] = {}  # objects with the states before
        self._gone = ""  # the line, and the iterator that has advanced there
        self.steps = 0  # how often an iterator has advanced

    def before_call(self, reads: Any, f: Any, args: Sequence[Any]) -> None:
        """Store states: a function written in C, possibly a method, is about to be called."""
        held = own_attribute(f, "__self__")
        for x in args if held is None else (held, *args):
            kind: Any = type(x)
            shuffled = kind is list and own_attribute(f, "__name__", "") == "shuffle"
            if (kind in _STATES or shuffled) and id(x) not in self._kept:
                with suppress(OSError, ValueError):  # a stream may be closed, or not seekable
                    self._kept[id(x)] = x, _state(x)
            elif kind in _ITERATORS and not any(f is g for g in _LOOKING):
                self.goes_on(reads, x)

    def goes_on(self, reads: Any, x: Any) -> None:
        """Record that an iterator is about to advance."""
        if type(x) in _ITERATORS and (place := reads.places.get(id(x))):
            self.steps += 1
            self._gone = self._gone or f"{place.word}{at_line()}"

    def undo(self) -> None:
        for x, state in reversed([*self._kept.values()]):
            with suppress(OSError, ValueError, BufferError):
                _put_back(x, state)

    def states(self, now: bool) -> dict[int, Any]:
        """The states of objects that the run may have changed: their present states, or those
        before the run."""
        found = {}
        for key, (x, before) in self._kept.items():
            with suppress(OSError, ValueError):
                found[key] = _state(x) if now else before
        return found

    def refusal(self) -> UnsupportedError | None:
        """The error to raise if the run can't be repeated; None if it can."""
        if not self._gone:
            return None
        return UnsupportedError(
            f"values were taken from an iterator from outside the function, {self._gone}, before "
            "it was known how the function is traced, and can't be put back. Call it again: that "
            "is known now. Or take the values outside, and pass them"
        )


def _position(x: Any) -> int:
    if x is sys.stdout or x is sys.stderr:
        raise OSError("what is shown stays")
    return int(x.tell())


def _go_back(x: Any, at: int) -> None:
    """Restore the position of a file that is read, or appended to. It assumes that nobody else
    writes to the file."""
    writes = x.writable()
    if writes:
        x.flush()
        if os.fstat(x.fileno()).st_size != x.tell():
            return
    x.seek(at)
    if writes:
        x.truncate()


def _fill(x: Any, before: Any) -> None:
    x[:] = before


# For each type, how an object's state is read, and how it is restored.
_CONTENTS = (lambda x: x[:]), _fill
_WHOLE = (lambda x: x.__getstate__()), (lambda x, state: x.__setstate__(state))
_POSITION = _position, _go_back
_STATES: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    **dict.fromkeys([bytearray, array.array], _CONTENTS),
    **dict.fromkeys([io.StringIO, io.BytesIO], _WHOLE),
    **dict.fromkeys([io.TextIOWrapper, io.BufferedReader, io.BufferedWriter], _POSITION),
    **dict.fromkeys([io.BufferedRandom, io.FileIO], _POSITION),
}


def _state(x: Any) -> Any:
    return _STATES.get(type(x), _CONTENTS)[0](x)


def _put_back(x: Any, state: Any) -> None:
    _STATES.get(type(x), _CONTENTS)[1](x, state)


_OF: list[Any] = [[], (), "", b"", {}, {}.values(), {}.items(), set(), range(1)]
_ITERATORS: frozenset[type] = frozenset(
    [
        *(types.GeneratorType, zip, map, filter, enumerate, reversed),
        *(type(iter(x)) for x in _OF),
        *(x for x in vars(itertools).values() if isinstance(x, type)),
    ]
)
# They don't advance an iterator.
_LOOKING = (isinstance, issubclass, type, id, repr, str, hash, callable, iter, hasattr, getattr)
