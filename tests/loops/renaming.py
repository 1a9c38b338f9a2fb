"""Loops that go on until something holds, whose variables may be one object or several, and ways
that programs take through them."""

from __future__ import annotations

import numpy as np
from tests.loops.counting import by_targets, improved, is_far

import tapegrad.numpy as tnp


@by_targets
def written_to_afterwards(a):
    """Without a round `x` and `start` are one array."""
    start = np.ones(2) * a
    x = start
    while np.max(np.abs(x * x - a)) > 1e-12 * a:
        x = improved(x, a)
    x[0] = 5.0
    return np.sum(x) + np.sum(start)


def solved(x, a):
    while np.max(np.abs(x * x - a)) > 1e-12 * a:
        x = improved(x, a)
    x[0] = 5.0
    return x


@by_targets
def written_to_elsewhere(a):
    start = np.ones(2) * a
    x = solved(start, a)
    return np.sum(x) + np.sum(start)


@by_targets
def written_through_a_view(a):
    x = np.ones(3) * a
    part = x[1:]
    while np.max(np.abs(x * x - a)) > 1e-12 * a:
        part -= (part * part - a) / (2 * part)
        x[:1] = improved(x[:1], a)
    return np.sum(x) + 2 * np.sum(part)


@by_targets
def views_of_old_arrays(a):
    x = np.ones(3) * a
    view = x[1:]
    while np.max(np.abs(x * x - a)) > 1e-12 * a:
        x = improved(x, a)
    x[2] = 7.0
    return np.sum(view) + np.sum(x)


@by_targets
def compared_by_identity(a):
    x = start = 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
    return x + 1 if x is start else x


@by_targets
def found_in_a_list(a):
    x = start = 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
    return x + 1 if x in [start] else 2 * x


@by_targets
def swapped(a):
    x, p, q = 1.0 * a, 2.0 * a, 3.0 * a
    while is_far(x, a):
        x = improved(x, a)
        p, q = q, p
    return x + p


@by_targets
def one_after_the_other(a):
    x = 1.0 * a
    p = q = r = 0.5 * a
    while is_far(x, a):
        p, q, r = q, r, x
        x = improved(x, a)
    return x + 0.5 * p + 0.25 * q + 0.125 * r


@by_targets
def texts(a):
    x, told = 1.0 * a, ""
    while is_far(x, a):
        x = improved(x, a)
        told += "."
    return x + len(told)


@by_targets
def plain_steps(a):
    x, t = 1.0 * a, 0.0
    while is_far(x, a) and t < 0.85:
        x = improved(x, a)
        t += 0.1
    return x


@by_targets
def plain_factor(a):
    t = 1.0
    while t * a > 1.0:
        t *= 0.5
    return t * a * a


@by_targets
def plain_array(a):
    x, counts = 1.0 * a, np.zeros(2)
    while is_far(x, a):
        x = improved(x, a)
        counts[0] += 1
    return x + counts[0]


@by_targets
def plain_array_by_a_function(a):
    x, counts = 1.0 * a, np.zeros(2)
    while is_far(x, a):
        x = improved(x, a)
        np.add(counts, 1, out=counts)
    return x + counts[0]


@by_targets
def traced_array_is_filled(a):
    x, found, n = 1.0 * a, tnp.zeros(80), 0
    while is_far(x, a):
        x = improved(x, a)
        found[n] = x
        n += 1
    return x + np.sum(found)


@by_targets
def goes_both_ways(a):
    x = 1.0 * a
    while is_far(x, a):
        if x > a + 1:
            x = 0.5 * x
        x = improved(x, a)
    return x


@by_targets
def last_round_differs(a):
    x = 1.0 * a
    for _ in range(60):
        new = improved(x, a)
        done = abs(new - x) < 1e-12 * a
        if not done:
            x = new
        if done:
            break
    return x


@by_targets
def rounds_in_rounds(a):
    total = 0.0
    for k in range(1, 5):
        x = k * a
        while is_far(x, a):
            x = improved(x, a)
            total = total + x
    return total


@by_targets
def continues(a):
    x, n = 1.0 * a, 0
    while is_far(x, a):
        n += 1
        x = improved(x, a)
        if n >= 4:
            continue
        x = 1.2 * x
    return x


@by_targets
def generator(a):
    def values(x):
        while is_far(x, a):
            x = improved(x, a)
            yield x

    return sum(values(1.0 * a), 0.1 * a)


@by_targets
def two_at_the_end(a):
    """Which of two variables is read later makes no difference but without a round."""
    x, y = 1.0 * a, 3.0 * a
    while is_far(x, a):
        x = y = improved(x, a)
    return x + 2 * y


@by_targets
def two_that_trade_places(a):
    x, p, q = 1.0 * a, [2.0 * a], [3.0 * a]
    first = p
    while is_far(x, a):
        x = improved(x, a)
        p, q = q, p
    p.append(1.0)
    return x + len(first)


@by_targets
def python_number_first(a):
    x = 1.0
    while abs(x * x - a) > 1e-12 * a:
        x = improved(x, a)
    return x


@by_targets
def nested_lists(a):
    state = [[1.0 * a, 0]]
    while is_far(state[0][0], a):
        state = [[improved(state[0][0], a), state[0][1] + 1]]
    return state[0][0] + state[0][1]


@by_targets
def reset(a):
    """A flag that only the first round sees."""
    x, first = 1.0 * a, True
    while is_far(x, a):
        x = improved(x, a) * (3.0 if first else 1.0)
        first = False
    return x


@by_targets
def either_condition(a):
    x, y = 1.0 * a, 2.0 * a
    while is_far(x, a) or is_far(y, 3 * a):
        x, y = improved(x, a), improved(y, 3 * a)
    return x + y


@by_targets
def both_conditions(a):
    x, y = 1.0 * a, 2.0 * a
    while is_far(x, a) and is_far(y, 3 * a):
        x, y = improved(x, a), improved(y, 3 * a)
    return x + y


@by_targets
def flag(a):
    x = 1.0 * a
    far = is_far(x, a)
    while far:
        x = improved(x, a)
        far = is_far(x, a)
    return np.where(far, 0.0, x)


@by_targets
def tests_in_a_function(a):
    def is_there(x):
        if is_far(x, a):  # noqa: SIM103
            return False
        return True

    x = 1.0 * a
    while not is_there(x):
        x = improved(x, a)
    return x


@by_targets
def starts_anew(a):
    """The same loop, where in one of its runs there is another number to add."""
    total = 0.0
    for k in (1.0, 1.5, 2.0):
        x = k * a
        while is_far(x, a):
            x = improved(x, a) * (1.0 if k < 2 else 1 + 1e-14)
        total = total + x
    return total


def newton(f, x, a):
    while True:
        y = f(x)
        step = (y * y - a) / (2 * y)
        x = y - step
        if abs(step) < 1e-9 * a:
            return x


@by_targets
def other_functions(a):
    """One way through the loop, with what is in other cells."""
    total = 0.0
    for k in range(3):
        total = total + newton(lambda x, k=k: x * (1 + 1e-12 * k), a * (1 + k), a)
    return total


@by_targets
def one_or_the_other(a):
    total = 0.0
    for k in range(6):
        start = a * (1.0 + 0.01 * (k > 3))
        x = start
        while abs(x * x - a) > (1e-9 if k < 5 else 0.7) * a:
            pair = x, start
            x = improved(pair[0 if k < 4 else 1], a) if k < 4 else improved(x, a)
        total = total + x
    return total
