"""Extrema that shift or scale a computation whose result doesn't depend on them, stopped before
differentiating.

    top = max(x)                            top = stop_gradient(max(x))
    top + log(sum(exp(x - top)))     -->    top + log(sum(exp(x - top)))

They keep exponentials from overflowing: in softmax and logsumexp, mixtures and hidden Markov
models, and in norms that divide by the largest element. The chain rule would pass cotangents to the
largest element that cancel, up to rounding.

The proof: each value that depends on top is v + d top (`added`) or v exp(d top) (scaled), where v
doesn't depend on top. For the program above, v + d top and v exp(d top) with d =

    x - top   exp     sum     log     top + .
    -1        -1      -1      -1      0

If d is 0 wherever the values meet the rest of the program, the result doesn't depend on top. An
extremum that divides is scaled itself, with d = 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapegrad.core.late import FRACTIONS, load
from tapegrad.ir.readers import readers_of
from tapegrad.ir.tape import Call, Literal, Rewriter, Tape, Var, everywhere
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import kinked
from tapegrad.primitives.extrema import Max, Min
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.views import BroadcastTo, ExpandDims, Squeeze, Transpose

if TYPE_CHECKING:
    from fractions import Fraction

MOST = 64  # the largest number of calls that are followed from one extremum
_CHOICES = (kinked.maximum, kinked.minimum, kinked.fmax, kinked.fmin)


class _Degree(NamedTuple):
    """How a value depends on an extremum m: v + d m if `added`, else v exp(d m). Axis k of m is the
    value's axis `axes[k]`; axes of extent 1 are left out."""

    added: bool
    d: Fraction
    axes: tuple[int, ...]


class _Unknown(Exception):
    """A value depends on the extremum in another way."""


@everywhere
def stop_shifts(tape: Tape) -> Tape:
    """Stop the gradient of each extremum on which nothing depends in the end."""
    found = [call for call in tape.calls if _is_extremum(call)]
    if not found:
        return tape
    readers = readers_of(tape)
    free = {call.out for call in found if _is_cancelled(tape, call, readers)}
    if not free:
        return tape
    rewriter = Rewriter(tape)
    for call in tape.calls:
        rewriter.copy(call)
        if call.outs[0] in free:
            out = rewriter.operand(call.out)
            (stopped,) = rewriter.builder.call(ew.stop_gradient, [out], call.src, call.reason)
            rewriter.env[call.out] = stopped
    return rewriter.finish()


def _is_extremum(call: Call) -> bool:
    return isinstance(call.primitive, (Max, Min)) or call.primitive in _CHOICES


def _is_cancelled(tape: Tape, extremum: Call, readers: dict[Any, list[int]]) -> bool:
    """Whether no result depends on an extremum, as a shift or as a scale."""
    if extremum.out.dtype.kind != "f":
        return False
    one = load(FRACTIONS).Fraction(1)
    axes = tuple([a for a, extent in enumerate(extremum.out.shape) if extent != 1])
    for added in (True, False):
        try:
            _follow(tape, extremum.out, _Degree(added, one, axes), readers)
        except _Unknown:
            continue
        return True
    return False


def _follow(tape: Tape, m: Var, degree: _Degree, readers: dict[Any, list[int]]) -> None:
    """Find the degrees of all values that depend on `m`. Raises `_Unknown` for a result of the tape
    with one, and for a value that depends on `m` in another way."""
    known: dict[Any, _Degree] = {m: degree}
    todo = [*readers.get(m, ())]  # in order, which makes it a heap
    seen: set[int] = set()
    while todo:
        k = heapq.heappop(todo)
        if k in seen:
            continue
        seen.add(k)
        call = tape.calls[k]
        if len(seen) > MOST:
            raise _Unknown
        made = _degree(call, [known.get(x) for x in call.operands])
        if made is not None and made.d != 0:
            known[call.out] = made
            for reader in readers.get(call.out, ()):
                heapq.heappush(todo, reader)
    if not known.keys().isdisjoint(tape.outputs):
        raise _Unknown


def _degree(call: Call, given: Sequence[_Degree | None]) -> _Degree | None:
    """The degree of a call's result, for those of its operands. None if it doesn't depend on the
    extremum, or has no derivative."""
    primitive: Any = call.primitive
    if primitive.flat or all(out.dtype.kind not in "fc" for out in call.outs):
        return None
    if len(call.outs) != 1:
        raise _Unknown
    if isinstance(primitive, (Sum, Max, Min)):
        return _reduced(call, given[0])
    if isinstance(primitive, (ExpandDims, Squeeze, Transpose, BroadcastTo)):
        return _viewed(call, given[0])
    rule = _RULES.get(primitive)
    if rule is None:
        raise _Unknown
    axes = {_aligned(call, x, g) for x, g in zip(call.operands, given, strict=True) if g}
    kinds = {g.added for g in given if g}
    if len(axes) != 1 or len(kinds) != 1:
        raise _Unknown
    (added,) = kinds
    d = [None if g is None else g.d for g in given]
    added, total = rule(added, d, call.operands)
    return _Degree(added, total, axes.pop())


