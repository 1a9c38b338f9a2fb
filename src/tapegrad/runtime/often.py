"""Tapes that are called often within one call of the user's, as solvers call what they solve.

Such a call looks at nothing but the values of the inputs. It is one Python function that NumPy
runs, and one of kernels as soon as there is machine code: that is looked for now and then, and
asked for where the time that goes into playing says so (`tier`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tapegrad.backends.numpy.play import straight
from tapegrad.backends.numpy.rounds import Broken
from tapegrad.checking import debug
from tapegrad.core.late import is_loading_machine_code
from tapegrad.errors import InternalError
from tapegrad.ir.tape import Tape
from tapegrad.optimize.inline import inline_calls
from tapegrad.runtime.entry import Miss, by_number, compiled_text, played, prepared
from tapegrad.runtime.tier import Tier
from tapegrad.runtime.variant import own

SOME = 32  # calls, after which machine code is looked for


def guarded(tape: Tape) -> Callable[..., list[Any] | None]:
    """A tape as a function of its inputs, which NumPy runs: its outputs, or None where a guard
    doesn't hold."""
    tape = inline_calls(tape)
    call = straight(tape)

    def called(*xs: Any) -> list[Any] | None:
        values = played(xs, tape.inputs)
        try:
            return own(call(*values), values)
        except Broken:
            return None

    return called


class Often:
    """A tape without guards as a function of its inputs, which returns the list of its outputs."""

    def __init__(self, tape: Tape, name: str) -> None:
        self.tape = inline_calls(tape)
        self.tier = Tier(replace(self.tape, ordered=True), "auto", name)
        self.play = straight(self.tape)
        self.compiled: Callable[..., list[Any]] | None = None
        self.calls = 0
        self.seconds = 0.0

    def on(self, last: Sequence[Any]) -> Callable[..., list[Any]]:
        """The function of the first inputs, where the last ones are these."""
        inputs = self.tape.inputs
        first = len(inputs) - len(last)
        ready = [prepared(x, v) for x, v in zip(last, inputs[first:], strict=True)]
        plain = played(ready, inputs[first:])

        def called(*xs: Any) -> list[Any]:
            if self.compiled is not None:
                try:
                    return self.compiled(*map(prepared, xs, inputs), *ready)
                except Miss:  # an index out of range: NumPy says so
                    pass
            return self._played([*played(xs, inputs), *plain])

        return called

    def _played(self, values: Sequence[Any]) -> list[Any]:
        start = time.perf_counter()
        found = own(self.play(*values), values)
        self.seconds += time.perf_counter() - start
        self.calls += 1
        if self.calls % SOME == 0 and self.compiled is None:
            self.tier.note(self.seconds)
            self.seconds = 0.0
            self._look()
        return found

    def _look(self) -> None:
        """Use the machine code, if it is there."""
        executable = None if is_loading_machine_code() else self.tier.executable()
        if executable is None:
            return
        try:
            text = compiled_text(executable)
        except InternalError as error:
            self.tier.refuse(str(error))
            return
        call = text.flat(text.driver.inputs)
        self.compiled = debug.watched(call, self.tape, partial(_values, self.tape), by_number)
        self.tier.settle(executable)


def _values(tape: Tape, *xs: Any) -> list[Any]:
    return played(xs, tape.inputs)
