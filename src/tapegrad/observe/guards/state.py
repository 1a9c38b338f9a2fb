"""The state that a trace depends on: the guards on captured state that a later call checks.

A trace fixes the values that the function found when it ran: numbers, strings and flags in its
closure, globals, defaults and attributes, and which arrays were in these places. The run is
observed (see `observe`); `State.holds` tells at a later call whether all of that is unchanged. If
not, the function is traced anew.

The contents of an array that met traced values need no guard: the array is an input of the tape.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from tapegrad.core.handlers import let_through
from tapegrad.core.locks import cached_property
from tapegrad.observe.guards.locations import as_before
from tapegrad.observe.guards.one_time import difference, failing, hold_now
from tapegrad.observe.guards.package_calls import answers
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.objects.comparing import HELPERS


class State:
    """The guards on a function's captured state: `holds(f, args, kwargs)` tells whether they still
    hold.

    `never` names a read that can't be compared, if there was one: then the guards hold at no call.
    `sites` are the places where the function calls installed packages, `inside` what these have
    read.
    """

    def __init__(
        self, reads: Reads, f: Any, args: Any, kwargs: Any, sites: Sequence[Any] = ()
    ) -> None:
        reads.finish()
        self.never, self.advice = reads.never, reads.advice
        self.where, self.of_packages = reads.where, reads.of_packages
        self.followed = reads.followed
        self.asks, self.called, self._lines = reads.asks, reads.called, reads.lines
        self.sites, self.inside = sites, reads.inside
        self._read = list(dict.fromkeys(reads.guards))
        self._values = {**reads.values, **HELPERS}
        if not self.never:
            with as_before([w for key, w in reads.written.items() if key in reads.kept]):
                if not hold_now(self._read, self._values, f, args, kwargs):
                    # the run itself has changed a value that it had read
                    self.never = self.broken(f, args, kwargs) or "something"
        self._later: list[tuple[str, str]] = []
        if reads.later and not self.asks:
            self._later = list(dict.fromkeys([g for g in self._read if not g[1]] + reads.later))
            if [*failing(self._later, self._values, f, args, kwargs)]:
                self._later = []

    @property
    def values(self) -> Collection[Any]:
        """The values that the guards compare with."""
        return [x for name, x in self._values.items() if name not in HELPERS]

    @cached_property
    def _guards(self) -> list[tuple[str, str]]:
        return in_place(self._read, self.followed)

    @property
    def count(self) -> int:
        """The number of conditions."""
        return sum(bool(word) for _, word in self._read)

    @cached_property
    def holds(self) -> Callable[..., bool]:
        """The function that checks the guards. It is generated at the first check: a function that
        is called once needs none."""
        return _fails if self.never else self._generated()

    @cached_property
    def objects(self) -> Callable[..., tuple[Any, ...]]:
        """A function that returns the objects listed in `followed` at a later call, where the
        guards hold."""
        lines = [f"    {line}" for line, word in self._guards if not word]
        text = ["def objects(f, args, kwargs=None):", *lines]
        text += [f"    return ({''.join(f'{name}, ' for name in self.followed)})"]
        names = dict(self._values)
        exec(_compiled("\n".join(text)), names)
        found: Callable[..., tuple[Any, ...]] = names.pop("objects")
        return found

    def _generated(self) -> Callable[..., bool]:
        text = ["def holds(f, args, kwargs=None):", "    try:"]
        text += ["        renew()"] if self.asks else []
        for line, word in self._guards:
            text.append(f"        if not ({line}): return False" if word else f"        {line}")
        # An object may be gone, or of another class: then the guards don't hold either.
        text += ["        return True", "    except Exception as error:"]
        text += ["        let_through(error)", "        return False"]
        names = {**self._values, "let_through": let_through, "renew": answers.renew}
        exec(_compiled("\n".join(text)), names)
        holds: Callable[..., bool] = names.pop("holds")  # its own globals would hold it in a cycle
        return holds

    def lines(
        self, given: dict[str, str], named: Callable[[str, Any], str], fresh: Callable[[str], str]
    ) -> list[tuple[str, bool]]:
        """The guards as lines of another function, each with whether it is a condition.

        `given` maps the parameters of `holds` to that function's names; `named` returns a name
        there for a value, and `fresh` one for a variable.
        """
        told = dict(given)

        def said(found: re.Match[str]) -> str:
            word = found[0]
            if word not in told and word in self._values:
                told[word] = named(word, self._values[word])
            elif word not in told and (_PLACE.fullmatch(word) or word in self.followed):
                told[word] = fresh(word)
            return told.get(word, word)

        return [(_WORD.sub(said, line), bool(word)) for line, word in self._guards]

    def broken(self, f: Any, args: Any, kwargs: Any) -> str:
        """The user's name for the first value that has changed; empty if none has."""
        if self.never:
            return self.never
        return next((word for _, word in self._failing(f, args, kwargs)), "")

    def difference(self, f: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
        """The same with the old and the new value as texts, where known."""
        if self.never:
            return self.never, "", ""
        return difference(self._read, self._values, f, args, kwargs)

    def changed_by_telling(
        self, f: Any, args: Any, kwargs: Any, again: bool
    ) -> tuple[str, str, str]:
        """The user's name for the first value that a function that the call has told values has
        changed, though the traced function reads it after that, or begins `again`; its old and
        new value."""
        guards = self._later if not again else [] if self.asks or self.never else self._read
        return difference(guards, self._values, f, args, kwargs) if guards else ("", "", "")

    def _failing(self, f: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, str]]:
        """Yield the guards that don't hold, up to one that raises an error, with the user's names.
        The whole check is tried first, as in most cases it holds: another path was taken, and no
        read has changed."""
        if not (self.never or self.asks) and self.holds(f, args, kwargs):
            return
        yield from failing(self._read, self._values, f, args, kwargs)

    def learn(self, f: Any, args: Any, kwargs: Any) -> None:
        """Note that a call has found another state: numbers that have changed become inputs at the
        next trace, where the same instructions look them up."""
        if self._lines and not self.never:
            for line, _ in self._failing(f, args, kwargs):
                places, place = self._lines.get(line, (set(), 0))
                places.add(place)


@lru_cache(maxsize=128)
def _compiled(text: str) -> CodeType:
    """The compiled code of guards, which is the same for many paths through a function."""
    return compile(text, "<string>", "exec")


def in_place(guards: list[tuple[str, str]], kept: Collection[str] = ()) -> list[tuple[str, str]]:
    """The guards with each place that is used once inlined into its use, and without places that no
    guard uses, except the names in `kept`."""
    guards = list(dict.fromkeys(guards))
    uses = Counter(name for line, _ in guards for name in _PLACE.findall(line))
    texts: dict[str, str] = {}
    found = []
    for line, word in guards:
        line = _PLACE.sub(lambda m: texts.get(m[0], m[0]), line)
        name, equals, text = line.partition(" = ")
        if (
            equals and not word and uses[name] <= 2 and name not in kept
        ):  # its definition and one use
            texts[name] = text
        else:
            found.append((line, word))
    return found


_WORD = re.compile(r"(?<![\w.'\"])[a-z_]\w*\b")
_PLACE = re.compile(r"(?<![\w.'\"])x\d+\b")  # no attribute and no key of that name


def _fails(f: Any, args: Any, kwargs: Any = None) -> bool:
    return False
