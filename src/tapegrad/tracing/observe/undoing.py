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
from tapegrad.tracing.source import at_line

Undo = Callable[[], Any]


class Undoing:
    """How the objects are put back that a run has changed, by id; and what can't be."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, Undo]] = {}
        self._gone = ""  # the line, and the iterator that has gone on there

    def before_call(self, reads: Any, f: Any, args: Sequence[Any]) -> None:
        """A function written in C is about to be called, maybe a method of an object."""
        held = getattr(f, "__self__", None)
        for x in args if held is None else (held, *args):
            kind: Any = type(x)
            state = _STATES.get(kind)
            if kind is list and getattr(f, "__name__", "") == "shuffle":
                state = _contents
            if state is not None and id(x) not in self._kept:
                with suppress(OSError, ValueError):  # of a stream that is closed, or goes one way
                    self._kept[id(x)] = x, state(x)
            elif kind in _ITERATORS and not any(f is g for g in _LOOKING):
                self.goes_on(reads, x)

    def goes_on(self, reads: Any, x: Any) -> None:
        """An iterator is about to give its next value."""
        if not self._gone and type(x) in _ITERATORS and (place := reads.places.get(id(x))):
            self._gone = f"{place.word}{at_line()}"

    def undo(self) -> None:
        for _, undo in reversed([*self._kept.values()]):
            with suppress(OSError, ValueError, BufferError):
                undo()

    def refusal(self) -> UnsupportedError | None:
        """Why the run can't be made again, if it can't."""
        if not self._gone:
            return None
        return UnsupportedError(
            f"values were taken from an iterator of the outside, {self._gone}, before it was known "
            "how the function is traced, and can't be put back. Call it again: that is known now. "
            "Or take the values outside, and pass them"
        )


def _contents(x: Any) -> Undo:
    before = x[:]

    def undo() -> None:
        x[:] = before

    return undo


def _whole(x: Any) -> Undo:
    state = x.__getstate__()
    return lambda: x.__setstate__(state)


def _position(x: Any) -> Undo:
    """Of a file that is read, or at whose end is written: by nobody else, as far as is seen."""
    if x is sys.stdout or x is sys.stderr:
        raise OSError("what is shown stays")
    at, writes = x.tell(), x.writable()

    def undo() -> None:
        if writes:
            x.flush()
            if os.fstat(x.fileno()).st_size != x.tell():
                return
        x.seek(at)
        if writes:
            x.truncate()

    return undo


_STATES: dict[type, Callable[[Any], Undo]] = {
    **dict.fromkeys([bytearray, array.array], _contents),
    **dict.fromkeys([io.StringIO, io.BytesIO], _whole),
    **dict.fromkeys([io.TextIOWrapper, io.BufferedReader, io.BufferedWriter], _position),
    **dict.fromkeys([io.BufferedRandom, io.FileIO], _position),
}
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
