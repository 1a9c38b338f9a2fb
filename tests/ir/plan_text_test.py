"""Plans as text: how small programs read, as they are lowered and as they are emitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.tapes import tape

from tapegrad import trace
from tapegrad.backends.numpy.play import run
from tapegrad.checking.oracle import drawn
from tapegrad.checking.plan_run import run_plan
from tapegrad.ir.plan_text import show_plan
from tapegrad.ir.tape import Tape
from tapegrad.pipeline import lowered, schedule

GOLDEN = Path(__file__).parent / "plans"

PROGRAMS = {
    "softmax": (
        "f8[4,3]",
        """
        %2 = max(%1, axes=(1,)) : f8[4]
        %3 = expand_dims(%2, axes=(1,)) : f8[4,1]
        %4 = sub(%1, %3) : f8[4,3]
        %5 = exp(%4) : f8[4,3]
        %6 = sum(%5, axes=(1,)) : f8[4]
        %7 = expand_dims(%6, axes=(1,)) : f8[4,1]
        %8 = div(%5, %7) : f8[4,3]
        out %8
        """,
    ),
    "in place": (
        "f8[20] f8[20]",
        """
        %3 = cumsum(%1, axis=0, reverse=False) : f8[20]
        %4 = getitem(%3, index=(Slice(19, 20, -1),)) : f8[20]
        %5 = cumsum(%4, axis=0, reverse=False) : f8[20]
        %6 = argsort(%5, axis=0, stable=True) : i8[20]
        %7 = mul(%5, %2) : f8[20]
        %8 = cumsum(%7, axis=0, reverse=False) : f8[20]
        %9 = getitem(%8, index=(Slice(19, 20, -1),)) : f8[20]
        out %9, %6
        """,
    ),
    "indices": (
        "f8[5,3] i8[4]",
        """
        %3 = gather(%1, %2) : f8[4,3]
        %4 = mul(%3, 2.0) : f8[4,3]
        %5 = scatter_add(%4, %2, shape=(5,3)) : f8[5,3]
        out %5
        """,
    ),
    "products": (
        "f8[12,12] f8[12,12]",
        """
        %3 = einsum(%1, %2, subscripts='ij,jk->ik') : f8[12,12]
        %4 = transpose(%1, axes=(1, 0)) : f8[12,12]
        %5 = einsum(%4, %3, subscripts='ij,jk->ik') : f8[12,12]
        %6 = add(%3, %5) : f8[12,12]
        out %6
        """,
    ),
    "factor": (
        "f8[3,3]",
        """
        %2, %3 = cholesky(%1) : f8[3,3], b1[]
        %4 = reshape(%2, shape=(9,)) : f8[9]
        %5 = argmax(%4, axis=0) : i8[]
        guard %3 = False
        out %4, %5
        """,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_reads_like_a_program(name, request):
    """The text is the golden one, and the plan that it shows computes what the tape says."""
    program = tape(*PROGRAMS[name])
    first, scheduled = lowered(program), schedule(program)
    agrees(program)
    text = f"{first}\n\n{show_plan(scheduled.plan, scheduled.allocation)}\n"
    path = GOLDEN / f"{name.replace(' ', '_')}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert text == path.read_text()


def test_chunks_and_tiles(monkeypatch, request):
    """Loops over chunks, in which loops over tiles run, in which loops over rows do."""
    monkeypatch.setattr("tapegrad.schedule.parallelise.GRAIN", 1 << 8)
    monkeypatch.setattr("tapegrad.schedule.tile.ROWS", 4)
    program = tape(
        "f8[40,3] f8[3]",
        """
        %3 = expand_dims(%2, axes=(1,)) : f8[3,1]
        %4 = einsum(%1, %3, subscripts='ij,jk->ik') : f8[40,1]
        %5 = squeeze(%4, axes=(1,)) : f8[40]
        %6 = expit(%5) : f8[40]
        %7 = sum(%6, axes=(0,)) : f8[]
        out %7
        """,
    )
    agrees(program)
    scheduled = schedule(program)
    text = show_plan(scheduled.plan, scheduled.allocation) + "\n"
    path = GOLDEN / "chunks.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert text == path.read_text()


def test_lines_are_the_users():
    def f(x):
        return np.exp(x) + 1.0

    _, program = trace(f, np.ones(3))
    line = f.__code__.co_firstlineno + 1
    assert f"# plan_text_test.py:{line}" in str(lowered(program))


def agrees(program: Tape) -> None:
    ((values, _),) = drawn(program)
    expected, _ = run(program, values)
    scheduled = schedule(program)
    nested = scheduled.nested
    for found in (
        run_plan(lowered(program), values),
        run_plan(scheduled.plan, values, scheduled.allocation, nested),
    ):
        for a, b in zip(found.results, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
