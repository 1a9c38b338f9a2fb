"""Tapes that are called often within one call of the user's, such as the functions that solvers
call.

Such a call depends on the values of the inputs only. It is one Python function that NumPy runs, or
kernels as soon as there is machine code. Code is looked for now and then, and requested when the
time spent playing justifies it (`tier`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from tapegrad.backends.numpy.play import run_inner, straight
from tapegrad.backends.numpy.rounds import Broken
from tapegrad.backends.numpy.rounds import often as written
from tapegrad.checking import debug
from tapegrad.compiler.key import program_key
from tapegrad.compiler.packed import pack
from tapegrad.core.handlers import quiet_here
from tapegrad.core.late import is_loading_machine_code
from tapegrad.core.locks import remembered
from tapegrad.errors import InternalError
from tapegrad.ir.tape import Tape
from tapegrad.optimize.cse import eliminate_common
from tapegrad.optimize.inline import inline_calls
from tapegrad.runtime.entry import Miss, by_number, compiled_text, played, prepared
from tapegrad.runtime.tier import Tier
from tapegrad.runtime.variant import own

CALLS_BETWEEN_LOOKS = 32  # calls between two looks for machine code


@remembered
def guarded(tape: Tape) -> Callable[..., list[Any] | None]:
    """A tape as a function of its inputs, run by NumPy: the outputs, or None if a guard fails."""
    tape = inline_calls(tape)
    call = straight(tape)

    def called(*xs: Any) -> list[Any] | None:
        values = played(xs, tape.inputs)
        try:
            return own(call(*values), values)
        except Broken:
            return None

    return called


class HotTape:
    """A tape as a function of its inputs, which returns its outputs in order. Raises `Broken` if a
    guard fails."""

    def __init__(self, tape: Tape, name: str) -> None:
        self.tape = eliminate_common(inline_calls(tape))
        self.tier = Tier(replace(self.tape, ordered=True), "auto", name)
        self._bound: dict[int, Callable[..., Any]] = {}  # number of last inputs -> function
        self.compiled: Callable[..., list[Any]] | None = None
        self.calls = 0

    def on(self, last: Sequence[Any]) -> Callable[..., Sequence[Any]]:
        """The function of the first inputs, with these values for the last ones. It must be called
        from here: numbers are floats, and arrays are plain ndarrays."""
        inputs, count = self.tape.inputs, len(last)
        rest = inputs[len(inputs) - count :]
        ready = [prepared(x, v) for x, v in zip(last, rest, strict=True)]
        if count not in self._bound:
            self._bound[count] = written(self.tape, run_inner, count)
        play = quiet_here(self._bound[count](*played(ready, rest)))

        def called(*xs: Any) -> Sequence[Any]:
            if self.compiled is not None:
                try:
                    try:
                        return self.compiled(*xs, *ready)
                    except BufferError:  # an array that lies otherwise in memory
                        return self.compiled(*map(prepared, xs, inputs), *ready)
                except Miss:  # a guard failed, or an index is out of range: NumPy raises the error
                    pass
            self.calls += 1
            if self.calls % CALLS_BETWEEN_LOOKS:
                return play(*xs)
            start = time.perf_counter()
            try:
                return play(*xs)
            finally:
                self._look(CALLS_BETWEEN_LOOKS * (time.perf_counter() - start))

        return called

    def _look(self, seconds: float) -> None:
        """Use the machine code if it is there. `seconds` is the time spent playing since the last
        look."""
        if self.compiled is not None:
            return
        self.tier.note(seconds)
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


_tapes: WeakValueDictionary[Any, Tape] = WeakValueDictionary()


def shared_tape(tape: Tape) -> Tape:
    """An equal tape from the same lines, if there was one before; otherwise this one. Code made for
    a tape is kept with it, so it is made once for equal tapes, such as the integrands of a loop."""
    key = program_key(pack(tape))
    lines = [x.src for call in tape.calls for t in (*call.primitive.tapes, tape) for x in t.calls]
    return tape if key is None else _tapes.setdefault((key, tape.name, tuple(lines)), tape)


@remembered
def hot_tape(tape: Tape, name: str) -> HotTape:
    """The shared `HotTape` of a tape, with its machine code."""
    return HotTape(tape, name)


def _values(tape: Tape, *xs: Any) -> list[Any]:
    return played(xs, tape.inputs)
