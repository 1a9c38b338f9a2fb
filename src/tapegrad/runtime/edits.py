"""Edits of tapes by users: calls replaced, inserted or deleted; and derivatives of the output with
respect to the results of calls.

Each edit makes another tape, which is checked. Variables keep their numbers, so that several edits
can be made in turn by the numbers of the first tape.

    tape.replace("%5", np.tanh)

    %4 = mul(%1, %2)            %4 = mul(%1, %2)
    %5 = sin(%4)         -->    %5 = tanh(%4)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegrad.checking.tape_verify import checked
from tapegrad.core.request import Request, describe
from tapegrad.core.shapes import ShapeDtype
from tapegrad.core.trees import is_number
from tapegrad.errors import GradientError, TapeError
from tapegrad.ir.inputs import with_inputs
from tapegrad.ir.tape import (
    Builder,
    Call,
    Guard,
    Operand,
    Rewriter,
    Tape,
    Var,
    aval_of,
    literal,
)
from tapegrad.observe.observer import following, note_root
from tapegrad.pipeline import derive, finished, settled, trace
from tapegrad.primitives.elementwise import add
from tapegrad.primitives.views import BroadcastTo
from tapegrad.runtime.ahead import looked_at, with_stand_ins
from tapegrad.tracing.recording.decisions import only
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.runs.traced import plain_value


def replaced(tape: Tape, at: Any, f: Callable[..., Any]) -> Tape:
    """The tape with a call replaced by what `f` computes."""
    position = _position(tape, at)
    call = tape.calls[position]
    what = f"replace {call.outs[0] if call.outs else at} by {describe(f)}"
    part = _traced(tape, f, call.operands, call.outs, what)
    calls = (*tape.calls[:position], *part.calls, *tape.calls[position + 1 :])
    changed = _with(part, replace(tape, calls=calls))
    others = dict(zip(call.outs, part.results, strict=True))
    return checked(_guarding(_reading(changed, others, position), others), what)


def inserted(tape: Tape, at: Any, f: Callable[..., Any], others: Sequence[Any]) -> Tape:
    """The tape in which `f` of a variable is read in place of the variable."""
    var = _variable(tape, tape.calls[at].out if isinstance(at, int) else at)
    what = f"insert {describe(f)} after {var}"
    operands = [var, *[_operand(tape, x) for x in others]]
    part = _traced(tape, f, operands, [var], what)
    position = 0 if var in tape.inputs else _position(tape, var) + 1
    after = position + len(part.calls)
    calls = (*tape.calls[:position], *part.calls, *tape.calls[position:])
    changed = _with(part, replace(tape, calls=calls))
    return checked(_reading(changed, {var: part.results[0]}, after), what)


def deleted(tape: Tape, at: Any, instead: Any) -> Tape:
    """The tape without a call, whose readers read `instead`."""
    position = _position(tape, at)
    call = tape.calls[position]
    what = f"delete {', '.join(map(str, call.outs))}"
    changed = replace(tape, calls=(*tape.calls[:position], *tape.calls[position + 1 :]))
    if instead is not None:
        other = _operand(tape, instead, call.out)
        if (other.shape, other.dtype) != (call.out.shape, call.out.dtype):
            raise TapeError(f"{what}: it is {call.out.aval}, and {other} is {other.aval}")
        changed = _guarding(_reading(changed, {call.out: other}, position), {call.out: other})
    readers = [c for c in changed.calls if {*call.outs} & {*c.operands}]
    if readers or {*call.outs} & {*changed.outputs}:
        who = str(readers[0].outs[0]) if readers else "the tape's outputs"
        raise TapeError(
            f"{what}: {who} read it. Say what is read instead: delete(..., instead=...)"
        )
    return checked(changed, what)


def gradients(tape: Tape, wrt: Sequence[Any] | Var | None) -> Tape:
    """The tape of the derivatives of the first output with respect to inputs and variables.

    Readers of a variable read its sum with a new input. The derivative is taken with respect to
    that input at -0.0, whose addition changes no number.
    """
    first = tape.outputs[0].aval if tape.outputs else None
    if first is None or first.shape or first.dtype.kind != "f":
        raise GradientError(
            f"gradients of the tape {tape.name}: its first output is {first or 'missing'}, and "
            "there are gradients of a real scalar alone"
        )
    free = tape.free_inputs
    if wrt is None:
        made = [out for call in tape.calls for out in call.outs]
        chosen = [x for x in (*free, *made) if x.dtype.kind == "f"]
    else:
        several = [wrt] if isinstance(wrt, (str, Var)) else wrt
        chosen = [_variable(tape, x) for x in several]
    for x in chosen:
        if x.dtype.kind not in "fc":
            raise GradientError(f"gradients of the tape {tape.name}: {x} is {x.aval}")
    rewriter = Rewriter(tape)
    builder = rewriter.builder
    further = {x: builder.input(x.aval) for x in chosen}

    def shifted(x: Var) -> None:
        if x in further:
            (rewriter.env[x],) = builder.call(add, [rewriter.env[x], further[x]])

    for var in tape.inputs:
        shifted(var)
    for call in tape.calls:
        rewriter.copy(call)
        for out in call.outs:
            shifted(out)
    moved = replace(rewriter.finish(), captured=(), output_names=())
    numbers = range(len(tape.inputs), len(tape.inputs) + len(chosen))
    derived = derive(replace(moved, outputs=moved.outputs[:1]), numbers, keep=())
    names = dict(zip(tape.inputs, tape.names, strict=False))
    done = finished(settled(_at_zero(derived, len(tape.inputs), tape)))
    said = tuple([f"d_{names.get(x) or x.id}" for x in chosen])
    return replace(done, form=tape.form, output_names=said)


def _at_zero(derived: Tape, count: int, tape: Tape) -> Tape:
    """The tape with -0.0 for its inputs after the first `count`, which are those of `tape`."""
    builder = Builder(f"grad_{tape.name}")
    names = tape.names or ("",) * count
    env: dict[Var, Operand] = {}
    for var, name in zip(derived.inputs, names, strict=False):
        env[var] = builder.input(var.aval, name)
    for var in derived.inputs[count:]:
        zero = literal(-0.0, var.dtype)
        (env[var],) = builder.call(BroadcastTo(var.shape), [zero]) if var.shape else (zero,)
    for call in derived.calls:
        xs = [env[x] if isinstance(x, Var) else x for x in call.operands]
        env.update(zip(call.outs, builder.again(call, xs), strict=True))

    def at(x: Operand) -> Operand:
        return env[x] if isinstance(x, Var) else x

    builder.guards += [replace(g, operand=at(g.operand)) for g in derived.guards]
    return builder.finish([at(x) for x in derived.outputs], tape.captured)


# ---- variables and calls by their names


def _variable(tape: Tape, at: Any) -> Var:
    """The variable with this name, or the variable itself, if it is on the tape."""
    every = (*tape.inputs, *[out for call in tape.calls for out in call.outs])
    found = [x for x in every if x == at or str(x) == at]
    if not found:
        raise TapeError(f"the tape {tape.name} has no variable {at}")
    return found[0]


def _position(tape: Tape, at: Any) -> int:
    """The position of a call given by its position, or by a variable that it defines."""
    if isinstance(at, int):
        return range(len(tape.calls))[at]
    call = tape[at]
    return next(k for k, other in enumerate(tape.calls) if other is call)


def _operand(tape: Tape, x: Any, like: Var | None = None) -> Operand:
    """An operand: a variable by name, or a number, of the dtype of `like` if given."""
    if isinstance(x, (str, Var)):
        return _variable(tape, x)
    if is_number(x) or isinstance(x, (bool, np.generic)):
        return literal(x, aval_of(x).dtype if like is None else like.dtype)
    raise TapeError(f'{x!r} is no variable, such as "%4", and no number')


# ---- functions as calls


class _Part:
    """The calls of a function, their `results`, and the inputs and guards that they need."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.guards: list[Guard] = []
        self.further: list[Var] = []  # inputs, whose values are `captured`
        self.captured: list[Any] = []
        self.results: list[Operand] = []


