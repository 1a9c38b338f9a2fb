"""Recurrences, filters and likelihoods along a series of observations."""

from __future__ import annotations

import numpy as np
from tests.loops.program import Program


def recursive_filter(coefficients, x):
    """A filter of the second order, in the transposed direct form."""
    b0, b1, b2, a1, a2 = coefficients
    s1 = s2 = 0.0
    energy = 0.0
    for sample in x:
        y = b0 * sample + s1
        s1 = b1 * sample - a1 * y + s2
        s2 = b2 * sample - a2 * y
        energy += y**2
    return energy


def make_recursive_filter(rng, size):
    coefficients = np.array([0.5, 0.3, 0.2, -0.4, 0.2]) + 0.1 * rng.random(5)
    return coefficients, rng.standard_normal(size)


def smoothing(x, alpha):
    """The squared errors of one step ahead, by a level that follows slowly."""
    level, error = x[0], 0.0
    for value in x[1:]:
        error = error + (value - level) ** 2
        level = alpha * value + (1 - alpha) * level
    return error / (len(x) - 1)


def make_smoothing(rng, size):
    return rng.standard_normal(size + 1), 0.2 + 0.5 * rng.random()


def holt_winters(params, season, x):
    """Level, trend and a season of three, whose parts are written in turn."""
    alpha, beta, gamma = params
    season = season.copy()
    level, trend, error = x[0], 0.0, 0.0
    for t in range(len(x)):
        expected = level + trend + season[t % 3]
        error = error + (x[t] - expected) ** 2
        before = level
        level = alpha * (x[t] - season[t % 3]) + (1 - alpha) * (level + trend)
        trend = beta * (level - before) + (1 - beta) * trend
        season[t % 3] = gamma * (x[t] - level) + (1 - gamma) * season[t % 3]
    return error


def make_holt_winters(rng, size):
    return 0.2 + 0.4 * rng.random(3), rng.standard_normal(3), rng.standard_normal(size)


def garch(params, returns):
    """The likelihood of returns whose variance follows what was."""
    omega, alpha, beta = params
    variance, total = omega / (1 - alpha - beta), 0.0
    for r in returns:
        total = total + 0.5 * (np.log(variance) + r**2 / variance)
        variance = omega + alpha * r**2 + beta * variance
    return total


def make_garch(rng, size):
    return np.array([0.1, 0.1, 0.6]) + 0.1 * rng.random(3), rng.standard_normal(size)


def two_back(a, b, noise):
    """An autoregression of the second order: the last two of a list are read."""
    ys = [noise[0], noise[1]]
    for t in range(2, len(noise)):
        ys.append(a * ys[-1] + b * ys[-2] + noise[t])
    return np.mean(np.stack(ys) ** 2)


def make_two_back(rng, size):
    return 0.3 + 0.2 * rng.random(), -0.4 + 0.2 * rng.random(), rng.standard_normal(size + 2)


def kalman(params, observed):
    """The likelihood of numbers that a hidden state of position and speed is seen by."""
    q, r, h = params
    F = np.array([[1.0, 0.2], [0.0, 0.9]])
    noise = q**2 * np.array([[0.1, 0.05], [0.05, 0.2]])
    seen = np.stack([np.ones_like(h), h])
    mean, cov = 0.0 * seen, np.eye(2) * r**2
    total = 0.0
    for y in observed:
        mean, cov = F @ mean, F @ cov @ F.T + noise
        residual = y - seen @ mean
        s = seen @ cov @ seen + r**2
        gain = cov @ seen / s
        mean = mean + gain * residual
        cov = cov - np.outer(gain, seen @ cov)
        total = total + 0.5 * (residual**2 / s + np.log(s))
    return total


def make_kalman(rng, size):
    return np.array([0.5, 0.7, 0.3]) + 0.3 * rng.random(3), rng.standard_normal(size)


def rts_smoother(F, log_noise, observed):
    """Rauch, Tung and Striebel: a Kalman filter, and then back over what it has left."""
    Q, R = np.exp(log_noise[0]) * np.eye(2), np.exp(log_noise[1]) * np.eye(2)
    mean, cov = observed[0], np.eye(2)
    filtered, predicted = [(mean, cov)], []
    for y in observed[1:]:
        mean, cov = F @ mean, F @ cov @ F.T + Q
        predicted.append((mean, cov))
        gain = np.linalg.solve(cov + R, cov).T
        mean, cov = mean + gain @ (y - mean), cov - gain @ cov
        filtered.append((mean, cov))
    total = 0.0
    for (m, P), (m_next, P_next) in zip(filtered[-2::-1], predicted[::-1], strict=True):
        back = np.linalg.solve(P_next, F @ P).T
        mean = m + back @ (mean - m_next)
        cov = P + back @ (cov - P_next) @ back.T
        total = total + np.sum(mean**2) + np.trace(cov)
    return total


def make_rts_smoother(rng, size):
    F = 0.5 * np.eye(2) + 0.2 * rng.standard_normal((2, 2))
    return F, 0.3 * rng.standard_normal(2), rng.standard_normal((size + 1, 2))


def log_sum_exp(x):
    """Cumulative sums of exponentials, as logarithms; each of them counts."""
    running, total = x[0], x[0] ** 2
    for value in x[1:]:
        top = np.maximum(running, value)
        running = top + np.log(np.exp(running - top) + np.exp(value - top))
        total = total + running**2
    return total


def make_log_sum_exp(rng, size):
    return (rng.standard_normal(size + 1),)


def draw_down(returns):
    """The largest loss since the highest price: a running maximum, and a maximum of differences."""
    wealth = peak = 1.0
    worst = 0.0
    for r in returns:
        wealth = wealth * (1.0 + 0.1 * r)
        peak = np.maximum(peak, wealth)
        worst = np.maximum(worst, 1.0 - wealth / peak)
    return worst + 0.1 * wealth


def make_draw_down(rng, size):
    return (rng.standard_normal(size),)


def particles(x, weights, noise, observed):
    """Particles that move and are weighed, and not drawn again."""
    log_w = np.log(weights)
    total = 0.0
    for t, (z, y) in enumerate(zip(noise, observed, strict=True)):
        x = 0.5 * x + 2.0 * x / (1.0 + x**2) + np.cos(1.2 * t) + 0.3 * z
        log_w = log_w - 0.5 * (y - 0.1 * x**2) ** 2
        top = np.max(log_w)
        normaliser = top + np.log(np.sum(np.exp(log_w - top)))
        total = total + normaliser
        log_w = log_w - normaliser
    return total


def make_particles(rng, size):
    drawn = rng.standard_normal((size, 4)), rng.standard_normal(size)
    return rng.standard_normal(4), 0.5 + rng.random(4), *drawn


PROGRAMS = (
    Program(recursive_filter, make_recursive_filter, (0, 1), least=6),
    Program(smoothing, make_smoothing, (0, 1)),
    Program(holt_winters, make_holt_winters, (0, 1, 2)),
    Program(garch, make_garch, (0, 1)),
    Program(two_back, make_two_back, (0, 1, 2), passes=2),
    Program(kalman, make_kalman, (0, 1)),
    # What the filter has left is joined with what it started from.
    Program(rts_smoother, make_rts_smoother, (0, 1, 2), loops=2, passes=2),
    Program(log_sum_exp, make_log_sum_exp, (0,)),
    Program(draw_down, make_draw_down, (0,)),
    Program(particles, make_particles, (0, 1)),
)
