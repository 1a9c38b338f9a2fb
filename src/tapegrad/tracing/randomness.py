"""Random numbers drawn while a function is traced: they would be frozen, so they are refused.

A generator whose state has moved when the trace is over was drawn from. NumPy's and Python's
global generators are looked at, and those that the function can reach. A generator that the
function makes for itself from a seed draws the same numbers each time, as it does in plain NumPy;
one that it makes without a seed is refused where it is made.

Loading the modules of random numbers takes longer than a small trace. One that isn't loaded wasn't
drawn from, so none is loaded to be watched; see `loaded` for what follows.
"""

from __future__ import annotations

import dis
import importlib
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

import numpy as np

from tapegrad.errors import RandomnessError
from tapegrad.ir.tape import Source
from tapegrad.tracing.source import at_line, at_source

FIX = (
    "A trace runs once, so each later call would get the same numbers. Draw them outside and pass "
    "them in as an argument; or pass in a key: tapegrad.random.normal(key, shape) draws anew for "
    "each key"
)
_MODULES = {"random": "Random", "numpy.random": "RandomState"}  # and what they must have
_lock = threading.Lock()
_here = threading.local()
_tracing = 0  # traces that refuse unseeded generators, in all threads; `_here.count` in this one
_entropy: Callable[..., Any] | None = None  # where NumPy gets its seeds


def loaded(names: Collection[str] = ()) -> list[str]:
    """The modules of random numbers that are loaded; first they are, if code that may run says one
    of their names. Where a module wasn't loaded before a trace and is after it, nobody has watched
    it, and the trace is no good."""
    if any("random" in name for name in names):
        for module in _MODULES:
            importlib.import_module(module)
    return [name for name in _MODULES if _module(name) is not None]


def _module(name: str) -> Any:
    module = sys.modules.get(name)
    return module if hasattr(module, _MODULES[name]) else None  # another thread may be at it


def kinds() -> tuple[type, ...]:
    """The classes of generators, as far as they are loaded: who has one has its module."""
    python, numpy = map(_module, _MODULES)
    pythons = () if python is None else (python.Random,)
    if numpy is None:
        return pythons
    return (*pythons, numpy.Generator, numpy.RandomState, numpy.BitGenerator)


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
    python, numpy = map(_module, _MODULES)
    if numpy is not None:
        yield "np.random", numpy.get_state
    if python is not None:
        yield "the random module", python.getstate
    for g in generators:
        if hasattr(g, "getstate"):
            yield "a random.Random", g.getstate
        else:
            bits = getattr(g, "_bit_generator", g)
            bits = getattr(bits, "bit_generator", bits)
            yield f"a {type(g).__name__}", partial(getattr, bits, "state")


def _same(a: Any, b: Any) -> bool:
    """Whether two states, nested dicts and tuples of numbers and arrays, are the same."""
    if isinstance(a, dict):
        return all(_same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return all(map(_same, a, b))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)


def _line_of_draw(codes: Iterable[CodeType]) -> Source | None:
    """The line of the user's code that names a way of drawing, best after a mention of `random`."""
    draws = {name for kind in kinds() for name in dir(kind) if not name.startswith("_")}
    found: list[tuple[int, Source]] = []
    for code in codes:
        said = ""
        for i in dis.get_instructions(code):
            if i.opname.startswith("LOAD_") and isinstance(i.argval, str):
                line = i.positions.lineno if i.positions is not None else None
                if i.argval in draws:  # after `np`, "random" is the module and no draw
                    rank = 0 if said in ("random", "rng", "generator", "gen") else 1
                    rank += 2 * (rank and i.argval == "random")
                    src = Source(code.co_filename, line or code.co_firstlineno, code.co_name)
                    found.append((rank, src))
                said = i.argval
    return min(found, key=lambda entry: entry[0])[1] if found else None


def _refuse_entropy(change: int) -> None:
    """Count the traces under way; while there are some, NumPy gets no seed from the system."""
    global _tracing, _entropy
    _here.count = getattr(_here, "count", 0) + change
    with _lock:
        _tracing += change
        numpy = _module("numpy.random")
        if numpy is not None:
            source = vars(numpy.bit_generator)
            _entropy = _entropy or source.get("randbits")
            if _entropy is not None:
                source["randbits"] = _refused if _tracing else _entropy


def _refused(bits: int) -> Any:
    if not getattr(_here, "count", 0):  # another thread's
        assert _entropy is not None
        return _entropy(bits)
    raise RandomnessError(
        f"a random generator was made without a seed{at_line()} while the function was traced, so "
        f"what it draws is random. {FIX}"
    )
