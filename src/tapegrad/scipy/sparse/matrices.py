"""Sparse matrices with traced elements, or combined with traced arrays."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from tapegrad.errors import UnsupportedError
from tapegrad.extending import any_traced, at_line, refusal, unobserved
from tapegrad.extending.arrays import Tracer, as_tracer, cast
from tapegrad.extending.primitives import (
    Product,
    RowByRow,
    Rows,
    ScatterAdd,
    SparseProduct,
    rows_of,
)
from tapegrad.extending.runs import following
from tapegrad.scipy.sparse.parts import OF_ELEMENTS, OF_PATTERNS, SparseBase
from tapegrad.scipy.sparse.patterns import FORMATS, pattern_at

_FORMATS = ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")


class Sparse(SparseBase):
    """A sparse matrix of SciPy's `format`, with elements that may be traced. It is stored row by
    row, or column by column if it is `turned` (`primitives/sparse.py`).

    `ordered`: the elements are SciPy's, in SciPy's order. `sifted`: zeros among them are left out
    in the end. `is_matrix`: `*` is a matrix product. With a known `pattern` (`patterns.py`) the
    elements are in SciPy's order. `given` are the elements it was made of, in another order: later
    writes to them count. `along`: the columns of elements, or the rows if it is `turned`.
    """

    __array_priority__ = 10.1  # as SciPy's: NumPy leaves operators and its ufuncs to this class
    __slots__ = ("_shape", "along", "format", "given", "is_matrix", "order", "ordered", "pattern",
                 "sifted", "starts", "turned")  # fmt: skip

    ndim = 2
    order: Any

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
            sparse.csr_array((1, 1)).asformat(format)  # raises SciPy's own error
        self.elements, self.along, self.starts = elements, indices, starts
        self._shape = int(shape[0]), int(shape[1])
        self.turned, self.format, self.is_matrix = turned, format, is_matrix
        self.ordered, self.sifted = ordered, sifted
        self.pattern: Any = None

    @classmethod
    def of_pattern(cls, pattern: Any, elements: Any, format: Any = None) -> Sparse:
        """The matrix of a known pattern with these elements, in SciPy's order. If `format` differs
        from the pattern's, the pattern in that format is unknown."""
        columns, starts = pattern.held
        format = format or pattern.format
        older, ordered = is_matrix(pattern.like), format == pattern.format and not pattern.sifted
        how = pattern.format == "csc", format, older, ordered, pattern.sifted
        made = Sparse(elements, columns, starts, pattern.shape, *how)
        made.pattern = pattern
        return made

    def as_scipys(self) -> tuple[Any, Any]:
        """The pattern, and the elements in SciPy's order."""
        if self.pattern is None:
            word = "matrix" if self.is_matrix else "array"
            raise refusal(
                f"a sparse {word} whose pattern may depend on what is traced or captured can't be "
                "a result. Return its toarray(), or the arrays that it is made of"
            )
        if self.pattern.format != self.format:
            name = self.kind.__name__
            raise refusal(f"a {name} with traced elements can't be a result. Return its tocsr()")
        return self.pattern, self.elements

    @property
    def shape(self) -> Any:
        return self._shape

    @property
    def held_shape(self) -> Any:
        """The shape of the matrix whose rows are stored: the transposed shape if it is `turned`."""
        return self._shape[::-1] if self.turned else self._shape

    @property
    def elements(self) -> Any:
        return self.given if self.order is None else self.given[self.order]

    @elements.setter
    def elements(self, x: Any) -> None:
        self.given, self.order = x, None

    def sharing(self, other: Sparse) -> Sparse:
        """The same matrix, which sees later writes to the elements of `other`."""
        self.given, self.order = other.given, other.order
        return self

    @property
    def dtype(self) -> Any:
        return self.given.dtype

    @property
    def data(self) -> Any:
        if self.order is not None:
            return self.given
        if not self.ordered:
            raise self._refused("data, once SciPy would put its elements in another order")
        return self.elements

    @data.setter
    def data(self, x: Any) -> None:
        if not isinstance(x, (np.ndarray, Tracer)) or x.shape != self.data.shape:
            raise self._refused("data that aren't an array of as many elements")
        self.given = x

    @property
    def nnz(self) -> int:
        if not self.ordered and self.order is None:
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
        if name == "kind" or name in Sparse.__slots__:  # not initialized yet
            raise AttributeError(name)
        if name in OF_PATTERNS.split() and self.pattern is not None and self.ordered:
            return deepcopy(getattr(self.pattern.like, name))
        if name == "indices" and self.format[:2] == "cs" and self.ordered:
            return self.along
        if name.startswith("__") or not hasattr(self.kind((1, 1)), name):
            raise AttributeError(f"a sparse matrix has no attribute {name!r}")
        if name in OF_ELEMENTS.split():
            return partial(self.mapped, getattr(np, name), name)
        raise self._refused(name)

    def _not_known(self, *args: Any) -> Any:
        raise self._refused("an assignment, a comparison or a loop")

    __setitem__ = __iter__ = __bool__ = __rpow__ = __rtruediv__ = _not_known
    __len__ = sparse.csr_array.__len__  # NumPy asks whether it is a list
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _not_known
    __hash__ = object.__hash__

    def with_elements(self, elements: Any) -> Sparse:
        """The matrix with other elements, in the order of its own."""
        if self.pattern is not None:
            return self.of_pattern(self.pattern, elements, self.format)
        given = elements, self.along, self.starts, self._shape
        return Sparse(*given, self.turned, self.format, self.is_matrix, self.ordered, self.sifted)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class that `isinstance` sees."""
        return self.kind if self.format in FORMATS else type(self)

    @property
    def kind(self) -> Any:
        """SciPy's class of this format."""
        return getattr(sparse, f"{self.format}_{'matrix' if self.is_matrix else 'array'}")

    def remade(
        self, elements: Any, rows: Any, columns: Any, shape: Any, sifted: bool = True
    ) -> Sparse:
        """A matrix of this class from elements, rows and columns; CSR for COO, as in SciPy."""
        how = "csr" if self.format == "coo" else self.format, self.is_matrix, sifted
        return from_list(elements, rows, columns, shape, *how)

    @unobserved
    def on_tape(self, *others: Any) -> tuple[Any, Any, Any]:
        """The elements and the pattern as operands, traced if one of `others` is."""
        given = (self.elements, self.along, self.starts, *others)
        elements, *pattern = (as_tracer(x, *given) for x in given[:3])
        order = None if self.pattern is None else self.pattern.order
        return elements if order is None else elements[order], *pattern  # type: ignore[return-value]

    @unobserved
    def with_listed(self, elements: Any) -> Sparse:
        """The matrix with other elements, in the order of `listed`."""
        place = None if self.pattern is None else self.pattern.place
        return self.with_elements(elements if place is None else elements[place])

    @unobserved
    def summed(self) -> Sparse:
        """The matrix with duplicate entries summed, in order. Its pattern must be known."""
        pattern, target = self.pattern.summed
        if pattern == self.pattern:
            return self
        elements = as_tracer(self.elements)
        elements = ScatterAdd((pattern.nnz,))(elements, as_tracer(target, elements))
        return self.of_pattern(pattern, elements, self.format)

    @unobserved
    def astype(self, dtype: Any, casting: str = "unsafe", copy: bool = True) -> Sparse:
        if np.dtype(dtype) == self.dtype:
            return self.copy() if copy else self
        if self.pattern is None:
            return self.with_elements(as_tracer(self.elements).astype(dtype))
        return self.copy().mapped(lambda x: x.astype(dtype), "astype")

    @unobserved
    def moved(self, function: Any) -> Sparse | None:
        """The result of a SciPy function that only moves elements; None if the moves are
        unknown."""
        found = None if self.pattern is None else self.pattern.moved(function)
        if found is None:
            return None
        pattern, numbers = found
        return self if numbers is None else self.of_pattern(pattern, self.elements[numbers])

    # ---- products

    def __matmul__(self, other: Any) -> Any:
        return self.times(other)

    dot = __matmul__

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
        if x.ndim == 1 and self.format == "coo" and not self.is_matrix and len(found) == 1:
            return found[0, 0]  # as in SciPy
        return found[:, 0] if x.ndim == 1 else found

    @property
    def parameters(self) -> Any:
        return self.held_shape, self.turned, self.sifted

    def _fits(self, count: int) -> None:
        if count != self._shape[1]:
            raise ValueError(f"matmul: dimension mismatch with signature (n,k={self._shape[1]})")

    def _by_sparse(self, other: Sparse) -> Any:
        self._fits(other.shape[0])
        if self.pattern is not None and other.pattern is not None:
            self, other = (x.summed() if x.pattern.has_repeats else x for x in (self, other))
            known = self.pattern.times(other.pattern)
        else:
            known = None
        if known is not None:
            pattern, one, two, target = known
            a, b = as_tracer(self.elements, other.elements), as_tracer(other.elements)
            products = as_tracer(a[one] * b[two], a)
            return self.of_pattern(pattern, ScatterAdd((pattern.nnz,))(products, target))
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
        if self.dtype != np.float64 and np.can_cast(self.dtype, np.float64):
            wide = self.astype(np.float64)
        return wide.scaled(1 / other)  # as SciPy does

    def __neg__(self) -> Sparse:
        return self.scaled(-1)

    @unobserved
    def multiply(self, other: Any) -> Sparse:
        """The product with an array, element by element."""
        if isinstance(other, Sparse) or sparse.issparse(other):
            if other.shape == self._shape:
                return self._by_elements(as_sparse(other))
            other = as_sparse(other).full("a product")
        if np.ndim(other) == 0:
            return self.scaled(other)
        if self.format == "coo" and self.pattern is not None:
            return self.asformat("csr").multiply(other)  # as SciPy does
        elements, rows, columns = self.listed(other)
        other = as_tracer(other, elements)
        if np.broadcast_shapes(self._shape, other.shape) != self._shape:
            raise ValueError("inconsistent shapes")
        there = np.broadcast_to(other, self._shape)[rows, columns]
        found = self.with_listed(self._times(elements, there))
        return found if self.pattern is None or other.size == 1 else found.asformat("coo")

    def _by_elements(self, other: Sparse) -> Sparse:
        """The elementwise product with another sparse matrix. An element that only the other
        matrix stores is multiplied by 0, which is NaN if it isn't finite."""
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
        other = other if as_sparse(other) is None else as_sparse(other)
        if isinstance(other, Sparse):
            if other.shape != self._shape:
                raise ValueError("inconsistent shapes")
            mine, its = self.listed(other.elements), other.listed(self.elements)
            rows, columns = (np.concatenate([mine[k], its[k]]) for k in (1, 2))
            elements = np.concatenate([sign * mine[0], of_other * its[0]])
            return self.remade(elements, rows, columns, self._shape)
        if np.ndim(other) == 0 and not any_traced([other]) and other == 0:
            return self.copy() if sign == 1 else self.scaled(-1)
        if np.ndim(other) == 0:
            raise NotImplementedError("adding a nonzero scalar to a sparse array is not supported")
        self._not_as_matrix("the sum with an array")
        return sign * self._dense(other) + of_other * other

    # ---- contents

    @unobserved
    def listed(self, *others: Any) -> tuple[Any, Any, Any]:
        """The elements, with their rows and their columns."""
        elements, indices, starts = self.on_tape(*others)
        if self.pattern is not None:
            indices, rows = self.along, rows_of(self.starts)
        else:
            rows = Rows(int(indices.shape[0]))(starts)
        return (elements, indices, rows) if self.turned else (elements, rows, indices)

    @unobserved
    def toarray(self) -> Any:
        return self._dense()

    def _dense(self, *others: Any) -> Any:
        return ScatterAdd(self._shape)(*self.listed(*others))

    def transpose(self, axes: Any = None, copy: bool = False) -> Sparse:
        copy = copy or self.format not in FORMATS
        found = self.moved(lambda x: x.transpose(copy=copy))
        other = {"csr": "csc", "csc": "csr"}.get(self.format, self.format)
        if found is not None:
            return self.of_pattern(found.pattern, found.elements, other)
        given = self.elements, self.along, self.starts, self._shape[::-1], not self.turned
        found = Sparse(*given, other, self.is_matrix, self.ordered, self.sifted)
        return found if copy else found.sharing(self)

    def asformat(self, format: Any, copy: bool = False, is_matrix: Any = None) -> Sparse:
        format = format or self.format
        is_matrix = self.is_matrix if is_matrix is None else is_matrix
        if (format, is_matrix) == (self.format, self.is_matrix):
            return self.copy() if copy else self
        copy = copy or format not in (self.format, "coo") or self.format not in (format, *FORMATS)
        if self.pattern is not None and format in FORMATS:
            if (format, is_matrix) == (self.pattern.format, self.is_matrix):
                return self.of_pattern(self.pattern, (self.copy() if copy else self).elements)
            kind = getattr(sparse, f"{format}_{'matrix' if is_matrix else 'array'}")
            found = self.moved(lambda x: kind(x, copy=copy))
            if found is not None:
                return found
            return from_list(*self.listed(), self._shape, format, is_matrix, self.sifted)
        elements, same = self.on_tape()[0], format == self.format
        held = self.along, self.starts, self._shape, self.turned, format, is_matrix
        found = Sparse(elements, *held, self.ordered and same, self.sifted)
        return found.copy() if copy else found.sharing(self) if same else found


