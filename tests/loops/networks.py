"""Recurrent networks, and optimisers inside a loss."""

from __future__ import annotations

import numpy as np
from tests.loops.program import Program


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def rnn(params, xs):
    Wx, Wh, b = params
    h, loss = np.zeros_like(b), 0.0
    for t in range(xs.shape[0]):
        h = np.tanh(xs[t] @ Wx + h @ Wh + b)
        loss = loss + np.sum(h**2)
    return loss


def make_rnn(rng, size):
    return (
        (rng.standard_normal((2, 3)), rng.standard_normal((3, 3)), rng.standard_normal(3)),
        rng.standard_normal((size, 2)),
    )


def lstm(params, xs, target):
    """One product for all gates, which is then split; a batch of two."""
    h = c = np.zeros_like(target)
    for x in xs:
        gates = x @ params["W"] + h @ params["U"] + params["b"]
        i, f, o, g = np.split(gates, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return np.mean((h - target) ** 2)


def make_lstm(rng, size):
    params = {
        "W": rng.standard_normal((2, 12)),
        "U": rng.standard_normal((3, 12)),
        "b": rng.standard_normal(12),
    }
    return params, rng.standard_normal((size, 2, 2)), rng.standard_normal((2, 3))


class Cell:
    """A gated recurrent unit, as an object that is called."""

    def __init__(self, weights):
        self.weights = weights

    def gate(self, name, x, h):
        W, U, b = self.weights[name]
        return W @ x + U @ h + b

    def __call__(self, x, h):
        update, reset = sigmoid(self.gate("update", x, h)), sigmoid(self.gate("reset", x, h))
        new = np.tanh(self.gate("new", x, reset * h))
        return (1 - update) * h + update * new


def gru(weights, xs):
    cell = Cell(weights)
    h = 0.0 * weights["new"][2]
    for x in xs:
        h = cell(x, h)
    return np.sum(h**2)


def make_gru(rng, size):
    weights = {
        name: (rng.standard_normal((3, 2)), rng.standard_normal((3, 3)), rng.standard_normal(3))
        for name in ("update", "reset", "new")
    }
    return weights, rng.standard_normal((size, 2))


def both_directions(params, xs):
    """Two networks, one from the front and one from the back, that meet in each step."""
    W, U = params
    forward, backward = [], []
    h = np.zeros_like(U[0])
    for x in xs:
        h = np.tanh(x @ W + h @ U)
        forward.append(h)
    h = np.zeros_like(U[0])
    for x in reversed(xs):
        h = np.tanh(x @ W + h @ U)
        backward.append(h)
    backward.reverse()
    return np.sum(np.stack(forward) * np.stack(backward))


def make_both_directions(rng, size):
    return (
        (rng.standard_normal((2, 3)), 0.5 * rng.standard_normal((3, 3))),
        rng.standard_normal((size, 2)),
    )


def attended(query, keys, steps):
    """A state that looks at all that it was before: every round is longer than the last."""
    states = [query]
    for _ in range(steps):
        past = np.stack(states)
        scores = np.exp(past @ states[-1])
        mixed = (scores / np.sum(scores)) @ past
        states.append(np.tanh(keys @ mixed + 0.1 * states[-1]))
    return np.sum(states[-1] ** 2)


def make_attended(rng, size):
    return rng.standard_normal(3), rng.standard_normal((3, 3)), size


def descent_inside(penalty, rate, X, y, X_test, y_test, steps):
    """Ridge regression by gradient descent; the loss is of what was learned."""
    w = np.zeros_like(X[0]) * rate
    for _ in range(steps):
        gradient = X.T @ (X @ w - y) / len(y) + np.exp(penalty) * w
        w = w - rate * gradient
    return np.mean((X_test @ w - y_test) ** 2)


def make_descent_inside(rng, size):
    data = [rng.standard_normal(shape) for shape in ((4, 3), 4, (4, 3), 4)]
    return -1.0 + rng.random(), 0.05 + 0.1 * rng.random(), *data, size


def momentum(w, rate, friction, steps):
    """A ball that rolls down Rosenbrock's valley."""
    v = np.zeros_like(w)
    for _ in range(steps):
        x, y = w
        slope = np.stack([-2 * (1 - x) - 4 * x * (y - x**2), 2 * (y - x**2)])
        v = friction * v - rate * slope
        w = w + v
    return (1 - w[0]) ** 2 + (w[1] - w[0] ** 2) ** 2


def make_momentum(rng, size):
    return rng.standard_normal(2), 0.02 + 0.02 * rng.random(), 0.5 + 0.3 * rng.random(), size


def adam(w, rate, target, steps):
    """Both moments' corrections change from round to round, without a pattern that is linear."""
    m = v = np.zeros_like(w)
    for t in range(1, steps + 1):
        slope = 2 * (w - target) + np.cos(w)
        m = 0.9 * m + 0.1 * slope
        v = 0.99 * v + 0.01 * slope**2
        w = w - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 0.1)
    return np.sum((w - target) ** 2)


def make_adam(rng, size):
    return rng.standard_normal(3), 0.1 + 0.1 * rng.random(), rng.standard_normal(3), size


def scheduled(w, rate, steps):
    """A rate that falls like a cosine, computed in Python."""
    for t in range(steps):
        now = rate * 0.5 * (1.0 + np.cos(np.pi * t / steps))
        w = w - now * (w**3 - np.roll(w, 1))
    return np.sum(w**2)


def make_scheduled(rng, size):
    return rng.standard_normal(3), 0.1 + 0.1 * rng.random(), size


def layers_in_place(params, x):
    """A network whose layers are rows of one array, with what is skipped added in place."""
    Ws, bs = params
    x = x.copy()
    for W, b in zip(Ws, bs, strict=True):
        x += 0.3 * np.tanh(W @ x + b)
    return np.sum(x**2)


def make_layers_in_place(rng, size):
    return (rng.standard_normal((size, 3, 3)), rng.standard_normal((size, 3))), np.ones(3)


PROGRAMS = (
    Program(rnn, make_rnn, (0, 1)),
    Program(lstm, make_lstm, (0, 1), least=13),
    Program(gru, make_gru, (0, 1)),
    Program(both_directions, make_both_directions, (0, 1), loops=2, passes=3),
    Program(attended, make_attended, (0, 1), loops=None),
    Program(descent_inside, make_descent_inside, (0, 1, 2)),
    Program(momentum, make_momentum, (0, 1, 2)),
    Program(adam, make_adam, (0, 1, 2)),
    Program(scheduled, make_scheduled, (0, 1)),
    Program(layers_in_place, make_layers_in_place, (0, 1)),
)
