"""Pullbacks: from the cotangent of a function's value to those of its arguments.

The tape of the gradient, with the cotangent as an input, falls into two parts. What doesn't
depend on the cotangent runs once, when the pullback is made; the rest is linear in the cotangent
and runs at each call:

    inp %1 = x, %2 = ct          once:   inp %1 = x           each:   inp %2 = ct, %3
        %3 = cos(%1)                         %3 = cos(%1)                 %4 = mul(%2, %3)
        %4 = mul(%2, %3)                 out %3                       out %4
    out %4
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.core.arrays import own_behaviour
from tapegrad.core.request import Request
from tapegrad.core.trees import flatten_up_to, is_array, is_traced, unflatten
from tapegrad.differentiate.partial_eval import partial_eval
from tapegrad.errors import ArgumentError
from tapegrad.ir.tape import Aval, Tape
from tapegrad.pipeline import derive, finished, optimized
from tapegrad.runtime.traced import traced as made
from tapegrad.runtime.variant import own
from tapegrad.tracing.run import Traced, input_aval, own_result, plain_value, replay
from tapegrad.tracing.tracer import Tracer


def vjp(
    f: Callable[..., Any], args: Sequence[Any], checkpoint: str | int = "auto"
) -> tuple[Any, Pullback]:
    """The value of `f(*args)` and its pullback; see `tapegrad.vjp`."""
    if not callable(f):
        raise ArgumentError(f"vjp needs a function, not {f!r}")
    request = Request(f, args).check("vjp")
    request.passes_on = True
    inputs = request.inputs
    real = [is_traced(x) and input_aval(x).dtype.kind in "fc" for x in request.leaves]
    wrt = [k for k, x in enumerate(inputs) if input_aval(x).dtype.kind in "fc"]

    def make(traced: Traced) -> tuple[Tape, Traced]:
        outputs = _outputs(traced)
        whole = replace(traced.tape, outputs=outputs)
        return derive(whole, wrt, seed=True, keep=(), checkpoint=checkpoint), traced

    derived, traced = made(request, make)
    tape = finished(derived)
    first, outputs = len(traced.tape.inputs), _outputs(traced)
    once, each = partial_eval(tape, range(first, first + len(outputs)))
    given = [x if isinstance(x, Tracer) else plain_value(x) for x in inputs]
    given += traced.captured
    residuals = _snapshot(_apply(once, [*given, *tape.captured]), given)
    pullback = Pullback(
        name=traced.name,
        tape=each,
        residuals=residuals,
        outputs=traced.outputs,
        avals=tuple(x.aval for x in outputs),
        results=traced.structure,
        structure=request.structure,
        real=real,
    )
    return _value(traced, given), pullback


def _outputs(traced: Traced) -> tuple[Any, ...]:
    """The outputs of its tape that the result is made of; others are left outside."""
    return traced.tape.outputs[: len(traced.tape.outputs) - traced.left]


def _value(traced: Traced, given: Sequence[Any]) -> Any:
    """The function's value: on plain arrays the one that the trace saw, else on the outer tape."""
    if traced.keeping is not None or any(isinstance(x, Tracer) for x in given):
        found = [own_result(x) for x in replay(traced.tape, given)]
        if traced.keeping is not None:
            traced.keeping.pass_on(found[len(_outputs(traced)) :])
        return traced.rebuild(found)
    values: list[Any] = [None] * len(traced.tape.outputs)
    for at, leaf in zip(traced.outputs, traced.leaves, strict=True):
        if at is not None:
            values[at] = leaf
    return traced.rebuild(own(values, given))


def _apply(tape: Tape, inputs: Sequence[Any]) -> list[Any]:
    """A tape's outputs: played, or recorded where a tracer is among the inputs."""
    if any(isinstance(x, Tracer) for x in inputs):
        return [own_result(x) for x in replay(tape, inputs)]
    return run(_playable(tape), inputs)[0]


def _playable(tape: Tape) -> Tape:
    """The tape without users' rules and guards: they hold, since the arguments are fixed."""
    return replace(optimized(tape), guards=())


def _snapshot(values: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Values that stay as they are when the caller writes to the arguments."""
    arrays = [x for x in given if is_array(x)]
    return [
        x.copy() if is_array(x) and any(np.may_share_memory(x, a) for a in arrays) else x
        for x in values
    ]


@dataclass(eq=False)
class Pullback:
    """The linear map from the cotangent of a function's value to those of its arguments.

    It holds what it needs of the arguments as they were, and can be called any number of times.
    """

    name: str
    tape: Tape
    residuals: list[Any]
    outputs: list[int | None]
    avals: tuple[Aval, ...]
    results: Any
    structure: Any
    real: list[bool]

    def __post_init__(self) -> None:
        self.played = _playable(self.tape)

    def __repr__(self) -> str:
        return f"<tapegrad pullback of {self.name}>"

    def __call__(self, ct: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments, for the cotangent of the value.

        `ct` has the value's structure and shapes; for results that aren't real it may hold None.
        Integer arguments, and those that aren't arrays, get None.
        """
        seeds = self._seeds(ct)
        inputs = [*seeds, *self.residuals]
        if any(isinstance(x, Tracer) for x in inputs):
            values = [own_result(x) for x in replay(self.tape, inputs)]
        else:
            values = own(run(self.played, inputs)[0], inputs)
        found = iter(values)
        leaves = [next(found) if yes else None for yes in self.real]
        args, _ = unflatten(self.structure, leaves)
        return tuple(args)

    def _seeds(self, ct: Any) -> list[Any]:
        """The cotangent's leaves as inputs of the tape, checked."""
        try:
            leaves = flatten_up_to(self.results, ct)
        except ValueError as error:
            raise ArgumentError(
                f"pullback of {self.name}: the cotangent isn't put together as the function's "
                f"value is: {error}"
            ) from None
        seeds: list[Any] = [None] * len(self.avals)
        for number, (leaf, at) in enumerate(zip(leaves, self.outputs, strict=True)):
            if at is not None:
                seeds[at] = self._seed(leaf, self.avals[at], number)
        return seeds

    def _seed(self, ct: Any, aval: Aval, number: int) -> Any:
        which = "" if len(self.outputs) == 1 else f" of result {number}"
        if aval.dtype.kind not in "fc" and ct is None:
            return np.zeros(aval.shape, aval.dtype)
        kind: Any = type(ct)
        if issubclass(kind, np.ndarray) and (own := own_behaviour(kind)):
            raise ArgumentError(
                f"pullback of {self.name}: the cotangent{which} is of type {kind.__name__}, "
                f"whose operators differ from an ndarray's (it has its own {own}). Pass "
                "np.asarray(ct)"
            )
        if not isinstance(ct, Tracer):
            ct = np.asarray(ct)
        if ct.shape != aval.shape:
            raise ArgumentError(
                f"pullback of {self.name}: the cotangent{which} has shape {ct.shape}, and the "
                f"value has shape {aval.shape}. They must be the same: use np.broadcast_to"
            )
        if ct.dtype.kind not in ("fiubc" if aval.dtype.kind == "c" else "fiub"):
            raise ArgumentError(
                f"pullback of {self.name}: the cotangent{which} has dtype {ct.dtype}, and the "
                f"value has dtype {aval.dtype}. A cotangent is an array of real numbers, or of "
                "complex ones for a complex value"
            )
        ct = ct if ct.dtype == aval.dtype else ct.astype(aval.dtype)
        return ct if isinstance(ct, Tracer) or aval.shape else ct[()]
