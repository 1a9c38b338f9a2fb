"""tapegrad.range: what Python's loop computes, of which one round is traced for all."""

import builtins
import functools

import numpy as np
import pytest

import tapegrad
from tapegrad import grad, jit, trace, value_and_grad
from tapegrad.primitives.loops import Loop

RNG = np.random.default_rng(14)
W = RNG.normal(size=(3, 3)) * 0.4
X = np.linspace(0.1, 1.0, 50)


class Model:
    def __init__(self, h):
        self.h = h


# ---- programs: of the range to use


def recurrent(over):
    def f(w, x):
        h, total = np.zeros(3), 0.0
        for t in over(len(x)):
            h = np.tanh(w @ h + x[t])
            total = total + np.sum(h * h)
        return total

    return f


def filled(over):
    def f(w, x):
        y = tapegrad.numpy.zeros(50)
        y[0] = w[0, 0]
        for t in over(1, 50):
            y[t] = 0.5 * y[t - 1] + x[t] * w[0, 1]
        return np.sum(y * y) + y[-1]

    return f


def downwards(over):
    def f(w, x):
        a, b = w[0], w[1]
        for t in over(49, -1, -2):
            a, b = b + 0.1 * a * x[t], a * 0.9
        return np.sum(a * b) * t

    return f


def containers(over):
    def f(w, x):
        state = {"p": w[0], "q": (w[1], 1.0 * w[0, 0])}
        rows = [w[0], w[1]]
        same = rows
        for t in over(50):
            p, (q, r) = state["p"], state["q"]
            state = {"p": p + 0.01 * q, "q": (q * 0.9 + x[t], r * 1.01)}
            rows[0] = rows[0] * 0.9 + rows[1] * x[t]
        return np.sum(state["p"]) + state["q"][1] * np.sum(state["q"][0]) + np.sum(same[0])

    return f


def plain_numbers(over):
    """Numbers that aren't traced, and change from round to round."""

    def f(w, x):
        decay, power, k = 0.9, 0.9, 0
        m = np.zeros(3)
        for t in over(50):
            m = 0.9 * m + 0.1 * w[0] * x[t]
            power = power * decay
            k += 2
            w = w - 0.01 * m / (1 - power) + x[k % 3]
        return np.sum(w * w) + k * 0.1 * w[0, 0] + power

    return f


def closure(over):
    def f(w, x):
        h = w[0]

        def step(t):
            nonlocal h
            h = np.tanh(h + x[t])

        for t in over(50):
            step(t)
        return np.sum(h) + t

    return f


def aliased(over):
    def f(w, x):
        a = w[0] * 1.0
        b, k = a, x[0]
        for t in over(20):
            a[1] = a[1] * 0.5 + x[t]
            k = k + b[1]
        return np.sum(a) * k

    return f


def nested(over):
    def f(w, x):
        total = 0.0
        for i in over(10):
            r = x[i]
            for j in over(2, 7):
                r = r * 0.9 + w[0, 0] * x[j + i]
            for _ in builtins.range(3):
                r = 0.5 * (r + 2.0 / (r + 1.0))
            total = total + r * r
        else:
            total = total + 1.0
        return total

    return f


def differentiated(over):
    def f(w, x):
        def g(u, x):
            s = u
            for t in over(10):
                s = s * 0.9 + np.sin(u * x[t])
            return s

        total = 0.0
        for i in builtins.range(3):
            total = total + grad(g)(x[i] * w[0, 0], x)
        return total

    return f


def the_other_end(over):
    """Indices that are negative in some rounds, and numbers of the loop as values."""

    def f(w, x):
        s = 0.0
        for t in over(40):
            s = s * 0.5 + x[t - 3] * x[-t] + x[39 - t] * t * w[0, 0]
        return s * t

    return f


def few(over):
    def f(w, x):
        s, y = 0.0, w[0]
        for t in over(1):
            s = s + x[t + 49] * w[0, 0]
        for t in over(0):
            y = y + x[t + 99]
        return s * np.sum(y)

    return f


def untraced(over):
    def f(w, x):
        total = 0
        for t in over(5):
            total += t * t
        return np.sum(w) * total

    return f


def shown_before(over):
    """A part of an array that rounds don't write to, and an attribute that they set."""

    def f(w, x):
        v, m, s = x[1:], Model(w[0]), 0.0
        for t in over(40):
            m.h = v[t] * w[0] * x[t]
            s = s + np.sum(m.h)
        return s

    return f


PROGRAMS = [
    recurrent,
    filled,
    downwards,
    containers,
    plain_numbers,
    closure,
    aliased,
    nested,
    differentiated,
    the_other_end,
    few,
    untraced,
    shown_before,
]


