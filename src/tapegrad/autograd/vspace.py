"""The vector spaces of arrays, numbers, and lists, tuples and dicts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tapegrad.autograd.spaces import VECTORS, Boxed, VSpace, is_object, maker_of
from tapegrad.core.trees import flatten, flatten_up_to, unflatten
from tapegrad.errors import ArgumentError


class _Followed(VSpace):
    """A space whose operations are NumPy's, which are traced."""

    def _applied(self, name: str, *xs: Any) -> Any:
        return getattr(self, f"_{name}")(*xs)


class ArrayVSpace(_Followed):
    """All arrays of one shape and dtype."""

    def __init__(self, value: Any) -> None:
        self.shape: tuple[int, ...] = np.shape(value)
        self.dtype: np.dtype[Any] = np.result_type(value)

    def __hash__(self) -> int:
        return hash((type(self), self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"VSpace({self.dtype}{list(self.shape)})"

    @property
    def size(self) -> int:
        """The number of real numbers in a vector."""
        return int(np.prod(self.shape)) * (1 + self.iscomplex)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def zeros(self) -> Any:
        return np.zeros(self.shape, self.dtype)[()]

    def ones(self) -> Any:
        return np.full(self.shape, 1 + 1j if self.iscomplex else 1, self.dtype)[()]

    def randn(self) -> Any:
        found = np.array(np.random.randn(*self.shape))
        if self.iscomplex:
            found = found + 1j * np.random.randn(*self.shape)
        return found.astype(self.dtype)[()]

    def standard_basis(self) -> Iterator[Any]:
        for at in np.ndindex(*self.shape):
            for one in (1.0, 1j) if self.iscomplex else (1.0,):
                unit = np.zeros(self.shape, self.dtype)
                unit[at] = one
                yield unit[()]

    def _inner_prod(self, x: Any, y: Any) -> Any:
        return np.real(np.sum(np.conj(x) * y))

    def _covector(self, x: Any) -> Any:
        return np.conj(x)


class ComplexArrayVSpace(ArrayVSpace):
    """All complex arrays of one shape and dtype."""

    iscomplex = True


class TreeVSpace(_Followed):
    """All values with the structure of `value`, whose leaves are vectors of the same spaces."""

    def __init__(self, value: Any) -> None:
        leaves, self._structure = flatten(value)
        self._spaces = [_of_leaf(x) for x in leaves]

    def __hash__(self) -> int:
        return hash(tuple(self._spaces))

    def __repr__(self) -> str:
        return f"VSpace({', '.join(map(repr, self._spaces))})"

    @property
    def iscomplex(self) -> bool:
        """Whether any leaf is complex."""
        return any(space.iscomplex for space in self._spaces)

    @property
    def size(self) -> int:
        """The number of real numbers in a vector."""
        return sum(space.size for space in self._spaces)  # type: ignore[attr-defined]

    def _rows(self, values: tuple[Any, ...]) -> Iterator[Any]:
        """The space of each leaf, with the matching leaves of these values."""
        return zip(self._spaces, *[flatten_up_to(self._structure, x) for x in values], strict=True)

    def _each(self, f: Callable[..., Any], *values: Any) -> Any:
        """`f` of each leaf's space and values, in the same structure."""
        return unflatten(self._structure, [f(*row) for row in self._rows(values)])

    def zeros(self) -> Any:
        return self._each(lambda space: space.zeros())

    def ones(self) -> Any:
        return self._each(lambda space: space.ones())

    def randn(self) -> Any:
        return self._each(lambda space: space.randn())

    def standard_basis(self) -> Iterator[Any]:
        for k, space in enumerate(self._spaces):
            for unit in space.standard_basis():
                leaves = flatten(self.zeros())[0]
                leaves[k] = unit
                yield unflatten(self._structure, leaves)

    def _add(self, x: Any, y: Any) -> Any:
        return self._each(lambda space, a, b: space.add(a, b), x, y)

    def _scalar_mul(self, x: Any, a: Any) -> Any:
        return self._each(lambda space, b: space.scalar_mul(b, a), x)

    def _inner_prod(self, x: Any, y: Any) -> Any:
        return sum(space.inner_prod(a, b) for space, a, b in self._rows((x, y)))

    def _covector(self, x: Any) -> Any:
        return self._each(lambda space, a: space.covector(a), x)


def _of_array(value: Any) -> VSpace:
    return (ComplexArrayVSpace if np.iscomplexobj(value) else ArrayVSpace)(value)


def _of_leaf(value: Any) -> VSpace:
    if isinstance(value, Boxed):
        return _of_leaf(value._value)
    maker = maker_of(type(value))
    if maker is not None:
        return maker(value)
    if not isinstance(value, VECTORS):
        raise ArgumentError(
            f"vspace: a {type(value).__name__} isn't a vector. Vectors are arrays, numbers, lists, "
            "tuples and dicts of them, and objects whose class has VSpace.register"
        )
    return _of_array(value)


VSpace.mappings.update(dict.fromkeys((np.ndarray, float, np.float64, complex), _of_array))


def vspace(value: Any) -> VSpace:
    """The vector space that `value` is of."""
    if isinstance(value, VECTORS) or is_object(value):
        return _of_leaf(value)
    return TreeVSpace(value)
