"""Rounds: common parts of `scan`, `map`, `while_loop` and loop statements.

A function is traced for one round, with the values of that round: so its guards hold for this
round. Values of the outer trace that it reads are invariants of the loop. A second trace checks
that the function does the same when it is called again.

Where plain Python changes the type of a carried value, as from an integer to a float, the first
rounds are recorded one by one in front of the loop, which has the remaining rounds: so it computes
the results of Python's loop.

Names: `leaves` are those of the carried tree, `done` is the number of rounds in front.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from tapegrad.core.request import Request, check_leaf
from tapegrad.core.statics import static_key
from tapegrad.core.trees import (
    flatten,
    is_array,
    is_number,
    is_traced,
    takes_functions,
    unflatten,
)
from tapegrad.errors import ArgumentError, TapeError, TraceError, UnsupportedError
from tapegrad.ir.tape import Aval, Literal, Source, Tape
from tapegrad.observe.observer import following
from tapegrad.observe.program.source import at_source
from tapegrad.primitives.control import CallTape
from tapegrad.primitives.loops import Loop
from tapegrad.primitives.windows import Window
from tapegrad.tracing.loops.failed_guards import recorded
from tapegrad.tracing.outside.reached_state import Reached
from tapegrad.tracing.recording.trace import Trace, innermost, traces_under_way
from tapegrad.tracing.runs.comparison import Marks, are_alike, marks_of
from tapegrad.tracing.runs.run import Run
from tapegrad.tracing.runs.traced import Traced, input_aval, plain_value
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand
from tapegrad.tracing.tracers.union_numbers import as_union, check_elements

T = TypeVar("T")
FIRST = 4  # rounds after which the types of carried values are fixed


class _Here(threading.local):
    """Whether an outer function is being traced again. Its loops have been compared with a second
    trace already, so that a nest isn't traced twice as often at each level."""

    again = False


_here = _Here()


@contextmanager
def _once_more(again: bool) -> Iterator[None]:
    before = _here.again
    _here.again = before or again
    try:
        yield
    finally:
        _here.again = before


def check_leaves(label: str, leaves: Sequence[Any], tree: Any, word: str) -> None:
    """Raise an ArgumentError if a leaf of a tree can't be traced."""
    for k, leaf in enumerate(leaves):
        try:
            check_leaf(leaf, "")
        except ArgumentError:
            check_leaf(leaf, f"{label}: {name_in(tree, k, word)}")


def name_of(structure: Any, k: int, word: str) -> str:
    """Python source for a leaf of a tree with this structure."""
    return str(structure.accessors()[k].codify(word))


def name_in(tree: Any, k: int, word: str) -> str:
    """Python source for a leaf of a tree."""
    return name_of(flatten(tree)[1], k, word)


@dataclass(frozen=True, eq=False)
class Leaf:
    """A leaf of a traced round's result. One that isn't on the round's tape has a value, but no
    operand and no type."""

    operand: Any
    aval: Any
    value: Any
    either: int = 0  # whether it may be Python's number or NumPy's: see `Tracer._either`

    @property
    def type(self) -> Any:
        return _static_type(self.value) if self.aval is None else _key(self.aval, self.either)


@dataclass(frozen=True, eq=False)
class Round:
    """A traced round. Its tape's inputs are the step, the carried leaves, the arrays of entries,
    and captured values."""

    traced: Traced
    leaves: list[Leaf]
    ys: list[Leaf]
    structure: Any
    marks: Marks

    @property
    def tape(self) -> Tape:
        return self.traced.tape


class Inputs(NamedTuple):
    """The arguments of a round: carried leaves, entries of arrays, and the step."""

    leaves: list[Any]
    entries: list[Any]
    step: Any


# A generator that traces rounds: it yields each round's arguments, is sent the results of
# `Rounds.run`, and returns a value.
Steps = Generator[Inputs, tuple[list[Any], list[Any], Any], T]


