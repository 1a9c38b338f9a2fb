"""Constructors of sparse matrices with traced elements: SciPy's classes and the functions that
combine matrices."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from tapegrad.extending import any_traced, at_line, refusal, stands_for
from tapegrad.extending.arrays import Tracer, as_tracer, raise_if, stacked
from tapegrad.scipy.sparse.matrices import Sparse, as_sparse, from_list

HOME = "scipy.sparse"
_LISTED = ("csr", "csc", "coo", "bsr")  # of elements with their rows and columns


def _made(format: str, is_matrix: bool, arg1: Any, shape: Any, copy: bool) -> Any:
    """The result of SciPy's constructor for its first argument."""
    if isinstance(arg1, Sparse):
        found = arg1.asformat(format, copy, is_matrix)
        return arg1.with_elements(arg1.elements).sharing(arg1) if found is arg1 else found
    if isinstance(arg1, Tracer):  # a matrix of SciPy's has two axes, also of a vector
        return of_dense(np.atleast_2d(arg1) if is_matrix else arg1, format, is_matrix)
    if isinstance(arg1, (tuple, list)) and len(arg1) == 2 and format in _LISTED:
        elements, pair = arg1
        places = [as_tracer(as_list(x), elements, *pair) for x in pair]
        if shape is None:
            shape = [int(np.max(x)) + 1 for x in places]
        for x, count in zip(places, shape, strict=True):
            outside = np.any(x >= count) | np.any(x < 0)
            raise_if(outside, f"an index exceeds matrix dimension {count}", ValueError)
        rows, columns = places
        elements = np.copy(elements) if copy else elements
        return from_list(elements, rows, columns, shape, format, is_matrix)
    if isinstance(arg1, (tuple, list)) and len(arg1) == 3 and format in ("csr", "csc"):
        elements, *given = (as_tracer(as_list(x), *arg1) for x in arg1)
        elements = np.copy(elements) if copy else elements
        count = int(given[1].shape[0]) - 1
        if shape is None:
            other = int(np.max(given[0], initial=-1)) + 1 if given[0].shape[0] else 0
            shape = (count, other) if format == "csr" else (other, count)
        if count != shape[format == "csc"]:
            raise ValueError(f"index pointer size {count + 1} should be {shape[0] + 1}")
        pattern = given[0], given[1]
        return Sparse(elements, *pattern, shape, format == "csc", format, is_matrix)
    if isinstance(arg1, (tuple, list)) and len(arg1) == 3 and format == "bsr":
        return _of_blocks(arg1, shape, is_matrix)
    if isinstance(arg1, (tuple, list)) and len(arg1) == 2 and format == "dia":
        return _of_columns(arg1[0], arg1[1], shape, is_matrix)
    raise refusal(
        f"{format}_{'matrix' if is_matrix else 'array'} of this with traced values isn't supported"
        f"{at_line()}. Use csr_array((data, (rows, columns)), shape)"
    )


def _of_blocks(given: Any, shape: Any, is_matrix: bool) -> Sparse:
    """The matrix of blocks, stored row by row. Like SciPy's, it sees later writes to the blocks."""
    data, columns, starts = map(as_list, given)
    count, m, n = data.shape
    if type(columns) is not np.ndarray or type(starts) is not np.ndarray:
        raise refusal(f"a bsr_array whose pattern is computed can't be traced{at_line()}")
    along = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if len({*zip(along, columns, strict=True)}) < count:
        raise refusal(f"a bsr_array with repeated blocks can't be traced{at_line()}. Add them up")
    if shape is None:
        shape = (len(starts) - 1) * m, (int(np.max(columns, initial=-1)) + 1) * n
    block, i, j = (x.reshape(-1) for x in np.indices((count, m, n)))
    rows, at = along[block] * m + i, columns[block] * n + j
    made = from_list(data[block, i, j], rows, at, shape, "bsr", is_matrix)
    order = np.lexsort((at, rows))
    made.given, made.order = data, tuple(x[order] for x in (block, i, j))
    return made


