"""The arrays of a played tape whose memory later values may take, and calls that run faster
together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tapegrad.ir.memory import live_bytes
from tapegrad.ir.tape import Call, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Elementwise, Primitive
from tapegrad.primitives.kinds import Scatter, StaticIndex

LARGE_BYTES = 1 << 17  # bytes; malloc takes smaller blocks from memory that was freed
SMALL_BYTES = 1 << 10  # bytes; smaller values are kept until the end


def written_over(tape: Tape, dead: dict[int, list[int]]) -> dict[int, int]:
    """Position of a call -> id of the variable whose array its result may overwrite.

    Both are large, results of ufuncs, and of one shape and dtype. All calls that read the variable
    make new arrays, so nothing else aliases its memory. An array is only kept for this where that
    never takes more memory than the peak without it.
    """
    own: dict[int, Any] = {}
    for call in tape.calls:
        if is_ufunc(call.primitive):
            if _is_large(call.out):
                own[call.out.id] = (call.out.shape, call.out.dtype)
        elif not call.primitive.memory.owns:
            for x in call.operands:
                if isinstance(x, Var):
                    own.pop(x.id, None)
    over: dict[int, int] = {}
    if len(own) < 2:
        return over
    taken = live_bytes(tape)
    peak = max(taken)
    free: dict[Any, list[tuple[int, int]]] = {}  # by type: last reads, variables
    for position, call in enumerate(tape.calls):
        gone = [var for var in dead.get(position, ()) if var in own]
        for var in gone:
            if var != call.outs[0].id:  # the result of a ufunc has no other variable
                free.setdefault(own[var], []).append((position, var))
        if is_ufunc(call.primitive) and _is_large(call.out):
            spare = free.get((call.out.shape, call.out.dtype))
            if spare:
                since, var = spare.pop()
                waiting, nbytes = range(since + 1, position), call.out.aval.nbytes
                if all(taken[k] + nbytes <= peak for k in waiting):
                    over[position] = var
                    for k in waiting:
                        taken[k] += nbytes
    return over


def reads(tape: Tape) -> Counter[Operand]:
    """The number of reads of each variable. An output or a guard counts as two."""
    uses = Counter[Operand]([x for c in tape.calls for x in c.operands if type(x) is Var])
    for x in (*tape.outputs, *[guard.operand for guard in tape.guards]):
        uses[x] += 2
    return uses


def summed_places(tape: Tape, uses: Counter[Operand]) -> dict[int, int]:
    """Position of a call -> position of the first call of its sum.

    These sums add, in order, arrays that are zero outside one part. They are computed in one array
    of zeros to which the parts are added; `uses` is the number of reads of each variable:

        place(a, 3) + place(b, 5) + ...   -->   z = zeros(n); z[3] += a; z[5] += b; ...
    """
    parts: dict[Any, tuple[list[int], list[int]]] = {}  # calls of a sum's parts, and its additions
    for position, call in enumerate(tape.calls):
        xs, out = call.operands, call.outs[0]
        if box_of(call) is not None:
            if out.dtype.kind in "fc" and not _is_large(out):  # large ones may be overwritten
                parts[out] = [position], []
        elif _is_sum(call) and all(_is_part(x, out) and x in parts and uses[x] == 1 for x in xs):
            (before, sums), (after, others) = sorted(parts[x] for x in xs)
            if len(after) == 1 and before[-1] < after[0]:
                del parts[xs[0]], parts[xs[1]]
                parts[out] = [*before, *after], [*sums, *others, position]
    return {k: places[0] for places, sums in parts.values() if sums for k in (*places, *sums)}


def added_places(
    tape: Tape, uses: Counter[Operand], updates: Collection[int]
) -> dict[Operand, StaticIndex]:
    """The position of the number in arrays that are zero elsewhere, and that only an in-place
    addition reads:

        x[i, 0:3] += place(a, 1)   -->   x[i, 0:3][1] += a
    """
    adding = [tape.calls[k] for k in updates]
    texts = [c.primitive.quick_text(["x", "y", *"k" * (len(c.operands) - 2)]) for c in adding]
    read = {c.operands[1] for c, text in zip(adding, texts, strict=True) if text[-6:] == "] += y"}
    found: dict[Operand, StaticIndex] = {}
    for call in tape.calls:
        box = box_of(call) if call.outs[0] in read and uses[call.outs[0]] == 1 else None
        if box is not None and not call.operands[0].aval.shape:
            found[call.outs[0]] = box
    return found


def nan_masks(tape: Tape, uses: Counter[Operand]) -> dict[int, tuple[Operand, Operand] | None]:
    """The masks that make a contribution x 0 where x is NaN and its cotangent is 0
    (`differentiate.masks`), for scalars and small arrays.

    The result maps the position of the last call, the `where`, to the cotangent and x, and those of
    the other calls to None if nothing else reads them. Without NaN, the result is x itself; to test
    for NaN takes a fifth of the time. Nothing may write to the result in place, as it may be x:

        where(logical_and(equal(ct, 0.0), isnan(x)), 0.0, x)   -->   kept(ct, x)
    """
    found: dict[int, tuple[Operand, Operand] | None] = {}
    calls = tape.calls
    last = [k for k, call in enumerate(calls) if call.primitive.name == "where"]
    if not last:
        return found
    written: set[Operand] = set()
    made: dict[Operand, Call] = {}
    places: dict[Operand, int] = {}
    for position, call in enumerate(calls):
        primitive: Any = call.primitive
        made[call.outs[0]], places[call.outs[0]] = call, position
        if primitive.memory.updates:
            written.add(call.operands[0])
        elif primitive.repeats:
            written.update(primitive.given(call.operands)[: primitive.carried])
    tests: Counter[Operand] = Counter()
    for position in last:
        pair = mask_of(calls[position], made)
        if pair is None or pair[0] in written or _is_large(pair[1]):
            continue
        if pair[1] not in made or not is_ufunc(made[pair[1]].primitive):  # a ufunc makes new memory
            continue
        both = calls[position].operands[0]
        zero, nan = made[both].operands
        if uses[both] == uses[nan] == 1:
            found.update({position: pair, places[both]: None, places[nan]: None})
            tests[zero] += 1
            if tests[zero] == uses[zero]:
                found[places[zero]] = None
    return found


def mask_of(call: Call, made: Mapping[Operand, Call]) -> tuple[Operand, Var] | None:
    """The cotangent and the contribution of the mask that ends with `call`, a `where`; None if it
    ends none. `made` has the call of each variable."""

    def operands(x: Operand, name: str) -> tuple[Any, ...]:
        by = made.get(x)
        return by.operands if by is not None and by.primitive.name == name else ()

    test, zero, x = call.operands
    both = operands(test, "logical_and") if _is_zero(zero) else ()
    of = operands(both[0], "equal") if both else ()
    if not of or operands(both[1], "isnan") != (x,) or not _is_zero(of[1]):
        return None
    if not isinstance(x, Var) or not _is_part(x, call.outs[0]) or x.dtype.kind != "f":
        return None
    return of[0], x


def kept_number(ct: Any, x: Any) -> Any:
    """`kept` for scalars."""
    return x.dtype.type(0) if x != x and ct == 0 else x


def kept(ct: Any, x: Any) -> Any:
    """`x`, with 0 where it is NaN and `ct` is 0."""
    total = np.vdot(x, x)
    if total == total:  # a sum of squares: only NaN makes it NaN
        return x
    return np.where((ct == 0) & np.isnan(x), x.dtype.type(0), x)


def _is_zero(x: Operand) -> bool:
    return isinstance(x, Literal) and bool(x.value == 0)


def box_of(call: Call) -> StaticIndex | None:
    """The index of the operand in a result that is zero elsewhere; None for other calls."""
    p: Any = call.primitive
    if not isinstance(p, Scatter) or p.onto != "zeros" or p.indexed or len(call.operands) != 1:
        return None
    boxes = p.boxes(*call.operands)
    return boxes[0] if len(boxes) == 1 else None


def _is_sum(call: Call) -> bool:
    return isinstance(call.primitive, Elementwise) and call.primitive.ufunc is np.add


def _is_part(x: Operand, total: Var) -> bool:
    """Whether `x` and `total` have one shape and dtype, so that a part of one is that of the
    other."""
    return x.aval.shape == total.aval.shape and x.aval.dtype == total.aval.dtype


def _is_large(x: Var) -> bool:
    return x.shape != () and x.aval.nbytes >= LARGE_BYTES


def is_ufunc(primitive: Primitive) -> bool:
    """Whether NumPy's own ufunc makes the result, which is a new array."""
    return isinstance(primitive, Elementwise) and isinstance(primitive.ufunc, np.ufunc)
