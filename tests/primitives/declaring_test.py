"""What is declared of primitives: facts that don't fit together are an error, and what follows from
others needn't be said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapegrad import grad
from tapegrad.ir.tape import DECLARED
from tapegrad.ir.traits import Algebra
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Elementwise, Kink
from tapegrad.primitives.special import erf


def partials(out: Any, x: Any) -> Any:
    return (out,)


WRONG: dict[str, dict[str, Any]] = {
    "say what its `scalar` is": {"function": lambda x: x, "name": "nameless"},
    "partials, times, or vjp": {"function": np.exp, "partials": partials, "times": partials},
    "needs a `jvp`": {"function": np.exp, "kink": Kink(partials)},
    "has two operands": {
        "function": np.exp,
        "partials": partials,
        "algebra": Algebra(commutative=True),
    },
    "in operands that it has": {
        "function": np.exp,
        "partials": partials,
        "algebra": Algebra(linear=(1,)),
    },
}


@pytest.mark.parametrize("message", WRONG)
def test_facts_that_dont_fit_together_are_an_error(message):
    before, name = dict(DECLARED), WRONG[message].get("name", "exp")
    with pytest.raises(ValueError, match=f"'{name}': .*{message}"):
        Elementwise(**WRONG[message])
    assert before == DECLARED


@pytest.mark.parametrize(
    "facts",
    [
        {"linear": (0,), "additive": (0, 1)},
        {"linear": (1, 1)},
        {"additive": (-1,)},
        {"additive": (0,), "commutative": True},
    ],
)
def test_an_algebra_that_there_cant_be_is_an_error(facts):
    """Such as an operand that is linear by itself, and only together with others."""
    with pytest.raises(ValueError, match=r"in one of|are alike"):
        Algebra(**facts)


def test_names_and_expressions_follow_from_the_function():
    assert (ew.exp.name, ew.exp.scalar) == ("exp", "exp({0})")
    assert (ew.floor_divide.name, ew.floor_divide.scalar) == (
        "floor_divide",
        "floor_divide({0}, {1})",
    )
    assert (erf.name, erf.scalar) == ("erf", "erf({0})")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("f", [np.positive, np.negative, lambda y: np.ldexp(y, 2), lambda y: 3 * y])
def test_what_is_linear_keeps_zeros(f):
    """The logarithm of the 0 that isn't taken has no derivative, whatever stands behind it."""

    def chosen(x):
        return np.sum(np.where(x > 0, f(np.log(x)), 0.0))

    slope = f(np.array([1.0]))[0] / 2
    np.testing.assert_array_equal(grad(chosen)(np.array([0.0, 2.0])), [0, slope])