def _of_columns(data: Any, offsets: Any, shape: Any, is_matrix: bool) -> Sparse:
    """The matrix whose diagonals are the rows of `data`, each element in its own column. Like
    SciPy's, it sees later writes to `data`."""
    data = np.atleast_2d(as_list(data))
    at = [int(k) for k in np.atleast_1d(offsets)]
    if shape is None:
        raise ValueError("expected a shape argument")
    if data.ndim != 2 or len(data) != len(at):
        raise ValueError(f"number of diagonals ({len(data)}) does not match offsets ({len(at)})")
    if len(set(at)) != len(at):
        raise ValueError("offset array contains duplicate values")
    m, n = shape
    reach = np.arange(min(n, data.shape[1]))
    columns = [reach[max(0, k) : max(0, m + k)] for k in at]
    places = np.repeat(np.arange(len(at)), [len(x) for x in columns]), np.concatenate(columns)
    rows = np.concatenate([x - k for x, k in zip(columns, at, strict=True)])
    made = from_list(data[places], rows, places[1], shape, "dia", is_matrix)
    order = np.lexsort((places[1], rows))  # row by row
    made.given, made.order = data, tuple(x[order] for x in places)
    return made


def as_list(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, (list, tuple)) and not any_traced(x) else stacked(x)


def of_dense(x: Any, format: str = "csr", is_matrix: bool = False) -> Sparse:
    """A sparse matrix of all elements of an array, zeros included."""
    if x.ndim != 2:
        raise refusal(
            f"a sparse array of {x.ndim} axes with traced values isn't supported{at_line()}. Use "
            "one of two axes"
        )
    m, n = x.shape
    rows, columns = np.divmod(np.arange(m * n), n)
    return from_list(x.flatten(), rows, columns, x.shape, format, is_matrix, sifted=True)


def _declare_class(format: str, is_matrix: bool) -> None:
    def made(arg1: Any, shape: Any = None, dtype: Any = None, copy: bool = False) -> Any:
        found = _made(format, is_matrix, arg1, shape, copy)
        return found if dtype is None else found.with_elements(found.elements.astype(dtype))

    stands_for(HOME, f"{format}_{'matrix' if is_matrix else 'array'}", lists="arg1")(made)


for _format in ("csr", "csc", "coo", "bsr", "dia", "dok", "lil"):
    _declare_class(_format, False)
    _declare_class(_format, True)


# ---- combinations of matrices


def _of_a_type(function: Callable[..., Any]) -> Any:
    """A function with an additional parameter `dtype`, as SciPy's has, for the elements."""

    @functools.wraps(function)
    def made(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return found if dtype is None else found.with_elements(found.elements.astype(dtype))

    signature = inspect.signature(function)
    own = inspect.Parameter("dtype", inspect.Parameter.KEYWORD_ONLY, default=None)
    made.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), own]
    )
    return made


def _parts(blocks: Any) -> list[Any]:
    """Blocks converted to sparse matrices."""
    found, others = [], [x.elements if isinstance(x, Sparse) else x for x in blocks]
    for block in blocks:
        x = as_sparse(block)
        if x is None:
            x = of_dense(as_tracer(np.atleast_2d(block), *others), "coo", False)
        found.append(x)
    return found


def _all_matrices(blocks: Any) -> bool:
    return not any(isinstance(x, (Sparse, sparse.sparray)) and not is_older(x) for x in blocks)


def is_older(x: Any) -> bool:
    return x.is_matrix if isinstance(x, Sparse) else not isinstance(x, sparse.sparray)


def _joined(blocks: Any, places: Any, shape: Any, format: Any) -> Sparse:
    """The matrix of blocks at `places`, the positions of their upper left corners."""
    parts = _parts(blocks)
    elements, rows, columns = [], [], []
    everything = [x.elements for x in parts]
    for part, (row, column) in zip(parts, places, strict=True):
        e, i, j = part.listed(*everything)
        elements.append(e)
        rows.append(i + row)
        columns.append(j + column)
    lists = [np.concatenate(x) for x in (elements, rows, columns)]
    how = format or "coo", _all_matrices(blocks), any(x.sifted for x in parts)
    return from_list(lists[0], lists[1], lists[2], shape, *how)


