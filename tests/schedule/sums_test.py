"""Matrix products that are added up: one cell takes them all, and no loop adds them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.emit.check import assert_agree
from tests.tapes import tape

from tapegrad import trace
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import gradient, schedule

R = np.random.default_rng(0)


def statements(t: Tape) -> list[str]:
    """What the kernels of a tape do: no heads of functions and loops, views and comments."""
    lines = [line.strip() for k in schedule(t).kernels for line in k.text.splitlines()]
    lines = lines[1 + next(n for n, line in enumerate(lines) if line.endswith("):")) :]
    heads = ("for ", "#", "def ", "return 0", "if ")
    views = ("= reshaped(", "= part(")
    return [s for s in lines if not s.startswith(heads) and not any(v in s for v in views)]


def values(t: Tape) -> list[np.ndarray]:
    return [np.asarray(R.normal(size=v.shape), v.dtype) for v in t.inputs]


# The factors of two products, x @ x1 and x2 @ x3; other inputs come after them.
FACTORS = "f8[9,10] f8[10,11] f8[9,12] f8[12,11] "
PRODUCTS = """
        %91 = einsum(%1, %2, subscripts='ij,jk->ik') : f8[9,11]
        %92 = einsum(%3, %4, subscripts='ij,jk->ik') : f8[9,11]
