"""Differential equations, step by step."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from tests.loops.program import Program


def euler(y, rate, capacity, steps):
    """Logistic growth."""
    for _ in range(steps):
        y = y + 0.1 * rate * y * (1.0 - y / capacity)
    return y**2


def make_euler(rng, size):
    return 0.3 + 0.4 * rng.random(), 0.8 + rng.random(), 2.0 + rng.random(), size


def rk4(y, k, steps):
    """Runge and Kutta's method for a number, with a slope that depends on time."""
    h = 0.1

    def slope(t, y):
        return -k * y + np.sin(3.0 * t)

    for i in range(steps):
        t = i * h
        k1 = slope(t, y)
        k2 = slope(t + h / 2, y + h / 2 * k1)
        k3 = slope(t + h / 2, y + h / 2 * k2)
        k4 = slope(t + h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y * y


def make_rk4(rng, size):
    return rng.standard_normal(), 0.5 + rng.random(), size


def rk4_vector(y0, A, observed):
    """Runge and Kutta's method for a vector, held against observations along the way."""
    h = 0.1

    def slope(y):
        return A @ np.tanh(y) - 0.2 * y

    y, error = y0, 0.0
    for seen in observed:
        k1 = slope(y)
        k2 = slope(y + 0.5 * h * k1)
        k3 = slope(y + 0.5 * h * k2)
        k4 = slope(y + h * k3)
        y = y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        error += np.sum((y - seen) ** 2)
    return error / len(observed)


def make_rk4_vector(rng, size):
    return rng.standard_normal(3), rng.standard_normal((3, 3)), rng.standard_normal((size, 3))


def lotka_volterra(params, start, steps):
    """Hunters and prey, by Runge and Kutta's method."""
    a, b, c, d = params

    def slope(state):
        x, y = state
        return a * x - b * x * y, d * x * y - c * y

    def moved(state, change, h):
        return tuple(s + h * k for s, k in zip(state, change, strict=True))

    state, h = tuple(start), 0.05
    for _ in range(steps):
        k1 = slope(state)
        k2 = slope(moved(state, k1, h / 2))
        k3 = slope(moved(state, k2, h / 2))
        k4 = slope(moved(state, k3, h))
        for k, weight in ((k1, 1), (k2, 2), (k3, 2), (k4, 1)):
            state = moved(state, k, weight * h / 6)
    return state[0] * state[1]


def make_lotka_volterra(rng, size):
    return np.array([1.5, 1.0, 3.0, 1.0]) + 0.1 * rng.random(4), 1.0 + rng.random(2), size


def verlet(x0, v0, stiffness, steps):
    """A spring that stiffens, by Verlet's method: the position two steps back is needed."""
    h = 0.1

    def force(x):
        return -stiffness * x - x**3

    before, x = x0, x0 + h * v0 + 0.5 * h**2 * force(x0)
    for _ in range(steps):
        before, x = x, 2 * x - before + h**2 * force(x)
    return x**2 + ((x - before) / h) ** 2


def make_verlet(rng, size):
    return rng.standard_normal(), rng.standard_normal(), 1.0 + rng.random(), size


def leapfrog(q, p, mass, steps):
    """Kick, drift, kick in a potential of several dimensions."""

    def gradient(q):
        return q + 0.3 * np.sin(np.roll(q, 1))

    h = 0.1
    p = p - 0.5 * h * gradient(q)
    for step in range(steps):
        q = q + h * p / mass
        if step != steps - 1:
            p = p - h * gradient(q)
    p = p - 0.5 * h * gradient(q)
    return 0.5 * np.sum(p**2 / mass) + 0.1 * np.sum(q)


def make_leapfrog(rng, size):
    return rng.standard_normal(3), rng.standard_normal(3), 1.0 + rng.random(3), size


def adaptive(y, rate, end):
    """Heun's method within Euler's, with steps that are made longer and shorter."""

    def slope(t, y):
        return -rate * y + np.cos(2 * t)

    t, h, tolerance = 0.0, 0.02, 1e-3
    while t < end:
        h = min(h, end - t)
        k1 = slope(t, y)
        k2 = slope(t + h, y + h * k1)
        error = np.abs(0.5 * h * (k2 - k1)) + 1e-12
        if error <= tolerance:
            t = t + h
            y = y + 0.5 * h * (k1 + k2)
        h = h * min(1.5, max(0.3, 0.9 * np.sqrt(tolerance / error)))
    return y**2


def make_adaptive(rng, size):
    return 1.0 + rng.random(), 1.0 + rng.random(), 0.06 * size


def forced_oscillator(params, forcing):
    """An oscillator, pushed as an array of numbers says."""
    omega, damping = params
    x, v, h = 0.0, 0.0, 0.1
    total = 0.0
    for t in range(len(forcing)):
        a = forcing[t] - 2 * damping * omega * v - omega**2 * x
        v = v + h * a
        x = x + h * v
        total = total + x**2
    return total * h


def make_forced_oscillator(rng, size):
    return np.array([1.5, 0.3]) + 0.2 * rng.random(2), rng.standard_normal(size)


def n_body(x, v, masses, steps):
    """Bodies in the plane that attract each other, by Verlet's method with velocities."""
    h = 0.05

    def pull(x):
        apart = x[None, :, :] - x[:, None, :]
        squared = np.sum(apart**2, axis=-1) + 0.1
        return np.sum(masses[None, :, None] * apart / squared[..., None] ** 1.5, axis=1)

    a = pull(x)
    for _ in range(steps):
        x = x + h * v + 0.5 * h**2 * a
        new = pull(x)
        v = v + 0.5 * h * (a + new)
        a = new
    return 0.5 * np.sum(masses[:, None] * v**2) + np.sum(x[0] ** 2)


def make_n_body(rng, size):
    return rng.standard_normal((3, 2)), 0.3 * rng.standard_normal((3, 2)), 1 + rng.random(3), size


def pendulum_chain(angles, stiffness, steps):
    """Pendulums in a row, each tied to its neighbours; torques are added up in place."""
    speeds, h = np.zeros_like(angles), 0.1
    for _ in range(steps):
        torques = -np.sin(angles)
        twist = stiffness * (angles[1:] - angles[:-1])
        torques[:-1] += twist
        torques[1:] -= twist
        speeds = 0.99 * speeds + h * torques
        angles = angles + h * speeds
    return np.sum(speeds**2) - np.sum(np.cos(angles))


def make_pendulum_chain(rng, size):
    return rng.standard_normal(4), 1.0 + rng.random(3), size


class Satellite(NamedTuple):
    x: np.ndarray
    v: np.ndarray
    fuel: float


def named_state(start, burns, thrust):
    """The state is a named tuple, of an array each and a number."""

    def step(state, burn):
        a = -state.x / np.sum(state.x**2) ** 1.5 + thrust * burn * state.v * state.fuel
        v = state.v + 0.05 * a
        return Satellite(state.x + 0.05 * v, v, state.fuel - 0.01 * burn**2)

    state = Satellite(start, np.stack([-start[1], start[0]]), 1.0)
    for burn in burns:
        state = step(state, burn)
    return np.sum(state.x**2) + state.fuel


def make_named_state(rng, size):
    return np.array([1.0, 0.3]) + 0.1 * rng.random(2), rng.standard_normal(size), 0.1


def delay(y0, gain, steps):
    """What happens depends on what was three steps before."""
    past = deque([y0, y0, y0], maxlen=3)
    for _ in range(steps):
        past.append(past[-1] + 0.1 * (gain * past[0] / (1 + past[0] ** 2) - past[-1]))
    return past[-1] * past[0]


def make_delay(rng, size):
    return 0.5 + rng.random(), 1.5 + rng.random(), size


def double_buffers(u, k, steps):
    """Two arrays that take turns, one written in place from the other."""
    old, new = u.copy(), u.copy()
    for _ in range(steps):
        new[1:-1] = old[1:-1] + k * (old[2:] - 2 * old[1:-1] + old[:-2]) * old[1:-1]
        old, new = new, old
    return np.sum(old**2)


def make_double_buffers(rng, size):
    return rng.random(4), 0.2 + 0.1 * rng.random(), size


def shooting(controls, start):
    """The cost of a cart's way, by what is done at each step."""
    x, v = start
    cost, h = 0.0, 0.1
    for u in controls:
        v = v + h * (u - 0.1 * v * np.abs(v) - np.sin(x))
        x = x + h * v
        cost = cost + h * (x**2 + 0.1 * u**2)
    return cost + 10.0 * (x**2 + v**2)


def make_shooting(rng, size):
    return rng.standard_normal(size), np.array([1.0, 0.5]) * rng.standard_normal(2)


def monte_carlo(spot, volatility, rate, normals):
    """An option on the mean of a price, on a few paths whose random numbers are drawn already."""
    h = 1.0 / normals.shape[0]
    drift = (rate - 0.5 * volatility**2) * h
    price = spot * np.ones_like(normals[0])
    running = 0.0
    for z in normals:
        price = price * np.exp(drift + volatility * np.sqrt(h) * z)
        running = running + price
    pays = np.maximum(running / normals.shape[0] - 0.9, 0.0)
    return np.exp(-rate) * np.mean(pays)


def make_monte_carlo(rng, size):
    return 1.0 + 0.2 * rng.random(), 0.3 + 0.1 * rng.random(), 0.05, rng.standard_normal((size, 4))


PROGRAMS = (
    Program(euler, make_euler, (0, 1, 2)),
    Program(rk4, make_rk4, (0, 1)),
    Program(rk4_vector, make_rk4_vector, (0, 1)),
    Program(lotka_volterra, make_lotka_volterra, (0, 1)),
    Program(verlet, make_verlet, (0, 1, 2)),
    Program(leapfrog, make_leapfrog, (0, 1, 2)),
    # Steps that are rejected make rounds of another kind, at places that depend on the numbers.
    Program(adaptive, make_adaptive, (0, 1), loops=None),
    Program(forced_oscillator, make_forced_oscillator, (0, 1)),
    Program(n_body, make_n_body, (0, 1, 2)),
    Program(pendulum_chain, make_pendulum_chain, (0, 1)),
    Program(named_state, make_named_state, (0, 1, 2)),
    Program(delay, make_delay, (0, 1)),
    Program(double_buffers, make_double_buffers, (0, 1)),
    Program(shooting, make_shooting, (0, 1)),
    Program(monte_carlo, make_monte_carlo, (0, 1, 2)),
)
