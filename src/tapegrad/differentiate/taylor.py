"""Taylor mode: the tape of a function becomes the tape of its coefficients along a line.

    inp %1 = x                          inp %1 = x, %2 = x_1
        %3 = exp(%1)          -->           %3 = exp(%1)            y_0
        %4 = ...                            %4 = mul(%2, %3)        y_1
                                            ...
    out %3                              out %3, %4, ...

The arguments are series x_0 + x_1 t + ..., and `series` defines how calls act on them. The work for
n coefficients grows with n^2; nested derivatives would take 2^n.

At a kink the function is expanded on both sides. Where they differ, a coefficient is the mean of
those for t > 0 and t < 0, as slopes are everywhere in tapegrad. Calls that both share are recorded
once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tapegrad.core.handlers import quiet
from tapegrad.differentiate.activity import moving
from tapegrad.differentiate.masks import Masks
from tapegrad.differentiate.recurrences import by_recurrence, over
from tapegrad.differentiate.reverse import at_call, with_reached
from tapegrad.differentiate.series import Coefficient, Rule, Rules, Series, zero_of
from tapegrad.errors import GradientError, RuleError
from tapegrad.ir.inputs import renumbered, unused, with_inputs
from tapegrad.ir.tape import Builder, Call, Guard, Literal, Operand, Primitive, Tape, Var
from tapegrad.primitives.base import Elementwise, Node, Writer
from tapegrad.primitives.control import Applied
from tapegrad.primitives.elementwise import isnan, logical_and, not_equal, where
from tapegrad.primitives.kinds import Repeated
from tapegrad.primitives.kinks import Sided, unless
from tapegrad.primitives.norms import Norm
from tapegrad.primitives.reductions import Any_
from tapegrad.primitives.spectral import Decomposition
from tapegrad.primitives.views import BroadcastTo


def expand(tape: Tape, wrt: Sequence[int], order: int, given: int = 1) -> Tape:
    """The tape of the outputs, their first coefficients, their second ones, up to `order`.

    The first coefficients of the inputs `wrt` are further inputs, after the free ones and before
    the captured ones; then the second ones, up to order `given`. The rest are 0.
    """
    there = _expanded(tape, wrt, order, given, 1.0)
    if not there.kinked:
        return there.finish(there.outputs())
    back = _expanded(tape, wrt, order, given, -1.0, there)
    means = [
        a if a == b else _mean(there.writer.node(a), there.writer.node(b)).operand
        for a, b in zip(there.outputs(), back.outputs(), strict=True)
    ]
    return there.finish(means)


def _mean(x: Node, y: Node) -> Any:
    return x if x.dtype.kind not in "fc" else x * 0.5 + y * 0.5


def _expanded(
    tape: Tape,
    wrt: Sequence[int],
    order: int,
    given: int,
    side: float,
    onto: _Expansion | None = None,
) -> _Expansion:
    expansion = _Expansion(tape, wrt, order, given, side, onto)
    for call in tape.calls:
        expansion.add(call)
    return expansion


class _Expansion:
    """The series of a tape's variables, for t > 0 if `side` is 1, for t < 0 if it is -1. `kinked`
    says whether the side makes a difference."""

    def __init__(
        self,
        tape: Tape,
        wrt: Sequence[int],
        order: int,
        given: int,
        side: float,
        onto: _Expansion | None,
    ) -> None:
        avals = [tape.inputs[k].aval for k in wrt] * given
        names = [
            f"{tape.names[k]}_{j}" if tape.names and tape.names[k] else ""
            for j in range(1, given + 1)
            for k in wrt
        ]
        self.tape, self.order, self.side = tape, order, side
        self.kinked = False
        self.unknown = False  # whether a coefficient may be NaN because it is undefined
        self._whole = with_inputs(tape, unused(tape, avals), names, before=len(tape.captured))
        if onto is None:
            self.builder = Builder(f"series_{tape.name}")
            names = list(self._whole.names or ("",) * len(self._whole.inputs))
            for var, name in zip(self._whole.inputs, names, strict=True):
                self.builder.input(var.aval, name)
            self.writer = Writer(self.builder)
            self._rules = Rules()
        else:
            self.builder, self.writer, self._rules = onto.builder, onto.writer, onto._rules
        self.masks = Masks(self.builder)
        self._memo: dict[Any, tuple[Series, ...]] = {}
        self._still: dict[Operand, Series] = {}
        at = dict(zip(self._whole.inputs, self.builder.inputs, strict=True))
        self._env: dict[Operand, Series] = {var: self.still(at[var]) for var in tape.inputs}
        first, width = len(tape.free_inputs), len(wrt)
        for n, k in enumerate(wrt):
            found = [self.builder.inputs[first + j * width + n] for j in range(given)]
            nodes = [self.writer.node(x) for x in found]
            start = self.writer.node(at[tape.inputs[k]])
            self._env[tape.inputs[k]] = Series(start, _listed(nodes))

    # ---- series

    def still(self, x: Operand) -> Series:
        """The constant series of a value: always the same object for the same value."""
        if x not in self._still:
            self._still[x] = Series(self.writer.node(x))
        return self._still[x]

    def of(self, x: Operand) -> Series:
        return self.still(x) if isinstance(x, Literal) else self._env[x]

    def add(self, call: Call) -> None:
        """Compute the series of a call's results."""
        self.writer.src, self.writer.reason = call.src, ""
        xs = [self.of(x) for x in call.operands]
        try:
            if isinstance(call.primitive, Repeated):
                found = self._loop(call.primitive, xs, self.order)
            else:
                found = self.apply(call.primitive, xs)
            self.writer.reason = f"coefficient via {call.primitive}"
            for k in range(1, self.order + 1):
                for series in found:
                    series[k]
        except RuleError:
            raise
        except GradientError as error:
            raise GradientError(
                f"{error}{at_call(call)}. Declare one with tapegrad.defjvp, or keep the derivative "
                "out with tapegrad.stop_gradient"
            ) from None
        self._env.update(zip(call.outs, found, strict=True))

    def apply(self, primitive: Primitive, xs: Sequence[Series]) -> tuple[Series, ...]:
        """The series of a primitive's results. The same operands give the same objects."""
        key = primitive, tuple(xs)
        if isinstance(primitive, Applied) and not primitive.ruled:
            return self._inside(primitive.tape, xs)
        if key not in self._memo:
            self._memo[key] = self._applied(primitive, xs)
        return self._memo[key]

    def one(self, primitive: Primitive, *xs: Series) -> Series:
        return self.apply(primitive, xs)[0]

    def _applied(self, primitive: Primitive, xs: Sequence[Series]) -> tuple[Series, ...]:
        moves = tuple([x.moves and x.aval.dtype.kind in "fc" for x in xs])
        if isinstance(primitive, Repeated) and any(moves):
            return self._turns(primitive, xs)
        starts = self._starts(primitive, [x.start for x in xs])
        real = [x.dtype.kind in "fc" for x in starts]
        if primitive.flat or not any(moves) or not any(real):
            return tuple([self.still(x.operand) for x in starts])
        return self._moved(primitive, xs, moves, starts)

    def _starts(self, primitive: Primitive, xs: Sequence[Node]) -> tuple[Node, ...]:
        """The values of a primitive's results. Elementwise calls on literals are folded."""
        literals = [x.operand for x in xs if isinstance(x.operand, Literal)]
        if primitive.pointwise and len(literals) == len(xs):
            value: Any = quiet(primitive.evaluate)(*[x.value for x in literals])
            aval = primitive.avals(*[x.aval for x in literals])[0]
            return (self.writer.node(Literal(aval.dtype.type(value))),)
        found: Any = primitive(*xs) if xs else self.writer.apply(primitive, ())
        return found if isinstance(found, tuple) else (found,)

    def _moved(
        self,
        primitive: Primitive,
        xs: Sequence[Series],
        moves: tuple[bool, ...],
        starts: tuple[Node, ...],
    ) -> tuple[Series, ...]:
        known = by_recurrence(self, primitive, xs, moves, starts[0])
        if known is not None:
            return (known,)
        return _Results(self, primitive, xs, moves, starts).series

    # ---- rules

    def written(self, rule: Rule, given: Sequence[Node]) -> list[Coefficient]:
        """The results of a rule, applied to nodes."""
        env: dict[Operand, Operand] = dict(
            zip(rule.tape.inputs, [x.operand for x in given], strict=True)
        )
        env.update((var, self._reached(var, array)) for var, array in rule.given.items())
        builder = self.builder
        for call in rule.tape.calls:
            xs = [env.get(x, x) for x in call.operands]
            outs = builder.call(call.primitive, xs, self.writer.src, self.writer.reason)
            env.update(zip(call.outs, outs, strict=True))
        builder.guards += [
            replace(g, operand=env.get(g.operand, g.operand)) for g in rule.tape.guards
        ]
        return [None if x is None else self.writer.node(env.get(x, x)) for x in rule.outputs]

    def run(self, rule: Rule, given: Sequence[Series]) -> list[Series | None]:
        """The results of a rule, applied to series."""
        reached = [self.still(self._reached(var, array)) for var, array in rule.given.items()]
        whole = with_inputs(rule.tape, list(rule.given), [""] * len(reached))
        found = iter(self._inside(whole, [*given, *reached]))
        return [None if x is None else next(found) for x in rule.outputs]

    def _inside(self, tape: Tape, given: Sequence[Series]) -> tuple[Series, ...]:
        """The series of the outputs of a sub-tape that is inlined."""
        env: dict[Operand, Series] = dict(zip(tape.inputs, given, strict=True))

        def of(x: Operand) -> Series:
            return self.still(x) if isinstance(x, Literal) else env[x]

        for call in tape.calls:
            found = self.apply(call.primitive, [of(x) for x in call.operands])
            env.update(zip(call.outs, found, strict=True))
        self.builder.guards += [
            replace(g, operand=of(g.operand).start.operand) for g in tape.guards
        ]
        return tuple(map(of, tape.outputs))

    def _reached(self, var: Var, array: Any) -> Var:
        """The input for an array that a user's rule captured."""
        captured = self.writer.captured
        if id(array) not in captured:
            captured[id(array)] = self.builder.fresh(var.aval), array
        return captured[id(array)][0]

    # ---- loops

    def _loop(self, loop: Any, xs: Sequence[Series], order: int) -> tuple[Series, ...]:
        """A loop that also carries coefficients."""
        operands = [x.start.operand for x in xs]
        given = loop.given(operands)
        first = len(operands) - len(given) - 1
        moved = {x.start.operand for x in xs if x.moves}
        active = moving(loop, operands, {x for x in given if x in moved})
        if not active:
            return self.apply(loop, xs)
        inner = _expanded(loop.body, active, order, order, self.side)
        self.kinked |= inner.kinked
        body, count = inner.finish(inner.outputs()), loop.carried
        carried = [k for k in active if k <= count]
        others = [k for k in active if k > count]
        inputs, further = body.inputs[: len(given) + 1], body.inputs[len(given) + 1 :]
        orders, width, left = range(order), len(active), len(loop.body.outputs)
        place = {(j, k): further[j * width + n] for j in orders for n, k in enumerate(active)}
        inside = [*inputs[: 1 + count], *[place[j, k] for j in orders for k in carried]]
        inside += [*inputs[1 + count :], *[place[j, k] for j in orders for k in others]]
        outputs = [*body.outputs[:count]]
        outputs += [body.outputs[left * (1 + j) + k - 1] for j in orders for k in carried]
        outputs += body.outputs[count:left]
        names = () if not body.names else ("",) * len(inside)
        body = renumbered(
            replace(
                body,
                inputs=tuple(inside),
                outputs=tuple(outputs),
                names=names,
                output_names=(),
            )
        )

        def coefficient(j: int, k: int) -> Node:
            x = xs[first + k]
            return x[j + 1] or zero_of(x.start)

        nodes = [x.start for x in loop.given(xs)]
        start = [*nodes[:count], *[coefficient(j, k) for j in orders for k in carried]]
        rest = [*nodes[count:], *[coefficient(j, k) for j in orders for k in others]]
        primitive = loop.changed(body=body, carried=len(start))
        self.writer.reason = f"coefficients via {loop}"
        found = primitive(*[x.start for x in loop.heads(xs)], *start, *rest)
        results = found if isinstance(found, tuple) else (found,)
        plain = [*results[:count], *results[len(start) :]]
        series = [self.still(x.operand) for x in plain]
        for n, k in enumerate(carried):
            known = [results[count + j * len(carried) + n] for j in orders]
            series[k - 1] = Series(plain[k - 1], _listed(known))
        return tuple(series)

    def _turns(self, loop: Any, xs: Sequence[Series]) -> tuple[Series, ...]:
        """A loop in a rule, whose coefficients are computed one after the other."""
        starts = self._starts(loop, [x.start for x in xs])
        orders: dict[int, tuple[Series, ...]] = {}

        def more(m: int, k: int) -> Coefficient:
            if k not in orders:
                orders[k] = self._loop(loop, xs, k)
            return orders[k][m][k]

        return tuple([Series(x, functools.partial(more, m)) for m, x in enumerate(starts)])

    # ---- the end

    def outputs(self) -> list[Operand]:
        found = []
        for j in range(self.order + 1):
            for x in self.tape.outputs:
                series = self.of(x)
                found.append((series[j] or zero_of(series.start)).operand)
        return found

    def finish(self, outputs: Sequence[Operand]) -> Tape:
        builder, tape = self.builder, self.tape
        self.writer.src, self.writer.reason = None, ""
        builder.guards += [
            Guard(self.of(g.operand).start.operand, g.expected, g.what, g.src) for g in tape.guards
        ]
        return with_reached(builder.finish(outputs, tape.captured), self.writer)


