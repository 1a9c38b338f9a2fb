"""A list to which the function adds, and what it reads of it: each call finds another one, and no
call but the first is traced for that."""

from __future__ import annotations

import collections
import warnings

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


def in_front(log, x):
    log.losses.insert(0, np.sum(x))
    return x[0] ** 2


def another_list(log, x):
    log.losses = log.losses + [np.sum(x**2)]
    return x[0] ** 2


def the_last_two(log, x):
    log.losses.append(np.sum(x))
    return sum(log.losses[-2:]) * x[0]


def taken_again(log, x):
    log.losses.append(x[0])
    return log.losses.pop() * np.sum(x)


PROGRAMS = [
    *(in_front, another_list, the_last_two, taken_again),
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


@pytest.mark.every(8)
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


def at_most_three(held, x):
    if len(held) > 2:
        held.pop(0)
    held.append(np.sum(x))
    return held[0] * x[0]


def of_a_window(held, x):
    held.append(np.sum(x**2))
    return np.mean(held) * x[0] + sum(held)


def in_order(held, x):
    held.append(x[0])
    held.reverse()
    del held[3:]
    return max(held) * x[1] + len(held)


@MODES
@pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
@pytest.mark.parametrize("f", [at_most_three, of_a_window, in_order])
def test_one_of_few_that_changes_as_a_whole(f, compile):
    """its items are inputs of each call, which leaves its own: only its length is compared"""
    kind = (lambda held: collections.deque(held, maxlen=3)) if f is of_a_window else list
    held, plain = kind([]), kind([])
    g = grad(lambda x: f(held, x), compile=compile)
    for k in range(9):
        x = X * (1 + 0.1 * (-1) ** k * k)
        steps = 1e-6 * np.eye(2)
        expected = [(f(kind(plain), x + s) - f(kind(plain), x - s)) / 2e-6 for s in steps]
        f(plain, x)
        assert np.allclose(g(x), expected, rtol=1e-6)
        assert type(held) is type(plain) and np.allclose([*held], [*plain])
        if k == 5:
            traces = g.cache_info().traces
    assert g.cache_info().traces == traces <= 6


class Step:
    def __init__(self, loss, at):
        self.loss, self.at = loss, at


def of_tuples(held, x):
    held.append((np.sum(x**2), x[0], "a step"))
    if len(held) > 3:
        held.pop(0)
    return held[-1][0] * x[1]


def of_dicts(held, x):
    held.append({"loss": np.sum(x**2), "at": x.copy()})
    if len(held) > 3:
        del held[0]
    return np.sum(x**3)


def of_objects(held, x):
    held.append(Step(np.sum(x**2), {"x": x.copy()}))
    held.reverse()
    if len(held) > 3:
        held.pop()
    return np.sum(x**3)


def plainly(held):
    """What is in such a list, as plain numbers."""
    if isinstance(held, (list, tuple)):
        return [plainly(x) for x in held]
    held = vars(held) if isinstance(held, Step) else held
    return plainly([*held.values()]) if isinstance(held, dict) else np.asarray(held).tolist()


@MODES
@pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
@pytest.mark.parametrize("f", [of_tuples, of_dicts, of_objects])
def test_one_of_few_that_holds_more_than_numbers(f, compile):
    """which of them are there is no matter, and each call moves them"""
    held, plain = [], []
    g = grad(lambda x: f(held, x), compile=compile)
    for k in range(8):
        x = X * (1 + 0.1 * k)
        steps = 1e-6 * np.eye(2)
        expected = [(f([], x + s) - f([], x - s)) / 2e-6 for s in steps]
        f(plain, x)
        assert np.allclose(g(x), expected, rtol=1e-6)
        assert plainly(held) == plainly(plain)
        if k == 4:
            traces = g.cache_info().traces
    assert g.cache_info().traces == traces
    held[0] = None  # another one than it was
    f(held, X), g(X)
    assert len(held) == 3


def test_a_sum_of_lists_that_is_looked_into():
    """what is in the list from outside is compared then"""
    base = [1.0, 2.0]

    def f(x):
        made = base + [x**2]
        made.append(x)
        return sum(made) * len(made)

    g = grad(f, compile="never")
    for number in (1.0, 1.0, 5.0, 5.0):
        base[0] = number
        assert g(3.0) == pytest.approx(4 * 7.0)
    base.append(2.0)
    assert g(3.0) == pytest.approx(5 * 7.0)
    assert g.cache_info().traces == 3


def test_an_error_leaves_the_list_as_plain_numpy_does():
    held = [1.0, 2.0]

    def f(x):
        held.append(x)
        held.reverse()
        if x > 2:
            raise ValueError("too much")
        return held[1] * x

    g = grad(f, compile="never")
    assert g(1.5) == 2.0 and held == [1.5, 2.0, 1.0]
    with pytest.raises(ValueError, match="too much"):
        g(3.0)
    assert held == [3.0, 1.0, 2.0, 1.5]


def test_the_warning_for_a_list_that_grows_and_is_read_as_a_whole():
    """it says what helps: the last few entries alone, or what is computed of all"""
    history = []

    def f(x):
        history.append(x * 1.0)
        return np.sum(np.mean(np.array(history), axis=0) * x)

    g = grad(f, compile="never")
    with pytest.warns(RuntimeWarning, match=r"'history' .*longer at each call.*history\[-k:\]"):
        for _ in range(4):
            g(np.ones(2))


def test_the_last_few_of_a_list_that_grows():
    """what the warning says: one trace more for each length up to k, and none after that"""
    history = []

    def f(x):
        history.append(x * 1.0)
        return np.sum(sum(history[-2:]) * x)

    g = grad(f, compile="never")
    for k in range(6):
        x = np.ones(2) + k
        before = history[-1] if history else 0.0
        np.testing.assert_allclose(g(x), 2 * x + before)
    assert g.cache_info().traces <= 3


class Point:
    def __init__(self, v, w=None):
        self.v, self.w = v, w


MADE = {
    "tuple": lambda x: (1, float(x[0])),
    "dict": lambda x: {"v": x[0]},
    "nested": lambda x: ({"a": [x[0], x]}, 1),
    "deep": lambda x: [[[(x[1],)]]],
    "object": lambda x: Point((x[0],), {"k": x * 2}),
    "object in a tuple": lambda x: (1, [Point([x[0]])]),
}


def appended(log, made):
    log.losses.append(made)
    log.losses = log.losses[-3:]


def joined(log, made):
    log.losses = (log.losses + [made])[-3:]


def ordered(log, made):
    log.losses = sorted([*log.losses, made], key=lambda _: 0)[:3]


def told(x):
    """All of a value, with the classes of what it is made of."""
    if isinstance(x, np.ndarray):
        return type(x), x.tolist()
    if isinstance(x, (list, tuple)):
        return type(x), [*map(told, x)]
    held = vars(x) if isinstance(x, Point) else x
    return (
        (type(x), {k: told(v) for k, v in held.items()}) if isinstance(held, dict) else (type(x), x)
    )


@pytest.mark.every(2)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.parametrize("keep", [appended, joined, ordered])
def test_the_last_few_of_anything_that_holds_numbers(keep, made):
    plain, log = Log(), Log()
    plain.losses, log.losses = [(0, 0.0), (0, 1.0)], [(0, 0.0), (0, 1.0)]

    def f(log, x):
        keep(log, made(x))
        return x[0] * 2

    df = grad(lambda x: f(log, x), compile="never")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # some are traced at each call
        for k in range(5):
            f(plain, X + k)
            df(X + k)
            assert told(log.losses) == told(plain.losses)
