"""The pipeline, top to bottom: the table of contents of tapegrad.

    trace -> derive -> optimize -> schedule -> emit   -> compile -> run
    Python   Tape      Tape        Plan        source    machine    call

A call of a user's function comes in as a `Request`, and goes out as an `Executable`. Each function
below makes the next representation of the one before. What `grad`, `jit` and their like make of a
tape is in `runtime.transformations`, and a call's way in and out in `runtime.derived`.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from tapegrad.backends.host import HOST
from tapegrad.backends.target import Build, one_by_one
from tapegrad.checking.tape_verify import verify
from tapegrad.core.handlers import let_through
from tapegrad.core.late import REPETITION, SERIES, load
from tapegrad.differentiate.activity import check_kept
from tapegrad.differentiate.forward import forward
from tapegrad.differentiate.keeping import Checkpoint
from tapegrad.differentiate.reverse import reverse
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.memory import bytes_inside, live_bytes, matrix_bytes
from tapegrad.ir.tape import Tape
from tapegrad.optimize.composites import expand_composites, expand_ordered
from tapegrad.optimize.cse import eliminate_common
from tapegrad.optimize.dce import prune, remove_dead
from tapegrad.optimize.inline import inline_calls, inline_custom
from tapegrad.optimize.loops import hoist, sink, slim_loops
from tapegrad.optimize.parts import part_rounds
from tapegrad.optimize.roots import tell_roots
from tapegrad.optimize.simplify import reorder, simplify
from tapegrad.optimize.softplus import tell_softplus
from tapegrad.optimize.stops import drop_stops
from tapegrad.optimize.unrolled import may_repeat_inside, unrolled_loop

if TYPE_CHECKING:
    from tapegrad.backends.source.driver import Executable
    from tapegrad.backends.source.program import Program
    from tapegrad.backends.target import Numbers, Target
    from tapegrad.core.request import Request
    from tapegrad.ir.affine import Index
    from tapegrad.ir.allocation import Allocation
    from tapegrad.ir.plan import Plan
    from tapegrad.observe.observer import Observer
    from tapegrad.tracing.runs.traced import Traced

Pass = Callable[[Tape], Tape]
Code = TypeVar("Code", Tape, "Plan")

# A tape that a user looks at: nothing twice, and nothing in vain.
TRACED: tuple[Pass, ...] = (eliminate_common, remove_dead)

# Before differentiating: what is gone here is gone twice.
BEFORE: tuple[Pass, ...] = (
    simplify,
    slim_loops,  # what isn't carried needs no cotangent carried
    remove_dead,
)

# After differentiating, on forward and backward half together.
AFTER: tuple[Pass, ...] = (
    simplify,  # the backward half reads much of what the forward half computed, and its seed is 1
    slim_loops,  # of the cotangents that loops carry few are wanted
    remove_dead,  # last: rules return every cotangent, and few are wanted
)

# Of what becomes part of another trace, whose own passes do the rest.
INSIDE: tuple[Pass, ...] = (slim_loops, prune)

# Of what is compiled, and played where its guards on magnitudes don't hold.
ORDER: tuple[Pass, ...] = (expand_ordered, reorder)

# Of what is compiled: nobody differentiates it.
LAST: tuple[Pass, ...] = (
    hoist,  # loops that may make no rounds give away what isn't theirs
    part_rounds,  # after it: what is the same in each round needs no parts
)

LARGE = 1 << 20  # bytes of results: the memory that smaller ones need doesn't count
MORE = 1.035  # of a matrix: what else its computation may need; the rest is vectors
MUCH = 4  # of a matrix: then rounds of loops make again what they can, and take longer
SCARCE = (10.0, 1e4)  # times the price of memory where there is little, and hardly any

DEBUG = bool(os.environ.get("TAPEGRAD_DEBUG"))


def run_passes(code: Code, passes: Sequence[Callable[[Code], Code]]) -> Code:
    """Apply passes to a tape or a plan, in order; under TAPEGRAD_DEBUG it is verified after
    each."""
    for step in passes:
        before, code = code, step(code)
        if DEBUG and code is not before:
            _verify(code, getattr(step, "func", step).__name__)
    return code


def _verify(code: Tape | Plan, after: str) -> None:
    if isinstance(code, Tape):
        verify(code, after)
        return
    from tapegrad.checking.plan_verify import verify_plan

    verify_plan(code, after)


# ---- Python -> Tape


def trace(
    request: Request, observer: Observer | None = None, idle: bool = False, in_vain: int = 0
) -> Traced:
    """One run of a function, on proxies that record: its tape, with loops where the run has
    unrolled them, unless no tape of so many calls has some: to look is `in_vain`. An `observer`
    sees what it reads without being passed it. If `idle`, values decide nothing: see `Trace`."""
    from tapegrad.tracing.runs.run import trace_function  # the compiler's process traces nothing

    return trace_function(request, observer, partial(rolled, in_vain=in_vain), idle=idle)


def rolled(
    tape: Tape, captured: Sequence[Any], constants: Collection[int], in_vain: int = 0
) -> tuple[Tape, tuple[Any, ...]]:
    """A tape as it was recorded, with loops, and the values of its last inputs, of which those
    numbered in `constants` never change."""
    if len(tape.calls) <= in_vain or not may_repeat_inside(tape):
        return renumbered(tape), tuple(captured)
    load(REPETITION)
    from tapegrad.optimize.bodies import reroll_bodies
    from tapegrad.optimize.reroll import reroll

    first = len(tape.inputs) - len(captured)
    found = reroll(tape, {tape.inputs[first + k]: captured[k] for k in constants})
    kept = [x for k, x in enumerate(captured) if first + k not in found.dropped]
    if message := unrolled_loop(found.tape):
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    done, arrays = reroll_bodies(found.tape)
    return renumbered(done) if arrays else done, (*kept, *found.further, *arrays)


# ---- Tape -> Tape


def derive(
    tape: Tape,
    wrt: Sequence[int],
    seed: bool = False,
    keep: Sequence[int] | None = None,
    checkpoint: Checkpoint = "auto",
) -> Tape:
    """The tape of the outputs numbered `keep` and the cotangents of the inputs `wrt`; what loops
    keep for it is said by `checkpoint`."""
    check_kept(tape := inline_calls(tape), wrt)
    tape = run_passes(tape, BEFORE)  # custom calls stay: their rules are needed
    return reverse(tell_softplus(tell_roots(tape)), wrt, seed, keep, checkpoint=checkpoint)


def pushforward(tape: Tape, wrt: Sequence[int], apart: bool = False) -> Tape:
    """The tape of the outputs, and of their tangents for those of the inputs `wrt`, which are its
    last inputs. With `apart` the values don't depend on these."""
    check_kept(tape := inline_calls(tape), wrt)
    return forward(tell_softplus(tell_roots(run_passes(tape, BEFORE))), wrt, apart=apart)


