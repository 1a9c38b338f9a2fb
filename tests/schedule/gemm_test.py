"""Contractions as products of matrices: what is one, what loops are around it, what is copied."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.emit.check import assert_agree

from tapegrad import jit, trace, value_and_grad
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import gradient, schedule

einsum = np.einsum


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng([*shape]).normal(size=shape)


def steps(tape: Tape) -> list[str]:
    """What a plan does: the lines behind those that say what there is."""
    lines = [line.split("  #")[0].rstrip() for line in str(schedule(tape).plan).splitlines()]
    roles = ("plan ", "  inp ", "  out  ", "  mem ")
    return [line[2:] for line in lines if not line.startswith(roles)]


IMAGES, KERNEL = (4, 5, 6, 8), (8, 9)
COPIED = ["for i < 10:", "  for j < 8:", "    t[i, j] = {} : f8", "out = t @ w"]


def copied(entry: str) -> list[str]:
    return [line.format(entry) for line in COPIED]


# What two arrays x and w are multiplied to, and how.
ONE: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], list[str]]] = {
    "flattened batch axes": (
        lambda x, w: x @ w,
        *(IMAGES, KERNEL),
        [
            "out[rows, rows, rows, columns] as 120 by 9 = "
            "x[rows, rows, rows, columns] as 120 by 8 @ w"
        ],
    ),
    "an axis of extent 1 among them": (
        lambda x, w: einsum("nijc,cd->nijd", x, w),
        *((4, 1, 6, 8), KERNEL),
        ["out[rows, rows, rows, columns] as 24 by 9 = x[rows, rows, rows, columns] as 24 by 8 @ w"],
    ),
    "the gradient of a kernel": (
        lambda x, w: einsum("nijc,nijd->cd", x, w),
        *(IMAGES, (4, 5, 6, 9)),
        [
            "out = x[columns, columns, columns, rows] as 8 by 120 @ "
            "w[rows, rows, rows, columns] as 120 by 9"
        ],
    ),
    "channels in front": (
        lambda x, w: np.moveaxis(x, 0, 2) @ w,
        *((8, 4, 5), KERNEL),
        ["out[rows, rows, columns] as 20 by 9 = x[columns, rows, rows] as 20 by 8 @ w"],
    ),
    "two contracted axes": (
        lambda x, w: einsum("iak,akj->ij", x, w),
        *((20, 8, 12), (8, 12, 9)),
        ["out = x[rows, columns, columns] as 20 by 96 @ w[rows, rows, columns] as 96 by 9"],
    ),
    "slices of rows and columns": (
        lambda x, w: x[4:24, 2:10] @ w[3:11, 1:10],
        *((30, 12), (12, 11)),
        ["out = x[4 + rows, 2 + columns] as 20 by 8 @ w[3 + rows, 1 + columns] as 8 by 9"],
    ),
    "one entry of other axes": (
        lambda x, w: x[3] @ w[:, 1],
        *((5, 20, 12), (12, 3, 9)),
        ["out = x[3] @ w[rows, 1, columns] as 12 by 9"],
    ),
    "transposes": (lambda x, w: x.T @ w.T, (8, 20), (9, 8), ["out = x.T @ w.T"]),
    "transposed": (lambda x, w: (x @ w).T, (20, 8), KERNEL, ["out = w.T @ x.T"]),
    "a slice of a transpose": (
        lambda x, w: x.T[:, 1:] @ w,
        *((20, 8), (19, 9)),
        ["out = x[1 + columns, rows] as 8 by 19 @ w"],
    ),
}
LOOPED = {
    "a batch": (
        lambda x, w: einsum("hid,hjd->hij", x, w),
        *((3, 20, 8), (3, 20, 8)),
        ["for i < 3:", "  out[i] = x[i] @ w[i].T"],
    ),
    "heads in the middle": (
        lambda x, w: einsum("ihd,jhd->hij", x, w),
        *((20, 3, 8), (20, 3, 8)),
        [
            "for i < 3:",
            "  out[i] = x[rows, i, columns] as 20 by 8 @ w[columns, i, rows] as 8 by 20",
        ],
    ),
    "rows that lie apart in one array": (
        lambda x, w: einsum("ncij,cd->nijd", x, w),
        *((4, 8, 5, 6), KERNEL),
        [
            "for i < 4:",
            "  out[i, rows, rows, columns] as 30 by 9 = x[i, columns, rows, rows] as 30 by 8 @ w",
        ],
    ),
    "rows that lie otherwise": (
        lambda x, w: np.swapaxes(x, 0, 1) @ w,
        *((4, 5, 8), KERNEL),
        ["for i < 4:", "  out[rows, i, columns] as 5 by 9 = x[i] @ w"],
    ),
    "slices of flattened axes": (
        lambda x, w: x[:, 1:33, 2:34] @ w,
        *((4, 34, 35, 64), (64, 9)),
        [
            "for i < 4:",
            "  for j < 32:",
            "    out[i, j] = x[i, j + 1, 2 + rows, columns] as 32 by 64 @ w",
        ],
    ),
    "many rows of each, which are near": (
        lambda x, w: x[:, 1:] @ w,
        *((50, 10, 64), (64, 9)),
        ["for i < 50:", "  out[i] = x[i, 1 + rows, columns] as 9 by 64 @ w"],
    ),
    "few rows of each": (
        lambda x, w: x[:, 1:] @ w,
        *((50, 5, 64), (64, 9)),
        [
            "for i < 4:",
            "  out[rows, i, columns] as 50 by 9 = x[rows, i + 1, columns] as 50 by 64 @ w",
        ],
    ),
    "contracted axes that lie apart": (
        lambda x, w: einsum("iak,kaj->ij", x, w),
        *((20, 2, 12), (12, 2, 9)),
        [
            "for i < 20:",
            "  for j < 9:",
            "    out[i, j] = 0.0 : f8",
            "for i < 2:",
            "  out += x[rows, i, columns] as 20 by 12 @ w[rows, i, columns] as 12 by 9",
        ],
    ),
    "a slice of contracted axes": (
        lambda x, w: einsum("nijc,nijd->cd", x[:, 1:], w),
        *((4, 6, 6, 8), (4, 5, 6, 9)),
        [
            "for i < 8:",
            "  for j < 9:",
            "    out[i, j] = 0.0 : f8",
            "for i < 4:",
            "  out += x[i, 1 + columns, columns, rows] as 8 by 30 @ "
            "w[i, rows, rows, columns] as 30 by 9",
        ],
    ),
}
STEPPED = {
    "steps of rows": (lambda x, w: x[::2] @ w, (20, 8), KERNEL, copied("x[2 * i, j]")),
    "steps of columns": (lambda x, w: x[:, ::2] @ w, (10, 16), KERNEL, copied("x[i, 2 * j]")),
    "the other way round": (lambda x, w: x[:, ::-1] @ w, (10, 8), KERNEL, copied("x[i, 7 - j]")),
    "a diagonal": (
        lambda x, w: einsum("iij,jk->ik", x, w),
        *((10, 10, 8), KERNEL),
        copied("x[i, i, j]"),
    ),
    "what repeats itself": (
        lambda x, w: np.broadcast_to(x, (10, 8)) @ w,
        *((8,), KERNEL),
        copied("x[j]"),
    ),
    "an operand, in the order in which the other has the terms": (
        lambda x, w: einsum("ika,akj->ij", x, w[:, :, ::2]),
        *((20, 3, 4), (4, 3, 10)),
        [
            "for i < 3:",
            "  for j < 4:",
            "    for k < 5:",
            "      t[i, j, k] = w[j, i, 2 * k] : f8",
            "out = x[rows, columns, columns] as 20 by 12 @ t[rows, rows, columns] as 12 by 5",
        ],
    ),
    "the first operand, likewise": (
        lambda x, w: einsum("ika,akj->ij", x[::2], w),
        *((20, 3, 4), (4, 3, 10)),
        [
            "for i < 10:",
            "  for j < 4:",
            "    for k < 3:",
            "      t[i, j, k] = x[2 * i, k, j] : f8",
            "out = t[rows, columns, columns] as 10 by 12 @ w[rows, rows, columns] as 12 by 10",
        ],
    ),
    "a short slice of flattened axes": (
        lambda x, w: x[:, 1:5, 2:6] @ w,
        *((4, 6, 7, 8), KERNEL),
        [
            "for i < 4:",
            "  for j < 4:",
            "    for k < 4:",
            "      for l < 8:",
            "        t[i, j, k, l] = x[i, j + 1, k + 2, l] : f8",
            "out[rows, rows, rows, columns] as 64 by 9 = "
            "t[rows, rows, rows, columns] as 64 by 8 @ w",
        ],
    ),
}
PRODUCTS = ONE | LOOPED | STEPPED


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Plans of these programs are run as they are written, and held against the tape."""
    monkeypatch.setattr("tapegrad.checking.oracle.MAX_ACCESSES", 200_000)


