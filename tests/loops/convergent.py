"""Programs whose loops go on until something holds, and arguments for which that takes other
numbers of rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import tapegrad

RNG = np.random.default_rng(7)
MATRIX = RNG.normal(size=(4, 4))
SPD = MATRIX @ MATRIX.T + 4 * np.eye(4)
VECTOR = RNG.normal(size=4)
TARGETS = (2.0, 1e6, 1.5, 1e-5, 40.0)


@dataclass(frozen=True)
class Convergent:
    """A function, and the arguments of its calls. The first makes the tape; `traces` are how often
    it is traced in all."""

    function: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]
    traces: int | None = 1
    loops: int = 1

    @property
    def name(self) -> str:
        return self.function.__name__


ROLLED: list[Convergent] = []


def rolled(*calls, traces=1, loops=1):
    def noted(f):
        ROLLED.append(Convergent(f, calls, traces, loops))
        return f

    return noted


def each(values):
    return [(value,) for value in values]


# ---- while


@rolled(*each(TARGETS))
def square_root(a):
    x = 1.0 * a
    while abs(x * x - a) > 1e-12 * a:
        x = 0.5 * (x + a / x)
    return x


@rolled(*each(TARGETS), (1.0,))
def square_root_of_arrays(a):
    x = np.ones(3) * a
    b = np.array([1.0, 1.5, 2.5]) * a
    while np.max(np.abs(x * x - b)) > 1e-12 * np.max(b):
        x = 0.5 * (x + b / x)
    return np.sum(x)


@rolled(*each(TARGETS))
def in_place(a):
    x = np.ones(3) * a
    b = np.array([1.0, 1.5, 2.5]) * a
    while np.max(np.abs(x * x - b)) > 1e-12 * np.max(b):
        x -= (x * x - b) / (2 * x)
    x[0] = 0.5 * x[1]
    return np.sum(x)


@rolled(*each(TARGETS))
def capped(a):
    x, n = 1.0 * a, 0
    while abs(x * x - a) > 1e-12 * a and n < 60:
        x = 0.5 * (x + a / x)
        n += 1
    return x


LIMIT = 60


@rolled(*each(TARGETS))
def capped_by_a_global(a, limit=LIMIT):
    x = 1.0 * a
    left = LIMIT
    n = 1
    while LIMIT > n:  # noqa: SIM300
        x = 0.5 * (x + a / x)
        n = n + 1
        left -= 2
        if abs(x * x - a) < 1e-12 * a or limit < n:
            break
    return x


@rolled((0.3, VECTOR), (0.9, VECTOR), (0.01, -VECTOR), (0.99, 3 * VECTOR))
def fixed_point(k, b):
    w = k * MATRIX / np.linalg.norm(MATRIX)
    x, old = np.tanh(b), b
    while np.linalg.norm(x - old) > 1e-9:
        old = x
        x = np.tanh(w @ x + b)
    return np.sum(x)


@rolled((SPD, VECTOR), (SPD + 20 * np.diag([1.0, 0, 0, 0]), VECTOR), (2 * SPD, -VECTOR))
def power_iteration(a, v):
    v = v / np.linalg.norm(v)
    value = v @ a @ v
    while True:
        w = a @ v
        v = w / np.linalg.norm(w)
        new = v @ a @ v
        done = abs(new - value) < 1e-11 * abs(new)
        value = new
        if done:
            break
    return value


@rolled((SPD, VECTOR), (SPD + np.diag([9.0, 0, 0, 0]), VECTOR), (SPD * 1.1, 2 * VECTOR))
def descent(a, b):
    x = np.zeros_like(b)
    g = a @ x - b
    while g @ g > 1e-16:
        x = x - 0.05 * g
        g = a @ x - b
    return x @ x


def quartic(x, a):
    return np.sum((x - a) ** 2) + 0.1 * np.sum(x**4)


@rolled((VECTOR,), (0.2 * VECTOR,), (VECTOR[::-1].copy(),))
def descent_by_grad(a):
    x = 0.5 * a
    for _ in range(200):
        g = tapegrad.grad(quartic)(x, a)
        if np.sum(g**2) < 1e-14:
            break
        x = x - 0.2 * g
    return np.sum(x)


@rolled((0.9, 1.0), (0.3, 1.5), (2.5, 1.0), (0.02, 0.8))
def line_search(x, t):
    def f(x):
        return np.cosh(x) + 0.1 * x**4

    g = np.sinh(x) + 0.4 * x**3
    t = 64.0 * t
    phi = lambda t: f(x - t * g)  # noqa: E731
    while phi(t) > f(x) - 0.3 * t * g * g:
        t = 0.5 * t
    return f(x - t * g)


@rolled((3.0, 4.0), (0.5, 3.0), (2.0, 3.0), (0.1, 1.0))
def adaptive_steps(k, end):
    """The last step is shorter; a step that is too large is made again."""
    t, x, h = 0.0 * k, 1.0 + 0.0 * k, 0.1 + 0.0 * k
    while t < end - 1e-12:
        h = np.minimum(h, end - t)
        full = x - h * k * x
        half = x - 0.5 * h * k * x
        half = half - 0.5 * h * k * half
        error = abs(full - half)
        accepted = error < 1e-3
        t = np.where(accepted, t + h, t)
        x = np.where(accepted, half, x)
        h = h * np.clip(0.9 * np.sqrt(1e-3 / (error + 1e-10)), 0.3, 2.0)
    return x


@rolled((60.0,), (2.0,), (3.5,), (7.9,))
def bisection(a):
    low, high = 0.0 * a, a + 1.0
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        left = middle**2 > a
        low, high = np.where(left, low, middle), np.where(left, middle, high)
    return 0.5 * (low + high) - (0.25 * (low + high) ** 2 - a) / (low + high)


class Point(NamedTuple):
    x: Any
    y: Any


@rolled((0.8, 0.2), (0.1, 0.4), (0.95, 0.9))
def named_state(a, b):
    p = Point(a, b)
    q = Point(a + 1, b + 1)
    while abs(p.x - q.x) + abs(p.y - q.y) > 1e-10:
        q = p
        p = Point(0.5 * np.cos(p.y) + 0.1 * a, 0.4 * np.sin(p.x) + b)
    return p.x * p.y


@rolled((0.8, 0.2), (0.1, 0.4), (0.95, 0.9))
def containers_made_anew(a, b):
    state = {"p": [a, b], "change": 1.0 + 0 * a}
    while state["change"] > 1e-10:
        x, y = state["p"]
        new = [0.5 * np.cos(y) + 0.1 * a, 0.4 * np.sin(x) + b]
        state = {"p": new, "change": abs(new[0] - x) + abs(new[1] - y)}
    return state["p"][0] * state["p"][1]


COEFFICIENTS = [1.0, -3.0, 0.5, 0.25]


@rolled((0.2,), (0.9,), (-2.0,), (0.0,))
def inner_loops(a):
    x = 1.0 * a
    change = 1.0 + 0.0 * a
    while abs(change) > 1e-12:
        p = q = 0.0
        for k, c in enumerate(COEFFICIENTS):
            p = p * x + c
            if k < len(COEFFICIENTS) - 1:
                q = q * x + c * (3 - k)
        terms = [c * x for c, _ in zip(COEFFICIENTS, range(2), strict=False)]
        change = (p + a * 0.01 * sum(terms)) / q
        x = x - change
    return x


# ---- for and break


@rolled((0.3, 1.1), (0.9, 0.1), (0.0, 0.1), (0.7, 3.0), (0.99, 0.2))
def kepler(e, m):
    x = m + e * np.sin(m)
    for _ in range(50):
        step = (x - e * np.sin(x) - m) / (1 - e * np.cos(x))
        x = x - step
        if abs(step) < 1e-13:
            break
    return x


def returned_from(f, slope, x):
    for iteration in range(100):  # noqa: B007
        step = f(x) / slope(x)
        x = x - step
        if np.abs(step) < 1e-12:
            return x
    raise RuntimeError(f"no convergence in {iteration} rounds")


@rolled(*each(TARGETS))
def returns(a):
    return returned_from(lambda x: x * x - a, lambda x: 2 * x, 0.5 * a + 0.5)


class Solver:
    def __init__(self, tolerance):
        self.tolerance = tolerance
        self.most = 60

    def residual(self, x, a):
        return x**3 - a

    def solve(self, a):
        x, n = 1.0 + 0.3 * a, 0
        r = self.residual(x, a)
        while np.abs(r) > self.tolerance and n < 80:
            x = x - r / (3 * x**2)
            r = self.residual(x, a)
            n += 1
        return x


SOLVER = Solver(1e-11)


@rolled((2.0,), (60.0,), (0.3,))
def method(a):
    return SOLVER.solve(a)


# ---- loops in loops


def implicit_step(y, h, k):
    z = y
    for _ in range(30):
        r = z - y + h * k * z**3
        if abs(r) < 1e-13:
            break
        z = z - r / (1 + 3 * h * k * z**2)
    return z


@rolled((0.4, 2.0), (3.0, 1.0), (0.5, 1.0), (0.4, 6.0), loops=2)
def few_rounds_in_a_step(k, y):
    """In most of the steps there is but one further round of Newton's method."""
    for _ in range(14):
        y = implicit_step(y, 0.1, k)
    return y


@rolled((0.5, 1.0), (3.0, 1.0), (0.001, 0.1), (0.4, 6.0), loops=2)
def implicit_euler(k, y):
    for _ in range(20):
        y = implicit_step(y, 0.1, k)
    return y


@rolled((0.4, 6.0), (0.5, 1.0), (0.3, 1.01), (0.8, 3.0), loops=2)
def loop_in_a_loop(k, y):
    """Newton's method in each step, until nothing moves any more."""
    change = 1.0 + 0 * y
    while change > 1e-3:
        z = y + 0.3
        r = 0.1 * k * z**3 + 0.3 * (z - 1)
        while np.abs(r) > 1e-13:
            z = z - r / (1 + 0.3 * k * z**2 + 0.3)
            r = z - y + 0.1 * k * z**3 + 0.3 * (z - 1)
        change = abs(z - y)
        y = z
    return y


@rolled((np.int64(27), 0.9), (np.int64(97), 0.9), (np.int64(8), 1.1), (np.int64(2), 0.9))
def collatz(n, x):
    while n != 1:
        n = np.where(n % 2 == 0, n // 2, 3 * n + 1)
        x = 0.99 * x + 0.001 * n
    return x
