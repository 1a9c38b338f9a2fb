"""The traced values in a frame's variables, and the state of tracers.

A loop of which one round is traced carries the values of its frame's variables. These, and the
lists, tuples and dicts in them, are searched for tracers; all other values must stay unchanged.
"""

from __future__ import annotations

import collections
import contextlib
import dis
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CellType, FrameType
from typing import Any, NamedTuple

import numpy as np

from tapegrad.core.arrays import objection
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Literal
from tapegrad.observe.objects.containers import Parts, is_open, part, parts_of, put
from tapegrad.observe.objects.purity import PLAIN_TYPES
from tapegrad.observe.program import frames
from tapegrad.observe.program.liveness import flow_of, reads_and_writes
from tapegrad.observe.program.source import at_line
from tapegrad.observe.queries import is_made_here, streams
from tapegrad.tracing.memory.created import is_created
from tapegrad.tracing.recording.chains import note_view, views_of
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.subclass_tracers import check_stays
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, set_class, stand_in, to_operand

_DEEP = 6
_NUMBERS = (int, float, np.float64, np.float32, np.int64)
_STATE = ("_aval", "_chain", "_doubt", "_may_alias", "_operand", "_ordered", "_root", "_trace")


class ListProxy:
    """The proxy of a list, in the variable that held it. Rounds carry its `array`."""

    array: Tracer


@dataclass
class Variables:
    """The values of a frame's variables: `tracers`, in the order of `paths`; and `shape`, by path,
    which describes all values except which traced values these are."""

    tracers: list[Tracer] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    shape: dict[str, Any] = field(default_factory=dict)
    seen: dict[int, tuple[str, Any]] = field(default_factory=dict)  # objects by id, kept alive
    growing: Sequence[
        Any
    ] = ()  # lists that aren't searched: see `tracing.statements.growing_lists`
    kept: set[int] = field(default_factory=set)  # positions of unchanged tracers
    written: set[int] = field(default_factory=set)  # positions of those that were written to
    # The ids of searched containers, and the place of each of their parts by path
    containers: set[int] = field(default_factory=set)
    places: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    fills: bool = False  # whether one is a `deque` that isn't full

    @property
    def words(self) -> list[str]:
        """The paths as identifiers."""
        return [re.sub(r"\W+", "_", path).strip("_") for path in self.paths]

    def first(self, x: Any, path: str) -> str:
        """The path at which an object was seen first."""
        return self.seen.setdefault(id(x), (path, x))[0]

    def take_the_place_of(
        self, given: Sequence[Any], others: Sequence[Variables]
    ) -> collections.Counter[int]:
        """Give the tracers the state of those in `given`. Returns the number of references to each
        object from these variables and `others`, by id."""
        for x, start in zip(self.tracers, given, strict=True):
            become(x, start)
        found: collections.Counter[int] = collections.Counter()
        for known in others:
            found.update(map(id, known.tracers))
            found.update(known.seen.keys())
        return found

    def note_kept(self, before: Variables, given: Sequence[Any], kept: Sequence[Tracer]) -> None:
        """Record which tracers are unchanged since `before`, when they had the state of `given`,
        and which were written to. `kept` is their state outside of the round."""
        now = {path: k for k, path in enumerate(self.paths)}
        for x, start, was, path in zip(before.tracers, given, kept, before.paths, strict=True):
            k = now.get(path, -1)
            stays = k >= 0 and self.tracers[k] is x
            if stays and x._operand is start._operand:
                self.kept.add(k)
            if x._version != was._version:
                _check_written(x, was, stays, path)
                self.written.add(k)

    def trades(self, before: Variables, rounds: int) -> bool:
        """Whether mutable objects trade places between rounds, or are handed on through `rounds`
        variables or more: their final places depend on the number of rounds."""
        moved: dict[str, str] = {}
        for key, (path, x) in self.seen.items():
            was = before.seen.get(key, (path, x))[0]
            if was != path and (isinstance(x, ArrayTracer) or key in self.containers):
                moved[was] = path
        for start in moved:
            at, made = moved[start], 1
            while at in moved and at != start:
                at, made = moved[at], made + 1
            if at == start or made >= rounds:
                return True
        return False

    def leave(self, ends: Sequence[Any], trace: Trace) -> None:
        """Give the tracers these final values, except those that never changed."""
        for k, (x, end) in enumerate(zip(self.tracers, ends, strict=True)):
            if k in self.kept and x._trace.alive:
                continue
            become(x, end)
            if k in self.written:
                x._version += 1
                trace.note_write(x)


