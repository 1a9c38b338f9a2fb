"""Sparse matrices as pytrees: a matrix has one leaf, its stored elements. Its pattern belongs to
the structure, as a DataFrame's labels do.

Patterns are compared by their contents. So operations on a pattern need no guard while tracing,
and derivatives along a matrix are matrices of the same class with the same pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from tapegrad.errors import ArgumentError
from tapegrad.extending.arrays import Tracer
from tapegrad.extending.tables import Functions, Keyed, declare
from tapegrad.scipy.sparse.matrices import Held, Sparse
from tapegrad.scipy.sparse.patterns import FORMATS, arrays_of, pattern_of


class Whole(Keyed):
    """A sparse array that is compared as a whole: one with a single axis, or of objects."""

    def __init__(self, of: Any) -> None:
        self.of = of
        arrays = [of.data, *arrays_of(of)]
        self.key = type(of), of.shape, *[(a.dtype, a.tobytes()) for a in arrays]

    def __repr__(self) -> str:
        return f"a {type(self.of).__name__} of {self.of.ndim} axes and dtype {self.of.dtype}"


class SparseTemplate:
    """A matrix of SciPy's whose elements may be replaced by other leaves."""

    def __init__(self, pattern: Any, elements: Any) -> None:
        self.pattern, self.elements = pattern, elements


def stood_in(x: Any) -> SparseTemplate:
    """The `SparseTemplate` of a matrix, SciPy's or a traced one."""
    if isinstance(x, Sparse):
        return SparseTemplate(*x.as_scipys())
    if x.ndim != 2 or x.dtype.kind not in "fciub":
        return SparseTemplate(None, Whole(x))
    return SparseTemplate(pattern_of(x), x.data)


def taken_apart(x: Any) -> tuple[list[Any], Any]:
    """The leaf of a matrix, its elements, and its pattern."""
    held = x if isinstance(x, SparseTemplate) else stood_in(x)
    return [held.elements], held.pattern


def put_together(pattern: Any, branches: Sequence[Any]) -> Any:
    """The matrix of a pattern and elements: a SciPy matrix, or a traced one."""
    (x,) = branches
    if pattern is None:
        return x.of if isinstance(x, Whole) else x
    if x is None:  # integers have no cotangent
        return None
    if isinstance(x, (np.ndarray, np.generic, Tracer)) and x.shape != (pattern.nnz,):
        raise ArgumentError(
            f"a {pattern!r} would get elements of shape {x.shape}. A function of many rows, and a "
            "derivative that has more axes than the matrix, is one of its elements: pass S.data, "
            "and make the matrix of that in the function"
        )
    if isinstance(x, Tracer):
        return Sparse.of_pattern(pattern, x)
    if isinstance(x, np.ndarray):
        return pattern.filled(x)
    return SparseTemplate(pattern, x)


def key_of(cls: type, pattern: Any) -> Any:
    return pattern


def names_of(pattern: Any) -> list[str]:
    """The names of the leaves in messages: none of their own."""
    return [""]


_OWN = Functions(taken_apart, put_together, key_of, names_of, called=True)
_OTHERS = Functions(taken_apart, put_together, key_of, names_of, stood_in, called=True)
declare(SparseTemplate, _OWN)
declare(Sparse, _OTHERS)
declare(Held, _OTHERS)


def how(cls: Any) -> Any:
    """The tree functions of one of SciPy's sparse classes; None for other classes."""
    names = [f"{f}_{kind}" for f in FORMATS for kind in ("array", "matrix")]
    return _OTHERS if cls in [getattr(sparse, name) for name in names] else None
