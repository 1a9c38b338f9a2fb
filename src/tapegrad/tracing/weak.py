"""Arithmetic of Python's own numbers: they raise where NumPy's have an infinity, or no number.

An argument that is a Python number stays one in the function (a *weak* tracer), and so does what
comes of it by Python's operators. Where Python would raise, a trace raises; that it doesn't is
guarded, so that `except ZeroDivisionError` works at later calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegrad.errors import ConversionError
from tapegrad.primitives.base import Value
from tapegrad.tracing.source import at_line


def _is_pythons(x: Any) -> bool:
    """Whether this is a Python number, plain or traced with its value."""
    if isinstance(x, Value):
        return bool(x._weak) and x.read()[1] is not None  # type: ignore[attr-defined]
    return type(x) in (int, float, bool)


def _both(first: Any, second: Any) -> bool:
    """`first and second`: if one of them is plain and false, the other needn't be guarded."""
    if isinstance(first, Value):
        first, second = second, first
    return bool(first) and bool(second)


def _division(x: Any, y: Any) -> None:
    if y == 0:
        raise ZeroDivisionError(f"division by zero{at_line()}")


def _power(x: Any, y: Any) -> None:
    if _both(x == 0, y < 0):
        raise ZeroDivisionError(f"0.0 cannot be raised to a negative power{at_line()}")
    if _both(x < 0, y % 1 != 0):
        raise ConversionError(
            f"the fractional power of a negative number is complex{at_line()}, and complex numbers "
            "can't be traced yet. NumPy's numbers have NaN there: pass np.float64(x)"
        )


def _checked(name: str, check: Callable[[Any, Any], None]) -> list[Any]:
    """An operator, its reflected and its in-place form, which check two Python numbers first."""

    def form(prefix: str) -> Any:
        plain = getattr(NDArrayOperatorsMixin, f"__{prefix}{name}__")

        def operator(self: Any, other: Any) -> Any:
            if _is_pythons(self) and _is_pythons(other):
                check(*((other, self) if prefix == "r" else (self, other)))
            return plain(self, other)

        return operator

    return [form(prefix) for prefix in ("", "r", "i")]


class PythonArithmetic(NDArrayOperatorsMixin):
    """ndarray's operators, with Python's errors between two Python numbers."""

    __slots__ = ()

    __truediv__, __rtruediv__, __itruediv__ = _checked("truediv", _division)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _checked("floordiv", _division)
    __mod__, __rmod__, __imod__ = _checked("mod", _division)
    __pow__, __rpow__, __ipow__ = _checked("pow", _power)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self
