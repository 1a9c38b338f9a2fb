"""Random programs of rolls, concatenations, pads, stacks, slices and reversals among work on
elements, some in loops: held against NumPy, played derivatives and differences.

Arrays of any size are read from their parts here, else only large ones are (`schedule/pieces.py`).
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
from tapegrad.schedule import pieces, split

PROGRAMS = max(10, EXAMPLES // 50)
SHAPES = ((7,), (6, 5), (4, 7), (3, 4, 5), (1, 6), (5, 1), (2, 2, 2), (1,), (4, 0, 3), (2, 3, 2, 3))
DTYPES = ("f8", "f8", "f8", "f4", "c16")

# All of these have the shape of their operands: v and w are known values, k and n whole numbers, a
# is an axis.
MOVED = (
    "np.roll({v}, {k}, {a})",
    "np.roll({v}, {k}, {a})",
    "np.roll({v}, ({k}, {n}), ({a}, 0))",
    "np.roll({v}, {k})",
    "np.concatenate([{v}, {w}], {a})[tuple([slice(-n, None) for n in {v}.shape])]",
    "np.concatenate([at({v}, {a}, 1, None), at({w}, {a}, 0, 1)], {a})",
    "np.concatenate([at({v}, {a}, None, 1), at({w} * {v}, {a}, 1, None)], {a})",
    "np.concatenate([at({v}, {a}, 0, 1), at({v}, {a}, 1, -1), at({w}, {a}, -1, None)], {a})"
    " if {v}.shape[{a}] > 1 else {v}",
    "at(np.pad({v}, 1), {a}, None, None)[inner({v}, 1)]",
    "np.pad({v}, 2)[inner({v}, {n})]",
    "np.pad({v}, 1, constant_values=0.5)[inner({v}, 0)]",
    "np.stack([{v}, {w}, {v} * 0.5], {a})[over({a}, {n} % 3)]",
    "np.sum(np.stack([{v}, {w}], {a}), {a})",
    "np.flip(np.concatenate([{v}, {w}], {a}), {a})[inner({v}, 0)]",
    "np.roll({v}, {k}, {a})[::-1]",
    "np.roll({v}.T, {k}, 0).T",
    "put({v}, {w}, {a})",
    "added({v}, {w}, {a})",
)
LOCAL = (
    "{v} * {w}",
    "np.sin({v}) + {w}",
    "{v} - 0.5 * {w}",
    "{v} * x",
    "np.where(mask, {v}, {w})",
    "np.mean({v}, {a}, keepdims=True) + {w}",
    "np.cumsum({v}, {a}) * 0.3",
    "np.exp(-np.square(np.abs({v}))) * {w}",
    "{v} + 1.5",
)


def at(v, axis, start, stop):
    """A slice along one axis."""
    return v[(slice(None),) * (axis % v.ndim) + (slice(start, stop),)]


def inner(v, start):
    """The index of an array of this shape in a larger one."""
    return tuple([slice(start, start + n) for n in v.shape])


def over(axis, k):
    """The index of entry k along an axis."""
    return (slice(None),) * axis + (k,)


def put(v, w, axis):
    y = v.copy()
    y[(slice(None),) * axis + (slice(1, None),)] = at(w, axis, 1, None)
    return y


def added(v, w, axis):
    y = 1.0 * v
    y[(slice(None),) * axis + (slice(1, None),)] += at(w, axis, None, -1)
    return y


class _Grown:
    """A program and its arguments."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.shape = rng.choice(SHAPES)
        self.lines = ["def f(x, y):", "    u, v = x * 1.0, y + 0.5 * x"]
        self.known = ["x", "y", "u", "v"]
        for _ in range(rng.randint(1, 3)):
            self.statement(1)
        if rng.random() < 0.5:
            self.line(1, f"for t in range({rng.randint(2, 6)}):")
            for _ in range(rng.randint(1, 3)):
                name = rng.choice("uv")
                self.line(2, f"{name} = 0.4 * ({self.drawn(MOVED)}) + 0.3 * ({self.drawn(LOCAL)})")
        for _ in range(rng.randint(0, 2)):
            self.statement(1)
        ends = " + ".join(f"np.sum(np.abs({name} + 0.1) ** 2)" for name in self.known[2:])
        self.line(1, f"return ({ends}) * 0.1, {rng.choice(self.known[2:])}")
        self.text = "\n".join(self.lines)
        file = f"<pieces {seed}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        mask = np.random.default_rng(seed).random(self.shape) < 0.5
        names = {"np": np, "mask": mask} | {g.__name__: g for g in (at, inner, over, put, added)}
        exec(compile(self.text, file, "exec"), names)
        self.f = names["f"]
        self.dtype = np.dtype(rng.choice(DTYPES))
        self.layout = rng.randrange(4)

    def line(self, depth, text):
        self.lines.append("    " * depth + text)

    def drawn(self, table):
        rng = self.rng
        v, w = rng.choice(self.known), rng.choice(self.known)
        k, n = rng.choice((1, -1, 2, -2, 3, 7, 0)), rng.choice((0, 1, 2))
        return rng.choice(table).format(v=v, w=w, k=k, n=n, a=rng.randrange(len(self.shape)))

    def statement(self, depth):
        name = f"s{len(self.known)}"
        moved, local = self.drawn(MOVED), self.drawn(LOCAL)
        form = self.rng.choice(("{0}", "0.5 * ({0}) + {1}", "({0}) * ({2}) - {1}"))
        self.line(depth, f"{name} = " + form.format(moved, local, self.drawn(MOVED)))
        self.known.append(name)

    def arguments(self, seed):
        rng = np.random.default_rng(seed)
        shape = tuple([2 * n for n in self.shape]) if self.layout == 2 else self.shape
        found = []
        for _ in range(2):
            x = rng.normal(size=shape[::-1] if self.layout == 1 else shape)
            x = x + 1j * rng.normal(size=x.shape) if self.dtype.kind == "c" else x
            x = x.astype(self.dtype) * 0.5
            x = x.T if self.layout == 1 else x
            found.append(x[(slice(None, None, 2),) * x.ndim] if self.layout == 2 else x)
        return found


