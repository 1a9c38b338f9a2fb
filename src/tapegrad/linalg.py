"""Functions of scipy.linalg that can be traced.

SciPy makes plain arrays of its arguments, so its own functions can't be. These have its names and
parameters, and are SciPy's own for plain arrays:

    from tapegrad.linalg import cho_factor, cho_solve

What isn't here `numpy.linalg` has, which is traced as it is. Matrices have shape (..., n, n), real
numbers; integers become float64. Where arguments are traced, `overwrite_a`, `overwrite_b` and
`check_finite` mean nothing, and a matrix of another shape is NumPy's `LinAlgError`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy import matrix_transpose

from tapegrad.errors import UnsupportedError
from tapegrad.primitives.banded import BandedLU, BandedSolve
from tapegrad.primitives.solving import Cholesky
from tapegrad.primitives.spectral import Expm
from tapegrad.primitives.triangles import Triangle, TriangularSolve
from tapegrad.tracing.frontend.linalg import (
    check_square,
    factored,
    floating,
    is_singular,
    raise_if,
    solved,
)
from tapegrad.tracing.frontend.operands import has_tracer
from tapegrad.tracing.layout import settle
from tapegrad.tracing.source import at_line

__all__ = [
    "cho_factor",
    "cho_solve",
    "cholesky",
    "expm",
    "solve",
    "solve_banded",
    "solve_triangular",
]

P = ParamSpec("P")
R = TypeVar("R")

Array = np.ndarray


def _scipys(f: Callable[P, R]) -> Callable[P, R]:
    """SciPy's function of this name, unless an argument is traced."""

    @wraps(f)
    def either(*args: P.args, **kwargs: P.kwargs) -> R:
        if has_tracer([*args, *kwargs.values()]):
            # How SciPy's results lie in memory depends on its version.
            return settle(f(*args, **kwargs), args, certain=False)
        import scipy.linalg

        result: R = getattr(scipy.linalg, f.__name__)(*args, **kwargs)
        return result

    return either


