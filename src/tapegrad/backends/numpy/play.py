"""Playing a tape: NumPy runs it call by call. The oracle of the tests, and how first calls run.

Large arrays are overwritten once nothing reads them any more: fresh memory of that size comes from
the system, page by page, which takes longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from tapegrad.backends.numpy.lives import (
    SMALL_BYTES,
    kept,
    kept_number,
    nan_masks,
    reads,
    written_over,
)
from tapegrad.backends.numpy.numbers import of_numbers
from tapegrad.backends.numpy.rounds import Broken, copied, repeat, whole
from tapegrad.backends.numpy.unmasked import unmasked
from tapegrad.core.arrays import plain
from tapegrad.core.handlers import quiet
from tapegrad.core.locks import remembered
from tapegrad.core.request import check_leaf, static_leaves
from tapegrad.core.statics import static_key
from tapegrad.core.trees import flatten, flatten_with_paths, is_number, is_traced
from tapegrad.core.values import same_bits
from tapegrad.errors import TapeError
from tapegrad.ir.memory import last_uses
from tapegrad.ir.tape import Call, Form, Guard, Literal, Operand, Tape, Var
from tapegrad.ir.updates import in_place
from tapegrad.primitives.kinds import Repeated

# Runs before a tape is compiled to a function: that takes as long as these save.
RUNS_BEFORE_COMPILING = 16


class Script:
    """A tape as a list of steps, which is made once and then run with any values.

    The values of variables and literals are in a list. A step is a function, a getter that takes
    its operands from the list, the slot of its result, and a `_Rest` if there is more to do.
    """

    def __init__(self, tape: Tape, own: Sequence[int] = ()) -> None:
        """The script of a tape that may write to the inputs numbered in `own`."""
        self.tape = tape
        self.start: list[Any] = []
        self.slots: dict[int, int] = {}  # slots of variables, by their ids
        self.inputs = [self._define(var) for var in tape.inputs]
        frees = any(x.aval.nbytes > SMALL_BYTES for call in tape.calls for x in call.outs)
        dead = last_uses(tape) if any(self.start) or frees else {}
        over = written_over(tape, dead) if dead else {}
        writes = in_place(tape, own)
        standing = nan_masks(tape, reads(tape))
        taken = set(over.values())
        guards: dict[int, list[Guard]] = {}  # by the ids of variables
        for guard in tape.guards:
            if isinstance(guard.operand, Var):
                guards.setdefault(guard.operand.id, []).append(guard)
        # A guard is checked as soon as its variable is known: later calls may rely on it.
        known = [guard for guard in tape.guards if isinstance(guard.operand, Literal)]
        known += [guard for var in tape.inputs for guard in guards.get(var.id, ())]
        self.first = [(self._slot(guard.operand), guard) for guard in known]
        self.calls: list[Call] = []  # the calls of the steps
        self.steps: list[tuple[Callable[..., Any], Callable[..., Any], int, _Rest | None]] = []
        slots = self.slots
        for position, call in enumerate(tape.calls):
            primitive: Any = call.primitive
            zeros = standing.get(position, call.operands)
            if zeros is None:
                continue
            xs = zeros
            operands = [slots[x.id] if type(x) is Var else self._slot(x) for x in xs]
            outs = [self._define(x) for x in call.outs]
            gone: list[int] = []
            checked: list[tuple[int, Guard]] = []
            if position in dead:
                gone = [
                    slots[k]
                    for k in dead[position]
                    if k in taken or (k in slots and self.start[slots[k]])
                ]
            if guards:
                checked = [(slots[x.id], g) for x in call.outs for g in guards.get(x.id, ())]
            rest = None
            if primitive.repeats:
                function = repeat(primitive, writes.loops.get(position, ()), run_inner)
            elif primitive.tapes:
                function = partial(primitive.played, run_inner)
            elif position in writes.updates:
                function = primitive.updating()
            elif position in writes.copies:
                function = partial(copied, primitive.for_types(*[x.aval for x in xs]))
            elif position in standing:
                function = kept if xs[1].aval.shape else kept_number
            else:
                function = of_numbers(call) or primitive.for_types(*[x.aval for x in xs])
            if gone or checked or position in over or primitive.results != 1 or primitive.tapes:
                place = slots[over[position]] if position in over else None
                spare = {slots[k] for k in dead.get(position, ()) if k in taken} - {place}
                rest = _Rest(outs, checked, gone, spare, place)
            self.steps.append((function, _taking(operands), outs[0], rest))
            self.calls.append(call)
        self.outputs = [self._slot(x) for x in tape.outputs]

    def _define(self, var: Var) -> int:
        """The slot of a new variable. Until it has a value, the slot holds whether freeing it early
        pays."""
        slot = self.slots[var.id] = len(self.start)
        self.start.append(var.aval.nbytes > SMALL_BYTES)
        return slot

    def _slot(self, x: Operand) -> int:
        """The slot of an operand."""
        if isinstance(x, Var):
            return self.slots[x.id]
        self.start.append(x.value)
        return len(self.start) - 1

    def run(self, values: Sequence[Any]) -> tuple[list[Any], Guard | None]:
        """The outputs for the values of all inputs, and the first guard that doesn't hold."""
        env = self.start.copy()
        for slot, value in zip(self.inputs, values, strict=True):
            env[slot] = plain(value)
        for slot, guard in self.first:
            if not same_bits(env[slot], guard.expected):
                return [], guard
        spare: dict[int, Any] = {}  # the arrays of dead variables that will be overwritten
        try:
            for function, operands, out, rest in self.steps:
                if rest is None:
                    env[out] = function(*operands(env))
                    continue
                broken = rest.run(function, operands(env), env, spare)
                if broken is not None:
                    return [], broken
        except Broken as inside:
            return [], inside.guard
        return [env[k] for k in self.outputs], None


