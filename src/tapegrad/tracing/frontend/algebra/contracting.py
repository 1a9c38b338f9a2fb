"""Products with sums: dot, matmul, tensordot, einsum and their relatives, each as one contraction
or several."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib import NumpyVersion
from numpy.lib.array_utils import normalize_axis_tuple

from tapegrad.core.values import Aval, Slice
from tapegrad.primitives.complexes import conjugated
from tapegrad.primitives.contractions import contract, times
from tapegrad.primitives.contractions import matmul as product_of_matrices
from tapegrad.primitives.multilinear import (
    Term,
    empty_product,
    from_zero,
    stepwise,
)
from tapegrad.primitives.views import Diagonal, GetItem, Reshape, Squeeze
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import copy_of, scalar
from tapegrad.tracing.frontend.operands.operands import as_tracer, cast, store
from tapegrad.tracing.frontend.shapes.shaping import moveaxis
from tapegrad.tracing.recording.layout import lay_out
from tapegrad.tracing.tracers.tracer import Tracer


def _pair(x: Any, y: Any) -> tuple[Tracer, Tracer]:
    """Both operands, traced and in their common dtype."""
    x, y = as_tracer(x, y), as_tracer(y, x)
    dtype = np.result_type(x.dtype, y.dtype)
    return cast(x, dtype), cast(y, dtype)


def _done(result: Any, out: Any) -> Any:
    return result if out is None else store(out, result)


def _single(a: Any, b: Any, shape: tuple[int, ...]) -> Any:
    """The product of two arrays of one element. NumPy adds nothing to it, so -0.0 is kept."""
    return Reshape(shape)(times(a.dtype)(Reshape(())(a), Reshape(())(b)))


def _multiple(a: Any, b: Any) -> Any:
    """The product with a scalar. NumPy adds it to 0.0 where it calls BLAS, so -0.0 becomes 0.0."""
    product = times(a.dtype)(a, b)
    return from_zero(product) if product.ndim <= 2 and product.size > 1 else product


def matmul(x: Any, y: Any, out: Any = None) -> Any:
    """np.matmul, the operator `@`."""
    x, y = _pair(x, y)
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError("matmul: Input operand does not have enough dimensions (has 0)")
    inner = y.shape[-2] if y.ndim > 1 else y.shape[0]
    if x.shape[-1] != inner:
        raise ValueError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0 (size "
            f"{inner} is different from {x.shape[-1]}): {x.shape} @ {y.shape}"
        )
    return _done(product_of_matrices(x, y), out)


@stands_for(np, np.ndarray, of_complex=True)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """np.dot."""
    a, b = _pair(a, b)
    if out is not None:  # unlike other functions, np.dot doesn't cast or broadcast the result
        shape = np.dot(np.empty(a.shape, bool), np.empty(b.shape, bool)).shape
        if (out.shape, out.dtype) != (shape, a.dtype):
            raise ValueError(
                "output array is not acceptable (must have the right datatype, number of "
                "dimensions, and be a C-Array)"
            )
    if a.ndim == 0 or b.ndim == 0:
        return _done(_multiple(a, b), out)
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(
            f"shapes {_show(a)} and {_show(b)} not aligned: {a.shape[-1]} (dim {a.ndim - 1}) != "
            f"{b.shape[-2 if b.ndim > 1 else 0]} (dim {max(b.ndim - 2, 0)})"
        )
    if b.ndim <= 2 and a.ndim <= 2:
        if a.shape[-1] == 1 and a.size == b.size == 1:  # nothing is added, so -0.0 is kept
            return _done(scalar(_single(a, b, (*a.shape[:-1], *b.shape[1:]))), out)
        return matmul(a, b, out)
    return _done(tensordot(a, b, ((a.ndim - 1,), (max(b.ndim - 2, 0),))), out)


def _show(x: Any) -> str:
    return "(" + ",".join(map(str, x.shape)) + ("," if x.ndim == 1 else "") + ")"


def matvec(a: Any, x: Any) -> Any:
    """np.matvec."""
    a, x = _pair(a, x)
    if a.ndim < 2 or x.ndim < 1:
        np.matvec(np.empty(a.shape), np.empty(x.shape))  # NumPy's own error
    return np.matmul(a, x[..., None])[..., 0]


def vecmat(x: Any, a: Any) -> Any:
    """np.vecmat."""
    x, a = _pair(x, a)
    if a.ndim < 2 or x.ndim < 1:
        np.vecmat(np.empty(x.shape), np.empty(a.shape))  # NumPy's own error
    return np.matmul(conjugated(x)[..., None, :], a)[..., 0, :]


@stands_for(np, of_complex=True)
def vdot(a: Any, b: Any) -> Any:
    """np.vdot."""
    a, b = _pair(a, b)
    return matmul(conjugated(a).reshape(-1), b.reshape(-1))


def vecdot(x1: Any, x2: Any, axis: int = -1) -> Any:
    """np.vecdot."""
    x, y = moveaxis(as_tracer(x1, x2), axis, -1), moveaxis(as_tracer(x2, x1), axis, -1)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"vecdot: the vectors' lengths differ: {x.shape[-1]} and {y.shape[-1]}")
    product = np.multiply(conjugated(x), y)
    return np.sum(product, axis=-1, dtype=product.dtype)


@stands_for(np, of_complex=True)
def inner(a: Any, b: Any) -> Any:
    """np.inner."""
    a, b = _pair(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return _multiple(a, b)
    if a.ndim == b.ndim == a.size == b.size == 1:
        return scalar(_single(a, b, ()))
    return scalar(tensordot(a, b, ((a.ndim - 1,), (b.ndim - 1,))))


@stands_for(np, of_complex=True)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """np.tensordot."""
    a, b = _pair(a, b)
    if np.ndim(axes) == 0:
        n = int(axes)
        axes_a, axes_b = tuple(range(a.ndim - n, a.ndim)), tuple(range(n))
    else:
        axes_a = normalize_axis_tuple(axes[0], a.ndim)
        axes_b = normalize_axis_tuple(axes[1], b.ndim)
    if [a.shape[k] for k in axes_a] != [b.shape[k] for k in axes_b]:
        raise ValueError("shape-mismatch for sum")
    rest = a.ndim + b.ndim - len(axes_a) - len(axes_b)
    if rest and a.size == b.size == 1:
        return _single(a, b, (1,) * rest)
    labels_a = [*range(a.ndim)]
    labels_b = [*range(a.ndim, a.ndim + b.ndim)]
    for i, j in zip(axes_a, axes_b, strict=True):
        labels_b[j] = labels_a[i]
    free = [k for k in labels_a if k not in labels_b] + [k for k in labels_b if k not in labels_a]
    result = contract(a, b, labels_a, labels_b, free)
    if not axes_a and result.size > 1:
        result = from_zero(result)
    return result if free else copy_of(result)  # a 0-d array, where other products return scalars


# ---- einsum

# In its steps of two operands, NumPy first sums axes that only one of them has, and keeps -0.0
# where nothing is summed.
PAIRED = NumpyVersion(np.__version__) >= "2.4.0"


@stands_for(np, of_complex=True)
def einsum(
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    order: str = "K",
    casting: Any = "safe",
    optimize: Any = False,
) -> Any:
    """np.einsum. The products of all operands are summed, or, with `optimize`, those of each step
    of NumPy's path. Sums start with 0.0, also those of one product."""
    inputs, output, arrays = _parse_einsum(operands)
    path = _path(inputs, output, arrays, optimize)
    arrays = [as_tracer(x, *arrays) for x in arrays]
    if dtype is None:
        dtype = np.result_type(*[x.dtype for x in arrays])
    for x in arrays:
        if not np.can_cast(x.dtype, dtype, casting):
            raise TypeError(
                f"einsum: an operand can't be cast from {x.dtype!r} to {np.dtype(dtype)!r} "
                f"according to the rule {casting!r}"
            )
    terms = [_diagonals(cast(x, dtype), list(s)) for x, s in zip(arrays, inputs, strict=True)]
    terms = _without_stretched(terms)
    if any(0 in x.shape for x, _ in terms):
        terms = [empty_product(terms)]
    labels = [k for k in output if any(k in mine for _, mine in terms)]
    steps = path if path and len(terms) > 1 else [range(len(terms))]
    in_pairs = path is not None and PAIRED and len(terms) > 1
    if in_pairs:
        terms = [_without_units(term, output) for term in terms]
    x, summed = stepwise(terms, steps, labels, whole=3 if in_pairs else 2)
    begun = summed or len(arrays) == 1 or (in_pairs and len(steps[-1]) == 2)
    x = x if begun else from_zero(x)
    missing = [k for k in output if k not in labels]
    if missing:
        raise ValueError(
            f"einstein sum subscripts string included output subscript {missing[0]!r} "
            "which never appeared in an input"
        )
    if len(arrays) == 1 and out is None and {*inputs[0]} == {*output}:  # a view, in any order
        return _writable(x, arrays[0], f"{inputs[0]}->{output}")
    return lay_out(_done(x, out), order if out is None else "K")


