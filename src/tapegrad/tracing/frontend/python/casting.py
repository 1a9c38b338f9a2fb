"""Python's `float`, `int` and `complex`, and NumPy's scalar types, called on traced values.

The conversion is recorded as a cast. Values that aren't traced are converted as usual.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

import numpy as np

from tapegrad.observe.answers.answers import declare
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import observed, unobserved
from tapegrad.primitives.complexes import cartesian
from tapegrad.tracing.frontend.indexing.indexing import as_python
from tapegrad.tracing.frontend.operands.memory import scalar
from tapegrad.tracing.frontend.operands.operands import cast
from tapegrad.tracing.frontend.python.mathematics import as_complex, is_followed, said, said_complex
from tapegrad.tracing.frontend.shapes.making import check_fits
from tapegrad.tracing.loops.stacking import strong
from tapegrad.tracing.memory.created import is_created
from tapegrad.tracing.operators.integer_bounds import whole
from tapegrad.tracing.recording.trace import innermost
from tapegrad.tracing.tracers.tracer import Tracer, record


@unobserved
def _float(*args: Any, **kwargs: Any) -> Any:
    """float(x). A value computed from integers alone is guarded, and becomes a plain number."""
    x = said(args[0]) if len(args) == 1 and not kwargs else None
    if not isinstance(x, Tracer) or not is_followed([x]):
        with observed():  # objects may define __index__
            return float(*args if x is None else [x], **kwargs)
    x._trace.check_alive()
    if x.dtype.kind == "c":
        number: Any = 1j if x._weak else x
        float(number)  # raises an error
    if x.shape:
        float(np.empty(x.shape, x.dtype))  # NumPy's own error, unless it has one element
    return x if x._weak and x.dtype.kind == "f" else as_python(cast(x, np.float64))


@unobserved
def _int(*args: Any, **kwargs: Any) -> Any:
    """int(x), a traced integer."""
    x = said(args[0], ("__int__", "__index__")) if len(args) == 1 and not kwargs else None
    if isinstance(x, Tracer) and not is_created(x) and not x.shape and x.dtype.kind != "c":
        return whole(x)
    with observed():
        return int(*args if x is None else [x], **kwargs)


@unobserved
def _complex(*args: Any, **kwargs: Any) -> Any:
    """complex(x, y), which is x + yi, for numbers that may be complex themselves."""
    args = tuple(map(said_complex, args))
    given = (*args, *kwargs.values())
    if not is_followed(given) or any(isinstance(x, str) for x in given):
        args = tuple(map(_guarded, args))
        kwargs = {name: _guarded(x) for name, x in kwargs.items()}
        with observed():
            return complex(*args, **kwargs)
    complex(*[0] * len(args), **dict.fromkeys(kwargs, 0))  # Python's own error
    return _of_parts(*args, **kwargs)


def _guarded(x: Any) -> Any:
    """A value computed from integers alone as a plain number."""
    return float(x) if isinstance(x, Tracer) and x.dtype.kind in "iub" else x


def _of_parts(real: Any = 0, imag: Any = None) -> Any:
    x, y = as_complex(real), None if imag is None else as_complex(imag)
    parts = (x.real, x.imag)
    if y is not None:
        parts = x.real - y.imag, x.imag + y.real if _is_complex(real) else y.real
    trace = innermost([z for z in (x, y) if isinstance(z, Tracer)])
    return record(trace, cartesian, [cast(part, np.float64) for part in parts])._as_pythons()


def _is_complex(x: Any) -> bool:
    return x.dtype.kind == "c" if isinstance(x, Tracer) else hasattr(type(x), "__complex__")


def _type(kind: Any) -> Callable[..., Any]:
    """The replacement for a NumPy scalar type: it converts an array to an array, and returns a
    scalar of the type unchanged."""

    @unobserved
    def cast_to(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if len(args) == 1 and not kwargs else None
        if isinstance(x, (list, tuple)):
            x = dispatch.as_operand(x)
        if issubclass(kind, np.inexact):
            x = (said_complex if issubclass(kind, np.complexfloating) else said)(x)
        if not isinstance(x, Tracer) or is_created(x):
            with observed():
                return kind(*args if x is None else [x], **kwargs)
        x._trace.check_alive()
        check_fits([x] if x._weak else [], kind)
        if x._weak and x.dtype.kind == "c" and not issubclass(kind, (np.complexfloating, np.bool_)):
            kind(1j)  # raises an error
        if x._weak or x._is_scalar():
            same = x.dtype == kind and not x._weak
            return x if same else scalar(strong(cast(x, kind)))
        return x.astype(kind, copy=False) if x.ndim else x.astype(kind, copy=False)[()]

    cast_to.__name__ = cast_to.__qualname__ = kind.__name__
    return cast_to


# ---- methods of the classes: `float.__mul__(x, y)`


_NOT_OF_VALUES = {
    *("__hash__", "__repr__", "__getattribute__", "__getnewargs__", "__format__", "__float__"),
    *("__complex__", "__str__", "__setattr__", "__delattr__"),
}


def _methods(kind: type) -> list[str]:
    written = (WrapperDescriptorType, MethodDescriptorType)
    return [n for n, x in vars(kind).items() if type(x) in written and n not in _NOT_OF_VALUES]


def _number_of(label: str, x: Any) -> Any:
    return dispatch.plain_number(label, x) if isinstance(x, Tracer) else x


def _method(kind: type, name: str) -> Callable[..., Any]:
    """The replacement for a method of a number class: the tracer's method, or the operator if the
    first argument is plain."""
    own = getattr(kind, name)
    label = f"{kind.__name__}.{name}"

    @functools.wraps(own)
    @unobserved
    def method(*args: Any) -> Any:
        if not is_followed(args):
            return own(*[_number_of(label, x) for x in args])
        if isinstance(args[0], Tracer):
            return getattr(args[0], name)(*args[1:])
        turned = name.startswith("__r") and hasattr(operator, f"__{name[3:]}")
        by = getattr(operator, f"__{name[3:]}" if turned else name)
        return by(*(args[::-1] if turned else args))

    return method


_TYPES = """bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64
    complex64 complex128"""


def declare_all() -> None:
    """Register the replacements."""
    declare(builtins, "float", _float, traced=True)
    declare(builtins, "complex", _complex, traced=True)
    declare(builtins, "int", _int, traced=True)
    for kind in (float, complex, np.float64):
        for name in _methods(kind):
            declare(kind, name, _method(kind, name), traced=True)
    for name in _TYPES.split():
        declare(np, name, _type(getattr(np, name)), traced=True)
