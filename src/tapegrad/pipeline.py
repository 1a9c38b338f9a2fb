"""The pipeline, top to bottom: the table of contents of tapegrad.

    trace -> derive -> optimize -> schedule -> emit   -> compile -> run
    Python   Tape      Tape        Plan        source    machine    call

A call of the user's function enters as a `Request` and leaves as an `Executable`. Each function
below turns one representation into the next. `runtime.transformations` defines which tapes `grad`,
`jit` and the others derive; `runtime.derived` handles arguments and results of a call.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from tapegrad.backends.host import HOST
from tapegrad.backends.target import Build, one_by_one
from tapegrad.checking.tape_verify import verify
from tapegrad.core.frames import warn
from tapegrad.core.handlers import let_through
from tapegrad.core.late import REPETITION, SERIES, load
from tapegrad.differentiate.activity import check_kept
from tapegrad.differentiate.forward import forward
from tapegrad.differentiate.loop_residuals import Checkpoint
from tapegrad.differentiate.reverse import reverse
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.memory import bytes_inside, live_bytes, matrix_bytes
from tapegrad.ir.opened import closed
from tapegrad.ir.tape import Tape
from tapegrad.optimize.composites import expand_composites, expand_ordered
from tapegrad.optimize.cse import eliminate_common
from tapegrad.optimize.dce import prune, remove_dead
from tapegrad.optimize.inline import inline_calls, inline_custom
from tapegrad.optimize.loops import hoist, sink, slim_loops
from tapegrad.optimize.roots import tell_roots
from tapegrad.optimize.scalar_replacement import part_rounds
from tapegrad.optimize.shifts import stop_shifts
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

# For a tape that a user prints: no common subexpressions, no dead calls.
TRACED: tuple[Pass, ...] = (eliminate_common, remove_dead)

# Before differentiating: a call that is removed here has no adjoint either.
BEFORE: tuple[Pass, ...] = (
    simplify,
    slim_loops,  # a value that the loop doesn't carry needs no carried cotangent
    remove_dead,
)
PREPARED: tuple[Pass, ...] = (*BEFORE, stop_shifts, tell_roots, tell_softplus)

# After differentiating, on the forward and the reverse half together.
AFTER: tuple[Pass, ...] = (
    simplify,  # the reverse half reads many values of the forward half, and its seed is 1
    slim_loops,  # loops carry cotangents for all operands; few are used
    remove_dead,  # last: rules return the cotangents of all operands; few are used
)

# For a tape that becomes part of another trace: the passes of that trace do the rest.
INSIDE: tuple[Pass, ...] = (slim_loops, prune)

# For a tape that is compiled. If the guards on magnitudes fail, the tape before them is played.
ORDER: tuple[Pass, ...] = (expand_ordered, reorder)

# For a tape that is compiled, and so won't be differentiated any more.
LAST: tuple[Pass, ...] = (
    hoist,  # loop-invariant calls leave loops, including loops that may run zero rounds
    part_rounds,  # after hoisting: invariant values need no partition by rounds
)

LARGE_RESULT = 1 << 20  # bytes; the memory use of calls with smaller results is ignored
# Scratch memory allowed, as a multiple of the result matrix; the rest is vectors.
SCRATCH_FACTOR = 1.035
MUCH = 4  # above this multiple, rounds of loops recompute values, which takes longer
SCARCE = (10.0, 1e4)  # prices of memory, tried in turn where scratch memory is large

DEBUG = bool(os.environ.get("TAPEGRAD_DEBUG"))

# Who is shown each pass over a tape: its name, the tape before it, and after it
shown: ContextVar[Callable[[str, Tape, Tape], Any] | None] = ContextVar("shown", default=None)


def run_passes(code: Code, passes: Sequence[Callable[[Code], Code]]) -> Code:
    """Apply passes to a tape or a plan, in order. Under TAPEGRAD_DEBUG each result is verified."""
    show = shown.get()
    token = shown.set(None)  # passes inside of these aren't shown; an error ends all of it
    for step in passes:
        before, code = code, step(code)
        name = getattr(step, "func", step).__name__
        if show is not None and isinstance(before, Tape) and isinstance(code, Tape):
            show(name, before, code)
        if DEBUG and code is not before:
            _verify(code, name)
    shown.reset(token)
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
    """The tape of one run of a function on tracers, with unrolled rounds rolled up into loops. A
    tape of at most `in_vain` calls isn't searched for them. `observer` records the state that the
    function reads without receiving it as an argument. If `idle`, no value decides the path: see
    `Trace`."""
    from tapegrad.tracing.runs.run import trace_function  # the compiler's process never traces

    return trace_function(request, observer, partial(rolled, in_vain=in_vain), idle=idle)


def rolled(
    tape: Tape, captured: Sequence[Any], constants: Collection[int], in_vain: int = 0
) -> tuple[Tape, tuple[Any, ...]]:
    """The recorded tape with its unrolled rounds rolled up into loops, and the values of its
    captured inputs, which are the last ones. The inputs numbered in `constants` never change."""
    if len(tape.calls) <= in_vain or not may_repeat_inside(tape):
        return renumbered(tape), tuple(captured)
    load(REPETITION)
    from tapegrad.optimize.bodies import reroll_bodies
    from tapegrad.optimize.reroll import reroll

    first = len(tape.inputs) - len(captured)
    found = reroll(tape, {tape.inputs[first + k]: captured[k] for k in constants})
    kept = [x for k, x in enumerate(captured) if first + k not in found.dropped]
    if message := unrolled_loop(found.tape):
        warn(message)
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
    """The tape of the outputs numbered `keep` and of the cotangents of the inputs `wrt`.
    `checkpoint` says which values loops store for the reverse half."""
    check_kept(tape := run_passes(tape, (inline_calls,)), wrt)
    backward = partial(reverse, wrt=wrt, seed=seed, keep=keep, checkpoint=checkpoint)
    return run_passes(tape, (*PREPARED, backward))  # custom rules are used


def pushforward(tape: Tape, wrt: Sequence[int], apart: bool = False) -> Tape:
    """The tape of the outputs and their tangents. Its last inputs are the tangents of the inputs
    `wrt`. With `apart` no output is computed from these tangents."""
    check_kept(tape := run_passes(tape, (inline_calls,)), wrt)
    return run_passes(tape, (*PREPARED, partial(forward, wrt=wrt, apart=apart)))


def derive_forward(tape: Tape, wrt: Sequence[int]) -> Tape:
    """The tape of the tangents alone."""
    found, count = pushforward(tape, wrt), len(tape.outputs)
    return replace(found, outputs=found.outputs[count:], output_names=found.output_names[count:])


def expansion(tape: Tape, wrt: Sequence[int], order: int) -> Tape:
    """The tape of the outputs and of their Taylor coefficients up to `order`, along the tangents of
    the inputs `wrt`, which are its last inputs."""
    load(SERIES)
    from tapegrad.differentiate.taylor import expand

    check_kept(tape := run_passes(tape, (inline_calls,)), wrt)
    return run_passes(tape, (*PREPARED, partial(expand, wrt=wrt, order=order)))


def settled(tape: Tape) -> Tape:
    """A tape that won't be differentiated any more: custom rules are inlined, stops of gradients
    dropped, composites expanded."""
    return run_passes(tape, (inline_custom, drop_stops, expand_composites))


def playable(tape: Tape) -> Tape:
    """The tape that the first calls play with NumPy: without dead calls. All other passes are left
    to the compiler."""
    return run_passes(settled(tape), (prune,))


def finished(tape: Tape) -> Tape:
    """A settled tape, or one that becomes part of another trace, after the passes `AFTER`."""
    return _for(tape, run_passes(tape, AFTER))


def optimized(tape: Tape) -> Tape:
    """A tape without derivative, ready to be scheduled."""
    return _for(tape, run_passes(finished(run_passes(settled(tape), BEFORE)), LAST))


def _for(tape: Tape, made: Tape) -> Tape:
    """The tape `made` from `tape`, with the facts about results that `tape` has."""
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
    """A finished tape of a gradient that needs at most `most` bytes at a time, beside arguments and
    results, if it is compiled in this `mode`. Raises `MemoryNeeded` if there is none."""
    from tapegrad.differentiate.budget import within as keep_within

    def taken(mode: str, tape: Tape) -> int:
        return bytes_taken(remove_dead(tape), mode)

    return remove_dead(keep_within(tape, most, partial(taken, "never"), partial(taken, mode)))


def bytes_taken(tape: Tape, mode: str) -> int:
    """The peak memory of a call in bytes, besides arguments and results: played, compiled, or the
    larger of both where `mode` allows both."""
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
    """The compiled kernels of a settled tape, with the code that calls them. Unless the tape is
    `ordered`, they reorder sums of products, and tell where that could matter for the arguments of
    a call, which then plays the tape. `build` compiles the kernels, by default in this process.
    `times` receives the seconds of each part. Beside one of its `kind` they serve any length."""
    at = [perf_counter()]
    best = at_its_best(closed(tape))
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
    """A settled tape after all passes that precede scheduling."""
    best = finished(tape)
    return _for(tape, run_passes(best if tape.ordered else run_passes(best, ORDER), LAST))


def _beside(tape: Tape, best: Tape, kind: Kind | None) -> tuple[Program, Numbers]:
    """The program of an optimised tape, and the numbers that differ in the program of a tape of the
    same kind, which has the same loops with other lengths."""
    from tapegrad.schedule.buffers import assign, is_alike
    from tapegrad.schedule.lengths import varied

    for other in () if kind is None else kind.others():
        axes = varied(tape, other)
        try:
            mine = best if closed(tape) == tape else at_its_best(tape)
            one = looped(replace(mine, axes=axes))
            two = looped(replace(at_its_best(other), axes=axes))
            if not is_alike(one.plan, two.plan):
                continue
            program = written(one, assign(one.plan, like=two.plan))
            beside = written(two, assign(two.plan, like=one.plan))
        except Exception as error:  # the other tape may be a guess that can't be planned
            let_through(error)
            continue
        if (others := HOST.numbers_of(program, beside)) is not None:
            return replace(program, lengths=program.lengths & beside.lengths), others
    if kind is not None:
        kind.keep()
    return schedule(best), ()


class Kind(Protocol):
    """The tapes that differ from one tape in lengths alone."""

    def others(self) -> Iterable[Tape]:
        """The tapes of this kind that are worth trying."""

    def keep(self) -> None:
        """Add the tape to its kind."""


class Looped(NamedTuple):
    """The plan of a tape, with its first form and the passes that led from this to the plan."""

    tape: Tape
    first: Plan
    passes: Sequence[Callable[[Plan], Plan]]
    plan: Plan


def lowered(tape: Tape, large: float = math.inf, price: float = 1.0) -> Plan:
    """The first plan of a tape: one loop nest for each call; views become indices. The plans of
    loops' bodies recompute values by the `price` of memory."""
    from tapegrad.backends.source.names import user_names
    from tapegrad.schedule.fuse import fuse
    from tapegrad.schedule.isolate import set_apart
    from tapegrad.schedule.lower import lower
    from tapegrad.schedule.recompute import recompute
    from tapegrad.schedule.shrink import shrink
    from tapegrad.schedule.split import split
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
        return run_passes(plan, (fuse, shrink, recomputed, split, shrink, tile, set_apart, shrink))

    plan = lower(tape, user_names(tape), plan_round)
    if DEBUG:
        _verify(plan, "lower")
    return plan


