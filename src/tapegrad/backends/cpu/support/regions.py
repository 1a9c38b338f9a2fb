"""Loops in chunks: how several threads share the chunks.

The thread that calls the loop opens a slot in the pool's memory (see `threads`), where helpers find
it. It takes chunks from the front, and helpers take them from the end, so that each thread works on
the same part of an array in loop after loop, which its cache still holds. The caller waits only for
helpers that are still at work when no chunk is left.

    status = 0
    slot.open(body, given, chunks)
    while (chunk := slot.next_in_front()) < chunks:
        status = max(status, body(given, chunk))
    slot.close()                          # no thread enters any more
    wait until all that entered have left

A slot's `state` is one word that changes atomically: whether a caller has the slot, whether it is
open, and how many helpers are in it. A helper enters by a compare-and-swap of the state that it has
read with that state plus itself. So it is either waited for, or it doesn't enter.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from tapegrad.backends.cpu.linking import POOL
from tapegrad.backends.cpu.support.arrays import INT, POINTER, WORD, larger
from tapegrad.backends.cpu.support.shared import shared_function
from tapegrad.backends.cpu.threads import (
    AWAKE,
    CREW,
    FIRST_SLOT,
    HELP,
    HELPERS,
    LINE,
    SLOTS,
)

FAILED = 2**62  # the status of a chunk that raised an error
_CLAIMED, _OPEN, _ENTERED = 1, 2, 4  # bits of a slot's state; the last is the unit of a count
_FRONT, _BACK = 1, 2**32  # units of `taken`: the chunks taken from each end
# Polls of a caller (until all have left) and of a helper (for work) between two offers of the core
# to other threads.
_LATE, _OFTEN = 4096, 16
_IN_ORDER = "seq_cst"

# long body(void **given, long chunk)
BODY = ir.FunctionType(WORD, [POINTER.as_pointer(), WORD])


class _Slot:
    """The words of a slot. Those that many threads write are in cache lines of their own."""

    def __init__(self, builder: Any, number: Any) -> None:
        start = builder.add(builder.mul(number, WORD(4 * LINE)), WORD(FIRST_SLOT * LINE))
        self.state, self.taken, self.status, self.body, self.given, self.chunks = (
            builder.gep(_pool(builder), [WORD(0), builder.add(start, WORD(k))])
            for k in (0, LINE, 2 * LINE, 3 * LINE, 3 * LINE + 1, 3 * LINE + 2)
        )


def _pool(builder: Any) -> Any:
    """The pool's memory."""
    module = builder.module
    if POOL not in module.globals:
        ir.GlobalVariable(module, ir.ArrayType(WORD, 0), POOL)
    return module.globals[POOL]


def _word(builder: Any, number: int) -> Any:
    return builder.gep(_pool(builder), [WORD(0), WORD(number)])


def _load(builder: Any, place: Any) -> Any:
    return builder.load_atomic(place, _IN_ORDER, 8)


def _store(builder: Any, value: Any, place: Any) -> None:
    builder.store_atomic(value, place, _IN_ORDER, 8)


def _region_type() -> Any:
    """The type of `run_region`.

    long region(body *body, void **given, long chunks)
    """
    return ir.FunctionType(WORD, [BODY.as_pointer(), POINTER.as_pointer(), WORD])


@shared_function("region", _region_type)
def run_region(b: Any, args: Any) -> None:
    """Run body(given, chunk) for all chunks. Returns the highest status."""
    body, given, chunks = args
    work, help_ = _work_function(b.module), _help_function(b.module)
    _store(b, b.ptrtoint(help_, WORD), _word(b, HELP))
    slots = b.function.append_basic_block("slots")
    alone = b.function.append_basic_block("alone")
    several = b.icmp_signed(">", chunks, WORD(1))
    has_helpers = b.icmp_signed(">", _load(b, _word(b, HELPERS)), WORD(0))
    before = b.block
    b.cbranch(b.and_(several, has_helpers), slots, alone)

    # Find a free slot; without one, run alone.
    b.position_at_end(slots)
    number = b.phi(WORD)
    number.add_incoming(WORD(0), before)
    slot = _Slot(b, number)
    tried = b.cmpxchg(slot.state, WORD(0), WORD(_CLAIMED), _IN_ORDER, _IN_ORDER)
    shared = b.function.append_basic_block("shared")
    next_one = b.function.append_basic_block("next")
    b.cbranch(b.extract_value(tried, 1), shared, next_one)
    b.position_at_end(next_one)
    later = b.add(number, WORD(1))
    number.add_incoming(later, next_one)
    b.cbranch(b.icmp_signed("<", later, WORD(SLOTS)), slots, alone)

    b.position_at_end(shared)
    for value, place in (
        (b.ptrtoint(body, WORD), slot.body),
        (b.ptrtoint(given, WORD), slot.given),
        (chunks, slot.chunks),
        (WORD(0), slot.taken),
        (WORD(0), slot.status),
        (WORD(_CLAIMED | _OPEN), slot.state),
    ):
        _store(b, value, place)
    own = b.call(work, [slot.taken, body, given, chunks, WORD(_FRONT)])
    b.atomic_rmw("and", slot.state, WORD(~_OPEN), _IN_ORDER)
    with _while(b, lambda: b.icmp_signed("!=", _load(b, slot.state), WORD(_CLAIMED))) as times:
        _pause(b)
        _let_others(b, times, _LATE)
    theirs = _load(b, slot.status)
    _store(b, WORD(0), slot.state)
    b.ret(larger(b, own, theirs))

    b.position_at_end(alone)
    taken = b.alloca(WORD)
    b.store(WORD(0), taken)
    b.ret(b.call(work, [taken, body, given, chunks, WORD(_FRONT)]))


