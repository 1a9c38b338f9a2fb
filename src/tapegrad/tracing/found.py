"""Numbers and arrays that a function finds outside and sets anew: `self.calls += 1`.

They are others at each call. So where a code looks up a name or an item of a dict that it sets too,
what is there becomes an input of the tape, which each call reads before it begins.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from tapegrad.core.request import leaf_key
from tapegrad.ir.tape import Aval
from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.drawn import Found
from tapegrad.tracing.observe import frames
from tapegrad.tracing.observe.activation import Activation
from tapegrad.tracing.observe.frames import operand_at
from tapegrad.tracing.observe.naming import Key
from tapegrad.tracing.observe.notes import Notes
from tapegrad.tracing.observe.places import ADDS, END, ENDS, WHOLE, Location, value_at
from tapegrad.tracing.trace import Reconsidered
from tapegrad.tracing.tracer import stand_in


@lru_cache(maxsize=1024)
def _set_by(code: CodeType) -> tuple[frozenset[tuple[str, Any]], set[int]]:
    """What a code sets, of items their constant keys, and the offset where `d[k] += 1` looks one
    up; and the places in it where what is looked up stays what it is, since a trace that took it
    for an input has failed."""
    text = [i for i in dis.Bytecode(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    names: set[tuple[str, Any]] = set()
    for k, i in enumerate(text):
        counts = i.opname == "BINARY_SUBSCR" and text[k - 1].opname == "COPY"
        if counts or i.opname == "STORE_SUBSCR":
            key = text[k - 3 if counts else k - 1]  # it is copied with what holds the item
            if key.opname == "LOAD_CONST":
                names.add(("STORE_SUBSCR", key.argval))
            elif counts:
                names.add((_COUNTS, i.offset))
        elif i.opname.startswith("STORE_"):
            names.add((i.opname, i.argval))
    if not _ADDING.isdisjoint(code.co_names):
        names.add(ADDS)
    return frozenset(names), set()


_COUNTS = "counts an item"
_ADDING = frozenset(["append", "extend", "appendleft", "extendleft"])


def length_of(a: Activation, x: Any) -> Callable[[Any], None] | None:
    """`len(x)` of a list or deque to which the code adds: what it was when the call began is an
    input, and what was added since is counted."""
    place, written = a.o.reads.place(x), [w for w in a.o.reads.written.values() if w.x is x]
    if place is None or getattr(x, "maxlen", None) is not None:
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


def last_of(a: Activation, x: Any, key: int) -> Callable[[Any], None] | None:
    """`x[key]`, counted from the end, of a list to which the code adds: what was there when the
    call began is an input."""
    written = [w for w in a.o.reads.written.values() if w.x is x]
    added = sum(w.added for w in written)
    if key >= -added or any(w.at is not END for w in written):
        return None
    at = ("item", Key(key + added))
    return input_of(a, *ADDS, lambda: a.o.reads.place(x), at, x[key])


def input_of(
    a: Activation,
    store: str,
    name: Any,
    holder_of: Callable[[], Location | None],
    at: Any,
    known: Any = None,
) -> Callable[[Any], None] | None:
    """A name is about to be looked up in a place. If the code sets it too, what is found becomes an
    input; `store` is the instruction that sets such a name. What is there may be `known`."""
    o = a.o
    names, fixed = _set_by(a.frame.f_code)
    place = a.frame.f_lasti
    if (store, name) not in names and ((_COUNTS, place) not in names or store != "STORE_SUBSCR"):
        return None
    if not o.again:
        return None
    trace, holder = o.trace, holder_of()
    if holder is None or trace is None or not trace.is_innermost or trace.inside is not None:
        return None
    key = id(holder.x), at
    if key in o.reads.written or place in fixed:
        return None
    if key not in o.found:
        value = value_at(holder.x, at) if known is None else known
        if not _is_input(value) or not o.reads.takes(holder, at, value):
            return None
        kept, weak = np.array(value, order="C"), type(value) in (int, float)
        var = trace.builder.fresh(Aval(kept.shape, kept.dtype, weak=weak))
        trace.captured[id(kept)] = var, kept
        tracer = stand_in(trace, var, kept if kept.shape else kept[()], weak)
        o.drawn.append(Found(holder.x, at, leaf_key(value), kept))
        o.found[key] = value, tracer, []
    value, tracer, uses = o.found[key]
    uses.append((fixed, place))

    def then(result: Any) -> None:
        if result is value or (type(result) is type(value) is int and result == value):
            frames.replace(operand_at(a.stack, 0), tracer)
        else:
            o.reads.lost(str(name))

    return then


def _is_input(x: Any) -> bool:
    if type(x) is int:
        return -(2**63) <= x < 2**63
    if type(x) is np.ndarray:
        return x.dtype.kind in "fc" and x.ndim > 0
    return type(x) is float or (isinstance(x, np.generic) and x.dtype.kind in "fc")


def check_found(o: Notes) -> None:
    """An array that became an input was written to in place: then it stays what it is."""
    notes = [x for _, tracer, uses in o.found.values() if tracer._owner._version for x in uses]
    if notes:
        raise Reconsidered(notes, None)


def without_found(o: Notes, error: Exception) -> Reconsidered | None:
    """A trace has failed with this error. Where something became an input it is made again without
    that."""
    notes = [x for _, _, uses in o.found.values() for x in uses]
    return Reconsidered(notes, error) if notes else None


dispatch.found = input_of
dispatch.length, dispatch.last = length_of, last_of
