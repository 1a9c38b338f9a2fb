"""Random loops: state that is carried, arrays written in place at all kinds of indices, lists, and
conditions on the step; held against NumPy and finite differences.

There are rounds enough for loops to be found on the tape, and the second call has other numbers.
"""

from __future__ import annotations

import linecache
import random
import warnings

import numpy as np
import pytest
from tests.fuzzing import EXAMPLES

import tapegrad
from tapegrad.primitives.kinds import Repeated

PLAYED = max(30, EXAMPLES // 10)  # programs
COMPILED = max(3, EXAMPLES // 40)
STEP = 1e-5

HEADS = (
    "for t in range(n):",
    "for t in range(1, n):",
    "for t in range(n - 1, -1, -1):",
    "for t in reversed(range(n)):",
    "for t in range(0, n, 2):",
    "for t, v in enumerate(x[:n]):",
)
INDICES = ("t", "n - 1 - t", "(t + 1) % n", "t - 1", "0", "-1", "min(t + 1, n)")
VALUES = (
    "np.tanh(h * w + x[{i}])",
    "y[{i}] * 0.5 + z[{j}]",
    "h * 0.9 + g * 0.1",
    "np.sin(z[{i}]) * w",
    "B[{i}] @ A[{j}]",
    "np.sum(B[{i}, 1:] * x[{j}])",
    "t * 0.1 * h",
    "np.maximum(x[{i}], h)",
    "(x[{i}] if t % 3 == 0 else h)",
)
STATEMENTS = (
    "h = {e}",
    "g = h * 0.5 + {e}",
    "y[{k}] = {e}",
    "z[{k}] += {e}",
    "z[{k}] = {e}",
    "B[{k}, 1:] = B[{i}, :-1] * 0.9 + {e} * 0.01",
    "B[{k}] *= 0.99",
    "out.append({e})",
    "h, g = g, {e}",
    "y[{k}] -= h * 0.1",
    "B = B * 0.99 + 0.01 * A",
    "z = z * 0.9 + y * 0.1",
)
ENDS = ("total + np.sum(np.stack([h, *out]) ** 2)", "total + sum(np.sin(o) for o in out[::2])")


def grown(seed):
    """A program and its number of rounds."""
    rng = random.Random(seed)
    n = rng.choice([9, 12, 17])
    lines = ["def f(x, w, A):", f"    n = {n}", "    h, g = x[0] * 0.5, w * 1.0"]
    lines += ["    y, z, B, out = np.zeros_like(x), x.copy(), A.copy(), []"]
    lines.append(f"    {rng.choice(HEADS)}")
    for _ in range(rng.randint(2, 7)):
        i, j, k = (rng.choice(INDICES) for _ in "ijk")
        e = rng.choice(VALUES).format(i=i, j=j)
        lines.append("        " + rng.choice(STATEMENTS).format(e=e, i=i, k=k))
    lines.append("    total = h + g + np.sum(y * x) + np.sum(z**2) + np.sum(B * A)")
    lines.append(f"    return {rng.choice(ENDS)}")
    text = "\n".join(lines)
    file = f"<loop {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"np": np}
    exec(compile(text, file, "exec"), names)
    return names["f"], n


def drawn(rng, n):
    return [
        rng.normal(size=n + 1) * 0.5,
        float(rng.uniform(0.5, 1)),
        rng.normal(size=(n + 1, 3)) / 3,
    ]


def slopes(f, args, directions):
    """Of the second and the fourth order: where they differ there is a kink."""

    def at(k):
        return f(*[x + k * STEP * d for x, d in zip(args, directions, strict=True)])

    near, far = at(1) - at(-1), at(2) - at(-2)
    return near / (2 * STEP), (8 * near - far) / (12 * STEP)


def check(seed, mode):
    """Whether the program has a loop on its tape; the derivative is held against NumPy."""
    f, n = grown(seed)
    derivative = tapegrad.value_and_grad(f, (0, 1, 2), compile=mode)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        args = drawn(rng, n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = f(*args)
            if not np.isfinite(expected):
                break
            value, gradients = derivative(*args)
            directions = [rng.normal(size=np.shape(x))[()] for x in args]
            rough, slope = slopes(f, args, directions)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-12), seed
        if abs(rough - slope) < 1e-6 * (1 + abs(slope)):
            found = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
            assert found == pytest.approx(slope, rel=1e-5, abs=1e-5), seed
    calls = tapegrad.trace(f, *drawn(rng, n))[1].calls
    return any(isinstance(call.primitive, Repeated) for call in calls)


def test_random_loops():
    found = [check(seed, "never") for seed in range(PLAYED)]
    assert sum(found) > PLAYED / 2  # the others are too short, or their rounds differ


def test_random_loops_compiled():
    for seed in range(1000, 1000 + COMPILED):
        check(seed, "always")
