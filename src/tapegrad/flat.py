"""Functions of arrays one by one, as other libraries call them: what `tapegrad.jax` and
`tapegrad.pytensor` stand on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np

from tapegrad.api import eval_shape, jit, value_and_grad
from tapegrad.core import trees
from tapegrad.core.arrays import is_half
from tapegrad.core.request import describe
from tapegrad.core.statics import Keyed, static_key
from tapegrad.derivatives import vjp
from tapegrad.errors import ArgumentError, ConversionError
from tapegrad.mapping import vmap
from tapegrad.runtime.checks import checked_mode


@dataclass(frozen=True)
class Result:
    """What a function returns for arrays of some types: a tree of arrays and of other leaves."""

    structure: Any
    leaves: list[Any]
    places: list[int]  # of the arrays among the leaves

    @property
    def types(self) -> list[Any]:
        return [self.leaves[k] for k in self.places]

    @property
    def is_real_number(self) -> bool:
        if not self.places or not self.structure.is_leaf():
            return False
        return self.leaves[0].shape == () and np.dtype(self.leaves[0].dtype).kind == "f"

    def rebuilt(self, arrays: Sequence[Any]) -> Any:
        whole = [*self.leaves]
        for k, x in zip(self.places, arrays, strict=True):
            whole[k] = x
        return trees.unflatten(self.structure, whole)


class Flat:
    """A function of leaves. It was `made` by a function, of some arguments: these are pickled."""

    def __init__(self, f: Callable[..., Any], compile: Any, made: Any = None) -> None:
        self.f, self.compile = f, compile
        self.made = made or (Flat, (f, compile))
        self.plain: Any = jit(f, compile=compile)
        self._derived: dict[Any, Flat] = {}
        self.results: dict[Any, Result] = {}  # by types of the leaves
        self.name = uuid4().hex
        _here[self.name] = self

    def __reduce__(self) -> Any:
        return _flat_called, (self.name, *self.made)

    def result(self, leaves: Sequence[Any]) -> Result:
        """What it returns for leaves like these, which have a shape and a dtype. Where values
        decide what it does, those of arrays of ones; a call whose result has another shape is an
        error then. That call is never made where the result would be empty."""
        decided = False
        try:
            found = eval_shape(self.f, *leaves)
        except ConversionError:
            decided = True
            ones = [np.ones(x.shape, x.dtype) if is_array(x) else x for x in leaves]
            found = eval_shape(self.f, *ones)
        found, structure = trees.flatten(found)
        places = [k for k, x in enumerate(found) if is_array(x)]
        if decided and places and not any(math.prod(found[k].shape) for k in places):
            raise ArgumentError(
                f"{describe(self.f)} returned nothing but empty arrays for arrays of ones, and "
                "values decide what it does. The shapes of what is called in another library's "
                "program depend on those of its arguments alone: np.where(x > 2, x, 0.0) has the "
                "shape of x, where x[x > 2] hasn't"
            )
        return Result(structure, found, places)

    def arrays(self, leaves: Sequence[Any]) -> list[Any]:
        """The arrays of its value."""
        found = trees.flatten(self.plain(*leaves))[0]
        return [np.asarray(x) for x in found if is_array(x)]

    def pulled(self, count: int, wanted: Sequence[int]) -> Flat:
        """The cotangents of these of the `count` leaves, as a function of all leaves, and of the
        cotangents of the real arrays of the value."""
        f = self.f

        def gradients(*given: Any) -> Any:
            leaves, own = list(given[:count]), [given[k] for k in wanted]

            def of_wanted(*own: Any) -> Any:
                for k, x in zip(wanted, own, strict=True):
                    leaves[k] = x
                return f(*leaves)

            value, pullback = vjp(of_wanted, *own)
            outs, structure = trees.flatten(value)
            left = iter(given[count:])
            cts = [next(left).astype(out.dtype) if is_real(out) else None for out in outs]
            return pullback(trees.unflatten(structure, cts))

        made = Flat.pulled, (self, count, tuple(wanted))
        return self._made("gradients", gradients, (count, *wanted), made)

    def with_gradients(self, wanted: Sequence[int]) -> Flat:
        """The value of a function whose value is a number, and its gradients."""
        both = value_and_grad(self.f, argnums=tuple(wanted), compile=self.compile)

        def value_and_gradients(*given: Any) -> Any:
            value, found = both(*given)
            return value, *found

        made = Flat.with_gradients, (self, tuple(wanted))
        return self._made("value and gradients", value_and_gradients, wanted, made)

    def rows(self, axes: Sequence[int | None]) -> Flat:
        """The function of many rows at once, which lie along these axes of its leaves."""
        f = vmap(self.f, in_axes=tuple(axes), compile=self.compile)
        return self._made("rows", f, axes, (Flat.rows, (self, tuple(axes))))

    def _made(self, what: str, f: Callable[..., Any], key: Sequence[int | None], made: Any) -> Flat:
        known = what, tuple(key)
        if known not in self._derived:
            f.__name__ = f"{what} of {describe(self.f)}"
            self._derived[known] = Flat(f, self.compile, made)
        return self._derived[known]


class Call(Keyed):
    """A function of leaves, some of which are arrays that aren't there yet."""

    def __init__(self, flat: Flat, places: tuple[int, ...], others: tuple[Any, ...]) -> None:
        self.flat, self.places, self.others = flat, places, others
        self.key = flat, places, tuple([static_key(x) for x in others])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> Any:
        return Call, (self.flat, self.places, self.others)

    def whole(self, arrays: Iterable[Any]) -> list[Any]:
        """All leaves, with these arrays in their places."""
        leaves = [*self.others]
        for k, x in zip(self.places, arrays, strict=True):
            leaves[k] = x
        return leaves

    def result(self, types: Iterable[Any]) -> Result:
        """What it returns for arrays of these types."""
        types = tuple(types)
        known = self.flat.results.get((self, types))
        if known is None:
            known = self.flat.results[self, types] = self.flat.result(self.whole(types))
        return known

    def with_gradients(self, wanted: Iterable[int]) -> Call:
        """Its value, a number, and the gradients with respect to some of the arrays."""
        flat = self.flat.with_gradients([self.places[k] for k in wanted])
        return Call(flat, self.places, self.others)

    def pulled(self, wanted: Iterable[int], cts: int) -> Call:
        """The cotangents of some of the arrays, for all arrays and `cts` cotangents."""
        count = len(self.others)
        flat = self.flat.pulled(count, [self.places[k] for k in wanted])
        places = (*self.places, *range(count, count + cts))
        return Call(flat, places, self.others + (None,) * cts)


