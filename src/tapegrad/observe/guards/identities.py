"""Which object it is: in a trace arguments are others than those that were passed.

Arrays and numbers are tracers, and lists, dicts and dataclasses are copies that hold these. So what
is one object outside may be two in the run, and a write to one of them is not seen in the other.
True, False, NumPy's two and Python's small integers are one object each, however they come about:
of a traced one the value says which object it is, and is guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tapegrad.core.instances import branches, is_instance
from tapegrad.core.locks import cached_property
from tapegrad.errors import TapegradError, UnsupportedError
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.objects.harmless import CONTAINERS
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.base import Value

_IMMUTABLE = (tuple, frozenset)


def _nothing(error: TapegradError) -> None:
    """What is done when the run is over."""


class Identities:
    """Knows what the values of a run are outside, and notes where it matters."""

    def __init__(
        self,
        reads: Reads,
        refuse: Callable[[TapegradError], None],
        label: str,
        arguments: tuple[Sequence[Any], dict[str, Any]],
    ) -> None:
        self.reads, self.refuse, self.label, self.arguments = reads, refuse, label, arguments
        self._given: dict[int, tuple[Any, int]] = {}  # traced arguments, and their leaves
        self._copies: dict[int, tuple[Any, Any, str]] = {}  # copies, and what they are copies of
        self._changed: dict[int, str] = {}  # copies that were written to, and where
        self._inside: dict[int, Any] = {}  # what values of runs inside of this one stand for
        self._carried: set[int] = set()  # and those that a loop carries from round to round
        self.matter = True  # whether what is passed an object may ask which one it is

    def taken(self, x: Any) -> None:
        """Something is passed an object."""
        if self.matter:
            self.reads.pin(x)

    @contextmanager
    def aside(self, aside: bool = True) -> Iterator[None]:
        """What takes objects meanwhile takes them for what they hold."""
        before, self.matter = self.matter, self.matter and not aside
        try:
            yield
        finally:
            self.matter = before

    def given(self, tracer: Any, leaf: Any, k: int) -> None:
        """`tracer` stands for the leaf number `k` of the arguments."""
        self._given[id(tracer)] = leaf, k

    def go_in(self, tracers: Sequence[Any], leaves: Sequence[Any]) -> None:
        """Another function is traced in the course of the run, as an inner derivative's is: these
        stand for the leaves of its arguments."""
        for tracer, leaf in zip(tracers, leaves, strict=True):
            if tracer is not leaf:
                self._inside[id(tracer)] = leaf

    def carries(self, tracers: Sequence[Any]) -> None:
        """One round of a loop is traced for all, which is passed these. What they are in another
        round isn't known."""
        self._carried.update(map(id, tracers))

    def go_out(self, tracers: Sequence[Any]) -> None:
        """That is over."""
        for tracer in tracers:
            self._inside.pop(id(tracer), None)
            self._carried.discard(id(tracer))

    def copied(self, copies: tuple[Sequence[Any], dict[str, Any]]) -> None:
        """The function is passed these copies of the arguments."""
        args, kwargs = self.arguments
        pairs = [(f"args[{k}]", x, copies[0][k]) for k, x in enumerate(args)]
        pairs += [(f"kwargs[{self.reads.key(n)}]", x, copies[1][n]) for n, x in kwargs.items()]
        for text, x, copy in pairs:
            for where, original, one in self._mutable(text, x, copy):
                self._copies[id(one)] = one, original, where

    def _mutable(self, text: str, x: Any, copy: Any) -> Iterator[tuple[str, Any, Any]]:
        if copy is x or isinstance(copy, Value):
            return
        if isinstance(x, dict):
            parts = [(f"{text}[{self.reads.key(k)}]", x[k], copy[k]) for k in x]
        elif type(x) in CONTAINERS or isinstance(x, tuple):
            parts = [(f"{text}[{k}]", x[k], copy[k]) for k in range(len(x))]
        elif is_instance(x):
            both = zip(branches(x), branches(copy), strict=False)
            parts = [(said.format(text), part, other) for (said, part), (_, other) in both]
        else:
            return
        if not isinstance(x, _IMMUTABLE):
            yield text, x, copy
        for part in parts:
            yield from self._mutable(*part)

    def same(self, x: Any, y: Any, users: bool = True) -> bool:
        """What plain Python answers to `x is y`, as a tape takes it for granted. Tracers of one
        array that was passed twice are two objects. A library asks it of plain numbers and texts
        for speed alone; `users` says whether it is the user's code that asks."""
        if x is not y and self._carried and (self._is_carried(x, y) or self._is_carried(y, x)):
            known = same_single(x, y)
            if known is None:
                self.refuse(_carried(self.label))
            return bool(known)
        x, y = self._around(x), self._around(y)
        one, other = self.reads.place(x), self.reads.place(y)
        if one is not None and other is not None:  # each place is told apart from others
            if x is not y and (one.like or other.like):
                self.reads.differ(self.reads.named(one), self.reads.named(other))
        elif type(x) is type(y):  # which is known of each
            self.reads.pin(x)
            self.reads.pin(y)
        known = same_single(x, y)
        if known is not None:
            return known
        if self._is_chance(x, y):
            traced = isinstance(x, Value) or isinstance(y, Value)
            if users or traced:
                self.reads.lost("which of two equal numbers it is")
            first, second = self.original(x), self.original(y)
            if traced and type(first) is int and first == second and first is not second:
                self.refuse(_large(self.label))  # one may come of the other
            return first is second
        if x is y:
            return True
        if not (id(x) in self._given or id(x) in self._copies):
            x, y = y, x
        if not (id(x) in self._given or id(x) in self._copies):
            return False
        first, second = self._outside(x), self._outside(y)
        if first is None or second is None:
            return False
        if first[0] is second[0]:
            self.refuse(
                UnsupportedError(
                    f"{self.label} asks whether two values are one object{at_line()}, and both are "
                    "the same argument or array, which a trace takes for two. Pass a flag instead, "
                    "or compare their elements"
                )
            )
            return False
        self.reads.differ(first[1], second[1])
        return False

    def _is_carried(self, x: Any, y: Any) -> bool:
        """Whether `x` is carried from round to round, and may be `y` in one of them, which is
        carried, too, or there before the loop."""
        if id(x) not in self._carried or not isinstance(y, (Value, np.ndarray)):
            return False
        return id(y) in self._carried or getattr(y, "_trace", None) is not x._trace

    def _is_chance(self, x: Any, y: Any) -> bool:
        """Whether equal numbers or texts like these may be one object, or two, and no guard tells:
        of a later call all that counts is their values. What the run computes is new."""
        values = [v for v in (x, y) if not isinstance(v, Value)]
        known = [self.original(v) for v in (x, y)]
        kinds = {type(v) for v in known}
        return bool(values) and len(kinds) == 1 and kinds <= _ONE_OR_TWO

    def sought(self, x: Any, held: Sequence[Any]) -> None:
        """`x in held` is asked: what is the same object is found, though it be no number."""
        for y in held:
            traced = isinstance(x, Value) or isinstance(y, Value)
            if traced and x is not y and (_is_nan(x) or _is_nan(y)) and self.same(x, y):
                self.refuse(_no_number(self.label))

    def _around(self, x: Any) -> Any:
        """What a value of an inner run is in the run that is observed."""
        while id(x) in self._inside:
            x = self._inside[id(x)]
        return x

    def original(self, x: Any) -> Any:
        """The object of the caller's that an argument, or a part of one, is; else itself."""
        x = self._around(x)
        known = self._given.get(id(x)) or self._copies.get(id(x), (x, x))[1:]
        return known[0]

    def number_of(self, x: Any) -> int:
        """`id(x)`, as plain Python has it."""
        self.reads.pin(x)
        single = single_of(x)
        found = self.original(x) if single is None else single
        if found is not x and single is None:
            self.reads.lost("the identity of an argument")
        return id(found)

    def _outside(self, x: Any) -> tuple[Any, str] | None:
        """The object of the caller's that a value is, and where a later call finds it."""
        if id(x) in self._given:
            leaf, k = self._given[id(x)]
            return leaf, self._accessors[k].codify("(args, kwargs)")
        if id(x) in self._copies:
            return self._copies[id(x)][1:]
        place = self.reads.place(x)
        return None if place is None else (x, self.reads.named(place))

    @cached_property
    def _accessors(self) -> list[Any]:
        from tapegrad.core.trees import accessors

        return accessors(self.arguments)

    def changes(self, x: Any) -> None:
        """A list, dict or dataclass is about to change."""
        if id(x) in self._copies:
            self._changed.setdefault(id(x), at_line())

    def finish(self) -> None:
        """A copy was written to: what it is a copy of is found nowhere else, now and later."""
        outside = [p for p in list(self.reads.places.values()) if type(p.x) in self._kinds]
        written = {*self.reads.mutated, *(at[0] for at in self.reads.written)}
        for copy, original, text in self._copies.values():
            line = self._changed.get(id(copy))
            others = [(x, t) for c, x, t in self._copies.values() if c is not copy]
            if line is not None:
                others += [(p.x, self.reads.named(p)) for p in outside]
            elif id(original) in written:
                line, others = "", [(original, text)]
            else:
                continue
            for x, where in others:
                if x is original:
                    self.refuse(_written_twice(self.label, type(original).__name__, line))
                    return
                if type(x) is type(original):
                    self.reads.differ(text, where)

    @cached_property
    def _kinds(self) -> set[type]:
        return {type(original) for _, original, _ in self._copies.values()}

    def forget(self) -> None:
        """Drop what was held so that no id is given away."""
        self._given.clear()
        self._inside.clear()
        self._carried.clear()
        self._copies.clear()
        self.arguments = (), {}
        self.refuse = _nothing  # it is a method of who holds this


