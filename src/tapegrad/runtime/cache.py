"""The variants of a derived function, by signature, most recently used first.

Functions derived from one function in the same way share a cache, which lives as long as that
function. So nothing in a cache may refer to the function, or neither would ever be freed.
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

MAX_SIGNATURES = 128  # of one derived function; the least recently used is dropped first
MANY_SIGNATURES = 46  # the number at which a warning says which arguments keep changing
MAX_VARIANTS = 16  # of one signature without objects: one for each path through the function
REMEMBERED = 100  # events, of traces and compilations
IN_VAIN = 8  # successive traces without loops whose variants answered no later call


class CacheInfo(NamedTuple):
    """Counts since the derived function was made or cleared.

    - `hits`: calls answered by a known variant.
    - `misses`: calls that had to trace.
    - `traces`: runs of the user's function on tracers, or of another function of the same code,
      whose variant this one has taken over.
    - `compiles`: variants compiled.
    - `guard_failures`: variants passed over because an assumption didn't hold.
    - `variants`: variants held now.
    - `loads`: variants whose code an earlier process had compiled and left on disk.
    - `kernels`: kernels compiled. These are loops as machine code; variants that differ only in the
      lengths of axes share them.
    - `compiling`: variants that are being compiled now.
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

    def _repr_html_(self) -> str:
        from tapegrad.core.pages import page, table

        return page("cache", table([x.replace("_", " ") for x in self._fields], [self]))


EVENTS = ("hits", "misses", "traces", "compiles", "guard_failures", "loads", "kernels")


def shapes_of(args: Sequence[Any]) -> tuple[Any, ...]:
    """The shapes of the arrays among arguments. Numbers count like arrays without axes."""
    return tuple([(isinstance(x, np.ndarray) and x.shape) or None for x in args])


def place_of(
    args: Sequence[Any], kwargs: dict[str, Any], chosen: tuple[Any, ...]
) -> tuple[bool, tuple[Any, ...]]:
    """The place in a front of the entries for calls with such arguments: (whether there are keyword
    arguments, shapes). With a user's key, its value `chosen` and the first item are part of the
    shapes."""
    named, shapes = bool(kwargs), shapes_of(args)
    return (False, (*chosen, named, *shapes)) if chosen else (named, shapes)


