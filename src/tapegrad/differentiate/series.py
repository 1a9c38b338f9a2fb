"""Power series on a tape, coefficient by coefficient.

A value that moves along t is a series x_0 + x_1 t + x_2 t^2 + ... of nodes, which are computed on
demand. The series of a primitive's result follows from its forward rule: with y = g(x), the rule
gives y' = J(x, y) x', and so

    k y_k = [J(x, y) x']_(k-1)

where the calls of the rule act on series again. They read y itself, whose coefficients before the
k-th are known by then: for exp this is the recurrence k y_k = sum of j x_j y_(k-j). If a rule reads
nothing that moves, the map is linear and acts on each coefficient. Three kinds of calls have
formulas that end the recursion: products, quotients and powers (A. Griewank and A. Walther,
"Evaluating derivatives", 2008, chapter 13).

Names: `x_k` coefficient k; `y` the result; `t` tangent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tapegrad.errors import GradientError
from tapegrad.ir.tape import Aval, Builder, Literal, Operand, Primitive, Tape, Var
from tapegrad.primitives.base import Missing, Node, Writer
from tapegrad.primitives.kinds import Repeated
from tapegrad.primitives.kinks import Sided
from tapegrad.primitives.transposing import pushed_by
from tapegrad.primitives.views import BroadcastTo

Coefficient = Node | None  # None is 0


class Series:
    """A value and its coefficients. `more(k)` computes coefficient k, for k = 1, 2, ... in order.
    Without `more` the value doesn't move."""

    __slots__ = ("_derivative", "_known", "aval", "more", "start")

    def __init__(self, start: Node, more: Callable[[int], Coefficient] | None = None) -> None:
        self.start = start
        self.aval = start.aval
        self.more = more
        self._known: list[Coefficient] = [start]
        self._derivative: Series | None = None

    @property
    def moves(self) -> bool:
        return self.more is not None

    def __getitem__(self, k: int) -> Coefficient:
        """Coefficient k."""
        if k and self.more is None:
            return None
        while len(self._known) <= k:
            assert self.more is not None
            self._known.append(self.more(len(self._known)))
        return self._known[k]

    def derivative(self) -> Series:
        """The series of the derivative along t: x_1 + 2 x_2 t + 3 x_3 t^2 + ..."""
        if self._derivative is None:

            def more(k: int) -> Coefficient:
                x = self[k + 1]
                return None if x is None else x * (k + 1)

            first = self[1]
            self._derivative = Series(zero_of(self.start) if first is None else first, more)
        return self._derivative


def zero_of(x: Node) -> Node:
    zero = x.constant(0)
    return zero if x.shape == () else BroadcastTo(x.shape)(zero)


@dataclass(frozen=True)
class Rule:
    """A primitive's forward rule as a tape.

    Its inputs are the tangents of the operands that move, the directions from a kink, the results,
    and the operands that aren't literals. An output that is None is a tangent of 0. `given` maps
    variables to the arrays that a user's rule captured.
    """

    tape: Tape
    outputs: tuple[Operand | None, ...]
    tangents: int
    directions: int
    given: dict[Var, Any]


def rule_of(
    primitive: Primitive,
    xs: tuple[Operand | Aval, ...],
    moves: tuple[bool, ...],
    outs: tuple[Aval, ...],
    sides: int = 0,
) -> Rule:
    """The forward rule of a primitive. Operands are given by types or literals; `moves` says which
    of them move. With `sides`, that many directions of a kink's point choose its side."""
    builder = Builder(f"tangent_of_{primitive.name}")
    writer = Writer(builder)
    avals = [x.aval if isinstance(x, Literal) else x for x in xs]
    ts = [
        writer.node(builder.input(aval)) if flag else None  # type: ignore[arg-type]
        for aval, flag in zip(avals, moves, strict=True)
    ]
    first = len(builder.inputs)
    steps = [
        [None if t is None else writer.node(builder.input(t.aval)) for t in ts]
        for _ in range(sides)
    ]
    second = len(builder.inputs)
    results = [writer.node(builder.input(aval)) for aval in outs]
    operands = [
        writer.node(x if isinstance(x, Literal) else builder.input(x))  # type: ignore[arg-type]
        for x in xs
    ]
    out: Any = tuple(results) if primitive.results != 1 else results[0]
    if sides:
        found = _rule_along(primitive, operands, steps, ts, out)
    else:
        found = primitive.jvp(ts, out, *operands)
    tangents = found if isinstance(found, tuple) else (found,) if primitive.results == 1 else ()
    outputs: list[Operand | None] = [None] * len(outs)
    for k, (t, aval) in enumerate(zip(tangents, outs, strict=False)):
        if isinstance(t, Missing):
            raise GradientError(t.message)
        if t is not None and aval.dtype.kind in "fc":
            node = t if isinstance(t, Node) else writer.node(t)
            outputs[k] = (
                node if node.shape == aval.shape else BroadcastTo(aval.shape)(node)
            ).operand
    written = builder.finish([x for x in outputs if x is not None])
    reached = dict(writer.captured.values())
    return Rule(written, tuple(outputs), first, second - first, reached)