def derive_forward(tape: Tape, wrt: Sequence[int]) -> Tape:
    """The tape of the tangents alone."""
    found, count = pushforward(tape, wrt), len(tape.outputs)
    return replace(found, outputs=found.outputs[count:], output_names=found.output_names[count:])


def expansion(tape: Tape, wrt: Sequence[int], order: int) -> Tape:
    """The tape of the outputs and of their Taylor coefficients up to `order`, along the tangents of
    the inputs `wrt`, which are its last inputs."""
    load(SERIES)
    from tapegrad.differentiate.taylor import expand

    check_kept(tape := inline_calls(tape), wrt)
    return expand(tell_softplus(tell_roots(run_passes(tape, BEFORE))), wrt, order)


def settled(tape: Tape) -> Tape:
    """A tape that won't be differentiated again, without what serves that alone."""
    return expand_composites(drop_stops(inline_custom(tape)))


def playable(tape: Tape) -> Tape:
    """A tape as its first calls play it: what nothing needs is gone, all else is the compiler's."""
    return prune(settled(tape))


def finished(tape: Tape) -> Tape:
    """A settled tape, or one that becomes part of another trace, at its best."""
    return _for(tape, run_passes(tape, AFTER))


def optimized(tape: Tape) -> Tape:
    """A tape without derivative, ready to be scheduled."""
    return _for(tape, run_passes(finished(run_passes(settled(tape), BEFORE)), LAST))


def _for(tape: Tape, made: Tape) -> Tape:
    """What was made of a tape, with the same said of its results."""
    return replace(made, matrices=tape.matrices, into=tape.into)


def gradient(
    tape: Tape,
    wrt: Sequence[int],
    seed: bool = False,
    keep: Sequence[int] | None = None,
    checkpoint: Checkpoint = "auto",
) -> Tape:
    """The tape of `derive`, ready to be scheduled."""
    return finished(settled(derive(tape, wrt, seed, keep, checkpoint)))


def within(tape: Tape, most: int, mode: str) -> Tape:
    """A finished tape of a gradient of which a call takes at most so many bytes at a time, beside
    arguments and results, in this mode of compiling; `Least` if none is found."""
    from tapegrad.differentiate.budget import within as keep_within

    def taken(mode: str, tape: Tape) -> int:
        return bytes_taken(remove_dead(tape), mode)

    return remove_dead(keep_within(tape, most, partial(taken, "never"), partial(taken, mode)))


def bytes_taken(tape: Tape, mode: str) -> int:
    """The most memory that a call takes at a time beside arguments and results: where the tape is
    played, where it is compiled, or where it is both, one after the other."""
    played = 0 if mode == "always" else max(live_bytes(tape), default=0)
    if mode == "never":
        return played
    plan = looped(at_its_best(tape)).plan
    return max(played, memory_of(plan))


