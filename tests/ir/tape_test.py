"""The tape: its types, and playing it."""

from __future__ import annotations

import math
import pickle
from collections import namedtuple

import numpy as np
import pytest
from tests.tapes import tape

import tapegrad as tg
from tapegrad.errors import InternalError, TapeError
from tapegrad.ir.tape import Aval, Builder, Call, Rewriter, Source, Var, aval_of, literal
from tapegrad.optimize.cse import eliminate_common
from tapegrad.optimize.dce import remove_dead
from tapegrad.optimize.simplify import simplify
from tapegrad.primitives.elementwise import add, sin

F8 = np.dtype(np.float64)


@pytest.mark.parametrize(
    ("aval", "text", "nbytes"),
    [
        (Aval((), F8), "f8[]", 8),
        (Aval((3, 4), np.dtype(np.float32)), "f4[3,4]", 48),
        (Aval((2, 0), np.dtype(bool)), "b1[2,0]", 0),
        (Aval((), np.dtype(np.int64), weak=True), "i8*[]", 8),
    ],
)
def test_a_type_prints_as_kind_bytes_and_shape(aval, text, nbytes):
    assert str(aval) == text
    assert aval.nbytes == nbytes


def test_python_numbers_have_weak_types():
    assert str(aval_of(2)) == "i8*[]"
    assert str(aval_of(2.0)) == "f8*[]"
    assert str(aval_of(np.float32(2))) == "f4[]"
    assert str(aval_of(np.ones((2, 3)))) == "f8[2,3]"


def test_literals_are_equal_when_their_bits_are():
    assert literal(0.0, F8) != literal(-0.0, F8)
    assert literal(1, np.int64) != literal(1.0, F8)
    assert literal(1.0, np.float32) != literal(1.0, F8)
    assert len({literal(0.5, F8), literal(0.5, F8), literal(-0.0, F8), literal(0.0, F8)}) == 3


def test_nan_is_one_literal_whatever_its_sign():
    assert literal(math.nan, F8) == literal(-math.nan, F8)
    assert hash(literal(math.nan, F8)) == hash(literal(-math.nan, F8))


def test_variables_differ_by_number_and_by_type():
    assert Var(1, Aval((), F8)) == Var(1, Aval((), F8))
    assert Var(1, Aval((), F8)) != Var(2, Aval((), F8))
    assert Var(1, Aval((), F8)) != Var(1, Aval((3,), F8))


def test_tapes_are_values():
    one = tape("f8[3]", "%2 = exp(%1) : f8[3]\nout %2")
    same = tape("f8[3]", "%2 = exp(%1) : f8[3]\nout %2")
    other = tape("f8[3]", "%2 = sin(%1) : f8[3]\nout %2")
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "a tape"
    assert len(one) == 1


def test_tapes_with_different_captured_arrays_differ():
    def with_constant(c):
        return tg.trace(lambda x: x + c, np.ones(2))[1]

    assert with_constant(np.array([1.0, 2.0])) == with_constant(np.array([1.0, 2.0]))
    assert with_constant(np.array([1.0, 2.0])) != with_constant(np.array([1.0, 3.0]))


def test_a_tape_can_be_pickled():
    _, made = tg.trace(lambda x: np.exp(x[1:]).sum() * 2.0, np.ones(4))
    assert pickle.loads(pickle.dumps(made)) == made


def test_reading_before_defining_is_an_error():
    rewriter = Rewriter(tape("f8[]", "out %1"))
    with pytest.raises(TapeError, match="%9 is used before"):
        rewriter.operand(Var(9, Aval((), F8)))


def test_a_source_line_knows_its_text():
    source = Source(__file__, 1)
    assert str(source) == "tape_test.py:1"
    assert source.text == '"""The tape: its types, and playing it."""'
    assert Source("nowhere.py", 3).text == ""


# ---- playing


def test_playing_gives_what_numpy_gives():
    _, made = tg.trace(lambda x, y: np.tanh(x) @ y, np.ones((2, 3)), np.ones(3))
    x, y = np.arange(6.0).reshape(2, 3), np.array([1.0, -2.0, 0.5])
    np.testing.assert_array_equal(made.play(x, y), np.tanh(x) @ y)


def test_one_output_is_a_value_and_several_are_a_tuple():
    assert tape("f8[]", "out %1").play(2.0) == 2.0
    assert tape("f8[]", "%2 = neg(%1) : f8[]\nout %2, 3.0").play(2.0) == (-2.0, 3.0)
    assert tape("f8[]", "out").play(2.0) == ()


