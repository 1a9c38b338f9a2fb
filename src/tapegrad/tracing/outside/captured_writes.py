"""Captured arrays that a function writes to: lent to the run, and written back at its end.

    self.buf[0] = x * y          the array holds this call's numbers afterwards, as in plain NumPy
    self.W += g

The contents of such an array when a call begins are an input of the tape, which each call reads
anew. A traced array represents it while the function runs (`captured_tracers.py`). The plain one
isn't changed: it is in objects and containers, where other code may read it, and on the stacks of
frames. So before each instruction, operands in its memory are replaced by the traced array. At the
end of the run, and of each later call, the final contents are written to the plain array itself.

Code that isn't observed may read the plain array. Such reads are recorded (`guards/reads.py`). If
the function writes to the array at all, the trace is repeated, and the array is lent where the
function first comes to it. Unobserved reads after a write are then refused.
"""

from __future__ import annotations

import dis
import functools
import gc
import types
from collections import Counter
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError, TapegradError, UnsupportedError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.retracing import Retrace
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.answers import telling
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.locations import ELEMENTS, owner_of
from tapegrad.observe.objects.comparing import shares_none
from tapegrad.observe.objects.purity import CONTAINERS, DISPATCHER, INERT, is_pythons_class
from tapegrad.observe.observer import following
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import MISSING
from tapegrad.observe.program.source import at_line, at_source
from tapegrad.observe.program.stack_heights import variables_of
from tapegrad.observe.sides.effects import Stopped
from tapegrad.primitives.base import Value
from tapegrad.tracing.memory.created import is_traceable
from tapegrad.tracing.memory.strides import views_between
from tapegrad.tracing.outside.captured_tracers import CapturedTracer, Loan, Written
from tapegrad.tracing.recording.trace import Trace, traces_under_way
from tapegrad.tracing.tracers.tracer import Tracer

# They read the items of a container or an iterator, and not its identity. The first ones don't
# compute with the items.
_PASSING_ON: tuple[Any, ...] = (list, tuple, zip, enumerate, reversed, map, filter, iter, next)
_READING: tuple[Any, ...] = (sum, min, max, sorted, any, all, functools.reduce)
_OF_DICTS = (dict.items, dict.values)


# Their contents are checked when they are used, and can be found.
_OPEN = {*CONTAINERS, types.FunctionType, types.MethodType, types.BuiltinMethodType, type}
_OPEN |= {types.ModuleType, types.MethodDescriptorType, types.WrapperDescriptorType, np.ufunc}
_OPEN |= {types.GeneratorType, types.CellType, types.CodeType, DISPATCHER, range, slice}
_OPEN |= {functools.partial}
_ELSEWHERE = (Value, type, types.ModuleType, types.FunctionType, types.CodeType, types.FrameType)
_RETURNS = dis.opmap["RETURN_VALUE"]
_MAX_SEARCHED = 100  # maximal number of objects in a search
_ANEW = 8  # arrays at one place that are identified by their ids


def _is_of_iterators(f: Any) -> bool:
    return isinstance(f, type) and f.__module__ == "itertools"


class Choices:
    """The facts about arrays that the traces of one call have learned, by the ids of the owners of
    their memory: `early` ones are lent at their first use; `plain` ones aren't lent, since that has
    failed, and perhaps no traced value is written to them; a `traced` one is written to after all.
    Arrays that are new objects in each trace, as from a package's function, have other ids each
    time: after several of them at one place, the place identifies them."""

    def __init__(self) -> None:
        self.early: set[Any] = set()
        self.plain: set[Any] = set()
        self.traced: set[Any] = set()
        self.met: Counter[str] = Counter()  # the number of arrays found at the same place
        self.in_turn: set[int] = set()  # functions whose rows have effects: see `vmap`
        self.held: list[Any] = []  # keeps the ids unique


