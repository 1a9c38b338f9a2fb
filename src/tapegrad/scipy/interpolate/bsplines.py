"""B-splines of scipy.interpolate with traced values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.linalg import solve_banded as plain_solve

from tapegrad.extending import at_line, is_traced, refusal, seen
from tapegrad.extending.arrays import as_array
from tapegrad.scipy.interpolate.piecewise import Interpolant, after, floats, without
from tapegrad.scipy.linalg.systems import solve_banded
from tapegrad.scipy.solver_calls import stopped


@dataclass(eq=False)
class Basis(Interpolant):
    """A BSpline: the sum of c[j] times the j-th B-spline of degree k with knots t."""

    t: Any
    c: Any
    k: int
    extrapolate: Any = True
    axis: int = 0

    @property
    def tck(self) -> Any:
        return self.t, self.c, self.k

    def __call__(self, x: Any, nu: Any = 0, extrapolate: Any = None) -> Any:
        """The values by de Boor's recursion ("A practical guide to splines", chapter X)."""
        u = floats(x)
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if nu:
            return self.derivative(nu)(u, 0, extrapolate)
        t, k = self.t, self.k
        n = np.size(t) - k - 1
        flat = np.reshape(u, (-1,))
        first, last = t[k], t[n]
        if extrapolate == "periodic":
            flat = first + (flat - first) % (last - first)
        place = np.searchsorted(stopped(t), stopped(flat), side="right") - 1
        place = np.clip(place, k, n - 1)
        ndim = np.ndim(self.c)
        d = [self.c[place - k + j] for j in range(k + 1)]
        for r in range(1, k + 1):
            for j in range(k, r - 1, -1):
                left, right = t[place - k + j], t[place + 1 + j - r]
                alpha = after((flat - left) / (right - left), ndim)
                d[j] = (1 - alpha) * d[j - 1] + alpha * d[j]
        y = d[k] if k else np.where(after(np.isnan(flat), ndim), np.nan, d[k])
        if not extrapolate:
            out = np.logical_or(flat < first, flat > last)
            y = np.where(after(out, ndim), np.nan, y)
        return self.placed(y, u)

    def derivative(self, nu: Any = 1) -> Basis:
        t, c, k = self.t, self.c, self.k
        for _ in range(nu):
            if k == 0:
                c = 0.0 * c
                continue
            n = np.size(t) - k - 1
            gaps = t[k + 1 : n + k] - t[1:n]
            safe = np.where(gaps > 0, gaps, 1.0)
            c = np.diff(c[:n], axis=0) * after(np.where(gaps > 0, k / safe, 0.0), np.ndim(c))
            t, k = t[1:-1], k - 1
        return Basis(t, c, k, self.extrapolate, self.axis)

    def antiderivative(self, nu: Any = 1) -> Basis:
        t, c, k = self.t, self.c, self.k
        for _ in range(nu):
            n = np.size(t) - k - 1
            steps = c[:n] * after((t[k + 1 :] - t[:n]) / (k + 1), np.ndim(c))
            c = np.concatenate([0.0 * steps[:1], np.cumsum(steps, axis=0)])
            t = np.concatenate([t[:1], t, t[-1:]])
            k = k + 1
        extrapolate = False if self.extrapolate == "periodic" else self.extrapolate
        return Basis(t, c, k, extrapolate, self.axis)

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            raise refusal(f"integrate of a periodic spline can't be traced{at_line()}")
        whole = self.antiderivative()
        if not extrapolate:  # SciPy integrates 0 there
            first, last = self.t[self.k], self.t[-self.k - 1]
            a, b = [np.clip(floats(x), first, last) for x in (a, b)]
        return as_array(whole(b, 0, True) - whole(a, 0, True))

    def __getattr__(self, name: str) -> Any:
        raise without(name, "t, c, k")


def of_theirs(spline: Any) -> Basis:
    """A BSpline of SciPy's as a `Basis`; its arrays are guarded at later calls."""
    seen(spline)
    return Basis(spline.t, spline.c, spline.k, spline.extrapolate, spline.axis)


def around(t: Any, k: int, x: Any) -> tuple[Any, list[Any]]:
    """The interval of knots t that contains x, and the values of the k + 1 B-splines that aren't 0
    there: number j belongs to coefficient interval - k + j (de Boor, chapter X)."""
    n = np.size(t) - k - 1
    place = np.clip(np.searchsorted(stopped(t), stopped(x), side="right") - 1, k, n - 1)
    values: list[Any] = [1.0 + 0.0 * x]
    for r in range(1, k + 1):
        before: Any = 0.0
        for j in range(r):
            right, left = t[place + 1 + j] - x, x - t[place + 1 + j - r]
            share = values[j] / (right + left)
            values[j], before = before + right * share, left * share
        values.append(before)
    return place, values


