"""Library code that reads variables of its callers, as `pandas.eval` does.

If it isn't followed, the names of the variables are in a text that it is passed. So all names in
such texts count as read in the program's frames above it. A repeated call is made in a frame with
the program's variables, and records which of them were read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.guards.queried import Leaf
from tapegrad.observe.objects.purity import INERT, is_own

_FRAMES = {"_getframe", "currentframe"}
_VARIABLES = {"f_locals", "f_globals"}
_NAME = re.compile(r"[^\W\d]\w*")
_known: dict[int, tuple[bool, CodeType]] = {}  # by the ids of codes, which are kept alive
CACHED_CODES = 100_000


def looks_back(code: CodeType) -> bool:
    """Whether code reads variables in frames above its own."""
    found = _known.get(id(code))
    if found is None:
        names = set(code.co_names)
        if len(_known) >= CACHED_CODES:
            _known.clear()
        found = _known[id(code)] = bool(names & _FRAMES and names & _VARIABLES), code
    return found[0]


def note_callers(o: RunRecord, frame: FrameType) -> None:
    """Record the variables that such code, which runs in this frame, may read."""
    names: set[str] = set()
    here: FrameType | None = frame
    while here is not None and not o.is_users(here):
        if is_own(here.f_code):
            return
        names.update(*map(names_in, here.f_locals.values()))
        here = here.f_back
    while here is not None and not is_own(here.f_code):
        if o.is_users(here):
            note_variables(o, here, [*names])
        here = here.f_back


def note_variables(o: RunRecord, frame: FrameType, texts: Any) -> None:
    """Record reads of a frame's variables whose names are in these texts."""
    for name in sorted(set(names_in(texts))):
        _variable(o, frame, name)


def names_in(x: Any) -> Iterator[str]:
    """The names in a text, or in several, that may be variables of a caller."""
    for text in x if isinstance(x, (list, tuple, set, dict)) else (x,):
        if type(text) is str:
            yield from _NAME.findall(text)


def _variable(o: RunRecord, frame: FrameType, name: str) -> None:
    """Record that all of the value of a frame's variable is read."""
    code, found = frame.f_code, frame.f_locals
    if name in code.co_freevars:
        function = getattr(getattr(frame.f_trace, "__self__", None), "function", None)
        if function is None:
            o.reads.use_once(name)
            return
        cell = function.__closure__[code.co_freevars.index(name)]
        o.cell(cell, name, function)
    elif name not in found:
        o.name(frame.f_globals, name)
        found = frame.f_globals
    if name in found and not INERT[type(found[name])]:
        o.read_all(found[name])


class Among(Leaf):
    """A call of `f` in a frame with these global names, and with the plain variables that are
    passed. `others` are the names of the rest: their presence may be queried, but they can't be
    used."""

    def __init__(self, f: Any, names: dict[str, Any], others: set[str]) -> None:
        self.f, self.names, self.others = f, names, others
        self.asked: set[str] = set()  # the names that were read
        self.uses_others = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Among) and self.f is other.f and self.names is other.names

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, variables: dict[str, Any], args: Sequence[Any], kwargs: Any) -> Any:
        others = {name: _Other(self.used) for name in self.others}
        held = _Variables({**variables, **others, _CALLED: (self.f, args, kwargs)})
        held.asked = self.asked
        found = eval(_CALL, self.names, held)
        if any(type(x) is _Other for x in (found if type(found) in (list, tuple) else (found,))):
            self.used()
        return found

    def used(self) -> None:
        """Record that one of the others was used."""
        self.uses_others = True


_CALLED = "the call"
_CALL = compile("CALLED[0](*CALLED[1], **CALLED[2])", "<asked anew>", "eval")
_CALL = _CALL.replace(co_names=(_CALLED,))  # no variable of the program has this name


class _Other:
    """Represents a variable that isn't plain. Its identity can be compared; any other use fails."""

    __slots__ = ("_used",)

    def __init__(self, used: Any) -> None:
        object.__setattr__(self, "_used", used)

    def __getattribute__(self, name: str) -> Any:
        object.__getattribute__(self, "_used")()
        raise AttributeError(name)

    def _using(self, *args: Any) -> Any:
        object.__getattribute__(self, "_used")()
        raise TypeError("a variable of the program's that isn't plain")

    __eq__ = __ne__ = __hash__ = __bool__ = __repr__ = __str__ = __setattr__ = _using
    __len__ = __iter__ = __call__ = __reduce_ex__ = _using


class _Variables(dict[str, Any]):
    """Variables that record which of them were read."""

    asked: set[str]

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def keys(self) -> Any:
        """The names of all variables, without counting as a read."""
        return {name: None for name in dict.keys(self) if name != _CALLED}.keys()

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def copy(self) -> Any:
        return dict(self.items())

    def clear(self) -> None:
        """Do nothing: a function's frame clears a copy of its variables."""
