"""The tracers of captured arrays that are lent to a run: see `captured_writes.py`.

Each belongs to the trace of the run. In an inner trace another tracer represents the array, and its
final value is written to the first one when the inner trace is over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.core.request import leaf_key
from tapegrad.core.values import one_type
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Aval, Source
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.guards.locations import ELEMENTS, Write
from tapegrad.observe.program.source import at_line, user_source
from tapegrad.primitives.views import BroadcastTo
from tapegrad.tracing.draws.recorded import StateInput
from tapegrad.tracing.memory.strides import views_between
from tapegrad.tracing.recording import chains
from tapegrad.tracing.recording.trace import Trace, traces_under_way
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, to_operand

_slot = Tracer.__dict__["_version"]


class CapturedTracer(ArrayTracer):
    """The tracer of a lent array in one trace. Each write to it increments its version."""

    __slots__ = ("_loan",)
    _loan: Loan

    @property
    def _version(self) -> int:
        version: int = _slot.__get__(self)
        return version

    @_version.setter
    def _version(self, version: int) -> None:
        _slot.__set__(self, version)
        if version:
            self._loan.note_write(self)


CapturedTracer.__name__ = "ndarray"


class Loan:
    """One lent array: `owner` has the memory, and `stand_ins` are its tracers in the traces under
    way, the outermost first. It is `early` if it was lent where the function first came to it."""

    def __init__(self, o: RunRecord, owner: np.ndarray, word: str, early: bool) -> None:
        self.o, self.owner, self.word, self.early = o, owner, word, early
        self.src: Source | None = None  # the line of the first write
        self.seen = ""  # the line where other code has read it after that
        self.stand_ins: list[tuple[Trace, CapturedTracer]] = []
        self.views: dict[tuple[int, int], tuple[Any, Any]] = {}  # replacements of arrays, by ids
        kept = np.array(owner, order="C")
        trace = o.trace
        var = trace.builder.fresh(Aval(kept.shape, kept.dtype))
        trace.captured[id(kept)] = var, kept
        if o.again:
            o.drawn.append(StateInput(owner, ELEMENTS, leaf_key(owner), kept, word))
        self.stand_ins.append((trace, self._made(trace, var, owner)))

    def _made(self, trace: Trace, operand: Any, value: np.ndarray) -> CapturedTracer:
        kind: Any = CapturedTracer
        made: CapturedTracer = kind(trace, operand, np.array(value, order="K"))
        made._loan = self
        return made

    def root(self) -> CapturedTracer:
        """The array's tracer in the innermost trace."""
        for trace in traces_under_way():
            if all(trace is not known for known, _ in self.stand_ins):
                operand, value = to_operand(trace, self.stand_ins[-1][1])
                made = self._made(trace, operand, value)
                made._ordered = self.stand_ins[-1][1]._ordered
                self.stand_ins.append((trace, made))
        return self.stand_ins[-1][1]

    def note_write(self, x: CapturedTracer) -> None:
        """Record a write to the array's tracer."""
        trace = x._trace
        if trace.repeats:
            where = "what is traced once for all rounds. Let the rounds carry it, and return it"
            if trace.once:
                where = "a checkpoint, which runs again. Let it return the numbers to be written"
            raise trace.refused(
                UnsupportedError(
                    f"{self.word!r}, an array from outside the function, is written to{at_line()} "
                    f"in {where}"
                )
            )
        self.src = self.src or user_source()
        for _, other in self.stand_ins:
            if other is not x:  # until the inner trace is over
                other._doubt = at_line() or " "

    @property
    def is_written(self) -> bool:
        return any(made._version for _, made in self.stand_ins)

    def shown(self, x: np.ndarray) -> Any:
        """The replacement of a plain array in the owner's memory; None if its view isn't
        followed."""
        root = self.root()
        known = self.views.get((id(x), id(root)))
        if known is None:
            views = views_between(self.owner, x)
            if views is None:
                return None
            self._guard()
            if not x.flags.writeable:  # NumPy raises an error for writes to it
                views = (*views, BroadcastTo(x.shape))
            known = self.views[id(x), id(root)] = x, self._view(root, views, x)
        return known[1]

    def _guard(self) -> None:
        """Guard the memory layout of the arrays that the run has come to."""
        for place in self.o.reads._owners.get(id(self.owner), ()):
            self.o.reads.layout(place)
            flag = place.x.flags.writeable
            self.o.reads.read(place, "writeable", "{}.flags.writeable", flag, place.word)

    def moved(self, x: Any) -> Any:
        """The view in the innermost trace that corresponds to a view in another trace."""
        return self._view(self.root(), x._chain, x)

    def _view(self, root: CapturedTracer, chain: Any, x: Any) -> Any:
        if not chain:
            return root
        kind: Any = ArrayTracer
        out = object.__new__(kind)
        out._trace, out._operand, out._value = root._trace, root._operand, np.asarray(root._value)
        out._aval = one_type(Aval(x.shape, x.dtype))
        chains.show(out, root, chain)
        out._version = -1  # it is read again when it is used
        out._ordered, out._may_alias, out._doubt = root._ordered, (), ""
        return out

    def plain(self, x: Any) -> Any:
        """The plain array that a view of a tracer corresponds to; None if unknown."""
        for known, made in self.views.values():
            if made is x:
                return known
        if x is x._owner:
            return self.owner
        value: Any = self.owner
        for view in x._chain:
            if isinstance(view, chains.Chosen):
                return None
            value = chains.shown(view, value)
        return value


class Written(Write):
    """The value that a run has left in a lent array."""

    left: Any

    def now(self) -> Any:
        return self.left

    def put(self, value: Any) -> None:
        self.left = value
        self.x[...] = value

    def undo(self) -> None:
        self.x[...] = self.before

    def redo(self, value: Any) -> None:
        self.x[...] = value


def given_back(x: Any) -> Any:
    """The plain array that a tracer, or a view of one, corresponds to; None if it isn't lent."""
    owner = getattr(x, "_owner", None)
    return owner._loan.plain(x) if type(owner) is CapturedTracer else None
