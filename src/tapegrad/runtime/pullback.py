"""Linear maps: the derivative of a function at a point, forward (`linearize`) or backward (`vjp`).

The tape of the derivative takes tangents or cotangents as inputs, and is divided into two parts.
The part that doesn't depend on these runs once, with the value of the function. The rest is linear
in them and runs at each call of the map:

    inp %1 = x, %2 = ct          once:   inp %1 = x           each:   inp %2 = ct, %3
        %3 = cos(%1)                         %3 = cos(%1)                 %4 = mul(%2, %3)
        %4 = mul(%2, %3)                 out %3                       out %4
    out %4

Both are ordinary tapes: they are kept with the function, played, and compiled.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np

from tapegrad.backends.source.arguments import is_plain_tree
from tapegrad.core.arrays import own_behaviour, read
from tapegrad.core.frames import shorten
from tapegrad.core.request import Request, is_differentiable
from tapegrad.core.trees import flatten, flatten_each, flatten_up_to, is_traced, unflatten
from tapegrad.differentiate.partial_eval import partial_eval
from tapegrad.differentiate.seeds import full, seeded
from tapegrad.errors import ArgumentError
from tapegrad.ir.opened import closed
from tapegrad.ir.tape import Aval, Tape
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.guards.state import State
from tapegrad.observe.observer import unobserved
from tapegrad.pipeline import derive, finished, playable, pushforward, trace
from tapegrad.primitives.control import without_effects
from tapegrad.runtime.cache import Front
from tapegrad.runtime.checks import checked_mode, value_part
from tapegrad.runtime.derived import called
from tapegrad.runtime.directional import Pushforward, as_vectors, with_value
from tapegrad.runtime.entry import Miss
from tapegrad.runtime.half_precision import kept_so
from tapegrad.runtime.transformations import (
    Derivation,
    Halves,
    Linear,
    Selection,
    Transformation,
    with_captured,
    with_constants,
)
from tapegrad.runtime.unpacking import Holding
from tapegrad.runtime.variant import Variant
from tapegrad.tracing.recording import trace as traces
from tapegrad.tracing.runs.run import own_result, replay
from tapegrad.tracing.runs.traced import Traced, kept_as
from tapegrad.tracing.tracers.tracer import Tracer


def vjp(
    f: Callable[..., Any],
    args: Sequence[Any],
    checkpoint: str | int = "auto",
    compile: str | None = None,
    has_aux: bool = False,
    numbers: tuple[int, ...] | None = None,
) -> Any:
    """The value of `f(*args)` and its pullback; see `tapegrad.vjp`. With `numbers` only these
    arguments get cotangents, and the others None."""
    pulling = _pulling(checked_mode(compile), has_aux, numbers, checkpoint)
    return called(f, pulling, compile, *args)


def linearize(
    f: Callable[..., Any], args: Sequence[Any], compile: str | None = None, has_aux: bool = False
) -> Any:
    """The value of `f(*args)` and its derivative there; see `tapegrad.linearize`."""
    return called(f, _pushing(checked_mode(compile), has_aux), compile, *args)


@unobserved
def both_maps(f: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, Tangents, Pullback]:
    """The value of `f(*args)`, its derivative there and its pullback, from a single run of `f`
    within a trace."""
    request, forward, back = Request(f, args), Pushing("never"), Pulling("never")
    points = forward.select(request.check("as_linear_operator"))
    request.passes_on = True
    traced = trace(request)
    value, push = forward.recorded(request, forward.derive(traced, points, final=False))
    derivation = back.derive(_once_more(traced), points, final=False)
    return value, push, back.recorded(request, derivation)[1]


def _once_more(traced: Traced) -> Traced:
    """What is recorded again: what it leaves and tells, it has left and told."""
    return replace(traced, keeping=None, tape=without_effects(traced.tape))


@unobserved
def both_ways(
    f: Callable[..., Any], args: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, Any, Pullback, Any]:
    """The value of `f(*args)`, its derivative along tangents, its pullback, and the auxiliary
    result of `f` or None, from a single run of `f` within a trace. So `f` may draw random numbers
    or have side effects."""
    tangents = as_vectors(args, tangents)
    request, forward = Request(f, args), Pushforward(len(args), has_aux)
    back = Pulling("never", has_aux)
    along = Request(f, [*args, *tangents])
    selected, points = forward.select(along), back.select(request.check(back.name))
    request.passes_on = True
    traced = trace(request)
    value, moved, *aux = forward.recorded(along, forward.derive(traced, selected, final=False))
    derivation = back.derive(_once_more(traced), points, final=False)
    return value, moved, back.recorded(request, derivation)[1], aux[0] if has_aux else None


@dataclass(frozen=True)
class Points(Selection):
    """A selection of all arguments: their structure, and the type of each leaf, or None if it has
    no derivative."""

    structure: Any = None
    avals: Sequence[Aval | None] = ()
    halves: Halves = ()  # storage dtypes of the leaves that have a derivative


@dataclass(eq=False)
class Linearized(Derivation):
    """A derivation with the linear map, which has no residuals yet."""

    each: LinearMap = field(kw_only=True)

    def closed(self) -> Linearized:
        make, held, found = cast(Any, self.transformation), self.each.tape, super().closed()
        each = make.linear(closed(held.tape), held.traced.name, found.traced, self.selection)
        each.tape.variant.tier = held.variant.tier  # the compiler gets the tape with marks
        return replace(cast(Any, found), each=each)


@dataclass(frozen=True)
class Linearization(Transformation):
    """The value, and a linear map that holds its residuals."""

    compile: str = "auto"
    has_aux: bool = False
    numbers: tuple[int, ...] | None = None  # arguments with a derivative; None: all

    def select(self, request: Request) -> Points:
        leaves, structure = flatten(request.args)
        known = range(len(request.args)) if self.numbers is None else self.numbers
        asked = [k in known for k, x in enumerate(request.args) for _ in flatten(x)[0]]
        inputs = iter(range(len(leaves)))
        wrt: list[Any] = []
        avals: list[Aval | None] = []
        halves = [kept_as(x) for x in leaves if is_traced(x)]
        for x, yes in zip(leaves, asked, strict=True):
            number = next(inputs) if is_traced(x) else None
            real = yes and is_differentiable(x)
            wrt += [number] if real else []
            avals.append(aval_in(x) if real else None)
        if self.numbers is not None and not wrt:
            raise ArgumentError(
                f"there is no derivative with respect to argument {', '.join(map(str, known))}: it "
                "holds no floats and no complex numbers. Pass floats, such as x.astype(float)"
            )
        return Points(wrt, structure=structure, avals=avals, halves=[halves[k] for k in wrt])

    def derive(self, traced: Traced, selection: Any, final: bool) -> Linearized:
        traced = with_constants(traced)
        count = len(traced.tape.outputs)
        tape, late = self.whole(traced, selection)
        before = len(tape.captured)
        tape, traced = with_captured(tape, traced)
        first = len(tape.inputs) - before - late
        once, each = partial_eval(finished(tape), range(first, first + late), count)
        once = playable(once) if final else once
        return Linearized(
            self,
            once,
            traced.without_values(),
            selection,
            range(count),
            each=self.linear(each, f"{self.name} of {traced.name}", traced, selection),
        )

    def linear(self, tape: Tape, label: str, traced: Traced, selection: Points) -> LinearMap:
        """The map of this tape, without residuals."""
        raise NotImplementedError

    def whole(self, traced: Traced, selection: Points) -> tuple[Tape, int]:
        """The tape of the function's outputs and those of the map; and how many of its last inputs,
        apart from captured ones, belong to the map."""
        raise NotImplementedError

    def assemble(self, derivation: Any, values: Sequence[Any]) -> Any:
        held = derivation.each.holding(list(values[len(derivation.kept) :]))
        return with_value(self.has_aux, derivation.result(values), held)


@dataclass(frozen=True)
class Pulling(Linearization):
    """Reverse mode: the map takes cotangents of the value to those of the arguments."""

    checkpoint: str | int = "auto"

    name = "vjp"

    def whole(self, traced: Traced, selection: Points) -> tuple[Tape, int]:
        count, inputs = len(traced.tape.outputs), len(traced.tape.inputs)
        wanted = self._places(traced)
        tape = derive(traced.tape, selection.wrt, True, None, self.checkpoint)
        none = {inputs + k: full(0.0) for k in range(count) if k not in wanted}
        return (seeded(tape, none) if none else tape), len(wanted)

    def _places(self, traced: Traced) -> dict[int, int]:
        """The outputs that have a cotangent -> their numbers among these."""
        _, outputs = value_part(traced, self.has_aux, self.name)
        real = [k for k in outputs if k is not None and traced.tape.outputs[k].dtype.kind in "fc"]
        return {k: place for place, k in enumerate(sorted(real))}

    def linear(self, tape: Tape, label: str, traced: Traced, selection: Any) -> Pullback:
        places, real = self._places(traced), itertools.count()
        structure, outs = value_part(traced, self.has_aux, self.name)
        results = [
            None if at is None else (places.get(at), traced.tape.outputs[at].aval) for at in outs
        ]
        outputs = [None if x is None else next(real) for x in selection.avals]
        found = selection.structure, outputs, selection.halves
        shared = LinearTape(tape, label, self.compile, *found)
        order = [result[0] for result in results if result is not None]
        in_order = [at for at in order if at is not None] == [*range(len(places))]
        shared.is_plain = in_order and _is_plain(structure)
        return Pullback(traced.name, shared, structure, [], results, len(places))


@dataclass(frozen=True)
class Pushing(Linearization):
    """Forward mode: the map takes tangents of the arguments to that of the value."""

    name = "linearize"

    def whole(self, traced: Traced, selection: Points) -> tuple[Tape, int]:
        count = len(traced.tape.outputs)
        tape = pushforward(traced.tape, selection.wrt, apart=True)
        _, outputs = value_part(traced, self.has_aux, self.name)
        tangents = [tape.outputs[count + at] for at in outputs if at is not None]
        outs = (*tape.outputs[:count], *tangents)
        return replace(tape, outputs=outs, output_names=()), len(selection.wrt)

    def linear(self, tape: Tape, label: str, traced: Traced, selection: Any) -> Tangents:
        structure, outs = value_part(traced, self.has_aux, self.name)
        there = itertools.count()
        places = [None if at is None else next(there) for at in outs]
        real = [at is not None and traced.tape.outputs[at].dtype.kind in "fc" for at in outs]
        outputs = [k if yes else None for k, yes in zip(places, real, strict=True)]
        shared = LinearTape(tape, label, self.compile, structure, outputs)
        shared.is_plain = _is_plain(selection.structure)
        return Tangents(traced.name, shared, selection.structure, [], selection.avals)


# Equal transformations are one object, so that lookups are fast.
_pulling, _pushing = functools.lru_cache(Pulling), functools.lru_cache(Pushing)


def aval_in(x: Any) -> Aval:
    """The type of a leaf as an input."""
    from tapegrad.tracing.runs.traced import input_aval

    return input_aval(x)


# ---- the maps


class LinearTape:
    """A tape of linear inputs and residuals, shared by all maps of one variant. It is played, and
    compiled where that pays.

    `structure` is that of the result, and `outputs` gives the tape's output for each of its leaves.
    `is_plain` means that entries unpack the arguments.
    """

    is_plain = False

    def __init__(
        self,
        tape: Tape,
        label: str,
        compile: str,
        structure: Any,
        outputs: Sequence[int | None],
        halves: Halves = (),
    ) -> None:
        self.tape = tape
        none: list[Any] = [None] * len(outputs)
        played = kept_so(playable(replace(tape, guards=())), (), halves)
        self.traced = Traced(label, tape, (), structure, [*outputs], none, [False] * len(outputs))
        derivation = Derivation(
            Linear(), played, self.traced, Selection(), range(len(tape.outputs))
        )
        self.front = Front()
        self.variant = Variant(derivation, State(Reads(), None, (), {}), compile, self.front, label)

    def entered(self, passed: Sequence[Any], residuals: list[Any]) -> Any:
        """The result from an entry. Raises `Miss` if none answers."""
        for entry in self.front.recent:
            try:
                return entry.call(len, (passed, residuals), {})
            except Miss:
                continue
        raise Miss

    def __call__(self, seeds: Sequence[Any], passed: Sequence[Any], residuals: list[Any]) -> Any:
        """The result for linear inputs, which are the leaves of `passed`. It is recorded if an
        input is a tracer."""
        inputs = [*seeds, *residuals]
        if any(isinstance(x, Tracer) for x in inputs):
            return self.traced.rebuild([own_result(x) for x in replay(self.tape, inputs)])
        with suppress(Miss):
            return self.entered(passed, residuals)
        request = Request(len, (passed, residuals), names=())
        found = self.variant.answer(len, request, fresh=True)
        assert found is not None  # it has no guards
        return found[0]


@dataclass(eq=False, repr=False)
class LinearMap(Holding):
    """A linear map of trees with this structure. It holds its residuals, and is itself a tree of
    these, so that a traced function may return it."""

    kind: ClassVar[str]

    name: str
    tape: LinearTape
    structure: Any
    residuals: list[Any]

    def __repr__(self) -> str:
        return f"<tapegrad {self.kind} of {self.name}>"

    def _of(self, passed: tuple[Any, ...]) -> Any:
        """The map's result: from an entry, or else from checked inputs."""
        if not traces.running:
            try:
                return self.tape.entered([*passed], self.residuals)
            except Miss:
                pass
        seeds, leaves = self._seeds(passed)
        return self.tape(
            seeds, self._passed(leaves) if self.tape.is_plain else seeds, self.residuals
        )

    def _seeds(self, passed: Any) -> tuple[list[Any], list[Any]]:
        """The checked inputs of the tape, and the leaves in the structure."""
        raise NotImplementedError

    def _passed(self, leaves: Sequence[Any]) -> list[Any]:
        raise NotImplementedError


