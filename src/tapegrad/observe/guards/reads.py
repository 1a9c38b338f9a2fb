"""The reads of a run, as guards that a later call can check.

A *place* is an object that the run came to, and the path to it: through a global, a cell, an
attribute or an item of another place. A *guard* is a condition on the object that was found there.
The guards are the lines of a generated function, which follows the same paths as the run.

    x1 = f.__globals__                    # assignments name the places
    x2 = x1['model']
    x2 is r2()                            # conditions compare what is found
    x2.rate is v3 or (type(x2.rate) is t3 and x2.rate == v3)

Objects are compared by identity, and their contents read by read. Numbers, strings and the like are
compared by value, and so are containers, item by item. An argument, or an object reached from one,
may be replaced by another one of the same class, and a function created by another function by one
of the same code, unless the run has compared its identity.
"""

from __future__ import annotations

import collections
import copy
import marshal
import types
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.observe.answers.answers import answered_by, row_of, stand_in
from tapegrad.observe.guards.callback_reads import Later
from tapegrad.observe.guards.locations import (
    ABSENT,
    ENDS,
    WHOLE,
    Location,
    Write,
    before_writes,
    begun,
    lies_in,
    owner_of,
    value_at,
)
from tapegrad.observe.objects import inspection, randomness
from tapegrad.observe.objects.comparing import (
    ALWAYS_SAME,
    BOUND,
    FIXED_TUPLES,
    ClassRecord,
    has_few,
    is_equal,
    is_made_anew,
    is_same,
    may_be_another,
)
from tapegrad.observe.objects.naming import Key
from tapegrad.observe.objects.purity import CONTAINERS, MAPPINGS, PLAIN_TYPES
from tapegrad.observe.program import frames
from tapegrad.primitives.base import Value

MAX_GUARDS = 100_000  # maximal number of guards; a function that reads more is traced at each call