def _held(program, seed):
    """Hold values and derivatives against NumPy, played ones, and a difference."""

    def loss(x, y):
        return program.f(x, y)[0]

    args = program.arguments(seed)
    coarse = program.dtype.itemsize == 4
    rtol = 1e-3 if coarse else 1e-8
    value, found = tapegrad.value_and_grad(loss, (0, 1), compile="always")(*args)
    played = tapegrad.grad(loss, (0, 1), compile="never")(*args)
    whole = tapegrad.jit(program.f, compile="always")(*args)
    for one, other in zip((value, *whole), (loss(*args), *program.f(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol, rtol * _size(other), err_msg=program.text)
    for one, other in zip(found, played, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol, rtol * _size(other), err_msg=program.text)
    if coarse:
        return
    h, along = 1e-6, [x.copy() for x in program.arguments(seed + 1)]
    ends = (loss(*[x + s * h * d for x, d in zip(args, along, strict=True)]) for s in (1, -1))
    expected = -np.subtract(*reversed([*ends])) / (2 * h)
    slope = sum(np.sum((g * d).real) for g, d in zip(found, along, strict=True))
    scale = sum(np.sum(np.abs(g * d)) for g, d in zip(found, along, strict=True))
    assert abs(expected - slope) <= 1e-5 * (1 + scale), program.text


def _size(x):
    return float(np.max(np.abs(x), initial=1e-30))


@pytest.mark.every(4)
@pytest.mark.parametrize("part", range(8))
def test_random_programs_of_pieces(part, monkeypatch):
    monkeypatch.setattr(pieces, "ELEMENTS", 2)
    if part % 2:
        for module in (repetition, unrolled):
            monkeypatch.setattr(module, "MIN_ROUNDS", 2)
            monkeypatch.setattr(module, "MIN_CALLS", 6)
    plans, whole = [], split.split

    def counted(plan):
        plans.append(next(split.in_parts(plan.steps), None) is not None)
        return whole(plan)

    monkeypatch.setattr(split, "split", counted)
    reached = 0
    for seed in range(part * 10_000, part * 10_000 + PROGRAMS):
        plans.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _held(_Grown(seed), seed)
        reached += any(plans)
    assert reached >= PROGRAMS // 2
