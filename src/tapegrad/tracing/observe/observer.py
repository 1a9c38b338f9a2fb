"""Which frames are followed, for how long, and what is noted of them.

`sys.settrace` has Python call back before each instruction of the user's frames. While tapegrad's
own code works it is paused. Where a debugger or a coverage tool has it already it stays theirs:
then nothing is seen, and the tape is used once.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, TypeVar

import numpy as np

from tapegrad.errors import TapegradError
from tapegrad.primitives.base import Value
from tapegrad.tracing.observe import frames
from tapegrad.tracing.observe.calls import called, name_of, root_called
from tapegrad.tracing.observe.harmless import (
    CONTAINERS,
    MAPPINGS,
    PLAIN,
    PLAIN_TYPES,
    home_of,
    is_inert,
    is_own,
    is_pythons_class,
    is_silent,
    is_users_file,
    operator_is_known,
)
from tapegrad.tracing.observe.instructions import Activation, program_of
from tapegrad.tracing.observe.lookups import Lookups
from tapegrad.tracing.observe.reads import ABSENT, Key, Place, Reads
from tapegrad.signature import describe
from tapegrad.tracing import randomness

F = TypeVar("F", bound=Callable[..., Any])
Then = Callable[[Any], None]


class _Here(threading.local):
    observer: Observer | None = None


_here = _Here()
_OWN, _SILENT, _FOLLOWED = "own", "silent", "followed"
_kinds: dict[CodeType, str] = {}


def _kind_of(frame: FrameType) -> str:
    """Whether the code of a frame knows what it reads, only tells something, or is followed."""
    code = frame.f_code
    known = _kinds.get(code)
    if known is not None:
        return known
    if code.co_filename.startswith("<"):  # made of a text, by dataclasses for instance
        own = frame.f_globals.get("__name__", "").partition(".")[0] in ("tapegrad", "numpy")
    else:
        own = is_own(code)
    found = _kinds[code] = _OWN if own else _SILENT if is_silent(code) else _FOLLOWED
    return found


class Observer:
    """Follows what runs in its context, in this thread, and notes what it reads."""

    def __init__(
        self, root: Any, args: Sequence[Any], kwargs: dict[str, Any], label: str = ""
    ) -> None:
        self.reads = Reads()
        self.label = label or describe(root)
        self.root = root
        self.home = home_of(file_of(root))
        self.lookups = Lookups(self.reads, self.home)
        self.captured: list[np.ndarray] = []  # arrays that became inputs of a tape
        self.refused: TapegradError | None = None
        self.quiet = False  # while something runs that knows what it does
        self.made_globals: list[dict[str, Any]] = []
        self.cells: dict[int, tuple[Place, int]] = {}
        self.made: set[CodeType] = set()  # of functions that were made on the way
        self._functions: dict[int, Any] = {}
        self._globals: dict[int, Place] = {}  # a function of each module, by the id of its names
        self._kinds: dict[type, None] = {}
        self._frame: FrameType | None = None
        self._outer: Observer | None = None
        self._reach(args, kwargs)

    # ---- the context

    def __enter__(self) -> Observer:
        self._outer, _here.observer = _here.observer, self
        return self

    def __exit__(self, *exc: object) -> None:
        _here.observer = self._outer

    def check(self) -> None:
        """Raise what was refused while the run was observed."""
        if self.refused is not None:
            raise self.refused

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A frame begins, or goes on: Python asks whether it is followed."""
        if self.quiet or _kind_of(frame) is not _FOLLOWED or self._is_inner(frame):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        address = frames.address_of(frame)
        function = frames.function_of(address)
        try:
            self._entered(frame, function)
        except Exception as error:
            self.fault(error)
        return Activation(self, frame, address, function).step

    def _is_inner(self, frame: FrameType) -> bool:
        """Whether somebody who isn't followed has called this for purposes of his own."""
        caller = frame.f_back
        while caller is not None and caller.f_trace is None:
            kind = _kind_of(caller)
            if kind is _SILENT or (kind is _OWN and not self._is_users(frame.f_code)):
                return True
            if kind is _OWN:
                return False
            caller = caller.f_back
        return False

    def fault(self, error: Exception) -> None:
        """An error of the observer's own: the tape is used once."""
        self.reads.lost(f"what tapegrad couldn't follow ({type(error).__name__}: {error})")
        if STRICT:
            self.refused = self.refused or InternalFault(repr(error)).with_traceback(
                error.__traceback__
            )

    # ---- functions

    def _reach(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The function and the objects among its arguments are where reading begins."""
        f = self.root
        self.reads.root(f, "f", name_of(f), like=False)
        if isinstance(f, MethodType):
            self.reads.root(f.__self__, "f.__self__", "self", like=False)
            self.reads.root(f.__func__, "f.__func__", name_of(f), like=False)
        root_called(self, f)
        for k, x in enumerate(args):
            self._argument(f"args[{k}]", x)
        for name, x in kwargs.items():
            self._argument(f"kwargs[{name!r}]", x)

    def _argument(self, text: str, x: Any) -> None:
        import dataclasses

        from tapegrad.trees import is_traced

        if isinstance(x, (*PLAIN, Value)) and type(x) in PLAIN_TYPES or is_traced(x):
            return
        if isinstance(x, dict):
            for key in x:
                self._argument(f"{text}[{self.reads.key(key)}]", x[key])
        elif isinstance(x, (list, tuple)):
            for k, element in enumerate(x):
                self._argument(f"{text}[{k}]", element)
        elif dataclasses.is_dataclass(x) and not isinstance(x, type):
            for field in dataclasses.fields(x):
                self._argument(f"{text}.{field.name}", getattr(x, field.name, None))
        else:
            self.reads.root(x, text, "an argument", like=not isinstance(x, (FunctionType, type)))
            if isinstance(x, MethodType):
                self.reads.found(f"{text}.__func__", x.__func__, x.__name__)
                self.reads.found(f"{text}.__self__", x.__self__, x.__name__)

    def _entered(self, frame: FrameType, function: Any) -> None:
        if function is None or id(function) in self._functions:
            return
        self._functions[id(function)] = function
        code = frame.f_code
        place = self.reads.place(function)
        if place is None:
            if code in self.made:
                return
            if not code.co_flags & _NEWLOCALS:
                return  # the body of a class or module, or a text that is run
            if not self.lookups.where(function, list(self._kinds)):
                back = frame.f_back
                if self._is_users(code) and (back is None or _kind_of(back) is not _OWN):
                    self.reads.lost(name_of(function))
                    return
            place = self.reads.place(function) or self.reads.constant(function, name_of(function))
        users = self._is_users(code)
        if users:
            word = name_of(function)
            self.reads.read(place, "code", "{}.__code__", code, word)
            given = function.__defaults__ or ()
            names = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
            for k, (name, x) in enumerate(zip(names, given, strict=True)):
                self.reads.read(place, ("default", k), f"{{}}.__defaults__[{k}]", x, f"{name}=")
            for name, x in (function.__kwdefaults__ or {}).items():
                text = f"{{}}.__kwdefaults__[{name!r}]"
                self.reads.read(place, ("default", name), text, x, f"{name}=")
        for k, cell in enumerate(function.__closure__ or ()):
            self.cells.setdefault(id(cell), (place, k))
        if users:
            self._globals.setdefault(id(function.__globals__), place)

    def _is_users(self, code: CodeType) -> bool:
        return is_users_file(code.co_filename, self.home)

    def globals_place(self, held: dict[str, Any]) -> Place:
        """The place of a module's names."""
        place = self.reads.place(held)
        if place is None:
            function = self._globals.get(id(held))
            if function is not None:
                place = self.reads.part(function, "{}.__globals__", held, "a global")
            else:
                place = self.reads.constant(held, "a global")
        return place

    def frame_globals(self) -> dict[str, Any]:
        """The names of the module whose code is running."""
        return self._frame.f_globals if self._frame is not None else {}

    def cell(self, cell: Any, name: str, function: Any) -> None:
        """What a cell holds is read."""
        known = self.cells.get(id(cell))
        if known is None:
            return  # made on the way
        place, k = known
        try:
            value = cell.cell_contents
        except ValueError:
            return  # Python raises
        self.reads.read(place, ("cell", k), f"{{}}.__closure__[{k}].cell_contents", value, name)

    def name(self, held: dict[str, Any], name: str) -> None:
        """A global name is read."""
        place = self.reads.place(held)
        if place is None:
            if any(held is made for made in self.made_globals):
                return
            place = self.globals_place(held)
        users = is_users_file(held.get("__file__"), self.home) or "__file__" not in held
        if name not in held:
            if users:
                self.reads.absent(place, name, "{}")
            return
        value = held[name]
        if users or self.lookups.is_data(None, value):
            self.reads.read(place, ("item", Key(name)), f"{{}}[{name!r}]", value, name)

    # ---- what is taken, looked up, changed

    def kind(self, x: Any) -> None:
        """Objects of this class took part, so Python may call methods of it by itself."""
        self._kinds[type(x)] = None
        if isinstance(x, type):
            self._kinds[x] = None

    def taken(self, values: Iterable[Any], whole: bool = False) -> Then | None:
        """Something harmless may read all of these values, but for arrays that become inputs of a
        tape on the way: that is known when it is done."""
        arrays: list[np.ndarray] = []
        self._take(values, arrays, whole, set())
        if not arrays:
            return None
        start = len(self.captured)

        def then(result: Any) -> None:
            met = self.captured[start:]
            for x in arrays:
                if not any(np.may_share_memory(x, m) for m in met):
                    for place in self.reads.arrays_of(x):
                        self.reads.contents(place)

        return then

    def _take(
        self, values: Iterable[Any], arrays: list[np.ndarray], whole: bool, seen: set[int]
    ) -> None:
        reads = self.reads
        for x in values:
            kind = type(x)
            if kind in PLAIN_TYPES or isinstance(x, (Value, np.generic, np.ufunc)):
                continue
            if isinstance(x, np.ndarray):
                if reads.arrays_of(x):
                    arrays.append(x)
                continue
            if id(x) in seen:
                continue
            seen.add(id(x))
            place = reads.place(x)
            if kind in CONTAINERS or isinstance(x, (dict, list, tuple, set, frozenset)):
                if place is not None:
                    self._take(reads.items(place), arrays, whole, seen)
                elif kind not in (set, frozenset):
                    self._take(list(x.values() if isinstance(x, dict) else x), arrays, whole, seen)
                self._kinds[kind] = None
            elif kind is slice or isinstance(x, type) or kind in _NOTHING:
                self.kind(x)
            elif is_pythons_class(kind):
                self.kind(x)
                reads.pin(x)
                if whole:
                    own = self.lookups.whole_object(x) if place is not None else []
                    self._take(own or list(getattr(x, "__dict__", {}).values()), arrays, whole, seen)
            elif place is not None and not is_inert(kind):
                if isinstance(x, (bytearray, memoryview)) or kind.__name__ == "array":
                    reads.read(place, "bytes", f"bytes({{}}) == {reads._value(bytes(x))}", True, "")
                elif not callable(x):
                    reads.lost(place.word)

    def read_all(self, x: Any) -> None:
        """All of a value is read."""
        note = self.taken([x])
        if note is not None:
            note(None)

    def operands(self, values: Iterable[Any]) -> Then | None:
        """An operator of Python works on these values."""
        special = []
        for x in values:
            kind = type(x)
            if kind in PLAIN_TYPES or isinstance(x, Value) or x is frames.MISSING:
                continue
            if not operator_is_known(kind):
                place = self.reads.place(x)
                self.reads.lost(place.word if place is not None else f"a {kind.__name__}")
            special.append(x)
        return self.taken(special) if special else None

    def shallow(self, x: Any) -> None:
        """The items of a container are read, and not what they hold."""
        place = self.reads.place(x)
        if place is not None:
            for _ in self.reads.items(place):
                pass

    def item(self, x: Any, key: Any) -> Then | None:
        """One item of a container is looked up."""
        place = self.reads.place(x)
        key = _plain_key(key)
        if place is None:
            return None
        if isinstance(key, slice):
            return self.taken([x])
        self.reads.pin(key)
        self.kind(key)
        at, text = ("item", Key(key)), self.reads.key(key)
        if type(x) in MAPPINGS:
            try:
                found = key in x
            except TypeError:
                return None  # Python raises
            if not found:
                if type(key) is str and isinstance(x, dict):
                    self.reads.absent(place, key, "{}")
                else:
                    self.reads.read(place, ("absent", Key(key)), f"{text} not in {{}}", True, "")
                if hasattr(type(x), "__missing__"):
                    self.changes(x)
                return None
        try:
            value = x[key]
        except (IndexError, KeyError, TypeError):
            return self.taken([x])
        self.reads.read(place, at, f"{{}}[{text}]", value, place.word)
        return None

    def element(self, x: np.ndarray, key: Any) -> Then | None:
        """Elements of an array are looked up; a view of it reads nothing."""
        places = self.reads.arrays_of(x)
        if not places:
            return None
        note = self.taken([x, key])

        def then(result: Any) -> None:
            if isinstance(result, np.ndarray) and np.may_share_memory(result, x):
                return
            own, known = self.reads.place(x), _index_text(key)
            if own is not None and known and isinstance(result, np.generic):
                self.reads.read(own, ("element", known), f"{{}}[{known}]", result, own.word)
            elif note is not None:
                note(result)

        return then

    def changes(self, x: Any) -> None:
        """A container or array is about to change."""
        if isinstance(x, Value):
            return
        if isinstance(x, np.ndarray):
            for place in self.reads.arrays_of(x):
                self.reads.before_change(place)
            return
        place = self.reads.place(x)
        if place is None or isinstance(x, (type, Value)):
            return
        if isinstance(x, (dict, list, set, bytearray)) or type(x) in CONTAINERS:
            self.reads.before_change(place)
        elif not is_pythons_class(type(x)):
            if not is_inert(type(x)):
                self.reads.lost(place.word)

    def stored(self, x: Any, name: str) -> None:
        """An attribute is about to be set or deleted."""
        place = self.reads.place(x)
        if isinstance(x, (Value, np.ndarray)) or (place is None and not isinstance(x, type)):
            return
        if place is None:
            place = self.reads.constant(x, name)
        found = getattr(type(x), name, None)
        if hasattr(type(found), "__set__") and not _is_slot(found):
            self.lookups.attribute(x, name)  # of a property: its setter is followed
            return
        self.reads.write(place, ("attr", name), f"{{}}.{name}", name)

    def pin_all(self, values: Iterable[Any]) -> None:
        for x in values:
            self.reads.pin(x)

    def same(self, x: Any, y: Any) -> None:
        """`x is y` is asked."""
        for value in (x, y):
            if not isinstance(value, Value):
                self.reads.pin(value)

    # ---- random numbers

    def draws(self, generator: Any) -> Then | None:
        """A method of a generator of random numbers is called."""
        if self.reads.place(generator) is None and not randomness.is_global(generator):
            return None  # made on the way, of a seed
        before = randomness.state_of(generator)

        def then(result: Any) -> None:
            if not randomness.same(before, randomness.state_of(generator)):
                self.refuse(randomness.drawn(self.label, generator))
            self.reads.lost(type(generator).__name__)

        return then

    def refuse(self, error: TapegradError) -> None:
        """What the trace ends with, unless something was refused before."""
        self.refused = self.refused or error


STRICT = False


class InternalFault(TapegradError):
    """The observer has a fault."""


_NEWLOCALS = 2
_NOTHING = (
    *(FunctionType, MethodType, type(len), type(sys), range),
    *(type(list.append), type(object.__init__), np.dtype, np.ufunc),
)


def _is_slot(x: Any) -> bool:
    import types

    return isinstance(x, (types.MemberDescriptorType, types.GetSetDescriptorType))


def _plain_key(key: Any) -> Any:
    """A traced number that is looked up is guarded, and stands for its value."""
    if isinstance(key, Value):
        value = key.read()[1]  # type: ignore[attr-defined]
        return value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    return key


def _index_text(key: Any) -> str:
    """A plain index as text; empty if it is of another kind."""
    if type(key) is int:
        return repr(key)
    if type(key) is tuple and all(type(k) is int for k in key):
        return repr(key)
    return ""


def file_of(f: Any) -> str:
    """The file that a function, method or callable object is defined in."""
    while isinstance(f, functools.partial):
        f = f.func
    code = getattr(f, "__code__", getattr(type(f).__call__, "__code__", None))
    return code.co_filename if isinstance(code, CodeType) else ""


# ---- pausing


def observer() -> Observer | None:
    """The observer of what runs in this thread."""
    return _here.observer


def unobserved(f: F) -> F:
    """A function of tapegrad's own, that does its work without being followed."""

    @functools.wraps(f)
    def paused(*args: Any, **kwargs: Any) -> Any:
        tracer = sys.gettrace()
        if tracer is None or _here.observer is None or tracer != _here.observer.enter:
            return f(*args, **kwargs)
        sys.settrace(None)
        try:
            return f(*args, **kwargs)
        finally:
            sys.settrace(tracer)

    return paused  # type: ignore[return-value]


class observed:
    """The user's code runs in this context, called by tapegrad's: it is followed."""

    def __enter__(self) -> None:
        self._starts = False
        here = _here.observer
        if here is None or sys.gettrace() == here.enter:
            return
        if sys.gettrace() is not None or not frames.readable():
            here.reads.lost("what a debugger or a coverage tool keeps from being observed")
            return
        self._starts = True
        sys.settrace(here.enter)

    def __exit__(self, *exc: object) -> None:
        if self._starts:
            sys.settrace(None)


def note_computed(values: Iterable[Any]) -> None:
    """tapegrad itself computes with these values, where no traced value is among them."""
    here = _here.observer
    if here is not None:
        for x in values:
            if isinstance(x, np.ndarray) and not isinstance(x, Value):
                for place in here.reads.arrays_of(x):
                    here.reads.contents(place)


def note_captured(x: np.ndarray) -> None:
    """An array from outside has become an input of a tape."""
    if _here.observer is not None:
        _here.observer.captured.append(x)


__all__ = ["Observer", "called", "program_of"]
