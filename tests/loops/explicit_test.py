"""scan and map: what the plain loop computes, with a tape that doesn't grow with its rounds."""

import re
from typing import NamedTuple

import numpy as np
import pytest
from tests.loops.once import calls_of

import tapegrad
from tapegrad import grad, gradcheck, jit, primitive, scan, trace, value_and_grad
from tapegrad.core.trees import flatten, unflatten
from tapegrad.errors import ArgumentError, TraceError, UnsupportedError

RNG = np.random.default_rng(13)
W = RNG.normal(size=(3, 3)) / 2
X = RNG.normal(size=(6, 3))


def plain(f, init, xs=None, length=None, reverse=False):
    """`scan` as a loop of Python's, which a trace unrolls."""
    leaves, structure = flatten(xs)
    length = len(leaves[0]) if leaves else length
    carry, ys = init, []
    for t in reversed(range(length)) if reverse else range(length):
        carry, y = f(carry, unflatten(structure, [x[t] for x in leaves]))
        ys.append(y)
    ys = ys[::-1] if reverse else ys
    _, structure = flatten(ys[0])
    stacked = zip(*[flatten(y)[0] for y in ys], strict=True)
    return carry, unflatten(structure, [np.stack(y) for y in stacked])


def plain_map(f, xs):
    return plain(lambda carry, x: (carry, f(x)), (), xs)[1]


class Loops(NamedTuple):
    scan: object
    map: object


EXPLICIT = Loops(scan, tapegrad.map)
PLAIN = Loops(plain, plain_map)


def same(found, expected, rtol=1e-12):
    """Two trees of equal structure, shapes, dtypes and values."""
    found, expected = flatten(found), flatten(expected)
    assert found[1] == expected[1]
    for a, b in zip(found[0], expected[0], strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert type(a) is type(b) or np.ndim(b) == 0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13, strict=np.ndim(b) > 0)


def total(tree):
    return sum(np.sum(np.sin(1.0 * x)) for x in flatten(tree)[0])


# ---- programs: of the loops to use, and arguments

PROGRAMS = {}


def program(*args):
    def declare(f):
        PROGRAMS[f.__name__] = f, args
        return f

    return declare


@program(W, X)
def network(loops, w, x):
    return loops.scan(lambda h, x: (np.tanh(w @ h + x), h**2), np.zeros(3), x)


@program(W, X)
def network_backwards(loops, w, x):
    return loops.scan(lambda h, x: (np.tanh(w @ h + x), h[:2]), np.ones(3), x, reverse=True)


@program(0.3, X)
def without_results(loops, k, x):
    return loops.scan(lambda h, x: (np.cos(h * k) + x, None), x[0], x)


@program(0.3, np.ones(2))
def without_entries(loops, k, h):
    return loops.scan(lambda h, x: (h + k * np.sin(h), h[0]), h, length=9)


@program(0.3, X)
def trees(loops, k, x):
    def step(state, entry):
        p, q = state["p"], state["q"]
        p = p - k * np.sin(q) + entry[0]
        return {"p": p, "q": q + k * p}, {"energy": np.sum(p**2), "at": (q, p * entry[1]["u"])}

    return loops.scan(step, {"p": x[0], "q": np.zeros(3)}, (x, {"u": x[:, 1]}))


@program(0.3, X[:, 0])
def number_of_pythons(loops, k, x):
    return loops.scan(lambda h, x: (h * k + x, h * x), 1.0, x)


@program(0.3, X[:, 0])
def integer_becomes_float(loops, k, x):
    return loops.scan(lambda h, x: (h * k + x, h * x), 1, x)


@program(0.3, X[:, 0])
def integer_becomes_float_backwards(loops, k, x):
    return loops.scan(lambda h, x: (h * k + x, h * x), 1, x, reverse=True)


@program(0.3, X)
def shape_changes(loops, k, x):
    """The sum of a number is not that of the array that it becomes."""
    return loops.scan(lambda h, x: (np.sum(h) * k + x, np.sum(h)), 1.0, x)


@program(0.3, X[:, 0])
def types_change_in_turn(loops, k, x):
    return loops.scan(lambda c, x: ((c[1], c[0] * k + x), c[0] * x), (0, 1), x)


