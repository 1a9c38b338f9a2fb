"""Locks that can't deadlock with themselves or after a fork; and caches that need no lock.

The locks are reentrant: a signal handler, a finalizer or a weak reference's callback may run in the
middle of the protected code, in the same thread, and take the lock again. They are free in the
child of a fork, where the threads that held them don't exist.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

_made: dict[int, weakref.ref[Any]] = {}  # id of a lock -> the lock


def new_lock() -> Any:
    """A reentrant lock that is free after a fork."""
    lock = threading.RLock()
    number = id(lock)

    # The callback is C code only: an error that a signal handler raises in a callback's Python code
    # is lost.
    forget: Any = functools.partial(_made.pop, number)
    _made[number] = weakref.ref(lock, forget)
    return lock


@contextlib.contextmanager
def patiently(lock: Any, seconds: float) -> Iterator[bool]:
    """Hold a lock, or go on without it after `seconds`. Yields whether another thread held it."""
    is_free = lock.acquire(blocking=False)
    held = is_free or lock.acquire(timeout=seconds)
    try:
        yield not is_free
    finally:
        if held:
            with contextlib.suppress(RuntimeError):  # in the child of a fork it is free
                lock.release()


def _free() -> None:
    for reference in list(_made.values()):
        lock = reference()
        if lock is not None:
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)


class cached_property(Generic[T]):
    """An attribute that is computed when it is first read. Unlike that of `functools` before Python
    3.12, it holds no lock meanwhile."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, owner: Any = None) -> T:
        if x is None:
            return self  # type: ignore[return-value]
        found = vars(x)[self.name] = self.compute(x)
        return found


F = TypeVar("F", bound=Callable[..., Any])


def remembered(f: F) -> F:
    """Cache a function of an immutable object and further arguments. The results are kept with the
    object. For methods there is `cached_property`."""
    name = f"_{f.__module__}.{f.__qualname__}"

    @functools.wraps(f)
    def known(x: Any, *given: Any) -> Any:
        held = vars(x).setdefault(name, {})
        if given not in held:
            held[given] = f(x, *given)
        return held[given]

    return cast(F, known)
