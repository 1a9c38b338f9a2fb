"""Layers of networks, as one writes them in plain NumPy: functions of an array namespace `xp`, of
`params` and of what isn't differentiated, and what draws their arguments."""

import numpy as np


def convolved(xp, x, K):
    """Valid 3 x 3 correlation of channels-last images: nine shifted slices, a product each."""
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    total = 0.0
    for i in range(3):
        for j in range(3):
            total = total + x[:, i : i + rows, j : j + columns, :] @ K[i, j]
    return total


def convolutions(xp, params, x):
    K1, K2, W = params
    h = xp.maximum(convolved(xp, x, K1), 0.0)
    h = xp.maximum(convolved(xp, h, K2), 0.0)
    return xp.sum((xp.mean(h, axis=(1, 2)) @ W) ** 2)


def make_convolutions(rng, batch=32, dtype=np.float64):
    def draw(*shape):
        return (0.3 * rng.standard_normal(shape)).astype(dtype)

    return (draw(3, 3, 1, 8), draw(3, 3, 8, 16), draw(16, 10)), draw(batch, 16, 16, 1)


def softmax(xp, x):
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def attended(xp, x, Wq, Wk, Wv, Wo, heads):
    n, d = x.shape

    def split(W):
        return xp.transpose(xp.reshape(x @ W, (n, heads, d // heads)), (1, 0, 2))

    q, k, v = split(Wq), split(Wk), split(Wv)
    weights = softmax(xp, q @ xp.swapaxes(k, 1, 2) / (d // heads) ** 0.5)
    return xp.reshape(xp.transpose(weights @ v, (1, 0, 2)), (n, d)) @ Wo


def attention(xp, params, x):
    return xp.sum(attended(xp, x, *params, 8) ** 2)


def make_attention(rng, n=128, d=256, dtype=np.float32):
    params = tuple((rng.standard_normal((d, d)) / d**0.5).astype(dtype) for _ in range(4))
    return params, rng.standard_normal((n, d)).astype(dtype)


def normed(xp, x):
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def transformer(xp, params, x):
    Wq, Wk, Wv, Wo, W1, b1, W2, b2 = params
    x = x + attended(xp, normed(xp, x), Wq, Wk, Wv, Wo, 4)
    x = x + xp.maximum(normed(xp, x) @ W1 + b1, 0.0) @ W2 + b2
    return xp.mean(x**2)


def make_transformer(rng, n=64, d=32):
    def draw(*shape):
        return rng.standard_normal(shape) / shape[0] ** 0.5

    attending = [draw(d, d) for _ in range(4)]
    return (*attending, draw(d, 4 * d), draw(4 * d), draw(4 * d, d), draw(d)), draw(n, d) * n**0.5


def lstm(xp, params, xs):
    Wx, Wh, b = params
    n = Wh.shape[0]
    h = c = xp.zeros((xs.shape[1], n))
    for x in xs:
        gates = x @ Wx + h @ Wh + b
        i, f, o = (1.0 / (1.0 + xp.exp(-gates[:, k * n : (k + 1) * n])) for k in range(3))
        c = f * c + i * xp.tanh(gates[:, 3 * n :])
        h = o * xp.tanh(c)
    return xp.sum(h**2)


def make_lstm(rng, steps=8, batch=32, width=64):
    params = (
        0.1 * rng.standard_normal((width, 4 * width)),
        0.1 * rng.standard_normal((width, 4 * width)),
        np.zeros(4 * width),
    )
    return params, rng.standard_normal((steps, batch, width))
