"""Real numbers that a traced function took for plain ones: a guard says so, and why no derivative
can go through it."""

from __future__ import annotations

from tapegrad.ir.tape import Guard

PLAIN = "a plain number: "  # begins what such a guard says


def lost_by(guard: Guard) -> str:
    """Why there is no derivative with respect to what the guard's number is made of."""
    return guard.what.removeprefix(PLAIN) if guard.what.startswith(PLAIN) else ""