Point = namedtuple("Point", "x y")


def test_nested_arguments_are_taken_apart_as_in_tracing():
    def f(params, point, *, scale, offset):
        layers = params["layers"]
        total = layers[0] - 2 * layers[1][0] + 3 * params["a"] * point.x - point.y
        return total * scale - offset

    params = {"layers": [np.array(1.0), (np.array(2.0),)], "a": np.array(5.0)}
    point = Point(x=np.array(7.0), y=np.array(11.0))
    options = {"scale": np.array(13.0), "offset": np.array(17.0)}
    value, made = tg.trace(f, params, point, **options)
    assert value == f(params, point, **options)
    # Dicts are taken apart by key, whatever order they are written in.
    params = {"a": params["a"], "layers": params["layers"]}
    assert made.play(params, point, offset=options["offset"], scale=options["scale"]) == value


def test_captured_arrays_need_not_be_passed():
    c = np.array([1.0, 2.0])
    _, made = tg.trace(lambda x: x * c, np.ones(2))
    assert len(made.free_inputs) == 1
    np.testing.assert_array_equal(made.play(np.array([3.0, 4.0])), [3.0, 8.0])


def test_python_numbers_take_the_dtype_of_their_input():
    halved = tape("f4[]", "%2 = mul(%1, f4(0.5)) : f4[]\nout %2").play(3)
    assert halved == 1.5
    assert halved.dtype == np.float32


def test_the_wrong_number_of_arguments_is_an_error():
    with pytest.raises(TapeError, match="has 1 inputs, and 2 arrays were passed"):
        tape("f8[]", "out %1").play(1.0, 2.0)


@pytest.mark.parametrize(
    ("types", "value"),
    [
        ("f8[3]", np.ones(4)),
        ("f8[3]", 1.0),
        ("f4[3]", np.ones(3)),
        ("i8[3]", np.ones(3)),
    ],
    ids=["shape", "rank", "precision", "kind"],
)
def test_an_argument_of_another_type_is_an_error(types, value):
    with pytest.raises(TapeError, match=r"the input %1 of the tape f is .*Trace again"):
        tape(types, "out %1").play(value)


def test_a_broken_guard_is_an_error_that_names_the_line():
    def f(x):
        return x * 2 if x > 0 else -x

    _, made = tg.trace(f, 3.0)
    assert made.play(4.0) == 8.0
    with pytest.raises(TapeError, match=r"a condition was True \(tape_test.py:\d+\)"):
        made.play(-4.0)


# ---- long tapes


def test_a_long_tape_takes_its_time_only_once():
    """Nothing recurses over the calls, and nothing is quadratic in their number."""
    builder = Builder("long")
    x = y = builder.input(Aval((), F8))
    for _ in range(10_000):
        (y,) = builder.call(sin, [y])
        (y,) = builder.call(add, [y, x])
    long = builder.finish([y])
    for apply in (simplify, eliminate_common, remove_dead):
        assert apply(long) == long
    assert str(long).count("\n") == 20_002
    assert math.isfinite(long.play(1.0))


@pytest.mark.parametrize(
    ("inputs", "call"),
    [
        ("f8[3]", "%2 = getitem(%1, index=(Slice(1, 3, 1),)) : f8[3]"),
        ("f8[3]", "%2 = getitem(%1, index=(Slice(1, 3, -1),)) : f8[3]"),
        ("f8[3]", "%2 = getitem(%1, index=(3,)) : f8[]"),
        ("f8[3]", "%2 = place(%1, shape=(2,), index=(Slice(0, 3, 1),)) : f8[2]"),
        ("f8[2] f8[3]", "%3 = setitem(%1, %2, index=(Slice(0, 3, 1),)) : f8[2]"),
    ],
)
def test_an_index_leaves_no_array(inputs, call):
    """Machine code would read or write other memory."""
    with pytest.raises(InternalError, match="isn't within the shape"):
        tape(inputs, f"{call}\nout %{2 + inputs.count(' ')}")


def test_a_call_without_results_comes_again():
    """As a loop that is there for its guards alone."""
    builder = Builder("guarded")
    x = builder.input(aval_of(1.0))
    call = Call(add, (x, x), ())
    assert builder.again(call, (x, x)) == ()
    assert builder.calls == [call]
