"""cond: what Python's `if` computes, with a tape that holds both functions."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from tests.loops.explicit_test import PLAIN, same, total
from tests.loops.while_test import plain as plain_while

import tapegrad
from tapegrad import cond, grad, gradcheck, jit, primitive, scan, trace, value_and_grad, while_loop
from tapegrad.differentiate.forward import forward
from tapegrad.errors import ArgumentError, TraceError, UnsupportedError

RNG = np.random.default_rng(14)
W = RNG.normal(size=(3, 3)) / 2
X = RNG.normal(size=(6, 3))


def plain(pred, true_fn, false_fn, *operands):
    return true_fn(*operands) if pred else false_fn(*operands)


EXPLICIT = SimpleNamespace(cond=cond, scan=scan, map=tapegrad.map, while_loop=while_loop)
UNROLLED = SimpleNamespace(cond=plain, scan=PLAIN.scan, map=PLAIN.map, while_loop=plain_while)

PROGRAMS = {}


def program(*calls):
    """A program of the functions to use, and arguments of several calls: the condition differs."""

    def declare(f):
        PROGRAMS[f.__name__] = f, calls
        return f

    return declare


@program((4.0,), (-1.0,), (0.0,), (9.0,))
def numbers(use, x):
    return use.cond(x > 0, lambda x: np.sqrt(x), lambda x: np.exp(x) * 0.5, x)


@program((X[0],), (-X[0],), (2 * X[0],))
def closures(use, x):
    """What the functions reach isn't passed to them."""
    return use.cond(np.sum(x) > 0, lambda: np.tanh(x) * x, lambda: np.log(x**2))


@program((W, X[0]), (-W, X[0]), (0.5 * W, X[0]))
def trees(use, w, x):
    def up(state, k):
        return {"p": state["p"] @ w, "q": (state["q"] * k, 1.0)}

    def down(state, k):
        return {"p": state["p"] - k, "q": (np.sin(state["q"]), k)}

    return use.cond(w[0, 0] > 0, up, down, {"p": x, "q": x[1]}, 2.0 * x[2])


@program((W, X[0]), (-W, X[0]))
def handed_on(use, w, x):
    """Operands that are returned as they are, and twice; a constant; what the other one makes."""
    return use.cond(
        w[0, 0] > 0, lambda a, b: (a, b, b, 1.5), lambda a, b: (a.T, b * 2, b, b[0]), w, x
    )


@program((0.3, X[0]), (-0.3, X[0]))
def nothing_to_differentiate(use, k, x):
    return use.cond(k > 0, lambda: (0.0, 1), lambda: (1.0, 2))[0] * x + use.cond(
        k < 0.1, lambda: 2 * x, lambda: np.zeros(3)
    )


@program((0.3, X), (-0.3, X))
def views_and_writes(use, k, x):
    def written(a):
        a = a.copy()
        a[1:] *= k
        a[0, 0] = np.sum(a)
        return a[::2].T

    return use.cond(k > 0, written, lambda a: (a * k)[:3].T, x)


@program((0.7, W, X[0]), (-0.7, W, X[0]))
def algebra(use, k, w, x):
    def solved(k):
        return np.linalg.solve(w @ w.T + np.eye(3) * k, x)

    return use.cond(k > 0, solved, lambda k: w @ (x * k), k)


@program((X[0],), (-X[0],))
def in_each_other(use, x):
    def inner(y):
        return use.cond(y[0] > 0.5, lambda: y * x, lambda: np.sin(y))

    return use.cond(np.sum(x) > 0, lambda: inner(x * 2), lambda: inner(-x) + inner(x))


@program((W, X), (-W, -X), (2 * W, X))
def in_a_scan(use, w, x):
    def step(h, x):
        h = use.cond(np.sum(x) > 0, lambda: np.tanh(w @ h + x), lambda: h * 0.5 - x)
        return h, np.sum(h)

    return use.scan(step, np.ones(3), x)


@program((0.9, X[:, 0].copy()), (1.1, -X[:, 0].copy()))
def in_a_scan_of_numbers(use, k, x):
    def step(h, x):
        h = use.cond(x * h > 0, lambda h: np.sqrt(x * h), lambda h: h * k - x, h)
        return h, h

    return use.scan(step, 1.0, x)


@program((W, X), (-W, X))
def in_a_map(use, w, x):
    return use.map(lambda a: use.cond(a[0] > 0, lambda: w @ a, lambda: a**2), x)