class _Results:
    """The results of a call, computed by its forward rule."""

    def __init__(
        self,
        expansion: _Expansion,
        primitive: Primitive,
        xs: Sequence[Series],
        moves: tuple[bool, ...],
        starts: Sequence[Node],
    ) -> None:
        self._expansion = expansion
        self._primitive, self._xs, self._moves, self._starts = primitive, xs, moves, starts
        # A literal that moves is an operand of the rule like any other.
        self._still = [
            isinstance(x.start.operand, Literal) and not flag
            for x, flag in zip(xs, moves, strict=True)
        ]
        self._types = tuple(
            [x.start.operand if still else x.aval for x, still in zip(xs, self._still, strict=True)]
        )
        self._outs = tuple([x.aval for x in starts])
        self._known: list[list[Coefficient]] = []
        self._rates: list[Series | None] | None = None
        self._sided = self._has_sides()
        self._linear = not self._sided and expansion._rules.is_linear(
            primitive, self._types, moves, self._outs
        )
        self.series = tuple(
            [
                Series(x, functools.partial(self._coefficient, m))
                if x.dtype.kind in "fc"
                else expansion.still(x.operand)
                for m, x in enumerate(starts)
            ]
        )

    def _has_sides(self) -> bool:
        """Whether the call has a kink and is linear on each side of it."""
        primitive, operands = self._primitive, [x.start.operand for x in self._xs]
        if primitive.kink(operands) is None or isinstance(primitive, Decomposition):
            return False
        if isinstance(primitive, Sided):
            if not any(self._moves[: primitive.points]):
                return False
            if not primitive.ties.balanced:
                raise GradientError(
                    "the derivative of eigenvalues or singular values has no Taylor series here"
                )
        rules = self._expansion._rules
        sided = rules.is_linear(primitive, self._types, self._moves, self._outs, 1)
        self._expansion.kinked |= sided
        return sided

    def _coefficient(self, m: int, k: int) -> Coefficient:
        while len(self._known) < k:
            self._known.append(self._next(len(self._known) + 1))
        return self._known[k - 1][m]

    def _next(self, k: int) -> list[Coefficient]:
        expansion, xs = self._expansion, self._xs
        ts = [x[k] if flag else None for x, flag in zip(xs, self._moves, strict=True)]
        if self._sided:
            moving = [x for x, flag in zip(xs, self._moves, strict=True) if flag]
            steps = [
                self._sign(x[j] or zero_of(x.start), j) for j in range(1, k + 1) for x in moving
            ]
            whole = [x[k] or zero_of(x.start) for x in moving]
            return self._on_its_side(self._rule(self._moves, k), whole, steps)
        if self._linear:
            present = [t for t in ts if t is not None]
            if not present:
                return [None] * len(self._starts)
            rule = self._rule(tuple([t is not None for t in ts]), 0)
            return expansion.written(rule, [*present, *self._given(rule)])
        if self._rates is None:
            rule = self._rule(self._moves, 0)
            moved = [x.derivative() for x, flag in zip(xs, self._moves, strict=True) if flag]
            others = [x for x, still in zip(xs, self._still, strict=True) if not still]
            self._rates = expansion.run(rule, [*moved, *self.series, *others])
        found = [None if rate is None else over(rate[k - 1], k) for rate in self._rates]
        return [self._mended(m, y, k) for m, y in enumerate(found)]

    def _on_its_side(self, rule: Rule, whole: list[Node], steps: list[Node]) -> list[Coefficient]:
        """The rule's results; NaN where an undefined coefficient decides the side."""
        expansion, given = self._expansion, self._given(rule)
        if not expansion.unknown:
            return expansion.written(rule, [*whole, *steps, *given])
        there, back = [
            expansion.written(
                rule, [*whole, *[where(isnan(x), x.constant(s), x) for x in steps], *given]
            )
            for s in (1, -1)
        ]
        return [
            None if x is None else unless(not_equal(x, y), x)
            for x, y in zip(there, back, strict=True)
        ]

    def _rule(self, moves: tuple[bool, ...], sides: int) -> Rule:
        rules = self._expansion._rules
        return rules.of(self._primitive, self._types, moves, self._outs, sides)

    def _given(self, rule: Rule) -> list[Node]:
        """The results and operands that the rule takes, at t = 0."""
        others = [x.start for x, still in zip(self._xs, self._still, strict=True) if not still]
        return [*self._starts, *others]

    def _sign(self, x: Node, j: int) -> Node:
        return -x if j % 2 and self._expansion.side < 0 else x

    def _mended(self, m: int, y: Coefficient, k: int) -> Coefficient:
        """The coefficient, corrected for strong zeros and for a length of 0."""
        if y is None:
            return None
        origin = self._primitive.ties.origin
        if origin is not None and (origin < 0 or (m == origin and k > 1)):
            # The slope is 0 by convention, which says nothing about later coefficients.
            self._expansion.unknown = True
            length = self._xs[origin].start if origin < 0 else self._starts[origin]
            there = length.equals(0)
            if y.shape != there.shape:
                there = BroadcastTo(y.shape)(Any_(tuple(range(there.ndim)))(there))
            return unless(there, y)
        if m == origin and isinstance(self._primitive, Norm | Elementwise):
            # |x_1 t + x_2 t^2 + ...| = |t| |x_1| + ...: the sign of the coefficient depends on the
            # side.
            self._expansion.kinked = True
            length = self._primitive.length(*[x[1] or zero_of(x.start) for x in self._xs])
            return where(self._starts[m].equals(0), self._sign(length, 1), y)
        if not isinstance(self._primitive, Elementwise):
            return y
        masks, still = self._expansion.masks, None
        for x, flag in zip(self._xs, self._moves, strict=True):
            for j in range(1, k + 1) if flag else ():
                if (x_j := x[j]) is None:
                    continue
                if not masks.is_masked(x_j):
                    return y
                zero = x_j.equals(0)
                still = zero if still is None else logical_and(still, zero)
        if still is None:
            return y
        return where(logical_and(still, isnan(y)), y.constant(0), y)


def _listed(nodes: Sequence[Node]) -> Callable[[int], Coefficient]:
    def more(k: int) -> Coefficient:
        return nodes[k - 1] if k <= len(nodes) else None

    return more
