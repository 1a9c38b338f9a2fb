"""Systems are solved where their matrices stand."""

from __future__ import annotations

import numpy as np
from tests.emit.check import assert_agree
from tests.tapes import tape

from tapegrad.ir.affine import Affine
from tapegrad.ir.steps import Routine
from tapegrad.pipeline import schedule


def test_a_matrix_that_is_part_of_an_array_is_not_copied():
    program = tape(
        "f8[4,3,3] f8[3,2]",
        """
        %3 = getitem(%1, index=(2, Slice(0, 3, 1), Slice(0, 3, 1))) : f8[3,3]
        %4 = transpose(%3, axes=(1, 0)) : f8[3,3]
        %5 = triangular_solve(%4, %2, lower=True, unit=False) : f8[3,2]
        out %5
        """,
    )
    plan = schedule(program).plan
    (solve,) = [step for step in plan.steps if isinstance(step, Routine)]
    assert solve.arrays[1] == (plan.inputs[0], (Affine((), 2),), True)
    a = np.random.default_rng(0).normal(size=(4, 3, 3)) + 4 * np.eye(3)
    assert_agree(program, (a, np.arange(6.0).reshape(3, 2)))


def test_so_is_each_of_a_batch_in_it():
    program = tape(
        "f8[4,2,3,3] f8[2,3,2]",
        """
        %3 = getitem(%1, index=(1, Slice(0, 2, 1), Slice(0, 3, 1), Slice(0, 3, 1))) : f8[2,3,3]
        %4 = triangular_solve(%3, %2, lower=True, unit=False) : f8[2,3,2]
        out %4
        """,
    )
    a = np.random.default_rng(0).normal(size=(4, 2, 3, 3)) + 4 * np.eye(3)
    assert_agree(program, (a, np.arange(12.0).reshape(2, 3, 2)))
