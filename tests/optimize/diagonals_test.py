"""Rewrites of products with diagonal matrices: each on a tiny tape, with the same values."""

from __future__ import annotations

import numpy as np
import pytest
from tests.optimize.contractions_test import (
    MATMUL,
    assert_rewritten,
    product,
    simplified,
)
from tests.tapes import tape

from tapegrad import value_and_grad

SQUARE = "%3 = place_diagonal(%1, shape=(4, 4), offset=0) : f8[4,4]\n"

# what is rewritten: inputs, calls before, calls after
REWRITES = {
    "diag(w) @ x": (
        "f8[4] f8[4,5]",
        SQUARE + product(MATMUL, "f8[4,5]", 3, 2) + "out %4",
        "%3 = expand_dims(%1, axes=(1,)) : f8[4,1]\n%4 = mul(%2, %3) : f8[4,5]\n"
        "%5 = mul(%2, 0.0) : f8[4,5]\n%6 = sum(%5, axes=(0,)) : f8[5]\n"
        "%7 = add(%4, %6) : f8[4,5]\nout %7",
    ),
    "x @ diag(w)": (
        "f8[4] f8[5,4]",
        SQUARE + product(MATMUL, "f8[5,4]", 2, 3) + "out %4",
        "%3 = mul(%2, %1) : f8[5,4]\n%4 = mul(%2, 0.0) : f8[5,4]\n"
        "%5 = sum(%4, axes=(1,)) : f8[5]\n%6 = expand_dims(%5, axes=(1,)) : f8[5,1]\n"
        "%7 = add(%3, %6) : f8[5,4]\nout %7",
    ),
    "diag(w) @ v": (
        "f4[4] f4[4]",
        "%3 = place_diagonal(%1, shape=(4, 4), offset=0) : f4[4,4]\n"
        + product("ij,j->i", "f4[4]", 3, 2)
        + "out %4",
        "%3 = mul(%1, %2) : f4[4]\n%4 = mul(%2, f4(0.0)) : f4[4]\n"
        "%5 = sum(%4, axes=(0,)) : f4[]\n%6 = add(%3, %5) : f4[4]\nout %6",
    ),
    "integers": (
        "i8[4] i8[4,5]",
        "%3 = place_diagonal(%1, shape=(4, 4), offset=0) : i8[4,4]\n"
        + product(MATMUL, "i8[4,5]", 3, 2)
        + "out %4",
        "%3 = expand_dims(%1, axes=(1,)) : i8[4,1]\n%4 = mul(%2, %3) : i8[4,5]\nout %4",
    ),
    "diag(x @ y)": (
        "f8[4,3] f8[3,4]",
        product(MATMUL, "f8[4,4]", to=3) + "%4 = diagonal(%3, offset=0) : f8[4]\nout %4",
        "%3 = einsum(%1, %2, subscripts='ij,ji->i') : f8[4]\nout %3",
    ),
    "trace(x @ y)": (
        "f8[4,3] f8[3,4]",
        product(MATMUL, "f8[4,4]", to=3)
        + "%4 = diagonal(%3, offset=0) : f8[4]\n%5 = sum(%4, axes=(0,)) : f8[]\nout %5",
        "%3 = einsum(%1, %2, subscripts='ij,ji->') : f8[]\nout %3",
    ),
    "diagonals of a batch": (
        "f8[2,4,3] f8[3,4]",
        product("hij,jk->hik", "f8[2,4,4]", to=3) + "%4 = diagonal(%3, offset=0) : f8[2,4]\nout %4",
        "%3 = einsum(%1, %2, subscripts='ijk,kj->ij') : f8[2,4]\nout %3",
    ),
    "diag(2 * (z + x.T @ x) + w)": (
        "f8[3,4] f8[4,4] f8[4]",
        product("ij,ik->jk", "f8[4,4]", 1, 1)
        + "%5 = add(%2, %4) : f8[4,4]\n%6 = mul(%5, 2.0) : f8[4,4]\n"
        "%7 = add(%6, %3) : f8[4,4]\n%8 = diagonal(%7, offset=0) : f8[4]\nout %8",
        "%4 = diagonal(%2, offset=0) : f8[4]\n"
        "%5 = einsum(%1, %1, subscripts='ij,ij->j') : f8[4]\n%6 = add(%4, %5) : f8[4]\n"
        "%7 = mul(%6, 2.0) : f8[4]\n%8 = add(%7, %3) : f8[4]\nout %8",
    ),
}

# what stays: inputs, calls
KEPT = {
    "another diagonal": (
        "f8[3] f8[4,5]",
        "%3 = place_diagonal(%1, shape=(4, 4), offset=1) : f8[4,4]\n"
        + product(MATMUL, "f8[4,5]", 3, 2)
        + "out %4",
    ),
    "a batch of matrices along the diagonal": (
        "f8[4] f8[4,5]",
        SQUARE + product("ij,ik->ijk", "f8[4,4,5]", 3, 2) + "out %4",
    ),
    "the diagonal of a product that is read too": (
        "f8[4,3] f8[3,4]",
        product(MATMUL, "f8[4,4]", to=3) + "%4 = diagonal(%3, offset=0) : f8[4]\nout %4, %3",
    ),
    "the diagonal of a product that isn't square": (
        "f8[4,3] f8[3,5]",
        product(MATMUL, "f8[4,5]", to=3) + "%4 = diagonal(%3, offset=0) : f8[4]\nout %4",
    ),
    "a diagonal of one factor": (
        "f8[4,3] f8[3,4,4]",
        product("hi,ijk->hjk", "f8[4,4,4]", to=3) + "%4 = diagonal(%3, offset=0) : f8[4,4]\nout %4",
    ),
}


@pytest.mark.parametrize(("inputs", "before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(inputs: str, before: str, after: str) -> None:
    assert_rewritten(inputs, before, after)


@pytest.mark.parametrize(("inputs", "lines"), KEPT.values(), ids=KEPT)
def test_kept(inputs: str, lines: str) -> None:
    assert_rewritten(inputs, lines, lines)


def test_a_view_that_changes_nothing_is_no_reader() -> None:
    """A transpose that keeps the axes in order reads a product, and is that product."""
    given = tape(
        "f8[4,3] f8[3,4]",
        product(MATMUL, "f8[4,4]", to=3)
        + "%4 = transpose(%3, axes=(0, 1)) : f8[4,4]\n%5 = diagonal(%4, offset=0) : f8[4]\nout %5",
    )
    assert len(simplified(given).calls) == 1


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_goes_through_in_both_directions(bad: float) -> None:
    """Weighted least squares in which one number isn't finite: compiled as it is played."""

    def f(w, X, y):
        r = X @ np.array([1.0, -2.0, 0.5]) - y
        return r @ np.diag(w) @ r

    rng = np.random.default_rng(0)
    w, X, y = rng.random(5), rng.normal(size=(5, 3)), rng.normal(size=5)
    X[2, 1] = bad
    found = value_and_grad(f, (0, 1, 2), compile="always")(w, X, y)
    expected = value_and_grad(f, (0, 1, 2), compile="never")(w, X, y)
    for a, b in zip(found[1], expected[1], strict=True):
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b))