class CapturedWrites:
    """The arrays that are lent to a run."""

    def __init__(self, o: RunRecord, choices: Choices) -> None:
        self.o, self.choices = o, choices
        self.loans: dict[int, Loan] = {}  # by the id of the owner of the memory
        self.notes: list[tuple[set[Any], Any]] = []  # notes for the repeated trace

    # ---- before an instruction

    def look(self, a: Activation) -> None:
        """Replace operands that are lent arrays by their tracers."""
        trace = dispatch.trace()
        if trace is None or traces_under_way()[0] is not self.o.trace:
            return
        code = a.frame.f_code
        asked = code.co_name == "__array__" and not telling.now
        if asked and code.co_code[a.frame.f_lasti] == _RETURNS:
            return  # NumPy needs a plain one; its views are handled later
        count = frames.count_of(a.tops[a.frame.f_lasti >> 1])
        for k in range(count - variables_of(code)):
            x = frames.operand(a.stack, k)
            if x is MISSING:
                continue
            found = self.of(x)
            if found is not x:
                if self.o.apart is not None:
                    raise Stopped
                frames.replace(frames.operand_at(a.stack, k), found)

    def of(self, x: Any) -> Any:
        """The replacement of an operand, if it is a lent array; else the operand itself."""
        kind: Any = type(x)
        if kind is np.ndarray:
            return self._array(x)
        if kind is np.flatiter or kind is types.BuiltinMethodType:
            array: Any = x.base if kind is np.flatiter else x.__self__
            if type(array) is not np.ndarray or self._array(array) is array:
                return x
            if kind is types.BuiltinMethodType:
                return getattr(self._array(array), x.__name__)
            if x.index:
                self.refuse(array)
                return x
            return dispatch.flat(self._array(array))
        if isinstance(x, Tracer):
            owner: Any = x._owner
            if type(owner) is CapturedTracer and owner._trace is not dispatch.trace():
                return owner._loan.moved(x)
        elif not (INERT[kind] or kind in _OPEN or hasattr(kind, "__next__")):
            self._check(x, kind)
        return x

    def _check(self, x: Any, kind: Any) -> None:
        """Check an object in C that is used: it may read memory unseen."""
        written = [loan for loan in self.all() if loan.is_written]
        if written and any(cls.__module__ == "_ctypes" for cls in kind.__mro__):
            for loan in written:  # it may have an address, or be passed one
                self.looked_at(loan.owner)
        seen, waiting = {id(x)}, [x] if written and not is_pythons_class(kind) else []
        while waiting and len(seen) < _MAX_SEARCHED:
            held = waiting.pop()
            self.looked_at(_memory_of(held))
            for y in gc.get_referents(held):
                if id(y) not in seen and not isinstance(y, _ELSEWHERE):
                    seen.add(id(y))
                    waiting.append(y)

    def _array(self, x: np.ndarray) -> Any:
        owner = owner_of(x)
        loan = self.loans.get(id(owner))
        if loan is None and self.is_outside(owner) and self.holds(self.choices.early, owner):
            loan = self.lend(x, False, early=True)
        if loan is not None:
            found = loan.shown(x)
            if found is not None:
                return found
        if loan is not None or any(np.may_share_memory(x, held.owner) for held in self.all()):
            self.refuse(x)
        return x

    def copied(self, x: Any, depth: int = 3) -> Any:
        """A container with the tracers of lent arrays; itself if it holds none."""
        kind: Any = type(x)
        if kind not in (list, tuple, dict) or not depth:
            return self.of(x)
        self.o.shallow(x)
        held = x.values() if kind is dict else x
        found = [self.copied(y, depth - 1) for y in held]
        if all(y is z for y, z in zip(held, found, strict=True)):
            return x
        return dict(zip(x, found, strict=True)) if kind is dict else kind(found)

    def pass_on(self, a: Activation, k: int) -> None:
        """Replace a container whose items alone the callee reads, by one with tracers of lent
        arrays."""
        x = a.top(k)
        if type(x) in (list, tuple, dict) and dispatch.trace() is not None:
            found = self.copied(x)
            if found is not x:
                if self.o.apart is not None:
                    raise Stopped
                frames.replace(frames.operand_at(a.stack, k), found)

    def call(self, a: Activation, f: Any, places: range) -> None:
        """Prepare a call with arguments at these places of the stack."""
        kind: Any = type(f)
        numpys = kind is np.ufunc or kind is DISPATCHER or f is np.array or f is np.asarray
        passes_on = any(f is known for known in _PASSING_ON) or _is_of_iterators(f)
        if numpys or passes_on or any(f is known for known in _READING):
            for k in places:
                self.pass_on(a, k)
        elif f in _OF_DICTS if kind is types.MethodDescriptorType else False:
            self.pass_on(a, places.stop)
        for k in places if not passes_on else ():
            x = a.top(k)
            if hasattr(type(x), "__next__") and type(x) not in _OPEN:
                self._check(x, type(x))

    def all(self) -> list[Loan]:
        return [*self.loans.values()]

    # ---- lending

    def is_outside(self, owner: Any) -> bool:
        """Whether the run has found an array in memory of this owner."""
        return id(owner) in self.o.reads._owners

    def lend(self, x: np.ndarray, traced: bool, early: bool = False) -> Any:
        """Lend an array that is about to be written to, or early. None if it can't be lent."""
        owner, o = owner_of(x), self.o
        if not self.is_outside(owner):
            return None
        choices = self.choices
        if self.holds(choices.plain, owner) and not self.holds(choices.traced, owner):
            if not traced:
                return None
            self.again(self.choices.traced, owner)
        loan = self.loans.get(id(owner))
        if loan is None:
            if o.trace is None or self.objection(x):
                return None
            if o.apart is not None:
                raise Stopped
            self.choices.held.append(owner)
            places = o.reads._owners[id(owner)]
            if id(owner) in o.owners or any(map(self._was_read, places)):
                self.again(self.choices.early, owner)
            loan = self.loans[id(owner)] = Loan(o, owner, places[0].word, early)
            for value, _, uses in o.found.values():
                if isinstance(value, np.ndarray) and np.may_share_memory(value, owner):
                    self.notes += uses
        return loan

    def objection(self, x: np.ndarray) -> str:
        """Why a captured plain array can't be lent; empty if it can."""
        owner = owner_of(x)
        if type(owner) is not np.ndarray or not owner.flags.owndata:
            return f"whose memory belongs to an object of type {type(owner).__name__}"
        if not is_traceable(owner.dtype):
            return f"whose memory is an array of dtype {owner.dtype}"
        if not owner.flags.writeable:
            return "whose memory is read-only"
        if views_between(owner, x) is None:
            return "which shows a part of another one in a way that isn't followed"
        return ""

    def _was_read(self, place: Any) -> bool:
        reads, key = self.o.reads, id(place.x)
        if key in reads._whole or key in reads.mutated:
            return True
        return any(k == key and type(at) is tuple and at[0] == "element" for k, at in reads._first)

    def holds(self, held: set[Any], owner: Any) -> bool:
        return id(owner) in held or self.o.reads._owners[id(owner)][0].word in held

    def again(self, held: set[Any], owner: Any) -> None:
        if not self.holds(held, owner):
            word = self.o.reads._owners[id(owner)][0].word
            self.choices.met[word] += 1
            self.notes.append((held, word if self.choices.met[word] > _ANEW else id(owner)))

    # ---- other code

    def looked_at(self, x: np.ndarray) -> None:
        """Record that code that isn't followed reads a plain array."""
        for loan in self.all():
            if loan.is_written and not loan.seen and np.may_share_memory(x, loan.owner):
                loan.seen = at_line() or " "

    def refuse(self, x: np.ndarray) -> None:
        self.o.refuse(
            UnsupportedError(
                f"an array is used{at_line()} that shares memory with one which the function "
                "writes to, in a way that a trace doesn't follow. Use views that slices, reshape "
                "and transpose make, or a copy"
            )
        )

    def finish(self, raised: bool = False) -> None:
        """Record the final contents of the lent arrays: the function has returned."""
        o = self.o
        for loan in self.all():
            root = loan.stand_ins[0][1]
            if not root._version or (id(loan.owner), ELEMENTS) in o.reads.written:
                continue
            overlapping = any(np.may_share_memory(x, loan.owner) for x in o.captured)
            if (loan.seen or overlapping) and not raised:
                if not loan.early:
                    self.again(self.choices.early, loan.owner)
                elif not self.holds(self.choices.traced, loan.owner):
                    self.again(self.choices.plain, loan.owner)
                else:
                    raise self._seen(loan)
            if not raised:
                self._check_arguments(loan)
            place = o.reads.place(loan.owner) or o.reads.constant(loan.owner, loan.word)
            before = np.array(loan.owner, order="K")
            write = Written(place, ELEMENTS, "", loan.word, before, loan.src)
            write.left = root._detached()
            o.reads.written[id(loan.owner), ELEMENTS] = write
        if self.notes and not raised:
            raise Retrace(self.notes, None)

    def forget(self) -> None:
        """Release the tracers: the run is over."""
        for loan in self.all():
            loan.stand_ins.clear()
            loan.views.clear()
        self.loans.clear()

    def _check_arguments(self, loan: Loan) -> None:
        """Guard that no argument shares memory with an array that is written to."""
        reads = self.o.reads
        args, kwargs = self.o.arguments
        if shares_none(args, kwargs, loan.owner):
            place = reads.place(loan.owner) or reads.constant(loan.owner, loan.word)
            reads._fact(f"shares_none(args, kwargs, {reads.named(place)})", loan.word)
            return
        raise ArgumentError(
            f"{self.o.label} writes to {loan.word!r}{at_source(loan.src)}, an array of the "
            "outside, which shares memory with an argument, or with `out=`. NumPy would show the "
            "write in both, and a trace keeps them apart. Pass a copy"
        )

    def _seen(self, loan: Loan) -> TapegradError:
        where = loan.seen.strip()
        return UnsupportedError(
            f"{loan.word!r}, an array from outside the function, is read {where or 'by code'} "
            "where that can't be followed, after the function has written to it"
            f"{at_source(loan.src)}: by C code or a library that reaches it through an object or "
            "a container. Pass the array itself, or write to a copy and return that"
        )

    def without(self, error: Exception) -> list[tuple[set[Any], Any]]:
        """The notes for repeating a trace that has failed with this error."""
        for loan in self.all():
            if isinstance(error, (TapegradError, TypeError)):
                self.again(self.choices.plain, loan.owner)
        return self.notes

    # ---- inner traces

    def over(self, trace: Trace) -> list[tuple[Loan, CapturedTracer]]:
        """The arrays that an inner trace, now over, has written to, with their tracers, which are
        dropped."""
        found = []
        for loan in self.all():
            for entry in [x for x in loan.stand_ins[1:] if x[0] is trace]:
                loan.stand_ins.remove(entry)
                loan.stand_ins[-1][1]._doubt = ""
                if entry[1]._version:
                    found.append((loan, entry[1]))
        return found