def _traced(
    tape: Tape, f: Callable[..., Any], operands: Sequence[Operand], outs: Sequence[Var], what: str
) -> _Part:
    """The calls of `f` on these operands. Their results must have the types of `outs`."""
    held = [x for x in operands if isinstance(x, Var)]

    def of_variables(*values: Any) -> Any:
        given = iter(values)
        return f(*[next(given) if isinstance(x, Var) else x.value for x in operands])

    (args, _), _ = with_stand_ins((tuple([ShapeDtype(x.shape, x.dtype) for x in held]), {}))
    of_variables.__name__ = describe(f)
    request, here = Request(of_variables, args), following.observer
    with only([], "A tape has the same calls for all values: `tapegrad.cond` chooses among them"):
        if here is None:
            traced, _ = looked_at(of_variables, request, lambda found: found, without=True)
        else:  # the tape is edited in a traced function, which depends on what `f` reads
            note_root(f)
            with Trace(Builder(tape.name), idle=True):  # else its observer becomes inactive
                traced = trace(request, idle=True)
    if traced.written or traced.left or traced.draws is not None:
        raise TapeError(
            f"{what}: {describe(f)} writes to what it is passed, draws random numbers, or leaves "
            "something outside; a tape's calls compute, and do no more"
        )
    part, made = _Part(), traced.tape
    fresh = tape.last + 1
    env: dict[Operand, Operand] = dict(zip(made.inputs, held, strict=False))
    for var, array in zip(made.inputs[len(held) :], traced.captured, strict=True):
        env[var] = Var(fresh + len(part.further), var.aval)
        part.further.append(Var(fresh + len(part.further), var.aval))
        part.captured.append(array)
    fresh += len(part.further)
    for call in made.calls:
        xs = tuple([env.get(x, x) for x in call.operands])
        new = [Var(fresh + k, out.aval) for k, out in enumerate(call.outs)]
        fresh += len(new)
        env.update(zip(call.outs, new, strict=True))
        part.calls.append(Call(call.primitive, xs, tuple(new), call.src, call.reason))
    part.guards = [replace(g, operand=env.get(g.operand, g.operand)) for g in made.guards]
    for at, leaf in zip(traced.outputs, traced.leaves, strict=True):
        if at is not None:
            part.results.append(env.get(made.outputs[at], made.outputs[at]))
            continue
        value = np.asarray(plain_value(leaf))
        if value.ndim:
            part.further.append(Var(fresh, aval_of(value)))
            part.captured.append(value)
            part.results.append(part.further[-1])
            fresh += 1
        else:
            part.results.append(literal(value[()], value.dtype))
    types = [(x.shape, x.dtype) for x in part.results]
    if types != [(x.shape, x.dtype) for x in outs]:
        said = [", ".join([str(x.aval) for x in each]) for each in (part.results, outs)]
        raise TapeError(f"{what}: {describe(f)} returns {said[0]}, and {said[1]} is needed")
    return part


def _with(part: _Part, tape: Tape) -> Tape:
    """The tape, which has the calls of a part, with the inputs and guards that they need."""
    names = [""] * len(part.further)
    changed = with_inputs(tape, part.further, names, part.captured)
    return replace(changed, guards=(*tape.guards, *part.guards), axes=(), into=())


def _reading(tape: Tape, others: dict[Var, Operand], position: int) -> Tape:
    """The tape in which calls from a position on, and outputs, read other operands."""

    def at(x: Operand) -> Operand:
        return others.get(x, x) if isinstance(x, Var) else x

    later = [
        replace(call, operands=tuple(map(at, call.operands))) for call in tape.calls[position:]
    ]
    return replace(
        tape, calls=(*tape.calls[:position], *later), outputs=tuple(map(at, tape.outputs))
    )


def _guarding(tape: Tape, others: dict[Var, Operand]) -> Tape:
    """The tape whose guards are on other operands."""
    at: dict[Operand, Operand] = dict(others.items())
    guards = [replace(g, operand=at.get(g.operand, g.operand)) for g in tape.guards]
    return replace(tape, guards=tuple(guards))