"""
CASES: dict[str, tuple[str, str, list[str]]] = {
    "two products": (
        FACTORS,
        """
        %93 = add(%91, %92) : f8[9,11]
        out %93
        """,
        ["matmul(x, x1, out)", "add_matmul(x2, x3, out)"],
    ),
    "a tree of four": (
        FACTORS,
        """
        %93 = mul(%1, 2.0) : f8[9,10]
        %94 = einsum(%93, %2, subscripts='ij,jk->ik') : f8[9,11]
        %96 = exp(%3) : f8[9,12]
        %97 = einsum(%96, %4, subscripts='ij,jk->ik') : f8[9,11]
        %98 = add(%91, %94) : f8[9,11]
        %99 = add(%97, %92) : f8[9,11]
        %100 = add(%99, %98) : f8[9,11]
        out %100
        """,
        [
            "matmul(x, x1, out)",
            "add_matmul(x2, x3, out)",
            "t[i, j] = x[i, j] * 2.0",
            "add_matmul(t, x1, out)",
            "t1[i, j] = exp(x2[i, j])",
            "add_matmul(t1, x3, out)",
        ],
    ),
    "an elementwise function of the sum": (
        FACTORS,
        """
        %93 = add(%91, %92) : f8[9,11]
        %94 = exp(%93) : f8[9,11]
        out %94
        """,
        ["matmul(x, x1, t)", "add_matmul(x2, x3, t)", "out[i, j] = exp(t[i, j])"],
    ),
    "other terms are added in a register": (
        FACTORS + "f8[11] f8[9,11]",
        """
        %93 = add(%91, %5) : f8[9,11]
        %94 = exp(%6) : f8[9,11]
        %95 = add(%94, %92) : f8[9,11]
        %96 = add(%93, %95) : f8[9,11]
        %97 = exp(%96) : f8[9,11]
        out %97
        """,
        [
            "matmul(x, x1, t)",
            "add_matmul(x2, x3, t)",
            "out[i, j] = exp(t[i, j] + (x4[j] + exp(x5[i, j])))",
        ],
    ),
    "but to a sum that is an output": (
        FACTORS + "f8[9,11]",
        """
        %93 = add(%91, %92) : f8[9,11]
        %94 = mul(%5, 2.0) : f8[9,11]
        %95 = add(%93, %94) : f8[9,11]
        %96 = exp(%95) : f8[9,11]
        out %95, %96
        """,
        [
            "matmul(x, x1, out)",
            "add_matmul(x2, x3, out)",
            "out[i, j] += x4[i, j] * 2.0",
            "out1[i, j] = exp(out[i, j])",
        ],
    ),
    "a sum used twice": (
        FACTORS + "f8[11,10]",
        """
        %93 = add(%91, %92) : f8[9,11]
        %94 = einsum(%93, %5, subscripts='ij,jk->ik') : f8[9,10]
        %95 = exp(%93) : f8[9,11]
        out %94, %95
        """,
        [
            "matmul(x, x1, t)",
            "add_matmul(x2, x3, t)",
            "matmul(t, x4, out)",
            "out1[i, j] = exp(t[i, j])",
        ],
    ),
    "an inner sum used twice ends there": (
        FACTORS,
        """
        %93 = add(%91, %92) : f8[9,11]
        %94 = einsum(%1, %2, subscripts='ij,jk->ik') : f8[9,11]
        %95 = add(%93, %94) : f8[9,11]
        out %93, %95
        """,
        [
            "matmul(x, x1, out)",
            "add_matmul(x2, x3, out)",
            "matmul(x, x1, out1)",
            "out1[i, j] += out[i, j]",
        ],
    ),
    "a product used elsewhere too": (
        FACTORS,
        """
        %93 = add(%91, %92) : f8[9,11]
        out %91, %93
        """,
        ["matmul(x, x1, out)", "matmul(x2, x3, out1)", "out1[i, j] += out[i, j]"],
    ),
    "a product added to itself": (
        FACTORS,
        """
        %93 = add(%91, %91) : f8[9,11]
        %94 = add(%92, %93) : f8[9,11]
        out %94
        """,
        ["matmul(x, x1, t)", "matmul(x2, x3, out)", "out[i, j] += t[i, j] + t[i, j]"],
    ),
    "a transposed sum": (
        FACTORS,
        """
        %93 = add(%91, %92) : f8[9,11]
        %94 = transpose(%93, axes=(1, 0)) : f8[11,9]
        out %94
        """,
        ["matmul(x1.T, x.T, out)", "add_matmul(x3.T, x2.T, out)"],
    ),
    "a transposed term, of transposed factors": (
        FACTORS + "f8[12,11] f8[9,12]",
        """
        %93 = add(%91, %92) : f8[9,11]
        %94 = transpose(%5, axes=(1, 0)) : f8[11,12]
        %95 = transpose(%6, axes=(1, 0)) : f8[12,9]
        %96 = einsum(%94, %95, subscripts='ij,jk->ik') : f8[11,9]
        %97 = transpose(%96, axes=(1, 0)) : f8[9,11]
        %98 = add(%97, %93) : f8[9,11]
        out %98
        """,
        ["matmul(x, x1, out)", "add_matmul(x2, x3, out)", "add_matmul(x5, x4, out)"],
    ),
    "a transposed product alone": (
        FACTORS,
        """
        %93 = transpose(%91, axes=(1, 0)) : f8[11,9]
        %94 = exp(%92) : f8[9,11]
        out %93, %94
        """,
        ["matmul(x1.T, x.T, out)", "matmul(x2, x3, t)", "out1[i, j] = exp(t[i, j])"],
    ),
    "a broadcast product is a term like others": (
        FACTORS + "f8[2,9,11]",
        """
        %93 = add(%91, %92) : f8[9,11]
        %94 = add(%5, %93) : f8[2,9,11]
        out %94
        """,
        [
            "matmul(x, x1, t)",
            "add_matmul(x2, x3, t)",
            "out[i, j, k] = x4[i, j, k] + t[j, k]",
        ],
    ),
    "a scattered term is added to the products": (
        FACTORS + "f8[2,11] f8[9,11]",
        """
        %93 = place(%5, shape=(9, 11), index=(Slice(3, 2, 1), Slice(0, 11, 1))) : f8[9,11]
        %94 = add(%91, %93) : f8[9,11]
        %95 = add(%94, %92) : f8[9,11]
        %96 = add(%95, %6) : f8[9,11]
        out %96
        """,
        [
            "matmul(x, x1, out)",
            "add_matmul(x2, x3, out)",
            "out[i, j] += x5[i, j]",
            "out[i + 3, j] += x4[i, j]",
        ],
    ),
}


@pytest.mark.every(14)
@pytest.mark.parametrize("name", CASES)
def test_sums(name):
    inputs, body, expected = CASES[name]
    lines = "\n".join(s.strip() for s in (PRODUCTS + body).strip().splitlines())
    t = tape(inputs, lines)
    assert statements(t) == expected
    assert_agree(t, values(t))


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_batches(kind):
    """Of stacks of matrices each product adds to its own; a factor may be the same for all."""
    t = tape(
        f"{kind}[3,9,10] {kind}[3,10,11] {kind}[1,9,10] {kind}[3,11,9]",
        f"""
        %5 = einsum(%1, %2, subscripts='hij,hjk->hik') : {kind}[3,9,11]
        %51 = squeeze(%3, axes=(0,)) : {kind}[9,10]
        %6 = einsum(%51, %2, subscripts='ij,hjk->hik') : {kind}[3,9,11]
        %7 = add(%5, %6) : {kind}[3,9,11]
        %8 = transpose(%7, axes=(0, 2, 1)) : {kind}[3,11,9]
        %9 = exp(%4) : {kind}[3,11,9]
        %10 = add(%8, %9) : {kind}[3,11,9]
        out %10
        """,
    )
    assert statements(t) == [
        "matmul(x1[i].T, x[i].T, out[i])",
        "add_matmul(x1[i].T, x2[0].T, out[i])",
        "out[i, j, k] += exp(x3[i, j, k])",
    ]
    assert_agree(t, values(t))


def test_a_guard_between_two_products():
    """Where it fails, what is half added up is nobody's result."""
    t = tape(
        "f8[9,10] f8[10,11]",
        """
        %3 = einsum(%1, %2, subscripts='ij,jk->ik') : f8[9,11]
        %4 = sum(%1, axes=(0, 1)) : f8[]
        %5 = greater(%4, 0.0) : b1[]
        guard %5 = True
        %6 = exp(%1) : f8[9,10]
        %7 = einsum(%6, %2, subscripts='ij,jk->ik') : f8[9,11]
        %8 = add(%3, %7) : f8[9,11]
        out %8
        """,
    )
    positive, x = np.abs(R.normal(size=(9, 10))), R.normal(size=(10, 11))
    assert_agree(t, (positive, x), (-positive, x), (positive, -x))