# ---- Tape -> Plan -> source -> machine code


def compile(
    tape: Tape,
    build: Build = one_by_one,
    times: dict[str, float] | None = None,
    kind: Kind | None = None,
) -> Executable:
    """The machine code of a settled tape, and what calls it. Sums of products keep their order if
    the tape says so, else who calls it plays the tape where it tells that the order counts. `build`
    compiles kernels, here if it isn't given; `times` receives the seconds that each part took.
    Beside a tape of the same `kind`, for other lengths, it gets kernels that serve any."""
    at = [perf_counter()]
    best = at_its_best(tape)
    at.append(perf_counter())
    program, others = _beside(tape, best, kind)
    at.append(perf_counter())
    made = HOST.build(program, build, others)
    at.append(perf_counter())
    if times is not None:
        parts = ("passes", "schedule", "kernels")
        times.update({part: at[k + 1] - at[k] for k, part in enumerate(parts)})
    return made


def at_its_best(tape: Tape) -> Tape:
    """A settled tape as it is compiled."""
    best = finished(tape)
    return _for(tape, run_passes(best if tape.ordered else run_passes(best, ORDER), LAST))


def _beside(tape: Tape, best: Tape, kind: Kind | None) -> tuple[Program, Numbers]:
    """The program of a tape, which is optimised; and the numbers that a program of the same kind,
    with the same loops, has in the place of its own."""
    from tapegrad.schedule.buffers import assign, is_alike
    from tapegrad.schedule.lengths import varied

    if kind is None:
        return schedule(best), ()
    for other in kind.others():
        axes = varied(tape, other)
        one = looped(replace(best, axes=axes))
        try:
            two = looped(replace(at_its_best(other), axes=axes))
        except Exception as error:  # it may only be guessed, and make no sense
            let_through(error)
            continue
        if is_alike(one.plan, two.plan):
            program = written(one, assign(one.plan, like=two.plan))
            beside = written(two, assign(two.plan, like=one.plan))
            if (others := HOST.numbers_of(program, beside)) is not None:
                return replace(program, lengths=program.lengths & beside.lengths), others
    kind.keep()
    return schedule(best), ()


class Kind(Protocol):
    """What a tape has in common with those that are alike but for lengths."""

    def others(self) -> Iterable[Tape]:
        """Some of these."""

    def keep(self) -> None:
        """Have this tape be one of them for others."""


class Looped(NamedTuple):
    """A tape's loops, and how they came about."""

    tape: Tape
    first: Plan
    passes: Sequence[Callable[[Plan], Plan]]
    plan: Plan


def lowered(tape: Tape, large: float = math.inf, price: float = 1.0) -> Plan:
    """The first plan of a tape: one nest a call; views are indices. Loops' rounds have a price."""
    from tapegrad.backends.source.names import user_names
    from tapegrad.schedule.apart import set_apart
    from tapegrad.schedule.fuse import fuse
    from tapegrad.schedule.lower import lower
    from tapegrad.schedule.recompute import recompute
    from tapegrad.schedule.shrink import shrink
    from tapegrad.schedule.tile import tile

    def recomputed(plan: Plan) -> Plan:
        return recompute(plan, large, price)

    def plan_round(
        body: Tape, affine: Any, carried: int, state: Collection[int], among: tuple[Index, ...]
    ) -> Plan:
        """The plan of a loop's body: one kernel, by one core."""
        plan = lower(body, user_names(body), plan_round, affine, carried, state, among)
        if DEBUG:
            _verify(plan, "lower")
        return run_passes(plan, (fuse, shrink, recomputed, shrink, tile, set_apart, shrink))

    plan = lower(tape, user_names(tape), plan_round)
    if DEBUG:
        _verify(plan, "lower")
    return plan


