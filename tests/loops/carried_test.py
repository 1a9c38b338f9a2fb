"""Items and attributes that a round sets are carried, as variables are."""

from __future__ import annotations

import random
import warnings
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.loops.once import Program, Programs, by_program

from tapegrad import trace, value_and_grad
from tapegrad.observe.program.joins import sides_of

SIZES = [(40, 1.0, 0.7), (40, -1.3, 0.4), (57, 0.8, 1.1), (3, 1.0, 0.5), (0, 1.0, 0.3)]
CALLS = [(np.linspace(0.1, 1.0, n) * scale, a) for n, scale, a in SIZES]
once, each = Programs(), Programs()


@pytest.fixture(autouse=True)
def quietly() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def held(f: Program, calls: Any = CALLS) -> None:
    """Values are plain NumPy's, and slopes those of differences."""
    derived = value_and_grad(f, (0, 1), compile="never")
    for x, a in (*calls, *calls[:2]):
        value, (slopes, slope) = derived(x, a)
        np.testing.assert_allclose(value, f(x, a), rtol=1e-11, atol=1e-13)
        along, h = np.cos(np.arange(len(x))), 1e-6
        change = (f(x + h * along, a + h) - f(x - h * along, a - h)) / (2 * h)
        np.testing.assert_allclose(slopes @ along + slope, change, rtol=1e-5, atol=1e-6)


# ---- traced once


@once
def dict_of_state(x: Any, a: Any) -> Any:
    state = {"m": 0.0 * a, "v": 1.0 * a}
    for g in x:
        state["m"] = 0.9 * state["m"] + g
        state["v"] += state["m"] ** 2
    return state["m"] / state["v"]


@once
def list_of_state(x: Any, a: Any) -> Any:
    h = [a, 2.0 * a, 0.0 * a]
    for k in range(len(x)):
        h[0], h[-1] = 0.5 * h[1] + x[k], h[0] * a
        h[1] = np.sin(h[2])
    return h[0] + h[1] * h[2]


@once
def seen_by_another_name(x: Any, a: Any) -> Any:
    h = [a, a * a]
    other, total = h, 0.0 * a
    for v in x:
        h[0] = 0.7 * h[0] + v
        total = total + other[0]
    return total + other[0] + h[1]


@once
def in_a_function(x: Any, a: Any) -> Any:
    def step(state: dict[str, Any], v: Any) -> None:
        state["h"] = np.tanh(state["h"] * a + v)
        state["sum"] += state["h"]

    state = {"h": 0.0 * a, "sum": 0.0 * a}
    for v in x:
        step(state, v)
    return state["sum"]


@once
def in_inner_loops(x: Any, a: Any) -> Any:
    h = [0.0 * a, a, 2.0 * a]
    for v in x:
        for k in range(3):
            h[1] = 0.5 * h[1] + v * k
        h[0] = h[0] * 0.5 + h[1]
    return h[0] + h[1] + h[2]


@once
def arrays_in_a_dict(x: Any, a: Any) -> Any:
    layer = {"w": np.ones(3) * a, "b": np.zeros(3) + a}
    for v in x:
        layer["w"] = 0.9 * layer["w"] + v * layer["b"]
        layer["b"] = np.tanh(layer["w"])
    return np.sum(layer["w"] * layer["b"])


@once
def lists_in_lists(x: Any, a: Any) -> Any:
    table = [[a, 0.0 * a], [2.0 * a, a * a]]
    for v in x:
        table[0][1] = 0.5 * table[1][0] + v
        table[1][0] = np.cos(table[0][1])
    return table[0][0] * table[0][1] + table[1][0] * table[1][1]


@once
def what_was_there_stays(x: Any, a: Any) -> Any:
    """Others hold what an item was before."""
    first = 2.0 * a
    h = [first]
    kept = [h[0], first]
    for v in x:
        h[0] = h[0] * 0.5 + v
    return h[0] + 3.0 * kept[0] + first


