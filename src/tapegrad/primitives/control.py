"""Calls with sub-tapes, and calls of functions that only NumPy can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tapegrad.errors import GradientError, RuleError, TraceError
from tapegrad.ir.tape import Aval, Call, Tape, with_inner
from tapegrad.primitives.base import parametric
from tapegrad.primitives.kinds import Control, Library
from tapegrad.primitives.transposing import pulled_by, pushed_by


class Applied(Control):
    """A primitive that runs its sub-tape once, on its operands. If `ruled`, its derivative isn't
    the sub-tape's."""

    tape: Tape
    ruled: ClassVar[bool] = False

    inlined = True

    @property
    def results(self) -> int:  # type: ignore[override]
        return len(self.tape.outputs)

    @property
    def checks(self) -> bool:
        return bool(self.tape.outputs) and any(c.primitive.checks for c in self.tape.calls)

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
    """A call of a sub-tape. The pass `inline` replaces it by the sub-tape's calls."""

    tape: Tape

    name = "call"
    of_complex = True


# The reverse rule of a user's primitive: `backward(cts, outs, xs)` returns one cotangent an
# operand, for the cotangents of the results, the results and the operands. All are nodes.
Backward = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]

# A forward rule: `forward(ts, outs, xs)` returns one tangent a result, for the tangents of the
# operands. None is a zero tangent.
Forward = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]


@parametric
class Custom(Applied):
    """A user's function with a rule of the user's own, in one mode or in both.

    `tape` is its body. Its last inputs may be residuals, which only the rules read.
    """

    label: str
    tape: Tape
    backward: Backward | None
    forward: Forward | None = None

    name = "custom"
    of_complex = True
    ruled = True

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return pulled_back(self, _as_tuple(ct), _as_tuple(out), xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return pushed_forward(self, ts, out, xs)

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        rules = (("backward", self.backward), ("forward", self.forward))
        given = [(name, rule) for name, rule in rules if rule is not None]
        return ("label", self.label), ("tape", self.tape), *given

    def __str__(self) -> str:
        return self.label


NOT_CONVERGED = (
    "it hasn't converged, so it isn't known what its result is near to. Give it more steps "
    "(maxiter, maxfun, max_nfev), or a nearer start"
)


@parametric
class ForeignCall(Library):
    """A user's function that can't be traced. NumPy runs it between the kernels.

    `function` takes the operands' arrays and returns a list of results, whose types are `types` at
    every call. The first `visible` results are the function's. The others are residuals for the
    rule and have no derivative. `why` is the reason that it can't be traced.
    """

    label: str
    function: Callable[..., Any]
    types: tuple[Aval, ...]
    visible: int
    backward: Backward | None = None
    why: str = ""
    forward: Forward | None = None
    of_complex: bool = False
    repeatable: bool = False  # has no side effects: a call may be abandoned and repeated
    effect: Any = None  # identifies a call that is made for its side effect; else None

    name = "foreign_call"
    absent = False
    foreign = True

    @property
    def results(self) -> int:  # type: ignore[override]
        return len(self.types)

    @property
    def checks(self) -> bool:
        return self.effect is not None

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
        # Copies: the function may keep an array that it returned, or return one of its arguments.
        found = tuple(
            np.array(result, aval.dtype, order="C")[()]
            if aval.shape == ()
            else np.array(result, aval.dtype, order="C")
            for result, aval in zip(results, self.types, strict=True)
        )
        return found[0] if self.results == 1 else found

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        self._refuse()
        return pulled_back(self, _as_tuple(ct)[: self.visible], _as_tuple(out), xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        self._refuse()
        return pushed_forward(self, ts, out, xs)

    def _refuse(self) -> None:
        if self.backward is None and self.forward is None:
            reason = self.why or "its body can't be traced"
            raise GradientError(f"{self.label} has no derivative rule: {reason}")

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        return ("label", self.label), ("function", self.function)

    def __str__(self) -> str:
        return self.label


def without_effects(tape: Tape) -> Tape:
    """The tape without the calls that are made for a side effect. For a second run: the effects
    have happened."""
    calls = [c for c in tape.calls if getattr(c.primitive, "effect", None) is None]
    if len(calls) < len(tape.calls):
        tape = replace(tape, calls=tuple(calls))
    return with_inner(tape, without_effects)


def quietly(call: Call) -> Call:
    """The call without side effects in its sub-tapes, for a second run: see `without_effects`."""
    held = call.primitive.tapes
    if not held:
        return call
    return replace(call, primitive=call.primitive.with_tapes([*map(without_effects, held)]))


def has_effects(tape: Tape) -> bool:
    """Whether the tape makes calls for their side effects."""
    return any(tells(c.primitive) for c in tape.calls)


def tells(primitive: Any) -> bool:
    """Whether a call of this primitive has a side effect, itself or in its sub-tapes."""
    return getattr(primitive, "effect", None) is not None or any(map(has_effects, primitive.tapes))


def pulled_back(
    call: Custom | ForeignCall, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]
) -> Sequence[Any]:
    """The cotangents of the operands, by the user's rule of either mode."""
    rule = call.forward
    if call.backward is not None:
        return call.backward(cts, outs, xs)
    assert rule is not None
    try:
        return pulled_by(rule, cts, outs, xs)
    except RuleError:
        raise
    except GradientError as error:
        raise GradientError(
            f"{call.label} has a forward rule alone, and a reverse one can't be made of it: {error}"
        ) from None


def pushed_forward(
    call: Custom | ForeignCall, ts: Sequence[Any], out: Any, xs: Sequence[Any]
) -> Any:
    """The tangents of the results, by the user's rule of either mode."""
    rule = call.backward
    if call.forward is not None:
        found = call.forward(ts, _as_tuple(out), xs)
        return found[0] if call.results == 1 else tuple(found)
    assert rule is not None
    try:
        return pushed_by(lambda ct, out, *xs: rule(_as_tuple(ct), _as_tuple(out), xs), ts, out, *xs)
    except RuleError:
        raise
    except GradientError as error:
        raise GradientError(
            f"{call.label} has a reverse rule alone, and a forward one can't be made of it: {error}"
        ) from None


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)