class Front:
    """The entries that a call tries before the cache, and the counts.

    Entries are looked up by the shapes of the arguments, or are `named` if there are keyword
    arguments. `recent` are the entries for one set of shapes, which calls try before any lookup:
    the only set, or that of the last calls.

    Variants know the front but not the cache, which holds them. So they are freed with the cache.
    """

    def __init__(self) -> None:
        self.lock = new_lock()
        self.shaped: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.recent: tuple[Any, ...] = ()
        self.named: tuple[Any, ...] = ()
        self.fast_hits = 0  # hits of entries; counted without the lock, so approximately
        self.last: Any = None  # the entry that answered the last call; None if the cache did
        self.counts = dict.fromkeys(EVENTS, 0)
        self.history: deque[Event] = deque(maxlen=REMEMBERED)

    def note(self, event: Event) -> None:
        """Record an event, and log it if wanted."""
        self.history.append(event)
        if log.wanted(event.kind):
            log.say(event)

    def count(self, *events: str, kernels: int = 0) -> None:
        """Increment these counts, and add to the count of compiled kernels."""
        with self.lock:
            for event in events:
                self.counts[event] += 1
            self.counts["kernels"] += kernels

    def first(self, entry: Any) -> None:
        """Make calls try this entry first."""
        with self.lock:
            self._hold(entry, (entry, *self._without(entry))[:4])

    def again(self, entry: Any) -> None:
        """Make calls try this entry's shapes without a lookup, after it answered two calls in a
        row."""
        with self.lock:
            if self.tries(entry) and not entry.named:
                self.recent = self.of_shapes(entry.shapes)

    def drop(self, entry: Any) -> None:
        """Make calls no longer try this entry."""
        with self.lock:
            self._hold(entry, self._without(entry))

    def tries(self, entry: Any) -> bool:
        """Whether calls try this entry."""
        return entry in (self.named if entry.named else self.of_shapes(entry.shapes))

    def of_shapes(self, shapes: tuple[Any, ...]) -> tuple[Any, ...]:
        """The entries to try for arguments of these shapes."""
        return self.shaped.get(shapes, ())

    def _without(self, entry: Any) -> tuple[Any, ...]:
        held = self.named if entry.named else self.of_shapes(entry.shapes)
        return tuple([x for x in held if x is not entry])

    def _hold(self, entry: Any, held: tuple[Any, ...]) -> None:
        """Replace the entries that are tried for calls of this entry's kind."""
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
        self.tracing = new_lock() if tracing is None else tracing  # shared by an owner's caches
        self.front = Front()
        self.lock = self.front.lock
        self.count = self.front.count
        self._told = False
        self._overflowed = False
        self._many = False
        self._again = ("", 0, 0)  # (what changed last, for how many traces, hits by then)
        # (successive traces without a hit and without loops, hits by then, the most calls of one)
        self._vain = 0, 0, 0
        self._signatures: OrderedDict[Any, list[Any]] = OrderedDict()

    def many(self) -> list[Any]:
        """The signatures, if there are too many for the first time since the cache was cleared;
        otherwise []."""
        with self.lock:
            if self._many or len(self._signatures) < MANY_SIGNATURES:
                return []
            self._many = True
            return list(self._signatures)

    def before(self, key: Any) -> Any:
        """The last signature other than `key`, or None."""
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
        """Add a new variant as the first of its signature. True if an old one was dropped for it,
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
                name, count = gone[0].tier.name, len(gone)
                variants = "1 variant is" if count == 1 else f"{count} variants are"
                text = f"{name}: {variants} forgotten for a new one"
                self.front.note(Event("cache", text, {"function": name, "forgotten": count}))
            for entry in [x for old in gone for x in (old.entry, old.playing) if x is not None]:
                self.front.drop(entry)
            first, self._overflowed = full and not self._overflowed, self._overflowed or full
            return first

    def traced_for(self, word: Any, most: int = 3) -> bool:
        """Record what had changed when a call was traced. True if it is the same for so many traces
        in a row, the very first included, for the first time since the cache was cleared."""
        with self.lock:
            before, count, hits = self._again
            now = self._hits
            count = count + 1 if word and word == before and hits == now else 1
            self._again = word, count, now
            if count != most - 1 or self._told:  # the very first trace has no word
                return False
            self._told = True
            return True

    def in_vain(self) -> int:
        """The length of tapes up to which the next trace needn't search for loops: each call took
        another path, and no tape had loops. 0 otherwise, and now and then."""
        with self.lock:
            count, hits, most = self._vain
            is_vain = count >= IN_VAIN and count % IN_VAIN and hits == self._hits
            return most if is_vain else 0

    def note_loops(self, found: bool, calls: int) -> None:
        """Record whether the tape of a new trace has loops, and its number of calls."""
        with self.lock:
            count, hits, most = self._vain
            goes_on = hits == self._hits and not found
            self._vain = (count + 1, hits, max(most, calls)) if goes_on else (0, self._hits, 0)

    def used(self, key: Any, variant: Any) -> None:
        """Count a hit of `variant`, and move it to the front of its signature."""
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


# id of a function, or of a method's instance -> (weak reference to it, caches, lock).
_shared: dict[int, tuple[weakref.ref[Any], dict[Any, Cache], Any]] = {}
_shared_lock = new_lock()  # a garbage collection may run `forget` at any time


def owner_of(f: Callable[..., Any]) -> tuple[Any, tuple[Any, ...]]:
    """The object that a cache belongs to, and the path that distinguishes its functions.

    A bound method is a new object at each lookup, so its cache belongs to the instance.
    """
    return (f.__self__, (f.__func__,)) if inspect.ismethod(f) else (f, ())


def shared_cache(owner: Any, path: tuple[Any, ...]) -> Cache:
    """The cache for `path` under `owner`; a private one if `owner` can't be referenced weakly."""

    with _shared_lock:
        known = _shared.get(id(owner))
        if known is None:
            # The callback is C code only: an error that a signal handler raises in a callback's
            # Python code is lost.
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
    """The front of the function `derived` from `f` by a transformation in a mode, if it exists."""
    known = _shared.get(id(f))
    found = None if known is None or known[0]() is not f else known[1].get(derived)
    return None if found is None else found.front


def caches_of(owner: Any = None, path: tuple[Any, ...] = ()) -> list[Cache]:
    """The shared caches of everything derived from `path` under `owner`; without an owner, all of
    them."""
    with _shared_lock:
        if owner is None:
            return [cache for _, kept, _ in list(_shared.values()) for cache in kept.values()]
        known = _shared.get(id(owner))
        kept = {} if known is None else known[1]
        return [cache for at, cache in kept.items() if at[: len(path)] == path]