@program(0.3, X[:2, 0])
def types_change_until_the_end(loops, k, x):
    return loops.scan(lambda c, x: ((c[1], c[0] * k + x), c[0] * x), (0, 1), x)


@program(0.3, X.astype(np.float32))
def single_precision(loops, k, x):
    return loops.scan(lambda h, x: (h * np.float32(0.5) + x, np.sum(h)), 0.0, x)


@program(0.3, X[:, 0])
def counts(loops, k, x):
    def step(carry, x):
        n, h = carry
        return (n + 1, h + np.sin(k * x) / (n + 1)), (n, n * h)

    return loops.scan(step, (0, 0.0), x)


@program(0.3, X[:, 0])
def flags(loops, k, x):
    def step(carry, x):
        h, positive = carry
        h = np.where(positive, h * k, h - x)
        return (h, h > 0), positive

    return loops.scan(step, (x[0], x[0] > 0), x)


@program(W, X)
def passed_on(loops, w, x):
    """What is carried, and not changed; a result that is a constant; one that is an argument."""
    return loops.scan(lambda c, x: ((c[0], c[0] @ c[1]), (1.5, w, 2)), (w, x[0]), x)


@program(W, X)
def swaps(loops, w, x):
    return loops.scan(lambda c, x: ((c[1], c[0] @ w + x), c[0]), (x[0], x[1]), x)


@program(W, X)
def writes(loops, w, x):
    def step(h, x):
        h = 1.0 * h + 0.0 * x
        h[1:] = h[:-1] * x[1:]
        h[0] += np.sum(w @ x)
        return h, h

    return loops.scan(step, np.ones(3), x)


@program(W, X)
def nested(loops, w, x):
    def row(total, x):
        inner, ys = loops.scan(lambda h, a: (h * a + w[0, 0], np.sin(h)), total, x)
        return inner, ys

    return loops.scan(row, 0.5, x)


@program(W, X)
def nested_of_reached(loops, w, x):
    """The inner loop reaches what the outer one carries, and arrays from outside."""
    table = np.arange(3.0)

    def row(h, x):
        ys = loops.map(lambda a: np.sum(a * h) + x[0], w * table)
        return np.tanh(ys), np.sum(ys)

    return loops.scan(row, np.ones(3), x)


@program(W, X)
def in_a_plain_loop(loops, w, x):
    h, ys = np.zeros(3), []
    for k in range(5):

        def step(h, x, k=k):
            return np.tanh(w @ h + x * (k + 1)), np.sum(h)

        h, y = loops.scan(step, h, x)
        ys.append(y)
    return h, np.stack(ys)


@program(W, X)
def around_a_plain_loop(loops, w, x):
    def step(h, x):
        for _ in range(8):
            h = np.tanh(w @ h + x)
        return h, np.sum(h)

    return loops.scan(step, np.zeros(3), x)


@program(0.3, X[:, 0])
def of_gradients(loops, k, x):
    """Gradient descent, of a function that reaches the outer trace's values."""

    def step(p, x):
        slope = grad(lambda p: (p - x) ** 2 + np.cos(k * p))(p)
        return p - 0.1 * slope, slope

    return loops.scan(step, 0.5, x)


@program(W, X)
def algebra(loops, w, x):
    def step(h, x):
        a = w @ w.T + (1 + x[0] ** 2) * np.eye(3)
        return np.linalg.solve(a, h) + x, np.linalg.norm(h)

    return loops.scan(step, np.ones(3), x)


@program(W, X)
def mapped(loops, w, x):
    return loops.map(lambda entry: {"a": w @ entry[0], "b": entry[1] ** 2}, (x, x[:, 0]))


@program(np.ones((2, 4)), X)
def mapped_of_matrices(loops, w, x):
    return loops.map(lambda a: np.sort(a)[::-1] * np.max(a), x)


@primitive
def own(a, b):
    return np.sin(a) * b


tapegrad.defvjp(own, lambda ct, out, a, b: ct * b * np.cos(a), lambda ct, out, a, b: ct * np.sin(a))


@program(W, X)
def of_a_primitive(loops, w, x):
    return loops.scan(lambda h, x: (own(h, x) + w[0], own(x, h)), np.ones(3), x)


@primitive
def opaque(a):
    return np.array([float(v) ** 2 for v in a])


tapegrad.defvjp(opaque, lambda ct, out, a: 2 * ct * a)


