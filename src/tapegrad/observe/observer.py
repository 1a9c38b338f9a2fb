"""The observer: it decides which frames are followed, and for how long.

`sys.settrace` has Python call back when a frame begins or ends, and `program/watching.py` before
each instruction of the user's frames. Following is paused while tapegrad's own code works. A
debugger or coverage tool that holds `sys.settrace` already keeps it: then nothing is observed, and
the tape is used once.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import BuiltinMethodType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, TypeVar

import numpy as np

from tapegrad.core.installed import file_of_function, is_installed, package_of
from tapegrad.core.named import own_attribute
from tapegrad.core.request import describe
from tapegrad.errors import TapegradError
from tapegrad.ir.tape import Guard, Source
from tapegrad.observe import garbage
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.answers.swapping import Names
from tapegrad.observe.followed_calls import root_called
from tapegrad.observe.guards.locations import owner_of
from tapegrad.observe.objects import randomness
from tapegrad.observe.objects.comparing import is_made_anew
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.objects.progress_bars import is_bars
from tapegrad.observe.objects.purity import INERT, PLAIN, PLAIN_TYPES, is_own, is_silent
from tapegrad.observe.packages.callers import looks_back, note_callers
from tapegrad.observe.packages.opaque import entered
from tapegrad.observe.program import frames, watching
from tapegrad.observe.program.signal_handlers import is_unasked
from tapegrad.observe.program.source import comes_back
from tapegrad.observe.programs import program_of
from tapegrad.observe.sides.branches import reached
from tapegrad.observe.unwatched_loops import closed_loops
from tapegrad.observe.waiting.logging_calls import told
from tapegrad.observe.waiting.threads import check_done
from tapegrad.primitives.base import Value

F = TypeVar("F", bound=Callable[..., Any])


class _Following(threading.local):
    observer: Observer | None = None
    unwatched = False  # whether a run is under way whose instructions aren't observed


following = _Following()
_gettrace, _settrace = sys.gettrace, sys.settrace
_OWN, _SILENT, _FOLLOWED = "own", "silent", "followed"
CACHED_CODES = 100_000  # maximal number of cached codes
# Keyed by the ids of codes, since hashing a code takes long. The values keep the codes alive.
_kinds: dict[int, tuple[str, CodeType]] = {}


def _kind_of(frame: FrameType) -> str:
    """The kind of a frame's code: `_OWN` (tapegrad's or NumPy's, whose reads are known), `_SILENT`
    (only reports something) or `_FOLLOWED`."""
    code = frame.f_code
    known = _kinds.get(id(code))
    if known is not None:
        return known[0]
    if code.co_filename.startswith("<"):  # generated from a text, by dataclasses for instance
        name = str(frame.f_globals.get("__name__", ""))
        module = sys.modules.get(name)  # `__name__` alone may be wrong
        its = getattr(module, "__dict__", None) is frame.f_globals
        own = its and name.partition(".")[0] in ("tapegrad", "numpy")
    else:
        own = is_own(code) or is_bars(code.co_filename)
    found = _OWN if own else _SILENT if is_silent(code) else _FOLLOWED
    if len(_kinds) >= CACHED_CODES:
        _kinds.clear()
    _kinds[id(code)] = found, code
    return found


def _muted(frame: FrameType, event: str, arg: Any) -> Any:
    """The mark of a frame that only reports something, and of the frames that it calls."""
    return _muted


def _passing(frame: FrameType, event: str, arg: Any) -> Any:
    """The mark of a frame whose reads are known, and of a library's frames that it calls."""
    return _passing