@program((2.0, 0.3), (-2.0, 0.3), (30.0, 0.2))
def in_a_while_loop(use, a, k):
    """Collatz, with a weight for each way."""

    def body(state):
        n, h = state
        return use.cond(n % 2 == 0, lambda: (n // 2, h * k + a), lambda: (3 * n + 1, np.sin(h) - k))

    return use.while_loop(lambda s: s[0] > 1, body, (7, a), max_rounds=60)[1]


@program((W, X), (-W, X))
def around_a_scan(use, w, x):
    def run():
        return use.scan(lambda h, x: (np.tanh(w @ h + x), h[0]), np.ones(3), x)

    return use.cond(w[0, 0] > 0, run, lambda: (x[0] * w[0], x[:, 1] ** 2))


@program((2.0,), (-2.0,), (3.0,))
def around_a_while_loop(use, a):
    def root():
        return use.while_loop(
            lambda x: np.abs(x**2 - a) > 1e-12, lambda x: 0.5 * (x + a / x), a, max_rounds=40
        )

    return use.cond(a > 0, root, lambda: a * 1.0)


@program((0.7, X[:, 0].copy()), (1.7, X[:, 0].copy()))
def in_a_plain_loop(use, k, x):
    h = k * 1.0
    for t in range(6):
        h = use.cond(x[t] * k > 0.5, lambda h: h * x[t], lambda h: np.cos(h) + k, h)  # noqa: B023
    return h


@program((0.7, X[:, 0].copy()), (1.7, X[:, 0].copy()))
def in_a_long_loop(use, k, x):
    """This one becomes a loop again."""
    h = k * 1.0
    for t in range(60):
        h = use.cond(h > x[t % 6], lambda h: h * 0.9 - k, lambda h: np.cos(h) + k, h)
    return h


@program((0.7, X[:, 0].copy()), (-0.7, X[:, 0].copy()))
def of_gradients(use, k, x):
    inner = grad(lambda p: np.sum((p - x) ** 2 * k))
    return use.cond(k > 0, lambda: inner(x * k), lambda: x - k)


@program((np.float32(0.7), X.astype(np.float32)), (np.float32(-0.7), X.astype(np.float32)))
def single_precision(use, k, x):
    """A number of Python's takes the dtype of NumPy's."""
    return use.cond(k > 0, lambda: (np.sum(x), x * 2), lambda: (0.0, np.exp(x)))


@program((7, 0.3), (-7, 0.3), (8, 0.3))
def integers(use, n, x):
    n, flag = use.cond(n > 0, lambda: (n * 3, True), lambda: (n // 2, n % 2 == 0))
    return x * n + np.where(flag, x, 0.0), n


by_name = pytest.mark.parametrize("name", PROGRAMS)


def rtol(name):
    return 1e-5 if name == "single_precision" else 1e-9


def wrt(args):
    return tuple(k for k, x in enumerate(args) if np.asarray(x).dtype.kind == "f")


@pytest.mark.every(8)
@by_name
def test_values(name):
    f, calls = PROGRAMS[name]
    derived = jit(lambda *args: f(EXPLICIT, *args), compile="never")
    for args in calls:
        expected = f(UNROLLED, *args)
        same(f(EXPLICIT, *args), expected)
        np.testing.assert_allclose(total(derived(*args)), total(expected), rtol=rtol(name))
    assert derived.cache_info().traces == 1


@pytest.mark.every(12)
@by_name
def test_gradients(name):
    f, calls = PROGRAMS[name]
    places = wrt(calls[0])
    found = value_and_grad(lambda *args: total(f(EXPLICIT, *args)), places, compile="never")
    expected = value_and_grad(lambda *args: total(f(UNROLLED, *args)), places, compile="never")
    for args in (*calls, *calls[::-1]):
        value, slopes = expected(*args)
        found_value, found_slopes = found(*args)
        same(found_slopes, slopes, rtol(name))
        np.testing.assert_allclose(found_value, value, rtol=rtol(name))
    assert found.cache_info().traces == 1
    if name not in ("single_precision", "integers"):
        gradcheck(lambda *args: total(f(EXPLICIT, *args)), calls[-1])


@pytest.mark.every(12)
@by_name
def test_second_derivatives(name):
    f, calls = PROGRAMS[name]
    places = wrt(calls[0])

    def slope(use):
        inner = grad(lambda *args: total(f(use, *args)), places, compile="never")
        return grad(lambda *args: total(inner(*args)), places, compile="never")

    found, expected = slope(EXPLICIT), slope(UNROLLED)
    for args in (*calls, *calls[::-1]):
        same(found(*args), expected(*args), 10 * rtol(name))
    assert found.cache_info().traces == 1


@pytest.mark.every(12)
@by_name
def test_compiled(name):
    f, calls = PROGRAMS[name]
    places = wrt(calls[0])
    played, compiled = (
        value_and_grad(lambda *args: total(f(EXPLICIT, *args)), places, compile=mode)
        for mode in ("never", "always")
    )
    for args in (*calls, *calls[::-1]):
        same(compiled(*args), played(*args), rtol(name))
    assert compiled.cache_info().traces == 1


@pytest.mark.parametrize("name", ["trees", "in_a_scan", "around_a_while_loop", "handed_on"])
def test_tangents(name):
    f, calls = PROGRAMS[name]
    _, tape = trace(lambda *args: total(f(EXPLICIT, *args)), *calls[0])
    pushed = forward(tape, range(len(calls[0])))
    slopes = grad(lambda *args: total(f(EXPLICIT, *args)), wrt(calls[0]), compile="never")
    for args in calls:
        ts = [RNG.normal(size=np.shape(x)) for x in args]
        expected = sum(np.sum(t * g) for t, g in zip(ts, slopes(*args), strict=True))
        flat = pushed.play(*args, *ts)
        np.testing.assert_allclose(flat[1], expected, rtol=1e-9)


# ---- what isn't called takes no part

UNUSED = {
    "sqrt": (lambda x: np.sqrt(x), 0.0),
    "sqrt_of_less": (lambda x: np.sqrt(x), -1.0),
    "log": (lambda x: np.log(x), 0.0),
    "quotient": (lambda x: 1.0 / x, 0.0),
    "power": (lambda x: x**-1.5, 0.0),
    "norm": (lambda x: np.linalg.norm(np.stack([x, x])) ** 0.5, 0.0),
    "system": (lambda x: np.linalg.solve(np.eye(2) * x, np.ones(2))[0], 0.0),
    "cholesky": (lambda x: np.linalg.cholesky(np.eye(2) * x)[0, 0], -1.0),
    "error_of_pythons": (lambda x: 1.0 / (x if isinstance(x, float) else 0.0 * x), 0.0),
}


@pytest.mark.every(16)
@pytest.mark.parametrize(
    ("passed", "kind", "mode"),
    [(True, float, "never"), (False, np.float64, "never"), (False, float, "always")],
)
@pytest.mark.parametrize("name", UNUSED)
def test_slopes_of_what_is_not_called_do_not_count(name, passed, kind, mode):
    """Infinite ones and NaN, to first and to second order, in the first call and in later ones."""
    f, x = UNUSED[name]

    def safe(x):
        if passed:
            return cond(x > 1e-9, lambda x: f(x), lambda x: 3.0 * x**2 + x, x)
        return cond(x > 1e-9, lambda: f(x), lambda: 3.0 * x**2 + x)

    slope, curvature = grad(safe, compile=mode), grad(grad(safe), compile=mode)
    for at in (kind(x), kind(2.0), kind(x)):
        first, second = slope(at), curvature(at)
        if at < 1:
            assert (first, second) == (6 * x + 1, 6)
        else:
            assert first == pytest.approx((f(2 + 1e-6) - f(2 - 1e-6)) / 2e-6, rel=1e-6, abs=1e-6)
            assert np.isfinite(second)
    assert slope.cache_info().traces == 1


def test_no_warnings_come_from_what_is_not_called(recwarn):
    f = grad(lambda x: cond(np.min(x) > 0, lambda: np.sum(np.log(x)), lambda: np.sum(x)))
    assert f(np.zeros(3)).tolist() == [1, 1, 1]
    assert f(np.ones(3)).tolist() == [1, 1, 1]
    assert f(-np.ones(3)).tolist() == [1, 1, 1]
    assert not recwarn.list


def test_loops_that_make_no_rounds_have_no_slopes_either():
    """What they reach isn't computed in vain, as it is where there are rounds."""

    @grad
    def f(k, n):
        return while_loop(
            lambda s: s[1] < n, lambda s: (s[0] + np.sqrt(k), s[1] + 1), (n * 1.0, 0), 50
        )[0]

    assert f(np.float64(4.0), 3.0) == 0.75
    assert f(np.float64(0.0), 0.0) == f(np.float64(-1.0), 0.0) == 0


# ---- what the other function may not do before it is called


def branching(x):
    return np.sum(x) if x[0] > 0 else x[1]


def looping(x):
    h = x[0]
    while h > 1e-3:
        h = h / 2
    return h


def counting(x):
    return sum(x[1] for _ in range(int(x[0])))


def raising(x):
    raise ValueError("not this one")


def endless(x):
    return while_loop(lambda h: h != 0, lambda h: h + 0 * x[0], x[1])


def unlike_others(x):
    with np.errstate(divide="raise"):
        return np.sum(1 / (x - x))


@pytest.mark.parametrize(
    "f", [branching, looping, counting, raising, endless, unlike_others], ids=lambda f: f.__name__
)
def test_what_can_not_be_traced_before_it_is_called_makes_it_an_if(f):
    x = np.array([2.0, 3.0])
    derived = value_and_grad(lambda x: cond(x[1] > 0, lambda: np.sum(x**2), lambda: f(x)))
    same(derived(x), (13.0, 2 * x))
    same(derived(2 * x), (52.0, 4 * x))
    assert derived.cache_info().traces == 1


def test_an_if_takes_the_other_function_once_it_is_called():
    derived = value_and_grad(
        lambda x: cond(x[1] > 0, lambda: np.sum(x**2), lambda: branching(x)), compile="never"
    )
    x = np.array([2.0, -3.0])
    for args, value in ((abs(x), 13.0), (x, -1.0), (2 * x, -2.0), (abs(x), 13.0), (-abs(x), -3.0)):
        assert derived(args)[0] == value
    assert derived.cache_info().traces == 3  # the other one has two branches


def test_rounds_that_would_be_an_if():
    def step(h, x):
        return cond(np.sum(x) > 0, lambda: h, lambda: h + branching(x)), None

    derived = grad(lambda x: scan(step, 0.0, x)[0])
    derived(abs(X))
    with pytest.raises(
        TraceError,
        match=r"the condition of cond, whose other function can't be traced before it is called "
        r"\(ConversionError: a traced value decides.*is True in the first round",
    ):
        derived(X - 1 * (np.arange(6) > 2)[:, None] * 9)


def test_branches_of_the_function_that_is_called():
    """They are guards, which count where it is called."""
    derived = value_and_grad(
        lambda x, k: cond(k > 0, lambda: branching(x), lambda: x[0] * k), compile="never"
    )
    x = np.array([2.0, 3.0])
    assert derived(x, 1.0)[0] == 5
    assert derived(-x, 1.0)[0] == -3
    assert derived.cache_info().traces == 2


def test_errors_of_what_is_called():
    def safe(x):
        return cond(x > -1, lambda x: 1.0 / x, lambda x: np.log(-x), x)

    derived = grad(safe, compile="never")
    for first in (-2.0, 2.0):
        assert derived(first) == pytest.approx(-0.5 if first < 0 else -0.25)
    with pytest.raises(ZeroDivisionError):
        derived(0.0)
    systems = grad(
        lambda a: cond(a[0, 0] > -1, lambda: np.sum(np.linalg.inv(a)), lambda: 0.0), compile="never"
    )
    assert systems(-2 * np.eye(2)).tolist() == [[0, 0], [0, 0]]
    systems(np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        systems(0 * np.eye(2))


def test_writes_are_refused():
    def written(x):
        x[0] = 5.0
        return x

    x = np.ones(3)
    with pytest.raises(ValueError, match="read-only"):
        cond(True, written, lambda x: x, x)
    for f in (
        lambda x: cond(x[0] > 0, written, lambda x: x, x),
        lambda x: cond(True, written, lambda x: x, x),
    ):
        with pytest.raises(UnsupportedError, match=r"written writes to an operand.*x\.copy"):
            jit(f)(x)

    def reached(x, part):
        def f():
            part(x)[0] = 5.0
            return x

        return cond(x[0] > 0, f, lambda: x)

    for part in (lambda x: x, lambda x: x[1:], lambda x: x.reshape(-1)[1:]):
        with pytest.raises(UnsupportedError, match="written to inside an inner one"):
            jit(reached)(x, part)


def test_results_are_new_arrays():
    x = np.ones(3)

    def f(x):
        y = cond(np.sum(x) > 0, lambda: x, lambda: -x)
        z = cond(True, lambda x: x[1:], lambda x: x, x)
        y[0] = z[0] = 5
        return x, y, z

    for call in (f, jit(f)):
        for found, expected in zip(call(x), ([1, 1, 1], [5, 1, 1], [5, 1]), strict=True):
            assert found.tolist() == expected


@primitive
def root(x):
    if float(x) < 0:
        raise ValueError("negative")
    return np.array(float(x) ** 0.5)


tapegrad.defvjp(root, lambda ct, out, x: ct / (2 * out))


@pytest.mark.parametrize("mode", ["never", "always"])
def test_functions_that_numpy_runs(mode):
    derived = value_and_grad(lambda x: cond(x > 0, lambda: root(x), lambda: x * 1.0), compile=mode)
    for x, expected in ((4.0, (2, 0.25)), (-2.0, (-2, 1)), (16.0, (4, 0.125)), (-2.0, (-2, 1))):
        assert derived(x) == expected
    assert derived.cache_info().traces == 1


# ---- the tape and the code


def test_conditionals_print_as_ifs():
    def f(x):
        return cond(np.sum(x) > 0, lambda: np.sum(np.tanh(x) * x), lambda: np.sum(np.log(-x)))

    _, tape = trace(f, X[0])
    loops = [c for c in tape.calls if str(c.primitive) == "loop"]
    assert len(loops) == 2 and all(c.src.text.startswith("return cond(") for c in loops)
    source = tape.source.split("_kernel(")[1].split("return 0")[0]
    assert len(re.findall(r"^    if .* > 0:$", source, re.M)) == 2 and "range(min" not in source
    derived = grad(f, compile="never")
    derived(X[0])
    source = derived.tapes[0].source.split("_kernel(")[1].split("return 0")[0]
    # The logarithm has a cheap slope: nothing is kept of it, and it isn't even computed.
    assert len(re.findall(r"^    if .* > 0:$", source, re.M)) == 3
    assert source.count("= tanh(") == 1 and "= log(" not in source
    assert "(1, 3)" not in source and "isnan" not in source


def test_constants_and_texts():
    """What is the same in both is no value of the tape."""

    def f(x):
        return cond(x > 0, lambda: ("a", 1.5, None, x), lambda: ("a", 1.5, None, 2 * x))

    assert jit(f)(-2.0) == ("a", 1.5, None, -4.0)
    assert isinstance(jit(f)(3.0)[1], float)


def test_numbers_of_pythons_take_the_dtype_of_numpys():
    x = np.float32(2)
    for other in (0, 0.0, np.float32(0)):
        found = jit(lambda x, other=other: cond(x > 0, lambda: x, lambda: other))
        assert found(x).dtype == found(-x).dtype == np.float32
    found = jit(lambda x: cond(x > 0, lambda: x, lambda: 0))
    assert found(2.5) == 2.5 and found(-2.5) == 0
    flags = jit(lambda x: cond(x > 0, lambda: x > 1, lambda: False))
    assert flags(2.5) and not flags(0.5) and not flags(-2.0)


def test_conditions():
    x = np.ones(3)
    for pred in (True, np.True_, 1, np.array([2.0]), None, 0, np.array(False)):
        expected = 2.0 if pred else 3.0
        assert cond(pred, lambda: 2.0, lambda: 3.0) == expected
    for pred in (lambda x: x[0] > 0, lambda x: x[:1], lambda x: x[0] * 3, lambda x: x[:1] > 0):
        f = jit(lambda x, pred=pred: cond(pred(x), lambda: x, lambda: 2 * x))
        same(f(x), x)
        same(f(0 * x), 0 * x)
        assert f.cache_info().traces == 1


# ---- errors


def message_of(f, *args):
    with pytest.raises(ArgumentError) as caught:
        jit(f)(*args)
    return re.sub(r" \(cond_test.py:\d+: `[^`]*`\)", "", str(caught.value))


def test_errors():
    x = np.ones(3)

    def one(x):
        return {"a": x}

    def other(make):
        def two(x):
            return make(x)

        return lambda x: cond(x[0] > 0, one, two, x)

    assert message_of(other(lambda x: x), x) == (
        "cond of one and two: what the two return is put together as {'a': *} and as *. Return "
        "the same keys, and as many entries"
    )
    assert message_of(other(lambda x: {"a": x[1:]}), x) == (
        "cond of one and two: the result['a'] is a float64 array of shape (3,) of the one and a "
        "float64 array of shape (2,) of the other. Both return the same shapes and dtypes; of "
        "numbers those of Python take the dtype of NumPy's"
    )
    assert "and a int64 array" in message_of(other(lambda x: {"a": np.arange(3)}), x)
    assert "'on' of the other" in message_of(other(lambda x: {"a": "on"}), x)
    assert "and a Python complex of the other" in message_of(other(lambda x: {"a": 1j}), -x)
    message = message_of(lambda x: cond(x > 0, one, one, x), x)
    assert "the condition is an array of shape (3,), and one truth value says" in message
    with pytest.raises(ArgumentError, match="chooses for each element"):
        cond(x, one, one, x)
    with pytest.raises(ArgumentError, match="cond needs functions, not 3"):
        cond(True, one, 3)
    with pytest.raises(ArgumentError, match=r"the condition is 'yes'"):
        cond("yes", one, one, x)
    assert cond(True, one, one, 1j) == {"a": 1j}


@pytest.mark.parametrize("name", ["cond", "checkpoint"])
def test_operands_lie_in_memory_as_they_were(name):
    def f(a):
        return np.sum(a.ravel("K") * np.arange(6))

    around = {
        "cond": lambda a: tapegrad.cond(a[0, 0] < 1, f, lambda b: 0 * f(b), a),
        "checkpoint": tapegrad.checkpoint(f),
    }[name]
    for a in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))):
        value, gradient = tapegrad.value_and_grad(around, compile="never")(a)
        assert value == f(a)
        np.testing.assert_array_equal(
            gradient.ravel("A" if a.flags.c_contiguous else "F"), range(6)
        )


@pytest.mark.parametrize("name", ["itself", "view", "no rounds"])
def test_results_are_arrays_of_their_own(name):
    """What is written to a result doesn't reach what was passed, traced or not."""
    around = {
        "itself": tapegrad.checkpoint(lambda a: a),
        "view": tapegrad.checkpoint(lambda a: a.reshape(-1)),
        "no rounds": lambda a: while_loop(lambda c: c[0] > 5, lambda c: c * 2, a),
    }[name]

    def f(x):
        y = x * 1.0
        z = around(y)
        z[0] = 9.0
        return np.sum(y**2) + np.sum(z)

    x = np.array([0.3, -0.8, 1.2])
    assert f(x) == pytest.approx(np.sum(x**2) + 9 + np.sum(x[1:]))
    value, gradient = value_and_grad(f, compile="never")(x)
    assert value == f(x)
    np.testing.assert_allclose(gradient, 2 * x + [0, 1, 1])


def counted_in(where, count):
    """Functions that count, each in a way that the function around reads."""
    functions = {
        "scan": lambda x: scan(lambda c, u: (count(c * x + u), c), 1.0, np.arange(5.0))[0],
        "map": lambda x: np.sum(tapegrad.map(lambda v: count(v * x), np.arange(5.0))),
        "while_loop": lambda x: while_loop(lambda c: c > 0.1, lambda c: count(c * x), 1.0),
        "cond, called": lambda x: cond(x < 1, lambda: count(x * 2), lambda: x * 3),
        "cond, not called": lambda x: cond(x > 1, lambda: count(x * 2), lambda: x * 3),
    }
    return functions[where]


@pytest.mark.every(2)
@pytest.mark.parametrize("where", ["scan", "map", "while_loop", "cond, called", "cond, not called"])
@pytest.mark.parametrize("kept", ["attribute", "list", "own list", "memo"])
def test_what_was_there_before_stays(where, kept):
    """They are traced once for all: a count would be that of the traces. What is remembered for
    good may be."""
    outside = SimpleNamespace(count=0, seen=[], memo={})

    def f(x):
        own = []

        def count(value):
            if kept == "attribute":
                outside.count += 1
            elif kept == "memo":
                outside.memo.setdefault("scale", 1.5)
            else:
                (own if kept == "own list" else outside.seen).append(1)
            return value * outside.memo.get("scale", 1.0)

        outside.count = 0
        return counted_in(where, count)(x) * (1 + outside.count + len(own))

    if kept == "memo":
        expected = f(0.5)
        assert jit(f, compile="never")(0.5) == pytest.approx(expected)
        return
    with pytest.raises(TraceError, match="changes what was there before"):
        jit(f, compile="never")(0.5)
