"""The draws that a tape makes at each call: calls of generators that its trace has recorded.

Their results are captured inputs, with values of each call's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from tapegrad.core.arrays import plain, read
from tapegrad.core.request import leaf_key
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Aval, Call, Tape, Var
from tapegrad.observe.guards.locations import ELEMENTS, value_at
from tapegrad.observe.objects import randomness
from tapegrad.primitives.scatter import Stack
from tapegrad.tracing.draws import words
from tapegrad.tracing.draws.distributions import ONE_BY_ONE
from tapegrad.tracing.draws.recipes import CallData
from tapegrad.tracing.memory.created import is_traceable
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import Tracer, stand_in


@dataclass(eq=False)
class LoopRounds:
    """The rounds of a loop that draws, `count` of them."""

    count: int


@dataclass(frozen=True, eq=False)
class Draw:
    """A draw: the call `method(*args, **kwargs)` of a generator, and the input with its result, if
    it is one. The input of a draw in loops has an axis for each loop, the outermost first:
    `turns`."""

    generator: Any
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: np.ndarray | None
    at: Any = None
    turns: tuple[LoopRounds, ...] = ()

    def again(self, generator: Any) -> Any:
        return getattr(generator, self.method)(*self.args, **self.kwargs)

    def many(self, generator: Any, counts: tuple[int, ...]) -> np.ndarray | None:
        """The results of `counts` successive calls, if one NumPy call can draw them; else None."""
        names = ONE_BY_ONE.get(self.method)
        if names is None or type(generator) not in randomness.numpys_kinds():
            return None
        named = dict(zip(names, self.args, strict=False)) | self.kwargs
        size = named.pop("size", None)
        known = len(self.args) <= len(names) and named.keys() <= {*names}
        if not known or any(map(np.ndim, named.values())):
            return None
        shape = () if size is None else tuple(np.atleast_1d(size))
        found: np.ndarray = getattr(generator, self.method)(**named, size=(*counts, *shape))
        return found

    def is_like(self, other: Draw) -> bool:
        """Whether this is the same call."""
        return (
            self.generator is other.generator
            and self.method == other.method
            and _are_same(self.args, other.args)
            and self.kwargs.keys() == other.kwargs.keys()
            and _are_same(self.kwargs.values(), [other.kwargs[key] for key in self.kwargs])
        )


@dataclass(frozen=True, eq=False)
class DrawnAhead:
    """Numbers drawn ahead from a generator: the result of the draw that begins at each of `room`
    positions of its stream, and as the other `part`, the positions where these draws end. Positions
    are calls, which are all alike, or words of its bits."""

    generator: Any
    room: int
    by_words: bool
    call: Any = None
    value: np.ndarray | None = None
    part: int = 0
    at: Any = None

    def numbers(self, generator: Any, call: Draw) -> Sequence[np.ndarray] | None:
        """The parts; None if there are no such positions. The generator advances."""
        if self.by_words:
            return words.table(generator, call, self.room)
        many = call.many(generator, (self.room,))
        if many is not None:
            return (many,)
        return (np.stack([call.again(generator) for _ in range(self.room)]),)

    def advance(self, generator: Any, count: int) -> None:
        """Advance the generator by `count` positions."""
        if self.by_words:
            words.advance(generator, count)
        elif self.call.many(generator, (count,)) is None:
            for _ in range(count):
                self.call.again(generator)


def _are_same(xs: Any, ys: Any) -> bool:
    return len(xs) == len(ys) and all(
        type(x) is type(y) and np.array_equal(x, y) for x, y in zip(xs, ys, strict=True)
    )


def as_input(trace: Trace, value: np.ndarray, weak: bool = False, is_array: bool = True) -> Tracer:
    """The tracer of a drawn value, as an input of a trace."""
    var = trace.builder.fresh(Aval(value.shape, value.dtype, weak=weak))
    trace.captured[id(value)] = var, value
    return stand_in(trace, var, value if is_array else value[()], weak)


def valued_as(found: Any) -> tuple[np.ndarray | None, bool]:
    """A draw's result as an array, or None if it isn't numeric; and whether it is a Python
    number."""
    if type(found) in (int, float):
        return np.asarray(found), True
    if isinstance(found, (np.ndarray, np.generic)) and is_traceable(found.dtype):
        return np.array(found, order="C"), False
    return None, False


# Draws by their numbers, in order; those in the rounds of a loop are grouped.
Steps = Sequence["int | tuple[LoopRounds, Steps]"]

# Called with a draw's number, the round of each loop around it, and its result.
Put = Callable[[int, tuple[Any, ...], Any], None]


def in_turns(calls: Sequence[tuple[int, Draw]], depth: int = 0) -> Steps:
    """Draws by their numbers, which all are in at least `depth` loops, grouped by the inner
    loops."""
    found: list[Any] = []
    for turns, group in groupby(calls, lambda x: x[1].turns[depth] if x[1].turns[depth:] else None):
        if turns is None:
            found += [k for k, _ in group]
        else:
            found.append((turns, in_turns([*group], depth + 1)))
    return found


@dataclass(frozen=True)
class Drawer:
    """Repeats `calls` on these generators."""

    calls: Mapping[int, Draw]
    generators: Mapping[int, Any]
    put: Put

    def draw(self, steps: Steps, row: tuple[int, ...] = ()) -> None:
        """Draw as the program does, in this round of the loops around."""
        for step in steps:
            if isinstance(step, int):
                self.put(step, row, self.calls[step].again(self.generators[step]))
            else:
                self.rounds(*step, row)

    def rounds(self, turns: LoopRounds, steps: Steps, row: tuple[int, ...], first: int = 0) -> None:
        """Draw for the rounds of a loop from `first` on; with one NumPy call if a single place
        draws."""
        counts, inner = [turns.count - first], steps
        while len(inner) == 1 and not isinstance(inner[0], int):
            counts.append(inner[0][0].count)
            inner = inner[0][1]
        if len(inner) == 1 and isinstance(inner[0], int):
            k = inner[0]
            many = self.calls[k].many(self.generators[k], tuple(counts))
            if many is not None:
                own = slice(first, turns.count)
                self.put(k, (*row, own, *[slice(n) for n in counts[1:]]), many)
                return
        for n in range(first, turns.count):
            self.draw(steps, (*row, n))


class TypeChanged(LookupError):
    """The value found at a place has another type than in the trace."""


@dataclass(frozen=True, eq=False)
class StateInput:
    """The value of a place when a call begins, as an input. `generator` is the object of the place,
    and `word` the user's name for it."""

    generator: Any
    at: Any
    kind: Any
    value: np.ndarray
    word: str

    def again(self, holder: Any) -> Any:
        found = value_at(holder, self.at)
        if leaf_key(found) != self.kind:
            raise TypeChanged
        return read(found) if isinstance(found, np.generic) else plain(found)