def inner(o: RunRecord, trace: Trace) -> list[tuple[Loan, CapturedTracer]]:
    """The arrays lent to a run that an inner trace, now over, has written to, with their
    tracers."""
    return [] if o.lent is None else o.lent.over(trace)


def written_inside(label: str, loan: Loan) -> TapegradError:
    """The error for a write by an inner trace that can't be passed on."""
    return UnsupportedError(
        f"{loan.word!r}, an array from outside the function, is written to{at_source(loan.src)} "
        f"in {label}, which is traced by itself there. Return the value instead, and write it "
        "outside"
    )


def _memory_of(x: Any) -> np.ndarray:
    """The memory that an object exposes, as an array; empty if there is none."""
    if type(x) is np.ndarray:
        return x
    try:
        return np.asarray(memoryview(x))
    except (TypeError, ValueError, BufferError, NotImplementedError):
        return np.empty(0)


def is_lent(o: RunRecord, x: Any) -> bool:
    """Whether this array's memory is lent, or will be when it is used."""
    if not isinstance(x, np.ndarray) or o.lent is None:
        return False
    owner = owner_of(x)
    early = o.lent.is_outside(owner) and o.lent.holds(o.choices.early, owner)
    return early or any(np.may_share_memory(x, loan.owner) for loan in o.lent.all())


