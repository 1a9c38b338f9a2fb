"""Piecewise polynomials of scipy.interpolate with traced values, and interpolation by them.

A cubic spline is computed from the slopes at its points: in each interval a cubic polynomial has
these slopes and the values. So it depends on the values and the points, and has derivatives of any
order along both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_banded as plain_solve

from tapegrad.extending import Carrier, at_line, is_traced, refusal, seen
from tapegrad.extending.arrays import as_array, as_operand
from tapegrad.scipy.linalg.systems import solve_banded
from tapegrad.scipy.solver_calls import stopped


def floats(x: Any) -> Any:
    """An argument as an array of float64."""
    if not is_traced(x) and not np.iscomplexobj(x):
        return np.asarray(x, float)
    x = as_operand(x)
    if x.dtype.kind == "c":  # a conversion to floats would drop the imaginary parts
        raise refusal(
            f"interpolation of complex numbers can't be traced{at_line()}. Use z.real and z.imag, "
            "with an interpolant of each"
        )
    return x if x.dtype == np.float64 else x.astype(float)


def after(x: Any, ndim: int) -> Any:
    """A vector with further axes of length 1, which aligns it with the first axis of others."""
    return np.reshape(x, np.shape(x) + (1,) * (ndim - 1))


def interval(x: Any, t: Any) -> Any:
    """The number of the interval of increasing x that contains t, or of the nearest interval."""
    k = np.searchsorted(stopped(x), stopped(t), side="right") - 1
    return np.clip(k, 0, np.size(x) - 2)


def outside(x: Any, t: Any) -> Any:
    return np.logical_or(t < x[0], t > x[-1])


class Interpolant(Carrier):
    """An interpolant along `axis` of its values. In a result the axes of the points take the place
    of that axis. The classes are dataclasses, and so pytrees: functions may return them."""

    axis: int

    def placed(self, y: Any, t: Any) -> Any:
        """Values whose first axis is that of the flattened points, in SciPy's arrangement of
        axes."""
        rest = np.shape(y)[1:]
        y = np.reshape(y, np.shape(t) + rest)
        if not self.axis:
            return y  # an array even without axes
        n = np.ndim(t)
        order = [*range(n, n + self.axis), *range(n), *range(n + self.axis, n + len(rest))]
        return np.transpose(y, order)


@dataclass(eq=False)
class Piecewise(Interpolant):
    """A PPoly: c[0, i] (t - x[i])^(k-1) + ... + c[k-1, i] in interval i."""

    c: Any
    x: Any
    extrapolate: Any = True
    axis: int = 0

    def __call__(self, x: Any, nu: Any = 0, extrapolate: Any = None) -> Any:
        t = floats(x)
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if nu:
            return self.derivative(nu)(t, 0, extrapolate)
        flat = np.reshape(t, (-1,))
        points = self.x
        if extrapolate == "periodic":
            flat = points[0] + (flat - points[0]) % (points[-1] - points[0])
        k = interval(points, flat)
        s = after(flat - points[k], np.ndim(self.c) - 1)
        c = self.c[:, k]
        y = c[0]
        for part in c[1:]:
            y = y * s + part
        if not extrapolate:
            y = np.where(after(outside(points, flat), np.ndim(y)), np.nan, y)
        return self.placed(y, t)

    def derivative(self, nu: Any = 1) -> Piecewise:
        if nu < 0:
            return self.antiderivative(-nu)
        c = self.c
        for _ in range(nu):
            k = np.shape(c)[0]
            powers = np.arange(k - 1, 0, -1.0)
            c = c[:-1] * after(powers, np.ndim(c)) if k > 1 else 0.0 * c
        return Piecewise(c, self.x, self.extrapolate, self.axis)

    def antiderivative(self, nu: Any = 1) -> Piecewise:
        if nu <= 0:
            return self.derivative(-nu)
        c = self.c
        for _ in range(nu):
            k = np.shape(c)[0]
            c = c / after(np.arange(k, 0, -1.0), np.ndim(c))
            h = after(np.diff(self.x), np.ndim(c) - 1)
            parts = sum(c[j] * h ** (k - j) for j in range(k))
            ends = np.cumsum(parts, axis=0)
            starts = np.concatenate([0.0 * ends[:1], ends[:-1]])
            c = np.concatenate([c, starts[None]])
        extrapolate = False if self.extrapolate == "periodic" else self.extrapolate
        return Piecewise(c, self.x, extrapolate, self.axis)

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            raise refusal(f"integrate of a periodic spline can't be traced{at_line()}")
        whole = self.antiderivative()
        return as_array(whole(b, 0, extrapolate) - whole(a, 0, extrapolate))

    def __getattr__(self, name: str) -> Any:
        raise without(name, "c, x")


def without(name: str, has: str) -> Exception:
    """The error for an attribute that a spline with traced values lacks."""
    if name.startswith("_"):
        return AttributeError(name)
    return refusal(
        f"{name} of a spline with traced values can't be traced{at_line()}. It has {has}, "
        "__call__, derivative, antiderivative and integrate"
    )


def of_theirs(spline: Any) -> Piecewise:
    """A PPoly of SciPy's as `Piecewise`; its arrays are guarded at later calls."""
    seen(spline)
    check_increasing(spline.x)
    return Piecewise(spline.c, spline.x, spline.extrapolate, spline.axis)