class DrawnValues:
    """The drawn values, by the positions of captured inputs. If the context is left before `keep`
    is called, the draws are undone: the generators' states are restored. `keep` also stores the
    values that the call leaves outside."""

    __slots__ = ("_held", "_objects", "_puts", "_states", "left", "values")
    nothing: DrawnValues

    def __init__(
        self,
        states: Sequence[tuple[Any, Any]],
        values: dict[int, Any],
        puts: Sequence[Any] = (),
        objects: Sequence[Any] = (),
        held: Sequence[Any] = (),
    ) -> None:
        self._states, self.values, self._puts, self._objects = states, values, puts, objects
        self._held = held  # the values that were found
        self.left: Sequence[Any] = ()  # the values that the call leaves outside

    def __enter__(self) -> DrawnValues:
        return self

    def keep(self, *left: Any) -> None:
        """Keep the draws, and store the values that the call leaves outside, which are built from
        `left`."""
        self._states = ()
        call = CallData(left, self._objects, self._held)
        for kept in self._puts:
            kept.put(call)

    def __exit__(self, *exc: object) -> None:
        for generator, state in self._states:
            randomness.put_back(generator, state)

    def among(self, captured: Sequence[Any]) -> Sequence[Any]:
        """The values of the captured inputs."""
        if not self.values:
            return captured
        return [self.values.get(k, x) for k, x in enumerate(captured)]


