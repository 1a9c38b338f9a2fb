"""Changes of containers and queues from outside, which each call makes as its last: values,
slopes and what is there after each call are plain NumPy's."""

from __future__ import annotations

import bisect
import collections
import heapq
import io
import queue
import threading
from typing import Any

import numpy as np
import pytest

from tapegrad import grad, simplegrad, value_and_grad
from tapegrad.errors import UnsupportedError

MODES = pytest.mark.parametrize("compile", ["always", "never"])
POINTS = [np.array([s, s + 0.5, 2 * s]) for s in (1.3, 0.7, 2.1, 1.9, 0.4)]


class Model:
    """What the functions below reach."""

    def __init__(self) -> None:
        self.list: Any = [5.0, 1.0]
        self.dict: Any = {"b": 1.0, "a": 2.0}
        self.ordered: Any = collections.OrderedDict(a=1.0, b=2.0)
        self.counter: Any = collections.Counter()
        self.deque: Any = collections.deque([1.0, 2.0, 3.0])
        self.bounded: Any = collections.deque(maxlen=2)
        self.queue: Any = queue.Queue()
        self.simple: Any = queue.SimpleQueue()
        self.least: Any = queue.PriorityQueue()
        self.event = threading.Event()
        self.text = io.StringIO()
        self.window: Any = [0.0, 0.0, 0.0]

    def state(self) -> Any:
        held = vars(self) | {"queue": self.queue.queue, "least": self.least.queue}
        held |= {"event": self.event.is_set(), "text": self.text.getvalue()}
        held["simple"] = [self.simple.get() for _ in range(self.simple.qsize())]
        return {name: _plain(x) for name, x in held.items()}


def _plain(x):
    if isinstance(x, dict):
        return [(key, _plain(value)) for key, value in x.items()]
    if isinstance(x, (list, tuple, collections.deque)):
        return [*map(_plain, x)]
    if isinstance(x, Point):
        return _plain(vars(x))
    return np.asarray(x).tolist()


class Point:
    def __init__(self, x):
        self.x = x

    def __lt__(self, other):
        return float(np.sum(self.x)) < float(np.sum(other.x))


def squares(x):
    return np.sum(x**2)


def pushed(self, x):
    heapq.heappush(self.list, np.sum(x))
    return squares(x)


def kept_smallest(self, x):
    heapq.heappushpop(self.list, np.sum(x))
    return squares(x)


def kept_sorted(self, x):
    bisect.insort(self.list, np.sum(x))
    return squares(x)


def sorted_after(self, x):
    self.list.append(np.sum(x))
    self.list.sort(key=abs)
    self.list.append(0.5)
    return squares(x)


def inserted(self, x):
    push = self.list.insert
    push(*(1, x * 2))
    return squares(x) * self.window[0]


def inserted_object(self, x):
    point = Point(np.sum(x))
    self.list.insert(0, point)
    self.dict["last"] = point
    point.x = point.x * 3
    return squares(x)


def inserted_array(self, x):
    y = x * 2
    self.list.insert(0, y)
    y += 1
    return squares(y)


def counted(self, x):
    names = ["rounds", "calls"]
    self.counter.update(names)
    names.append("none")
    self.counter.update(weight=np.sum(x))
    self.counter.subtract({"left": 2})
    return squares(x)


def moved(self, x):
    self.ordered["a"] = np.sum(x)
    self.ordered.move_to_end("a")
    return squares(x)


def popped(self, x):
    self.dict.pop("a", None)
    self.dict["c"] = np.sum(x)
    self.dict["a"] = x[0]
    self.dict.pop("none", None)
    return squares(x)


def popped_and_read(self, x):
    before = self.dict.pop("b")
    self.dict["b"] = np.sum(x)
    return squares(x) * before


def rotated(self, x):
    self.deque.rotate(1)
    self.deque.append(x[0])
    return squares(x)


def queued(self, x):
    self.queue.put(np.sum(x))
    self.simple.put(x[1])
    self.least.put((np.sum(x), "a"))
    self.event.set()
    self.text.write("called\n")
    return squares(x)


def in_rounds(self, x):
    total = 0.0
    for k in range(30):
        value = np.sum(x) * k
        heapq.heappush(self.list, value)
        total = total + value**2
    return total


def by_branch(self, x):
    if np.sum(x) > 6:
        heapq.heappush(self.list, x[0])
    else:
        self.list.insert(0, x[1])
    return squares(x)


def in_an_inner_function(self, x):
    def inner(y):
        self.list.insert(0, np.sum(y))
        return np.sum(y**3)

    return np.sum(grad(inner)(x) * x) if GRADIENTS else inner(x) * 3


def caught(self, x):
    try:
        self.ordered.move_to_end("none")
    except KeyError:
        return np.sum(x)
    return squares(x)


def shifted(self, x):
    self.window[1:] = self.window[:-1]
    self.window[0] = np.sum(x)
    return squares(x) * (1 + self.window[1])


