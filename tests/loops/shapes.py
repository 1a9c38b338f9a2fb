"""The ways in which Python writes a loop, and rounds that aren't all alike."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from tests.loops.program import Program


def newton_until(x, a, b):
    """Kepler's equation for each of some angles, until it is solved."""
    total = 0.0
    for angle in x:
        e = angle
        step = 1.0
        while np.abs(step) > 1e-10:
            step = (e - a * np.sin(e) - angle) / (1.0 - a * np.cos(e))
            e = e - step
        total = total + np.cos(b * e)
    return total


def make_newton_until(rng, size):
    return rng.uniform(0.2, 3.0, size), 0.1 + 0.4 * rng.random(), 1.5


def newton_fixed(a, rounds):
    """A cube root, damped so that it takes a while."""
    x = 1.0 + 0.1 * a
    for _ in range(rounds):
        x = x - 0.3 * (x**3 - a) / (3 * x**2)
    return x


def make_newton_fixed(rng, size):
    return 2.0 + rng.random(), size


def fixed_point(x, a, tolerance):
    """Until it moves no more; how many rounds that takes depends on the numbers."""
    moved = 1.0
    while moved > tolerance:
        new = np.cos(a * x)
        moved = np.abs(new - x)
        x = new
    return x**2


def make_fixed_point(rng, size):
    return 0.2 + 0.1 * rng.random(), 0.85 + 0.05 * rng.random(), 0.6**size


def stopped_early(x, rates):
    """A loop that is left in the middle."""
    for rate in rates:
        x = x * (1.0 + rate)
        if x > 4.0:
            break
    return x * x


def make_stopped_early(rng, size):
    return 1.0 + 0.1 * rng.random(), 0.05 + 0.1 * rng.random(size)


def every_tenth(x, drift, steps):
    """Something else happens in every tenth round."""
    total = 0.0
    for t in range(steps):
        x = x + 0.1 * (drift - x)
        if t % 10 == 0:
            total = total + np.sum(x**2)
    return total + np.sum(x)


def make_every_tenth(rng, size):
    return rng.standard_normal(3), rng.standard_normal(3), size


def every_other(x, a, b, steps):
    """Even and odd rounds differ."""
    for t in range(steps):
        if t % 2:
            x = np.tanh(a * x)
        else:
            x = x + b * np.roll(x, 1)
    return np.sum(x**2)


def make_every_other(rng, size):
    return rng.standard_normal(3), 0.8 + 0.4 * rng.random(), 0.5 * rng.random(), size


def first_round(xs, decay):
    """The first round has nothing to remember."""
    total = 0.0
    for t in range(len(xs)):
        if t == 0:
            m = xs[0]
        else:
            m = decay * m + (1 - decay) * xs[t]
        total = total + m**2
    return total


def make_first_round(rng, size):
    return rng.standard_normal(size + 1), 0.5 + 0.4 * rng.random()


def last_round(xs, weight):
    """The last round counts for more."""
    state = total = 0.0
    for t, x in enumerate(xs):
        state = np.tanh(0.5 * state + x)
        total = total + (weight * state**2 if t == len(xs) - 1 else state**2)
    return total


def make_last_round(rng, size):
    return rng.standard_normal(size + 1), 2.0 + rng.random()


def none_yet(xs, decay):
    """The state is None until there is one."""
    state = None
    for x in xs:
        state = x if state is None else decay * state + np.sin(x)
    return state**2


def snapshot(x, rate, steps):
    """What was in the middle is needed at the end."""
    for t in range(steps):
        if t == steps // 2:
            middle = x
        x = x + rate * np.sin(x)
    return np.sum(x * middle)


def make_snapshot(rng, size):
    return rng.standard_normal(3), 0.1 + 0.1 * rng.random(), size


def counting_down(a, x):
    t = len(a) - 1
    while t >= 0:
        x = np.sin(x) + a[t]
        t -= 1
    return x**2


def make_counting_down(rng, size):
    return rng.standard_normal(size), rng.standard_normal()


def backwards(rewards, discount):
    """What is to come, discounted, from the last to the first."""
    worth = total = 0.0
    for r in rewards[::-1]:
        worth = r + discount * worth
        total = total + worth**2
    return total


def make_backwards(rng, size):
    return rng.standard_normal(size), 0.8 + 0.1 * rng.random()


def enumerated(xs, rate):
    """The number of the round is a factor."""
    total = 0.0
    for k, x in enumerate(xs, start=1):
        total = total + np.sin(x + total) / k + rate * k
    return total**2


def make_enumerated(rng, size):
    return rng.standard_normal(size), 0.1 * rng.random()


def zipped(xs, ys, ws):
    total = 0.0
    for x, y, w in zip(xs, ys, ws, strict=True):
        total = total * 0.9 + w * (y - np.tanh(x)) ** 2
    return total


