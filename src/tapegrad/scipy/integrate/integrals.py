"""The derivatives of an integral: integrals of derivatives, over the same nodes.

  F(p, a, b) = the integral of f(t, p) from a to b
  dF/dp = the integral of df/dp,   dF/da = -f(a, p),   dF/db = f(b, p)

This holds unless f jumps at a place that moves with p, such as t = c in (t > c). A derivative of f
may jump where f only has a kink, as |t - c| does. So the integrand of each order is tested for
jumps when its derivative is computed.

Names: `places` the nodes, their weights, the intervals that contain them, and the limits a and b;
`p` the traced values that the integrand reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.integrate as theirs

from tapegrad.errors import GradientError
from tapegrad.extending.primitives import (
    AsType,
    BroadcastTo,
    Reshape,
    Sum,
    Window,
    add,
    entry_at,
    mul,
)
from tapegrad.extending.solvers import HotTape, called, real
from tapegrad.extending.tapes import (
    METHODS,
    Aval,
    Builder,
    CallTape,
    Custom,
    ForeignCall,
    Literal,
    Loop,
    Tape,
    batch,
    inline_calls,
)
from tapegrad.scipy.callbacks import joined, may_step
from tapegrad.scipy.integrate.jumps import has_jump, jump_between
from tapegrad.scipy.solver_calls import Constant

END_DISTANCE = 1e-9  # the distance from an end, where an integrand may be infinite
SLIGHT = 1e-9  # a negligible jump, relative to the integrand
NOTHING = 1e-30  # a negligible term, relative to the largest
PLACES = 5
CELLS = 1 << 14  # the largest number of elements that is batched
A, B = 3, 4  # the positions of the limits in `places`


@functools.cache
def rule(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The nodes and weights of a quadrature rule on the interval from 0 to 1."""
    count = {"gk21": 21, "gk15": 15}[name]
    nodes: list[float] = []

    def unit(t: float) -> Any:
        nodes.append(t)
        return np.eye(count)[len(nodes) - 1] if len(nodes) <= count else np.zeros(count)

    weights, _ = theirs.quad_vec(unit, 0.0, 1.0, quadrature=name, limit=1)
    return np.array(nodes[:count]), np.asarray(weights)


def in_intervals(name: str, ends: Any) -> tuple[np.ndarray, np.ndarray]:
    """The nodes and weights of a rule in each of several intervals."""
    nodes, weights = rule(name)
    size = ends[:, 1:] - ends[:, :1]
    return ends[:, :1] + size * nodes, size * weights


class Range:
    """The range of an integral, mapped to t from 0 to 1: once, or twice for an integral over the
    whole line."""

    def __init__(self, a: float, b: float) -> None:
        self.kind = [float(np.sign(x)) if np.isinf(x) else 0.0 for x in (a, b)]
        self.rule = "gk15" if any(self.kind) else "gk21"
        if not any(self.kind):
            self.sides = [(a, b - a, b - a)]
        elif all(self.kind):
            sign = float(b > a) - float(a > b)
            self.sides = [(0.0, 1.0, sign), (0.0, -1.0, sign)]
        else:
            sign = sum(self.kind)
            self.sides = [(a, sign, sign)] if self.kind[1] else [(b, sign, -sign)]

    def placed(self, t: Any, w: Any) -> Any:
        """Nodes and weights in x, from those in t."""
        if any(self.kind):
            t, w = (1 - t) / t, w / t**2
        parts = [(start + step * t, factor * w) for start, step, factor in self.sides]
        one = len(parts) == 1
        return parts[0] if one else tuple(np.concatenate(x) for x in zip(*parts, strict=True))

    def within(self, ends: Any) -> Any:
        """The intervals in t that correspond to QUADPACK's last intervals."""
        ends = np.sort(np.asarray(ends, float).reshape(-1, 2), 1)
        if any(self.kind):
            return ends
        start, size, _ = self.sides[0]
        return np.sort((ends - start) / size, 1) if size else np.array([[0.0, 1.0]])

    def integrand(self, f: Callable[..., Any]) -> Callable[[float], Any]:
        """The integrand as a function of t."""

        def of_t(t: float) -> Any:
            x, w = self.placed(np.array([t]), np.ones(1))
            return sum(v * f(float(u)) for u, v in zip(x, w, strict=True))

        return of_t

    def limit(self, k: int) -> float:
        """The t of a finite limit."""
        return 0.0 if k == A and not any(self.kind) else 1.0