def begin(o: RunRecord, choices: Choices) -> None:
    """Prepare lending for a run that begins to be observed."""
    o.choices = choices
    if choices.early:
        _lent(o)


def _lent(o: RunRecord) -> CapturedWrites:
    if o.lent is None:
        o.lent = CapturedWrites(o, o.choices)
        o.reads.looked_at = o.lent.looked_at
    return o.lent


def _lend(a: Activation, x: np.ndarray, traced: bool) -> str | None:
    """Lend an array that is about to be written to. Returns "" if it is lent, None if it isn't a
    captured one, and else why it can't be lent."""
    o = a.o
    if o.choices is None or o.trace is None or id(owner_of(x)) not in o.reads._owners:
        return None
    if not x.flags.writeable:
        return "that is read-only"
    lent = _lent(o)
    if lent.lend(x, traced) is None:
        return lent.objection(x) or "that the function hasn't made"
    lent.look(a)
    return ""


def _operand(trace: Trace, x: np.ndarray) -> Any:
    """The operand for a plain array on a tape: its tracer, if it is lent."""
    here = following.observer
    if here is None or here.lent is None:
        return x
    if traces_under_way()[0] is here.trace:
        return here.lent.of(x)
    if any(loan.is_written and np.may_share_memory(x, loan.owner) for loan in here.lent.all()):
        raise UnsupportedError(
            f"a derivative rule reads an array{at_line()} that the function has written to, which "
            "it holds no more when a later call begins. Pass it to the function as an argument"
        )
    return x


dispatch.lend, dispatch.lent = _lend, _operand
