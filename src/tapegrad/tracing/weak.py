"""Arithmetic of Python's own numbers: they raise where NumPy's have an infinity, or no number, and
their integers grow where NumPy's wrap around.

An argument that is a Python number stays one in the function (a *weak* tracer), and so does what
comes of it by Python's operators. Where Python would raise, a trace raises; that it doesn't is
guarded, so that `except ZeroDivisionError` works at later calls. An integer is traced as one of 64
bits: a bound of each one's size is known or guarded, and what may not fit is an error.
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


class PythonDivision(NDArrayOperatorsMixin):
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


# ---- integers

_LARGEST = 92 * 10**17  # just under 2**63, by more than float64 rounds
_USUAL = 2**31  # what integers are first taken to stay below: a product of two fits

_GROWTH: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: abs(x) + abs(y),
    "sub": lambda x, y: abs(x) + abs(y),
    "mul": lambda x, y: abs(x) * abs(y),
    "pow": lambda x, y: abs(x) ** y,
    "lshift": lambda x, y: abs(x) * 2**y,
}


def _is_integer(x: Any) -> bool:
    return x.dtype.kind == "i" if isinstance(x, Value) else type(x) in (int, bool)


def _known(x: Any) -> int:
    return int(x.read()[1]) if isinstance(x, Value) else int(x)  # type: ignore[attr-defined]


def _bound(x: Any) -> int:
    """What the size of a Python integer doesn't exceed, at later calls either."""
    if not isinstance(x, Value):
        return abs(int(x))
    bounds: dict[Any, int] = x._trace.bounds  # type: ignore[attr-defined]
    operand = x.read()[0]  # type: ignore[attr-defined]
    if operand not in bounds:
        bounds[operand] = max(_USUAL, 1 << abs(_known(x)).bit_length())
        _take_for_granted(abs(x) <= bounds[operand])  # type: ignore[arg-type]
    return bounds[operand]


def _take_for_granted(condition: Any) -> None:
    condition._trace.guard(condition, True, "the size of an integer")


def _largest(name: str, x: int, y: int) -> int:
    """What the size of a result doesn't exceed if those of the operands don't exceed x and y."""
    if name in ("pow", "lshift") and y > 64:
        return x if x < 2 and name == "pow" else _LARGEST + 1
    return int(_GROWTH[name](x, y))


def _size(name: str, x: Any, y: Any) -> int:
    """A bound of the size of an integer result, guarded if need be."""
    if _largest(name, abs(_known(x)), abs(_known(y))) > _LARGEST:
        raise ConversionError(
            f"an integer gets larger than 64 bits can hold{at_line()}. Python's integers have no "
            "bound, but a traced one has. Make it a float: float(n)"
        )
    bound = _largest(name, _bound(x), _bound(y))
    if bound > _LARGEST:
        bound = _LARGEST
        _take_for_granted(_GROWTH[name](x * 1.0, y * 1.0) <= float(bound))
    return bound


def _bounded(name: str) -> list[Any]:
    """An operator, its reflected and its in-place form, in which integers don't wrap around."""

    def form(prefix: str) -> Any:
        plain = getattr(PythonDivision, f"__{prefix}{name}__")

        def operator(self: Any, other: Any) -> Any:
            if not (self._weak and _is_integer(self) and _is_pythons(other) and _is_integer(other)):
                return plain(self, other)
            x: Any = other if prefix == "r" else self
            y: Any = self if prefix == "r" else other
            if not _is_pythons(self) or (name in ("pow", "lshift") and _known(y) < 0):
                return plain(self, other)  # of values that nobody knows, or Python's own error
            if name == "pow" and isinstance(y, Value):
                exponent: Any = y
                return x ** int(exponent)  # guarded: an exponent is part of the code
            bound = _size(name, x, y)
            result = plain(self, other)
            result._trace.bounds[result.read()[0]] = bound
            return result

        return operator

    return [form(prefix) for prefix in ("", "r", "i")]


class PythonArithmetic(PythonDivision):
    """These, with integers that don't wrap around."""

    __slots__ = ()

    __add__, __radd__, __iadd__ = _bounded("add")
    __sub__, __rsub__, __isub__ = _bounded("sub")
    __mul__, __rmul__, __imul__ = _bounded("mul")
    __pow__, __rpow__, __ipow__ = _bounded("pow")
    __lshift__, __rlshift__, __ilshift__ = _bounded("lshift")
