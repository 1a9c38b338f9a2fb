"""What a tape draws at each call: the calls of generators that its trace has noted.

The inputs that they give are captured ones; their values are a call's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.request import leaf_key
from tapegrad.ir.inputs import renumbered
from tapegrad.ir.tape import Call, Tape, Var
from tapegrad.primitives.scatter import Stack
from tapegrad.tracing import randomness
from tapegrad.tracing.anew import Making
from tapegrad.tracing.observe.places import ELEMENTS, value_at


@dataclass(frozen=True, eq=False)
class Drawn:
    """A draw: the call `method(*args, **kwargs)` of a generator, and the input that it gave, if it
    gives one."""

    generator: Any
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: np.ndarray | None
    at: Any = None

    def again(self, generator: Any) -> Any:
        return getattr(generator, self.method)(*self.args, **self.kwargs)


class Changed(LookupError):
    """What a call finds is of another kind than what was traced."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a place of an object, the `generator` of this input, holds when a call begins."""

    generator: Any
    at: Any
    kind: Any
    value: np.ndarray

    def again(self, holder: Any) -> Any:
        found = value_at(holder, self.at)
        if leaf_key(found) != self.kind:
            raise Changed
        return found


class Taken:
    """What was drawn: values by the positions of captured inputs. Where the context is left before
    it is known that they are wanted, they weren't drawn after all: the states before are put back.
    What the call leaves outside is put there when that is known.
    """

    __slots__ = ("_held", "_objects", "_puts", "_states", "left", "values")
    nothing: Taken

    def __init__(
        self,
        states: Sequence[tuple[Any, Any]],
        values: dict[int, Any],
        puts: Sequence[Any] = (),
        objects: Sequence[Any] = (),
        held: Sequence[Any] = (),
    ) -> None:
        self._states, self.values, self._puts, self._objects = states, values, puts, objects
        self._held = held  # what was found
        self.left: Sequence[Any] = ()  # the values that the call leaves outside

    def __enter__(self) -> Taken:
        return self

    def keep(self, *left: Any) -> None:
        """They are wanted, and so is what the call leaves outside, made of these values."""
        self._states = ()
        call = Making(left, self._objects, self._held)
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


Taken.nothing = Taken((), {})


def _input(x: Any) -> Any:
    """A number that was drawn, as a tape is played with it."""
    return x if isinstance(x, np.ndarray) and x.ndim else np.asarray(x)[()]


def joined(
    tape: Tape, captured: Sequence[Any], drawn: Sequence[Drawn | Found]
) -> tuple[Tape, tuple[Any, ...], Mapping[int, tuple[int, int | None]]]:
    """The tape with one input for draws that a loop reads in turn, and the values of its last
    inputs. For draws, by the ids of what they gave: the number of the captured input that holds it,
    and where in that; None if it is that."""
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
    """The draws of a tape, in order. `inputs` says where among the captured inputs what they give
    goes, None for what nothing reads; `whole` are the shapes and dtypes of those that hold several.
    `sources` number the generators, which stand among the objects that a later call asks for. What
    each call leaves in these is `kept`: see `tracing.kept`."""

    def __init__(
        self,
        drawn: Sequence[Drawn | Found],
        captured: Sequence[Any],
        where: Mapping[int, tuple[int, int | None]],
        objects: Sequence[Any],
        kept: Sequence[Any] = (),
    ) -> None:
        self.kept = kept
        self.drawn = [replace(d, generator=None) for d in drawn]  # it may hold this
        self.inputs = [None if d.value is None else where.get(id(d.value)) for d in drawn]
        several = {at[0] for at in self.inputs if at is not None and at[1] is not None}
        self.whole = {k: (captured[k].shape, captured[k].dtype) for k in several}
        order = {id(x): k for k, x in enumerate(objects)}
        self.sources = [order[id(d.generator)] for d in drawn]
        self.random = {order[id(d.generator)] for d in drawn if isinstance(d, Drawn)}

    def first(self, captured: Sequence[Any]) -> Taken:
        """What the trace itself has drawn."""
        return Taken((), {at[0]: _input(captured[at[0]]) for at in self.inputs if at is not None})

    @property
    def numbers(self) -> set[int]:
        """The numbers of the captured inputs that are drawn."""
        return {at[0] for at in self.inputs if at is not None}

    def take(self, *generators: Any) -> Taken:
        """Draw from generators that stand in the places of those that the trace drew from, and look
        up what objects hold."""
        rows = [*zip(self.drawn, self.sources, self.inputs, strict=True)]
        held = [d.again(generators[k]) if isinstance(d, Found) else None for d, k, _ in rows]
        self._check_apart(held)
        states = [(generators[k], randomness.state_of(generators[k])) for k in self.random]
        found: dict[int, Any] = {k: np.empty(*of) for k, of in self.whole.items()}
        for (drawn, source, at), known in zip(rows, held, strict=True):
            value = known if isinstance(drawn, Found) else drawn.again(generators[source])
            if at is None:
                continue
            number, row = at
            if row is not None:
                found[number][row] = value
            elif isinstance(known, np.ndarray):  # others may write to it
                found[number] = known.copy()
            else:
                found[number] = _input(value)
        return Taken(states, found, self.kept, generators, held)

    def _check_apart(self, held: Sequence[Any]) -> None:
        """What was found lies in no array that is lent: the trace took these for others."""
        rows = [*zip(self.drawn, held, strict=True)]
        lent = [x for d, x in rows if d.at == ELEMENTS]
        for d, x in rows if lent else ():
            others = isinstance(x, np.ndarray) and d.at != ELEMENTS
            if others and any(np.may_share_memory(x, y) for y in lent):
                raise Changed