@once
def until_a_test(x: Any, a: Any) -> Any:
    state = {"x": 5.0 + a, "k": 0.0 * a}
    while state["x"] > 0.5:
        state["x"] = 0.8 * state["x"] - 0.001 * a
        state["k"] += state["x"]
    return state["x"] * state["k"] + np.sum(x)


@once
def a_new_key(x: Any, a: Any) -> Any:
    state = {"h": a}
    for v in x:
        state["last"] = v * state["h"]
        state["h"] = 0.5 * state["h"] + v
    return state["h"] + state.get("last", a)


@once
def counted(x: Any, a: Any) -> Any:
    state = {"n": 0, "h": a}
    for v in x:
        state["n"] += 1
        state["h"] = 0.5 * state["h"] + v * state["n"]
    return state["h"] * state["n"]


@once
def in_a_branch(x: Any, a: Any) -> Any:
    h = [a, 0.0 * a]
    for v in x:
        if v > 0.4321:
            h[0] = h[0] * 0.5 + v
        else:
            h[1] = h[1] + v * a
    return h[0] * h[1] + h[0]


class Running:
    """A mean, and how it varies."""

    def __init__(self, a: Any) -> None:
        self.n, self.mean, self.sum = 0, 0.0 * a, a

    def add(self, v: Any) -> None:
        self.n += 1
        far = v - self.mean
        self.mean += far / self.n
        if far > 0.1234:
            self.sum += far * (v - self.mean)
        else:
            self.sum *= 0.9


@once
def attributes(x: Any, a: Any) -> Any:
    run = Running(a)
    for v in x:
        run.add(v)
        run.add(np.sin(40.0 * v))
    return run.mean * run.sum + run.n


@once
def in_slots(x: Any, a: Any) -> Any:
    point = Point(a, 0.0 * a)
    for v in x:
        point.p += 0.1 * point.q
        point.q = 0.9 * point.q - 0.1 * np.sin(point.p) + v
    return point.p * point.q


class Point:
    __slots__ = ("p", "q", "unset")

    def __init__(self, p: Any, q: Any) -> None:
        self.p, self.q = p, q

    def __add__(self, other: Point) -> Point:
        return Point(self.p + other.p, self.q + other.q)

    def __mul__(self, factor: Any) -> Point:
        return Point(self.p * factor, self.q * factor)


@dataclass(frozen=True)
class State:
    p: Any
    q: Any


class Named(State):
    def __init__(self, p: Any, q: Any, word: str) -> None:
        super().__init__(p, q)
        object.__setattr__(self, "word", word)


@once
def objects_that_rounds_make(x: Any, a: Any) -> Any:
    point, step, state = Point(a, 0.0 * a), Point(0.1 * a, a), State(a, a)
    for v in x:
        point = point * 0.5 + step * v
        state = Named(state.q * 0.5, state.p + point.q, "state")
    return point.p * point.q + state.p * state.q


@once
def a_window(x: Any, a: Any) -> Any:
    window, total = deque([a, a * a, 0.5 * a], maxlen=3), 0.0 * a
    for v in x:
        window.append(v * total)
        total = 0.5 * total + window[0] * a + np.cos(sum(window))
    return total + window[1]


@once
def a_queue(x: Any, a: Any) -> Any:
    queue, stack, total = deque([a, 0.5 * a]), [a, a * a], 0.0 * a
    for v in x:
        queue.append(v + total)
        total = 0.5 * total + queue.popleft() * a
        stack.insert(0, total)
        total += stack.pop()
        queue.rotate(1)
    return total + queue[0] * stack[0]


@once
def containers_that_rounds_make(x: Any, a: Any) -> Any:
    total = 0.0 * a
    for v in x:
        row: list[Any] = [0.0] * 3
        row[0], row[1] = v, v * total
        row[2] = np.sin(row[1])
        found: dict[str, Any] = {}
        found["sum"] = sum(row)
        found.update(more=row[0] * a)
        total = 0.5 * total + found["sum"] + found["more"]
    return total