def bounded(self, x):
    self.bounded.append(np.sum(x))
    return squares(x) * self.bounded[0]


GRADIENTS = True
CHANGES = {
    **dict.fromkeys([pushed, kept_smallest, kept_sorted, sorted_after, inserted, queued], 1),
    **dict.fromkeys([inserted_object, inserted_array, counted, popped, rotated, moved], 1),
    **dict.fromkeys([in_rounds, caught, in_an_inner_function], 1),
    **dict.fromkeys([by_branch, popped_and_read], 2),
    **dict.fromkeys([shifted, bounded], 4),
}


@pytest.mark.every(8)
@MODES
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_each_call_makes_the_change(change, compile, monkeypatch):
    monkeypatch.setitem(globals(), "GRADIENTS", True)
    own, plains = Model(), Model()
    g = value_and_grad(lambda x: change(own, x), compile=compile)
    for x in POINTS:
        value, slope = g(x)
        state = plains.state()
        monkeypatch.setitem(globals(), "GRADIENTS", False)
        expected = change(plains, x.copy())
        after = plains.state()
        found = own.state()
        differences = [_difference(change, state, x, k) for k in range(3)]
        monkeypatch.setitem(globals(), "GRADIENTS", True)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(slope, differences, rtol=1e-6)
        assert _close(found, after), (found, after)
    assert g.cache_info().traces <= CHANGES[change]


def _difference(change, state, x, k):
    """A slope, of models that hold what was there before the call."""

    def at(step):
        model = Model()
        model.dict = dict(state["dict"])
        model.window, model.bounded = state["window"][:], collections.deque(state["bounded"], 2)
        return change(model, x + step * np.eye(3)[k])

    return (at(1e-6) - at(-1e-6)) / 2e-6


def _close(x, y):
    if isinstance(x, (list, tuple)):
        return len(x) == len(y) and all(map(_close, x, y))
    if isinstance(x, dict):
        return [*x] == [*y] and all(map(_close, x.values(), y.values()))
    return np.isclose(x, y, rtol=1e-12) if isinstance(x, float) else x == y


def looked_at(self, x):
    heapq.heappush(self.list, np.sum(x))
    return squares(x) * self.list[0]


def as_long_as(self, x):
    self.list.insert(0, x[0])
    return squares(x) * len(self.list)


def by_another_name(self, x):
    other = self.list
    self.list.insert(0, x[0])
    return squares(x) * other[0]


def by_the_queue(self, x):
    self.queue.put(x[0])
    return squares(x) * self.queue.qsize() * self.queue.queue[0]


def by_the_event(self, x):
    self.event.set()
    return squares(x) * (2.0 if self.event.is_set() else 3.0)


@pytest.mark.parametrize(
    "change", [looked_at, as_long_as, by_another_name, by_the_queue, by_the_event]
)
@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_who_looks_at_it_sees_it_changed(change):
    own, plains = Model(), Model()
    g = value_and_grad(lambda x: change(own, x), compile="never")
    for x in POINTS:
        value, _ = g(x)
        np.testing.assert_allclose(value, change(plains, x.copy()), rtol=1e-13)
        assert _close(own.state(), plains.state())
        for name in ("queue", "least"):
            assert _close(_plain(getattr(own, name).queue), _plain(getattr(plains, name).queue))


def test_the_derivative_of_what_was_put_there():
    """Who reads in the same call what the call has put there reads it with its derivative."""

    def f(x, held):
        held.insert(0, x[0])
        return np.sum(x) * held[0]

    held: list[Any] = []
    g = grad(lambda x: f(x, held), compile="never")
    np.testing.assert_allclose(g(POINTS[0]), POINTS[0][0] + np.eye(3)[0] * np.sum(POINTS[0]))
    assert [type(x) for x in held] == [np.float64]


def test_once_a_call_and_not_ahead_of_time():
    held: list[Any] = []

    def f(x):
        held.insert(0, np.sum(x))
        return squares(x)

    g = grad(f, compile="never")
    g.lower(POINTS[0])
    assert held == []
    second = grad(lambda x: np.sum(grad(f)(x) ** 2), compile="never")
    for derivative in (g, second):
        held.clear()
        derivative(POINTS[0])
        derivative(POINTS[1])
        np.testing.assert_allclose(held, [np.sum(POINTS[1]), np.sum(POINTS[0])])
    with pytest.raises(UnsupportedError, match=r"'held' .*postponed_test.py"):
        simplegrad(f, POINTS[0])


def test_an_error_after_it():
    held: list[Any] = []

    def f(x):
        held.insert(0, np.sum(x))
        raise ValueError("of the user's")

    with pytest.raises(ValueError, match="of the user's"):
        grad(f)(POINTS[0])
    np.testing.assert_allclose(held, [np.sum(POINTS[0])])
    assert type(held[0]) is np.float64