@program(W, X)
def of_an_opaque_primitive(loops, w, x):
    return loops.scan(lambda h, x: (opaque(np.sin(h)) + x, h[0]), w[0], x)


@program(W, X[:, :0])
def of_empty_entries(loops, w, x):
    return loops.scan(lambda h, x: (h * w[0, 1], x), 1.5, x)


@program(W, X[:1])
def of_one_round(loops, w, x):
    return loops.scan(lambda h, x: (w @ h, x), x[0], x)


by_name = pytest.mark.parametrize("name", PROGRAMS)


@by_name
def test_values_without_a_trace(name):
    f, args = PROGRAMS[name]
    same(f(EXPLICIT, *args), f(PLAIN, *args))


@pytest.mark.every(8)
@by_name
def test_values_in_a_trace(name):
    f, args = PROGRAMS[name]
    derived = jit(lambda *args: f(EXPLICIT, *args), compile="never")
    same(derived(*args), f(PLAIN, *args))
    args = [0.9 * x if np.asarray(x).dtype == np.float64 else x for x in args]
    same(derived(*args), f(PLAIN, *args))


@pytest.mark.every(8)
@by_name
def test_gradients(name):
    f, args = PROGRAMS[name]
    found = value_and_grad(lambda *args: total(f(EXPLICIT, *args)), (0, 1), compile="never")
    expected = value_and_grad(lambda *args: total(f(PLAIN, *args)), (0, 1), compile="never")
    single = args[1].dtype == np.float32
    for scale in (1.0, 0.9):
        args = [(scale * x).astype(x.dtype) if np.ndim(x) else scale * x for x in args]
        same(found(*args), expected(*args), 1e-5 if single else 1e-9)
    assert found.cache_info().traces == 1


@pytest.mark.every(5)
@pytest.mark.parametrize("name", ["network_backwards", "trees", "counts", "nested", "algebra"])
def test_gradients_by_differences(name):
    f, args = PROGRAMS[name]
    gradcheck(lambda *args: total(f(EXPLICIT, *args)), args)


SECOND = ["network", "integer_becomes_float", "trees", "nested", "of_gradients", "writes", "flags"]


@pytest.mark.every(4)
@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name):
    f, args = PROGRAMS[name]

    def slope(loops):
        inner = grad(lambda *args: total(f(loops, *args)), (0, 1), compile="never")
        return grad(lambda *args: total(inner(*args)), (0, 1), compile="never")

    same(slope(EXPLICIT)(*args), slope(PLAIN)(*args), 1e-9)


COMPILED = [
    *("network_backwards", "trees", "integer_becomes_float", "types_change_in_turn", "counts"),
    *("flags", "passed_on", "swaps", "writes", "nested_of_reached", "algebra", "of_a_primitive"),
    *("mapped", "of_one_round", "of_empty_entries", "of_an_opaque_primitive", "without_entries"),
]


def test_compiled():
    """All in one program, which compiles once."""

    def both(loops):
        def f(k, w, x):
            given = {(): k, (3, 3): w, (6, 3): x}
            found = []
            for name in COMPILED:
                g, (first, second) = PROGRAMS[name]
                a = given[np.shape(first)]
                b = x[tuple(slice(n) for n in second.shape)] if second.ndim == 2 else x[:, 0]
                b = np.ones(2) * k if second.shape == (2,) else b
                found.append(g(loops, a, b))
            return total(found)

        return f

    compiled = value_and_grad(both(EXPLICIT), (0, 1, 2), compile="always")
    expected = value_and_grad(both(PLAIN), (0, 1, 2), compile="never")
    for scale in (1.0, 0.9):
        args = 0.3 * scale, W * scale, X * scale
        same(compiled(*args), expected(*args), 1e-9)
    assert compiled.cache_info().traces == 1


# ---- the tape


def calls(tape):
    """All calls, those of the tapes that calls hold among them."""
    return sum(1 + sum(map(calls, call.primitive.tapes)) for call in tape.calls)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["network", "integer_becomes_float", "trees", "nested", "writes"])
