"""What answers the functions of scipy.linalg.

Where SciPy raises an error, its own function is called with the values at hand, so that the error
is in its words. `overwrite_a` and the like mean nothing. A driver of LAPACK's is taken where it
decides which signs eigenvectors have, and else ignored, once SciPy has accepted it.
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
