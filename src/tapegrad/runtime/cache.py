"""What a derived function remembers: its variants by signature, most recently used first.

All who derive one function alike share one cache, which lives as long as that function does. So
nothing in a cache may refer to the function, or neither would ever be freed.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegrad.core import log
from tapegrad.core.locks import new_lock
from tapegrad.core.log import Event
from tapegrad.core.request import has_objects

MAX_SIGNATURES = 128  # of one derived function; the least recently used goes first
MANY_SIGNATURES = 46  # at which a warning says what keeps changing
MAX_VARIANTS = 16  # of one signature: one for each path through the function, without objects
REMEMBERED = 100  # events, of traces and compilations
IN_VAIN = 8  # traces in a row without loops, of no use to the next call


class CacheInfo(NamedTuple):
    """Counts since the derived function was made or cleared.

    `hits` calls answered by a known variant, `misses` calls that had to trace, `traces` runs of
    the user's function on tracers (or of one of the same code, whose variant it has taken over),
    `compiles` variants compiled, `guard_failures` variants passed over because an assumption didn't
    hold, `variants` held now, `loads` variants whose code an earlier process had compiled and left
    on disk, `kernels` that were compiled: loops as machine code, which variants for other lengths
    of axes share. `compiling` variants are being compiled now.
    """

    hits: int
    misses: int
    traces: int
    compiles: int
    guard_failures: int
    variants: int
    loads: int
    kernels: int
    compiling: int


EVENTS = ("hits", "misses", "traces", "compiles", "guard_failures", "loads", "kernels")


def shapes_of(args: Sequence[Any]) -> tuple[Any, ...]:
    """The shapes of the arrays among arguments; a number is like an array without axes."""
    return tuple([(isinstance(x, np.ndarray) and x.shape) or None for x in args])


def place_of(
    args: Sequence[Any], kwargs: dict[str, Any], chosen: tuple[Any, ...]
) -> tuple[bool, tuple[Any, ...]]:
    """Where a front holds the entries for such calls: whether among those for arguments by name,
    and by which shapes. Where a user's key has `chosen`, its value is looked up with the shapes."""
    named, shapes = bool(kwargs), shapes_of(args)
    return (False, (*chosen, named, *shapes)) if chosen else (named, shapes)


