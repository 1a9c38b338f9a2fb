"""Sparse matrices with traced elements, or beside traced arrays."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from tapegrad.errors import UnsupportedError
from tapegrad.extending import any_traced, at_line, refusal, unobserved
from tapegrad.extending.arrays import Tracer, as_tracer, cast
from tapegrad.extending.primitives import Product, RowByRow, Rows, ScatterAdd, SparseProduct
from tapegrad.extending.runs import following
from tapegrad.scipy.sparse.parts import OF_ELEMENTS, Parted

_FORMATS = ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")


class Sparse(Parted):
    """A sparse matrix: what SciPy's `format` is, with elements of which some may be traced.

    It is held row by row, or, if it is `turned`, column by column (`primitives/sparse.py`).
    `ordered`: the elements are those that SciPy has, in its order; `sifted`: it leaves out zeros
    among them. `is_matrix`: `*` is a product.
    """

    __array_ufunc__ = None  # NumPy's operators leave the answer to this
    __slots__ = ("_shape", "elements", "format", "indices", "is_matrix", "ordered", "sifted",
                 "starts", "turned")  # fmt: skip

    ndim = 2

    def __init__(
        self,
        elements: Any,
        indices: Any,
        starts: Any,
        shape: Any,
        turned: bool,
        format: str,
        is_matrix: bool,
        ordered: bool = True,
        sifted: bool = False,
    ) -> None:
        if format not in _FORMATS:
            sparse.csr_array((1, 1)).asformat(format)  # SciPy's own error
        self.elements, self.indices, self.starts = elements, indices, starts
        self._shape = int(shape[0]), int(shape[1])
        self.turned, self.format, self.is_matrix = turned, format, is_matrix
        self.ordered, self.sifted = ordered, sifted

    @property
    def shape(self) -> Any:
        return self._shape

    @property
    def held_shape(self) -> Any:
        """Of the matrix whose rows are held."""
        return self._shape[::-1] if self.turned else self._shape

    @property
    def dtype(self) -> Any:
        return self.elements.dtype

    @property
    def data(self) -> Any:
        if not self.ordered:
            raise self._refused("data, once SciPy would put its elements in another order")
        return self.elements

    @property
    def nnz(self) -> int:
        if not self.ordered:
            raise self._refused("nnz, once SciPy would add up elements")
        return int(self.elements.shape[0])

    @property
    def T(self) -> Sparse:
        return self.transpose()

    def _refused(self, name: str) -> UnsupportedError:
        return UnsupportedError(
            f"{name} of a sparse {'matrix' if self.is_matrix else 'array'} beside traced values "
            f"can't be traced{at_line()}. Use products with it, its sum, diagonal or toarray, or "
            "the arrays that it was made of"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self.kind, name):
            raise AttributeError(f"a sparse matrix has no attribute {name!r}")
        if name in OF_ELEMENTS.split():
            return partial(self.mapped, getattr(np, name), name)
        raise self._refused(name)

    def _not_known(self, *args: Any) -> Any:
        raise self._refused("an assignment, a comparison or a loop")

    __setitem__ = __iter__ = __len__ = __bool__ = _not_known
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _not_known
    __rpow__ = __rtruediv__ = _not_known
    __hash__ = object.__hash__

    def with_elements(self, elements: Any) -> Sparse:
        given = elements, self.indices, self.starts, self._shape
        return Sparse(*given, self.turned, self.format, self.is_matrix, self.ordered, self.sifted)

    @property
    def kind(self) -> Any:
        """SciPy's class of this format."""
        return getattr(sparse, f"{self.format}_{'matrix' if self.is_matrix else 'array'}")

    def remade(
        self, elements: Any, rows: Any, columns: Any, shape: Any, sifted: bool = True
    ) -> Sparse:
        """One of this kind, of elements with their rows and columns."""
        how = self.format, self.is_matrix, sifted
        return from_list(elements, rows, columns, shape, *how)

    @unobserved
    def on_tape(self, *others: Any) -> tuple[Any, Any, Any]:
        """The elements and the pattern as operands, beside what is traced."""
        given = (self.elements, self.indices, self.starts, *others)
        return tuple(as_tracer(x, *given) for x in given[:3])  # type: ignore[return-value]

    # ---- products

    def dot(self, other: Any) -> Any:
        return self.times(other)

    def __matmul__(self, other: Any) -> Any:
        return self.times(other)

    @unobserved
    def __rmatmul__(self, other: Any) -> Any:
        other = np.asarray(other) if isinstance(other, (list, tuple)) else other
        return np.transpose(self.transpose().times(np.transpose(other)))

    @unobserved
    def times(self, x: Any) -> Any:
        """The product with an array of one or two axes."""
        if isinstance(x, Sparse) or sparse.issparse(x):
            return self._by_sparse(as_sparse(x))
        x = np.asarray(x) if isinstance(x, (list, tuple)) else x
        if np.ndim(x) == 0:
            raise ValueError("Scalar operands are not allowed, use '*' instead")
        self._fits(x.shape[0] if np.ndim(x) <= 2 else -1)
        elements, indices, starts = self.on_tape(x)
        x = as_tracer(x, elements)
        kind = np.result_type(elements.dtype, x.dtype)
        elements, x = cast(elements, kind), cast(x, kind)
        product = Product(*self.parameters)
        found = product(elements, indices, starts, x[:, None] if x.ndim == 1 else x)
        return found[:, 0] if x.ndim == 1 else found

    @property
    def parameters(self) -> Any:
        return self.held_shape, self.turned, self.sifted

    def _fits(self, count: int) -> None:
        if count != self._shape[1]:
            raise ValueError(f"matmul: dimension mismatch with signature (n,k={self._shape[1]})")

    def _by_sparse(self, other: Sparse) -> Any:
        self._fits(other.shape[0])
        for count in (self._shape[0], other.shape[0]):
            self.check_size(count * other.shape[1], "a product")
        (a, *pattern), (b, *its) = self.on_tape(other.elements), other.on_tape(self.elements)
        kind = np.result_type(a.dtype, b.dtype)
        product = SparseProduct(self.parameters, other.parameters)
        return self.in_full(product(cast(a, kind), *pattern, cast(b, kind), *its))

    # ---- arithmetic

    @unobserved
    def __mul__(self, other: Any) -> Any:
        if np.ndim(other) == 0 and not isinstance(other, Sparse):
            return self.scaled(other)
        return self.times(other) if self.is_matrix else self.multiply(other)

    @unobserved
    def __rmul__(self, other: Any) -> Any:
        if np.ndim(other) == 0:
            return self.scaled(other)
        return self.__rmatmul__(other) if self.is_matrix else self.multiply(other)

    @unobserved
    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Sparse) or sparse.issparse(other):
            raise self._refused("the quotient of sparse arrays")
        if np.ndim(other):
            return self.multiply(np.divide(1, other))
        wide = self
        if np.can_cast(self.dtype, np.float64):
            wide = self.with_elements(self.elements.astype(np.float64))
        return wide.scaled(1 / other)  # as SciPy does

    def __neg__(self) -> Sparse:
        return self.scaled(-1)

    @unobserved
    def scaled(self, by: Any) -> Sparse:
        return self.with_elements(self._times(self.on_tape(by)[0], by))

    def _times(self, elements: Any, factors: Any) -> Any:
        if self.sifted and (isinstance(factors, Tracer) or not np.all(np.isfinite(factors))):
            factors = np.where((elements != 0) | np.isfinite(factors), factors, 0)
        return elements * factors

    @unobserved
    def multiply(self, other: Any) -> Sparse:
        """Each element times that of an array which stands there, too."""
        if isinstance(other, Sparse) or sparse.issparse(other):
            if other.shape == self._shape:
                return self._by_elements(as_sparse(other))
            other = as_sparse(other).full("a product")
        if np.ndim(other) == 0:
            return self.scaled(other)
        elements, rows, columns = self.listed(other)
        other = as_tracer(other, elements)
        if np.broadcast_shapes(self._shape, other.shape) != self._shape:
            raise ValueError("inconsistent shapes")
        there = np.broadcast_to(other, self._shape)[rows, columns]
        return self.with_elements(self._times(elements, there))

    def _by_elements(self, other: Sparse) -> Sparse:
        """The same of one that is stored alike. Where it alone has an element, that is multiplied
        by 0, which gives NaN of what isn't finite."""
        (x, *at), (y, *there) = self.listed(other.elements), other.listed(self.elements)
        rows, columns = (np.concatenate(pair) for pair in zip(at, there, strict=True))
        whole, its = self.full("a product"), other.full("a product")
        alone = np.where(whole[tuple(there)] == 0, y * 0, 0)
        products = np.concatenate([x * its[tuple(at)], alone])
        return self.remade(products, rows, columns, self._shape)

    @unobserved
    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1, 1)

    __radd__ = __add__

    @unobserved
    def __sub__(self, other: Any) -> Any:
        return self._sum(other, 1, -1)

    @unobserved
    def __rsub__(self, other: Any) -> Any:
        return self._sum(other, -1, 1)

    def _sum(self, other: Any, sign: int, of_other: int) -> Any:
        if sparse.issparse(other):
            other = held_of(other)
        if isinstance(other, Sparse):
            if other.shape != self._shape:
                raise ValueError("inconsistent shapes")
            mine, its = self.listed(other.elements), other.listed(self.elements)
            rows, columns = (np.concatenate([mine[k], its[k]]) for k in (1, 2))
            elements = np.concatenate([sign * mine[0], of_other * its[0]])
            return self.remade(elements, rows, columns, self._shape, self.sifted or other.sifted)
        if np.ndim(other) == 0 and not any_traced([other]) and other == 0:
            return self if sign == 1 else self.scaled(-1)
        if np.ndim(other) == 0:
            raise NotImplementedError("adding a nonzero scalar to a sparse array is not supported")
        self._not_as_matrix("the sum with an array")
        return sign * self._dense(other) + of_other * other

    def _not_as_matrix(self, what: str) -> None:
        """SciPy's older classes return a np.matrix there, which isn't traced."""
        if self.is_matrix:
            raise refusal(
                f"{what} of a {self.format}_matrix is a np.matrix, which can't be traced"
                f"{at_line()}. Use scipy.sparse.{self.format}_array, or S.toarray()"
            )

    # ---- what it holds

    @unobserved
    def listed(self, *others: Any) -> tuple[Any, Any, Any]:
        """The elements, with their rows and their columns."""
        elements, indices, starts = self.on_tape(*others)
        rows = Rows(int(indices.shape[0]))(starts)
        return (elements, indices, rows) if self.turned else (elements, rows, indices)

    @unobserved
    def toarray(self) -> Any:
        return self._dense()

    def _dense(self, *others: Any) -> Any:
        return ScatterAdd(self._shape)(*self.listed(*others))

    def todense(self) -> Any:
        self._not_as_matrix("todense()")
        return self.toarray()

    @unobserved
    def sum(self, axis: Any = None) -> Any:
        if axis is None:
            return np.sum(self.on_tape()[0])
        self._not_as_matrix("a sum along an axis")
        if axis not in (0, 1, -1, -2):
            raise self._refused(f"sum(axis={axis})")
        along = self if axis in (1, -1) else self.transpose()
        return along.times(np.ones(along.shape[1], self.dtype))

    @unobserved
    def mean(self, axis: Any = None) -> Any:
        count = self._shape[0] * self._shape[1] if axis is None else self._shape[axis]
        return self.scaled(1.0 / count).sum(axis)

    @unobserved
    def diagonal(self, k: int = 0) -> Any:
        elements, rows, columns = self.listed()
        there = self.with_elements(np.where(columns - rows == k, elements, 0))
        m, n = self._shape
        whole = there.times(np.ones(n, self.dtype))
        return whole[max(0, -k) : max(0, -k) + max(0, min(m + min(k, 0), n - max(k, 0)))]

    def trace(self, offset: int = 0) -> Any:
        return np.sum(self.diagonal(offset))

    def transpose(self, axes: Any = None, copy: bool = False) -> Sparse:
        other = {"csr": "csc", "csc": "csr"}.get(self.format, self.format)
        given = self.elements, self.indices, self.starts, self._shape[::-1], not self.turned
        return Sparse(*given, other, self.is_matrix, self.ordered, self.sifted)

    def asformat(self, format: Any, copy: bool = False, is_matrix: Any = None) -> Sparse:
        format = format or self.format
        is_matrix = self.is_matrix if is_matrix is None else is_matrix
        if (format, is_matrix) == (self.format, self.is_matrix):
            return self
        given = self.elements, self.indices, self.starts, self._shape, self.turned
        ordered = self.ordered and format == self.format
        return Sparse(*given, format, is_matrix, ordered, self.sifted)

    def tocsr(self, copy: bool = False) -> Sparse:
        return self.asformat("csr")

    def tocsc(self, copy: bool = False) -> Sparse:
        return self.asformat("csc")

    def tocoo(self, copy: bool = False) -> Sparse:
        return self.asformat("coo")

    def copy(self) -> Sparse:
        return self

    def conjugate(self, copy: bool = True) -> Sparse:
        return self.with_elements(np.conjugate(self.on_tape()[0]))

    conj = conjugate