class Observer(RunRecord):
    """Follows the code that runs inside its context in this thread, and records what it reads."""

    def __init__(
        self, root: Any, args: Sequence[Any], kwargs: dict[str, Any], label: str = ""
    ) -> None:
        super().__init__(package_of(file_of(root)), label or describe(root), (tuple(args), kwargs))
        self.root, self.code = root, code_of(root)
        self.follower: Any = None  # the bound method `enter`, compared by `is`
        self.watched: dict[int, CodeType] = {}  # by id
        self._outer: Observer | None = None
        self._reach(args, kwargs)

    # ---- the context

    def __enter__(self) -> Observer:
        self.follower = self.enter
        self._outer, following.observer = following.observer, self
        self.is_nested = self._outer is not None
        garbage.postpone()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        following.observer = self._outer
        if not self.is_nested:
            garbage.go_on()
        raised = isinstance(error, Exception) and not isinstance(error, TapegradError)
        again = self.clocks.are_read and isinstance(error, (TapegradError, TypeError))
        if error is not None and (again or not raised):
            self.put_back()
        follower, self.follower = self.follower, None
        if sys.gettrace() is follower:  # an interrupt has kept `observed` from taking it away
            sys.settrace(None)
        watching.release(self.watched)
        if error is not None:
            self.forget()

    def check(self) -> None:
        """Raise the error that was stored while the run was observed."""
        self.identities.finish()
        check_done(self)
        for variable in +self.in_context:  # a context variable that stays set
            self.reads.use_once(variable.name)
        self.refused = self.refused or self.reads.used_and_written(self.label)
        if self.refused is not None:
            self.put_back()
            raise self.refused

    def put_back(self) -> None:
        """Undo the run: restore the generators that it drew from and the state that it changed."""
        for generator, state in self.states.values():
            randomness.put_back(generator, state)
        for write in reversed([*self.reads.written.values()]):
            write.undo()
        self.undoing.undo()
        for x, before in self.reads.mutated.values():
            if before is not None:
                x[...] = before

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Python's callback when a frame begins or resumes; returns the frame's trace function, or
        a mark. A frame that isn't followed gets a mark, which decides about the frames that it
        calls: below a silent frame nothing is followed, and below one whose reads are known, only
        the user's code."""
        if self.follower is None:  # the run is over: a second interrupt kept it installed
            sys.settrace(None)
            return None
        try:
            garbage.collect_much()
            found = None if self.quiet else self._mark(frame)
        except Exception as error:
            if self.apart is not None and self.apart.code is frame.f_code:
                raise  # a side that isn't followed must not run: its frame begins in the middle
            self.fault(error)  # not raised: Python would remove the trace function
            return None
        if isinstance(found, Activation):
            if self.apart is not None and self.apart.code is frame.f_code:
                self.apart.entered(found)
            return found.step
        return found

    def _mark(self, frame: FrameType) -> Any:
        known = _kinds.get(id(frame.f_code))
        if known is not None and known[0] is _OWN:
            caller = frame.f_back
            above = None if caller is None else caller.f_trace
            if above is not None and above is not _muted:
                return None  # no mark is needed: the kind of its code says the same
        kind, above = _kind_of(frame), self._above(frame)
        if getattr(getattr(above, "__self__", None), "is_opaque", False) or (
            kind is _FOLLOWED and entered(self, frame, above)
        ):
            above = _passing
        if above == _muted or kind is _SILENT:
            mark: Any = _muted
            if kind is not _OWN:  # for instance, code that makes the text of a value
                told(self, frame, kind is _SILENT, _muted)
        elif kind is _OWN or (
            above == _passing
            and not self.is_users(frame)
            and not (frame.f_code in self.roots or comes_back(frame))  # passed in, of a package
        ):
            mark = _passing
            if looks_back(frame.f_code):
                note_callers(self, frame)
        else:
            return self._followed(frame)
        if randomness.asks_system(frame):
            self.reads.use_once("a random generator that is made without a seed")
        frame.f_trace_lines = False
        return mark

    def _above(self, frame: FrameType) -> Any:
        """The mark of a frame's caller. For frames that began before the run, the mark of their
        kind."""
        caller = frame.f_back
        while caller is not None:
            if caller.f_trace is not None:
                return caller.f_trace
            kind = _kind_of(caller)
            if kind is not _FOLLOWED:
                return _muted if kind is _SILENT else _passing
            caller = caller.f_back
        return _passing

    def _followed(self, frame: FrameType) -> Any:
        if self.library is not None and self.library.entered(self, frame):
            return None
        frame.f_trace_lines = False
        address = frames.address_of(frame)
        if is_unasked(frame, address):
            return _muted
        watching.follow(frame, self.watched)
        function = frames.function_of(address)
        self._entered(frame, function)
        program, tops, known, _ = self.of_code(frame, program_of)
        a = Activation(self, frame, address, function, program, tops, known)
        a.loops = closed_loops(frame.f_code)
        return a

    def forget(self) -> None:
        """Release all references that were held to keep ids unique: they may be to the user's
        objects."""
        self.reads.forget()
        self.lookups.forget()
        self.functions.clear()
        self.gone_into.clear()
        self.identities.forget()
        self.captured.clear()
        self.owners.clear()
        self.kinds.clear()
        self.root = None
        super().forget()

    # ---- functions

    def _reach(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Register the function and the objects among its arguments as the roots of all reads."""
        f, text = self.root, "f"
        self.reads.root(f, text, name_of(f), like=is_made_anew(f))
        while isinstance(f, MethodType):  # the bound object may be a method, too
            self.reads.root(f.__func__, f"{text}.__func__", name_of(f), like=False)
            f, text = f.__self__, f"{text}.__self__"
            self.reads.root(f, text, "self", like=False)
        root_called(self, self.root)
        for k, x in enumerate(args):
            self._argument(f"args[{k}]", x)
        for name, x in kwargs.items():
            self._argument(f"kwargs[{self.reads.key(name)}]", x)

    def _argument(self, text: str, x: Any) -> None:
        from tapegrad.core.instances import branches, is_instance
        from tapegrad.core.trees import is_traced

        if (isinstance(x, (*PLAIN, Value)) and type(x) in PLAIN_TYPES) or is_traced(x):
            return
        if isinstance(x, dict):
            for key in x:
                self._argument(f"{text}[{self.reads.key(key)}]", x[key])
        elif isinstance(x, (list, tuple, deque)):
            for k, element in enumerate(x):
                self._argument(f"{text}[{k}]", element)
            self._notes(text, x)
        elif is_instance(x):
            for said, part in branches(x):
                self._argument(said.format(text), part)
            self._notes(text, x)
        else:
            self.reads.root(x, text, "an argument", like=not isinstance(x, (FunctionType, type)))
            if isinstance(x, MethodType):
                self.reads.found(f"{text}.__func__", x.__func__, x.__name__)
            if isinstance(x, (MethodType, BuiltinMethodType)) and x.__self__ is not None:
                self.reads.found(f"{text}.__self__", x.__self__, x.__name__)

    def _notes(self, text: str, x: Any) -> None:
        """Register the parts of an argument that aren't traced."""
        from tapegrad.core.instances import noted

        for name, said, value in noted(x):
            if not INERT[type(value)]:
                self.reads.root(value, said.format(text), name, like=False)

    def _entered(self, frame: FrameType, function: Any) -> None:
        if function is None or id(function) in self.functions:
            return
        self.functions[id(function)] = function
        code = frame.f_code
        place = self.reads.place(function)
        if place is None:
            if code in self.made:
                return
            if not code.co_flags & _NEWLOCALS:
                return  # the body of a class or module, or a text run by `exec`
            if function.__globals__.get("_tuple_new") is tuple.__new__:
                return  # generated for a named tuple, and reads nothing
            if not self.lookups.where(function, [*self.kinds, *self.reads.made_here.values()]):
                back = frame.f_back
                by_own = self.in_schema or (back is not None and _kind_of(back) is _OWN)
                made = is_installed(file_of_function(function))  # from a text, by a package
                if self.is_users(frame) and not (by_own or made):
                    self.reads.use_once(name_of(function))
                    return
            place = self.reads.place(function) or self.reads.constant(function, name_of(function))
        users = self.is_users(frame)
        if users:
            word = name_of(function)
            self.reads.read(place, "code", "{}.__code__", code, word)
            given = function.__defaults__ or ()
            names = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
            for k, (name, x) in enumerate(zip(names, given, strict=True)):
                self.reads.read(place, ("default", k), f"{{}}.__defaults__[{k}]", x, f"{name}=")
            for name, x in (function.__kwdefaults__ or {}).items():
                text = f"{{}}.__kwdefaults__[{self.reads.key(name)}]"
                self.reads.read(place, ("default", name), text, x, f"{name}=")
        for k, cell in enumerate(function.__closure__ or ()):
            self.cells.setdefault(id(cell), (place, k))
        if users:
            self._globals.setdefault(id(function.__globals__), place)


_NEWLOCALS = 2


def file_of(f: Any) -> str:
    """The file in which a function, method or callable object is defined."""
    code = code_of(f)
    return "" if code is None else code.co_filename


def code_of(f: Any) -> CodeType | None:
    """The code that runs when a function, method or callable object is called."""
    while (code := own_attribute(f, "__code__")) is None:
        inner = f.func if isinstance(f, functools.partial) else own_attribute(f, "__wrapped__")
        if inner is None:
            return getattr(type(f).__call__, "__code__", None)
        f = inner
    return code if isinstance(code, CodeType) else None


# ---- pausing


def observer() -> Observer | None:
    """The observer of this thread's run, or None."""
    return following.observer


def unobserved(f: F) -> F:
    """Decorate a function of tapegrad's: it isn't followed, unless the observer is set to `enters`,
    when the running instruction may call the user's code."""

    @functools.wraps(f)
    def paused(*args: Any, **kwargs: Any) -> Any:
        follower = _gettrace()  # a C function: a call of Python code would be followed here
        if follower is None:
            return f(*args, **kwargs)
        here = following.observer
        if here is None or follower is not here.follower or here.enters:
            return f(*args, **kwargs)
        _settrace(None)
        try:
            return f(*args, **kwargs)
        finally:
            _settrace(follower)

    return paused  # type: ignore[return-value]


class observed:
    """Context in which tapegrad calls the user's code, which is followed. If the code can't be
    observed, names of functions are swapped instead."""

    def __enter__(self) -> None:
        self._starts, self._names = False, None
        self._before, here = following.unwatched, following.observer
        if here is not None and sys.gettrace() is here.follower:
            return
        if here is None or sys.gettrace() is not None or not watching.can_watch():
            if dispatch.trace() is not None:
                following.unwatched, self._names = True, Names()
                self._names.__enter__()
            if here is not None:
                here.reads.use_once("what a debugger or a coverage tool keeps from being observed")
            return
        self._starts, following.unwatched = True, False
        sys.settrace(here.follower)

    def __exit__(self, *exc: object) -> None:
        following.unwatched = self._before
        if self._names is not None:
            self._names.__exit__()
        if self._starts:
            here = following.observer
            ours = here is None or sys.gettrace() is here.follower
            if ours:
                sys.settrace(None)
            if here is not None and not (ours and watching.is_intact()):
                here.reads.use_once("what was not observed to its end")


def note_root(f: Any) -> None:
    """Register a function that tapegrad calls during the run: it is followed, as the user's code
    is."""
    here, code = following.observer, code_of(f)
    if here is not None and code is not None:
        here.roots.add(code)


def note_computed(values: Iterable[Any]) -> None:
    """Guard the contents of these arrays: tapegrad computes with them, and none of them is
    traced."""
    here = following.observer
    if here is not None:
        for x in values:
            if isinstance(x, np.ndarray) and not isinstance(x, Value):
                for place in here.reads.arrays_of(x):
                    here.reads.contents(place)


def note_told(f: Any, last: bool) -> None:
    """Guard the identity of a function that each call of the derivative calls, and of its bound
    object; and what is read from now on, which it may change if it isn't called `last`."""
    here = following.observer
    if here is not None:
        here.reads.told(f, last)
        for x in (f, own_attribute(f, "__self__")):
            here.reads.pin(x)


def note_printed(x: np.ndarray) -> None:
    """Record that the text of an array is made: it depends on NumPy's print options."""
    if following.observer is not None:
        following.observer.printed([x])


def note_remembered(x: np.ndarray) -> None:
    """Register an array that an earlier trace has made, and that this run uses, as a constant."""
    here = following.observer
    if here is not None and here.reads.place(x) is None:
        here.reads.constant(x, "an array that was made in an earlier trace")


def note_test(x: Any, trace: Any, guard: Guard | None) -> None:
    """Record that the truth of a traced value was read. The caller's caller is the method that
    Python called for it, such as `__bool__`."""
    here = following.observer
    if here is not None and guard is not None:
        try:
            reached(here, x, trace, guard)
        except Exception as error:
            here.fault(error)


def compares() -> bool:
    """Whether the observed run has compared the identity of two traced values."""
    here = following.observer
    return here is not None and here.effects is not None and here.effects.compared


def note_failed(what: str, where: Source | None = None) -> bool:
    """Record that `what` raised an error, at `where` or at the current line. The assumptions made
    in it are lost, so no later call may use the tape. Returns whether a run is observed."""
    here = following.observer
    if here is not None:
        word = f"what is computed in {what} that raised an error"
        if where is not None:
            here.reads.where.setdefault(word, where)
        here.reads.use_once(word)
    return here is not None


def note_written(x: Any) -> None:
    """Record that a traced array is about to be bound to another variable of the tape."""
    here = following.observer
    if here is not None and here.effects is not None:
        here.effects.note_write(x)


def note_captured(x: np.ndarray) -> None:
    """Record that a captured array has become an input of a tape."""
    here = following.observer
    if here is not None:
        here.captured.append(x)
        here.owners.add(id(owner_of(x)))