def make_zipped(rng, size):
    return rng.standard_normal(size), rng.standard_normal(size), rng.random(size)


def appended(x, a, steps):
    """A list that is stacked when it is full."""
    path = []
    for _ in range(steps):
        x = a @ np.sin(x)
        path.append(x)
    path = np.stack(path)
    return np.sum((path[1:] - path[:-1]) ** 2)


def make_appended(rng, size):
    return rng.standard_normal(3), rng.standard_normal((3, 3)), size


def written_rows(noise, a):
    """Rows of an array that is there from the start."""
    x = np.zeros_like(noise)
    x[0] = noise[0]
    for t in range(1, len(noise)):
        x[t] = a @ x[t - 1] + noise[t]
    return np.sum(x**2)


def make_written_rows(rng, size):
    return rng.standard_normal((size + 1, 2)), 0.5 * rng.standard_normal((2, 2))


def written_inside(u, k):
    """A row follows from the row before, inside of its border."""
    x = u.copy()
    for t in range(1, x.shape[0]):
        x[t, 1:-1] += x[t - 1, 1:-1] + k * (x[t - 1, 2:] - 2 * x[t - 1, 1:-1] + x[t - 1, :-2])
    return np.sum(x[-1] ** 2)


def make_written_inside(rng, size):
    return rng.standard_normal((size + 1, 4)), 0.2 + 0.1 * rng.random()


def written_where_it_is_read(x, k):
    """A cumulative sum in place, with a stride."""
    x = x.copy()
    for t in range(2, len(x), 2):
        x[t] += k * x[t - 2] + np.sin(x[t - 1])
    return np.sum(x**2)


def make_written_where_it_is_read(rng, size):
    return rng.standard_normal(2 * size + 1), 0.5 + 0.3 * rng.random()


def dict_of_sums(xs, a):
    """What is summed up stands in a dict."""
    sums = {"x": 0.0, "x2": 0.0, "xy": 0.0}
    y = 0.0
    for x in xs:
        y = a * y + x
        sums["x"] += x * y
        sums["x2"] += x**2
        sums["xy"] = sums["xy"] + np.sin(y)
    return sums["x2"] * sums["xy"] - sums["x"] ** 2


def make_dict_of_sums(rng, size):
    return rng.standard_normal(size), 0.5 + 0.3 * rng.random()


def triangle(x, a):
    """All pairs; the inner loop has as many rounds as have been before."""
    total = 0.0
    for i in range(len(x)):
        for j in range(i):
            total = total + a * np.cos(x[i] - x[j])
    return total


