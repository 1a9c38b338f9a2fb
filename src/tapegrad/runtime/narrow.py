"""How many rows of a matrix of derivatives are computed at a time: all, unless they need more
memory beside the matrix than it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tapegrad.ir.tape import Tape
from tapegrad.primitives.kinds import Reduction, Running, Scatter, View
from tapegrad.runtime.coloured import work_of

PANELS = 10  # so many, or more where a direction takes much memory
SLICES = (64, 128)  # so many of rows, which share what is computed before
FEWEST = 8  # rows of a part: products of fewer take longer
NEARLY = 1.1  # of a matrix: what sums of chunks take, which are fewer where memory is scarce
LONG = 200  # calls of a tape, of which plans take longer than some megabytes are worth
DEARER = 8  # times as much work as without panels is too much: theirs stays in the caches


def narrow(
    whole: Tape,
    in_panels: Callable[[int], Tape],
    in_slices: Callable[[int], Tape | None],
    size: int,
) -> Tape:
    """The tape of all directions; or that of a few at a time, where it needs more memory beside its
    results than these take: by rows of what it computes, or else of directions."""
    from tapegrad.optimize.inline import inline_calls
    from tapegrad.pipeline import LARGE, MORE, SCARCE

    results = sum(x.aval.nbytes for x in whole.outputs)
    if results <= LARGE * max(1, len(whole.calls) / LONG):
        return whole
    most = MORE * results
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
        count = max(1, int(count * results / (2 * less)))  # not as many as fit: in the caches
        panels = inline_calls(in_panels(count))
        less = _memory_of(panels)
    if less > most and count > 1:  # each direction takes about as much memory
        one = inline_calls(in_panels(1))
        least = _memory_of(one)
        fit = 1 + int((count - 1) * max(0, most - least) / (less - least)) if less > least else 1
        panels = one if fit == 1 else inline_calls(in_panels(fit))
        less = least if fit == 1 else _memory_of(panels)
    if less <= most:
        return panels
    return panels if _memory_of(panels, SCARCE) < _memory_of(whole, SCARCE) else whole


def _is_loops(tape: Tape) -> bool:
    """Whether each call may become a part of a loop: then plans need no more than they have to."""
    kinds = (View, Reduction, Scatter, Running)
    return all(c.primitive.pointwise or isinstance(c.primitive, kinds) for c in tape.calls)


def _share(size: int, count: int) -> int:
    """About one of so many parts, of which all are as long if they can be."""
    least = max(FEWEST, size // count)
    return next((n for n in range(least, 2 * least) if size % n == 0), least)


def _memory_of(tape: Tape, prices: Sequence[float] = ()) -> int:
    """The memory that a tape needs beside its results when it is compiled, in whatever order sums
    are taken."""
    from tapegrad.pipeline import at_its_best, looped, memory_of, settled

    tape = replace(settled(tape), matrices=True)
    forms = {at_its_best(replace(tape, ordered=ordered)) for ordered in (False, True)}
    return max(memory_of(looped(form, prices).plan) for form in forms)
