"""The methods of ndarray that a tracer has, by name."""

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
from tapegrad.tracing.frontend.calling.accepting import accepted
from tapegrad.tracing.frontend.calling.vectorizing import holds_traced, numbers_of, objects_of
from tapegrad.tracing.frontend.operands.declaring import METHODS
from tapegrad.tracing.frontend.operands.operands import written_into_plain
from tapegrad.tracing.frontend.operands.parameters import running
from tapegrad.tracing.frontend.shapes import shaping
from tapegrad.tracing.recording.layout import settle
from tapegrad.tracing.recording.trace import current_trace, refusing
from tapegrad.tracing.runs.floating import method, watching
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, stand_in, to_operand


@unobserved
def call_method(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The method of this name, of the table below. A number of Python's has none of them: it is the
    front end that calls one."""
    if name == "astype" and np.empty(0).astype(*args, **kwargs).dtype == object:
        return objects_of(x)
    if running.numpys or x._weak or name == "resize":  # NumPy asks who else has the array
        return _called(name, x, args, kwargs)

    def run() -> Any:
        return _called(name, x, args, kwargs)

    return accepted(_own(name), (x, *args), kwargs, run, f"x.{name}")


_own = cache(method)


def _called(name: str, x: Any, args: Any, kwargs: Any) -> Any:
    declared = METHODS[name]
    given, named, _ = declared.taken((x, *args), kwargs)
    declared.check(given, named)
    if running.numpys:  # what called that is watched
        return settle(declared.function(*given, **named), given, certain=True)
    result = watching(method(name), given, named, lambda: declared.function(*given, **named))
    return settle(result, given, certain=True)


def _of_arrays(name: str) -> Any:
    """A method of arrays, as plain code calls it: of a plain array that is passed a traced value,
    which is traced as it is at each call, or of a traced one by the class, `np.ndarray.sum(x)`."""
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
            note_computed([x])  # by `map`, or with traced integers for a shape
            return own(x, *args, **kwargs)
        if name in CHANGING:
            raise refusing(written_into_plain(f"x.{name}"))
        trace: Any = current_trace()
        return dispatch.method(name, stand_in(trace, *to_operand(trace, x)), *args, **kwargs)

    return method


def declare_all() -> None:
    """Add what answers the methods of arrays where a traced value takes part."""
    for name in METHODS:
        declare(np.ndarray, name, _of_arrays(name), when=lambda args: any(map(_is_traced, args)))
    for name, x in vars(np.ndarray).items():
        if type(x) is WrapperDescriptorType and hasattr(ArrayTracer, name) and name not in _PYTHONS:
            declare(np.ndarray, name, _operator(name), when=lambda args: any(map(_is_traced, args)))


# Python's own, of all objects
_PYTHONS = frozenset(dir(object)) - {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"}


def _operator(name: str) -> Any:
    """`np.ndarray.__setitem__(x, k, y)` of a traced array is what it is by the operator."""
    own = getattr(np.ndarray, name)

    @functools.wraps(own)
    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, ArrayTracer):
            return own(x, *args, **kwargs)
        f = getattr(x, name) if x._subclass is None else x._as_numpys(name)
        return f(*args, **kwargs)

    return method


def _is_traced(x: Any) -> bool:
    """An array that the function makes counts: it may be the one to which results are written."""
    return isinstance(x, Tracer) or bool(dispatch.has_traced(x)) or holds_traced(x)
