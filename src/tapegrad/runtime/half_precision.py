"""Half-precision arrays outside of a traced function, inside of which they are float32.

    inp %1 : f4[n]   -->   inp %1 : f2[n]            an argument that is stored as float16
                           %2 = loaded(%1) : f4[n]
    out %9           -->   %10 = stored(%9) : f2[n]  a result that is, such as its gradient
                           out %10

This is done last: the function in float32 is differentiated. So derivatives of any order know
nothing of it, and each number that a call returns is rounded once.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from tapegrad.core.request import Request
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Call, Tape, Var
from tapegrad.primitives.halves import Loaded, Stored
from tapegrad.runtime.transformations import Derivation, Halves
from tapegrad.tracing.runs.traced import kept_as


def with_halves(derivation: Derivation, request: Request) -> Derivation:
    """The derivation with half-precision arguments, captured arrays and results stored as such."""
    transformation = derivation.transformation
    own = [kept_as(x) for x in transformation.within(request).inputs]
    given = [kept_as(x) for x in (*request.inputs, *derivation.traced.captured)]
    kept = transformation.halves(derivation, own)
    if not any(dtype is not None for dtype in (*given, *kept)):
        return derivation
    found = replace(derivation, tape=kept_so(derivation.tape, given, kept))
    if found.computed is not None:
        pairs = zip(found.computed.values, found.tape.outputs, strict=True)
        with np.errstate(all="ignore"):
            values = [x.astype(y.dtype) for x, y in pairs]
        found.computed = found.computed._replace(values=values)
    return found


def kept_so(tape: Tape, given: Halves, kept: Halves) -> Tape:
    """The tape with these inputs and first outputs stored in half precision. A number is passed as
    float32."""
    numbers = itertools.count(tape.last + 1)
    inputs, outputs = list(tape.inputs), list(tape.outputs)
    before, after = [], []
    for k, dtype in enumerate(given):
        var = inputs[k]
        if dtype is not None and var.shape:
            inputs[k] = Var(next(numbers), Aval(var.shape, dtype))
            before.append(Call(Loaded(dtype), (inputs[k],), (var,), None, "kept in half precision"))
    for k, dtype in enumerate(kept):
        x = outputs[k]
        if dtype is not None and x.dtype.kind == "f":
            out = outputs[k] = Var(next(numbers), Aval(x.shape, dtype))
            after.append(Call(Stored(dtype), (x,), (out,), None, "kept in half precision"))
    calls = (*before, *tape.calls, *after)
    made = renumbered(replace(tape, inputs=tuple(inputs), calls=calls, outputs=tuple(outputs)))
    pairs = [(k, at) for k, at in tape.into if given[at] is None]
    return replace(made, ordered=tape.ordered, matrices=tape.matrices, into=tuple(pairs))
