"""NumPy's functions on traced arrays, and where lists of traced values are passed to them.

What is declared (`operands/declaring.py`) stands for a function. Any other that is Python runs by
NumPy's own code, unless it is refused: that calls others, which are asked in their turn.

NumPy asks the entries of a list only in functions that are made for lists of arrays. To all others
a list goes as an array, which is stacked here where the user calls them. The result is held against
what NumPy makes of the list: some functions ask it for what arrays alone have, or return a list.
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
from tapegrad.tracing.frontend.calling.accepting import accepted
from tapegrad.tracing.frontend.calling.borrowing import borrowed, implementation_of
from tapegrad.tracing.frontend.calling.vectorizing import calling
from tapegrad.tracing.frontend.numpy.answering import has_traced, stacked
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
from tapegrad.tracing.runs.floating import watching
from tapegrad.tracing.tracers.instead import is_refused, use
from tapegrad.tracing.tracers.tracer import Tracer

HOMES = (np.lib.stride_tricks, np.emath, np.fft, np.linalg, np)

# The `lists` of functions that run by NumPy's own code.
_LISTS: dict[str, str | None] = {
    **dict.fromkeys(("vstack", "hstack", "dstack", "column_stack", "row_stack"), "tup"),
    "multi_dot": "arrays",
    "histogramdd": "sample",
    **dict.fromkeys(("block", "ix_", "einsum_path", "piecewise"), None),
}
_EINSUM, _TEXTS = np.einsum, (np.array2string, np.array_repr, np.array_str)


@cache
def function_of(func: Any) -> Declared | None:
    """What stands for a function of NumPy's; None if it isn't followed."""
    if func in FUNCTIONS or not _is_borrowed(func):
        return FUNCTIONS.get(func)
    return Declared(borrowed(func), func, shown(func), True, _LISTS.get(func.__name__, ""))


def _is_borrowed(func: Any) -> bool:
    """Whether a function that nothing is declared for runs by NumPy's own code."""
    own = implementation_of(func)
    return own is not None and own.__module__.partition(".")[0] == "numpy" and not is_refused(func)


def call_function(func: Any, args: Any, kwargs: Any) -> Any:
    """What NumPy calls for a function of its own with a tracer among the arguments."""
    # What NumPy's code calls is watched; and what is refused might write a file
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
        # How an einsum lies in memory follows from its operands' strides.
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
    """A call of NumPy's function with lists or tuples, of which some may be arrays."""
    # An object's own method of this name is what NumPy would call
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
    """What answers it: no `partial`, which those that the user makes of it would take apart."""

    @wraps(function)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        return _of_lists(function, *args, **kwargs)

    return called


def _by_name(name: str, x: Any) -> Any:
    return x if name in PARAMETERS or name in ("out", "where") else stacked(x)


def _each_stacked(x: Any) -> Any:
    """A list of arrays, in which another list is one."""
    return type(x)(map(stacked, x)) if type(x) in (list, tuple) else stacked(x)


def _method(name: str) -> Callable[..., Any]:
    """A method of ufuncs."""
    own = getattr(np.ufunc, name)
    # What `at` writes to is no list, and a tuple of indices is one index for each axis
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
    """The modules, names and functions of NumPy's that are followed, but for ufuncs."""
    for module in HOMES:
        for name, found in [*vars(module).items()]:  # `dir` has modules that load when asked for
            if type(found) is _ASKING and (found in FUNCTIONS or _is_borrowed(found)):
                yield module, name, found


def declare_all() -> None:
    """Fill the table."""
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


_ASKING: Any = type(np.sum)  # of functions that ask their arguments
