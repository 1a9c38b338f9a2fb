"""Derivatives at a point, with respect to one or several arguments, in forward and reverse mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.autograd.absent import SparseBox, SparseObject, primitive_jvps, primitive_vjps
from tapegrad.autograd.boxes import JVPNode, VJPNode, backward_pass
from tapegrad.autograd.derived import Argnum, as_floats, places
from tapegrad.autograd.objects import needs_walk, pulled, pushed
from tapegrad.autograd.rules import (
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
)
from tapegrad.autograd.spaces import VSpace
from tapegrad.autograd.tracer import getval, isbox, primitive
from tapegrad.autograd.vspace import vspace
from tapegrad.core.trees import flatten, flatten_up_to, unflatten
from tapegrad.errors import ArgumentError
from tapegrad.runtime.derived import Derived
from tapegrad.runtime.directional import Pushforward
from tapegrad.runtime.pullback import Pulling, Pushing

__all__ = [
    "JVPNode",
    "SparseBox",
    "SparseObject",
    "VJPNode",
    "VSpace",
    "backward_pass",
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "getval",
    "isbox",
    "make_jvp",
    "make_vjp",
    "primitive",
    "primitive_jvps",
    "primitive_vjps",
    "vspace",
]


def make_vjp(f: Callable[..., Any], x: Any) -> tuple[Callable[[Any], Any], Any]:
    """The pullback of a function of one argument, and its value."""
    return pullback(f, 0, (x,), {})


def make_jvp(f: Callable[..., Any], x: Any) -> Callable[[Any], tuple[Any, Any]]:
    """The function from a tangent of `x` to the value and its tangent."""
    return lambda t: pushforward(f, 0, (x,), {}, t)


def pullback(
    f: Callable[..., Any], argnum: Argnum, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[[Any], Any], Any]:
    """The linear map from the cotangent of the value to that of an argument; and the value."""
    numbers = _places(argnum, args)
    args = as_floats(args, numbers)
    if needs_walk([args[k] for k in numbers]):
        return pulled(f, argnum, args, kwargs)
    value, pull = Derived(f, Pulling(numbers=numbers))(*args, **kwargs)
    return lambda ct: _picked(pull(ct), argnum), value


def linearized(
    f: Callable[..., Any], argnum: Argnum, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[[Any], Any], Any]:
    """The linear map from the tangent of an argument to that of the value; and the value."""
    numbers = _places(argnum, args)
    args = as_floats(args, numbers)
    value, push = Derived(f, Pushing(numbers=numbers))(*args, **kwargs)
    return lambda t: _zeros_for_none(value, push(*_in_places(argnum, args, t))), value


def pushforward(
    f: Callable[..., Any],
    argnum: Argnum,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    t: Any,
) -> tuple[Any, Any]:
    """The value, and its tangent for the tangent `t` of an argument."""
    tangents = _in_places(argnum, args, t)
    args = as_floats(args, places(argnum))
    numbers = _places(argnum, args)
    if needs_walk([args[k] for k in numbers]):
        return pushed(f, numbers, args, kwargs, [t] if isinstance(argnum, int) else t)
    value, found = Derived(f, Pushforward(len(args)))(*args, *tangents, **kwargs)
    return value, _zeros_for_none(value, found)


def _zeros_for_none(value: Any, tangent: Any) -> Any:
    """The tangent, with 0 for leaves that don't depend on the argument."""
    leaves, structure = flatten(value)
    ts = flatten_up_to(structure, tangent)
    if all(t is not None for t in ts):
        return tangent
    return unflatten(
        structure,
        [np.zeros(np.shape(x))[()] if t is None else t for x, t in zip(leaves, ts, strict=True)],
    )


def _places(argnum: Argnum, args: Sequence[Any]) -> tuple[int, ...]:
    for k in places(argnum):
        if not -len(args) <= k < len(args):
            raise ArgumentError(
                f"argnum is {argnum}, and {len(args)} positional arguments were passed, which are "
                "numbered from 0"
            )
    return tuple([k % len(args) for k in places(argnum)])


def _picked(cts: Sequence[Any], argnum: Argnum) -> Any:
    return cts[argnum] if isinstance(argnum, int) else tuple([cts[k] for k in argnum])


def _in_places(argnum: Argnum, args: Sequence[Any], t: Any) -> list[Any]:
    """A tangent for each argument: None for those that aren't in `argnum`."""
    tangents: list[Any] = [None] * len(args)
    numbers = _places(argnum, args)
    for k, each in zip(numbers, (t,) if isinstance(argnum, int) else t, strict=True):
        tangents[k] = each
    return tangents
