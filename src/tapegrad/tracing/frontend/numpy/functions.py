"""NumPy's functions on traced arrays, and on lists of traced values.

A declared implementation (`operands/declaring.py`) takes precedence. Any other NumPy function in
Python runs by its own code, unless it is refused; the functions that it calls are dispatched in
turn.

NumPy dispatches on the entries of a list only in functions that take lists of arrays. For all other
functions a list is an array: it is stacked here, at the user's call. The result is compared with
NumPy's result for the list, since some functions need attributes that only arrays have, or return a
list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, wraps
from types import ModuleType
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.observe.answers.answers import declare, declare_calls
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.observe.values.texts import tell
from tapegrad.tracing.frontend.calling.library_code import borrowed, implementation_of
from tapegrad.tracing.frontend.calling.object_arrays import calling
from tapegrad.tracing.frontend.calling.validation import accepted
from tapegrad.tracing.frontend.numpy.undispatched import has_traced, stacked
from tapegrad.tracing.frontend.operands.declaring import FUNCTIONS, Declared, shown
from tapegrad.tracing.frontend.operands.operands import of_itself
from tapegrad.tracing.frontend.operands.parameters import (
    PARAMETERS,
    has_tracers,
    numbers_taken,
    running,
)
from tapegrad.tracing.recording.layout import settle
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.runs.floating_errors import watching
from tapegrad.tracing.tracers.alternatives import is_refused, use
from tapegrad.tracing.tracers.tracer import Tracer

HOMES = (np.lib.stride_tricks, np.emath, np.fft, np.linalg, np)

# `lists` (see `stands_for`) of functions that run by NumPy's own code.
_LISTS: dict[str, str | None] = {
    **dict.fromkeys(("vstack", "hstack", "dstack", "column_stack", "row_stack"), "tup"),
    "multi_dot": "arrays",
    "histogramdd": "sample",
    **dict.fromkeys(("block", "ix_", "einsum_path", "piecewise"), None),
}
_EINSUM, _TEXTS = np.einsum, (np.array2string, np.array_repr, np.array_str)


@cache
def function_of(func: Any) -> Declared | None:
    """The implementation of a NumPy function; None if it isn't followed."""
    if func in FUNCTIONS or not _is_borrowed(func):
        return FUNCTIONS.get(func)
    return Declared(borrowed(func), func, shown(func), True, _LISTS.get(func.__name__, ""))


def _is_borrowed(func: Any) -> bool:
    """Whether an undeclared function runs by NumPy's own code."""
    own = implementation_of(func)
    return own is not None and own.__module__.partition(".")[0] == "numpy" and not is_refused(func)


def call_function(func: Any, args: Any, kwargs: Any) -> Any:
    """The entry from NumPy's `__array_function__` protocol."""
    # NumPy's internal calls are watched as part of the outer call; a refused function might write a
    # file
    if running.numpys or function_of(func) is None:
        return _called(func, args, kwargs)

    def run() -> Any:
        return watching(func, args, kwargs, lambda: _called(func, args, kwargs))

    return accepted(func, args, kwargs, run, shown(func))


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    declared = function_of(func)
    if declared is not None:
        given, named, found = declared.taken(args, kwargs)
        if found and not has_tracers(given, named):
            return func(*given, **named)
        declared.check(given, named)
        # The memory order of an einsum depends on its operands' strides.
        result = declared.function(*given, **declared.form.own(named))
        return settle(result, given, certain=func is not _EINSUM)
    if func in _TEXTS:
        tell(args[0])
        return func(args[0]._concrete, *args[1:], **kwargs)
    numbers = numbers_taken(args, kwargs)
    if numbers is not None:
        return func(*numbers[0], **numbers[1])
    instead = use(func)
    raise refusing(
        UnsupportedError(
            f"{shown(func)} has no derivative rule in tapegrad{at_line()}. {instead}, or "
            "declare it with tapegrad.primitive and defvjp"
        )
    )


# ---- lists


@unobserved
def _of_lists(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a NumPy function with lists or tuples, some of which may represent arrays."""
    # NumPy would call an object's own method of this name
    args = tuple([x if hasattr(x, function.__name__) else of_itself(x) for x in args])
    if not any(map(has_traced, (*args, *kwargs.values()))):
        return function(*args, **kwargs)
    declared = None if type(function) is np.ufunc else function_of(function)
    if declared is None:
        given = [*map(stacked, args)]
        named = {k: _by_name(k, x) for k, x in kwargs.items()}
    else:
        form, lists = declared.form, (declared.lists or "").split()
        given = [
            _each_stacked(x)
            if form.is_named(k, lists)
            else x
            if form.is_parameter(k)
            else stacked(x)
            for k, x in enumerate(args)
        ]
        named = {k: _each_stacked(x) if k in lists else _by_name(k, x) for k, x in kwargs.items()}
    pairs = [*zip(args, given, strict=True), *((kwargs[k], x) for k, x in named.items())]
    if not any(isinstance(x, Tracer) and x is not y for y, x in pairs):
        return function(*given, **named)
    name = f"np.{function.__name__}" if declared is None else shown(function)
    name += " of a list, where an array may do,"
    return accepted(function, args, kwargs, lambda: function(*given, **named), name)


def _for_lists(function: Any) -> Callable[..., Any]:
    """The replacement for a function of lists: no `partial`, since partials are flattened."""

    @wraps(function)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        return _of_lists(function, *args, **kwargs)

    return called


def _by_name(name: str, x: Any) -> Any:
    return x if name in PARAMETERS or name in ("out", "where") else stacked(x)


def _each_stacked(x: Any) -> Any:
    """A list of arrays; lists among its entries are stacked."""
    return type(x)(map(stacked, x)) if type(x) in (list, tuple) else stacked(x)


def _method(name: str) -> Callable[..., Any]:
    """The replacement for a method of ufuncs."""
    own = getattr(np.ufunc, name)
    # `at` writes to its first argument, which is no list, and a tuple of indices is one index per
    # axis
    places = {"outer": (0, 1), "at": (2,)}.get(name, (0,))

    @unobserved
    def called(ufunc: np.ufunc, *args: Any, **kwargs: Any) -> Any:
        given = [stacked(x) if k in places else x for k, x in enumerate(args)]
        with calling(ufunc):
            return own(ufunc, *given, **kwargs)

    return called


@unobserved
def _ufunc(ufunc: np.ufunc, *args: Any, **kwargs: Any) -> Any:
    with calling(ufunc):
        return ufunc(*map(stacked, args), **kwargs)


def followed() -> Iterator[tuple[ModuleType, str, Any]]:
    """The modules, names and functions of NumPy that are followed, except ufuncs."""
    for module in HOMES:
        for name, found in [*vars(module).items()]:  # `dir` would list modules that load lazily
            if type(found) is _ASKING and (found in FUNCTIONS or _is_borrowed(found)):
                yield module, name, found


def declare_all() -> None:
    """Register the replacements."""
    for module, name, found in followed():
        lists = FUNCTIONS[found].lists if found in FUNCTIONS else _LISTS.get(name, "")
        if lists is not None:
            declare(module, name, _for_lists(found), lists=True)
    for name, found in [*vars(np).items()]:
        if type(found) is np.ufunc:
            declare(np, name, _for_lists(found), lists=True)
    for name in ("reduce", "accumulate", "reduceat", "outer", "at"):
        declare(np.ufunc, name, _method(name), lists=True)
    declare_calls(np.ufunc, _ufunc, lists=True)


_ASKING: Any = type(np.sum)  # not for an array that the function makes: it is constant
