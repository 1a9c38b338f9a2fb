"""Rewrites of contractions: each on a tiny tape, before and after, with the same values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.tapes import awkward, tape

from tapegrad import trace
from tapegrad.backends.numpy.play import run
from tapegrad.ir.tape import Tape
from tapegrad.optimize.dce import remove_dead
from tapegrad.optimize.simplify import reorder, simplify


def simplified(t: Tape) -> Tape:
    """Simplified, with sums of products in the best order, and without the guards on that."""
    return remove_dead(replace(reorder(simplify(t)), guards=t.guards))


def body(t: Tape) -> list[str]:
    """The lines of a tape after its inputs."""
    return [" ".join(line.split()) for line in str(t).splitlines()[1 + len(t.inputs) :]]


def product(subscripts: str, out: str, x: int = 1, y: int = 2, to: int = 4) -> str:
    return f"%{to} = einsum(%{x}, %{y}, subscripts='{subscripts}') : {out}\n"


MATMUL = "ij,jk->ik"
ROW_TIMES_COLUMN = "%4 = expand_dims(%1, axes=(1,)) : f8[3,1]\n%5 = mul(%4, %2) : f8[3,4]\n"

# what is rewritten: inputs, calls before, calls after
REWRITES = {
    # ---- transposes
    "x.T @ y": (
        "f8[4,3] f8[4,5]",
        "%3 = transpose(%1, axes=(1, 0)) : f8[3,4]\n" + product(MATMUL, "f8[3,5]", 3) + "out %4",
        "%3 = einsum(%1, %2, subscripts='ij,ik->jk') : f8[3,5]\nout %3",
    ),
    "x.T @ y.T": (
        "f8[4,3] f8[5,4]",
        "%3 = transpose(%1, axes=(1, 0)) : f8[3,4]\n"
        "%4 = transpose(%2, axes=(1, 0)) : f8[4,5]\n"
        + product(MATMUL, "f8[3,5]", 3, 4, 5)
        + "out %5",
        "%3 = einsum(%1, %2, subscripts='ij,ki->jk') : f8[3,5]\nout %3",
    ),
    "three axes in turn": (
        "f8[4,2,3] f8[2,4,5]",
        "%3 = transpose(%1, axes=(1, 2, 0)) : f8[2,3,4]\n"
        + product("hij,hjk->hik", "f8[2,3,5]", 3)
        + "out %4",
        "%3 = einsum(%1, %2, subscripts='ijk,jil->jkl') : f8[2,3,5]\nout %3",
    ),
    "elements of transposed ones": (
        "f8[4,3] f8[4,5] f8[4] f8[3]",
        "%5 = transpose(%1, axes=(1, 0)) : f8[3,4]\n%6 = mul(%5, %3) : f8[3,4]\n"
        "%7 = sub(%5, %6) : f8[3,4]\n" + product(MATMUL, "f8[3,5]", 7, 2, 8) + "out %8",
        "%5 = expand_dims(%3, axes=(1,)) : f8[4,1]\n%6 = mul(%1, %5) : f8[4,3]\n"
        "%7 = sub(%1, %6) : f8[4,3]\n%8 = einsum(%7, %2, subscripts='ij,ik->jk') : f8[3,5]\nout %8",
    ),
    "elements of three axes in turn": (
        "f8[4,2,3] f8[2,4,5] f8[3,1]",
        "%4 = transpose(%1, axes=(1, 2, 0)) : f8[2,3,4]\n%5 = add(%4, %3) : f8[2,3,4]\n"
        + product("hij,hjk->hik", "f8[2,3,5]", 5, 2, 6)
        + "out %6",
        "%4 = squeeze(%3, axes=(1,)) : f8[3]\n%5 = add(%1, %4) : f8[4,2,3]\n"
        "%6 = einsum(%5, %2, subscripts='ijk,jil->jkl') : f8[2,3,5]\nout %6",
    ),
    "(x @ y).T": (
        "f8[3,4] f8[4,5]",
        product(MATMUL, "f8[3,5]", to=3) + "%4 = transpose(%3, axes=(1, 0)) : f8[5,3]\nout %4",
        "%3 = einsum(%2, %1, subscripts='ij,ki->jk') : f8[5,3]\nout %3",
    ),
    "(u[:, None] * v + 2 * w) @ y": (
        "f8[3] f8[4] f8[4] f8[4,5]",
        "%5 = expand_dims(%1, axes=(1,)) : f8[3,1]\n%6 = mul(%5, %2) : f8[3,4]\n"
        "%7 = mul(%6, 2.0) : f8[3,4]\n%8 = add(%7, %3) : f8[3,4]\n"
        + product(MATMUL, "f8[3,5]", 8, 4, 9)
        + "out %9",
        "%5 = expand_dims(%1, axes=(1,)) : f8[3,1]\n"
        "%6 = einsum(%4, %2, subscripts='ij,i->j') : f8[5]\n%7 = mul(%5, %6) : f8[3,5]\n"
        "%8 = add(%7, 0.0) : f8[3,5]\n%9 = mul(%8, 2.0) : f8[3,5]\n"
        "%10 = einsum(%4, %3, subscripts='ij,i->j') : f8[5]\n%11 = add(%9, %10) : f8[3,5]\nout %11",
    ),
    "integers: x.T @ y": (
        "i8[4,3] i8[4,5]",
        "%3 = transpose(%1, axes=(1, 0)) : i8[3,4]\n" + product(MATMUL, "i8[3,5]", 3) + "out %4",
        "%3 = einsum(%1, %2, subscripts='ij,ik->jk') : i8[3,5]\nout %3",
    ),
    # ---- what repeats itself
    "equal rows": (
        "f8[4] f8[4,5]",
        "%3 = broadcast_to(%1, shape=(3, 4)) : f8[3,4]\n"
        + product(MATMUL, "f8[3,5]", 3)
        + "out %4",
        "%3 = einsum(%2, %1, subscripts='ij,i->j') : f8[5]\n"
        "%4 = broadcast_to(%3, shape=(3, 5)) : f8[3,5]\nout %4",
    ),
    "equal terms": (
        "f8[3,1] f8[4,5]",
        "%3 = broadcast_to(%1, shape=(3, 4)) : f8[3,4]\n"
        + product(MATMUL, "f8[3,5]", 3)
        + "out %4",
        "%3 = sum(%2, axes=(0,)) : f8[5]\n"
        "%4 = mul(%1, %3) : f8[3,5]\n"
        "%5 = add(%4, 0.0) : f8[3,5]\n"
        "out %5",
    ),
    "equal terms of both": (
        "f8[3,1] f8[4,1]",
        "%3 = broadcast_to(%1, shape=(3, 8)) : f8[3,8]\n"
        "%4 = broadcast_to(%2, shape=(4, 8)) : f8[4,8]\n"
        + product("ij,kj->ik", "f8[3,4]", 3, 4, 5)
        + "out %5",
        "%3 = squeeze(%2, axes=(1,)) : f8[4]\n"
        "%4 = mul(%1, %3) : f8[3,4]\n"
        "%5 = mul(%4, 8.0) : f8[3,4]\n"
        "%6 = add(%5, 0.0) : f8[3,4]\n"
        "out %6",
    ),
    "small integers, 300 times": (
        "i1[] i1[]",
        "%3 = broadcast_to(%1, shape=(300,)) : i1[300]\n"
        "%4 = broadcast_to(%2, shape=(300,)) : i1[300]\n"
        + product("i,i->", "i1[]", 3, 4, 5)
        + "out %5",
        "%3 = mul(%1, %2) : i1[]\n%4 = mul(%3, i1(44)) : i1[]\nout %4",
    ),
    "truth, any number of times": (
        "b1[3,1] b1[4,1]",
        "%3 = broadcast_to(%1, shape=(3, 8)) : b1[3,8]\n"
        "%4 = broadcast_to(%2, shape=(4, 8)) : b1[4,8]\n"
        + product("ij,kj->ik", "b1[3,4]", 3, 4, 5)
        + "out %5",
        "%3 = squeeze(%2, axes=(1,)) : b1[4]\n%4 = logical_and(%1, %3) : b1[3,4]\nout %4",
    ),
    "one matrix for a batch": (
        "f8[3,4] f8[2,4,5]",
        "%3 = broadcast_to(%1, shape=(2, 3, 4)) : f8[2,3,4]\n"
        + product("hij,hjk->hik", "f8[2,3,5]", 3)
        + "out %4",
        "%3 = einsum(%2, %1, subscripts='ijk,lj->ilk') : f8[2,3,5]\nout %3",
    ),
    "one number": (
        "f8[] f8[4,5]",
        "%3 = broadcast_to(%1, shape=(3, 4)) : f8[3,4]\n"
        + product(MATMUL, "f8[3,5]", 3)
        + "out %4",
        "%3 = sum(%2, axes=(0,)) : f8[5]\n"
        "%4 = mul(%3, %1) : f8[5]\n"
        "%5 = add(%4, 0.0) : f8[5]\n"
        "%6 = broadcast_to(%5, shape=(3, 5)) : f8[3,5]\n"
        "out %6",
    ),
    "ones": (
        "f8[4,5]",
        "%2 = broadcast_to(1.0, shape=(3, 4)) : f8[3,4]\n"
        + product(MATMUL, "f8[3,5]", 2, 1, 3)
        + "out %3",
        "%2 = sum(%1, axes=(0,)) : f8[5]\n%3 = broadcast_to(%2, shape=(3, 5)) : f8[3,5]\nout %3",
    ),
    # ---- sums of products
    "sum(x @ y)": (
        "f8[3,4] f8[4,5]",
        product(MATMUL, "f8[3,5]", to=3) + "%4 = sum(%3, axes=(0, 1)) : f8[]\nout %4",
        "%3 = sum(%1, axes=(0,)) : f8[4]\n%4 = sum(%2, axes=(1,)) : f8[4]\n"
        "%5 = einsum(%3, %4, subscripts='i,i->') : f8[]\nout %5",
    ),
    "sum over rows": (
        "f8[3,4] f8[4,5]",
        product(MATMUL, "f8[3,5]", to=3) + "%4 = sum(%3, axes=(0,)) : f8[5]\nout %4",
        "%3 = sum(%1, axes=(0,)) : f8[4]\n"
        "%4 = einsum(%2, %3, subscripts='ij,i->j') : f8[5]\nout %4",
    ),
    "sum over a batch": (
        "f8[2,3,4] f8[2,4,5]",
        product("hij,hjk->hik", "f8[2,3,5]", to=3) + "%4 = sum(%3, axes=(0,)) : f8[3,5]\nout %4",
        "%3 = einsum(%1, %2, subscripts='ijk,ikl->jl') : f8[3,5]\nout %3",
    ),
    "sum over rows, cheaper than those of the product, which is read too": (
        "f8[30,2] f8[2,5]",
        product(MATMUL, "f8[30,5]", to=3) + "%4 = sum(%3, axes=(0,)) : f8[5]\nout %4, %3",
        "%3 = einsum(%1, %2, subscripts='ij,jk->ik') : f8[30,5]\n"
        "%4 = sum(%1, axes=(0,)) : f8[2]\n"
        "%5 = einsum(%2, %4, subscripts='ij,i->j') : f8[5]\nout %5, %3",
    ),
    "sum(x[:, None] * y, axis=-1)": (
        "f4[3,8] f4[5,8]",
        "%3 = expand_dims(%1, axes=(1,)) : f4[3,1,8]\n%4 = mul(%3, %2) : f4[3,5,8]\n"
        "%5 = sum(%4, axes=(2,)) : f4[3,5]\nout %5",
        "%3 = einsum(%1, %2, subscripts='ij,kj->ik') : f4[3,5]\nout %3",
    ),
    "the same, of what repeats itself along a summed axis": (
        "f8[3,1,9] f8[4,1,9]",
        "%3 = broadcast_to(%1, shape=(3, 8, 9)) : f8[3,8,9]\n"
        "%4 = broadcast_to(%2, shape=(4, 8, 9)) : f8[4,8,9]\n"
        "%5 = expand_dims(%3, axes=(1,)) : f8[3,1,8,9]\n%6 = mul(%5, %4) : f8[3,4,8,9]\n"
        "%7 = sum(%6, axes=(2, 3)) : f8[3,4]\nout %7",
        "%3 = squeeze(%1, axes=(1,)) : f8[3,9]\n"
        "%4 = squeeze(%2, axes=(1,)) : f8[4,9]\n"
        "%5 = einsum(%3, %4, subscripts='ij,kj->ik') : f8[3,4]\n"
        "%6 = mul(%5, 8.0) : f8[3,4]\n"
        "%7 = add(%6, 0.0) : f8[3,4]\n"
        "out %7",
    ),
    # ---- sums of products and others
    "sum(2.5 * (x @ y) + z)": (
        "f8[3,4] f8[4,5] f8[3,5]",
        product(MATMUL, "f8[3,5]") + "%5 = mul(2.5, %4) : f8[3,5]\n%6 = add(%5, %3) : f8[3,5]\n"
        "%7 = sum(%6, axes=(0, 1)) : f8[]\nout %7",
        "%4 = sum(%1, axes=(0,)) : f8[4]\n%5 = sum(%2, axes=(1,)) : f8[4]\n"
        "%6 = einsum(%4, %5, subscripts='i,i->') : f8[]\n%7 = mul(2.5, %6) : f8[]\n"
        "%8 = sum(%3, axes=(0, 1)) : f8[]\n%9 = add(%7, %8) : f8[]\nout %9",
    ),
    "sum of rows x @ y + b": (
        "f8[3,4] f8[4,5] f8[5]",
        product(MATMUL, "f8[3,5]")
        + "%5 = add(%4, %3) : f8[3,5]\n%6 = sum(%5, axes=(0,)) : f8[5]\nout %6",
        "%4 = sum(%1, axes=(0,)) : f8[4]\n"
        "%5 = einsum(%2, %4, subscripts='ij,i->j') : f8[5]\n%6 = mul(%3, 3.0) : f8[5]\n"
        "%7 = add(%5, %6) : f8[5]\nout %7",
    ),
    "sum(z - x @ y / c)": (
        "f4[3,4] f4[4,5] f4[3,1] f4[]",
        product(MATMUL, "f4[3,5]", to=5)
        + "%6 = div(%5, %4) : f4[3,5]\n%7 = sub(%3, %6) : f4[3,5]\n"
        "%8 = sum(%7, axes=(1,)) : f4[3]\nout %8",
        "%5 = squeeze(%3, axes=(1,)) : f4[3]\n"
        "%6 = mul(%5, f4(5.0)) : f4[3]\n"
        "%7 = sum(%2, axes=(1,)) : f4[4]\n"
        "%8 = einsum(%1, %7, subscripts='ij,j->i') : f4[3]\n"
        "%9 = div(%8, %4) : f4[3]\n"
        "%10 = sub(%6, %9) : f4[3]\n"
        "%11 = add(%10, f4(0.0)) : f4[3]\n"
        "out %11",
    ),
    "columns of x @ y + 1, repeated": (
        "f8[3,4] f8[4,5]",
        product(MATMUL, "f8[3,5]", to=3)
        + "%4 = add(1.0, %3) : f8[3,5]\n%5 = sum(%4, axes=(1,)) : f8[3]\nout %5",
        "%3 = sum(%2, axes=(1,)) : f8[4]\n%4 = einsum(%1, %3, subscripts='ij,j->i') : f8[3]\n"
        "%5 = add(5.0, %4) : f8[3]\nout %5",
    ),
    # ---- outer products
    "(u[:, None] * v) @ y": (
        "f8[3] f8[4] f8[4,5]",
        ROW_TIMES_COLUMN + product(MATMUL, "f8[3,5]", 5, 3, 6) + "out %6",
        "%4 = expand_dims(%1, axes=(1,)) : f8[3,1]\n"
        "%5 = einsum(%3, %2, subscripts='ij,i->j') : f8[5]\n"
        "%6 = mul(%4, %5) : f8[3,5]\n"
        "%7 = add(%6, 0.0) : f8[3,5]\n"
        "out %7",
    ),
    "y @ (u[:, None] * v)": (
        "f8[4] f8[5] f8[3,4]",
        "%4 = expand_dims(%1, axes=(1,)) : f8[4,1]\n%5 = mul(%4, %2) : f8[4,5]\n"
        + product(MATMUL, "f8[3,5]", 3, 5, 6)
        + "out %6",
        "%4 = einsum(%3, %1, subscripts='ij,j->i') : f8[3]\n"
        "%5 = expand_dims(%4, axes=(1,)) : f8[3,1]\n"
        "%6 = mul(%5, %2) : f8[3,5]\n"
        "%7 = add(%6, 0.0) : f8[3,5]\n"
        "out %7",
    ),
    "a product of two outer products": (
        "f8[3] f8[4] f8[4] f8[5]",
        "%5 = expand_dims(%1, axes=(1,)) : f8[3,1]\n%6 = mul(%5, %2) : f8[3,4]\n"
        "%7 = expand_dims(%3, axes=(1,)) : f8[4,1]\n%8 = mul(%7, %4) : f8[4,5]\n"
        + product(MATMUL, "f8[3,5]", 6, 8, 9)
        + "out %9",
        "%5 = expand_dims(%1, axes=(1,)) : f8[3,1]\n"
        "%6 = einsum(%3, %2, subscripts='i,i->') : f8[]\n"
        "%7 = mul(%4, %6) : f8[5]\n"
        "%8 = add(%7, 0.0) : f8[5]\n"
        "%9 = mul(%5, %8) : f8[3,5]\n"
        "%10 = add(%9, 0.0) : f8[3,5]\n"
        "out %10",
    ),
}

# what stays: inputs, calls
KEPT = {
    "elements of transposed ones and of others": (
        "f8[4,3] f8[4,5] f8[3,4]",
        "%4 = transpose(%1, axes=(1, 0)) : f8[3,4]\n%5 = mul(%4, %3) : f8[3,4]\n"
        + product(MATMUL, "f8[3,5]", 5, 2, 6)
        + "out %6",
    ),
    "elements of transposed ones that are read too": (
        "f8[4,3] f8[4,5] f8[4]",
        "%4 = transpose(%1, axes=(1, 0)) : f8[3,4]\n%5 = mul(%4, %3) : f8[3,4]\n"
        + product(MATMUL, "f8[3,5]", 5, 2, 6)
        + "out %6, %5",
    ),
    "the transpose of a product that is read too": (
        "f8[3,4] f8[4,5]",
        product(MATMUL, "f8[3,5]", to=3) + "%4 = transpose(%3, axes=(1, 0)) : f8[5,3]\nout %4, %3",
    ),
    "a sum of one that is read too, no less work": (
        "f8[3,4] f8[4,5]",
        product(MATMUL, "f8[3,5]", to=3) + "%4 = sum(%3, axes=(0,)) : f8[5]\nout %4, %3",
    ),
    "a sum over a batch of products that are read too": (
        "f8[20,9,2] f8[20,2,9]",
        product("hij,hjk->hik", "f8[20,9,9]", to=3)
        + "%4 = sum(%3, axes=(0,)) : f8[9,9]\nout %4, %3",
    ),
    "sums of 7 products": (
        "f8[3,7] f8[5,7]",
        "%3 = expand_dims(%1, axes=(1,)) : f8[3,1,7]\n%4 = mul(%3, %2) : f8[3,5,7]\n"
        "%5 = sum(%4, axes=(2,)) : f8[3,5]\nout %5",
    ),
    "a sum that is read besides its own": (
        "f8[3,4] f8[4,5] f8[3,5]",
        product(MATMUL, "f8[3,5]")
        + "%5 = add(%4, %3) : f8[3,5]\n%6 = sum(%5, axes=(0,)) : f8[5]\nout %6, %5",
    ),
    "more than a multiple": (
        "f8[3,4] f8[4,5] f8[3,5]",
        product(MATMUL, "f8[3,5]")
        + "%5 = mul(%4, %3) : f8[3,5]\n%6 = sum(%5, axes=(0,)) : f8[5]\nout %6",
    ),
    "one factor has all axes": (
        "f8[3,8] f8[8]",
        "%3 = mul(%1, %2) : f8[3,8]\n%4 = sum(%3, axes=(1,)) : f8[3]\nout %4",
    ),
    "a product that is read besides its sum": (
        "f8[3,8] f8[5,8]",
        "%3 = expand_dims(%1, axes=(1,)) : f8[3,1,8]\n%4 = mul(%3, %2) : f8[3,5,8]\n"
        "%5 = sum(%4, axes=(2,)) : f8[3,5]\nout %5, %4",
    ),
    "integers": (
        "i8[3,8] i8[5,8]",
        "%3 = expand_dims(%1, axes=(1,)) : i8[3,1,8]\n%4 = mul(%3, %2) : i8[3,5,8]\n"
        "%5 = sum(%4, axes=(2,)) : i8[3,5]\nout %5",
    ),
    "a sum of integers' products": (
        "i8[3,4] i8[4,5]",
        product(MATMUL, "i8[3,5]", to=3) + "%4 = sum(%3, axes=(0,)) : i8[5]\nout %4",
    ),
    "an empty sum of products": (
        "f8[0,4] f8[4,5]",
        product(MATMUL, "f8[0,5]", to=3) + "%4 = sum(%3, axes=(0,)) : f8[5]\nout %4",
    ),
    "products of no terms": (
        "f8[2,1] f8[0,3]",
        "%3 = broadcast_to(%1, shape=(2, 0)) : f8[2,0]\n"
        + product(MATMUL, "f8[2,3]", 3)
        + "out %4",
    ),
    "outer products of no terms": (
        "f8[3] f8[0] f8[0,5]",
        "%4 = expand_dims(%1, axes=(1,)) : f8[3,1]\n%5 = mul(%4, %2) : f8[3,0]\n"
        + product(MATMUL, "f8[3,5]", 5, 3, 6)
        + "out %6",
    ),
}


def assert_rewritten(inputs: str, before: str, after: str) -> None:
    """A tape's simplest form is this one, with the same values."""
    given, wanted = tape(inputs, before), tape(inputs, after)
    found = simplified(given)
    assert body(found) == body(wanted)
    assert_equal_sums(given, found, tape(inputs, before.replace("= sub(", "= add(")))


