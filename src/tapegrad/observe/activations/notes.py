"""What is noted of a run's own names: globals, cells, and whose code it is.

`Notes` is what the notes of single instructions and calls are written to; `observer.Observer` is
one that follows frames.
"""

from __future__ import annotations

import abc
import builtins
import collections
import os
import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FrameType, ModuleType
from typing import Any, Protocol

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.errors import InternalError, TapegradError
from tapegrad.observe.activations.learned import GONE_THROUGH, places
from tapegrad.observe.activations.undoing import Undoing
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.asked import OF_STREAMS, OF_TIME, advice_about_draw
from tapegrad.observe.guards.foreign import Questions
from tapegrad.observe.guards.identities import Identities
from tapegrad.observe.guards.places import Location
from tapegrad.observe.guards.uses import Then, Uses
from tapegrad.observe.objects import randomness
from tapegrad.observe.objects.clocks import Clocks
from tapegrad.observe.objects.harmless import CALM, CONTAINERS, is_scipys, is_users_file
from tapegrad.observe.objects.naming import Key, name_of
from tapegrad.observe.program import frames
from tapegrad.observe.program.source import is_compat, is_numpys_class, is_told

STRICT = bool(os.environ.get("TAPEGRAD_DEBUG"))


class Running(Protocol):
    """A frame that is followed: whose code it runs, and where its topmost operand is."""

    frame: Any
    stack: int
    users: bool


