"""A list to which the function adds, and what it reads of it: each call finds another one, and no
call but the first is traced for that."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from tapegrad import grad

X = np.array([1.0, 2.0])
MODES = pytest.mark.parametrize("compile", ["always", "never"])


class Log:
    def __init__(self):
        self.losses = []
        self.last = collections.deque()
        self.counts = {}


def last_of_its_own(log, x):
    loss = np.sum(x**2)
    log.losses.append(loss)
    return loss * 2 + log.losses[-1]


def counted(log, x):
    log.losses.append(np.sum(x**2))
    return len(log.losses) * np.sum(x**2)


def counted_before(log, x):
    n = len(log.losses)
    log.losses.append(3.0)
    return (n + len(log.losses)) * np.sum(x**2)


def compared_with_the_last(log, x):
    before = log.losses[-1] if log.losses else 1.0
    loss = np.sum(x**2)
    log.losses.append(loss + before)
    return loss * before


def every_third(log, x):
    log.losses.append(np.sum(x))
    if len(log.losses) % 3 == 0:
        log.losses.append(-1.0)
        return np.sum(x**3)
    return np.sum(x**2)


def two_at_once(log, x):
    log.losses.extend([np.sum(x), 2.0])
    return log.losses[-2] * len(log.losses) * x[0]


def of_a_deque(log, x):
    log.last.append(np.sum(x))
    return log.last[-1] * len(log.last) * x[0]


def counted_in_a_dict(log, x):
    log.counts["n"] = log.counts.get("n", 0) + 1
    return log.counts["n"] * np.sum(x**2)


def older_ones(log, x):
    log.losses.append(np.sum(x))
    return log.losses[-2] * x[0] if len(log.losses) > 1 else x[0]


def one_that_was_set(log, x):
    if log.losses:
        log.losses[-1] = 0.5 + len(log.losses) // 4
    before = log.losses[-1] if log.losses else 1.0
    log.losses.append(3.0)
    return before * log.losses[-1] * x[0]


PROGRAMS = [
    *(last_of_its_own, counted, counted_before, compared_with_the_last, every_third, two_at_once),
    *(of_a_deque, counted_in_a_dict, older_ones),
]


def slope(f, log, x):
    """The derivative of `f` by differences, each from the same state."""

    def at(x):
        other = Log()
        other.losses, other.counts = [*log.losses], {**log.counts}
        other.last = collections.deque(log.last)
        return float(f(other, x))

    steps = 1e-6 * np.eye(len(x))
    return np.array([(at(x + s) - at(x - s)) / 2e-6 for s in steps])


@pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
@MODES
@pytest.mark.parametrize("f", [*PROGRAMS, one_that_was_set])
def test_each_call_finds_what_the_last_one_left(f, compile):
    log, plain = Log(), Log()
    g = grad(lambda x: f(log, x), compile=compile)
    for k in range(8):
        x = X * (1 + 0.1 * k)
        if k == 5:  # from outside
            for each in (log, plain):
                each.losses += [7.0, 0.5]
                each.counts["n"] = 20
                each.last.append(1.5)
        expected = slope(f, plain, x)
        f(plain, x)
        assert np.allclose(g(x), expected, rtol=1e-6)
        assert np.allclose([*log.losses, *log.last], [*plain.losses, *plain.last])
        assert log.counts == plain.counts
        assert list(map(type, log.losses)) == list(map(type, plain.losses))
    assert g.cache_info().traces <= 3 or f not in PROGRAMS


@pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
@MODES
def test_what_else_is_done_to_the_list_is_seen(compile):
    log = Log()

    def f(x):
        log.losses.append(1.0)
        if not log.losses[:-1]:
            return np.sum(x)
        log.losses.pop(0)
        return len(log.losses) * np.sum(x**2)

    g = grad(f, compile=compile)
    assert np.allclose(g(X), 1.0)
    assert np.allclose(g(X), 2 * X)
    log.losses += [1.0, 1.0]
    assert np.allclose(g(X), 6 * X)
    log.losses.clear()
    assert np.allclose(g(X), 1.0)
    assert log.losses == [1.0]


@pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
@MODES
def test_whether_there_is_anything_in_it_is_seen(compile):
    held = []
    g = grad(lambda x: x * (2.0 if held else 3.0) * (1 + len(held)), compile=compile)
    found = []
    for added in ([], [], [1.0], [2.0], []):
        held += added
        found.append(g(1.0))
    assert found == [3.0, 3.0, 4.0, 6.0, 6.0]
