"""Places that a run writes to: attributes, items, cells, the ends of lists.

A place is an object and a key in it: `("attr", name)`, `("item", key)` of a dict or a list,
`("cell", number)` of a function; `END` of a list or a deque for values added there, and `START` of
a deque. `WHOLE` is a container in which anything may change.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import operator
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tapegrad.ir.tape import Source
from tapegrad.observe.objects.inspection import base_of, own_names, values
from tapegrad.observe.objects.purity import MAPPINGS, PLAIN_TYPES
from tapegrad.observe.program.source import user_source


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()
END = ("end", None)
START = ("start", None)
ENDS = (END, START)
WHOLE = ("whole", None)
ADDS = ("adds", "values to a list")  # the key of instructions and names that add to a list
ELEMENTS = ("elements", None)  # of an array
_MANY = (*ENDS, WHOLE)  # places of several values


@dataclass(eq=False)
class Location:
    """An object, its name in the guards, and the user's name for it.

    A `like` place may hold another object of the same class at a later call.
    """

    x: Any
    name: str
    word: str
    like: bool = False

    @property
    def grows(self) -> str:
        """Advice to the user where a run adds to a list, and reads all of it."""
        if type(self.x) not in (list, collections.deque):
            return ""
        return (
            f"It is longer at each call. If the last entries count alone, read {self.word}[-k:] "
            "for a fixed k; of all entries keep what is computed of them, a sum or the largest, "
            "in a variable of its own"
        )


@dataclass(eq=False)
class Write:
    """A place that was written to: its holder, its text in the guards, the user's name, the value
    before, and the first line that wrote. `added` is the number of values added at an end."""

    holder: Location
    at: Any
    text: str
    word: str
    before: Any
    src: Source | None
    added: int = 0
    deletes: bool = False  # an item has been deleted
    # The items when all of them became inputs, which each call sets again: see
    # `tracing.outside.state_inputs`.
    opened: list[Any] | None = None

    @property
    def x(self) -> Any:
        return self.holder.x

    @property
    def has_many(self) -> bool:
        """Whether `now` is a list of values."""
        return self.at in _MANY

    def now(self) -> Any:
        """The value of the place; if it `has_many`, the list of values that the run has put
        there."""
        if self.at is END:
            return list(self.x)[max(0, len(self.x) - self.added) :]
        if self.at is START:
            return list(self.x)[: self.added]
        if self.opened is not None:
            return [*self.x.items()] if isinstance(self.x, dict) else list(self.x)
        if self.at is WHOLE:
            known = set(map(id, values(self.before)))
            return [x for x in values(self.x) if id(x) not in known]
        return value_at(self.x, self.at)

    def put(self, value: Any) -> None:
        """Set the place to `value`; if it `has_many`, replace the values that the run has put
        there."""
        if not self.has_many:
            put_at(self.x, self.at, value)
            return
        if self.opened is not None:
            _fill(self.x, value)
            return
        others = {id(x): y for x, y in zip(self.now(), value, strict=True)}
        held, base = _copied(self.x), base_of(type(self.x))
        for key, x in held.items() if isinstance(held, dict) else enumerate(held):
            if others.get(id(x), x) is not x:
                base.__setitem__(self.x, key, others[id(x)])

    def held(self) -> list[Any]:
        """The items of a container, with their keys."""
        return [*self.x, *self.x.values()] if isinstance(self.x, dict) else list(self.x)

    def is_untouched(self) -> bool:
        """Whether all items became inputs, and none was replaced since."""
        if self.opened is None:
            return False
        now = self.held()
        return len(now) == len(self.opened) and all(map(operator.is_, now, self.opened))

    def is_as_before(self) -> bool:
        """Whether a container has the same contents as before."""
        before, now = self.before, _copied(self.x)
        if isinstance(now, set) or (isinstance(now, dict) and [*before] != [*now]):
            return bool(before == now) and isinstance(now, set)
        first, second = values(before), values(now)
        return len(first) == len(second) and all(
            a is b or (type(a) is type(b) and type(a) in PLAIN_TYPES and repr(a) == repr(b))
            for a, b in zip(first, second, strict=True)
        )

    def undo(self) -> None:
        """Restore the value from before the run."""
        if self.has_many:
            if len(self.x) != len(self.before) or not self.is_as_before():
                _fill(self.x, self.before)
        elif self.now() is not self.before:
            put_at(self.x, self.at, self.before)

    def redo(self, value: Any) -> None:
        """Set the place again to `value`, which the run has left there."""
        leave(self.x, self.at, value if self.has_many else [value])


def values_of(write: Write) -> list[Any]:
    """All values at the place of a write."""
    return values(write.x) if write.has_many else [write.now()]


def put_by(name: str, args: Sequence[Any]) -> tuple[int, Any] | None:
    """The number of values that a method call adds to a list or deque, and at which end. None for
    other methods."""
    kind: Any = type(args[0]) if args else None
    if kind not in (list, collections.deque):
        return None
    if name == "insert" and kind is list and len(args) == 3 and type(args[1]) is int:
        return None if args[1] else (1, START)
    if name not in ("append", "appendleft", "extend", "extendleft") or len(args) != 2:
        return None
    if name.startswith("extend") and type(args[1]) not in (list, tuple):
        return None
    count = len(args[1]) if name.startswith("extend") else 1
    return count, START if name.endswith("left") else END


def leave(x: Any, at: Any, values: Sequence[Any]) -> None:
    """Put the values that a run leaves at a place there."""
    if at is END:
        x.extend(values)
    elif at is START and isinstance(x, list):
        x[:0] = values
    elif at is START:
        x.extendleft(reversed(values))
    elif at is WHOLE:
        _fill(x, values)
    else:
        put_at(x, at, values[0])


def begun(holder: Location, at: Any, text: str, word: str) -> Write:
    """The record of a place that is about to be written to."""
    before = _copied(holder.x) if at in _MANY else value_at(holder.x, at)
    return Write(holder, at, text, word, before, user_source())


def before_writes(x: Any, writes: Mapping[Any, Write]) -> Any:
    """A container's contents before the run added values at its ends and set items."""
    ends = [writes[id(x), end] for end in (*ENDS, WHOLE) if (id(x), end) in writes]
    before = ends[0].before.copy()
    for (key, (what, at)), write in writes.items():
        if key != id(x) or what != "item":
            continue
        if write.before is ABSENT:
            before.pop(at.key, None)
        elif isinstance(before, list) or at.key in before:
            before[at.key] = write.before
    return before


