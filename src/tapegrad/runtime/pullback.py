"""Linear maps: the derivative of a function at a point, forwards (`linearize`) or back (`vjp`).

The tape of the derivative, with tangents or cotangents as inputs, falls into two parts. What
doesn't depend on these runs once, with the value of the function; the rest is linear in them and
runs at each call of the map:

    inp %1 = x, %2 = ct          once:   inp %1 = x           each:   inp %2 = ct, %3
        %3 = cos(%1)                         %3 = cos(%1)                 %4 = mul(%2, %3)
        %4 = mul(%2, %3)                 out %3                       out %4
    out %4

Both are tapes like any other: they are kept with the function, played, and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tapegrad.core.arrays import own_behaviour
from tapegrad.core.request import Request, is_differentiable
from tapegrad.core.trees import flatten, flatten_each, flatten_up_to, is_traced, unflatten
from tapegrad.differentiate.partial_eval import partial_eval
from tapegrad.differentiate.seeds import full, seeded
from tapegrad.errors import ArgumentError
from tapegrad.ir.tape import Aval, Tape
from tapegrad.pipeline import derive, finished, playable, pushforward, trace
from tapegrad.runtime.cache import Front
from tapegrad.runtime.derived import Derived
from tapegrad.runtime.directional import Pushforward, as_vectors
from tapegrad.runtime.entry import Miss
from tapegrad.runtime.transformations import (
    Derivation,
    Jit,
    Selection,
    Transformation,
    with_captured,
    with_constants,
)
from tapegrad.runtime.variant import Variant
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.observe.reads import Reads
from tapegrad.tracing.run import Traced, own_result, replay
from tapegrad.tracing.state import State
from tapegrad.tracing.tracer import Tracer


def vjp(
    f: Callable[..., Any],
    args: Sequence[Any],
    checkpoint: str | int = "auto",
    compile: str = "auto",
) -> tuple[Any, Pullback]:
    """The value of `f(*args)` and its pullback; see `tapegrad.vjp`."""
    found: tuple[Any, Pullback] = Derived(f, Pulling(compile, checkpoint), compile)(*args)
    return found


def linearize(
    f: Callable[..., Any], args: Sequence[Any], compile: str = "auto"
) -> tuple[Any, Tangents]:
    """The value of `f(*args)` and its derivative there; see `tapegrad.linearize`."""
    found: tuple[Any, Tangents] = Derived(f, Pushing(compile), compile)(*args)
    return found


@unobserved
def both_ways(
    f: Callable[..., Any], args: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any, Pullback]:
    """The value of `f(*args)`, its derivative along tangents, and its pullback, of one run of `f`,
    which is part of a trace: a function may draw random numbers, or leave something outside."""
    tangents = as_vectors(args, tangents)
    request, forward, back = Request(f, args), Pushforward(len(args)), Pulling("never")
    along = Request(f, [*args, *tangents])
    selected, points = forward.select(along), back.select(request.check(back.name))
    request.passes_on = True
    traced = trace(request)
    value, moved = forward.recorded(along, forward.derive(traced, selected, final=False))
    derivation = back.derive(replace(traced, keeping=None), points, final=False)
    return value, moved, back.recorded(request, derivation)[1]


@dataclass(frozen=True)
class Points(Selection):
    """A selection of all arguments: their structure, and for each of their leaves its type, or None
    if it has no derivative."""

    structure: Any = None
    avals: Sequence[Aval | None] = ()


@dataclass(eq=False)
class Linearized(Derivation):
    """A derivation with the tape that runs at each call of the map."""

    each: LinearTape = field(kw_only=True)


@dataclass(frozen=True)
class Linearization(Transformation):
    """The value, and a linear map that holds what it needs of the arguments."""

    compile: str = "auto"

    mirrors = False

    def select(self, request: Request) -> Points:
        leaves, structure = flatten(request.args)
        inputs = iter(range(len(leaves)))
        wrt: list[Any] = []
        avals: list[Aval | None] = []
        for x in leaves:
            number = next(inputs) if is_traced(x) else None
            real = is_differentiable(x)
            wrt += [number] if real else []
            avals.append(aval_in(x) if real else None)
        return Points(wrt, structure=structure, avals=avals)

    def derive(self, traced: Traced, selection: Any, final: bool) -> Linearized:
        traced = with_constants(traced)
        count = len(traced.tape.outputs)
        tape, late = self.whole(traced, selection)
        before = len(tape.captured)
        tape, traced = with_captured(tape, traced)
        first = len(tape.inputs) - before - late
        once, each = partial_eval(finished(tape), range(first, first + late), count)
        once = playable(once) if final else once
        label = f"{self.name} of {traced.name}"
        return Linearized(
            self,
            once,
            traced.without_values(),
            selection,
            range(count),
            each=LinearTape(each, label, self.compile),
        )

    def whole(self, traced: Traced, selection: Points) -> tuple[Tape, int]:
        """The tape of the function's outputs and those of the map; how many of its last inputs, but
        for captured ones, the map takes."""
        raise NotImplementedError

    def map(self, derivation: Linearized, residuals: Sequence[Any]) -> Any:
        """The map with these residuals."""
        raise NotImplementedError

    def assemble(self, derivation: Any, values: Sequence[Any]) -> Any:
        residuals = list(values[len(derivation.kept) :])
        return derivation.result(values), self.map(derivation, residuals)


@dataclass(frozen=True)
class Pulling(Linearization):
    """By reverse mode: the map takes cotangents of the value to those of the arguments."""

    checkpoint: str | int = "auto"

    name = "vjp"

    def whole(self, traced: Traced, selection: Points) -> tuple[Tape, int]:
        count, inputs = len(traced.tape.outputs), len(traced.tape.inputs)
        wanted = count - traced.left
        tape = derive(traced.tape, selection.wrt, True, None, self.checkpoint)
        left = {inputs + k: full(0.0) for k in range(wanted, count)}
        return (seeded(tape, left) if left else tape), wanted

    def map(self, derivation: Linearized, residuals: Sequence[Any]) -> Pullback:
        traced = derivation.traced
        avals = [x.aval for x in traced.tape.outputs[: len(traced.tape.outputs) - traced.left]]
        selection: Any = derivation.selection
        return Pullback(
            traced.name,
            derivation.each,
            residuals,
            traced.outputs,
            avals,
            traced.structure,
            selection.structure,
            [x is not None for x in selection.avals],
        )


@dataclass(frozen=True)
class Pushing(Linearization):
    """By forward mode: the map takes tangents of the arguments to that of the value."""

    name = "linearize"

    def whole(self, traced: Traced, selection: Points) -> tuple[Tape, int]:
        count = len(traced.tape.outputs)
        tape = pushforward(traced.tape, selection.wrt, apart=True)
        outputs = tape.outputs[: 2 * count - traced.left]
        return replace(tape, outputs=outputs, output_names=()), len(selection.wrt)

    def map(self, derivation: Linearized, residuals: Sequence[Any]) -> Tangents:
        traced = derivation.traced
        selection: Any = derivation.selection
        real = [
            at is not None and traced.tape.outputs[at].dtype.kind in "fc" for at in traced.outputs
        ]
        return Tangents(
            traced.name,
            derivation.each,
            residuals,
            selection.avals,
            selection.structure,
            traced.structure,
            [at if yes else None for at, yes in zip(traced.outputs, real, strict=True)],
        )


def aval_in(x: Any) -> Aval:
    """The type of a leaf as an input."""
    from tapegrad.tracing.run import input_aval

    return input_aval(x)


# ---- the maps


class LinearTape:
    """A tape of linear inputs, then residuals, which all maps of one variant share: it is played,
    and compiled where that pays."""

    def __init__(self, tape: Tape, label: str, compile: str) -> None:
        self.tape = tape
        count = len(tape.outputs)
        leaves: list[Any] = [None] * count
        _, structure = flatten([0.0] * count)
        traced = Traced(label, tape, (), structure, [*range(count)], leaves, [False] * count)
        played = playable(replace(tape, guards=()))
        derivation = Derivation(Jit(), played, traced, Selection(), range(count))
        state = State(Reads(), None, (), {})
        self.variant = Variant(derivation, state, compile, Front(), label)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs; recorded where a tracer is among the inputs."""
        if any(isinstance(x, Tracer) for x in inputs):
            return [own_result(x) for x in replay(self.tape, inputs)]
        args = ([*inputs],)
        values: list[Any]
        for entry in self.variant.front.recent:
            with suppress(Miss):
                values = entry.call(len, args, {})
                return values
        found = self.variant.answer(len, Request(len, args, names=()), fresh=True)
        assert found is not None  # it has no guards
        (values,) = found
        return values


