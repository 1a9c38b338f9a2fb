"""The notes of a run, with its reads of names: globals, cells, and whose code runs.

Handlers of instructions and calls write to `RunRecord`; `observer.Observer` is the subclass that
follows frames.
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
from tapegrad.observe.activations.code_facts import GONE_THROUGH, places
from tapegrad.observe.activations.undo import Undoing
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.identities import Identities
from tapegrad.observe.guards.locations import Location
from tapegrad.observe.guards.package_calls import Queries
from tapegrad.observe.guards.queried import OF_STREAMS, OF_TIME, advice_about_draw
from tapegrad.observe.guards.uses import Then, Uses
from tapegrad.observe.objects import randomness
from tapegrad.observe.objects.clocks import Clocks
from tapegrad.observe.objects.naming import Key, name_of
from tapegrad.observe.objects.purity import CONTAINERS, INERT, is_scipys, is_users_file
from tapegrad.observe.program import frames
from tapegrad.observe.program.source import is_compat, is_numpys_class, is_told

STRICT = bool(os.environ.get("TAPEGRAD_DEBUG"))


class Running(Protocol):
    """A followed frame: whose code it runs, and the address of its topmost operand."""

    frame: Any
    stack: int
    users: bool


class RunRecord(Uses):
    """Records what a run reads. `arguments` is the pair (args, kwargs) of the traced call, and
    `home` the folder of the user's program."""

    def __init__(self, home: str, label: str, arguments: Any) -> None:
        super().__init__(home, label)
        self.home = home
        self.arguments: Any = arguments
        self.code: Any = None  # the traced function's code
        self.told = self.silent = 0  # how often it has printed; and before, in a discarded run
        # Calls with an effect outside: name, files and result; and those of a run before, which was
        # discarded.
        self.done: list[tuple[str, dict[str, bool], Any]] = []
        self.known: list[tuple[str, dict[str, bool], Any]] = []
        self.redone: set[str] = set()  # files that are written again
        self.quiet = False  # while code runs whose reads are known
        self.logs = 0, 0  # the frame that calls a logger, by id, and its offset: see `logged.told`
        self.in_schema = False  # while pydantic validates a model
        self.made_globals: list[dict[str, Any]] = []
        self.cells: dict[int, tuple[Location, int]] = {}
        self.functions: dict[int, Any] = {}  # functions whose frames were followed
        self.gone_into: set[int] = set()  # closures of tapegrad's own whose cells were recorded
        self.made: set[CodeType] = set()  # codes of functions created by the run
        self._users_code: dict[CodeType, bool] = {}
        self._globals: dict[int, Location] = {}  # a function of each module, by the id of its names
        self._codes: dict[tuple[int, int], Any] = {}
        self.asked: dict[tuple[int, str], Any] = {}  # modules whose attributes were looked up
        self.identities = Identities(self.reads, self.refuse, self.label, arguments)
        self.running: Running | None = None  # the last activation that made a call
        self.apart: Any = None  # a side of a branch that is run alone: see `sides/branches.py`
        # Random generators that the run has drawn from, with their states before; and the draws
        # that become inputs: see `tracing.frontend.python.draws`.
        self.states: dict[int, tuple[Any, Any]] = {}
        self.drawn: list[Any] = []
        self.ahead: dict[int, Any] = {}  # by the ids of bits: see `tracing.statements.streams`
        self.unseeded: dict[int, Any] = {}  # generators created without a seed, by id
        # Inputs made of values that were found, by place: see `tracing.outside.state_inputs`.
        self.in_context: collections.Counter[Any] = collections.Counter()  # variables that it set
        self.found: dict[Any, tuple[Any, Any, list[Any]]] = {}
        self.again = False  # whether later calls repeat the run's effects
        self.waiting: Callable[[], None] | None = None  # makes the changes postponed to its end
        self.trace: Any = None  # the trace of the run
        # The arrays that are lent to it: see `tracing.outside.captured_tracers`.
        self.lent: Any = None
        self.choices: Any = None
        self.clocks = Clocks()
        self.undoing = Undoing()
        self.questions = Queries(self.reads)
        # Calls of functions of installed packages: see `observe.packages.library_calls`.
        self.roots: set[CodeType] = set()  # codes of functions traced in this run
        self.library: Any = None  # the call that is followed
        self.step: Any = None  # a SciPy call that is about to be made
        self.sites: list[tuple[set[int], int]] = []  # the places of the calls
        self.back: list[tuple[set[int], int]] = []  # a place where it can't be repeated
        self.passed: list[Any] = []  # arguments of repeated calls
        self.unfollowed = False  # whether a call couldn't be followed
        # Whether a call can't be repeated, since its argument was changed by another one.
        self.barred = False
        self.failed_inside = False  # whether the last call has raised an error
        self.is_nested = False  # whether this run is part of another observed run
        self.drawing: Any = None  # the generator of the draw that is about to be made
        # Values that were only stored so far, by id: dates, and results of repeated calls.
        self.dates: dict[int, tuple[Any, str, str, Any]] = {}
        # Traced values passed to repeated calls: trace, operand and line; and those among them that
        # have no derivative any more.
        self.sent: list[tuple[Any, Any, Any]] = []
        self.ended: set[Any] = set()
        # Threads and pools whose work is done in turn, the state of each thread, and those at work:
        # see `observe.waiting.threads`.
        self.threads: dict[int, tuple[Any, Any]] = {}
        self.workers: list[Any] = []
        self.pending: list[Any] = []  # work that is done when the run waits for it
        self.ran: dict[int, Any] = {}
        self.screens = sys.stdout, sys.stderr
        self.streams: dict[int, Any] = {}  # other streams that were printed to
        self.managed: set[tuple[int, int]] = set()  # `with` statements of these values
        self.asked_rows: list[Any] = []  # where tuples of inputs were compared
        self.laters = 0  # the number of `Later` calls
        self.effects: Any = None  # the run's changes, counted from the first test of a loop on

    def forget(self) -> None:
        """Release all references that were held to keep ids unique."""
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
            self.reads.looked_at = lambda x: None  # it holds this object
        self.waiting = None
        self.running = self.trace = self.lent = self.choices = self.arguments = None

    def taken(self, values: Iterable[Any], whole: bool = False) -> Then | None:
        given = list(values)
        for x in given:
            if type(x) in CONTAINERS:
                self._gone_through(x)
        return super().taken(given, whole)

    def held_by(self, values: Iterable[Any]) -> Then | None:
        """Record that a library reads all contents of these values, but not their identity."""
        with self.identities.aside():
            return self.taken(values, whole=True)

    def kind(self, x: Any) -> None:
        if self.workers and isinstance(x, threading.local):
            self.workers[-1].comes_to(x)
        if self.dates and id(x) in self.dates:
            _, word, advice, refusal = self.dates[id(x)]
            if refusal is not None:
                self.refuse(refusal)
            self.reads.use_once(word, advice)
        super().kind(x)

    def date(self, x: Any) -> None:
        """Record that a package has queried the date: the tape is used once if the date is used."""
        self.dates[id(x)] = x, "the time", OF_TIME, None

    def later(self, x: Any, call: Any, advice: str, refusal: TapegradError | None) -> None:
        """Record that each call of the derivative creates this object anew, by a call like this
        one: see `later_values.py`. Other uses of the object are refused, or have the function
        traced at each call."""
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
        """Record that all of a container is about to be read."""
        frame = None if self.running is None else self.running.frame
        if frame is not None:
            self.reads.reader = places(frame.f_code, GONE_THROUGH), frame.f_lasti
        dispatch.open_if_bounded(self, x)

    def gone_through(self, given: Iterable[Any]) -> list[Any]:
        """The arguments of a function without the containers. Of these the function reads the
        items, but not the items' contents."""
        others = []
        for x in given:
            if type(x) in CONTAINERS:
                self.kind(x)
                self.shallow(x)
            else:
                others.append(x)
        return others

    def found_at(self, place: Location, at: Any, value: Any) -> Any:
        """The attribute or item that a library's function looks up. If it was another one at a
        later call, it is made an input, and the traced value is returned."""
        x, running, (what, key) = place.x, self.running, at
        by_code = running is not None and running.frame is not None  # not by SciPy's solvers
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
        """Store the error that the trace ends with. If a package's function fails on tracers of
        plain values, the program isn't at fault: each call will call that function instead."""
        if self.library is None:
            super().refuse(error)
        else:
            self.reads.use_once("what an installed package's function does")

    def fault(self, error: Exception) -> None:
        """Record an error of the observer itself: the tape is used once."""
        let_through(error)
        strict = STRICT and not self.reads.never
        self.reads.use_once(f"what tapegrad couldn't follow ({type(error).__name__}: {error})")
        if strict:
            fault = InternalError(f"what the function reads couldn't be followed: {error!r}")
            self.refuse(fault.with_traceback(error.__traceback__))

    def shown(self) -> None:
        """Record output: the run may have replaced Python's streams."""
        for stream, before in zip((sys.stdout, sys.stderr), self.screens, strict=True):
            if stream is before or getattr(stream, "name", "") == os.devnull:
                continue
            if self.reads.place(stream) is not None or id(stream) in self.reads.anew:
                self.reads.use_once(name_of(type(stream)), OF_STREAMS)
            self.streams[id(stream)] = stream

    def classes(self, kind: type) -> None:
        """Record that a class's identity or attributes are queried."""
        if INERT[kind]:
            return
        self.kind(kind)
        if type(kind) is abc.ABCMeta:  # classes may be registered with it
            self.reads.found("cache_token()", abc.get_cache_token(), kind.__name__)

    def loaded(self, name: str, module: Any) -> None:
        """Record the import of a module; `name` is its key in `sys.modules`."""
        if not name:
            self.reads.use_once(f"import {module.__name__}")
            return
        place = self.reads.constant(sys.modules, "sys.modules")
        self.reads.read(place, ("item", Key(name)), f"{{}}[{self.reads.key(name)}]", module, name)

    # ---- names

    def is_users(self, frame: FrameType) -> bool:
        """Whether a frame's code is part of the user's program. Code generated from a text, as by
        `dataclass`, belongs to the module that it runs in."""
        code = frame.f_code
        known = self._users_code.get(code)
        if known is None:
            file: Any = code.co_filename
            if file.startswith("<"):
                file = frame.f_globals.get("__file__", file)
            users = is_users_file(file, self.home)
            if users and "__name__" not in frame.f_globals:
                # SciPy generates methods of its distributions in this way.
                if code.co_argcount:
                    kind: Any = type(frame.f_locals.get(code.co_varnames[0]))
                    users = not is_scipys(kind)
                elif frame.f_back is not None:  # generated code belongs to its caller
                    users = self.is_users(frame.f_back)
            known = self._users_code[code] = users
        return known

    def globals_place(self, held: dict[str, Any]) -> Location:
        """The place of a module's dict of names."""
        place = self.reads.place(held)
        if place is None:
            function = self._globals.get(id(held))
            if function is not None:
                place = self.reads.part(function, "{}.__globals__", held, "a global")
            else:
                place = self.reads.constant(held, "a global")
        return place

    def frame_globals(self) -> dict[str, Any]:
        """The dict of names of the module whose code is running."""
        return self.running.frame.f_globals if self.running is not None else {}

    def cell(self, cell: Any, name: str, function: Any) -> None:
        """Record a read of a cell."""
        known = self.cells.get(id(cell))
        if known is None:
            return  # created by the run
        place, k = known
        try:
            value = cell.cell_contents
        except ValueError:  # Python will raise it, and the program may catch it
            self.reads.read(place, ("cell", k), f"is_empty({{}}.__closure__[{k}])", True, name)
            return
        self.reads.read(place, ("cell", k), f"{{}}.__closure__[{k}].cell_contents", value, name)

    def name(self, held: dict[str, Any], name: str) -> None:
        """Record a read of a global name."""
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
        """Record a read of a builtin, or of a name that was added to the builtins."""
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
        """For a frame's code: the handlers of its instructions, the positions of topmost operands,
        and the global names that were read. A name needs one record, so its handler is removed from
        the list."""
        key = id(frame.f_code), id(frame.f_globals)
        known = self._codes.get(key)
        if known is None:
            program, tops = program_of(frame.f_code)
            known = self._codes[key] = [*program], tops, set(), frame.f_code  # keeps the code alive
        return known

    def operands(self, values: Iterable[Any]) -> Then | None:
        given = [*values]
        for x in given:
            self.undoing.goes_on(self.reads, x)
            if id(x) in self.streams:
                self.reads.use_once("what is shown", OF_STREAMS)
        # The `==` of other objects may compare identities.
        plain: Any = object.__eq__
        compared = all(type(x).__eq__ is not plain for x in given)
        with self.identities.aside(compared):
            return super().operands(given)

    # ---- identity of objects

    def stand_in(self, x: Any) -> Then:
        """The recorder of `type(x)` for a traced value: the result is replaced by the class that
        `x` represents, also for installed packages. Python's library gets the tracer's class, which
        it looks a method up in. So does array-api-compat: for an ndarray it would take NumPy's
        namespace, and not ask the array for its own."""

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
        """The stream of numbers drawn ahead from a generator, or None."""
        return self.ahead.get(id(randomness.bits_of(generator))) if self.ahead else None

    def draws(self, generator: Any) -> Then | None:
        """Record a call of a generator's method whose result isn't an input of the tape."""
        stream = self.stream_of(generator)
        if stream is not None:  # the generator is in its current state; the stream ends
            stream.close()
        elif not self.is_outside(generator):
            return None
        trace = dispatch.trace()
        if trace is not None and trace.repeats and not trace.in_frame:
            self.refuse(randomness.drawn_once(trace.label, generator))
        self.before_draw(generator)
        frame = None if self.running is None else self.running.frame
        self.reads.use_once(type(generator).__name__, advice_about_draw(frame))
        return None

    def before_draw(self, generator: Any) -> None:
        """Store a generator's state before its first draw: it may have to be restored."""
        if id(generator) not in self.states:
            self.states[id(generator)] = generator, randomness.state_of(generator)

    # ---- results

    def returned(self, frame: FrameType, value: Any) -> None:
        """Record that a frame ends. A result returned to C code, such as a key or an iterator, is
        read there."""
        if type(value) in CONTAINERS or isinstance(value, np.ndarray) or id(value) in self.dates:
            back = frame.f_back
            caller = getattr(back.f_trace, "__self__", None) if back is not None else None
            code = frame.f_code
            if caller is None or not (caller.direct is code or caller.hands_on is code):
                self.read_all(value)