def looped(tape: Tape, prices: Sequence[float] = SCARCE, target: Target = HOST) -> Looped:
    """The plan of an optimised tape: fused loops, for a target. If large results need still more
    scratch memory, `prices` of memory are tried in turn, by which more values are recomputed. The
    passes are imported here: a process that finds its code on disk needs none of them."""
    from tapegrad.schedule.arrange import arrange
    from tapegrad.schedule.cut import cut
    from tapegrad.schedule.fuse import fuse, gather_fills
    from tapegrad.schedule.inplace import written_over
    from tapegrad.schedule.isolate import set_apart
    from tapegrad.schedule.lengths import lengths, open_lengths
    from tapegrad.schedule.parallelise import parallelise
    from tapegrad.schedule.recompute import recompute
    from tapegrad.schedule.rounds import share_rounds
    from tapegrad.schedule.share import store_shared
    from tapegrad.schedule.shrink import shrink
    from tapegrad.schedule.split import split
    from tapegrad.schedule.tile import tile

    open_ = open_lengths(tape)
    known = lengths(tape) | open_
    apart, tiled = partial(set_apart, lengths=known), partial(tile, lengths=open_)

    def recomputed(plan: Plan) -> Plan:
        return recompute(plan, large, price)

    def shared_out(plan: Plan) -> Plan:
        return parallelise(share_rounds(plan, room), room)

    most = matrix_bytes(tape, LARGE_RESULT)
    large, price, room = math.inf, 1.0, most
    passes = (
        fuse,  # nests over the same range become one
        store_shared,  # values that are used on both sides of a NumPy call are in memory
        shrink,  # finds the temporaries that would be stored ...
        recomputed,  # ... and recomputes those that are cheap
        split,  # loops over arrays in pieces become several, in which indices are affine
        shrink,  # stores the others as small as possible
        tiled,  # after shrinking: scalars between inner loops become rows
        apart,  # in nests too short for tiles, elementary functions get loops of their own
        shrink,
        # Cut long loops, in rounds too, into chunks for several cores; merge short kernels.
        *((shared_out, arrange) if target.threads else ()),
        gather_fills,  # one loop fills several small arrays
        # Kernels that would take too long to compile are cut; scalars between them are in memory.
        *((cut, store_shared) if target.cuts else ()),
        partial(written_over, into=tape.into),  # results are written to arrays of the caller's
    )
    first = lowered(tape)
    plan = run_passes(first, passes)
    prices = prices if most < math.inf else ()
    best = large, price
    for dearer in (*prices, None) if prices else ():
        if (scratch := scratch_of(plan)) <= SCRATCH_FACTOR * most:
            break
        if dearer:
            large, price = most / 64, dearer
        else:  # last try: fewer chunks, at the best price
            (large, price), room = best, most / 256
        other = run_passes(first, passes)
        if scratch_of(other) < scratch:
            plan, best = other, (large, price)
    if prices and scratch_of(plan) > MUCH * most and (less := sink(tape)) is not tape:
        start = lowered(less, most / 64, prices[-1])
        other = run_passes(start, passes)
        # Recomputing rounds takes longer: it must pay.
        if scratch_of(other) < 0.75 * scratch_of(plan):
            return Looped(less, start, passes, other)
    return Looped(tape, first, passes, plan)


