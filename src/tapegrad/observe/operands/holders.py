"""The holders of an array that the run has created, and replacing the array in all of them.

A run holds arrays in its frames' variables and stacks, and in objects that it has created:
containers, closures and instances. So the references to an array can be counted there. If their
number equals Python's reference count, no other code has the array, and it can be replaced in each
of them. If a reference is missing, a library or C code has it, and nothing is done.

Of objects that existed before, only the places that the run has written to count: the run has read
their other contents, which therefore have a place (`guards/reads.py`).
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dis
import functools
import gc
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tapegrad.core.values import stood_for
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.guards.locations import owner_of
from tapegrad.observe.objects.purity import INERT, is_pythons_class
from tapegrad.observe.program import frames
from tapegrad.observe.program.stack_heights import variables_of
from tapegrad.primitives.base import Value

Put = Callable[[Any], None]
MAX_SEARCH = 20_000  # maximal number of objects in a search
_word_at = ctypes.c_size_t.from_address
_ITEMS: tuple[Any, ...] = (list, tuple, dict, collections.deque, set, frozenset, types.CellType)
_OPAQUE_HOLDERS: tuple[Any, ...] = (functools.partial, types.MethodType, types.MappingProxyType)
_FRAMED = (types.FunctionType, types.GeneratorType)
# They yield what they hold, item by item.
_ITERATORS: tuple[Any, ...] = (type(iter(np.empty(1))), type(iter([])), type(iter(())))
_ITERATORS += (enumerate, zip, map, filter, reversed)
# Instructions that keep their operands on the stack until the called function returns.
_HOLDING = ("CALL", "PRECALL", "BINARY", "COMPARE", "STORE_SUBSCR", "STORE_SLICE", "FOR_ITER")
_BY_ADDRESS = (frames.set_local, frames.replace_word)  # they don't refer to the holder


class Views:
    """An array, `owner`, its views, and methods of these, with the references to each.

    `members` are these objects by id, `puts` the functions that replace each where it is held, and
    `counts` the number of references found.
    """

    def __init__(self, owner: np.ndarray) -> None:
        self.owner = owner
        self.members: dict[int, Any] = {id(owner): owner}
        self.puts: dict[int, list[Put]] = {id(owner): []}
        self.counts: collections.Counter[int] = collections.Counter()
        self.stuck = ""  # a holder in which a member can't be replaced

    def has(self, x: Any) -> bool:
        """Whether this is a member; a view or method that wasn't seen before is added."""
        if id(x) in self.members:
            return True
        held = _array_in(x)
        if held is None or owner_of(held) is not self.owner or x is self.owner:
            return False
        self.members[id(x)], self.puts[id(x)] = x, []
        base = x.base if isinstance(x, np.ndarray) else held
        if self.has(base):
            self.counts[id(base)] += 1
        return True

    def held(self, x: Any, put: Put | None, what: str = "") -> None:
        """Record a reference to a member, which `put` replaces."""
        self.counts[id(x)] += 1
        if put is None:
            self.stuck = self.stuck or what
        else:
            self.puts[id(x)].append(put)

    def is_whole(self, others: collections.Counter[int]) -> bool:
        """Whether all references were found. Those of `others` are kept as they are."""
        for key in self.members:
            here = 2 if key == id(self.owner) else 1
            if frames.count_at(key) != here + self.counts[key] + others[key]:
                return False
        return True


def _array_in(x: Any) -> np.ndarray | None:
    """The array that an array, or a method of one, refers to."""
    kind: Any = type(x)
    if kind is np.ndarray:
        return x
    if kind is np.flatiter:
        found: Any = x.base
    elif kind is types.BuiltinMethodType:
        found = x.__self__
    else:
        return None
    return found if type(found) is np.ndarray else None


