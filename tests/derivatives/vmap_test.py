"""`vmap`: what a loop over rows computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from tapegrad import (
    custom_root,
    defvjp,
    grad,
    hessian,
    jacobian,
    jit,
    jvp,
    primitive,
    scan,
    value_and_grad,
    vmap,
)
from tapegrad.errors import ArgumentError, TraceError

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(6, 3)), RNG.normal(size=3)
MODES = ["never", "always"]


def model(w, x):
    return np.tanh(x @ w) ** 2


def branching(x):
    if x[0] > 0.5:
        return np.sum(x**2)
    if x[1] > 0:
        return np.sum(np.sin(x))
    return 7


def iterated(x):
    y = x
    while abs(y * y - 2 - x) > 1e-10:
        y = y - (y * y - 2 - x) / (2 * y)
    return y


@pytest.mark.parametrize("compile", MODES)
def test_rows_are_those_of_the_loop(compile):
    found = vmap(model, in_axes=(None, 0), compile=compile)
    for rows in (X, X[:2], -X):
        np.testing.assert_allclose(found(W, rows), [model(W, x) for x in rows])


@pytest.mark.parametrize("compile", MODES)
@pytest.mark.parametrize("derive", [grad, hessian, jacobian])
def test_derivatives_for_each_row(derive, compile):
    found = vmap(derive(model), in_axes=(None, 0), compile=compile)(W, X)
    np.testing.assert_allclose(found, [derive(model)(W, x) for x in X])


@pytest.mark.parametrize("compile", MODES)
def test_each_row_takes_its_own_path(compile):
    found = vmap(branching, compile=compile)
    smooth = lambda x: branching(x) * 1.0  # noqa: E731
    slopes = vmap(grad(smooth), compile=compile)
    for seed in range(4):
        rows = np.random.default_rng(seed).normal(size=(8, 3))
        np.testing.assert_allclose(found(rows), [branching(x) for x in rows])
        np.testing.assert_allclose(slopes(rows), [grad(smooth)(x) for x in rows])
        outside = grad(lambda rows: np.sum(vmap(branching)(rows)))(rows)
        np.testing.assert_allclose(outside, [grad(smooth)(x) for x in rows])


@pytest.mark.every(2)
@pytest.mark.parametrize("length", [4, 40])
def test_rows_that_differ_inside_a_loop(length):
    """Forty rounds are a loop on the tape, with the condition in it."""

    def weighed(x):
        kept = np.array([v * k for k, v in enumerate(x) if v > 0])
        return kept[np.argmax(kept)] + len(kept)

    found, slopes = (vmap(f, compile="never") for f in (weighed, grad(weighed)))
    outside = grad(lambda rows: np.sum(found(rows) ** 2), compile="never")
    rows = np.abs(np.random.default_rng(1).normal(size=(3, length)))
    for place in (None, (1, 2), (2, 0), None):
        if place is not None:
            rows[place] *= -1
        values = np.array([weighed(x) for x in rows])
        each = np.array([grad(weighed, compile="never")(x) for x in rows])
        np.testing.assert_allclose(found(rows), values)
        np.testing.assert_allclose(slopes(rows), each)
        np.testing.assert_allclose(outside(rows), 2 * values[:, None] * each)


def test_paths_that_are_known_are_not_traced_again():
    found = vmap(lambda x: branching(x))
    rows = np.array([[1.0, 0, 0], [0, 1, 0], [0, -1, 0]])
    for order in ([0, 1, 2], [2, 1, 0], [0, 0, 0], [1, 2, 2]):
        found(rows[order])
    assert found.cache_info().traces == 1


def test_a_path_is_not_run_on_rows_that_do_not_take_it():
    """Of these the derivative of the root would be infinite, and 0 * inf is NaN."""

    def root(x):
        return np.sqrt(x) if x > 0 else x * 0

    rows = np.array([4.0, -1.0, 0.0])
    np.testing.assert_allclose(vmap(grad(root))(rows), [0.25, 0, 0])
    np.testing.assert_allclose(grad(lambda r: np.sum(vmap(root)(r)))(rows), [0.25, 0, 0])


@pytest.mark.parametrize("compile", MODES)
def test_what_comes_behind_a_guard_is_not_asked_of_rows_that_it_keeps_out(compile):
    """Of these the index would be out of bounds."""

    def looked_up(x):
        if x[0] < 3:
            y = x[x[:1].astype(int)][0]
            return y if y > 0.5 else -2 * y
        return x[0]

    found = vmap(looked_up, compile=compile)
    for shift in (0, 1, -1):
        rows = np.roll([[1.0, 2, 3], [7, 1, 1], [0, 0, 0], [1, -2, 0], [5, 5, 5]], shift, 0)
        np.testing.assert_allclose(found(rows), [looked_up(x) for x in rows])
    assert found.cache_info().traces == 1


def test_rows_go_round_a_loop_as_often_as_each_needs():
    xs = np.array([1.0, 5.0, 100.0])
    np.testing.assert_allclose(vmap(iterated)(xs), [iterated(x) for x in xs])
    slopes = [grad(iterated)(x) for x in xs]
    np.testing.assert_allclose(vmap(grad(iterated))(xs), slopes)


def test_axes_in_and_out():
    found = vmap(lambda a, b: {"o": a * b, "n": 3}, in_axes=(1, None), out_axes={"o": 1, "n": 0})
    result = found(X, 2.0)
    np.testing.assert_allclose(result["o"], 2 * X)
    np.testing.assert_array_equal(result["n"], [3, 3, 3])
    tree = vmap(lambda p, x: p["a"] + p["b"] * x, in_axes=({"a": None, "b": 0}, -1))
    result = tree({"a": 1.0, "b": W}, X[:2])
    np.testing.assert_allclose(result, [1 + b * x for b, x in zip(W, X[:2].T, strict=True)])
    by_name = vmap(lambda x, scale: x * scale, in_axes=0)
    np.testing.assert_allclose(by_name(X, scale=np.arange(6.0)), X * np.arange(6.0)[:, None])


def test_a_result_that_is_the_same_for_all_rows():
    np.testing.assert_allclose(vmap(lambda x: W * 2)(X), np.tile(W * 2, (6, 1)))
    np.testing.assert_allclose(vmap(lambda x, w: w * 2, (0, None), None)(X, W), W * 2)
    with pytest.raises(ArgumentError, match="differs from row to row"):
        vmap(lambda x: x, 0, None)(X)


@pytest.mark.parametrize(
    "function, arguments, words",
    [
        (vmap(model, (None, 0)), (W,), "in_axes has 2 entries, and 1 positional"),
        (vmap(model), (X, X[:2]), "different numbers of rows"),
        (vmap(lambda x: x), (2.0,), "which has no rows"),
        (vmap(lambda x: x, 2), (X,), "has 2 axes, and in_axes says 2"),
        (vmap(lambda x: x, None), (X,), "no argument has rows"),
    ],
)
def test_rows_that_are_not_there_are_an_error(function, arguments, words):
    with pytest.raises(ArgumentError, match=words):
        function(*arguments)


def test_rows_of_different_shapes_are_an_error():
    with pytest.raises(TraceError, match="one shape"):
        vmap(lambda x: x if x[0] > 0 else x[:2])(X)
    with pytest.raises(TraceError, match="more than 16 paths"):
        vmap(lambda x: x * len("a" * int(x)))(np.arange(20.0))


def test_texts_that_differ_from_row_to_row_are_an_error():
    """One text can't stand for those of all rows; the same one on all paths can."""
    X = np.array([[1.0], [-1.0]])
    for other in ("down", 1.0):
        with pytest.raises(TraceError, match="'up' for some rows"):
            vmap(lambda x, other=other: (x, "up" if x[0] > 0 else other))(X)
    found, word = vmap(lambda x: (x, "up") if x[0] > 0 else (2 * x, "up"))(X)
    assert word == "up"
    np.testing.assert_array_equal(found, [[1.0], [-2.0]])


