"""The interface of a tracer for traces and for the code that tracks memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegrad.core.values import Value
from tapegrad.ir.tape import Operand


class Proxy(Value):
    """A value that represents an operand of a trace. Its only subclass is `tracer.Tracer`."""

    __slots__ = ("_doubt", "_may_alias", "_ordered", "_trace", "_value")
    _value: Any  # NumPy's; None where only the type is known
    _trace: Any
    _ordered: bool  # for these three see `tracing.recording.layout`
    _may_alias: Sequence[Any]
    _doubt: str

    @property
    def _owner(self) -> Proxy:
        """The array that owns the memory."""
        raise NotImplementedError

    def _read(self) -> tuple[Operand, Any]:
        """The operand and value that this represents now."""
        raise NotImplementedError