def _copied(x: Any) -> Any:
    """The same values in a plain container, read by the built-in class's methods."""
    base = base_of(type(x))
    if base in MAPPINGS:
        return dict(base.items(x))
    return set(base.__iter__(x)) if base in (set, frozenset) else list(base.__iter__(x))


def _fill(x: Any, held: Any) -> None:
    """Replace the contents of a container by these values."""
    base = base_of(type(x))
    if base is list:
        list.__setitem__(x, slice(None), held)
    elif base is collections.deque:
        base.clear(x)
        base.extend(x, held)
    elif base in MAPPINGS:
        base.clear(x)
        for key, value in held.items() if isinstance(held, dict) else held:
            base.__setitem__(x, key, value)
    else:
        base.clear(x)
        base.update(x, held)


_FIELDS = (
    *(types.MemberDescriptorType, types.GetSetDescriptorType),
    type(vars(collections.namedtuple("_Pair", "first"))["first"]),
)


def value_at(x: Any, at: Any) -> Any:
    """The value of a place; ABSENT if there is none."""
    what, key = at
    if what == "item":
        if isinstance(x, dict):
            return dict.get(x, key.key, ABSENT)
        return x[key.key] if -len(x) <= key.key < len(x) else ABSENT
    if what == "length":
        return len(x)
    if what == "elements":
        return x
    if what == "answer":  # of a `Query`
        return x.number(key)
    if what == "cell":
        try:
            return x.__closure__[key].cell_contents
        except ValueError:
            return ABSENT
    own = x.__dict__ if isinstance(x, type) else own_names(x)
    if own is not None and key in own:
        return own[key]
    slot = inspect.getattr_static(type(x), key, ABSENT)
    if isinstance(slot, _FIELDS):
        return getattr(x, key, ABSENT)
    return ABSENT


def put_at(x: Any, at: Any, value: Any) -> None:
    """Set a place to this value, or delete it if that is ABSENT."""
    what, key = at
    if what == "item":
        if value is ABSENT and isinstance(x, dict):
            x.pop(key.key, None)
        elif value is not ABSENT:
            x[key.key] = value
    elif what == "elements":
        x[...] = value
    elif what == "cell":
        cell = x.__closure__[key]
        if value is ABSENT:
            del cell.cell_contents
        else:
            cell.cell_contents = value
    elif isinstance(x, (type, types.ModuleType)):
        delattr(x, key) if value is ABSENT else setattr(x, key, value)
    elif value is ABSENT:
        _in_c(x, "__delattr__")(x, key)
    else:
        _in_c(x, "__setattr__")(x, key, value)


def _in_c(x: Any, name: str) -> Any:
    """The method `name` of the first class in the MRO that defines it in C."""
    named = [vars(kind).get(name) for kind in type(x).__mro__]
    return next(f for f in named if isinstance(f, types.WrapperDescriptorType))


@contextlib.contextmanager
def as_before(writes: Sequence[Write]) -> Iterator[None]:
    """A context in which places have their values from before the run that has written to them."""
    left = [(write, write.now()) for write in writes]
    for write, _ in reversed(left):
        write.undo()
    try:
        yield
    finally:
        for write, value in left:
            write.redo(value)


def owner_of(x: np.ndarray) -> Any:
    """The object that an array's memory belongs to."""
    while isinstance(x, np.ndarray) and x.base is not None:
        x = x.base
    return x


def lies_in(x: np.ndarray, whole: np.ndarray) -> bool:
    """Whether an array lies within the memory of another one."""
    (low, high), (start, end) = byte_bounds(x), byte_bounds(whole)
    return start <= low and high <= end


# ---- arrays that functions write to

_WRITERS = (np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal)


def written(f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[np.ndarray]:
    """The arrays that a NumPy function writes to; it may read them, too."""
    out = kwargs.get("out")
    given = [*out] if isinstance(out, tuple) else [out]
    if isinstance(f, np.ufunc):
        given += args[f.nin :]
    elif any(f is x for x in _WRITERS):
        given += args[:1]
    return [x for x in given if isinstance(x, np.ndarray)]