@once
def of_an_inner_function(x: Any, a: Any) -> Any:
    mean, count = 0.0 * a, 0

    def add(v: Any) -> Any:
        nonlocal mean, count
        mean, count = 0.9 * mean + v, count + 1
        return np.tanh(mean)

    total = 0.0 * a
    for v in x:
        total += add(v)
    return total * mean + count


@once
def one_item_by_two_numbers(x: Any, a: Any) -> Any:
    h = [a, 2.0 * a]
    for v in x:
        if np.sin(40.0 * v) > 0.0:
            h[1] = h[1] * 0.5 + v
            h[-1] += 0.1 * a
        elif np.cos(30.0 * v) > 0.5:
            h[-1] = h[-2] * 0.5
        else:
            h[0], h[-2] = h[1] * 0.3, h[0] * 0.9 - v
    return h[0] + 2.0 * h[1]


@once
def sides_that_return(x: Any, a: Any) -> Any:
    state = State([a, 0.0 * a], {"last": a})

    def add(v: Any) -> Any:
        if np.sin(40.0 * v) > 0.0:
            state.p[0] = 0.5 * state.p[0] + v
            return state.p[0]
        point = Point(v, a)
        point.q += v
        state.q["last"], state.p[1] = point.q, state.p[1] + 0.1
        return 0.0 * a

    total = 0.0 * a
    for v in x:
        total = total * 0.5 + add(v)
    return total + state.p[0] * state.p[1] + state.q["last"]


class Checked:
    """Whose attributes go through methods of its own."""

    def __init__(self, a: Any) -> None:
        self.held = a

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def half(self) -> Any:
        return 0.5 * self.held

    @half.setter
    def half(self, value: Any) -> None:
        self.held = 2.0 * value


@once
def by_a_property(x: Any, a: Any) -> Any:
    checked = Checked(a)
    for v in x:
        checked.half = 0.9 * checked.half + v
    return checked.held


# ---- each round is made


@each
def fills_up(x: Any, a: Any) -> Any:
    window: Any = deque(maxlen=30)
    total = 0.0 * a
    for v in x:
        window.append(v * a)
        if len(window) == 30:
            total = 0.5 * total + sum(window)
    return total + a


@each
def in_one_side_alone(x: Any, a: Any) -> Any:
    """What a side appends, or makes of a variable that holds an object, isn't one value."""
    queue, point = deque([a], maxlen=2), Point(a, a)
    for v in x:
        if np.sin(40.0 * v) > 0.0:
            queue.append(v)
            point = Point(point.q, v)
    return sum(queue) + point.p * point.q


CREATED: list[Any] = []


class Counting:
    count = 0

    def __init__(self, a: Any) -> None:
        Counting.count += 1
        self.a = a * Counting.count


@each
def of_the_class(x: Any, a: Any) -> Any:
    Counting.count, total = 0, 0.0 * a
    for v in x:
        total += Counting(v).a
    return total + a


TABLE = [[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]]


@each
def rows_of_the_outside(x: Any, a: Any) -> Any:
    row, total = TABLE[0], 0.0 * a
    for k in range(len(x)):
        total = 0.5 * total + x[k] * row[1]
        row = TABLE[min(k, 2)]
    return total * row[0] + a


@each
def handed_to_a_function(x: Any, a: Any) -> Any:
    """What holds the item is another dict from the second round on; the caller has the first."""

    def follow(state: dict[str, Any]) -> Any:
        total = 0.0 * a
        for v in x:
            state["m"] = 0.5 * state["m"] + v
            total = total + state["m"]
            state = {"m": total}
        return total

    state = {"m": a}
    return follow(state) + 3.0 * state["m"]


class Again(Point):
    """An `__init__` whose object is another one by then."""

    def __init__(self, p: Any, q: Any, point: Any) -> None:
        self = point
        self.p, self.q = p, q


@each
def not_the_object_that_is_made(x: Any, a: Any) -> Any:
    point, total = Point(a, a), 0.0 * a
    for v in x:
        Again(v * a, total, point)
        total = 0.5 * total + point.p
    return total + point.p * point.q


