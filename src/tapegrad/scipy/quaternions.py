"""Rotations as quaternions (x, y, z, w) along the last axis: the computations of
`scipy.spatial.transform`, written in NumPy functions.

Near the identity SciPy uses series in the angle. Here they are series in the square of the angle,
so that derivatives are right at angle 0, too. The derivative of a length at 0 is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.extending.arrays import raise_if
from tapegrad.scipy.solver_calls import stopped

SERIES_ANGLE = 1e-3  # angles up to which SciPy uses a series
LOCKED = 1e-7  # gimbal lock: the second angle's distance from 0 or pi


def dot(x: Any, y: Any) -> Any:
    return np.sum(x * y, axis=-1)


def length(x: Any) -> Any:
    return root(dot(x, x))


def root(square: Any) -> Any:
    """The square root of a nonnegative number, with derivative 0 at 0."""
    nothing = square == 0
    return np.where(nothing, 0.0, np.sqrt(np.where(nothing, 1.0, square)))


def normalized(q: Any) -> Any:
    size = length(q)
    raise_if(np.any(size == 0), "Found zero norm quaternions in `quat`.", ValueError)
    return q / size[..., None]


def product(p: Any, q: Any) -> Any:
    """The rotation by q, followed by the rotation by p."""
    (a, b, c, d), (e, f, g, h) = parts(p), parts(q)
    return np.stack(
        [
            d * e + h * a + b * g - c * f,
            d * f + h * b + c * e - a * g,
            d * g + h * c + a * f - b * e,
            d * h - a * e - b * f - c * g,
        ],
        axis=-1,
    )


def inverse(q: Any) -> Any:
    return np.concatenate([-q[..., :3], q[..., 3:]], axis=-1)


def canonical(q: Any) -> Any:
    """The one of q and -q whose first nonzero number, in the order w, x, y, z, is positive."""
    x, y, z, w = parts(q)
    turned = z < 0
    for first in (y, x, w):
        turned = np.where(first == 0, turned, first < 0)
    return np.where(turned[..., None], -q, q)


def magnitude(q: Any) -> Any:
    return 2.0 * np.arctan2(length(q[..., :3]), np.abs(q[..., 3]))


def parts(q: Any) -> Any:
    return q[..., 0], q[..., 1], q[..., 2], q[..., 3]


# ---- rotation vectors


def of_vector(v: Any) -> Any:
    """The rotation about v by the length of v."""
    square = dot(v, v)[..., None]
    small = np.sqrt(square) <= SERIES_ANGLE
    angle = np.sqrt(np.where(small, 1.0, square))
    scale = np.where(small, 0.5 - square / 48.0 + square**2 / 3840.0, np.sin(angle / 2.0) / angle)
    near = 1.0 - square / 8.0 + square**2 / 384.0 - square**3 / 46080.0
    return np.concatenate([v * scale, np.where(small, near, np.cos(angle / 2.0))], axis=-1)


def vector(q: Any) -> Any:
    q = canonical(q)
    v, w = q[..., :3], q[..., 3:]
    square = dot(v, v)[..., None]
    small = 2.0 * np.arctan2(np.sqrt(square), w) <= SERIES_ANGLE
    angle = 2.0 * np.arctan2(np.sqrt(np.where(small, 1.0, square)), w)
    tangent = square / np.where(small, w, 1.0) ** 2  # tan(angle / 2) squared
    near = 4.0 * tangent * (1.0 - tangent * (2.0 / 3.0) + tangent**2 * (23.0 / 45.0))
    series = 2.0 + near / 12.0 + 7.0 * near**2 / 2880.0
    far = angle / np.sin(np.where(small, 1.0, angle / 2.0))
    return np.where(small, series, far) * v


def of_mrp(m: Any) -> Any:
    square = dot(m, m)[..., None] + 1.0
    return np.concatenate([2.0 * m, 2.0 - square], axis=-1) / square


def mrp(q: Any) -> Any:
    """The modified Rodrigues parameters: tan(angle / 4) along the axis."""
    w = q[..., 3:]
    sign = np.where(w < 0, -1.0, 1.0)
    return sign * q[..., :3] / (1.0 + sign * w)


# ---- matrices


def matrix(q: Any) -> Any:
    x, y, z, w = parts(q)
    elements = [
        x * x - y * y - z * z + w * w, 2.0 * (x * y - z * w), 2.0 * (x * z + y * w),
        2.0 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2.0 * (y * z - x * w),
        2.0 * (x * z - y * w), 2.0 * (y * z + x * w), -x * x - y * y + z * z + w * w,
    ]  # fmt: skip
    return np.reshape(np.stack(elements, axis=-1), (*np.shape(q)[:-1], 3, 3))


def orthogonal(m: Any) -> Any:
    """The rotation matrix P nearest to m, with derivatives also where singular values coincide.

    P'm is symmetric. Two Newton steps for this equation start at the known P: they don't change
    it, but have derivatives up to the third order. With A = P'm and its symmetric part S, a step
    rotates P by the vector w for which (tr(S) I - S) w is the vector of A - A'.
    """
    u, _, v = np.linalg.svd(stopped(m), full_matrices=False)
    improper = np.linalg.det(u @ v)[..., None, None] < 0
    found = np.where(improper & np.array([False, False, True]), -u, u) @ v
    for _ in range(2):
        a = np.swapaxes(found, -1, -2) @ m
        symmetric = (a + np.swapaxes(a, -1, -2)) / 2.0
        trace = np.trace(symmetric, axis1=-2, axis2=-1)[..., None, None]
        w = np.linalg.solve(trace * np.eye(3) - symmetric, _skew(a)[..., None])[..., 0]
        found = found @ matrix(of_vector(w))
    return found


def _skew(m: Any) -> Any:
    """The vector of the skew-symmetric matrix m - m'."""
    pairs = [(2, 1), (0, 2), (1, 0)]
    return np.stack([m[..., i, j] - m[..., j, i] for i, j in pairs], axis=-1)


