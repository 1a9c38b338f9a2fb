"""Guards on real numbers that the traced function used as plain numbers. Their text says why there
is no derivative through them."""

from __future__ import annotations

from tapegrad.ir.tape import Guard

PLAIN = "a plain number: "  # the start of such a guard's text


def lost_by(guard: Guard) -> str:
    """The reason why the guarded number has no derivative, or "" for other guards."""
    return guard.what.removeprefix(PLAIN) if guard.what.startswith(PLAIN) else ""
