"""What a derived function shows of its last call; tapes that are changed before they are used."""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError, GradientError, TapeError

X = np.array([0.5, -1.5, 2.0])


def branchy(x):
    return np.sum(np.sin(x)) if x[0] > 0 else np.sum(np.cos(x))


DERIVED = {
    "grad": lambda f: tg.grad(f),
    "value_and_grad": lambda f: tg.value_and_grad(f),
    "jit": lambda f: tg.jit(f),
    "jacobian": lambda f: tg.jacobian(f),
    "hessian": lambda f: tg.hessian(f),
    "elementwise_grad": lambda f: tg.elementwise_grad(f),
    "vmap": lambda f: tg.vmap(lambda x: f(x * np.ones(2))),
    "transform": lambda f: tg.transform(lambda tape: tape, f),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", DERIVED)
def test_the_tape_is_that_of_the_last_call(name):
    def f(x):
        return np.sum(np.sin(x)) if np.ndim(x) == 0 or x[0] < 5 else np.sum(np.cos(x))

    derived = DERIVED[name](f)
    with pytest.raises(TapeError, match=r"has no tape: it wasn't called yet.*lower"):
        derived.tape  # noqa: B018
    derived(X)
    assert "[3]" in str(derived.tape)
    derived(np.ones(4))
    assert "[4]" in str(derived.tape)
    derived(X)
    assert "[3]" in str(derived.tape)
    assert derived.source == derived.tape.source
    assert str(derived.tape) in derived.show()
    assert derived.source in derived.show()


@pytest.mark.parametrize("compile", ["never", "always"])
def test_the_tape_is_that_of_the_path_which_the_last_call_took(compile):
    derived = tg.grad(branchy, compile=compile)
    for x in [X, -X] * 40:  # until entries answer them
        derived(x)
        assert ("= cos(" in str(derived.tape)) == (x[0] > 0)
    assert ("machine code" in derived.show()) == (compile == "always")
    derived.clear_cache()
    with pytest.raises(TapeError, match="its cache was cleared"):
        derived.show()


def smooth(tape):
    for call in tape:
        if str(call.primitive) == "abs":
            tape = tape.replace(call.out, lambda x: np.sqrt(x**2 + 0.01))
    return tape


def distance(x):
    return np.sum(np.abs(x)) if x[0] > 0 else np.sum(np.abs(x) ** 3)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_rounds_and_sides_are_tapes_that_are_changed(compile):
    def distances(x):
        total = 0.0
        for i in range(len(x)):
            total = total + (np.abs(x[i]) if x[i] < 0.5 else np.abs(2 * x[i]))
        return total

    def meant(x):
        return np.sum(np.sqrt(np.where(x < 0.5, x, 2 * x) ** 2 + 0.01))

    x = np.linspace(-1.0, 1.0, 40)
    f = tg.transform(smooth, distances)
    np.testing.assert_allclose(tg.jit(f, compile=compile)(x), meant(x))
    np.testing.assert_allclose(tg.grad(f, compile=compile)(x), tg.grad(meant)(x))
    assert tg.transform(smooth, distances, inner=False)(x) == distances(x)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_a_function_with_another_tape(compile):
    changed = tg.transform(smooth, distance)

    def expected(x):
        r = np.sqrt(x**2 + 0.01)
        return np.sum(r) if x[0] > 0 else np.sum(r**3)

    for x in (X, -X, 2 * X):
        np.testing.assert_allclose(changed(x), expected(x), rtol=1e-14)
        for transformation in (tg.jit, tg.grad, tg.value_and_grad, tg.jacobian, tg.hessian):
            ours, theirs = [transformation(f, compile=compile)(x) for f in (changed, expected)]
            for a, b in zip(tg.tree_leaves(ours), tg.tree_leaves(theirs), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    assert "sqrt" in str(changed.tape)


SCALE = 2.0


def test_what_the_change_reads_is_looked_at_again(monkeypatch):
    """A number and an array that the change reads, and one that the inserted function does."""
    weights = np.ones(3)

    def change(tape):
        return tape.insert(0, lambda y: y * weights * SCALE)

    changed = tg.transform(change, lambda x: np.sum(np.sin(x)))
    slope = tg.grad(changed)
    for _ in range(3):
        for scale, factor in ((2.0, 1.0), (3.0, 1.0), (3.0, 5.0)):
            monkeypatch.setitem(globals(), "SCALE", scale)
            weights[...] = factor
            np.testing.assert_allclose(changed(X), scale * factor * np.sum(np.sin(X)))
            np.testing.assert_allclose(slope(X), scale * factor * np.cos(X))


def test_a_change_gets_the_tape_of_each_kind_of_argument():

    def change(tape):
        (x,) = tape.inputs
        return tape.insert(x, np.sin) if x.aval.ndim == 1 else tape

    changed = tg.transform(change, np.sum)
    for x in (X, X, np.ones((2, 2)), X):
        assert changed(x) == np.sum(np.sin(x) if x.ndim == 1 else x)
    assert changed.cache_info().traces == 2


WRONG = {
    "no tape": (lambda tape: 3, "it returned 3, which isn't a tape"),
    "another output": (
        lambda tape: tg.trace(lambda x: x, X)[1],
        "outputs of the same shapes",
    ),
    "malformed": (
        lambda tape: __import__("dataclasses").replace(tape, calls=tape.calls[1:]),
        r"transform of distance by <lambda>: %\d+ is used but not defined before.* = greater",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_change_that_makes_no_such_tape_is_an_error(name):
    change, message = WRONG[name]
    with pytest.raises(TapeError, match=message):
        tg.transform(change, distance)(X)
    with pytest.raises(ArgumentError, match="from tape to tape"):
        tg.transform(3, distance)


def test_the_default_of_compile_is_a_setting():
    try:
        tg.set_compile("never")
        assert tg.grad(branchy).mode == tg.jit(branchy).mode == tg.vmap(branchy).mode == "never"
        assert tg.grad(compile="always")(branchy).mode == "always"
        tg.set_compile("always")
        assert tg.hessian(branchy).mode == "always"
    finally:
        tg.set_compile()
    assert tg.grad(branchy).mode == "auto"
    with pytest.raises(ArgumentError, match=r'compile is "auto", "always" or "never", not .no.'):
        tg.set_compile("no")


@pytest.mark.parametrize("given", ["never", "sometimes"])
def test_the_default_of_compile_is_in_the_environment(given, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_COMPILE", given)
    if given == "never":
        assert tg.grad(branchy).mode == "never"
        assert tg.grad(branchy, compile="auto").mode == "auto"
    else:
        with pytest.raises(ArgumentError, match="TAPEGRAD_COMPILE is 'sometimes', and not one of"):
            tg.grad(branchy)


def test_gradients_of_one_variable_by_its_name():
    _, tape = tg.trace(lambda x: np.sum(np.sin(x)), X)
    for wrt in ("%1", tape.inputs[0]):
        np.testing.assert_allclose(tape.gradients(wrt).play(X), np.cos(X), rtol=1e-15)


def test_a_condition_that_goes_the_other_way_in_the_changed_tape_is_said():
    def change(tape):
        return tape.replace(0, lambda x: 3 * x)

    def f(x):
        y = np.sin(x)
        return y if y > 0.5 else y**2

    for derived in (tg.transform(change, f), tg.grad(tg.transform(change, f))):
        with pytest.raises(GradientError, match="goes the other way with what transform has"):
            derived(0.2)
