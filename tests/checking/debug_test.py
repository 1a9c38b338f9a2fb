"""Compiled calls are held against played ones, in all tests."""

from array import array

import numpy as np
import pytest

from tapegrad import grad, jit, primitive, trace
from tapegrad.backends.cpu import linking
from tapegrad.checking import debug
from tapegrad.errors import InternalError
from tapegrad.runtime.entry import flat_function

X = np.array([0.5, -1.0, 2.0])


def test_a_compiled_call_that_differs_is_an_error(monkeypatch):
    """By every way in which arguments reach kernels."""
    assert debug.ON
    factor = 1.0

    def wrong(name, code, shared):
        kernel = linked(name, code, shared)

        def run(*args):
            status = kernel(*args)
            args[-1][...] *= factor
            return status

        return run

    linked = linking.linked
    monkeypatch.setattr(linking, "linked", wrong)
    for factor in (1.0, 1.0 + 1e-12, np.nan):
        fails = factor != 1.0
        df = grad(lambda x: np.sum(np.sin(x)), compile="always")
        keyword = jit(lambda x: np.sin(x), compile="always")
        tape = trace(lambda x: np.sin(x), X)[1]
        flat = flat_function(tape)
        for call in (df, df, lambda x: keyword(x=x), tape.compile(), flat):  # noqa: B023
            if fails:
                with pytest.raises(InternalError, match="differs from the played tape"):
                    call(X)
            else:
                call(X)


def tape_of(f, *args):
    return trace(f, *args)[1]


def test_rounding_is_measured_where_results_differ_by_more():
    """A small difference of large sums may be off by much, and no more than rounding makes it."""
    x = np.random.default_rng(0).normal(size=1000)
    tape = tape_of(lambda x: np.sum(x * 1e8) - 1e8 * np.sum(x), x)
    (played,) = [tape.play(x)]
    debug.compare(tape, [x], {0: played + 1e-6})
    with pytest.raises(InternalError, match="played it is"):
        debug.compare(tape, [x], {0: played + 1e-3})


def test_what_must_agree():
    with np.errstate(all="ignore"):
        tape = tape_of(lambda x: (x * 2.0, np.argmax(x), np.log(x)), X)
        good = dict(enumerate(tape.play(X)))
    debug.compare(tape, [X], good)
    assert np.isnan(good[2][1])
    for wrong in (
        {0: good[0].astype(np.float32)},
        {0: good[0][:2]},
        {0: good[0] + 1e-9},
        {1: np.int64(1)},
        {2: np.nan_to_num(good[2])},
    ):
        with pytest.raises(InternalError):
            debug.compare(tape, [X], {**good, **wrong})
    guarded = tape_of(lambda x: x if x[0] > 0 else -x, X)
    with pytest.raises(InternalError, match="it went on"):
        debug.compare(guarded, [-X], {0: -X})


def test_functions_of_the_users_are_called_once():
    @primitive
    def foreign(x):
        return np.sin(array("d", x[:1])[0]) * np.ones(3)

    def call():
        raise AssertionError

    tape = tape_of(lambda x: foreign(x) * 2.0, X)
    assert debug.watched(call, tape, list, dict) is call
    assert debug.watched(call, tape_of(np.sin, X), list, dict) is not call