@pytest.mark.every(24)
@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_one_product(name):
    f, *shapes, wanted = PRODUCTS[name]
    values = [normal(*shape) for shape in shapes]
    _, tape = trace(f, *values)
    assert steps(tape) == wanted
    assert_agree(tape, values)


def test_gradients_of_slices_are_added_in_boxes():
    """Each product of a cotangent is added to the part of the gradient that the slice was of."""

    def f(x, w, ct):
        return np.sum((x[:, 1:5] @ w[0] + x[:, :4] @ w[1]) * ct)

    values = normal(5, 6, 8), normal(2, 8, 9), normal(5, 4, 9)
    _, tape = trace(f, *values)
    tape = gradient(tape, [0])
    products = [line.strip() for line in steps(tape) if "@" in line and "d_x" in line]
    assert products == [
        "d_x[rows, i, columns] as 5 by 8 += ct[rows, i, columns] as 5 by 9 @ w[1].T",
        "d_x[rows, i + 1, columns] as 5 by 8 += ct[rows, i, columns] as 5 by 9 @ w[0].T",
    ]
    assert_agree(tape, values)


# ---- a matrix times its own transpose


@pytest.fixture
def always_by_symmetry(monkeypatch):
    monkeypatch.setattr("tapegrad.schedule.gemm.GAINED", -1e12)


