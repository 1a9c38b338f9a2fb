"""Resampling of images by spline interpolation, in place of scipy.ndimage's C code.

The coefficients c of a spline of order n through the elements of an array are the result of a
linear filter (`spline_filter1d`). Between the elements the spline is the sum of c_k B_n(x - k)
over the n + 1 elements nearest to x. B_n is the cardinal B-spline

  B_n(x) = 1/n! sum over j of (-1)^j binom(n + 1, j) max(0, x - j)^n

(I. J. Schoenberg, 1946), a polynomial of degree n between consecutive integers. Coordinates
outside are first mapped inside by reflection, wrapping or clipping, with slope 1, -1 or 0; or the
result is a constant.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tapegrad import stop_gradient
from tapegrad.extending.arrays import Tracer

NEAREST, WRAP, REFLECT, MIRROR, CONSTANT, GRID_WRAP, GRID_CONSTANT = range(7)


def spline_filter1d(x: Any, order: int, axis: int, output: Any, mode: int) -> Any:
    """The spline coefficients along an axis. They are linear in the elements: the matrix is that
    of SciPy's own filter."""
    import scipy.ndimage._nd_image as own

    n = x.shape[axis]
    matrix = np.empty((n, n))
    own.spline_filter1d(np.eye(n), order, 0, matrix, mode)
    rows = np.moveaxis(x, axis, -1) @ matrix.T
    return np.moveaxis(rows, -1, axis)


def _plain(x: Any) -> Any:
    """The value without a derivative."""
    return stop_gradient(x) if isinstance(x, Tracer) else x


def _folded(x: Any, n: int, mode: int) -> Any:
    """Coordinates along an axis of n elements, mapped inside by `mode`, with the map's slope."""
    if mode in (GRID_CONSTANT, CONSTANT, NEAREST):
        return x
    if n == 1:
        return 0.0 * x
    fixed = _plain(x)
    if mode == WRAP:
        period = n - 1.0
        low = period * (np.trunc(-fixed / period) + 1)
        high = -period * np.trunc(fixed / period)
        return x + np.where(fixed < 0, low, np.where(fixed > n - 1, high, 0.0))
    if mode == GRID_WRAP:
        low = n * (np.trunc((-1 - fixed) / n) + 1)
        high = -n * np.trunc(fixed / n)
        return x + np.where(fixed < 0, low, np.where(fixed > n - 1, high, 0.0))
    period, edge = (2.0 * n - 2, 0.0) if mode == MIRROR else (2.0 * n, -0.5)
    # Both modes reflect at `edge`: |x - edge| is reduced to one period, and then to half of it.
    away = np.abs(x - edge)
    away = away - period * np.floor(_plain(away) / period)
    return np.where(_plain(away) > period / 2, period - away, away) + edge


def _weights(order: int, rest: Any) -> list[Any]:
    """B_n at the distances of the n + 1 nearest elements. The first one is `rest` + n away from
    the spline's start."""
    found = []
    for m in range(order, -1, -1):  # the piece between m and m + 1
        coefficients = [0.0] * (order + 1)
        for j in range(m + 1):
            sign = (-1) ** j * math.comb(order + 1, j) / math.factorial(order)
            for power in range(order + 1):
                part = math.comb(order, power) * float(m - j) ** (order - power)
                coefficients[power] += sign * part
        value: Any = coefficients[order]
        for c in reversed(coefficients[:order]):
            value = value * rest + c
        found.append(value)
    return found


def _places(k: Any, n: int, mode: int) -> Any:
    """Integer coordinates of coefficients, mapped inside."""
    if mode in (CONSTANT, WRAP):
        mode = MIRROR  # the mode of the coefficients
    if mode in (GRID_CONSTANT, NEAREST):
        return np.clip(k, 0, n - 1)
    if n == 1:
        return 0 * k
    if mode == GRID_WRAP:
        return np.mod(k, n)
    period = 2 * n - 2 if mode == MIRROR else 2 * n
    k = np.mod(k, period)
    return np.where(k >= n, (period if mode == MIRROR else period - 1) - k, k)


def _interpolated(c: Any, points: list[Any], order: int, mode: int, cval: Any, pads: Any) -> Any:
    """The values of the spline with coefficients c at `points`, a list of coordinates for each
    axis."""
    inside: Any = True
    along = []
    for axis, x in enumerate(points):
        n = c.shape[axis] - 2 * pads
        if mode == CONSTANT:
            inside = np.logical_and(inside, np.logical_and(x >= 0, x <= n - 1))
        x = _folded(x, n, mode) + pads
        shifted = x + 0.5 if order % 2 == 0 else x
        start = np.floor(_plain(shifted))
        weights = _weights(order, shifted - start)
        first = start.astype(np.int64) - order // 2
        size = c.shape[axis]
        whole = [
            (w, _places(first + k, size, mode), np.logical_and(first + k >= 0, first + k < size))
            for k, w in enumerate(weights)
        ]
        along.append(whole)
    total: Any = 0.0
    for parts in itertools.product(*along):
        element = c[tuple(place for _, place, _ in parts)]
        if mode == GRID_CONSTANT:
            known: Any = True
            for _, _, yes in parts:
                known = np.logical_and(known, yes)
            element = np.where(known, element, cval)
        for w, _, _ in parts:
            element = element * w
        total = total + element
    return total if mode != CONSTANT else np.where(inside, total, cval)


def _mapped(matrix: Any, shift: Any, shape: tuple[int, ...]) -> list[Any]:
    """The products of a matrix and an array's indices, plus a shift. They are summed in SciPy's
    order: rounding decides whether a point on the edge is inside."""
    found = []
    for k in range(np.shape(matrix)[0]):
        row = 0.0 if shift is None else shift[k]
        for axis, n in enumerate(shape):
            index = np.reshape(np.arange(n, dtype=float), [-1] + [1] * (len(shape) - 1 - axis))
            row = row + index * matrix[k, axis]
        found.append(row)
    return found


def geometric_transform(
    x: Any,
    mapping: Any,
    coordinates: Any,
    matrix: Any,
    shift: Any,
    output: Any,
    order: int,
    mode: int,
    cval: Any,
    pads: int,
    args: Any,
    kwargs: Any,
) -> Any:
    """The image at `coordinates`, or at those that a matrix and a shift make of the output's
    indices."""
    if mapping is not None:
        raise NotImplementedError
    if coordinates is None:
        coordinates = _mapped(matrix, shift, output.shape)
    points = [coordinates[k] for k in range(x.ndim)]
    return _interpolated(x, points, order, mode, cval, pads)


def zoom_shift(
    x: Any,
    zoom: Any,
    shift: Any,
    output: Any,
    order: int,
    mode: int,
    cval: Any,
    pads: int,
    grid: bool,
) -> Any:
    """The image at coordinates that are the output's indices, scaled and shifted."""
    points = []
    for axis in range(x.ndim):
        at: Any = np.arange(output.shape[axis], dtype=float)
        if shift is not None:
            at = at + shift[axis]
        if zoom is not None:
            at = (at + 0.5) * zoom[axis] - 0.5 if grid else at * zoom[axis]
        points.append(np.reshape(at, [-1 if k == axis else 1 for k in range(x.ndim)]))
    return _interpolated(x, points, order, mode, cval, pads)
