"""Playing a tape: NumPy runs it call by call. The oracle of the tests, and how first calls run.

Large arrays that nobody reads any more are written over: fresh memory of that size comes from the
system, page by page, which takes longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.arrays import plain
from tapegrad.errors import TapeError
from tapegrad.ir.tape import Form, Guard, Literal, Operand, Tape, Var
from tapegrad.primitives.base import Elementwise, Primitive, Reduction
from tapegrad.primitives.contractions import MatMul
from tapegrad.signature import check_leaf, static_leaves
from tapegrad.statics import static_key
from tapegrad.trees import flatten, flatten_with_paths, is_number, is_traced

LARGE = 1 << 17  # bytes; what is smaller, malloc takes from memory that was freed


def last_uses(tape: Tape) -> dict[int, list[int]]:
    """Position of a call -> ids of the variables that no later call reads."""
    last: dict[int, int] = {}
    for position, call in enumerate(tape.calls):
        for x in call.operands:
            if isinstance(x, Var):
                last[x.id] = position
        for out in call.outs:
            last.setdefault(out.id, position)
    kept = {x.id for x in (*tape.outputs, *(g.operand for g in tape.guards)) if isinstance(x, Var)}
    dead: dict[int, list[int]] = {}
    for var, position in last.items():
        if var not in kept:
            dead.setdefault(position, []).append(var)
    return dead


def written_over(tape: Tape, dead: dict[int, list[int]]) -> dict[int, int]:
    """Position of a call -> id of a variable whose array its result may take.

    Both are large, made by ufuncs, and of one type; and whatever reads the variable makes new
    arrays, so nobody else knows its memory.
    """
    own: dict[int, Any] = {}
    for call in tape.calls:
        if _is_ufunc(call.primitive):
            if _is_large(call.out):
                own[call.out.id] = (call.out.shape, call.out.dtype)
        elif not isinstance(call.primitive, (Reduction, MatMul)):
            for x in call.operands:
                if isinstance(x, Var):
                    own.pop(x.id, None)
    over: dict[int, int] = {}
    if len(own) < 2:
        return over
    free: dict[Any, list[int]] = {}
    for position, call in enumerate(tape.calls):
        gone = [var for var in dead.get(position, ()) if var in own]
        for var in gone:
            if var != call.outs[0].id:  # of which there is one only, where a ufunc makes it
                free.setdefault(own[var], []).append(var)
        if _is_ufunc(call.primitive) and _is_large(call.out):
            spare = free.get((call.out.shape, call.out.dtype))
            if spare:
                over[position] = spare.pop()
    return over


def _is_large(x: Var) -> bool:
    return x.aval.nbytes >= LARGE and x.shape != ()


def _is_ufunc(primitive: Primitive) -> bool:
    return isinstance(primitive, Elementwise) and isinstance(primitive.ufunc, np.ufunc)


def run(tape: Tape, values: Sequence[Any]) -> tuple[list[Any], Guard | None]:
    """The outputs for the values of all inputs, and the first guard that doesn't hold."""
    env: dict[int, Any] = {v.id: plain(x) for v, x in zip(tape.inputs, values, strict=True)}
    dead = last_uses(tape)
    over = written_over(tape, dead)
    taken = set(over.values())
    spare: dict[int, Any] = {}  # the arrays of dead variables that will be written over

    def value(x: Operand) -> Any:
        return x.value if isinstance(x, Literal) else env[x.id]

    # A guard is checked as soon as its variable is known: calls after it may only work if it holds.
    guards: dict[Operand, list[Guard]] = {}
    for guard in tape.guards:
        guards.setdefault(guard.operand, []).append(guard)

    def broken(xs: Sequence[Operand]) -> Guard | None:
        waiting = (g for x in xs for g in guards.get(x, ()))
        return next((g for g in waiting if not same_bits(value(g.operand), g.expected)), None)

    found = broken([x for x in guards if isinstance(x, Literal) or x in tape.inputs])
    if found is not None:
        return [], found
    with np.errstate(all="ignore"):
        for position, call in enumerate(tape.calls):
            operands = [value(x) for x in call.operands]
            if position in over:
                var = over[position]
                place = spare.pop(var) if var in spare else env[var]
                result: Any = call.primitive.ufunc(*operands, out=place)  # type: ignore[attr-defined]
            else:
                result = call.primitive.evaluate(*operands)
            if call.primitive.results == 1 and not isinstance(result, tuple):
                result = (result,)
            for out, x in zip(call.outs, result, strict=True):
                env[out.id] = x
            found = broken(call.outs) if guards else None
            if found is not None:
                return [], found
            for gone in dead.get(position, ()):
                x = env.pop(gone)
                if gone in taken and gone != over.get(position):
                    spare[gone] = x
    return [value(x) for x in tape.outputs], None


