"""What a primitive does to rows is what it does to each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.primitives.contract_test import EVERY, evaluate, over, play, tape_of
from tests.primitives.samples.drawn import Sample

from tapegrad.differentiate.batching import batch, with_rows

SIZE = 3


def rows_of(x: Any, k: int) -> Any:
    """Operands like this one: itself, larger, and of integers with other places."""
    x = np.asarray(x)
    if x.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            others = [x, x * x.dtype.type(1.25), x * x.dtype.type(0.5 + k / 8)]
    else:
        others = [x, np.flip(x), x]
    return np.stack(others)


def in_rows(sample: Sample, mapped: tuple[int, ...]) -> list[tuple[Any, ...]] | None:
    """The operands of each row; None where one of them isn't taken."""
    stacked = {k: rows_of(sample.operands[k], k) for k in mapped}
    return [
        tuple(stacked[k][row] if k in stacked else x for k, x in enumerate(sample.operands))
        for row in range(SIZE)
    ]


def check(sample: Sample, mapped: tuple[int, ...]) -> None:
    tape = tape_of(sample)
    given = in_rows(sample, mapped)
    try:
        each = [evaluate(sample, xs) for xs in given]
    except Exception:  # what isn't taken in a row isn't taken in rows
        return
    rows, have = batch(tape, mapped, SIZE)
    rows = with_rows(rows, have, SIZE)
    values = [rows_of(x, k) if k in mapped else x for k, x in enumerate(sample.operands)]
    found = play(rows, *values)
    for n, out in enumerate(found):
        wanted = np.stack([results[n] for results in each])
        np.testing.assert_allclose(
            out,
            wanted,
            rtol=1e-6 if out.dtype.itemsize == 4 else 1e-10,
            atol=1e-12,
            err_msg=f"mapped {mapped}, result {n}",
        )
        assert out.dtype == wanted.dtype


@over(EVERY)
def test_rows_are_each_row(sample: Sample) -> None:
    """For each operand in rows by itself, and for all of them."""
    count = len(sample.operands)
    if sample.factored:
        subsets = [tuple(range(count))]
    else:
        subsets = [(k,) for k in range(count)] + [tuple(range(count))]
    for mapped in dict.fromkeys(subsets):
        if mapped:
            check(sample, mapped)
