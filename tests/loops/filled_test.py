"""Lists that grow in the rounds of a loop that read them: one round is traced for all."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import pipeline, trace, value_and_grad

SIZE, MOST = 24, 30


def two_back(A):
    ys = [A[0, 0], A[0, 1]]
    for t in range(2, len(A)):
        ys.append(0.5 * ys[-1] - 0.3 * ys[-2] + A[0, t])
    return np.mean(np.stack(ys) ** 2)


def substitution(A):
    x = []
    for i in range(len(A)):
        s = A[i, 0]
        for j in range(i):
            s = s - 0.2 * A[i, j] * x[j]
        x.append(s / (2.0 + A[i, i] ** 2))
    return np.sum(np.stack(x) ** 2)


def orthogonal(A):
    columns = []
    for k in range(A.shape[1]):
        v = A[:, k]
        for q in columns:
            v = v - (q @ v) * q
        columns.append(v / np.sqrt(v @ v))
    return np.sum(np.stack(columns) * A.T)


def a_number_first(A):
    s = [0.0]
    for v in A[0]:
        s.append(s[-1] + v * len(s))
    return s[-1] * s[3]


def a_state_that_a_variable_holds(A):
    hs = [np.tanh(A[0])]
    for t in range(1, len(A)):
        h = np.tanh(A[t] + 0.2 * hs[-1] * hs[0])
        hs.append(h)
    return np.sum(np.stack(hs) * h)


def sums_so_far(A):
    ys = [A[0, 0]]
    for t in range(1, len(A)):
        ys.append(np.sin(A[0, t]) + 0.02 * sum(ys) + 0.1 * np.max(ys))
    return sum(ys)


def differences(A):
    ys = [A[0, 0]]
    for i in range(1, len(A)):
        s = 0.0
        for j in range(len(ys)):
            s = s + ys[j] * ys[-j - 1] * A[i, j]
        ys.append(np.tanh(s + A[0, i]))
    return np.sum(np.array(ys))


PROGRAMS = (
    two_back,
    substitution,
    orthogonal,
    a_number_first,
    a_state_that_a_variable_holds,
    sums_so_far,
    differences,
)


# Programs in which another name, or another method, sees what is in the list


def another_name(A):
    ys = zs = [A[0, 0]]
    for t in range(1, len(A)):
        ys.append(ys[-1] * 0.5 + A[0, t])
    return sum(zs)


def a_name_that_a_round_gives(A):
    ys, zs = [A[0, 0]], None
    for t in range(1, len(A)):
        ys.append(ys[-1] * 0.5 + A[0, t])
        zs = ys
    return sum(zs) + len(zs)


def an_entry_is_written_to(A):
    ys = [A[0].copy()]
    for t in range(1, len(A)):
        y = np.sin(A[t]) + ys[-1] * 0.1
        ys.append(y)
        y *= 0.5
    return np.sum(np.stack(ys) ** 2)


def a_later_round_writes_to_an_entry(A):
    ys, y = [A[0].copy()], A[1].copy()
    for t in range(1, len(A)):
        y += A[t] * 0.1 * ys[0]
        ys.append(y)
    return np.sum(np.stack(ys) ** 2)


def what_an_entry_is_is_written_to(A):
    B = A.copy()
    ys = [B[0]]
    for t in range(1, len(A)):
        ys.append(np.sin(ys[0] + A[t]))
        B[0, 0] = t
    return np.sum(np.stack(ys) ** 2)


def entries_are_set(A):
    ys = [A[0, 0]]
    for t in range(1, len(A)):
        ys[-1] = ys[-1] * 0.5
        ys.append(ys[-1] + A[0, t])
    return sum(ys)


def some_are_taken_out(A):
    ys = [A[0, 0], A[0, 1]]
    for t in range(2, len(A)):
        ys.append(ys[0] * 0.5 + A[0, t])
        del ys[0]
    return sum(ys)


def two_in_a_round(A):
    ys = [A[0, 0]]
    for t in range(1, len(A)):
        ys.append(ys[-1] * 0.5)
        ys.append(ys[-1] + A[0, t])
    return sum(ys)


def one_in_some_rounds(A):
    ys = [A[0, 0]]
    for t in range(1, len(A)):
        if A[0, t] > 0:
            ys.append(ys[-1] * 0.5 + A[0, t])
    return sum(ys)


def behind_the_loop(A):
    ys, h = [np.sin(A[0])], A[0]
    for t in range(1, len(A)):
        h = np.sin(A[t]) + 0.1 * ys[-1]
        ys.append(h)
    h += 1.0
    ys[-1][0] = 0.25
    return np.sum(np.stack(ys) ** 2) + np.sum(h)


OTHERS = (
    another_name,
    a_name_that_a_round_gives,
    an_entry_is_written_to,
    a_later_round_writes_to_an_entry,
    what_an_entry_is_is_written_to,
    entries_are_set,
    some_are_taken_out,
    two_in_a_round,
    one_in_some_rounds,
    behind_the_loop,
)


def arrays():
    rng = np.random.default_rng(3)
    A = rng.standard_normal((SIZE, SIZE)) * 0.6
    return A, -A[::-1], rng.standard_normal((9, 9)), A[:3, :3]


def held(f, derivative):
    for A in arrays():
        value, slope = derivative(A)
        assert value == pytest.approx(f(A), rel=1e-11)
        along = np.cos(np.arange(A.size)).reshape(A.shape)
        ends = [f(A + h * along) for h in (1e-6, -1e-6)]
        slack = 1e-7 * np.sum(np.abs(slope))
        assert np.sum(slope * along) == pytest.approx((ends[0] - ends[1]) / 2e-6, 1e-5, slack)


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [*PROGRAMS, *OTHERS], ids=lambda f: f.__name__)
def test_what_is_read_is_what_was_appended(f):
    held(f, value_and_grad(f, compile="never"))


@pytest.mark.every(3)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_compiled(f):
    held(f, value_and_grad(f, compile="always"))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_one_round_is_traced(f, monkeypatch):
    recorded = []
    rolled = pipeline.rolled

    def noted(tape, *args, **kwargs):
        recorded.append(len(tape.calls))
        return rolled(tape, *args, **kwargs)

    monkeypatch.setattr(pipeline, "rolled", noted)
    trace(f, arrays()[0])
    # The first trace of `np.stack` reads each entry; all rounds would be four times as many calls.
    assert max(recorded) < MOST + SIZE + 40 * (f is sums_so_far)


def test_the_list_is_the_array_that_rounds_fill():
    names = [call.primitive.name for call in trace(substitution, arrays()[0])[1].calls]
    assert names.count("loop") == 1
    assert "concatenate" not in names


def test_what_is_known_to_be_there_is_not_guarded():
    assert "guard" not in str(trace(substitution, arrays()[0])[1])


def middle(x, k):
    ys = [x[0]]
    for i in range(1, len(x)):
        ys.append(np.sin(ys[k[i]]) + x[i])
    return ys[-1]


def test_an_entry_that_is_not_there_is_pythons_error():
    x, g = np.linspace(0.1, 0.9, 20), value_and_grad(middle, compile="never")
    places = np.arange(20) // 2
    assert g(x, places)[0] == pytest.approx(middle(x, places), rel=1e-13)
    later = places.copy()
    later[12] = 13
    for f in (middle, g):
        with pytest.raises(IndexError):
            f(x, later)
    assert g(x, places)[0] == pytest.approx(middle(x, places), rel=1e-13)


def test_nan_in_entries_that_no_round_reads():
    def f(x):
        ys = [x[0]]
        for i in range(1, len(x)):
            ys.append(0.5 * ys[0] + x[i] if i else x[i])
        return ys[1] + ys[-1]

    x = np.linspace(0.1, 0.9, 20)
    x[9] = np.nan
    value, slope = value_and_grad(f, compile="never")(x)
    assert value == pytest.approx(f(x), rel=1e-13)
    assert np.isfinite(slope).all()


def gone_through(x, start):
    """A list that inner rounds go through, from a variable of their own each."""
    done = [*start]
    for i in range(len(x)):
        s = x[i]
        for j in range(len(done)):
            s = s - 0.01 * done[j] * x[i - j]
        done.append(np.sin(s))
    return done[-1] + done[-2]


def looked_back(x, start):
    """Some rounds of it begin with what these rounds make."""
    done = [*start]
    for i in range(len(x)):
        s = x[i]
        for j in range(max(0, i - 6), i + 1):
            s = s - 0.01 * done[j] * done[-1 - j // 2]
            done[-1] = s * 0.5
        done.append(np.sin(s))
    return done[-1] + done[-2]


@pytest.mark.every(3)
@pytest.mark.parametrize("f", [gone_through, looked_back], ids=lambda f: f.__name__)
@pytest.mark.parametrize("first", [1, 2, 5])
def test_lists_that_begin_with_plain_numbers(f, first):
    x, start = np.cos(np.arange(24)), [*np.linspace(0.1, 0.9, first)]
    value, slope = value_and_grad(f, compile="never")(x, start)
    assert value == pytest.approx(f(x, start), rel=1e-12)
    along = 1e-6 * np.sin(np.arange(24))
    ends = f(x + along, start) - f(x - along, start)
    assert slope @ along == pytest.approx(ends / 2, rel=1e-5)
