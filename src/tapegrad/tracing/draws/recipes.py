"""Descriptions of values, by which each call of a derivative creates its own as the trace has done.

A value consists of numbers and arrays, in containers and in objects of the user's classes. An
object that is in two places is one object in each call, too. Objects are created as `copy.copy`
does it.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CellType, FunctionType, MemberDescriptorType, MethodType
from typing import Any

import numpy as np

from tapegrad.core.statics import Keyed
from tapegrad.core.tables import is_pandas_object
from tapegrad.observe.activations.later_values import AtTheTime, Later, Text
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.descriptions import stays
from tapegrad.observe.guards.locations import ABSENT
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.objects.files import is_path
from tapegrad.observe.objects.inspection import base_of
from tapegrad.observe.objects.purity import (
    HEAP_TYPE,
    MAPPINGS,
    PLAIN_TYPES,
    is_inert,
    is_pythons_class,
)
from tapegrad.tracing.tracers.subclass_tracers import check_stays
from tapegrad.tracing.tracers.tracer import Tracer


class Unknown(Exception):
    """A value that can't be described."""


@dataclass(eq=False)
class CallData:
    """One call's data: the values of the outputs, the objects that it looks up, the values that it
    found when it began, and the objects that it has created."""

    values: Sequence[Any]
    objects: Sequence[Any]
    held: Sequence[Any] = ()
    made: dict[int, Any] = field(default_factory=dict)


class Recipe:
    """The description of one object; each call creates it once."""

    def make(self, call: CallData) -> Any:
        if id(self) not in call.made:
            call.made[id(self)] = self.first(call)
        return call.made[id(self)]

    def first(self, call: CallData) -> Any:
        raise NotImplementedError


@dataclass(eq=False)
class Output(Recipe):
    """A number or array of each call's own: output `number` of the tape."""

    number: int
    dtype: np.dtype
    weak: bool
    is_array: bool

    def first(self, call: CallData) -> Any:
        value = call.values[self.number]
        if self.is_array:
            return np.asarray(value, self.dtype)
        number = self.dtype.type(value)
        return number.item() if self.weak else number


@dataclass(eq=False)
class Constant(Recipe):
    """The same value each time; an array is copied."""

    value: Any

    def first(self, call: CallData) -> Any:
        return self.value.copy() if isinstance(self.value, (np.ndarray, set)) else self.value


@dataclass(eq=False)
class RepeatedCall(Recipe):
    """The result of a repeated call: `f(*parts, **named)`. Arguments that are results of such calls
    are created in the order of these calls."""

    f: Callable[..., Any]
    parts: list[Recipe]
    named: dict[str, Recipe]
    number: int = 0

    def first(self, call: CallData) -> Any:
        given = [*self.parts, *self.named.values()]
        for part in sorted(
            (p for p in given if isinstance(p, RepeatedCall)), key=lambda p: p.number
        ):
            part.make(call)
        named = {name: part.make(call) for name, part in self.named.items()}
        return self.f(*[part.make(call) for part in self.parts], **named)


@dataclass(eq=False)
class Existing(Recipe):
    """An existing object: its number among those that a call looks up."""

    source: Any

    def first(self, call: CallData) -> Any:
        return call.objects[self.source]


@dataclass(eq=False)
class FoundArray(Recipe):
    """The very array that a call has found in a place when it began."""

    number: int

    def first(self, call: CallData) -> Any:
        return call.held[self.number]


@dataclass(eq=False)
class Items(Recipe):
    """A tuple, a list or a deque."""

    kind: Any
    parts: list[Recipe]
    most: int | None = None  # of a deque

    def first(self, call: CallData) -> Any:
        if issubclass(self.kind, tuple):
            return tuple.__new__(self.kind, [p.make(call) for p in self.parts])
        made = call.made[id(self)] = (
            [] if self.kind is list else collections.deque(maxlen=self.most)
        )
        made.extend([p.make(call) for p in self.parts])
        return made


