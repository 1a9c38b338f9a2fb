"""Functions of scipy.linalg that can be traced.

SciPy makes plain arrays of its arguments, so its own functions can't be. These have its names and
parameters, and are SciPy's own for plain arrays:

    from tapegrad.linalg import cho_factor, cho_solve

What isn't here `numpy.linalg` has, which is traced as it is.
`overwrite_a`, `overwrite_b` and `check_finite` mean nothing where arguments are traced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy import matrix_transpose

from tapegrad.errors import UnsupportedError
from tapegrad.primitives.solving import Cholesky, Triangle, TriangularSolve
from tapegrad.primitives.spectral import Expm
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

__all__ = ["cho_factor", "cho_solve", "cholesky", "expm", "solve", "solve_triangular"]

P = ParamSpec("P")
R = TypeVar("R")


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
) -> Any:
    """The triangle L with L L^T = a, or U with U^T U = a. That triangle of `a` alone is read, and
    has all of the derivative."""
    (a,) = floating(a)
    check_square(a)
    factor, failed = Cholesky()(a if lower else matrix_transpose(a))
    raise_if(failed, "the matrix is not positive definite")
    return factor if lower else matrix_transpose(factor)


@_scipys
def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, bool]:
    """`(cholesky(a, lower), lower)`, for `cho_solve`. SciPy leaves other numbers in the other
    triangle; here it has zeros."""
    return cholesky(a, lower), lower


@_scipys
def cho_solve(
    c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Any:
    """The x with a x = b, of the factor of a positive definite `a`."""
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
) -> Any:
    """The x with a x = b for a triangle of `a`, or of its transpose."""
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
) -> Any:
    """The x with a x = b, or a^T x = b. Of an `a` that is symmetric, or positive definite, one
    triangle is read, and has all of the derivative."""
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
def expm(A: Any) -> Any:
    """The exponential of a matrix."""
    (A,) = floating(A)
    check_square(A)
    return Expm()(A)