def tensor(c: Any, splines: list[tuple[Any, int]], x: list[Any]) -> Any:
    """The tensor product spline: the sum of c[i, j, ...] B_i(x[0]) B_j(x[1]) ..., with these knots
    and degrees along the first axes of c."""
    found = [around(t, k, u) for (t, k), u in zip(splines, x, strict=True)]
    total: Any = 0.0
    for corner in product(*[range(k + 1) for _, k in splines]):
        weight: Any = 1.0
        for j, (_, values) in zip(corner, found, strict=True):
            weight = weight * values[j]
        at = zip(corner, found, splines, strict=True)
        part = c[tuple(place - k + j for j, (place, _), (_, k) in at)]
        total = total + part * after(weight, np.ndim(part))
    return total


def not_a_knot(x: Any, k: int, ends: Any = None) -> Any:
    """The knots of an interpolating spline with not-a-knot conditions."""
    first, last = (x[:1], x[-1:]) if ends is None else ends
    if k == 0:
        return np.concatenate([x, x[-1:]])
    inner = x if k % 2 else (x[1:] + x[:-1]) / 2
    inner = inner[(k + 1) // 2 : -((k + 1) // 2)]
    return np.concatenate([first] * (k + 1) + [inner] + [last] * (k + 1))


def _circle(x: Any, k: int) -> Any:
    """The knots of a periodic spline."""
    n = np.size(x)
    if k % 2 == 0:
        x = np.concatenate([x[:1], x[1:-1] - np.diff(x)[:-1] / 2, x[-1:]])
    gaps, below, above = np.diff(x), [x[:1]], [x[-1:]]
    for i in range(k):
        gap = -(i % (n - 1)) - 1
        below.insert(0, below[0] - gaps[gap : gap + 1 or None])
        above.append(above[-1] + gaps[i % (n - 1) : i % (n - 1) + 1])
    return np.concatenate([*below, x[1:-1], *above])


def _conditions(bc_type: Any, shape: Any) -> list[list[Any]]:
    """For each end, the orders of the given derivatives and their values."""
    short = {"clamped": [(1, np.zeros(shape))], "natural": [(2, np.zeros(shape))], None: []}
    both = (bc_type, bc_type) if isinstance(bc_type, str) else bc_type or (None, None)
    return [list(short[c] if isinstance(c, str) or c is None else c) for c in both]


def interpolating(x: Any, y: Any, k: int, t: Any, bc_type: Any, ends: Any = None) -> Any:
    """The knots and coefficients of the spline of degree k that interpolates these values, and
    given derivatives at its ends. Both may be traced."""
    bc_type = None if isinstance(bc_type, str) and bc_type == "not-a-knot" else bc_type
    periodic = isinstance(bc_type, str) and bc_type == "periodic"
    if k == 0 or (k == 1 and t is None and ends is None):
        return not_a_knot(x, k), y
    if periodic:
        return _periodic(x, y, k)
    shape = np.shape(y)[1:]
    first, last = _conditions(bc_type, shape)
    if t is None and (first or last):
        t = np.concatenate([x[:1]] * k + [x] + [x[-1:]] * k)
    t = not_a_knot(x, k, ends) if t is None else t
    n = np.size(t) - k - 1
    place, values = around(t, k, x)
    rows = len(first) + np.arange(np.size(x))
    bands = np.zeros((2 * k + 1, n)) * values[0][0]
    for j, value in enumerate(values):
        bands[k + rows - (place - k + j), place - k + j] = value
    for row, (order, _) in enumerate(first):  # only the first k + 1 B-splines aren't 0 there
        slopes = Basis(t[: 2 * k + 2], np.eye(k + 1), k).derivative(int(order))(t[k])
        columns = np.arange(k + 1)
        bands[k + row - columns, columns] = slopes
    for row, (order, _) in enumerate(last, n - len(last)):
        slopes = Basis(t[-2 * k - 2 :], np.eye(k + 1), k).derivative(int(order))(t[n])
        columns = np.arange(n - k - 1, n)
        bands[k + row - columns, columns] = slopes
    given = [*[v for _, v in first], *[v for _, v in last]]
    sides = [np.reshape(floats(v), (1, -1)) for v in given]
    flat = np.reshape(y, (np.shape(y)[0], -1))
    sides = [np.broadcast_to(v, (1, np.shape(flat)[1])) for v in sides]
    flat = np.concatenate([*sides[: len(first)], flat, *sides[len(first) :]])
    solve = solve_banded if is_traced((bands, flat)) else plain_solve
    return t, np.reshape(solve((k, k), bands, flat), (n, *shape))


def _periodic(x: Any, y: Any, k: int) -> Any:
    """The knots and coefficients of a periodic spline: the last k coefficients equal the first
    ones."""
    t = _circle(x, k)
    m = np.size(x) - 1
    place, values = around(t, k, x[:-1])
    matrix: Any = 0.0
    for j, value in enumerate(values):
        column = (place - k + j) % m
        matrix = matrix + after(value, 2) * (column[:, None] == np.arange(m))
    flat = np.reshape(y, (m + 1, -1))[:-1]
    c = np.linalg.solve(matrix, flat)
    c = c[np.arange(m + k) % m]
    return t, np.reshape(c, (m + k, *np.shape(y)[1:]))
