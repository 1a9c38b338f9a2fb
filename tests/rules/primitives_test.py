"""Which functions aren't looked into, and the list of all primitives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import tapegrad as tg
from tapegrad.errors import ArgumentError, GradientError

X = np.array([0.2, -0.4, 1.5])


def inner(x):
    return 2 * np.tanh(x)


def outer(x):
    return np.sum(np.exp(inner(x)) + scipy.special.erf(x))


def names(tape):
    return [dict(call.primitive.parameters()).get("label", call.primitive.name) for call in tape]


@pytest.mark.parametrize("f", [inner, np.tanh, np.exp, np.sum, scipy.special.erf])
def test_a_function_that_is_said_to_be_a_primitive_is_one_call(f):
    value, tape = tg.trace(outer, X, primitives=[f])
    assert names(tape).count(f.__name__) == 1
    assert "foreign_call" in str(tape)
    assert value == outer(X)
    assert tape.play(X + 1) == outer(X + 1)
    np.testing.assert_allclose(tape.compile()(X + 1), outer(X + 1), rtol=1e-15)
    with pytest.raises(GradientError, match=f"{f.__name__} has no derivative rule.*isn't looked"):
        tape.gradients()
    assert "foreign_call" not in str(tg.trace(outer, X)[1])  # it was for that trace alone


def test_those_with_rules_have_them():
    @tg.primitive
    def ruled(x):
        return np.sinh(x)

    tg.defvjp(ruled, lambda ct, out, x: 10 * ct)
    _, tape = tg.trace(lambda x: np.sum(ruled(x)), X, primitives={ruled})
    assert names(tape) == ["ruled", "sum"]
    np.testing.assert_array_equal(tape.gradients(["%1"]).play(X), np.full(3, 10.0))
    with pytest.raises(ArgumentError, match="3 among the primitives isn't a function"):
        tg.trace(outer, X, primitives=[3])


def test_all_primitives_are_listed():
    @tg.primitive
    def mine(x):
        """Mine."""
        return x

    tg.defvjp(mine, lambda ct, out, x: ct)
    found = {x.name: x for x in tg.list_primitives()}
    assert found["mine"] == ("mine", "user's", ("vjp",), "Mine.")
    assert found["exp"][:3] == ("exp", "Elementwise", ("vjp", "jvp"))
    assert found["cholesky"].kind == "Routine"
    used = {call.primitive.name for call in tg.trace(outer, X)[1]}
    assert used <= {*found}
