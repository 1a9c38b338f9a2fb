"""Which matrix products are computed as a whole, and which are loops."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emit.check import assert_agree

from tapegrad import trace
from tapegrad.pipeline import schedule

WHOLE = [
    ((2, 2), (2, 2)),
    ((3, 3), (3, 5)),
    ((1, 4, 4), (4, 4)),
    ((2, 16), (16, 2)),
    ((7, 4, 4), (4, 4)),
    ((7, 5, 5), (7, 5, 5)),
    ((20, 20), (20, 20)),
]
LOOPS = [((3, 3), (3,)), ((3, 1), (1, 3)), ((7, 4, 4), (7, 4, 4)), ((2, 17), (17, 2))]


@pytest.mark.every(8)
@pytest.mark.parametrize(("x", "y"), WHOLE + LOOPS, ids=str)
def test_small_ones_are_loops_where_they_fuse_or_run_along_memory(x, y):
    rng = np.random.default_rng(0)
    values = rng.normal(size=x), rng.normal(size=y)
    _, tape = trace(lambda x, y: np.tanh(x @ y), *values)
    (kernel,) = schedule(tape).kernels
    assert ("matmul(" in kernel.text) == ((x, y) in WHOLE)
    assert_agree(tape, values)


def test_what_is_computed_with_the_products_of_a_batch_is_computed_in_one_loop():
    values = np.ones((50, 3, 3)), np.ones((50, 3, 3))
    _, tape = trace(lambda x, y: np.abs(x @ y) @ y, *values)
    (kernel,) = schedule(tape).kernels
    heads = [line for line in kernel.text.splitlines() if line.startswith("    for ")]
    assert heads == ["    for i in range(50):"]


def test_a_short_axis_among_the_terms_of_loops():
    values = np.arange(40.0).reshape(1, 20, 2), np.ones((1, 20, 3))
    _, tape = trace(lambda x, y: np.einsum("aki,akj->ij", x, y), *values)
    (kernel,) = schedule(tape).kernels
    assert "matmul(" not in kernel.text
    assert_agree(tape, values)
