"""Random programs in plain NumPy: tapegrad computes and differentiates what they do.

`make test` runs the same few programs each time, `make fuzz` runs new ones, many more, to the end:
those that fail are counted, and the first few made short and printed. They belong in
`regressions_test.py`.
"""

from __future__ import annotations

from functools import partial

import pytest
from tests.fuzz.campaign import PARTS, run
from tests.fuzz.growing import grow
from tests.fuzz.plain import grow_plain
from tests.fuzz.properties import Effort, check
from tests.fuzz.ranges import check_ranges, grow_ranges
from tests.fuzz.transformed import FIRST, SECOND, check_transformed
from tests.fuzzing import EXAMPLES, NEW

from tapegrad.checking import debug
from tapegrad.optimize import repetition, unrolled
from tapegrad.schedule import pieces

# Of how many programs at least something is compared, rather than skipped or refused: played and
# compiled, first and second derivatives; in a call with other shapes, dtypes, kinds and layouts of
# arguments; with what it captures changed between calls.
REACHED = {
    "played": 0.75,
    "gradient": 0.75,
    "compiled": 0.75,
    "second": 0.25,
    "shapes": 0.25,
    "dtypes": 0.12,
    "kinds": 0.02,
    "layouts": 0.04,
    "state": 0.08,
}
REACHED_OF_MANY = {
    "played": 0.9,
    "gradient": 0.85,
    "compiled": 0.85,
    "second": 0.3,
    "shapes": 0.4,
    "dtypes": 0.35,
    "kinds": 0.12,
    "layouts": 0.12,
    "state": 0.15,
}
# The same of those that make arrays, draw random numbers and so on. A flip is a trace anew for
# arguments of the same types.
PLAIN = {"played": 0.7, "gradient": 0.7, "second": 0.2, "shapes": 0.25, "state": 0.2, "draws": 0.2}
PLAIN_OF_MANY = {
    "played": 0.85,
    "gradient": 0.85,
    "second": 0.25,
    "shapes": 0.4,
    "dtypes": 0.3,
    "kinds": 0.15,
    "layouts": 0.15,
    "state": 0.35,
    "draws": 0.35,
    "complex": 0.3,
    "flips": 0.05,
}
# Of those whose every transformation is held: first derivatives, second ones.
TRANSFORMED = {**dict.fromkeys(["vmap", "jit"], 0.6), **dict.fromkeys(SECOND, 0.2)}
TRANSFORMED_OF_MANY = {**dict.fromkeys(FIRST, 0.5), **dict.fromkeys(SECOND, 0.3)}
HALF = Effort(compiled=0.5 if NEW else 0.2)
# The same of those whose numbers are of any size.
RANGES = {"any size": 0.9, "any size, gradient": 0.1}
RANGES_OF_MANY = {"any size": 0.95, "any size, gradient": 0.3}


@pytest.fixture
def rolled(part, monkeypatch):
    """In every other part the shortest loops are loops on the tape, which stay unrolled else. In
    half of the parts the smallest arrays are read from their parts, as only large ones are else."""
    if part % 4 < 2:
        monkeypatch.setattr(pieces, "ELEMENTS", 2)
    if part % 2:
        for module in (repetition, unrolled):
            monkeypatch.setattr(module, "MIN_ROUNDS", 2)
            monkeypatch.setattr(module, "MIN_CALLS", 6)
        monkeypatch.setattr(repetition, "MIN_NUMPY_CALLS", 6)


@pytest.mark.every(4)
@pytest.mark.parametrize("part", range(PARTS))
def test_programs(part, rolled, record_property, capfd):
    run(grow, check, part, EXAMPLES, (REACHED, REACHED_OF_MANY), record_property, capfd)


@pytest.mark.every(4)
@pytest.mark.parametrize("part", range(PARTS))
def test_programs_of_plain_numpy(part, rolled, record_property, capfd):
    hold = partial(check, effort=HALF)
    run(grow_plain, hold, part, EXAMPLES // 2, (PLAIN, PLAIN_OF_MANY), record_property, capfd)


@pytest.mark.every(4)
@pytest.mark.parametrize("part", range(PARTS))
def test_programs_of_numbers_of_any_size(part, rolled, record_property, capfd, monkeypatch):
    monkeypatch.setattr(debug, "ON", False)  # it doesn't look at small numbers beside large ones
    hold = partial(check_ranges, effort=HALF)
    run(grow_ranges, hold, part, EXAMPLES // 4, (RANGES, RANGES_OF_MANY), record_property, capfd)


@pytest.mark.every(4)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_transformation_of_programs(part, rolled, record_property, capfd):
    """Those of the one kind, and of the other in every other part."""
    wanted = TRANSFORMED, TRANSFORMED_OF_MANY
    grown = grow_plain if part % 2 else grow
    run(grown, check_transformed, part, max(8, EXAMPLES // 12), wanted, record_property, capfd)
