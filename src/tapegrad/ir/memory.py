"""Memory use of a tape, computed from its types and the order of its calls, and last uses of
values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from tapegrad.core.values import Source
from tapegrad.ir.report import MemoryReport
from tapegrad.ir.tape import Call, Tape, Var


def last_uses(tape: Tape) -> dict[int, list[int]]:
    """A map from the position of a call to the ids of the variables that are not read after it."""
    last: dict[int, int] = {}
    for position, call in enumerate(tape.calls):
        for x in call.operands:
            if isinstance(x, Var):
                last[x.id] = position
        for out in call.outs:
            last.setdefault(out.id, position)
    kept = {x.id for x in (*tape.outputs, *(g.operand for g in tape.guards)) if isinstance(x, Var)}
    dead: dict[int, list[int]] = {}
    for var, position in last.items():
        if var not in kept:
            dead.setdefault(position, []).append(var)
    return dead


def constants(tape: Tape) -> tuple[Var, ...]:
    """The inputs that are arrays which the function used without being passed them."""
    return tape.inputs[len(tape.inputs) - max(len(tape.captured), len(tape.outside)) :]


def made_at(tape: Tape, var: Var) -> Source | None:
    """The line where such an array was made, if it is known."""
    made = dict(zip(constants(tape), tape.outside, strict=False))
    return made.get(var)


def first_read(tape: Tape, var: Var) -> Source | None:
    """The line of the first call that reads a variable."""
    return next((call.src for call in tape.calls if var in call.operands and call.src), None)


def memory_report(tape: Tape, scratch_bytes: int | None = None) -> MemoryReport:
    """The memory report of a tape, computed from its types and the order of its calls."""
    captured = constants(tape)
    free = tape.inputs[: len(tape.inputs) - len(captured)]
    bases = _bases(tape)
    made = [(call, out) for call in tape.calls for out in call.outs if bases[out] == out]
    inside = _inside(tape)
    read_backward = {
        bases[x]
        for call in tape.calls
        if call.is_cotangent
        for x in call.operands
        if isinstance(x, Var)
    }
    kept = [(c, out) for c, out in made if not (c.is_cotangent or c.primitive.memory.unset)]
    saved = [out for _, out in kept if out in read_backward]
    return MemoryReport(
        parameter_count=len(free),
        parameter_bytes=_total(free),
        constant_count=len(captured),
        constant_bytes=_total(captured),
        intermediate_count=len(made) + sum(each.values for each in inside.values()),
        intermediate_bytes=_total(out for _, out in made) + sum(x.nbytes for x in inside.values()),
        peak_live_bytes=max(_live(tape, bases, inside), default=0),
        saved_for_backward_bytes=_total(saved),
        scratch_bytes=scratch_bytes,
    )


def live_bytes(tape: Tape) -> list[int]:
    """The bytes of live intermediates at each call, without the tape's results."""
    results = {x for x in tape.outputs if isinstance(x, Var)}
    return _live(tape, _without(results, _bases(tape)), _inside(tape))


def bytes_inside(tapes: Iterable[Tape]) -> int:
    """The peak of live bytes while a call runs its sub-tapes, without the call's results."""
    return max([_of_body(tape).peak for tape in tapes], default=0)


class _Inside(NamedTuple):
    """Number, total bytes and peak bytes of the values that exist only while a call runs its
    sub-tapes."""

    values: int
    nbytes: int
    peak: int


def _inside(tape: Tape) -> dict[int, _Inside]:
    """The values inside calls with sub-tapes, by the position of the call."""
    found = {}
    for position, call in enumerate(tape.calls):
        if held := [_of_body(inner) for inner in call.primitive.tapes]:
            counts, totals, peaks = zip(*held, strict=True)
            found[position] = _Inside(sum(counts), sum(totals), max(peaks))
    return found