GRAM: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "columns": (lambda x: x.T @ x, (5, 32)),
    "rows": (lambda x: x @ x.T, (35, 4)),
    "swapped": (lambda x: einsum("ij,ik->kj", x, x), (5, 33)),
    "a batch": (lambda x: np.swapaxes(x, 1, 2) @ x, (3, 5, 32)),
    "a part": (lambda x: x[1:, 2:].T @ x[1:, 2:], (6, 42)),
    "what follows": (lambda x: np.tanh(x.T @ x) @ x.T, (5, 40)),
    "a covariance": (lambda x: np.cov(x.T), (7, 36)),
    "the first of a sum": (lambda x: x[0].T @ x[0] + x[1].T @ x[1], (2, 5, 32)),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", GRAM)
def test_by_symmetry(name, always_by_symmetry):
    """Four blocks of rows up to the diagonal, and three copies; run as it is written."""
    f, shape = GRAM[name]
    values = [normal(*shape)]
    _, tape = trace(f, *values)
    written = [line.strip() for line in steps(tape)]
    assert sum(" @ " in line for line in written) >= 4
    mirrored = [line for line in written if re.match(r"(\S+)\[.*\] = \1\[", line)]
    assert len(mirrored) == 3
    assert_agree(tape, values)
    found, expected = jit(f, compile="always")(*values), f(*values)
    np.testing.assert_allclose(found, expected, 1e-10, 1e-12)
    if name not in ("what follows", "the first of a sum"):
        np.testing.assert_array_equal(found, np.swapaxes(found, -1, -2))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: x @ x, (32, 32)),
        (lambda x: x[:5].T @ x[1:], (6, 32)),
        (lambda x: x[:, :32].T @ x, (5, 33)),
    ],
)
def test_no_symmetry(f, shape, always_by_symmetry):
    values = [normal(*shape)]
    _, tape = trace(f, *values)
    assert not any(re.match(r"\s*(\S+)\[.*\] = \1\[", line) for line in steps(tape))
    assert_agree(tape, values)