def test_the_tape_does_not_grow_with_the_rounds(name):
    f, (w, x) = PROGRAMS[name]
    long = np.concatenate([x] * 50)
    lengths = set()
    for entries in (x, long):
        derived = grad(lambda *args: total(f(EXPLICIT, *args)), (0, 1), compile="never")
        derived(w, entries)
        lengths.add(
            (calls(trace(lambda *args: f(EXPLICIT, *args), w, entries)[1]), calls(derived.tapes[0]))
        )
    assert len(lengths) == 1


def test_the_function_is_traced_for_one_round():
    """Once, and once more to see that it does the same."""

    def step(h, x):
        return h + x, h

    made = jit(lambda x: scan(step, np.zeros(3), x), compile="never")
    assert calls_of(step, lambda: made(X)) == 2


def test_lines_are_the_users():
    def step(h, x):
        return np.tanh(h + x), h

    _, tape = trace(lambda x: scan(step, np.zeros(3), x), X)
    (loop,) = [call for call in tape.calls if str(call.primitive) == "loop"]
    assert loop.src.text.startswith("_, tape = trace(lambda x: scan(")
    tanh = next(c for c in loop.primitive.body.calls if str(c.primitive) == "tanh")
    assert tanh.src.text == "return np.tanh(h + x), h"


def test_a_loop_of_constants_is_run():
    def f(x):
        powers, _ = scan(lambda c, t: (c * 2, c), 1, np.arange(5))
        return x * powers

    assert grad(f)(3.0) == 32
    assert not any(str(c.primitive) == "loop" for c in trace(f, 3.0)[1].calls)


# ---- the assumptions of a round


def branching(h, x):
    return (h + x if x > 0 else h - x), h


def test_a_branch_that_all_rounds_take():
    derived = value_and_grad(lambda x: total(scan(branching, 0.5, x)), compile="never")
    expected = value_and_grad(lambda x: total(plain(branching, 0.5, x)), compile="never")
    x = np.array([1.0, 2.0, 3.0])
    for entries in (x, -x, 2 * x, -2 * x):
        same(derived(entries), expected(entries))
    assert derived.cache_info().traces == 2


@pytest.mark.parametrize("mode", ["never", "always"])
def test_a_branch_that_rounds_do_not_share(mode):
    """At the first call or at a later one, played or compiled: an error that names the line."""
    x = np.array([1.0, 2.0, 3.0])
    derived = value_and_grad(lambda x: total(scan(branching, 0.5, x)), compile=mode)
    derived(x)
    derived(2 * x)
    for entries in (x * [1, 1, -1], x * [-1, 1, 1], x * [1, -1, 1]):
        with pytest.raises(
            TraceError, match=r"scan of branching: a condition is (True|False) .*x > 0.*np\.where"
        ):
            derived(entries)
    same(scan(branching, 0.5, -x), plain(branching, 0.5, -x))
    mixed = x * [1, -1, 1]
    same(scan(branching, 0.5, mixed), plain(branching, 0.5, mixed))


def test_an_index_into_a_plain_array():
    table = X[:, 0].copy()

    def f(x):
        return scan(lambda h, k: (h * table[k] * x, None), 1.0, np.arange(6))[0]

    assert grad(f)(2.0) == pytest.approx(6 * np.prod(table[:6]) * 2.0**5, rel=1e-12)


def test_a_branch_in_the_last_round_is_seen_backwards():
    x = np.array([-1.0, 2.0, 3.0])
    with pytest.raises(TraceError, match=r"np\.where"):
        jit(lambda x: scan(branching, 0.5, x, reverse=True))(x)


def test_numpys_error_in_a_later_round():
    def step(h, a):
        return h + np.sum(np.linalg.cholesky(a)), None

    good, bad = np.eye(2), -np.eye(2)
    derived = grad(lambda a: scan(step, 0.0, a)[0], compile="never")
    derived(np.stack([good, good]))
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        derived(np.stack([good, bad]))


def test_a_function_that_counts_its_calls():
    count = 0

    def step(h, x):
        nonlocal count
        count += 1
        return h + count * x, h

    with pytest.raises(TraceError, match=r"scan of step.*(did something else|changes what).*carry"):
        grad(lambda x: scan(step, 0.0, x)[0])(X[:, 0])


def test_a_function_that_goes_through_an_iterator():
    factors = iter(range(100))
    with pytest.raises(TraceError, match=r"did something else|an iterator"):
        grad(lambda x: scan(lambda h, x: (h + next(factors) * x, h), 0.0, x)[0])(X[:, 0])