def _work_function(module: Any) -> Any:
    """Work through chunks from one end, until none is left.

    long work(long *taken, body *body, void **given, long chunks, long end)
    """
    list_ = POINTER.as_pointer()
    kind = ir.FunctionType(WORD, [WORD.as_pointer(), BODY.as_pointer(), list_, WORD, WORD])
    function = _internal(module, kind, "work")
    taken, body, given, chunks, end = function.args
    b = ir.IRBuilder(function.append_basic_block())
    status = b.alloca(WORD)
    b.store(WORD(0), status)
    seen = b.alloca(WORD)

    def more() -> Any:
        b.store(b.atomic_rmw("add", taken, end, _IN_ORDER), seen)
        return b.icmp_signed("<", _count(b, b.load(seen)), chunks)

    with _while(b, more):
        front, back = _ends(b, b.load(seen))
        from_end = b.sub(b.sub(chunks, WORD(1)), back)
        chunk = b.select(b.icmp_signed("==", end, WORD(_FRONT)), front, from_end)
        found = b.call(body, [given, chunk])
        b.store(larger(b, b.load(status), found), status)
    b.ret(b.load(status))
    return function


def _help_function(module: Any) -> Any:
    """Work as a helper, until `patience` polls in a row have found nothing, or the pool's crew
    isn't this helper's any more.

    void help(long crew, long patience)
    """
    function = _internal(module, ir.FunctionType(ir.VoidType(), [WORD, WORD]), "help")
    crew, patience = function.args
    b = ir.IRBuilder(function.append_basic_block())
    work = _work_function(module)
    idle = b.alloca(WORD)
    b.store(WORD(0), idle)
    b.atomic_rmw("add", _word(b, AWAKE), WORD(1), _IN_ORDER)

    def wanted() -> Any:
        same = b.icmp_signed("==", _load(b, _word(b, CREW)), crew)
        return b.and_(same, b.icmp_signed("<", b.load(idle), patience))

    with _while(b, wanted):
        b.store(b.add(b.load(idle), WORD(1)), idle)
        with cgutils.for_range(b, WORD(SLOTS)) as loop:
            slot = _Slot(b, loop.index)
            state = _load(b, slot.state)
            is_open = b.icmp_signed("!=", b.and_(state, WORD(_OPEN)), WORD(0))
            left = b.icmp_signed("<", _count(b, _load(b, slot.taken)), _load(b, slot.chunks))
            with b.if_then(b.and_(is_open, left)):
                inside = b.add(state, WORD(_ENTERED))
                tried = b.cmpxchg(slot.state, state, inside, _IN_ORDER, _IN_ORDER)
                with b.if_then(b.extract_value(tried, 1)):
                    body = b.inttoptr(_load(b, slot.body), BODY.as_pointer())
                    given = b.inttoptr(_load(b, slot.given), POINTER.as_pointer())
                    chunks = _load(b, slot.chunks)
                    found = b.call(work, [slot.taken, body, given, chunks, WORD(_BACK)])
                    b.atomic_rmw("max", slot.status, found, _IN_ORDER)
                    b.atomic_rmw("sub", slot.state, WORD(_ENTERED), _IN_ORDER)
                    b.store(WORD(0), idle)
        _pause(b)
        _let_others(b, b.load(idle), _OFTEN)
    b.atomic_rmw("sub", _word(b, AWAKE), WORD(1), _IN_ORDER)
    b.ret_void()
    return function


def _internal(module: Any, kind: Any, name: str) -> Any:
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function


def _ends(b: Any, taken: Any) -> tuple[Any, Any]:
    """The numbers of chunks taken from the front and from the end. They may count past the last
    chunk."""
    return b.and_(taken, WORD(_BACK - 1)), b.lshr(taken, WORD(32))


def _count(b: Any, taken: Any) -> Any:
    return b.add(*_ends(b, taken))


@contextmanager
def _while(b: Any, holds: Callable[[], Any]) -> Any:
    """A loop. Yields the number of its round."""
    before = b.block
    head, body, after = (b.append_basic_block() for _ in range(3))
    b.branch(head)
    b.position_at_end(head)
    times = b.phi(WORD)
    times.add_incoming(WORD(0), before)
    b.cbranch(holds(), body, after)
    b.position_at_end(body)
    yield times
    times.add_incoming(b.add(times, WORD(1)), b.block)
    b.branch(head)
    b.position_at_end(after)


def _pause(b: Any) -> None:
    """Tell the processor that this loop waits for another core."""
    if platform.machine() in ("x86_64", "AMD64"):
        name, given = "llvm.x86.sse2.pause", []
    elif platform.machine() in ("aarch64", "arm64"):
        name, given = "llvm.aarch64.hint", [INT(1)]
    else:
        return
    kind = ir.FunctionType(ir.VoidType(), [x.type for x in given])
    b.call(cgutils.get_or_insert_function(b.module, kind, name), given)


def _let_others(b: Any, times: Any, every: int) -> None:
    """Every `every` rounds, offer this core to another thread. That may be one that is waited for;
    and the system learns that this thread could use an idle core."""
    name = "sched_yield" if os.name == "posix" else "SwitchToThread"
    kind = ir.FunctionType(INT, [])
    last = WORD(every - 1)
    with b.if_then(b.icmp_signed("==", b.and_(times, last), last), likely=False):
        b.call(cgutils.get_or_insert_function(b.module, kind, name), [])