def _is_plain(structure: Any) -> bool:
    """Whether trees of this structure consist of Python's own containers only."""

    def plain(tree: Any) -> bool:
        parts = tree.values() if isinstance(tree, dict) else tree
        return type(tree) is float or (is_plain_tree(tree) and all(map(plain, parts)))

    return plain(unflatten(structure, [0.0] * structure.num_leaves))


@dataclass(eq=False, repr=False)
class Pullback(LinearMap):
    """The linear map from the cotangent of a function's value to those of its arguments.

    It holds the values that it needs of the arguments, and can be called any number of times.
    """

    kind = "pullback"

    # For each leaf of the function's value (number of its cotangent among the `count` inputs, or
    # None; type). None for leaves that aren't traced.
    results: Sequence[tuple[int | None, Aval] | None]
    count: int

    def __call__(self, ct: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments, for the cotangent of the value.

        `ct` has the structure and shapes of the value; for results that aren't real it may hold
        None. Integer arguments, and those that aren't arrays, get None.
        """
        try:
            return tuple(self._of((ct,)))
        except Exception as error:
            shorten(error)
            raise

    def _passed(self, leaves: Sequence[Any]) -> list[Any]:
        return [unflatten(self.structure, leaves)]

    def _seeds(self, passed: Any) -> tuple[list[Any], list[Any]]:
        label = f"pullback of {self.name}"
        try:
            leaves = flatten_up_to(self.structure, passed[0])
        except ValueError as error:
            raise ArgumentError(
                f"{label}: the cotangent isn't put together as the function's value is: {error}"
            ) from None
        seeds: list[Any] = [None] * self.count
        found: list[Any] = []
        for number, (leaf, result) in enumerate(zip(leaves, self.results, strict=True)):
            at, aval = result or (None, None)
            which = "" if len(leaves) == 1 else f" of result {number}"
            if aval is not None and (at is not None or leaf is not None):
                leaf = checked(label, f"cotangent{which}", "value", leaf, aval)
            found.append(leaf if at is not None else None)
            if at is not None:
                seeds[at] = leaf
        return seeds, found


@dataclass(eq=False, repr=False)
class Tangents(LinearMap):
    """The linear map from tangents of a function's arguments to that of its value.

    It holds the values that it needs of the arguments, and can be called any number of times.
    """

    kind = "derivative"

    avals: Sequence[Aval | None]

    def __call__(self, *tangents: Any) -> Any:
        """The tangent of the value, in its structure, for tangents of the arguments, in theirs.
        None stands for a zero tangent. Leaves of the value that aren't real get None."""
        try:
            return self._of(tangents)
        except Exception as error:
            shorten(error)
            raise

    def _passed(self, leaves: Sequence[Any]) -> list[Any]:
        return [*unflatten(self.structure, leaves)]

    def _seeds(self, passed: Any) -> tuple[list[Any], list[Any]]:
        label = f"derivative of {self.name}"
        try:
            leaves = flatten_each(self.structure, passed)
        except ValueError as error:
            raise ArgumentError(
                f"{label}: the tangents aren't put together as the arguments are: {error}"
            ) from None
        found: list[Any] = [None] * len(leaves)
        for k, (leaf, aval) in enumerate(zip(leaves, self.avals, strict=True)):
            if aval is None:
                if leaf is not None:
                    raise ArgumentError(
                        f"{label}: leaf {k} of the arguments has no derivative, and was passed a "
                        "tangent. Pass None in its place"
                    )
            elif leaf is None:
                found[k] = np.zeros(aval.shape, aval.dtype)[()]
            else:
                found[k] = checked(label, f"tangent {k}", "argument", leaf, aval)
        return [x for x in found if x is not None], found


def checked(label: str, what: str, of: str, ct: Any, aval: Aval) -> Any:
    """A cotangent or tangent as an input of this type. Raises an ArgumentError if it doesn't
    fit."""
    kind: Any = type(ct)
    if issubclass(kind, np.ndarray) and (own := own_behaviour(kind)):
        raise ArgumentError(
            f"{label}: the {what} is of type {kind.__name__}, whose operators differ from an "
            f"ndarray's (it has its own {own}). Pass np.asarray(ct)"
        )
    if not isinstance(ct, Tracer):
        ct = read(np.asarray(ct))
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