def test_arrays_made_anew_are_the_same():
    def step(h, x):
        return np.eye(3) @ h + x * np.array([1.0, 2.0, 3.0]), None

    derived = grad(lambda x: np.sum(scan(step, np.zeros(3), x)[0]))
    np.testing.assert_allclose(derived(X), np.tile([1.0, 2.0, 3.0], (6, 1)))


# ---- memory


def test_what_is_carried_may_be_written_to_and_stays_ones_own():
    def step(h, x):
        h *= 0.5
        h[0] += x
        return h, h

    init, entries = np.ones(3), X[:, 0]
    carry, ys = scan(step, init, entries)
    assert init.tolist() == [1, 1, 1]
    same((carry, ys), jit(lambda a, x: scan(step, a, x))(init, entries))
    assert not np.allclose(ys[0], ys[-1])


def test_an_entry_can_not_be_written_to():
    def step(h, x):
        x *= 2
        return h + x, None

    with pytest.raises(ValueError, match="read-only"):
        scan(step, np.zeros(3), X)
    with pytest.raises(UnsupportedError, match=r"scan of step.*writes to the entry.*x\.copy"):
        jit(lambda x: scan(step, np.zeros(3), x))(X)


def test_results_are_new_arrays():
    init = np.ones(3)
    carry, ys = scan(lambda h, x: (h, h), init, X)
    carry[0] = ys[0, 0] = 5
    assert init.tolist() == [1, 1, 1]

    def f(a, x):
        carry, ys = scan(lambda h, x: (h, h), a, x)
        carry[0] = ys[0, 0] = 5
        return a, carry, ys[1]

    a, carry, second = jit(f)(init, X)
    assert a[0] == 1 and carry[0] == 5 and second[0] == 1


def test_captured_arrays_are_read_at_each_call():
    table = np.ones(3)
    derived = jit(lambda x: scan(lambda h, x: (h * table + x, None), np.zeros(3), x)[0])
    same(derived(X), X.sum(0))
    table[:] = 0
    same(derived(X), X[-1])


# ---- no rounds


def test_without_rounds():
    def f(loop, w, x):
        return loop(lambda h, x: (h @ w, (h * 2, x[0], 1, True)), np.ones(3), x)

    none = X[:0]
    for carry, ys in (f(scan, W, none), jit(lambda w, x: f(scan, w, x))(W, none)):
        same(carry, np.ones(3))
        found = [(y.shape, y.dtype) for y in ys]
        assert found == [((0, 3), float), ((0,), float), ((0,), int), ((0,), bool)]
    slope = grad(lambda h: np.sum(scan(lambda h, x: (h**2, h), h, length=0)[0]))
    assert slope(np.ones(3)).tolist() == [1, 1, 1]
    assert scan(lambda h, x: (h + 1, h), 5, length=0)[0] == 5


# ---- errors


def both(f, *args):
    """The message of the error, outside of a trace and in one."""
    found = []
    for call in (f, jit(f)):
        with pytest.raises(ArgumentError) as caught:
            call(*args)
        found.append(re.sub(r" \(explicit_test.py:\d+: `[^`]*`\)", "", str(caught.value)))
    assert found[0] == found[1]
    return found[0]


def test_errors_of_lengths():
    def step(h, x):
        return h, None

    x = np.ones(4)
    message = both(lambda x: scan(step, 0.0, {"a": x, "b": x[:3]}), x)
    assert message == (
        "scan of step: xs['a'] has a first axis of 4, and xs['b'] has one of 3. All have an entry "
        "for each round"
    )
    assert "xs has a first axis of 4, and length is 5" in both(lambda x: scan(step, 0.0, x, 5), x)
    assert "Pass length" in both(lambda x: scan(step, x), x)
    assert "not -1" in both(lambda x: scan(step, x, length=-1), x)
    assert "not 2.5" in both(lambda x: scan(step, x, length=2.5), x)
    message = both(lambda x: scan(step, 0.0, [1.5, x]), x)
    assert "xs[0] is 1.5 (float), which has no first axis" in message
    with pytest.raises(ArgumentError, match="scan needs a function, not 3"):
        scan(3, 0.0, x)


