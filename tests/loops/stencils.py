"""Fields on grids, and the linear systems that they lead to."""

from __future__ import annotations

import numpy as np
from tests.loops.program import Program


def heat_1d(u, conductivity, steps):
    """Ghost cells repeat the border, so that no heat is lost."""
    for _ in range(steps):
        wide = np.concatenate([u[:1], u, u[-1:]])
        u = u + conductivity * (wide[2:] - 2 * wide[1:-1] + wide[:-2])
    return np.sum(u**2)


def make_heat_1d(rng, size):
    return rng.standard_normal(7), 0.2 + 0.2 * rng.random(), size


def wave_1d(u, speed, steps):
    """The wave equation reads two states back."""
    before, now = u, u
    for _ in range(steps):
        bent = np.zeros_like(now)
        bent[1:-1] = now[2:] - 2 * now[1:-1] + now[:-2]
        before, now = now, 2 * now - before + speed**2 * bent
    return np.sum(now**2) + np.sum((now - before) ** 2)


def make_wave_1d(rng, size):
    return rng.standard_normal(7), 0.5 + 0.2 * rng.random(), size


def advection(u, courant, steps):
    """Upwind, on a ring."""
    for _ in range(steps):
        u = u - courant * (u - np.roll(u, 1))
    return np.sum(u**3)


def make_advection(rng, size):
    return rng.standard_normal(6), 0.3 + 0.2 * rng.random(), size


def burgers(u, viscosity, steps):
    """The wind decides, point by point, on which side a slope is taken."""
    for _ in range(steps):
        left, right = np.roll(u, 1), np.roll(u, -1)
        slope = np.where(u > 0, u - left, right - u)
        u = u + 0.1 * (viscosity * (left - 2 * u + right) - u * slope)
    return np.mean(u**2)


def make_burgers(rng, size):
    return rng.standard_normal(6), 0.5 + rng.random(), size


def heat_2d(u, k, steps):
    """The inside is changed in place; the border stays."""
    u = u.copy()
    for _ in range(steps):
        inside = u[1:-1, 1:-1]
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        u[1:-1, 1:-1] += k * (around - 4 * inside)
    return np.sum(u**2)


def make_heat_2d(rng, size):
    return rng.standard_normal((5, 5)), 0.1 + 0.1 * rng.random(), size


def gray_scott(u, v, feed, kill, steps):
    """Two substances that react and spread, on a torus."""

    def spread(w):
        return np.roll(w, 1, 0) + np.roll(w, -1, 0) + np.roll(w, 1, 1) + np.roll(w, -1, 1) - 4.0 * w

    for _ in range(steps):
        reacted = u * v * v
        u, v = (
            u + 0.16 * spread(u) - reacted + feed * (1.0 - u),
            v + 0.08 * spread(v) + reacted - (feed + kill) * v,
        )
    return np.sum(u * v)


def make_gray_scott(rng, size):
    return rng.random((4, 5)), rng.random((4, 5)), 0.05, 0.06, size


def heat_3d(u, k, steps):
    """Ghost cells on all six sides, made by padding."""
    for _ in range(steps):
        w = np.pad(u, 1, mode="edge")
        around = w[2:, 1:-1, 1:-1] + w[:-2, 1:-1, 1:-1]
        around = around + w[1:-1, 2:, 1:-1] + w[1:-1, :-2, 1:-1]
        around = around + w[1:-1, 1:-1, 2:] + w[1:-1, 1:-1, :-2]
        u = u + k * (around - 6.0 * u)
    return np.sum(u**2 * np.abs(u))


def make_heat_3d(rng, size):
    return rng.standard_normal((3, 4, 3)), 0.05 + 0.05 * rng.random(), size


def jacobi(A, b, sweeps):
    diagonal = np.diag(A)
    rest = A - np.diag(diagonal)
    x = np.zeros_like(b)
    for _ in range(sweeps):
        x = (b - rest @ x) / diagonal
    return np.sum(x**2)


def make_jacobi(rng, size):
    return rng.standard_normal((4, 4)) + 6 * np.eye(4), rng.standard_normal(4), size


