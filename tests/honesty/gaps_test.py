"""Known gaps

Each of these tests shows a way round the promise that is known. One that fails has been closed.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tapegrad import grad

X = np.array([1.0, 2.0])
BASE = 2.0


def test_the_type_of_a_traced_value():
    """`type(x) is float` -> False, though `isinstance` says what it says untraced"""
    assert grad(lambda x: 2 * x if type(x) is float else 3 * x, compile="never")(1.0) == 3.0


def test_the_repr_of_a_traced_value():
    """`repr(x)` of a traced value, where it decides what is computed -> that of a tracer"""
    assert grad(lambda x: 2 * x if repr(x) == "1.0" else 3 * x, compile="never")(1.0) == 3.0


def test_functions_of_numpy_that_are_replaced(monkeypatch):
    """`np.tanh = mine`, `math.exp = mine` -> not noticed: NumPy's and Python's own names are taken
    as they are"""
    df = grad(lambda x: x * np.floor(2.5) * math.floor(2.5), compile="never")
    assert df(1.0) == 4.0
    monkeypatch.setattr(np, "floor", np.ceil)
    monkeypatch.setattr(math, "floor", math.ceil)
    assert df(1.0) == 4.0


@functools.cache
def remembered():
    return BASE


def test_a_cache_that_is_emptied(monkeypatch):
    """a cache of functools.lru_cache is emptied, and would remember another result -> not noticed,
    if the trace found it filled"""
    remembered()
    df = grad(lambda x: x * remembered(), compile="never")
    assert df(1.0) == 2.0
    monkeypatch.setitem(globals(), "BASE", 5.0)
    remembered.cache_clear()
    assert df(1.0) == 2.0
    remembered.cache_clear()
