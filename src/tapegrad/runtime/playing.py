"""The entry of a variant that is played often: its arguments are unpacked as for kernels, and NumPy
runs the tape as one Python function.

Like a compiled entry it is tried before the cache, until there is machine code.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import run_inner
from tapegrad.backends.numpy.rounds import Broken, whole
from tapegrad.backends.source.driver import Driver, Variable
from tapegrad.core.arrays import plain
from tapegrad.core.handlers import ignoring, let_through
from tapegrad.core.request import Request, leaf_key
from tapegrad.errors import TapeError, TapegradError
from tapegrad.ir.tape import Tape
from tapegrad.runtime.entry import Entry, Miss, Text

REPORT_INTERVAL = 1e-4  # seconds between two reports to the variant
PATIENCE = 8  # misses minus answers after which an entry is dropped


class _OneCall(Driver):
    """The driver of a function whose results need no conversion."""

    def results(self) -> list[str]:
        return [x.name for x in self.outputs]


class PlayedText(Text):
    """The source of a function around one call: of the tape as a Python function."""

    def __init__(self, tape: Tape) -> None:
        names: dict[str, Any] = {"played": _caught(whole(tape, run_inner, own=True))}
        inputs = [Variable(f"x{k}", v.shape, v.dtype) for k, v in enumerate(tape.inputs)]
        outputs = [Variable(f"y{k}", v.aval.shape, v.dtype) for k, v in enumerate(tape.outputs)]
        given = []
        for x in inputs:
            number = f"as_{x.dtype.name}"
            names[number] = x.dtype.type
            given.append(x.name if x.shape else f"{number}({x.name})")
        targets = "".join(f"{y.name}, " for y in outputs)
        line = f"{targets}{'= ' * bool(outputs)}played({', '.join(given)})"
        super().__init__(_OneCall(tuple(inputs), tuple(outputs), (), (), (line,)), names)

    def unfit(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> str:
        """The condition that an array has another shape, dtype or layout. NumPy takes any layout,
        but what is a view may depend on it."""
        kind, own = self.named("ndarray", np.ndarray), self.named("dtype", dtype)
        return (
            f"{self.named('type', type)}({name}) is not {kind} or {name}.shape != {shape}"
            f" or {name}.dtype != {own} or not {name}.flags.c_contiguous"
        )

    def of_layout(self, name: str, given: str, key: Any, dtype: np.dtype) -> list[str]:
        there = f"{self.named('leaf_key', leaf_key)}({given}) != {self.named('key', key)}"
        return [*self.missed(there), f"{name} = {self.named('plain', plain)}({given})"]


def _caught(function: Callable[..., Any]) -> Callable[..., Any]:
    """A tape's function without NumPy's warnings. It raises `Miss` if a guard fails, or if it
    raises an error: then a new trace shows the user where, or follows a path without it."""

    def played(*xs: Any) -> Any:
        try:
            return copy_context().run(ignoring, function, xs, {})
        except Broken:
            raise Miss from None
        except Exception as error:
            let_through(error)
            if isinstance(error, TapegradError) and not isinstance(error, TapeError):
                raise
            raise Miss from None

    return played


class Playing:
    """The entry for calls of a variant while there is no machine code.

    While the variant measures the time or waits for code (`told`), it gets reports; not at each
    call, since checking takes as long as a few operations.
    """

    def __init__(self, variant: Any, request: Request) -> None:
        # Entries don't hold their variants, which hold the front.
        self._variant = weakref.ref(variant)
        self.tape = variant.tape
        text = PlayedText(self.tape)
        self._entry = Entry(variant.derivation, variant.state, text, request, watched=False)
        self.fast, self.named = self._entry.fast, self._entry.named
        self.shapes = self._entry.shapes
        self.told = True
        self.last, self.seconds = 0.0, 0.0  # time of the last report, and seconds of calls since
        self.missed = 0  # misses minus answers

    def call(self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        start = 0.0
        if self.told:
            start = time.perf_counter()
            if start - self.last > REPORT_INTERVAL:
                self._tell(start)
        try:
            found = self._entry.call(root, args, kwargs)
        except Miss:
            self.missed += 1
            variant = self._variant()
            if self.missed > PATIENCE and variant is not None:
                variant.front.drop(self)
            raise
        if self.told:
            self.seconds += time.perf_counter() - start
        if self.missed:  # entries tried before it have missed this call
            self.missed -= 1
            variant = self._variant()
            if variant is not None and variant.front.tries(self):
                variant.front.first(self)
        return found

    def _tell(self, now: float) -> None:
        """Report to the variant before a call. The call misses if there is machine code for it."""
        variant, seconds = self._variant(), self.seconds
        self.last, self.seconds = now, 0.0
        if variant is not None and not variant.goes_on(self, seconds):
            raise Miss
