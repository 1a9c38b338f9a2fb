"""Uses of values in a run: values that are read, items that are looked up, and changes."""

from __future__ import annotations

import collections
import functools
import inspect
import weakref
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tapegrad.core.named import own_attribute
from tapegrad.core.statics import Returnable
from tapegrad.core.tables import Contents, is_pandas_class, is_pandas_object
from tapegrad.core.values import stood_for
from tapegrad.errors import TapegradError
from tapegrad.observe.guards.identities import Identities
from tapegrad.observe.guards.locations import END, ENDS, WHOLE
from tapegrad.observe.guards.lookups import Lookups
from tapegrad.observe.guards.pure_operations import has_own_operators, operator_is_known
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.objects import inspection, randomness
from tapegrad.observe.objects.comparing import has_attributes, has_few, is_decimal, is_equal
from tapegrad.observe.objects.containers import LOOKING
from tapegrad.observe.objects.files import is_read
from tapegrad.observe.objects.naming import Key, attribute, index_text, plain_key
from tapegrad.observe.objects.progress_bars import is_bar, is_screen
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    INERT,
    LOOKING_UP,
    MAPPINGS,
    PLAIN_TYPES,
    READERS,
    is_changeable,
    is_extensions,
    is_followed,
    is_inert,
    is_pure,
    is_pythons_class,
    is_recorded,
    is_self_contained,
)
from tapegrad.observe.objects.settings import note_settings
from tapegrad.observe.program import frames
from tapegrad.primitives.base import Value

Then = Callable[[Any], None]
_MAX_ENTRIES = 8  # maximal number of entries that are checked at each use