# Each makes a function of a row that does more than to compute, and what shows its state.


def counting():
    kept = {"calls": 0, "rows": []}

    def f(x):
        kept["calls"] += 1
        kept["rows"].append(x[0] * 2)
        return np.sum(x) * kept["calls"] + len(kept["rows"])

    return f, lambda: (kept["calls"], list(kept["rows"]))


def some_rows_leave_something():
    rows = []

    def f(x):
        if x[0] > 0.2:
            rows.append(1.0)
        return np.sum(x) * len(rows)

    return f, lambda: len(rows)


def previous():
    last = [np.zeros(3)]

    def f(x):
        difference = x - last[0]
        last[0] = x * 1.0
        return difference

    return f, lambda: last[0]


def running_sum():
    total = np.zeros(3)

    def f(x):
        total[:] += x
        return total * x

    return f, lambda: total


def iterator():
    numbers = iter(range(100))
    return lambda x: x * next(numbers), lambda: None


def printing():
    def f(x):
        print("a row")
        return x * 2

    return f, lambda: None


def drawing(draw, seed=3):
    def make():
        rng = np.random.default_rng(seed)
        return lambda x: draw(rng, x), lambda: rng.bit_generator.state["state"]["state"]

    make.__name__ = "draws"
    return make


IN_TURN = [
    counting,
    some_rows_leave_something,
    previous,
    running_sum,
    iterator,
    printing,
    drawing(lambda rng, x: np.sum(x) * np.sin(rng.normal())),
    drawing(lambda rng, x: np.sum(x) if rng.normal() > 0 else -x[0]),
    drawing(lambda rng, x: x * rng.normal() if x[0] > 0 else x - rng.uniform() * rng.uniform()),
    drawing(lambda rng, x: x[int(rng.integers(3))] * rng.normal(x[0], 2.0)),
    drawing(lambda rng, x: vmap(lambda a: a * rng.normal())(x)),
    drawing(lambda rng, x: grad(lambda y: np.sum(y**2) * rng.normal())(x)),
    drawing(lambda rng, x: x * rng.permuted([1.0, 2.0, 3.0])),
]


