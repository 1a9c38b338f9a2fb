"""Which values may decide, in a trace without the values of some arguments.

In an `idle` trace no value may decide, except the given ones: arguments that were passed with their
values, where others were passed as shapes, and values computed from these alone, which the tape
tells. Each assumption about a value is a guard, so `Trace.guard` checks this, as do a few callers
that read a value for other reasons.
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
    """Context in which new traces are of calls where these leaves alone have values; of calls with
    all values if `values` is None. If another value decides, the error has this advice."""
    before = _given.ids, _given.advice
    _given.ids, _given.advice = None if values is None else frozenset(map(id, values)), advice
    try:
        yield
    finally:
        _given.ids, _given.advice = before


def without_values() -> bool:
    """Whether a new trace is of a call without some of its values."""
    return _given.ids is not None


def is_given(x: Any) -> bool:
    """Whether the value of an argument's leaf may decide. Plain Python numbers may: they don't
    depend on an array, or were guarded when they were read from one."""
    if _given.ids is None or is_number(x):
        return True
    if isinstance(x, Proxy):
        trace: Any = x._trace
        return trace.idle and may_decide(trace, x._read()[0])
    return id(x) in _given.ids


def may_decide(trace: Any, operand: Operand) -> bool:
    """Whether the value of an operand may decide in a trace."""
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
    """Raise an error if the value of an operand must not decide, as the function isn't called with
    it."""
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
