"""Routines of scipy.linalg.blas and scipy.linalg.lapack that traced SciPy code calls by name,
written in terms of other functions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from tapegrad.extending import (
    Carrier,
    any_traced,
    at_line,
    declare,
    note_memory,
    refusal,
    stands_for,
    unobserved,
)
from tapegrad.extending.arrays import numbers_taken
from tapegrad.extending.runs import accepted
from tapegrad.scipy.linalg import factors, systems

HOME = "scipy.linalg"


class UncomputedFactor(Carrier):
    """A factor that a routine leaves in an operand, which a trace doesn't compute: using it is
    refused."""

    def __init__(self, what: str) -> None:
        self.what = what

    def _refused(self, *args: Any) -> Any:
        raise refusal(
            f"the factor that {self.what} leaves in its operands can't be traced{at_line()}. Its "
            "solution can"
        )

    __getitem__ = __array__ = __len__ = __iter__ = __float__ = _refused
    __add__ = __sub__ = __mul__ = __matmul__ = __truediv__ = __pow__ = __neg__ = _refused
    __radd__ = __rsub__ = __rmul__ = __rmatmul__ = __rtruediv__ = _refused

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refused()


def _turned(a: Any, how: Any) -> Any:
    """a, its transpose (1), or its conjugate transpose (2)."""
    a = np.transpose(a) if how else a
    return np.conj(a) if how == 2 else a


def _plus(found: Any, beta: Any, other: Any) -> Any:
    return found if other is None else found + beta * other


def _symmetric(a: Any, lower: Any) -> Any:
    """The symmetric matrix from one triangle."""
    half = np.tril(a) if lower else np.triu(a)
    return half + np.transpose(half) - np.diag(np.diag(a))


def _triangle(a: Any, lower: Any, unit: Any = 0) -> Any:
    half = np.tril(a) if lower else np.triu(a)
    return half - np.diag(np.diag(a)) + np.eye(np.shape(a)[0]) if unit else half


# ---- blas


def dot(x: Any, y: Any) -> Any:
    return np.dot(x, y)


def nrm2(x: Any) -> Any:
    return np.linalg.norm(x)


def asum(x: Any) -> Any:
    return np.sum(np.abs(x))


def gemv(alpha: Any, a: Any, x: Any, beta: Any = 0.0, y: Any = None, trans: Any = 0) -> Any:
    return _plus(alpha * (_turned(a, trans) @ x), beta, y)


def ger(alpha: Any, x: Any, y: Any, a: Any = None) -> Any:
    return _plus(alpha * np.outer(x, y), 1.0, a)


def gemm(
    alpha: Any,
    a: Any,
    b: Any,
    beta: Any = 0.0,
    c: Any = None,
    trans_a: Any = 0,
    trans_b: Any = 0,
) -> Any:
    return _plus(alpha * (_turned(a, trans_a) @ _turned(b, trans_b)), beta, c)


def symv(alpha: Any, a: Any, x: Any, beta: Any = 0.0, y: Any = None, lower: Any = 0) -> Any:
    return _plus(alpha * (_symmetric(a, lower) @ x), beta, y)


def symm(
    alpha: Any,
    a: Any,
    b: Any,
    beta: Any = 0.0,
    c: Any = None,
    side: Any = 0,
    lower: Any = 0,
) -> Any:
    a = _symmetric(a, lower)
    return _plus(alpha * (b @ a if side else a @ b), beta, c)


def trmm(
    alpha: Any, a: Any, b: Any, side: Any = 0, lower: Any = 0, trans_a: Any = 0, diag: Any = 0
) -> Any:
    a = _turned(_triangle(a, lower, diag), trans_a)
    return alpha * (b @ a if side else a @ b)


def trsm(
    alpha: Any, a: Any, b: Any, side: Any = 0, lower: Any = 0, trans_a: Any = 0, diag: Any = 0
) -> Any:
    how = {"lower": bool(lower), "unit_diagonal": bool(diag)}
    if not side:
        return alpha * systems.solve_triangular(a, b, trans=int(trans_a), **how)
    if trans_a == 2:
        a = np.conj(a)
    turned = systems.solve_triangular(a, np.transpose(b), trans=int(not trans_a), **how)
    return alpha * np.transpose(turned)


def trsv(a: Any, x: Any, lower: Any = 0, trans: Any = 0, diag: Any = 0) -> Any:
    how = {"lower": bool(lower), "unit_diagonal": bool(diag)}
    return systems.solve_triangular(a, x, trans=int(trans), **how)


# ---- lapack: the last result is `info`


def potrf(a: Any, lower: Any = 0, clean: Any = 1) -> Any:
    c = factors.cholesky(a, lower=bool(lower))
    if not clean:  # the other triangle is left unchanged
        c = c + (np.triu(a, 1) if lower else np.tril(a, -1))
    return c, 0


def potrs(c: Any, b: Any, lower: Any = 0) -> Any:
    return factors.cho_solve((c, bool(lower)), b), 0


def posv(a: Any, b: Any, lower: Any = 0) -> Any:
    c = factors.cholesky(a, lower=bool(lower))
    kept = c + (np.triu(a, 1) if lower else np.tril(a, -1))
    return kept, factors.cho_solve((c, bool(lower)), b), 0


def getrf(a: Any) -> Any:
    return (*factors.lu_factor(a), 0)


def getrs(lu: Any, piv: Any, b: Any, trans: Any = 0) -> Any:
    return factors.lu_solve((lu, piv), b, trans=int(trans)), 0


def gesv(a: Any, b: Any) -> Any:
    lu, piv = factors.lu_factor(a)
    return lu, piv, factors.lu_solve((lu, piv), b), 0


def trtrs(a: Any, b: Any, lower: Any = 0, trans: Any = 0, unitdiag: Any = 0) -> Any:
    how = {"lower": bool(lower), "unit_diagonal": bool(unitdiag)}
    return systems.solve_triangular(a, b, trans=int(trans), **how), 0


def gtsv(dl: Any, d: Any, du: Any, b: Any) -> Any:
    bands = np.stack([_padded(du, 1, 0), d, _padded(dl, 0, 1)])
    left = UncomputedFactor("gtsv")
    return left, left, left, systems.solve_banded((1, 1), bands, b), 0


def ptsv(d: Any, e: Any, b: Any) -> Any:
    left = UncomputedFactor("ptsv")
    return left, left, systems.solveh_banded(np.stack([_padded(e, 1, 0), d]), b), 0


def _padded(x: Any, before: int, after: int) -> Any:
    return np.concatenate([np.zeros(before), x, np.zeros(after)])


def gbsv(kl: Any, ku: Any, ab: Any, b: Any) -> Any:
    kl, ku = int(kl), int(ku)
    x = systems.solve_banded((kl, ku), ab[kl : 2 * kl + ku + 1], b)
    left = UncomputedFactor("gbsv")
    return left, left, x, 0


def pbsv(ab: Any, b: Any, lower: Any = 0) -> Any:
    return UncomputedFactor("pbsv"), systems.solveh_banded(ab, b, lower=bool(lower)), 0


def syev(a: Any, compute_v: Any = 1, lower: Any = 0) -> Any:
    if not compute_v:
        return factors.eigh(a, lower=bool(lower), eigvals_only=True), UncomputedFactor("syev"), 0
    return (*factors.eigh(a, lower=bool(lower)), 0)


def gesdd(a: Any, compute_uv: Any = 1, full_matrices: Any = 1) -> Any:
    if not compute_uv:
        left = UncomputedFactor("gesdd")
        return left, factors.svd(a, compute_uv=False), left, 0
    return (*factors.svd(a, full_matrices=bool(full_matrices)), 0)


_OF_BLAS: dict[str, Callable[..., Any]] = {
    "dot": dot,
    "nrm2": nrm2,
    "asum": asum,
    "ger": ger,
    "gemv": gemv,
    "gemm": gemm,
    "symv": symv,
    "symm": symm,
    "trmm": trmm,
    "trsm": trsm,
    "trsv": trsv,
}
_OF_LAPACK: dict[str, Callable[..., Any]] = {
    "potrf": potrf,
    "potrs": potrs,
    "posv": posv,
    "getrf": getrf,
    "getrs": getrs,
    "gesv": gesv,
    "trtrs": trtrs,
    "gtsv": gtsv,
    "ptsv": ptsv,
    "gbsv": gbsv,
    "pbsv": pbsv,
    "syev": syev,
    "syevd": syev,
    "gesdd": gesdd,
}
# Alternatives for the other routines, by a part of their names.
_INSTEAD = {
    "axpy": "y + a * x",
    "scal": "a * x",
    "copy": "x.copy()",
    "syrk": "a @ a.T",
    "herk": "a @ a.conj().T",
    "potri": "scipy.linalg.inv of the matrix",
    "getri": "scipy.linalg.inv of the matrix",
    "trtri": "scipy.linalg.solve_triangular(a, np.eye(n))",
    "gels": "scipy.linalg.lstsq",
    "geqr": "scipy.linalg.qr",
    "orgqr": "scipy.linalg.qr",
    "ormqr": "scipy.linalg.qr",
    "gesvd": "scipy.linalg.svd",
    "syev": "scipy.linalg.eigh",
    "sygv": "scipy.linalg.eigh",
    "heev": "scipy.linalg.eigh",
    "hegv": "scipy.linalg.eigh",
    "stev": "scipy.linalg.eigh_tridiagonal",
    "stebz": "scipy.linalg.eigvalsh_tridiagonal",
    "geev": "scipy.linalg.eig",
    "sv": "scipy.linalg.solve, or solve_banded",
    "trs": "scipy.linalg.lu_solve, cho_solve or solve_triangular",
    "trf": "scipy.linalg.lu_factor, cho_factor or cholesky_banded",
}


def _answer(original: Any, name: str, home: str, own: Callable[..., Any] | None) -> Any:
    def stripped(kwargs: dict[str, Any]) -> dict[str, Any]:
        """The parameters without `overwrite_...`, which don't influence the result."""
        return {key: x for key, x in kwargs.items() if not key.startswith("overwrite_")}

    @functools.wraps(original, assigned=("__doc__",), updated=())
    @unobserved
    def called(*args: Any, **kwargs: Any) -> Any:
        if not any_traced((*args, *kwargs.values())):
            return original(*args, **kwargs)
        shown = f"{home}.{name}"
        if own is None:
            numbers = numbers_taken(args, kwargs)
            if numbers is not None:
                return original(*numbers[0], **numbers[1])
            use = next((u for part, u in _INSTEAD.items() if part in name), "that of scipy.linalg")
            raise refusal(f"{shown} of traced values can't be traced{at_line()}. Use {use}")
        found = accepted(original, args, kwargs, lambda: own(*args, **stripped(kwargs)), shown)
        names = re.findall(r"\w+", (original.__doc__ or "").partition("(")[2])
        note_memory({**dict(zip(names, args, strict=False)), **kwargs}, shown, found)
        return found

    called.__name__ = name
    return called


def _declare(module: Any, answers: dict[str, Callable[..., Any]]) -> None:
    """Declare the answers to all real routines of a module; complex routines are refused."""
    for name, found in list(vars(module).items()):
        if type(found).__name__ == "fortran":
            own = answers.get(name[1:]) if name[0] in "sd" else None
            answer = _answer(found, name, module.__name__, own)
            declare(module, name, answer, when=any_traced)


_declare(blas, _OF_BLAS)
_declare(lapack, _OF_LAPACK)


def _funcs(name: str) -> None:
    original = getattr(lapack if "lapack" in name else blas, name)

    def found(names: Any, arrays: Any = (), dtype: Any = None, ilp64: Any = False) -> Any:
        plain = [np.empty((0,) * np.ndim(x), np.result_type(x), order="F") for x in arrays]
        return original(names, plain, dtype, ilp64)

    stands_for(HOME, name, lists="arrays names")(found)


_funcs("get_lapack_funcs")
_funcs("get_blas_funcs")