def test_errors_of_what_is_returned():
    x = np.ones(4)
    message = both(lambda x: scan(lambda h, x: h + x, 0.0, x), x)
    assert message.startswith("scan of <lambda>: the function returned a number, and not a pair")
    assert "a tuple of 3" in both(lambda x: scan(lambda h, x: (h, h, h), 0.0, x), x)
    message = both(lambda x: scan(lambda h, x: ({"b": x}, None), {"a": 0.0}, x), x)
    assert "put together as {'a': *}, and the function returned {'b': *}" in message
    assert "y['name'] is 'n'" in both(lambda x: scan(lambda h, x: (h, {"name": "n"}), 0.0, x), x)
    carried, _ = scan(lambda h, x: ({"a": h["a"] * 1j + x}, x), {"a": 0.5}, x)
    assert carried == {"a": 0.5}  # complex from the second round on


def test_errors_of_types():
    x = np.ones(7)

    def growing(carry, x):
        return {"h": np.concatenate([carry["h"], carry["h"]])}, None

    message = both(lambda x: scan(growing, {"h": x[:1]}, x), x)
    assert message == (
        "scan of growing: carry['h'] is a float64 array of shape (16,) before round 4 and a "
        "float64 array of shape (32,) after it. What is carried may change its shape and dtype in "
        "the first 4 rounds, and then keeps them: let the function return what it was given, as to "
        "shapes and dtypes"
    )
    message = both(lambda x: scan(lambda c, x: (("on", "off")[c == "on"], None), "on", x), x)
    assert "carry is 'on' before round 4 and 'off' after it" in message
    message = both(lambda x: scan(lambda h, x: (h * x, h), 1.0, np.ones((3, 2)) * x[0]), x)
    assert "results of the shapes () and (2,)" in message


# ---- what bodies may hold


def svd(w, x):
    """Only NumPy can make this call, so it makes the rounds."""
    return scan(lambda h, x: (np.linalg.svd(np.outer(x, h) + w)[1], x @ h), np.ones(3), x)


def sorts(w, x):
    return scan(lambda h, x: (np.sort(h) @ w + x, h[0] * h[2]), np.ones(3), x)


def system_of_an_invariant(w, x):
    """The factors of a matrix that is the same in each round are computed once."""
    return scan(lambda h, x: (np.linalg.solve(w @ w.T + np.eye(3), h) + x, h), np.ones(3), x)


def chosen_places(w, x):
    def step(total, entry):
        k, x = entry
        return np.where(np.arange(6) == k, np.sum(w @ x), total), None

    return scan(step, np.zeros(6), (np.arange(6.0)[::-1].copy(), x))


def gathered(w, x):
    return scan(lambda h, k: (w @ h + x[np.atleast_1d(k)][0], None), np.ones(3), np.arange(6)[::-1])


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "f", [svd, sorts, system_of_an_invariant, chosen_places, gathered], ids=lambda f: f.__name__
)
def test_what_a_body_may_hold(f):
    gradcheck(lambda w, x: total(f(w, x)), (W, X))
    compiled, played = (
        value_and_grad(lambda w, x: total(f(w, x)), (0, 1), compile=mode)
        for mode in ("always", "never")
    )
    same(compiled(W, X), played(W, X), 1e-9)


# ---- views of what is carried at first


def turned_round(x):
    """Entries of a view of the value that the loop starts with, which it then changes."""
    t = np.tanh(x)
    return scan(lambda s, e: (np.sin(s + e), s), t, t[::-1])[0]


def spread(x):
    t = np.tanh(x)
    return scan(lambda s, e: (np.sin(s + e), s), t, np.broadcast_to(t, (5, len(x))))[0]


def one_cotangent_of_both(x):
    """Of what the loop ends with, and of each round's result."""

    def step(s, e):
        z = np.tanh(0.5 * s + e)
        return z, z * 0.5

    end, each = scan(step, np.zeros(len(x)), np.outer(np.arange(5.0), x))
    return (end + np.sum(each, 0)) * x


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [turned_round, spread, one_cotangent_of_both])
def test_a_view_of_what_a_loop_starts_with_stays_that(f):
    x = RNG.normal(size=4)
    compiled, played = (
        value_and_grad(lambda x: np.sum(f(x) ** 2), compile=mode)(x) for mode in ("always", "never")
    )
    same(compiled, played, 1e-12)
    gradcheck(lambda x: np.sum(f(x) ** 2), (x,))
