"""Random nests of two and three loops, whose inner loops have another number of rounds each time:
held, bit for bit, against the same program unrolled, and so are its derivatives.

Indices depend on the steps of all loops; arrays are written in place, and rows of them carried.
"""

from __future__ import annotations

import linecache
import random
import warnings

import numpy as np
from tests.fuzzing import EXAMPLES

import tapegrad
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Literal
from tapegrad.optimize.reroll import Rerolled
from tapegrad.primitives.kinds import Repeated

PLAYED = max(6, EXAMPLES // 40)  # programs
COMPILED = max(1, EXAMPLES // 200)

OUTER = (
    "for i in range(n):",
    "for i in range(1, n):",
    "for i in range(n - 1, -1, -1):",
    "for i in range(0, n, 2):",
)
MIDDLE = (
    "for j in range(i):",
    "for j in range(i, n):",
    "for j in range(i + 1, n):",
    "for j in range(n - i):",
    "for j in range(i - 1, -1, -1):",
    "for j in range(0, i, 2):",
    "for j in range(max(0, i - 4), i):",
    "for j in range(2 * i + 1):",
    "for j in range(3):",
)
INNER = (
    "for k in range(j):",
    "for k in range(j + 1):",
    "for k in range(i):",
    "for k in range(min(i, j)):",
    "for k in range(2):",
)
INDICES = ("i", "j", "(i + j) % n", "n - 1 - j", "0", "i - 1", "j // 2", "i - j")
VALUES = (
    "np.tanh(h * w + x[{a}])",
    "y[{a}] * 0.5 + x[{b}]",
    "A[{a}, {b}] * x[{c}]",
    "h * 0.9 + g * 0.1",
    "np.sin(B[{a}, {b}]) * w",
    "0.1 * j * h",
    "np.maximum(x[{a}], h)",
    "A[{a}] @ A[{b}] * 0.1",
    "np.sum(B[{a}, 1:4] * x[{b}])",
    "sum(rows[-3:]) * 0.1 + rows[j % len(rows)]",
)
STATEMENTS = (
    "h = {e}",
    "g = h * 0.5 + {e}",
    "y[{a}] = {e}",
    "y[{a}] += {e}",
    "B[{a}, {b}] = {e}",
    "B[{a}, {b}] -= 0.1 * {e}",
    "h, g = g, {e}",
    "B[{a}] *= 0.99",
    "h = h - 0.05 * {e}",
)


class _Grown:
    """A program, and its number of rounds."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.n = rng.choice([9, 11, 13])
        self.lines = ["def f(x, w, A):", f"    n = {self.n}", "    h, g = x[0] * 0.5, w * 1.0"]
        self.lines += ["    y, B, rows = np.zeros_like(x), A.copy(), [x[1] * 0.5]"]
        self.line(1, rng.choice(OUTER))
        for _ in range(rng.randint(0, 1)):
            self.statement(2, "i")
        for _ in range(rng.choice([1, 1, 2])):
            self.line(2, rng.choice(MIDDLE))
            for _ in range(rng.randint(1, 2)):
                self.statement(3, "j")
            if rng.random() < 0.35:
                self.line(3, rng.choice(INNER))
                self.statement(4, "k")
        if rng.random() < 0.3:
            self.line(2, "rows.append(h * 0.5)")
        for _ in range(rng.randint(0, 2)):
            self.statement(2, "i")
        self.line(1, "return h + g + np.sum(y * x) + np.sum(B * A) + rows[-1]")
        text = "\n".join(self.lines)
        file = f"<nest {seed}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        names = {"np": np}
        exec(compile(text, file, "exec"), names)
        self.f = names["f"]

    def line(self, depth, text):
        self.lines.append("    " * depth + text)

    def statement(self, depth, step):
        """One of the loop over `step`."""
        a, b, c = (self.rng.choice(INDICES) for _ in "abc")
        text = self.rng.choice(STATEMENTS).replace("{e}", self.rng.choice(VALUES))
        text = text.format(a=a, b=b, c=c)
        self.line(depth, text.replace("j", step) if step != "j" else text)

    def arguments(self):
        rng, size = np.random.default_rng(self.n), 2 * self.n + 1
        A = rng.normal(size=(size, size)) / 3
        return rng.normal(size=size) * 0.5, float(rng.uniform(0.5, 1)), A


def _varies(tape):
    """Whether a loop's number of rounds is computed."""
    loops = [call for call in tape.calls if isinstance(call.primitive, Repeated)]
    return any(
        not isinstance(call.operands[0], Literal) or _varies(call.primitive.body) for call in loops
    )


def _check(seed, mode, monkeypatch):
    """Whether the program's tape has an inner loop whose number of rounds differs."""
    program = _Grown(seed)
    args = program.arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, tape = tapegrad.trace(program.f, *args)
        value, gradients = tapegrad.value_and_grad(program.f, (0, 1, 2), compile=mode)(*args)
        with monkeypatch.context() as patched:
            patched.setattr(
                "tapegrad.optimize.reroll.reroll", lambda tape, *_: Rerolled(renumbered(tape))
            )
            f = _Grown(seed).f
            _, plain = tapegrad.trace(f, *args)
            expected, slopes = tapegrad.value_and_grad(f, (0, 1, 2), compile="never")(*args)
        np.testing.assert_equal(tape.play(*args), plain.play(*args), str(seed))
    if np.isfinite(expected):
        np.testing.assert_allclose(value, expected, rtol=1e-9, err_msg=str(seed))
        for found, slope in zip(gradients, slopes, strict=True):
            scale = 1 + np.max(np.abs(slope))
            np.testing.assert_allclose(found / scale, slope / scale, atol=1e-8, err_msg=str(seed))
    return _varies(tape)


def test_random_nests(monkeypatch):
    found = [_check(seed, "never", monkeypatch) for seed in range(PLAYED)]
    assert sum(found) > PLAYED / 4  # in the others rounds differ in more than their number


def test_random_nests_compiled(monkeypatch):
    for seed in range(1000, 1000 + COMPILED):
        _check(seed, "always", monkeypatch)