class Front:
    """What stands before a cache: the entries that a call tries first, by the shapes of its
    arguments, or `named` where some are passed by name; and the counts. `recent` are those for one
    of the shapes, which calls try before they look these up: the only one, or that of the last
    calls.

    Variants know it. They don't know the cache, which holds them: so all of them go with it."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.shaped: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.recent: tuple[Any, ...] = ()
        self.named: tuple[Any, ...] = ()
        self.fast_hits = 0  # of entries in `recent`; counted without the lock, so roughly
        self.last: Any = None  # that answered the last call; None if the cache was asked
        self.counts = dict.fromkeys(EVENTS, 0)
        self.history: deque[Event] = deque(maxlen=REMEMBERED)

    def note(self, event: Event) -> None:
        """Remember what has happened, and say it where that is wanted."""
        self.history.append(event)
        if log.wanted(event.kind):
            log.say(event)

    def count(self, *events: str, kernels: int = 0) -> None:
        """Add one to each of these counts, and so many compiled kernels."""
        with self.lock:
            for event in events:
                self.counts[event] += 1
            self.counts["kernels"] += kernels

    def first(self, entry: Any) -> None:
        """Calls try this entry first."""
        with self.lock:
            self._hold(entry, (entry, *self._without(entry))[:4])

    def again(self, entry: Any) -> None:
        """An entry has answered two calls in a row, for which their shapes were looked up: the
        next ones try it without that."""
        with self.lock:
            if self.tries(entry) and not entry.named:
                self.recent = self.of_shapes(entry.shapes)

    def drop(self, entry: Any) -> None:
        """No call tries this entry any more."""
        with self.lock:
            self._hold(entry, self._without(entry))

    def tries(self, entry: Any) -> bool:
        """Whether calls try this entry."""
        return entry in (self.named if entry.named else self.of_shapes(entry.shapes))

    def of_shapes(self, shapes: tuple[Any, ...]) -> tuple[Any, ...]:
        """The entries that calls try whose arguments have these shapes."""
        return self.shaped.get(shapes, ())

    def _without(self, entry: Any) -> tuple[Any, ...]:
        held = self.named if entry.named else self.of_shapes(entry.shapes)
        return tuple([x for x in held if x is not entry])

    def _hold(self, entry: Any, held: tuple[Any, ...]) -> None:
        """Have calls like those that this entry answers try these."""
        if entry.named:
            self.named = held
            return
        self.shaped.pop(entry.shapes, None)
        if held:
            self.shaped[entry.shapes] = held
        self.recent = () if len(self.shaped) != 1 else next(iter(self.shaped.values()))

    def clear(self) -> None:
        self.shaped, self.recent, self.named, self.fast_hits = {}, (), (), 0
        self.last = None
        self.counts = dict.fromkeys(EVENTS, 0)
        self.history.clear()


class Cache:
    """The variants of one derived function."""

    def __init__(self, tracing: Any = None) -> None:
        self.tracing = new_lock() if tracing is None else tracing  # that of all of one owner
        self.front = Front()
        self.lock = self.front.lock
        self.count = self.front.count
        self._told = False
        self._overflowed = False
        self._many = False
        self._again = ("", 0, 0)  # what changed at the last trace, since when, and the hits by then
        # Traces in a row without a hit and without loops, the hits by then, and the most calls
        self._vain = 0, 0, 0
        self._signatures: OrderedDict[Any, list[Any]] = OrderedDict()

    def many(self) -> list[Any]:
        """The signatures, when there are many for the first time since the cache was cleared; else
        none."""
        with self.lock:
            if self._many or len(self._signatures) < MANY_SIGNATURES:
                return []
            self._many = True
            return list(self._signatures)

    def before(self, key: Any) -> Any:
        """The signature of the last other kind of arguments, if there was one."""
        with self.lock:
            return next((held for held in reversed(self._signatures) if held != key), None)

    def variants(self, key: Any) -> list[Any]:
        """The variants of a signature, most recently used first."""
        with self.lock:
            held = self._signatures.get(key)
            if held is None:
                return []
            self._signatures.move_to_end(key)
            return list(held)

    def add(self, key: Any, variant: Any) -> bool:
        """Hold a new variant, as the first of its signature. True if an old one had to go for it,
        for the first time since the cache was cleared."""
        with self.lock:
            held = self._signatures.setdefault(key, [])
            held.insert(0, variant)
            most = MAX_SIGNATURES if has_objects(key) else MAX_VARIANTS
            full = len(held) > most or len(self._signatures) > MAX_SIGNATURES
            gone = held[most:]
            del held[most:]
            while len(self._signatures) > MAX_SIGNATURES:
                gone += self._signatures.popitem(last=False)[1]
            if gone:
                text = f"{gone[0].tier.name}: {len(gone)} variants are forgotten for a new one"
                self.front.note(Event("cache", text, {"function": gone[0].tier.name}))
            for entry in [x for old in gone for x in (old.entry, old.playing) if x is not None]:
                self.front.drop(entry)
            first, self._overflowed = full and not self._overflowed, self._overflowed or full
            return first

    def traced_for(self, word: str) -> bool:
        """Note what had changed when a call had to trace. True if it was the same for the third
        trace in a row, for the first time since the cache was cleared."""
        with self.lock:
            before, count, hits = self._again
            now = self._hits
            count = count + 1 if word and word == before and hits == now else 1
            self._again = word, count, now
            if count != 2 or self._told:  # the first trace of all has no word
                return False
            self._told = True
            return True

    def in_vain(self) -> int:
        """Up to how many calls of a tape it is in vain to look for loops among them, at the next
        trace: where each call takes another path, and none had any. Now and then it isn't."""
        with self.lock:
            count, hits, most = self._vain
            is_vain = count >= IN_VAIN and count % IN_VAIN and hits == self._hits
            return most if is_vain else 0

    def note_loops(self, found: bool, calls: int) -> None:
        """A call was traced: whether there are loops on its tape, and how many calls."""
        with self.lock:
            count, hits, most = self._vain
            goes_on = hits == self._hits and not found
            self._vain = (count + 1, hits, max(most, calls)) if goes_on else (0, self._hits, 0)

    def used(self, key: Any, variant: Any) -> None:
        """Count a hit of `variant`, and try it first the next time."""
        with self.lock:
            self.front.counts["hits"] += 1
            held = self._signatures.get(key, [])
            if variant in held and held[0] is not variant:
                held.remove(variant)
                held.insert(0, variant)

    def all_variants(self) -> list[Any]:
        """Every variant held now, most recently used signatures first."""
        with self.lock:
            return [v for held in reversed(self._signatures.values()) for v in held]

    @property
    def _hits(self) -> int:
        return self.front.counts["hits"] + self.front.fast_hits

    def info(self) -> CacheInfo:
        with self.lock:
            counts = {**self.front.counts, "hits": self._hits}
            variants = self.all_variants()
            compiling = sum(variant.tier.compiling for variant in variants)
            return CacheInfo(**counts, variants=len(variants), compiling=compiling)

    def clear(self) -> None:
        """Forget everything, and set the counts to zero."""
        with self.lock:
            self._signatures.clear()
            self.front.clear()
            self._overflowed, self._many, self._told = False, False, False
            self._again, self._vain = ("", 0, 0), (0, 0, 0)


