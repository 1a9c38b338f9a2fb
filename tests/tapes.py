"""Small tapes for tests: written as text, and played on awkward values."""

from __future__ import annotations

import math
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.checking.tape_verify import verify
from tapegrad.ir.tape import Builder, Tape, Var
from tapegrad.ir.text import parse
from tapegrad.primitives.base import Primitive, parametric
from tapegrad.primitives.control import Applied, CallTape

FLOATS = [0.5, math.nan, -0.0, 3.0, math.inf, -2.0, 0.0, -math.inf, 1e-3, 7.0, -0.25]
INTEGERS = [3, -1, 0, 7, -128, 127, 2]


def tape(inputs: str, body: str) -> Tape:
    """A tape of inputs of these types, `f8[3] b1[]`, numbered from 1, and the lines of `body`.

    The last line is `out ...`, as on a printed tape. The tape is verified.
    """
    types = inputs.split()
    names = ", ".join(f"x{k}" for k in range(len(types)))
    lines = [f"tape f({names})"]
    lines += [f"  inp   %{k} : {t}" for k, t in enumerate(types, start=1)]
    lines += [f"  {line}" for line in dedent(body).strip().splitlines()]
    return verify(parse("\n".join(lines)))


@parametric
class Kept(Applied):
    """Runs a tape that is never put in its place, as a loop's body isn't."""

    tape: Tape

    name = "kept"
    inlined = False


def around(inner: Tape, primitive: Callable[[Tape], Primitive] = CallTape, name: str = "g") -> Tape:
    """A tape that runs another one on its own inputs."""
    builder = Builder(name)
    operands = [builder.input(var.aval) for var in inner.inputs]
    return builder.finish(builder.call(primitive(inner), operands))


def awkward(var: Var, seed: int = 0) -> Any:
    """A value of this type with NaN, infinities and both zeros in it."""
    kind, count = var.dtype.kind, var.aval.size
    pool = FLOATS if kind == "f" else [0, 1] if kind == "b" else INTEGERS
    chosen = [pool[(k + seed) % len(pool)] for k in range(count)]
    return np.array(chosen).astype(var.dtype).reshape(var.shape)


def played(tape: Tape, seed: int = 0) -> list[Any]:
    """The tape's results for awkward values of its inputs."""
    results, broken = run(tape, [awkward(var, seed + 3 * k) for k, var in enumerate(tape.inputs)])
    assert broken is None
    return results


def assert_same_bits(found: list[Any], expected: list[Any]) -> None:
    """Equal shapes, dtypes and bits; only NaN is one value, whatever its bits."""
    assert len(found) == len(expected)
    for x, y in zip(map(np.asarray, found), map(np.asarray, expected), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_array_equal(x, y)
        if x.dtype.kind == "f":
            signed = ~np.isnan(x)
            np.testing.assert_array_equal(np.signbit(x)[signed], np.signbit(y)[signed])


def assert_same_values(before: Tape, after: Tape) -> None:
    """Both tapes have the same inputs, and give the same bits for several awkward values."""
    assert before.inputs == after.inputs
    for seed in range(3):
        assert_same_bits(played(after, seed), played(before, seed))
