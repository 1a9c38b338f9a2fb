"""Values and gradients written by hand for numba, by somebody who knows the program: the limit.

One thread, fused loops, libm's or LLVM's scalar functions, BLAS through NumPy.
"""

import math

import numpy as np
from numba import njit

FAST = {"reassoc", "contract", "nsz"}  # sums may be reordered, and no more than that


@njit(fastmath=FAST)
def sigmoid_sum(x):
    total, d_x = 0.0, np.empty_like(x)
    for i in range(x.size):
        s = 1.0 / (1.0 + math.exp(-x[i]))
        total += s
        d_x[i] = s * (1.0 - s)
    return total, d_x


@njit(fastmath=FAST)
def rosenbrock(x):
    n = x.size
    total, d_x = 0.0, np.empty_like(x)
    a = x[1] - x[0] * x[0]
    d_x[0] = -400.0 * a * x[0] - 2.0 * (1.0 - x[0])
    total += 100.0 * a * a + (1.0 - x[0]) ** 2
    for i in range(1, n - 1):
        before, a = x[i] - x[i - 1] * x[i - 1], x[i + 1] - x[i] * x[i]
        total += 100.0 * a * a + (1.0 - x[i]) ** 2
        d_x[i] = 200.0 * before - 400.0 * a * x[i] - 2.0 * (1.0 - x[i])
    d_x[n - 1] = 200.0 * (x[n - 1] - x[n - 2] * x[n - 2])
    return total, d_x


@njit(fastmath=FAST)
def logistic_regression(w, X, y):
    rows, columns = X.shape
    total, d_w = 0.0, w.copy()
    for j in range(columns):
        total += 0.5 * w[j] * w[j]
    for i in range(rows):
        z = 0.0
        for j in range(columns):
            z += X[i, j] * w[j]
        e = math.exp(-abs(z))
        total += max(z, 0.0) + math.log1p(e) - y[i] * z
        r = (1.0 if z >= 0 else e) / (1.0 + e) - y[i]
        for j in range(columns):
            d_w[j] += X[i, j] * r
    return total, d_w


@njit(fastmath=FAST)
def black_scholes(params, strike, time):
    price, volatility, rate = params
    total, n = 0.0, price.size
    d_price, d_volatility, d_rate = np.empty(n), np.empty(n), np.empty(n)
    c = 0.7978845608028654
    for i in range(n):
        s, v, r, k, t = price[i], volatility[i], rate[i], strike[i], time[i]
        root, discounted = math.sqrt(t), k * math.exp(-r * t)
        spread = v * root
        d1 = (math.log(s / k) + (r + 0.5 * v * v) * t) / spread
        d2 = d1 - spread
        h1 = math.tanh(c * (d1 + 0.044715 * d1 * d1 * d1))
        h2 = math.tanh(c * (d2 + 0.044715 * d2 * d2 * d2))
        n1, n2 = 0.5 * (1.0 + h1), 0.5 * (1.0 + h2)
        p1 = 0.5 * c * (1.0 - h1 * h1) * (1.0 + 0.134145 * d1 * d1)
        p2 = 0.5 * c * (1.0 - h2 * h2) * (1.0 + 0.134145 * d2 * d2)
        total += s * n1 - discounted * n2
        both = s * p1 - discounted * p2
        d_price[i] = n1 + both / (s * spread)
        d_volatility[i] = both * (root - d1 / v) + discounted * p2 * root
        d_rate[i] = both * t / spread + t * discounted * n2
    return total, (d_price, d_volatility, d_rate)


@njit(fastmath=FAST)
def _losses(z, y):
    """The loss of each row's scores, summed, and the cotangent of the scores."""
    total, d_z = 0.0, np.empty_like(z)
    rows, columns = z.shape
    for i in range(rows):
        top = z[i].max()
        scale = 0.0
        for j in range(columns):
            d_z[i, j] = math.exp(z[i, j] - top)
            scale += d_z[i, j]
        log_sum = math.log(scale) + top
        for j in range(columns):
            total -= (z[i, j] - log_sum) * y[i, j]
            d_z[i, j] = (d_z[i, j] / scale - y[i, j]) / rows
    return total / rows, d_z


def mlp(params, x, y):
    """For one-hot rows y."""
    W1, b1, W2, b2, W3, b3 = params
    h1 = np.tanh(x @ W1 + b1)
    h2 = np.maximum(h1 @ W2 + b2, 0.0)
    value, d_z = _losses(h2 @ W3 + b3, y)
    d_h2 = (d_z @ W3.T) * (h2 > 0)
    d_h1 = (d_h2 @ W2.T) * (1.0 - h1 * h1)
    sums = [d.sum(axis=0) for d in (d_h1, d_h2, d_z)]
    return value, (x.T @ d_h1, sums[0], h1.T @ d_h2, sums[1], h2.T @ d_z, sums[2])
