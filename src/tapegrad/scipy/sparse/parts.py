"""Parts of sparse matrices with traced elements, and functions of their elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import matrix_power

from tapegrad.errors import TapegradError
from tapegrad.extending import Carrier, any_traced, as_parameter, at_line, refusal, unobserved
from tapegrad.extending.arrays import Tracer, as_tracer

MAX_DENSE = 50_000_000  # elements of a dense result
# SciPy's matrices have methods of these names.
OF_ELEMENTS = """sin tan arcsin arctan sinh tanh arcsinh arctanh rint sign expm1 log1p deg2rad
rad2deg floor ceil trunc sqrt"""
# and attributes of these.
OF_PATTERNS = "indices indptr row col coords has_sorted_indices has_canonical_format"


class SparseBase(Carrier):
    """The base of classes with `shape`, `listed()`, `toarray()` and `remade`: parts and sums."""

    __slots__ = ()

    _shape: tuple[int, int]
    is_matrix: bool
    listed: Any
    toarray: Any
    remade: Any
    pattern: Any
    elements: Any
    given: Any
    order: Any
    with_elements: Any
    moved: Any
    summed: Any
    on_tape: Any
    asformat: Any
    times: Any
    transpose: Any
    with_listed: Any
    format: str
    dtype: Any
    _refused: Any
    kind: Any
    sifted: bool

    def _not_as_matrix(self, what: str) -> None:
        """Refuse an operation that returns a np.matrix for SciPy's older classes."""
        if self.is_matrix:
            raise refusal(
                f"{what} of a {self.format}_matrix is a np.matrix, which can't be traced"
                f"{at_line()}. Use scipy.sparse.{self.format}_array, or S.toarray()"
            )

    def in_full(self, dense: Any) -> Any:
        """A matrix of this class that stores all elements of an array."""
        m, n = np.shape(dense)
        rows, columns = np.divmod(np.arange(m * n), n)
        return self.remade(np.reshape(dense, -1), rows, columns, (m, n))

    def full(self, what: str) -> Any:
        """The dense array, for operations that aren't sums over the stored elements."""
        self.check_size(self._shape[0] * self._shape[1], what)
        return self.toarray()

    def check_size(self, count: int, what: str) -> None:
        if count > MAX_DENSE:
            raise refusal(
                f"{what} of a sparse matrix of this size with traced values can't be traced"
                f"{at_line()}: it would be held in full. Multiply with vectors, one matrix after "
                "the other: A @ (B @ x)"
            )

    # ---- parts

    @unobserved
    def __getitem__(self, index: Any) -> Any:
        """The rows and columns at an index of integers, slices, lists and masks."""
        if not hasattr(self.kind, "__getitem__"):
            raise TypeError(f"{self.kind.__name__!r} object is not subscriptable")
        pair = index if isinstance(index, tuple) else (index, slice(None))
        pair = tuple(x if isinstance(x, slice) else np.asarray(as_parameter(x)) for x in pair)
        lists = [x for x in pair if not isinstance(x, slice)]
        if len(pair) != 2 or any(x.dtype.kind not in "iub" for x in lists):
            raise self._no_index()
        own = tuple(x if isinstance(x, slice) else x.copy() for x in pair)
        moved = self.moved(lambda x: x[own])
        if moved is not None:
            return moved
        if all(x.ndim == 0 for x in lists) and len(lists) == 2:
            return self._element(*[int(x) for x in lists])
        shapes = [x.shape for x in lists]
        if len(lists) == 2 and shapes[0][1:] == (1,) and shapes[1][-1:] == (lists[1].size,):
            return self[lists[0][:, 0], :][:, lists[1].reshape(-1)]  # the form of np.ix_
        if len(lists) == 2 and all(x.ndim == 1 for x in lists) and not self.is_matrix:
            i, j = (_places(x, n) for x, n in zip(lists, self._shape, strict=True))
            return self._elements(*np.broadcast_arrays(i, j))
        if len(lists) > 1 or any(x.ndim > 1 or (not x.ndim and not self.is_matrix) for x in lists):
            raise self._no_index()
        found: Any = self
        for axis, wanted in enumerate(pair):
            if not isinstance(wanted, slice) or wanted != slice(None):
                found = found._selected(axis, _places(wanted, self._shape[axis]))
        return found

    def _no_index(self) -> TapegradError:
        return refusal(
            f"this index of a sparse matrix with traced values can't be traced{at_line()}. Use "
            "two integers, or lists and slices that keep both axes, as S[[i]] and S[:, 1:3]; or "
            "S.toarray()"
        )

    def _element(self, i: int, j: int) -> Any:
        i, j = (_places(x, n)[0] for x, n in zip((i, j), self._shape, strict=True))
        elements, rows, columns = self.listed()
        return np.sum(np.where((rows == i) & (columns == j), elements, 0))

    def _elements(self, i: Any, j: Any) -> Any:
        elements, rows, columns = self.listed()
        here = (rows == i[:, None]) & (columns == j[:, None])
        return np.sum(np.where(here, elements, 0), axis=1)

    def _selected(self, axis: int, wanted: Any) -> Any:
        """The selected rows (axis 0) or columns (axis 1). Elements of others become 0. A row that
        is selected twice is listed twice."""
        elements, *held = self.listed()
        found, kept, other = [], [], []
        for places, numbers in _without_repeats(wanted):
            new = np.full(self._shape[axis], -1)
            new[places] = numbers
            at = np.take(new, held[axis])
            found.append(np.where(at >= 0, elements, 0))
            kept.append(np.where(at >= 0, at, 0))
            other.append(held[1 - axis])
        if not found:
            found, kept, other = [elements[:0]], [held[axis][:0]], [held[1 - axis][:0]]
        shape = [*self._shape]
        shape[axis] = len(wanted)
        both = [np.concatenate(kept), np.concatenate(other)]
        return self.remade(np.concatenate(found), both[axis], both[1 - axis], shape)

    @unobserved
    def reshape(self, *given: Any, order: str = "C", copy: bool = False) -> Any:
        shape = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
        if len(shape) != 2 or order != "C":
            raise refusal(
                f"this reshape of a sparse matrix with traced values can't be traced{at_line()}. "
                "Use two axes, and order='C'; or S.toarray()"
            )
        moved = self.moved(lambda x: x.reshape(tuple(shape), copy=copy))
        if moved is not None:
            return moved
        m, n = np.empty(self._shape, bool).reshape(tuple(shape)).shape[:2]
        elements, rows, columns = self.listed()
        place = rows * self._shape[1] + columns
        return self.remade(elements, place // n, place % n, (m, n), self.sifted)

    def triangle(self, k: int, lower: bool) -> Any:
        elements, rows, columns = self.listed()
        inside = columns - rows <= k if lower else columns - rows >= k
        return self.remade(np.where(inside, elements, 0), rows, columns, self._shape)

    # ---- conversions

    def tocsr(self, copy: bool = False) -> Any:
        return self.asformat("csr", copy)

    def tocsc(self, copy: bool = False) -> Any:
        return self.asformat("csc", copy)

    def tocoo(self, copy: Any = None) -> Any:
        return self.asformat("coo", self.format == "csc" if copy is None else copy)

    def tobsr(self, blocksize: Any = None, copy: bool = False) -> Any:
        return self.asformat("bsr", copy)

    @unobserved
    def copy(self) -> Any:
        return self.with_elements(np.copy(self.elements))

    @unobserved
    def conjugate(self, copy: bool = True) -> Any:
        if not copy and np.dtype(self.dtype).kind != "c":
            return self
        return self.with_elements(np.conjugate(as_tracer(self.elements)))

    conj = conjugate

    # ---- in place

    @unobserved
    def __imul__(self, other: Any) -> Any:
        if np.ndim(other) or not isinstance(self.given, Tracer):
            return NotImplemented
        found = self.scaled(other).elements
        np.empty(0, self.dtype).__imul__(np.ones((), found.dtype))  # raises NumPy's own error
        self.given[...] = found if self.order is None else self.given * other
        return self

    def __itruediv__(self, other: Any) -> Any:
        return NotImplemented if np.ndim(other) else self.__imul__(1.0 / other)

    # ---- sums

    def todense(self) -> Any:
        self._not_as_matrix("todense()")
        return self.toarray()

    @unobserved
    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        if dtype is not None or out is not None:
            raise self._refused("sum or mean with dtype= or out=")
        if axis is None:
            return np.sum(self.on_tape()[0])
        self._not_as_matrix("a sum along an axis")
        if axis not in (0, 1, -1, -2):
            raise self._refused(f"sum(axis={axis})")
        along: Any = self if axis in (1, -1) else self.transpose()
        return along.times(np.ones((along.shape[1], 1), self.dtype))[:, 0]

    @unobserved
    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        count = self._shape[0] * self._shape[1] if axis is None else self._shape[axis]
        return self.scaled(1.0 / count).sum(axis, dtype, out)

    @unobserved
    def diagonal(self, k: int = 0) -> Any:
        elements, rows, columns = self.listed()
        there = self.with_listed(np.where(columns - rows == k, elements, 0))
        m, n = self._shape
        whole = there.times(np.ones((n, 1), self.dtype))[:, 0]
        return whole[max(0, -k) : max(0, -k) + max(0, min(m + min(k, 0), n - max(k, 0)))]

    def trace(self, offset: int = 0) -> Any:
        return np.sum(self.diagonal(offset))

    # ---- functions of elements; duplicate entries are summed first

    @unobserved
    def scaled(self, by: Any) -> Any:
        return self.with_elements(self._times(as_tracer(self.elements, by), by))

    def _times(self, elements: Any, factors: Any) -> Any:
        if self.sifted and (isinstance(factors, Tracer) or not np.all(np.isfinite(factors))):
            factors = np.where((elements != 0) | np.isfinite(factors), factors, 0)
        return elements * factors

    @unobserved
    def mapped(self, function: Any, what: str) -> Any:
        """The matrix with a function applied to its elements. If the pattern is unknown, it is
        applied to all elements, zeros included."""
        if self.pattern is not None:
            found = self.summed()
            for name in ("elements", "along", "starts", "pattern"):  # as SciPy does
                setattr(self, name, getattr(found, name))
            return found.with_elements(function(as_tracer(found.elements)))
        return self.in_full(function(self.full(what)))

    @unobserved
    def power(self, n: Any, dtype: Any = None) -> Any:
        if np.ndim(n) or any_traced([n]) or n <= 0 or dtype is not None:
            raise refusal(
                f"this power of a sparse matrix with traced values can't be traced{at_line()}. "
                "Use a plain positive exponent, without dtype="
            )
        return self.mapped(lambda x: x**n, "a power")

    @unobserved
    def __pow__(self, n: Any) -> Any:
        return matrix_power(self, n) if self.is_matrix else self.power(n)

    @unobserved
    def __abs__(self) -> Any:
        return self.mapped(np.abs, "abs")

    @unobserved
    def maximum(self, other: Any) -> Any:
        return self._larger(np.maximum, other)

    @unobserved
    def minimum(self, other: Any) -> Any:
        return self._larger(np.minimum, other)

    def _larger(self, function: Any, other: Any) -> Any:
        name = function.__name__
        if np.ndim(other) == 0 and not hasattr(other, "toarray"):
            raise refusal(
                f"{name} of a sparse matrix and a number can't be traced{at_line()}. Use "
                "S.toarray()"
            )
        if not hasattr(other, "toarray"):
            self._not_as_matrix(name)
            return function(self.full(name), other)
        if other.shape != self._shape:
            raise ValueError("inconsistent shapes")
        its = other.toarray()  # SciPy ignores its NaNs, by C++ comparisons
        x = self.full(name)
        return self.in_full(np.where(np.isnan(its), x, function(x, its)))

    @unobserved
    def max(self, axis: Any = None, out: Any = None) -> Any:
        return self._extreme(np.max, axis)

    @unobserved
    def min(self, axis: Any = None, out: Any = None) -> Any:
        return self._extreme(np.min, axis)

    def _extreme(self, function: Any, axis: Any) -> Any:
        if not hasattr(self.kind, "max"):
            raise AttributeError(f"{self.kind.__name__!r} object has no attribute 'max'")
        if axis is not None:
            raise refusal(
                f"the largest or smallest elements of a sparse matrix along an axis can't be traced"
                f"{at_line()}. Use S.toarray().max(axis)"
            )
        return function(self.full("max"))


def _places(x: Any, count: int) -> Any:
    """The numbers of the rows or columns at an index. Raises NumPy's error if it is out of
    range."""
    return np.atleast_1d(np.arange(count)[x])


def _without_repeats(wanted: Any) -> Any:
    """Yield pairs `(places, numbers)` that have no place twice: together they cover all of
    `wanted`."""
    left = np.arange(len(wanted))
    while len(left):
        places, first = np.unique(wanted[left], return_index=True)
        yield places, left[first]
        left = np.delete(left, first)
