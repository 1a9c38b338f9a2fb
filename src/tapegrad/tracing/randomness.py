"""Random numbers drawn while a function is traced: they would be frozen, so they are refused.

A generator whose state has moved when the trace is over was drawn from. NumPy's and Python's
global generators are looked at, and those that the function can reach. A generator that the
function makes for itself from a seed draws the same numbers each time, as it does in plain NumPy;
one that it makes without a seed is refused where it is made.
"""

from __future__ import annotations

import dis
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

import numpy as np
from numpy.random import bit_generator

from tapegrad.errors import RandomnessError
from tapegrad.ir.tape import Source
from tapegrad.tracing.source import at_line, at_source

FIX = (
    "A trace runs once, so each later call would get the same numbers. Draw them outside and pass "
    "them in as an argument; or pass in a key: tapegrad.random.normal(key, shape) draws anew for "
    "each key"
)
_DRAWS = {
    name
    for kind in (np.random.Generator, np.random.RandomState, random.Random)
    for name in dir(kind)
    if not name.startswith("_")
}
_lock = threading.Lock()
_here = threading.local()
_tracing = 0  # traces that refuse unseeded generators, in all threads; `_here.count` in this one
_entropy: Callable[..., Any] | None = getattr(bit_generator, "randbits", None)


@contextmanager
def no_draws(name: str, generators: Sequence[Any], codes: Iterable[CodeType]) -> Iterator[None]:
    """Refuse to let the function `name`, whose code is `codes`, draw random numbers."""
    before = [(word, state, state()) for word, state in _sources(generators)]
    _refuse_entropy(1)
    try:
        yield
    finally:
        _refuse_entropy(-1)
    for word, state, was in before:
        if not _same(was, state()):
            src = _line_of_draw(codes)
            if src is None and threading.active_count() > 1:
                continue  # another thread drew from it
            raise RandomnessError(
                f"{name} drew random numbers from {word} while it was traced{at_source(src)}. {FIX}"
            )


def _sources(generators: Sequence[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What can be drawn from: its name, and a function that gives its state."""
    yield "np.random", np.random.get_state
    yield "the random module", random.getstate
    for g in generators:
        if isinstance(g, random.Random):
            yield "a random.Random", g.getstate
        else:
            bits = g._bit_generator if isinstance(g, np.random.RandomState) else g
            bits = getattr(bits, "bit_generator", bits)
            yield f"a {type(g).__name__}", partial(getattr, bits, "state")


def _same(a: Any, b: Any) -> bool:
    """Whether two states, nested dicts and tuples of numbers and arrays, are the same."""
    if isinstance(a, dict):
        return all(_same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return all(map(_same, a, b))
    return bool(np.array_equal(a, b))


def _line_of_draw(codes: Iterable[CodeType]) -> Source | None:
    """The line of the user's code that names a way of drawing, best after a mention of `random`."""
    found: list[tuple[int, Source]] = []
    for code in codes:
        said = ""
        for i in dis.get_instructions(code):
            if i.opname.startswith("LOAD_") and isinstance(i.argval, str):
                line = i.positions.lineno if i.positions is not None else None
                if i.argval in _DRAWS:  # after `np`, "random" is the module and no draw
                    rank = 0 if said in ("random", "rng", "generator", "gen") else 1
                    rank += 2 * (rank and i.argval == "random")
                    src = Source(code.co_filename, line or code.co_firstlineno, code.co_name)
                    found.append((rank, src))
                said = i.argval
    return min(found, key=lambda entry: entry[0])[1] if found else None


def _refuse_entropy(change: int) -> None:
    """Count the traces under way; while there are some, NumPy gets no seed from the system."""
    global _tracing
    _here.count = getattr(_here, "count", 0) + change
    if _entropy is not None:
        with _lock:
            _tracing += change
            vars(bit_generator)["randbits"] = _refused if _tracing else _entropy


def _refused(bits: int) -> Any:
    if not getattr(_here, "count", 0):  # another thread's
        assert _entropy is not None
        return _entropy(bits)
    raise RandomnessError(
        f"a random generator was made without a seed{at_line()} while the function was traced, so "
        f"what it draws is random. {FIX}"
    )
