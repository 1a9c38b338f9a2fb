"""The state that a trace rests on: guards about the outside that a later call checks.

A trace holds what the function found when it ran: numbers, strings and flags among its closure, its
globals, its defaults and the attributes that it read, and which arrays these places had. The run is
observed (see `observe`); `State.holds` tells at a later call whether all of that is as it was. If
not, the function is traced anew.

What is in an array needn't be compared where it met traced values: it is an input of the tape then.
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
from tapegrad.observe.guards.checked import difference, failing, hold_now
from tapegrad.observe.guards.foreign import answers
from tapegrad.observe.guards.places import as_before
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.objects.comparing import HELPERS


class State:
    """Guards about what a function reaches: `holds(f, args, kwargs)` tells whether they still do.

    `never` says what took part that can't be compared, if something did: then they hold at no call.
    `sites` are where the function calls installed packages', and `inside` what these have read.
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
                    # the run itself has changed what it read
                    self.never = self.broken(f, args, kwargs) or "something"

    @property
    def values(self) -> Collection[Any]:
        """What the guards compare with."""
        return [x for name, x in self._values.items() if name not in HELPERS]

    @cached_property
    def _guards(self) -> list[tuple[str, str]]:
        return in_place(self._read, self.followed)

    @property
    def count(self) -> int:
        """How many conditions there are."""
        return sum(bool(word) for _, word in self._read)

    @cached_property
    def holds(self) -> Callable[..., bool]:
        """Whether the guards hold, as a function that is made when a later call asks: a function
        that is called once needs none."""
        return _fails if self.never else self._generated()

    @cached_property
    def objects(self) -> Callable[..., tuple[Any, ...]]:
        """What a later call asks for, in its places, where the guards hold."""
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
        # What was there may be gone, or of another kind: then the guards don't hold either.
        text += ["        return True", "    except Exception as error:"]
        text += ["        let_through(error)", "        return False"]
        names = {**self._values, "let_through": let_through, "renew": answers.renew}
        exec(_compiled("\n".join(text)), names)
        holds: Callable[..., bool] = names.pop("holds")  # which would hold itself by its globals
        return holds

    def lines(
        self, given: dict[str, str], named: Callable[[str, Any], str], fresh: Callable[[str], str]
    ) -> list[tuple[str, bool]]:
        """The guards as lines of another function, and which of them are conditions.

        `given` are its names for what `holds` is passed; `named` gives values their names there,
        and `fresh` variables.
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
        """What the user calls the first thing that has changed; empty if nothing has."""
        if self.never:
            return self.never
        return next((word for _, word in self._failing(f, args, kwargs)), "")

    def difference(self, f: Any, args: Any, kwargs: Any) -> tuple[str, str, str]:
        """The same, with what it was and what it is now, as texts, where these are known."""
        if self.never:
            return self.never, "", ""
        return difference(self._read, self._values, f, args, kwargs)

    def _failing(self, f: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, str]]:
        """The guards that don't hold, up to one that can't be asked, and the user's words. All at
        once are asked first: it is the path that changes mostly, and not what is read."""
        if not (self.never or self.asks) and self.holds(f, args, kwargs):
            return
        yield from failing(self._read, self._values, f, args, kwargs)

    def learn(self, f: Any, args: Any, kwargs: Any) -> None:
        """A call has found another state: numbers that are others now are inputs from now on, where
        the same instructions look them up."""
        if self._lines and not self.never:
            for line, _ in self._failing(f, args, kwargs):
                places, place = self._lines.get(line, (set(), 0))
                places.add(place)


@lru_cache(maxsize=128)
def _compiled(text: str) -> CodeType:
    """The code of guards, which is the same on many paths through a function."""
    return compile(text, "<string>", "exec")


def in_place(guards: list[tuple[str, str]], kept: Collection[str] = ()) -> list[tuple[str, str]]:
    """The guards, with places that are named for one use put where they are used, and without those
    that no guard uses, but for the names that are `kept`."""
    guards = list(dict.fromkeys(guards))
    uses = Counter(name for line, _ in guards for name in _PLACE.findall(line))
    texts: dict[str, str] = {}
    found = []
    for line, word in guards:
        line = _PLACE.sub(lambda m: texts.get(m[0], m[0]), line)
        name, equals, text = line.partition(" = ")
        if (
            equals and not word and uses[name] <= 2 and name not in kept
        ):  # where it is made, and once more
            texts[name] = text
        else:
            found.append((line, word))
    return found


_WORD = re.compile(r"(?<![\w.'\"])[a-z_]\w*\b")
_PLACE = re.compile(r"(?<![\w.'\"])x\d+\b")  # no attribute and no key of that name


def _fails(f: Any, args: Any, kwargs: Any = None) -> bool:
    return False
