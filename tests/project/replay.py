"""What is made of the programs of tests/loops, of the examples and of the benchmarks, as text: a
change that is meant to leave them all as they are is held against an earlier state.

    make replay INTO=before     on that state
    make replay                 on this one; shows what differs

Of each test there is a file with the tape, the plan and the source of each variant of its
functions. Variants are only played meanwhile, so tests of compiled ones fail, which says nothing.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PLACES = "tests/loops", "tests/project/examples_test.py"
FOLDER = Path("build/replay")
QUIETLY = "-p", "no:terminal", "-p", "no:cacheprovider"


class Recorder:
    """Writes what the tapes of each test become."""

    def __init__(self, folder):
        self.folder, self.tapes, self.count = folder, [], 0
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.txt"):
            old.unlink()

    def pytest_collection_finish(self):
        """From now on variants say what their tapes are, and none is compiled."""
        from tapegrad.runtime.tier import Tier

        start = Tier.__init__

        def begin(tier, tape, mode, name):
            start(tier, tape, "never", name)
            self.tapes.append(tape)

        Tier.__init__ = begin

    def pytest_runtest_teardown(self, item):
        self.write(item.nodeid)

    def write(self, name):
        if self.tapes:
            path = self.folder / (re.sub(r"[^\w.]+", "-", name)[:200] + ".txt")
            path.write_text("\n\n".join(map(text_of, self.tapes)) + "\n")
            self.count += len(self.tapes)
            self.tapes.clear()


def text_of(tape):
    """A tape, its plan and its source, without the user's lines: which of some alike functions is
    named depends on what ran before."""
    from tapegrad import pipeline
    from tapegrad.ir.plan_text import show_plan

    best = pipeline.at_its_best(pipeline.settled(tape))
    program = pipeline.schedule(best)
    kernels = [kernel.text for kernel in program.kernels]
    plan = show_plan(program.plan, program.allocation)
    text = "\n".join([str(tape), str(best), plan, *kernels, *program.driver().lines])
    return re.sub(r" *[#(] ?\S+\.py:\d+\)?", "", text)


def replay(folder):
    """Write the texts of all programs to a folder."""
    recorder = Recorder(folder)
    pytest.main([*QUIETLY, *PLACES], [recorder])

    from tapegrad import grad

    sys.path.append("benchmarks")
    from workloads import WORKLOADS

    for workload in WORKLOADS:
        given = workload.make(np.random.default_rng(0))
        grad(lambda *args, run=workload.loss: run(np, *args)).lower(*given)
        recorder.write(f"benchmarks {workload.name}")
    print(f"{recorder.count} programs")


if __name__ == "__main__":
    before, now = FOLDER / "before", FOLDER / sys.argv[1]
    replay(now)
    if now != before:
        sys.exit(subprocess.run(["git", "diff", "--no-index", before, now], check=False).returncode)
