"""Calls of NumPy that are made again at their place: what they recorded is recorded again.

What NumPy's functions mean is worked out by the front end, which takes far longer than what it then
records. In the rounds of a loop it comes to the same each time. So each place in the user's code
keeps a *recipe*: the calls that were recorded there, with their operands told as "the first
argument" or "the result of the second call", and what became of the result.

Why that is right: what a trace records holds for other values of the traced arguments, too, unless
a guard says otherwise. So it is determined by their types, by how they lie in memory, which of them
share it, and by the arguments that aren't traced. All this is the *key* of a recipe. There is none
where a guard was asked for, a value read, an array made, a sub-tape or a user's function recorded,
where errors of floating point are treated otherwise, or where the outcome is one that isn't
described below. Recipes are a trace's own and go with it. Unknown means the long way.

Names: `what` is called, a function or the name of a method; a *source* is where operands come from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import itemgetter
from types import CodeType, NoneType
from typing import Any

import numpy as np

from tapegrad.core.arrays import plain
from tapegrad.core.handlers import quiet
from tapegrad.ir.tape import Call, Literal, Source, Var, one_type
from tapegrad.primitives.kinds import View
from tapegrad.tracing.again import errors_now, is_plain, made
from tapegrad.tracing.layout import laid_out_like
from tapegrad.tracing.source import is_told, source_of
from tapegrad.tracing.trace import Trace, current_trace
from tapegrad.tracing.tracer import ArrayTracer, IntTracer, Tracer

MOST_LEAVES = 16  # of a call's arguments
MOST_STEPS = 32
TRIES = 8  # at a place, to keep a recipe
_SMALL = 1000  # elements of a result that is compared, when a recipe is made
_TRACER, _ARRAY, _STATIC, _LIST, _SLICE, _OTHER = range(6)
_KINDS: dict[type, int] = {
    **dict.fromkeys((int, float, bool, str, NoneType, type(Ellipsis)), _STATIC),
    **dict.fromkeys((np.float64, np.float32, np.int64, np.bool_, type), _STATIC),
    **{type(np.dtype(t)): _STATIC for t in ("f8", "f4", "i8", "i4", "?")},
    **{np.ndarray: _ARRAY, list: _LIST, tuple: _LIST, slice: _SLICE},
}


_FLOATS = frozenset((float, np.float64, np.float32))


def _kind_of(kind: type) -> int:
    """How arguments of this type are told. Of Python's integers it is known how large they may be,
    and of some numbers it isn't known whose they are: that decides on what is recorded, too."""
    traced = issubclass(kind, Tracer) and not issubclass(kind, IntTracer) and not kind._either
    found = _KINDS[kind] = _TRACER if traced else _OTHER
    return found


class Learning:
    """What is noted of a call while it goes the long way."""

    __slots__ = ("spoiled", "state")

    def __init__(self) -> None:
        self.state, self.spoiled = errors_now(), False

    def look(self) -> None:
        """A call is recorded, which warns where a recipe wouldn't, or the other way round."""
        self.spoiled = self.spoiled or errors_now() is not self.state


class Place:
    """Where a call is made; it is held with what it is known by."""

    __slots__ = ("code", "recipes", "src", "tries", "what")

    def __init__(self, code: CodeType, line: int, what: Any) -> None:
        self.code, self.what = code, what
        self.src = source_of(code, line)
        self.recipes: dict[Any, Recipe] = {}
        self.tries = 0


