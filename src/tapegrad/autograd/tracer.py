"""Traced values, as programs test for them.

There are no boxes of arrays: to Python and NumPy a traced array is an ndarray, and a traced number
is a number. Tests for boxes return whether a value is traced.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tapegrad.api import stop_gradient
from tapegrad.autograd.absent import Node, find_top_boxed_args, toposort
from tapegrad.autograd.boxes import new_box, trace, trace_stack
from tapegrad.autograd.objects import kinds
from tapegrad.autograd.rules import notrace_primitive, primitive, register_notrace
from tapegrad.autograd.spaces import Boxed
from tapegrad.errors import ArgumentError
from tapegrad.tracing.tracers.tracer import Tracer

__all__ = [
    "ArrayBox",
    "Node",
    "find_top_boxed_args",
    "new_box",
    "toposort",
    "trace",
    "trace_stack",
    "Box",
    "getval",
    "isbox",
    "notrace_primitive",
    "primitive",
    "register_notrace",
]


def isbox(x: Any) -> bool:
    """Whether `x` is a traced value."""
    return isinstance(x, (Tracer, Boxed))


def getval(x: Any) -> Any:
    """`x` without its derivative: a constant in all further computations."""
    if isinstance(x, Boxed):
        return getval(x._value)
    return stop_gradient(x) if isinstance(x, Tracer) else x


class Traced(type):
    """The metaclass of `Box`: traced arrays and numbers are instances of `Box`, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        of_arrays = cls is Box or issubclass(cls, ArrayBox)
        return super().__instancecheck__(instance) or (of_arrays and isinstance(instance, Tracer))


class Box(Boxed, metaclass=Traced):
    """The class of traced values. Derived classes define the attributes that programs use, in
    primitives, of objects with a `VSpace`: `MyBox.register(MyClass)`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise ArgumentError(
            f"{cls.__name__} isn't made by programs here: traced values are arrays and numbers, "
            "and tapegrad makes them"
        )

    @classmethod
    def register(cls, kind: type) -> None:
        """Use this class for the boxes of objects of class `kind`. For subclasses of ndarray, and
        for numbers, this does nothing: they are traced without boxes."""
        kinds[kind] = cls


class ArrayBox(Box):
    """The class of traced arrays and numbers, for `isinstance`. It has no instances of its own."""
