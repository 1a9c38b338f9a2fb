"""Eigenvalues and eigenvectors of matrices that needn't be symmetric, if they are real."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval
from tapegrad.primitives.base import parametric, total
from tapegrad.primitives.contractions import matmul, swapped
from tapegrad.primitives.degenerate import over_any_gaps, placed, row
from tapegrad.primitives.kinds import Library
from tapegrad.primitives.solving import LU, inverse_t
from tapegrad.primitives.spectral import FLAG, attempted
from tapegrad.primitives.triangles import square
from tapegrad.primitives.views import Diagonal


@parametric
class Eig(Library):
    """The eigenvalues w of A, eigenvectors of length 1 as columns of V, whether any of them is
    complex, in which case these are the real parts, and whether the algorithm didn't converge.

    With F_ij = 1 / (w_j - w_i), and 0 on the diagonal and for equal eigenvalues, the cotangent of A
    is V^-T (diag(w') + F * (V^T V' - V^T V diag(V^T V'))) V^T. The subtracted term is the
    derivative of the length (C. Boeddeker et al., "On the computation of complex-valued gradients
    with application to statistically optimum beamforming", arXiv:1701.00392, 4.77).
    """

    name = "eig"
    cores = (2,)
    results = 4

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        a = square(self.name, xs[0])
        flag = Aval(a.shape[:-2], FLAG)
        return a.with_shape(a.shape[:-1]), a, flag, flag

    def evaluate(self, *xs: Any) -> Any:
        def found(x: Any) -> tuple[Any, ...]:
            w, v = np.linalg.eig(x)
            return w.real, v.real, np.any(w.imag != 0, axis=-1)

        return attempted(found, lambda x: (x.shape[:1], x.shape, ()), xs[0])

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        (ct_w, ct_v, _, _), (w, v, _, _) = ct, out
        terms = []
        if ct_w is not None:
            terms.append(placed(ct_w))
        if ct_v is not None:
            turned = matmul(swapped(v), ct_v)
            length = matmul(swapped(v), v) * row(Diagonal(0)(turned))
            terms.append(over_any_gaps(turned - length, w, ct_w is not None))
        if not terms:
            return (None,)
        return (matmul(matmul(inverse_t(v, *LU()(v)), total(terms)), swapped(v)),)

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        (t,), (w, v, _, _) = ts, out
        turned = matmul(swapped(inverse_t(v, *LU()(v))), matmul(t, v))
        t_v = matmul(v, over_any_gaps(turned, w))
        t_v = t_v - v * row(Diagonal(0)(matmul(swapped(v), t_v)))
        return Diagonal(0)(turned), t_v, None, None
