"""Errors of code in C that gets a traced value, which the program catches."""

from __future__ import annotations

from typing import Any

from tapegrad.errors import UnsupportedError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.catching import is_caught
from tapegrad.observe.guards.uses import Then, both
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.operands.plainness import takes_numbers
from tapegrad.observe.program.frames import MISSING
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.base import Value

_OF_MEMORY = (memoryview, bytes, bytearray)


def unless_caught(a: Activation, f: Any, passed: Any, note: Then | None) -> Then | None:
    """What is noted of a call, and besides: where code in C gets a traced value, raises an error
    and the program catches it, the trace is refused. Of plain arrays there might be none."""
    if not (takes_numbers(f) or any(f is x for x in _OF_MEMORY)):
        return note
    if not isinstance(passed, (list, tuple)):
        return note
    given = [y for x in passed for y in (x if type(x) in (list, tuple) else (x,))]
    if not any(isinstance(x, Value) for x in given):
        return note

    def done(result: Any) -> None:
        if result is MISSING and is_caught(a):
            a.o.refuse(
                UnsupportedError(
                    f"{name_of(f)} was called with a traced value{at_line()}, raised an error, and "
                    "the program catches it. A package's code in C takes plain values alone, so it "
                    "might be the error of that. Use a function of NumPy's, or declare a function "
                    "that makes this call with tapegrad.primitive and defvjp"
                )
            )

    return both(note, done)
