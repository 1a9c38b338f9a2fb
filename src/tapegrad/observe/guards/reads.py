"""What a run read of the outside, as guards that a later call can check.

A *place* is an object of the outside that the run came to, and how it did: through a global, a
cell, an attribute or an item of another place. A *guard* says what was found there. The guards are
lines of a function that is generated of them: it goes from place to place as the run did.

    x1 = f.__globals__                    # assignments name the places
    x2 = x1['model']
    x2 is r2()                            # conditions compare what is found
    x2.rate is v3 or (type(x2.rate) is t3 and x2.rate == v3)

Objects are compared by identity, and so is what they hold, read by read. Numbers, strings and the
like are compared by value, and so are containers, item by item. An object that is an argument, or
is reached from one, may be another one of the same class, and a function that another one makes
another one of the same code, unless the run looked at which it was.
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
from tapegrad.observe.guards.facts import Facts
from tapegrad.observe.guards.places import (
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
from tapegrad.observe.objects import plainly, randomness
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
from tapegrad.observe.objects.harmless import CONTAINERS, MAPPINGS, PLAIN_TYPES
from tapegrad.observe.objects.naming import Key
from tapegrad.observe.program import frames
from tapegrad.primitives.base import Value

MOST = 100_000  # guards; a function that reads more is traced at each call


class Reads(Facts):
    """Collects the guards of one run, in the order in which it read."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, Location] = {}
        self.written: dict[tuple[int, Hashable], Write] = {}
        self.kept: set[tuple[int, Hashable]] = set()  # of these, what each call leaves anew
        self.open: set[int] = set()  # containers whose items are inputs of the tape
        # Lists that begin as one of the outside, until somebody looks into them: that, its length
        self.joined: dict[int, tuple[Location, int]] = {}
        self.anew: dict[int, tuple[Any, Any]] = {}  # what each call makes anew, by which call
        self.effects: list[Any] = []  # such calls, made for their own sake
        self.postponed: list[Any] = []  # changes that wait: see `observe.waiting.postponed`
        self.waiting: set[int] = set()  # what these change
        self.mutated: dict[int, tuple[Any, Any]] = {}  # and what was in arrays before
        self.made_here: dict[int, type] = {}  # classes that the run has made, by id
        self._owners: dict[int, list[Location]] = {}  # of arrays: by the object that has the memory
        self._first: dict[tuple[int, Hashable], Any] = {}
        self._absent: dict[tuple[int, str], tuple[Location, dict[str, None]]] = {}
        self.taken: dict[tuple[int, Hashable], Callable[[], None]] = {}  # what calls look up
        self.others: set[tuple[int, Hashable]] = set()  # places of another object at each call
        self.rows: dict[int, Callable[[], None]] = {}  # tuples that stand for what is there
        # Where in the program a container is read as a whole
        self.reader: tuple[set[int], int] | None = None
        self.given: Any = None  # of these the one that the instruction at hand looks up
        self._whole: set[int] = set()
        self._plain_content: set[int] = set()
        self._held: list[Any] = []  # so that no id is given away meanwhile
        self.inside: set[str] = set()  # words for what installed packages' functions have read
        self.followed: list[str] = []  # what later calls ask for: see `follow`
        self.looked_at: Callable[[Any], None] = lambda x: None  # an array of the outside was read
        self.placed: Callable[[Location], None] = lambda place: None  # notes what its class is

    # ---- places

    def place(self, x: Any) -> Location | None:
        """The place of an object of the outside; None for one that the run has made."""
        return self.places.get(id(x))

    def root(self, x: Any, text: str, word: str, like: bool) -> Location:
        """A place that the check is given: the function, or an argument."""
        if (known := self.places.get(id(x))) is not None:  # passed twice
            self._fact(f"{text} is {self.named(known)}", word)
            return known
        place = self._place(x, self._assigned(text), word, like)
        if like and not is_made_anew(x):  # of a function the code is compared
            self._same_type(place.name, x, word)
        return place

    def constant(self, x: Any, word: str) -> Location:
        """The place of an object that the run didn't come to by reading: always that object."""
        return self.places.get(id(x)) or self._place(x, "", word)

    def part(self, holder: Location, text: str, x: Any, word: str) -> Location:
        """The place of what always belongs to a holder."""
        return self._place(x, self._assigned(text.replace("{}", self.named(holder))), word)

    def named(self, place: Location) -> str:
        """The name that the guards have for a place; a constant gets one when it is needed."""
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
            self.lost(found[0].word)  # memory beyond the array that was read
        return found

    def is_key(self, x: Any) -> bool:
        """Whether an object stands for the same item of a dict at each call, if it is pinned."""
        return plainly.is_value(x) or (self.place(x) is not None and plainly.is_one(x))

    def pin(self, x: Any) -> None:
        """The run has looked at which object this is."""
        if id(x) in self.rows:
            self.rows[id(x)]()
        place = self.places.get(id(x))
        if place is not None and place.like:
            place.like = False
            self._identical(self.named(place), x, place.word)

    # ---- reading

    def read(self, holder: Location, at: Hashable, text: str, value: Any, word: str) -> None:
        """`text`, in which {} stands for the holder, gave `value`; `at` tells such places apart."""
        key = (id(holder.x), at)
        if self._is_open(holder):
            return
        if any((id(holder.x), end) in self.written for end in ENDS):
            self.lost(word or holder.word, holder.grows)  # what is found depends on what was added
        if key in self.written or key in self.remembered:
            return
        if key in self.taken and key != self.given:
            self.lost(word or holder.word)
            self.taken[key]()
        if key in self._first:
            return
        self._first[key] = value
        if len(self.guards) > MOST:
            self.lost(f"one of more than {MOST} things that it reads")
            return
        like = (holder.like and type(holder.x) is not types.FunctionType) or key in self.others
        first = len(self.guards)
        self.found(text.replace("{}", self.named(holder)), value, word or holder.word, like)
        if key in self.sites:
            self.lines.update((line, self.sites[key]) for line, _ in self.guards[first:])

    def found(self, text: str, x: Any, word: str, like: bool = False) -> None:
        """The guard that an expression gives this value, and its place if it is an object."""
        row = answered_by(x) or row_of(x)
        if row is not None and not isinstance(row.original, type):
            # A trace in another thread may have put its stand-in there, for a while.
            name, own = self._assigned(text), row.original
            either = f"{name} is {self._value(own)} or {name} is {self._value(stand_in(row))}"
            self._fact(either, word)
            self.place(own) or self._place(own, name, word)
            return
        kind: Any = type(x)
        if isinstance(x, Value) and hasattr(x, "_trace"):  # of another trace, which watches too
            # An array that it has made may be written to since
            return None if x._trace.alive else self.lost(word)
        self._held.append(x)
        if kind in PLAIN_TYPES:
            self._plain(text, x, word)
        elif isinstance(x, np.generic):
            same = f"type({{0}}) is type({{1}}) and {{0}}.tobytes() == {self._value(x.tobytes())}"
            self._fact(same.format(self._assigned(text), self._value(x)), word)
        elif kind in ALWAYS_SAME or (kind is tuple and word and text.endswith(FIXED_TUPLES)):
            same = "{0} is {1}" + " or {0} == {1}" * (kind in (types.CodeType, tuple))
            self._fact(same.format(text, self._value(x)), word)  # a text of code may be run again
            self._place(x, self._value(x), word)
        elif kind is types.MethodType and id(x) not in self.places:  # made anew at each look-up
            name = self._assigned(text)
            self._same_type(name, x, word)
            self._place(x, name, word)
            self.found(f"{name}.__func__", x.__func__, word, like)
            self.found(f"{name}.__self__", x.__self__, word, like)
        elif kind in BOUND and plainly.is_bound(x) and id(x) not in self.places:
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
        """Whether nothing was noted of a place; from here on nothing is: a call looks itself. What
        reads it otherwise has the tape used once, and calls `fix`."""
        key = id(holder.x), at
        if key not in self._first:
            self._first[key], self.taken[key] = value, fix
        return key in self.taken and self._first[key] is value

    def absent(self, holder: Location, name: str, held: str = "vars({})") -> None:
        """An object had no attribute of this name of its own; or a dict, `held`, no such key."""
        opened = held == "{}" and self._is_open(holder)  # which makes changes that wait for it
        if not opened and (id(holder.x), ("absent", name)) not in self.written:
            self._absent.setdefault((id(holder.x), held), (holder, {}))[1][name] = None

    def _same_type(self, name: str, x: Any, word: str) -> None:
        known = self.places.get(id(type(x)))
        kind = self.named(known) if known is not None else self._value(type(x))
        self._fact(f"type({name}) is {kind}", word)

    def type_of(self, place: Location) -> None:
        """What class an object is of was read."""
        if (id(place.x), "type") not in self._first:
            self._first[id(place.x), "type"] = None
            self._same_type(self.named(place), place.x, place.word)

    def unchanged(self, place: Location, record: ClassRecord) -> None:
        """Which names a class and those above it have was read."""
        name, version = self.named(place), frames.version_of(place.x)
        same = f"same_class({name}, {self._value(record)})"
        if version is not None:
            same = f"{self._value(version)}.value == {version.value} or {same}"
        self._fact(same, place.word)

    def follow(self, objects: Sequence[Any], word: str) -> None:
        """Later calls ask for what is in the places of these objects, which differ, and which no
        other place holds too."""
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
        """Shape, dtype and strides of an array were read."""
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
        """All elements of an array were read."""
        self.looked_at(place.x)
        self.layout(place)
        if id(place.x) in self._whole:
            return
        if place.x.dtype.hasobject:
            if not has_few(place.x) or any(True for _ in self.items(place)):
                self.lost(place.word)  # nobody has looked into these
            return
        self._whole.add(id(place.x))
        content = self._value(np.ndarray.tobytes(place.x))  # a subclass may have its own
        self._fact(f"same_bytes({self.named(place)}, {content})", place.word)

    def items(self, place: Location) -> Iterator[Any]:
        """All items of a container, or of an array of objects, were read; yields those that may
        hold more."""
        x = place.x
        if self._is_open(place):
            yield from plainly.values(x)
            return
        if id(x) not in self._whole:  # else what it held before the run wrote to it is known
            if any(number == id(x) and at != WHOLE for number, at in self.written):
                self.lost(place.word, place.grows)
            self._whole.add(id(x))
            first = len(self.guards)
            self._note_items(place)
            if self.reader is not None:
                self.lines.update((line, self.reader) for line, _ in self.guards[first:])
        if id(x) not in self._plain_content:
            yield from [v for v in plainly.values(x) if type(v) not in PLAIN_TYPES]

    def _note_items(self, place: Location) -> None:
        x, name = place.x, self.named(place)
        if isinstance(x, np.ndarray):
            for k, element in enumerate(plainly.values(x)):
                text = f"{{}}.ravel().tolist()[{k}]"
                self.read(place, ("element", k), text, element, place.word)
            return
        if plainly.is_plain(x):
            content = marshal.dumps(x, 2)
            self._plain_content.add(id(x))
            self._fact(f"marshalled({name}, 2) == {self._value(content)}", place.word)
            return
        base = plainly.base_of(type(x))
        if issubclass(base, (set, frozenset)):
            same = self._value(list(plainly.elements(x)))
            self._fact(f"same_elements({self.all_of(place)}, {same})", place.word)
            for element in plainly.elements(x):
                if type(element) not in PLAIN_TYPES:
                    self.constant(element, place.word)
            return
        keys = list(plainly.elements(x) if base in MAPPINGS else range(plainly.length(x)))
        self.shape_of(place, keys)
        for key in keys:
            if type(key) not in PLAIN_TYPES:
                self.constant(key, place.word)
            at = ("item", Key(key))
            self.read(place, at, self.item_of(place, key), plainly.item(x, key), place.word)

    def shape_of(self, place: Location, keys: Collection[Any]) -> None:
        """Which keys a mapping has, or how many items another container has."""
        x, name, base = place.x, self.named(place), plainly.base_of(type(place.x))
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

    def all_of(self, place: Location) -> str:
        """The elements of a container, in the guards, as its built-in class has them."""
        name, kind = self.named(place), type(place.x)
        base = plainly.base_of(kind)
        return name if base is kind else f"{self._value(base)}.__iter__({name})"

    def item_of(self, place: Location, key: Any) -> str:
        """An item of a container, {}, as its built-in class has it."""
        base = plainly.base_of(type(place.x))
        if base in (None, type(place.x)):
            return f"{{}}[{self.key(key)}]"
        return f"{self._value(base)}.__getitem__({{}}, {self.key(key)})"

    # ---- writing

    def postpone(self, change: Any) -> None:
        """A change waits until the run is over."""
        self.postponed.append(change)
        self.waiting.update(map(id, [change.holder.x, *change.held()]))

    def settle(self) -> None:
        """Somebody is about to look at what changes that wait would have changed."""
        changes, self.postponed = self.postponed, []
        self.waiting.clear()
        for change in changes:
            change.at_once(self)

    def lost(self, word: str, advice: str = "") -> None:
        super().lost(word, advice)
        self.settle()

    def _is_open(self, place: Location) -> bool:
        """Whether nothing is noted of a container: its items are inputs, or it is the run's own."""
        if id(place.x) in self.waiting:
            self.settle()
        joined = self.joined.pop(id(place.x), None)
        if joined is None:
            return id(place.x) in self.open
        del self.places[id(place.x)]
        list(self.items(joined[0]))  # which is read now
        return True

    def write(self, holder: Location, at: Hashable, text: str, word: str) -> None:
        """The run is about to write there."""
        if not self._is_open(holder) and (id(holder.x), at) not in self.written:
            self.written[id(holder.x), at] = begun(holder, at, text, word or holder.word)

    def add(self, holder: Location, at: Hashable, count: int) -> None:
        """The run is about to put so many values at an end of a list or deque."""
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
        """A call may change a container or an array: its contents count as read."""
        if self._is_open(place) or id(place.x) in self.mutated:
            return
        was = place.x.copy() if isinstance(place.x, np.ndarray) else None
        self.mutated[id(place.x)] = place.x, was
        if was is not None:
            flag = "{}.flags.writeable"
            self.read(place, "writeable", flag, place.x.flags.writeable, place.word)
            self.contents(place)
            return
        for each in list(self.places.values()):  # what is one object now may be two later
            if type(each.x) in CONTAINERS:
                self.pin(each.x)
        if isinstance(place.x, bytearray):
            self.lost(place.word)  # whether it can be resized depends on who looks at its memory
        else:
            list(self.items(place))
            self.write(place, WHOLE, "", place.word)
            self.written[id(place.x), WHOLE].before = before_writes(place.x, self.written)

    def finish(self) -> None:
        """Guards on what is absent, and on what the run itself has written: a later call
        that doesn't run the function must find that written already."""
        for (_, held), (holder, names) in self._absent.items():
            keys = self._assigned(held.replace("{}", self.named(holder)))
            for name in names:
                self._is_absent(holder.x, keys, name)
        for key, write in self.written.items():
            if key not in self.kept:
                self._check_written(write)

    def forget(self) -> None:
        """Drop what was held so that no id is given away: it may be the user's."""
        held = (self.places, self.written, self.mutated, self._owners, self._first, self._absent)
        held = (*held, self.taken, self.sites, self.others, self.rows, self.remembered)  # type: ignore[assignment]
        waits = (self.postponed, self.waiting, self.anew, self.effects)
        for noted in (*held, *waits, self.made_here, self.open, self.joined, self._held):
            noted.clear()

    def _check_written(self, write: Write) -> None:
        holder, at, word = write.holder, write.at, write.word
        self.where.setdefault(word, write.src)  # the run is over
        if at is WHOLE:
            return None if write.is_as_before() else self.lost(word)
        now = write.now()
        if now is write.before and type(now) not in PLAIN_TYPES:  # it has put that back
            there = f"{self._value(value_at)}({self.named(holder)}, {self._value(at)})"
            return self._fact(f"{there} is {self._value(now)}", word)
        if (id(holder.x), at) in self._first:
            return None if is_same(self._first[id(holder.x), at], now) else self.lost(word)
        if now is ABSENT or type(now) not in PLAIN_TYPES:
            return self.lost(word)
        self._plain(self._assigned(write.text.replace("{}", self.named(holder))), now, word)