def check_increasing(x: Any) -> None:
    """Refuse breakpoints that decrease, which SciPy's PPoly allows."""
    if np.any(np.diff(x) < 0):
        raise refusal(
            f"scipy.interpolate.PPoly can't be traced{at_line()} with breakpoints that decrease. "
            "Turn the axis around: PPoly(c, -x) at -t, with the signs of odd powers changed"
        )


# ---- cubic polynomials from slopes


def hermite(x: Any, y: Any, slopes: Any, extrapolate: Any, axis: int) -> Piecewise:
    """The cubic polynomials with these values and slopes at both ends of each interval."""
    h = after(np.diff(x), np.ndim(y))
    slope = np.diff(y, axis=0) / h
    t = (slopes[:-1] + slopes[1:] - 2 * slope) / h
    c = np.stack([t / h, (slope - slopes[:-1]) / h - t, slopes[:-1], y[:-1]])
    return Piecewise(c, x, extrapolate, axis)


def prepared(x: Any, y: Any, axis: int) -> tuple[Any, Any, int]:
    """The points, the values with their axis first, and that axis as a nonnegative number."""
    x, y = floats(x), floats(y)
    axis %= np.ndim(y)
    if is_traced(x):
        bool(np.all(np.diff(x) > 0))  # guarded: otherwise SciPy raises an error
    return x, np.moveaxis(y, axis, 0) if axis else y, axis


def pchip(x: Any, y: Any) -> Any:
    """The slopes of F. N. Fritsch and J. Butland, "A method for constructing local monotone
    piecewise cubic interpolants", SIAM J. Sci. Comput. 5 (1984)."""
    h = after(np.diff(x), np.ndim(y))
    m = np.diff(y, axis=0) / h
    if np.shape(y)[0] == 2:
        return np.concatenate([m, m])
    signs = np.sign(m)
    flat = (signs[1:] != signs[:-1]) | (m[1:] == 0) | (m[:-1] == 0)
    w1, w2 = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
    left, right = np.where(flat, 1.0, m[:-1]), np.where(flat, 1.0, m[1:])
    mean = (w1 / left + w2 / right) / (w1 + w2)
    inner = np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, mean))
    first = _end(h[:1], h[1:2], m[:1], m[1:2])
    last = _end(h[-1:], h[-2:-1], m[-1:], m[-2:-1])
    return np.concatenate([first, inner, last])


