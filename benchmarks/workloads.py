"""The programs whose gradients are timed.

Each loss is written once, in the NumPy dialect, as a function of an array namespace `xp`: tapegrad
differentiates it with xp = numpy, JAX with jax.numpy, HIPS autograd with autograd.numpy, PyTensor
with pytensor.tensor, PyTorch with its own functions under NumPy's names (`torch_namespace`). Where
a JAX user would write `lax.scan` instead of a Python loop, `idiomatic_jax` holds that version, so
that JAX is measured at its best and not on an unrolled loop.

Gradients are taken with respect to `params`, an array or a tuple of arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Workload:
    """One program: `loss(xp, params, *data)`, a scalar, on the arguments that `make(rng)` draws."""

    name: str
    title: str  # what the tables and the plot call it
    family: str  # call | matmul | ml | elementwise | linalg | loop | stencil
    loss: Callable[..., Any]
    make: Callable[[np.random.Generator], tuple]
    idiomatic_jax: Callable[..., Any] | None = None  # (params, *data) -> scalar
    note: str = ""


# Calls so small that only the overhead counts.


def sigmoid_sum(xp, x):
    return xp.sum(1.0 / (1.0 + xp.exp(-x)))


def make_sigmoid_sum(rng):
    return (rng.standard_normal(5),)


def two_layers(xp, params, x, y):
    W1, b1, W2, b2 = params
    hidden = xp.tanh(x @ W1 + b1)
    scores = xp.tanh(hidden @ W2 + b2)
    log_probs = scores - xp.log(xp.sum(xp.exp(scores)))
    return -xp.sum(log_probs * y)


def make_two_layers(rng):
    params = (
        rng.standard_normal((100, 50)),
        rng.standard_normal(50),
        rng.standard_normal((50, 10)),
        rng.standard_normal(10),
    )
    return params, rng.standard_normal((1, 100)), np.eye(10)[[3]]


# Matrix products, and the models made of them.


def linear_sum(xp, params, x):
    W, b = params
    return xp.sum(W @ x + b)


def make_linear_sum(rng):
    return (rng.random((128, 784)), rng.random((128, 1))), rng.random((784, 100))


def mlp(xp, params, x, y):
    W1, b1, W2, b2, W3, b3 = params
    h = xp.tanh(x @ W1 + b1)
    h = xp.maximum(h @ W2 + b2, 0.0)
    z = h @ W3 + b3
    top = xp.max(z, axis=1, keepdims=True)
    log_sum = xp.log(xp.sum(xp.exp(z - top), axis=1, keepdims=True)) + top
    return -xp.sum((z - log_sum) * y) / x.shape[0]


def make_mlp(rng, dtype=np.float64):
    def draw(*shape):
        return (0.05 * rng.standard_normal(shape)).astype(dtype)

    params = (draw(784, 256), draw(256), draw(256, 256), draw(256), draw(256, 10), draw(10))
    return params, draw(128, 784), np.eye(10, dtype=dtype)[rng.integers(0, 10, 128)]


def make_mlp_f32(rng):
    return make_mlp(rng, np.float32)


def logistic_regression(xp, w, X, y):
    z = X @ w
    return xp.sum(xp.logaddexp(0.0, z) - y * z) + 0.5 * xp.sum(w * w)


def make_logistic_regression(rng):
    X = rng.standard_normal((100_000, 30))
    return 0.1 * rng.standard_normal(30), X, (rng.random(100_000) > 0.5).astype(float)


def diagonal_mixture(xp, params, x):
    """Log-likelihood of a Gaussian mixture: weights (K,), means and log-precisions (K, D)."""
    weights, means, log_scale = params
    scaled = (x[:, None, :] - means[None, :, :]) * xp.exp(log_scale)[None]
    terms = weights[None] + xp.sum(log_scale, axis=1)[None] - 0.5 * xp.sum(scaled**2, axis=2)
    top = xp.max(terms, axis=1, keepdims=True)
    log_likelihood = top[:, 0] + xp.log(xp.sum(xp.exp(terms - top), axis=1))
    highest = xp.max(weights)
    normaliser = highest + xp.log(xp.sum(xp.exp(weights - highest)))
    return xp.sum(log_likelihood) - x.shape[0] * normaliser


def make_diagonal_mixture(rng):
    params = (
        rng.standard_normal(25),
        rng.standard_normal((25, 10)),
        0.1 * rng.standard_normal((25, 10)),
    )
    return params, rng.standard_normal((1000, 10))


# A million elements, no matrices.


def black_scholes(xp, params, strike, time):
    """Value of call options, with a tanh approximation of the normal distribution."""
    price, volatility, rate = params

    def normal_cdf(z):
        return 0.5 * (1.0 + xp.tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)))

    spread = volatility * xp.sqrt(time)
    d1 = (xp.log(price / strike) + (rate + 0.5 * volatility * volatility) * time) / spread
    d2 = d1 - spread
    return xp.sum(price * normal_cdf(d1) - strike * xp.exp(-rate * time) * normal_cdf(d2))


def make_black_scholes(rng):
    n = 1_000_000
    params = (50.0 + 50.0 * rng.random(n), 0.1 + 0.4 * rng.random(n), 0.05 * rng.random(n))
    return params, 50.0 + 50.0 * rng.random(n), 0.1 + 2.0 * rng.random(n)


def rosenbrock(xp, x):
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def make_rosenbrock(rng):
    return (rng.standard_normal(1_000_000),)


# Linear algebra.


def gaussian_process(xp, params, X, y):
    """Negative marginal likelihood of a process with an RBF kernel; params are logarithms."""
    length, amplitude, noise = params
    norms = xp.sum(X * X, axis=1)
    squares = norms[:, None] + norms[None, :] - 2.0 * (X @ X.T)
    K = xp.exp(amplitude) * xp.exp(-0.5 * squares * xp.exp(-2.0 * length))
    K = K + xp.exp(noise) * xp.eye(X.shape[0])
    L = xp.linalg.cholesky(K)
    diagonal = xp.diagonal(L, 0, -1, -2)  # the axes that autograd can differentiate
    return 0.5 * xp.sum(y * xp.linalg.solve(K, y)) + xp.sum(xp.log(diagonal))


def make_gaussian_process(rng):
    params = (np.array(0.1), np.array(0.2), np.array(-2.0))
    return params, rng.standard_normal((400, 5)), rng.standard_normal(400)


# Loops, which most engines unroll.


def lotka_volterra_step(a, b, c, d, x, y, dt=0.01):
    """One step of the classical Runge-Kutta method for hunters and prey."""

    def slope(x, y):
        return a * x - b * x * y, d * x * y - c * y

    k1, l1 = slope(x, y)
    k2, l2 = slope(x + 0.5 * dt * k1, y + 0.5 * dt * l1)
    k3, l3 = slope(x + 0.5 * dt * k2, y + 0.5 * dt * l2)
    k4, l4 = slope(x + dt * k3, y + dt * l3)
    x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    y = y + dt / 6 * (l1 + 2 * l2 + 2 * l3 + l4)
    return x, y


def lotka_volterra(xp, params, steps=1000):
    a, b, c, d, x, y = (params[i] for i in range(6))
    for _ in range(steps):
        x, y = lotka_volterra_step(a, b, c, d, x, y)
    return x * x + y * y


def lotka_volterra_jax(params, steps=1000):
    import jax

    a, b, c, d, x, y = params

    def step(state, _):
        return lotka_volterra_step(a, b, c, d, *state), None

    (x, y), _ = jax.lax.scan(step, (x, y), None, length=steps)
    return x * x + y * y


def make_lotka_volterra(rng):
    return (np.array([1.5, 1.0, 3.0, 1.0, 1.0, 1.0]),)


def rnn(xp, params, xs):
    Wx, Wh, b, Wo = params
    h = 0.0 * (xs[0] @ Wx)
    out = 0.0
    for t in range(xs.shape[0]):
        h = xp.tanh(xs[t] @ Wx + h @ Wh + b)
        out = out + xp.sum((h @ Wo) ** 2)
    return out


def rnn_jax(params, xs):
    import jax
    import jax.numpy as jnp

    Wx, Wh, b, Wo = params

    def step(carry, x):
        h, out = carry
        h = jnp.tanh(x @ Wx + h @ Wh + b)
        return (h, out + jnp.sum((h @ Wo) ** 2)), None

    start = jnp.zeros((xs.shape[1], Wh.shape[0]), xs.dtype), jnp.zeros((), xs.dtype)
    (_, out), _ = jax.lax.scan(step, start, xs)
    return out


def make_rnn(rng):
    params = (
        0.2 * rng.standard_normal((16, 32)),
        0.1 * rng.standard_normal((32, 32)),
        0.1 * rng.standard_normal(32),
        0.2 * rng.standard_normal((32, 4)),
    )
    return params, rng.standard_normal((200, 8, 16))


# Stencils.


def heat_step(xp, u):
    """One explicit step of the heat equation; the border stays cold."""
    inner = u[1:-1, 1:-1]
    laplacian = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * inner
    return xp.pad(inner + 0.1 * laplacian, 1, "constant")


def heat(xp, u, steps=100):
    for _ in range(steps):
        u = heat_step(xp, u)
    return xp.sum(u * u)


def heat_jax(u, steps=100):
    import jax
    import jax.numpy as jnp

    u, _ = jax.lax.scan(lambda u, _: (heat_step(jnp, u), None), u, None, length=steps)
    return jnp.sum(u * u)


def make_heat(rng):
    return (rng.standard_normal((128, 128)),)


WORKLOADS = (
    Workload(
        "sigmoid_sum_5",
        "sum(sigmoid(x)), n = 5",
        "call",
        sigmoid_sum,
        make_sigmoid_sum,
        note="the logistic of Yota.jl's README: the price of a call",
    ),
    Workload(
        "torch_autograd_readme_mlp",
        "small network, torch-autograd's README",
        "call",
        two_layers,
        make_two_layers,
        note="the network of torch-autograd's README, on one example",
    ),
    Workload(
        "yota_linear_128x784x100",
        "linear layer, 128 x 784 x 100",
        "matmul",
        linear_sum,
        make_linear_sum,
    ),
    Workload("mlp_f64_b128", "three-layer network, float64, batch 128", "ml", mlp, make_mlp),
    Workload("mlp_f32_b128", "the same in float32", "ml", mlp, make_mlp_f32),
    Workload(
        "logreg_100k_x30",
        "logistic regression, 100 000 x 30",
        "ml",
        logistic_regression,
        make_logistic_regression,
    ),
    Workload(
        "black_scholes_1e6",
        "Black-Scholes, a million options",
        "elementwise",
        black_scholes,
        make_black_scholes,
    ),
    Workload(
        "rosenbrock_1e6", "Rosenbrock, n = 1 000 000", "elementwise", rosenbrock, make_rosenbrock
    ),
    Workload(
        "gmm_diag_n1000_d10_k25",
        "Gaussian mixture, 1000 x 10, 25 parts",
        "ml",
        diagonal_mixture,
        make_diagonal_mixture,
    ),
    Workload(
        "gp_mll_n400",
        "Gaussian process, n = 400",
        "linalg",
        gaussian_process,
        make_gaussian_process,
    ),
    Workload(
        "lotka_volterra_rk4_1000",
        "Runge and Kutta, 1000 steps, unrolled",
        "loop",
        lotka_volterra,
        make_lotka_volterra,
        idiomatic_jax=lotka_volterra_jax,
    ),
    Workload(
        "rnn_T200_B8_H32",
        "recurrent network, 200 steps, unrolled",
        "loop",
        rnn,
        make_rnn,
        idiomatic_jax=rnn_jax,
    ),
    Workload(
        "heat2d_128_100steps",
        "heat equation, 128 x 128, 100 steps, unrolled",
        "stencil",
        heat,
        make_heat,
        idiomatic_jax=heat_jax,
    ),
)