def _shapes(blocks: Any) -> list[Any]:
    return [x.shape if hasattr(x, "shape") and len(x.shape) == 2 else np.atleast_2d(x).shape
            for x in blocks]  # fmt: skip


def _one_format(blocks: Any) -> Any:
    """The format of the blocks if all are csr or all are csc, which SciPy keeps; else None."""
    found = {getattr(x, "format", None) for x in blocks}
    return found.pop() if found in ({"csr"}, {"csc"}) else None


@stands_for(HOME, lists="blocks")
@_of_a_type
def vstack(blocks: Any, format: Any = None) -> Any:
    """Blocks one below the other."""
    shapes = _shapes(blocks)
    if len({n for _, n in shapes}) != 1:
        raise ValueError("incompatible dimensions for axis 1")
    starts = np.cumsum([0, *[m for m, _ in shapes]])
    places = [(int(start), 0) for start in starts[:-1]]
    return _joined(blocks, places, (starts[-1], shapes[0][1]), format or _one_format(blocks))


@stands_for(HOME, lists="blocks")
@_of_a_type
def hstack(blocks: Any, format: Any = None) -> Any:
    """Blocks side by side."""
    shapes = _shapes(blocks)
    if len({m for m, _ in shapes}) != 1:
        raise ValueError("incompatible dimensions for axis 0")
    starts = np.cumsum([0, *[n for _, n in shapes]])
    places = [(0, int(start)) for start in starts[:-1]]
    return _joined(blocks, places, (shapes[0][0], starts[-1]), format or _one_format(blocks))


@stands_for(HOME, lists="mats")
@_of_a_type
def block_diag(mats: Any, format: Any = None) -> Any:
    """The block diagonal matrix."""
    corners = np.cumsum([(0, 0), *_shapes(mats)], axis=0)
    places = [tuple(map(int, corner)) for corner in corners[:-1]]
    return _joined(mats, places, corners[-1], format)


@stands_for(HOME)
def kron(A: Any, B: Any, format: Any = None) -> Any:
    """The block matrix with the blocks a_ij B."""
    a, b = _parts([A, B])
    (e, i, j), (f, k, m) = a.listed(b.elements), b.listed(a.elements)

    def each(x: Any, y: Any) -> Any:
        return np.reshape(x[:, None] + y, -1)

    rows, columns = each(i * b.shape[0], k), each(j * b.shape[1], m)
    shape = a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]
    how = format or "coo", _all_matrices([A, B]), a.sifted or b.sifted
    return from_list(np.reshape(e[:, None] * f, -1), rows, columns, shape, *how)


def _blocks(blocks: Any, format: Any) -> Sparse:
    """The matrix of blocks in rows and columns; None is a block of zeros."""
    if not len({len(row) for row in blocks}) == 1 or not len(blocks[0]):
        raise ValueError("blocks must be 2-D")
    heights, widths = np.zeros(len(blocks), int), np.zeros(len(blocks[0]), int)
    known, at = [], []
    for i, row in enumerate(blocks):
        for j, block in enumerate(row):
            if block is None:
                continue
            (m, n), before = _shapes([block])[0], (heights[i], widths[j])
            if (before[0] and before[0] != m) or (before[1] and before[1] != n):
                raise ValueError(f"blocks[{i},{j}] has incompatible dimensions")
            heights[i], widths[j] = m, n
            known.append(block)
            at.append((i, j))
    top, left = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (heights, widths))
    places = [(int(top[i]), int(left[j])) for i, j in at]
    return _joined(known, places, (top[-1], left[-1]), format)


@stands_for(HOME, lists="blocks")
@_of_a_type
def bmat(blocks: Any, format: Any = None) -> Any:
    """The matrix of these blocks."""
    return _blocks(blocks, format)


