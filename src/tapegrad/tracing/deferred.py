"""Traced arrays that are made when they are first used: what a program drops costs nothing."""

from __future__ import annotations

from typing import Any

from tapegrad.tracing.dispatch import dispatch
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.tracer import ArrayTracer


class Deferred(ArrayTracer):
    """Stands for the array that `_made` gives. All that is asked of it, it asks of that one."""

    __slots__ = ()

    def _made(self) -> Any:
        raise NotImplementedError

    @unobserved
    def __setitem__(self, index: Any, value: Any) -> None:
        dispatch.setitem(self, index, value)


def _passed_on(name: str) -> property:
    def set_to(self: Any, value: Any) -> None:
        setattr(self._made(), name, value)

    return property(lambda self: getattr(self._made(), name), set_to)


Deferred.__name__ = "ndarray"
_NAMES = "_aval _operand _value _trace _root _chain _version _ordered _may_alias _doubt"
for _name in _NAMES.split():
    setattr(Deferred, _name, _passed_on(_name))
