"""Nests whose inner loops have another number of rounds each time: triangles of all kinds."""

from __future__ import annotations

import numpy as np
from tests.loops.program import Program


def forward_substitution(L, b):
    x = np.zeros_like(b)
    for i in range(len(b)):
        s = b[i]
        for j in range(i):
            s = s - L[i, j] * x[j]
        x[i] = s / L[i, i]
    return np.sum(x**2)


def back_substitution(U, b):
    """From the last row up; the inner loop starts where the outer one is."""
    n = len(b)
    x = b.copy()
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            x[i] -= U[i, j] * x[j]
        x[i] /= U[i, i]
    return np.sum(x**2)


def make_system(rng, size):
    n = 8 + size // 3
    return 0.2 * rng.standard_normal((n, n)) + 2 * np.eye(n), rng.standard_normal(n)


def gauss_elimination(A, b):
    """Three loops that become shorter, in place."""
    A, b = A.copy(), b.copy()
    n = len(b)
    for k in range(n):
        for i in range(k + 1, n):
            factor = A[i, k] / A[k, k]
            for j in range(k, n):
                A[i, j] = A[i, j] - factor * A[k, j]
            b[i] -= factor * b[k]
    return np.sum(np.log(np.diag(A) ** 2)) + np.sum(b**2)


def make_elimination(rng, size):
    n = 6 + size // 6
    return 0.3 * rng.standard_normal((n, n)) + 3 * np.eye(n), rng.standard_normal(n)


def orthogonal_rows(A):
    """Gram and Schmidt's method, modified: each row against those that are done."""
    Q = np.zeros_like(A)
    for i in range(len(A)):
        v = A[i]
        for j in range(i):
            v = v - (Q[j] @ v) * Q[j]
        Q[i] = v / np.sqrt(1.0 + v @ v)
    return np.sum(Q * A)