def _taking(places: list[int]) -> Callable[..., Any]:
    """A function that takes the entries at `places` of a list, without running Python bytecode."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


@dataclass
class _Rest:
    """Further work of a step: several results, guards, memory."""

    outs: list[int]
    guards: list[tuple[int, Guard]]
    gone: list[int]  # variables that nothing reads any more
    spare: set[int]  # those of `gone` whose arrays will be overwritten
    over: int | None  # the variable whose array this call overwrites

    def run(
        self, function: Any, values: Sequence[Any], env: list[Any], spare: dict[int, Any]
    ) -> Guard | None:
        if self.over is None:
            result = function(*values)
        else:
            place = spare.pop(self.over) if self.over in spare else env[self.over]
            result = function(*values, out=place)
        if len(self.outs) == 1 and not isinstance(result, tuple):
            env[self.outs[0]] = result
        else:
            for out, x in zip(self.outs, result, strict=True):
                env[out] = x
        for slot, guard in self.guards:
            if not same_bits(env[slot], guard.expected):
                return guard
        for slot in self.gone:
            if slot in self.spare:
                spare[slot] = env[slot]
            env[slot] = None
        return None


@quiet
def run(tape: Tape, values: Sequence[Any]) -> tuple[list[Any], Guard | None]:
    """The outputs for the values of all inputs, and the first guard that doesn't hold."""
    try:
        return run_inner(tape, values), None
    except Broken as inside:
        return [], inside.guard


def run_inner(tape: Tape, values: Sequence[Any]) -> list[Any]:
    """The outputs of the tape being played, or of a tape that one of its calls holds. A tape that
    runs often becomes one Python function, in which values are local variables."""
    played = _played(tape)
    if played.function is None:
        played.runs += 1
        if played.runs <= RUNS_BEFORE_COMPILING:
            quick = unmasked(tape)
            while True:
                bare = None if quick is None or quick.failed else quick
                wanted, script = tape if bare is None else bare.tape, played.script
                if script is None or script.tape is not wanted:
                    script = played.script = Script(wanted)
                results, broken = script.run(values)
                if broken is not None:
                    raise Broken(broken)
                if bare is None or bare.holds(results):
                    return results
                del results
        played.function, played.script = whole(tape, run_inner), None
    return [*played.function(*map(plain, values))]


class _Played:
    """How often a tape has run, its script, and the function that it was compiled to."""

    def __init__(self) -> None:
        self.runs = 0
        self.script: Script | None = None
        self.function: Callable[..., tuple[Any, ...]] | None = None


@remembered
def _played(tape: Tape) -> _Played:
    return _Played()


_script = remembered(Script)


def run_whole(tape: Tape, values: Sequence[Any], own: Sequence[int] = ()) -> list[Any]:
    """The outputs for the values of all inputs; those numbered in `own` may be overwritten. Raises
    a TapeError if a guard doesn't hold."""
    results, broken = quiet(_script(tape, tuple(own)).run)(values)
    if broken is not None:
        raise stale(tape, broken)
    return results


def straight(tape: Tape) -> Callable[..., tuple[Any, ...]]:
    """A tape without guards as one Python function of the values of its inputs."""
    return quiet(whole(tape, run_inner))


def repeat_whole(loop: Repeated, xs: Sequence[Any]) -> Any:
    """The results of a loop by itself; a TapeError if a guard doesn't hold in a round."""
    try:
        return quiet(repeat(loop, loop.own, run_inner))(*map(plain, xs))
    except Broken as inside:
        raise stale(loop.body, inside.guard) from None


def checked_inputs(tape: Tape, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The values of all inputs, from a caller's arguments; a TapeError if they don't fit."""
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
        casting: Any = "same_kind" if is_number(leaf) else "safe"  # arrays must keep their digits
        if x.shape != var.shape or not np.can_cast(x.dtype, var.dtype, casting):
            raise TapeError(
                f"the input {var} of the tape {tape.name} is {var.aval}, and an array of shape "
                f"{x.shape} and dtype {x.dtype} was passed. Trace again with such arrays"
            )
        value = x.astype(var.dtype, copy=False)
        if isinstance(leaf, int) and int(value) != leaf:  # beyond 2**53, for a float
            raise TapeError(f"the input {var} of the tape {tape.name} is {var.aval}, not {leaf}")
        values.append(value)
    return [*values, *tape.captured]


def _of_form(tape: Tape, form: Form, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments' leaves that are inputs; all other leaves must equal the traced ones."""
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
    """The values of the inputs, first by position, then by name."""
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
    """The error for a tape whose guard, or the range of an index, doesn't hold for these values."""
    if broken is None:
        return TapeError(f"an index on the tape {tape.name} is out of range for these values")
    error = TapeError(
        f"the tape {tape.name} was traced where {broken.what or broken.operand} was "
        f"{broken.expected.value} ({broken.src}), and it isn't for these values. Trace again"
    )
    error.guard = broken
    return error


def play(tape: Tape, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Play the tape on a caller's arguments, checked against its inputs."""
    return run_whole(tape, checked_inputs(tape, args, kwargs))
