"""The methods of ndarray that tracers have, by name."""

from __future__ import annotations

import functools
from functools import cache
from types import WrapperDescriptorType
from typing import Any

import numpy as np

from tapegrad.core.arrays import computed_in, is_known
from tapegrad.observe.answers.answers import declare
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.containers import CHANGING
from tapegrad.observe.observer import note_computed, unobserved
from tapegrad.tracing.frontend.calling.object_arrays import holds_traced, numbers_of, objects_of
from tapegrad.tracing.frontend.calling.validation import accepted
from tapegrad.tracing.frontend.operands.declaring import METHODS
from tapegrad.tracing.frontend.operands.operands import written_into_plain
from tapegrad.tracing.frontend.operands.parameters import running
from tapegrad.tracing.frontend.shapes import shaping
from tapegrad.tracing.recording.layout import settle
from tapegrad.tracing.recording.trace import current_trace, refusing
from tapegrad.tracing.runs.floating_errors import method, watching
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, stand_in, to_operand


@unobserved
def call_method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a method in the table below. Python numbers have none: the front end calls it."""
    if name == "astype" and np.empty(0).astype(*args, **kwargs).dtype == object:
        return objects_of(x)
    if running.numpys or x._weak or name == "resize":  # NumPy counts the references to the array
        return _called(name, x, args, kwargs)

    def run() -> Any:
        return _called(name, x, args, kwargs)

    return accepted(_own(name), (x, *args), kwargs, run, f"x.{name}")


_own = cache(method)


def _called(name: str, x: Any, args: Any, kwargs: Any) -> Any:
    declared = METHODS[name]
    given, named, _ = declared.taken((x, *args), kwargs)
    declared.check(given, named)
    if running.numpys:  # the caller is watched
        return settle(declared.function(*given, **named), given, certain=True)
    result = watching(method(name), given, named, lambda: declared.function(*given, **named))
    return settle(result, given, certain=True)


def _of_arrays(name: str) -> Any:
    """A method of arrays, called by plain code: on a plain array with a traced argument, which is
    then traced with its contents at each call; or on a tracer by the class, `np.ndarray.sum(x)`."""
    own = getattr(np.ndarray, name)
    of_values = name in CHANGING or METHODS[name].function.__module__ != shaping.__name__

    @functools.wraps(own)
    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(x, Tracer):
            return dispatch.method(name, x, *args, **kwargs)
        given = (*args, *kwargs.values())
        traced = any(map(dispatch.has_traced, given))
        traced = traced or (name not in CHANGING and any(isinstance(y, Tracer) for y in given))
        if name == "astype" and holds_traced(x):
            kind = own(np.empty(0, object), *args, **kwargs).dtype
            return own(x, *args, **kwargs) if kind.hasobject else numbers_of(x, kind)
        if not (of_values and traced and type(x) is np.ndarray and is_known(computed_in(x.dtype))):
            note_computed([x])  # called by `map`, or with traced integers for a shape
            return own(x, *args, **kwargs)
        if name in CHANGING:
            raise refusing(written_into_plain(f"x.{name}"))
        trace: Any = current_trace()
        return dispatch.method(name, stand_in(trace, *to_operand(trace, x)), *args, **kwargs)

    return method


def declare_all() -> None:
    """Register the methods of arrays for calls with traced arguments."""
    for name in METHODS:
        declare(np.ndarray, name, _of_arrays(name), when=lambda args: any(map(_is_traced, args)))
    for name, x in vars(np.ndarray).items():
        if type(x) is WrapperDescriptorType and hasattr(ArrayTracer, name) and name not in _PYTHONS:
            declare(np.ndarray, name, _operator(name), when=lambda args: any(map(_is_traced, args)))


# methods of every Python object
_PYTHONS = frozenset(dir(object)) - {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"}


def _operator(name: str) -> Any:
    """An operator by its name, `np.ndarray.__setitem__(x, k, y)`, on a traced array."""
    own = getattr(np.ndarray, name)

    @functools.wraps(own)
    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, ArrayTracer):
            return own(x, *args, **kwargs)
        f = getattr(x, name) if x._subclass is None else x._as_numpys(name)
        return f(*args, **kwargs)

    return method


def _is_traced(x: Any) -> bool:
    """Whether `x` is traced. A made array counts: results may be written to it."""
    return isinstance(x, Tracer) or bool(dispatch.has_traced(x)) or holds_traced(x)
