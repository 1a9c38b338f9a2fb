"""What a plan costs, in three measures. Passes compare costs of one measure, or convert them here.

**Work** is what there is to compute, in additions: one of two float64, among others that a loop
does, vectorised, on what is at hand. Primitives say theirs (`primitives.elementwise.DIVISION`,
`FUNCTION`). Measured with a chain of products and sums inside two loops, on an Intel Xeon with
AVX-512: some 0.1 ns with what surrounds it, of which a division takes 3.5, `exp` and `sin` 8, `log`
13, `arctan2` 19, `tanh` 25, a power 42.

**Traffic** is what goes to memory or comes from it, a byte in additions. On the same machine a sum
and a product of two arrays took 0.4 a byte out of the cache of level 2, and 0.3 to 0.8 beyond. What
level 1 takes can't be told from the work; its price is there so that nothing is kept for nothing.

**Code size** is what there is to compile: in statements for a plan, of which a loop is worth a few,
and for a tape, which isn't scheduled yet, in the seconds that compiling is expected to take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tapegrad.ir.tape import Tape
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.kinds import View

if TYPE_CHECKING:  # who asks for seconds alone has loaded no plans, which takes 20 ms
    from tapegrad.ir.steps import Step

# ---- work

SCALAR = 4  # what isn't vectorised, for its operands don't follow each other, takes so many times


# What a multiplication and addition in a product of matrices takes, a byte of the numbers: on a
# core of a Zen 5, with AVX-512, 0.0175 ns in float64 and 0.0082 in float32, of 128 to 1000 rows.
PRODUCT = 0.022


def work_once(step: Step) -> int:
    """The work of a step that is no loop. What only copies a number has none."""
    if (extents := getattr(step, "extents", None)) is not None:  # a product's: rows, columns, terms
        m, n, k = extents
        itemsize = step.out.cell.dtype.itemsize  # type: ignore[attr-defined]
        return int(m * n * k * itemsize * PRODUCT) + m * n + m * k + n * k  # which are copied
    return getattr(getattr(step, "primitive", None), "cost", 1)


def work(step: Step, least: int = 0) -> float:
    """The work of a step and of all that is in its loops, of which each step counts as `least` at
    the least."""
    loop: Any = step
    body = getattr(step, "body", None)
    if body is None:
        return max(least, work_once(step))
    return _rounds(loop) * sum(work(s, least) for s in body)


def _most(recurrence: Any) -> float:
    return float(recurrence.index.extent)


def each(
    step: Step, rounds: float = 1.0, made: Callable[[Any], float] = _most
) -> Iterator[tuple[Step, float]]:
    """The steps that are no loops, each with how often it is run: at most, or as `made` says of the
    rounds of a recurrence."""
    loop: Any = step
    body, again = getattr(step, "body", None), 1.0
    if body is not None:
        again = loop.chunk[1] / loop.step if loop.chunk is not None else _rounds(loop)
    elif (share := getattr(step, "share", None)) is not None:  # of a product, in a chunk
        rounds *= share.size / loop.extents[share.axis]
    elif (plan := getattr(step, "plan", None)) is not None:  # of a recurrence
        body, again = plan.steps, made(loop)
    if body is None:
        yield step, rounds
    for inner in body or ():
        yield from each(inner, rounds * again, made)


def _rounds(loop: Any) -> float:
    return float(loop.step) if loop.start is not None else loop.index.extent / loop.step


# ---- traffic

# What a byte costs, written or read: in a level 1 cache, in level 2, and beyond.
CACHES = ((1 << 15, 0.1), (1 << 21, 0.25), (math.inf, 0.75))
LARGE = CACHES[-2][0]  # bytes that a core's own caches don't hold
WRITE = 2  # a byte that is written was read before, by the cache
NARROWEST = 4  # bytes; what is narrower, a truth value, isn't cheaper to write or read


def traffic(itemsize: int, footprint: int) -> float:
    """What reading an element costs, of an array of which so many bytes are in use together."""
    price = next(price for size, price in CACHES if footprint <= size)
    return max(itemsize, NARROWEST) * price


def moved(step: Step) -> float:
    """What a step, with all that is in its loops, costs for arrays that no core's cache holds."""
    loop: Any = step
    if getattr(step, "body", None) is not None:
        return _rounds(loop) * sum(map(moved, loop.body))
    price = 0.0
    for cell, _, writes in step.accesses():
        size = math.prod(cell.root.shape) * cell.dtype.itemsize
        if size > LARGE:
            price += traffic(cell.dtype.itemsize, size) * (WRITE if writes else 1)
    return price


# ---- code size

LOOP = 2  # statements


def code_size(step: Step) -> int:
    """How long a step is, as compiling goes, in statements."""
    body = getattr(step, "body", None)
    if body is None:
        round_ = getattr(step, "plan", None)  # of a recurrence
        return 1 if round_ is None else LOOP + sum(map(code_size, round_.steps))
    return LOOP + sum(map(code_size, body))


def seconds_to_compile(tape: Tape) -> float:
    """What compiling a tape is expected to take: a start, and some milliseconds for each call, more
    for what doesn't just join a loop. In a long tape much is alike, and compiled once.

    Held against programs of 8 to 5,000 calls, which took 0.7 to 3 times as long. numba's own start
    isn't in it: that goes on in the background from the first played call.
    """
    calls = len(tape.calls)
    joins = sum(isinstance(call.primitive, (Elementwise, View)) for call in tape.calls)
    each = (0.002 * joins + 0.018 * (calls - joins)) / max(calls, 1)
    return 0.03 + each * min(calls, 400) + 0.003 * max(calls - 400, 0)
