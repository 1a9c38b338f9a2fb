"""Tapes that are changed by hand: calls by their names, replaced, inserted and deleted, and
derivatives of what calls define."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.checking.tape_verify import verify
from tapegrad.errors import ConversionError, GradientError, TapeError

X = np.array([0.3, -0.7, 1.1])
W = np.array([1.2, 0.4, -0.6])


def model(w, x):
    h = np.sin(w * x)
    return np.sum(h * h * x)


TAPE = tg.trace(model, W, X)[1]  # %3 = w * x, %4 = sin, %5 = h * h, %6 = ... * x, %7 = sum


def test_calls_are_found_by_position_and_by_what_they_define():
    assert TAPE[1] is TAPE["%4"] is TAPE[TAPE[1].out] is TAPE.calls[1]
    assert str(TAPE[1].primitive) == "sin"
    assert TAPE[-1].out == TAPE.outputs[0]
    assert TAPE[1:3] == TAPE.calls[1:3]
    assert list(TAPE) == list(TAPE.calls)
    with pytest.raises(TapeError, match="no call of the tape model defines %1"):
        TAPE["%1"]
    with pytest.raises(IndexError):
        TAPE[len(TAPE)]


EDITS = {
    "replaced": (lambda: TAPE.replace("%4", np.tanh), lambda h, w, x: np.tanh(w * x)),
    "replaced by several calls": (
        lambda: TAPE.replace(1, lambda z: 1 / (1 + np.exp(-z))),
        lambda h, w, x: 1 / (1 + np.exp(-w * x)),
    ),
    "replaced by its operand": (lambda: TAPE.replace("%4", lambda z: z), lambda h, w, x: w * x),
    "replaced by an array": (
        lambda: TAPE.replace("%4", lambda z: np.arange(3.0)),
        lambda h, w, x: np.arange(3.0),
    ),
    "replaced by a choice": (
        lambda: TAPE.replace("%4", lambda z: tg.cond(z[0] > 0, np.sin, np.cos, z)),
        lambda h, w, x: h if w[0] * x[0] > 0 else np.cos(w * x),
    ),
    "inserted": (
        lambda: TAPE.insert("%4", lambda h, x, k: h + k * x, "%2", 0.5),
        lambda h, w, x: h + 0.5 * x,
    ),
    "inserted by position": (lambda: TAPE.insert(1, np.exp), lambda h, w, x: np.exp(h)),
    "inserted with an array from outside": (
        lambda: TAPE.insert("%4", lambda h: h * W),
        lambda h, w, x: h * W,
    ),
    "inserted twice": (
        lambda: TAPE.insert("%4", np.exp).replace("%3", lambda w, x: w - x),
        lambda h, w, x: np.exp(np.sin(w - x)),
    ),
    "deleted": (lambda: TAPE.delete("%4", instead="%3"), lambda h, w, x: w * x),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_tape_plays_compiles_prints_and_has_a_derivative(name):
    edit, hidden = EDITS[name]
    before = str(TAPE)
    edited = edit()
    assert str(TAPE) == before  # it is immutable

    def expected(w, x):
        h = hidden(np.sin(w * x), w, x)
        return np.sum(h * h * x)

    value, gradient = tg.value_and_grad(expected)(W, X)
    np.testing.assert_allclose(verify(edited).play(W, X), value, rtol=1e-14)
    np.testing.assert_allclose(edited.compile()(W, X), value, rtol=1e-14)
    assert len(str(edited).splitlines()) >= len(edited.calls)
    slope = edited.gradients(["%1"])
    np.testing.assert_allclose(slope.play(W, X), gradient, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(slope.compile()(W, X), gradient, rtol=1e-13, atol=1e-15)


def test_other_variables_keep_their_numbers():
    edited = TAPE.insert("%3", lambda z: np.exp(z) + 1)
    assert [str(edited[k].outs[0]) for k in (0, -1)] == ["%3", "%7"]
    assert str(edited["%4"].operands[0]) == "%9"


def test_guards_stay_with_what_is_computed():
    _, tape = tg.trace(lambda x: np.sum(x) if np.sum(x) > 0 else -np.sum(x), X)
    edited = tape.replace(0, lambda x: np.sum(x) * 2)
    assert edited.play(X) == 2 * np.sum(X)
    with pytest.raises(TapeError, match="a condition was True"):
        edited.play(-X)


MISTAKES = {
    "another shape": (
        lambda: TAPE.replace("%4", lambda z: z[:2]),
        TapeError,
        r"replace %4 by <lambda>: <lambda> returns f8\[2\], and f8\[3\] is needed",
    ),
    "another dtype": (
        lambda: TAPE.insert("%4", lambda h: h.astype(np.float32)),
        TapeError,
        r"returns f4\[3\], and f8\[3\] is needed",
    ),
    "before it is defined": (
        lambda: TAPE.insert("%3", np.add, "%4"),
        TapeError,
        r"%4 is used but not defined before.* in %8 = add\(%3, %4\)",
    ),
    "no such variable": (lambda: TAPE.insert("%9", np.sin), TapeError, "has no variable %9"),
    "no such call": (lambda: TAPE.replace("%2", np.sin), TapeError, "no call .* defines %2"),
    "it is read": (lambda: TAPE.delete("%4"), TapeError, "delete %4: %5 read it"),
    "instead of another type": (
        lambda: TAPE.delete("%4", instead=1.0),
        TapeError,
        r"it is f8\[3\], and 1.0 is f8\[\]",
    ),
    "a value decides": (
        lambda: TAPE.replace("%4", lambda z: z if z[0] > 0 else -z),
        ConversionError,
        "without values. A tape has the same calls for all values: `tapegrad.cond` chooses",
    ),
    "it writes": (
        lambda: TAPE.replace("%3", lambda w, x: np.sin(w, x)),
        TapeError,
        "writes to what it is passed",
    ),
    "not a scalar": (
        lambda: tg.trace(np.sin, X)[1].gradients(),
        GradientError,
        r"its first output is f8\[3\]",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_edit_that_does_not_fit_says_where(name):
    edit, error, message = MISTAKES[name]
    with pytest.raises(error, match=message):
        edit()


def test_values_of_what_is_computed_on_the_way():
    found = TAPE.values(W, X)
    assert list(found) == ["%1", "%2", "%3", "%4", "%5", "%6", "%7"]
    np.testing.assert_array_equal(found["%4"], np.sin(W * X))
    assert found["%7"] == TAPE.play(W, X)
    _, tree = tg.trace(lambda p: {"out": p["w"] * W}, {"w": X})
    np.testing.assert_array_equal(tree.values({"w": X})["%2"], W)
    with np.errstate(invalid="ignore"):
        slope = tg.grad(lambda x: np.sum(np.sqrt(x) * x))
        slope(X)
        values = slope.tape.values(X)
    assert next(name for name, x in values.items() if np.any(np.isnan(x))) == "%2"


def test_gradients_of_what_is_computed_on_the_way():
    w, x, z, h, square, product, total = TAPE.gradients().play(W, X)
    s = np.sin(W * X)
    np.testing.assert_allclose(total, 1.0)
    np.testing.assert_allclose(product, np.ones(3))
    np.testing.assert_allclose(square, X)
    np.testing.assert_allclose(h, 2 * s * X)
    np.testing.assert_allclose(z, h * np.cos(W * X))
    np.testing.assert_allclose(w, z * X)
    np.testing.assert_allclose(x, z * W + s * s)


def test_a_value_and_its_operand_have_gradients_of_their_own():
    """What is merged or simplified away has its own gradient: of y = x * 1 the loss y * x."""
    _, tape = tg.trace(lambda x: (x * 1.0) * x, 3.0)
    assert tape.gradients(["%2", "%1"]).play(3.0) == (3.0, 6.0)


def test_gradients_are_of_scalars_and_arrays_that_a_program_reaches():
    _, tape = tg.trace(lambda p: np.sum(p["a"] * W) * p["k"], {"a": X, "k": 2.0})
    found = tape.gradients()
    assert len(found.play({"a": X, "k": 2.0})) == 2 + len(tape)
    np.testing.assert_allclose(found.play({"a": X, "k": 2.0})[0], 2 * W)