class Reads(Later):
    """Collects the guards of one run, in the order of its reads."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, Location] = {}
        self.kept: set[tuple[int, Hashable]] = set()  # those that each call repeats
        self.open: set[int] = set()  # ids of containers whose items are inputs of the tape
        # Lists like `h + [s]` that begin with another list, until read: that list, its length.
        self.joined: dict[int, tuple[Location, int]] = {}
        self.anew: dict[int, tuple[Any, Any]] = {}  # created at each call, by which call
        self.effects: list[Any] = []  # calls that are made for their effect
        self.postponed: list[Any] = []  # postponed changes: see `observe.waiting.postponed`
        self.waiting: set[int] = set()  # ids of the objects that these change
        self.made_here: dict[int, type] = {}  # classes that the run has made, by id
        self._owners: dict[int, list[Location]] = {}  # of arrays, by the id of the memory's owner
        self._absent: dict[tuple[int, str], tuple[Location, dict[str, bool]]] = {}
        self.taken: dict[tuple[int, Hashable], Callable[[], None]] = {}  # calls look them up
        self.others: set[tuple[int, Hashable]] = set()  # another object at each call
        self.rows: dict[int, Callable[[], None]] = {}  # pin tuples of inputs, by id
        # The place in the program where a container is read as a whole.
        self.reader: tuple[set[int], int] | None = None
        self.given: Any = None  # the one of `taken` that this instruction looks up
        self._held: list[Any] = []  # keeps the ids unique
        self.inside: set[str] = set()  # names of what functions of installed packages have read
        self.followed: list[str] = []  # generators that later calls draw from: see `follow`
        self.looked_at: Callable[[Any], None] = lambda x: None  # a captured array was read
        self.placed: Callable[[Location], None] = lambda place: None  # records a new place's class

    # ---- places

    def place(self, x: Any) -> Location | None:
        """The place of an object; None if the run has created it."""
        return self.places.get(id(x))

    def root(self, x: Any, text: str, word: str, like: bool) -> Location:
        """A place that is passed to the check: the function, or an argument."""
        if (known := self.places.get(id(x))) is not None:  # passed twice
            self._fact(f"{text} is {self.named(known)}", word)
            return known
        place = self._place(x, self._assigned(text), word, like)
        if like and not is_made_anew(x):  # of a function the code is compared
            self._same_type(place.name, x, word)
        return place

    def constant(self, x: Any, word: str) -> Location:
        """The place of an object that the run didn't reach by a read: always this object."""
        return self.places.get(id(x)) or self._place(x, "", word)

    def part(self, holder: Location, text: str, x: Any, word: str) -> Location:
        """The place of an object that always belongs to `holder`."""
        return self._place(x, self._assigned(text.replace("{}", self.named(holder))), word)

    def named(self, place: Location) -> str:
        """The name of a place in the guards. A constant gets one when it is first needed."""
        if not place.name:
            try:
                place.name = self._assigned(f"{self._value(weakref.ref(place.x))}()")
                self._fact(f"{place.name} is not None", place.word)
            except TypeError:
                place.name = self._value(place.x)
        return place.name

    def _place(self, x: Any, name: str, word: str, like: bool = False) -> Location:
        place = self.places[id(x)] = Location(x, name, word, like)
        if isinstance(x, np.ndarray):
            self._owners.setdefault(id(owner_of(x)), []).append(place)
        self.placed(place)
        return place

    def arrays_of(self, x: np.ndarray) -> list[Location]:
        """The places whose memory an array is, or is part of."""
        if (own := self.places.get(id(x))) is not None:
            return [own]
        found = self._owners.get(id(owner_of(x)), [])
        if found and x.size and not any(lies_in(x, place.x) for place in found):
            self.use_once(found[0].word)  # it has memory beyond the array that was read
        return found

    def is_key(self, x: Any) -> bool:
        """Whether an object identifies the same item of a dict at each call, if it is pinned."""
        return inspection.is_value(x) or (self.place(x) is not None and inspection.is_one(x))

    def pin(self, x: Any) -> None:
        """Guard the identity of an object: the run has compared it."""
        if id(x) in self.rows:
            self.rows[id(x)]()
        place = self.places.get(id(x))
        if place is not None and place.like:
            place.like = False
            self._identical(self.named(place), x, place.word)

    # ---- reading

    def read(self, holder: Location, at: Hashable, text: str, value: Any, word: str) -> None:
        """Record that `text`, with the holder for {}, was `value`; `at` identifies the place."""
        key = (id(holder.x), at)
        if self._is_open(holder):
            return
        if any((id(holder.x), end) in self.written for end in ENDS):
            self.use_once(word or holder.word, holder.grows)  # the value depends on what was added
        if key in self.written or key in self.remembered:
            return
        if key in self.taken and key != self.given:
            self.use_once(word or holder.word, self.CHANGES)
            self.taken[key]()
        if key in self._first:
            return
        self._first[key] = value
        if len(self.guards) > MAX_GUARDS:
            self.use_once(f"one of more than {MAX_GUARDS} things that it reads")
            return
        like = (holder.like and type(holder.x) is not types.FunctionType) or key in self.others
        first = len(self.guards)
        self.found(text.replace("{}", self.named(holder)), value, word or holder.word, like)
        self._noted(key, first)
        if key in self.sites:
            self.lines.update((line, self.sites[key]) for line, _ in self.guards[first:])

    def found(self, text: str, x: Any, word: str, like: bool = False) -> None:
        """Add the guard that an expression has this value, and a place for the value if it is an
        object."""
        row = answered_by(x) or row_of(x)
        if row is not None and not isinstance(row.original, type):
            # A trace in another thread may have swapped the name for a while.
            name, own = self._assigned(text), row.original
            either = f"{name} is {self._value(own)} or {name} is {self._value(stand_in(row))}"
            self._fact(either, word)
            self.place(own) or self._place(own, name, word)
            return
        kind: Any = type(x)
        if isinstance(x, Value) and hasattr(x, "_trace"):  # of another observed trace
            # An array that it has made may be written to later.
            return None if x._trace.alive else self.use_once(word)
        self._held.append(x)
        if kind in PLAIN_TYPES:
            self._plain(text, x, word)
        elif isinstance(x, np.generic):
            same = f"type({{0}}) is type({{1}}) and {{0}}.tobytes() == {self._value(x.tobytes())}"
            self._fact(same.format(self._assigned(text), self._value(x)), word)
        elif kind in ALWAYS_SAME or (kind is tuple and word and text.endswith(FIXED_TUPLES)):
            same = "{0} is {1}" + " or {0} == {1}" * (kind in (types.CodeType, tuple))
            self._fact(same.format(text, self._value(x)), word)  # code may be compiled again
            self._place(x, self._value(x), word)
        elif kind is types.MethodType and id(x) not in self.places:  # a new object at each look-up
            name = self._assigned(text)
            self._same_type(name, x, word)
            self._place(x, name, word)
            self.found(f"{name}.__func__", x.__func__, word, like)
            self.found(f"{name}.__self__", x.__self__, word, like)
        elif kind in BOUND and inspection.is_bound(x) and id(x) not in self.places:
            name = self._assigned(text)
            self._same_type(name, x, word)
            self._fact(f"{name}.__name__ == {x.__name__!r}", word)
            self._place(x, name, word)
            self.found(f"{name}.__self__", x.__self__, word, like)
        elif is_equal(x):
            if isinstance(x, np.dtype) and x.names is not None:
                x = copy.deepcopy(x)  # its names may be set
            name, value = self._assigned(text), self._value(x)
            self._fact(f"same_value({name}, {value})", word)
        else:
            name = self._assigned(text)
            known = self.places.get(id(x))
            if known is not None:
                self._fact(f"{name} is {self.named(known)}", word)
            elif (
                kind in CONTAINERS
                or (like and may_be_another(x))
                or isinstance(x, randomness.kinds())
            ):
                self._same_type(name, x, word)
                self._place(x, name, word, like=True)
            elif is_made_anew(x):
                self._fact(f"{name}.__code__ is {self._value(x.__code__)}", word)
                self._place(x, name, word, like=True)
            else:
                self._identical(name, x, word)
                self._place(x, name, word)

    def takes(self, holder: Location, at: Hashable, value: Any, fix: Callable[[], None]) -> bool:
        """Declare that each call looks up this place itself. Returns False if it was read before. A
        later read of another kind has the tape used once, and calls `fix`."""
        key = id(holder.x), at
        if key not in self._first:
            self._first[key], self.taken[key] = value, fix
        return key in self.taken and self._first[key] is value

    def absent(self, holder: Location, name: str, held: str = "vars({})") -> None:
        """Record that an object had no attribute `name` of its own, or a dict, `held`, no key."""
        opened = held == "{}" and self._is_open(holder)  # makes the postponed changes
        if not opened and (id(holder.x), ("absent", name)) not in self.written:
            self._at_line(name)
            self._absent.setdefault((id(holder.x), held), (holder, {}))[1][name] = self.tells

    def _same_type(self, name: str, x: Any, word: str) -> None:
        known = self.places.get(id(type(x)))
        kind = self.named(known) if known is not None else self._value(type(x))
        self._fact(f"type({name}) is {kind}", word)

    def type_of(self, place: Location) -> None:
        """Guard the class of the object at a place."""
        if (id(place.x), "type") not in self._first:
            self._first[id(place.x), "type"] = None
            self._same_type(self.named(place), place.x, place.word)

    def unchanged(self, place: Location, record: ClassRecord) -> None:
        """Guard the attribute names of a class and its bases."""
        name, version = self.named(place), frames.version_of(place.x)
        same = f"same_class({name}, {self._value(record)})"
        if version is not None:
            same = f"{self._value(version)}.value == {version.value} or {same}"
        self._fact(same, place.word)

    def follow(self, objects: Sequence[Any], word: str) -> None:
        """Have later calls return the objects in these places. They are guarded to differ from each
        other and from the object of any other place."""
        places = [self.place(x) or self.constant(x, word) for x in objects]
        for place in places:
            name = f"drawn{len(self.followed)}"
            self.followed.append(name)
            self.guards.append((f"{name} = {self.named(place)}", ""))
        kinds, known = {type(place.x) for place in places}, set(map(id, places))
        others = [p for p in self.places.values() if p.like and type(p.x) in kinds]
        self.apart(self.followed, [self.named(p) for p in others if id(p) not in known])

    # ---- reading everything

    def layout(self, place: Location) -> None:
        """Guard the shape, dtype and strides of an array."""
        x, at = place.x, (id(place.x), "layout")
        if at not in self._first:
            self._first[at] = None
            name = self.named(place)
            dtype, text = x.dtype, f"{name}.dtype"
            if dtype.names is not None:  # the names of fields can be set
                dtype, text = repr(dtype), f"repr({text})"
            found = self._value((x.shape, dtype, x.strides))
            self._fact(f"({name}.shape, {text}, {name}.strides) == {found}", place.word)

    def contents(self, place: Location) -> None:
        """Guard all elements of an array."""
        self.looked_at(place.x)
        self.layout(place)
        if id(place.x) in self._whole:
            return
        if place.x.dtype.hasobject:
            if not has_few(place.x) or any(True for _ in self.items(place)):
                self.use_once(place.word)  # these aren't guarded one by one
            return
        self._whole.add(id(place.x))
        first, held = len(self.guards), np.ndarray.tobytes(place.x)  # a subclass may override it
        self._fact(f"same_bytes({self.named(place)}, {self._value(held)})", place.word)
        self._noted((id(place.x), WHOLE), first)

    def items(self, place: Location) -> Iterator[Any]:
        """Guard all items of a container or object array; yields those that may have parts."""
        x = place.x
        if self._is_open(place):
            yield from inspection.values(x)
            return
        if id(x) not in self._whole:  # else its contents before the run's write are known
            if any(number == id(x) and at != WHOLE for number, at in self.written):
                self.use_once(place.word, place.grows)
            self._whole.add(id(x))
            first = len(self.guards)
            self._note_items(place)
            self._noted((id(x), WHOLE), first)
            if self.reader is not None:
                self.lines.update((line, self.reader) for line, _ in self.guards[first:])
        if id(x) not in self._plain_content:
            yield from [v for v in inspection.values(x) if type(v) not in PLAIN_TYPES]

    def _note_items(self, place: Location) -> None:
        x, name = place.x, self.named(place)
        if isinstance(x, np.ndarray):
            for k, element in enumerate(inspection.values(x)):
                text = f"{{}}.ravel().tolist()[{k}]"
                self.read(place, ("element", k), text, element, place.word)
            return
        if inspection.is_plain(x):
            content = marshal.dumps(x, 2)
            self._plain_content.add(id(x))
            self._fact(f"marshalled({name}, 2) == {self._value(content)}", place.word)
            return
        base = inspection.base_of(type(x))
        if issubclass(base, (set, frozenset)):
            same = self._value(list(inspection.elements(x)))
            self._fact(f"same_elements({self.all_of(place)}, {same})", place.word)
            for element in inspection.elements(x):
                if type(element) not in PLAIN_TYPES:
                    self.constant(element, place.word)
            return
        keys = list(inspection.elements(x) if base in MAPPINGS else range(inspection.length(x)))
        self.shape_of(place, keys)
        for key in keys:
            if type(key) not in PLAIN_TYPES:
                self.constant(key, place.word)
            at = ("item", Key(key))
            self.read(place, at, self.item_of(place, key), inspection.item(x, key), place.word)

    def shape_of(self, place: Location, keys: Collection[Any]) -> None:
        """Guard which keys a mapping has, or how many items another container has."""
        x, name, base = place.x, self.named(place), inspection.base_of(type(place.x))
        first = len(self.guards)
        if isinstance(x, collections.deque):
            self._fact(f"{name}.maxlen == {x.maxlen}", place.word)
        if base in MAPPINGS:
            same = f"same_elements({self.all_of(place)}, {self._value([*keys])})"
            if all(type(key) is str for key in keys):
                same = f"[*{self.all_of(place)}] == {self._value([*keys])}"
            self._fact(same, place.word)
            if base is collections.defaultdict:
                made_by = "{}.default_factory"
                self.read(place, "default_factory", made_by, x.default_factory, place.word)
        else:
            own = name if base is type(x) else f"[*{self.all_of(place)}]"
            self._fact(f"len({own}) == {len(keys)}", place.word)
        self._noted((id(x), WHOLE), first)

    def all_of(self, place: Location) -> str:
        """The text of a container's elements in the guards, as its built-in class returns them."""
        name, kind = self.named(place), type(place.x)
        base = inspection.base_of(kind)
        return name if base is kind else f"{self._value(base)}.__iter__({name})"

    def item_of(self, place: Location, key: Any) -> str:
        """The text of an item of a container, {}, as its built-in class returns it."""
        base = inspection.base_of(type(place.x))
        if base in (None, type(place.x)):
            return f"{{}}[{self.key(key)}]"
        return f"{self._value(base)}.__getitem__({{}}, {self.key(key)})"

    # ---- writing

    def postpone(self, change: Any) -> None:
        """Postpone a change to the end of the run."""
        self.postponed.append(change)
        self.waiting.update(map(id, [change.holder.x, *change.held()]))

    def settle(self) -> None:
        """Make the postponed changes now: their object is about to be read."""
        changes, self.postponed = self.postponed, []
        self.waiting.clear()
        for change in changes:
            change.at_once(self)

    def use_once(self, word: str, advice: str = "") -> None:
        super().use_once(word, advice)
        self.settle()

    def _is_open(self, place: Location) -> bool:
        """Whether nothing is recorded of a container: its items are inputs, or the run has created
        it."""
        if id(place.x) in self.waiting:
            self.settle()
        joined = self.joined.pop(id(place.x), None)
        if joined is None:
            return id(place.x) in self.open
        del self.places[id(place.x)]
        list(self.items(joined[0]))  # guards the items of the list that it begins with
        return True

    def write(self, holder: Location, at: Hashable, text: str, word: str) -> None:
        """Record that the run is about to write to a place."""
        if not self._is_open(holder) and (id(holder.x), at) not in self.written:
            self.written[id(holder.x), at] = begun(holder, at, text, word or holder.word)

    def add(self, holder: Location, at: Hashable, count: int) -> None:
        """Record that the run is about to add `count` values at an end of a list or deque."""
        if self._is_open(holder):
            return
        known = [end for end in ENDS if (id(holder.x), end) in self.written]
        if isinstance(holder.x, collections.deque) and not known:
            text = f"{{}}.maxlen == {holder.x.maxlen}"
            self.read(holder, "maxlen", text, True, holder.word)
        elif known and known != [at] and getattr(holder.x, "maxlen", None) is not None:
            self.before_change(holder)
        self.write(holder, at, "", holder.word)
        self.written[id(holder.x), at].added += count

    def before_change(self, place: Location) -> None:
        """Record that a call may change a container or an array: its contents count as read."""
        if self._is_open(place) or id(place.x) in self.mutated:
            return
        was = place.x.copy() if isinstance(place.x, np.ndarray) else None
        self.mutated[id(place.x)] = place.x, was
        if was is not None:
            flag = "{}.flags.writeable"
            self.read(place, "writeable", flag, place.x.flags.writeable, place.word)
            self.contents(place)
            return
        for each in list(self.places.values()):  # one object now may be two later
            if type(each.x) in CONTAINERS:
                self.pin(each.x)
        if isinstance(place.x, bytearray):
            self.use_once(place.word)  # its resizing depends on exported memory
        else:
            list(self.items(place))
            self.write(place, WHOLE, "", place.word)
            self.written[id(place.x), WHOLE].before = before_writes(place.x, self.written)

    def finish(self) -> None:
        """Add guards on absent names, and on the run's own writes: a later call that doesn't run
        the function must find them already made."""
        for (_, held), (holder, names) in self._absent.items():
            keys = self._assigned(held.replace("{}", self.named(holder)))
            for name, later in names.items():
                self._is_absent(holder.x, keys, name)
                self._noted((id(holder.x), ("absent", name)), len(self.guards) - later)
        for key, write in self.written.items():
            if key not in self.kept:
                self._check_written(write)

    def forget(self) -> None:
        """Release all references that were held to keep ids unique: they may be to the user's
        objects."""
        held = (self.places, self.written, self.mutated, self._owners, self._first, self._absent)
        held = (*held, self.taken, self.sites, self.others, self.rows, self.remembered)  # type: ignore[assignment]
        waits = (self.postponed, self.waiting, self.anew, self.effects)
        for noted in (*held, *waits, self.made_here, self.open, self.joined, self._held):
            noted.clear()

    def _check_written(self, write: Write) -> None:
        holder, at, word = write.holder, write.at, write.word
        self.where.setdefault(word, write.src)  # the run is over
        if at is WHOLE:
            return None if write.is_as_before() else self.use_once(word)
        now = write.now()
        if now is write.before and type(now) not in PLAIN_TYPES:  # the run has restored it
            there = f"{self._value(value_at)}({self.named(holder)}, {self._value(at)})"
            return self._fact(f"{there} is {self._value(now)}", word)
        if (id(holder.x), at) in self._first:
            return None if is_same(self._first[id(holder.x), at], now) else self.use_once(word)
        if now is ABSENT or type(now) not in PLAIN_TYPES:
            return self.use_once(word)
        self._plain(self._assigned(write.text.replace("{}", self.named(holder))), now, word)
