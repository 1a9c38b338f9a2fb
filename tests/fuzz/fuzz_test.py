"""Random programs in plain NumPy: tapegrad computes and differentiates what they do.

`make test` runs the same few programs each time, `make fuzz` runs new ones, many more, to the end:
those that fail are counted, and the first few made short and printed. They belong in
`regressions_test.py`.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from functools import partial

import pytest
from tests.fuzz.growing import grow
from tests.fuzz.programs import Program
from tests.fuzz.properties import COMPARED, check
from tests.fuzz.shrinking import likeness, shrunk
from tests.fuzzing import EXAMPLES, FIRST, NEW

from tapegrad.optimize import repetition

PARTS = 40 if EXAMPLES >= 4000 else 4  # tests that share the programs, for several processes
ENOUGH, MANY = 12, 100  # programs that say something about their shares, and that say much
SHOWN = 6  # failures that are made short, of each part

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


@pytest.fixture
def rolled(part, monkeypatch):
    """In every other part the shortest loops are loops on the tape, which stay unrolled else."""
    if part % 2:
        monkeypatch.setattr(repetition, "ROUNDS", 2)
        monkeypatch.setattr(repetition, "CALLS", 6)
        monkeypatch.setattr(repetition, "NUMPYS", 6)


@pytest.mark.parametrize("part", range(PARTS))
def test_programs(part, rolled, record_property, capfd):
    first = random.SystemRandom().getrandbits(40) if NEW and FIRST is None else FIRST or 0
    reached: Counter[str] = Counter()
    failures: list[tuple[int, Program, Exception]] = []
    seeds = range(first + part, first + max(EXAMPLES, PARTS), PARTS)
    for seed in seeds:
        program = grow(random.Random(seed))
        try:
            tally = check(program, seed)
        except Exception as error:  # counted: the others run all the same
            failures.append((seed, program, error))
            with capfd.disabled():  # at once: a long run may be stopped before its report
                print(f"\nTAPEGRAD_FUZZ_SEED={seed}: {likeness(error)}", file=sys.stderr)
            continue
        reached.update({word.split(":")[0] for word in tally if word.endswith(COMPARED)})
    record_property("programs", len(seeds))
    record_property("reached", dict(reached))
    assert not failures, report(failures, len(seeds))
    if len(seeds) < ENOUGH:
        return
    wanted = REACHED_OF_MANY if len(seeds) >= MANY else REACHED
    short = {word: part for word, part in wanted.items() if reached[word] < part * len(seeds)}
    assert not short, f"of {len(seeds)} programs too few are compared: {reached}, below {short}"


def failure_of(program: Program, seed: int) -> Exception | None:
    """How a program fails that NumPy runs."""
    call = program.call(0)
    try:
        f = program.function()
        call.enter(f)
        f(*call.args())
    except Exception:
        return None
    try:
        check(program, seed)
    except Exception as error:
        return error
    return None


def report(failures: list[tuple[int, Program, Exception]], count: int) -> str:
    """The failures, one of a kind made short."""
    kinds: dict[str, list[tuple[int, Program, Exception]]] = {}
    for failure in failures:
        kinds.setdefault(likeness(failure[2]), []).append(failure)
    texts = [f"{len(failures)} of {count} programs fail, in {len(kinds)} ways"]
    for k, same in enumerate(kinds.values()):
        seed, program, error = same[0]
        if k < SHOWN:
            program, error = shrunk(program, partial(failure_of, seed=seed), error)
        seeds = ", ".join(str(seed) for seed, *_ in same[:5])
        texts.append(f"{len(same)} like this one, of seeds {seeds}:\n\n{program}\n\n{error!r}")
    return "\n\n".join(texts)