# ---- constructors


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
    """The matrix of elements with their rows and columns."""
    given = elements, rows, columns
    if type(rows) is type(columns) is np.ndarray:
        known = format if format in FORMATS else "csr"
        pattern, target = pattern_at(rows, columns, shape, known, is_matrix, sifted)
        elements = as_tracer(elements, rows)
        if target is not None and pattern.nnz < len(target):
            elements = ScatterAdd((pattern.nnz,))(elements, as_tracer(target, elements))
        elif target is not None:
            elements = elements[np.argsort(target)]
        return Sparse.of_pattern(pattern, elements, format)
    elements, rows, columns = (as_tracer(x, *given) for x in given)
    order, starts = RowByRow(int(shape[0]))(rows)
    parts = elements[order], columns[order], starts, shape
    made = Sparse(*parts, False, format, is_matrix, False, sifted)
    if format == "coo":
        made.given, made.order = elements, order
    return made


class Held(Sparse):
    """One of SciPy's own matrices. Its arrays become operands beside a traced value."""

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
        if here is not None:  # attributes that aren't operands are guarded
            note = here.held_by([self.of])
        found = super().on_tape(*others)
        if note is not None:
            note(None)
        return found


def is_matrix(x: Any) -> bool:
    return not isinstance(x, sparse.sparray)


def as_sparse(x: Any) -> Any:
    """x as a `Sparse`; None if it isn't a sparse matrix."""
    return x if isinstance(x, Sparse) else Held(x) if sparse.issparse(x) else None
