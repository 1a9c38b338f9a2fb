"""Loops in which a branch goes both ways, as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

LENGTH = 70


@dataclass(frozen=True)
class Branching:
    """A function of an array and a number, and how many loops there are on its tape."""

    function: Callable[..., Any]
    loops: int
    sides: bool  # whether there is something to compute in them

    @property
    def name(self) -> str:
        return self.function.__name__


ONE: list[Branching] = []


def one_loop(loops=1, sides=True):
    """A loop that holds conditionals."""

    def noted(f):
        ONE.append(Branching(f, loops, sides))
        return f

    return noted


# ---- what a program does in sides


@one_loop()
def two_sides(x, rate):
    h = total = 0.0
    for t in range(len(x)):
        if x[t] > h:
            h = rate * h + x[t]
        else:
            h = 0.5 * h
        total += h
    return total


@one_loop()
def errors_of_a_side(x, rate):
    total = 0.0
    for t in range(len(x)):
        u = math.fabs(x[t]) - 0.5
        if u > 0:
            total += math.log(u) + rate * math.sqrt(u) + u**1.5
        else:
            total -= u
    return total


@one_loop()
def no_else(x, rate):
    h = rate * x[0]
    for t in range(len(x)):
        h = h + x[t]
        if h < 0:
            h = -0.5 * h
    return h


@one_loop()
def several_cases(x, rate):
    h = rate
    for t in range(len(x)):
        if x[t] > 1:
            h = 0.9 * h + x[t]
        elif x[t] > 0:
            h = 0.5 * h
        elif x[t] > -1:
            h = h * h * 0.1
        else:
            h = np.sin(h)
    return h


@one_loop()
def goes_on(x, rate):
    total = rate * x[0]
    for xt in x:
        if xt < 0:
            continue
        total = total * 0.9 + xt * xt
    return total


@one_loop()
def several_tests(x, rate):
    total = rate * x[0]
    for t in range(1, len(x)):
        if (x[t] > 0 and x[t - 1] > 0.5) or x[t] < -1:
            total = total * 0.9 + x[t] * x[t]
        else:
            total = total * 0.5
    return total


@one_loop()
def expression(x, rate):
    total = rate
    for t in range(len(x)):
        total = total * 0.9 + (x[t] * x[t] if x[t] > 0 else np.cos(x[t]))
    return total


@one_loop(sides=False)
def exchanged(x, rate):
    """Nothing is computed in a side, so one of two values is chosen."""
    low, high, total = x[0], rate * x[1], 0.0
    for t in range(len(x)):
        low = 0.9 * low + x[t]
        if low > high:
            low, high = high, low
        total = total + high - 0.5 * low
    return total


@one_loop()
def several_results(x, rate):
    position, speed, total = rate, 0.0, 0.0
    for t in range(len(x)):
        position, speed = position + 0.1 * speed, speed + 0.1 * x[t]
        if position < 0:  # it bounces
            position, speed = -position, -0.8 * speed
        total += position * position
    return total + speed


@one_loop()
def other_numbers(x, rate):
    weights = [0.5 + (k * k % 7) / 10 for k in range(len(x))]
    s = rate * x[0]
    for t in range(len(x)):
        if x[t] > s:
            s = 0.9 * s + weights[t] * x[t]
        else:
            s = s * weights[-1 - t]
    return s


@one_loop(sides=False)
def largest(x, rate):
    s = rate * x[0]
    for t in range(len(x)):
        s = max(0.9 * s, x[t]) + min(x[t], 0.1 * s)
    return s


@one_loop(sides=False)
def clipped(x, rate):
    """A sum that is Python's 0.0 at times, and NumPy's float64 at others."""
    s = total = 0.0
    for t in range(len(x)):
        s = max(0.0, s + x[t] - 0.1)
        total += min(s, rate)
    return total


@one_loop(sides=False)
def reset(x, rate):
    s = total = 0.0
    for t in range(len(x)):
        s = s + rate * x[t]
        if s < 0:
            s = 0
        total = total + 1.0 / (1.0 + s)
    return total


@one_loop()
def listed(x, rate):
    found, s = [], rate * x[0]
    for t in range(len(x)):
        s = s * 0.5 + x[t] if x[t] > s else s * 0.9
        found.append(s)
    return np.sum(np.stack(found) ** 2)


# ---- functions


def _leaky(z):
    if z > 0:
        return z
    return 0.1 * z


@one_loop()
def returned(x, rate):
    s = rate * x[0]
    for t in range(len(x)):
        s = 0.9 * _leaky(s - x[t]) + x[t]
    return s


def _clip(z, bound):
    if z > bound:
        return bound + 0.1 * z
    elif z < -bound:
        return z * 0.2
    scaled = z * 0.5 if z > 0 else z * z
    return scaled + 0.1 * z


@one_loop()
def returned_thrice(x, rate):
    s = rate * x[0]
    for t in range(len(x)):
        s = 0.9 * _clip(s - x[t], rate) + x[t]
    return s


class _Spring:
    def __init__(self, stiffness):
        self.stiffness = stiffness

    def force(self, x):
        f = -self.stiffness * x
        if x > 0.3:
            f = f - 2.0 * (x - 0.3) ** 2
        return f


@one_loop()
def method(x, rate):
    spring, position, speed = _Spring(rate), x[0], 0.0
    for t in range(len(x)):
        speed = speed + 0.05 * (spring.force(position) + x[t])
        position = position + 0.05 * speed
    return position


# ---- arrays


@one_loop()
def vectors(x, rate):
    v, total = np.ones(3) * x[0], rate
    for t in range(len(x)):
        v = v * 0.9 + x[t] * np.array([1.0, 2.0, 0.5])
        if (v * v).sum() > 4:
            v = v / np.sqrt((v * v).sum())
        total = total + v[0]
    return total


@one_loop()
def written(x, rate):
    y = np.zeros_like(x)
    for t in range(len(x)):
        if x[t] > 0:
            y[t] = x[t] * x[t]
        else:
            y[t] = np.sin(rate * x[t])
    return np.sum(y * y)


@one_loop()
def written_at_times(x, rate):
    y = rate * x
    for t in range(len(x)):
        if x[t] > 0:
            y[t] += x[t] * x[t]
    return np.sum(y * y)


@one_loop()
def written_and_read(x, rate):
    y, s = np.zeros_like(x), rate
    for t in range(1, len(x)):
        if x[t] > 0:
            y[t] = x[t] * x[t]
            s = s + y[t]
            y[t] += y[t - 1] * 0.5
        else:
            y[t] = 0.9 * y[t - 1]
        s = s + y[t]
    return s


@one_loop()
def written_in_place(x, rate):
    v, s = x[:3].copy(), 0.0
    for t in range(len(x)):
        if x[t] > 0:
            v *= 0.9
        else:
            v += rate * x[t]
        s = s + v[1]
    return s


# ---- in other loops


@one_loop(2)
def nested(x, rate):
    s = rate * x[0]
    for i in range(len(x) // 10):
        for k in range(10):
            if x[10 * i + k] > s:
                s = 0.9 * s + x[10 * i + k]
            else:
                s = 0.5 * s
        s = s + x[i]
    return s


@one_loop()
def until(x, rate):
    z, total = x[0], rate
    while abs(z) < 50.0:
        if z > 0:
            z = -1.5 * z - x[1] * x[1] - 0.1
        else:
            z = 0.7 * abs(x[2]) + 0.5 - 1.6 * z
        total = total + z
    return total


@one_loop(2)
def loop_in_a_side(x, rate):
    s = rate * x[0]
    for t in range(len(x)):
        if x[t] > 0:
            for k in range(70):
                s = 0.99 * s + 0.01 * k * x[t]
        else:
            s = s * 0.5
    return s


# ---- variables that inner functions read, too


@one_loop(2)
def read_in_a_side(x, rate):
    scaled = [rate * xt for xt in x]
    total = 0.0
    for v in scaled:
        if v > 0.1:
            total += np.sin(v * rate)
    return total


@one_loop()
def set_in_a_side(x, rate):
    best = x[0]
    for xt in x:
        if xt > best:
            best = xt + 0.1 * np.sin(rate * xt)
        best = 0.9 * best
    return rate * (lambda a: a * best)(2.0)


@one_loop()
def set_by_an_inner_function(x, rate):
    total = 0.0

    def add(v):
        nonlocal total
        total = total + np.sin(v * rate)

    for xt in x:
        before = total
        if xt > 0.1:
            add(xt)
            total = 0.5 * total + 0.5 * before
        else:
            total = total * 0.9
    return total


@one_loop()
def argument_set_by_an_inner_function(x, rate):
    def scaled(v, by):
        def grow():
            nonlocal by
            by = by * 1.1

        if v > 0.1:
            grow()
            v = np.sin(by * v)
        return by * v

    total = 0.0
    for xt in x:
        total = total + scaled(xt, rate)
    return total


@one_loop()
def array_of_an_inner_function(x, rate):
    a = np.zeros(3)

    def first():
        return a[0]

    total = 0.0
    for xt in x:
        if xt > 0.1:
            a[0] = xt * rate
            total = total + np.sin(first())
        else:
            a[0] = 0.5 * first()
    return total + a[0]
