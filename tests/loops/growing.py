"""Loops whose arrays grow or shrink from round to round: slices up to where the loop is."""

from __future__ import annotations

import numpy as np
from tests.loops.program import Program


def cholesky_by_slices(A):
    n = len(A)
    L = np.zeros_like(A)
    for i in range(n):
        for j in range(i):
            L[i, j] = (A[i, j] - L[i, :j] @ L[j, :j]) / L[j, j]
        L[i, i] = np.sqrt(A[i, i] - L[i, :i] @ L[i, :i])
    return np.sum(np.log(np.diag(L))) + np.sum(L**3)


def make_definite(rng, size):
    n = 7 + size // 4
    B = rng.standard_normal((n, n))
    return (B @ B.T / n + 2 * np.eye(n),)


def projections(A):
    """Gram and Schmidt's method: what stands in the space of those before is taken off at once."""
    Q = np.zeros_like(A)
    for i in range(A.shape[1]):
        v = A[:, i] - Q[:, :i] @ (Q[:, :i].T @ A[:, i])
        Q[:, i] = v / np.sqrt(np.sum(v * v))
    return np.sum(Q * A)


def make_columns(rng, size):
    n = 8 + size // 4
    return (rng.standard_normal((n + 3, n)) + 2 * np.eye(n + 3, n),)


def back_substitution_by_slices(U, b):
    n = len(b)
    x = np.zeros_like(b)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - U[i, i + 1 :] @ x[i + 1 :]) / U[i, i]
    return np.sum(x**2)


def make_system(rng, size):
    n = 8 + size // 3
    return 0.2 * rng.standard_normal((n, n)) + 2 * np.eye(n), rng.standard_normal(n)


def elimination_by_slices(A):
    """A matrix's factors, in its own place; what is left of it becomes smaller on both axes."""
    A = A.copy()
    for k in range(len(A) - 1):
        A[k + 1 :, k] = A[k + 1 :, k] / A[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
    return np.sum(np.log(np.diag(A) ** 2)) + np.sum(np.tanh(A))


def durbin_by_slices(r):
    """Durbin's recursion: coefficients from both ends."""
    n = len(r) - 1
    y = np.zeros_like(r[1:])
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, n):
        beta = beta * (1 - alpha * alpha)
        alpha = -(r[k] + r[:k][::-1] @ y[:k]) / beta
        y[:k] += alpha * y[:k][::-1]
        y[k] = alpha
    return np.sum(y**2)


def make_correlations(rng, size):
    n = 9 + size // 3
    return (0.6 ** np.arange(1.0, n + 1) + 0.01 * rng.standard_normal(n),)


def householder(A):
    """Reflections of what is left of each column; the matrix becomes a triangle."""
    R = A.copy()
    total = 0.0
    for k in range(A.shape[1]):
        v = R[k:, k].copy()
        v[0] = v[0] + np.sqrt(v @ v)
        v = v / np.sqrt(v @ v)
        R[k:, k:] = R[k:, k:] - 2 * np.outer(v, v @ R[k:, k:])
        total = total + np.log(np.abs(R[k, k]))
    return total + np.sum(R**2)


def statistics_so_far(x):
    """Means, spreads, extrema and shares of all that came before."""
    total = 0.0
    for t in range(1, len(x)):
        seen = x[:t]
        mean = np.mean(seen)
        spread = np.sqrt(np.mean((seen - mean) ** 2) + 0.1)
        total = total + (x[t] - mean) / spread * np.max(seen) - np.min(np.abs(seen))
        total = total + np.sum(np.cumsum(seen) ** 2) * np.any(seen > 0.5)
    return total


def make_series(rng, size):
    return (rng.standard_normal(10 + size // 2),)


def memory_that_fades(x, rate):
    """A convolution with all that came before; numbers that count, of another length each time."""
    y = np.zeros_like(x)
    for t in range(len(x)):
        ages = np.arange(t, -1, -1.0)
        y[t] = np.tanh(np.sum(x[: t + 1] * np.exp(-rate * ages)) / (t + 1))
    return np.sum(y**2)


def make_fading(rng, size):
    return rng.standard_normal(9 + size // 2), 0.3 + rng.random()


def log_weights_so_far(x):
    """What is behind the front would be infinite: reciprocals, logarithms."""
    total = x[0]
    for t in range(1, len(x)):
        total = total + np.sum(np.log(x[:t]) / x[:t]) + np.min(1 / x[:t]) - x[t] / np.sum(x[:t])
    return total


def make_positive(rng, size):
    return (0.5 + rng.random(10 + size // 2),)


def tables_of_differences(y, x):
    """Divided differences, in place from the end: each pass is shorter by one."""
    c = y.copy()
    for k in range(1, len(c)):
        c[k:] = (c[k:] - c[k - 1 : -1]) / (x[k:] - x[:-k])
    return np.sum(c * 0.5 ** np.arange(len(c)))


def make_differences(rng, size):
    n = 9 + size // 4
    return rng.standard_normal(n), np.linspace(-4, 4, n) + 0.1 * rng.random(n)


PROGRAMS = (
    Program(cholesky_by_slices, make_definite, (0,), loops=None),
    Program(projections, make_columns, (0,), loops=None),
    Program(back_substitution_by_slices, make_system, (0, 1), loops=None),
    Program(elimination_by_slices, make_definite, (0,), loops=None),
    Program(durbin_by_slices, make_correlations, (0,), loops=None),
    Program(householder, make_columns, (0,), loops=None),
    Program(statistics_so_far, make_series, (0,), loops=None),
    Program(memory_that_fades, make_fading, (0, 1), loops=None),
    Program(log_weights_so_far, make_positive, (0,), loops=None),
    Program(tables_of_differences, make_differences, (0, 1), loops=None),
)
