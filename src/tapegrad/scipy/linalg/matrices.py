"""Structured matrices of scipy.linalg, which are made of a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.extending.arrays import cast
from tapegrad.scipy.borrowing import borrow
from tapegrad.scipy.linalg.common import HOME, answers, checked, column_and_row, shown


def _windows(diagonals: Any, width: int) -> Any:
    """Windows of `width` neighbours, as rows; each window starts one element later."""
    return np.lib.stride_tricks.sliding_window_view(diagonals, width, axis=-1)


def toeplitz_of(c: Any, r: Any) -> Any:
    """The Toeplitz matrix with this first column and first row."""
    lead = np.broadcast_shapes(c.shape[:-1], r.shape[:-1])
    c, r = (np.broadcast_to(x, (*lead, x.shape[-1])) for x in (c, r))
    if not (c.size and r.size):
        return c[..., :, None] * r[..., None, :]
    diagonals = np.concatenate([c[..., ::-1], r[..., 1:]], -1)
    return np.copy(np.flip(_windows(diagonals, r.shape[-1]), -2))


@answers()
def toeplitz(c: Any, r: Any = None) -> Any:
    """The Toeplitz matrix with the first column c and the first row r."""
    c, r = np.atleast_1d(shown(c, r)), None if r is None else shown(r, c)
    r = np.conjugate(c) if r is None else np.atleast_1d(r)
    return toeplitz_of(c, r)


borrow(HOME, "circulant hankel leslie khatri_rao", decorated=True)
borrow(HOME, "block_diag companion fiedler fiedler_companion convolution_matrix")
borrow(HOME, "solve_circulant solve_discrete_lyapunov", decorated=True)


@answers(lists="c_or_cr")
def matmul_toeplitz(c_or_cr: Any, x: Any, check_finite: bool = False) -> Any:
    """The product with the Toeplitz matrix of this first column and first row: a convolution."""
    c, r = column_and_row(c_or_cr, x)
    c, r, x = checked(check_finite, c, r, x)
    columns = x[:, None] if x.ndim == 1 else x
    if columns.shape[-2] != r.shape[-1]:
        raise ValueError("Incompatible dimensions.")
    kind: Any = np.complex128 if x.dtype.kind == "c" else np.float64
    c, r, columns = (cast(y, kind) for y in (c, r, columns))
    lead = np.broadcast_shapes(c.shape[:-1], r.shape[:-1])
    c, r = (np.broadcast_to(y, (*lead, y.shape[-1])) for y in (c, r))
    n, count = c.shape[-1], c.shape[-1] + r.shape[-1] - 1
    turned = np.concatenate([c, r[..., :0:-1]], -1)[..., None]
    there, back = (
        (np.fft.fft, np.fft.ifft) if kind is np.complex128 else (np.fft.rfft, np.fft.irfft)
    )
    spectrum = there(turned, count, axis=-2) * there(columns, count, axis=-2)
    found = back(spectrum, count, axis=-2)[..., :n, :]
    return found[..., 0] if x.ndim == 1 else found
