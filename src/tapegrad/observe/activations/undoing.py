"""What a run does to objects of the outside that C code changes: how that is taken back.

A trace that has to be made again does all of the run again. What it has written to lists, dicts and
attributes is known by place (`places.Write`); of streams and buffers the state is kept before the
first call that may change it. Iterators that have gone on can't go back: then it is an error.
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

from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line


class Undoing:
    """How the objects are put back that a run has changed, by id; and what can't be."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, Any]] = {}  # with the states before
        self._gone = ""  # the line, and the iterator that has gone on there
        self.steps = 0  # how often one has

    def before_call(self, reads: Any, f: Any, args: Sequence[Any]) -> None:
        """A function written in C is about to be called, maybe a method of an object."""
        held = getattr(f, "__self__", None)
        for x in args if held is None else (held, *args):
            kind: Any = type(x)
            shuffled = kind is list and getattr(f, "__name__", "") == "shuffle"
            if (kind in _STATES or shuffled) and id(x) not in self._kept:
                with suppress(OSError, ValueError):  # of a stream that is closed, or goes one way
                    self._kept[id(x)] = x, _state(x)
            elif kind in _ITERATORS and not any(f is g for g in _LOOKING):
                self.goes_on(reads, x)

    def goes_on(self, reads: Any, x: Any) -> None:
        """An iterator is about to give its next value."""
        if type(x) in _ITERATORS and (place := reads.places.get(id(x))):
            self.steps += 1
            self._gone = self._gone or f"{place.word}{at_line()}"

    def undo(self) -> None:
        for x, state in reversed([*self._kept.values()]):
            with suppress(OSError, ValueError, BufferError):
                _put_back(x, state)

    def states(self, now: bool) -> dict[int, Any]:
        """The states of objects that the run may have changed, now or before it."""
        found = {}
        for key, (x, before) in self._kept.items():
            with suppress(OSError, ValueError):
                found[key] = _state(x) if now else before
        return found

    def refusal(self) -> UnsupportedError | None:
        """Why the run can't be made again, if it can't."""
        if not self._gone:
            return None
        return UnsupportedError(
            f"values were taken from an iterator of the outside, {self._gone}, before it was known "
            "how the function is traced, and can't be put back. Call it again: that is known now. "
            "Or take the values outside, and pass them"
        )


def _position(x: Any) -> int:
    if x is sys.stdout or x is sys.stderr:
        raise OSError("what is shown stays")
    return int(x.tell())


def _go_back(x: Any, at: int) -> None:
    """Of a file that is read, or at whose end is written: by nobody else, as far as is seen."""
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


# How the state of an object of a type is read, and put back
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
# They look at an iterator, and take nothing from it.
_LOOKING = (isinstance, issubclass, type, id, repr, str, hash, callable, iter, hasattr, getattr)
