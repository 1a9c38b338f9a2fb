"""Functions of SciPy's that each call of a program calls anew, as they have no derivative: ranks,
which points are near, in which triangle a point is. Small changes of what they are passed leave
what they return as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from tapegrad.extending import any_traced
from tapegrad.extending.arrays import Tracer, as_tracer, kinds_of, mixed_tree, of_kinds
from tapegrad.extending.runs import is_operand
from tapegrad.extending.tapes import Aval, ForeignCall, flatten, input_aval
from tapegrad.scipy.callbacks import values_of
from tapegrad.scipy.outside import Constant, recorded

_ARRAYS = (Tracer, np.ndarray, np.number, float)


def each(f: Any, found: Any) -> Any:
    """`f` of a result of SciPy's, or of each of the arrays that it has."""
    if not (isinstance(found, tuple) or hasattr(found, "statistic")):
        return f(found)
    if isinstance(found, tuple):
        new = tuple(map(f, found))
        new = new if type(found) is tuple else tuple.__new__(type(found), new)
    else:
        new = object.__new__(type(found))
    for name, x in getattr(found, "__dict__", {}).items():
        new.__dict__[name] = f(x) if isinstance(x, _ARRAYS) else x
    return new


def _arrays(found: Any) -> list[Any]:
    parts: list[Any] = []
    each(lambda x: parts.append(np.asarray(x)), found)
    return parts


def _computed(function: Any, args: Any, kwargs: Any) -> tuple[list[Any], Callable[..., Any]]:
    """The operands among some arguments, and the function of their values."""
    leaves, structure = flatten((args, kwargs))
    on_tape = list(map(is_operand, leaves))
    operands = [x for x, yes in zip(leaves, on_tape, strict=True) if yes]
    arguments = mixed_tree(structure, leaves, on_tape, [input_aval(x) for x in operands])

    def computed(values: Sequence[Any]) -> Any:
        args, kwargs = arguments.fill([np.array(x)[()] for x in values])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*args, **kwargs)

    return operands, computed


def constant(label: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What it returns, arrays whose shapes aren't those of other calls by their values; it is
    computed anew at each call, and its derivative is 0."""
    operands, computed = _computed(function, args, kwargs)
    plain = computed(values_of(operands))
    if not any_traced(operands):
        return plain
    values = _arrays(plain)
    types = tuple(Aval(x.shape, x.dtype) for x in values)
    rule = Constant()
    call = ForeignCall(
        label,
        lambda *xs: _arrays(computed(xs)),
        types,
        len(types),
        rule.backward,
        forward=rule.forward,
    )
    rest = iter(recorded(call, operands, values))
    return of_kinds(each(lambda x: next(rest), plain), kinds_of(plain))


def rows(x: Any, at: Any) -> Any:
    """The rows of these numbers, which another call may find to be others."""
    return (as_tracer(x, at) if any_traced([at]) else x)[at]


def decided(label: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What it returns, as it is: lists, sets and arrays of integers. That later calls come to the
    same is guarded."""
    operands, computed = _computed(function, args, kwargs)
    plain = computed(values_of(operands))
    if not any_traced(operands):
        return plain
    rule = Constant()
    call = ForeignCall(
        label,
        lambda *xs: [_digest(computed(xs))],
        (Aval((), np.dtype(np.int64)),),
        1,
        rule.backward,
        forward=rule.forward,
    )
    known = _digest(plain)
    (found,) = recorded(call, operands, [known])
    found._trace.guard(found, known, f"what {label} comes to")
    return plain


def _digest(x: Any) -> np.int64:
    """A number for what a function has returned."""
    return np.frombuffer(blake2b(_text(x).encode(), digest_size=8).digest(), np.int64)[0]


def _text(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"{x.shape}{x.dtype}{x.tolist()}"
    if isinstance(x, (list, tuple)):
        return "".join(map(_text, x))
    return repr(sorted(x) if isinstance(x, set) else x)


def remembering(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`make` of an array, which isn't called again while that holds the same."""
    last: list[tuple[Any, Any]] = []

    def made(x: Any) -> Any:
        for known, found in last:
            if known.shape == x.shape and np.array_equal(known, x):
                return found
        found = make(x)
        last[:] = [(np.array(x), found)]
        return found

    return made
