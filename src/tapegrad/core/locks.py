"""Locks that nobody is locked out by, and what does without one.

They are reentrant: a signal's handler, a finalizer or a weak reference's callback may come in the
middle of what they protect, in the same thread, and does the same thing. And they are free in the
child of a fork, where the threads that held them aren't.
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

_made: dict[int, weakref.ref[Any]] = {}  # by number


def new_lock() -> Any:
    """A reentrant lock that is free after a fork."""
    lock = threading.RLock()
    number = id(lock)

    # All of it is C code: what a signal's handler raises in a callback's line of Python is lost.
    forget: Any = functools.partial(_made.pop, number)
    _made[number] = weakref.ref(lock, forget)
    return lock


@contextlib.contextmanager
def patiently(lock: Any, seconds: float) -> Iterator[bool]:
    """Hold a lock, or go on without it when so many seconds have passed. Gives whether another
    thread had it."""
    is_free = lock.acquire(blocking=False)
    held = is_free or lock.acquire(timeout=seconds)
    try:
        yield not is_free
    finally:
        if held:
            with contextlib.suppress(RuntimeError):  # a fork has come, and in its child it is free
                lock.release()


def _free() -> None:
    for reference in list(_made.values()):
        lock = reference()
        if lock is not None:
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)


class cached_property(Generic[T]):
    """An attribute that is computed when it is first read, as that of `functools`; which, before
    Python 3.12, holds a lock meanwhile."""

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
    """A function of an object that never changes, and of what tells its results apart, which works
    each out once: they are kept with the object. For methods of a class there is
    `cached_property`."""
    name = f"_{f.__module__}.{f.__qualname__}"

    @functools.wraps(f)
    def known(x: Any, *given: Any) -> Any:
        held = vars(x).setdefault(name, {})
        if given not in held:
            held[given] = f(x, *given)
        return held[given]

    return cast(F, known)
