"""The rule of one mode from the rule of the other mode.

A reverse rule is linear in its cotangents, a forward rule in its tangents, and each is the
transpose of the other: <ct, J t> = <J^T ct, t>. So a missing rule is the reverse mode of the other
one's tape. Other values that the tape reads are constants. As the tape is linear, its results
needn't be computed.

Names: `ct` cotangent, `t` tangent; `given` the operands of the transposed map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tapegrad.errors import GradientError
from tapegrad.ir.tape import METHODS, Aval, Call, Guard, Operand, Tape, Var
from tapegrad.primitives.base import Missing, Node, Writer
from tapegrad.primitives.complexes import cast_back
from tapegrad.primitives.elementwise import AsType
from tapegrad.primitives.reductions import Sum
from tapegrad.primitives.views import BroadcastTo, ExpandDims, zeros
from tapegrad.primitives.windows import Placed


def pushed_by(vjp: Callable[..., Sequence[Any]], ts: Sequence[Any], out: Any, *xs: Any) -> Any:
    """The tangents of the results, from a reverse rule `vjp(ct, out, *xs)` and the operands'
    tangents `ts`."""
    outs = out if isinstance(out, tuple) else (out,)
    moved = [k for k, x in enumerate(outs) if x.dtype.kind in "fc"]
    given = [None if t is None else (t, x.aval) for t, x in zip(ts, xs, strict=True)]

    def linear(*cts: Any) -> Sequence[Any]:
        whole = [zeros(x, x.shape) for x in outs]
        for k, ct in zip(moved, cts, strict=True):
            whole[k] = ct
        return vjp(tuple(whole) if isinstance(out, tuple) else whole[0], out, *xs)

    found = transposed(outs[0].writer, linear, [outs[k].aval for k in moved], given)
    whole: list[Any] = [None] * len(outs)
    for k, t in zip(moved, found, strict=True):
        whole[k] = t
    return tuple(whole) if isinstance(out, tuple) else whole[0]


def pulled_by(
    jvp: Callable[..., Any], cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]
) -> list[Any]:
    """The cotangents of the operands, from a forward rule `jvp(ts, outs, xs)` and the results'
    cotangents. If the rule has a method `missing`, this returns a `Missing` for each operand
    without derivative."""
    gaps = dict(enumerate(jvp.missing())) if hasattr(jvp, "missing") else {}
    moved = [k for k, x in enumerate(xs) if x.dtype.kind in "fc" and gaps.get(k) is None]
    given = [None if ct is None else (ct, x.aval) for ct, x in zip(cts, outs, strict=True)]

    def linear(*ts: Any) -> Sequence[Any]:
        whole: list[Any] = [None] * len(xs)
        for k, t in zip(moved, ts, strict=True):
            whole[k] = t
        return jvp(whole, outs, xs)

    found: list[Any] = [gaps.get(k) for k in range(len(xs))]
    pulled = transposed(outs[0].writer, linear, [xs[k].aval for k in moved], given)
    for k, ct in zip(moved, pulled, strict=True):
        found[k] = ct
    return found


def transposed(
    writer: Writer,
    linear: Callable[..., Sequence[Any]],
    avals: Sequence[Aval],
    given: Sequence[tuple[Any, Aval] | None],
) -> list[Any]:
    """J^T `given`, where `linear` writes the map J. J takes nodes of types `avals`. It returns one
    result for each of `given`, of its type, or None for 0.

    The calls of J are removed from the tape. The calls of the transposed map replace them.
    """
    builder = writer.builder
    start, first = len(builder.calls), len(builder.guards)
    inputs = [builder.fresh(aval) for aval in avals]
    results = linear(*map(writer.node, inputs))
    outputs: list[Operand] = []
    seeds: list[Any] = []
    for result, wanted in zip(results, given, strict=True):
        if result is None or wanted is None:
            continue
        if isinstance(result, Missing):
            raise GradientError(result.message)
        seed, aval = wanted
        result = result.alone() if isinstance(result, Placed) else result
        node = sum_to(result if isinstance(result, Node) else writer.node(result), aval)
        outputs.append(
            (node if node.shape == aval.shape else BroadcastTo(aval.shape)(node)).operand
        )
        seeds.append(seed if seed.shape == aval.shape else BroadcastTo(aval.shape)(seed))
    calls, guards = tuple(builder.calls[start:]), tuple(builder.guards[first:])
    del builder.calls[start:], builder.guards[first:]
    if not outputs:
        return [None] * len(avals)
    for call in calls:
        _refuse(call)
    others = _read(calls, guards, outputs, inputs)
    tape = Tape("linear", (*inputs, *others), calls, tuple(outputs), guards)
    done = METHODS["pulled"](tape, range(len(inputs)))
    start_at = [zeros(writer.node(x), x.shape) for x in inputs]
    return _written(writer, done, [*start_at, *map(writer.node, others), *seeds])


def _refuse(call: Call) -> None:
    """Raise an error for a call of a user's function without a rule."""
    found: Any = call.primitive
    if found.foreign and found.backward is None and found.forward is None:
        raise GradientError(f"{found}: {found.why}")


def _read(
    calls: Sequence[Call], guards: Sequence[Guard], outputs: Sequence[Operand], inputs: list[Var]
) -> list[Var]:
    """The variables that are read but not defined by `calls`, besides `inputs`."""
    defined: set[Operand] = {*inputs, *[out for call in calls for out in call.outs]}
    reads = [*[x for call in calls for x in call.operands], *[g.operand for g in guards], *outputs]
    return list(dict.fromkeys(x for x in reads if isinstance(x, Var) and x not in defined))


def _written(writer: Writer, tape: Tape, given: Sequence[Any]) -> list[Any]:
    """The results of a tape, whose calls are appended to the writer's tape."""
    builder = writer.builder
    env: dict[Operand, Operand] = dict(zip(tape.inputs, [x.operand for x in given], strict=True))
    for call in tape.calls:
        xs = [env.get(x, x) for x in call.operands]
        outs = builder.call(call.primitive, xs, call.src or writer.src, writer.reason)
        env.update(zip(call.outs, outs, strict=True))
    builder.guards += [replace(g, operand=env.get(g.operand, g.operand)) for g in tape.guards]
    return [writer.node(env.get(x, x)) for x in tape.outputs]


def sum_to(ct: Any, aval: Aval) -> Any:
    """`ct` summed over the axes along which a value of type `aval` was broadcast.

    A cotangent of fewer axes than the value (a scalar constant, say) is returned unchanged.
    """
    if ct.dtype != aval.dtype:
        ct = cast_back(ct, aval.dtype, AsType)
    if ct.shape == aval.shape or ct.ndim < aval.ndim:
        return ct
    extra = ct.ndim - aval.ndim
    stretched = [k + extra for k, n in enumerate(aval.shape) if n == 1 and ct.shape[k + extra] != 1]
    axes = (*range(extra), *stretched)
    if not axes:
        return ct
    out = Sum(axes)(ct)
    missing = tuple(k - extra for k in stretched)
    if missing:
        out = ExpandDims(missing)(out)
    return out