@dataclass(eq=False)
class Joined(Recipe):
    """A list that begins with the items of an existing one."""

    begin: Recipe
    parts: list[Recipe]

    def first(self, call: CallData) -> Any:
        return [*self.begin.make(call), *(p.make(call) for p in self.parts)]


@dataclass(eq=False)
class Mapping(Recipe):
    """A dict."""

    kind: Any
    parts: dict[Any, Recipe]
    made_by: Recipe | None = None  # of a defaultdict

    def first(self, call: CallData) -> Any:
        made = self.kind() if self.made_by is None else self.kind(self.made_by.make(call))
        call.made[id(self)] = made
        for key, part in self.parts.items():
            made[key] = part.make(call)
        return made


@dataclass(eq=False)
class Instance(Recipe):
    """An object of a user's class."""

    kind: Any
    parts: dict[str, Recipe]
    slots: list[tuple[Any, Recipe]]

    def first(self, call: CallData) -> Any:
        made = call.made[id(self)] = object.__new__(self.kind)
        for name, part in self.parts.items():
            object.__getattribute__(made, "__dict__")[name] = part.make(call)
        for slot, part in self.slots:
            slot.__set__(made, part.make(call))
        return made


@dataclass(eq=False)
class Table(Recipe):
    """A Series or DataFrame."""

    kind: Any  # the class of its traced counterpart
    labels: Any
    parts: list[Recipe]

    def first(self, call: CallData) -> Any:
        return self.kind._built(self.labels, [p.make(call) for p in self.parts])


@dataclass(eq=False)
class OfSubclass(Recipe):
    """An array of a subclass of ndarray."""

    kind: Any
    array: Recipe
    parts: dict[str, Recipe]

    def first(self, call: CallData) -> Any:
        made = call.made[id(self)] = of_subclass(self.kind, self.array.make(call))
        made.__dict__.update({name: part.make(call) for name, part in self.parts.items()})
        return made


class _Blank(np.ndarray):
    """Changed to another subclass, without running any code of that."""


def of_subclass(kind: Any, x: Any) -> Any:
    """A plain array as an instance of a subclass of ndarray, without attributes."""
    made = np.asarray(x).view(_Blank)
    made.__class__ = kind
    return made


