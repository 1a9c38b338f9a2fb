"""Loops in which a branch goes both ways and does more than leave numbers, or what depends on more
than the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

KEPT: list[Any] = []


def kept(f):
    KEPT.append(f)
    return f


@kept
def listed_at_times(x):
    found = []
    for t in range(len(x)):
        if x[t] > 0:
            found.append(x[t])
    return np.sum(np.stack(found) ** 2) if found else x[0]


@kept
def counted(x):
    """How many there are is a number of Python's, with which it computes as it likes."""
    k, total = 0, 0.0 * x[0]
    for t in range(len(x)):
        if x[t] > 0:
            k += 1
            total = total + x[t] * k
    return total / (1 + k % 3)


@kept
def aliased(x):
    """Where the side isn't taken, two names are of one array."""
    v = x[:3] * 1.0
    w, s = v, 0.0
    for t in range(len(x)):
        if x[t] > 0:
            v = v * 0.9
        v += x[t]
        s = s + w.sum() + v[0]
    return s


@kept
def read_by_another_way(x):
    """What a side has written is read from where something else holds the array."""
    a, total = np.zeros(3), 0.0
    held = [a, a[1:]]
    for t in range(len(x)):
        if x[t] > 0.1:
            a[0], a[1] = x[t], 2.0 * x[t]
            total = total + held[0][0] - 0.3 * held[1][0]
    return total


@kept
def aliased_in_a_list(x):
    v, found = x[:3] * 1.0, []
    for t in range(len(x)):
        if x[t] > 0:
            v = v * 0.9
        found.append(v)
        if t % 5 == 0:
            v[0] = x[t]
    return np.sum(np.stack(found))


@kept
def another_name(x):
    a, b, s = x[:2] * 1.0, x[2:4] * 1.0, 0.0
    for t in range(len(x)):
        c = a if x[t] > 0 else b
        c += x[t]
        s = s + a[0] * b[1]
    return s


@kept
def part_of_another(x):
    a, b, s = x[:4] * 1.0, x[4:8] * 1.0, 0.0
    for t in range(len(x)):
        part = a[1:] if x[t] > 0 else b[:3]
        part[1] = x[t]
        s = s + a.sum() * b.sum()
    return s


@kept
def part_seen_later(x):
    """What shows an array that a side writes to shows what is written."""
    y, s = x * 1.0, 0.0
    part = y[2:5]
    for t in range(len(x)):
        if x[t] > 0:
            y[t % 7] = x[t]
        s = s + part.sum()
    return s


@kept
def overlapping(x):
    y, s = x[:9].reshape(3, 3) * 1.0, 0.0
    for t in range(len(x)):
        if x[t] > 0:
            y[t % 3] = x[t]
            y[t % 3, 1] = 2.0
        elif x[t] > -1:
            y[1, t % 3] = x[t]
        s = s + y.sum() * y[0, 1]
    return s


@kept
def same_object(x):
    last, now, s = x[0], x[1], 0.0
    for t in range(len(x)):
        if x[t] > 0:
            last = now
        s = s + (x[t] if last is now else 0.5 * x[t])
        now = 0.9 * now
    return s


@dataclass
class _State:
    level: Any = 0.0


@kept
def attribute(x):
    state, s = _State(), 0.0
    for t in range(len(x)):
        if x[t] > 0:
            state.level = 0.5 * state.level + x[t]
        s = s + state.level
    return s


@kept
def nonlocal_name(x):
    level = x[0]

    def raise_by(d):
        nonlocal level
        level = level + d

    for t in range(len(x)):
        if x[t] > 0:
            raise_by(x[t])
        else:
            level = 0.9 * level
    return level


@kept
def seen_by_an_inner_function(x):
    level, s = x[0], 0.0
    for t in range(len(x)):
        if x[t] > 0:
            level = 0.9 * level + x[t]
        s = s + (lambda: level)()
    return s


@kept
def iterator(x):
    others, s = iter(range(len(x))), 0.0
    for t in range(len(x)):
        if x[t] > 0:
            s = s + x[t] * next(others)
    return s