@dataclass(frozen=True)
class Rounds:
    """The rounds of a function that carries trees of this structure, at the line `src`."""

    f: Callable[..., Any]
    label: str
    structure: Any
    src: Source | None

    def run(
        self, leaves: Sequence[Any], entries: Sequence[Any]
    ) -> tuple[list[Any], list[Any], Any]:
        """Run one round. Returns its carried leaves, its result's leaves, and their structure."""
        raise NotImplementedError

    @property
    def made_in(self) -> FrameType | None:
        """The frame that makes the rounds, if it isn't the one that traces them."""
        return None

    @property
    def arrays(self) -> list[Any]:
        """The arrays from which rounds take entries."""
        return []

    def windows(self, done: int) -> list[Window]:
        """The windows that take a round's entries."""
        return []

    def first_step(self, done: int) -> int:
        """The step of the first round of the loop."""
        return 0

    def words(self, leaves: Sequence[Any]) -> list[str]:
        """The names of the tape's first inputs."""
        raise NotImplementedError

    def name(self, k: int) -> str:
        """The name of a carried leaf in messages."""
        return name_of(self.structure, k, "carry")

    def at(self) -> str:
        return at_source(self.src)

    @property
    def count(self) -> int:
        return int(self.structure.num_leaves)

    def carried(self, tree: Any) -> list[Any]:
        """The leaves of a carried tree; an ArgumentError if its structure has changed."""
        leaves, structure = flatten(tree)
        if structure != self.structure:
            raise ArgumentError(
                f"{self.label}: what is carried was put together as {text_of(self.structure)}, and "
                f"the function returned {text_of(structure)}{self.at()}. Return what is carried as "
                "it was given: the same keys, and as many entries"
            )
        check_leaves(self.label, leaves, tree, "carry")
        return leaves

    # ---- a traced round

    def driven(self, steps: Steps[T]) -> T:
        """Trace rounds by calls of the function. Returns the result of `steps`."""
        try:
            given = next(steps)
            while True:
                try:
                    made = self.run(given.leaves, given.entries)
                except BaseException as error:
                    _fail(steps, error)
                given = steps.send(made)
        except StopIteration as end:
            found: T = end.value
            return found

    def round(self, leaves: Sequence[Any], done: int, again: bool = False) -> Steps[Round]:
        """Trace the next round."""
        windows = self.windows(done)
        step = np.int64(self.first_step(done))
        operands = [x for x in leaves if is_traced(x)]
        marks = marks_of(traces_under_way())
        request = Request(self.f, (step, *operands, *self.arrays), names=self.words(leaves))
        run = Run(request, repeats=True, apart=True, frame=self.made_in)
        with _once_more(again or done > 0), run:
            (step, *values), _ = run.given
            given = iter(values)
            start = [as_union(next(given), _either(x)) if is_traced(x) else x for x in leaves]
            if self.made_in is None and following.observer is not None:
                following.observer.identities.carries([x for x in start if is_traced(x)])
            entries = [w(x, step) for w, x in zip(windows, given, strict=True)]
            new, ys, structure = yield Inputs(start, entries, step)
            for x in entries:
                if x._owner._version:
                    raise UnsupportedError(
                        f"{self.label}: the function writes to the entry that it is passed"
                        f"{self.at()}, which would change xs. Start with a copy: x = x.copy()"
                    )
            check_elements(ys)
            run.returned([*new, *ys])
        traced = run.traced()
        eithers = [_either(x) for x in (*new, *ys)]
        found = [_leaf(traced, k, either) for k, either in enumerate(eithers)]
        return Round(traced, found[: len(new)], found[len(new) :], structure, marks)

    def settled(
        self, leaves: list[Any], round_: Round, done: int
    ) -> Steps[tuple[list[Any], Round] | None]:
        """The initial leaves and the round of a loop, if carried types are stable from here on;
        else None.

        A Python number may become a NumPy number, if the function computes the same with it.
        """
        old, new = [type_of(x) for x in leaves], [leaf.type for leaf in round_.leaves]
        if old == new and _here.again:
            return leaves, round_
        if [_kind(x) for x in old] != [_kind(x) for x in new]:
            return None
        same = old == new
        start = leaves if same else [as_weak(*x) for x in zip(leaves, round_.leaves, strict=True)]
        reached = None if self.made_in is not None else Reached(self.f)
        other = yield from self.round(start, done, again=True)
        if same:
            self._check_again(round_, other)
        self._check_unchanged(reached)
        if same:
            return leaves, round_
        if new == [leaf.type for leaf in other.leaves] and are_alike(
            round_.traced, other.traced, round_.marks
        ):
            return start, other
        return None

    def _check_unchanged(self, reached: Reached | None) -> None:
        """Raise a TraceError if a repeated trace of a round has changed something."""
        changed = None if reached is None else reached.changed()
        if changed is not None:
            raise TraceError(
                f"{self.label}: the function changes what was there before, {changed}. Its rounds "
                "are traced once for all, so what it changes would be what one round leaves: carry "
                "it, or return it for each round"
            )

    def _check_again(self, round_: Round, other: Round) -> None:
        """Raise a TraceError if a repeated trace of a round differs."""
        if not are_alike(round_.traced, other.traced, round_.marks):
            raise TraceError(
                f"{self.label}: the function did something else when it was called again with the "
                f"same{self.at()}: it depends on what it changes itself, such as a counter, an "
                "iterator or a list. Its rounds are traced once for all, so it must depend on what "
                "is carried and on its entry alone: carry the counter, or pass np.arange(n) as xs"
            )

    def in_front(
        self, leaves: Sequence[Any], round_: Round, done: int
    ) -> tuple[list[Any], list[Any]]:
        """Record a round in front of the loop. Returns its carried leaves and results."""
        on_tape = [leaf for leaf in (*round_.leaves, *round_.ys) if leaf.operand is not None]
        tape = replace(round_.tape, outputs=tuple(leaf.operand for leaf in on_tape))
        inputs = self.operands(leaves, round_, done)
        trace = self.trace(inputs)
        given = iter(self.once(trace, tape, [to_operand(trace, x)[0] for x in inputs]))
        found = [
            leaf.value
            if leaf.aval is None
            else as_union(stand_in(trace, next(given), leaf.value, leaf.aval.weak), leaf.either)
            for leaf in (*round_.leaves, *round_.ys)
        ]
        count = len(round_.leaves)
        return found[:count], found[count:]

    def once(self, trace: Trace, tape: Tape, inputs: Sequence[Any]) -> Sequence[Any]:
        """The results of a round's tape, recorded by itself."""
        return trace.record(CallTape(tape), inputs)

    def operands(self, leaves: Sequence[Any], round_: Round, done: int) -> list[Any]:
        """The operands of a round's tape."""
        step = np.int64(self.first_step(done))
        carried = [x for x in leaves if is_traced(x)]
        given = [x if isinstance(x, Tracer) else plain_value(x) for x in (*carried, *self.arrays)]
        return [step, *given, *round_.traced.captured]

    def trace(self, operands: Sequence[Any]) -> Trace:
        """The trace that the rounds belong to."""
        return innermost([x for x in operands if isinstance(x, Tracer)])

    def recorded(self, trace: Trace, loop: Loop, operands: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a loop, recorded."""
        try:
            found = self.explained(lambda: recorded(trace, loop, operands))
        except Exception:
            Run.failed()
            raise
        return found if isinstance(found, tuple) else (found,)

    def explained(self, run: Callable[[], Any]) -> Any:
        """The result of `run()`, which runs the loop. An error explains a guard that fails in a
        later round."""
        try:
            return run()
        except TapeError as error:
            guard: Any = error.guard
            if guard is None:
                raise
            if guard.error:  # NumPy's own error, in this round
                words = guard.what.partition("(")[2].rpartition(")")[0].strip("'\"")
                raise np.linalg.LinAlgError(words) from None
            if guard.what == "the size of an integer":
                raise TraceError(
                    f"{self.label}: a Python integer becomes larger than a trace can follow"
                    f"{at_source(guard.src)}. Carry one of NumPy's, such as np.int64(0)"
                ) from error
            if guard.what.startswith("an integer used as an index"):
                raise TraceError(
                    f"{self.label}: a traced integer is used as an index, a length or a range"
                    f"{at_source(guard.src)}, and it isn't {guard.expected.value} in all rounds. "
                    "An array that is traced takes it, x[k], and a plain array as "
                    "np.array(x); or pass the array as xs, of which each round gets "
                    "its entry"
                ) from error
            raise TraceError(
                f"{self.label}: {guard.what or 'a value'} is {guard.expected.value} in the first "
                f"round{at_source(guard.src)}, and not in all others. The function is traced once "
                "for all rounds, so it must take the same path in each. Use np.where, which "
                "computes both and chooses (or np.logical_and in the place of `and`), or "
                "tapegrad.cond, which calls one of two functions; or write a plain loop"
            ) from error

    def check_types(self, old: Sequence[Any], new: Sequence[Any], done: int) -> None:
        """Raise an ArgumentError if a round changes the type of a carried leaf."""
        for k, (a, b) in enumerate(zip(old, new, strict=True)):
            if _kind(a) != _kind(b):
                raise ArgumentError(
                    f"{self.label}: {self.name(k)} is {type_text(a)} before round {done} and "
                    f"{type_text(b)} after it{self.at()}. What is carried may change its shape "
                    f"and dtype in the first {FIRST} rounds, and then keeps them: let the function "
                    "return what it was given, as to shapes and dtypes"
                )


def _fail(steps: Steps[Any], error: BaseException) -> NoReturn:
    """A round has failed: so do the steps, which clean up."""
    try:
        steps.throw(error)
    except RuntimeError as other:
        if other.__cause__ is error and isinstance(error, StopIteration):
            raise error from None  # the error as it was before the generator wrapped it
        raise
    raise error


# ---- types


def on_tape(values: Sequence[Any]) -> bool:
    return any(isinstance(x, Tracer) for x in values)


def truth_of(x: Any, refused: Callable[[str], ArgumentError]) -> Any:
    """A condition as True or False, or as a traced boolean. For anything else, `refused` makes an
    error from a description."""
    if not is_traced(x) or np.size(x) != 1:
        if isinstance(x, (bool, np.bool_)) or x is None:
            return bool(x)
        raise refused(f"an array of shape {np.shape(x)}" if is_traced(x) else repr(x))
    if not isinstance(x, Tracer):
        return bool(x)
    if x.dtype.kind != "b":
        x = np.not_equal(x, 0)
    return np.reshape(x, ())[()] if np.ndim(x) else x


def own_copies(leaves: Sequence[Any]) -> list[Any]:
    """Leaves with copies of the arrays, so that writes to them don't change others."""
    return [np.array(x) if is_array(x) else x for x in leaves]


def _key(aval: Aval, either: int) -> Any:
    return aval.shape, aval.dtype, aval.weak, either


def _static_type(x: Any) -> Any:
    return "static", static_key(x), x


def type_of(x: Any) -> Any:
    """A key of a carried leaf's type; for an untraced leaf, of its value."""
    return _key(input_aval(x), _either(x)) if is_traced(x) else _static_type(x)


def _kind(found: Any) -> Any:
    """The type key without the distinction between Python and NumPy numbers."""
    return found[:2]


def _either(x: Any) -> int:
    return x._either if isinstance(x, Tracer) else 0


def _leaf(traced: Traced, k: int, either: int = 0) -> Leaf:
    """A leaf of a traced function's result. An untraced number is a constant."""
    at, value = traced.outputs[k], traced.leaves[k]
    if at is not None:
        operand = traced.tape.outputs[at]
        return Leaf(operand, Aval(operand.shape, operand.dtype, traced.weak[k]), value, either)
    if not is_traced(value):
        return Leaf(None, None, value)
    return Leaf(Literal(plain_value(value)), input_aval(value), plain_value(value))


def typed(y: Leaf) -> Any:
    """A result as it is stacked, with a type also for Python constants."""
    if y.aval is None:
        return Leaf(Literal(np.bool_(y.value)), Aval((), np.dtype(bool)), y.value)
    return Leaf(y.operand, Aval(y.aval.shape, y.aval.dtype), y.value)


def as_weak(x: Any, leaf: Leaf) -> Any:
    """A carried leaf as a Python or NumPy number, as the round's is."""
    if leaf.aval is None:
        return x
    if isinstance(x, Tracer):
        weak = leaf.aval.weak
        if (x._weak, x._either) == (weak, leaf.either):
            return x
        return as_union(stand_in(x._trace, *x._read(), weak), leaf.either)
    if leaf.aval.weak:
        return x if is_number(x) else x.item()
    return plain_value(x) if is_number(x) else x


# ---- words


class _Star:
    """The text of a leaf within a tree's text."""

    def __repr__(self) -> str:
        return "*"


def text_of(structure: Any) -> str:
    """The text of a tree's structure, with a star for each leaf."""
    if takes_functions(structure):  # they may look into the tree
        return str(structure)
    return repr(unflatten(structure, [_Star()] * structure.num_leaves))


def described(x: Any) -> str:
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of {len(x)}"
    return "an array" if is_array(x) else "a number" if is_traced(x) else repr(x)


def type_text(found: Any) -> str:
    """The name of a type in messages."""
    if found[0] == "static":
        return repr(found[2])
    shape, dtype, weak, *_ = found
    if weak:
        return f"a Python {type(dtype.type().item()).__name__}"
    return f"a {dtype} array of shape {shape}" if shape else f"a {dtype}"
