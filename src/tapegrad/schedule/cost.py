"""The costs of a plan, in three measures. Passes compare costs of one measure, or convert them
here.

**Work** is computation, in additions of two float64 that are vectorised among others, with operands
in registers. Primitives declare theirs (`primitives.elementwise.DIVISION`, `FUNCTION`). Measured
with a chain of products and sums inside two loops, on an Intel Xeon with AVX-512: an addition takes
some 0.1 ns with its surroundings, a division 3.5 of these, `exp` and `sin` 8, `log` 13, `arctan2`
19, `tanh` 25, a power 42.

**Traffic** is reading and writing memory, in additions for each byte. On the same machine a sum and
a product of two arrays took 0.4 a byte from the level 2 cache, and 0.3 to 0.8 beyond. The cost of
level 1 can't be measured apart from the work; its price only ensures that nothing is kept without a
gain.

**Code size** is the cost of compiling: in statements for a plan, where a loop counts as a few, and
in expected seconds for a tape, which isn't scheduled yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tapegrad.ir.tape import Tape
from tapegrad.primitives.base import Elementwise
from tapegrad.primitives.kinds import View

if TYPE_CHECKING:  # seconds alone need no plans, whose import takes 20 ms
    from tapegrad.ir.steps import Step

# ---- work

SCALAR = 4  # the factor for work that isn't vectorised, since its operands aren't adjacent


# A multiplication and addition in a product of matrices, for each byte of a number. Measured on a
# core of a Zen 5, with AVX-512: 0.0175 ns in float64 and 0.0082 in float32, for 128 to 1000 rows.
PRODUCT = 0.022


def work_once(step: Step) -> int:
    """The work of a step that isn't a loop. A copy has none."""
    if (extents := getattr(step, "extents", None)) is not None:  # a product's: rows, columns, terms
        m, n, k = extents
        itemsize = step.out.cell.dtype.itemsize  # type: ignore[attr-defined]
        return int(m * n * k * itemsize * PRODUCT) + m * n + m * k + n * k  # plus the copies
    return getattr(getattr(step, "primitive", None), "cost", 1)


def work(step: Step, least: int = 0) -> float:
    """The work of a step, including all rounds of its loops. Each inner step counts as `least` or
    more."""
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
    """The steps that aren't loops, each with the number of times that it runs. `made` returns the
    number of rounds of a recurrence, by default the most."""
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

# The price of a byte, written or read: in the level 1 cache, in level 2, and beyond.
CACHES = ((1 << 15, 0.1), (1 << 21, 0.25), (math.inf, 0.75))
CACHE_BYTES = CACHES[-2][0]  # bytes that a core's own caches don't hold
WRITE = 2  # the cache reads a byte before it is written
NARROWEST = 4  # bytes; narrower elements, such as booleans, aren't cheaper


def traffic(itemsize: int, footprint: int) -> float:
    """The price of reading an element of an array of which `footprint` bytes are in use
    together."""
    price = next(price for size, price in CACHES if footprint <= size)
    return max(itemsize, NARROWEST) * price


def moved(step: Step) -> float:
    """The price of a step, with all rounds of its loops, for arrays that exceed a core's own
    caches."""
    loop: Any = step
    if getattr(step, "body", None) is not None:
        return _rounds(loop) * sum(map(moved, loop.body))
    price = 0.0
    for cell, _, writes in step.accesses():
        size = math.prod(cell.root.shape) * cell.dtype.itemsize
        if size > CACHE_BYTES:
            price += traffic(cell.dtype.itemsize, size) * (WRITE if writes else 1)
    return price


# ---- code size

LOOP = 2  # statements


def code_size(step: Step) -> int:
    """The size of a step in statements, for the compile time."""
    body = getattr(step, "body", None)
    if body is None:
        round_ = getattr(step, "plan", None)  # of a recurrence
        return 1 if round_ is None else LOOP + sum(map(code_size, round_.steps))
    return LOOP + sum(map(code_size, body))


def seconds_to_compile(tape: Tape) -> float:
    """The expected time to compile a tape: a start, and some milliseconds for each call, more for
    calls that don't just join a loop. Much of a long tape is alike, and compiled once.

    Compared with programs of 8 to 5,000 calls, which took 0.7 to 3 times as long. numba's own start
    isn't included: it runs in the background from the first played call on.
    """
    calls = len(tape.calls)
    joins = sum(isinstance(call.primitive, (Elementwise, View)) for call in tape.calls)
    each = (0.002 * joins + 0.018 * (calls - joins)) / max(calls, 1)
    return 0.03 + each * min(calls, 400) + 0.003 * max(calls - 400, 0)