@kept
def drawn_from_a_list(x):
    rest, s = list(range(len(x))), 0.0
    for t in range(len(x)):
        s = s + (x[t] * rest.pop() if x[t] > 0 else x[t])
    return s


@kept
def unbound(x):
    """Which of the rounds bind the name depends on the values."""
    s = 0.0
    for t in range(len(x)):
        if x[t] > 0:
            peak = x[t] * x[t]
        s = s + x[t]
    try:
        return s + peak
    except UnboundLocalError:
        return s


@kept
def fails_where_it_is_not_taken(x):
    s = 0.0
    weights = {t: 0.5 for t in range(len(x)) if float(np.float64(t)) % 3}
    for t in range(len(x)):
        if x[t] > 0:
            s = s + x[t] * weights.get(t, 0.1)
        else:
            s = s - x[t] * [1.0, 2.0, 3.0][t % 3]
    return s


@kept
def endless_where_it_is_not_taken(x):
    s = 0.0
    for t in range(len(x)):
        if x[t] > 1.5:
            k = x[t]
            while k < 10:
                k = k * 2
            s = s + k
        else:
            s = 0.9 * s
    return s


@kept
def handled(x):
    s = 0.0
    for t in range(len(x)):
        try:
            if x[t] > 0:
                s = s + 1.0 / (x[t] if t % 4 else 0.0 * t)
            else:
                s = 0.9 * s
        except ZeroDivisionError:
            s = s - x[t]
    return s


@kept
def generated(x):
    def parts():
        s = 0.0
        for t in range(len(x)):
            s = 0.5 * s + x[t] if x[t] > s else 0.9 * s
            yield s

    return sum(parts())


@kept
def names_asked_for(x):
    s, level = 0.0, x[0]
    for t in range(len(x)):
        if x[t] > 0:
            level = 0.5 * level
        s = s + locals()["level"]
    return s


@kept
def different_types(x):
    s, h = 0.0, x[:2]
    for t in range(len(x)):
        h = x[:2] * x[t] if x[t] > 0 else x[t]
        s = s + np.sum(h)
    return s


@kept
def tuples(x):
    pair, s = (x[0], x[1]), 0.0
    for t in range(len(x)):
        if x[t] > 0:
            pair = (0.5 * pair[0] + x[t], pair[1])
        s = s + pair[0] * pair[1]
    return s


@kept
def sorted_by_what_it_returns(x):
    def key(k):
        if x[k] > 0:
            return x[k]
        return -2.0 * x[k]

    s = 0.0
    for t in range(len(x) - 2):
        s = s + x[max((t, t + 1, t + 2), key=key)]
    return s


@kept
def recursive(x):
    def total(t, s):
        if t == len(x):
            return s
        if x[t] > s:
            s = 0.5 * s + x[t]
        else:
            s = 0.9 * s
        return total(t + 1, s)

    return total(0, x[0])


@kept
def swapped_arrays(x):
    a, b, s = x[:3] * 1.0, x[3:6] * 1.0, 0.0
    for t in range(len(x)):
        if x[t] > 0:
            a, b = b, a
        a[0] = a[0] * 0.9 + x[t]
        s = s + a[0] * b[1] + b[0]
    return s


@kept
def chosen_among_single_floats(x):
    """The same, where a function of NumPy's meets them, and its dtype alone is read."""
    s, y, total = 0.0, np.float32(0.1) * np.asarray([1, 2, 3], np.float32), 0.0
    for t in range(len(x)):
        s = s + x[t]
        if s < 0:
            s = 0.0
        chosen = np.where(np.array([True, False, True]), s, y)
        total = total + float(chosen.dtype.itemsize) * x[t]
    return total


def single_floats(x):
    """With what Python's numbers adapt to, it matters whether a number is one of these."""
    s, y, total = 0.0, np.float32(0.1) * np.asarray([1, 2, 3], np.float32), 0.0
    for t in range(len(x)):
        s = s + x[t]
        if s < 0:
            s = 0.0
        total = total + float((s * y).dtype.itemsize) * x[t]
    return total