class Given:
    """The arguments of a call, taken apart.

    Each tracer has two sources: its operand, and that of the array that it is a view of. One that
    isn't up to date has only the latter. An array from outside has one.
    """

    __slots__ = ("arrays", "key", "operands", "trace", "tracers", "values")

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.key: Any = []
        self.tracers: list[Any] = []
        self.arrays: list[Any] = []
        self.operands: list[Any] = []
        self.values: list[Any] = []

    def take(self, xs: Sequence[Any]) -> bool:
        """Take more of them; False where one isn't known to be of a kind that can be compared."""
        key = self.key
        if len(xs) > MOST_LEAVES:
            return False
        for x in xs:
            cls = type(x)
            kind = _KINDS.get(cls)
            if kind is None:
                kind = _kind_of(cls)
            key.append(cls)
            if kind == _TRACER:
                root, operand, value = x._root, x._operand, x._value
                if x._trace is not self.trace or value is None or type(operand) is not Var:
                    return False
                source = below = None
                if root is None:
                    if x._doubt:
                        return False
                    if cls is ArrayTracer:
                        key += (id(x._aval), x._ordered, value.strides, value.flags.num)
                    else:
                        key.append(id(x._aval))
                else:
                    source, below = root._operand, root._value
                    if root._doubt or below is None or type(source) is not Var:
                        return False
                    key += (id(x._aval), root._ordered, value.strides, value.flags.num)
                    if x._version != root._version:
                        operand = value = None
                        key.append("stale")
                    else:
                        key.append("view")
                self.tracers.append(x)
                self.operands += (operand, source)
                self.values += (value, below)
            elif kind == _STATIC:
                key.append(x)
                if cls in _FLOATS and x == 0.0:  # which has a sign
                    key.append(str(x))
            elif kind == _LIST:
                key.append(len(x))
                if not self.take(x):
                    return False
            elif kind == _SLICE:
                if not self.take((x.start, x.stop, x.step)):
                    return False
            elif kind == _ARRAY and id(x) in self.trace.captured:
                key.append(id(x))
                self.arrays.append(x)
            else:
                return False
        return True

    def settled(self) -> bool:
        """The key in the end: with which of the operands are the same, and which are inputs."""
        trace, operands, tracers = self.trace, self.operands, self.tracers
        inputs = len(trace.builder.inputs)
        if len(tracers) == 1 and operands[0] is not None and operands[1] is None:
            self.key.append(operands[0].id <= inputs)
        elif not tracers or len(tracers) > MOST_LEAVES:
            return False
        else:
            ids = [-1 if x is None else x.id for x in operands]
            self.key += map(ids.index, ids)
            self.key += [k <= inputs for k in ids]
        for x in self.arrays:
            operands.append(trace.capture(x, trace.captured[id(x)][0].aval))
            self.values.append(plain(x))
        self.key = tuple(self.key)
        return True


class Recipe:
    """What a call has recorded, and what became of its result.

    Variables and values stand in lists: the sources first, then numbers, then the calls' results.
    `steps` are primitives, what picks their operands from there, and the types of their results.
    Of tracers, `writes` has those whose arrays were written to, and which variable these stand for
    since; `read` those that have been read anew, which, and how many writes ago. `held` keeps what the key knows by its identity.
    """

    __slots__ = (
        *("base", "chain", "chains", "cls", "held", "in_place", "kind"),
        *("literals", "lone", "numbers", "ordered", "outcome", "read", "steps", "value", "writes"),
    )
    outcome: Any  # None, the number of an argument, or _MADE: a tracer as the following describe it
    steps: list[tuple[Any, Any, Any]]


_MADE = "made"


