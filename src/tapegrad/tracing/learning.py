"""How a call's recipe is made: it goes the long way once more, and what it records is told.

Unknown means none. See `tracing.recipes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from tapegrad.core.arrays import plain
from tapegrad.core.handlers import quiet
from tapegrad.core.values import one_type
from tapegrad.ir.tape import Call, Literal, Source, Var
from tapegrad.primitives.kinds import View
from tapegrad.tracing.again import errors_now
from tapegrad.tracing.given import Given
from tapegrad.tracing.tracer import ArrayTracer, Tracer

MOST_STEPS = 32
_SMALL = 1000  # elements of a result that is compared, when a recipe is made
MADE = "made"


@dataclass(slots=True)
class Recipe:
    """What a call has recorded, and what became of its result.

    Variables and values stand in lists: the sources first, then numbers, then the calls' results.
    `steps` are primitives, what picks their operands from there, and the types of their results.
    `guards` are flags that none of these values may be, and what errors they say.

    Of the tracers among the arguments, `writes` has those whose arrays were written to, and which
    variable these stand for since; `read` views that have been read anew, which variable they
    stand for, and how many writes ago; `chains` what these are views by. The memory of the array
    that `in_place` numbers may be written to, by that step.

    `outcome` is None, the number of an argument, or `MADE`: a tracer of the class `cls`, whose
    value, of the type `kind`, has the number `value`. It is a view, by `chain`, of the array of the
    argument `base`, or, if it is `lone`, of one that nobody else has, of the variable `base`.
    `held` keeps what keys know by its identity.
    """

    held: Any
    literals: list[Literal] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)
    steps: list[tuple[Any, Any, Any]] = field(default_factory=list)
    guards: list[tuple[int, str]] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)
    read: list[tuple[int, int, int]] = field(default_factory=list)
    chains: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)
    in_place: tuple[int, int] | None = None
    outcome: Any = None
    cls: Any = ArrayTracer
    kind: Any = np.ndarray
    value: int = -1
    ordered: bool = True
    base: int | None = None
    lone: bool = False
    chain: tuple[Any, ...] = ()


class Learning:
    """What is noted of a call while it goes the long way."""

    __slots__ = ("guards", "spoiled", "state")

    def __init__(self) -> None:
        self.state, self.spoiled = errors_now(), False
        self.guards: list[tuple[Any, str]] = []  # operands, and errors that they don't say

    def note_guard(self, operand: Any, expected: Any, what: str) -> None:
        """A value is taken for granted. That an error of NumPy's doesn't occur can be seen again;
        what else is decided by a value isn't known."""
        if what.startswith("LinAlgError(") and not expected and type(operand) is Var:
            self.guards.append((operand, what))
        else:
            self.spoiled = True

    def look(self) -> None:
        """A call is recorded, which warns where a recipe wouldn't, or the other way round."""
        self.spoiled = self.spoiled or errors_now() is not self.state


class _Before:
    """How things stood before a call that is learned from. It holds no values: who writes to one
    in place counts who has it."""

    def __init__(self, given: Given) -> None:
        trace = given.trace
        self.trace = trace
        self.count, self.following = len(trace.builder.calls), trace.builder.following
        self.guards = len(trace.builder.guards)
        self.sizes = self._sizes()
        self.owners = [x._owner for x in given.tracers]
        self.states = [(_state(x), _state(x._owner)) for x in given.tracers]
        self.versions = [(x._version, x._owner._version) for x in given.tracers]

    def _sizes(self) -> list[int]:
        """Of all that a trace gathers, but for its calls, guards and writes."""
        t = self.trace
        gathered: Any = (t.captured, t.bounds, t.pins, t.asked)
        gathered += (t.merged, t.mixed, t.failed, t.builder.inputs)
        return [len(x) for x in gathered]

    def is_undisturbed(self, given: Given) -> bool:
        """Whether nothing is otherwise but calls, and what they have written."""
        trace = self.trace
        return (
            self.sizes == self._sizes()
            and trace.refusal is None
            and trace.unfinished is None
            and self.owners == [x._owner for x in given.tracers]
            and self.states == [(_state(x), _state(x._owner)) for x in given.tracers]
        )


