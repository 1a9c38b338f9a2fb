"""Places of the outside that a run writes to: attributes, items of dicts, cells, the ends of lists.

A place is an object and *where* in it: `("attr", name)`, `("item", key)`, `("cell", number)` of a
function, or `END` of a list, from where it ended before the run.
"""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from typing import Any

from tapegrad.ir.tape import Source


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()
END = ("end", None)


@dataclass(eq=False)
class Location:
    """An object of the outside, the name that the guards have for it, and the user's word for it.

    A `like` place may hold another object of the same class.
    """

    x: Any
    name: str
    word: str
    like: bool = False


@dataclass(eq=False)
class Write:
    """A place that was written to: the object, the text by which guards find it there, the user's
    word, what was there before, and the first line that wrote."""

    holder: Location
    at: Any
    text: str
    word: str
    before: Any
    src: Source | None

    @property
    def x(self) -> Any:
        return self.holder.x

    def now(self) -> Any:
        """What the place holds; of a list that was added to, what was added."""
        if self.at is END:
            return self.x[self.before :]
        return value_at(self.x, self.at)

    def put(self, value: Any) -> None:
        """Let the place hold this."""
        if self.at is END:
            self.x[self.before :] = value
        else:
            put_at(self.x, self.at, value)

    def undo(self) -> None:
        """Let it hold what it did before the run."""
        if self.at is END:
            del self.x[self.before :]
        elif self.now() is not self.before:
            put_at(self.x, self.at, self.before)


def value_at(x: Any, at: Any) -> Any:
    """What a place holds; ABSENT if there is nothing."""
    what, key = at
    if what == "item":
        return x.get(key.key, ABSENT)
    if what == "cell":
        try:
            return x.__closure__[key].cell_contents
        except ValueError:
            return ABSENT
    held = inspect.getattr_static(x, "__dict__", None)
    own = getattr(x, "__dict__", {}) if held is not None else {}
    if key in own:
        return own[key]
    slot = inspect.getattr_static(type(x), key, ABSENT)
    if isinstance(slot, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        return getattr(x, key, ABSENT)
    return ABSENT


def put_at(x: Any, at: Any, value: Any) -> None:
    """Let a place hold this value, or nothing."""
    what, key = at
    if what == "item":
        if value is ABSENT:
            x.pop(key.key, None)
        else:
            x[key.key] = value
    elif what == "cell":
        cell = x.__closure__[key]
        if value is ABSENT:
            del cell.cell_contents
        else:
            cell.cell_contents = value
    elif isinstance(x, (type, types.ModuleType)):
        delattr(x, key) if value is ABSENT else setattr(x, key, value)
    elif value is ABSENT:
        object.__delattr__(x, key)
    else:
        object.__setattr__(x, key, value)