def gauss_seidel(u, f, sweeps):
    """Poisson's equation; each point is written where the next one reads it."""
    u = u.copy()
    for _ in range(sweeps):
        for i in range(1, len(u) - 1):
            u[i] = 0.5 * (u[i - 1] + u[i + 1] - f[i])
    return np.sum(u**2)


def make_gauss_seidel(rng, size):
    return rng.standard_normal(7), rng.standard_normal(7), size


def thomas(lower, middle, upper, right):
    """A system of three diagonals: down, and up again."""
    n = len(middle)
    c, d = upper.copy(), right.copy()
    c[0] = upper[0] / middle[0]
    d[0] = right[0] / middle[0]
    for i in range(1, n):
        pivot = middle[i] - lower[i] * c[i - 1]
        c[i] = upper[i] / pivot
        d[i] = (right[i] - lower[i] * d[i - 1]) / pivot
    x = d.copy()
    for i in range(n - 2, -1, -1):
        x[i] = d[i] - c[i] * x[i + 1]
    return np.sum(x**2)


def make_thomas(rng, size):
    lower, upper, right = rng.standard_normal((3, size))
    return lower, 4.0 + rng.random(size), upper, right


def crank_nicolson(u, k, steps):
    """Heat in one dimension: Thomas's algorithm at each step, with lists."""
    for _ in range(steps):
        right = u.copy()
        right[1:-1] += 0.5 * k * (u[2:] - 2 * u[1:-1] + u[:-2])
        cs, ds = [-0.5 * k / (1 + k)], [right[0] / (1 + k)]
        for value in right[1:]:
            pivot = 1 + k + 0.5 * k * cs[-1]
            cs.append(-0.5 * k / pivot)
            ds.append((value + 0.5 * k * ds[-1]) / pivot)
        xs = [ds[-1]]
        for c, d in zip(reversed(cs[:-1]), reversed(ds[:-1]), strict=True):
            xs.append(d - c * xs[-1])
        u = np.stack(xs[::-1])
    return np.sum(u**2)


def make_crank_nicolson(rng, size):
    return rng.standard_normal(6), 0.5 + rng.random(), size


def alternating(u, k, steps):
    """Heat in two dimensions, implicit along one axis and then along the other (ADI)."""

    def solved(rows):
        """Thomas's algorithm down the first axis, for all columns at once."""
        cs, ds = [-k / (1 + 2 * k)], [rows[0] / (1 + 2 * k)]
        for i in range(1, rows.shape[0]):
            pivot = 1 + 2 * k + k * cs[i - 1]
            cs.append(-k / pivot)
            ds.append((rows[i] + k * ds[i - 1]) / pivot)
        x = np.zeros_like(rows)
        x[-1] = ds[-1]
        for i in reversed(range(rows.shape[0] - 1)):
            x[i] = ds[i] - cs[i] * x[i + 1]
        return x

    for _ in range(steps):
        u = solved(u)
        u = solved(u.T).T
    return np.sum(u**2)


def make_alternating(rng, size):
    return rng.standard_normal((6, 6)), 0.3 + 0.3 * rng.random(), size


PROGRAMS = (
    Program(heat_1d, make_heat_1d, (0, 1), least=10),
    Program(wave_1d, make_wave_1d, (0, 1), least=10),
    Program(advection, make_advection, (0, 1), least=10),
    Program(burgers, make_burgers, (0, 1), least=10),
    Program(heat_2d, make_heat_2d, (0, 1), least=10),
    Program(gray_scott, make_gray_scott, (0, 1, 2, 3), least=10),
    Program(heat_3d, make_heat_3d, (0, 1), least=10),
    Program(jacobi, make_jacobi, (0, 1)),
    Program(gauss_seidel, make_gauss_seidel, (0, 1), loops=2, passes=2),
    Program(thomas, make_thomas, (0, 1, 2, 3), loops=2, passes=4),
    Program(crank_nicolson, make_crank_nicolson, (0, 1), loops=3, passes=3),
    Program(alternating, make_alternating, (0, 1), loops=5, passes=8),
)