def looped(tape: Tape, prices: Sequence[float] = SCARCE, target: Target = HOST) -> Looped:
    """The plan of an optimised tape: its loops, fused, as a target runs them. Where it needs more
    memory than its results, and these are large, memory has these prices, one after the other.

    What does it is imported here: a process whose code is on disk needs none of it.
    """
    from tapegrad.schedule.apart import set_apart
    from tapegrad.schedule.arrange import arrange
    from tapegrad.schedule.cut import cut
    from tapegrad.schedule.fuse import fuse, gather_fills
    from tapegrad.schedule.inplace import written_over
    from tapegrad.schedule.lengths import lengths, open_lengths
    from tapegrad.schedule.parallelise import parallelise
    from tapegrad.schedule.recompute import recompute
    from tapegrad.schedule.share import store_shared
    from tapegrad.schedule.shrink import shrink
    from tapegrad.schedule.tile import tile

    open_ = open_lengths(tape)
    known = lengths(tape) | open_

    apart, tiled = partial(set_apart, lengths=known), partial(tile, lengths=open_)
    in_place = partial(written_over, into=tape.into)

    def recomputed(plan: Plan) -> Plan:
        return recompute(plan, large, price)

    def shared_out(plan: Plan) -> Plan:
        return parallelise(plan, room)

    most = matrix_bytes(tape, LARGE)
    large, price, room = math.inf, 1.0, most
    passes = (
        fuse,  # nests over the same range become one
        store_shared,  # what crosses a call of NumPy is in memory
        shrink,  # tells which temporaries would be stored ...
        recomputed,  # ... so that those which are cheap to compute again aren't
        shrink,  # and what is left only where it is needed
        tiled,  # registers between inner loops become rows, so it comes after shrinking
        apart,  # in nests that are too short for tiles, functions get loops of their own
        shrink,
        # Long loops in chunks, each a kernel, for several cores; what one core does waits, and
        # short kernels become one.
        *((shared_out, arrange) if target.threads else ()),
        gather_fills,  # small arrays that are filled one after the other are in one loop
        # Kernels that take too long to compile are cut, and between them registers are in memory.
        *((cut, store_shared) if target.cuts else ()),
        in_place,  # results go where the caller wants them
    )
    first = lowered(tape)
    plan = run_passes(first, passes)
    prices = prices if most < math.inf else ()
    best = large, price
    for dearer in (*prices, None) if prices else ():
        if (scratch := scratch_of(plan)) <= MORE * most:
            break
        if dearer:
            large, price = most / 64, dearer
        else:  # fewer chunks, at the best price
            (large, price), room = best, most / 256
        other = run_passes(first, passes)
        if scratch_of(other) < scratch:
            plan, best = other, (large, price)
    if prices and scratch_of(plan) > MUCH * most and (less := sink(tape)) is not tape:
        start = lowered(less, most / 64, prices[-1])
        other = run_passes(start, passes)
        if scratch_of(other) < 0.75 * scratch_of(plan):  # rounds take longer
            return Looped(less, start, passes, other)
    return Looped(tape, first, passes, plan)


def scratch_of(plan: Plan) -> int:
    """The scratch memory that the compiled code of a plan needs, in bytes."""
    from tapegrad.schedule.buffers import assign, planned_peak_bytes

    return planned_peak_bytes(assign(plan).slots)


def memory_of(plan: Plan) -> int:
    """The memory that a call of a plan's code needs beside arguments and results, in bytes: scratch
    memory, and the most that NumPy returns in one call between kernels, which is copied."""
    from tapegrad.ir.steps import PythonCall

    made = [
        bytes_inside(call.primitive.tapes)
        + sum(out.aval.nbytes for out in call.outs if out not in call.reads)
        for call in plan.steps
        if isinstance(call, PythonCall)
    ]
    return scratch_of(plan) + max(made, default=0)


def schedule(tape: Tape, target: Target = HOST) -> Program:
    """The program of an optimised tape for a target: its plan, and the source of its kernels."""
    from tapegrad.schedule.buffers import assign

    found = looped(tape, target=target)
    return written(found, assign(found.plan), target)


def written(found: Looped, homes: Allocation, target: Target = HOST) -> Program:
    """The program of a plan whose stored values have these homes."""
    from tapegrad.backends.source.emit import emit
    from tapegrad.schedule.lengths import lengths

    tape, first, passes, plan = found
    program = emit(plan, homes, lengths(tape), tape.axes, target.reserved())
    if DEBUG:
        from tapegrad.checking.oracle import hold

        hold(program, tape, first, passes)
    return program


def source_of(tape: Tape) -> str:
    """The readable source of a tape as a function of its inputs."""
    return _text(tape).source


def scratch_bytes_of(tape: Tape) -> int:
    """The scratch memory that the compiled code of a tape needs."""
    return scratch_of(looped(at_its_best(tape)).plan)


def numpy_source_of(tape: Tape) -> str:
    """The reference source of a tape: NumPy, call by call."""
    from tapegrad.backends.numpy.source import numpy_source

    return numpy_source(expand_composites(inline_custom(tape)))


def _text(tape: Tape) -> Any:
    from tapegrad.backends.source.standalone import standalone

    program = schedule(optimized(tape))
    name = program.scope.fresh(tape.name)
    names = [program.names[c] for c in program.plan.inputs][: len(tape.free_inputs)]
    examples = [
        np.zeros((), v.dtype).item() if v.aval.weak else np.zeros(v.shape, v.dtype)
        for v in tape.free_inputs
    ]
    result: Any = (lambda outputs: outputs[0]) if len(tape.outputs) == 1 else tuple
    doc = f"The tape {tape.name}."
    return standalone(program, name, names, examples, tape.captured, result, doc)
