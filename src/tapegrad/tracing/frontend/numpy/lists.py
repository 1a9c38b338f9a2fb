"""Lists of traced values where NumPy's functions take arrays.

NumPy asks the entries of a list only in functions that are made for lists of arrays. To all others
a list goes as an array, which is stacked here where the user calls them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.observe.answers.answers import declare, declare_calls
from tapegrad.observe.observer import unobserved
from tapegrad.tracing.frontend.numpy.answering import has_traced, stacked
from tapegrad.tracing.frontend.operands.operands import of_itself
from tapegrad.tracing.frontend.operands.parameters import PARAMETERS, Form, form_of

# These take lists of arrays, and look for traced ones themselves: of each the arguments that are
# lists of arrays, in which another list is an array.
_OF_LISTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"), (0,)),
    **dict.fromkeys(("row_stack", "concat", "multi_dot"), (0,)),
    **{"select": (0, 1), "choose": (1,)},
}
# These look for them in other ways, or write to an argument.
_OTHERS = """
    block piecewise ix_ einsum_path copyto put place putmask fill_diagonal put_along_axis
    result_type can_cast may_share_memory shares_memory
    zeros_like ones_like full_like empty_like copy diag linspace logspace geomspace
"""


def _stacking(function: Any, parameters: Callable[[], Form | None]) -> Callable[..., Any]:
    """A function of NumPy's that takes lists of traced values for arrays."""

    @functools.wraps(function)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        # An object's own method of this name is what NumPy would call
        args = tuple([x if hasattr(x, function.__name__) else of_itself(x) for x in args])
        if not any(map(has_traced, (*args, *kwargs.values()))):
            return function(*args, **kwargs)
        form = parameters()
        skipped = () if form is None else form.positions
        more = len(args) if form is None or form.after is None else form.after
        given = [stacked(x) if k not in skipped and k < more else x for k, x in enumerate(args)]
        named = {
            name: x if name in PARAMETERS or name in ("out", "where") else stacked(x)
            for name, x in kwargs.items()
        }
        return function(*given, **named)

    return called


def _of_arrays(function: Any, places: tuple[int, ...]) -> Callable[..., Any]:
    """A function of lists of arrays."""

    @functools.wraps(function)
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        given = [
            type(x)(map(stacked, x)) if k in places and type(x) in (list, tuple) else stacked(x)
            for k, x in enumerate(args)
        ]
        return function(*given, **kwargs)

    return called


def _method(name: str) -> Callable[..., Any]:
    """A method of ufuncs."""
    own = getattr(np.ufunc, name)
    # What `at` writes to is no list, and a tuple of indices is one index for each axis
    places = {"outer": (0, 1), "at": (2,)}.get(name, (0,))

    @unobserved
    def called(ufunc: np.ufunc, *args: Any, **kwargs: Any) -> Any:
        given = [stacked(x) if k in places else x for k, x in enumerate(args)]
        return own(ufunc, *given, **kwargs)

    return called


@unobserved
def _ufunc(ufunc: np.ufunc, *args: Any, **kwargs: Any) -> Any:
    return ufunc(*map(stacked, args), **kwargs)


def declare_all(functions: dict[Any, Callable[..., Any]]) -> None:
    """Fill the table; `functions` are the front end's, by NumPy's."""
    places = (np, np.linalg, np.fft, np.emath, np.lib.stride_tricks)
    found: Any
    others = {getattr(p, n) for n in _OTHERS.split() for p in places if hasattr(p, n)}
    for name, found in [*vars(np).items()]:  # `dir` has modules that load when they are asked for
        if isinstance(found, np.ufunc):
            declare(np, name, _stacking(found, lambda: None), lists=True)
    for module in places[::-1]:
        for name, found in [*vars(module).items()]:
            if type(found) is not type(np.sum) or found not in functions or found in others:
                continue
            if name in _OF_LISTS:
                declare(module, name, _of_arrays(found, _OF_LISTS[name]), lists=True)
                continue
            form = functools.partial(form_of, functions[found], found)
            declare(module, name, _stacking(found, form), lists=True)
    for name in ("reduce", "accumulate", "reduceat", "outer", "at"):
        declare(np.ufunc, name, _method(name), lists=True)
    declare_calls(np.ufunc, _ufunc, lists=True)
