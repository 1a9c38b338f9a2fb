"""Interpolation by radial functions: scipy.interpolate's RBFInterpolator.

The coefficients c of phi(e |x - y_i|) and b of the monomials p solve

  [ phi + diag(smoothing)   P ] [ c ]   [ d ]
  [ P^T                     0 ] [ b ] = [ 0 ]

The monomials are in (y - shift) / scale, with the middle of the range of all points and half of
that range. With `neighbors` each x has such a system of its own, of the nearest points. SciPy
finds these points at each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from tapegrad.extending import at_line, refusal, seen
from tapegrad.scipy.interpolate.piecewise import Interpolant, floats
from tapegrad.scipy.recomputed import rows
from tapegrad.scipy.trees import tree_of

# phi as a function of the squared distance
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
    """An interpolator with traced points or values, or called at traced points."""

    coefficients: Any
    y: Any
    shift: Any
    scale: Any
    epsilon: Any
    kernel: str
    powers: Any
    shape: tuple[int, ...] | None = None  # the shape of a value, if it isn't a row

    def __call__(self, x: Any) -> Any:
        x = floats(x)
        if x.ndim != self.y.ndim:
            raise ValueError("`x` must be a 2-dimensional array.")
        if x.shape[-1] != self.y.shape[-1]:
            raise ValueError(f"Expected the second axis of `x` to have length {self.y.shape[-1]}.")
        radial = _radial(self.kernel, self.epsilon, x, self.y)
        monomials = _monomials(self.powers, (x - self.shift) / self.scale)
        found = np.concatenate([radial, monomials], axis=-1) @ self.coefficients
        return found if self.shape is None else np.reshape(found, (x.shape[0], *self.shape))


@dataclass(eq=False)
class Near(Interpolant):
    """An interpolator that uses the `neighbors` nearest points of each x."""

    y: Any
    d: Any
    smoothing: Any  # for each point
    epsilon: Any
    kernel: str
    powers: Any
    neighbors: int

    def __call__(self, x: Any) -> Any:
        x = floats(x)
        near = tree_of(KDTree, self.y).query(x, [*range(1, self.neighbors + 1)])[1]
        near = np.sort(near, axis=1)
        given = rows(self.smoothing, near), self.kernel, self.epsilon, self.powers
        d = np.reshape(self.d, (self.y.shape[0], -1))
        found = made(rows(self.y, near), rows(d, near), *given)(x[:, None])
        return np.reshape(found, (x.shape[0], *self.d.shape[1:]))


def _radial(kernel: str, epsilon: Any, x: Any, y: Any) -> Any:
    apart = (x[..., :, None, :] - y[..., None, :, :]) * epsilon
    return KERNELS[kernel](np.sum(apart * apart, axis=-1))


def _monomials(powers: Any, t: Any) -> Any:
    ones = np.ones_like(t[..., 0])
    found = [
        math.prod([t[..., k] ** int(n) for k, n in enumerate(row) if n], start=ones)
        for row in powers
    ]
    return np.stack(found, axis=-1) if found else np.zeros_like(t[..., :0])


def made(y: Any, d: Any, smoothing: Any, kernel: str, epsilon: Any, powers: Any) -> Radial:
    """The interpolator of values (rows) at points; one for each entry of further leading axes."""
    count, n, more = len(powers), y.shape[-2], y.shape[:-2]
    low, high = np.min(y, axis=-2, keepdims=True), np.max(y, axis=-2, keepdims=True)
    shift, half = (low + high) / 2, (high - low) / 2
    scale = np.where(half > 0, half, 1.0)
    p = _monomials(powers, (y - shift) / scale)
    whole = _radial(kernel, epsilon, y, y) + np.eye(n) * np.expand_dims(smoothing, -1)
    left = np.concatenate([whole, np.swapaxes(p, -1, -2)], axis=-2)
    right = np.concatenate([p, np.zeros((*more, count, count))], axis=-2)
    values = np.concatenate([d, np.zeros((*more, count, d.shape[-1]))], axis=-2)
    coefficients = np.linalg.solve(np.concatenate([left, right], axis=-1), values)
    return Radial(coefficients, y, shift, scale, epsilon, kernel, powers)


def interpolator(y: Any, d: Any, smoothing: Any, epsilon: Any, like: Any) -> Radial | Near:
    """An interpolator with the parameters of `like`, SciPy's own of the plain values."""
    if like.neighbors is not None:
        each = np.broadcast_to(floats(smoothing), y.shape[:1])
        return Near(y, d, each, epsilon, like.kernel, like.powers, like.neighbors)
    rows = np.reshape(d, (y.shape[0], -1))
    return replace(made(y, rows, smoothing, like.kernel, epsilon, like.powers), shape=d.shape[1:])


def of_theirs(f: Any) -> Radial | Near:
    """SciPy's own interpolator of plain values, as ours."""
    if np.iscomplexobj(np.zeros(0, f.d_dtype)):
        raise refusal(
            f"scipy.interpolate.RBFInterpolator of complex values can't be traced{at_line()}. Use "
            "one of the real parts, and one of the imaginary ones"
        )
    seen(f)
    how = f.epsilon, f.kernel, f.powers
    if f.neighbors is not None:
        d = np.reshape(f.d, (-1, *f.d_shape))
        return Near(f.y, d, np.broadcast_to(f.smoothing, f.y.shape[:1]), *how, f.neighbors)
    return Radial(f._coeffs, f.y, f._shift, f._scale, *how, tuple(f.d_shape))
