"""Functions that numba has compiled: of traced values their Python is called.

Machine code reads arrays as they lie in memory. The Python that it was made of does the same, and
is traced as the program's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.tracing import swapping
from tapegrad.tracing.answers import declare_calls, declare_late
from tapegrad.tracing.frontend.answering import has_traced
from tapegrad.tracing.frontend.borrowing import followed
from tapegrad.tracing.frontend.vectorizing import vectorized
from tapegrad.tracing.observe.observer import observed, unobserved


def _any_traced(args: Sequence[Any]) -> bool:
    return any(map(has_traced, args))


@unobserved
def _function(f: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of numba.njit."""
    if not _any_traced((*args, *kwargs.values())):
        with observed():
            return f(*args, **kwargs)
    return followed(f.py_func, *args, **kwargs)


@unobserved
def _elementwise(f: Any, *args: Any, **kwargs: Any) -> Any:
    """One of numba.vectorize, for each element."""
    if kwargs or not _any_traced(args):
        with observed():
            return f(*args, **kwargs)
    return vectorized(np.vectorize(f._dispatcher.py_func), *args)


def _mean_the_originals() -> None:
    """Names do, while numba compiles, which knows functions by their identities."""
    events = importlib.import_module("numba.core.event")

    class Compiling(events.Listener):  # type: ignore[name-defined]
        def on_start(self, event: Any) -> None:
            swapping.pause()

        def on_end(self, event: Any) -> None:
            swapping.go_on()

    events.register("numba:compile", Compiling())


def _declare() -> None:
    _mean_the_originals()
    dispatchers = importlib.import_module("numba.core.registry")
    ufuncs = importlib.import_module("numba.np.ufunc.dufunc")
    declare_calls(dispatchers.CPUDispatcher, _function, when=_any_traced)
    declare_calls(ufuncs.DUFunc, _elementwise, when=_any_traced)


def declare_all() -> None:
    declare_late("numba", _declare)