class Described:
    """Describes values. `output` describes a traced value, and `objects` collects the existing
    objects."""

    def __init__(self, reads: Reads, output: Callable[[Any], Recipe]) -> None:
        self.reads, self.output = reads, output
        self.known: dict[int, tuple[Any, Recipe | None]] = {}
        self.objects: list[Existing] = []

    def part(self, x: Any) -> Recipe:
        """The description of a value; raises `Unknown` if there is none."""
        if id(x) not in self.known:
            self.known[id(x)] = x, None
            made = self._first(x)
            self.known[id(x)] = x, made
        found = self.known[id(x)][1]
        if found is None:  # a tuple that contains itself
            raise Unknown
        return found

    def _first(self, x: Any) -> Recipe:
        kind: Any = type(x)
        if isinstance(x, Tracer):
            return self.output(x) if x._subclass is None else self._of_subclass(x)
        if kind in PLAIN_TYPES or isinstance(x, (np.generic, enum.Enum)):
            return Constant(x)
        if isinstance(x, AtTheTime):
            return self.output(x)
        if isinstance(x, Later):
            return self.again(x)
        if id(x) in self.reads.anew:
            return self.part(self.reads.anew[id(x)][1])
        if id(x) in self.reads.joined:
            return self._joined(x)
        if self.reads.place(x) is not None:
            self.objects.append(Existing(x))
            return self.objects[-1]
        if stays(x) or is_path(x) or is_inert(kind) or is_pandas_object(x):
            return Constant(x)
        if kind is np.ndarray:
            if x.dtype.hasobject or self.reads.arrays_of(x):
                raise Unknown
            return Constant(x.copy())
        if kind in (set, frozenset) and all(type(v) in PLAIN_TYPES for v in x):
            return Constant(x.copy())
        if kind in (list, collections.deque) or _is_tuple(kind):
            return self._row(x, kind)
        if kind in MAPPINGS[:-1]:
            return self._mapping(x, kind)
        if _is_traced_table(x):
            parts = [Constant(b) if isinstance(b, Keyed) else self.part(b) for b in x._branches]
            return Table(type(x), x._labels, parts)
        if id(kind) in self.reads.made_here or dispatch.has_labels(x) or not _is_plain_class(kind):
            raise Unknown
        return self._instance(x, kind)

    def again(self, call: Later) -> RepeatedCall:
        """The description of a repeated call."""
        named = {name: self.part(x) for name, x in call.kwargs.items()}
        return RepeatedCall(call.f, [self.part(x) for x in call.args], named, call.number)

    def _row(self, x: Any, kind: Any) -> Recipe:
        made = Items(kind, [], getattr(x, "maxlen", None))
        if not issubclass(kind, tuple):
            self.known[id(x)] = x, made
        made.parts += map(self.part, x)
        return made

    def _joined(self, x: Any) -> Recipe:
        place, count = self.reads.joined[id(x)]
        begin = Existing(place.x)
        self.objects.append(begin)
        return Joined(begin, [self.part(y) for y in x[count:]])

    def _mapping(self, x: Any, kind: Any) -> Recipe:
        made = Mapping(kind, {})
        self.known[id(x)] = x, made
        if kind is collections.defaultdict:
            factory = x.default_factory
            fixed = isinstance(factory, type) and not factory.__flags__ & HEAP_TYPE
            made.made_by = Constant(factory) if fixed else self.part(factory)
        for key, value in x.items():
            if not self.reads.is_key(key):
                raise Unknown
            made.parts[key] = self.part(value)
        return made

    def _of_subclass(self, x: Any) -> Recipe:
        made = OfSubclass(x._subclass, self.output(x), {})
        self.known[id(x)] = x, made
        for name, value in attributes_of(x).items():
            made.parts[name] = self.part(value)
        return made

    def _instance(self, x: Any, kind: Any) -> Recipe:
        made = Instance(kind, {}, [])
        self.known[id(x)] = x, made
        for name, value in attributes_of(x).items():
            made.parts[name] = self.part(value)
        for slot, value in slots_of(x):
            made.slots.append((slot, self.part(value)))
        return made


def _is_tuple(kind: Any) -> bool:
    return kind is tuple or (issubclass(kind, tuple) and kind.__bases__ == (tuple,))


def _is_traced_table(x: Any) -> bool:
    """Whether this is the traced counterpart of a Series or DataFrame."""
    return "_built" in vars(type(x))


def _is_plain_class(kind: Any) -> bool:
    """Whether objects of a class hold nothing but attributes."""
    above = kind.__mro__[:-1]
    return is_pythons_class(kind) and all(c.__flags__ & HEAP_TYPE for c in above)


def attributes_of(x: Any) -> dict[str, Any]:
    """The attributes of an object of a Python class, which may be set."""
    try:
        found = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def slots_of(x: Any) -> Iterator[tuple[Any, Any]]:
    for kind in type(x).__mro__:
        for slot in list(vars(kind).values()) if kind.__flags__ & HEAP_TYPE else ():
            value = slot.__get__(x) if _holds(slot, x) else ABSENT
            if value is not ABSENT:
                yield slot, value


def _holds(slot: Any, x: Any) -> bool:
    if type(slot) is not MemberDescriptorType:
        return False
    try:
        slot.__get__(x)
    except AttributeError:
        return False
    return True


# ---- replacing in place

MAX_SEARCH = 20_000  # maximal number of objects in a search
MAX_OTHERS = 2_000  # of those that existed before the run


