"""Guards that are checked once say what the function says that is made of them for later calls."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from tapegrad import grad
from tapegrad.core.late import CALLS, load
from tapegrad.observe.guards import one_time
from tapegrad.observe.guards.one_time import hold_now


class Held:
    rate, name = 2.0, "it's x1"


HELD = Held()
LISTED = [3, 4.0]

HOLD = [
    [("x0 = f['np']", ""), ("x0 is v0", "np")],
    [("x0 = f['np']", ""), ("x0 is v1 or x0 is v0", "np")],
    [("x0 = args[0]", ""), ("x1 = x0.rate", ""), ("x1 is v2 or (type(x1) is v3 and x1 == v2)", "")],
    [('args[0].name == "it\'s x1"', "name")],
    [("x0 = args[0]", ""), ('x0.name == "it\'s x1"', "name")],
    [("'gone' not in f", "gone"), ("x3 = f['gone']", "")],  # a place that no guard uses
    [("args[1][1] == 4", "item"), ("args[1][0] == 3", "item"), ("len(args[1]) == 2", "items")],
    [("kwargs['k'] is None", "k")],
    [("same_bytes(v4, v5)", "bytes")],
]
VALUES = {"v0": np, "v1": one_time, "v2": 2.0, "v3": float, "v4": np.ones(2)}
VALUES |= {"v5": np.ones(2).tobytes(), **one_time.HELPERS}


@pytest.mark.parametrize("lines", HOLD)
def test_guards_that_hold(lines):
    guards = [(line, word or ("" if line[2:5] == " = " else "it")) for line, word in lines]
    given = {"np": np}, (HELD, LISTED), {"k": None}
    assert hold_now(guards, VALUES, *given)
    others = {"np": one_time, "gone": 1}, (LISTED, [4, 3]), {"k": 0}
    assert not hold_now(guards, {**VALUES, "v1": 0, "v5": b""}, *others)


def test_what_is_gone_fails_without_an_error():
    assert not hold_now([("x0 = args[5]", ""), ("x0 is v0", "it")], VALUES, None, (), {})
    assert not hold_now([("x0 is v99", "it")], VALUES, None, (), {})


def test_lines_that_differ_in_names_alone_have_one_function():
    load(CALLS)
    hold_now([("f['a'] is v0", "a")], VALUES, {"a": np}, (), {})
    before = len(one_time._functions)
    assert hold_now([("args['b'] is v3", "b")], VALUES, None, {"b": float}, {})
    assert len(one_time._functions) == before


def test_a_first_call_makes_no_function_of_guards():
    scale = 3.0
    df = grad(lambda x: x * scale, compile="never")
    assert df(2.0) == 3.0
    (variant,) = df.cache.all_variants()
    assert "holds" not in vars(variant.state)
    assert df(5.0) == 3.0 and "holds" in vars(variant.state)
    scale = 4.0
    assert df(5.0) == 4.0


def test_what_was_checked_isnt_held():
    held, gone = Held(), []
    gone.append(weakref.ref(held))
    gc.disable()
    try:
        assert hold_now([("x0 = args[0]", ""), ("x0 is not None", "")], {}, None, (held,), {})
        del held
        assert gone[0]() is None
    finally:
        gc.enable()
