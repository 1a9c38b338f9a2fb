"""Eigenvalues and eigenvectors of general square matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as theirs

from tapegrad.extending.arrays import adjoint, cast, value_of
from tapegrad.extending.arrays import linalg as numpys
from tapegrad.extending.tapes import Aval, ForeignCall
from tapegrad.scipy.borrowing import borrow
from tapegrad.scipy.linalg.common import HOME, answers, checked
from tapegrad.scipy.solver_calls import Constant, recorded

WHOLE: Any = {np.dtype(np.float32): np.complex64, np.dtype(float): np.complex128}


@answers(parameters="left right")
def eig(a: Any, left: bool = False, right: bool = True, check_finite: bool = True) -> Any:
    """The complex eigenvalues of a square matrix, and its eigenvectors: A v = w v, and the left
    ones u^H A = w u^H."""
    (a,) = checked(check_finite, a)
    w, v = numpys.real_eig(a)
    whole = w if w.dtype.kind == "c" else cast(w, WHOLE[w.dtype])
    found = [whole, *([_from_the_left(a, v)] if left else []), *([v] if right else [])]
    return tuple(found) if left or right else whole


def _from_the_left(a: Any, v: Any) -> Any:
    """The left eigenvectors: the columns of V^-H, normalized, with LAPACK's signs or phases. These
    are constants for derivatives, as those of V are."""
    u = adjoint(np.linalg.inv(v))
    u = u / np.linalg.norm(u, axis=-2, keepdims=True)

    def phases(a: Any, u: Any) -> list[Any]:
        _, own = theirs.eig(a, left=True, right=False)
        along = np.sum(np.conj(u) * own, axis=-2, keepdims=True)
        return [np.asarray(along / np.abs(along), u.dtype)]

    rules = Constant()
    types = (Aval((*u.shape[:-2], 1, u.shape[-1]), u.dtype),)
    call = ForeignCall("phases", phases, types, 1, rules.backward, "", rules.forward, True)
    return u * recorded(call, [a, u], phases(value_of(a), value_of(u)))[0]


borrow(HOME, "eigvals")
