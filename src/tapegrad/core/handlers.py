"""Signal handlers, which may run between any two lines of Python, and raise.

Time limits and Ctrl-C work in this way. An error that a handler raises is meant for the user's
program, wherever it is raised. So code that catches errors and goes on lets such an error through.
"""

from __future__ import annotations

import functools
from _signal import NSIG, getsignal  # type: ignore[import-not-found]  # `signal`'s makes enums
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from types import CodeType, TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy as np

_P = ParamSpec("_P")
_T = TypeVar("_T")


def quiet(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """A function that runs without NumPy's floating-point warnings, as under
    `np.errstate(all="ignore")`.

    NumPy keeps that setting in a context variable. `errstate` restores it in Python code; if a
    handler raised just before that, the program would stay without warnings. A context is left in C
    code.
    """

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return copy_context().run(ignoring, function, args, kwargs)

    return run


def quiet_here(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`quiet` for calls from this point only: if warnings are off already, the function itself."""
    here = any(variable.get() is value for variable, _, value in FLOATING_ERRORS)
    return function if here else quiet(function)


def ignoring(function: Callable[..., _T], args: Any, kwargs: Any) -> _T:
    """The result of a call without NumPy's warnings. Runs in a context that is discarded
    afterwards.

    `np.seterr` takes two microseconds. If the context has NumPy's default, its variable is set to
    the value that `seterr` would give it.
    """
    for variable, default, value in FLOATING_ERRORS:
        if variable.get() is default:
            variable.set(value)
            return function(*args, **kwargs)
    np.seterr(all="ignore")
    return function(*args, **kwargs)


def _errors() -> list[tuple[ContextVar[Any], Any, Any]]:
    """NumPy's context variable for floating-point errors, its default, and the value for ignoring
    them. Empty if NumPy keeps the setting elsewhere."""
    ignored = Context()
    ignored.run(np.seterr, all="ignore")
    if len(ignored) != 1:
        return []
    ((variable, value),) = ignored.items()
    return [(variable, Context().run(variable.get), value)]


FLOATING_ERRORS = _errors()


def let_through(error: BaseException) -> None:
    """Raise an error again, if a signal's handler has raised it, or `users` has."""
    if (raised := of_handler(error)) is not None:
        raise raised


def of_handler(error: BaseException, trace: TracebackType | None = None) -> BaseException | None:
    """The error that a signal's handler raised, if `error` is one, else None.

    Python wraps an error that a handler raised within a function written in C: in a SystemError
    with the error as its context. `trace` is the traceback of an error that nobody has caught yet,
    which doesn't hold it itself.
    """
    if isinstance(error, SystemError) and error.__context__ is not None:
        found = of_handler(error.__context__)
        if found is not None:
            return found
    trace = trace or error.__traceback__
    codes = _codes()
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return error
        trace = trace.tb_next
    return None


def users(function: Callable[[], _T]) -> _T:
    """The result of a function of the user's whose errors are for the user's program, as those of
    a signal's handler are."""
    return function()


def _codes() -> set[CodeType]:
    """The codes of all signal handlers, and of what calls users' functions."""
    found = {users.__code__}
    for handler in filter(callable, map(getsignal, range(1, NSIG))):
        while isinstance(handler, functools.partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        if not hasattr(handler, "__code__"):
            handler = type(handler).__call__
        code = getattr(handler, "__code__", None)
        if isinstance(code, CodeType):
            found.add(code)
    return found
