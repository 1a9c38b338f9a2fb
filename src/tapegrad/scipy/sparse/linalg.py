"""Traceable versions of the functions of scipy.sparse.linalg.

A solution is SciPy's, and is differentiated by the implicit function theorem: along the right side
and the matrix's elements. It doesn't depend on the start of an iteration. The backward pass reuses
the LU factors.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as solvers

from tapegrad.extending import (
    Untraced,
    answering,
    any_traced,
    at_line,
    declare,
    observed,
    refusal,
    stands_for,
    unobserved,
)
from tapegrad.extending.arrays import Tracer, as_tracer, cast
from tapegrad.extending.primitives import ExpmProduct, Iterated, Solve, Unfinished, stop_gradient
from tapegrad.scipy.sparse import iterations
from tapegrad.scipy.sparse.making import of_dense
from tapegrad.scipy.sparse.matrices import Held, Sparse, as_sparse
from tapegrad.scipy.sparse.operators import is_operator

HOME = "scipy.sparse.linalg"

REFUSED = {
    "eigs lobpcg": "eigsh, or scipy.linalg.eigh of S.toarray()",
    "expm funm_multiply_krylov": "expm_multiply, as a function of the vector",
    "inv": "spsolve with the vectors that the inverse is multiplied with",
    "spilu": "splu",
}


def _matrix(A: Any, *others: Any) -> Sparse:
    """The matrix of a system as `Sparse`: a sparse one, or all elements of an array."""
    found = as_sparse(A)
    if found is None:
        if not isinstance(A, (np.ndarray, Tracer, list)) or np.ndim(A) != 2:
            raise refusal(
                f"a system with a {type(A).__name__} isn't supported with traced values"
                f"{at_line()}. Use a sparse matrix, or an array"
            )
        found = of_dense(as_tracer(np.asarray(A) if isinstance(A, list) else A, *others))
    if found.shape[0] != found.shape[1]:
        raise ValueError(f"matrix must be square (has shape {found.shape})")
    return found


def _operands(A: Sparse, b: Any, *others: Any) -> tuple[list[Any], Any]:
    """The operands of a solver: elements, pattern and columns; and whether `b` is a single vector.
    They are on the trace of these operands or of `others`."""
    if isinstance(b, Sparse) or sparse.issparse(b):
        raise refusal(
            f"a sparse right side isn't supported with traced values{at_line()}. Use an array"
        )
    b = np.asarray(b) if isinstance(b, (list, tuple)) else b
    elements, indices, starts = A.on_tape(b, *others)
    b = as_tracer(b, elements)
    if b.ndim not in (1, 2) or b.shape[0] != A.shape[0]:
        raise ValueError(f"matrix - rhs dimension mismatch ({A.shape} - {b.shape})")
    kind = np.result_type(elements.dtype, b.dtype, np.float32)
    kind = kind if kind.kind in "fc" else np.dtype(float)
    columns = b[:, None] if b.ndim == 1 else b
    return [cast(elements, kind), indices, starts, cast(columns, kind)], b.ndim == 1


def _solved(A: Sparse, b: Any, transposed: bool = False, conjugate: bool = False) -> Any:
    if conjugate:
        A = A.conjugate()
    operands, alone = _operands(A, b)
    x = Solve(A.held_shape, A.turned != transposed)(*operands)
    return x[:, 0] if alone else x


# ---- by LU factors


@stands_for(HOME)
def spsolve(A: Any, b: Any, permc_spec: Any = None, use_umfpack: bool = True) -> Any:
    """The x with A x = b. Like SciPy, it returns a vector for one column."""
    x = _solved(_matrix(A, b), b)
    return x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x


@stands_for(HOME)
def spsolve_triangular(A: Any, b: Any, lower: bool = True, unit_diagonal: bool = False) -> Any:
    """The x with A x = b, for a triangular matrix."""
    A = _matrix(A, b)
    elements, rows, columns = A.listed(b)
    if np.any((columns > rows) if lower else (columns < rows)):
        raise np.linalg.LinAlgError("A is not triangular")
    if unit_diagonal:
        A = A.with_listed(np.where(rows == columns, 1, elements))
    x = _solved(A, b)
    if np.any(np.isnan(x)):
        raise np.linalg.LinAlgError("A is singular: zero entry on diagonal.")
    return x


class Factored:
    """The result of `splu` for a matrix with traced elements."""

    def __init__(self, A: Sparse) -> None:
        self.A, self.shape = A, A.shape

    def __getattr__(self, name: str) -> Any:
        if name not in vars(solvers.SuperLU):
            raise AttributeError(f"'SuperLU' object has no attribute {name!r}")
        raise refusal(
            f"{name} of the factors that splu finds of traced elements isn't supported{at_line()}. "
            "Use their solve, or scipy.linalg.lu of A.toarray()"
        )

    def solve(self, rhs: Any, trans: Any = "N") -> Any:
        return _solved(self.A, rhs, trans in ("T", "H"), trans == "H")


@stands_for(HOME)
def splu(A: Any, **how: Any) -> Any:
    """The LU factorization, an object with `solve`."""
    if how:
        solvers.splu(sparse.csc_array(np.eye(2)), **how)  # raises SciPy's own error
    return Factored(_matrix(A))


@stands_for(HOME)
def factorized(A: Any) -> Any:
    """A function that solves systems with one factorization."""
    return Factored(_matrix(A)).solve


@stands_for(solvers.SuperLU, "solve")
def _solved_by(lu: Any, rhs: Any, trans: Any = "N") -> Any:
    """Solve with SciPy's own factorization. It doesn't hold the matrix, which is multiplied
    together from the factors. Factors never change, so they need no guard."""
    n = lu.shape[0]
    ones, places = np.ones(n), np.arange(n)
    rows = sparse.csc_array((ones, (lu.perm_r, places)), (n, n))
    columns = sparse.csc_array((ones, (places, lu.perm_c)), (n, n))
    whole = sparse.csr_array(rows.T @ sparse.csc_array(lu.L @ lu.U) @ columns.T)
    return Factored(Held(whole)).solve(rhs, trans)


# ---- by iterations

_ITERATIONS = "bicg bicgstab cg cgs gmres lgmres minres qmr tfqmr gcrotmk"


def _declare_iteration(name: str) -> None:
    original = getattr(importlib.import_module(HOME), name)
    known = inspect.signature(original).parameters

    def iterated(A: Any, b: Any, x0: Any = None, **settings: Any) -> Any:
        for key, value in settings.items():
            if key not in known:
                raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
            if key not in iterations.SETTINGS and value is not known[key].default:
                raise refusal(
                    f"scipy.sparse.linalg.{name}(..., {key}=...) can't be traced{at_line()}, only "
                    f"without {key}"
                )
        chosen = tuple(
            sorted(
                (k, v) for k, v in settings.items() if v is not None and k in iterations.SETTINGS
            )
        )
        A = _matrix(A, b, x0)
        operands, _ = _operands(A, b, x0)
        if operands[3].shape[1] != 1:
            raise ValueError("right hand side is one vector")
        first = np.zeros_like(operands[3])
        if x0 is not None:
            first = stop_gradient(cast(as_tracer(x0, operands[3]), first.dtype))
            first = np.reshape(first, operands[3].shape)
        if operands[3].dtype.kind == "c":
            raise refusal(
                f"scipy.sparse.linalg.{name} of complex numbers isn't supported with traced values"
                f"{at_line()}. Use spsolve"
            )
        x, info = Iterated(A.held_shape, A.turned, name, chosen)(*operands, first)
        x, info = x[:, 0], info[0]
        return (Unfinished(f"sparse.linalg.{name}")(x) if info != 0 else x), info

    own = [inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in ("A", "b")]
    rest = [known[p] for p in known if p not in ("A", "b")]
    iterated.__signature__ = inspect.Signature([*own, *rest])  # type: ignore[attr-defined]
    of_matrices = answering(iterated, original, f"{HOME}.{name}")

    @functools.wraps(original)
    @unobserved
    def answer(A: Any, b: Any, x0: Any = None, **settings: Any) -> Any:
        helped = any(settings.get(key) is not None for key in ("M", "M1", "M2"))
        if not (isinstance(A, solvers.LinearOperator) or helped):
            return of_matrices(A, b, x0, **settings)
        try:
            return iterations.iterated(name, A, b, x0, settings)
        except Untraced:
            with observed():
                return original(A, b, x0, **settings)

    declare(solvers, name, answer, when=is_operator)


for _name in _ITERATIONS.split():
    if hasattr(solvers, _name):
        _declare_iteration(_name)


@stands_for(HOME)
def expm_multiply(A: Any, B: Any, traceA: Any = None) -> Any:
    """exp(A) B, as a function of B."""
    A = _matrix(A, B)
    if any_traced([A.elements]):
        raise refusal(
            f"scipy.sparse.linalg.expm_multiply is traced in B alone{at_line()}. Use "
            "scipy.linalg.expm(A.toarray()) @ B"
        )
    operands, alone = _operands(A, B)
    x = ExpmProduct(A.held_shape, A.turned)(*operands)
    return x[:, 0] if alone else x


@stands_for(HOME)
def norm(x: Any, ord: Any = None, axis: Any = None) -> Any:
    """A norm of a matrix, computed from the dense array. Negative orders are refused, since SciPy
    computes those from the stored elements alone."""
    if (axis is not None and ord in (-1, -2)) or (isinstance(ord, float) and -np.inf < ord < 0):
        raise refusal(
            f"scipy.sparse.linalg.norm(..., ord={ord}) can't be traced{at_line()}. Use the "
            "elements, x.data"
        )
    return np.linalg.norm(x.toarray(), ord, axis)
