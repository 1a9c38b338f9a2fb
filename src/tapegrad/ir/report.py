"""The report on a tape's use of memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryReport:
    """Counts and bytes of a tape's values, and how much memory playing it takes at once.

    Parameters are the inputs that a caller passes, and constants the captured ones. Intermediates
    are the results of calls, including the tape's results. Views share the memory of the array that
    they show, so they aren't counted. The report is computed from shapes and dtypes; nothing is
    run.
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
