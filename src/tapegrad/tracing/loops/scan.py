"""`scan`: a function of carried values and an entry of arrays, applied along their first axis.

    for t in range(n):                loop(n, %h, %ys, %xs, body)
        h, y = f(h, xs[t])     -->        %x = window(%xs, step)
        ys[t] = y                         ...
                                          out %h, set_window(%ys, %y, step)

`rounds.py` describes how a round is traced. Outside of a trace, `scan` is a Python loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.request import describe, leaf_names
from tapegrad.core.trees import flatten, is_traced, unflatten
from tapegrad.errors import ArgumentError
from tapegrad.observe.observer import observed, unobserved
from tapegrad.observe.program.source import user_source
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.windows import Window, entry_at
from tapegrad.tracing.loops.rounds import (
    FIRST,
    Round,
    Rounds,
    as_weak,
    check_leaves,
    described,
    name_in,
    on_tape,
    own_copies,
    text_of,
    type_of,
    typed,
)
from tapegrad.tracing.loops.stacking import empty_stacks, with_stacks
from tapegrad.tracing.recording.trace import current_trace
from tapegrad.tracing.runs.traced import input_aval
from tapegrad.tracing.tracers.tracer import Tracer


@unobserved
def scan(
    f: Callable[..., Any], init: Any, xs: Any, length: Any, reverse: bool, what: str = "scan"
) -> tuple[Any, Any]:
    """The carried values after the last round, and the stacked results of all rounds."""
    leaves, structure = flatten(init)
    entries, xs_structure = flatten(xs)
    label = f"{what} of {describe(f)}"
    check_leaves(label, leaves, init, "init")
    count = _length(label, entries, xs, length)
    maps, src = what == "map", user_source()
    rounds = Scan(f, label, structure, src, maps, entries, xs_structure, count, bool(reverse))
    if count == 0:
        return rounds.none(leaves)
    if current_trace() is None and not on_tape([*leaves, *entries]):
        return rounds.plainly(leaves)
    return rounds.traced(leaves)


def _length(label: str, xs: Sequence[Any], tree: Any, length: Any) -> int:
    """The number of rounds."""
    check_leaves(label, xs, tree, "xs")
    lengths = []
    for k, x in enumerate(xs):
        if not is_traced(x) or np.ndim(x) == 0:
            name = name_in(tree, k, "xs")
            what = f"{x!r} ({type(x).__name__})" if not isinstance(x, Tracer) else "a number"
            raise ArgumentError(
                f"{label}: {name} is {what}, which has no first axis to go along. Pass an array, "
                "np.array([...]) of numbers; what is the same in all rounds the function can reach "
                "without being passed it"
            )
        lengths.append(x.shape[0])
    if length is not None:
        try:
            count = length.__index__()
        except (AttributeError, TypeError):
            count = -1
        if count < 0 or isinstance(length, (bool, np.bool_)):
            raise ArgumentError(f"{label}: length is a number of rounds, from 0 up, not {length!r}")
        lengths.append(count)
    if not lengths:
        raise ArgumentError(
            f"{label}: without xs nothing says how many rounds there are. Pass length, as in "
            "scan(f, init, length=100)"
        )
    for k, count in enumerate(lengths):
        if count != lengths[0]:
            last = k == len(xs)
            size = f"length is {count}" if last else f"{name_in(tree, k, 'xs')} has one of {count}"
            raise ArgumentError(
                f"{label}: {name_in(tree, 0, 'xs')} has a first axis of {lengths[0]}, and {size}. "
                "All have an entry for each round"
            )
    return int(lengths[0])


@dataclass(frozen=True)
class Scan(Rounds):
    """Rounds that take entries of arrays, with stacked results. One that `maps` carries nothing."""

    maps: bool
    xs: list[Any]
    xs_structure: Any
    length: int
    reverse: bool

    @unobserved
    def run(
        self, leaves: Sequence[Any], entries: Sequence[Any]
    ) -> tuple[list[Any], list[Any], Any]:
        carry = unflatten(self.structure, leaves)
        x = unflatten(self.xs_structure, entries)
        with observed():
            returned = ((), self.f(x)) if self.maps else self.f(carry, x)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ArgumentError(
                f"{self.label}: the function returned {described(returned)}{self.at()}, and not a "
                "pair: what is carried on, and the round's own result. Return (carry, None) if a "
                "round has none"
            )
        new = self.carried(returned[0])
        ys, structure = flatten(returned[1])
        check_leaves(self.label, ys, returned[1], "y")
        for k, y in enumerate(ys):
            if not (is_traced(y) or isinstance(y, bool)):
                raise ArgumentError(
                    f"{self.label}: {name_in(returned[1], k, 'y')} is {y!r}{self.at()}, and the "
                    "results of all rounds are stacked in an array. Return arrays and numbers, or "
                    "None"
                )
        return new, ys, structure

    @property
    def arrays(self) -> list[Any]:
        return self.xs

    def windows(self, done: int) -> list[Window]:
        first = 0 if self.reverse else done
        return [Window(*entry_at(first, x.shape[1:])) for x in self.xs]

    def first_step(self, done: int) -> int:
        return self.length - done - 1 if self.reverse else 0

    def words(self, leaves: Sequence[Any]) -> list[str]:
        xs = unflatten(self.xs_structure, self.xs)
        trees = [xs] if self.maps else [unflatten(self.structure, leaves), xs]
        names, _ = leaf_names(self.f, trees, {})
        return ["step" if "step" not in names else "step_", *names]

    # ---- without a trace

    def plainly(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """Python's loop."""
        found: list[list[Any]] = []
        structure: Any = None
        steps = range(self.length)
        for done, step in enumerate(reversed(steps) if self.reverse else steps):
            new, ys, ys_structure = self.run(own_copies(leaves), [_entry(x, step) for x in self.xs])
            if done >= FIRST:
                self.check_types([type_of(x) for x in leaves], [type_of(x) for x in new], done)
            if done and ys_structure != structure:
                raise self._other_results(structure, ys_structure)
            structure = ys_structure
            found.append(own_copies(ys))
            leaves = new
        return unflatten(self.structure, own_copies(leaves)), unflatten(
            structure, self._stacked(found)
        )

    def _stacked(self, found: list[list[Any]]) -> list[Any]:
        """The stacked results of rounds, in order."""
        return [self._stack(ys) for ys in zip(*found, strict=True)]

    def _stack(self, ys: Sequence[Any]) -> Any:
        self._check_shapes([np.shape(y) for y in ys])
        return np.stack(ys[::-1] if self.reverse else ys)

    def _check_shapes(self, shapes: Sequence[tuple[int, ...]]) -> None:
        other = next((shape for shape in shapes if shape != shapes[0]), None)
        if other is not None:
            raise ArgumentError(
                f"{self.label}: the function returned results of the shapes {shapes[0]} and "
                f"{other}{self.at()}, and the results of all rounds are stacked in an array. "
                "Return the same shapes in each round"
            )

    def none(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """The results of no rounds: the initial carried values, and stacked results of length 0,
        with the types of a round on ones."""
        ones = [np.ones((1, *x.shape[1:]), x.dtype) for x in self.xs]
        with np.errstate(all="ignore"):
            if current_trace() is None:
                _, ys, structure = self.run(own_copies(leaves), [_entry(x, 0) for x in ones])
                avals = [input_aval(np.bool_(y) if isinstance(y, bool) else y) for y in ys]
            else:
                one = replace(self, xs=ones, length=1)
                round_ = one.driven(one.round(leaves, 0))
                structure, avals = round_.structure, [typed(y).aval for y in round_.ys]
        empty = [np.zeros((0, *aval.shape), aval.dtype) for aval in avals]
        return unflatten(self.structure, leaves), unflatten(structure, empty)

    # ---- in a trace

    def traced(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """Record the rounds as a loop, behind those in which types change."""
        leaves = list(leaves)
        first: list[list[Any]] = []
        structure: Any = None
        for done in range(self.length):
            round_ = self.driven(self.round(leaves, done))
            if done == 0 and not on_tape([*leaves, *self.xs, *round_.traced.captured]):
                return self.plainly(leaves)
            if done and round_.structure != structure:
                raise self._other_results(structure, round_.structure)
            structure = round_.structure
            settled = self.driven(self.settled(leaves, round_, done))
            if settled is not None:
                leaves, rest = self._loop(*settled, done)
                ys = [self._joined([y[k] for y in first], y) for k, y in enumerate(rest)]
                return unflatten(self.structure, leaves), unflatten(structure, ys)
            if done >= FIRST:
                types = [type_of(x) for x in leaves], [leaf.type for leaf in round_.leaves]
                self.check_types(*types, done)
            leaves, ys = self.in_front(leaves, round_, done)
            first.append(ys)
        return unflatten(self.structure, leaves), unflatten(structure, self._stacked(first))

    def _loop(self, leaves: list[Any], round_: Round, done: int) -> tuple[list[Any], list[Any]]:
        """Record the remaining rounds as a loop."""
        rounds = self.length - done
        _, *operands = self.operands(leaves, round_, done)
        trace = self.trace(operands)
        carried = [leaf for leaf in round_.leaves if leaf.operand is not None]
        count = len(carried)
        ys = [typed(y) for y in round_.ys]
        if not carried and not ys:
            return leaves, []
        stacks = empty_stacks(trace, ys, rounds, filled=True)
        body = replace(round_.tape, outputs=tuple([leaf.operand for leaf in carried]))
        body = with_stacks(body, count, ys, rounds, self.src)
        loop = Loop(body, count + len(ys), rounds, self.reverse)
        given = [np.int64(rounds), *operands[:count], *stacks, *operands[count:]]
        outs = self.recorded(trace, loop, given)
        found = iter(outs)
        ends = [
            leaf.value if leaf.aval is None else as_weak(next(found), leaf)
            for leaf in round_.leaves
        ]
        return ends, list(found)

    def _joined(self, first: Sequence[Any], rest: Any) -> Any:
        """The results of the rounds in front of a loop joined with those of the loop."""
        if not first:
            return rest
        self._check_shapes([*map(np.shape, first), rest.shape[1:]])
        front = np.stack(first[::-1] if self.reverse else first)
        return np.concatenate([rest, front] if self.reverse else [front, rest])

    # ---- errors

    def _other_results(self, old: Any, new: Any) -> ArgumentError:
        return ArgumentError(
            f"{self.label}: the function returned results that are put together as {text_of(old)} "
            f"in one round and as {text_of(new)} in the next{self.at()}. They are stacked leaf by "
            "leaf, so they must be put together in one way"
        )


# ---- entries


def _entry(x: Any, step: int) -> Any:
    """An entry of a plain array, read-only."""
    entry = x[step]
    if isinstance(entry, np.ndarray):
        entry = entry.view()
        entry.flags.writeable = False
    return entry
