"""What a run reads after it has come past a function that each call tells values.

    debug.callback(count, x)       # count changes o.calls
    return x * o.calls             # a trace doesn't call it, and finds the value from before

Such a function (see `tapegrad.debug`) may do anything, and is called when the tape is played. So
what is read after that is recorded again, though it is known; and a call checks when it is over
that this is still there.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tapegrad.observe.guards.facts import Facts
from tapegrad.observe.guards.places import ENDS, WHOLE, Write

Place = tuple[int, Hashable]  # the id of what holds it, and which of its places


class Later(Facts):
    """What is read, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.tells = False  # whether the run has come past such a function
        self.reread: list[tuple[Place, int, int]] = []  # what it reads after that: guards
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

    def told(self) -> None:
        """Note that the run comes past a function that each call tells values. It may change what
        is read from now on, and a trace doesn't call it: see `State.told`."""
        if not self.tells:
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

    @property
    def later(self) -> list[tuple[str, str]]:
        """The guards on what is read after that, and that the run doesn't write to."""
        found = [x for x in self.reread if not self._is_left(x[0])]
        return [self.guards[k] for _, first, end in found for k in range(first, end)]
