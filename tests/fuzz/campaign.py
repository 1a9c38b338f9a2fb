"""Many random programs: each is held to everything, and what fails is counted and made short."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.fuzz.programs import Program
from tests.fuzz.properties import COMPARED
from tests.fuzz.shrinking import likeness, shrunk
from tests.fuzzing import EXAMPLES, FIRST, NEW

PARTS = 40 if EXAMPLES >= 4000 else 4  # tests that share the programs, for several processes
ENOUGH, MANY = 12, 100  # programs that say something about their shares, and that say much
SHOWN = 6  # failures that are made short, of each part

# Holds a program to everything, in calls that a seed chooses; what was compared in how many.
Hold = Callable[[Program, int], Counter[str]]
Failure = tuple[int, Program, Exception]


def run(
    grow: Callable[[random.Random], Program],
    hold: Hold,
    part: int,
    examples: int,
    wanted: tuple[dict[str, float], dict[str, float]],
    record_property: Any,
    capfd: Any,
) -> None:
    """Hold this part of so many programs to everything. Of few and of many of them, something is to
    be compared in the shares that are `wanted`."""
    first = random.SystemRandom().getrandbits(40) if NEW and FIRST is None else FIRST or 0
    reached: Counter[str] = Counter()
    failures: list[Failure] = []
    seeds = range(first + part, first + max(examples, PARTS), PARTS)
    for seed in seeds:
        program = grow(random.Random(seed))
        try:
            tally = hold(program, seed)
        except Exception as error:  # counted: the others run all the same
            failures.append((seed, program, error))
            with capfd.disabled():  # at once: a long run may be stopped before its report
                print(f"\nTAPEGRAD_FUZZ_SEED={seed}: {likeness(error)}", file=sys.stderr)
            continue
        reached.update({word.split(":")[0] for word in tally if word.endswith(COMPARED)})
    record_property("programs", len(seeds))
    record_property("reached", dict(reached))
    assert not failures, report(hold, failures, len(seeds))
    if len(seeds) < ENOUGH:
        return
    shares = wanted[len(seeds) >= MANY]
    short = {word: share for word, share in shares.items() if reached[word] < share * len(seeds)}
    assert not short, f"of {len(seeds)} programs too few are compared: {reached}, below {short}"


def failure_of(hold: Hold, program: Program, seed: int) -> Exception | None:
    """How a program fails that NumPy runs."""
    call = program.call(0)
    try:
        f = program.function()
        call.enter(f)
        f(*call.args())
    except Exception:
        return None
    try:
        hold(program, seed)
    except Exception as error:
        return error
    return None


def report(hold: Hold, failures: list[Failure], count: int) -> str:
    """The failures, one of a kind made short."""
    kinds: dict[str, list[Failure]] = {}
    for failure in failures:
        kinds.setdefault(likeness(failure[2]), []).append(failure)
    texts = [f"{len(failures)} of {count} programs fail, in {len(kinds)} ways"]
    for k, same in enumerate(kinds.values()):
        seed, program, error = same[0]
        if k < SHOWN:
            program, error = shrunk(program, partial(failure_of, hold, seed=seed), error)
        seeds = ", ".join(str(seed) for seed, *_ in same[:5])
        texts.append(f"{len(same)} like this one, of seeds {seeds}:\n\n{program}\n\n{error!r}")
    return "\n\n".join(texts)
