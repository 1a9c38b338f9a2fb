"""Calls that hold sub-tapes, and functions that only NumPy can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tapegrad.errors import GradientError, TraceError
from tapegrad.ir.tape import Aval, Tape
from tapegrad.primitives.base import parametric
from tapegrad.primitives.kinds import Control, Library


class Applied(Control):
    """Runs its sub-tape once, on its operands; `ruled`, it has a rule that the sub-tape hasn't."""

    tape: Tape
    ruled: ClassVar[bool] = False

    inlined = True

    @property
    def results(self) -> int:  # type: ignore[override]
        return len(self.tape.outputs)

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        expected = tuple(v.aval for v in self.tape.inputs)
        if tuple((x.shape, x.dtype) for x in xs) != tuple((e.shape, e.dtype) for e in expected):
            raise ValueError(
                f"{self}: the operands {xs} don't fit the sub-tape's inputs {expected}"
            )
        return tuple(x.aval for x in self.tape.outputs)

    def played(self, run: Callable[[Tape, Sequence[Any]], list[Any]], *xs: Any) -> Any:
        results = run(self.tape, xs)
        return results[0] if len(results) == 1 else tuple(results)


@parametric
class CallTape(Applied):
    """Runs a sub-tape. The `inline` pass puts its calls in place of this one."""

    tape: Tape

    name = "call"
    of_complex = True


# The reverse rule of a user's primitive: `backward(cts, outs, xs)` gives one cotangent an operand,
# for the cotangents of the results, the results and the operands. All are nodes.
Backward = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]

# A forward rule: `forward(ts, outs, xs)` gives one tangent a result, for the tangents of the
# operands. None is one of 0.
Forward = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]


@parametric
class Custom(Applied):
    """A user's function with the user's own reverse rule.

    `tape` is its body. Its last inputs may be residuals, which the body doesn't read: they are
    there for the rule.
    """

    label: str
    tape: Tape
    backward: Backward

    name = "custom"
    of_complex = True
    ruled = True

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return self.backward(_as_tuple(ct), _as_tuple(out), xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        raise GradientError(f"{self.label} has a reverse rule of its own, and no forward rule")

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        return ("label", self.label), ("tape", self.tape), ("backward", self.backward)

    def __str__(self) -> str:
        return self.label


@parametric
class ForeignCall(Library):
    """A user's function that a trace can't look into: NumPy runs it between the kernels.

    `function` takes the operands' arrays and returns a list of results, whose types are `types` at
    every call. The first `visible` are the function's; the rest are residuals for the rule, which
    have no derivative. `why` says what kept the trace out.
    """

    label: str
    function: Callable[..., Any]
    types: tuple[Aval, ...]
    visible: int
    backward: Backward | None = None
    why: str = ""
    forward: Forward | None = None
    of_complex: bool = False

    name = "foreign_call"
    foreign = True

    @property
    def results(self) -> int:  # type: ignore[override]
        return len(self.types)

    def aval(self, *xs: Aval) -> tuple[Aval, ...]:
        return self.types

    def evaluate(self, *xs: Any) -> Any:
        results = [np.asarray(result) for result in self.function(*xs)]
        if len(results) != len(self.types):
            raise TraceError(
                f"{self.label} returned {len(results)} arrays, and {len(self.types)} when it was "
                "traced. NumPy runs it between compiled code, so what it returns must have one "
                "structure"
            )
        for result, aval in zip(results, self.types, strict=True):
            same = result.shape == aval.shape
            if not same or not np.can_cast(result.dtype, aval.dtype, "same_kind"):
                raise TraceError(
                    f"{self.label} returned an array of shape {result.shape} and dtype "
                    f"{result.dtype}, and one of shape {aval.shape} and dtype {aval.dtype} when it "
                    "was traced. NumPy runs it between compiled code, so the shape and dtype of a "
                    "result may only depend on those of the arguments"
                )
        # Copies: the function may keep what it returned, or have returned one of its arguments.
        found = tuple(
            np.array(result, aval.dtype, order="C")[()]
            if aval.shape == ()
            else np.array(result, aval.dtype, order="C")
            for result, aval in zip(results, self.types, strict=True)
        )
        return found[0] if self.results == 1 else found

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        if self.backward is None:
            reason = f": {self.why}" if self.why else ""
            raise GradientError(
                f"{self.label} has no derivative rule, and its body can't be traced{reason}"
            )
        return self.backward(_as_tuple(ct)[: self.visible], _as_tuple(out), xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        if self.forward is None:
            raise GradientError(f"{self.label} has no forward rule, and its body can't be traced")
        found = self.forward(ts, _as_tuple(out), xs)
        return found[0] if self.results == 1 else tuple(found)

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        return ("label", self.label), ("function", self.function)

    def __str__(self) -> str:
        return self.label


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)