def _large(label: str) -> UnsupportedError:
    return UnsupportedError(
        f"{label} asks whether two equal integers are one object{at_line()}, which for integers as "
        "large as these depends on how they came about. Compare them: x == y"
    )


def _carried(label: str) -> UnsupportedError:
    return UnsupportedError(
        f"{label} asks in a loop's round whether what is carried is the same object as another "
        f"array or number{at_line()}. One round is traced for all, and the answer may differ from "
        "round to round. Carry a flag instead, or compare their elements"
    )


def _no_number(label: str) -> UnsupportedError:
    return UnsupportedError(
        f"{label} looks for an object in a list or tuple{at_line()}, and finds the same NaN, which "
        "a trace takes for another one. Use any(np.isnan(y) for y in ys)"
    )


def _is_nan(x: Any) -> bool:
    if isinstance(x, Value):
        x = x._read()[1]  # type: ignore[attr-defined]
    return isinstance(x, (float, np.floating)) and bool(x != x)


# ---- objects of which there is one for each value

_ONE_OR_TWO = {int, float, complex, str, bytes}
_SMALL = range(-5, 257)  # CPython has one object for each
_WHAT = "which object a value is"


def same_single(x: Any, y: Any) -> bool | None:
    """Whether two objects are one, where that follows from their values; None where it doesn't."""
    if x is y and isinstance(x, Value):
        return True
    if not (isinstance(x, Value) or isinstance(y, Value)):
        plain = type(x) is int and type(y) is int and (x in _SMALL or y in _SMALL)
        return x is y if plain else None
    kinds = _single_kind(x), _single_kind(y)
    if None in kinds:
        return None
    if kinds[0] is not kinds[1] or _is_either(x) or _is_either(y):
        return False
    equal: Any = x == y
    if not (_granted(equal) if isinstance(equal, Value) else equal):
        return False
    if kinds[0] is int and single_of(x) is None:
        return None
    return True