@dataclass(eq=False)
class Integral:
    """The integral over t of the results of `tape`, whose inputs are t and p, with its rules.

    `tape` is the derivative of the integrand of the given `order`. `limits` tells which of a and b
    have a derivative.
    """

    tape: Tape
    order: int
    name: str
    line: str
    limits: tuple[bool, bool]

    def __post_init__(self) -> None:
        self.tape = replace(self.tape, guards=(), output_names=())  # the guards held at the nodes

    def of(self, tape: Tape, places: Sequence[Any], p: Sequence[Any]) -> tuple[Any, ...]:
        """The integral of a derivative of the integrand."""
        integral = replace(self, tape=tape, order=self.order + 1)
        if self.order and may_step(tape, [0], real(tape, 1)):
            places = integral.cut(places, p)
        rules = integral.backward, integral.forward
        call = Custom(f"integral of {self.name}", integral.sums(places), *rules)
        found = call(*places, *p)
        return found if isinstance(found, tuple) else (found,)

    def sums(self, places: Sequence[Any]) -> Tape:
        """The tape of the sums of weights times values. Small values are batched, with a row for
        each node; else the tape is a loop over the nodes."""
        count, outs = places[0].shape[0], self.tape.outputs
        tape = inline_calls(self.tape)
        sizes = [x.aval.size for call in tape.calls for x in call.outs]
        if count * max(sizes, default=1) <= CELLS and not any(
            c.primitive.tapes for c in tape.calls
        ):
            return self.of_rows(places, *batch(tape, [0], count))
        body = Builder("node")
        step = body.input(Aval((), np.dtype(np.int64)))
        kinds = [np.result_type(x.dtype, float) for x in outs]
        totals = [body.input(Aval(x.shape, k)) for x, k in zip(outs, kinds, strict=True)]
        t, w = [body.input(x.aval) for x in places[:2]]
        p = [body.input(x.aval) for x in self.tape.inputs[1:]]
        (t,), (w,) = [body.call(Window(*entry_at(0, ())), [x, step]) for x in (t, w)]
        after: list[Any] = []
        for total, value in zip(totals, body.call(CallTape(self.tape), [t, *p]), strict=True):
            (part,) = body.call(mul, [w, _of(value, total, body)])
            after += body.call(add, [total, part])
        builder = Builder(f"integral of {self.name}")
        xs = [builder.input(x.aval) for x in (*places, *self.tape.inputs[1:])]
        start: list[Any] = []
        for x, kind in zip(outs, kinds, strict=True):
            start += builder.call(BroadcastTo(x.shape), [Literal(kind.type(0))])
        loop = Loop(body.finish(after), len(outs), count)
        rounds = Literal(np.int64(count))
        found = builder.call(loop, [rounds, *start, *xs[:2], *xs[PLACES:]])
        pairs = zip(found, outs, strict=True)
        return builder.finish([_of(x, out, builder) for x, out in pairs])

    def of_rows(self, places: Sequence[Any], rows: Tape, have_rows: Sequence[bool]) -> Tape:
        """The sums for a tape that is batched over all nodes."""
        builder = Builder(f"integral of {self.name}")
        xs = [builder.input(x.aval) for x in (*places, *self.tape.inputs[1:])]
        found: list[Any] = []
        for out, x, has_rows in zip(
            self.tape.outputs,
            builder.call(CallTape(rows), [xs[0], *xs[PLACES:]]),
            have_rows,
            strict=True,
        ):
            shape = (xs[0].shape[0], *out.shape)
            (x,) = (x,) if has_rows else builder.call(BroadcastTo(shape), [x])
            (w,) = builder.call(Reshape((shape[0], *[1] * len(out.shape))), [xs[1]])
            (x,) = builder.call(mul, [w, x])
            (x,) = builder.call(Sum((0,)), [x])
            found.append(_of(x, out, builder))
        return builder.finish(found)

    # ---- the rules

    def backward(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        return self.pulled(cts, xs[:PLACES], xs[PLACES:])

    def forward(self, ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        return self.pushed(ts, xs[:PLACES], xs[PLACES:])

    def pulled(self, cts: Sequence[Any], places: Sequence[Any], p: Sequence[Any]) -> list[Any]:
        """The cotangents of `places` and of `p`."""
        known = [k for k, ct in enumerate(cts) if ct is not None]
        found: list[Any] = [None] * (PLACES + len(p))
        if not known:
            return found
        tape = replace(self.tape, outputs=tuple([self.tape.outputs[k] for k in known]))
        seeds, active = [cts[k] for k in known], real(tape, 1)
        pulled = self.of(METHODS["pulled"](tape, active), places, [*p, *seeds]) if active else ()
        stepping = [k for k in active if may_step(tape, [0], [k])]
        check = self.check(tape, places, p) if stepping else None
        for k, ct in zip(active, pulled, strict=True):
            found[PLACES + k - 1] = _with(ct, check if k in stepping else None)
        for k, sign in self.ends:
            values = called(tape, [places[k], *p])
            parts = [_total(ct * value) for ct, value in zip(seeds, values, strict=True)]
            check = self.check(tape, places, p, k) if stepping else None
            found[k] = _with(sign * sum(parts[1:], parts[0]), check)
        return found

    def pushed(self, ts: Sequence[Any], places: Sequence[Any], p: Sequence[Any]) -> list[Any]:
        """The tangents of the results."""
        tape = self.tape
        moving = [k for k in real(tape, 1) if ts[PLACES + k - 1] is not None]
        parts: list[list[Any]] = [[] for _ in tape.outputs]
        if moving:
            tangents = [_as(ts[PLACES + k - 1], p[k - 1]) for k in moving]
            pushed = self.of(METHODS["pushed"](tape, moving), places, [*p, *tangents])
            check = self.check(tape, places, p) if may_step(tape, [0], moving) else None
            for part, t in zip(parts, pushed, strict=True):
                part.append(_with(t, check))
        for k, sign in self.ends:
            if ts[k] is None:
                continue
            steps = may_step(tape, [0], real(tape, 1))
            check = self.check(tape, places, p, k) if steps else None
            for part, value in zip(parts, called(tape, [places[k], *p]), strict=True):
                part.append(_with(sign * ts[k] * value, check))
        return [sum(part[1:], part[0]) if part else None for part in parts]

    def cut(self, places: Sequence[Any], p: Sequence[Any]) -> Sequence[Any]:
        """Places in intervals that also end where the integrand jumps. The integrand of a second
        derivative may jump where a slope has a kink, and the first intervals don't end there."""
        often = HotTape(self.tape, f"cuts of {self.name}")
        count, several = 2 * places[0].shape[0], 2 * places[2].shape[0]

        def function(nodes: Any, weights: Any, ends: Any, a: Any, b: Any, *p: Any) -> list[Any]:
            where, f = Range(float(a), float(b)), often.on(p)
            wide = ends[ends[:, 1] > ends[:, 0]]
            found = _without_jumps(where.integrand(lambda t: joined(f(t))), wide, several)
            if len(found) > len(wide):
                nodes, weights = where.placed(*map(np.ravel, in_intervals(where.rule, found)))
                parts = np.array(
                    [
                        w * np.max(np.abs(joined(f(float(t)))))
                        for t, w in zip(nodes, weights, strict=True)
                    ]
                )
                parts = np.where(np.isfinite(parts), np.abs(parts), 0.0)
                counts = parts > NOTHING * np.max(parts)  # it may overflow far out
                nodes, weights, ends = nodes[counts], weights[counts], found
            if len(nodes) > count or len(ends) > several:
                raise GradientError(self.why)
            rest, empty = count - len(nodes), np.full((several - len(ends), 2), np.max(ends))
            nodes = np.append(nodes, np.full(rest, nodes[0]))
            return [nodes, np.append(weights, np.zeros(rest)), np.concatenate([ends, empty])]

        function.__name__ = f"cuts of {self.name}"
        none, number = Constant(), np.dtype(float)
        types = Aval((count,), number), Aval((count,), number), Aval((several, 2), number)
        call = ForeignCall(function.__name__, function, types, 3, none.backward, "", none.forward)
        return [*call(*places, *p), *places[A:]]

    @property
    def ends(self) -> list[tuple[int, int]]:
        """The limits that have a derivative, each with the derivative's sign."""
        return [end for end, moves in zip(((A, -1), (B, 1)), self.limits, strict=True) if moves]

    def check(
        self, tape: Tape, places: Sequence[Any], p: Sequence[Any], limit: int | None = None
    ) -> Any:
        """A 0 that raises an error when it is computed if the tape's result jumps between the
        limits, or at the given limit."""
        often = HotTape(tape, f"jumps of {self.name}")

        def function(ends: Any, a: Any, b: Any, *p: Any) -> list[Any]:
            where, f = Range(float(a), float(b)), often.on(p)
            at = None if limit is None else where.limit(limit)
            if has_jump(where.integrand(lambda t: joined(f(t))), ends, limit=at):
                raise GradientError(self.why)
            return [np.float64(0)]

        function.__name__ = f"jumps of {self.name}"
        none = Constant()
        types = (Aval((), np.dtype(float)),)
        call = ForeignCall(function.__name__, function, types, 1, none.backward, "", none.forward)
        return call(*places[2:], *p)

    @property
    def why(self) -> str:
        """The message of that error."""
        what = "the integrand jumps" if self.order == 0 else "a slope of the integrand jumps"
        return (
            f"{self.name} has no derivative of order {self.order + 1}{self.line}: {what} at a "
            "place that moves with a traced value, and the derivative by that isn't an integral of "
            "derivatives. Integrate from a limit to that place, and from there to the other limit, "
            "each time what the integrand is on that side: quad(lambda t: c - t, a, c) and "
            "quad(lambda t: t - c, c, b) for abs(t - c)"
        )


@dataclass(eq=False)
class Found:
    """The rules of the call that computes an integral: its operands are (a, b, p), its results the
    integral, nodes, weights, intervals, ...; all results but the first are constants."""

    integral: Integral

    def backward(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        return self.integral.pulled(cts[:1], [*outs[1 : A + 1], *xs[:2]], xs[2:])[A:]

    def forward(self, ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        places = [*outs[1 : A + 1], *xs[:2]]
        found = self.integral.pushed([*[None] * A, *ts], places, xs[2:])
        return [*found, *[None] * (len(outs) - 1)]


def _without_jumps(g: Callable[[float], Any], ends: np.ndarray, most: int) -> np.ndarray:
    """Intervals in which a function doesn't jump: `ends`, split where it does."""
    middles = [np.max(np.abs(g(float(t)))) for t in ends.mean(1)]
    least, left = SLIGHT * np.max(middles, initial=0.0), [*map(tuple, ends)]
    found: list[tuple[float, float]] = []
    while left and len(found) + len(left) <= most:
        low, high = left.pop()
        jump = (
            jump_between(g, low + END_DISTANCE, high - END_DISTANCE, least, 1.0)
            if high - low > END_DISTANCE
            else None
        )
        if jump is None:
            found.append((low, high))
        else:
            left += [(low, jump), (jump, high)]
    return np.array(sorted([*found, *left]))


def shaped(tape: Tape, shape: tuple[int, ...]) -> Tape:
    """A tape that reshapes the result to `shape`."""
    if tape.outputs[0].shape == shape:
        return tape
    builder = Builder(tape.name)
    found = builder.call(CallTape(tape), [builder.input(v.aval) for v in tape.inputs])
    return builder.finish(builder.call(Reshape(shape), found))


def _with(ct: Any, check: Any) -> Any:
    return ct if check is None else ct + BroadcastTo(ct.shape)(check)


def _as(t: Any, x: Any) -> Any:
    return t if t.shape == x.shape else BroadcastTo(x.shape)(t)


def _of(x: Any, like: Any, builder: Builder) -> Any:
    """A number converted to the dtype of `like`."""
    return x if x.dtype == like.dtype else builder.call(AsType(like.dtype), [x])[0]


def _total(x: Any) -> Any:
    return Sum(tuple(range(x.ndim)))(x) if x.ndim else x
