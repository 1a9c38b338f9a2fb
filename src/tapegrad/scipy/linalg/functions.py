"""Functions of one matrix of scipy.linalg: exponentials, logarithms, roots, norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.extending.arrays import (
    Tracer,
    as_tracer,
    check_square,
    factored,
    is_singular,
    raise_if,
    scales,
)
from tapegrad.extending.arrays import linalg as numpys
from tapegrad.extending.primitives import ComplexEig, Expm, Logm, Sqrtm, stop_gradient
from tapegrad.scipy.borrowing import borrow
from tapegrad.scipy.linalg.common import HOME, answers, as_array, checked


def _square(a: Any) -> Any:
    (a,) = checked(False, a)
    check_square(a)
    return a


@answers()
def expm(A: Any) -> Any:
    """The matrix exponential, the sum of A^k / k!."""
    return Expm()(_square(A))


@answers()
def expm_frechet(
    A: Any,
    E: Any,
    method: Any = None,
    compute_expm: bool = True,
    check_finite: bool = True,
) -> Any:
    """The matrix exponential, and its derivative along E."""
    A, E = checked(check_finite, A, E)
    if A.shape != E.shape or A.ndim != 2 or method not in (None, "SPS", "blockEnlarge"):
        raise ValueError("expected A and E to be the same shape")
    check_square(A)
    n, (down, up) = A.shape[0], scales(E) if E.size else (1.0, 1.0)
    top = np.hstack([A, E * down])
    whole = Expm()(np.concatenate([top, np.hstack([np.zeros_like(A), A])]))
    along = whole[:n, n:] * up
    return (whole[:n, :n], along) if compute_expm else along


def _rooted(primitive: Any, a: Any, back: Any) -> Any:
    """A function that may be complex for a real matrix; whether it is, is guarded.

    It is complex if an eigenvalue is negative. There the function has its branch cut. So A is
    rotated away from the cut: the function is computed for exp(-i turn) A, all of whose
    eigenvalues are off the negative axis, and `back` converts the result to that for A.
    """
    found, is_complex = primitive(a)
    if a.dtype.kind == "c" or not np.any(is_complex):
        return found
    angles = np.angle(ComplexEig()(stop_gradient(a))[0])
    below = np.where(angles < 0, angles, 0)
    turn = (np.min(below, -1, keepdims=True)[..., None] + np.pi) / 2
    return back(primitive(a * np.exp(-1j * turn))[0], 1j * turn)


@answers()
def logm(A: Any) -> Any:
    """The principal logarithm of a matrix."""
    A = _square(A)
    checked(True, A)
    return _logm(A)


def _logm(A: Any) -> Any:
    eye = np.eye(A.shape[-1], dtype=A.dtype)
    return _rooted(Logm(), A, lambda found, turn: found + turn * eye)


@answers()
def sqrtm(A: Any) -> Any:
    """The principal square root of a matrix."""
    return _rooted(Sqrtm(), _square(A), lambda found, turn: found * np.exp(turn / 2))


@answers()
def fractional_matrix_power(A: Any, t: Any) -> Any:
    """A power of a matrix: exp(t log(A)), or repeated products for a whole number t."""
    A = _square(A)
    if not isinstance(t, Tracer) and float(t) == int(t):
        return np.linalg.matrix_power(A, int(t))
    outside = ~np.all(np.isfinite(A)) & (np.floor(t) != t)
    raise_if(outside, "array must not contain infs or NaNs", ValueError)
    raise_if(is_singular(factored(A)[1]), "a singular matrix to a power that isn't whole")
    found = Expm()(t * _logm(A))
    if found.dtype.kind == "c" or not np.any(ComplexEig()(stop_gradient(A))[0].imag):
        return found
    return found.astype(complex)  # SciPy's is complex if eigenvalues are


@answers(parameters="ord axis keepdims")
def norm(
    a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: bool = True
) -> Any:
    """A norm of vectors or matrices. The derivative at 0 is 0."""
    if check_finite:
        (a,) = checked(True, a)
    a = as_tracer(as_array(a))
    vector = a.ndim == 1 and a.size and a.dtype.kind in "fc" and axis is None and not keepdims
    if vector and (ord is None or ord == 2):
        return _scaled_norm(a)
    return numpys.norm(a, ord, axis, keepdims)


def _scaled_norm(a: Any) -> Any:
    """The Euclidean norm computed as in BLAS: unlike in NumPy, squares neither overflow nor
    underflow."""
    down, up = scales(a)
    return numpys.norm(a * down) * up


borrow(HOME, "cosm sinm tanm coshm sinhm tanhm", decorated=True)
