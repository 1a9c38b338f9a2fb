"""Linear maps given by functions: `LinearOperator`, whose products may be traced.

An operator holds functions of the user, which may read traced values, or other operators. It stays
an object of SciPy's. Products with it are computed here by calling the functions that it holds,
since SciPy's own methods would take their results for plain arrays. For SciPy's iterations with
such operators see `iterations.py`.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.sparse import linalg as theirs
from scipy.sparse.linalg import LinearOperator

from tapegrad.extending import (
    Untraced,
    any_traced,
    as_called,
    declare,
    declare_operands,
    observed,
    seen,
    stands_for,
    unobserved,
)
from tapegrad.extending.arrays import has_traced
from tapegrad.scipy.optimize.roots import call_untraced
from tapegrad.scipy.sparse.matrices import as_sparse

HOME = "scipy.sparse.linalg"


# ---- products


def product(A: Any, v: Any, adjoint: bool = False) -> Any:
    """A v, or A^H v if `adjoint`, for an array, a sparse matrix or an operator A and a vector or a
    column v."""
    if not isinstance(A, LinearOperator):
        return (A.T.conj() if adjoint else A) @ v
    kind, parts = type(A).__name__, list(getattr(A, "args", ()))
    if kind == "MatrixLinearOperator":
        return product(as_matrix(A.A), v, adjoint)
    if kind == "_AdjointMatrixOperator":
        return product(as_matrix(parts[0]), v, not adjoint)
    if kind == "IdentityOperator":
        return v
    if kind == "_SumLinearOperator":
        return product(parts[0], v, adjoint) + product(parts[1], v, adjoint)
    if kind == "_ScaledLinearOperator":
        return (np.conj(parts[1]) if adjoint else parts[1]) * product(parts[0], v, adjoint)
    if kind == "_ProductLinearOperator":
        first, then = parts if adjoint else parts[::-1]
        return product(then, product(first, v, adjoint), adjoint)
    if kind == "_PowerLinearOperator":
        for _ in range(parts[1]):
            v = product(parts[0], v, adjoint)
        return v
    if kind == "_AdjointLinearOperator":
        return product(A.A, v, not adjoint)
    if kind == "_TransposedLinearOperator":
        return np.conj(product(A.A, np.conj(v), not adjoint))
    return _of_its_methods(A, v, adjoint)


def _of_its_methods(A: Any, v: Any, adjoint: bool) -> Any:
    """A v, or A^H v, for a class that defines only some of the methods: on vectors, on matrices,
    or an adjoint."""
    name, wide = ("_rmatvec", "_rmatmat") if adjoint else ("_matvec", "_matmat")
    if not _has(A, name) and adjoint and _has(A, "_adjoint"):
        return product(A.H, v)
    as_column = not _has(A, name) and _has(A, wide)
    with observed():
        found = getattr(A, wide)(np.reshape(v, (-1, 1))) if as_column else getattr(A, name)(v)
    return np.reshape(found, (A.shape[1 if adjoint else 0], *np.shape(v)[1:]))


def _has(A: Any, name: str) -> bool:
    return getattr(type(A), name) is not getattr(LinearOperator, name)


def as_matrix(A: Any) -> Any:
    """A in a form with which products can be computed."""
    if isinstance(A, LinearOperator):
        return seen(A)
    found = as_sparse(A)
    return A if found is None else found


def is_operator(args: Any) -> bool:
    """Whether the arguments include an operator, which may read traced values, or a traced
    value."""
    return any(isinstance(x, LinearOperator) for x in args) or any_traced(args)


def reaches(A: Any) -> bool:
    """Whether products with an operator are traced."""
    return isinstance(A, LinearOperator) and has_traced(product(seen(A), np.zeros(A.shape[1])))


# ---- constructors


def _users(f: Any) -> Any:
    """A function of the user, called as in a traced program."""
    called = as_called(f)

    def product(v: Any) -> Any:
        with observed():
            return called(v)

    return product


@unobserved
def _made(
    shape: Any, matvec: Any, rmatvec: Any = None, matmat: Any = None, dtype: Any = None,
    rmatmat: Any = None,
) -> Any:  # fmt: skip
    """The traceable `LinearOperator(...)`. SciPy would find the dtype by a product that it
    converts to a plain array."""
    f, adjoint = _users(matvec), None if rmatvec is None else _users(rmatvec)
    found = f(np.zeros(int(shape[1])))
    if has_traced(found):
        return LinearOperator(shape, f, adjoint, dtype=found.dtype if dtype is None else dtype)
    return call_untraced(LinearOperator, shape, matvec, rmatvec, matmat, dtype, rmatmat)


declare(theirs, "LinearOperator", _made, when=lambda args: True)


@stands_for(HOME)
def aslinearoperator(A: Any) -> Any:
    """A matrix as an operator."""
    A = as_matrix(A)
    return LinearOperator(
        A.shape, lambda v: product(A, v), lambda v: product(A, v, True), dtype=A.dtype
    )


def _scaled(A: Any, c: Any) -> Any:
    """c A, for a traced number c."""
    return LinearOperator(
        A.shape,
        lambda v: c * product(A, v),
        lambda v: np.conj(c) * product(A, v, True),
        dtype=np.result_type(A.dtype or np.float64, c.dtype),
    )


# ---- methods of operators


def _product(A: Any, x: Any, adjoint: bool = False) -> Any:
    """A x, or A^H x, for a vector or a matrix x."""
    m, n = A.shape[::-1] if adjoint else A.shape
    if np.ndim(x) not in (1, 2) or np.shape(x)[0] != n:
        raise ValueError(f"dimension mismatch: {(m, n)}, {np.shape(x)}")
    if np.ndim(x) == 1 or np.shape(x)[1] == 1:
        return np.reshape(product(A, x, adjoint), (m, *np.shape(x)[1:]))
    return np.stack([product(A, x[:, k], adjoint) for k in range(np.shape(x)[1])], 1)


def _vector(A: Any, x: Any, adjoint: bool = False) -> Any:
    if np.ndim(x) == 2 and np.shape(x)[1] != 1:
        raise ValueError("dimension mismatch")
    return _product(A, x, adjoint)


class _Beside:
    """A proxy of an operator in an operation with a traced value or an array."""

    __array_ufunc__ = None

    def __init__(self, A: Any) -> None:
        self.A = A


def _is_answered(others: Any) -> bool:
    """Whether the operand is an array or a traced number."""
    x = others[0]
    return any_traced([x]) or not (np.isscalar(x) or isinstance(x, LinearOperator) or issparse(x))


def _answer(name: str, find: Any) -> None:
    """Declare `find` as the answer to one of SciPy's methods."""

    def answer(self: Any, x: Any) -> Any:
        if not _is_answered([x]):
            raise Untraced
        return find(as_matrix(self), x if has_traced(x) else np.asarray(x))

    answer.__name__ = name
    answer.__signature__ = inspect.signature(getattr(LinearOperator, name))  # type: ignore[attr-defined]
    answered = stands_for(LinearOperator, name, callbacks=True)(answer)
    setattr(_Beside, name, lambda self, x: answered(self.A, x))


for _name in ("matvec", "rmatvec", "matmat", "rmatmat"):
    _adjoint, _find = _name.startswith("r"), _product if _name.endswith("mat") else _vector
    _answer(_name, lambda A, x, find=_find, adjoint=_adjoint: find(A, x, adjoint))
for _name in ("__call__", "__matmul__", "__mul__", "dot"):
    _answer(_name, lambda A, x: _product(A, x) if np.ndim(x) else _scaled(A, x))
for _name in ("__rmatmul__", "__rmul__"):
    _answer(_name, lambda A, x: _product(A.T, x.T).T if np.ndim(x) else _scaled(A, x))
_answer("__truediv__", lambda A, c: _scaled(A, 1.0 / c))

declare_operands(LinearOperator, _Beside, when=_is_answered)