def applied(what: Any, args: Sequence[Any], kwargs: Any, run: Callable[[], Any]) -> Any:
    """`run()`, which records a call of `what`; by a recipe, where there is one."""
    trace = current_trace()
    if (
        trace is None
        or trace.learning is not None
        or trace.builder.recorded is None
        or not is_plain(trace)
        or trace.writable is not None
        or trace.presuming
    ):
        return run()
    frame: Any = sys._getframe(2)
    while frame is not None and not is_told(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return run()
    code = frame.f_code
    at = id(code), frame.f_lasti, id(what)
    place = trace.places.get(at)
    if place is None:
        trace.places[at] = Place(code, frame.f_lineno, what)
        return run()
    if place.tries >= TRIES and not place.recipes:
        return run()
    given = Given(trace)
    if not given.take(args) or (kwargs and not _take_named(given, kwargs)) or not given.settled():
        place.tries += 1
        given.values.clear()
        return run()
    recipe = place.recipes.get(given.key)
    if recipe is not None:
        done = _replayed(recipe, given, place.src)
        if done is not None:
            return done[0]
    elif place.tries < TRIES:
        place.tries += 1
        return _learned(place, given, run)
    given.values.clear()  # who writes to one in place counts who has it
    return run()


def _take_named(given: Given, kwargs: dict[str, Any]) -> bool:
    given.key.append(tuple(kwargs))
    return given.take(tuple(kwargs.values()))


# ---- to replay


def _replayed(recipe: Recipe, given: Given, src: Source) -> tuple[Any] | None:
    """What the call gives, in a tuple, or None if it isn't like the one that is known after all."""
    trace, tracers = given.trace, given.tracers
    for k, chain in recipe.chains:
        if tracers[k]._chain != chain:
            return None
    in_place = recipe.in_place
    if in_place is not None:
        k, at = in_place
        own = [2 * n for n, x in enumerate(tracers) if x is tracers[k]]
        for n in own:
            given.values[n] = None
        alone = tracers[k]._is_alone()
        for n in own:
            given.values[n] = tracers[k]._value
    else:
        alone, at = False, -1
    values = given.values
    values += recipe.numbers
    for number, (primitive, pick, outs) in enumerate(recipe.steps):
        if alone and number == at:
            found = primitive.update(*pick(values))
        else:
            found = primitive.evaluate(*pick(values))
        if type(outs) is tuple:
            values += found
        else:
            values.append(found[0] if type(found) is tuple else found)
    outcome, value = recipe.outcome, None
    if outcome is _MADE:
        value = values[recipe.value]
        if type(value) is not recipe.kind:
            if recipe.kind is np.ndarray or type(value) is not np.ndarray:
                return None
            value = value[()]
    operands = given.operands
    operands += recipe.literals
    last: Any = None
    for primitive, pick, outs in recipe.steps:
        if type(outs) is tuple:
            operands += trace.builder.define(primitive, pick(operands), outs, src, trace.reason)
        else:
            last = made(trace, primitive, pick(operands), outs, src, recipe.cls, value)
            operands.append(last._operand)
    for k, var in recipe.writes:
        owner = tracers[k]._owner
        trace.note_write(owner, src)
        owner._operand = operands[var]
        owner._value = laid_out_like(values[var], owner._value)
        owner._version += 1
    for k, var, lag in recipe.read:
        view = tracers[k]
        view._operand, view._value = operands[var], values[var]
        view._version = view._root._version - lag
    if outcome is not _MADE:
        return (None if outcome is None else tracers[outcome],)
    out = last
    if recipe.value != len(operands) - 1 or type(recipe.steps[-1][2]) is tuple:
        out = recipe.cls(trace, operands[recipe.value], value)
    out._ordered = recipe.ordered
    base = recipe.base
    if base is not None:
        if recipe.lone:  # a view of an array that nobody has but it
            root: Any = ArrayTracer(trace, operands[base], values[base])
            root._ordered, out._chain = recipe.ordered, recipe.chain
        else:
            root, out._chain = tracers[base]._owner, (*tracers[base]._chain, *recipe.chain)
        out._root, out._version, out._ordered = root, root._version, True
    return (out,)


# ---- to learn


class _Before:
    """How things stood before a call that is learned from. It holds no values: who writes to one
    in place counts who has it."""

    def __init__(self, given: Given) -> None:
        trace = given.trace
        self.trace = trace
        self.count, self.following = len(trace.builder.calls), trace.builder.following
        self.sizes = self._sizes()
        self.owners = [x._owner for x in given.tracers]
        self.states = [(_state(x), _state(x._owner)) for x in given.tracers]
        self.versions = [(x._version, x._owner._version) for x in given.tracers]

    def _sizes(self) -> list[int]:
        """Of all that a trace gathers, but for its calls and writes."""
        t = self.trace
        gathered: Any = (t.builder.guards, t.captured, t.bounds, t.pins, t.tests, t.asked)
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


def _learned(place: Place, given: Given, run: Callable[[], Any]) -> Any:
    """`run()`, of which a recipe is made, if there can be one."""
    trace = given.trace
    given.values.clear()
    before, learning = _Before(given), Learning()
    trace.learning = learning
    try:
        result = run()
    finally:
        trace.learning = None
    if not learning.spoiled and before.is_undisturbed(given):
        recipe = _recipe(given, before, place, result)
        if recipe is not None:
            place.recipes[given.key] = recipe
            if len(place.recipes) < TRIES:
                place.tries = 0
    return result


def _recipe(given: Given, before: _Before, place: Place, result: Any) -> Recipe | None:
    """What a call has recorded; None if that can't be told."""
    trace, tracers = given.trace, given.tracers
    calls = trace.builder.calls[before.count :]
    if not 0 < len(calls) <= MOST_STEPS:
        return None
    recipe = Recipe()
    recipe.held = [x._aval for x in tracers], given.arrays
    if not _tell_steps(recipe, given, before, calls, place.src):
        return None
    first = len(given.operands) + len(recipe.literals)
    numbers = {x.id: first + k for k, x in enumerate([x for c in calls for x in c.outs])}
    if not _tell_writes(recipe, given, before, numbers):
        return None
    recipe.chains, recipe.in_place, recipe.outcome, recipe.cls = [], None, None, ArrayTracer
    if recipe.writes or recipe.read:
        recipe.chains = [(k, x._chain) for k, x in enumerate(tracers) if x._root is not None]
        recipe.in_place = _in_place(recipe, given, first)
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
    recipe.steps = []
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


def _tell_writes(
    recipe: Recipe, given: Given, before: _Before, numbers: dict[int, int]
) -> bool:
    """Which arrays were written to, and which views read anew."""
    recipe.writes, recipe.read = [], []
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
    readers = [
        n for n, (_, pick, _) in enumerate(recipe.steps) if 2 * k in pick(numbers)
    ]
    if not readers or any(type(outs) is tuple for _, _, outs in recipe.steps):
        return None
    last = readers[-1]
    primitive, pick, _ = recipe.steps[last]
    views = any(recipe.steps[n][0].is_view for n in readers)
    fits = primitive.updates and pick(numbers)[0] == 2 * k and first + last == var
    fits = fits and pick(numbers).count(2 * k) == 1
    return (k, last) if fits and not views else None


@quiet
def _tell_outcome(
    recipe: Recipe, given: Given, numbers: dict[int, int], result: Any
) -> bool:
    """What became of the result, if it is one tracer that nothing was done with but what a recipe
    can tell. The values that it has are computed again and compared."""
    trace, tracers = given.trace, given.tracers
    if not isinstance(result, Tracer) or result._trace is not trace:
        return False
    operand, root = result._operand, result._root
    if type(operand) is not Var or operand.id not in numbers or any(x is result for x in tracers):
        return False
    owner = result._owner
    if owner._may_alias or owner._doubt or result._may_alias or result._doubt:
        return False
    values = [v for x in tracers for v in (x._value, x._root if x._root is None else x._root._value)]
    values += [plain(x) for x in given.arrays]
    given_values = [v for v in values if isinstance(v, np.ndarray)]
    values += recipe.numbers
    for primitive, pick, outs in recipe.steps:
        found = primitive.evaluate(*pick(values))
        values += found if type(outs) is tuple else found if type(found) is tuple else (found,)
    recipe.outcome, recipe.value = _MADE, numbers[operand.id]
    recipe.cls, recipe.kind = type(result), type(result._value)
    recipe.base, recipe.chain, recipe.lone = None, (), False
    recipe.ordered = owner._ordered
    if root is not None:
        bases = [k for k, x in enumerate(tracers) if x._owner is root]
        chain = result._chain
        if bases:
            recipe.base = bases[0]
            below = tracers[bases[0]]._chain
            if list(map(id, chain[: len(below)])) != list(map(id, below)):
                return False
            chain = chain[len(below) :]
        elif type(root) is ArrayTracer and root._operand.id in numbers and not root._version:
            recipe.base, recipe.lone = numbers[root._operand.id], True
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