def _of_body(tape: Tape) -> _Inside:
    """The values of one sub-tape, without its outputs. Those are the call's results and are counted
    there, as if their memory existed from the start."""
    results = {x for x in tape.outputs if isinstance(x, Var)}
    left = _without(results, _bases(tape))
    made = [out for call in tape.calls for out in call.outs if left[out] == out]
    inside = _inside(tape)
    return _Inside(
        len(made) + sum(each.values for each in inside.values()),
        _total(made) + sum(each.nbytes for each in inside.values()),
        max(_live(tape, left, inside), default=0),
    )


def _total(variables: Iterable[Var]) -> int:
    return sum(var.aval.nbytes for var in variables)


def _bases(tape: Tape) -> dict[Var, Var | None]:
    """A map from each variable to the variable whose memory it shows: itself, unless it is a view.
    A view of a literal shows no array's memory and maps to None."""
    bases: dict[Var, Var | None] = {var: var for var in tape.inputs}
    for call in tape.calls:
        for out in call.outs:
            if call.primitive.memory.is_view:
                shown, *_ = call.operands  # the other operands of a window are steps
                bases[out] = bases[shown] if isinstance(shown, Var) else None
            else:
                bases[out] = out
    return bases


def _without(results: Iterable[Var], bases: dict[Var, Var | None]) -> dict[Var, Var | None]:
    """`bases` with None for variables that show the memory of a result."""
    shown = {bases[x] for x in results}
    return {var: None if base in shown else base for var, base in bases.items()}


def held_at_peak(tape: Tape) -> list[tuple[Var | None, Call, int]]:
    """The intermediates that are live at the first call with the most live bytes, as (variable,
    call that made it, bytes). Memory that exists only while that call runs its sub-tapes has the
    variable None."""
    bases, inside = _bases(tape), _inside(tape)
    live = _live(tape, bases, inside)
    if not live:
        return []
    peak, last = live.index(max(live)), _last_uses(tape, bases)
    found: list[tuple[Var | None, Call, int]] = [
        (out, call, out.aval.nbytes)
        for call in tape.calls[: peak + 1]
        for out in call.outs
        if bases[out] == out and last[out] >= peak
    ]
    if peak in inside:
        found.append((None, tape.calls[peak], inside[peak].peak))
    return [x for x in found if x[-1]]


def _last_uses(tape: Tape, bases: dict[Var, Var | None]) -> dict[Var | None, int]:
    """The position of the last use of each variable's memory."""
    end = len(tape.calls)
    last: dict[Var | None, int] = {}
    for position, call in enumerate(tape.calls):
        for x in (*call.outs, *call.operands):
            if isinstance(x, Var):
                last[bases[x]] = position
    for x in (*tape.outputs, *(guard.operand for guard in tape.guards)):
        if isinstance(x, Var):
            last[bases[x]] = end
    return last


def _live(tape: Tape, bases: dict[Var, Var | None], inside: dict[int, _Inside]) -> list[int]:
    """The bytes of live intermediates at each call. A value lives from its call to the last use of
    its memory."""
    inputs = set(tape.inputs)
    freed = [0] * (len(tape.calls) + 1)
    for base, position in _last_uses(tape, bases).items():
        if base is not None and base not in inputs:
            freed[position] += base.aval.nbytes
    live, found = 0, []
    for position, call in enumerate(tape.calls):
        live += _total(out for out in call.outs if bases[out] == out)
        found.append(live + (inside[position].peak if position in inside else 0))
        live -= freed[position]
    return found


def matrix_bytes(tape: Tape, least: int) -> float:
    """The bytes of the results, if these are large: matrices of derivatives, or results that
    outgrow the arguments, such as kernels of points. Otherwise infinity, meaning no bound."""
    results, free = (sum(x.aval.nbytes for x in xs) for xs in (tape.outputs, tape.free_inputs))
    outgrow = tape.matrices or results > 16 * free
    return results if outgrow and results > least else math.inf