def single_of(x: Any) -> Any:
    """The object that a traced value stands for, if there is one for its value alone."""
    kind = _single_kind(x) if isinstance(x, Value) else None
    if kind is None or _is_either(x) or (kind is int and not _is_small(x)):
        return None
    return kind(_granted(x))


def _is_either(x: Any) -> bool:
    """Whether a number may be an integer or a float; then the trace is made again without."""
    found = getattr(x, "_either", 0) > 1 if isinstance(x, Value) else False
    if found:
        x._trace.reconsidered = True
    return found


def _single_kind(x: Any) -> Any:
    """`bool`, `int` or NumPy's, if it is an object of these, traced or not."""
    if not isinstance(x, Value):
        return type(x) if type(x) in (bool, int, np.bool_) else None
    if x._weak:  # type: ignore[attr-defined]
        return {"b": bool, "i": int}.get(x.dtype.kind)
    if x._either > 1:  # type: ignore[attr-defined]
        return int
    if x.dtype != np.bool_ or x.shape or type(x._value) is np.ndarray:  # type: ignore[attr-defined]
        return None
    trace = x._trace  # type: ignore[attr-defined]
    if trace.mixed:  # what comes of numbers that may be Python's or NumPy's is one of either
        trace.reconsidered = True
    return np.bool_


def _is_small(n: Any) -> bool:
    """Whether an integer is one of those. It is guarded, if it isn't known to be so."""
    small = n._read()[1] in _SMALL
    if not small:
        _granted((n < _SMALL.start) | (n >= _SMALL.stop))
    return small


def _granted(x: Any) -> Any:
    """The value of a traced number, which is taken for granted from here on."""
    x._trace.check_alive()
    found = x._scalar_value(_WHAT)
    x._trace.guard(x, found, _WHAT)
    return found


def _written_twice(label: str, kind: str, line: str) -> UnsupportedError:
    return UnsupportedError(
        f"{label} writes to a {kind}{line} that reaches it in two ways: it is passed twice, or "
        "passed and found outside. A trace takes these for two, so one wouldn't see what is "
        f"written to the other. Pass a copy: {kind}(x)"
    )