def _writable(view: Any, x: Any, text: str) -> Any:
    """The view of `x` by an einsum without sums, made writable: diagonals are included, which
    np.diagonal returns read-only."""
    root = view._root
    if root is None:
        return view
    chain: list[Any] = []
    shape = root.shape
    for each in view._chain:
        below = [each]
        if isinstance(each, Diagonal) and each not in x._chain:
            *batch, n, _ = shape
            whole = tuple(Slice(0, m, 1) for m in batch)
            below = [Reshape((*batch, n * n)), GetItem((*whole, Slice(0, n, n + 1)))]
        chain += below
        for part in below:
            shape = part.aval(Aval(shape, root.dtype)).shape
    value = x._read()[1]
    view._chain = tuple(chain)
    view._value = None if value is None else np.einsum(text, value)
    return view


def _path(inputs: list[str], output: str, arrays: list[Any], optimize: Any) -> Any:
    """The steps of NumPy's contraction path, each with its operands in descending order; None if
    all operands are contracted at once."""
    if optimize is False:
        return None
    shapes = [np.broadcast_to(np.float64(0), np.shape(x)) for x in arrays]
    path, _ = np.einsum_path(",".join(inputs) + "->" + output, *shapes, optimize=optimize)
    return [sorted(step, reverse=True) for step in path[1:]]


