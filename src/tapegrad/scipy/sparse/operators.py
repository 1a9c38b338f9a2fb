"""Linear maps that are functions: `LinearOperator`, whose products may be traced.

Such a map is a function of the user's, which may reach traced values. What SciPy's iterations find
by it stands in `iterations.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import linalg as theirs
from scipy.sparse.linalg import LinearOperator

from tapegrad.scipy.declaring import Carrier, any_traced, seen, stands_for
from tapegrad.scipy.optimize.roots import plainly
from tapegrad.scipy.sparse.matrices import as_sparse
from tapegrad.tracing.answers import as_called, declare, declare_operands
from tapegrad.tracing.frontend.answering import has_traced
from tapegrad.tracing.observe.observer import observed, unobserved

HOME = "scipy.sparse.linalg"


class Operator(LinearOperator, Carrier):
    """A map that reaches traced values: functions for products with it and with its transpose."""

    def __init__(self, shape: Any, f: Any, transposed: Any = None, dtype: Any = None) -> None:
        self.shape = int(shape[0]), int(shape[1])
        self.dtype = np.dtype(float if dtype is None else dtype)
        self.args = ()
        self.f, self.transposed = f, transposed

    @unobserved
    def matvec(self, x: Any) -> Any:
        return _shaped(self.f, self.shape, x)

    @unobserved
    def rmatvec(self, x: Any) -> Any:
        if self.transposed is None:
            raise NotImplementedError("rmatvec is not defined")
        return _shaped(self.transposed, self.shape[::-1], x)

    @unobserved
    def matmat(self, X: Any) -> Any:
        return np.stack([self.matvec(X[:, k]) for k in range(X.shape[1])], 1)

    @unobserved
    def rmatmat(self, X: Any) -> Any:
        return np.stack([self.rmatvec(X[:, k]) for k in range(X.shape[1])], 1)

    _matvec, _rmatvec = matvec, rmatvec

    @unobserved
    def dot(self, x: Any) -> Any:
        if isinstance(x, LinearOperator):
            return _composed(self, x)
        if np.ndim(x) == 0:
            return _scaled(self, x)
        return self.matmat(x) if np.ndim(x) == 2 and x.shape[1] != 1 else self.matvec(x)

    __call__ = __matmul__ = __mul__ = dot

    @unobserved
    def __rmul__(self, x: Any) -> Any:
        return _scaled(self, x)

    @unobserved
    def __add__(self, other: Any) -> Any:
        if not isinstance(other, LinearOperator):
            return NotImplemented
        return Operator(
            self.shape,
            lambda v: product(self, v) + product(other, v),
            lambda v: product(self, v, True) + product(other, v, True),
        )

    __radd__ = __add__

    @unobserved
    def __neg__(self) -> Any:
        return _scaled(self, -1.0)

    @unobserved
    def __sub__(self, other: Any) -> Any:
        return self + _scaled(other, -1.0)

    @unobserved
    def adjoint(self) -> Any:
        return Operator(self.shape[::-1], self.rmatvec, self.matvec)

    transpose = adjoint
    H = T = property(adjoint)


def _shaped(f: Any, shape: tuple[int, int], x: Any) -> Any:
    """A product with a vector or a column, which it has the shape of."""
    if np.shape(x) not in ((shape[1],), (shape[1], 1)):
        raise ValueError("dimension mismatch")
    return np.reshape(f(x), (shape[0], *np.shape(x)[1:]))


def _users(f: Any) -> Any:
    """A function of the user's, which is followed."""
    called = as_called(f)

    def product(v: Any) -> Any:
        with observed():
            return called(v)

    return product


def _scaled(A: Any, c: Any) -> Operator:
    return Operator(A.shape, lambda v: c * product(A, v), lambda v: c * product(A, v, True))


def _composed(A: Any, B: Any) -> Operator:
    return Operator(
        (A.shape[0], B.shape[1]),
        lambda v: product(A, product(B, v)),
        lambda v: product(B, product(A, v, True), True),
    )


def product(A: Any, v: Any, transposed: bool = False) -> Any:
    """A v, or its transpose's, of arrays, sparse matrices and SciPy's own operators."""
    if isinstance(A, Operator):
        return A.rmatvec(v) if transposed else A.matvec(v)
    if not isinstance(A, LinearOperator):
        return (A.T if transposed else A) @ v
    kind, parts = type(A).__name__, list(getattr(A, "args", ()))
    if kind == "MatrixLinearOperator":
        return product(as_matrix(A.A), v, transposed)
    if kind == "IdentityOperator":
        return v
    if kind == "_SumLinearOperator":
        return product(parts[0], v, transposed) + product(parts[1], v, transposed)
    if kind == "_ScaledLinearOperator":
        return parts[1] * product(parts[0], v, transposed)
    if kind == "_ProductLinearOperator":
        first, then = parts if transposed else parts[::-1]
        return product(then, product(first, v, transposed), transposed)
    if kind in ("_AdjointLinearOperator", "_TransposedLinearOperator"):
        return product(A.A, v, not transposed)
    with observed():
        return A._rmatvec(v) if transposed else A._matvec(v)


def as_matrix(A: Any) -> Any:
    """What products can be made with."""
    if isinstance(A, LinearOperator):
        return A if isinstance(A, Operator) else seen(A)
    found = as_sparse(A)
    return A if found is None else found


def is_operator(args: Any) -> bool:
    """Whether an operator, which may reach traced values, or a traced value is among arguments."""
    return any(isinstance(x, LinearOperator) for x in args) or any_traced(args)


def reaches(A: Any) -> bool:
    """Whether products with an operator are traced."""
    if isinstance(A, Operator):
        return True
    return isinstance(A, LinearOperator) and has_traced(product(seen(A), np.zeros(A.shape[1])))


# ---- making them


@unobserved
def _made(
    shape: Any, matvec: Any, rmatvec: Any = None, matmat: Any = None, dtype: Any = None,
    rmatmat: Any = None,
) -> Any:  # fmt: skip
    """`LinearOperator(...)`: one of ours where its products are traced."""
    f, transposed = _users(matvec), None if rmatvec is None else _users(rmatvec)
    if has_traced(f(np.zeros(int(shape[1])))):
        return Operator(shape, f, transposed, dtype)
    return plainly(LinearOperator, shape, matvec, rmatvec, matmat, dtype, rmatmat)


declare(theirs, "LinearOperator", _made, when=lambda args: True)


@stands_for(HOME)
def aslinearoperator(A: Any) -> Any:
    """Products with a matrix."""
    if isinstance(A, Operator):
        return A
    A = as_matrix(A)
    return Operator(A.shape, lambda v: A @ v, lambda v: A.T @ v)


def _method(name: str, transposed: bool) -> None:
    def answer(self: Any, x: Any) -> Any:
        A = as_matrix(self)
        shape = A.shape[::-1] if transposed else A.shape
        return _shaped(lambda v: product(A, v, transposed), shape, x)

    answer.__name__ = name
    stands_for(LinearOperator, name)(answer)


for _name in ("matvec", "rmatvec", "dot", "__matmul__"):
    _method(_name, _name == "rmatvec")


def _ours(A: Any) -> Operator:
    """What stands for an operator beside a traced value."""
    A = as_matrix(A)
    return Operator(A.shape, lambda v: product(A, v), lambda v: product(A, v, True))


declare_operands(LinearOperator, _ours, when=any_traced)