@_scipys
def cholesky(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array:
    """The triangle L with L L^T = a, or U with U^T U = a.

    Parameters
    ----------
    a : a positive definite matrix, or a batch of them. One triangle of it is read, and has all of
        the derivative.
    lower : read the lower triangle and return L, instead of the upper one and U.

    Returns
    -------
    The triangular factor, in the shape of `a`, with zeros in its other triangle.

    Raises
    ------
    LinAlgError : the matrix isn't positive definite.
    """
    (a,) = floating(a)
    check_square(a)
    factor, failed = Cholesky()(a if lower else matrix_transpose(a))
    raise_if(failed, "the matrix is not positive definite")
    return factor if lower else matrix_transpose(factor)


@_scipys
def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """`(cholesky(a, lower), lower)`, for `cho_solve`.

    Parameters
    ----------
    a, lower : as in `cholesky`.

    Returns
    -------
    The triangular factor, and `lower`. SciPy leaves other numbers in the factor's other triangle;
    of a traced matrix it has zeros.

    Raises
    ------
    LinAlgError : the matrix isn't positive definite.
    """
    return cholesky(a, lower), lower


@_scipys
def cho_solve(
    c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """The x with a x = b, of the factor of a positive definite `a`.

    Parameters
    ----------
    c_and_lower : what `cho_factor(a)` returned.
    b : a vector of shape (n,), or columns, of shape (..., n, k).

    Returns
    -------
    x, in the shape of `b`.

    Raises
    ------
    ValueError : the shapes of the factor and of `b` don't fit.
    """
    factor, lower = c_and_lower
    factor, b = floating(factor, b)
    check_square(factor)
    if not lower:
        factor = matrix_transpose(factor)
    return _by_triangles(b, [(True, factor), (False, matrix_transpose(factor))])


@_scipys
def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The x with a x = b for a triangle of `a`, or of its transpose.

    Parameters
    ----------
    a : a matrix, or a batch of them, of which one triangle is read.
    b : a vector of shape (n,), or columns, of shape (..., n, k).
    trans : 0 or "N" for a x = b; 1, 2, "T" or "C" for a^T x = b.
    lower : the triangle that is read is the lower one.
    unit_diagonal : the diagonal isn't read, and counts as ones.

    Returns
    -------
    x, in the shape of `b`.

    Raises
    ------
    LinAlgError : an element of the diagonal is 0.
    ValueError : the shapes of `a` and `b` don't fit, or `trans` is none of these.
    """
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f"trans={trans!r} is none of 0, 1, 2, 'N', 'T' and 'C'")
    a, b = floating(a, b)
    check_square(a)
    if not unit_diagonal:
        singular = np.any(np.diagonal(a, 0, -2, -1) == 0)
        raise_if(singular, "singular matrix: a diagonal element is 0")
    if trans not in (0, "N"):
        a, lower = matrix_transpose(a), not lower
    return _by_triangles(b, [(lower, a)], unit_diagonal)


def _by_triangles(b: Any, triangles: list[tuple[bool, Any]], unit: bool = False) -> Any:
    """Solve with one triangle after the other; `b` is a vector if it has one axis."""
    x = b[:, None] if b.ndim == 1 else b
    if x.shape[-2] != triangles[0][1].shape[-1]:
        raise ValueError(f"shapes of a {triangles[0][1].shape} and b {b.shape} are incompatible")
    for lower, triangle in triangles:
        x = TriangularSolve(bool(lower), bool(unit))(triangle, x)
    return x[..., 0] if b.ndim == 1 else x


@_scipys
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
) -> Array:
    """The x with a x = b, or a^T x = b.

    Parameters
    ----------
    a : a matrix, or a batch of them.
    b : a vector of shape (n,), or columns, of shape (..., n, k).
    lower : which triangle is read, where one is.
    assume_a : "general", the default, "symmetric", "hermitian", "positive definite", "lower
        triangular" or "upper triangular", or the short forms of the first four. All but the first
        read one triangle, which then has all of the derivative.
    transposed : solve a^T x = b.

    Returns
    -------
    x, in the shape of `b`.

    Raises
    ------
    LinAlgError : `a` is singular, or not positive definite where that is assumed.
    UnsupportedError : any other `assume_a`, of traced arguments.
    ValueError : the shapes of `a` and `b` don't fit.
    """
    kind = "general" if assume_a is None else assume_a
    if kind in ("upper triangular", "lower triangular"):
        return solve_triangular(a, b, trans=int(transposed), lower=kind == "lower triangular")
    if kind in ("pos", "positive definite"):
        return cho_solve(cho_factor(a, lower), b)
    if kind not in ("gen", "general", "sym", "symmetric", "her", "hermitian"):
        raise UnsupportedError(
            f"solve with assume_a={assume_a!r} isn't supported on traced arrays{at_line()}. Use "
            "'general', which has the same result"
        )
    a, b = floating(a, b)
    check_square(a)
    if kind not in ("gen", "general"):
        off = Triangle(bool(lower), -1 if lower else 1)(a)
        a = Triangle(bool(lower))(a) + matrix_transpose(off)
    if b.ndim == 0 or b.shape[-2 if b.ndim > 1 else 0] != a.shape[-1]:
        raise ValueError("Input b has to have same number of rows as input a")
    system = factored(a)
    raise_if(is_singular(system[1]), "A singular matrix detected")
    return solved(system, b, transposed)


@_scipys
def solve_banded(
    l_and_u: tuple[int, int],
    ab: Any,
    b: Any,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The x with a x = b, for a matrix of a few diagonals.

    Parameters
    ----------
    l_and_u : how many diagonals there are below and above the main one, (l, u).
    ab : the diagonals as rows, of shape (l + u + 1, n): ab[u + i - j, j] is a[i, j].
    b : a vector of shape (n,), or columns, of shape (n, k).
    overwrite_ab, overwrite_b, check_finite : SciPy's, of which nothing follows for traced arrays:
        none is overwritten, and NaN and infinities go through.

    Returns
    -------
    x, in the shape of `b`.

    Raises
    ------
    LinAlgError : the matrix is singular.
    ValueError : `ab` has another number of rows, or `b` doesn't fit.
    """
    lower, upper = map(operator.index, l_and_u)
    ab, b = floating(ab, b)
    if ab.ndim != 2 or b.ndim not in (1, 2):
        raise UnsupportedError(
            f"solve_banded of batches isn't supported on traced arrays{at_line()}. Call it for each"
        )
    if ab.shape[1] != b.shape[0]:
        raise ValueError("shapes of ab and b are not compatible.")
    if lower + upper + 1 != ab.shape[0]:
        raise ValueError(
            "invalid values for the number of lower and upper diagonals: "
            f"l+u+1 ({lower + upper + 1}) does not equal ab.shape[0] ({ab.shape[0]})"
        )
    room = np.zeros((ab.shape[1], lower), ab.dtype)
    columns = np.concatenate([room, matrix_transpose(ab)], 1)
    factors, pivots = BandedLU(lower)(columns)
    raise_if(np.any(factors[:, lower + upper] == 0), "singular matrix")
    rows = b[None] if b.ndim == 1 else matrix_transpose(b)
    x = BandedSolve(lower)(columns, factors, pivots, rows)
    return x[0] if b.ndim == 1 else matrix_transpose(x)


@_scipys
def expm(A: Any) -> Array:
    """The exponential of a matrix: the sum of A^k / k!.

    Parameters
    ----------
    A : a matrix, or a batch of them.

    Returns
    -------
    exp(A), in the shape of `A`.
    """
    (A,) = floating(A)
    check_square(A)
    return Expm()(A)
