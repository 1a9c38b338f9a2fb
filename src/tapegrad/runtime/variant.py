"""Variants: tapes that answer calls of one kind, on one path through the function.

A variant is played with NumPy until its machine code is ready; see `tier`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.backends.numpy.unmasked import can_be_played
from tapegrad.compiler.packed import pack
from tapegrad.core import callback_log
from tapegrad.core.handlers import let_through, quiet
from tapegrad.core.late import is_loading_machine_code
from tapegrad.core.locks import remembered
from tapegrad.core.request import Request, leaf_key
from tapegrad.errors import TapeError, TapegradError, UnsupportedError
from tapegrad.ir.tape import Guard, Tape
from tapegrad.observe.guards.one_time import shown
from tapegrad.observe.guards.state import State
from tapegrad.observe.objects.comparing import is_same
from tapegrad.observe.program.source import at_source
from tapegrad.runtime.cache import Front
from tapegrad.runtime.entry import Entry, Miss, OutOfRange, compiled_text
from tapegrad.runtime.playing import Playing
from tapegrad.runtime.tier import Tier
from tapegrad.runtime.transformations import Derivation
from tapegrad.tracing.draws.recorded import DrawnValues, TypeChanged
from tapegrad.tracing.memory.aliasing import check_apart, check_places
from tapegrad.tracing.runs.traced import Traced, plain_value

if TYPE_CHECKING:
    from tapegrad.backends.source.driver import Executable

MAX_OUT_OF_RANGE = 3  # calls out of range after which sums keep their order
OFTEN_PLAYED = 16  # calls: what an entry saves in that number of calls is the time of generating it
# The function that plays tapes in this context instead of `run`, for `runtime.watched`
watching: ContextVar[Callable[..., Any] | None] = ContextVar("watching", default=None)
PASSES = 5e-4  # seconds for each call of a tape: about the time to optimise it


class Variant:
    """A derivation, the state that it depends on besides its guards, and the entries for its calls.

    `state` is what the function read outside: the variant holds while it is unchanged. `entry`
    leads to the machine code, once that is ready.
    """

    def __init__(
        self,
        derivation: Derivation,
        state: State,
        compile: str,
        front: Front,
        label: str,
        tier: Tier | None = None,
    ) -> None:
        self.derivation = derivation
        self.tape: Tape = derivation.tape
        self.traced: Traced = derivation.traced
        self.state = state
        self.front = front
        self.tier = Tier(derivation.opened or self.tape, compile, label) if tier is None else tier
        self.entry: Entry | None = None
        self.playing: Playing | None = None
        self.is_rare = False  # whether each of the last calls took a new path
        self.optimised = False  # whether `tape` is optimised as it would be for compiling
        self.runs = 0  # number of played calls
        self.out_of_range = 0
        self.broken: Guard | None = None  # the last guard that failed in a played call

    @property
    def finished(self) -> Tape:
        """The tape as it is compiled. It is cached with the tape, which variants may share."""
        if self.optimised:
            return self.tape
        return _finished(self.tape)

    @property
    def shown(self) -> Tape:
        """The tape as it is compiled, with the axes that are of any length in its machine code."""
        found, outside = self.tier.found, self.traced.made
        axes = () if found is None else tuple(found.axes)
        if not axes and not outside:
            return self.finished
        return replace(self.finished, axes=axes, outside=outside)

    # ---- answering

    def answer(self, root: Any, request: Request, fresh: bool = False) -> tuple[Any] | None:
        """The result in a 1-tuple, or None if a guard fails. A `fresh` variant was just traced with
        these arguments, and has drawn its random numbers."""
        outside = self._outside(root, request)
        found = self._found(root, request, fresh)
        if self.derivation.tells and (found is not None or callback_log.current().count):
            self._check_told(root, request, outside, found is None)
        self.derivation.computed = None  # the trace's results may be large
        if found is not None and self.entry is None:
            self.runs += 1
            if self.runs >= OFTEN_PLAYED:
                self._play_often(request)
        return found

    def _outside(self, root: Any, request: Request) -> dict[int, Any]:
        """What is in the places of inputs, where functions are told values that may change it."""
        draws = self.traced.draws
        if draws is None or not self.derivation.tells:
            return {}
        return draws.found(self.state.objects(root, request.args, request.kwargs))

    def _check_told(
        self, root: Any, request: Request, outside: dict[int, Any], again: bool
    ) -> None:
        """Check that no function that the call has told values has changed what is read later; or
        anything that is read, if a guard has failed and the call begins `again`. `outside` is what
        `_outside` returned before."""
        word, before, now = self.state.changed_by_telling(root, request.args, request.kwargs, again)
        after, draws = self._outside(root, request), self.traced.draws
        for k, x in outside.items():
            if draws is not None and (again or k in draws.late) and not is_same(x, after[k]):
                found: Any = draws.drawn[k]
                word, before, now = found.word, shown(x), shown(after[k])
        if word:
            changed = f"{word!r}{f' ({before} --> {now})' * bool(before)}"
            read, advice = (
                ("which is read after that", "Read it before debug.callback, or keep it as it is")
                if not again
                else (
                    "and the call, which takes another path than the tape, would begin with that",
                    "Change it in the function that is traced",
                )
            )
            raise UnsupportedError(
                f"{request.name}: a function that tapegrad.debug calls has changed {changed}, "
                f"{read}{at_source(self.state.where.get(word))}. {advice}"
            )

    def _found(self, root: Any, request: Request, fresh: bool) -> tuple[Any] | None:
        draws = self.traced.draws
        if draws is None:
            return self._answer(request, fresh, DrawnValues.nothing)
        if fresh:
            return self._answer(request, fresh, draws.first(self.traced.captured))
        generators = self.state.objects(root, request.args, request.kwargs)
        try:
            taking = draws.take(*generators)
        except TypeChanged:
            return None
        with taking as taken:
            found = self._answer(request, fresh, taken)
            if found is not None:
                taken.keep(*taken.left)
        return found

    def _answer(self, request: Request, fresh: bool, taken: DrawnValues) -> tuple[Any] | None:
        leaves = request.inputs
        traced = self.traced
        if traced.written:
            names = self.tape.names[: len(leaves)]
            check_apart(traced.name, traced.written, names, [*leaves, *traced.captured])
        if self.tape.into:
            places = [leaves[at] for _, at in self.tape.into]
            check_places(traced.name, places, traced.captured)
        # If the variant may never be called again, its code isn't looked for on disk yet.
        waits = self.is_rare and self.runs < 2 and self.tier.mode == "auto"
        if not (self.state.never or waits):
            self._enter(request)
        entry = self.entry  # another thread may remove it
        if self.derivation.tells:
            callback_log.current().again()
        if entry is not None:
            try:
                return (entry.call_flat(leaves, taken),)
            except OutOfRange:
                self._order()
            except Miss:
                if not fresh:
                    return None
                # A guard depends on the last bits of a number, which machine code may round
                # differently.
        return self._play(leaves, fresh, taken)

    def _play(self, leaves: Sequence[Any], fresh: bool, taken: DrawnValues) -> tuple[Any] | None:
        inputs = [*map(plain_value, leaves), *taken.among(self.traced.captured)]
        watch = watching.get()
        if fresh and watch is None and (computed := self.derivation.computed) is not None:
            if not self.state.never:
                self._note(computed.seconds)
            return (self.derivation.assemble(own(computed.values, inputs)),)
        start = time.perf_counter()
        if self.derivation.tells:
            callback_log.current().again()
        if not self._fits_outside():
            return None
        try:
            values, broken = (quiet(watch) if watch is not None else run)(self.tape, inputs)
        except Exception as error:
            let_through(error)
            if (
                fresh
                or watch is not None
                or (isinstance(error, TapegradError) and not isinstance(error, TapeError))
            ):
                raise
            return None  # a new trace shows the user where, or follows a path without the error
        if broken is not None:
            self.broken = broken
            return None
        values = own(values, inputs)
        if self.derivation.left:
            taken.left = [values[k] for k in self.derivation.left]
        if not self.state.never:
            self._note(time.perf_counter() - start)
        return (self.derivation.assemble(values),)

    def _play_often(self, request: Request) -> None:
        """Make calls try the tape as one Python function first."""
        if self.playing is None or self.playing.tape is not self.tape:
            if self.state.never or self.traced.written or not can_be_played(self.tape):
                return
            self.playing = Playing(self, request)
        if self.playing.fast and not self.front.tries(self.playing):
            self.playing.missed = 0
            self.front.first(self.playing)

    def goes_on(self, playing: Playing, seconds: float) -> bool:
        """Whether calls still use the tape as one Python function, which took `seconds` since the
        last report. They don't if there is machine code, or another tape by now."""
        self._note(seconds)
        if playing is not self.playing or playing.tape is not self.tape or self.entry is not None:
            self.front.drop(playing)
            return False
        tier = self.tier
        playing.told = not tier.is_played or (tier.mode == "never" and not self.optimised)
        return tier.is_played or is_loading_machine_code() or tier.executable() is None

    def _fits_outside(self) -> bool:
        """Whether the captured arrays have the shapes, dtypes and layouts of the trace: all can be
        changed in place."""
        return [leaf_key(x) for x in self.traced.captured] == self.derivation.outside

    def _note(self, seconds: float) -> None:
        """Record a played call and its time. A tape that won't be compiled is optimised once it was
        played for longer than that takes."""
        self.tier.note(seconds)
        if self.tier.mode == "never" and self.tier.played > PASSES * len(self.tape.calls):
            self.tape, self.optimised = self.finished, True

    # ---- machine code

    def _order(self) -> None:
        """Handle numbers out of range, for which the machine code's order of sums differs from
        NumPy's, so that the tape is played. If this repeats, it is compiled with all sums in
        NumPy's order."""
        self.out_of_range += 1
        if self.out_of_range < MAX_OUT_OF_RANGE:
            return
        with self.front.lock:
            old, self.entry = self.entry, None
            if old is not None:
                self.front.drop(old)
                tape = replace(self.tape, ordered=True)
                self.tier = Tier(tape, self.tier.mode, self.tier.name)

    def _enter(self, request: Request, wait: bool = False) -> None:
        """Use the machine code, if it is ready or is to be waited for; not while its linker is
        being loaded."""
        if self.entry is not None or self.tier.is_played or is_loading_machine_code():
            return
        while self.entry is None and (executable := self.tier.executable(wait)) is not None:
            known = self.tier.entry
            try:
                if known is not None:
                    entry = known.bound_to(self.derivation)
                else:
                    text = compiled_text(executable)
                    entry = Entry(self.derivation, self.state, text, request)
            except Exception as error:
                let_through(error)
                self.tier.refuse(str(error))
            else:
                self._use(entry, executable)

    def wait(self, request: Request) -> None:
        """Wait for the machine code for calls like this one."""
        self._enter(request, wait=True)

    def is_like(self, other: Variant) -> bool:
        """Whether the other variant answers all calls in the same way."""
        from tapegrad.compiler.key import program_key

        draws = self.traced.draws, other.traced.draws
        if self.derivation.outside != other.derivation.outside or any(draws):
            return False
        captured = zip(self.traced.captured, other.traced.captured, strict=True)
        ours, theirs = [program_key(pack(v.derivation.tape)) for v in (self, other)]
        return all(x is y for x, y in captured) and ours is not None and ours == theirs

    def share(self) -> None:
        """Let variants with other captured arrays use the machine code, too."""
        self.tier.is_shared = True
        self._hand_on()

    def _hand_on(self) -> None:
        tier, entry = self.tier, self.entry
        if tier.is_shared and tier.entry is None and entry is not None:
            tier.entry = entry.bound_to(self.derivation.with_arrays(()))

    def _use(self, entry: Entry, executable: Executable) -> None:
        with self.front.lock:
            if self.entry is not None:  # another thread was first
                return
            self.entry = entry
            if self.playing is not None:
                self.front.drop(self.playing)
                self.playing = None
            event = self.tier.settle(executable)
            self._hand_on()
            self.front.count(self.tier.event, kernels=self.tier.kernels)
            if entry.fast and not self.traced.written:  # `answer` checks for overlap
                self.front.first(entry)
        if event is not None:
            self.front.note(event)


@remembered
def _finished(tape: Tape) -> Tape:
    from tapegrad.pipeline import finished

    return finished(tape)


def own(values: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The results as arrays that nothing else holds: played values may be views, or the arguments
    themselves."""
    done: list[Any] = []
    seen = {id(x) for x in inputs}
    for value in values:
        if isinstance(value, np.ndarray) and value.ndim:
            fresh = value.base is None and value.flags.owndata and value.flags.c_contiguous
            if not fresh or id(value) in seen:
                value = np.array(value, order="C")
            seen.add(id(value))
        elif isinstance(value, np.ndarray):
            value = value[()]
        done.append(value)
    return done