@pytest.mark.every(16)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_it_computes_what_pythons_loop_does(program, compile):
    f = value_and_grad(program(builtins.range), argnums=(0, 1), compile="never")
    df = value_and_grad(program(tapegrad.range), argnums=(0, 1), compile=compile)
    for x in (X, X[::-1] * 1.5):
        (value, slopes), (expected, right) = df(W, x), f(W, x)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        for a, b in zip(slopes, right, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_outside_of_a_trace_it_is_pythons(program):
    assert program(tapegrad.range)(W, X) == program(builtins.range)(W, X)


def test_second_derivatives():
    def along(over):
        f = recurrent(over)
        return grad(lambda s: np.sum(np.sin(grad(lambda u: f(W * u, X))(s))))(1.3)

    np.testing.assert_allclose(along(tapegrad.range), along(builtins.range), rtol=1e-10)


def test_a_tape_is_as_long_whatever_the_number_of_rounds():
    def f(h, n):
        for t in tapegrad.range(n):
            h = np.sin(h) + t
        return h

    texts = [str(trace(f, 0.5, n)[1]) for n in (50, 90)]
    assert texts[0].count("\n") == texts[1].count("\n")
    (loop,) = [c for c in trace(f, 0.5, 50)[1].calls if isinstance(c.primitive, Loop)]
    assert loop.primitive.most == 50


def test_it_is_a_loop_however_short_it_is():
    def f(over, h):
        for _ in over(3):
            h = np.sin(h)
        return h

    counts = [
        sum(isinstance(c.primitive, Loop) for c in trace(functools.partial(f, over), 0.5)[1].calls)
        for over in (tapegrad.range, builtins.range)
    ]
    assert counts == [1, 0]


def test_what_stays_the_same_isnt_carried():
    _, tape = trace(recurrent(tapegrad.range), W, X)
    (loop,) = [c for c in tape.calls if isinstance(c.primitive, Loop)]
    assert loop.primitive.carried == 2


def test_names_keep_what_they_held_before():
    """What a variable held before the loop is still there for who else holds it."""

    def f(x):
        first = x * 1.0
        kept, y = [first], first
        for _ in tapegrad.range(10):
            y = y * 0.9
        return np.sum(kept[0]) + 2.0 * np.sum(first) + np.sum(y)

    np.testing.assert_allclose(grad(f)(np.ones(2)), 3.0 + 0.9**10)


def test_plain_arrays_are_indexed_and_filled():
    def f(w):
        data, y = np.arange(20.0), np.zeros(20)
        before = data
        for t in tapegrad.range(1, 20):
            y[t] = 0.5 * y[t - 1] + data[t] * w
        assert data is before and type(data) is np.ndarray
        return np.sum(y * data)

    def expected(w):
        y = 0.0 * w
        total = y
        for t in builtins.range(1, 20):
            y = 0.5 * y + t * w
            total = total + y * t
        return total

    for compile in ("never", "always"):
        np.testing.assert_allclose(grad(f, compile=compile)(2.0), grad(expected)(2.0), rtol=1e-12)


def test_what_others_hold_is_filled_for_them_too():
    outside = np.zeros(20)

    def f(w):
        y = outside
        for t in tapegrad.range(20):
            y[t] = w
        return np.sum(outside)

    def part(w):
        whole = np.zeros(20)
        y = whole[2:]
        for t in tapegrad.range(18):
            y[t] = w
        return np.sum(whole)

    assert grad(f)(2.0) == 20.0
    np.testing.assert_array_equal(outside, 2.0)
    assert grad(part)(2.0) == 18.0


def test_what_the_function_has_made_is_filled_for_all_who_hold_it():
    def f(w):
        y = np.zeros(20)
        kept = [y]
        for t in tapegrad.range(20):
            y[t] = w * t
        return np.sum(kept[0])

    assert grad(f, compile="never")(2.0) == 190.0


# ---- rounds that do more, or don't do the same: the frame makes them all


def in_a_zip(over, x):
    s = 0.0
    for t, a in zip(over(50), x, strict=True):
        s = s + a * t
    return s


def in_a_comprehension(over, x):
    return sum([x[t] for t in over(50)]) + sum(x[t] * t for t in over(50))


def backwards_and_sliced(over, x):
    s = 0.0
    for t in reversed(over(30)):
        s = s * 0.5 + x[t]
    for t in over(40)[3:]:
        s = s * 0.5 + x[t]
    return s * (7 in over(9)) * len(over(5))


def shared(over, x):
    numbers, s = iter(over(100)), 0.0
    for t in over(6):
        for k in numbers:
            s = s + x[t] * k
            break
    return s * next(numbers)


def branching(over, x):
    s = 0.0
    for t in over(50):
        s = s + (x[t] if x[t] > 0.5 else 0.0)
    return s


def by_turns(over, x):
    s = 0.0
    for t in over(50):
        s = s + x[t] if t % 2 else s
    return s


def left_later(over, x):
    s = 0.0
    for t in over(50):
        s = s + x[t]
        if s > 3.0:
            break
    return s


class Counter:
    calls = 0


def counting(over, x):
    s, counter = 0.0, Counter()
    for t in over(9):
        counter.calls += 1
        s = s + x[t]
    return s * counter.calls


def counting_in_an_array(over, x):
    s, c, d = 0.0, {"n": np.zeros(1)}, np.zeros(2, np.uint64)
    for t in over(9):
        c["n"] += 1
        d[0] += 2
        s = s + x[t]
    return s * c["n"][0] * float(d[0])


def drawing(over, x):
    s, numbers = 0.0, iter([3.0, 4.0, 5.0])
    for t in over(3):
        s = s + x[t] * next(numbers)
    return s


def appending(over, x):
    ys = []
    for t in over(50):
        ys.append(x[t] * t)
    return sum(ys) * len(ys)


def keeping(over, x):
    model = Model(x * 1.0)
    for t in over(20):
        model.h = model.h * 0.9 + x[t]
        model.part = model.h[1:3]
    model.h[1] = 7.0
    return np.sum(model.h) * np.sum(model.part)


def growing(over, x):
    h = x[:1]
    for t in over(20):
        h = np.concatenate([h, x[t : t + 1]])
    return np.sum(h * h)


def caught_inside(over, x):
    s = 0.0
    for t in over(50):
        try:
            s = s + x[t + 3]
        except IndexError:
            s = s + 1.0
    return s


def written_and_inner(over, x):
    """A number's type changes, an array is filled, and an inner function reads it."""
    s, y, z = 0.0, np.zeros_like(x), np.zeros_like(x)
    for t in over(len(x)):
        s = s * 0.3 + x[t]
        y[t] = s
        z[t] = (lambda k: y[k] * 2.0)(t)
    return np.sum(y) + np.sum(z * z)


def in_a_scan(over, x):
    def step(carry, e):
        s = 0.0
        for k in over(3):
            s = s * 0.5 + e * x[k]
        return carry + s, None

    return tapegrad.scan(step, 0, x)[0]


def broken_off(over, x):
    s = 0.0
    for t in over(50):
        s = s + x[t]
        break
    return s


def broken_off_unused(over, x):
    for t in over(50):
        x[t] + 1.0
        break
    return np.sum(x)


def returned_from(over, x):
    for t in over(50):
        return x[t]


def left_by_an_error(over, x):
    s = x[:3]
    try:
        for _ in over(50):
            s = s + x
    except ValueError:
        pass
    return np.sum(s)


def writing_to_what_is_shown(over, x):
    y = x * 1.0
    part = y[:2]
    for t in over(50):
        y[0] = y[0] * 0.9 + x[t]
    return np.sum(y) + np.sum(part)


def swapping(over, x):
    a, b = x * 1.0, x * 2.0
    for t in over(50):
        a[:] = a * 0.5 + x[t]
        a, b = b, a
    return np.sum(a) * b[0]


def showing(over, x):
    part = x[:2]
    for t in over(40):
        part = x[t : t + 2] if t is None else x[3:5]
    return np.sum(part)


OTHERS = [
    in_a_zip,
    in_a_comprehension,
    backwards_and_sliced,
    shared,
    branching,
    by_turns,
    left_later,
    counting,
    counting_in_an_array,
    drawing,
    appending,
    keeping,
    growing,
    caught_inside,
    written_and_inner,
    in_a_scan,
    broken_off,
    broken_off_unused,
    returned_from,
    left_by_an_error,
    writing_to_what_is_shown,
    swapping,
    showing,
]


@pytest.mark.every(8)
@pytest.mark.parametrize("f", OTHERS, ids=lambda f: f.__name__)
def test_each_round_is_made_once_where_one_cant_stand_for_all(f):
    ours, plain = functools.partial(f, tapegrad.range), functools.partial(f, builtins.range)
    df = value_and_grad(ours, compile="never")
    for x in (X, X[::-1] * 1.3):
        value, slope = df(x)
        _, expected = value_and_grad(plain, compile="never")(x)
        np.testing.assert_allclose(value, plain(x), rtol=1e-12)
        np.testing.assert_allclose(slope, expected, rtol=1e-12)


def test_a_caught_error_of_a_round_is_seen_at_each_call():
    """The assumptions of a round that failed are lost with it."""

    def f(x, k):
        try:
            return tapegrad.scan(lambda c, t: (c + x[t + k], None), 0.0, np.arange(5))[0]
        except IndexError:
            return 7.0 * x[0]

    df = jit(f, compile="never")
    for k in (-80, 0, 46, 2, -80):
        np.testing.assert_allclose(df(X, k), f(X, k))


def test_an_error_of_the_round_is_the_users_own():
    def f(x):
        for t in tapegrad.range(50):
            x = x + np.ones(t + 7 - t)
        return np.sum(x)

    with pytest.raises(ValueError, match="broadcast"):
        grad(f)(X)

    def g(x):
        for t in tapegrad.range(60):
            x[t] + 1.0
        return np.sum(x)

    with pytest.raises(IndexError, match="out of bounds"):
        grad(g)(X)


def test_numbers_after_their_trace():
    kept = []

    def f(x):
        kept.append(tapegrad.range(3))
        return x * 2.0

    grad(f)(1.0)
    assert repr(kept[0]) == "tapegrad.range(0, 3)"
    assert list(kept[0]) == [0, 1, 2]
