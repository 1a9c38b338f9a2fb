"""What a run reads after it has come past a function that each call tells values.

    debug.callback(count, x)       # count changes o.calls
    return x * o.calls             # a trace doesn't call it, and finds the value from before

Such a function (see `tapegrad.debug`) may do anything, and is called when the tape is played. So
what is read after that is recorded again, though it is known; and a call checks when it is over
that this is still there.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from types import CodeType, FunctionType
from typing import Any

from tapegrad.core.listing import instructions_of, kept_by_code
from tapegrad.errors import UnsupportedError
from tapegrad.observe.guards.facts import Facts
from tapegrad.observe.guards.locations import ENDS, WHOLE, Write
from tapegrad.observe.program.source import at_source

Place = tuple[int, Hashable]  # the id of what holds it, and which of its places


class Later(Facts):
    """What is read, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.tells = False  # whether the run has come past such a function
        self.reread: list[tuple[Place, int, int]] = []  # what it reads after that: guards
        self.reached: dict[tuple[str, Any], None] = {}  # the names that these functions use
        self.late: set[Place] = set()  # what it looks up after that as an input
        self.written: dict[Place, Write] = {}
        self.mutated: dict[int, tuple[Any, Any]] = {}  # objects, with former arrays' contents
        self._first: dict[Place, Any] = {}
        self._whole: set[int] = set()
        self._plain_content: set[int] = set()

    def again(self) -> None:
        """Forget recorded reads: a call may have changed objects, so reads of them are recorded
        again."""
        for noted in (self._first, self._whole, self._plain_content):
            noted.clear()

    def told(self, f: Any, last: bool) -> None:
        """Note that the run comes past a function that each call tells values. It may change what
        is read from now on, and a trace doesn't call it; one that is called `last`, with
        cotangents, may not."""
        if isinstance(f, FunctionType):
            self.reached.update(dict.fromkeys(_used_by(f.__code__)))
        if not (self.tells or last):
            self.tells = True
            self.again()

    def takes_again(self, key: tuple[int, Hashable]) -> None:
        """Note that the run looks up a place that each call looks up before it begins."""
        if self.tells:
            self.late.add(key)

    def is_late(self, x: Any, at: Hashable) -> bool:
        """Whether the run looks up such a place after a function has been told values."""
        return (id(x), at) in self.late and not self._is_left((id(x), at))

    def _noted(self, key: tuple[int, Hashable], first: int) -> None:
        if self.tells:
            self.reread.append((key, first, len(self.guards)))

    def _is_left(self, key: tuple[int, Hashable]) -> bool:
        """Whether the run has written to a place, or may have."""
        number, at = key
        ends = {(number, end) for end in (WHOLE, *ENDS)}
        whole = at == WHOLE and any(k == number for k, _ in self.written)
        return (
            key in self.written or whole or number in self.mutated or bool(ends & {*self.written})
        )

    def used_and_written(self, label: str) -> UnsupportedError | None:
        """The refusal if the run writes to a place that such a function may use, by its name: it
        has all of a call's writes before it, or none."""
        for write in self.written.values() if self.reached else ():
            if _name_of(write) in self.reached:
                return UnsupportedError(
                    f"{label}: {write.word!r} is set{at_source(write.src)}, and a function that "
                    "tapegrad.debug calls has this name, too. It is called before all is set, or "
                    "after that. Pass it the value itself, debug.callback(f, x)"
                )
        return None

    @property
    def later(self) -> list[tuple[str, str]]:
        """The guards on what is read after that, and that the run doesn't write to."""
        found = [x for x in self.reread if not self._is_left(x[0])]
        return [self.guards[k] for _, first, end in found for k in range(first, end)]


@kept_by_code
def _used_by(code: CodeType) -> tuple[tuple[str, Any], ...]:
    """The kinds and names of what a code uses, with the codes inside it."""
    text = [i for i in instructions_of(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    found = [(_KINDS[i.opname], i.argval) for i in text if i.opname in _KINDS]
    found += [
        ("item", key.argval)
        for key, i in itertools.pairwise(text)
        if key.opname == "LOAD_CONST" and i.opname.endswith("_SUBSCR")
    ]
    inner = [x for x in code.co_consts if isinstance(x, CodeType)]
    return (*found, *[name for x in inner for name in _used_by(x)])


_KINDS = {
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"), "attr"),
    **dict.fromkeys(("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME"), "global"),
    **dict.fromkeys(("LOAD_DEREF", "STORE_DEREF"), "cell"),
}


def _name_of(write: Write) -> tuple[str, Any]:
    what, key = write.at[0], write.at[-1]
    if what == "item":
        what = "global" if "__builtins__" in write.x else "item"
        return what, key.key
    return what, write.word if what == "cell" else key