def _state(x: Any) -> tuple[Any, ...]:
    """What a call mustn't change of a tracer."""
    return type(x), id(x._root), tuple(map(id, x._chain)), x._ordered, id(x._may_alias), x._doubt


def learned(given: Given, src: Source, run: Callable[[], Any]) -> tuple[Any, Recipe | None]:
    """`run()`, and a recipe of what it recorded, if there can be one."""
    trace = given.trace
    given.values.clear()
    before, learning = _Before(given), Learning()
    trace.learning = learning
    try:
        result = run()
    finally:
        trace.learning = None
    told = len(trace.builder.guards) - before.guards == len(learning.guards)
    if learning.spoiled or not told or not before.is_undisturbed(given):
        return result, None
    return result, _recipe(given, before, learning, src, result)


def _recipe(
    given: Given, before: _Before, learning: Learning, src: Source, result: Any
) -> Recipe | None:
    """What a call has recorded; None if that can't be told."""
    trace, tracers = given.trace, given.tracers
    calls = trace.builder.calls[before.count :]
    if not 0 < len(calls) <= MOST_STEPS:
        return None
    recipe = Recipe(held=([x._aval for x in tracers], given.arrays))
    if not _tell_steps(recipe, given, before, calls, src):
        return None
    first = len(given.operands) + len(recipe.literals)
    numbers = {x.id: first + k for k, x in enumerate([x for c in calls for x in c.outs])}
    if not _tell_writes(recipe, given, before, numbers):
        return None
    for flag, error in learning.guards:
        if flag.id not in numbers:
            return None
        recipe.guards.append((numbers[flag.id], error))
    if recipe.writes or recipe.read:
        recipe.chains = [(k, x._chain) for k, x in enumerate(tracers) if x._root is not None]
        recipe.in_place = None if recipe.guards else _in_place(recipe, given, first)
        own = [k for k, x in enumerate(tracers) if x is result]
        if own:
            recipe.outcome = own[0]
        return recipe if own or result is None else None
    return recipe if _tell_outcome(recipe, given, numbers, result) else None


def _tell_steps(
    recipe: Recipe, given: Given, before: _Before, calls: Sequence[Call], src: Source
) -> bool:
    """The calls by where their operands come from."""
    where: dict[int, int] = {}
    for k, x in enumerate(given.operands):
        if x is not None:
            where.setdefault(x.id, k)
    literals: list[Literal] = []
    picked, following = [], before.following
    for call in calls:
        primitive = call.primitive
        if primitive.foreign or primitive.tapes or primitive.checks or primitive.repeats:
            return False
        if call.src is not src or call.reason != given.trace.reason:
            return False
        if [x.id for x in call.outs] != list(range(following, following + len(call.outs))):
            return False
        following += len(call.outs)
        picks: list[Any] = []
        for x in call.operands:
            if isinstance(x, Literal):
                literals.append(x)
                picks.append(-len(literals))
            elif x.id in where or x.id >= before.following:
                picks.append(x)
            else:
                return False
        picked.append(picks)
    if following != given.trace.builder.following:
        return False
    start = len(given.operands)
    first = start + len(literals)
    for call, picks in zip(calls, picked, strict=True):
        at = [
            start - 1 - x
            if type(x) is int
            else where[x.id]
            if x.id < before.following
            else first + x.id - before.following
            for x in picks
        ]
        outs = [one_type(x.aval) for x in call.outs]
        single = call.primitive.results == 1
        recipe.steps.append((call.primitive, _picker(at), outs[0] if single else tuple(outs)))
    recipe.literals, recipe.numbers = literals, [x.value for x in literals]
    return True


def _picker(at: Sequence[int]) -> Any:
    """What gives the entries at these places, as a tuple."""
    if len(at) > 1:
        return itemgetter(*at)
    return (lambda xs: (xs[at[0]],)) if at else lambda xs: ()


