"""Changes of containers that wait, and are looked for before the run is over: they are made there,
also where C code hashes or compares what is passed. Values, slopes and what is there after each
call are plain Python's."""

from __future__ import annotations

import bisect
import collections
import heapq

import numpy as np
import pytest

from tapegrad import jit, value_and_grad

POINTS = [np.array(x) for x in ([1.5, 0.5, 0.2], [1.5, 0.5, 0.2], [0.5, 1.5, 1.2], [2.5, 0.5, 1.7])]


def masks(c, x):
    c.update((x > 1).tolist())
    return np.sum(x) * c[True]


def one_mask(c, x):
    c.update([x[0] > 1])
    return np.sum(x) * c[True]


def rounded(c, x):
    c.update(np.round(x).astype(int).tolist())
    return np.sum(x) * c[2]


def order(c, x):
    c.update(np.argsort(x).tolist())
    return np.sum(x) * c[0]


def subtracted(c, x):
    c.subtract((x > 1).tolist())
    return np.sum(x) * c[True]


def how_many(c, x):
    c.update((x > 1).tolist())
    return np.sum(x) * len(c)


def after_another(c, x):
    c.update(["a"])
    c.update((x > 1).tolist())
    return np.sum(x) * (c["a"] + c[False])


def most_common(c, x):
    c.update((x > 1).tolist())
    return np.sum(x) * c.most_common(1)[0][1]


def as_dict(c, x):
    c.update((x > 1).tolist())
    return np.sum(x) * dict(c).get(True, 0)


def in_rounds(c, x):
    s = 0.0
    for k in range(3):
        c.update([x[k] > 1])
        s = s + x[k] * c[True]
    return s


def caught(c, x):
    c.update((x > 1).tolist())
    try:
        k = c[True]
    except BaseException:
        return 7.0 * x[0]
    return np.sum(x) * k


def cleaned_up(c, x):
    c.update((x > 1).tolist())
    try:
        return np.sum(x) * c[True]
    finally:
        c["n"] += 1


def popped(c, x):
    c.pop(np.argmax(x), None)
    return np.sum(x) * len(c)


def set_after(c, x):
    c.clear()
    c[x[0] > 1] = 3.0
    c[bool(x[1] > 1)] = 2.0
    return np.sum(x) * len(c)


def moved(c, x):
    c.move_to_end(x[0] > 1)
    return np.sum(x) * (1 + next(iter(c)))


def pushed(c, x):
    heapq.heappush(c, int(x[0]))
    return np.sum(x) * c[0]


def inserted(c, x):
    bisect.insort(c, x[0] > 1)
    return np.sum(x) * c[1]


def put_in(c, x):
    c.insert(np.argmax(x), 5)
    return np.sum(x) * c[0]


def turned(c, x):
    c.rotate(int(np.argmax(x)) + 1)
    return np.sum(x) * c[0]


PROGRAMS = [
    *((f, collections.Counter) for f in (masks, one_mask, rounded, order, subtracted, how_many)),
    *((f, collections.Counter) for f in (after_another, most_common, as_dict, in_rounds)),
    *((f, collections.Counter) for f in (caught, cleaned_up)),
    (popped, lambda: {k: k + 1.0 for k in range(9)}),
    (set_after, lambda: {True: 1.0}),
    (moved, lambda: collections.OrderedDict({False: 1.0, True: 2.0})),
    (pushed, lambda: [3]),
    (inserted, lambda: [0, 3]),
    (put_in, lambda: [0, 3]),
    (turned, lambda: collections.deque([1, 2, 3])),
]


@pytest.mark.every(2)
@pytest.mark.filterwarnings("ignore:.*was traced for three calls")
@pytest.mark.parametrize(("f", "make"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_what_is_looked_for_is_there(f, make):
    here, plain, other = make(), make(), make()
    g = value_and_grad(lambda x: f(here, x), compile="never")
    h = jit(lambda x: f(other, x), compile="never")
    for x in POINTS:
        value = f(plain, x)
        slope = np.full(3, value / np.sum(x))
        if f is in_rounds:
            slope = plain[True] - np.cumsum(x[::-1] > 1)[::-1] + (x > 1)
        found = g(x)
        np.testing.assert_allclose(found[0], value)
        np.testing.assert_allclose(found[1], slope)
        np.testing.assert_allclose(h(x), value)
        assert repr(here) == repr(plain) == repr(other)


@pytest.mark.filterwarnings("ignore:.*was traced for three calls")
def test_an_error_is_the_programs():
    held = [1]

    def f(x):
        heapq.heappush(held, "a")
        return np.sum(x) * len(held)

    g = value_and_grad(f, compile="never")
    for k in range(2):
        with pytest.raises(TypeError, match="'<' not supported"):
            g(POINTS[0])
        assert held == [1, *["a"] * (k + 1)]