def _check_written(x: Tracer, kept: Tracer, stays: bool, path: str) -> None:
    """Raise an UnsupportedError if other objects would see a round's write to an array."""
    if not stays:
        raise UnsupportedError(
            f"a round writes to {path} and then lets it be another array{at_line()}"
        )
    if any(y._trace is kept._trace for y in views_of(x)):
        raise UnsupportedError(
            f"a round writes to {path}{at_line()}, of which older arrays show a part"
        )


# ---- places


def place_of(frame: FrameType, iterator: Any) -> int | None:
    """The `for` statement that requests the next entry of this iterator; None if it is none."""
    code, at = frame.f_code, frame.f_lasti
    if not code.co_flags & inspect.CO_OPTIMIZED or dis.opname[code.co_code[at]] != "FOR_ITER":
        return None
    flow = flow_of(code)
    if frames.is_described() and flow.heights is not None and flow.height(at) >= 0:
        top = frames.address_of(frame) + frames.top_of(flow.height(at))
        if frames.operand(top, 0) is not iterator:
            return None
    return at


class _Variable(NamedTuple):
    """A variable with a value: its name, its number, its cell if it has one, and the value."""

    name: str
    number: int
    cell: Any
    value: Any


def _contents(frame: FrameType, place: int) -> Iterator[_Variable]:
    """The variables that are read from this place on."""
    code, flow = frame.f_code, flow_of(frame.f_code)
    cells = [*code.co_cellvars, *code.co_freevars]
    names = [*code.co_varnames, *[x for x in cells if x not in code.co_varnames]]
    live, described = flow.live(place), frames.is_described()
    known = {} if described else frame.f_locals
    address = frames.address_of(frame) if described else 0
    for k, name in enumerate(names):
        x = frames.local(address, k) if described else known.get(name, frames.MISSING)
        if type(x) is CellType and name in cells:
            with contextlib.suppress(ValueError):  # an empty cell
                yield _Variable(name, k, x, x.cell_contents)
        elif x is not frames.MISSING and (k in live or name in cells):
            yield _Variable(name, k, None, x)


def own(frame: FrameType, place: int) -> Iterator[_Variable]:
    """The variables that belong to this call only, so that they may be set."""
    if frames.is_described():
        free = frame.f_code.co_freevars
        yield from (x for x in _contents(frame, place) if x.name not in free)


def filled(frame: FrameType, place: int) -> list[list[Any]]:
    """The lists on the frame's stack to which a round of this `for` statement appends."""
    flow = flow_of(frame.f_code)
    found = sorted(flow.filled(place)) if frames.is_described() else []
    address = frames.address_of(frame)
    return [frames.operand(address + frames.top_of(k + 1), 0) for k in found]


def putting(frame: FrameType, place: int) -> list[Callable[[Any], None]]:
    """The setters of these places on the stack."""
    address = frames.address_of(frame)
    found = sorted(flow_of(frame.f_code).filled(place)) if frames.is_described() else []
    return [partial(frames.replace, address + frames.top_of(k + 1)) for k in found]


def put_in(frame: FrameType, variable: _Variable, x: Any) -> None:
    if variable.cell is not None:
        variable.cell.cell_contents = x
    else:
        frames.set_local(frames.address_of(frame), variable.number, x)


def trace_numbers(
    frame: FrameType, place: int, before: Variables, after: Variables, trace: Trace
) -> None:
    """Trace the plain numbers that differ `before` and `after` a round, so that the next round
    carries them."""
    changed = {
        path
        for path, (kind, *now) in after.shape.items()
        if kind == "plain" and before.shape.get(path, ("", *now)) != (kind, *now)
    }
    for variable in own(frame, place):
        if variable.name in changed:
            _trace_number(frame, variable, trace)
    for path in changed & after.places.keys():
        if is_made_here(after.places[path][0]):
            put(*after.places[path], _traced(part(*after.places[path]), trace))


def trace_stored(frame: FrameType, place: int, trace: Trace) -> None:
    """Trace the plain numbers that a round of a `for` statement may set, also in tuples."""
    stored = stored_by(frame, place)
    for variable in own(frame, place):
        if variable.number in stored:
            _trace_number(frame, variable, trace)


def stored_by(frame: FrameType, place: int) -> set[int]:
    """The numbers of the variables that a round may set."""
    flow = flow_of(frame.f_code)
    return {k for o in flow.body(place) for k in reads_and_writes(flow.at[o])[1]}


def _trace_number(frame: FrameType, variable: _Variable, trace: Trace) -> None:
    found = _traced(variable.value, trace)
    if found is not variable.value:
        put_in(frame, variable, found)


