"""Roots whose operand is known to be a square or sum of squares, marked before differentiating.

    sqrt(sum(square(z)))  -->  norm(sum(square(z)), z)        the derivative is that of a norm
    sqrt(z @ z)           -->  norm(z @ z, z)
    square(sqrt(u))       -->  known(square(sqrt(u)), u)      the derivative is that of u
    square(hypot(x, y))   -->  known(square(hypot(x, y)), square(x) + square(y))
    power(cbrt(u), 6)     -->  known(power(cbrt(u), 6), power(u, 2))

No value changes. At 0 the root's own rule divides by 0, although the derivative exists.
"""

from __future__ import annotations

import math
from typing import Any

from tapegrad.ir.tape import Call, Literal, Operand, Rewriter, Tape, Var, literal
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import kinked
from tapegrad.primitives.contractions import Einsum, terms_of
from tapegrad.primitives.kinds import Linear
from tapegrad.primitives.norms import ALONE, Norm
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.stated import Known
from tapegrad.primitives.views import (
    BroadcastTo,
    ExpandDims,
    GetItem,
    Reshape,
    Squeeze,
    Transpose,
)

OF_ONE = (BroadcastTo, GetItem)
STEPS = (Sum, ExpandDims, Reshape, Squeeze, Transpose)
ROOTS: dict[Any, int] = {ew.sqrt: 2, ew.root: 2, kinked.hypot: 2, ew.cbrt: 3}


def tell_roots(tape: Tape) -> Tape:
    """Apply the rewrites to each root, and to each power of one."""
    if not any(call.primitive in ROOTS for call in tape.calls):
        return tape
    rewriter = Rewriter(tape)
    made = {call.out: call for call in tape.calls if len(call.outs) == 1}
    for call in tape.calls:
        rewriter.copy(call)
        value = rewriter.operand(call.outs[0])
        if call.outs[0].dtype.kind == "c":  # these rules hold for real roots only
            continue
        if call.primitive in (ew.sqrt, ew.root):
            terms = _squares(made, call.operands[0], rewriter)
            if terms:
                primitive: Any = Norm(tuple(path for _, path in terms))
                operands = [rewriter.operand(call.operands[0]), *[z for z, _ in terms]]
            else:
                continue
        else:
            base = _undone(made, call, rewriter)
            if base is None or base.shape != value.shape:
                continue
            primitive, operands = Known(), [value, base]
        (told,) = rewriter.builder.call(primitive, operands, call.src, call.reason)
        rewriter.env[call.out] = told
    return rewriter.finish()


def _undone(made: dict[Var, Call], call: Call, rewriter: Rewriter) -> Operand | None:
    """The value of a power of a root, computed without the root."""
    power = _exponent(call)
    root = made.get(call.operands[0]) if power and isinstance(call.operands[0], Var) else None
    if root is None:
        return None
    times = power / ROOTS.get(root.primitive, math.inf) if power else 0
    if times < 1 or times != int(times):
        return None

    def made_of(primitive: Any, *xs: Operand) -> Operand:
        return rewriter.builder.call(primitive, xs, call.src, call.reason)[0]

    operands = rewriter.operands(root)
    base = operands[0]
    if root.primitive is kinked.hypot:
        base = made_of(ew.add, *[made_of(ew.square, x) for x in operands])
    if times == 1:
        return base
    return made_of(ew.power, base, literal(times, base.dtype))


def _is_square(call: Call) -> bool:
    if not call.operands:
        return False
    x, *others = call.operands
    return call.primitive is ew.square or (call.primitive is ew.mul and others == [x])


def _exponent(call: Call) -> float | None:
    if _is_square(call):
        return 2
    if call.primitive is ew.power and isinstance(call.operands[1], Literal):
        return float(call.operands[1].value)
    return None


def _squares(made: dict[Var, Call], u: Operand, rewriter: Rewriter) -> list[Any]:
    """The zs of whose squares u is a sum, each with its path; [] if u isn't such a sum."""
    call = made.get(u) if isinstance(u, Var) else None
    if call is None:
        return []
    if _is_square(call):
        return [(rewriter.operand(call.operands[0]), ALONE)]
    if isinstance(call.primitive, Einsum):
        return _product(call, rewriter)
    if isinstance(call.primitive, OF_ONE):  # applied to z as well
        inner = _squares(made, call.operands[0], rewriter)
        if any(steps for _, (_, steps) in inner):
            return []
        calls = [
            rewriter.builder.call(call.primitive, [z], call.src, call.reason) for z, _ in inner
        ]
        return [(z, path) for (z,), (_, path) in zip(calls, inner, strict=True)]
    if isinstance(call.primitive, STEPS) and isinstance(call.primitive, Linear):
        inner = _squares(made, call.operands[0], rewriter)
        ((_, parameter),) = call.primitive.parameters()
        step = call.primitive.name, parameter
        return [(z, (f, (*steps, step))) for z, (f, steps) in inner]
    if call.primitive in (ew.mul, ew.div):
        return _scaled(made, call, rewriter)
    if call.primitive is ew.add:
        terms = [x for x in call.operands if not (isinstance(x, Literal) and x.value == 0)]
        if all(x.shape == u.shape for x in terms):
            found = [_squares(made, x, rewriter) for x in terms]
            return [z for zs in found for z in zs] if all(found) else []
    return []


def _product(call: Call, rewriter: Rewriter) -> list[Any]:
    """The operand of a sum of products of `x` with itself, element by element; [] for other
    products."""
    x, y = call.operands
    product: Any = call.primitive
    terms = terms_of(product.subscripts)
    summed = tuple([axis for axis, letter in enumerate(terms.x) if letter not in terms.out])
    left = [letter for letter in terms.x if letter in terms.out]
    if x != y or terms.x != terms.y or left != list(terms.out):
        return []
    return [(rewriter.operand(x), (1.0, (("sum", summed),)))]


def _scaled(made: dict[Var, Call], call: Call, rewriter: Rewriter) -> list[Any]:
    x, y = call.operands
    if isinstance(x, Literal) and call.primitive is ew.mul:
        x, y = y, x
    if not isinstance(y, Literal) or x.shape != call.out.shape:
        return []
    factor = float(y.value) if call.primitive is ew.mul else 1 / float(y.value or math.inf)
    if not (factor > 0 and math.isfinite(factor)):
        return []
    return [(z, (f * factor, steps)) for z, (f, steps) in _squares(made, x, rewriter)]
