"""The number of rows of a derivative matrix to compute at a time: all, unless these need more
memory beside the matrix than it takes itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tapegrad.ir.tape import Tape
from tapegrad.primitives.kinds import Reduction, Running, Scatter, View
from tapegrad.runtime.coloured_products import work_of

PANELS = 10  # number of panels; more if a direction takes much memory
SLICES = (64, 128)  # numbers of slices, which share what is computed before the loop
FEWEST = 8  # rows of a slice: products of fewer rows are slow
NEARLY = 1.1  # of a matrix: memory of the sums of chunks, which are fewer if memory is scarce
MAX_CALLS = 200  # calls: planning a longer tape costs more than some megabytes are worth
DEARER = 8  # panels may take this multiple of the work, since they stay in the processor's caches


def narrow(
    whole: Tape,
    in_panels: Callable[[int], Tape],
    in_slices: Callable[[int], Tape | None],
    size: int,
) -> Tape:
    """The tape of all directions, or a tape of some at a time if it needs more memory beside its
    results than these take: slices of the computed rows, or else panels of directions."""
    from tapegrad.optimize.inline import inline_calls
    from tapegrad.pipeline import LARGE_RESULT, SCARCE, SCRATCH_FACTOR

    results = sum(x.aval.nbytes for x in whole.outputs)
    if results <= LARGE_RESULT * max(1, len(whole.calls) / MAX_CALLS):
        return whole
    most = SCRATCH_FACTOR * results
    count = -(-size // PANELS)
    panels = inline_calls(in_panels(count))
    dear = work_of(panels) > DEARER * work_of(whole)
    if (dear and _is_loops(whole)) or (needs := _memory_of(whole)) <= most:
        return whole
    if (dear or needs <= NEARLY * results) and _memory_of(whole, SCARCE) <= most:
        return whole
    for parts in SLICES:
        sliced = in_slices(_share(size, parts))
        if sliced is not None and (taken := _memory_of(sliced)) < needs:
            whole, needs = sliced, taken
        if sliced is None or needs <= most or needs > NEARLY * results:
            break
    if dear or needs <= most:
        return whole
    less = _memory_of(panels)
    if less > most:
        count = max(1, int(count * results / (2 * less)))  # fewer than fit: they stay in the caches
        panels = inline_calls(in_panels(count))
        less = _memory_of(panels)
    if less > most and count > 1:  # memory is about proportional to the directions
        one = inline_calls(in_panels(1))
        least = _memory_of(one)
        fit = 1 + int((count - 1) * max(0, most - least) / (less - least)) if less > least else 1
        panels = one if fit == 1 else inline_calls(in_panels(fit))
        less = least if fit == 1 else _memory_of(panels)
    if less <= most:
        return panels
    return panels if _memory_of(panels, SCARCE) < _memory_of(whole, SCARCE) else whole


def _is_loops(tape: Tape) -> bool:
    """Whether every call can become part of a loop. Then the plan needs as little memory as
    possible."""
    kinds = (View, Reduction, Scatter, Running)
    return all(c.primitive.pointwise or isinstance(c.primitive, kinds) for c in tape.calls)


def _share(size: int, count: int) -> int:
    """About size / count, chosen so that all parts have equal length if possible."""
    least = max(FEWEST, size // count)
    return next((n for n in range(least, 2 * least) if size % n == 0), least)


def _memory_of(tape: Tape, prices: Sequence[float] = ()) -> int:
    """The memory that a compiled tape needs beside its results, for either order of sums."""
    from tapegrad.pipeline import at_its_best, looped, memory_of, settled

    tape = replace(settled(tape), matrices=True)
    forms = {at_its_best(replace(tape, ordered=ordered)) for ordered in (False, True)}
    return max(memory_of(looped(form, prices).plan) for form in forms)