class Notes(Uses):
    """Notes what a run reads. `arguments` are the pair (args, kwargs) of the call that is traced,
    and `home` is the folder of the user's program."""

    def __init__(self, home: str, label: str, arguments: Any) -> None:
        super().__init__(home, label)
        self.home = home
        self.arguments: Any = arguments
        self.code: Any = None  # that of the function that is traced
        self.told = self.silent = 0  # how often it has printed; how often it did before, in vain
        # Calls that have an effect outside: name, files, and what they gave; those of a run before
        # that went for nothing
        self.done: list[tuple[str, dict[str, bool], Any]] = []
        self.known: list[tuple[str, dict[str, bool], Any]] = []
        self.redone: set[str] = set()  # files that are made once more
        self.quiet = False  # while something runs that knows what it does
        self.logs = 0, 0  # the frame that calls a logger, by its id, and where: see `logged.told`
        self.in_schema = False  # while one of pydantic's checks a model
        self.made_globals: list[dict[str, Any]] = []
        self.cells: dict[int, tuple[Location, int]] = {}
        self.functions: dict[int, Any] = {}  # whose frames were followed
        self.gone_into: set[int] = set()  # closures of tapegrad's own whose cells were looked into
        self.made: set[CodeType] = set()  # of functions that were made on the way
        self._users_code: dict[CodeType, bool] = {}
        self._globals: dict[int, Location] = {}  # a function of each module, by the id of its names
        self._codes: dict[tuple[int, int], Any] = {}
        self.asked: dict[tuple[int, str], Any] = {}  # modules, by their id and what was looked up
        self.identities = Identities(self.reads, self.refuse, self.label, arguments)
        self.running: Running | None = None  # the last one that called something
        self.apart: Any = None  # a side of a branch that is run by itself: see `sides/branches.py`
        # Generators of random numbers that the run has drawn from, and their states before; what
        # it has drawn that becomes inputs: see `tracing.frontend.python.draws`
        self.states: dict[int, tuple[Any, Any]] = {}
        self.drawn: list[Any] = []
        self.ahead: dict[int, Any] = {}  # by the ids of bits: see `tracing.statements.streams`
        self.unseeded: dict[int, Any] = {}  # made without a seed, by id
        # What became inputs of what was found outside, by its place: see `tracing.outside.found`
        self.in_context: collections.Counter[Any] = collections.Counter()  # variables that it set
        self.found: dict[Any, tuple[Any, Any, list[Any]]] = {}
        self.again = False  # whether later calls do again what the run does outside
        self.waiting: Callable[[], None] | None = None  # makes the changes that wait for its end
        self.trace: Any = None  # that of the run
        # The arrays that are lent to it, and which may be: see `tracing.outside.lent`
        self.lent: Any = None
        self.choices: Any = None
        self.clocks = Clocks()
        self.undoing = Undoing()
        self.questions = Questions(self.reads)
        # Calls of installed packages' functions: see `observe.packages.libraries`
        self.roots: set[CodeType] = set()  # of functions that are traced in this run
        self.library: Any = None  # the one that is followed
        self.step: Any = None  # the one of SciPy's that is about to be made
        self.sites: list[tuple[set[int], int]] = []  # where they are
        self.back: list[tuple[set[int], int]] = []  # a place where that can't be done
        self.passed: list[Any] = []  # what those that each call makes anew were passed
        self.unfollowed = False  # whether one couldn't be followed
        # Whether one couldn't be made anew, since it was passed what another one has changed
        self.barred = False
        self.failed_inside = False  # whether the last one has raised
        self.is_nested = False  # whether this run is part of another one that is observed
        self.drawing: Any = None  # the generator of the draw that is about to be made
        # What is only kept so far, by id, and what it is: dates, and what each call makes anew
        self.dates: dict[int, tuple[Any, str, str, Any]] = {}
        # Traced values that such calls are passed: trace, operand and line; and those among them
        # that no derivative goes through any more
        self.sent: list[tuple[Any, Any, Any]] = []
        self.ended: set[Any] = set()
        # Threads and pools that do their work in turn, what their threads have of their own, and
        # which are at work: see `observe.waiting.threads`
        self.threads: dict[int, tuple[Any, Any]] = {}
        self.workers: list[Any] = []
        self.pending: list[Any] = []  # what waits until the run waits for it
        self.ran: dict[int, Any] = {}
        self.screens = sys.stdout, sys.stderr
        self.streams: dict[int, Any] = {}  # others, to which what is shown has gone
        self.managed: set[tuple[int, int]] = set()  # `with` statements of such
        self.asked_rows: list[Any] = []  # tuples that stand for others, and were compared: where
        self.laters = 0  # how many calls there were that each call makes anew
        self.effects: Any = None  # what the run changes, from the first test of a loop on

    def forget(self) -> None:
        """Drop what is held, so that no id of it is given away."""
        self._globals.clear()
        self.asked.clear()
        self.cells.clear()
        self.unseeded.clear()
        self.in_context.clear()
        self.passed.clear()
        self.questions.made.clear()
        self.questions.olds.clear()
        self.dates.clear()
        self.threads.clear()
        self.streams.clear()
        self.ran.clear()
        self.pending.clear()
        self.known = []
        if self.lent is not None:
            self.lent.forget()
            self.reads.looked_at = lambda x: None  # which holds this
        self.waiting = None
        self.running = self.trace = self.lent = self.choices = self.arguments = None

    def taken(self, values: Iterable[Any], whole: bool = False) -> Then | None:
        given = list(values)
        for x in given:
            if type(x) in CONTAINERS:
                self._gone_through(x)
        return super().taken(given, whole)

    def held_by(self, values: Iterable[Any]) -> Then | None:
        """A library takes all that these values hold. Which objects they are it doesn't ask."""
        with self.identities.aside():
            return self.taken(values, whole=True)

    def kind(self, x: Any) -> None:
        if self.workers and isinstance(x, threading.local):
            self.workers[-1].comes_to(x)
        if self.dates and id(x) in self.dates:
            _, word, advice, refusal = self.dates[id(x)]
            if refusal is not None:
                self.refuse(refusal)
            self.reads.lost(word, advice)
        super().kind(x)

    def date(self, x: Any) -> None:
        """A package has asked for the date, to keep it, as long as nothing is done with it."""
        self.dates[id(x)] = x, "the time", OF_TIME, None

    def later(self, x: Any, call: Any, advice: str, refusal: TapegradError | None) -> None:
        """Each call makes this anew, by a call like this one: see `later.py`. Where something else
        is done with it, that is refused, or the function traced at each call."""
        self.dates[id(x)] = x, call.word, advice, refusal
        self.reads.anew[id(x)] = x, call

    def given_back(self, x: Any) -> None:
        self.kind(x)
        super().given_back(x)

    def _all_of(self, x: Any) -> list[Any]:
        return [v for v in super()._all_of(x) if not self.dates or id(v) not in self.dates]

    def shallow(self, x: Any) -> None:
        self._gone_through(x)
        super().shallow(x)

    def _gone_through(self, x: Any) -> None:
        """All of a container is about to be read."""
        frame = None if self.running is None else self.running.frame
        if frame is not None:
            self.reads.reader = places(frame.f_code, GONE_THROUGH), frame.f_lasti
        dispatch.open_if_bounded(self, x)

    def gone_through(self, given: Iterable[Any]) -> list[Any]:
        """The arguments of a function but for containers: it looks at their items, and not at what
        these hold."""
        others = []
        for x in given:
            if type(x) in CONTAINERS:
                self.kind(x)
                self.shallow(x)
            else:
                others.append(x)
        return others

    def found_at(self, place: Location, at: Any, value: Any) -> Any:
        """An attribute or item that a library's function looks up, or what stands for it: where it
        was another one at a later call, it is an input."""
        x, running, (what, key) = place.x, self.running, at
        by_code = running is not None and running.frame is not None  # and not by SciPy's solvers
        if by_code and dispatch.found(running, "", key, lambda: place, at) is not None:
            return self.found[id(x), at][1]
        if what == "attr":
            self.looked_up(x, key)
        else:
            self.item(x, key.key)
        return value

    def changes(self, x: Any) -> None:
        dispatch.open(self, x)
        super().changes(x)

    def refuse(self, error: TapegradError) -> None:
        """What the trace ends with. A package's function that does with plain values what can't be
        traced is no fault of the program: that is called by each call then."""
        if self.library is None:
            super().refuse(error)
        else:
            self.reads.lost("what an installed package's function does")

    def fault(self, error: Exception) -> None:
        """An error of the observer's own: the tape is used once."""
        let_through(error)
        strict = STRICT and not self.reads.never
        self.reads.lost(f"what tapegrad couldn't follow ({type(error).__name__}: {error})")
        if strict:
            fault = InternalError(f"what the function reads couldn't be followed: {error!r}")
            self.refuse(fault.with_traceback(error.__traceback__))

    def shown(self) -> None:
        """Something is shown, by a stream that the run may have put in the place of Python's."""
        for stream, before in zip((sys.stdout, sys.stderr), self.screens, strict=True):
            if stream is before or getattr(stream, "name", "") == os.devnull:
                continue
            if self.reads.place(stream) is not None or id(stream) in self.reads.anew:
                self.reads.lost(name_of(type(stream)), OF_STREAMS)
            self.streams[id(stream)] = stream

    def classes(self, kind: type) -> None:
        """What a class is, or has, was asked."""
        if CALM[kind]:
            return
        self.kind(kind)
        if type(kind) is abc.ABCMeta:  # somebody may register with it
            self.reads.found("cache_token()", abc.get_cache_token(), kind.__name__)

    def loaded(self, name: str, module: Any) -> None:
        """A module was imported; `name` is what `sys.modules` has it under."""
        if not name:
            self.reads.lost(f"import {module.__name__}")
            return
        place = self.reads.constant(sys.modules, "sys.modules")
        self.reads.read(place, ("item", Key(name)), f"{{}}[{self.reads.key(name)}]", module, name)

    # ---- names

    def is_users(self, frame: FrameType) -> bool:
        """Whether a frame's code is part of the user's program; a text that was run, as `dataclass`
        does, is of the module that it was run in."""
        code = frame.f_code
        known = self._users_code.get(code)
        if known is None:
            file: Any = code.co_filename
            if file.startswith("<"):
                file = frame.f_globals.get("__file__", file)
            users = is_users_file(file, self.home)
            if users and "__name__" not in frame.f_globals:
                # SciPy gives its distributions methods that it makes in this way
                if code.co_argcount:
                    kind: Any = type(frame.f_locals.get(code.co_varnames[0]))
                    users = not is_scipys(kind)
                elif frame.f_back is not None:  # a text belongs to who runs it
                    users = self.is_users(frame.f_back)
            known = self._users_code[code] = users
        return known

    def globals_place(self, held: dict[str, Any]) -> Location:
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
        return self.running.frame.f_globals if self.running is not None else {}

    def cell(self, cell: Any, name: str, function: Any) -> None:
        """What a cell holds is read."""
        known = self.cells.get(id(cell))
        if known is None:
            return  # made on the way
        place, k = known
        try:
            value = cell.cell_contents
        except ValueError:  # Python raises, which the program may catch
            self.reads.read(place, ("cell", k), f"is_empty({{}}.__closure__[{k}])", True, name)
            return
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
                self._builtin(held, name)
            return
        value = held[name]
        if users or self.lookups.is_data(None, value):
            self.reads.read(
                place, ("item", Key(name)), f"{{}}[{self.reads.key(name)}]", value, name
            )

    def _builtin(self, held: dict[str, Any], name: str) -> None:
        """A name of Python's own is read, or one that somebody has added to those."""
        known = held.get("__builtins__", builtins)
        names = vars(known) if isinstance(known, ModuleType) else known
        if name in names:
            place = self.reads.place(names) or self.reads.constant(names, name)
            text = f"{{}}[{self.reads.key(name)}]"
            self.reads.read(place, ("item", Key(name)), text, names[name], name)
        else:
            place = self.reads.place(names) or self.reads.constant(names, name)
            self.reads.absent(place, name, "{}")

    def of_code(self, frame: FrameType, program_of: Callable[[CodeType], Any]) -> Any:
        """What is noted of each instruction of a frame's code, by `program_of`, where topmost
        operands are, and the global names that it has read. A name is read once, so that what is
        noted of it goes from this list."""
        key = id(frame.f_code), id(frame.f_globals)
        known = self._codes.get(key)
        if known is None:
            program, tops = program_of(frame.f_code)
            known = self._codes[key] = [*program], tops, set(), frame.f_code  # which is held
        return known

    def operands(self, values: Iterable[Any]) -> Then | None:
        given = [*values]
        for x in given:
            self.undoing.goes_on(self.reads, x)
            if id(x) in self.streams:
                self.reads.lost("what is shown", OF_STREAMS)
        # Of others `==` may ask which object it is
        plain: Any = object.__eq__
        compared = all(type(x).__eq__ is not plain for x in given)
        with self.identities.aside(compared):
            return super().operands(given)

    # ---- which object it is

    def stand_in(self, x: Any) -> Then:
        """`type(x)` of a traced value gives what `x` stands for, to installed packages, too.
        Python's library gets the tracer's class, which it asks for a method; array-api-compat, too,
        which would take NumPy's namespace for an ndarray's, and not ask the array."""

        def then(result: Any) -> None:
            here = self.running
            if result is not type(x) or here is None:
                return
            by = here.frame
            file, module = by.f_code.co_filename, by.f_globals.get("__name__")
            told = is_numpys_class(file) or (is_told(file) and not is_compat(module))
            if x._subclass is not None or told:
                frames.replace(here.stack, x.__class__)

        return then

    # ---- random numbers

    def stream_of(self, generator: Any) -> Any:
        """What is drawn ahead from a generator, if anything is."""
        return self.ahead.get(id(randomness.bits_of(generator))) if self.ahead else None

    def draws(self, generator: Any) -> Then | None:
        """A method of a generator of random numbers is called, and what it gives isn't followed."""
        stream = self.stream_of(generator)
        if stream is not None:  # it is where the program left it; what is drawn from it ends
            stream.close()
        elif not self.is_outside(generator):
            return None
        trace = dispatch.trace()
        if trace is not None and trace.repeats and not trace.in_frame:
            self.refuse(randomness.drawn_once(trace.label, generator))
        self.before_draw(generator)
        frame = None if self.running is None else self.running.frame
        self.reads.lost(type(generator).__name__, advice_about_draw(frame))
        return None

    def before_draw(self, generator: Any) -> None:
        """A generator is about to draw: its state may have to be put back."""
        if id(generator) not in self.states:
            self.states[id(generator)] = generator, randomness.state_of(generator)

    # ---- results

    def returned(self, frame: FrameType, value: Any) -> None:
        """A frame ends. What it returns to C code, as a key or an iterator, is read there."""
        if type(value) in CONTAINERS or isinstance(value, np.ndarray) or id(value) in self.dates:
            back = frame.f_back
            caller = getattr(back.f_trace, "__self__", None) if back is not None else None
            code = frame.f_code
            if caller is None or not (caller.direct is code or caller.hands_on is code):
                self.read_all(value)
