"""Leaked tracers: left by a function in objects that outlive its trace, such as lists, attributes
and globals.

After the trace they represent nothing, and a later call, which runs the tape and not the function,
would leave none. So when a trace is over, all places that the function has written to are searched.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np

from tapegrad.core.trees import flatten, unflatten
from tapegrad.errors import LeakedTracerError
from tapegrad.ir.tape import Source, Tape, Var
from tapegrad.observe.guards.reads import Reads
from tapegrad.observe.objects.purity import is_pythons_class
from tapegrad.observe.objects.settings import traced_in_caches
from tapegrad.observe.program.source import at_source
from tapegrad.tracing.memory.escaped import put_in_cache
from tapegrad.tracing.outside.stored import plain
from tapegrad.tracing.recording.trace import Trace
from tapegrad.tracing.tracers.tracer import Tracer

_DEEPEST = 4  # levels of nested containers


def check_leaks(trace: Trace, reads: Reads, tape: Tape) -> None:
    """Raise a LeakedTracerError if one of the trace's values is in a place that the function has
    written to. In caches of functools.lru_cache they are replaced by plain values."""
    for cache, x in traced_in_caches(reads):
        if x._trace is trace:
            put_in_cache(cache, x, plain(trace, x))
    for write in reads.written.values():
        for found in _tracers(write.now(), _DEEPEST):
            if found._trace is trace and not found._is_constant():
                where = at_source(write.src or _source(found, tape))
                raise LeakedTracerError(
                    f"{trace.label} left a traced value{where} in {write.word!r}, which outlives "
                    "the trace. Later calls don't run the function again and would leave nothing "
                    "there. Return the value from the function instead, as a result or with "
                    "has_aux=True"
                )


def check_returned(trace: Trace, x: Any, what: str) -> None:
    """Raise a LeakedTracerError if an untraced result contains one of the trace's values."""
    for found in _tracers(x, _DEEPEST, inside=True):
        if found._trace is trace and not found._is_constant():
            raise LeakedTracerError(
                f"{trace.label} returns {what}, which holds a traced value. Later calls don't "
                "run the function again and would find this one there. Return arrays, numbers, and "
                "tuples, lists, dicts, named tuples and dataclasses of them"
            )


def release(error: BaseException | None) -> None:
    """Replace the tracers in an error that leaves the outermost trace by their values, in its
    arguments and attributes and those of the errors before it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if _holds_tracers(error.args):
            error.args = _released(error.args)
        own = getattr(error, "__dict__", {})
        own.update({k: _released(x) for k, x in list(own.items()) if _holds_tracers(x)})
        error = error.__cause__ or error.__context__


def _holds_tracers(x: Any) -> bool:
    return next(_tracers(x, _DEEPEST), None) is not None


def _released(tree: Any) -> Any:
    leaves, structure = flatten(tree)
    return unflatten(
        structure, [plain(x._trace, x) if isinstance(x, Tracer) else x for x in leaves]
    )


def _tracers(x: Any, depth: int, inside: bool = False) -> Iterator[Tracer]:
    """Yield the tracers in a value, and in containers there; if `inside`, also in attributes of
    objects."""
    if isinstance(x, Tracer):
        yield x
    elif hasattr(type(x), "_labels_first"):
        yield from _tracers(getattr(x, "_branches", ()), depth, inside)
    elif depth and _is_container(x):
        found = x.values() if isinstance(x, dict) else x.flat if isinstance(x, np.ndarray) else x
        for element in list(found):
            known = isinstance(element, Tracer) or _is_container(element)
            if inside or known or hasattr(type(element), "_labels_first"):
                yield from _tracers(element, depth - 1, inside)
    elif depth and inside and is_pythons_class(type(x)):
        for value in list(getattr(x, "__dict__", {}).values()):
            yield from _tracers(value, depth - 1, inside)


def _is_container(x: Any) -> bool:
    if isinstance(x, (list, tuple, set, dict, collections.deque)):
        return True
    return issubclass(type(x), np.ndarray) and x.dtype.hasobject


def _source(tracer: Tracer, tape: Tape) -> Source | None:
    """The line of the call that computed a traced value."""
    operand = tracer._operand
    if isinstance(operand, Var):
        for call in tape.calls:
            if operand in call.outs:
                return call.src
    return None
