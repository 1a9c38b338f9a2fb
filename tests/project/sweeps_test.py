"""Which cases of sweeps run where all tests do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.conftest import cases_per_run, chosen


def cases(count, **params):
    path = Path("some_test.py")
    specs = [SimpleNamespace(id=f"case {k}", params=params) for k in range(count)]
    return [
        SimpleNamespace(path=path, callspec=spec, get_closest_marker=lambda name: None)
        for spec in specs
    ]


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("count", [2, 5, 40])
def test_sweeps_of_a_file_take_turns(n, count):
    each = cases(count)
    run = [x.callspec.id for turn in range(max(n, count)) for x in chosen(each, n, turn)]
    assert set(run) == {x.callspec.id for x in each}


def test_a_case_that_is_added_moves_no_other():
    before, after = cases(40), cases(41)
    for turn in range(4):
        ids = [{x.callspec.id for x in chosen(xs, 4, turn)} for xs in (before, after)]
        assert ids[1] - ids[0] <= {"case 40"} and ids[0] <= ids[1]


def test_of_both_ways_to_compile_one_runs():
    never, always, other = (cases(1, mode=mode) for mode in ("never", "always", "other"))
    assert cases_per_run(never + always) == cases_per_run(never + always + other) == 2
    assert cases_per_run(never + never) == cases_per_run(always + other) == 1