DrawnValues.nothing = DrawnValues((), {})


def _input(x: Any) -> Any:
    """A drawn number in the form in which a tape is played."""
    return x if isinstance(x, np.ndarray) and x.ndim else np.asarray(x)[()]


def joined(
    tape: Tape, captured: Sequence[Any], drawn: Sequence[Draw | StateInput | DrawnAhead]
) -> tuple[Tape, tuple[Any, ...], Mapping[int, tuple[int, int | None]]]:
    """The tape with one input for all draws that a loop reads in turn; and the values of its last
    inputs. Then, by the ids of draws' results, the number of the captured input that holds each,
    and its position in that, or None if it is the whole input."""
    first = len(tape.inputs) - len(captured)
    values = {id(d.value): d.value for d in drawn if d.value is not None}
    inputs = zip(tape.inputs[first:], captured, strict=True)
    own: dict[Any, Any] = {var: value for var, value in inputs if id(value) in values}
    uses = Counter(x for call in tape.calls for x in call.operands if x in own)
    uses.update(x for x in (*tape.outputs, *[g.operand for g in tape.guards]) if x in own)
    calls: list[Call] = []
    further: list[tuple[Var, np.ndarray]] = []
    where: dict[int, tuple[int, int | None]] = {}
    gone: set[Any] = set()
    for call in tape.calls:
        xs = call.operands
        once = isinstance(call.primitive, Stack) and call.primitive.axis == 0
        if not once or not all(x in own and uses[x] == 1 for x in xs):
            calls.append(call)
            continue
        gone.update(xs)
        where.update({id(own[x]): (len(further), k) for k, x in enumerate(xs)})
        further.append((call.out, np.stack([own[x] for x in xs])))
    kept = [k for k, var in enumerate(tape.inputs) if var not in gone]
    rest = [captured[k - first] for k in kept if k >= first]
    found = {key: (len(rest) + n, row) for key, (n, row) in where.items()}
    found.update({id(x): (k, None) for k, x in enumerate(rest) if id(x) in values})
    tape = replace(
        tape,
        calls=tuple(calls),
        inputs=(*[tape.inputs[k] for k in kept], *[var for var, _ in further]),
        names=(*[tape.names[k] for k in kept], *[f"d{k}s" for k in range(len(further))]),
    )
    return renumbered(tape), (*rest, *[value for _, value in further]), found


