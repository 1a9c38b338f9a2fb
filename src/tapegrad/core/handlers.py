"""Signals' handlers, which may come in the middle of any line of Python, and raise.

That is how a time limit is set, and how Ctrl-C is told from other errors. What a handler raises is
meant for the user's program, wherever it came; code that goes on after an error of its own lets it
through.
"""

from __future__ import annotations

import functools
from _signal import NSIG, getsignal  # type: ignore[import-not-found]  # `signal`'s makes enums
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from types import CodeType
from typing import Any, ParamSpec, TypeVar

import numpy as np

_P = ParamSpec("_P")
_T = TypeVar("_T")


def quiet(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """A function that runs without NumPy's warnings of floating point, as under
    `np.errstate(all="ignore")`.

    What NumPy does is a variable of the context. `errstate` puts it back in Python code, before
    which a handler may raise, and the program would stay without warnings; a context is left in C.
    """

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return copy_context().run(ignoring, function, args, kwargs)

    return run


def quiet_here(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """The same for calls from here alone: where there are no warnings, the function as it is."""
    here = any(variable.get() is value for variable, _, value in _ERRORS)
    return function if here else quiet(function)


def ignoring(function: Callable[..., _T], args: Any, kwargs: Any) -> _T:
    """The result of a call without NumPy's warnings, in a context that is left behind it.

    `np.seterr` takes two microseconds. Where the context holds NumPy's default, its variable is set
    to the value that `seterr` has given it once.
    """
    for variable, default, value in _ERRORS:
        if variable.get() is default:
            variable.set(value)
            return function(*args, **kwargs)
    np.seterr(all="ignore")
    return function(*args, **kwargs)


def _errors() -> list[tuple[ContextVar[Any], Any, Any]]:
    """NumPy's variable for errors of floating point, its default, and its value where they are
    ignored. Empty where NumPy keeps them elsewhere."""
    ignored = Context()
    ignored.run(np.seterr, all="ignore")
    if len(ignored) != 1:
        return []
    ((variable, value),) = ignored.items()
    return [(variable, Context().run(variable.get), value)]


_ERRORS = _errors()


def let_through(error: BaseException) -> None:
    """Raise an error again, if a signal's handler has raised it. One that it has raised within a
    function written in C, Python tells as a SystemError with that as its context."""
    if isinstance(error, SystemError) and error.__context__ is not None:
        let_through(error.__context__)
    trace = error.__traceback__
    codes = _codes()
    while codes and trace is not None:
        if trace.tb_frame.f_code in codes:
            raise error
        trace = trace.tb_next


def _codes() -> set[CodeType]:
    """What runs when a signal comes."""
    found = set()
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
