"""Jacobians of random chains of operations that move, cut, join and sum rows: each row is that of a
single pass. Products in between make rows that are kept as terms (`differentiate.terms`) meet."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tapegrad import grad, hessian, jacobian, jvp, vjp

MOST = 60  # elements of a value


def shifted(y):
    return np.concatenate([np.zeros_like(y[:1]), y[:-1]])


def unshifted(y):
    return np.concatenate([y[1:], np.zeros_like(y[:1])])


def bordered(y):
    box = np.zeros((len(y) + 1, len(y) + 1))
    box[1:, 0] = y
    box[0, 1:] = 2 * y
    return box


def part(y, start, stop):
    return y[start:stop]


def padded(y, widths):
    return np.pad(y, [widths, *[(0, 0)] * (y.ndim - 1)])


def taken(y, at):
    return y[at]


def put(y, at):
    z = np.zeros_like(y)
    z[at] = y
    return z


OF_ANY = [  # each makes a function for a value's shape, by draws
    lambda r, shape: lambda y: np.sin(y),
    lambda r, shape: lambda y: y * y,
    lambda r, shape: lambda y: np.maximum(y, 0.1),
    lambda r, shape: lambda y: y / (1 + np.sum(y**2)),
    lambda r, shape: lambda y: y[::2],
    lambda r, shape: lambda y: y[::-1],
    lambda r, shape: lambda y: y.T,
    lambda r, shape: lambda y: y.ravel(),
    lambda r, shape: lambda y: np.roll(y, 1, axis=0),
    lambda r, shape: lambda y: np.diff(y, axis=0),
    lambda r, shape: lambda y: np.cumsum(y, axis=0),
    lambda r, shape: lambda y: y - np.mean(y, axis=0),
    lambda r, shape: lambda y: np.concatenate([y, 2 * y]),
    lambda r, shape: shifted,
    lambda r, shape: unshifted,
    lambda r, shape: partial(part, start=0, stop=r.integers(1, shape[0] + 1)),
    lambda r, shape: partial(part, start=r.integers(0, shape[0]), stop=shape[0]),
    lambda r, shape: partial(np.multiply, r.normal(size=shape)),
    lambda r, shape: partial(np.matmul, r.normal(size=(r.integers(2, 6), shape[0]))),
    lambda r, shape: partial(padded, widths=tuple(r.integers(0, 3, 2))),
    lambda r, shape: partial(taken, at=r.integers(0, shape[0], size=r.integers(1, 5))),
    lambda r, shape: partial(put, at=r.permutation(shape[0])),
]
OF_VECTORS = [
    lambda r, shape: lambda y: y[:, None] - y,
    lambda r, shape: lambda y: np.outer(y, y[:2]),
    lambda r, shape: lambda y: np.diag(y),
    lambda r, shape: bordered,
]
OF_MATRICES = [
    lambda r, shape: lambda y: np.sum(y, axis=0),
    lambda r, shape: lambda y: np.sum(y, axis=1),
    lambda r, shape: lambda y: np.diag(y),
    lambda r, shape: lambda y: np.tril(y),
]


def random_program(seed):
    r = np.random.default_rng(seed)
    x = 0.7 * r.normal(size=r.integers(2, 6))
    y, steps = x, []
    for _ in range(r.integers(2, 6)):
        choices = OF_ANY + (OF_VECTORS if y.ndim == 1 else OF_MATRICES)
        step = choices[r.integers(len(choices))](r, y.shape)
        if 0 < step(y).size <= MOST:
            y = step(y)
            steps.append(step)

    def f(x):
        for step in steps:
            x = step(x)
        return x

    return f, x


@pytest.mark.every(20)
@pytest.mark.parametrize("seed", range(200))
def test_rows_are_those_of_single_passes(seed):
    f, x = random_program(seed)
    y, pullback = vjp(f, x)
    wanted = np.stack([pullback(e.reshape(y.shape))[0] for e in np.eye(y.size)])
    wanted = wanted.reshape(*y.shape, len(x))
    for mode in ("reverse", "forward"):
        found = jacobian(f, mode=mode, compile="never")(x)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)

    def weighed(x):
        z = f(x)
        return np.sum(np.sin(z) * np.arange(1.0, z.size + 1).reshape(z.shape))

    gradient = grad(weighed, compile="never")
    columns = [jvp(gradient, (x,), (e,))[1] for e in np.eye(len(x))]
    found = hessian(weighed, compile="never")(x)
    np.testing.assert_allclose(found, np.stack(columns, -1), rtol=1e-8, atol=1e-9)


MATRIX = np.cos(np.arange(16.0)).reshape(4, 4)
MOVED = {
    "first rows": lambda y: y[:2],
    "middle rows": lambda y: y[1:3],
    "last rows": lambda y: y[2:],
    "rows backwards": lambda y: y[::-1][:3],
    "a row down": shifted,
    "a row up": unshifted,
}


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("compiled", ["never", "always"])
def test_rows_of_a_product_that_are_moved(name, compiled):
    """Cotangents are put into a larger array -> terms have rows that aren't there."""
    matrix = jacobian(lambda x: MOVED[name](MATRIX @ x), mode="reverse", compile=compiled)
    np.testing.assert_array_equal(matrix(np.ones(4)), MOVED[name](MATRIX))
