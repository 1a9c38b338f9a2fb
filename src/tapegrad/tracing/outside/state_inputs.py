"""Numbers and arrays outside the function that it reads and sets again: `self.calls += 1`.

They have another value at each call. So where code looks up a name or an item of a dict that it
also sets, the value becomes an input of the tape, which each call reads before it begins.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from tapegrad.core.arrays import computed_in, is_half, plain, read
from tapegrad.core.listing import instructions_of, kept_by_code
from tapegrad.core.request import leaf_key
from tapegrad.errors import TapegradError
from tapegrad.ir.tape import Aval
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.code_facts import CHANGING, FIXED, places
from tapegrad.observe.activations.retracing import Retrace
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.descriptions import varies
from tapegrad.observe.guards.locations import (
    ABSENT,
    ADDS,
    END,
    ENDS,
    START,
    WHOLE,
    Location,
    Write,
    value_at,
)
from tapegrad.observe.objects import inspection
from tapegrad.observe.objects.containers import KEYED, NUMBERED
from tapegrad.observe.objects.naming import Key
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import operand_at
from tapegrad.tracing.draws.recorded import StateInput
from tapegrad.tracing.outside.captured_writes import is_lent
from tapegrad.tracing.tracers.tracer import stand_in


@kept_by_code
def _set_by(code: CodeType) -> frozenset[tuple[str, Any]]:
    """The names and constant keys that a code sets, and the offset where `d[k] += 1` looks an item
    up."""
    text = [i for i in instructions_of(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    names: set[tuple[str, Any]] = set()
    for k, i in enumerate(text):
        counts = i.opname == "BINARY_SUBSCR" and text[k - 1].opname == "COPY"
        if counts or i.opname == "STORE_SUBSCR":
            key = text[k - 3 if counts else k - 1]  # it is copied together with the container
            if key.opname == "LOAD_CONST":
                names.add(("STORE_SUBSCR", key.argval))
            elif counts:
                names.add((_COUNTS, i.offset))
        elif i.opname.startswith("STORE_"):
            names.add((i.opname, i.argval))
    if _adds(code):
        names.add(ADDS)
    return frozenset(names)


_COUNTS = "counts an item"
_ADDING = frozenset(["append", "extend", "appendleft", "extendleft"])


def length_of(a: Activation, x: Any) -> Callable[[Any], None] | None:
    """Handle `len(x)` of a list or deque that the code adds to: the length before the call becomes
    an input, and the number of added items is added to it."""
    place, written = a.o.reads.place(x), [w for w in a.o.reads.written.values() if w.x is x]
    if place is None or getattr(x, "maxlen", None) is not None or _is_noted(a.o, x):
        return None
    if any(w.at is WHOLE for w in written):
        return None
    added = sum(w.added for w in written if w.at in ENDS)
    before = len(x) - added
    found = input_of(a, *ADDS, lambda: place, ("length", None), before)
    if found is None:
        return None

    def then(result: Any) -> None:
        found(before)
        if added:
            frames.replace(operand_at(a.stack, 0), frames.operand(a.stack, 0) + added)

    return then


def _is_noted(o: Any, x: Any) -> bool:
    """Whether all items of a container are inputs, or changes of it are postponed."""
    return id(x) in o.reads.open or id(x) in o.reads.waiting


def last_of(a: Activation, x: Any, key: int) -> Callable[[Any], None] | None:
    """Handle `x[key]`, counted from the end, of a list that the code adds to: an item that existed
    before the call becomes an input."""
    written = [w for w in a.o.reads.written.values() if w.x is x]
    if _is_noted(a.o, x):
        return None
    added = sum(w.added for w in written)
    if key >= -added or any(w.at is not END for w in written):
        return None
    at = ("item", Key(key + added))
    return input_of(a, *ADDS, lambda: a.o.reads.place(x), at, x[key])


def tail_of(a: Activation, x: Any, key: slice) -> Callable[[Any], None] | None:
    """Handle `x[-k:]` of a list that the code adds to, item by item."""
    count = -key.start if type(key.start) is int else 0
    place, reads = a.o.reads.place(x), a.o.reads
    if _sets_slices(a.frame.f_code):
        open_list(a.o, x)
    if (
        not 0 < count <= min(len(x), MAX_INPUTS)
        or key.stop is not None
        or key.step not in (None, 1)
    ):
        return None
    if place is None or _is_noted(a.o, x) or (id(x), START) in reads.written:
        return None
    added = sum(w.added for w in reads.written.values() if w.x is x)
    items = x[-count:]
    for k in range(-count, -added):
        if last_of(a, x, k) is None:
            return None
        items[k] = a.o.found[id(x), ("item", Key(k + added))][1]
    reads._fact(f"len({reads.named(place)}) >= {count - added}", place.word)
    return lambda result: frames.replace(operand_at(a.stack, 0), items)


@lru_cache(maxsize=1024)
def _sets_slices(code: CodeType) -> bool:
    """Whether a code sets slices of lists, as one that shifts their items does."""
    names = [i.opname for i in instructions_of(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    return "STORE_SLICE" in names or ("BUILD_SLICE", "STORE_SUBSCR") in itertools.pairwise(names)


def joined_to(o: Any, x: Any) -> Callable[[Any], None] | None:
    """Handle `x + [...]` of an existing list: only its first items aren't known, and each call
    takes them from the list at that time. Any other use of the result reads the items."""
    place, reads = o.reads.place(x), o.reads
    if place is None or not o.again or any(w.x is x for w in reads.written.values()):
        return None
    if id(x) in reads.joined:
        return None
    count = len(x)

    def then(result: Any) -> None:
        if type(result) is list:
            reads.joined[id(result)] = place, count
            reads._place(result, "", place.word)
            reads._held.append(result)

    return then


def input_of(
    a: Activation,
    store: str,
    name: Any,
    holder_of: Callable[[], Location | None],
    at: Any,
    known: Any = None,
) -> Callable[[Any], None] | None:
    """Handle the look-up of a name in a place. If the code also sets it, the value, which may be
    `known`, becomes an input. `store` is the instruction that sets such a name."""
    o = a.o
    if not o.again or o.library is not None:  # a package may keep it for other calls
        return None
    code, place = a.frame.f_code, a.frame.f_lasti
    names, fixed = _set_by(code), places(code, FIXED)
    holder = holder_of()
    if holder is None or isinstance(holder.x, np.ndarray) or not _may_take_inputs(o):
        return None
    key, written = (id(holder.x), at), o.reads.written
    if key in written or _is_noted(o, holder.x):
        return None
    if any((id(holder.x), moved) in written for moved in (START, WHOLE)):
        return None
    if key not in o.found:
        sets = (store, name) in names or ((_COUNTS, place) in names and store == "STORE_SUBSCR")
        if place in fixed or not (sets or place in places(code, CHANGING)):
            told = ("class", at[1]) if isinstance(holder.x, type) else at
            o.reads.sites.setdefault((id(holder.x), told), (places(code, CHANGING), place))
            return None
        value = value_at(holder.x, at) if known is None else known
        fix = functools.partial(_fix, o, key)
        if isinstance(value, tuple):
            if not _made_row(o, holder, at, name, value):
                return None
        elif not _is_input(value):
            o.reads.others.add(key)
            return None
        elif is_lent(o, value) or not o.reads.takes(holder, at, value, fix):
            return None
        else:
            _made_input(o, holder, at, value, name)
    value, tracer, uses = o.found[key]
    uses.append((fixed, place))
    o.reads.takes_again(key)

    def then(result: Any) -> None:
        if result is value or (type(result) is type(value) is int and result == value):
            frames.replace(operand_at(a.stack, 0), tracer)
        else:
            o.reads.use_once(str(name))

    return then


def _may_take_inputs(o: Any) -> bool:
    """Whether a value looked up now is looked up once per call: not in a round of a loop, or a row,
    that is traced once for all. The function of an inner derivative, traced by itself, looks it up
    once."""
    trace = o.trace
    if not o.again or trace is None or trace.inside is not None:
        return False
    running = dispatch.running()
    if trace not in running:
        return False
    inner = running[running.index(trace) + 1 :]
    return not any(t.repeats or t.holds_draws for t in inner)


def _fix(o: Any, key: Any) -> None:
    """Note that an input is read in another way, too: it is a constant from the next trace on."""
    for sites, place in o.found[key][2]:
        sites.add(place)


OPENED = (*NUMBERED, *KEYED)
MAX_INPUTS = 100  # maximal number of a container's items that are inputs
_closed: set[tuple[str, str]] = set()  # lists that C code needs plain: by function, and by name


def open_list(o: Any, x: Any) -> None:
    """Make inputs of the items of a list, deque or dict: it is about to change otherwise than by
    added items or by setting one item. A later call then sets all items."""
    place, reads = o.reads.place(x), o.reads
    if type(x) not in OPENED or place is None or _is_noted(o, x) or id(x) in reads._whole:
        return
    if not _may_take_inputs(o):
        return
    key = o.label, place.word
    writes = [w for w in reads.written.values() if w.x is x]
    if key in _closed or len(x) > MAX_INPUTS or (held := _held_before(reads, x, writes)) is None:
        return
    before, pairs = held
    if any(x[k] is not before[j] for k, j in pairs):
        return
    for write in writes:  # added items aren't among those
        del reads.written[id(x), write.at]
    for k, j in pairs:
        at, value = ("item", Key(j)), x[k]
        fix = functools.partial(_fix, o, (id(x), at))
        if not _is_input(value) or not reads.takes(place, at, value, fix):
            reads.read(place, at, f"{{}}[{reads.key(j)}]", value, place.word)
            continue
        made = o.found[id(x), at][1] if (id(x), at) in o.found else _made_input(o, place, at, value)
        inspection.base_of(type(x)).__setitem__(x, k, made)
        o.found[id(x), at][2].append((_closed, key))
    reads.shape_of(place, before)
    reads.write(place, WHOLE, "", place.word)
    write = reads.written[id(x), WHOLE]
    write.before, write.opened = before, [ABSENT] if writes else write.held()
    reads.open.add(id(x))


def _held_before(reads: Any, x: Any, writes: Sequence[Write]) -> tuple[Any, Any] | None:
    """A container's contents before the run has written to it, and pairs of keys, now and then, of
    the unchanged items. None if unknown."""
    if isinstance(x, dict):
        changed = {w.at[1].key: w for w in writes if w.at[0] == "item" and not w.deletes}
        if len(changed) < len(writes) or not all(map(reads.is_key, x)):
            return None
        before = {k: changed[k].before if k in changed else value for k, value in x.items()}
        before = {k: value for k, value in before.items() if value is not ABSENT}
        return before, [(k, k) for k in before if k not in changed]
    if len(writes) > 1 or any(w.at not in ENDS for w in writes):
        return None
    at, added = (writes[0].at, writes[0].added) if writes else (END, 0)
    held = writes[0].before if writes else list(x)
    first = len(held) + added - len(x) if writes and at is END else 0
    shown = added if at is START else 0
    return held, [(k, k - shown + first) for k in range(shown, shown + max(len(x) - added, 0))]


def open_if_bounded(o: Any, x: Any) -> None:
    """Make inputs of the items of a container that is about to be read as a whole, in three cases:
    a dict of which the run has set items; contents that differed at a later call; a bounded deque
    that the run adds to, or may."""
    place, kind = o.reads.place(x), type(x)
    if kind not in OPENED or place is None:
        return
    frame = None if o.running is None else o.running.frame
    writes = any(w.x is x for w in o.reads.written.values())
    adds = frame is not None and _adds(frame.f_code)
    reader = o.reads.reader
    others = reader is not None and reader[1] in reader[0]
    if getattr(x, "maxlen", None) is not None:
        opens = writes or adds
    elif isinstance(x, dict):
        opens = writes or others
    else:
        opens = others and not (writes or adds or o.reads.tells)
    if opens:
        open_list(o, x)


def _adds(code: CodeType) -> bool:
    return not _ADDING.isdisjoint(code.co_names)


def _made_input(o: Any, holder: Location, at: Any, value: Any, name: Any = None) -> Any:
    """The traced value of a place that becomes an input; `name` is for messages."""
    kept, weak = plain(np.array(value, order="C")), type(value) in (int, float)
    half, known = kept.dtype if is_half(kept.dtype) else None, read(kept)
    kept = kept if kept.shape else known  # a half-precision number is passed as float32
    var = o.trace.builder.fresh(Aval(known.shape, known.dtype, weak=weak))
    o.trace.captured[id(kept)] = var, kept
    if kept.dtype.kind == "i":
        o.trace.counters.add(var)
    tracer = stand_in(o.trace, var, known if known.shape else known[()], weak)
    o.trace.keep_as(tracer, half)
    word = name if isinstance(name, str) else holder.word
    o.drawn.append(StateInput(holder.x, at, leaf_key(value), kept, word))
    o.found[id(holder.x), at] = value, tracer, []
    return tracer


def _made_row(o: Any, holder: Location, at: Any, name: Any, value: Any) -> bool:
    """Make inputs of the numbers in a tuple that is another one at each call; a tuple of the traced
    numbers replaces it. Returns whether it has any."""
    reads, key = o.reads, (id(holder.x), at)
    if not _has_numbers(value) or reads.place(value) is not None:
        return False
    reads.others.add(key)
    found = f"{reads._value(value_at)}({{}}, {reads._value(at)})"
    reads.read(holder, at, found, value, name if isinstance(name, str) else "")
    place = reads.place(value)
    if place is None:  # it was written to, or read before
        return False
    o.found[key] = value, _row_in(o, place, key), []
    return True


def _row_in(o: Any, place: Location, key: Any) -> Any:
    """The replacement of the tuple at a place; `key` is the place of the outermost tuple."""
    reads, parts = o.reads, []
    reads.shape_of(place, place.x)
    for k, x in enumerate(tuple.__iter__(place.x)):
        at, fix = ("item", Key(k)), functools.partial(_fix, o, key)
        if _is_input(x) and reads.takes(place, at, x, fix):
            parts.append(_made_input(o, place, at, x))
            continue
        reads.others.add((id(place.x), at))
        reads.read(place, at, reads.item_of(place, k), x, place.word)
        inner = reads.place(x) if _has_numbers(x) else None
        parts.append(x if inner is None else _row_in(o, inner, key))
    made = tuple.__new__(type(place.x), parts)
    reads.rows[id(made)] = functools.partial(_looked_at, o, key)
    return made


def _has_numbers(x: Any) -> bool:
    """Whether this is a tuple that contains numbers, and has no attributes."""
    return (
        isinstance(x, tuple)
        and any(_is_input(y) or _has_numbers(y) for y in tuple.__iter__(x))
        and not inspection.own_names(x)
    )


def _looked_at(o: Any, key: Any) -> None:
    """Record that the identity of a tuple was compared that a replacement represents: the trace is
    repeated."""
    o.asked_rows.append(key)


def varied(a: Activation, question: Any, result: Any, site: tuple[set[int], int]) -> None:
    """Make inputs of the numbers in the result of a repeated call, which was another one before.
    They are looked up in the call's result. `site` is noted if that fails."""
    o = a.o
    if not _may_take_inputs(o):
        return
    holder = o.reads.constant(question, "what a function returns")

    def each(x: Any, path: tuple[Any, ...]) -> Any:
        if type(x) in (tuple, list):
            return type(x)(each(y, (*path, k)) for k, y in enumerate(x))
        if type(x) is dict:
            return {key: each(y, (*path, key)) for key, y in x.items()}
        if not varies(x):
            return x
        tracer = _made_input(o, holder, ("answer", path), x)
        o.found[id(question), ("answer", path)][2].append(site)
        if type(x) is np.ndarray:
            tracer._ordered = x.flags.c_contiguous
        return tracer

    made = each(result, ())
    if any(d.generator is question for d in o.drawn):
        question.varies = True
        frames.replace(operand_at(a.stack, 0), made)