@stands_for(HOME)
def kronsum(A: Any, B: Any, format: Any = None) -> Any:
    """kron(I, A) + kron(B, I)."""
    m, n = _shapes([A, B])
    inner = kron(sparse.eye_array(n[0]), A) if any_traced([A]) else sparse.kron(np.eye(n[0]), A)
    outer = kron(B, sparse.eye_array(m[0])) if any_traced([B]) else sparse.kron(B, np.eye(m[0]))
    found = as_sparse(inner) + outer
    return found.asformat(format or "coo", is_matrix=_all_matrices([A, B]))


def _triangle(A: Any, function: Any, k: int, format: Any) -> Any:
    found = A.moved(lambda x: function(x, k))
    if found is None:
        found = A.triangle(k, function is sparse.tril)
    return found.asformat(format or "coo")


@stands_for(HOME)
def tril(A: Any, k: Any = 0, format: Any = None) -> Any:
    """The part of A on and below diagonal k."""
    return _triangle(_parts([A])[0], sparse.tril, int(k), format)


@stands_for(HOME)
def triu(A: Any, k: Any = 0, format: Any = None) -> Any:
    """The part of A on and above diagonal k."""
    return _triangle(_parts([A])[0], sparse.triu, int(k), format)


def _diagonals(diagonals: Any, offsets: Any, shape: Any, format: Any, older: bool) -> Any:
    if np.ndim(offsets) == 0:
        given, offsets = [np.atleast_1d(stacked(diagonals))], [offsets]
    else:
        given = [np.atleast_1d(x) for x in diagonals]
    if any(x.ndim != 1 for x in given):
        raise ValueError("Different number of diagonals and offsets.")
    offsets = [int(k) for k in offsets]
    if len(given) != len(offsets):
        raise ValueError(f"Different number of diagonals ({len(given)}) and offsets")
    if shape is None:
        n = int(given[0].shape[0]) + abs(offsets[0])
        shape = n, n
    m, n = shape
    elements, rows, columns = [], [], []
    for d, k in zip(given, offsets, strict=True):
        first, count = (max(0, -k), max(0, k)), min(m + min(k, 0), n - max(k, 0))
        if count < 0 or d.shape[0] not in (1, count):
            raise ValueError(f"Diagonal length (index {k}) does not agree with array size")
        others = [x for x in given if isinstance(x, Tracer)]
        elements.append(np.broadcast_to(as_tracer(d, *others), (count,)))
        rows.append(first[0] + np.arange(count))
        columns.append(first[1] + np.arange(count))
    lists = [np.concatenate(x) for x in (elements, rows, columns)]
    return from_list(lists[0], lists[1], lists[2], shape, format or "dia", older)


@stands_for(HOME, lists="diagonals", parameters="offsets")
@_of_a_type
def diags(diagonals: Any, offsets: Any = 0, shape: Any = None, format: Any = None) -> Any:
    """The matrix with these diagonals."""
    return _diagonals(diagonals, offsets, shape, format, True)


if hasattr(sparse, "diags_array"):

    @stands_for(HOME, lists="diagonals", parameters="offsets")
    @_of_a_type
    def diags_array(diagonals: Any, offsets: Any = 0, shape: Any = None, format: Any = None) -> Any:
        """The array with these diagonals."""
        return _diagonals(diagonals, offsets, shape, format, False)


if hasattr(sparse, "block_array"):

    @stands_for(HOME, lists="blocks")
    @_of_a_type
    def block_array(blocks: Any, *, format: Any = None) -> Any:
        """The array of these blocks."""
        found = _blocks(blocks, format)
        return found.asformat(found.format, is_matrix=False)


@stands_for(HOME, parameters="diags m n", lists="m")
def spdiags(data: Any, diags: Any, m: Any = None, n: Any = None, format: Any = None) -> Any:
    """The matrix whose diagonals are the rows of `data`, each element in its own column."""
    if n is None:
        m, n = (np.atleast_2d(data).shape[1],) * 2 if m is None else m
    return _of_columns(data, diags, (m, n), True).asformat(format)


@stands_for(HOME)
def issparse(x: Any) -> bool:
    """Whether x is a sparse matrix with traced elements."""
    return isinstance(x, Sparse)