def same_bits(found: Any, expected: Literal) -> bool:
    """Whether a guarded scalar still has the value that the trace saw."""
    return Literal(expected.dtype.type(found)) == expected


def checked_inputs(tape: Tape, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The values of all inputs, of a caller's arguments; a TapeError if they don't fit."""
    if tape.form is None:
        leaves = _by_name(tape, args, kwargs)
    else:
        leaves = _of_form(tape, tape.form, args, kwargs)
    free = tape.free_inputs
    if len(leaves) != len(free):
        raise TapeError(
            f"the tape {tape.name} has {len(free)} inputs, and {len(leaves)} arrays were passed"
        )
    values = []
    for var, leaf in zip(free, leaves, strict=True):
        check_leaf(leaf, f"the tape {tape.name}: the input {var}")
        x = np.asarray(leaf)
        casting: Any = "same_kind" if is_number(leaf) else "safe"  # no array loses digits unseen
        if x.shape != var.shape or not np.can_cast(x.dtype, var.dtype, casting):
            raise TapeError(
                f"the input {var} of the tape {tape.name} is {var.aval}, and an array of shape "
                f"{x.shape} and dtype {x.dtype} was passed. Trace again with such arrays"
            )
        value = x.astype(var.dtype, copy=False)
        if isinstance(leaf, int) and int(value) != leaf:  # beyond 2**53, where a float was
            raise TapeError(f"the input {var} of the tape {tape.name} is {var.aval}, not {leaf}")
        values.append(value)
    return [*values, *tape.captured]


def _of_form(tape: Tape, form: Form, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments' leaves that are inputs; the rest must be as it was traced."""
    paths, leaves, structure = flatten_with_paths((tuple(args), kwargs))
    if structure != form.structure:
        raise TapeError(
            f"the tape {tape.name} was traced with other arguments: positional and keyword ones "
            f"were {form.structure}, and now are {structure}. Trace again with such arguments"
        )
    found = dict(static_leaves(paths, leaves))
    for place, text, key in form.statics:
        if place not in found or static_key(found[place]) != key:
            what = repr(found[place]) if place in found else "an array"
            raise TapeError(
                f"the tape {tape.name} was traced with {text} where {what} was passed. What isn't "
                "an array or a number is part of the tape. Trace again with it"
            )
    if len(found) != len(form.statics):
        raise TapeError(
            f"the tape {tape.name} was traced with a number or an array where "
            f"{next(iter(found.values()))!r} was passed. Trace again with it"
        )
    return [x for x in leaves if is_traced(x)]


def _by_name(tape: Tape, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The values of the inputs, in order, then by name."""
    leaves = flatten(tuple(args))[0]
    rest = tape.names[len(leaves) : len(tape.free_inputs)]
    for name in kwargs:
        if name not in rest:
            raise TapeError(
                f"the tape {tape.name} has no input called {name}, or was passed it by position. "
                f"Those left are: {', '.join(rest) or 'none'}"
            )
    leaves += [kwargs[name] for name in rest if name in kwargs]
    for x in leaves:
        if not is_traced(x):
            raise TapeError(
                f"the tape {tape.name} takes arrays and numbers, and {x!r} was passed. What isn't "
                "one is part of the tape"
            )
    return leaves


def stale(tape: Tape, broken: Guard | None) -> TapeError:
    """The error for a tape that isn't the function for these values."""
    if broken is None:
        return TapeError(f"an index on the tape {tape.name} is out of range for these values")
    return TapeError(
        f"the tape {tape.name} was traced where {broken.what or broken.operand} was "
        f"{broken.expected.value} ({broken.src}), and it isn't for these values. Trace again"
    )


def play(tape: Tape, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Play the tape on a caller's arguments, checked against its inputs."""
    results, broken = run(tape, checked_inputs(tape, args, kwargs))
    if broken is not None:
        raise stale(tape, broken)
    return results
