"""Which object it is: in a trace arguments are others than those that were passed.

Arrays and numbers are tracers, and lists, dicts and dataclasses are copies that hold these. So what
is one object outside may be two in the run, and a write to one of them is not seen in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tapegrad.core.instances import branches, is_instance
from tapegrad.core.locks import cached_property
from tapegrad.errors import TapegradError, UnsupportedError
from tapegrad.primitives.base import Value
from tapegrad.tracing.observe.harmless import CONTAINERS
from tapegrad.tracing.observe.reads import Reads
from tapegrad.tracing.source import at_line

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

    def given(self, tracer: Any, leaf: Any, k: int) -> None:
        """`tracer` stands for the leaf number `k` of the arguments."""
        self._given[id(tracer)] = leaf, k

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

    def same(self, x: Any, y: Any) -> None:
        """`x is y` is asked. Tracers of one array that was passed twice are two objects."""
        for value in (x, y):
            self.reads.pin(value)
        ours = {*self._given, *self._copies}
        if x is y or not (id(x) in ours or id(y) in ours):
            return
        first, second = self._outside(x), self._outside(y)
        if first is None or second is None:
            return
        if first[0] is second[0]:
            self.refuse(
                UnsupportedError(
                    f"{self.label} asks whether two values are one object{at_line()}, and both are "
                    "the same argument or array, which a trace takes for two. Pass a flag instead, "
                    "or compare their elements"
                )
            )
            return
        self.reads.differ(first[1], second[1])

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
        self._copies.clear()
        self.arguments = (), {}
        self.refuse = _nothing  # it is a method of who holds this


def _written_twice(label: str, kind: str, line: str) -> UnsupportedError:
    return UnsupportedError(
        f"{label} writes to a {kind}{line} that reaches it in two ways: it is passed twice, or "
        "passed and found outside. A trace takes these for two, so one wouldn't see what is "
        f"written to the other. Pass a copy: {kind}(x)"
    )