@pytest.mark.every(2)
@pytest.mark.filterwarnings("ignore:.*traced for three calls")
@pytest.mark.parametrize("make", IN_TURN, ids=lambda make: make.__name__)
def test_rows_do_in_turn_what_a_loop_does(make, capsys):
    """At each call: results, what is left outside, and the states of generators."""
    (f, state), (plain, wanted) = make(), make()
    mapped = vmap(f, compile="never")
    inside = value_and_grad(lambda rows: np.sum(vmap(f)(rows) * 1.0), compile="never")
    for k, found in enumerate((mapped, mapped, lambda rows: inside(rows)[0])):
        rows = X + 0.1 * k
        result = found(rows)
        right = np.array([plain(x) for x in rows])
        np.testing.assert_allclose(result, right if k < 2 else np.sum(right))
        np.testing.assert_equal(state(), wanted())
    printed = capsys.readouterr().out.count("a row")
    assert printed in (0, len(X) * (3 + 2))  # three plain calls and two traces, if any


@pytest.mark.parametrize("compile", MODES)
def test_counters_and_lists_need_no_trace_at_later_calls(compile):
    class Model:
        def __init__(self):
            self.calls, self.seen, self.last, self.mean = 0, [], None, np.zeros(3)

        def __call__(self, x):
            self.calls += 1
            self.seen.append(x[0])
            self.mean += x / 6
            self.last = x * self.calls
            x *= 2
            return self.last * self.mean + x

    model, plain = Model(), Model()
    found = vmap(model, compile=compile)
    for k in range(3):
        rows = X + k
        np.testing.assert_allclose(found(rows), [plain(x) for x in rows.copy()])
        np.testing.assert_array_equal(rows, X + k)
        assert model.calls == plain.calls
        for name in ("seen", "last", "mean"):
            np.testing.assert_allclose(getattr(model, name), getattr(plain, name))
    assert found.cache_info().traces == 1


def test_results_of_rows_in_turn_are_put_together():
    """As those of rows that are computed at once: along other axes, with what is no number."""
    kept = []

    def f(x):
        kept.append(1)
        return {"o": x * len(kept), "n": 3, "s": "text"}

    found = vmap(f, out_axes={"o": 1, "n": 0, "s": None})(X)
    np.testing.assert_allclose(found["o"], X.T * np.arange(1, 7))
    assert (list(found["n"]), found["s"]) == ([3] * 6, "text")
    for result, words in [
        (lambda x: x[: len(kept)], "one shape"),
        (lambda x: (x, f"{len(kept)}"), "What isn't a number has no rows"),
        (lambda x: (x,) * len(kept), "put together in one way"),
    ]:
        kept.clear()
        with pytest.raises(TraceError, match=words):
            vmap(lambda x, result=result: kept.append(1) or result(x))(X)


