"""Identity of objects: in a trace the arguments aren't the objects that the caller has passed.

Arrays and numbers are replaced by tracers, and lists, dicts and dataclasses by copies that hold
these. So one object outside may be two in the run, and a write to one isn't seen in the other.
True, False, NumPy's two and Python's small integers are one object each, however they are computed.
For a traced one, the value determines the object, and is guarded.
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
from tapegrad.observe.objects.purity import CONTAINERS
from tapegrad.observe.program.source import at_line
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Value

_IMMUTABLE = (tuple, frozenset)


def _nothing(error: TapegradError) -> None:
    """The `refuse` after the run: do nothing."""


class Identities:
    """Maps the values of a run to the caller's objects, and guards identities that matter."""

    def __init__(
        self,
        reads: Reads,
        refuse: Callable[[TapegradError], None],
        label: str,
        arguments: tuple[Sequence[Any], dict[str, Any]],
    ) -> None:
        self.reads, self.refuse, self.label, self.arguments = reads, refuse, label, arguments
        self._given: dict[int, tuple[Any, int]] = {}  # traced arguments: leaves and numbers
        self._copies: dict[int, tuple[Any, Any, str]] = {}  # copies, originals, and where these are
        self._changed: dict[int, str] = {}  # copies that were written to, and the line
        self._inside: dict[int, Any] = {}  # the outer values of tracers of inner runs
        self._carried: set[int] = set()  # ids of tracers that a loop carries from round to round
        self.matter = True  # whether a function that is passed an object may read its identity

    def taken(self, x: Any) -> None:
        """Record that a function is passed an object."""
        if self.matter:
            self.reads.pin(x)

    @contextmanager
    def aside(self, aside: bool = True) -> Iterator[None]:
        """A context in which functions read the contents of objects alone, and not their
        identity."""
        before, self.matter = self.matter, self.matter and not aside
        try:
            yield
        finally:
            self.matter = before

    def given(self, tracer: Any, leaf: Any, k: int) -> None:
        """Record that `tracer` represents leaf number `k` of the arguments."""
        self._given[id(tracer)] = leaf, k

    def go_in(self, tracers: Sequence[Any], leaves: Sequence[Any]) -> None:
        """Record that another function is traced inside the run, as for an inner derivative:
        `tracers` represent the leaves of its arguments."""
        for tracer, leaf in zip(tracers, leaves, strict=True):
            if tracer is not leaf:
                self._inside[id(tracer)] = leaf

    def carries(self, tracers: Sequence[Any]) -> None:
        """Record that one round of a loop is traced for all, with these tracers as loop-carried
        values. Their identity in another round isn't known."""
        self._carried.update(map(id, tracers))

    def go_out(self, tracers: Sequence[Any]) -> None:
        """Undo `go_in` or `carries`."""
        for tracer in tracers:
            self._inside.pop(id(tracer), None)
            self._carried.discard(id(tracer))

    def copied(self, copies: tuple[Sequence[Any], dict[str, Any]]) -> None:
        """Record that the function is passed these copies of the arguments."""
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
        """The value of `x is y` in plain Python, which the tape assumes. Tracers of one array that
        was passed twice are two objects. `users` is whether the user's code compares; libraries
        compare plain numbers and texts for speed alone."""
        if x is not y and self._carried and (self._is_carried(x, y) or self._is_carried(y, x)):
            known = same_single(x, y)
            if known is None:
                self.refuse(_carried(self.label))
            return bool(known)
        x, y = self._around(x), self._around(y)
        one, other = self.reads.place(x), self.reads.place(y)
        if one is not None and other is not None:  # each place is distinguished from others
            if x is not y and (one.like or other.like):
                self.reads.differ(self.reads.named(one), self.reads.named(other))
        elif type(x) is type(y):  # only equal types can be identical
            self.reads.pin(x)
            self.reads.pin(y)
        known = same_single(x, y)
        if known is not None:
            return known
        if self._is_chance(x, y):
            traced = isinstance(x, Value) or isinstance(y, Value)
            if users or traced:
                self.reads.use_once("which of two equal numbers it is")
            first, second = self.original(x), self.original(y)
            if traced and type(first) is int and first == second and first is not second:
                self.refuse(_large(self.label))  # one may be computed from the other
            elif self._may_be_returned(first, second):
                self.refuse(_large(self.label))
            return first is second
        if x is y:
            return True
        if self._may_be_returned(x, y):
            self.refuse(_large(self.label))
            return False
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
        """Whether `x` is loop-carried, and may be `y` in some round: `y` is loop-carried, too, or
        existed before the loop."""
        if id(x) not in self._carried or not isinstance(y, (Value, np.ndarray)):
            return False
        return id(y) in self._carried or getattr(y, "_trace", None) is not x._trace

    def _is_chance(self, x: Any, y: Any) -> bool:
        """Whether numbers or texts like these, if equal, may be one object or two, which no guard
        can tell: at a later call only their values are known. A computed value is a new object."""
        values = [v for v in (x, y) if not isinstance(v, Value)]
        known = [self.original(v) for v in (x, y)]
        kinds = {type(v) for v in known}
        return bool(values) and len(kinds) == 1 and kinds <= _ONE_OR_TWO

    def _may_be_returned(self, *numbers: Any) -> bool:
        """Whether one of two equal integers is computed by an operation that may return its
        operand, as abs(n) and n % m do: its value doesn't tell whether it is a new object."""
        return all(_single_kind(x) is int for x in numbers) and any(
            isinstance(x, Value) and id(x) not in self._given and not _is_new(x) for x in numbers
        )

    def sought(self, x: Any, held: Sequence[Any]) -> None:
        """Record `x in held`: an object that is identical is found even if it is NaN."""
        for y in held:
            traced = isinstance(x, Value) or isinstance(y, Value)
            if traced and x is not y and (_is_nan(x) or _is_nan(y)) and self.same(x, y):
                self.refuse(_no_number(self.label))

    def _around(self, x: Any) -> Any:
        """The value in the observed run of a value of an inner run."""
        while id(x) in self._inside:
            x = self._inside[id(x)]
        return x

    def original(self, x: Any) -> Any:
        """The caller's object that an argument, or a part of one, represents; else `x` itself."""
        x = self._around(x)
        known = self._given.get(id(x)) or self._copies.get(id(x), (x, x))[1:]
        return known[0]

    def as_given(self, x: Any, number: Any) -> Any:
        """The plain number of a traced one: of an argument, the caller's object."""
        found = self.original(x)
        return found if type(found) is type(number) and found == number else number

    def number_of(self, x: Any) -> int:
        """The value of `id(x)` in plain Python."""
        self.reads.pin(x)
        single = single_of(x)
        found = self.original(x) if single is None else single
        if found is not x and single is None:
            self.reads.use_once("the identity of an argument")
        return id(found)

    def _outside(self, x: Any) -> tuple[Any, str] | None:
        """The caller's object that a value represents, and the path by which a later call finds
        it."""
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
        """Record that a list, dict or dataclass is about to change."""
        if id(x) in self._copies:
            self._changed.setdefault(id(x), at_line())

    def finish(self) -> None:
        """Check the copies that were written to: guard that the originals are found nowhere else,
        and refuse if one is."""
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
        """Release all references that were held to keep ids unique."""
        self._given.clear()
        self._inside.clear()
        self._carried.clear()
        self._copies.clear()
        self.arguments = (), {}
        self.refuse = _nothing  # it is a method of the object that holds this


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


