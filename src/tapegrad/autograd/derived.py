"""Derivatives with HIPS autograd's conventions: integer arrays as floats, objects with a VSpace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.autograd.objects import holds_objects, needs_walk, pulled
from tapegrad.core.request import Request
from tapegrad.core.trees import flatten, unflatten
from tapegrad.errors import UnsupportedError
from tapegrad.observe.observer import note_computed, unobserved
from tapegrad.runtime.derived import Derived

Argnum = int | Sequence[int]
OfObjects = Callable[[Callable[[Any], Any], Any], Any]


class FloatDerived(Derived):
    """A derivative that converts integer arrays among the differentiated arguments to floats, as
    HIPS autograd does."""

    argnum: Argnum = 0
    of_objects: OfObjects | None = None

    @unobserved
    def _apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any] | None:
        numbers = places(self.argnum)
        walks = needs_walk if self.of_objects is not None else holds_objects
        if not walks([x for _, x in chosen(args, numbers)]):
            return None
        if self.of_objects is None:
            raise UnsupportedError(
                f"{self.__name__}: an argument is an object with a VSpace, for which there are "
                "grad, value_and_grad, grad_and_aux, elementwise_grad, make_vjp and make_jvp. For "
                "all others, say with tapegrad.register_tree what the object holds"
            )
        pull, value = pulled(self.f, self.argnum, as_floats(args, numbers), kwargs)
        return (self.of_objects(pull, value),)

    @unobserved  # the derivative's own reads are no state of the program around it
    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        return super()._request(as_floats(args, places(self.argnum)), kwargs)

    def __reduce__(self) -> Any:
        derived = Derived(self.f, self.transformation, self.mode)
        return taking_integers, (derived, self.argnum, self.of_objects)


def taking_integers(derived: Any, argnum: Argnum, of_objects: OfObjects | None = None) -> Any:
    """The same derivative, which also takes integer arrays for these arguments; and objects with a
    VSpace, if `of_objects(pullback, value)` returns its result."""
    found = FloatDerived(derived.f, derived.transformation, derived.mode)
    found.argnum, found.of_objects = argnum, of_objects
    return found


def chosen(args: Sequence[Any], numbers: Sequence[int]) -> list[tuple[int, Any]]:
    """The arguments with these numbers, each with its number. Arguments that weren't passed are
    left out."""
    return [(k, args[k]) for k in numbers if -len(args) <= k < len(args)]


def as_floats(args: tuple[Any, ...], numbers: Sequence[int]) -> tuple[Any, ...]:
    """The arguments, with floats in the place of integer arrays in those with these numbers."""
    found = [*args]
    for k, arg in chosen(args, numbers):
        leaves, structure = flatten(arg)
        note_computed(x for x in leaves if _is_whole(x))
        if any(_is_whole(x) for x in leaves):
            floats = [x.astype(float) if _is_whole(x) else x for x in leaves]
            found[k] = unflatten(structure, floats)
    return tuple(found)


def _is_whole(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "iu"


def places(argnum: Argnum) -> tuple[int, ...]:
    """`argnum` as a tuple of argument numbers."""
    return (argnum,) if isinstance(argnum, int) else tuple(argnum)