def _is_input(x: Any) -> bool:
    if type(x) is int:
        return -(2**63) < x < 2**63
    if type(x) is np.ndarray:
        return computed_in(x.dtype).kind in "fc" and x.ndim > 0
    return type(x) is float or (isinstance(x, np.generic) and computed_in(x.dtype).kind in "fc")


def check_found(o: RunRecord) -> None:
    """Repeat the trace if a value turned out not to be a valid input."""
    if notes := _not_inputs(o):
        raise Retrace(notes, None)


def _not_inputs(o: RunRecord) -> list[Any]:
    """The notes on values that must be constants: an array that became an input was written to in
    place, or the program has compared the identity of a tuple of inputs."""
    notes = [
        x
        for _, found, uses in o.found.values()
        if not isinstance(found, tuple) and found._owner._version
        for x in uses
    ]
    return notes + [x for key in o.asked_rows for x in o.found[key][2]]


def arrays_found(o: RunRecord) -> dict[int, tuple[Any, int]]:
    """The arrays that became inputs, by the ids of their tracers, each with its number among the
    values that each call looks up."""
    numbers = {
        (id(d.generator), d.at): k for k, d in enumerate(o.drawn) if isinstance(d, StateInput)
    }
    return {
        id(tracer): (value, numbers[key])
        for key, (value, tracer, _) in o.found.items()
        if isinstance(value, np.ndarray)
    }


def without_found(o: RunRecord, error: Exception) -> Retrace | None:
    """A trace has failed with this error: the repetition to try without inputs that may be the
    cause. That is all of them if a plain number was needed. None if there are none."""
    if isinstance(error, (TapegradError, TypeError)):
        notes = [x for _, _, uses in o.found.values() for x in uses]
    else:  # the program's own error; earlier writes have reached the array
        notes = _not_inputs(o)
    return Retrace(notes, error) if notes else None


dispatch.found = input_of
dispatch.length, dispatch.last = length_of, last_of
dispatch.tail, dispatch.joined = tail_of, joined_to
dispatch.varied = varied
dispatch.open, dispatch.open_if_bounded = open_list, open_if_bounded