def test_a_call_of_numpy_between_two_products():
    """The sum is in memory, `t` and `t2`, while NumPy makes what the second product needs."""
    t = tape(
        "f8[9,10] f8[10,11]",
        """
        %3 = einsum(%1, %2, subscripts='ij,jk->ik') : f8[9,11]
        %4, %10 = pinv(%1, rcond=1e-15) : f8[10,9], b1[]
        %9 = transpose(%4, axes=(1, 0)) : f8[9,10]
        %5 = einsum(%9, %2, subscripts='ij,jk->ik') : f8[9,11]
        %6 = add(%3, %5) : f8[9,11]
        %7 = exp(%6) : f8[9,11]
        out %7
        """,
    )
    assert statements(t) == [
        "matmul(x, x1, t)",
        "add_matmul(t1.T, x1, t2)",
        "out[i, j] = exp(t2[i, j])",
    ]
    assert_agree(t, values(t))


def test_what_is_cheap_to_compute_from_a_sum_is_computed_again():
    """A sum of products is as good as one product to compute from where it is read."""
    t = tape(
        FACTORS + "f8[11] f8[11,11]",
        """
        %7 = einsum(%1, %2, subscripts='ij,jk->ik') : f8[9,11]
        %8 = einsum(%3, %4, subscripts='ij,jk->ik') : f8[9,11]
        %9 = add(%7, %8) : f8[9,11]
        %10 = add(%9, %5) : f8[9,11]
        %11 = exp(%10) : f8[9,11]
        %12 = einsum(%11, %6, subscripts='ij,jk->ik') : f8[9,11]
        %13 = mul(%12, %10) : f8[9,11]
        out %13
        """,
    )
    assert statements(t) == [
        "matmul(x, x1, t)",
        "add_matmul(x2, x3, t)",
        "t1[i, j] = exp(t[i, j] + x4[j])",
        "matmul(t1, x5, t2)",
        "out[i, j] = t2[i, j] * (t[i, j] + x4[j])",
    ]
    assert_agree(t, values(t))


# ---- gradients


def recurrent(w, w1, b, xs, h):
    for x in xs:
        h = np.tanh(x @ w + h @ w1.T + b)
    return np.sum(h * h)


def tied(w, x):
    return np.sum((np.tanh(x @ w) @ w.T - x) ** 2)


def penalised(w, x):
    return np.sum(np.tanh(np.tanh(x @ w) @ w)) + np.sum(w * w)


def embedded(w, rows):
    return np.sum(np.tanh(w[rows] @ w.T))


def normal(*shape: int, kind: str) -> np.ndarray:
    return R.normal(size=shape).astype(kind)


def example(name: str, kind: str) -> tuple[Any, ...]:
    if name == "recurrent":
        w, w1 = normal(9, 12, kind=kind), normal(12, 12, kind=kind)
        xs = [normal(8, 9, kind=kind) for _ in range(3)]
        return recurrent, w, w1, normal(12, kind=kind), xs, normal(8, 12, kind=kind)
    if name == "tied":
        return tied, normal(9, 12, kind=kind), normal(8, 9, kind=kind)
    if name == "penalised":
        return penalised, normal(12, 12, kind=kind), normal(8, 12, kind=kind)
    return embedded, normal(20, 12, kind=kind), np.arange(8) % 3


# What happens to the gradients.
GRADIENTS = {
    "recurrent": [
        "matmul(ct.T, t, d_w1)",
        "matmul(xs_2.T, ct, d_w)",
        "add_matmul(ct.T, t, d_w1)",
        "add_matmul(xs_1.T, ct, d_w)",
        "add_matmul(ct.T, h, d_w1)",
        "add_matmul(xs_0.T, ct, d_w)",
    ],
    "tied": ["matmul(ct.T, t, d_w)", "add_matmul(x.T, ct, d_w)"],
    "penalised": ["matmul(t.T, ct, d_w)", "add_matmul(x.T, ct, d_w)", "d_w[i, j] += w[i, j] * 2.0"],
    "embedded": ["matmul(ct.T, t, d_w)", "d_w[wrapped(rows[i], 20), j] += ct[i, j]"],
}


@pytest.mark.every(8)
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_shared_weights(name, kind):
    """The products add to the gradient itself, wherever the weights are used."""
    f, *args = example(name, kind)
    t = trace(f, *args)[1]
    t = gradient(t, [k for k, n in enumerate(t.names) if n.startswith("w")])
    found = [
        re.sub(r"\b(c?t)\d+\b|f4_2_0", lambda m: m[1] or "2.0", s)
        for s in statements(t)
        if "d_w" in s
    ]
    assert found == GRADIENTS[name]
    leaves = [y for x in args for y in (x if isinstance(x, list) else [x])]
    assert_agree(t, [*leaves, *t.captured])
