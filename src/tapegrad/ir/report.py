"""What a tape takes in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tapegrad.ir.tape import Tape, Var


@dataclass(frozen=True)
class MemoryReport:
    """Counts and bytes of a tape's values, and how much memory playing it takes at once.

    Parameters are the inputs that a caller passes, constants the captured ones, intermediates
    what the calls make, results included. Views share the memory of what they show, so they aren't
    counted. Shapes and dtypes decide; nothing is run.
    """

    parameter_count: int
    parameter_bytes: int
    constant_count: int
    constant_bytes: int
    intermediate_count: int
    intermediate_bytes: int
    peak_live_bytes: int
    """The most that intermediates take at any one time, played call by call and freed after their
    last use."""
    saved_for_backward_bytes: int
    """The intermediates of the forward half that the backward half reads."""
    scratch_bytes: int | None = None
    """What the compiled code needs besides its arguments and results: fused loops keep most
    intermediates in registers, and the others take turns. None if that wasn't planned."""

    def __str__(self) -> str:
        def part(count: int, word: str, nbytes: int) -> str:
            return f"{count} {word}{'' if count == 1 else 's'} {size(nbytes)}"

        parts = [
            part(self.parameter_count, "parameter", self.parameter_bytes),
            part(self.constant_count, "constant", self.constant_bytes),
            part(self.intermediate_count, "intermediate", self.intermediate_bytes),
        ]
        peak, saved = size(self.peak_live_bytes), size(self.saved_for_backward_bytes)
        text = f"{', '.join(parts)}; {peak} live at the peak, {saved} saved for backward"
        scratch = self.scratch_bytes
        return text if scratch is None else f"{text}; {size(scratch)} of scratch when compiled"


def size(nbytes: int) -> str:
    """Bytes for reading, in decimal units: `8 B`, `1.5 kB`, `12.3 MB`."""
    if nbytes < 1000:
        return f"{nbytes} B"
    amount = float(nbytes)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"


def memory_report(tape: Tape, scratch_bytes: int | None = None) -> MemoryReport:
    """Measure a tape by its types and the order of its calls."""
    free = tape.free_inputs
    constants = tape.inputs[len(free) :]
    bases = _bases(tape)
    made = [(call, out) for call in tape.calls for out in call.outs if bases[out] == out]
    read_backward = {
        bases[x]
        for call in tape.calls
        if call.is_cotangent
        for x in call.operands
        if isinstance(x, Var)
    }
    saved = [out for call, out in made if not call.is_cotangent and out in read_backward]
    return MemoryReport(
        parameter_count=len(free),
        parameter_bytes=_total(free),
        constant_count=len(constants),
        constant_bytes=_total(constants),
        intermediate_count=len(made),
        intermediate_bytes=_total(out for _, out in made),
        peak_live_bytes=_peak(tape, bases),
        saved_for_backward_bytes=_total(saved),
        scratch_bytes=scratch_bytes,
    )


def _total(variables: Iterable[Var]) -> int:
    return sum(var.aval.nbytes for var in variables)


def _bases(tape: Tape) -> dict[Var, Var | None]:
    """Each variable -> the one whose memory it shows: itself, unless it is a view. A view of a
    literal shows no array's memory."""
    from tapegrad.primitives.base import View

    bases: dict[Var, Var | None] = {var: var for var in tape.inputs}
    for call in tape.calls:
        for out in call.outs:
            if isinstance(call.primitive, View):
                (shown,) = call.operands
                bases[out] = bases[shown] if isinstance(shown, Var) else None
            else:
                bases[out] = out
    return bases


def _peak(tape: Tape, bases: dict[Var, Var | None]) -> int:
    """The peak of live intermediates: a value lives from its call to the last use of its memory."""
    end = len(tape.calls)
    last: dict[Var | None, int] = {}
    for position, call in enumerate(tape.calls):
        for x in (*call.outs, *call.operands):
            if isinstance(x, Var):
                last[bases[x]] = position
    for x in (*tape.outputs, *(guard.operand for guard in tape.guards)):
        if isinstance(x, Var):
            last[bases[x]] = end
    inputs = set(tape.inputs)
    freed = [0] * (end + 1)
    for base, position in last.items():
        if base is not None and base not in inputs:
            freed[position] += base.aval.nbytes
    live = peak = 0
    for position, call in enumerate(tape.calls):
        live += _total(out for out in call.outs if bases[out] == out)
        peak = max(peak, live)
        live -= freed[position]
    return peak
