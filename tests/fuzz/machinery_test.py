"""The fuzzers themselves: programs find their values in every place, and what is wrong is seen."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from tests.fuzz import properties, ranges, values
from tests.fuzz.programs import Program
from tests.fuzz.properties import Effort, Wrong, check
from tests.fuzz.ranges import check_ranges
from tests.fuzz.shrinking import shrunk
from tests.fuzz.states import PLACES, held
from tests.fuzz.transformed import FIRST, SECOND, check_transformed
from tests.fuzz.variations import CHANGES, calls_of

from tapegrad.checking import debug
from tapegrad.core.trees import flatten, unflatten

QUICK = Effort(compiled=0.0, second=0.0, passes=0.0)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", ["number()", "reals((3,))", "[number(), reals(())]"])
def test_a_program_finds_the_values_of_each_call(place, text):
    program = Program({"x1": "number()"}, {"x2": text}, ("return x1, x2",), {"x2": place})
    f = program.function()
    for seed in (0, 1, 2, 3):
        call = program.call(seed)
        call.enter(f)
        found, expected = f(*call.args()), (*call.args(), call.captured()["x2"])
        for x, y in zip(flatten(found)[0], flatten(expected)[0], strict=True):
            np.testing.assert_array_equal(x, y)


def test_an_array_is_written_into_or_bound_anew():
    program = Program({}, {"x1": "reals((3,))"}, ("return x1",), {"x1": "item"})
    f = program.function()
    objects = []
    for seed in (0, 1, 2, 3):
        program.call(seed).enter(f)
        objects.append(held(f, "x1"))
    assert objects[2] is not objects[1]
    assert any(x is y for x, y in itertools.pairwise(objects))


@pytest.mark.parametrize("layout", values.MADE)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_layouts_keep_values(layout, shape):
    x = np.arange(6.0)[: int(np.prod(shape))].reshape(shape)
    made = getattr(values, layout)(x)
    expected = np.broadcast_to(x[:1], shape) if layout == "repeated" and shape else x
    np.testing.assert_array_equal(made, expected)


def test_calls_differ_in_every_respect_and_come_back():
    seen, again = set(), 0
    program = Program({"x1": "reals((2, 3))", "x2": "number()"}, {}, ("return x1 * x2",))
    for seed in range(15):
        calls = calls_of(program, random.Random(seed))
        seen |= {call.what for call in calls}
        again += len(calls) - len(set(map(str, calls)))
    assert seen == {"values", *CHANGES}
    assert again >= 15


def test_an_answer_of_an_earlier_call_is_wrong(monkeypatch):
    def stale(f, compile):
        found = []

        def first(*args):
            found[:] = found or [f(*args)]
            return found[0]

        return first

    program = Program({"x1": "reals((3,))", "x2": "reals((4,))"}, {}, ("return x1 / len(x2)",))
    check(program, 0, QUICK)
    monkeypatch.setattr(properties, "jit", stale)
    with pytest.raises(AssertionError):
        check(program, 0, QUICK)


@pytest.mark.parametrize("dtype", ["np.float64", "np.float32"])
def test_numbers_of_any_size_are_drawn(dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate([values.any_reals(rng, (4,), getattr(np, dtype[3:])) for _ in range(300)])
    info = np.finfo(x.dtype)
    found = np.abs(x[np.isfinite(x) & (x != 0)])
    assert np.min(found) < info.tiny / 100 and np.max(found) > info.max / 100
    zeros = x[x == 0]
    assert {*np.signbit(zeros)} == {True, False}
    assert np.isnan(x).any() and np.isposinf(x).any() and np.isneginf(x).any()


@pytest.mark.parametrize(
    "other",
    [
        lambda x: np.where(x == 0, np.finfo(x.dtype).smallest_subnormal, x),
        lambda x: np.where(x == 0, -x, x),
        lambda x: np.where(np.abs(x) > 1e300, np.inf, x),
        lambda x: np.where(np.isinf(x), np.nan, x),
        lambda x: np.where(np.abs(x) < 1e-300, 0.0, x),
        lambda x: x * (1 + 1e-12),
    ],
)
def test_another_class_and_another_number_are_wrong(monkeypatch, other):
    program = Program({"x1": "any_reals((11,))"}, {}, ("v2 = x1 * 1.5", "return v2"))
    for seed in range(4):
        check_ranges(program, seed, QUICK)
    given = "np.array([0.0, -0.0, np.inf, 1e-301, 1.1e301, 1.0])"
    program = Program({"x1": "any_number()"}, {}, (f"v2 = {given} * 1.5", "return v2"))
    monkeypatch.setattr(ranges, "jit", lambda f, compile: lambda *args: other(f(*args)))
    with pytest.raises(Wrong):
        check_ranges(program, 0, QUICK)


def test_what_is_made_of_a_product_of_infinities_is_left_open(monkeypatch):
    """Infinities of both signs meet in the product: it isn't finite, and its reciprocal is 0 or
    NaN."""
    given = {
        "x1": "np.array([-1e268, 1e264, 1e276])",
        "x2": "np.array([[1e125, 1e125, -1e125]] * 3)",
    }
    monkeypatch.setattr(debug, "ON", False)  # it doesn't know what is made of the product
    program = Program(given, {}, ("v1 = (x2 @ x1) * 2.0**-600", "v2 = v1 ** -1", "return v2"))
    check_ranges(program, 0, Effort())


def test_a_missing_error_is_wrong(monkeypatch):
    program = Program({"x1": "reals((3,))", "x2": "reals((3,))"}, {}, ("return x1 + x2",))
    seeds = [k for k in range(8) if "raised" in str(check(program, k, QUICK))]
    monkeypatch.setattr(properties, "_same_error", lambda error, numpys: False)
    with pytest.raises(Wrong, match="NumPy raises"):
        check(program, seeds[0], QUICK)


def test_a_failing_program_is_made_short():
    lines = ("v1 = np.sin(x1)", "if v1 > 0:", "    v2 = v1 * 2", "v3 = x1 * 3", "return v1, v3")
    program = Program({"x1": "number()"}, {}, lines)

    def fails(program: Program) -> Exception | None:
        return ValueError("raises no") if "x1 * 3" in str(program) else None

    short, _ = shrunk(program, fails, ValueError("raises no"))
    assert short.lines[0] == "v3 = x1 * 3" and len(short.lines) == 2


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["jvp", "vmap", "sparse_hessian", "jet"])
def test_a_transformation_that_is_wrong_is_noticed(name, monkeypatch):
    program = Program({"x1": "reals((3,))"}, {}, ("return np.sin(x1) * x1[::-1]",))
    assert check_transformed(program, 0)[f"{name}: compared"]
    table = FIRST if name in FIRST else SECOND
    found, wanted = table[name]

    def wrong(f, x, v, compile):
        return map_tree(lambda y: y * (1 + 1e-9), found(f, x, v, compile))

    monkeypatch.setitem(table, name, (wrong, wanted))
    with pytest.raises(AssertionError, match=name):
        check_transformed(program, 0)


def map_tree(f, tree):
    leaves, structure = flatten(tree)
    return unflatten(structure, [f(x) for x in leaves])