# id of a function, or of a method's instance -> a weak reference to it, its caches, and a lock.
_shared: dict[int, tuple[weakref.ref[Any], dict[Any, Cache], Any]] = {}
_shared_lock = new_lock()  # a garbage collection may run `forget` at any time


def owner_of(f: Callable[..., Any]) -> tuple[Any, tuple[Any, ...]]:
    """The object whose life a cache shares, and what tells its functions apart.

    A bound method is made anew each time it is looked up; its instance lives on.
    """
    return (f.__self__, (f.__func__,)) if inspect.ismethod(f) else (f, ())


def shared_cache(owner: Any, path: tuple[Any, ...]) -> Cache:
    """The cache kept for `path` under `owner`; a private one if `owner` can't be referred to."""

    with _shared_lock:
        known = _shared.get(id(owner))
        if known is None:
            # All of it is C code: what a signal's handler raises in a callback's line of Python is
            # lost.
            forget = functools.partial(_shared.pop, id(owner))
            try:
                known = _shared[id(owner)] = (weakref.ref(owner, forget), {}, new_lock())
            except TypeError:
                return Cache()
        found = known[1].get(path)
        if found is None:
            found = known[1][path] = Cache(known[2])
        return found


def known_front(f: Callable[..., Any], derived: tuple[Any, ...]) -> Front | None:
    """The front of what is `derived` from a function by a transformation in a mode of compiling,
    where that is known."""
    known = _shared.get(id(f))
    found = None if known is None or known[0]() is not f else known[1].get(derived)
    return None if found is None else found.front


def caches_of(owner: Any = None, path: tuple[Any, ...] = ()) -> list[Cache]:
    """The shared caches of whatever was derived from `path` under `owner`, or all there are."""
    with _shared_lock:
        if owner is None:
            return [cache for _, kept, _ in list(_shared.values()) for cache in kept.values()]
        known = _shared.get(id(owner))
        kept = {} if known is None else known[1]
        return [cache for at, cache in kept.items() if at[: len(path)] == path]