@pytest.mark.parametrize(("inputs", "before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(inputs: str, before: str, after: str) -> None:
    assert_rewritten(inputs, before, after)


@pytest.mark.parametrize(("inputs", "lines"), KEPT.values(), ids=KEPT)
def test_kept(inputs: str, lines: str) -> None:
    assert_rewritten(inputs, lines, lines)


# ---- programs at random


def addend(rng: np.random.Generator, shape: tuple[int, ...], made: list[Any]) -> Any:
    """A function of arrays of which it puts some to those `made`: a product, a permuted array, one
    that repeats itself, or a diagonal matrix's product, of this shape."""

    def new(*size: int) -> int:
        made.append(rng.normal(size=size))
        return len(made) - 1

    rows, columns = shape[-2:]
    scale = float(rng.choice([1.0, -2.0, 0.5]))
    kind = rng.choice(["product", "wide product", "permuted", "repeated", "diagonal", "number"])
    if kind == "product":
        x, y = new(*shape[:-1], 3), new(3, columns)
        return lambda a: scale * (a[x] @ a[y])
    if kind == "wide product":
        x, y = new(rows, 3), new(*shape[:-2], 3, columns)
        return lambda a: (a[x] @ a[y]) / scale
    if kind == "permuted":
        order = rng.permutation(len(shape)).tolist()
        x = new(*[shape[k] for k in np.argsort(order)])
        return lambda a: np.transpose(a[x], order) * scale
    if kind == "repeated":
        kept = [n if rng.random() < 0.5 else 1 for n in shape]
        x = new(*kept[int(rng.integers(len(shape))) :])
        return lambda a: a[x] - scale
    if kind == "diagonal":
        x, y = new(rows), new(*shape)
        return lambda a: np.diag(a[x]) @ a[y]
    return lambda a: scale


def totals(rng: np.random.Generator) -> tuple[Any, list[Any]]:
    """Sums over any axes, or the diagonal, of what is added up and scaled; and its arrays."""
    n = int(rng.integers(1, 4))
    shape = (*rng.integers(1, 4, int(rng.integers(3))).tolist(), n, n)
    made: list[Any] = [rng.normal(size=shape)]
    parts = [addend(rng, shape, made) for _ in range(int(rng.integers(2, 5)))]
    signs = rng.choice([-1, 1], len(parts))
    axes = tuple(k for k in range(len(shape)) if rng.random() < 0.4) or (0,)
    turned = rng.permutation(len(shape)).tolist()
    kind = rng.choice(["diagonal", "turned", "as it is"])

    def f(a: list[Any]) -> Any:
        total = a[0]
        for part, sign in zip(parts, signs, strict=True):
            total = total + part(a) if sign > 0 else total - part(a)
        if kind == "diagonal":
            return np.diagonal(total, 0, -2, -1)
        return np.sum(np.transpose(total, turned) if kind == "turned" else total, axes)

    return f, made


@pytest.mark.every(8)
@pytest.mark.parametrize("seed", range(8))
def test_totals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(50):
        f, made = totals(rng)
        _, t = trace(f, made)
        (found,), (expected,) = play(simplified(t), made), play(t, made)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found, expected, 1e-12, 1e-12)
        np.testing.assert_allclose(found, f(made), 1e-12, 1e-12)


# ----


def play(t: Tape, values: list[np.ndarray]) -> list[np.ndarray]:
    results, _ = run(t, values)
    return [np.asarray(x) for x in results]


def assert_equal_sums(before: Tape, after: Tape, magnitudes: Tape) -> None:
    """Each result is off by few roundings of the sum of its terms' magnitudes, which a tape that
    only multiplies, divides and adds gives for the inputs' magnitudes. One that isn't finite stays
    so, and one that is stays finite."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        values = [np.asarray(100 * rng.normal(size=x.shape)).astype(x.dtype) for x in before.inputs]
        sizes = play(magnitudes, [np.abs(x) if x.dtype.kind == "f" else x for x in values])
        results = zip(play(after, values), play(before, values), sizes, strict=True)
        for found, expected, size in results:
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            if found.dtype.kind == "f":
                assert np.all(np.abs(found - expected) <= 8 * np.finfo(found.dtype).eps * size)
            else:
                np.testing.assert_array_equal(found, expected)
    for seed in range(11):
        values = [awkward(x, seed + 3 * k) for k, x in enumerate(before.inputs)]
        with np.errstate(all="ignore"):
            pairs = zip(play(after, values), play(before, values), strict=True)
            for found, expected in pairs:
                np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