_here: WeakValueDictionary[str, Flat] = WeakValueDictionary()


def _flat_called(name: str, make: Callable[..., Flat], args: tuple[Any, ...]) -> Flat:
    """What was pickled: itself where it was made, with all that it has traced."""
    return _here.get(name) or make(*args)


def _flat_of(f: Callable[..., Any], tree: Any, compile: str) -> Flat:
    """The function of leaves of arguments like these."""
    return Flattened(f, compile).by(trees.flatten(tree)[1])


class Flattened:
    """A function of trees as one of leaves, for each structure of its arguments."""

    def __init__(self, f: Callable[..., Any], compile: str) -> None:
        self.f, self.compile = f, checked_mode(cast(Any, compile))
        self._flat: dict[Any, Flat] = {}

    def of(self, args: Any, kwargs: Any) -> tuple[Flat, list[Any]]:
        """The function of leaves, and these."""
        leaves, structure = trees.flatten((args, kwargs))
        return self.by(structure), leaves

    def by(self, structure: Any) -> Flat:
        """The function of the leaves of such arguments."""
        flat = self._flat.get(structure)
        if flat is None:
            f = self.f

            def of_leaves(*leaves: Any) -> Any:
                args, kwargs = trees.unflatten(structure, leaves)
                return f(*args, **kwargs)

            of_leaves.__name__ = describe(f)
            tree = trees.unflatten(structure, [0.0] * structure.num_leaves)
            made = _flat_of, (f, tree, self.compile)
            flat = self._flat[structure] = Flat(of_leaves, self.compile, made)
        return flat


def is_array(x: Any) -> bool:
    """Whether a leaf is an array or a NumPy number, or says the type of one."""
    return hasattr(x, "dtype") and hasattr(x, "shape")


def is_real(x: Any) -> bool:
    """Whether an array can have a derivative."""
    return is_array(x) and (np.dtype(x.dtype).kind in "fc" or is_half(np.dtype(x.dtype)))
