"""State that moves on at each call is an input of the tape, whatever kind of object keeps it.

Each call leaves its own: values and state are plain Python's, and the function isn't traced again.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from tapegrad import grad, hessian, value_and_grad


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


class Number(enum.IntEnum):
    ZERO = 0
    ONE = 1


class Named:
    def __repr__(self) -> str:
        return "a key"


@dataclasses.dataclass(frozen=True)
class Cell:
    row: int
    column: int


class Settings(NamedTuple):
    step: int
    rate: float


@dataclasses.dataclass(frozen=True)
class Frozen:
    step: int
    rate: float


class Object:
    def __init__(self, step: Any, rate: Any, before: Any = None) -> None:
        self.step, self.rate = step, rate
        self.gap = step - before.step if before else 0

    def __repr__(self) -> str:
        return f"Object({self.step!r}, {self.rate!r}, {self.gap!r})"


class Own(dict):
    pass


class Items(list):
    pass


class Rounds:
    """goes on where it has stopped"""

    def __init__(self, count: Any, most: int) -> None:
        self.count, self.most = count, most

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self.count % self.most == self.most - 1:
            self.count += 1
            raise StopIteration
        self.count += 1
        return self.count

    def __repr__(self) -> str:
        return f"Rounds({self.count!r})"


class Holder:
    def __init__(self, state: Any) -> None:
        self.state = state
        self.first = state


KEY = Named()
TRACED_AGAIN = pytest.mark.filterwarnings("ignore:.* was traced for three calls")


def by_key(key):
    def counts(h, x):
        h.state[key] += 1
        return x * h.state[key]

    return counts


def by_new_key(h, x):
    key = Cell(1, 2)
    h.state[key] = h.state.get(key, 0) + 1
    return x * h.state[key]


def updated(h, x):
    h.state.update(["a", "b", "a"])
    return x * h.state["a"]


def largest(h, x):
    h.state["a"] += 0.7
    name = max(h.state, key=h.state.get)
    return x * h.state[name]


def most_common(h, x):
    h.state["b"] += 1
    return x * h.state.most_common(1)[0][1]


def all_decay(h, x):
    for key in h.state:
        h.state[key] = h.state[key] * 0.9
    return x * sum(h.state.values())


def all_anew(h, x):
    h.state = {key: value * 0.9 for key, value in h.state.items()}
    return x * sum(h.state.values())


def gone_and_back(h, x):
    value = h.state.pop("a")
    h.state["a"] = value + 1
    return x * [*h.state.values()][-1]


def replaced(h, x):
    h.state = h.state._replace(step=h.state.step + 1)
    return x * h.state.step + h.state.rate


def made_anew(h, x):
    h.state = type(h.state)(h.state.step + 1, h.state.rate * 0.9)
    return x * h.state.step + h.state.rate


def replaced_dataclass(h, x):
    h.state = dataclasses.replace(h.state, step=h.state.step + 1)
    return x * h.state.step + h.state.rate


def unpacked(h, x):
    step, (rate, name) = h.state
    h.state = step + 1, (rate * 0.9, name)
    return x * step + rate


def compared(h, x):
    factor = 1.0 if h.state is h.first else 2.0
    h.state = h.state[0] + 1, h.state[1] * 0.9
    return x * h.state[1] * factor


def kept(h, x):
    h.first = h.state
    h.state = h.state[0] + 1, h.state[1] * 0.9
    return x * h.first[1]


def objects_compared(h, x):
    factor = 1.0 if h.state is h.first else 2.0
    h.state = Object(h.state.step + 1, h.state.rate)
    return x * h.state.step * factor


def passed_on(h, x):
    h.state = Object(h.state.step + 1, h.state.rate * 0.9, h.state)
    return x * h.state.step + h.state.gap * h.state.rate


def exponent(h, x):
    h.state += 1
    return x / (1 - 0.9**h.state) + np.sum(np.array([x, 1.0]) ** h.state)


def one_item(h, x):
    h.state[Number.ONE] += 1
    return x * h.state[1] + h.state[Number.ZERO]


def one_of_own(h, x):
    h.state["a"] = h.state["a"] * 0.9
    return x * h.state["a"] + h.state["b"]


def gone_round(h, x):
    total = 0.0
    for k in h.state:
        total = total + k * x
    return total


def from_a_deque(h, x):
    h.state.append(h.state[-1] * 0.9 + h.state[0])
    return x * sum(h.state)


def in_a_derivative(h, x):
    def inner(y):
        h.state[0] += 1
        h.state[1] = h.state[1] * 0.9
        return y**3 * h.state[0]

    return grad(inner)(x) * h.state[1] + h.state[0]


def in_second_derivatives(h, x):
    def inner(y):
        h.state[0] += 1
        return np.sum(y**3) * h.state[0]

    return np.sum(hessian(inner)(np.array([x, 1.0])))


# What makes the state, the function, and how often it is traced at most
MOVING: dict[str, tuple[Any, Any, int]] = {
    "a member of an enumeration": (lambda: {Side.LEFT: 0}, by_key(Side.LEFT), 2),
    "an object that equals itself": (lambda: {KEY: 0}, by_key(KEY), 2),
    "a tuple of members": (lambda: {(Side.LEFT, 1): 0}, by_key((Side.LEFT, 1)), 2),
    "a frozen dataclass": (lambda: {Cell(1, 2): 0}, by_new_key, 3),
    "a counter that is updated": (collections.Counter, updated, 3),
    "the key of the largest": (lambda: {"a": 1.0, "b": 2.0}, largest, 4),
    "the most common": (lambda: collections.Counter(a=3, b=1), most_common, 4),
    "all items": (lambda: {"a": 1.0, "b": 2.0}, all_decay, 3),
    "another dict": (lambda: {"a": 1.0, "b": 2.0}, all_anew, 3),
    "an item that goes and comes back": (lambda: {"a": 1.0, "b": 2.0}, gone_and_back, 3),
    "_replace": (lambda: Settings(0, 0.1), replaced, 2),
    "a named tuple": (lambda: Settings(0, 0.1), made_anew, 2),
    "dataclasses.replace": (lambda: Frozen(0, 0.1), replaced_dataclass, 3),
    "a dataclass": (lambda: Frozen(0, 0.1), made_anew, 3),
    "a tuple in a tuple": (lambda: (0, (1.0, "a")), unpacked, 2),
    "which tuple it is": (lambda: (0, 1.0), compared, 3),
    "a tuple that is kept": (lambda: (0, 1.0), kept, 3),
    "which object it is": (lambda: Object(0, 1.0), objects_compared, 3),
    "an object that makes the next": (lambda: Object(0, 1.0), passed_on, 3),
    "an exponent": (lambda: 0, exponent, 2),
    "an item of a list": (lambda: [0, 0], one_item, 2),
    "a dict of a class of its own": (lambda: Own(a=1.0, b=2.0), one_of_own, 2),
    "an iterator of a class of its own": (lambda: Rounds(0, 4), gone_round, 2),
    "a deque that is full": (lambda: collections.deque([1.0, 2.0], maxlen=2), from_a_deque, 2),
    "a derivative's function": (lambda: [0, 1.0], in_a_derivative, 2),
    "a second derivative's function": (lambda: [0], in_second_derivatives, 2),
    "a list of a class of its own": (lambda: Items([0, 0]), one_item, 2),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", MOVING)
def test_state_moves_on_without_a_new_trace(name):
    make, f, traces = MOVING[name]
    own, plain = Holder(make()), Holder(make())
    g = value_and_grad(lambda x: f(own, x), compile="never")
    for k in range(12):
        x = 0.7 + 0.01 * k
        assert g(x)[0] == pytest.approx(f(plain, x), rel=1e-12)
        assert repr(own.state) == repr(plain.state)
        assert repr(own.first) == repr(plain.first)
    assert g.cache_info().traces <= traces


def test_a_change_that_waits_is_made_before_a_key_is_missed():
    """`Counter.update` waits for the end of the run, unless somebody looks for what it makes"""
    counts = collections.Counter()

    def f(x):
        counts.update(["a"])
        return x * counts["a"]

    g = grad(f, compile="never")
    assert [g(1.0) for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]


def test_one_object_in_two_places_is_told_from_two():
    """each of two places may hold another object at each call: the same one, too"""
    holder = Holder(Object(0, 1.0))

    def f(h, x):
        h.state.step += 1
        return x * h.first.step

    g = value_and_grad(lambda x: f(holder, x), compile="never")
    plain = Holder(Object(0, 1.0))
    for shared in itertools.islice(itertools.cycle([True, False, False]), 12):
        for h in (holder, plain):
            h.state = Object(h.state.step, 1.0)
            h.first = h.state if shared else Object(5 + h.state.step, 1.0)
        assert g(0.5)[0] == f(plain, 0.5)
        assert repr(holder.first) == repr(plain.first)


@TRACED_AGAIN
def test_a_key_of_the_run_is_another_one_at_each_call():
    seen: dict[Any, int] = {}

    def f(x):
        seen[Named()] = 1
        return x * x

    g = grad(f, compile="never")
    for count in range(1, 5):
        assert g(1.5) == 3.0
        assert len(seen) == count


@TRACED_AGAIN
def test_containers_that_are_closed_are_left_as_numpy_leaves_them():
    """C code needs plain numbers of them, so a list is changed as a whole after it has grown"""
    held = [1.0, 2.0]

    def f(x):
        held.append(x)
        held.reverse()
        return held[1] * x + len(bytes(int(held[0])))

    g = grad(f, compile="never")
    plain = [1.0, 2.0]
    for x in (1.5, 2.5, 1.25):
        g(x)
        plain.append(x)
        plain.reverse()
        assert held == plain and {type(v) for v in held} == {float}


def test_a_dict_that_is_only_read_stays_the_same():
    rates = {"a": 1.0, "b": 2.0}

    def f(x):
        return x * sum(rates.values())

    g = grad(f, compile="never")
    for k in range(6):
        rates["a"] = float(k)
        values = [*rates.values()]
        assert g(1.0) == k + 2.0
        assert all(a is b for a, b in zip(values, rates.values(), strict=True))
    assert g.cache_info().traces <= 3


def test_the_warning_names_the_line_that_needs_what_moves_on():
    state = [0]

    def f(x):
        state[0] += 1
        return x * len("a" * state[0])

    g = grad(f, compile="never")
    with pytest.warns(RuntimeWarning, match=r'moving_test.py:\d+: `return x \* len\("a" \* state'):
        for k in range(1, 20):
            assert g(1.0) == k


def test_a_power_of_an_integer_whose_exponent_moves_below_zero():
    state = [3]

    def f(x):
        state[0] -= 1
        return x * 2 ** state[0]

    g = grad(f, compile="never")
    assert [g(1.0) for _ in range(5)] == [4.0, 2.0, 1.0, 0.5, 0.25]
