"""Random loops in which branches go both ways, with all that loops do in their sides; held against
NumPy and finite differences, at calls in which they go other ways."""

from __future__ import annotations

import linecache
import random
import warnings

import numpy as np
import pytest
from tests.fuzz.loops_test import ENDS, HEADS, INDICES, STATEMENTS, VALUES, drawn, slopes
from tests.fuzzing import EXAMPLES

import tapegrad

PLAYED = max(6, EXAMPLES // 10)  # programs
COMPILED = max(1, EXAMPLES // 80)
CALLS = 4

TESTS = (
    "x[{i}] > h",
    "x[{i}] > 0",
    "h < g",
    "z[{i}] > y[{j}]",
    "x[{i}] > 0 and z[{j}] < 0.5",
    "x[{i}] > 0.5 or h < 0",
    "not x[{i}] < -0.3",
    "-0.4 < x[{i}] < 0.6",
    "np.sum(B[{i}]) > 0",
    "s < 0",
)
FURTHER = (
    *VALUES,
    "(h * 0.5 if x[{i}] > 0 else g * x[{j}])",
    "max(h, x[{i}])",
    "min(0.5, s + x[{j}])",
    "leaky(x[{i}] - h)",
    "s * w + x[{i}]",
    "1.0 / (1.5 + s * s)",
)
INSIDE = (
    *STATEMENTS,
    "s = 0.0",
    "s = s * 0.5 + {e}",
    "s = max(0.0, s + {e} - 0.1)",
    "C = B",
    "C = C * 0.5 + {e} * 0.1",
    "C[{k}] = {e}",
    "k += 1",
    "pair = (h, {e})",
    "row = B[{k}]",
    "h = h if s > 0 else {e} * 0.5",
    "continue",
)
LEAKY = """def leaky(v):
    if v > 0:
        return v
    if v > -0.5:
        return 0.1 * v
    low = v * v
    return low * 0.2
"""


def _statement(rng, depth, deep):
    """Lines of a statement, which may be a branch."""
    indent = " " * depth

    def filled(pattern):
        i, j, k = (rng.choice(INDICES) for _ in "ijk")
        e = rng.choice(FURTHER).format(i=i, j=j)
        return pattern.format(i=i, j=j, k=k, e=e)

    if deep == 0 or rng.random() < 0.5:
        return [indent + filled(rng.choice(INSIDE[:-1] if depth == 8 else INSIDE))]
    lines = [f"{indent}if {filled(rng.choice(TESTS))}:"]
    for _ in range(rng.randint(1, 2)):
        lines += _statement(rng, depth + 4, deep - 1)
    if rng.random() < 0.3:
        lines.append(f"{indent}elif {filled(rng.choice(TESTS))}:")
        lines += _statement(rng, depth + 4, deep - 1)
    if rng.random() < 0.6:
        lines.append(f"{indent}else:")
        lines += _statement(rng, depth + 4, deep - 1)
    return lines


def grown(seed):
    """A program and its number of rounds."""
    rng = random.Random(seed)
    n = rng.choice([12, 17, 25])
    lines = ["def f(x, w, A):", f"    n = {n}", "    h, g, s, k = x[0] * 0.5, w * 1.0, 0.0, 0"]
    lines += ["    y, z, B, out = np.zeros_like(x), x.copy(), A.copy(), []"]
    lines += ["    C, row, pair = A * 1.0, A[0] * 1.0, (h, g)"]
    lines.append(f"    {rng.choice(HEADS)}")
    for _ in range(rng.randint(1, 4)):
        lines += _statement(rng, 8, 2)
    lines += ["        h = h * 0.9 + 0.1 * x[t]"]
    lines.append("    total = h + g + np.sum(y * x) + np.sum(z**2) + np.sum(B * A) + s + k * h")
    lines.append("    total = total + np.sum(C * A) + np.sum(row) + pair[0] * pair[1]")
    lines.append(f"    return {rng.choice(ENDS)}")
    text = LEAKY + "\n\n" + "\n".join(lines)
    file = f"<branch {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"np": np}
    exec(compile(text, file, "exec"), names)
    return names["f"], n


def check(seed, mode):
    """How often the program is traced; its derivative is held against NumPy."""
    f, n = grown(seed)
    derivative = tapegrad.value_and_grad(f, (0, 1, 2), compile=mode)
    rng = np.random.default_rng(seed)
    for _ in range(CALLS):
        args = drawn(rng, n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = f(*args)
            if not np.isfinite(expected):
                continue
            value, gradients = derivative(*args)
            directions = [rng.normal(size=np.shape(x))[()] for x in args]
            rough, slope = slopes(f, args, directions)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-12), seed
        if abs(rough - slope) < 1e-6 * (1 + abs(slope)):
            found = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
            assert found == pytest.approx(slope, rel=1e-5, abs=1e-5), seed
    return derivative.cache_info().traces


def test_random_branches():
    traces = [check(seed, "never") for seed in range(PLAYED)]
    assert sum(n < CALLS for n in traces) > PLAYED / 6  # others leave what can't be one value


def test_random_branches_compiled():
    for seed in range(1000, 1000 + COMPILED):
        check(seed, "always")