class Uses:
    """Records the uses of the program's values.

    A method may return a recorder: a function to be called with the result once it is known.
    """

    identities: Identities

    def __init__(self, home: str, label: str) -> None:
        self.label = label
        self.refused: TapegradError | None = None
        self.enters = False  # whether the running instruction may call the user's code
        self.reads = Reads()
        self.lookups = Lookups(self.reads, home)
        self.lookups.made, self.lookups.table = self.read_all, self.table
        self.captured: list[np.ndarray] = []  # arrays that became inputs of a tape,
        self.owners: set[int] = set()  # and the ids of their memory's owners
        self.kinds: dict[type, None] = {}  # classes whose objects took part
        self.drawn_from: set[int] = set()  # ids of generators whose draws are recorded otherwise

    def refuse(self, error: TapegradError) -> None:
        """Store the error that the trace ends with, unless there is one already."""
        self.refused = self.refused or error

    def is_outside(self, generator: Any) -> bool:
        """Whether a random generator wasn't created from a seed during the run."""
        return self.reads.place(generator) is not None or randomness.is_global(generator)

    def kind(self, x: Any) -> None:
        """Record the class of `x`: Python may call its special methods."""
        for kind in (type(x), x) if isinstance(x, type) else (type(x),):
            kind = stood_for(kind) or kind  # whose methods a traced array has
            if kind not in self.kinds:
                self.kinds[kind] = None
                self.lookups.equipped(kind)
                if is_decimal(kind):
                    note_settings(self.reads, "decimal")

    def taken(self, values: Iterable[Any], whole: bool = False) -> Then | None:
        """Record that harmless code may read all of these values. Arrays that become inputs of a
        tape during the call don't count as read, which is known when it ends."""
        given = list(values)
        values = [x for x in given if not INERT[type(x)] and not self._is_made_here(x)]
        if not values:
            return None
        for x in values:  # C code is passed a generator's method to call
            held = own_attribute(x, "__self__") if type(x) in _METHODS else None
            drawn = isinstance(held, randomness.kinds()) and id(held) not in self.drawn_from
            if drawn and self.is_outside(held):
                self.refuse(randomness.drawn(self.label, held))
        traced = any(isinstance(x, Value) for x in given)  # a trace doesn't write to plain arrays
        arrays: list[np.ndarray] = []
        self._take(values, arrays, whole, set())
        if not arrays:
            return None
        start = len(self.captured)
        before = [] if traced else [inspection.checksum(x) for x in arrays]

        def then(result: Any) -> None:
            met = self.captured[start:]
            for x in arrays:
                if not any(np.may_share_memory(x, m) for m in met):
                    for place in self.reads.arrays_of(x):
                        self.reads.contents(place)
            for x, was in zip(arrays, before, strict=not traced):
                if inspection.checksum(x) != was:  # as `out=`, for instance
                    self.reads.use_once(self.reads.arrays_of(x)[0].word)

        return then

    def _is_made_here(self, x: Any) -> bool:
        """Whether this is a new slice, tuple or list, of values with nothing to record, as most
        indices are."""
        kind = type(x)
        if kind is slice:
            held: Any = x.start, x.stop, x.step
        elif (kind is tuple or kind is list) and len(x) <= _MAX_ENTRIES:
            held = x
        else:
            return False
        for y in held:
            if not INERT[type(y)] and not (type(y) is slice and self._is_made_here(y)):
                return False
        return self.reads.place(x) is None

    def given_back(self, x: Any) -> None:
        """Record that the function returns this untraced object. Each call must return a new one,
        so the tape is used once, unless it is immutable, copied, or the program's own."""
        kind: Any = type(x)
        copied = isinstance(x, np.ndarray) and not x.dtype.hasobject
        copied |= (part := isinstance(x, Returnable)) and x.stay()
        copied |= kind is frozenset and all(INERT[type(e)] for e in x)
        if not (copied or INERT[kind] or is_equal(x) or is_inert(kind) or self.reads.place(x)):
            self.reads.use_once(f"{repr(x) if part else f'a {kind.__name__}'} among the results")

    def _take(
        self, values: Iterable[Any], arrays: list[np.ndarray], whole: bool, seen: set[int]
    ) -> None:
        reads = self.reads
        for x in values:
            kind: Any = type(x)
            if INERT[kind]:
                continue
            if isinstance(x, Value):  # of a subclass of ndarray
                self.enters = True
                self.kind(x)
                continue
            if isinstance(x, np.ndarray):
                self.enters = self.enters or kind is not np.ndarray or x.dtype.hasobject
                if reads.arrays_of(x):
                    arrays.append(x)
                if id(x) in seen:
                    continue
                seen.add(id(x))
                if (place := reads.place(x)) is not None and has_few(x):
                    self._take(reads.items(place), arrays, whole, seen)
                if has_attributes(x):
                    self._take(self._all_of(x), arrays, whole, seen)
                continue
            if id(x) in seen or id(x) in self.drawn_from:
                continue
            seen.add(id(x))
            if is_pandas_object(x):
                self.table(x)
                continue
            place = reads.place(x)
            if kind in CONTAINERS or isinstance(x, (dict, list, tuple, set, frozenset)):
                if place is not None:
                    self._take(reads.items(place), arrays, whole, seen)
                elif kind not in (set, frozenset):
                    self._take(inspection.values(x), arrays, whole, seen)
                self.kind(x)
                self.enters = self.enters or kind not in CONTAINERS
            elif isinstance(x, type):
                self.kind(x)
                self.enters = self.enters or is_changeable(x)
            elif kind is weakref.ref and place is None:  # its hash is that of the referent
                self._take([x()], arrays, whole, seen)
            elif is_bar(kind) or (is_pandas_class(kind) and not is_pythons_class(kind)):
                if place is not None:  # an unknown referent can't be compared
                    reads.use_once(place.word)
            elif callable(x) and not is_pythons_class(kind):
                self.enters = True
                self._take(self.callable(x), arrays, whole, seen)
            elif kind is slice:
                for name in ("start", "stop", "step"):
                    self.lookups.attribute(x, name)
                self._take([x.start, x.stop, x.step], arrays, whole, seen)
            elif kind in _NOTHING:
                self.kind(x)
            elif is_pythons_class(kind):
                whole = self._instance(x) or whole
                # Methods of users and packages are followed; other code may read all of the object.
                followed = self.lookups.is_users_class(kind) or is_followed(kind)
                if (whole or not followed) and not is_recorded(x):
                    self._take(self._all_of(x), arrays, whole, seen)
            elif is_inert(kind) or is_equal(x):
                self.kind(x)
            else:
                self.enters = True  # a generator, or another iterator
                is_bytes = isinstance(x, (bytearray, memoryview)) or kind.__name__ == "array"
                if place is not None and is_bytes:
                    reads.read(place, "bytes", f"bytes({{}}) == {reads._value(bytes(x))}", True, "")
                elif place is not None and not is_screen(x):
                    reads.use_once(place.word)

    def table(self, x: Any) -> None:
        """Record that all of a pandas object is read: its labels, and the memory of its numbers,
        which arrays that pandas derives from it share."""
        reads, place = self.reads, self.reads.place(x)
        if place is None or (id(x), "table") in reads._first:
            return
        reads._first[id(x), "table"] = None
        found = Contents(x)
        reads.found(f"same_contents({reads.named(place)}, {reads._value(found)})", True, place.word)
        for array in found.arrays:  # their contents are guarded already
            reads.constant(array, place.word)
            reads.looked_at(array)
            reads._held.append(array)
            reads._whole.add(id(array))
            reads._first[id(array), "layout"] = None
        if getattr(x, "attrs", None):  # a dict of the user's, which pandas passes on
            reads.read(place, ("attr", "attrs"), "{}.attrs", x.attrs, "attrs")
            self.read_all(x.attrs)

    def _instance(self, x: Any) -> bool:
        """Record the use of a Python object. Returns whether it tells NumPy where its memory is."""
        self.enters = True
        self.kind(x)
        self.identities.taken(x)
        shows = []
        for name in _INTERFACES:  # by which NumPy reads another object's memory
            self.lookups.attribute(x, name)
            if (found := inspect.getattr_static(x, name, None)) is not None:
                shows.append(type(getattr(found, "fget", None)) is FunctionType)
        if not all(shows):
            self.reads.use_once(type(x).__name__)
        return bool(shows)

    def _all_of(self, x: Any) -> list[Any]:
        """The values of all attributes of an object, recorded as read."""
        own = self.lookups.whole_object(x) if self.reads.place(x) is not None else None
        return own or [*(inspection.own_names(x) or {}).values()]

    def callable(self, f: Any) -> list[Any]:
        """Record that C code may call this function, unseen if it is in C, too. Returns the objects
        that it holds."""
        if isinstance(f, FunctionType):
            return []
        if isinstance(f, MethodType):
            return [f.__func__, f.__self__]
        if type(f) is functools.partial:
            self.partial(f)
            return [f.func, *f.args, *f.keywords.values()]
        if type(f) is functools._lru_cache_wrapper and self.reads.place(f) is None:
            return [*vars(f).values()]
        held = own_attribute(f, "__self__")
        known = is_pure(f) or (is_extensions(f) and is_pandas_class(f))
        if is_read(held) or is_self_contained(type(held)):
            known = known or self.reads.place(held) is None
        if not known or id(f) in READERS or type(f) in LOOKING_UP:
            self.reads.use_once(own_attribute(f, "__qualname__", type(f).__name__))
        elif held is not None and not isinstance(held, (ModuleType, type)):
            if isinstance(held, np.ndarray):
                for place in self.reads.arrays_of(held):
                    self.reads.before_change(place)
            if type(held) not in CONTAINERS or f.__name__ not in LOOKING:
                self.changes(held)
            return [held]
        return []

    def partial(self, f: functools.partial[Any]) -> None:
        """Record that the function and arguments in a partial are read."""
        if (place := self.reads.place(f)) is None:
            return
        self.reads.read(place, ("attr", "func"), "{}.func", f.func, "what is called")
        for k, x in enumerate(f.args):
            self.reads.read(place, ("arg", k), f"{{}}.args[{k}]", x, place.word)
        for name, x in f.keywords.items():
            text = f"{{}}.keywords[{self.reads.key(name)}]"
            self.reads.read(place, ("arg", name), text, x, name)
        words = self.reads._value(list(f.keywords))
        same = f"[*{{}}.keywords] == {words}" if f.keywords else "not {}.keywords"
        self.reads.read(place, "names", same, True, place.word)

    def read_all(self, x: Any) -> None:
        """Record that all of a value is read."""
        if (note := self.taken([x])) is not None:
            note(None)

    def operands(self, values: Iterable[Any]) -> Then | None:
        """Record that an operator works on these values."""
        special, given = [], [*values]
        for x in given:
            kind: Any = type(x)
            if INERT[kind] or x is frames.MISSING:
                continue
            if not operator_is_known(kind):
                place = self.reads.place(x)
                self.reads.use_once(place.word if place is not None else f"a {kind.__name__}")
            special.append(x)
            self.kind(x)
        if all(type(x) in PLAIN_TYPES or has_own_operators(x) for x in given):
            self.enters = True  # the methods are followed
            return None
        return self.taken(special) if special else None

    def printed(self, values: Iterable[Any]) -> None:
        """Record that texts of these are made, which for arrays depend on print options."""
        if any(isinstance(x, np.generic) or not INERT[type(x)] for x in values):
            note_settings(self.reads, "numpy")

    def truth(self, x: Any) -> None:
        """Record that the truth of a container is read."""
        added = [w for w in self.reads.written.values() if w.x is x and w.at in ENDS and w.added]
        if (place := self.reads.place(x)) is not None and not added:  # else it was changed
            self.reads.read(place, "truth", "bool({})", bool(x), place.word)

    def length(self, x: Any) -> None:
        """Record that the length of a container is read."""
        if (place := self.reads.place(x)) is not None:
            self.reads.read(place, "length", "len({})", len(x), place.word)

    def shallow(self, x: Any) -> None:
        """Record that the items of a container are read, but not the items' contents."""
        if (place := self.reads.place(x)) is not None:
            for _ in self.reads.items(place):
                pass

    def item(self, x: Any, key: Any, makes: bool = True) -> Then | None:
        """Record that one item of a container is looked up; a defaultdict `makes` a missing one."""
        if not INERT[type(key)]:
            self.kind(key)  # its `__hash__` may be called
        place, kind = self.reads.place(x), inspection.kind_of_items(x)
        key = plain_key(key)
        if place is None or self._was_added(x, key):
            return None
        if isinstance(key, slice) or kind not in CONTAINERS:
            return self.taken([x])
        self.reads.pin(key)
        at, text = ("item", Key(key)), self.reads.key(key)
        if kind in MAPPINGS:
            try:
                found = key in x
            except TypeError:
                return None  # Python will raise it
            if not found:
                if type(key) is str and isinstance(x, dict):
                    self.reads.absent(place, key, "{}")
                else:
                    self.reads.read(place, ("absent", Key(key)), f"{text} not in {{}}", True, "")
                if makes and kind is collections.defaultdict:
                    made_by = "{}.default_factory"
                    self.reads.read(place, "made_by", made_by, x.default_factory, place.word)
                    if x.default_factory is not None:
                        self.sets_item(x, key)
                return None
        try:
            value = x[key]
        except (IndexError, KeyError, TypeError):
            return self.taken([x])
        self.reads.read(place, at, f"{{}}[{text}]", value, place.word)
        return None

    def _was_added(self, x: Any, key: Any) -> bool:
        """Whether an item of a list or deque is one that the run has added."""
        end = self.reads.written.get((id(x), END))
        if end is None or type(key) is not int or (id(x), WHOLE) in self.reads.written:
            return False
        return -end.added <= key < 0 and getattr(x, "maxlen", None) is None

    def element(self, x: np.ndarray, key: Any) -> Then | None:
        """Record that elements of an array are looked up. A view reads nothing."""
        if not INERT[type(key)]:
            self.read_all(key)
        places = self.reads.arrays_of(x)
        if not places:
            return None
        note = self.taken([x])
        if x.dtype.names is not None:
            for place in places:
                self.reads.layout(place)

        def then(result: Any) -> None:
            if isinstance(result, np.ndarray) and np.may_share_memory(result, x):
                return
            own, known = self.reads.place(x), index_text(key)
            if own is not None and known and isinstance(result, np.generic):
                self.reads.read(own, ("element", known), f"{{}}[{known}]", result, own.word)
            elif note is not None:
                note(result)

        return then

    def changes(self, x: Any) -> None:
        """Record that a container or array is about to change."""
        if isinstance(x, Value):
            return
        self.identities.changes(x)
        if isinstance(x, np.ndarray):
            for held in self.reads.arrays_of(x):
                self.reads.before_change(held)
            return
        place = self.reads.place(x)
        if place is None or isinstance(x, (type, Value)):
            return
        if isinstance(x, (dict, list, set, bytearray)) or type(x) in CONTAINERS:
            self.reads.before_change(place)
        elif not (is_pythons_class(type(x)) or is_inert(type(x))):
            self.reads.use_once(place.word)

    def sets_item(self, x: Any, key: Any, deletes: bool = False) -> None:
        """Record that an item of a container is about to be set or deleted."""
        place, kind = self.reads.place(x), inspection.kind_of_items(x)
        is_item = isinstance(x, dict) and kind in MAPPINGS and self.reads.is_key(key)
        if place is not None and kind is list and type(key) is int and not deletes:
            added = any((id(x), end) in self.reads.written for end in (END, WHOLE))
            if -len(x) <= key < len(x) and not added:
                is_item, size = True, f"len({{}}) == {len(x)}" if key < 0 else f"{key} < len({{}})"
                self.reads.read(place, ("size", key), size, True, place.word)
                key = key % len(x)
        if place is None or not is_item:
            self.changes(x)
            return
        self.identities.changes(x)
        self.reads.pin(key)
        text = f"{{}}[{self.reads.key(key)}]"
        self.reads.write(place, ("item", Key(key)), text, place.word)
        if deletes and (write := self.reads.written.get((id(x), ("item", Key(key))))):
            write.deletes = True

    def adds(self, x: Any, count: int, at: Any = END) -> None:
        """Record that `count` values are about to be added at an end of a list or deque."""
        self.identities.changes(x)
        if (place := self.reads.place(x)) is not None:
            self.reads.add(place, at, count)

    def looked_up(self, x: Any, name: str) -> None:
        """Record that an attribute is about to be looked up."""
        self.lookups.attribute(x, name)

    def deleted(self, x: Any, name: str) -> None:
        """Record that an attribute is about to be deleted, which fails if it is missing."""
        self.looked_up(x, name)
        self.stored(x, name)

    def stored(self, x: Any, name: str) -> None:
        """Record that an attribute is about to be set or deleted."""
        self.identities.changes(x)
        place = self.reads.place(x)
        if isinstance(x, (Value, np.ndarray)):
            self.lookups.of_subclass(stood_for(type(x)), name)
            return
        if self.lookups.is_made_here(x):
            return
        found = getattr(type(x), name, None)
        if not isinstance(x, type) and self.lookups.is_users_class(type(x)) and found is not None:
            self.lookups.in_class(type(x), name, inspect.getattr_static(type(x), name))
        if hasattr(type(found), "__set__") and not inspection.is_slot(found):
            self.lookups.attribute(x, name)  # of a property: its setter is followed
            return
        if place is None:
            if not isinstance(x, (type, ModuleType)):
                return
            place = self.reads.constant(x, name)
        self.reads.write(place, ("attr", name), attribute(name, x), name)


_METHODS = (MethodType, type(len))
_INTERFACES = ("__array_interface__", "__array_struct__")
_NOTHING = (
    *(FunctionType, MethodType, type(len), ModuleType, CodeType, range),
    *(type(list.append), type(object.__init__), np.dtype, np.ufunc),
)


def both(first: Then | None, second: Then | None) -> Then | None:
    """A recorder that calls both recorders with the result."""
    if first is None or second is None:
        return second if first is None else first

    def then(result: Any) -> None:
        first(result)
        second(result)

    return then
