"""Traced values, as programs ask for them.

There are no boxes: to Python and NumPy a traced array is an ndarray, and a traced number a number.
Who asks whether a value is a box is told whether it is traced.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tapegrad.api import stop_gradient
from tapegrad.autograd.absent import Node, find_top_boxed_args, toposort
from tapegrad.autograd.boxes import new_box, trace, trace_stack
from tapegrad.autograd.rules import notrace_primitive, primitive, register_notrace
from tapegrad.autograd.vspace import VSpace
from tapegrad.errors import ArgumentError
from tapegrad.tracing.tracer import Tracer

__all__ = [
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
    return isinstance(x, Tracer)


def getval(x: Any) -> Any:
    """`x` without its derivative: a constant, to all that is computed of it."""
    return stop_gradient(x) if isinstance(x, Tracer) else x


class Traced(type):
    """The class of a class whose instances are the traced values."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isbox(instance)


class Box(metaclass=Traced):
    """What traced values are instances of. None is made of it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise ArgumentError(
            f"{cls.__name__} isn't made by programs here: traced values are arrays and numbers, "
            "and tapegrad makes them"
        )

    @classmethod
    def register(cls, kind: type) -> None:
        """Nothing needs doing for subclasses of ndarray, nor for numbers: they are traced as they
        are. It is an error for other classes, which are trees."""
        VSpace.register(kind)
