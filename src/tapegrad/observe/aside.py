"""Work beside the observed run: Python calls nobody back while it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tapegrad.observe.observer import following


@contextmanager
def aside() -> Iterator[None]:
    """A context in which nothing is followed, except for calls that `observed` marks as the
    user's: solvers of SciPy, and numba's compiler, which calls a hundred thousand functions."""
    follower, here = sys.gettrace(), following.observer
    if here is None or follower is not here.follower:
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(follower)
