"""Interpolation by radial functions: scipy.interpolate's RBFInterpolator of all points.

The coefficients c of phi(e |x - y_i|) and of monomials p solve

    [ phi + diag(smoothing)   P ] [ c ]   [ d ]
    [ P^T                     0 ] [ b ] = [ 0 ]

with the monomials in (y - shift) / scale, by the middle and half of the range of all points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.scipy.declaring import refusal, seen
from tapegrad.scipy.interpolate.piecewise import Interpolant, floats
from tapegrad.tracing.source import at_line

# phi of the squared distance
KERNELS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda q: -np.sqrt(q),
    "thin_plate_spline": lambda q: np.where(q > 0, 0.5 * q * np.log(np.where(q > 0, q, 1.0)), 0.0),
    "cubic": lambda q: q * np.sqrt(q),
    "quintic": lambda q: -(q**2) * np.sqrt(q),
    "multiquadric": lambda q: -np.sqrt(q + 1),
    "inverse_multiquadric": lambda q: 1 / np.sqrt(q + 1),
    "inverse_quadratic": lambda q: 1 / (q + 1),
    "gaussian": lambda q: np.exp(-q),
}


@dataclass(eq=False)
class Radial(Interpolant):
    """An interpolator between traced points or values, or at traced points."""

    coefficients: Any
    y: Any
    shift: Any
    scale: Any
    epsilon: Any
    kernel: str
    powers: Any
    shape: tuple[int, ...]  # of a value

    def __call__(self, x: Any) -> Any:
        x = floats(x)
        if x.ndim != 2:
            raise ValueError("`x` must be a 2-dimensional array.")
        if x.shape[1] != self.y.shape[1]:
            raise ValueError(f"Expected the second axis of `x` to have length {self.y.shape[1]}.")
        radial = _radial(self.kernel, self.epsilon, x, self.y)
        monomials = _monomials(self.powers, (x - self.shift) / self.scale)
        found = np.concatenate([radial, monomials], axis=1) @ self.coefficients
        return np.reshape(found, (x.shape[0], *self.shape))


def _radial(kernel: str, epsilon: Any, x: Any, y: Any) -> Any:
    apart = (x[:, None] - y) * epsilon
    return KERNELS[kernel](np.sum(apart * apart, axis=-1))


def _monomials(powers: Any, t: Any) -> Any:
    ones = np.ones_like(t[:, 0])
    found = [
        math.prod([t[:, k] ** int(n) for k, n in enumerate(row) if n], start=ones) for row in powers
    ]
    return np.stack(found, axis=1) if found else np.zeros_like(t[:, :0])


def made(y: Any, d: Any, smoothing: Any, kernel: str, epsilon: Any, powers: Any) -> Radial:
    """The interpolator of values at points."""
    count, n = len(powers), y.shape[0]
    low, high = np.min(y, axis=0), np.max(y, axis=0)
    shift, half = (low + high) / 2, (high - low) / 2
    scale = np.where(half > 0, half, 1.0)
    p = _monomials(powers, (y - shift) / scale)
    whole = _radial(kernel, epsilon, y, y) + np.eye(n) * smoothing
    left = np.concatenate([whole, p.T], axis=0)
    right = np.concatenate([p, np.zeros((count, count))], axis=0)
    values = np.reshape(d, (n, -1))
    values = np.concatenate([values, np.zeros((count, values.shape[1]))], axis=0)
    coefficients = np.linalg.solve(np.concatenate([left, right], axis=1), values)
    return Radial(coefficients, y, shift, scale, epsilon, kernel, powers, tuple(d.shape[1:]))


def of_theirs(f: Any) -> Radial:
    """SciPy's own, of plain values."""
    if f.neighbors is not None or np.iscomplexobj(np.zeros(0, f.d_dtype)):
        raise _refused("neighbors" if f.neighbors is not None else "d, complex,")
    seen(f)
    shift, scale = f._shift, f._scale
    given = f.y, shift, scale, f.epsilon, f.kernel, f.powers
    return Radial(f._coeffs, *given, tuple(f.d_shape))


def _refused(what: str) -> Exception:
    return refusal(
        f"scipy.interpolate.RBFInterpolator(..., {what}=...) can't be traced{at_line()}, only of "
        "all points"
    )