def test_symmetry_where_it_gains():
    """A matrix of few terms is mostly written, small ones take a start each, and what is far away
    is read once."""
    shapes = ((1000, 100), 4), ((10, 400), 1), ((200, 32), 1), ((90_000, 32), 1), ((90_000, 10), 1)
    for shape, count in shapes:
        _, tape = trace(lambda x: x.T @ x, normal(*shape))
        assert sum(" @ " in line for line in steps(tape)) == count, shape


# ---- programs at random


def shifted(rng: np.random.Generator) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Images whose axes are in any order, of which slices are multiplied by a matrix each."""
    size = dict(zip("nijcd", (int(k) for k in rng.integers([1, 4, 4, 1, 1], 8)), strict=True))
    one, to = "".join(rng.permutation([*"nijc"])), "".join(rng.permutation([*"nijd"]))
    step = int(rng.choice([1, 1, 1, 2]))
    starts = [dict(zip("ij", rng.integers(0, 3, 2), strict=True)) for _ in range(3)]
    bends = rng.random() < 0.5

    def part(k: str, start: dict[str, int]) -> slice:
        return slice(start[k], size[k] - 2 + start[k], step) if k in start else slice(None)

    def f(x: Any, w: Any) -> Any:
        parts = [x[tuple([part(k, start) for k in one])] for start in starts]
        total = sum(einsum(f"{one},cd->{to}", x, y) for x, y in zip(parts, w, strict=True))
        return np.tanh(total) if bends else total

    return f, [rng.normal(size=[size[k] for k in one]), rng.normal(size=(3, size["c"], size["d"]))]


def attention(rng: np.random.Generator) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Softmax of scores times values, each array's axes in any order."""
    size = dict(zip("hijd", (int(k) for k in rng.integers(2, 9, 4)), strict=True))
    q, k, v, scores, to = (
        "".join(rng.permutation([*axes])) for axes in ("hid", "hjd", "hjd", "hij", "hid")
    )
    axis = scores.index("j")

    def f(x: Any, y: Any, z: Any) -> Any:
        s = einsum(f"{q},{k}->{scores}", x, y) / 3
        e = np.exp(s - np.max(s, axis=axis, keepdims=True))
        return einsum(f"{scores},{v}->{to}", e / np.sum(e, axis=axis, keepdims=True), z)

    return f, [rng.normal(size=[size[k] for k in axes]) for axes in (q, k, v)]


@pytest.mark.every(8)
@pytest.mark.parametrize("kind", [shifted, attention], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", range(4))
def test_programs(kind, seed):
    """Run as they are written, as all plans here, and compiled."""
    rng = np.random.default_rng(seed)
    programs = [kind(rng) for _ in range(3)]
    weights = [rng.normal(size=f(*values).shape) for f, values in programs]

    def total(all_values):
        results = [f(*xs) for (f, _), xs in zip(programs, all_values, strict=True)]
        return sum(np.sum(y * (y + w)) for y, w in zip(results, weights, strict=True))

    values = [values for _, values in programs]
    expected, slopes = value_and_grad(total, compile="never")(values)
    assert np.isclose(expected, total(values), 1e-12)
    found, compiled = value_and_grad(total, compile="always")(values)
    assert np.isclose(found, expected, 1e-12)
    for ours, theirs in zip(compiled, slopes, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, 1e-9, 1e-11)