def of_matrix(m: Any) -> Any:
    """The quaternion of a rotation matrix, by the largest of four numbers, so that no root is of a
    number near 0."""
    diagonal = [m[..., k, k] for k in range(3)]
    trace = diagonal[0] + diagonal[1] + diagonal[2]
    choice = np.argmax(np.stack([*diagonal, trace], axis=-1), axis=-1)[..., None]
    found = np.stack(
        [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1],
         1.0 + trace], axis=-1,
    )  # fmt: skip
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        by_place = {
            i: 1.0 - trace + 2.0 * m[..., i, i],
            j: m[..., j, i] + m[..., i, j],
            k: m[..., k, i] + m[..., i, k],
            3: m[..., k, j] - m[..., j, k],
        }
        other = np.stack([by_place[place] for place in range(4)], axis=-1)
        found = np.where(choice == i, other, found)
    return normalized(found)


def applied(q: Any, vectors: Any, inverse: bool) -> Any:
    m = matrix(q)
    return np.sum((np.swapaxes(m, -1, -2) if inverse else m) * vectors[..., None, :], axis=-1)


def between(b: Any, a: Any) -> Any:
    """The rotation by the least angle that turns the direction of b to that of a."""
    u, v = (x / np.linalg.norm(x) for x in (b, a))
    middle = u + v
    if np.all(middle == 0):  # any orthogonal axis is right: SciPy's choice
        k = int(np.argmin(np.abs(v)))
        across = np.eye(3)[k - 1] * v[k - 2] - np.eye(3)[k - 2] * v[k - 1]
        return normalized(np.concatenate([across, np.zeros(1)]))
    return normalized(np.concatenate([np.cross(u, v), dot(middle, middle)[None] / 2]))


def aligned(a: Any, b: Any, w: Any, first: int) -> tuple[Any, Any]:
    """The rotation that aligns vector number `first` of `b` with that of `a`, and, about this
    direction, brings the others nearest to theirs by weighted least squares; and the root of the
    residual."""
    a, b, w = (np.roll(x, -first, axis=0) for x in (a, b, w))
    none = np.logical_or(np.all(a[0] == 0), np.all(b[0] == 0))
    raise_if(none, "Cannot align zero length primary vectors", ValueError)
    raise_if(np.any(np.isinf(w[1:])), "Only one infinite weight is allowed", ValueError)
    q = between(b[0], a[0])
    if len(a) > 1:
        axis, c, to = a[0] / np.linalg.norm(a[0]), applied(q, b[1:], False), a[1:]
        sines = dot(np.cross(c, to), axis)
        cosines = dot(c, to) - dot(c, axis) * dot(to, axis)
        angle = np.arctan2(np.sum(w[1:] * sines), np.sum(w[1:] * cosines))
        q = product(of_vector(angle * axis), q)
    apart = a - applied(q, b, False)
    return q, root(np.sum(np.where(np.isinf(w), 0.0, w)[:, None] * apart * apart))


# ---- Euler angles