class Draws:
    """The draws of a tape, in order. `inputs` are the positions of their results among the captured
    inputs, None for unused ones; `whole` are the shapes and dtypes of inputs with several results.
    `sources` number the generators among the objects that a later call looks up. `kept` are the
    values that each call leaves in these objects: see `tracing.outside.stored`."""

    def __init__(
        self,
        drawn: Sequence[Draw | StateInput | DrawnAhead],
        captured: Sequence[Any],
        where: Mapping[int, tuple[int, int | None]],
        objects: Sequence[Any],
        kept: Sequence[Any] = (),
    ) -> None:
        self.kept = kept
        self.drawn = [replace(d, generator=None) for d in drawn]  # a generator may hold this object
        self.inputs = [None if d.value is None else where.get(id(d.value)) for d in drawn]
        in_loops = [isinstance(d, Draw) and d.turns != () for d in drawn]
        several = {
            at[0]
            for at, in_loop in zip(self.inputs, in_loops, strict=True)
            if at is not None and (at[1] is not None or in_loop)
        }
        self.whole = {k: (captured[k].shape, captured[k].dtype) for k in several}
        order = {id(x): k for k, x in enumerate(objects)}
        self.sources = [order[id(d.generator)] for d in drawn]
        self.random = {order[id(d.generator)] for d in drawn if not isinstance(d, StateInput)}
        self.late: Sequence[int] = ()  # of places that the run looks up when it has told values
        self._calls = {k: d for k, d in enumerate(self.drawn) if isinstance(d, Draw)}
        self._steps = in_turns([*self._calls.items()])

    def first(self, captured: Sequence[Any]) -> DrawnValues:
        """The results that the trace itself has drawn."""
        return DrawnValues(
            (), {at[0]: _input(captured[at[0]]) for at in self.inputs if at is not None}
        )

    @property
    def numbers(self) -> set[int]:
        """The numbers of the captured inputs that are drawn."""
        return {at[0] for at in self.inputs if at is not None}

    def take(self, *generators: Any) -> DrawnValues:
        """Draw from the generators that are now in the trace's places, and look up the values of
        places."""
        sources = [generators[k] for k in self.sources]
        held = [
            x.again(source) if isinstance(x, StateInput) else None
            for x, source in zip(self.drawn, sources, strict=True)
        ]
        self._check_apart(held)
        states = [(generators[k], randomness.state_of(generators[k])) for k in self.random]
        found: dict[int, Any] = {k: np.empty(*of) for k, of in self.whole.items()}

        def put(k: int, row: tuple[Any, ...], value: Any) -> None:
            at = self.inputs[k]
            if at is None:
                return
            index = row if at[1] is None else (at[1], *row)
            if index:
                found[at[0]][index] = value
            elif isinstance(held[k], np.ndarray):  # other code may write to it
                found[at[0]] = value.copy()
            else:
                found[at[0]] = _input(value)

        for k, x in enumerate(self.drawn):
            if isinstance(x, StateInput):
                put(k, (), held[k])
        Drawer(self._calls, dict(enumerate(sources)), put).draw(self._steps)
        if not self._draw_ahead(sources, held, put):
            for generator, state in states:
                randomness.put_back(generator, state)
            raise TypeChanged
        return DrawnValues(states, found, self.kept, generators, held)

    def found(self, generators: Sequence[Any]) -> dict[int, Any]:
        """What is now in the places whose values are inputs, by their numbers."""
        rows = enumerate(zip(self.drawn, self.sources, strict=True))
        return {k: value_at(generators[s], d.at) for k, (d, s) in rows if isinstance(d, StateInput)}

    def unlike(self, generators: Sequence[Any]) -> tuple[int, Any] | None:
        """The first place whose value has another type than in the trace, by its number, and the
        value. None if there is none."""
        for k, (x, source) in enumerate(zip(self.drawn, self.sources, strict=True)):
            if isinstance(x, StateInput):
                now = value_at(generators[source], x.at)
                if leaf_key(now) != x.kind:
                    return k, now
        return None

    def _draw_ahead(self, sources: Sequence[Any], held: list[Any], put: Put) -> bool:
        """Draw ahead, after all other draws of a generator, whose state is found then. Returns
        whether that was possible."""
        made: dict[int, Any] = {}
        for k, (x, source) in enumerate(zip(self.drawn, sources, strict=True)):
            if not isinstance(x, DrawnAhead):
                continue
            if id(x.call) not in made:
                state = randomness.state_of(source)
                made[id(x.call)] = state, x.numbers(source, x.call)
                randomness.put_back(source, state)
            held[k], parts = made[id(x.call)]
            if parts is None:
                return False
            put(k, (), parts[x.part])
        return True

    def _check_apart(self, held: Sequence[Any]) -> None:
        """Check that no value found lies in the memory of a lent array: the trace assumed that none
        does."""
        rows = [*zip(self.drawn, held, strict=True)]
        lent = [x for d, x in rows if d.at == ELEMENTS]
        for d, x in rows if lent else ():
            others = isinstance(x, np.ndarray) and d.at != ELEMENTS
            if others and any(np.may_share_memory(x, y) for y in lent):
                raise TypeChanged
