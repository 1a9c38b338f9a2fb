"""Loops that go on until something holds, and change what is there beside their own variables."""

from __future__ import annotations

import collections
import functools
import itertools

import numpy as np
from tests.loops.counting import by_targets, improved, is_far


class Counter:
    def __init__(self):
        self.n = 0
        self.x = 0.0


@by_targets
def attribute(a):
    c, x = Counter(), 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
        c.n += 1
    return x + c.n


@by_targets
def attribute_is_carried(a):
    c = Counter()
    c.x = 1.0 * a
    while is_far(c.x, a):
        c.x = improved(c.x, a)
    return c.x


@by_targets
def attribute_by_name(a):
    c, x = Counter(), 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
        setattr(c, "n", c.n + 1)  # noqa: B010
    return x + c.n


@by_targets
def filled(a):
    x, seen = 1.0 * a, {}
    while is_far(x, a):
        x = improved(x, a)
        seen[len(seen)] = x
    return x + sum(seen.values()) * 0.01


@by_targets
def overwritten(a):
    state = [1.0 * a, 0]
    while is_far(state[0], a):
        state[0] = improved(state[0], a)
        state[1] += 1
    return state[0] + state[1]


@by_targets
def drawn(a):
    rng, x = np.random.default_rng(3), 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
        rng.random()
    return x + rng.random()


@by_targets
def added_by_a_closure(a):
    n = 0

    def more(x):
        nonlocal n
        n += 1
        return improved(x, a)

    x = 1.0 * a
    while is_far(x, a):
        x = more(x)
    return x + n


@by_targets
def kept_by_a_default(a):
    def more(x, seen=[]):  # noqa: B006
        seen.append(1)
        return improved(x, a), len(seen)

    x, n = 1.0 * a, 0
    while is_far(x, a):
        x, n = more(x)
    return x + n


@by_targets
def numbered(a):
    numbers = iter(range(1000))
    x = 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
        next(numbers)
    return x + next(numbers)


@by_targets
def shared_iterator(a):
    numbers = iter(range(100))
    x = 1.0 * a
    for _ in numbers:
        x = improved(x, a)
        if not is_far(x, a):
            break
    return x + next(numbers)


@by_targets
def zipped_with_a_shared_iterator(a):
    numbers = iter(range(100))
    x = 1.0 * a
    for _, _ in zip(range(100), numbers, strict=False):
        x = improved(x, a)
        if not is_far(x, a):
            break
    return x + next(numbers)


def rounds_of():
    n = 0
    while True:
        yield n
        n += 1


@by_targets
def numbered_by_a_generator(a):
    numbers = rounds_of()
    x = 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
        next(numbers)
    return x + next(numbers)


@by_targets
def other_numbers(a):
    x = 1.0 * a
    for factor in [1.0, 1.1, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.05, *[1.0] * 40]:
        x = factor * improved(x, a)
        if not is_far(x, a):
            break
    return x


@by_targets
def caught(a):
    x, n = 1.0 * a, 0
    while is_far(x, a):
        try:
            x = improved(x, a)
            [][n]
        except IndexError:
            n += 1
    return x + n


@by_targets
def walrus(a):
    x, n = 1.0 * a, 0
    while is_far(x, a) and (n := n + 1):
        x = improved(x, a)
    return x + n


@by_targets
def deleted(a):
    x = 1.0 * a
    keep = {"spare": 1}
    while is_far(x, a):
        x = improved(x, a)
        keep.pop("spare", None)
    return x + len(keep)


@by_targets
def variable_deleted(a):
    x, spare = 1.0 * a, 1
    while is_far(x, a):
        x = improved(x, a)
        try:  # noqa: SIM105
            del spare
        except NameError:
            pass
    try:
        return x + spare
    except NameError:
        return x


@by_targets
def sees_its_variables(a):
    x, n = 1.0 * a, 0
    while is_far(x, a):
        x = improved(x, a)
        n += 1
    return x + locals()["n"]


@by_targets
def remembered(a):
    @functools.cache
    def number(k):
        return k + 1

    x, n = 1.0 * a, 0
    while is_far(x, a):
        x = improved(x, a)
        n = number(n)
    return x + n


@by_targets
def counts_calls(a):
    calls = itertools.count()
    x = 1.0 * a
    for n in calls:  # noqa: B007
        x = improved(x, a)
        if not is_far(x, a):
            break
    return x + 0 * n + next(calls)


@by_targets
def drained(a):
    numbers = [1.0, 2.0, 3.0] * 40
    x = 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
        numbers.pop()
    return x + len(numbers)


@by_targets
def sorted_in_place(a):
    numbers = [3, 1, 2, *range(100, 0, -1)]
    x = 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
        numbers[:-1] = numbers[1:]
    return x + numbers[0]


@by_targets
def turned(a):
    numbers = collections.deque(range(100))
    x = 1.0 * a
    while is_far(x, a):
        x = improved(x, a)
        numbers.rotate(1)
    return x + numbers[0]


@by_targets
def default_is_made(a):
    counts = collections.defaultdict(int)
    x = 1.0 * a
    n = 0
    while is_far(x, a):
        x = improved(x, a) + 0 * counts[n]
        n += 1
    return x + len(counts)


@by_targets
def summed_by_a_generator(a):
    numbers = iter(range(1000))
    x = 1.0 * a
    while is_far(x, a):
        x = improved(x, a) + 0 * sum(n for n, _ in zip(numbers, range(2), strict=False))
    return x + next(numbers)


@by_targets
def consumed_by_a_function(a):
    numbers = iter(range(1000))
    x = 1.0 * a
    while is_far(x, a):
        x = improved(x, a) + 0 * (3 in numbers)
    return x + next(numbers, 7)
