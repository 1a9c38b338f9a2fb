"""What plans cost, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.tapes import tape

from tapegrad.ir.affine import Index
from tapegrad.ir.steps import Loop
from tapegrad.pipeline import lowered
from tapegrad.primitives.elementwise import FUNCTION
from tapegrad.schedule import cost


def loop_of(text):
    (step,) = lowered(tape("f8[6,5]", text)).steps
    assert isinstance(step, Loop)
    return step


def test_work_is_in_additions():
    row = loop_of("%2 = exp(%1) : f8[6,5]\nout %2").body[0]
    assert cost.work(row) == 5 * FUNCTION
    assert cost.work(row.body[0]) == cost.work_once(row.body[0]) == FUNCTION


def test_what_is_only_moved_is_work_if_it_counts_at_the_least():
    total = loop_of("%2 = sum(%1, axes=(1,)) : f8[6]\nout %2")
    assert cost.work(total) == 0
    assert cost.work(total, least=1) == 6 * (1 + 5 + 1)  # a row's start, elements and result


def test_a_loop_in_a_tile_runs_over_the_tiles_rows():
    whole = loop_of("%2 = add(%1, 1.0) : f8[6,5]\nout %2")
    tile = Loop(start := Index(6), (replace(whole, start=start, step=4),), step=4)
    assert cost.work(whole) == 6 * 5
    assert cost.work(tile.body[0]) == 4 * 5


@pytest.mark.parametrize(
    ("itemsize", "footprint", "additions"),
    [(8, 1 << 15, 0.8), (8, 1 << 16, 2.0), (4, 1 << 22, 3.0), (1, 1 << 22, 3.0)],
)
def test_traffic_is_priced_by_the_cache_and_by_the_byte(itemsize, footprint, additions):
    assert cost.traffic(itemsize, footprint) == pytest.approx(additions)


def test_code_is_counted_in_statements():
    assert cost.code_size(loop_of("%2 = exp(%1) : f8[6,5]\nout %2")) == 2 + 2 + 1
    assert cost.code_size(loop_of("%2 = sum(%1, axes=(1,)) : f8[6]\nout %2")) == 2 + 1 + (2 + 1) + 1


def test_what_joins_loops_compiles_sooner():
    seconds = {
        name: cost.seconds_to_compile(tape("f8[6,6]", f"{call}\nout %2"))
        for name, call in {
            "exp": "%2 = exp(%1) : f8[6,6]",
            "view": "%2 = transpose(%1, axes=(1, 0)) : f8[6,6]",
            "product": "%2 = einsum(%1, %1, subscripts='ij,jk->ik') : f8[6,6]",
        }.items()
    }
    assert seconds == pytest.approx({"exp": 0.032, "view": 0.032, "product": 0.048})