def make_triangle(rng, size):
    return rng.standard_normal(3 + size // 2), 0.5 + rng.random()


def nested(A, x, steps):
    """A nest of two loops over numbers."""
    for _ in range(steps):
        y = []
        for i in range(5):
            y.append(np.sin(A[i, 0] * x[i] + A[i, 1] * x[i - 1]))
        x = y
    return sum(v**2 for v in x)


def make_nested(rng, size):
    return 0.6 + 0.5 * rng.random((5, 2)), tuple(rng.standard_normal(5)), size


def one_after_the_other(x, a, b, steps):
    """Two loops, of which the second starts where the first ends."""
    for _ in range(steps):
        x = np.sin(a * x)
    for _ in range(steps + 2):
        x = x + b * np.cos(x)
    return np.sum(x)


def make_one_after_the_other(rng, size):
    return rng.standard_normal(3), 1.0 + rng.random(), 0.2 + 0.2 * rng.random(), size


def both_ways(noise, friction):
    """A branch that goes here in one round and there in the next, by the sign of a speed."""
    v = x = 0.0
    for z in noise:
        v = v + 0.5 * z
        if v > 0:
            v = v - friction * v**2
        else:
            v = v + 0.5 * friction * v**2
        x = x + 0.1 * v
    return x + v**2


def make_both_ways(rng, size):
    return rng.standard_normal(size), 0.1 + 0.1 * rng.random()


def one_way(x, rate, steps):
    """A branch that goes the same way in every round, and is checked in each."""
    for _ in range(steps):
        x = x - rate * x**2 if x > -10.0 else x + rate
    return x**2


def make_one_way(rng, size):
    return 0.5 + rng.random(), 0.1 + 0.1 * rng.random(), size


def turning_point(x, rate, steps):
    """A branch that goes one way up to a round, and the other from then on."""
    for _ in range(steps):
        if x < 2.0:
            x = x + rate * (1.0 + x)
        else:
            x = x - 0.1 * rate * np.sin(x)
    return x


def bisection(a, low, high):
    """Halves an interval; which half depends on the numbers."""
    for _ in range(8):
        middle = 0.5 * (low + high)
        if middle**2 + a * middle > 1.0:
            high = middle
        else:
            low = middle
    # One step of Newton's method gives the root a slope.
    return low - (low**2 + a * low - 1.0) / (2 * low + a)


def make_bisection(rng, size):
    return 0.1 * size + rng.random(), 0.0, 1.5


def reduced(xs, a):
    """Loops that functools and itertools run."""
    last = functools.reduce(lambda state, x: np.tanh(a * state + x), xs)
    running = itertools.accumulate(xs, lambda state, x: 0.5 * state + x * a)
    return last + sum(y**2 for y in running)


def make_reduced(rng, size):
    return rng.standard_normal(size + 1), 0.5 + rng.random()


def recursive(x, a, depth):
    """A function that calls itself instead of a loop."""

    def step(x, left):
        return x if left == 0 else step(np.sin(x) * a, left - 1)

    return step(x, depth) ** 2


def make_recursive(rng, size):
    return 0.5 + rng.random(), 1.2 + 0.2 * rng.random(), size


def rotated(a, b, c, steps):
    """Three numbers that move up in each round."""
    for _ in range(steps):
        a, b, c = b, c, 0.3 * np.sin(a + b) + 0.5 * c
    return a * b + c


def make_rotated(rng, size):
    return *rng.standard_normal(3), size


def unchanged_inside(x, W, b, steps):
    """Much of what the loop computes is the same in each round."""
    for _ in range(steps):
        scale = np.exp(b) / np.sum(np.exp(b))
        x = x + 0.1 * scale * (np.tanh(W.T @ W) @ x - x)
    return np.sum(x**2)


def make_unchanged_inside(rng, size):
    return rng.standard_normal(3), rng.standard_normal((3, 3)), rng.standard_normal(3), size


def two_strangers(x, y, steps):
    """Two things in one loop that have nothing to do with each other."""
    for _ in range(steps):
        x = np.sin(x) + 0.1 * x
        y = 0.9 * y + np.roll(y, 1) ** 2 * 0.1
    return x**2 + np.sum(y)


def make_two_strangers(rng, size):
    return rng.standard_normal(), rng.standard_normal(3), size


def a_window(x, kernel):
    """A convolution, place by place, whose windows overlap."""
    out = [np.sum(x[t : t + 3] * kernel) for t in range(len(x) - 2)]
    return np.sum(np.tanh(np.stack(out)))


def make_a_window(rng, size):
    return rng.standard_normal(size + 2), rng.standard_normal(3)


def generated(xs, decay):
    """Rounds that a generator hands out."""

    def states():
        state = 0.0
        for x in xs:
            state = decay * state + x
            yield state

    return sum(np.cos(s) for s in states())


make_decaying = make_first_round

PROGRAMS = (
    # Angles need three or four rounds each: the loop over them is one of unlike rounds.
    Program(newton_until, make_newton_until, (0, 1, 2), loops=None),
    Program(newton_fixed, make_newton_fixed, (0,)),
    Program(fixed_point, make_fixed_point, (0, 1)),
    Program(stopped_early, make_stopped_early, (0, 1)),
    Program(every_tenth, make_every_tenth, (0, 1), loops=None),
    Program(every_other, make_every_other, (0, 1, 2)),
    Program(first_round, make_first_round, (0, 1)),
    Program(last_round, make_last_round, (0, 1)),
    Program(none_yet, make_decaying, (0, 1)),
    Program(snapshot, make_snapshot, (0, 1), loops=2),
    Program(counting_down, make_counting_down, (0, 1)),
    Program(backwards, make_backwards, (0, 1)),
    Program(enumerated, make_enumerated, (0, 1)),
    Program(zipped, make_zipped, (0, 1, 2)),
    Program(appended, make_appended, (0, 1), passes=3),
    Program(written_rows, make_written_rows, (0, 1), passes=3),
    Program(written_inside, make_written_inside, (0, 1), passes=3),
    Program(written_where_it_is_read, make_written_where_it_is_read, (0, 1), passes=3),
    Program(dict_of_sums, make_dict_of_sums, (0, 1)),
    Program(triangle, make_triangle, (0, 1), loops=2),
    Program(nested, make_nested, (0, 1), loops=2),
    Program(one_after_the_other, make_one_after_the_other, (0, 1, 2), loops=2),
    Program(both_ways, make_both_ways, (0, 1), loops=None),
    Program(one_way, make_one_way, (0, 1)),
    Program(turning_point, make_one_way, (0, 1), loops=None),
    Program(bisection, make_bisection, (0,), loops=None),
    Program(reduced, make_reduced, (0, 1), loops=2),
    Program(recursive, make_recursive, (0, 1)),
    Program(rotated, make_rotated, (0, 1, 2)),
    Program(unchanged_inside, make_unchanged_inside, (0, 1, 2)),
    Program(two_strangers, make_two_strangers, (0, 1)),
    Program(a_window, make_a_window, (0, 1), loops=None),
    Program(generated, make_decaying, (0, 1)),
)