def _is_new(x: Any) -> bool:
    """Whether a traced integer is computed by one of the operations `_NEW`."""
    call = x._trace.made_by(x._read()[0])
    return call is not None and call.primitive in _NEW


def _is_nan(x: Any) -> bool:
    if isinstance(x, Value):
        x = x._read()[1]  # type: ignore[attr-defined]
    return isinstance(x, (float, np.floating)) and bool(x != x)


# ---- objects that are unique for their value

_ONE_OR_TWO = {int, float, complex, str, bytes}
_SMALL = range(-5, 257)  # CPython has one object for each
_NEW = {ew.add, ew.sub, ew.mul, ew.neg}  # CPython makes a new object of each other integer
_WHAT = "which object a value is"


def same_single(x: Any, y: Any) -> bool | None:
    """Whether two objects are identical, where that follows from their values; else None."""
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
    """The unique object with a traced value's value, if there is one."""
    kind = _single_kind(x) if isinstance(x, Value) else None
    if kind is None or _is_either(x) or (kind is int and not _is_small(x)):
        return None
    return kind(_granted(x))


def _is_either(x: Any) -> bool:
    """Whether a number may be an integer or a float; then the trace is repeated without such
    values."""
    found = getattr(x, "_either", 0) > 1 if isinstance(x, Value) else False
    if found:
        x._trace.reconsidered = True
    return found


def _single_kind(x: Any) -> Any:
    """The type `bool`, `int` or NumPy's bool of a plain or traced value; None for other types."""
    if not isinstance(x, Value):
        return type(x) if type(x) in (bool, int, np.bool_) else None
    if x._weak:  # type: ignore[attr-defined]
        return {"b": bool, "i": int}.get(x.dtype.kind)
    if x._either > 1:  # type: ignore[attr-defined]
        return int
    if x.dtype != np.bool_ or x.shape or type(x._value) is np.ndarray:  # type: ignore[attr-defined]
        return None
    trace = x._trace  # type: ignore[attr-defined]
    if trace.mixed:  # the result may be Python's or NumPy's type
        trace.reconsidered = True
    return np.bool_


def _is_small(n: Any) -> bool:
    """Whether an integer is in `_SMALL`. If it isn't, that is guarded."""
    small = n._read()[1] in _SMALL
    if not small:
        _granted((n < _SMALL.start) | (n >= _SMALL.stop))
    return small


def _granted(x: Any) -> Any:
    """The value of a traced number, guarded from here on."""
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
