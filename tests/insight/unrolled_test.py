"""Why loops of a program aren't loops of the tape: one reason each, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad
from tapegrad import explain
from tapegrad.optimize import repetition

X = np.arange(1.0, 101.0)
ORDER = np.random.default_rng(0).permutation(40)
UNEVEN = [int(k) % 5 for k in ORDER]


def step(x, k):
    return np.sin(x) * k


def few(x):
    for k in range(3):
        x = np.sin(x) * k
    return np.sum(x)


def few_in_a_function(x):
    for k in range(3):
        x = step(x, k)
    return np.sum(x)


def few_in_a_loop(x):
    s = 0.0
    for i in range(20):
        for j in range(3):
            s = s + np.sin(x[i] * j)
    return s


def few_without_a_number(x):
    s, k = 0.0, 0
    while k < 3:
        s = s + np.sin(x[k]) * np.sin(x[k + 1])
        k += 1
    return s


def few_calls(x):
    s = 0.0
    for k in range(5):
        s = s + np.sin(x[k])
    return s


def few_calls_of_numpy(x):
    s = 0.0
    for k in range(9):
        s = s + np.linalg.det(np.outer(x[:3], x[:3]) + k)
    return s


def shapes(x):
    h = x
    for k in UNEVEN:
        h = np.concatenate([h[k:], np.sin(h[: 2 * k])])
        print(end="")
    return np.sum(h)


def condition(x):
    s = 0.0
    for k in range(40):
        if x[(7 * k) % 11] > 5.0:
            s = s + np.sin(x[k])
        else:
            print(end="", flush=True)
            s = s + np.cos(x[k])
    return s


def index(x):
    rows = [np.full(300, float(k)) * x[0] for k in range(40)]
    s = 0.0
    for k in range(40):
        s = s + np.sum(x[:3]) * np.sum(rows[int(20 + 19 * np.sin(x[k]))] * s)
        print(end="")
    return s


def other_calls(x):
    for k in range(60):
        if k in (3, 17, 40, 41):
            x = np.cos(x)
        x = step(x, k)
        print(end="")
    return np.sum(x)


def other_operands(x):
    s, before = x[0], [x[0]] * 40
    for k in range(40):
        a = np.sin(x[k])
        s = s + a * before[(k * k) % 7]
        before[(k * 3) % 11] = s * a
        print(end="")
    return s


def other_steps(x):
    s = 0.0
    for k in range(40):
        s = s + np.sin(x[(k * k) % 97])
        print(end="")
    return s


def other_numbers_of_rounds(x):
    s = 0.0
    for k in range(40):
        for _ in [0] * ((k * k) % 7):
            s = s + np.sin(x[k])
            print(end="")
        s = s * x[k]
    return s


def other_sides(x):
    out = []
    for k in ORDER:
        if k % 3 == 0:
            out.append(np.tanh(x[k]))
        elif k % 3 == 1:
            out.append(np.sqrt(1.0 + x[k] * x[k - 1]))
        else:
            out.append(abs(x[k]))
        print(end="")
    return sum(out)


ORDER = [(k * 37) % 90 for k in range(90)]
WEIGHTS = [np.eye(4) * k for k in range(1, 6)]


def in_a_list(x):
    h = x[:4]
    for k in tapegrad.range(5):
        h = np.tanh(WEIGHTS[k] @ h)
    return np.sum(h)


def more_than_arrays(x):
    s, seen = 0.0, {}
    for k in tapegrad.range(5):
        s = s + x[k]
        seen[k * k] = s
        print(end="")
    return s


SHORT = "In tapegrad.range(...) it is a loop of the tape, however short it is"


@pytest.mark.parametrize(
    ("f", "line", "why"),
    [
        (few, "`for k in range(3):`", ["3 times. Fewer than 4 rounds are faster", SHORT]),
        (few_in_a_function, "`for k in range(3):`", ["3 times. Fewer than 4 rounds", SHORT]),
        (few_in_a_loop, "`for j in range(3):`", ["3 times. Fewer than 4 rounds", SHORT]),
        (few_without_a_number, "`while k < 3:`", ["3 times. Fewer than 4 rounds are faster"]),
        (few_calls, "`for k in range(5):`", ["are 15 calls on the tape, and fewer than 64", SHORT]),
        (few_calls_of_numpy, "`for k in range(9):`", ["some of NumPy", "fewer than 256", SHORT]),
        (
            shapes,
            "`for k in UNEVEN:`",
            ["The shapes differ from round to round (unrolled_test.py:", "masked"],
        ),
        (
            condition,
            "`for k in range(40):`",
            ["`if x[(7 * k) % 11] > 5.0:` is False in round 0 and True in round 1. np.where"],
        ),
        (
            index,
            "`for k in range(40):`",
            ["An integer used as an index", "is 35 in round 0 and 37 in round 1. Arrays take a "],
        ),
        (
            other_calls,
            "`for k in range(60):`",
            ["60 times. cos at unrolled_test.py:", "`x = np.cos(x)` is in 4 of 60 rounds only"],
        ),
        (
            other_operands,
            "`for k in range(40):`",
            ["In round 6 unrolled_test.py:", "before[(k * k) % 7]` reads what was computed elsewh"],
        ),
        (
            other_steps,
            "`for k in range(40):`",
            ["In round 2 unrolled_test.py:", "takes another step through its array"],
        ),
        (
            other_numbers_of_rounds,
            "`for _ in [0] * ((k * k) % 7):`",
            ["another number of rounds each time, of 0 to 4"],
        ),
        (
            other_sides,
            "`for k in ORDER:`",
            ["90 times. None of its lines is run in each round. np.where of what the sides"],
        ),
        (
            in_a_list,
            "`for k in tapegrad.range(5):`",
            [
                "An integer used as an index",
                "`h = np.tanh(WEIGHTS[k] @ h)` isn't the same in all rounds. Arrays take a traced",
            ],
        ),
        (
            more_than_arrays,
            "`for k in tapegrad.range(5):`",
            ["One round doesn't stand for all: a round does more than to set variables"],
        ),
    ],
)
def test_why_a_loop_is_unrolled(f, line, why):
    (said,) = [x for x in explain(f, X).loops if "was unrolled" in x]
    assert f"{line} was unrolled: the tape has its lines" in said
    assert all(part in said for part in why), said
    assert said.endswith(SHORT) == (SHORT in why)


def test_a_loop_that_only_calls_functions_is_named_by_its_own_line():
    def f(x):
        for k in range(60):
            x = step(x, k)
            print(end="")  # so that it is found again on the tape
        return np.sum(x)

    (said,) = explain(f, X).loops
    assert "`for k in range(60):` is a loop of the tape, of up to 60 rounds" in said


def test_the_advice_helps():
    """What is said to make a loop of it does."""

    def ranged(x):
        for k in tapegrad.range(3):
            x = np.sin(x) * k
        return np.sum(x)

    def chosen(x):
        for k in range(60):
            x = np.where(np.isin(k, (3, 17, 40, 41)), np.cos(x), x)
            x = step(x, k)
            print(end="")
        return np.sum(x)

    def in_an_array(x):
        h, weights = x[:4], np.array(WEIGHTS)
        for k in tapegrad.range(5):
            h = np.tanh(weights[k] @ h)
        return np.sum(h)

    for f in (ranged, chosen, in_an_array):
        (said,) = explain(f, X).loops
        assert "is a loop of the tape" in said


def test_a_search_that_gives_up_says_so(monkeypatch):
    def f(x):
        s = 0.0
        for k in range(40):
            s = s + np.sin(x[k]) * x[k]
            print(end="")
        return s

    (said,) = explain(f, X).loops
    assert "is a loop of the tape, of up to 40 rounds" in said
    monkeypatch.setattr(repetition, "OPERANDS_EXAMINED", (10, 0))
    (said,) = explain(lambda x: f(x), X).loops
    assert "The search for equal rounds" in said and "gave up. tapegrad.scan" in said