def _end(h0: Any, h1: Any, m0: Any, m1: Any) -> Any:
    d = ((2 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    other = np.sign(d) != np.sign(m0)
    steep = (np.sign(m0) != np.sign(m1)) & (np.abs(d) > 3.0 * np.abs(m0))
    return np.where(other, 0.0, np.where(steep, 3.0 * m0, d))


def akima(x: Any, y: Any, method: str) -> Any:
    """The slopes of H. Akima, "A new method of interpolation and smooth curve fitting based on
    local procedures", J. ACM 17 (1970)."""
    h = after(np.diff(x), np.ndim(y))
    inner = np.diff(y, axis=0) / h
    if np.shape(y)[0] == 2:
        return np.concatenate([inner, inner])
    one = 2.0 * inner[:1] - inner[1:2]
    last = 2.0 * inner[-1:] - inner[-2:-1]
    m = np.concatenate([2.0 * one - inner[:1], one, inner, last, 2.0 * last - inner[-1:]])
    d = np.abs(np.diff(m, axis=0))
    f1, f2 = d[2:], d[:-2]
    if method == "makima":
        p = np.abs(m[1:] + m[:-1])
        f1, f2 = f1 + 0.5 * p[2:], f2 + 0.5 * p[:-2]
    f = f1 + f2
    known = f > 1e-9 * np.max(f)
    share = f2 / np.where(known, f, 1.0)
    return np.where(known, m[1:-2] + share * (m[2:-1] - m[1:-2]), 0.5 * (m[3:] + m[:-3]))


def natural(x: Any, y: Any, bc: Any) -> Any:
    """The slopes for which the second derivative is continuous: the solution of a tridiagonal
    system (de Boor, "A practical guide to splines", chapter IV)."""
    n, ndim = np.shape(y)[0], np.ndim(y)
    dx = np.diff(x)
    h = after(dx, ndim)
    slope = np.diff(y, axis=0) / h
    if bc[0] == "periodic":
        return _periodic(dx, h, slope, n)
    bc = [
        (1, slope[k]) if n == 2 and c == "not-a-knot" else c
        for k, c in zip((0, -1), bc, strict=True)
    ]
    one = np.ones(1)
    if n == 3 and bc[0] == bc[1] == "not-a-knot":
        top = np.stack([2 * slope[0], 3 * (h[0] * slope[1] + h[1] * slope[0]), 2 * slope[1]])
        above = np.concatenate([0 * one, one, dx[:1]])
        diagonal = np.concatenate([one, 2 * (dx[:1] + dx[1:]), one])
        below = np.concatenate([dx[1:], one, 0 * one])
        return _solved(above, diagonal, below, top)
    span = (x[2] - x[0], x[-1] - x[-3]) if n > 2 else (dx[0], dx[0])
    ends = [
        _row(bc[0], dx[0], dx[min(1, n - 2)], span[0], slope[0], slope[min(1, n - 2)], -1.0),
        _row(bc[1], dx[-1], dx[max(-2, 1 - n)], span[1], slope[-1], slope[max(-2, 1 - n)], 1.0),
    ]
    (first, above, start), (last, below, end) = ends
    middle = 3 * (h[1:] * slope[:-1] + h[:-1] * slope[1:])
    return _solved(
        np.concatenate([0 * one, above, dx[:-1]]),
        np.concatenate([first, 2 * (dx[:-1] + dx[1:]), last]),
        np.concatenate([dx[1:], below, 0 * one]),
        np.concatenate([start[None], middle, end[None]]),
    )


def _row(
    condition: Any, near: Any, far: Any, span: Any, slope: Any, next_: Any, sign: float
) -> tuple[Any, Any, Any]:
    """The equation at an end: its diagonal element, the one beside it, and its right side. `near`
    is the length of the interval at the end, `far` that of the next one, `span` that of both."""
    if condition == "not-a-knot":
        b = ((near + 2 * span) * far * slope + near**2 * next_) / span
        found = far, span
    elif condition[0] == 1:
        b = condition[1] + 0 * slope
        found = 1.0 + 0 * near, 0 * near
    else:
        b = 0.5 * sign * condition[1] * near**2 + 3 * near * slope
        found = 2 * near, near
    return np.reshape(found[0], (1,)), np.reshape(found[1], (1,)), b


def _solved(upper: Any, main: Any, lower: Any, b: Any) -> Any:
    bands = np.stack([upper, main, lower])
    flat = np.reshape(b, (np.shape(b)[0], -1))
    solve = solve_banded if is_traced((bands, flat)) else plain_solve
    return np.reshape(solve((1, 1), bands, flat), np.shape(b))


def _periodic(dx: Any, h: Any, slope: Any, n: int) -> Any:
    """The slopes of a periodic spline; its matrix also has elements in two corners."""
    if n == 2:
        s = 0.0 * slope
    elif n == 3:
        t = np.sum(slope / h, axis=0) / np.sum(1.0 / h, axis=0)
        return np.stack([t, t, t])
    else:
        before = np.roll(dx, 1)
        b = 3 * (np.roll(h, 1, 0) * slope + h * np.roll(slope, 1, 0))
        eye = np.eye(n - 1)
        matrix = after(2 * (before + dx), 2) * eye
        matrix = matrix + after(before, 2) * np.roll(eye, 1, 1) + after(dx, 2) * np.roll(eye, -1, 1)
        flat = np.reshape(b, (n - 1, -1))
        s = np.reshape(np.linalg.solve(matrix, flat), np.shape(b))
    return np.concatenate([s, s[:1]])


def conditions(bc_type: Any, shape: tuple[int, ...]) -> list[Any]:
    """The conditions at both ends: "not-a-knot", "periodic", or a derivative's order and value."""
    if isinstance(bc_type, str) or bc_type is None:
        bc_type = (bc_type, bc_type)
    short = {"clamped": (1, 0.0), "natural": (2, 0.0), "not-a-knot": "not-a-knot"}
    short["periodic"] = "periodic"
    return [short[c] if isinstance(c, str) else (c[0], floats(c[1])) for c in bc_type]
