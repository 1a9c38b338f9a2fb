"""Of calls that hold a tape or a function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.primitives.samples.drawn import Sample, each, normal

from tapegrad.ir.tape import Aval, Builder, Tape
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.control import CallTape, Custom, ForeignCall


def small_tape() -> Tape:
    """f(x, y) = (x * y, sin(x))."""
    builder = Builder("f")
    x = builder.input(Aval((3,), np.dtype(float)), "x")
    y = builder.input(Aval((3,), np.dtype(float)), "y")
    (z,) = builder.call(ew.mul, [x, y])
    (s,) = builder.call(ew.sin, [x])
    return builder.finish([z, s])


def exp_tape() -> Tape:
    builder = Builder("my_exp")
    x = builder.input(Aval((3,), np.dtype(float)), "x")
    (y,) = builder.call(ew.exp, [x])
    return builder.finish([y])


def exp_backward(cts: Any, outs: Any, xs: Any) -> Any:
    """The reverse rule of the exponential function, as a user's."""
    return [cts[0] * outs[0]]


def exp_forward(ts: Any, outs: Any, xs: Any) -> Any:
    """The forward rule."""
    return [ts[0] * outs[0]]


def numpy_exp(x: Any) -> Any:
    return (np.exp(x),)


def of_calls() -> dict[type, list[Sample]]:
    x = normal(3)
    pair = (x, normal(3, seed=1))
    types = (Aval((3,), np.dtype(float)),)
    exp = each(math.exp)
    return {
        # The `inline` pass puts the sub-tape's calls in its place before any rule runs.
        CallTape: [
            Sample(
                CallTape(small_tape()),
                pair,
                lambda x, y: (x * y, np.sin(x)),
                reverse=False,
                forward=False,
            )
        ],
        Custom: [
            Sample(Custom("my_exp", exp_tape(), exp_backward), (x,), exp),
            Sample(Custom("my_exp", exp_tape(), None, exp_forward), (x,), exp),
        ],
        ForeignCall: [
            Sample(ForeignCall("my_exp", numpy_exp, types, 1, exp_backward), (x,), exp),
            Sample(ForeignCall("my_exp", numpy_exp, types, 1, None, "", exp_forward), (x,), exp),
            Sample(
                ForeignCall("my_exp", numpy_exp, types, 1),
                (x,),
                exp,
                reverse=False,
                forward=False,
                label="no rule",
            ),
        ],
    }