def _tell_writes(recipe: Recipe, given: Given, before: _Before, numbers: dict[int, int]) -> bool:
    """Which arrays were written to, and which views read anew."""
    told: set[int] = set()
    for k, (x, (version, whole)) in enumerate(zip(given.tracers, before.versions, strict=True)):
        owner = x._owner
        count = owner._version - whole
        if id(owner) not in told and count:
            told.add(id(owner))
            if count != 1 or owner._operand.id not in numbers:
                return False
            recipe.writes.append((k, numbers[owner._operand.id]))
        if owner is not x and x._version != version:
            if x._operand.id not in numbers:
                return False
            recipe.read.append((k, numbers[x._operand.id], owner._version - x._version))
        elif owner is x and not count and x._operand is not given.operands[2 * k]:
            return False
    return True


def _in_place(recipe: Recipe, given: Given, first: int) -> tuple[int, int] | None:
    """The tracer, by its number, that may be written to in place, and the step that does so: the
    last one that reads it, and none before has made a view of it."""
    if len(recipe.writes) != 1:
        return None
    k, var = recipe.writes[0]
    if given.tracers[k]._root is not None:
        return None
    numbers = list(range(first + len(recipe.steps)))
    readers = [n for n, (_, pick, _) in enumerate(recipe.steps) if 2 * k in pick(numbers)]
    if not readers or any(type(outs) is tuple for _, _, outs in recipe.steps):
        return None
    last = readers[-1]
    primitive, pick, _ = recipe.steps[last]
    views = any(recipe.steps[n][0].is_view for n in readers)
    fits = primitive.updates and pick(numbers)[0] == 2 * k and first + last == var
    fits = fits and pick(numbers).count(2 * k) == 1
    return (k, last) if fits and not views else None


@quiet
def _tell_outcome(recipe: Recipe, given: Given, numbers: dict[int, int], result: Any) -> bool:
    """What became of the result, if it is one tracer that nothing was done with but what a recipe
    can tell. The values that it has are computed again and compared."""
    trace, tracers = given.trace, given.tracers
    if not isinstance(result, Tracer) or result._trace is not trace:
        return False
    operand: Any = result._operand
    root: Any = result._root
    if type(operand) is not Var or operand.id not in numbers or any(x is result for x in tracers):
        return False
    owner = result._owner
    if owner._may_alias or owner._doubt or result._may_alias or result._doubt:
        return False
    values = [
        v for x in tracers for v in (x._value, x._root if x._root is None else x._root._value)
    ]
    values += [plain(x) for x in given.arrays]
    given_values = [v for v in values if isinstance(v, np.ndarray)]
    values += recipe.numbers
    for primitive, pick, outs in recipe.steps:
        found = primitive.evaluate(*pick(values))
        values += found if type(outs) is tuple else found if type(found) is tuple else (found,)
    recipe.outcome, recipe.value = MADE, numbers[operand.id]
    recipe.cls, recipe.kind = type(result), type(result._value)
    recipe.ordered = owner._ordered
    if root is not None:
        bases = [k for k, x in enumerate(tracers) if x._owner is root]
        chain, owned = result._chain, getattr(root._operand, "id", 0)
        if bases:
            recipe.base = bases[0]
            below = tracers[bases[0]]._chain
            if list(map(id, chain[: len(below)])) != list(map(id, below)):
                return False
            chain = chain[len(below) :]
        elif type(root) is ArrayTracer and owned in numbers and not root._version:
            recipe.base, recipe.lone = numbers[owned], True
            if not _is_alike(values[recipe.base], root._value, given_values):
                return False
        else:
            return False
        if result._version != root._version or not all(isinstance(v, View) for v in chain):
            return False
        recipe.chain = chain
    elif result._version or result._chain:
        return False
    value = values[recipe.value]
    if recipe.kind is not np.ndarray and type(value) is np.ndarray:
        value = value[()]
    return _is_alike(value, result._value, given_values)


def _is_alike(value: Any, actual: Any, others: Sequence[np.ndarray]) -> bool:
    """Whether this is the value: in which memory, in which order, and its bits, if it is small."""
    if type(value) is not type(actual) or value.dtype != actual.dtype:
        return False
    if type(value) is np.ndarray:
        if value.strides != actual.strides or value.flags.num != actual.flags.num:
            return False
        for x in others:
            if np.may_share_memory(value, x) != np.may_share_memory(actual, x):
                return False
    return value.size > _SMALL or value.tobytes() == actual.tobytes()