def _traced(x: Any, trace: Trace) -> Any:
    """A plain number as a traced one; a tuple with its numbers traced."""
    named = isinstance(x, tuple) and hasattr(type(x), "_make") and not getattr(x, "__dict__", None)
    if type(x) is tuple or named:
        parts = [_traced(part, trace) for part in x]
        same = all(new is old for new, old in zip(parts, x, strict=True))
        return x if same else tuple.__new__(type(x), parts)
    if type(x) not in _NUMBERS or abs(x) >= 2**63:
        return x
    kind: Any = np.float64 if type(x) is float else np.int64 if type(x) is int else type(x)
    weak = type(x) in (int, float)
    return stand_in(trace, Literal(kind(x)), kind(x), weak)


class Arrays:
    """Plain arrays in a frame's variables, traced while the frame makes the rounds of a loop: so
    the step can index them, and they can be written to. A variable that rounds set, and that holds
    a view, holds an array of its own meanwhile, which rounds can carry."""

    def __init__(self, frame: FrameType, place: int, trace: Trace) -> None:
        self._frame, self._place = frame, place
        self._lent: dict[int, tuple[Tracer, np.ndarray, Any, bool]] = {}
        self._views: dict[int, tuple[Tracer, Tracer, Any]] = {}
        stored = stored_by(frame, place)
        for variable in [x for x in own(frame, place) if type(x.value) is ArrayTracer]:
            if variable.number in stored and variable.value._root is not None:
                self._lend_view(variable)
        for variable in [x for x in own(frame, place) if type(x.value) is np.ndarray]:
            alone = _references(variable) <= _ALONE and variable.value.base is None
            x = variable.value
            if x.dtype.kind not in "fib" or objection(x) or not x.flags.writeable:
                continue
            operand, value = to_operand(trace, x)
            tracer = stand_in(trace, operand, value)
            tracer._ordered = x.flags.c_contiguous
            self._lent[id(tracer)] = tracer, x, operand, alone
            put_in(frame, variable, tracer)

    def tracer_of(self, x: np.ndarray) -> Tracer | None:
        """The tracer of a plain array, if it is one of these."""
        return next((t for t, plain, _, _ in self._lent.values() if plain is x), None)

    def _lend_view(self, variable: _Variable) -> None:
        x = variable.value
        known = [own for view, own, _ in self._views.values() if view is x]
        if x._doubt or x._may_alias or not x._trace.alive:
            return
        alone = known[0] if known else stand_in(x._trace, *x._read())
        if type(alone) is not ArrayTracer:
            return
        alone._ordered = x._ordered
        self._views[id(alone)] = x, alone, (alone._operand, x._root, x._root._version)
        put_in(self._frame, variable, alone)

    @property
    def are_written(self) -> bool:
        """Whether an array was written to that a view among these would show."""
        return any(
            alone._version or root._version != version
            for _, alone, (_, root, version) in self._views.values()
        )

    def has(self, x: Tracer) -> bool:
        """Whether `x` is the tracer of such an array."""
        return id(x) in self._lent or id(x) in self._views

    def give_back(self) -> None:
        """Put back plain arrays that weren't written to, and views."""
        same = {k for k, (_, alone, known) in self._views.items() if alone._operand is known[0]}
        for k in same:
            become(self._views[k][1], self._views[k][0])
        for variable in list(own(self._frame, self._place)):
            if id(variable.value) in same:
                put_in(self._frame, variable, self._views[id(variable.value)][0])
                continue
            tracer, x, operand, alone = self._lent.get(id(variable.value), (None, None, None, True))
            if tracer is None:
                continue
            if tracer._operand is operand:
                put_in(self._frame, variable, x)
            elif not alone:
                raise UnsupportedError(
                    f"{variable.name} is written to in a loop{at_line()}, and it is an array that "
                    "others hold too, or show a part of, which wouldn't see it"
                )


def renew(frame: FrameType, place: int, start: Variables, end: Variables) -> bool:
    """Replace arrays in variables that hold arrays which others held at the start: rounds before
    the last have made their final values. Returns whether it was possible."""
    new: dict[int, Tracer] = {}
    known = {variable.name: variable for variable in own(frame, place)}
    for k, (x, path) in enumerate(zip(end.tracers, end.paths, strict=True)):
        at = end.seen[id(x)][0]
        if not isinstance(x, ArrayTracer) or start.seen.get(id(x), (at, x))[0] == at:
            continue
        if path not in known and not is_made_here(end.places.get(path, (None,))[0]):
            return False
        end.tracers[k] = new.setdefault(id(x), state_of(x))
        if path in known:
            put_in(frame, known[path], end.tracers[k])
        else:
            put(*end.places[path], end.tracers[k])
    return True


