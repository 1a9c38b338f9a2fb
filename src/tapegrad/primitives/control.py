"""Calls that hold sub-tapes, and functions that only NumPy can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.ir.tape import Aval, Tape
from tapegrad.primitives.base import Control, Library


@dataclass(frozen=True)
class CallTape(Control):
    """Runs a sub-tape. The `inline` pass puts its calls in place of this one."""

    tape: Tape

    name = "call"

    @property
    def results(self) -> int:  # type: ignore[override]
        return len(self.tape.outputs)

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        expected = tuple(v.aval for v in self.tape.inputs)
        if tuple((x.shape, x.dtype) for x in xs) != tuple((e.shape, e.dtype) for e in expected):
            raise ValueError(f"call: the operands {xs} don't fit the sub-tape's inputs {expected}")
        return tuple(x.aval for x in self.tape.outputs)

    def evaluate(self, *xs: Any) -> Any:
        return self.tape.play(*xs)


# The reverse rule of a user's primitive: (cotangents, results, operands) -> cotangents.
Backward = Callable[..., Any]


@dataclass(frozen=True)
class Custom(Control):
    """A user's function with the user's own rule.

    `tape` is its body; the first `visible` of its outputs are the function's results and the rest
    are residuals for the rule. `backward(writer, cts, outs, xs)` gives one cotangent an operand.
    """

    label: str
    tape: Tape
    visible: int
    backward: Backward

    name = "custom"

    @property
    def results(self) -> int:  # type: ignore[override]
        return len(self.tape.outputs)

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        return tuple(x.aval for x in self.tape.outputs)

    def evaluate(self, *xs: Any) -> Any:
        return self.tape.play(*xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return custom_vjp(self.backward, self.visible, ct, out, xs)

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class Opaque(Library):
    """A user's function that a trace can't look into: NumPy runs it between the kernels."""

    label: str
    function: Callable[..., Any]
    types: tuple[Aval, ...]
    visible: int
    backward: Backward | None = None

    name = "opaque"

    @property
    def results(self) -> int:  # type: ignore[override]
        return len(self.types)

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        return self.types

    def evaluate(self, *xs: Any) -> Any:
        results = self.function(*[np.asarray(x) for x in xs])
        if self.results == 1 and not isinstance(results, tuple):
            results = (results,)
        for result, aval in zip(results, self.types, strict=True):
            if np.shape(result) != aval.shape:
                raise ValueError(
                    f"{self.label} returned an array of shape {np.shape(result)}, but "
                    f"{aval.shape} when it was traced; a primitive's result must have the same "
                    "shape for the same shapes of its arguments"
                )
        arrays = [np.asarray(r, a.dtype) for r, a in zip(results, self.types, strict=True)]
        return arrays[0] if self.results == 1 else tuple(arrays)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        if self.backward is None:
            return super().vjp(ct, out, *xs)
        return custom_vjp(self.backward, self.visible, ct, out, xs)

    def __str__(self) -> str:
        return self.label


def custom_vjp(backward: Backward, visible: int, ct: Any, out: Any, xs: tuple[Any, ...]) -> Any:
    """Call a user's reverse rule with the cotangents of the visible results."""
    cts = ct if isinstance(ct, tuple) else (ct,)
    outs = out if isinstance(out, tuple) else (out,)
    return backward(cts[:visible], outs, xs)
