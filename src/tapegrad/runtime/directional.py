"""Derivatives along a direction: `jvp`, and products with the Hessian.

Their functions take further arguments after the function's own: a tangent for each of these, or a
vector for each argument that is differentiated with respect to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.request import Request, is_differentiable
from tapegrad.core.trees import (
    children,
    flatten,
    flatten_up_to,
    is_traced,
    unflatten,
)
from tapegrad.errors import ArgumentError
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Builder, Tape
from tapegrad.primitives.elementwise import AsType
from tapegrad.runtime.checks import check_scalar_result, value_part
from tapegrad.runtime.transformations import (
    Derivation,
    Gradient,
    Selection,
    Transformation,
    with_captured,
    with_constants,
    with_loss,
)
from tapegrad.tracing.frontend.numpy.undispatched import stacked
from tapegrad.tracing.runs.traced import Traced, input_aval


@dataclass(frozen=True)
class Along(Selection):
    """A selection with directions.

    `given` are the types of the directions that were passed, one for each number in `wrt`. `moves`
    says which leaves have a direction; for the others it is 0. The first `positional` inputs of the
    function come before the directions; keyword arguments come after them.
    """

    given: Sequence[Aval] = ()
    moves: Sequence[Sequence[bool]] = ()
    positional: int = 0


def directions(
    label: str, chosen: Sequence[tuple[str, Any]], vectors: Sequence[Any]
) -> tuple[list[list[bool]], list[Any]]:
    """Which leaves of the chosen arguments have a direction, and the directions. `chosen` are
    (description, argument) pairs. Raises an ArgumentError if a direction doesn't fit."""
    moves, found = [], []
    for (word, tree), vector in zip(chosen, vectors, strict=True):
        leaves, structure = flatten(tree)
        try:
            still = vector is None  # no leaf has a direction
            ts = [None] * len(leaves) if still else flatten_up_to(structure, vector)
        except ValueError as error:
            raise ArgumentError(
                f"{label}: the direction isn't put together as {word} is: {error}"
            ) from None
        moves.append([t is not None for t in ts])
        found += [_checked(label, word, x, t) for x, t in zip(leaves, ts, strict=True)
                  if t is not None]  # fmt: skip
    return moves, found


