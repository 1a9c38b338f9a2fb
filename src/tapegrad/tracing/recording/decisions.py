"""Which values may decide what a function does, where it is traced without some of them.

In a trace that is `idle` values decide nothing, but for those that are given: arguments that were
passed with their values, where others were passed as shapes, and what is computed of these alone.
The tape tells what is. Whatever is taken for granted of a value is a guard, so `Trace.guard` is
where this is asked, and a few lines beside it that read a value for less.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tapegrad.core.trees import is_number
from tapegrad.errors import ConversionError
from tapegrad.ir.tape import Literal, Operand
from tapegrad.observe.program.source import at_line
from tapegrad.observe.values.proxy import Proxy


class _Given(threading.local):
    ids: frozenset[int] | None = None
    advice: str = ""


_given = _Given()


SHAPES = "Pass arrays in the place of shapes: what they hold decides then"


@contextlib.contextmanager
def only(values: Sequence[Any] | None, advice: str = SHAPES) -> Iterator[None]:
    """In here traces that begin are of calls of which these leaves alone have values; of calls
    with values if it is None. Where another one decides, the error has this advice."""
    before = _given.ids, _given.advice
    _given.ids, _given.advice = None if values is None else frozenset(map(id, values)), advice
    try:
        yield
    finally:
        _given.ids, _given.advice = before


def without_values() -> bool:
    """Whether a trace that begins is of a call without some of its values."""
    return _given.ids is not None


def is_given(x: Any) -> bool:
    """Whether the value of an argument's leaf may decide. Plain numbers of Python's may: they come
    of no array unless that was asked for them."""
    if _given.ids is None or is_number(x):
        return True
    if isinstance(x, Proxy):
        trace: Any = x._trace
        return trace.idle and may_decide(trace, x._read()[0])
    return id(x) in _given.ids


def may_decide(trace: Any, operand: Operand) -> bool:
    """Whether what an operand holds may decide what the function of a trace does."""
    if not trace.idle or isinstance(operand, Literal):
        return True
    if trace.stands is None:
        return False
    known, seen, pending = trace.certain, {operand}, [operand]
    captured = dict(trace.captured.values())
    while pending:
        var = pending.pop()
        if var in known:
            continue
        call = trace.made_by(var)
        if call is not None:
            more = [x for x in call.operands if not isinstance(x, Literal) and x not in seen]
            seen.update(more)
            pending += more
        elif var in captured:
            x = captured[var]
            if isinstance(x, Proxy) and not is_given(x):
                return False
        elif var in trace.stands or var not in trace.builder.inputs:
            return False
    known |= seen
    return True


def check_decision(trace: Any, operand: Operand, what: str) -> None:
    """An error if a value decides what a function does that isn't called with it."""
    if trace.presuming or may_decide(trace, operand):
        return
    why = "isn't called with these values"
    if without_values():
        why = f"is traced without values. {_given.advice}"
    raise trace.refused(
        ConversionError(
            f"a traced value decides as {what}{at_line()} in {trace.label}, which {why}"
        )
    )