class Search:
    """A search for the references to a family, in all that a run holds."""

    def __init__(self, a: Activation, family: Views, until: Any, strict: bool) -> None:
        self.a, self.family = a, family
        self.until = until  # the frame that has begun the trace
        self.strict = strict  # whether the trace isn't the run's own
        self.seen: set[int] = set()
        self.queue: collections.deque[Any] = collections.deque()
        # By the ids of searched objects: the present one, 0 for a frame; how often each was found,
        # and in which objects; how often it is held here; and the holders of members.
        self.current = 0
        self.found: collections.Counter[int] = collections.Counter()
        self.above: dict[int, set[int]] = {}
        self.kept: collections.Counter[int] = collections.Counter()
        self.holding: set[int] = set()

    def run(self) -> None:
        for address, code, live, safe in self._frames():
            self._frame(address, code, live, safe)
        if not self.strict:
            self._written()
        for x in self._through():
            if len(self.seen) > MAX_SEARCH:
                return
            self.current = id(x)
            self._inside(x)

    def is_own(self) -> bool:
        """Whether the holders of members are held by searched objects alone. This is needed if the
        trace isn't the run's: an outer function may hold them, too."""
        waiting, known = list(self.holding), {0}
        while waiting and self.strict:
            key = waiting.pop()
            if key not in known:
                known.add(key)
                noted = key in self.a.o.functions
                if frames.count_at(key) != self.found[key] + self.kept[key] + noted:
                    return False
                waiting += self.above[key]
        return True

    def _through(self) -> Iterator[Any]:
        while self.queue:
            yield self.queue.popleft()

    # ---- frames

    def _frames(self) -> Iterator[tuple[int, Any, int, bool]]:
        """Yield the addresses and codes of the run's frames, the number of variables and stack
        entries in use, and whether the stack entries certainly are."""
        frame = self.a.frame
        while frame is not None and frame is not self.until:
            frames.own_variables(frame)
            a = getattr(frame.f_trace, "__self__", None)
            if isinstance(a, Activation) and a.o is self.a.o:
                self._runs(a)
                yield self._entries(frame, a is self.a)
            frame = frame.f_back

    def _runs(self, a: Activation) -> None:
        """Count the references of a frame and its activation to the function that they run."""
        frames.own_function(a.address)
        self.found[id(a.function)] += 2
        self.above.setdefault(id(a.function), set()).add(0)

    def _entries(self, frame: Any, runs: bool) -> tuple[int, Any, int, bool]:
        address, code = frames.address_of(frame), frame.f_code
        live = -1 if runs else frames.live(address)
        if live >= 0:
            return address, code, live, True
        at = frame.f_lasti >> 1
        name = dis.opname[code.co_code[frame.f_lasti]]
        tops = self.a.tops if runs else frame.f_trace.__self__.tops
        return address, code, frames.count_of(tops[at]), runs or name.startswith(_HOLDING)

    def _frame(self, address: int, code: Any, live: int, safe: bool) -> None:
        variables = variables_of(code)
        for k in range(live):
            at = frames.place_of(address, k)
            key = frames.word(at)
            if not key:
                continue
            put = functools.partial(frames.set_local, address, k)
            if k >= variables and not safe:
                if key in self.family.members:
                    self.family.held(self.family.members[key], put)
                continue
            frames.own(at)
            x = frames.operand(at, 0)
            self._met(x, put, "")
            del x
        self._met(frames.names_of(address), None, "")

    # ---- held objects

    def _met(self, x: Any, put: Put | None, what: str) -> None:
        """Record a reference to this object."""
        kind: Any = type(x)
        if INERT[kind] or (isinstance(x, Value) and stood_for(kind) is None):
            return
        if self.family.has(x):
            self.family.held(x, put, what)
            self.holding.add(self.current)
            self.kept[self.current] += getattr(put, "func", None) not in _BY_ADDRESS
        elif self._is_open(x, kind):
            self._above(x)
            if id(x) not in self.seen:
                self.seen.add(id(x))
                self.queue.append(x)

    def _above(self, x: Any) -> None:
        self.found[id(x)] += 1
        self.above.setdefault(id(x), set()).add(self.current)

    def _is_open(self, x: Any, kind: Any) -> bool:
        """Whether the contents of this object are searched: the run has created it."""
        if isinstance(x, Value):  # of a subclass of ndarray: its attributes
            return True
        known = kind in _ITEMS or kind in _OPAQUE_HOLDERS or kind in _ITERATORS or kind in _FRAMED
        if not known and (isinstance(x, (np.ndarray, type)) or not is_pythons_class(kind)):
            return False
        return self.a.o.reads.place(x) is None

    def _written(self) -> None:
        """Search the places that the run has written to in objects that existed before."""
        reads = self.a.o.reads
        changed = []
        for write in list(reads.written.values()):
            if write.has_many:
                changed.append(write.x)
            else:
                x = write.now()
                self._met(x, write.put, write.word)
                del x
        for held in changed:
            if id(held) not in self.seen and type(held) in _ITEMS:
                self.seen.add(id(held))
                self.queue.append(held)

    def _inside(self, x: Any) -> None:
        kind: Any = type(x)
        if isinstance(x, dict):
            self._items(x, list(dict.keys(x)), dict)
        elif isinstance(x, (list, collections.deque)):
            base: Any = list if isinstance(x, list) else collections.deque
            self._items(x, range(base.__len__(x)), base)
        elif isinstance(x, tuple):
            for k in range(tuple.__len__(x)):
                at = id(x) + tuple.__basicsize__ + k * tuple.__itemsize__
                self._met(tuple.__getitem__(x, k), functools.partial(frames.replace_word, at), "")
        elif kind is types.CellType:
            with contextlib.suppress(ValueError):  # it may be empty
                self._met(x.cell_contents, functools.partial(setattr, x, "cell_contents"), "")
        elif kind is types.FunctionType:
            for held in (x.__closure__, x.__defaults__, x.__kwdefaults__, vars(x)):
                self._met(held, None, "")
        elif kind is types.GeneratorType:
            self._generator(x)
        elif not (isinstance(x, Value) or is_pythons_class(kind)):
            self._parts(x)
        if isinstance(x, Value) or (is_pythons_class(kind) and kind not in _ITEMS):
            self._attributes(x)

    def _items(self, x: Any, keys: Iterable[Any], base: Any) -> None:
        for key in keys:
            self._met(base.__getitem__(x, key), functools.partial(base.__setitem__, x, key), "")

    def _generator(self, x: Any) -> None:
        """Search the variables of a suspended generator."""
        frame = x.gi_frame
        live = -1 if frame is None or x.gi_running else frames.live(frames.address_of(frame))
        a = getattr(getattr(frame, "f_trace", None), "__self__", None)
        if live >= 0 and isinstance(a, Activation):
            self._runs(a)
            self._frame(frames.address_of(frame), x.gi_code, live, True)

    def _parts(self, x: Any) -> None:
        """Search the contents of an object in C. Those of iterators can be replaced."""
        kind: Any = type(x)
        for y in gc.get_referents(x):
            put = None
            if kind in _ITERATORS:
                words = range(id(x) + object.__basicsize__, id(x) + kind.__basicsize__, 8)
                at = next((at for at in words if _word_at(at).value == id(y)), None)
                put = None if at is None else functools.partial(frames.replace_word, at)
            self._met(y, put, f"a {kind.__name__}")

    def _attributes(self, x: Any) -> None:
        """Search the attributes of an object, in its dict and in slots."""
        held = getattr(x, "__dict__", None)
        if type(held) is dict:
            self._above(held)
            if id(held) not in self.seen:
                self.seen.add(id(held))
                self.current = id(held)
                self._items(held, list(held), dict)
                self.current = id(x)
        for place in () if isinstance(x, Value) else slots_of(type(x)):
            try:
                value = place.__get__(x)
            except AttributeError:
                continue
            self._met(value, functools.partial(place.__set__, x), "")
            del value


def slots_of(kind: type) -> Iterator[Any]:
    """Yield the descriptors of the slots of a class's objects."""
    for base in kind.__mro__:
        if is_pythons_class(base) and base not in _ITEMS:
            yield from [x for x in vars(base).values() if type(x) is types.MemberDescriptorType]


def counted(holders: Iterable[Any]) -> collections.Counter[int]:
    """How often these hold each object, by id."""
    return collections.Counter(map(id, holders))