def test_no_rows_have_the_shapes_of_one():
    none = X[:0]
    for compile in MODES:
        found = vmap(lambda x: (np.outer(x, x), {"b": x[0] > 0, "n": 3}), compile=compile)(none)
        assert [x.shape for x in (found[0], found[1]["b"], found[1]["n"])] == [
            (0, 3, 3),
            (0,),
            (0,),
        ]
        assert found[1]["b"].dtype == bool
        assert vmap(hessian(lambda x: np.sum(x**3)), out_axes=1, compile=compile)(none).shape == (
            *(3, 0, 3),
        )
        assert grad(lambda x: np.sum(vmap(np.sum)(x)), compile=compile)(none).shape == (0, 3)
    assert vmap(vmap(np.sin))(np.zeros((2, 0))).shape == (2, 0)
    assert vmap(lambda x: 1 / x)(none).shape == (0, 3)  # and no warning of what isn't computed


def test_no_rows_that_decide_are_an_error():
    rng, kept = np.random.default_rng(0), []
    before = rng.bit_generator.state
    with pytest.raises(ArgumentError, match="without values it can't be told"):
        vmap(branching)(X[:0])
    for f in (lambda x: x * rng.normal(), lambda x: kept.append(1) or x):
        with pytest.raises(ArgumentError, match="does something outside"):
            vmap(f)(X[:0])
    assert rng.bit_generator.state == before and not kept


PRODUCT = "(m,n),(n)->(m)"