def scratch_of(plan: Plan) -> int:
    """The scratch memory that the compiled code of a plan needs, in bytes."""
    from tapegrad.schedule.buffers import assign, planned_peak_bytes

    return planned_peak_bytes(assign(plan).slots)


def memory_of(plan: Plan) -> int:
    """The memory in bytes that a call of the compiled plan needs besides arguments and results:
    scratch memory, and the largest results of one NumPy call between kernels, which are copied."""
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
    """The program of a plan whose stored values have the places `homes` in memory."""
    from tapegrad.backends.source.emit import emit
    from tapegrad.schedule.lengths import lengths

    tape, first, passes, plan = found
    program = emit(plan, homes, lengths(tape), tape.axes, target.reserved())
    if DEBUG:
        from tapegrad.checking.oracle import hold

        hold(program, tape, first, passes)
    return program


def source_of(tape: Tape, settled: bool = False) -> str:
    """The readable source of a tape as a function of its inputs. If it is `settled`, as calls run
    it, which fall back on playing it."""
    from tapegrad.backends.source.standalone import text_of

    return text_of(schedule(at_its_best(tape) if settled else optimized(tape)), tape).source


def scratch_bytes_of(tape: Tape) -> int:
    """The scratch memory that the compiled code of a tape needs, in bytes."""
    return scratch_of(looped(at_its_best(tape)).plan)


def numpy_source_of(tape: Tape) -> str:
    """The source of a tape as plain NumPy, one line for each call."""
    from tapegrad.backends.numpy.source import numpy_source

    return numpy_source(expand_composites(inline_custom(tape)))
