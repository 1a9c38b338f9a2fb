"""Extrema that cancel are stopped before differentiating; all others keep their derivative."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import grad, hessian, jvp, trace
from tapegrad.optimize.shifts import stop_shifts
from tapegrad.primitives.elementwise import stop_gradient

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(4, 3)), RNG.uniform(0.5, 2.0, size=(4, 3))
TIED = np.round(X)
OBSERVED = RNG.normal(size=(40, 3))


def log_sum(x):
    top = np.max(x, axis=0)
    return np.sum(W[0] * (top + np.log(np.sum(np.exp(x - top), axis=0))))


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.sum(W * e / e.sum(axis=1, keepdims=True))


def cross_entropy(x):
    shifted = x - np.max(x, axis=-1)[:, None]
    return -np.sum(W * (shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))))


def attention(x):
    scores = x @ W.T
    e = np.exp(scores - np.max(scores, 1, keepdims=True))
    return np.sum(np.tanh((e / np.sum(e, 1, keepdims=True)) @ x))


def of_two(x):
    top = np.maximum(x, W)
    return np.sum(top + np.log(np.exp(x - top) + np.exp(W - top)))


def smallest(x):
    least = np.min(x, axis=1)
    return np.sum(least - np.log(np.exp(least[:, None] - x).sum(axis=1)))


def masked(x):
    mask = X > -0.5
    top = np.max(np.where(mask, x, -np.inf), axis=1, keepdims=True)
    e = np.where(mask, np.exp(np.where(mask, x - top, -np.inf)), 0.0)
    return np.sum(W * np.log1p(e / e.sum(axis=1, keepdims=True)))


def scaled_norm(x):
    scale = np.max(np.abs(x))
    return scale * np.sqrt(np.sum((x / scale) ** 2))


def geometric(x):
    scale = np.abs(x).max(axis=0)
    return np.sum(np.power(np.prod(np.abs(x) / scale, axis=0), 0.25) * scale)


def mean_of_powers(x):
    top = x.max()
    return 3.0 * top + np.log(np.mean(np.exp(3.0 * (x - top))))


def hidden_markov(x):
    transitions = x[:3] - x.max() / 7
    alpha = x[3]
    for b in OBSERVED:
        s = alpha[:, None] + transitions
        top = np.max(s, axis=0)
        alpha = top + np.log(np.sum(np.exp(s - top), axis=0)) + b
    top = np.max(alpha)
    return top + np.log(np.sum(np.exp(alpha - top)))


CANCELLED = [log_sum, softmax, cross_entropy, attention, of_two, smallest, masked, scaled_norm]
CANCELLED += [mean_of_powers]
KEPT = {
    "a small number is added to the sum": lambda x: np.sum(
        np.exp(x - x.max()) / (np.exp(x - x.max()).sum() + 1e-2)
    ),
    "the extremum is a result": lambda x: x.max() * np.sum(np.sin(x - x.max())),
    "it is summed over its own axis": lambda x: np.log(np.exp(x - x.max(axis=0)).sum()),
    "only a part is shifted back": lambda x: 0.5 * x.max() + np.log(np.exp(x - x.max()).sum()),
    "another axis": lambda x: np.sum(
        np.max(x[:3], axis=0) + np.log(np.sum(np.exp(x[:3] - np.max(x[:3], axis=0)), axis=1))
    ),
    "a scale that is a shift, too": lambda x: np.sum(x / np.abs(x).max() - np.abs(x).max()),
    "an odd power": lambda x: np.sum((x / x.max()) ** 3) * x.max() ** 2,
    "products are not followed": geometric,
}


def differences(f, x, h=1e-6):
    found = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        a, b = x.copy(), x.copy()
        a[i], b[i] = a[i] + h, b[i] - h
        found[i] = (f(a) - f(b)) / (2 * h)
    return found


def stopped(f, x=X):
    """The number of extrema whose gradient is stopped."""
    tape = stop_shifts(trace(f, x)[1])
    inner = [body for call in tape.calls for body in call.primitive.tapes]
    return sum(c.primitive is stop_gradient for t in (tape, *inner) for c in t.calls)


@pytest.mark.parametrize("f", CANCELLED)
def test_extrema_that_cancel_have_no_derivative(f):
    assert stopped(f) == 1
    g = grad(f, compile="never")
    assert not any(call.reason in ("cotangent via max", "cotangent via min") for call in tape(g))
    for x in (X, X + 1e3) if f not in (of_two, scaled_norm) else (X,):
        np.testing.assert_allclose(g(x), differences(f, x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad(f, compile="always")(X), g(X), rtol=1e-13, atol=1e-15)


def tape(g):
    g(X)
    return g.tape.calls


@pytest.mark.parametrize("f", [f for f in CANCELLED if f is not masked])
def test_at_ties_the_derivative_is_the_same_from_all_sides(f):
    np.testing.assert_allclose(
        grad(f, compile="never")(TIED), differences(f, TIED), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("f", CANCELLED)
def test_further_derivatives(f):
    t = RNG.normal(size=X.shape)
    g = grad(f, compile="never")
    slope = lambda h: np.sum(t * (g(X + h * t)))  # noqa: E731
    curvature = (slope(1e-5) - slope(-1e-5)) / 2e-5
    assert np.einsum("ij,ijkl,kl", t, hessian(f)(X), t) == pytest.approx(curvature, rel=1e-5)
    assert jvp(f, (X,), (t,))[1] == pytest.approx(np.sum(g(X) * t), rel=1e-10)


@pytest.mark.parametrize("name", KEPT)
def test_an_extremum_that_matters_keeps_its_derivative(name):
    f = KEPT[name]
    assert stopped(f) == 0
    np.testing.assert_allclose(grad(f, compile="never")(X), differences(f, X), rtol=1e-5, atol=1e-6)


def test_those_in_a_loop():
    assert stopped(hidden_markov) == 2  # of the round, and of the end; not that of the transitions
    np.testing.assert_allclose(
        grad(hidden_markov)(X), differences(hidden_markov, X), rtol=1e-5, atol=1e-7
    )


STEPS = [  # of the last value a, another one b, x, and the axis of the extremum
    lambda a, b, x, axis: np.exp(np.clip(0.1 * a, -3, 3)),
    lambda a, b, x, axis: np.exp(0.1 * a),
    lambda a, b, x, axis: np.exp(-0.2 * a),
    lambda a, b, x, axis: a + b,
    lambda a, b, x, axis: a - b,
    lambda a, b, x, axis: np.log(np.sum(np.exp(0.1 * a), axis=axis, keepdims=True)) + 0.0 * b,
    lambda a, b, x, axis: 0.5 * a,
    lambda a, b, x, axis: a * np.exp(0.1 * b),
    lambda a, b, x, axis: np.exp(0.1 * a) / np.exp(0.1 * b),
    lambda a, b, x, axis: np.sqrt(np.exp(0.2 * a)),
    lambda a, b, x, axis: np.where(x > 0, a, b),
    lambda a, b, x, axis: np.log(np.exp(0.1 * a) + np.exp(0.1 * b)),
    lambda a, b, x, axis: -a,
]


def random_program(rng):
    """A function of x: values are shifted, scaled and combined at random, so that the extremum
    cancels in some and not in others."""
    steps = rng.integers(0, len(STEPS), size=7)
    ends = rng.integers(0, 3, size=3)
    axis = int(rng.integers(0, 2))

    def f(x):
        top = np.max(x, axis=axis, keepdims=True)
        values = [x - top, top + 0.0 * x, x]
        for n, k in enumerate(steps):
            values.append(STEPS[k](values[-1], values[(n * 5) % len(values)], x, axis))
        return sum(np.sum(W * np.tanh(0.1 * values[-1 - e])) for e in ends)

    return f


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    f = random_program(np.random.default_rng(seed))
    g = grad(f, compile="never")
    np.testing.assert_allclose(g(X), differences(f, X), rtol=1e-4, atol=1e-6)


def test_some_of_them_cancel():
    counts = [stopped(random_program(np.random.default_rng(seed))) for seed in range(60)]
    assert 3 <= sum(map(bool, counts)) <= 57