@each
def trading_items(x: Any, a: Any) -> Any:
    h = [np.ones(2) * a, np.ones(2) * (2.0 * a)]
    kept = h[0]
    for v in x:
        h[0], h[1] = h[1], h[0]
        h[0][0] = h[0][0] * 0.5 + v
    return np.sum(h[0]) + 2.0 * np.sum(h[1]) + 5.0 * np.sum(kept)


@each
def by_a_traced_place(x: Any, a: Any) -> Any:
    h = [a, 2.0 * a, 3.0 * a]
    for k in range(len(x)):
        h[k % 3] = h[k % 3] * 0.5 + x[k]
    return h[0] + 2.0 * h[1] + 3.0 * h[2]


@each
def handled(x: Any, a: Any) -> Any:
    h = [a]
    try:
        for v in x:
            h[0] = h[0] + v
            h[1] = v
    except IndexError:
        h[0] = h[0] * 3.0
    return h[0]


class Held:
    def __init__(self, state: Any) -> None:
        self.state = state


@each
def out_of_sight(x: Any, a: Any) -> Any:
    """The outer loop's variables don't reach what the inner one's do."""
    held_by = Held([a, 0.0 * a])

    def inner(v: Any) -> None:
        state = held_by.state
        for k in range(12):
            state[0] = 0.5 * state[0] + v * k
            state[1] = np.sin(state[0])

    for v in x:
        inner(v)
    return held_by.state[0] + held_by.state[1]


@pytest.mark.every(16)
@by_program(*once, *each)
def test_values_and_slopes(f: Program) -> None:
    held(f)


@pytest.mark.every(8)
@by_program(*once)
def test_one_round_is_traced(f: Program) -> None:
    sides_of.cache_clear()  # what traces of other tests have found out about the code
    lengths = [len(trace(f, *given)[1].calls) for given in (CALLS[0], CALLS[2])]
    assert lengths[0] == lengths[1] < 40
    assert not sides_of(f.__code__).unrolled


GLOBAL = {"h": 1.0, "k": [0.5, 0.25]}


def outside(x: Any, a: Any) -> Any:
    GLOBAL["h"] = a
    GLOBAL["k"][0] = a * a
    for v in x:
        GLOBAL["h"] = 0.5 * GLOBAL["h"] + v
        GLOBAL["k"][0] = GLOBAL["k"][0] * 0.9 + GLOBAL["h"]
    return GLOBAL["h"] * GLOBAL["k"][0]


def test_what_is_outside_holds_what_each_call_leaves() -> None:
    derived = value_and_grad(outside, (0, 1), compile="never")
    for x, a in CALLS[:3]:
        expected = outside(x, a)
        left = GLOBAL["h"], GLOBAL["k"][0]
        assert derived(x, a)[0] == pytest.approx(expected)
        np.testing.assert_allclose([GLOBAL["h"], GLOBAL["k"][0]], np.array(left, float))


# ---- random programs