@dataclass(eq=False)
class Pullback:
    """The linear map from the cotangent of a function's value to those of its arguments.

    It holds what it needs of the arguments as they were, and can be called any number of times.
    """

    name: str
    tape: LinearTape
    residuals: Sequence[Any]
    outputs: Sequence[int | None]
    avals: Sequence[Aval]
    results: Any
    structure: Any
    real: Sequence[bool]

    def __repr__(self) -> str:
        return f"<tapegrad pullback of {self.name}>"

    def __call__(self, ct: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments, for the cotangent of the value.

        `ct` has the value's structure and shapes; for results that aren't real it may hold None.
        Integer arguments, and those that aren't arrays, get None.
        """
        found = iter(self.tape([*self._seeds(ct), *self.residuals]))
        leaves = [next(found) if yes else None for yes in self.real]
        return tuple(unflatten(self.structure, leaves))

    def _seeds(self, ct: Any) -> list[Any]:
        """The cotangent's leaves as inputs of the tape, checked."""
        label = f"pullback of {self.name}"
        try:
            leaves = flatten_up_to(self.results, ct)
        except ValueError as error:
            raise ArgumentError(
                f"{label}: the cotangent isn't put together as the function's value is: {error}"
            ) from None
        seeds: list[Any] = [None] * len(self.avals)
        for number, (leaf, at) in enumerate(zip(leaves, self.outputs, strict=True)):
            if at is None:
                continue
            which = "" if len(self.outputs) == 1 else f" of result {number}"
            aval = self.avals[at]
            if aval.dtype.kind not in "fc" and leaf is None:
                seeds[at] = np.zeros(aval.shape, aval.dtype)[()]
            else:
                seeds[at] = checked(label, f"cotangent{which}", "value", leaf, aval)
        return seeds


@dataclass(eq=False)
class Tangents:
    """The linear map from tangents of a function's arguments to that of its value.

    It holds what it needs of the arguments as they were, and can be called any number of times.
    """

    name: str
    tape: LinearTape
    residuals: Sequence[Any]
    avals: Sequence[Aval | None]
    structure: Any
    results: Any
    outputs: Sequence[int | None]

    def __repr__(self) -> str:
        return f"<tapegrad derivative of {self.name}>"

    def __call__(self, *tangents: Any) -> Any:
        """The tangent of the value, in its structure, for tangents of the arguments, in theirs;
        None stands for a tangent that is 0. What isn't real in the value has None."""
        found = self.tape([*self._seeds(tangents), *self.residuals])
        leaves = [None if at is None else found[at] for at in self.outputs]
        return unflatten(self.results, leaves)

    def _seeds(self, tangents: Sequence[Any]) -> list[Any]:
        label = f"derivative of {self.name}"
        try:
            leaves = flatten_each(self.structure, tangents)
        except ValueError as error:
            raise ArgumentError(
                f"{label}: the tangents aren't put together as the arguments are: {error}"
            ) from None
        seeds = []
        for k, (leaf, aval) in enumerate(zip(leaves, self.avals, strict=True)):
            if aval is None:
                if leaf is not None:
                    raise ArgumentError(
                        f"{label}: leaf {k} of the arguments has no derivative, and was passed a "
                        "tangent. Pass None in its place"
                    )
            elif leaf is None:
                seeds.append(np.zeros(aval.shape, aval.dtype)[()])
            else:
                seeds.append(checked(label, f"tangent {k}", "argument", leaf, aval))
        return seeds


def checked(label: str, what: str, of: str, ct: Any, aval: Aval) -> Any:
    """A cotangent or tangent as an input of this type; an ArgumentError if it can't be."""
    kind: Any = type(ct)
    if issubclass(kind, np.ndarray) and (own := own_behaviour(kind)):
        raise ArgumentError(
            f"{label}: the {what} is of type {kind.__name__}, whose operators differ from an "
            f"ndarray's (it has its own {own}). Pass np.asarray(ct)"
        )
    if not isinstance(ct, Tracer):
        ct = np.asarray(ct)
    if ct.shape != aval.shape:
        raise ArgumentError(
            f"{label}: the {what} has shape {ct.shape}, and the {of} has shape {aval.shape}. They "
            "must be the same: use np.broadcast_to"
        )
    if ct.dtype.kind not in ("fiubc" if aval.dtype.kind == "c" else "fiub"):
        raise ArgumentError(
            f"{label}: the {what} has dtype {ct.dtype}, and the {of} has dtype {aval.dtype}. It is "
            "an array of real numbers, or of complex ones where that is complex"
        )
    ct = ct if ct.dtype == aval.dtype else ct.astype(aval.dtype)
    return ct if isinstance(ct, Tracer) or aval.shape else ct[()]
