"""The vector space that a value is of: arrays, numbers, and lists, tuples and dicts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tapegrad.core.trees import flatten, flatten_up_to, unflatten
from tapegrad.errors import ArgumentError
from tapegrad.tracing.tracer import Tracer

_VECTORS = (np.ndarray, np.number, Tracer, int, float, complex)


class VSpace:
    """All values that are put together as `value` is, with its shapes and dtypes.

    `size` counts real numbers, two of them for a complex one. Of an array's or a number's space
    there are `shape`, `ndim` and `dtype`, too.
    """

    def __init__(self, value: Any) -> None:
        leaves, self._structure = flatten(value)
        for x in leaves:
            if not isinstance(x, _VECTORS):
                raise ArgumentError(
                    f"vspace: a {type(x).__name__} isn't a vector. Vectors are arrays, numbers, "
                    "and lists, tuples and dicts of them"
                )
        self._types = [(np.shape(x), np.result_type(x)) for x in leaves]
        if len(leaves) == 1 and leaves[0] is value:
            ((self.shape, self.dtype),) = self._types
            self.ndim = len(self.shape)

    @classmethod
    def register(cls, kind: type, vspace_maker: Any = None) -> None:
        """Nothing needs doing for subclasses of ndarray, nor for numbers: they are vectors as they
        are. It is an error for other classes, which are trees."""
        if not issubclass(kind, _VECTORS):
            raise ArgumentError(
                f"instances of {kind.__name__} have no vector space of their own. Say what they "
                "hold: tapegrad.register_tree"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VSpace):
            return NotImplemented
        return (self._structure, self._types) == (other._structure, other._types)

    def __hash__(self) -> int:
        return hash(tuple(self._types))

    def __repr__(self) -> str:
        return f"VSpace({', '.join(f'{dtype}{list(shape)}' for shape, dtype in self._types)})"

    @property
    def iscomplex(self) -> bool:
        """Whether there are complex numbers among them."""
        return any(dtype.kind == "c" for _, dtype in self._types)

    @property
    def size(self) -> int:
        """How many real numbers make one of them."""
        return sum(int(np.prod(shape)) * (1 + (dtype.kind == "c")) for shape, dtype in self._types)

    def _each(self, f: Callable[..., Any], *values: Any) -> Any:
        """`f` of each leaf's shape, dtype and values, put together."""
        rows = [flatten_up_to(self._structure, x) for x in values]
        return unflatten(
            self._structure,
            [f(*kind, *xs) for kind, *xs in zip(self._types, *rows, strict=True)],
        )

    def zeros(self) -> Any:
        """The zero."""
        return self._each(lambda shape, dtype: np.zeros(shape, dtype)[()])

    def ones(self) -> Any:
        """All elements 1; 1 + i of complex numbers."""
        return self._each(lambda shape, dtype: np.full(shape, _one(dtype), dtype)[()])

    def randn(self) -> Any:
        """Normal random numbers, from NumPy's global generator."""

        def drawn(shape: Any, dtype: Any) -> Any:
            found = np.array(np.random.randn(*shape))
            if dtype.kind == "c":
                found = found + 1j * np.random.randn(*shape)
            return found.astype(dtype)[()]

        return self._each(drawn)

    def standard_basis(self) -> Iterator[Any]:
        """One after another: 1 in one place, and 0 elsewhere; i too, of complex numbers."""
        for k, (shape, dtype) in enumerate(self._types):
            for at in np.ndindex(*shape):
                for one in (1.0, 1j) if dtype.kind == "c" else (1.0,):
                    leaves = flatten(self.zeros())[0]
                    unit = np.zeros(shape, dtype)
                    unit[at] = one
                    leaves[k] = unit[()]
                    yield unflatten(self._structure, leaves)

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self._each(lambda shape, dtype, a, b: a + b, x, y)

    mut_add = add

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """a x."""
        return self._each(lambda shape, dtype, b: b * a, x)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """The real part of the sum of conj(x) y."""
        rows = [flatten_up_to(self._structure, v) for v in (x, y)]
        return sum(np.real(np.sum(np.conj(a) * b)) for a, b in zip(*rows, strict=True))

    def covector(self, x: Any) -> Any:
        """conj(x): what x is as a cotangent."""
        return self._each(lambda shape, dtype, a: np.conj(a), x)


def _one(dtype: np.dtype[Any]) -> Any:
    return 1 + 1j if dtype.kind == "c" else 1


def vspace(value: Any) -> VSpace:
    """The vector space that `value` is of."""
    return VSpace(value)