def _reduced(call: Call, given: Any) -> _Degree:
    """That of a sum or an extremum along axes on which m doesn't depend."""
    primitive: Any = call.primitive
    if not set(primitive.axes).isdisjoint(given.axes):
        raise _Unknown
    axes = tuple([a - sum(b < a for b in primitive.axes) for a in given.axes])
    count = 1
    if given.added and isinstance(primitive, Sum):
        count = int(np.prod([call.operands[0].shape[a] for a in primitive.axes]))
    return _Degree(given.added, given.d * count, axes)


def _viewed(call: Call, given: Any) -> _Degree:
    """That of a view: each axis of m is one of its axes."""
    primitive: Any = call.primitive
    numbers = [*range(1, 1 + len(call.out.shape))]  # 0 is the only index into an axis of extent 1
    read = primitive.read(numbers, call.operands[0].shape)
    return given._replace(axes=tuple([read[a] - 1 for a in given.axes]))


def _aligned(call: Call, x: Any, given: _Degree) -> tuple[int, ...]:
    """The axes of an elementwise call's result that are those of an operand."""
    ahead = len(call.out.shape) - len(x.shape)
    return tuple([a + ahead for a in given.axes])


# ---- elementwise calls: whether the operands are `added` or scaled, by which degrees


_Rule = Callable[[bool, Any, Sequence[Any]], Any]  # -> (added, d)


def _sum(sign: int) -> _Rule:
    """x + y, or x - y: degrees of added values are summed. Scaled values must have the same."""

    def rule(added: bool, d: Any, xs: Any) -> tuple[bool, Any]:
        if added:
            return True, (d[0] or 0) + sign * (d[1] or 0)
        return False, _same(d, xs, 0.0)

    return rule


def _product(sign: int) -> _Rule:
    """x * y, or x / y: degrees of scaled values are summed. Added values take plain factors."""

    def rule(added: bool, d: Any, xs: Any) -> tuple[bool, Any]:
        if not added:
            return False, (d[0] or 0) + sign * (d[1] or 0)
        (k,) = [k for k in (0, 1) if d[k] is not None] if None in d else (None,)
        factor = None if k is None else _number(xs[1 - k])
        if k is None or factor is None or (sign < 0 and (k == 1 or factor == 0)):
            raise _Unknown
        return True, d[k] * (factor if sign > 0 else 1 / factor)

    return rule


def _power(added: bool, d: Any, xs: Any) -> tuple[bool, Any]:
    exponent = _number(xs[1])
    if added or d[1] is not None or exponent is None:
        raise _Unknown
    return False, d[0] * exponent


def _scaled(power: int, root: int = 1) -> _Rule:
    """A power of a scaled value, or a root."""

    def rule(added: bool, d: Any, xs: Any) -> tuple[bool, Any]:
        if added:
            raise _Unknown
        return False, d[0] * power / root

    return rule


def _turned(of_added: bool) -> _Rule:
    """exp, of an added value; log, of a scaled one."""

    def rule(added: bool, d: Any, xs: Any) -> tuple[bool, Any]:
        if added != of_added:
            raise _Unknown
        return not added, d[0]

    return rule


def _choice(added: bool, d: Any, xs: Any) -> tuple[bool, Any]:
    """One of the operands: all must have the same degree."""
    return added, _same(d, xs, None)


def _where(added: bool, d: Any, xs: Any) -> tuple[bool, Any]:
    """The condition has no derivative. A number that stays what it is has any degree."""
    return added, _same(d[1:], xs[1:], np.inf if added else 0.0)


def _same(d: Sequence[Fraction | None], xs: Sequence[Any], any_degree: float | None) -> Fraction:
    """The degree that all operands have. A literal `any_degree`, or its opposite, has any."""
    found = {
        k
        for k, x in zip(d, xs, strict=True)
        if k is not None
        or any_degree is None
        or not isinstance(x, Literal)
        or np.abs(x.value) != any_degree
    }
    if len(found) != 1 or None in found:
        raise _Unknown
    (only,) = found
    assert only is not None
    return only


def _number(x: Any) -> Fraction | None:
    """The value of a finite literal."""
    if not isinstance(x, Literal) or x.dtype.kind not in "iuf" or not np.isfinite(x.value):
        return None
    value = x.value.item() if isinstance(x.value, np.generic) else x.value
    exact: Fraction = load(FRACTIONS).Fraction(value)
    return exact


_RULES: dict[Any, _Rule] = {
    **{ew.add: _sum(1), ew.sub: _sum(-1), ew.mul: _product(1), ew.div: _product(-1)},
    ew.neg: lambda added, d, xs: (added, -d[0] if added else d[0]),
    **{ew.exp: _turned(True), ew.log: _turned(False)},
    **{ew.power: _power, ew.square: _scaled(2), ew.reciprocal: _scaled(-1)},
    **{ew.sqrt: _scaled(1, 2), kinked.absolute: _scaled(1)},
    **dict.fromkeys(_CHOICES, _choice),
    ew.where: _where,
    ew.copy: lambda added, d, xs: (added, d[0]),
}