def of_angles(axes: Any, angles: Any, extrinsic: bool) -> Any:
    """The rotation by these angles about unit vectors, one after the other."""
    found: Any = None
    for k, axis in enumerate(axes):
        half = angles[..., k, None] / 2.0
        v = np.sin(half) * axis
        w = np.broadcast_to(np.cos(half), (*np.shape(v)[:-1], 1))
        q = np.concatenate([v, w], axis=-1)
        if found is None:
            found = q
        else:
            found = product(q, found) if extrinsic else product(found, q)
    return found


def euler(q: Any, seq: str) -> tuple[Any, Any]:
    """The Euler angles about three coordinate axes, and whether they are in gimbal lock (P.
    Bernardes and S. Viollet, "Quaternion to Euler angles conversion", 2022)."""
    extrinsic = seq.islower()
    places = ["xyz".index(c) for c in seq.lower()]
    i, j, k = places if extrinsic else places[::-1]
    symmetric = i == k
    k = 3 - i - j if symmetric else k
    sign = (i - j) * (j - k) * (k - i) // 2
    w, x, y, z = q[..., 3], q[..., i], q[..., j], q[..., k] * sign
    four = (w, x, y, z) if symmetric else (w - y, x + z, y + w, z - x)
    return _angles(four, extrinsic, None if symmetric else np.pi / 2.0, sign)


def davenport(q: Any, axes: Any, extrinsic: bool) -> tuple[Any, Any]:
    """The Davenport angles about three unit vectors, the second one normal to the others."""
    n1, n2, n3 = (axes[..., k, :] for k in range(3))
    n1, n3 = (n1, n3) if extrinsic else (n3, n1)
    across = np.cross(n1, n2)
    between = np.arctan2(dot(n3, across), dot(n3, n1))
    turned = between < 0
    sign = np.where(turned, -1.0, 1.0)
    n2, across, between = sign[..., None] * n2, sign[..., None] * across, sign * between
    half = between[..., None] / 2.0
    q = product(np.concatenate([np.sin(half) * n2, np.cos(half)], axis=-1), q)
    v = q[..., :3]
    four = q[..., 3], dot(v, n1), dot(v, n2), dot(v, across)
    found, locked = _angles(four, extrinsic, between, 1)
    second = np.where(turned, -found[..., 1], found[..., 1])
    return np.stack([found[..., 0], second, found[..., 2]], axis=-1), locked


def _angles(four: Any, extrinsic: bool, between: Any, sign: int) -> tuple[Any, Any]:
    a, b, c, d = four
    second = 2.0 * np.arctan2(root(c * c + d * d), root(a * a + b * b))
    at_0, at_pi = np.abs(second) <= LOCKED, np.abs(second - np.pi) <= LOCKED
    locked = at_0 | at_pi
    # Where both arguments of an arctan2 may be 0, other arguments are used, to keep derivatives
    # finite.
    total = np.arctan2(np.where(at_pi, 0.0, b), np.where(at_pi, 1.0, a))
    apart = np.arctan2(np.where(at_0, 0.0, d), np.where(at_0, 1.0, c))
    turned = -apart if extrinsic else apart
    alone = np.where(at_0, 2.0 * total, 2.0 * turned)
    lower, upper = total - apart, total + apart
    if extrinsic:
        first, third = np.where(locked, alone, lower), np.where(locked, 0.0, upper)
    else:
        first, third = np.where(locked, alone, upper), np.where(locked, 0.0, lower)
    if between is not None:
        first, third = (first, third * sign) if extrinsic else (first * sign, third)
        second = second - between
    angles = np.stack([first, second, third], axis=-1)
    angles = np.where(angles < -np.pi, angles + 2.0 * np.pi, angles)
    return np.where(angles > np.pi, angles - 2.0 * np.pi, angles), locked


def mean(q: Any, weights: Any) -> Any:
    """The unit vector x that maximizes x'Kx, where K is the weighted sum of q q'.

    Like `orthogonal`: two Newton steps for K x = l x and x'x = 1, from the known x.
    """
    weighted = q if weights is None else weights[..., None] * q
    k = np.swapaxes(weighted, -1, -2) @ q
    values, vectors = np.linalg.eigh(stopped(k))
    x, largest = vectors[..., -1], values[..., -1]
    for _ in range(2):
        border = np.concatenate([x, np.zeros(1)])[None]
        inside = np.concatenate([k - largest * np.eye(4), -x[:, None]], axis=1)
        off = np.concatenate([largest * x - k @ x, (1.0 - x @ x)[None] / 2.0])
        step = np.linalg.solve(np.concatenate([inside, border]), off)
        x, largest = x + step[:4], largest + step[4]
    return x