def _rule_along(
    primitive: Primitive, xs: Sequence[Any], steps: Sequence[Any], ts: Sequence[Any], out: Any
) -> Any:
    """The rule on the side of the kink to which the first nonzero direction points."""
    if isinstance(primitive, Sided):
        known = _directions(primitive, [step[: primitive.points] for step in steps])
        return primitive.jvp_along([*primitive.sides(xs), *known], ts, out, *xs)
    pullback, places = pullback_of(primitive, xs, out)
    known = _directions(pullback, [[step[k] for k in places] for step in steps])
    return pushed_by(functools.partial(primitive.vjp_along, known), ts, out, *xs)


def _directions(pullback: Any, steps: Sequence[Any]) -> list[Any]:
    """The directions in which the point of a kink moves. Steps without a tangent are left out."""
    return [pullback.moved(step) for step in steps if any(t is not None for t in step)]


def pullback_of(primitive: Primitive, xs: Sequence[Any], out: Any) -> tuple[Any, list[int]]:
    """The pullback of a function with a kink, and the numbers of the operands that are its
    point."""
    builder = out.writer.builder
    start = len(builder.calls)
    primitive.vjp_along((), out, out, *xs)
    call = next(c for c in builder.calls[start:] if isinstance(c.primitive, Sided))
    del builder.calls[start:]
    sided: Any = call.primitive
    places = {x.operand: k for k, x in reversed(list(enumerate(xs)))}
    return sided, [places[x] for x in call.operands[: sided.points]]


class Rules:
    """The forward rules used in one expansion, each of which is recorded once."""

    def __init__(self) -> None:
        self._known: dict[Any, Rule] = {}
        self._linear: dict[Any, bool] = {}

    def of(
        self,
        primitive: Primitive,
        xs: tuple[Operand | Aval, ...],
        moves: tuple[bool, ...],
        outs: tuple[Aval, ...],
        sides: int = 0,
    ) -> Rule:
        key = primitive, xs, moves, sides
        if key not in self._known:
            self._known[key] = rule_of(primitive, xs, moves, outs, sides)
        return self._known[key]

    def is_linear(
        self,
        primitive: Primitive,
        xs: tuple[Operand | Aval, ...],
        moves: tuple[bool, ...],
        outs: tuple[Aval, ...],
        sides: int = 0,
    ) -> bool:
        """Whether the result's tangents depend on the operands' tangents, and on no other value
        that moves."""
        key = primitive, xs, moves, sides
        if key not in self._linear:
            rule = self.of(primitive, xs, moves, outs, sides)
            given = rule.tape.inputs[rule.tangents + rule.directions :]
            at = dict(zip(_moving(xs, moves), _inputs_of(xs, moves, given, len(outs)), strict=True))
            active = {var for var, aval in zip(given, outs, strict=False) if _is_real(aval)}
            self._linear[key] = self._reaches(rule, active.union(at.values()))
        return self._linear[key]

    def _reaches(self, rule: Rule, active: set[Any]) -> bool:
        """Whether no output of the rule depends on an `active` value."""
        for call in rule.tape.calls:
            moves = tuple([x in active for x in call.operands])
            outs = tuple([x.aval for x in call.outs])
            primitive = call.primitive
            if not any(moves) or primitive.flat or not any(map(_is_real, outs)):
                continue
            if isinstance(primitive, Repeated) or primitive.inlined:
                active.update(call.outs)
                continue
            xs = tuple([x if isinstance(x, Literal) else x.aval for x in call.operands])
            found = self.of(primitive, xs, moves, outs).outputs
            active.update(x for x, t in zip(call.outs, found, strict=True) if t is not None)
        return active.isdisjoint(rule.tape.outputs)


def _is_real(aval: Aval) -> bool:
    return aval.dtype.kind in "fc"


def _moving(xs: Sequence[Any], moves: Sequence[bool]) -> list[int]:
    return [k for k, flag in enumerate(moves) if flag]


def _inputs_of(
    xs: Sequence[Any], moves: Sequence[bool], given: Sequence[Var], results: int
) -> list[Var]:
    """The rule's inputs for the operands that move."""
    places = [k for k, x in enumerate(xs) if not isinstance(x, Literal)]
    at = dict(zip(places, given[results:], strict=False))
    return [at[k] for k in _moving(xs, moves)]
