"""Lists that branches append to: comprehensions with a filter, and what two sides append."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.loops.once import Programs, by_program

from tapegrad import trace, value_and_grad

N = 20
once = Programs()  # one trace serves each number of entries, but for none of them
numbered = Programs()  # each number of entries has a trace
any_number = Programs()  # they are traced as they are, and what they give is NumPy's


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@once
def filtered(x: Any, c: Any) -> Any:
    return np.sum(np.array([v * v for v in x if v > c]))


@once
def appended(x: Any, c: Any) -> Any:
    out = []
    for v in x:
        if v > c:
            out.append(v * c)
    return np.mean(out) + sum(out)


@once
def continued(x: Any, c: Any) -> Any:
    out = []
    for v in x:
        if v < c:
            continue
        root = np.sqrt(v - c + 1.0)
        out.append(root)
    return max(out) - min(out) + out[-1] * out[0]


@once
def parted(x: Any, c: Any) -> Any:
    large, small = [], []
    for v in x:
        if v > c:
            large.append(v * v)
        else:
            small.append(-v)
    return sum(large) * len(small) + np.sum(small) / len(large)


@once
def of_both_sides(x: Any, c: Any) -> Any:
    out = []
    for v in x:
        if v > c:
            out.append(v * c)
        else:
            out.append(np.sin(v))
    return out[3] + np.sum(np.array(out))


@once
def within(x: Any, c: Any) -> Any:
    out = []
    for v in x:
        if v > c:
            w = v * v
            if w < 1.0:
                out.append(w)
            else:
                out.append(v)
    return sum(out)


@once
def several_in_a_round(x: Any, c: Any) -> Any:
    out = []
    for v in x:
        out.append(v)
        if v > c:
            out.append(2.0 * v)
            out.append(v * c)
    return np.sum(np.array(out) * out[-1])


@once
def expression(x: Any, c: Any) -> Any:
    return sum(v * c for v in x if v > c) + max(v for v in x if v < c)


@once
def places(x: Any, c: Any) -> Any:
    kept = [i for i in range(len(x)) if x[i] > c]
    return sum(x[i] * c for i in kept) + np.sum(x[kept]) / len(kept)


@once
def of_a_filtered_list(x: Any, c: Any) -> Any:
    kept = [v for v in x if v > c]
    squares = [v * v for v in kept]
    total = 0.0
    for v in squares:
        total = 0.5 * total + v
    return total + sum(w for w in squares if w < 1.0)


@once
def passed_on(x: Any, c: Any) -> Any:
    def mean(values: Any) -> Any:
        return sum(values) / len(values) if values else 0.0

    return mean([v for v in x if v > c])


@once
def counted(x: Any, c: Any) -> Any:
    return c * sum(1 for v in x if v > c) / len([v for v in x if v < c])


@once
def asked(x: Any, c: Any) -> Any:
    far, near = any(abs(v) > 1.5 for v in x), all(abs(v) < 3.0 for v in x)
    return c * far + np.sum(x) * near


@once
def behind_others(x: Any, c: Any) -> Any:
    out = [x[0]]
    for v in x:
        if v > c:
            out.append(v)
    return np.sum(np.array(out) ** 2)


@once
def looked_into(x: Any, c: Any) -> Any:
    kept = [v for v in x if v > c]
    middle = len(kept) // 2
    ends = kept[1] + kept[-2] * kept[middle] + kept[kept.index(max(kept)) - 1]
    return ends + sum(kept[2:]) + sum(kept[-3:]) * sum(kept[::2]) + sum(kept[1:middle:2])


@once
def changed(x: Any, c: Any) -> Any:
    kept = [v * c for v in x if v > c]
    others = kept[:]
    kept.append(c * x[0])
    kept[0] = 2.0 * kept[0]
    same = kept
    same += others
    kept.extend([x[1] * c])
    kept.reverse()
    return (
        sum(i * v for i, v in enumerate(kept)) + kept.pop() * kept.pop(0) + sum(same) * sum(others)
    )


@once
def joined(x: Any, c: Any) -> Any:
    large, small = [v for v in x if v > c], [v for v in x if v < c]
    both = large + small + [x[0]]
    return sum(v * w for v, w in zip(large, small, strict=False)) + sum(
        i * v for i, v in enumerate(both, 2)
    )


@once
def in_order(x: Any, c: Any) -> Any:
    kept = [v for v in x if v < c]
    total = sum(i * v for i, v in enumerate(sorted(kept))) * c
    kept.sort()
    for v in reversed(kept):
        total = 0.5 * total + v
    return total + sum(w - v for v, w in pairwise(kept)) + kept.count(kept[1]) * c


@once
def by_numpys_functions(x: Any, c: Any) -> Any:
    kept = [v for v in x if v < c]
    between = np.median(kept) + np.percentile(kept, 30) * np.quantile(kept, 0.9)
    return between + np.cumsum(kept)[-1] + np.sum(np.diff(kept) ** 2) + np.sort(kept)[1]


@once
def gone_through_twice(x: Any, c: Any) -> Any:
    kept, total = [v for v in x if v > c], 0.0
    for v, w in zip(kept[1:], kept, strict=False):
        total = 0.9 * total + v * w
    for i, v in enumerate(kept):
        total = 0.9 * total + i * v
    return total


@once
def steps(x: Any, c: Any) -> Any:
    t, times = 0.1, []
    while t < 2.0:
        t = t + 0.1 + abs(x[0] * c)
        times.append(t)
    return sum(times) / len(times) + times[-1] * np.mean(times)


@once
def steps_that_choose(x: Any, c: Any) -> Any:
    t, times = 0.1, []
    while t < 3.0:
        t = t * 1.2 + 0.1 * abs(x[0] * c)
        if np.sin(9 * t) > c:
            times.append(t)
    return sum(times) + times[-1]


@any_number
def changed_in_rounds(x: Any, c: Any) -> Any:
    kept = [v for v in x if v > c]
    for v in x:
        if v > 1.0:
            kept.append(v * c)
    first = 0.0
    for v in x:
        first += kept[0] * v
    if x[0] > c:
        kept.sort()
    for v in kept[:]:
        if v > 0.5:
            kept.append(v)
    while kept[-1] > 0.7:
        kept.pop()
    return first + sum(i * v for i, v in enumerate(kept)) + len(kept) * c


@any_number
def changed_while_it_waits(x: Any, c: Any) -> Any:
    kept = [v for v in x if v > c]
    numbered, backwards = enumerate(kept), reversed(kept)
    kept.append(x[0])
    total = sum(i * v for i, v in numbered)
    kept.sort()
    return total + next(backwards) + sum(v for v in kept)


@any_number
def with_nan(x: Any, c: Any) -> Any:
    kept = [np.sqrt(v) for v in x if v > c - 0.5]
    return sum(i * v for i, v in enumerate(sorted(kept))) + np.median(kept)


@numbered
def of_pairs(x: Any, c: Any) -> Any:
    pairs = []
    for i, v in enumerate(x):
        if v > c:
            pairs.append((v, v * i))
    return sum(u * w for u, w in pairs)


@numbered
def arrays(x: Any, c: Any) -> Any:
    kept = []
    for v in x:
        if v > c:
            kept.append(v * np.array([1.0, c]))
    kept[0][0] = c
    return np.sum(np.array(kept) ** 2)


@once
def arrays_of_both_sides(x: Any, c: Any) -> Any:
    out = []
    for v in x:
        if v > c:
            out.append(v * np.array([1.0, c]))
        else:
            out.append(np.sin(v) + np.zeros(2))
    return np.sum(np.array(out)[1:] ** 2)


@any_number
def one_array_at_two_places(x: Any, c: Any) -> Any:
    out, w = [], np.zeros(2)
    for v in x:
        if v > c:
            w = v * np.array([1.0, c])
            out.append(w)
    w[0] = 2.0 * c
    return c + sum(np.sum(each) for each in out)


@numbered
def held_by_an_object(x: Any, c: Any) -> Any:
    class Kept:
        def __init__(self, values: Any) -> None:
            self.values = values

    kept = Kept([v for v in x if v > c])
    return sum(kept.values)


@any_number
def returned(x: Any, c: Any) -> Any:
    kept = [v for v in x if v > c]
    return (sum(kept) + c if type(kept) is list else 0.0) * (1.0 if isinstance(kept, list) else c)


@any_number
def largest(x: Any, c: Any) -> Any:
    try:
        return max(v for v in x if v > c)
    except ValueError:
        return 2.0 * c


@any_number
def by_a_key(x: Any, c: Any) -> Any:
    kept = {i: v for i, v in enumerate(x) if v > c}
    return c + sum(kept.values())


@any_number
def of_rows(x: Any, c: Any) -> Any:
    kept = [row * c for row in x.reshape(5, -1) if row[0] > c]
    return np.sum(np.array(kept)) + c


@any_number
def in_nests(x: Any, c: Any) -> Any:
    out = []
    for u in x[:4]:
        for v in x:
            if u * v > c:
                out.append(u * v)
    return c + sum(out) + sum([u * v for u in x[:4] for v in x if u > v])


class Pair(NamedTuple):
    first: Any
    second: Any


@any_number
def objects(x: Any, c: Any) -> Any:
    lists, pairs, texts = [], [], []
    for v in x:
        if v > c:
            lists.append([v, 1.0])
            pairs.append(Pair(v, c))
            texts.append("large")
    return sum(u * w for u, w in lists) + sum(p.first * p.second for p in pairs) + c * len(texts)


@any_number
def caught(x: Any, c: Any) -> Any:
    kept = [v for v in x if v > c]
    try:
        return kept + c
    except TypeError:
        return sum(kept) + c


@any_number
def by_other_ways(x: Any, c: Any) -> Any:
    def packed(*values: Any, scale: Any = 1.0) -> Any:
        return sum(values) * scale

    def doubled(values: Any) -> Any:
        for v in values:
            yield 2.0 * v

    kept = [v for v in x if v > c]
    later = lambda: len(kept)  # noqa: E731
    return packed(*kept) + packed(scale=len(kept[:2])) + sum(doubled(kept)) + later() * c


def arguments(k: int) -> tuple[Any, float]:
    rng = np.random.default_rng(k)
    return rng.standard_normal(N), float(rng.uniform(-0.3, 0.3))


def check(f: Any, derivative: Any, x: Any, c: float) -> None:
    try:
        expected = f(x, c)
    except Exception as error:
        with pytest.raises(type(error)):
            derivative(x, c)
        return
    value, (dx, dc) = derivative(x, c)
    assert value == pytest.approx(expected, rel=1e-13, nan_ok=True)
    if np.isnan(expected):
        return
    along = np.random.default_rng(3).standard_normal(len(x))
    ends = [f(x + h * along, c + h) for h in (1e-7, -1e-7)]
    differences = (ends[0] - ends[1]) / 2e-7
    assert dx @ along + dc == pytest.approx(differences, rel=1e-5, abs=1e-5, nan_ok=True)


@pytest.mark.every(24)
@by_program(*once, *numbered, *any_number)
def test_what_is_computed_is_numpys(f):
    derivative = value_and_grad(f, (0, 1), compile="never")
    for k in range(10):
        check(f, derivative, *arguments(k))
    x, c = arguments(11)
    check(f, derivative, -np.abs(x) - 1.0, abs(c))
    check(f, derivative, np.abs(x) + 1.0, abs(c))
    check(f, derivative, x[:5], c)


def traces_of(f: Any, numbers: range) -> int:
    """How many traces calls with these arguments make."""
    derivative = value_and_grad(f, (0, 1), compile="never")
    before = derivative.cache_info().traces
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAPEGRAD_LOG", "trace,guards")  # which a failure shows
        for k in numbers:
            derivative(*arguments(k))
    return derivative.cache_info().traces - before


@pytest.mark.every(6)
@by_program(*once)
def test_one_trace_serves_each_number_of_entries(f):
    assert traces_of(f, range(20, 21)) <= 1
    assert traces_of(f, range(21, 50)) == 0


@pytest.mark.every(4)
@by_program(*numbered)
def test_a_trace_serves_each_choice_of_so_many_entries(f):
    numbers = {int(sum(x > c)) for x, c in map(arguments, range(20, 60))}
    assert traces_of(f, range(20, 60)) <= len(numbers) < 20


@pytest.mark.every(8)
@by_program(
    filtered,
    parted,
    of_both_sides,
    arrays,
    of_a_filtered_list,
    places,
    looked_into,
    changed,
    joined,
    in_order,
    steps,
)
def test_compiled(f):
    derivative = value_and_grad(f, (0, 1), compile="always")
    for k in range(4):
        check(f, derivative, *arguments(k))


def test_lists_that_are_returned_are_lists():
    def kept(x: Any) -> Any:
        return [v for v in x if v > 0], [1 for v in x if v < 0]

    for k in range(6):
        x, _ = arguments(k)
        value, _ = trace(kept, x)
        assert value == kept(x)
        assert [type(part) for part in value] == [list, list]


def test_lists_that_are_left_are_lists():
    held: dict[str, Any] = {}

    def leaves(x: Any) -> Any:
        held["kept"] = [v for v in x if v > 0]
        return np.sum(x)

    derivative = value_and_grad(leaves, compile="never")
    for k in range(6):
        x, _ = arguments(k)
        derivative(x)
        assert type(held["kept"]) is list
        assert held["kept"] == [v for v in x if v > 0]


def test_the_tape_has_one_round():
    _, tape = trace(filtered, *arguments(0))
    assert len(tape.calls) < 20
    assert [call.primitive.name for call in tape.calls].count("loop") == 1


class Model:
    floor = 0.1


def test_a_first_round_that_stands_alone_has_no_entry_that_may_be_missing():
    """It does where it is the first to read the attribute of a closure's object."""
    model = Model()

    def made(model):
        def f(x):
            kept = []
            for v in x:
                if v > model.floor:
                    kept.append(v)
            model.last = tuple(kept)
            return len(kept) * x[0] + len([v for v in x if v > model.floor]) * x[1]

        return f

    f, rng = made(model), np.random.default_rng(0)
    g = value_and_grad(made(copied := Model()), compile="never")
    for x in [np.array([-1.0, -1, 2, -1, -1, 1]), *rng.normal(size=(20, 6))]:
        value, slope = g(x)
        assert value == f(x)
        count = np.sum(x > 0.1)
        np.testing.assert_array_equal(slope, [count, count, 0, 0, 0, 0])
        assert copied.last == model.last
    assert g.cache_info().traces <= 8