@pytest.mark.parametrize("compile", MODES)
def test_signatures_are_those_of_vectorize(compile):
    """The axes before those that are named broadcast."""
    matrix, vector = RNG.normal(size=(4, 1, 2, 3)), RNG.normal(size=(5, 3))
    several = lambda a, x: (a @ x, np.sum(x))  # noqa: E731
    for f, signature in [(lambda a, x: a @ x, PRODUCT), (several, "(m,n),(n)->(m),()")]:
        found, wanted = vmap(f, signature=signature), np.vectorize(f, signature=signature)
        for a in (matrix, matrix[0], matrix[0, 0]):
            for x in (vector, vector[0]):
                np.testing.assert_equal(
                    [np.shape(y) for y in found(a, x)], [np.shape(y) for y in wanted(a, x)]
                )
                for y, right in zip(found(a, x), wanted(a, x), strict=True):
                    np.testing.assert_allclose(y, right)
    assert vmap(np.matmul, signature=PRODUCT, compile=compile)(matrix[:0], vector).shape == (
        0,
        5,
        2,
    )
    chosen = vmap(lambda x, y: x if x > y else y * 2, signature="(),()->()", compile=compile)
    wanted = np.where(X[:, :1] > W, X[:, :1], W * 2)
    np.testing.assert_allclose(chosen(X[:, :1], W), wanted)
    assert chosen(1.0, 2.0) == 4.0
    whole = vmap(lambda p, x, s: p["w"] @ x * s, (None, 0), signature="(n)->()", compile=compile)
    np.testing.assert_allclose(whole({"w": W}, X, s=2.0), 2 * X @ W)
    slopes = grad(lambda x: np.sum(vmap(np.matmul, signature=PRODUCT)(matrix, x)), compile=compile)
    np.testing.assert_allclose(slopes(vector), np.tile(matrix.sum((0, 1, 2)), (5, 1)))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: vmap(np.matmul, signature="m->n"), ArgumentError, "a signature names"),
        (lambda: vmap(np.sum, 1, signature="(n)->()"), ArgumentError, "in_axes is 0"),
        (lambda: vmap(np.matmul, signature=PRODUCT)(X), ArgumentError, "is about 2 arguments"),
        (lambda: vmap(np.matmul, signature=PRODUCT)(X, W[:2]), ArgumentError, "2 entries, and 3"),
        (lambda: vmap(np.matmul, signature=PRODUCT)(W, W), ArgumentError, "has shape"),
        (lambda: vmap(np.sum, signature="(n)->()")({"a": X}), ArgumentError, "is a dict"),
        (lambda: vmap(np.add, signature="(),()->()")(X, W[:2]), ArgumentError, "don't broadcast"),
        (lambda: vmap(np.sin, signature="(n)->()")(X), TraceError, "result 0 of a row"),
        (lambda: vmap(np.sin, signature="(n)->(n),()")(X), TraceError, "returns one result"),
    ],
)
def test_what_a_signature_does_not_say_is_an_error(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("compile", MODES)
def test_rows_draw_one_after_the_other_at_each_call(compile):
    def made():
        rng = np.random.default_rng(5)

        def f(x):
            noise, scale = rng.normal(size=3), rng.uniform()
            return np.sum(x * noise) * scale + rng.exponential(2.0)

        return rng, f

    (_, mapped), (rng, plain) = made(), made()
    found, slopes = vmap(mapped, compile=compile), grad(lambda rows: np.sum(vmap(mapped)(rows)))
    for k in range(3):
        np.testing.assert_allclose(found(X + k), [plain(x) for x in X + k])
        wanted = []
        for _ in X:
            noise, scale = rng.normal(size=3), rng.uniform()
            rng.exponential(2.0)
            wanted.append(noise * scale)
        np.testing.assert_allclose(slopes(X), wanted)


def test_maps_of_maps_and_of_everything():
    pairs = vmap(vmap(lambda a, b: a @ b, (None, 0)), (0, None))
    np.testing.assert_allclose(pairs(X, X), X @ X.T)
    np.testing.assert_allclose(jit(lambda x: vmap(np.sum)(x) * 2)(X), 2 * X.sum(1))
    _, tangent = jvp(vmap(model, (None, 0)), (W, X), (W, None))
    np.testing.assert_allclose(tangent, [grad(model)(W, x) @ W for x in X])

    def recurrence(x):
        return scan(lambda h, v: (np.tanh(h + v), h), 0.0, x)[0]

    np.testing.assert_allclose(vmap(recurrence)(X), [recurrence(x) for x in X])
    np.testing.assert_allclose(vmap(grad(recurrence))(X), [grad(recurrence)(x) for x in X])


def test_systems_and_factors_of_each_row():
    a = RNG.normal(size=(4, 3, 3)) + 3 * np.eye(3)
    b = RNG.normal(size=(4, 3))

    def solved(a, b):
        return np.sum(np.linalg.solve(a, b)) + np.linalg.slogdet(a @ a.T)[1]

    for compile in MODES:
        found = vmap(grad(solved, (0, 1)), compile=compile)(a, b)
        for k, part in enumerate(found):
            wanted = [grad(solved, (0, 1))(x, y)[k] for x, y in zip(a, b, strict=True)]
            np.testing.assert_allclose(part, wanted)


def test_indices_that_differ_from_row_to_row():
    table, places = RNG.normal(size=(5, 2)), np.array([[0, 3], [4, 4], [1, 0]])
    picked = lambda t, k: np.sum(t[k] ** 2)  # noqa: E731
    found = vmap(grad(picked), in_axes=(None, 0))(table, places)
    np.testing.assert_allclose(found, [grad(picked)(table, k) for k in places])


def test_captured_values_are_read_at_each_call():
    scale = np.array([1.0, 2.0, 3.0])
    found = vmap(lambda x: x * scale if x[0] > 0 else -x)
    for factor in (1.0, 5.0):
        scale[:] = [factor, 2.0, 3.0]
        np.testing.assert_allclose(found(X), [x * scale if x[0] > 0 else -x for x in X])


LIE = {
    "ravel": lambda a: a.ravel("K") * np.arange(6),
    "copy": lambda a: np.copy(a).ravel("K") * np.arange(6),
    "computed": lambda a: (2 * a).ravel("K") * np.arange(6),
    "flags": lambda a: np.sum(a) * (2 if a.flags.c_contiguous else 3),
}


@pytest.mark.parametrize("name", LIE)
def test_rows_lie_in_memory_as_in_a_loop(name):
    f = LIE[name]
    rows = RNG.normal(size=(2, 2, 3))
    for batch in (rows, np.asfortranarray(rows), rows.transpose(0, 2, 1)):
        np.testing.assert_allclose(vmap(f, compile="never")(batch), [f(row) for row in batch])
    wanted = [f(row) for row in np.moveaxis(rows, 1, 0)] if name == "flags" else None
    if wanted is not None:
        np.testing.assert_allclose(vmap(f, 1, compile="never")(rows), wanted)


@dataclass
class Line:
    slope: Any
    start: Any


def test_what_can_have_no_rows_is_the_same_for_all():
    """Strings, functions, dtypes; a number may be meant otherwise, and None has to be said."""

    def f(x, of=None, how="twice", dtype=float):
        return of((2 if how == "twice" else 3) * x).astype(dtype)

    x = np.arange(3.0)
    np.testing.assert_array_equal(vmap(f)(x, of=np.sin, how="so"), np.sin(3 * x))
    assert vmap(f)(x, np.sin, dtype=np.float32).dtype == np.float32
    with pytest.raises(ArgumentError, match="'how' is the number 2"):
        vmap(f)(x, of=np.sin, how=2.0)


def test_axes_as_a_dataclass():
    """Of arguments and of results, as with dicts and tuples."""
    line = Line(np.arange(6.0).reshape(2, 3), 1.0)
    g = vmap(lambda p, x: p.slope @ x + p.start, in_axes=(Line(1, None), None))
    np.testing.assert_array_equal(g(line, np.ones(2)), line.slope.sum(0) + 1)
    found = vmap(lambda x: Line(2 * x, x.sum()), out_axes=Line(1, 0))(line.slope)
    np.testing.assert_array_equal(found.slope, 2 * line.slope.T)
    np.testing.assert_array_equal(found.start, line.slope.sum(1))


def test_rows_take_their_own_paths_inside_of_primitives():
    scaled = primitive(lambda x: 2 * x if x > 1 else 3 * x)
    defvjp(scaled, lambda ct, out, x: ct * np.where(x > 1, 2.0, 3.0))
    x = np.array([0.5, 2.0])
    np.testing.assert_array_equal(vmap(scaled)(x), [1.5, 4.0])
    values, slopes = vmap(value_and_grad(scaled))(x)
    np.testing.assert_array_equal(values, [1.5, 4.0])
    np.testing.assert_array_equal(slopes, [3.0, 2.0])


def test_rows_take_their_own_paths_in_an_equation():
    @custom_root(lambda x, a: x * x - a if a > 1 else 2 * x - 1 - a)
    def solution(start, a):
        return np.sqrt(a) if a > 1 else (1 + a) / 2

    slopes = vmap(grad(lambda a: solution(0.0, a)))(np.array([0.5, 2.0]))
    np.testing.assert_allclose(slopes, [0.5, 0.5 / np.sqrt(2)], rtol=1e-14)


def doubled_beside(a, b):
    a[0] = b[1] * 2
    return np.sum(a * b)


def test_rows_that_write_to_what_shares_memory_are_refused():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    rows = vmap(doubled_beside)
    np.testing.assert_array_equal(rows(x, x.copy()), [8.0, 40.0])
    for again in (rows, vmap(doubled_beside)):  # in a later call, and in a first one
        with pytest.raises(
            ArgumentError, match=r"writes to its argument a.*memory with argument b"
        ):
            again(x, x)
    with pytest.raises(ArgumentError, match="an array that it uses"):
        vmap(lambda a: doubled_beside(a, x[0]))(x)
    with pytest.raises(ArgumentError, match="share memory with each other"):
        vmap(lambda a: doubled_beside(a, a * 1))(sliding_window_view(np.arange(4.0), 2))


def test_rows_that_write_to_what_all_share_are_refused():
    def added(x, w):
        w += x
        return w.sum()

    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(ArgumentError, match=r"'w'.* all rows share.* write to a copy"):
        vmap(added, in_axes=(0, None))(x, np.zeros(2))
    own = vmap(lambda x, w: added(x, w.copy()), in_axes=(0, None))
    np.testing.assert_array_equal(own(x, np.zeros(2)), 2 * x)