def as_vectors(trees: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
    """The directions, with lists converted to arrays where they belong to arrays."""
    return [
        vector if vector is None else _as_vector(tree, vector)
        for tree, vector in zip(trees, vectors, strict=True)
    ]


def _as_vector(tree: Any, vector: Any) -> Any:
    leaves, structure = flatten(tree)
    try:
        ts = flatten_up_to(structure, vector)
    except ValueError:  # see `directions`
        return vector
    if not any(isinstance(t, (list, tuple)) for t in ts):
        return vector
    return unflatten(structure, [_as_array(x, t) for x, t in zip(leaves, ts, strict=True)])


def _as_array(x: Any, t: Any) -> Any:
    if not (is_traced(x) and np.ndim(x) and isinstance(t, (list, tuple))):
        return t
    try:
        found = stacked(t)
        return np.asarray(found) if isinstance(found, (list, tuple)) else found
    except ValueError:  # its rows differ in length
        return t


def _checked(label: str, word: str, x: Any, t: Any) -> Any:
    if not is_differentiable(x):
        kind = f"dtype {x.dtype}" if hasattr(x, "dtype") else f"type {type(x).__name__}"
        raise ArgumentError(
            f"{label}: {word} has a leaf of {kind}, which has no derivative, and a direction for "
            "it. Pass None in its place, or convert it to float64"
        )
    if not is_traced(t):
        raise ArgumentError(
            f"{label}: a direction of {word} is {t!r} ({type(t).__name__}). Directions are arrays "
            "and numbers, or None for one that is 0"
        )
    moved, moves = input_aval(x), input_aval(t)  # works for tracers without values, too
    if moves.shape != moved.shape:
        raise ArgumentError(
            f"{label}: a direction of {word} has shape {moves.shape}, and what it belongs to has "
            f"shape {moved.shape}. They must be the same: use np.broadcast_to"
        )
    if moves.dtype.kind not in ("fiubc" if moved.dtype.kind == "c" else "fiub"):
        raise ArgumentError(
            f"{label}: a direction of {word} has dtype {moves.dtype}, and what it belongs to is "
            "real. Directions of real numbers are real"
        )
    return t


def among_arguments(tape: Tape, traced: Traced, selection: Along) -> tuple[Tape, Traced]:
    """The tape with its directions moved from after all inputs to where they are passed: after the
    positional arguments, with the dtypes that were passed."""
    count, first, given = len(traced.tape.inputs), selection.positional, selection.given
    free = count - len(traced.captured)
    order = [*range(first), *range(count, count + len(given)), *range(first, free)]
    order += [*range(free, count), *range(count + len(given), len(tape.inputs))]
    place = {old: new for new, old in enumerate(order)}
    written = tuple((place[k], src) for k, src in traced.written)
    return _reordered(tape, order, {count + k: aval for k, aval in enumerate(given)}), replace(
        traced, written=written
    )


def _reordered(tape: Tape, order: Sequence[int], avals: dict[int, Aval]) -> Tape:
    """The tape with its inputs in another order, some of them with other types."""
    builder = Builder(tape.name)
    env: dict[Any, Any] = {}
    for k in order:
        var = tape.inputs[k]
        given = avals.get(k, var.aval)
        env[var] = builder.input(given, tape.names[k] if tape.names else "")
    for k, aval in avals.items():
        var = tape.inputs[k]
        if aval.dtype != var.dtype:
            (env[var],) = builder.call(AsType(var.dtype), [env[var]])
    for call in tape.calls:
        outs = builder.again(call, [env.get(x, x) for x in call.operands])
        env.update(zip(call.outs, outs, strict=True))
    builder.guards += [replace(g, operand=env.get(g.operand, g.operand)) for g in tape.guards]
    outputs = [env.get(x, x) for x in tape.outputs]
    return renumbered(builder.finish(outputs, tape.captured, tape.output_names))


def leaves_of(args: Sequence[Any]) -> list[Any]:
    """The leaves of positional arguments that are inputs of a tape."""
    return [x for x in flatten(tuple(args))[0] if is_traced(x)]


@dataclass(frozen=True)
class Pushforward(Transformation):
    """The value of a function of `count` arguments, and its derivative along a tangent of each, by
    forward mode. With `has_aux` the function's auxiliary result comes last."""

    count: int
    has_aux: bool = False

    name = "jvp"

    def completed(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        own, tangents = args[: self.count], args[self.count :]
        return (*own, *(as_vectors(own, tangents) if tangents else ())), kwargs

    def within(self, request: Request) -> Request:
        return Request(request.f, request.args[: self.count], request.kwargs)

    def select(self, request: Request) -> Along:
        args, tangents = request.args[: self.count], request.args[self.count :]
        named = [(f"primal {k}", x) for k, x in enumerate(args)]
        moves, given = directions(f"{self.name} of {request.name}", named, tangents)
        flags = [yes for flags in moves for yes in flags]
        inputs = flatten(args)[0]
        numbers = iter(range(len(inputs)))
        wrt: list[Any] = []
        for x, yes in zip(inputs, flags, strict=True):
            number = next(numbers) if is_traced(x) else None
            if yes:
                wrt.append(number)
        return Along(
            wrt=wrt,
            given=[input_aval(t) for t in given],
            moves=moves,
            positional=len(leaves_of(args)),
        )

    def derive(self, traced: Traced, selection: Any, final: bool) -> Derivation:
        from tapegrad.pipeline import INSIDE, playable, pushforward, run_passes

        traced = with_constants(traced)
        count = len(traced.tape.outputs)
        _, outputs = value_part(traced, self.has_aux, self.name)
        tape = pushforward(traced.tape, selection.wrt)
        tangents = [tape.outputs[count + at] for at in outputs if at is not None]
        tape = replace(tape, outputs=(*tape.outputs[:count], *tangents), output_names=())
        tape, traced = among_arguments(tape, traced, selection)
        tape = playable(tape) if final else run_passes(tape, INSIDE)
        tape, traced = with_captured(tape, traced)
        return Derivation(self, tape, traced.without_values(), selection, range(count))

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        return with_value(
            self.has_aux, derivation.result(values), self._tangents(derivation, values)
        )

    def _tangents(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        """The tangents of the function's value, in its structure. None for leaves that aren't
        real."""
        traced, found = derivation.traced, iter(values[len(derivation.kept) :])
        structure, outputs = value_part(traced, self.has_aux, self.name)
        tangents = [None if at is None else next(found) for at in outputs]
        real = [at is not None and traced.tape.outputs[at].dtype.kind in "fc" for at in outputs]
        return unflatten(structure, [t if r else None for t, r in zip(tangents, real, strict=True)])


def with_value(has_aux: bool, result: Any, derivative: Any) -> tuple[Any, ...]:
    """(value, derivative), or (value, derivative, aux) with `has_aux`."""
    if not has_aux:
        return result, derivative
    value, aux = result
    return value, derivative, aux


@dataclass(frozen=True)
class HessianProduct(Gradient):
    """The product of a scalar function's Hessian with a vector, forward over reverse: the
    derivative of the gradient along the vector, which is passed after the arguments."""

    name = "hvp"
    second = True
    further = ("v",)

    def completed(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not args:
            raise ArgumentError("hvp: pass the function's arguments, and then the vector")
        own, kwargs = super().completed(f, args[:-1], kwargs)
        return (*own, self._vector(Request(f, own, kwargs), args[-1])), kwargs

    def _vector(self, own: Request, vector: Any) -> Any:
        """The vector, with lists converted to arrays."""
        if children(vector) is None:
            return vector
        chosen = self.arguments(own)
        if not isinstance(self.argnums, tuple):
            return as_vectors(chosen, [vector])[0]
        if not isinstance(vector, (tuple, list)) or len(vector) != len(chosen):
            return vector  # see `select`
        return tuple(as_vectors(chosen, vector))

    def within(self, request: Request) -> Request:
        return Request(request.f, request.args[:-1], request.kwargs)

    def select(self, request: Request) -> Along:
        own = self.within(request)
        found = super().select(own)
        vector = request.args[-1]
        chosen = self.arguments(own)
        several = isinstance(self.argnums, tuple)
        vectors = vector if several else (vector,)
        if several and (not isinstance(vector, (tuple, list)) or len(vector) != len(chosen)):
            raise ArgumentError(
                f"hvp of {own.name}: argnums is {self.argnums}, so the vector is a tuple of one "
                f"for each of these arguments, and not a {type(vector).__name__}"
            )
        label = f"hvp of {own.name}"
        named = [(f"argument {k}", x) for k, x in zip(self._chosen.each, chosen, strict=True)]
        moves, given = directions(label, named, vectors)
        real = [flag for flags in found.real for flag in flags]
        moved = [flag for flags in moves for flag in flags]
        those = [flag for flag, yes in zip(moved, real, strict=True) if yes]
        return Along(
            found.wrt,
            found.structures,
            found.real,
            [input_aval(t) for t in given],
            [those],
            len(leaves_of(own.args)),
        )

    def derive(self, traced: Traced, selection: Any, final: bool) -> Derivation:
        from tapegrad.pipeline import derive, finished, playable, pushforward

        check_scalar_result(traced, self.has_aux, self.name)
        kept = self.kept(traced)
        loss, before = with_loss(traced)
        tape = derive(loss, selection.wrt, keep=[k + before for k in kept], checkpoint=self.checkpoint)  # fmt: skip  # noqa: E501
        count = len(tape.outputs)
        along = [k for k, yes in zip(selection.wrt, selection.moves[0], strict=True) if yes]
        tape = pushforward(tape, along)
        outputs = (*tape.outputs[: len(kept)], *tape.outputs[count + len(kept) :])
        tape = replace(tape, outputs=outputs, output_names=())
        tape, traced = among_arguments(tape, traced, selection)
        tape, traced = with_captured(playable(tape) if final else finished(tape), traced)
        return Derivation(self, tape, traced.without_values(), selection, kept)