def is_private(frame: FrameType, variable: _Variable) -> bool:
    """Whether only a variable, without a cell, refers to its value."""
    known = frames.names_of(frames.address_of(frame))  # if anyone has requested it
    shown = type(known) is dict and known.get(variable.name) is variable.value
    return variable.cell is None and _references(variable) <= _ALONE + shown


def held_by(frame: FrameType, x: Any) -> int:
    """The number of the frame's local variables that hold `x`, read later or not."""
    if not frames.is_described():
        return 0
    frames.own_variables(frame)
    address = frames.address_of(frame)
    return sum(frames.local(address, k) is x for k in range(frame.f_code.co_nlocals))


def _references(variable: _Variable) -> int:
    """The number of references to a variable's value, including those of the count."""
    return sys.getrefcount(variable.value)


_ALONE = _references(_Variable("", 0, None, np.empty(0))) + 1  # and the frame's


# ---- values


def variables(
    frame: FrameType, place: int, growing: Sequence[Any] = (), inner: Trace | None = None
) -> Variables:
    """The values of the frame's variables that are read from this place on, without those in
    `growing` lists, and in containers that the loop doesn't touch. If `inner` has traced a round,
    the values that it has made are carried on."""
    found = Variables(growing=growing)
    touched = flow_of(frame.f_code).touched(place)
    for variable in _contents(frame, place):
        apart = variable.number not in touched and variable.cell is None
        if apart and (type(variable.value) is tuple or _parts_of(variable.value) is not None):
            continue
        if variable.cell is not None and variable.name in frame.f_code.co_cellvars:
            found.containers.add(id(variable.cell))
        _look(found, variable.name, variable.value, inner, 0)
    for stream in streams():
        _look(found, "draws", stream.cell, inner, 0)
    return found


def _look(found: Variables, path: str, x: Any, inner: Trace | None, depth: int) -> None:
    kind: Any = type(x)
    if isinstance(x, Tracer):
        check_stays(x, f"the variable {path} in a loop")
        if is_created(x) and x._trace.alive:  # the round may write to it
            x._become_traced()
        if x._trace.alive and is_apart(x):
            found.shape[path] = "traced", found.first(x, path)
            found.tracers.append(x)
            found.paths.append(path)
            return
        if x._trace is inner:
            raise UnsupportedError(
                f"{path} shows a part of another array, or may do so, from round to round"
                f"{at_line()}, and writing to either would change both"
            )
    elif kind in PLAIN_TYPES:
        found.shape[path] = "plain", repr(x)
        return
    elif isinstance(x, np.generic) and not isinstance(x, (np.void, np.object_)):
        found.shape[path] = "plain", repr(x), x.tobytes()
        return
    elif any(x is y for y in found.growing):
        found.shape[path] = "growing", found.first(x, path)
        return
    elif isinstance(x, ListProxy):
        found.shape[path] = "list", found.first(x, path)
        _look(found, path, x.array, inner, depth)
        return
    elif id(x) in found.containers:  # it was searched already
        found.shape[path] = kind, found.first(x, path)
        return
    elif depth < _DEEP and (parts := _parts_of(x)) is not None:
        found.shape[path] = parts.told, found.first(x, path)
        found.containers.add(id(x))
        found.fills |= kind is collections.deque and len(x) < (x.maxlen or 0)
        for name, key, value in parts.held:
            if not isinstance(x, tuple):
                found.places[path + name] = x, key
            _look(found, path + name, value, inner, depth + 1)
        return
    found.first(x, path)
    found.shape[path] = "object", id(x)


def _parts_of(x: Any) -> Parts | None:
    """The parts of a container, or of an object that the run has made."""
    return parts_of(x) if not is_open(type(x)) or is_made_here(x) else None


def is_apart(x: Tracer) -> bool:
    """Whether an array is no view, and has no doubts about its memory."""
    return x._root is None and not x._doubt and not x._may_alias


# ---- state of tracers


def revive(x: Tracer, other: Tracer) -> None:
    """Give `x`, whose trace has ended, the state of `other`. A view remains a view."""
    if x._root is None:
        become(x, other)
    else:
        x._trace, x._operand = other._trace, other._operand


def copied(found: Variables) -> list[Any]:
    """Copies of the tracers, with their present state."""
    return [state_of(x) for x in found.tracers]


def state_of(x: Tracer) -> Tracer:
    """Another tracer with the present state of `x`."""
    other: Tracer = object.__new__(type(x))
    for name in (*_STATE, "_value", "_version"):
        setattr(other, name, getattr(x, name))
    note_view(other)
    return other


def become(x: Tracer, other: Tracer) -> None:
    """Give `x` the state of `other`."""
    set_class(x, type(other))
    for name in _STATE:
        setattr(x, name, getattr(other, name))
    note_view(x)
    x._value = other._value
