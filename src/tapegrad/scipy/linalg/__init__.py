"""Traceable versions of the functions of scipy.linalg.

Where SciPy raises an error, its own function is called with the present values, so that the
message is SciPy's. `overwrite_a` and similar parameters have no effect. A LAPACK driver is used
where it decides the signs of eigenvectors; elsewhere it is ignored, once SciPy has accepted it.
"""

from __future__ import annotations

from tapegrad.scipy.linalg import factors, functions, matrices, routines, spectra, systems

__all__ = ["factors", "functions", "matrices", "routines", "spectra", "systems"]

REFUSED = {
    "schur rsf2csf cdf2rdf qz ordqz hessenberg": "eig or eigvals, whose derivatives are known",
    "ldl": "cholesky where the matrix is positive definite, and lu else",
    "signm": "a @ inv(sqrtm(a @ a))",
    "funm": "expm, logm, sqrtm, cosm, sinm, or eig",
    "eig_banded eigvals_banded": "eigh of the matrix in full",
    "qr_insert qr_delete qr_update": "qr of the changed matrix",
}