# ---- how they are made


@unobserved
def from_list(
    elements: Any,
    rows: Any,
    columns: Any,
    shape: Any,
    format: str,
    is_matrix: bool,
    sifted: bool = False,
) -> Sparse:
    """Of elements with their rows and columns."""
    given = elements, rows, columns
    elements, rows, columns = (as_tracer(x, *given) for x in given)
    order, starts = RowByRow(int(shape[0]))(rows)
    parts = elements[order], columns[order], starts, shape
    return Sparse(*parts, False, format, is_matrix, False, sifted)


class Held(Sparse):
    """One of SciPy's own matrices: its arrays are put on the tape with what it meets there."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        if of.ndim != 2:
            raise refusal(
                f"a sparse array of {of.ndim} axes beside traced values isn't supported"
                f"{at_line()}. Use one of two axes"
            )
        rows = of if of.format in ("csr", "csc") else of.tocsr()
        turned = rows.format == "csc"
        arrays = rows.data, rows.indices, rows.indptr
        super().__init__(*arrays, of.shape, turned, of.format, is_matrix(of), rows is of)
        self.of = of

    def __reduce__(self) -> Any:
        return Held, (self.of,)

    @unobserved
    def on_tape(self, *others: Any) -> tuple[Any, Any, Any]:
        here, note = following.observer, None
        if here is not None:  # what becomes no operand is compared by later calls
            note = here.held_by([self.of])
        found = super().on_tape(*others)
        if note is not None:
            note(None)
        return found


def held_of(x: Any) -> Held:
    return Held(x)


def is_matrix(x: Any) -> bool:
    return not isinstance(x, sparse.sparray)


def as_sparse(x: Any) -> Any:
    """A sparse matrix of ours for one of SciPy's."""
    return x if isinstance(x, Sparse) else Held(x) if sparse.issparse(x) else None
