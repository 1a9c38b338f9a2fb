"""The pipeline, top to bottom: the table of contents of tapegrad.

    trace -> differentiate -> optimize -> schedule -> emit -> compile -> run
    Python   Tape             Tape        Plan        source  machine   call

`tracing.run.trace_function` makes the first tape; each line below makes the next representation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from tapegrad.differentiate.reverse import reverse
from tapegrad.ir.tape import Tape
from tapegrad.ir.verify import verify
from tapegrad.optimize.cse import eliminate_common
from tapegrad.optimize.dce import remove_dead
from tapegrad.optimize.fold import fold_constants
from tapegrad.optimize.inline import inline_calls, inline_custom
from tapegrad.optimize.simplify import drop_stops, simplify

Pass = Callable[[Tape], Tape]

# Before differentiating: what is gone here is gone twice.
BEFORE: tuple[Pass, ...] = (
    fold_constants,  # first, since it makes literals for `simplify` to see
    simplify,
    eliminate_common,
    remove_dead,
)

# After differentiating, on forward and backward half together.
AFTER: tuple[Pass, ...] = (
    fold_constants,  # the seed is 1, so the start of the backward half folds away
    simplify,
    eliminate_common,  # the backward half reads much of what the forward half computed
    simplify,  # what merging made alike
    fold_constants,
    remove_dead,  # last: rules return every cotangent, and few are wanted
)

DEBUG = bool(os.environ.get("TAPEGRAD_DEBUG"))


def run_passes(tape: Tape, passes: Sequence[Pass]) -> Tape:
    """Apply passes in order; under TAPEGRAD_DEBUG the tape is verified after each."""
    for step in passes:
        tape = step(tape)
        if DEBUG:
            verify(tape, after=step.__name__)
    return tape


def optimized(tape: Tape) -> Tape:
    """A tape without derivative, ready to be scheduled."""
    return run_passes(drop_stops(inline_custom(tape)), (*BEFORE, *AFTER))


def gradient(
    tape: Tape, wrt: Sequence[int], seed: bool = False, keep: Sequence[int] | None = None
) -> Tape:
    """The optimised tape of the outputs numbered `keep` and the cotangents of the inputs `wrt`."""
    tape = run_passes(inline_calls(tape), BEFORE)  # custom calls stay: their rules are needed
    tape = reverse(tape, wrt, seed, keep)
    return run_passes(drop_stops(inline_custom(tape)), AFTER)
