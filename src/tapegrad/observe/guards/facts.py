"""Conditions that a later call checks, as the lines of a generated function."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tapegrad.ir.tape import Source
from tapegrad.observe.objects.comparing import lasts
from tapegrad.observe.objects.naming import Key, is_name
from tapegrad.observe.program.source import is_in_package, line_in_trace


class Facts:
    """The lines, in order: assignments, and conditions with the user's name for the value that they
    read."""

    # The advice where a number has changed, and is read in a way in which no input can be: the next
    # trace has it as a constant.
    CHANGES = "Pass it as an argument"

    def __init__(self) -> None:
        self.guards: list[tuple[str, str]] = []
        self.values: dict[str, Any] = {}
        self.where: dict[str, Source | None] = {}  # lines of the program, by the user's names
        self.of_packages: set[str] = set()  # the names of values that packages' code reads
        self.advice = ""
        self.never = ""  # the name of the first read that can't be compared
        self.losses = 0  # the number of such reads
        self.asks = False  # whether the guards call functions of installed packages
        self.called: set[str] = set()  # their names
        # Where instructions look up numbers that could be inputs: by place, and by the guard's
        # text.
        self.sites: dict[tuple[int, Hashable], tuple[set[int], int]] = {}
        # What cached properties have stored in this run, by object or dict and name.
        self.remembered: dict[tuple[int, Hashable], Any] = {}
        self.lines: dict[str, tuple[set[Any], Any]] = {}

    def use_once(self, word: str, advice: str = "") -> None:
        """Record a read that can't be compared, or a call that can't be followed: no later call can
        use the tape. `advice` is for the user."""
        self.losses += 1
        if not self.never:
            self.never, self.advice = word or "something", advice
            self._at_line(self.never)

    @property
    def losing(self) -> Any:
        """The reason why no later call can use the tape, with the advice. Can be restored to an
        earlier value."""
        return self.never, self.advice

    @losing.setter
    def losing(self, before: Any) -> None:
        self.never, self.advice = before

    def _at_line(self, word: str) -> None:
        """Record the line of the user's program that is running, for this name."""
        if word and word not in self.where:
            self.where[word] = line_in_trace()
            if is_in_package():
                self.of_packages.add(word)

    def _fact(self, text: str, word: str) -> None:
        self.guards.append((text, word or "something"))
        self._at_line(word)

    def _is_absent(self, holder: Any, keys: str, name: str) -> None:
        """Guard that a name is absent. If a cached property has stored a value of this run there,
        guard that it is still stored: a call that isn't traced wouldn't store it again."""
        same = f"{self.key(name)} not in {keys}"
        at = id(holder), ("item", Key(name)) if isinstance(holder, dict) else ("attr", name)
        if at in self.remembered:
            kept = f"{keys}[{self.key(name)}] is {self._value(self.remembered[at])}"
            same = f"{self.key(name)} in {keys} and {kept}"
        self._fact(same, name)

    def _assigned(self, text: str) -> str:
        """A name for the value of an expression in the guards."""
        if text.isidentifier():
            return text
        name = f"x{len(self.guards)}"
        self.guards.append((f"{name} = {text}", ""))
        return name

    def _value(self, x: Any) -> str:
        """A name for a value in the guards."""
        name = f"v{len(self.values)}"
        self.values[name] = x
        return name

    def key(self, key: Any) -> str:
        """The text of a key in the guards."""
        plain = type(key) in (int, bool) or (type(key) is str and is_name(key))
        return repr(key) if plain else self._value(key)

    def _plain(self, text: str, x: Any, word: str) -> None:
        if x is None or x is True or x is False or x is ...:
            self._fact(f"({text}) is {x if x is not ... else '...'}", word)
            return
        name = text if text.isidentifier() else self._assigned(text)
        value, kind = self._value(x), self._value(type(x))
        same = f"{name} is {value} or (type({name}) is {kind} and {name} == {value}"
        if isinstance(x, float):  # 0.0 is not -0.0
            same += f" and signbit({name}) == signbit({value})"
        elif isinstance(x, complex):
            same += f" and repr({name}) == repr({value})"
        self._fact(f"{same})", word)

    def _identical(self, name: str, x: Any, word: str) -> None:
        try:
            same = self._value(x) if lasts(x) else f"{self._value(weakref.ref(x))}()"
        except TypeError:
            same = self._value(x)
        self._fact(f"{name} is {same}", word)

    def differ(self, first: str, second: str) -> None:
        """Guard that two expressions are different objects."""
        self._fact(f"{first} is not {second}", "which objects are passed")

    def apart(self, names: Sequence[str], others: Sequence[str]) -> None:
        """Guard that the objects `names` differ from each other and from all of `others`. It is one
        guard, since the number of pairs is quadratic."""
        if len(names) + len(others) > 1:
            texts = [f"[{', '.join(some)}]" for some in (names, others)]
            self._fact(f"are_apart({', '.join(texts)})", "which objects are passed")

    def same_numbers(self, text: str, x: np.ndarray, word: str) -> None:
        """Guard the layout and contents of an array that is a new object at each look-up."""
        name, found = self._assigned(text), self._value((x.shape, x.dtype, x.strides))
        self._fact(f"({name}.shape, {name}.dtype, {name}.strides) == {found}", word)
        self._fact(f"same_bytes({name}, {self._value(x.tobytes())})", word)
