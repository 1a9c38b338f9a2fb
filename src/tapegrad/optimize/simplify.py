"""Algebraic simplification: each call in its simplest form, one small rewrite at a time.

A call whose operands are all literals becomes a literal (`fold`), and equal calls are merged
(`cse`).

The rewrites are in `rewrites/`: `arithmetic` for elementwise calls, `views` for index maps, writes
and reductions, `contractions` for sums of products, `diagonals` for products with diagonal
matrices. The first two keep every value, including NaN, infinities and signed zeros; the others
keep sums up to rounding. Rewrites that reorder products, which may overflow or underflow in another
order, are left to `reorder` (see `rewrites/ranges`). Missing on purpose: `x * 0 -> 0` (wrong for
NaN and infinities), `x + 0.0 -> x` (wrong for -0.0), `x - x -> 0` (wrong for infinities), the sum
of a repeated value (rounds differently).

Names: `p` the primitive, `x`, `y`, `xs` its operands; `s` the simplifier.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tapegrad.ir.inputs import unused
from tapegrad.ir.tape import Aval, Call, Literal, Operand, Rewriter, Tape, Var, everywhere
from tapegrad.optimize.cse import identity
from tapegrad.optimize.dce import remove_dead
from tapegrad.optimize.fold import folded
from tapegrad.optimize.rewrites import arithmetic, contractions, diagonals, ranges, systems, views
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Primitive
from tapegrad.primitives.kinds import Contraction, Reduction, Repeated, View
from tapegrad.primitives.views import BroadcastTo

MAX_ROUNDS = 4

Rewrite = Callable[..., Operand | None]


@everywhere
def simplify(tape: Tape) -> Tape:
    """Apply the rewrites to each call until none applies, and merge equal calls. Guards that are
    known to hold, and duplicates, are dropped."""
    return _simplified(Simplifier(tape))


def reorder(tape: Tape) -> Tape:
    """`simplify`, with sums of products in the order of least work, and guards that the order only
    changes rounding.

    For compiled code: where a guard fails the caller falls back to NumPy's order. In a loop guards
    may ask about invariants only.
    """
    matrices = tape.matrices
    for _ in range(MAX_ROUNDS):  # a pass may leave one reader of a product to the next
        if not _multiplies(tape):
            break
        simplifier = Simplifier(tape)
        simplifier.moderate, simplifier.matrices = {}, matrices
        before, tape = tape, remove_dead(_simplified(simplifier))
        if not simplifier.moderate or _calls_in(tape) == _calls_in(before):
            break
    return remove_dead(ranges.narrowest(tape))


def _multiplies(tape: Tape) -> bool:
    """Whether the tape or a sub-tape has sums of products."""
    return any(
        isinstance(call.primitive, Contraction) or any(map(_multiplies, call.primitive.tapes))
        for call in tape.calls
    )


def _calls_in(tape: Tape) -> int:
    return len(tape.calls) + sum(_calls_in(x) for call in tape.calls for x in call.primitive.tapes)


def _simplified(simplifier: Simplifier) -> Tape:
    for call in simplifier.tape.calls:
        simplifier.simplify(call)
    done = simplifier.finish()
    if not done.guards:
        return done
    open_ = [guard for guard in done.guards if guard.operand != guard.expected]
    return replace(done, guards=tuple(dict.fromkeys(open_)))


class Simplifier(Rewriter):
    """Makes calls in their simplest form.

    A rewrite is a function `rewrite(s, p, xs, shape)`. It returns an operand with the value of
    `p(*xs)`, or None if it has nothing better. The operand may be smaller than `shape`, and is
    broadcast then. New calls are made with `s.make`. So every rewrite must make progress in some
    order; otherwise two of them would call each other forever.
    """

    def __init__(self, tape: Tape) -> None:
        super().__init__(tape)
        self.made: dict[Var, Call] = {}
        self.known: dict[Any, tuple[Var, ...]] = {}  # key of a call -> its results
        self.call: Call | None = None  # the call being simplified: new calls get its line
        # The number of readers of each old variable ...
        self.reads = Counter([x for c in tape.calls for x in c.operands if type(x) is Var])
        self.reads.update([x for x in tape.outputs if type(x) is Var])
        self.reads.update([g.operand for g in tape.guards if type(g.operand) is Var])
        self.shared: Counter[Operand] = Counter()  # ... and of each new one
        # Value -> exponent: values that have to be moderate because sums were reordered. None if
        # sums must keep their order. `spans` holds the values seen as sums of products (see
        # `rewrites.ranges`).
        self.moderate: dict[Var, int] | None = None
        self.matrices = False  # whether systems may be rewritten (see `rewrites.systems`)
        self.outside: dict[Operand, Var] | None = (
            None  # in a loop: input of the body -> the outer value that guards may ask about
        )
        self.spans: dict[Operand, ranges.Span] = {}

    def simplify(self, call: Call) -> None:
        """Copy a call in its simplest form."""
        self.call = call
        operands = self.operands(call)
        if self.moderate is not None and isinstance(call.primitive, Repeated):
            call = self._reordered_inside(call, operands)
            operands = [*call.operands]
        value = None
        if len(call.outs) == 1:
            same = all(x.aval is y.aval for x, y in zip(operands, call.operands, strict=True))
            value = self.simpler(call.primitive, operands, call.out.aval if same else None)
        if value is not None:
            self.env[call.out] = value
            if value in operands:  # this call no longer reads it; the readers of this call do now
                self.shared[value] -= operands.count(value)
        else:
            key = identity(call.primitive, operands)
            outs = self.known.get(key)
            if outs is None:
                outs = self.known[key] = self.builder.again(call, operands)
                self.made.update(dict.fromkeys(outs, self.builder.calls[-1]))
            self.env.update(zip(call.outs, outs, strict=True))
        for out in call.outs:
            if type(new := self.env[out]) is Var:
                self.shared[new] += self.reads[out]

    def _reordered_inside(self, call: Call, operands: Sequence[Operand]) -> Call:
        """A loop with reordered sums, if the values that have to be moderate are invariants.

        A conditional keeps its order: it may depend on that very range.
        """
        loop: Any = call.primitive
        if not _multiplies(loop.body) or (loop.most == 1 and not isinstance(operands[0], Literal)):
            return replace(call, operands=tuple(operands))
        body, given = self._with_products(loop, loop.given(operands))
        inside = Simplifier(body)
        inside.moderate, inside.matrices = {}, self.matrices
        pairs = [*zip(body.inputs[1:], given, strict=True)][loop.carried :]
        inside.outside = {
            inside.env[x]: y for x, y in pairs if isinstance(y, Var) and ranges.may_ask(self, y)
        }
        body = _simplified(inside)
        if not inside.moderate:
            return replace(call, operands=tuple(operands))
        for x, bound in inside.moderate.items():
            ranges.note(self, inside.outside[x], bound)
        heads = loop.heads(operands)
        return replace(call, primitive=loop.changed(body=body), operands=(*heads, *given))

    def _with_products(self, loop: Any, given: Sequence[Operand]) -> tuple[Tape, Sequence[Operand]]:
        """A loop's body that computes outer products of its invariants itself, and its new
        operands."""
        body = loop.body
        for var, x in [*zip(body.inputs[1:], given, strict=True)][loop.carried :]:
            made = self.made_by(x, ew.mul)
            if made is None or not all(
                isinstance(y, Var) and y.aval.size < x.aval.size for y in made.operands
            ):
                continue
            new = unused(body, [y.aval for y in made.operands])
            rest = [k for k, v in enumerate(body.inputs) if v is not var]
            names = body.names and (*[body.names[k] for k in rest], *("",) * len(new))
            inputs = (*[body.inputs[k] for k in rest], *new)
            calls = (Call(ew.mul, tuple(new), (var,), made.src, made.reason), *body.calls)
            body = replace(body, inputs=inputs, names=names, calls=calls)
            given = [*[given[k - 1] for k in rest[1:]], *made.operands]
        return body, given

    def finish(self) -> Tape:
        asked = self.moderate if self.outside is None else None
        guards = ranges.guards(self.builder, asked or {})
        done = super().finish()
        return replace(done, guards=(*done.guards, *guards), calls=tuple(self.builder.calls))

    def alone(self, x: Operand) -> bool:
        """Whether `x` has a single reader."""
        return self.shared[x] < 2

    def make(self, p: Primitive, *xs: Operand) -> Operand:
        """The value of `p(*xs)`: by a rewrite, by an equal call, or by a new call."""
        value = self.simpler(p, xs)
        if value is not None:
            return value
        assert self.call is not None
        key = identity(p, xs)
        outs = self.known.get(key)
        if outs is None:
            outs = self.known[key] = self.builder.call(p, xs, self.call.src, self.call.reason)
            self.made[outs[0]] = self.builder.calls[-1]
        return outs[0]

    def simpler(
        self, p: Primitive, xs: Sequence[Operand], aval: Aval | None = None
    ) -> Operand | None:
        """The value of `p(*xs)`, if a rewrite or folding gives one. `aval` is its type, if
        known."""
        value = folded(p, xs)
        if value is not None:
            return value
        rewrites = _of_complex(p) if xs and xs[-1].dtype.kind == "c" else _rewrites(p)
        if rewrites:
            if aval is None:
                (aval,) = p.avals(*[x.aval for x in xs])
            for rewrite in rewrites:
                new = rewrite(self, p, xs, aval.shape)
                if new is not None:
                    same = new.shape == aval.shape
                    return new if same else self.make(BroadcastTo(aval.shape), new)
        return None

    def made_by(self, x: Operand, kind: Any) -> Call | None:
        """The call that defines `x`, if it applies the primitive `kind`, or a primitive of the
        class `kind`."""
        call = self.made.get(x) if type(x) is Var else None
        if call is None:
            return None
        if isinstance(kind, Primitive):
            return call if call.primitive is kind else None
        return call if isinstance(call.primitive, kind) else None


def _of_complex(p: Primitive) -> tuple[Rewrite, ...]:
    """The rewrites for complex numbers. Elementwise ones that change numbers are left out: 1 * z
    isn't z if z is infinite."""
    rewrites = _rewrites(p)
    return rewrites[:1] if p.pointwise and p not in arithmetic.MOVES else rewrites


def _rewrites(p: Primitive) -> tuple[Rewrite, ...]:
    """The rewrites for calls of a primitive, in the order in which they are tried."""
    if p.pointwise:
        own = arithmetic.REWRITES.get(p) or arithmetic.REWRITES.get(type(p))
        return (arithmetic.small, own) if own else (arithmetic.small,)
    kind: Any = type(p)
    return _of_class(kind)


@functools.cache
def _of_class(kind: Any) -> tuple[Rewrite, ...]:
    """The rewrites for a class of primitives that aren't pointwise."""
    own = views.REWRITES.get(kind) or (views.of_one if issubclass(kind, Reduction) else None)
    found = (views.of_scalar, own) if issubclass(kind, View) else (own,)
    products = [x.REWRITES.get(kind) for x in (diagonals, systems, contractions)]
    return tuple([r for r in (*products, *found) if r is not None])
