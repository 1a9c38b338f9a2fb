"""Rewrites of linear systems: fewer right-hand sides, and the same results but for rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.tapes import tape

from tapegrad.optimize.dce import remove_dead
from tapegrad.optimize.simplify import reorder

FACTORS = "%5, %6 = lu(%1) : f8[4,4], i4[4]\n"
# Orders are looked for where sums of products are taken.
PRODUCT = "%99 = einsum(%2, %2, subscripts='i,i->') : f8[]\n"
OUTER = "%7 = expand_dims(%2, axes=(1,)) : f8[3,1]\n%8 = mul(%7, %3) : f8[3,4]\n"
SOLVED = "%{to} = lu_solve(%5, %5, %6, %{of}, transposed=False) : f8[3,4]\n"

# what is solved of a[4,4], u[3], v[4], B[3,4], and how many right-hand sides are left
PROGRAMS = {
    "rows that are multiples": (OUTER + SOLVED.format(to=9, of=8) + "out %9", [1]),
    "rows that are the same": (
        "%7 = broadcast_to(%3, shape=(3, 4)) : f8[3,4]\n" + SOLVED.format(to=8, of=7) + "out %8",
        [1],
    ),
    "rows of equal numbers": (
        "%7 = expand_dims(%2, axes=(1,)) : f8[3,1]\n%8 = broadcast_to(%7, shape=(3, 4)) : f8[3,4]\n"
        + SOLVED.format(to=9, of=8)
        + "out %9",
        [1],
    ),
    "a sum of such rows": (
        OUTER + "%9 = add(%8, %3) : f8[3,4]\n" + SOLVED.format(to=10, of=9) + "out %10",
        [1],
    ),
    "a sum over rows": (
        SOLVED.format(to=7, of=4)
        + "%8 = einsum(%2, %7, subscripts='i,ij->j') : f8[4]\n%9 = mul(%8, 2.0) : f8[4]\nout %9",
        [1],
    ),
    "rows that differ": (SOLVED.format(to=7, of=4) + "out %7", [3]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_systems_have_few_right_hand_sides(name):
    text, rows = PROGRAMS[name]
    given = tape("f8[4,4] f8[3] f8[4] f8[3,4]", FACTORS + PRODUCT + text)
    done = remove_dead(reorder(replace(given, matrices=True)))
    systems = [call for call in done.calls if call.primitive.name == "lu_solve"]
    assert [call.out.shape[-2] for call in systems] == rows
    r = np.random.default_rng(0)
    args = (r.normal(size=(4, 4)) + 4 * np.eye(4), *(r.normal(size=n) for n in (3, 4, (3, 4))))
    np.testing.assert_allclose(done.play(*args), given.play(*args), rtol=1e-13)


def test_systems_of_users_are_solved_as_they_are_written():
    text = FACTORS + SOLVED.format(to=7, of=4)
    text += "%8 = einsum(%2, %7, subscripts='i,ij->j') : f8[4]\nout %8"
    given = tape("f8[4,4] f8[3] f8[4] f8[3,4]", text)
    assert str(reorder(given)) == str(given)