def written(seed: int) -> str:
    """A program whose loops set variables, and items of lists and dicts, in nests and functions."""
    rng = random.Random(seed)
    places = ["u", "v", "h[0]", "h[1]", "h[-1]", 'd["p"]', 'd["q"]', "n[0][1]", "n[1][0]", "e[0]"]
    places += ["o.p", "o.q", "s.p.p", "s.q[0]", "q[0]", "q[-1]"]
    lines = ["def f(x, a):", "    u, v = 1.0 * a, 0.5 + 0.0 * a", "    h = [a, 0.3 * a, a * a]"]
    lines += ["    o, q, c = Point(a, 0.2), deque([a, 0.1, a], maxlen=3), 0.3 * a"]
    apart = rng.random() < 0.5
    lines += ["    s = State(Point(0.5 * a, a), [a])" if apart else "    s = State(o, h)"]
    lines += ['    d = {"p": 0.2 * a, "q": 1.0 + 0.0 * a}', "    n = [[a, a], [0.1 * a, a]]"]
    lines += ["    e = h" if rng.random() < 0.5 else "    e = [0.7 * a]"]
    lines += ["    kept = (h[0], n[1], d)"]
    lines += ["    def g(s, y):", "        s[0] = 0.5 * s[0] + y", "        return s[0] * 0.3"]
    lines += ["    def m(s, y):", "        nonlocal c", "        c = 0.8 * c + y"]
    lines += ["        if y > 0.2:", "            s.p = 0.5 * s.q", "            return c"]
    lines += ["        s.q = np.sin(s.p) * y", "        r = [y, c]", "        r[0] = s.q * r[1]"]
    lines += ["        return r[0]"]

    def read() -> str:
        return rng.choice([*places, "w", "w", "a"])

    def statement(indent: str, depth: int) -> None:
        kind = rng.random()
        if kind < 0.54 or depth > 2:
            to, y, z = rng.choice(places), read(), read()
            form = rng.choice(["0.5 * {} + 0.3 * {}", "np.sin({}) * {}", "np.tanh({} - {})"])
            lines.append(f"{indent}{to} = {form.format(y, z)}")
        elif kind < 0.60:
            a, b = rng.sample(places, 2)
            lines.append(f"{indent}{a}, {b} = {b}, 0.9 * {a}")
        elif kind < 0.66:
            lines.append(f"{indent}u = g({rng.choice(['h', 'e', 'n[0]', '[a]'])}, {read()})")
        elif kind < 0.72:
            lines.append(f"{indent}v = m({rng.choice(['o', 's.p'])}, {read()})")
        elif kind < 0.78:
            change = rng.choice(["q.append({})", "q.rotate(1); u = {}", "h.append({}); h.pop(0)"])
            lines.append(indent + change.format(read()))
        elif kind < 0.88:
            lines.append(f"{indent}if {read()} > {rng.choice(['0.1', 'a', '-5.0'])}:")
            statement(indent + "    ", depth + 1)
            if rng.random() < 0.5:
                lines.append(f"{indent}else:")
                statement(indent + "    ", depth + 1)
        elif kind < 0.92:
            new = rng.choice(["h = [u, v, h[0]]", 'd = {"p": u, "q": v}', "e = [u]", 'd["r"] = u'])
            new = rng.choice([new, "o = Point(u, o.q)", "s = State(o, e)", "q = deque([u, v], 3)"])
            lines.append(f"{indent}{new}")
        else:
            lines.append(f"{indent}for k in range({rng.choice([2, 5, 12])}):")
            for _ in range(rng.randint(1, 2)):
                statement(indent + "    ", depth + 1)

    for _ in range(rng.randint(1, 2)):
        lines.append("    for w in x:")
        for _ in range(rng.randint(2, 4)):
            statement("        ", 1)
        if rng.random() < 0.2:
            lines += [f"        if abs({read()}) > 1.5:", "            break"]
    lines.append("    total = u + v + sum(h) + sum(d.values()) + sum(n[0]) + sum(n[1]) + sum(e)")
    lines.append("    total += c + o.p * o.q + s.p.q + s.q[0] + sum(q)")
    lines.append("    return total + kept[0] + sum(kept[1]) + kept[2]['p']")
    return "\n".join(lines)


@pytest.mark.every(24)
@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed: int) -> None:
    text, space = written(seed), {"np": np, "Point": Point, "State": State, "deque": deque}
    exec(text, space)
    f: Any = space["f"]
    derived = value_and_grad(f, (0, 1), compile="never")
    for x, a in (*CALLS[:4], *CALLS[:2]):
        expected = f(x, a)
        value, (slopes, slope) = derived(x, a)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-11), text
        along = np.cos(np.arange(len(x)))
        found = [
            (f(x + h * along, a + h) - f(x - h * along, a - h)) / (2 * h) for h in (1e-6, 1e-7)
        ]
        if found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-4):  # it is smooth there
            given = slopes @ along + slope
            assert given == pytest.approx(found[0], rel=2e-3, abs=1e-4), text