def _parse_einsum(operands: Sequence[Any]) -> tuple[list[str], str, list[Any]]:
    """The operands' subscripts with every Ellipsis expanded, the output's, and the arrays."""
    from opt_einsum.parser import convert_interleaved_input, parse_einsum_input

    if isinstance(operands[0], str):
        text, *arrays = operands
    else:
        arrays = list(operands[: len(operands) // 2 * 2 : 2])
        text, _ = convert_interleaved_input(operands)
    shapes = [np.shape(x) for x in arrays]
    left, output, _ = parse_einsum_input((text, *shapes), shapes=True)
    inputs = left.split(",")
    for subscripts, shape in zip(inputs, shapes, strict=True):
        if len(subscripts) != len(shape):
            raise ValueError(
                f"einstein sum subscripts string {subscripts!r} has {len(subscripts)} subscripts, "
                f"and its operand has {len(shape)} dimensions"
            )
    return inputs, output, arrays


def _without_stretched(terms: list[Term]) -> list[Term]:
    """Drop axes of extent 1 whose subscript has a larger extent elsewhere: they are broadcast."""
    extents: dict[str, int] = {}
    for x, labels in terms:
        for label, n in zip(labels, x.shape, strict=True):
            if extents.setdefault(label, n) == 1:
                extents[label] = n
    done = []
    for x, labels in terms:
        unit = tuple(a for a, k in enumerate(labels) if x.shape[a] == 1 != extents[k])
        x = Squeeze(unit)(x) if unit else x
        done.append(Term(x, [k for a, k in enumerate(labels) if a not in unit]))
        for label, n in zip(done[-1][1], x.shape, strict=True):
            if n != extents[label]:
                raise ValueError(
                    f"operands could not be broadcast together: the subscript {label!r} has the "
                    f"extents {n} and {extents[label]}"
                )
    return done


def _without_units(term: Term, output: str) -> Term:
    """The term without summed axes of extent 1."""
    x, labels = term
    unit = tuple(a for a, k in enumerate(labels) if x.shape[a] == 1 and k not in output)
    kept = [k for a, k in enumerate(labels) if a not in unit]
    return Term(Squeeze(unit)(x), kept) if unit else term


def _diagonals(x: Any, labels: list[str]) -> Term:
    """Replace a repeated subscript of an operand by its diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ValueError(
                    f"einsum: the dimensions for the index {label!r} don't match "
                    f"({x.shape[i]} != {x.shape[j]})"
                )
            x = Diagonal(0)(moveaxis(x, (i, j), (-2, -1)))
            labels = [k for n, k in enumerate(labels) if n not in (i, j)] + [label]
    return Term(x, labels)


# ---- vectors


# The lengths of vectors that have a cross product.
_CROSSED = {3} if NumpyVersion(np.__version__) >= "2.5.0" else {2, 3}


@stands_for(np, of_complex=True)
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    """np.cross. The third component of vectors with two components is 0."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = _pair(a, b)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError("At least one array has zero dimension")
    x, y = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    m, n = x.shape[-1], y.shape[-1]
    if not {m, n} <= _CROSSED:
        np.cross(np.zeros(m), np.zeros(n))  # NumPy's own error
    if 2 in (m, n):
        warnings.warn(
            "Arrays of 2-dimensional vectors are deprecated. Use arrays of 3-dimensional vectors "
            "instead. (deprecated in NumPy 2.0)",
            DeprecationWarning,
            stacklevel=4,
        )

    def part(i: int, j: int) -> Any:
        """x_i y_j - x_j y_i, with a missing third component as 0."""
        first: Any = x[..., i] * y[..., j] if i < m and j < n else None
        second: Any = x[..., j] * y[..., i] if j < m and i < n else None
        if first is None:
            return -second
        return first if second is None else first - second

    if m == n == 2:
        return copy_of(part(0, 1))
    return moveaxis(np.stack([part(1, 2), part(2, 0), part(0, 1)], -1), -1, axisc)