class Replacing:
    """Replaces each traced value by `new(x)`, in objects that a run has created."""

    def __init__(self, reads: Reads, new: Callable[[Tracer], Any]) -> None:
        self.reads, self.new = reads, new
        self.seen: dict[int, tuple[Any, Any]] = {}
        self.at: Any = None  # the key of the place that is searched
        self.others = 0  # the number of searched objects that existed before

    def everywhere(self) -> None:
        """Replace wherever the run has written to existing objects."""
        for key, write in list(self.reads.written.items()):
            self.at, value = key, write.now()
            if write.has_many:
                made = [self.of(x) for x in value]
                if any(x is not y for x, y in zip(value, made, strict=True)):
                    write.put(made)
            elif value is not ABSENT:
                found = self.of(value)
                if found is not value:
                    write.put(found)

    def of(self, x: Any) -> Any:
        """The replacement of a value; containers and objects stay the same, and are changed in
        place."""
        if isinstance(x, Tracer):
            return self.new(x) if x._subclass is None else self._of_subclass(x)
        kind: Any = type(x)
        if kind in PLAIN_TYPES or isinstance(x, (np.generic, np.ndarray, type)):
            return x
        if kind is Text:
            return str(x)
        if id(x) in self.seen:
            return self.seen[id(x)][1]
        if _is_traced_table(x):
            self.seen[id(x)] = x, self._of_table(x)
            return self.seen[id(x)][1]
        made = kind is FunctionType or self.reads.place(x) is None  # it has a place once it has run
        self.others += not made  # some were created by the run, and read after it stored them
        if len(self.seen) > MAX_SEARCH or self.others > MAX_OTHERS or dispatch.has_labels(x):
            return x
        self.seen[id(x)] = x, x
        if isinstance(x, tuple):
            parts = [self.of(y) for y in tuple.__iter__(x)]
            if any(y is not z for y, z in zip(tuple.__iter__(x), parts, strict=True)):
                other = tuple.__new__(kind, parts)
                attributes_of(other).update(attributes_of(x))
                self.seen[id(x)] = x, other
            return self.seen[id(x)][1]
        base = base_of(kind)
        if base in MAPPINGS[:-1]:
            self._items(x, base, list(base.items(x)))
        elif base in (list, collections.deque):
            self._items(x, base, [*enumerate(base.__iter__(x))][::-1])  # new items are at the end
        elif kind is FunctionType:
            for cell in x.__closure__ or ():
                self._cell(cell)
        elif kind is MethodType:
            self.of(x.__self__)
            self.of(x.__func__)
        if is_pythons_class(kind):
            held = attributes_of(x)
            self._items(held, dict, list(held.items()))
            for slot, value in slots_of(x):
                found = self.of(value)
                if found is not value:
                    slot.__set__(x, found)
        return x

    def _of_subclass(self, x: Any) -> Any:
        if id(x) in self.seen:
            return self.seen[id(x)][1]
        found = self.new(x)
        if found is not x:
            if isinstance(found, Tracer):
                check_stays(x, "kept by what is traced by itself")
            found = of_subclass(x._subclass, found)
        self.seen[id(x)] = x, found
        for name, value in attributes_of(x).items() if found is not x else ():
            found.__dict__[name] = self.of(value)
        return found

    def _of_table(self, x: Any) -> Any:
        parts = [b if isinstance(b, Keyed) else self.of(b) for b in x._branches]
        if all(b is y for b, y in zip(x._branches, parts, strict=True)):
            return x
        if any(isinstance(b, Tracer) for b in parts):
            return type(x)(x._labels, parts)
        return type(x)._built(x._labels, parts)

    def _items(self, x: Any, base: Any, items: list[tuple[Any, Any]]) -> None:
        for key, value in items:
            found = self.of(value)
            if found is not value:
                base.__setitem__(x, key, found)

    def _cell(self, cell: CellType) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # empty
            return
        found = self.of(value)
        if found is not value:
            cell.cell_contents = found
