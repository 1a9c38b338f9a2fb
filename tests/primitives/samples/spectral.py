"""Of eigenvalues, singular values and orthogonal factors."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.primitives.samples.drawn import Sample, each_matrix, each_matrix_of, normal
from tests.primitives.samples.systems import (
    REAL_SPECTRUM,
    eigenvectors,
    further_columns,
    gram_schmidt,
    real_eigenvectors,
    singular_vectors,
    symmetric,
)

from tapegrad.primitives.degenerate import (
    ChosenEigenvectors,
    ChosenSingularVectors,
    EigenvaluePullback,
    SingularValuePullback,
)
from tapegrad.primitives.eigen import Eig
from tapegrad.primitives.spectral import QR, SVD, Complement, EigH, PInv


def of_spectral() -> dict[type, list[Sample]]:
    square = [(3, 3), (1, 1), (2, 3, 3)]
    shapes = [*square, (4, 2), (2, 4), (2, 4, 3)]
    return {
        Eig: [
            Sample(Eig(), (a,), each_matrix(real_eigenvectors), label=str(a.shape))
            for a in (REAL_SPECTRUM[:1, :1], REAL_SPECTRUM, np.stack([REAL_SPECTRUM + 1] * 2))
        ],
        Complement: [
            Sample(
                Complement(of),
                (normal(2, 4) if of == "right" else normal(4, 2),),
                lambda a, of=of: further_columns(a, of),
                smooth=False,
                label=of,
            )
            for of in ("left", "right", "qr")
        ],
        EigH: [
            Sample(
                EigH(low),
                (normal(*s),),
                each_matrix(lambda a, low=low: eigenvectors(a, low)),
                label=f"{low=}, {s}",
            )
            for low in (True, False)
            for s in square
        ],
        SVD: [Sample(SVD(), (normal(*s),), each_matrix(singular_vectors)) for s in shapes],
        **_degenerate(),
        QR: [
            Sample(QR(), (normal(*s),), each_matrix(gram_schmidt)) for s in shapes if s[-2] >= s[-1]
        ],
        PInv: [
            Sample(
                PInv(1e-12),
                (normal(*s),),
                each_matrix(lambda a: (np.linalg.lstsq(a, np.eye(len(a)))[0], False)),
            )
            for s in shapes
        ],
    }


def _degenerate() -> dict[type, list[Sample]]:
    """Of values that are equal, or 0, and of others. What they are good for is held by
    special_points_test.py: it can't be told from differences of the operands, some of which are
    functions of others."""
    options: dict[str, Any] = {"smooth": False}
    found: dict[type, list[Sample]] = {
        EigenvaluePullback: [],
        ChosenEigenvectors: [],
        SingularValuePullback: [],
        ChosenSingularVectors: [],
    }
    for a in (np.eye(3), symmetric(normal(3, 3)), np.stack([np.eye(2), np.diag([1.0, 2.0])])):
        w, v = np.linalg.eigh(a)
        c, z = normal(*w.shape), symmetric(normal(*a.shape, seed=1))
        found[EigenvaluePullback].append(
            Sample(EigenvaluePullback(True), (a, w, v, c), _recomposed_symmetric, **options)
        )
        found[ChosenEigenvectors].append(
            Sample(
                ChosenEigenvectors(),
                (w, v, z),
                each_matrix_of(1, lambda w, v, z: _diagonalised(w, v, v, z)[0]),
                **options,
            )
        )
    for a in (np.eye(3), normal(3, 2), np.diag([2.0, 1.0])):
        u, s, vt = np.linalg.svd(a, full_matrices=False)
        found[SingularValuePullback].append(
            Sample(
                SingularValuePullback(),
                (a, u, s, vt, normal(*s.shape)),
                lambda a, u, s, vt, c: u @ np.diag(c) @ vt,
                **options,
            )
        )
        z = symmetric(normal(3, 3, seed=1))[: len(a), : a.shape[1]]
        found[ChosenSingularVectors].append(
            Sample(
                ChosenSingularVectors(),
                (u, s, vt, z),
                lambda u, s, vt, z: (lambda left, right: (left, right.T))(
                    *_diagonalised(s, u, vt.T, z, -1)
                ),
                **options,
            )
        )
    return found


def _recomposed_symmetric(a: Any, w: Any, v: Any, c: Any) -> Any:
    return np.einsum("...ij,...j,...kj->...ik", v, c, v)


def _diagonalised(s: Any, u: Any, v: Any, z: Any, order: int = 1) -> Any:
    """The vectors, turned together so that U^T Z V is diagonal where all values are equal."""
    if np.ptp(s) > 1e-6:
        return u, v
    turn = np.linalg.eigh(symmetric(u.T @ z @ v))[1][:, ::order]
    return u @ turn, v @ turn