def make_orthogonal_rows(rng, size):
    return (rng.standard_normal((8 + size // 3, 4)),)


def forces_of_pairs(x, mass):
    """Each pair once; the forces on both."""
    force = np.zeros_like(x)
    for i in range(len(x)):
        for j in range(i):
            d = x[i] - x[j]
            f = d * (mass[i] * mass[j]) / (0.1 + np.sum(d * d)) ** 1.5
            force[i] += f
            force[j] -= f
    return np.sum(force**2)


def make_forces_of_pairs(rng, size):
    n = 8 + size // 4
    return rng.standard_normal((n, 2)), 0.5 + rng.random(n)


def levinson(r):
    """Levinson and Durbin's recursion, number by number; its coefficients are read both ways."""
    n = len(r) - 1
    a = np.zeros_like(r[1:])
    error = r[0]
    for k in range(n):
        s = r[k + 1]
        for j in range(k):
            s = s + a[j] * r[k - j]
        reflected = -s / error
        new = a.copy()
        for j in range(k):
            new[j] = a[j] + reflected * a[k - 1 - j]
        new[k] = reflected
        a = new
        error = error * (1 - reflected**2)
    return error + np.sum(a**2)


def make_levinson(rng, size):
    x = rng.standard_normal(4 * size)
    n = len(x)
    return (np.array([x[: n - k] @ x[k:] / n for k in range(8 + size // 4)]) + 0.0,)


def matrix_chain(p):
    """In which order a chain of matrices is multiplied best: the least over all places to cut."""
    n = len(p) - 1
    cost = np.zeros_like(p, shape=(n, n))
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            best = cost[i + 1, j] + p[i] * p[i + 1] * p[j + 1]
            for k in range(i + 1, j):
                best = np.minimum(best, cost[i, k] + cost[k + 1, j] + p[i] * p[k + 1] * p[j + 1])
            cost[i, j] = best
    return cost[0, n - 1]


def make_matrix_chain(rng, size):
    return (0.5 + rng.random(16 + size // 6),)


def pascal(a, b, n):
    P = np.zeros_like(a, shape=(n, n))
    P[0, 0] = 1.0
    for i in range(1, n):
        P[i, 0] = a * P[i - 1, 0]
        for j in range(1, i + 1):
            P[i, j] = b * P[i - 1, j - 1] + a * P[i - 1, j]
    return np.sum(np.sin(P))


def make_pascal(rng, size):
    return 0.5 + 0.1 * rng.random(), 0.5 + 0.1 * rng.random(), 8 + size // 3


def divided_differences(x, y):
    """Newton's coefficients, in the place of the values, from the last one up."""
    c = y.copy()
    n = len(x)
    for k in range(1, n):
        for i in range(n - 1, k - 1, -1):
            c[i] = (c[i] - c[i - 1]) / (x[i] - x[i - k])
    return np.sum(np.tanh(c))


def make_divided_differences(rng, size):
    n = 8 + size // 4
    return np.linspace(-n / 2, n / 2, n) + 0.2 * rng.random(n), rng.standard_normal(n)


def de_casteljau(points, t):
    """A point of a Bezier curve."""
    b = points.copy()
    n = len(b)
    for r in range(1, n):
        for i in range(n - r):
            b[i] = (1 - t) * b[i] + t * b[i + 1]
    return np.sum(b[0] ** 2)


def make_de_casteljau(rng, size):
    return rng.standard_normal((8 + size // 4, 2)), 0.2 + 0.6 * rng.random()


def shifted_polynomial(c, a):
    """Horner's scheme again and again: the coefficients at another place."""
    c = c.copy()
    n = len(c)
    for i in range(n - 1):
        for j in range(n - 2, i - 1, -1):
            c[j] += a * c[j + 1]
    return np.sum(np.tanh(c))


def make_shifted_polynomial(rng, size):
    n = 8 + size // 3
    return rng.standard_normal(n) / 2 ** np.arange(n), 0.1 + 0.2 * rng.random()


def bubble_sort(x, weights):
    x = x.copy()
    n = len(x)
    for i in range(n):
        for j in range(n - 1 - i):
            low, high = np.minimum(x[j], x[j + 1]), np.maximum(x[j], x[j + 1])
            x[j] = low
            x[j + 1] = high
    return np.sum(weights * x**2)


def make_bubble_sort(rng, size):
    n = 8 + size // 4
    return rng.permutation(n) + 0.3 * rng.random(n), rng.standard_normal(n)


def sums_of_prefixes(x, decay):
    """Numbers of both loops stand in what is summed."""
    total = 0.0
    for i in range(len(x)):
        s = 0.0
        for j in range(i + 1):
            s = s + x[j] * np.exp(-decay * (i - j)) / (1 + j)
        total = total + s**2
    return total


def make_sums_of_prefixes(rng, size):
    return rng.standard_normal(8 + size // 3), 0.1 + rng.random()


def skipping(x, a):
    """Inner loops that take two steps at once, and as many rounds in two outer ones."""
    total = 0.0
    for i in range(0, len(x), 2):
        for j in range(i, -1, -2):
            total = total + np.sin(a * x[i] * x[j])
    return total


def make_skipping(rng, size):
    return rng.standard_normal(16 + size // 2), 0.5 + rng.random()


PROGRAMS = (
    Program(forward_substitution, make_system, (0, 1), loops=2, passes=2),
    Program(back_substitution, make_system, (0, 1), loops=2, passes=3),
    Program(gauss_elimination, make_elimination, (0, 1), loops=None),
    Program(orthogonal_rows, make_orthogonal_rows, (0,), loops=2, passes=3),
    Program(forces_of_pairs, make_forces_of_pairs, (0, 1), loops=2, passes=2),
    Program(levinson, make_levinson, (0,), loops=3, passes=4),
    Program(matrix_chain, make_matrix_chain, (0,), loops=None),
    Program(pascal, make_pascal, (0, 1), loops=2, passes=4),
    Program(divided_differences, make_divided_differences, (0, 1), loops=2, passes=2),
    Program(de_casteljau, make_de_casteljau, (0, 1), loops=2, passes=2),
    Program(shifted_polynomial, make_shifted_polynomial, (0, 1), loops=2, passes=2),
    Program(bubble_sort, make_bubble_sort, (0, 1), loops=2, passes=2),
    Program(sums_of_prefixes, make_sums_of_prefixes, (0, 1), loops=2),
    Program(skipping, make_skipping, (0, 1), loops=2),
)
