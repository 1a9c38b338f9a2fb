"""x[k] in a function that is traced for all its calls: k stays a value, and chooses in each."""

import numpy as np
import pytest
from tests.loops.cond_test import EXPLICIT, UNROLLED
from tests.loops.explicit_test import same, total

import tapegrad.numpy as tnp
from tapegrad import cond, grad, gradcheck, jit, map, scan, value_and_grad, while_loop
from tapegrad.errors import TraceError, UnsupportedError

RNG = np.random.default_rng(15)
W = RNG.normal(size=(4, 5))
X = RNG.normal(size=(6, 3))
DOWN = np.arange(6)[::-1].copy()
JUMPS = np.array([0, 3, -1, 5, -6, 2, 2])

PROGRAMS = {}


def program(*args):
    def declare(f):
        PROGRAMS[f.__name__] = f, args
        return f

    return declare


@program(X, DOWN)
def reads(use, x, ks):
    return use.scan(lambda h, k: (h * x[k, 1] + np.sum(x[k - 1] * x[k]), h), 1.0, ks)


@program(X, JUMPS)
def reads_of_parts(use, x, ks):
    def step(h, k):
        return h + x[k] * x[k, ::2][..., ::-1][0] + x[1:][k // 2, :, None][:, 0], x.T[1:, k]

    return use.scan(step, np.zeros(3), ks)


@program(X, JUMPS)
def reads_of_several_axes(use, x, ks):
    return use.map(lambda k: x[k, k % 3] * x[..., k % 3][k] + np.sum(x[np.arange(3), k % 3]), ks)


@program(X, JUMPS)
def writes(use, x, ks):
    def step(x, k):
        x = x * 1.0
        x[k] = x[k] * 0.5 + x[(k + 1) % 6]
        x[k, 0] += x[k, 1]
        x[k, 1:] *= x[0, 0]
        return x, x[(k - 1) % 6, 2]

    return use.scan(step, x, ks)


@program(X, JUMPS)
def writes_in_place(use, x, ks):
    """Nothing else is done to the array: it is never copied."""

    def step(x, k):
        x[k] = np.sin(x[k]) + x[(k - 1) % 6]
        return x, None

    return use.scan(step, x * 1.0, ks)


@program(np.linspace(0.8, 1.3, 7), JUMPS)
def counts(use, x, ks):
    """An index that is carried, and one that is computed of values."""

    def step(state, k):
        at, total = state
        return (np.argmax(x * total), total + x[at] * x[k]), total

    return use.scan(step, (np.int64(2), 0.5), ks)


@program(W, np.array([0.3, 0.2, 0.9]))
def walks(use, table, start):
    """Where to go next stands in a table."""

    def body(state):
        k, x, n = state
        value = table[k, n % 5] * x
        return (k + 1) % 4, np.sin(value) + x, n + 1

    return use.while_loop(lambda s: s[2] < 9, body, (1, start, 0))


@program(X, JUMPS)
def in_a_conditional(use, x, ks):
    def step(h, k):
        return use.cond(k > 1, lambda: h + x[k], lambda: h * x[k + 1]), h[k % 3]

    return use.scan(step, np.ones(3), ks)


@program(X, DOWN)
def of_gradients(use, x, ks):
    def step(h, k):
        slope = grad(lambda h: np.sum(x[k] * h**2) + h[k % 3])(h)
        return h - 0.1 * slope, slope

    return use.scan(step, np.ones(3), ks)


@program(np.array([1.0, 4.0, 2.0, 8.0, 5.0, 7.0]), np.arange(6))
def looks_up(use, x, ks):
    """An array that isn't traced by itself."""
    weights = tnp.array([1.0, 10.0, 100.0])
    return use.map(lambda k: x[k] * weights[k % 3], ks)


by_name = pytest.mark.parametrize("name", PROGRAMS)


@by_name
def test_values(name):
    f, args = PROGRAMS[name]
    expected = f(UNROLLED, *args)
    same(f(EXPLICIT, *args), expected)
    derived = jit(lambda *args: f(EXPLICIT, *args), compile="never")
    same(derived(*args), expected)
    if args[1].dtype.kind == "i":
        args = args[0], np.roll(args[1], 1)
        same(derived(*args), f(UNROLLED, *args))
    assert derived.cache_info().traces == 1


@pytest.mark.every(12)
@by_name
@pytest.mark.parametrize("mode", ["never", "always"])
def test_gradients(name, mode):
    f, args = PROGRAMS[name]
    found = value_and_grad(lambda *args: total(f(EXPLICIT, *args)), compile=mode)
    expected = value_and_grad(lambda *args: total(f(UNROLLED, *args)), compile="never")
    for _ in range(2):
        same(found(*args), expected(*args), 1e-9)
        args = 0.9 * args[0], (np.roll(args[1], 1) if args[1].dtype.kind == "i" else args[1])
    assert found.cache_info().traces == 1
    gradcheck(lambda x: total(f(EXPLICIT, x, args[1])), args[:1])


@pytest.mark.every(8)
@by_name
def test_second_derivatives(name):
    f, args = PROGRAMS[name]

    def slope(use):
        inner = grad(lambda *args: total(f(use, *args)), compile="never")
        return grad(lambda *args: total(inner(*args)), compile="never")

    same(slope(EXPLICIT)(*args), slope(UNROLLED)(*args), 1e-8)


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("write", [False, True])
def test_out_of_bounds(mode, write):
    """In the first call or in a later one, forwards and where the derivative alone reads."""

    def step(x, k):
        if write:
            x[k] = x[k] * 2
            return x, None
        return x, x[k]

    def f(x, ks):
        x, ys = scan(step, x, ks)
        return np.sum(x) if write else np.sum(ys)

    x = np.ones(6)
    for first in (JUMPS, None):
        derived = grad(f, compile=mode)
        if first is not None:
            derived(x, first)
        for bad in (6, -7, 10**6):
            with pytest.raises(IndexError, match="out of bounds for axis 0 with size 6"):
                derived(x, np.array([0, 1, bad, 2, 1, 0, 0]))
        same(derived(x, JUMPS), grad(f, compile="never")(x, JUMPS))


def test_an_error_that_is_caught_is_a_branch():
    def step(h, k):
        try:
            return h * h[k], None
        except IndexError:
            return h + 1, None

    derived = jit(lambda x, ks: scan(step, x, ks)[0], compile="never")
    x = np.full(3, 2.0)
    for ks in ([5, 5], [0, 1], [7, 8]):
        same(derived(x, np.array(ks)), scan(step, x, np.array(ks))[0])
    with pytest.raises((TraceError, IndexError)):
        derived(x, np.array([5, 0]))


def test_parts_are_views():
    def step(x, k):
        x = x * 1.0
        row, column, cell = x[k], x.T[k % 3, 1:], x[..., k, 0]
        row[1:] += 5.0
        rows = x[:4]
        rows[k % 4][::-1][1] = row[0]
        column *= 2.0
        cell[...] = 7.0
        x[(k + 1) % 6, None] = column[0] + row[-1]
        return x, (row.copy(), column, x[k, 0, None])

    f, g = (lambda x, use=use: use.scan(step, x, JUMPS) for use in (EXPLICIT, UNROLLED))
    for x in (X, np.asfortranarray(X)):
        same(jit(f, compile="never")(x), g(x))
        same(grad(lambda x: total(f(x)))(x), grad(lambda x: total(g(x)))(x), 1e-9)


def test_parts_of_what_is_around_can_not_be_written_to():
    def f(x):
        def part(k):
            row = x[k]
            row[0] = 5.0
            return row

        return map(part, np.arange(3)), x

    with pytest.raises(UnsupportedError, match="written to inside an inner one"):
        jit(f)(X)


def test_elsewhere_an_integer_is_an_index_too():
    """Another one is no new trace, until something else assumes it."""
    derived = jit(lambda x, k: x[k] * 2, compile="never")
    assert derived(X[0], np.int64(1)) == 2 * X[0, 1]
    assert derived(X[0], np.int64(2)) == 2 * X[0, 2]
    assert derived(X[0], -1) == 2 * X[0, -1]
    assert derived.cache_info().traces == 2  # of NumPy's integers, and of Python's
    with pytest.raises(IndexError):
        derived(X[0], np.int64(len(X[0])))
    derived = jit(lambda x, k: x[k] * sum(range(k)), compile="never")
    assert [derived(X[0], k) for k in (2, 1)] == [X[0, 2], 0.0]


def test_in_the_code_an_index_is_read():
    derived = grad(lambda x, ks: total(writes_in_place(EXPLICIT, x, ks)), compile="never")
    derived(X, JUMPS)
    source = derived.tapes[0].source.split("_kernel(")[1].split("return 0")[0]
    assert "wrapped(ks[" in source and "_loop(" not in source
    # The array is copied once, and then written to where it is.
    assert source.count("= x[") == 1


def test_the_other_side_of_a_conditional():
    derived = value_and_grad(
        lambda x, k: cond(k < 3, lambda: x[k] ** 2, lambda: x[0] * k), compile="never"
    )
    x = np.array([1.0, 2.0, 3.0])
    for k, value in ((1, 4.0), (7, 7.0), (2, 9.0), (9, 9.0), (-1, 9.0)):
        assert derived(x, np.int64(k))[0] == value
    assert derived.cache_info().traces == 1


def test_python_lists_take_plain_integers():
    def f(x):
        return map(lambda k: [x, 2 * x][k], np.arange(2))

    with pytest.raises(TraceError, match="isn't 0 in all rounds"):
        jit(f)(2.0)
    assert while_loop(lambda s: s < 3, lambda s: s + [1, 2][s % 2], 0) == 3


LISTED = list(np.linspace(0.0, 5.0, 30))


def nearest(p):
    """Of a list of NumPy's floats, and of one of traced values."""
    gaps = [p[0] - place for place in LISTED]
    k = np.argmin(np.abs(gaps))
    return gaps[k] ** 2 + p[1] * LISTED[k] + [1.0, p[0], 2.0][int(k % 3)]


def following(p):
    """A place in a list that rounds look for, and don't go back from."""
    x, total, last = 0.0, 0.0, 0
    for _ in range(12):
        k = np.argmin(np.abs(x - np.array(LISTED)))
        if last >= k:
            k = last
        total = total + (x - LISTED[k]) ** 2 + p[1] * [0.5, 1.5][k % 2]
        x, last = x + p[0] * 0.1, k
    return total


@pytest.mark.every(4)
@pytest.mark.parametrize("f", [nearest, following])
@pytest.mark.parametrize("compile", ["never", "always"])
def test_places_in_lists(f, compile):
    """What a list holds at a traced place is a value, not a path."""
    derivative = value_and_grad(f, compile=compile)
    for p in ([1.03, 0.3], [1.33, -0.4], [1.71, 0.2], [0.63, 1.1], [2.2, 0.7]):
        p = np.array(p)
        value, slope = derivative(p)
        assert value == pytest.approx(f(p), rel=1e-12)
        for k in range(2):
            step = 1e-7 * np.eye(2)[k]
            assert slope[k] == pytest.approx((f(p + step) - f(p - step)) / 2e-7, rel=1e-5, abs=1e-6)
    assert derivative.cache_info().traces <= 3


def written_row(x, places):
    table = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    table[places[0]][1] = 0.5
    row = table[places[1]]
    row[0] = row[0] + x[0]
    table[places[2]].append(x[1])
    return sum([sum(row) for row in table]) * x[2]


def written_rows(x, places):
    table, total = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], 0.0
    for k in range(len(x)):
        table[places[k]][1] += 0.5 * x[k]
        total = total + table[places[k]][1] * x[k]
    return total


def rows_taken_apart(x, places):
    table, total = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], 0.0
    for k in range(len(x)):
        a, b = table[places[k]]
        total = total + a * x[k] - b * table[places[k]][1]
        for c in table[places[k]]:
            total = total + 0.1 * c * total
    return total


@pytest.mark.filterwarnings("ignore:.* calls in a row")
@pytest.mark.parametrize(
    ("f", "traces"), [(written_row, 4), (written_rows, 4), (rows_taken_apart, 1)]
)
def test_rows_of_a_table_are_its_own(f, traces):
    derivative = value_and_grad(f, compile="never")
    for k in range(4):
        rng = np.random.default_rng(k)
        x, places = rng.standard_normal(30), rng.integers(0, 3, 30)
        value, dx = derivative(x, places)
        assert value == pytest.approx(f(x, places), rel=1e-12)
        along = rng.standard_normal(30)
        ends = [f(x + h * along, places) for h in (1e-6, -1e-6)]
        assert dx @ along == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-6)
    assert derivative.cache_info().traces <= traces
