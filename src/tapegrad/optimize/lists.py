"""Lists that grow and are stacked repeatedly become arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from tapegrad.ir.tape import Call, Operand, Tape, Var
from tapegrad.optimize.repetition import MIN_ROUNDS
from tapegrad.primitives.base import Slice
from tapegrad.primitives.scatter import SetItem, Stack
from tapegrad.primitives.views import GetItem, Transpose
from tapegrad.primitives.windows import Empty


def with_stacks(tape: Tape) -> Tape:
    """The tape with an array for each list that grows and is stacked repeatedly. Each part is
    written once; a stack is the front of the array.

    stack(a), stack(a, b), stack(a, b, c), ...   -->   x[0] = a; x[:1]; x[1] = b; x[:2]; ...
    """
    last: dict[Any, list[Call]] = {}  # (primitive, line, first operand) -> growing stacks
    for call in tape.calls:
        if isinstance(call.primitive, Stack):
            chain = last.setdefault((call.primitive, call.src, call.operands[0]), [])
            before = chain[-1].operands if chain else ()
            if call.operands[: len(before)] == before:
                chain.append(call)
    chains = {
        call.out: chain for chain in last.values() if len(chain) >= MIN_ROUNDS for call in chain
    }
    if not chains:
        return tape
    fresh = count(tape.last + 1)
    arrays: dict[Var, tuple[Var, int]] = {}  # last stack of a chain -> (array, length so far)
    calls: list[Call] = []

    def record(primitive: Any, operands: Sequence[Operand], src: Any) -> Var:
        (aval,) = primitive.avals(*[x.aval for x in operands])
        out = Var(next(fresh), aval)
        calls.append(Call(primitive, tuple(operands), (out,), src))
        return out

    for call in tape.calls:
        if not call.outs or call.outs[0] not in chains:
            calls.append(call)
            continue
        chain = chains[call.out]
        key, part = chain[-1].out, call.operands[0].aval
        rest = [Slice(0, n) for n in part.shape]
        if key not in arrays:
            most = len(chain[-1].operands)
            empty = Empty((most, *part.shape), part.dtype)
            arrays[key] = record(empty, (), call.src), 0
        array, done = arrays[key]
        for k in range(done, len(call.operands)):
            array = record(SetItem((k, *rest)), (array, call.operands[k]), call.src)
        arrays[key] = array, len(call.operands)
        axis = call.primitive.axis  # type: ignore[attr-defined]
        order = (*range(1, axis + 1), 0, *range(axis + 1, 1 + len(rest)))
        found = record(GetItem((Slice(0, len(call.operands)), *rest)), (array,), call.src)
        calls.append(Call(Transpose(order), (found,), call.outs, call.src, call.reason))
    return replace(tape, calls=tuple(calls))
