"""numpy.linalg on traced arrays.

A factorisation that fails raises NumPy's LinAlgError during the trace, where the values are known.
Its success or failure becomes a guard: a later call with the opposite outcome is retraced, so it
raises at the user's line, or takes the path of the user's `except`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tapegrad.core.handlers import quiet
from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.determinants import Det
from tapegrad.primitives.eigen import Eig
from tapegrad.primitives.hermitian import (
    ComplexEig,
    ComplexSLogDet,
    ComplexSVD,
    HermitianCholesky,
    HermitianEigH,
)
from tapegrad.primitives.solving import LU, Cholesky, LUSolve, inverse_t
from tapegrad.primitives.solving import slogdet as strict_slogdet
from tapegrad.primitives.spectral import QR, SVD, Complement, EigH
from tapegrad.primitives.triangles import TriangularSolve
from tapegrad.tracing.frontend.axes.reducing import squared_size
from tapegrad.tracing.frontend.operands.declaring import stands_for
from tapegrad.tracing.frontend.operands.memory import copy_of, in_rows, scalar
from tapegrad.tracing.frontend.operands.operands import as_tracer, cast
from tapegrad.tracing.tracers.tracer import Tracer

LinAlgError = np.linalg.LinAlgError


@stands_for(np.linalg, of_complex=True)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm of vectors and matrices; the derivative at 0 is 0."""
    if x.dtype.kind not in "fc":
        x = cast(x, np.float64)
    if axis is None:
        if isinstance(ord, str):
            euclidean = ord in ("f", "fro") and x.ndim == 2
        else:
            euclidean = ord is None or (x.ndim == 1 and bool(ord == 2))
        if euclidean:
            return np.sqrt(np.sum(squared_size(x), axis=None, keepdims=keepdims))
        axes = tuple(range(x.ndim))
    else:
        axis = axis if isinstance(axis, tuple) else int(axis)
        axes = normalize_axis_tuple(axis, x.ndim)
    if len(axes) == 1:
        return _vector_norm(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


def _vector_norm(x: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    if ord == 2:
        return np.sqrt(np.sum(squared_size(x), axis=axes, keepdims=keepdims))
    size = np.abs(x)
    if ord == np.inf:
        return _largest(size, axes, keepdims)
    if ord == -np.inf:
        return np.min(size, axis=axes, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return cast(np.sum(x != 0, axis=axes, keepdims=keepdims), size.dtype)
    return np.power(np.sum(np.power(size, ord), axis=axes, keepdims=keepdims), 1.0 / ord)


def _largest(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest of nonnegative numbers; 0 if there are none."""
    start: dict[str, Any] = {} if all(x.shape[a] for a in axes) else {"initial": 0.0}
    return np.max(x, axis=axes, keepdims=keepdims, **start)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    rows, columns = axes
    if ord in (None, "f", "fro"):
        return np.sqrt(np.sum(squared_size(x), axis=axes, keepdims=keepdims))
    if ord in (1, -1, np.inf, -np.inf):
        summed, left = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = np.sum(np.abs(x), axis=summed, keepdims=True)
        result = _largest(sums, (left,), True) if ord > 0 else np.min(sums, left, keepdims=True)
        return result if keepdims else scalar(copy_of(np.squeeze(result, axes)))
    if ord in (2, -2, "nuc"):
        values = svd(np.moveaxis(x, axes, (-2, -1)), compute_uv=False)  # in descending order
        summed = ord == "nuc" or (ord == 2 and not values.shape[-1])  # an empty matrix has norm 0
        result = np.sum(values, -1) if summed else copy_of(values[..., 0 if ord == 2 else -1])
        result = result if keepdims else scalar(result)
        return np.expand_dims(result, axes) if keepdims else result
    raise ValueError("Invalid norm order for matrices.")


# ---- common parts


def floating(*xs: Any) -> list[Any]:
    """Operands as tracers in a dtype of NumPy's LAPACK: single precision if all are, else double;
    complex if one of them is."""
    traced = [as_tracer(x, *xs) for x in xs]
    single = all(x.dtype in (np.float32, np.complex64) for x in traced)
    if any(x.dtype.kind == "c" for x in traced):
        return [cast(x, np.complex64 if single else np.complex128) for x in traced]
    return [cast(x, np.float32 if single else np.float64) for x in traced]


def _is_complex(a: Any) -> bool:
    return bool(a.dtype.kind == "c")


def refuse_complex(a: Any, what: str, instead: str) -> None:
    if _is_complex(a):
        raise UnsupportedError(
            f"np.linalg.{what} of complex matrices isn't supported{at_line()}. {instead}"
        )


def check_stacked(a: Any) -> None:
    """Raise NumPy's error unless `a` is a matrix or a batch of matrices."""
    if a.ndim < 2:
        raise LinAlgError(
            f"{a.ndim}-dimensional array given. Array must be at least two-dimensional"
        )


def check_square(a: Any) -> None:
    """Raise NumPy's error for a matrix that isn't square."""
    check_stacked(a)
    if a.shape[-1] != a.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")


def raise_if(failed: Any, message: str, error: type[Exception] = LinAlgError) -> None:
    """Raise an error if any of the flags is set, and guard whether one is.

    In a user's derivative rule only types are known; there, the result of a failure is NaN or
    infinite.
    """
    flag: Any = failed if failed.ndim == 0 else np.any(failed)
    if not isinstance(flag, Tracer):  # arrays that the program makes of plain ones
        if flag:
            raise error(message)
        return
    value = flag._read()[1]
    if value is None:
        return
    flag._trace.check_alive()
    value = bool(value) and not flag._trace.idle
    what = f"{error.__name__}({message!r})"
    flag._trace.guard(flag, value, what, fixed=flag._trace.idle)
    if value:
        raise error(message)


def adjoint(x: Any) -> Any:
    """The conjugate transpose of the last two axes."""
    return np.conjugate(transposed(x)) if _is_complex(x) else transposed(x)


def transposed(x: Any) -> Any:
    """The transpose of the last two axes."""
    return np.swapaxes(x, -1, -2)


@cache
def _named(name: str) -> Any:
    """NumPy's class of a function's results, which is a named tuple."""
    return type(getattr(np.linalg, name)(np.eye(1)))


def factored(a: Any) -> tuple[Any, Any, Any]:
    """A and its LU factors, from which solutions, inverses and determinants are computed."""
    check_square(a)
    return a, *LU()(a)


def is_singular(factors: Any) -> Any:
    """Whether a diagonal of U contains a zero, LAPACK's test for singularity."""
    return np.any(np.diagonal(factors, 0, -2, -1) == 0)


# ---- systems


@stands_for(np.linalg, of_complex=True)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """np.linalg.cholesky. One triangle is read, and gets the whole derivative."""
    (a,) = floating(a)
    check_square(a)
    primitive = HermitianCholesky() if _is_complex(a) else Cholesky()
    factor, failed = primitive(adjoint(a) if upper else a)
    raise_if(failed, "Matrix is not positive definite")
    return adjoint(factor) if upper else factor


@stands_for(np.linalg, of_complex=True)
@in_rows
def solve(a: Any, b: Any) -> Any:
    """np.linalg.solve. `b` is a vector if it has one axis, else a batch of matrices."""
    a, b = floating(a, b)
    check_square(a)
    if b.ndim == 0 or b.shape[-2 if b.ndim > 1 else 0] != a.shape[-1]:
        np.linalg.solve(np.broadcast_to(1.0, a.shape), np.zeros(b.shape))  # NumPy's own error
    system = factored(a)
    raise_if(is_singular(system[1]), "Singular matrix")
    return solved(system, b)


def solved(system: Any, b: Any, turned: bool = False) -> Any:
    """The solution by LU factors; if `turned`, of the transposed system."""
    if b.ndim == 1:
        return LUSolve(turned)(*system, b[None])[..., 0, :]
    return transposed(LUSolve(turned)(*system, transposed(b)))


@stands_for(np.linalg, of_complex=True)
@in_rows
def inv(a: Any) -> Any:
    """np.linalg.inv, as the solution of A X = 1, so that signs of zeros are NumPy's."""
    (a,) = floating(a)
    return solve(a, np.eye(a.shape[-1], dtype=a.dtype))


@stands_for(np.linalg, of_complex=True)
def slogdet(a: Any) -> Any:
    """np.linalg.slogdet. The sign has no derivative."""
    (a,) = floating(a)
    return _named("slogdet")(*_slogdet(factored(a)))


def _slogdet(system: Any) -> Any:
    return (ComplexSLogDet() if _is_complex(system[0]) else strict_slogdet)(*system)


@stands_for(np.linalg, of_complex=True)
def det(a: Any) -> Any:
    """np.linalg.det. Derivatives divide by the pivots. If a pivot is small or 0, or numbers are
    near the ends of the range, a form of the derivatives without division is used."""
    (a,) = floating(a)
    system = factored(a)
    sign, logarithm = _slogdet(system)
    if not _is_complex(a):  # the gradient of a singular complex one is NaN
        unsafe = _is_unsafe_to_divide(system[1], logarithm)
        if unsafe._read()[1] is None or unsafe:
            return Det()(a)
    return sign * np.exp(logarithm)


def _is_unsafe_to_divide(factors: Any, logarithm: Any) -> Any:
    """Whether derivatives that divide by the pivots may be inaccurate.

    det(A) A^-1 ... A^-1, the derivative of order k, may lose k - 1 times a quarter of the digits if
    the diagonal of U spans that much; or the determinant or six inverses may leave the range of
    numbers."""
    size = np.abs(np.diagonal(factors, 0, -2, -1))
    if not size.size:
        return np.any(size > 0)
    number = np.finfo(factors.dtype)
    ratio, least = factors.dtype.type(number.eps**0.25), factors.dtype.type(number.tiny ** (1 / 6))
    smallest, largest = np.min(size, -1), np.max(size, -1)
    return np.any(
        (smallest <= np.maximum(ratio * largest, least))
        | (largest >= 1 / least)
        | (np.abs(logarithm) >= -0.95 * np.log(number.tiny))
    )


# ---- eigenvalues, singular values, orthogonal factors


@stands_for(np.linalg, of_complex=True)
def eigh(a: Any, UPLO: str = "L") -> Any:
    """np.linalg.eigh. One triangle is read, and gets the whole derivative."""
    uplo = UPLO.upper()
    if uplo not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    (a,) = floating(a)
    check_square(a)
    w, v, failed = (HermitianEigH if _is_complex(a) else EigH)(uplo == "L")(a)
    raise_if(failed, "Eigenvalues did not converge")
    return _named("eigh")(w, v)


# From NumPy 2.5 on, even if all of them are real.
_EIGENVALUES_ARE_COMPLEX = np.linalg.eigvals(np.eye(1)).dtype.kind == "c"


@stands_for(np.linalg, of_complex=True)
def eig(a: Any) -> Any:
    """np.linalg.eig."""
    w, v = real_eig(a)
    if _EIGENVALUES_ARE_COMPLEX:
        w, v = (x.astype(np.result_type(x.dtype, np.complex64)) for x in (w, v))
    return _named("eig")(w, v)


def real_eig(a: Any) -> Any:
    """Eigenvalues and eigenvectors: real if all of a real matrix are, which is guarded."""
    (a,) = floating(a)
    check_square(a)
    if not np.all(np.isfinite(a)):
        raise LinAlgError("Array must not contain infs or NaNs")
    if not _is_complex(a):
        w, v, is_complex, failed = Eig()(a)
        raise_if(failed, "Eigenvalues did not converge")
        if not np.any(is_complex):
            return w, v
    w, v, failed = ComplexEig()(a)
    raise_if(failed, "Eigenvalues did not converge")
    return w, v


@stands_for(np.linalg, of_complex=True)
def eigvals(a: Any) -> Any:
    """np.linalg.eigvals."""
    return eig(a)[0]


@stands_for(np.linalg, of_complex=True)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """np.linalg.eigvalsh."""
    return eigh(a, UPLO)[0]


@stands_for(np.linalg, of_complex=True)
def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """np.linalg.svd."""
    (a,) = floating(a)
    check_stacked(a)
    if hermitian:
        refuse_complex(a, "svd with hermitian=True", "Use np.linalg.eigh")
        return _symmetric_svd(a, compute_uv)
    return decomposition(a, full_matrices, compute_uv, "")


def decomposition(a: Any, full_matrices: bool, compute_uv: bool, driver: str) -> Any:
    """U, s and V^H, or s alone, computed by NumPy, or by SciPy with a `driver`."""
    u, s, vt, failed = (ComplexSVD if _is_complex(a) else SVD)(driver)(a)
    raise_if(failed, "SVD did not converge")
    if not compute_uv:
        return s
    m, n = a.shape[-2:]
    if full_matrices and m != n:
        refuse_complex(a, "svd with full_matrices=True", "Use full_matrices=False")
    if full_matrices and m > n:
        u = _completed(u, Complement("left", driver)(a))
    if full_matrices and m < n:
        vt = transposed(_completed(transposed(vt), Complement("right", driver)(a)))
    return _named("svd")(u, s, vt)


def _completed(q: Any, further: Any) -> Any:
    """Orthonormal columns Q, and further columns F that complete them.

    When Q turns, F turns with it: F is replaced by (1 - Q Q^T) F, orthonormalised by the Cholesky
    factor of its Gram matrix. So derivatives are right for all results that don't depend on the
    basis, above all for the projection F F^T.
    """
    rest = further - q @ (transposed(q) @ further)
    products, _ = Cholesky()(transposed(rest) @ rest)
    turned = transposed(TriangularSolve(True)(products, transposed(rest)))
    return np.concatenate([q, turned], -1)


def _symmetric_svd(a: Any, compute_uv: bool) -> Any:
    """The singular value decomposition by eigenvalues, whose signs go to the right factor."""
    check_square(a)
    w, v = eigh(a)
    order = np.flip(np.argsort(np.abs(w), axis=-1), -1)
    w = np.take_along_axis(w, order, -1)
    if not compute_uv:
        return np.abs(w)
    u = np.take_along_axis(v, order[..., None, :], -1)
    return _named("svd")(u, np.abs(w), transposed(u * np.sign(w)[..., None, :]))


@stands_for(np.linalg, of_complex=True)
def qr(a: Any, mode: str = "reduced") -> Any:
    """np.linalg.qr. For a wide matrix, the columns A' beyond the square satisfy Q R' = A'."""
    (a,) = floating(a)
    check_stacked(a)
    m, n = a.shape[-2:]
    if mode not in ("reduced", "complete", "r"):
        raise UnsupportedError(
            f"np.linalg.qr with mode={mode!r} isn't supported on traced arrays{at_line()}. Use "
            "'reduced', 'complete' or 'r'"
        )
    q, r = QR()(a if m >= n else a[..., :m])
    if m < n:
        r = np.concatenate([r, adjoint(q) @ a[..., m:]], -1)
    if mode == "complete" and m > n:
        refuse_complex(a, 'qr with mode="complete"', 'Use mode="reduced"')
        q = _completed(q, Complement("qr")(a))
        r = np.concatenate([r, np.zeros_like(r, shape=(*r.shape[:-2], m - n, n))], -2)
    return r if mode == "r" else _named("qr")(q, r)


@stands_for(np.linalg, of_complex=True)
@quiet
def cond(x: Any, ord: Any = None) -> Any:
    """np.linalg.cond: infinite for a singular matrix."""
    (a,) = floating(x)
    if a.size == 0 and a.ndim >= 2 and 0 in a.shape[-2:]:
        raise LinAlgError("cond is not defined on empty arrays")
    if ord is None or ord in (2, -2):
        s = svd(a, compute_uv=False)
        r = s[..., -1] / s[..., 0] if ord == -2 else s[..., 0] / s[..., -1]
    else:
        inverse = transposed(inverse_t(*factored(a)))
        r = norm(a, ord, (-2, -1)) * norm(inverse, ord, (-2, -1))
    unknown = np.isnan(r) & ~np.any(np.isnan(a), axis=(-2, -1))
    return scalar(np.where(unknown, r.dtype.type(np.inf), r))
