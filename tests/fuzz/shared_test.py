"""Random loops whose rounds cores share, however short they are: on 1 to 4 threads the bits are the
same, and values and derivatives are those of the played tape.

States are swapped, written in place and kept; rounds sum up, multiply, roll, and go on while a
condition holds; loops stand in loops.
"""

from __future__ import annotations

import linecache
import random
import warnings

import numpy as np
import pytest
from tests.fuzzing import EXAMPLES

import tapegrad
from tapegrad.optimize import repetition, unrolled
from tapegrad.pipeline import schedule

PROGRAMS = max(6, EXAMPLES // 80)
SHAPES = ((7, 5), (6, 6), (12, 3), (3, 9), (5, 4, 3), (23,), (2, 16))
DTYPES = ("f8", "f8", "f8", "f4", "c16")
FORCED = {
    **{"rounds.FINER": 1 << 18, "rounds.OWN": 8.0, "products.SMALL_PRODUCT": 1},
    **{"parallelise.LEAST_SIDE": 1, "parallelise.LEAST_TERMS": 2, "parallelise.BLOCK": 1},
    "parallelise.LEAST_ROWS": 1,
}

# v and w are states or arguments, of one shape; a is an axis, k a whole number.
VALUES = (
    "np.roll({v}, {k}, {a})",
    "{v} * {w}",
    "np.tanh({v}) + {w} * s",
    "np.where(mask, {v}, {w})",
    "{v} - np.mean({w}, {a}, keepdims=True)",
    "{v} / (1 + np.sum(np.abs({w}) ** 2, {a}, keepdims=True))",
    "np.maximum(np.abs({v}), 0.3) * {w}",
    "{v} @ W",
    "({v} @ W) * np.sin({w}) + bias",
    "np.sin(np.reshape({v}, (-1, len(W))).T @ np.reshape({w}, (-1, len(W))))[0] * {v}",
    "{v}[::-1] * 0.5 + {w}",
    "{v}[order]",
    "np.concatenate([{v}[1:], {w}[:1]])",
    "np.cumsum({v}, {a}) * 0.2",
    "{v} * (t + 1) * 0.2",
    "kept[t] + {v}",
    "step({v}, {w})",
)
STATEMENTS = (
    "{n} = 0.4 * ({x}) + 0.3 * ({y})",
    "{n} = 0.4 * ({x}) + 0.3 * ({y})",
    "u, v = v, 0.5 * ({x})",
    "u, v, r = 0.5 * ({x}), u, v",
    "s = s * 0.5 + np.mean(np.abs({x}))",
    "s = np.max(np.abs({x})) * 0.3",
    "kept[t] = {x}",
    "kept[t + 1] = kept[t] * 0.5 + 0.1 * ({x})",
    "r[1:] = 0.3 * ({x})[:-1]",
    "r += 0.1 * ({x})",
    "r[order] += 0.1 * ({x})",
    "total += np.sum(np.abs({x}), {a}, keepdims=True) * 0.1",
)
HEADS = (
    "for t in range({rounds}):",
    "for t in range({rounds}):",
    "for t in range({rounds} - 1, -1, -1):",
    "while t < {rounds} and np.mean(np.abs(u)) > 0.02:",
)


class _Grown:
    """A program and its arguments."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.shape = rng.choice(SHAPES)
        self.dtype = np.dtype(rng.choice(DTYPES))
        self.lines = [
            "def f(x, y, W, bias):",
            "    u, v, r, s, t = x * 1.0, y + x, 0.5 * y, 0.5, 0",
        ]
        many = rng.randint(3, 6)
        self.line(1, f"kept = np.zeros(({many + 1}, *x.shape), x.dtype)")
        self.line(
            1,
            f"kept[0] = y; total = np.zeros_like(np.sum(np.abs(x), {self.axis()}, keepdims=True))",
        )
        self.total = self.drawn_axis
        self.loop(1, many)
        if rng.random() < 0.3:
            self.loop(1, many)
        ends = [f"np.sum(np.abs({n} + 0.1) ** 2)" for n in ("u", "v", "r", "kept", "total")]
        self.line(1, f"return ({' + '.join(ends)}) * 0.1 + s")
        self.text = "\n".join(self.lines)
        file = f"<shared {seed}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        known = np.random.default_rng(seed)
        names = {
            "np": np,
            "mask": known.random(self.shape) < 0.5,
            "step": tapegrad.checkpoint(_step),
        }
        names["order"] = known.permutation(self.shape[0])
        exec(compile(self.text, file, "exec"), names)
        self.f = names["f"]

    def axis(self):
        self.drawn_axis = self.rng.randrange(len(self.shape))
        return self.drawn_axis

    def line(self, depth, text):
        self.lines.append("    " * depth + text)

    def loop(self, depth, many):
        rng = self.rng
        head = rng.choice(HEADS).format(rounds=many)
        if head.startswith("while"):
            self.line(depth, "t = 0")
        self.line(depth, head)
        for _ in range(rng.randint(1, 4)):
            self.statement(depth + 1)
        if depth == 1 and rng.random() < 0.2:
            self.line(depth + 1, f"for k in range({rng.choice((3, 4))}):")
            for _ in range(rng.randint(1, 2)):
                self.statement(depth + 2)
        if head.startswith("while"):
            self.line(depth + 1, "t += 1")

    def value(self):
        rng = self.rng
        v, w = rng.choice("uvrxy"), rng.choice("uvrxy")
        return rng.choice(VALUES).format(v=v, w=w, a=self.axis(), k=rng.choice((1, -1, 2)))

    def statement(self, depth):
        form, n = self.rng.choice(STATEMENTS), self.rng.choice("uvr")
        self.line(depth, form.format(n=n, x=self.value(), y=self.value(), a=self.total))

    def arguments(self, seed):
        rng = np.random.default_rng(seed)
        last = self.shape[-1]
        found = []
        for shape in (self.shape, self.shape, (last, last), (last,)):
            x = rng.normal(size=shape)
            x = x + 1j * rng.normal(size=shape) if self.dtype.kind == "c" else x
            found.append((0.4 * x).astype(self.dtype))
        return found


def _step(v, w):
    return np.sin(v) * 0.5 + np.roll(w, 1, 0)


def _held(program, seed):
    """Hold the program to what is said above. Returns whether cores share a loop in its rounds."""
    args = program.arguments(seed)
    rtol = 2e-3 if program.dtype.itemsize == 4 else 1e-8
    which = (0, 1, 2, 3)
    played = tapegrad.value_and_grad(program.f, which, compile="never")(*args)
    derivative = tapegrad.value_and_grad(program.f, which, compile="always")
    bits = set()
    for threads in (1, 2, 3, 4):
        tapegrad.set_num_threads(threads)
        for _ in range(2):
            value, found = derivative(*args)
            bits.add(b"".join([np.asarray(value).tobytes(), *[x.tobytes() for x in found]]))
    assert len(bits) == 1, program.text
    for one, other in zip((value, *found), (played[0], *played[1]), strict=True):
        scale = float(np.max(np.abs(other), initial=1e-30))
        np.testing.assert_allclose(one, other, rtol, rtol * scale, err_msg=program.text)
    return any(kernel.inside for tape in derivative.tapes for kernel in schedule(tape).kernels)


@pytest.mark.every(4)
@pytest.mark.parametrize("part", range(4))
def test_random_rounds_that_cores_share(part, monkeypatch):
    for place, value in FORCED.items():
        monkeypatch.setattr(f"tapegrad.schedule.{place}", value)
    for module in (repetition, unrolled):
        monkeypatch.setattr(module, "MIN_ROUNDS", 2)
        monkeypatch.setattr(module, "MIN_CALLS", 6)
    reached = 0
    try:
        for seed in range(part * 10_000, part * 10_000 + PROGRAMS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reached += _held(_Grown(seed), seed)
    finally:
        tapegrad.set_num_threads()
    assert reached >= PROGRAMS // 2
