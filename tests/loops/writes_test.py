"""Branches that write at places which rounds say: one round is traced for all."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import pipeline, trace, value_and_grad

SIZE, MOST = 12, 40


def one_side(A):
    y = A[0].copy()
    for t in range(1, len(y)):
        if A[1, t] > 0:
            y[t] = 0.5 * y[t - 1] + A[2, t]
    return np.sum(y**2)


def both_sides(A):
    y = np.zeros_like(A[0])
    for t in range(len(y)):
        if A[1, t] > 0:
            y[t] = A[0, t] ** 2
        else:
            y[t] = 0.1 * A[2, t]
    return np.sum(y**2)


def added_up(A):
    y = np.zeros_like(A[0])
    for i in range(len(A)):
        for j in range(len(A)):
            if A[i, j] > 0:
                y[i] += A[i, j] ** 2
            else:
                y[i] -= A[j, i]
    return np.sum(y**2)


def one_place_or_another(A):
    y = np.zeros_like(A)
    for i in range(len(A)):
        for j in range(len(A)):
            if A[i, j] > 0:
                y[i, j] = A[i, j] ** 2
            else:
                y[j, i] = np.sin(A[i, j])
    return np.sum(y**2)


def places_that_are_one_on_the_diagonal(A):
    y = A.copy()
    for i in range(len(A)):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s = s - 0.1 * y[i, k] * y[j, k]
            if i == j:
                y[i, i] = np.exp(s)
            else:
                y[i, j] = s * y[j, j]
    return np.sum(np.sin(y))


def not_in_the_first_round(A):
    """There is no place before the first, to which only one side writes."""
    y = A[0].copy()
    for t in range(len(y)):
        if t > 0:
            y[t - 1] = y[t] * A[1, t]
    return np.sum(y**2)


def what_was_written_is_read(A):
    y = A[0].copy()
    for t in range(1, len(y)):
        if A[1, t] > 0:
            y[t] = 0.5 * y[t - 1]
            y[t] = np.sin(y[t]) + A[2, t]
    return np.sum(y**2)


def a_loop_in_a_side(A):
    s = 0.0
    for i in range(len(A)):
        if A[i, 0] > 0:
            for j in range(len(A)):
                s = s + np.sin(A[i, j])
        else:
            s = 0.5 * s
    return s


PROGRAMS = (
    one_side,
    both_sides,
    added_up,
    one_place_or_another,
    places_that_are_one_on_the_diagonal,
    not_in_the_first_round,
    what_was_written_is_read,
    a_loop_in_a_side,
)
each = pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)


def matrices():
    rng = np.random.default_rng(5)
    A, B = rng.standard_normal((2, SIZE, SIZE)) * 0.6
    return A, B, -A, abs(B), np.ones((SIZE, SIZE)) - 2 * np.eye(SIZE)


def held(f, derivative):
    for A in matrices():
        value, slope = derivative(A)
        assert value == pytest.approx(f(A), rel=1e-12)
        along = np.cos(np.arange(A.size)).reshape(A.shape)
        ends = [f(A + h * along) for h in (1e-6, -1e-6)]
        assert np.sum(slope * along) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)


@pytest.mark.every(2)
@each
def test_one_round_is_traced(f, monkeypatch):
    recorded = []
    rolled = pipeline.rolled

    def noted(tape, *args, **kwargs):
        recorded.append(len(tape.calls))
        return rolled(tape, *args, **kwargs)

    monkeypatch.setattr(pipeline, "rolled", noted)
    held(f, value_and_grad(f, compile="never"))
    assert max(recorded) < MOST


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [one_place_or_another, added_up, one_side], ids=lambda f: f.__name__)
def test_compiled(f):
    held(f, value_and_grad(f, compile="always"))


# ---- rows of parts of arrays


def rows_of_a_part(A):
    s = A[0]
    for row, before in zip(A[1:], A[:-1], strict=False):
        s = np.tanh(s + row) + np.cos(s) * before + np.sin(row) * s
    return np.sum(s)


def rows_that_are_written_to(A):
    B, s = A.copy(), 0.0
    for row in B[::-1]:
        s = np.sin(s + np.sum(np.cos(row)))
        row[1] = s
    return s + np.sum(B**2)


def the_array_is_written_to(A):
    B, s = A.copy(), 0.0
    for row in B[1:]:
        s = np.sin(s + np.sum(np.cos(row)))
        B[2] = s
    return s + np.sum(B**2)


def a_row_is_kept(A):
    B, kept, s = A.copy(), A[0], 0.0
    for row in B[1:]:
        s, kept = s + np.sum(kept * np.sin(row)), row
    B[-1] = 0.5
    return s + np.sum(kept)


@pytest.mark.parametrize(
    "f",
    [rows_that_are_written_to, the_array_is_written_to, a_row_is_kept],
    ids=lambda f: f.__name__,
)
def test_rows_are_parts_of_the_array(f):
    held(f, value_and_grad(f, compile="never"))


def test_a_loop_over_rows_of_a_part_is_traced_for_one_round(monkeypatch):
    test_one_round_is_traced(rows_of_a_part, monkeypatch)


# ---- variables that begin as a part of an array


def begins_as_a_row(A):
    s, kept = A[0], [A[0]]
    for row in A[1:]:
        s = np.tanh(s + row) + np.cos(s) * row + np.sin(row) * s
        kept.append(s)
    return np.sum(np.stack(kept) ** 2)


def two_names_for_a_row(A):
    B = A.copy()
    first = s = B[0]
    for row in A[1:]:
        s = np.tanh(s + row) * first
    B[0] = 0.5
    return np.sum(s * first)


def what_it_was_a_part_of_is_written_to(A):
    B = A.copy()
    s = B[0]
    for row in A[1:]:
        B[0] = row * 0.5
        s = np.tanh(s + row)
    return np.sum(s + B[0])


def it_is_written_to(A):
    B = A.copy()
    s = B[0]
    for row in A[1:]:
        s += np.sin(row)
        s = s * 0.5
    return np.sum(s * B[0])


def it_stays_where_nothing_is_set(A):
    B, s = A.copy(), A.copy()[0]
    last = B[1]
    for row in A:
        s = s + np.sin(row) * last
        if row[0] > 100.0:
            last = row
    B[1] = 0.25
    return np.sum(s * last)


def kept_by_a_round(A):
    B, state = A.copy(), {"last": A[3]}
    s = B[0]
    for row in A[1:]:
        state["last"] = s
        s = np.tanh(s * row)
    B[0] = 0.5
    return np.sum(s + state["last"])


def appended_before_it_is_set(A):
    B, kept = A.copy(), []
    s = B[0]
    for row in A[1:]:
        kept.append(s)
        s = np.tanh(s + row)
    B[0] = 0.25
    return np.sum(np.stack(kept) * A[1:]) + np.sum(s)


@pytest.mark.parametrize(
    "f",
    [
        begins_as_a_row,
        two_names_for_a_row,
        what_it_was_a_part_of_is_written_to,
        it_is_written_to,
        it_stays_where_nothing_is_set,
        kept_by_a_round,
        appended_before_it_is_set,
    ],
    ids=lambda f: f.__name__,
)
def test_a_variable_that_begins_as_a_part_shows_it(f):
    held(f, value_and_grad(f, compile="never"))


def test_a_loop_whose_variable_begins_as_a_part_has_all_rounds():
    tape = trace(begins_as_a_row, matrices()[0])[1]
    assert "tanh" not in [call.primitive.name for call in tape.calls]


def test_what_rounds_fill_is_not_filled_before():
    assert "= 0.0" not in trace(begins_as_a_row, matrices()[0])[1].source.partition("for i")[0]
    assert "broadcast_to" not in str(trace(begins_as_a_row, matrices()[0])[1])
