"""Linear algebra and series, written as loops."""

from __future__ import annotations

import numpy as np
from tests.loops.program import Program


def triangular_solve(L, b):
    """Forward substitution, number by number: the inner loop grows."""
    x = []
    for i in range(len(b)):
        s = b[i]
        for j in range(i):
            s = s - L[i, j] * x[j]
        x.append(s / L[i, i])
    return np.sum(np.stack(x) ** 2)


def make_triangular_solve(rng, size):
    n = 4 + size // 2
    return 0.3 * rng.standard_normal((n, n)) + 2 * np.eye(n), rng.standard_normal(n)


def substitution_by_slices(L, b):
    """The same with a product of growing slices, written in place."""
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
    return np.sum(x**2)


def cholesky(A):
    """Cholesky's factor, number by number."""
    n = A.shape[0]
    L = np.zeros_like(A)
    for i in range(n):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s = s - L[i, k] * L[j, k]
            if i == j:
                L[i, i] = np.sqrt(s)
            else:
                L[i, j] = s / L[j, j]
    return np.sum(np.log(np.diag(L))) + np.sum(L**3)


def make_cholesky(rng, size):
    n = 4 + size // 5
    B = rng.standard_normal((n, n))
    return (B @ B.T + n * np.eye(n),)


def levinson_durbin(correlations):
    """Prediction from correlations; the coefficients become more, round by round."""
    error = correlations[0]
    a = -correlations[1:2] / error
    error = error * (1 - a[0] ** 2)
    for k in range(1, len(correlations) - 1):
        reflected = -(correlations[k + 1] + a @ correlations[k:0:-1]) / error
        a = np.concatenate([a + reflected * a[::-1], reflected[None]])
        error = error * (1 - reflected**2)
    return error + np.sum(a**2)


def make_levinson_durbin(rng, size):
    x = rng.standard_normal(4 * size)
    n = len(x)
    return (np.array([x[: n - k] @ x[k:] / n for k in range(size + 1)]),)


def gram_schmidt(A):
    """Columns that are made orthogonal, each to all before it."""
    columns = []
    for k in range(A.shape[1]):
        v = A[:, k]
        for q in columns:
            v = v - (q @ v) * q
        columns.append(v / np.sqrt(v @ v))
    return np.sum(np.stack(columns) * A.T)


def make_gram_schmidt(rng, size):
    n = 3 + size // 3
    return (rng.standard_normal((n + 2, n)) + 2 * np.eye(n + 2, n),)


def power_iteration(A, v, rounds):
    """The largest eigenvalue, and all that was taken for it on the way."""
    taken = 0.0
    for _ in range(rounds):
        w = A @ v
        v = w / np.linalg.norm(w)
        taken = taken + v @ A @ v
    return taken


def make_power_iteration(rng, size):
    B = rng.standard_normal((4, 4))
    return B + B.T + 4 * np.eye(4), rng.standard_normal(4), size


def product_of_matrices(matrices):
    """Matrices from a stack, multiplied from the left, and divided by their size."""
    P = matrices[0]
    for M in matrices[1:]:
        P = M @ P
        P = P / np.sqrt(np.sum(P**2))
    return np.sum(P * matrices[-1])


def make_product_of_matrices(rng, size):
    return (rng.standard_normal((size + 1, 3, 3)),)


def conjugate_gradients(A, b, rounds):
    x = np.zeros_like(b)
    r = p = b
    rho = r @ r
    for _ in range(rounds):
        Ap = A @ p
        alpha = rho / (p @ Ap + 1e-3)
        x = x + alpha * p
        r = r - alpha * Ap
        rho, before = r @ r, rho
        p = r + rho / (before + 1e-3) * p
    return b @ x


def make_conjugate_gradients(rng, size):
    B = rng.standard_normal((4, 4))
    return B @ B.T + np.eye(4), rng.standard_normal(4), size


def exponential(A, terms):
    """The exponential of a matrix by its series; each term is divided by its number."""
    total = term = np.eye(3) + 0.0 * A
    for k in range(1, terms + 1):
        term = term @ A / k
        total = total + term
    return np.sum(total**2)


def make_exponential(rng, size):
    return 0.5 * rng.standard_normal((3, 3)), size


def horner(coefficients, x):
    value = coefficients[-1]
    for c in coefficients[-2::-1]:
        value = value * x + c
    return value**2


def make_horner(rng, size):
    return rng.standard_normal(size + 1), 0.5 + 0.4 * rng.random()


def continued_fraction(b, x):
    """From the innermost out; numbers of the loop stand in it."""
    value = b[-1]
    for k in range(len(b) - 2, -1, -1):
        value = b[k] + (k + 1) * x / value
    return value


def make_continued_fraction(rng, size):
    return 1.0 + rng.random(size + 1), 0.5 + rng.random()


def chebyshev(coefficients, x):
    """A sum of polynomials that follow from the two before."""
    before, now = np.ones_like(x), x
    total = coefficients[0] * before
    for c in coefficients[1:]:
        total = total + c * now
        before, now = now, 2 * x * now - before
    return np.sum(total**2)


def make_chebyshev(rng, size):
    return rng.standard_normal(size + 1), rng.uniform(-1, 1, 4)


def legendre(x, terms):
    """Bonnet's recurrence, with factors that change from round to round."""
    before, now = np.ones_like(x), x
    for n in range(1, terms):
        before, now = now, ((2 * n + 1) * x * now - n * before) / (n + 1)
    return np.sum(now**2) + np.sum(before)


def make_legendre(rng, size):
    return rng.uniform(-1, 1, 4), size + 1


def neville(xs, ys, at):
    """Interpolation in a triangle: rows that become shorter."""
    row = [ys[i] for i in range(len(ys))]
    for k in range(1, len(row)):
        row = [
            ((at - xs[i + k]) * row[i] + (xs[i] - at) * row[i + 1]) / (xs[i] - xs[i + k])
            for i in range(len(row) - 1)
        ]
    return row[0] ** 2


def make_neville(rng, size):
    n = 4 + size // 4
    return np.linspace(-1, 1, n) + 0.05 * rng.random(n), rng.standard_normal(n), 0.3


PROGRAMS = (
    Program(triangular_solve, make_triangular_solve, (0, 1), loops=2, passes=2),
    # Slices that grow make every round one of its own.
    Program(substitution_by_slices, make_triangular_solve, (0, 1), loops=None),
    Program(cholesky, make_cholesky, (0,), loops=None),
    Program(levinson_durbin, make_levinson_durbin, (0,), loops=None),
    Program(gram_schmidt, make_gram_schmidt, (0,), loops=None),
    Program(power_iteration, make_power_iteration, (0, 1)),
    Program(product_of_matrices, make_product_of_matrices, (0,)),
    Program(conjugate_gradients, make_conjugate_gradients, (0, 1)),
    Program(exponential, make_exponential, (0,)),
    Program(horner, make_horner, (0, 1)),
    Program(continued_fraction, make_continued_fraction, (0, 1)),
    Program(chebyshev, make_chebyshev, (0, 1)),
    Program(legendre, make_legendre, (0,)),
    Program(neville, make_neville, (0, 1, 2), loops=None),
)
