"""Arithmetic of Python's own numbers, where it differs from that of NumPy's: they raise where those
have an infinity, or no number; their integers grow where those wrap around; True counts as 1.

An argument that is a Python number stays one in the function (a *weak* tracer), and so does what
comes of it by Python's operators; what NumPy's functions make of it is NumPy's. Where Python would
raise, a trace raises; that it doesn't is guarded, so that `except ZeroDivisionError` works at later
calls. An integer is traced as one of 64 bits: a bound of each one's size is known or guarded, and
what may not fit is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegrad.errors import ConversionError
from tapegrad.primitives.base import Value
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.source import at_line


def _is_pythons(x: Any) -> bool:
    """Whether this is a Python number, plain or traced."""
    return bool(x._weak) if isinstance(x, Value) else type(x) in (int, float, bool)  # type: ignore[attr-defined]


def _value(x: Any) -> Any:
    """The value of a Python number; None in a derivative rule, where types alone are known."""
    return x.read()[1] if isinstance(x, Value) else x  # type: ignore[attr-defined]


def _as_number(x: Any) -> Any:
    """A boolean as an integer."""
    if isinstance(x, Value):
        return x._as_integer() if x.dtype.kind == "b" else x  # type: ignore[attr-defined]
    return int(x) if type(x) is bool else x


# ---- errors


def _both(first: Any, second: Any) -> bool:
    """`first and second`: if one of them is plain and false, the other needn't be guarded."""
    if isinstance(first, Value):
        first, second = second, first
    return bool(first) and bool(second)


def _check_divisor(x: Any, y: Any) -> None:
    if y == 0:
        raise ZeroDivisionError(f"division by zero{at_line()}")


def _check_power(x: Any, y: Any) -> None:
    if _both(x == 0, y < 0):
        raise ZeroDivisionError(f"0.0 cannot be raised to a negative power{at_line()}")
    if _both(x < 0, y % 1 != 0):
        raise ConversionError(
            f"the fractional power of a negative number is complex{at_line()}, and complex numbers "
            "can't be traced yet. NumPy's numbers have NaN there: pass np.float64(x)"
        )


def _check_shift(x: Any, y: Any) -> None:
    if y < 0:
        raise ValueError(f"negative shift count{at_line()}")


_CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "truediv": _check_divisor,
    "floordiv": _check_divisor,
    "mod": _check_divisor,
    "pow": _check_power,
    "lshift": _check_shift,
    "rshift": _check_shift,
}


# ---- sizes of integers

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
    return x.dtype.kind == "i" if isinstance(x, Value) else type(x) is int


def _bound(x: Any) -> int:
    """What the size of an integer doesn't exceed, at later calls either."""
    if not isinstance(x, Value):
        return abs(int(x))
    bounds: dict[Any, int] = x._trace.bounds  # type: ignore[attr-defined]
    operand = x.read()[0]  # type: ignore[attr-defined]
    if operand not in bounds:
        bounds[operand] = max(_USUAL, 1 << abs(int(_value(x))).bit_length())
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
    if _largest(name, abs(int(_value(x))), abs(int(_value(y)))) > _LARGEST:
        raise ConversionError(
            f"an integer gets larger than 64 bits can hold{at_line()}. Python's integers have no "
            "bound, but a traced one has. Make it a float: float(n)"
        )
    bound = _largest(name, _bound(x), _bound(y))
    if bound > _LARGEST:
        bound = _LARGEST
        _take_for_granted(_GROWTH[name](x * 1.0, y * 1.0) <= float(bound))
    return bound


# ---- operators


def _computed(name: str, x: Any, y: Any) -> Any:
    """What the operator `name` makes of two Python numbers; at least one is traced."""
    if name in _ARITHMETIC:
        x, y = _as_number(x), _as_number(y)
    known = _value(x) is not None and _value(y) is not None
    if known and name in _CHECKS:
        _CHECKS[name](x, y)
    if name == "pow" and known and _is_integer(y):
        y = int(y)  # guarded: an integer exponent decides which code is best
        if not isinstance(x, Value):
            return x**y
        x = _computed("mul", x, 1.0) if y < 0 else x  # Python's result is a float then
    bound = None
    if name in _GROWTH and known and _is_integer(x) and _is_integer(y):
        bound = _size(name, x, y)
    if isinstance(x, Value):
        result = getattr(NDArrayOperatorsMixin, f"__{name}__")(x, y)
    else:
        result = getattr(NDArrayOperatorsMixin, f"__r{name}__")(y, x)
    result._weak = True
    if bound is not None:
        result._trace.bounds[result.read()[0]] = bound
    return result


def _binary(name: str) -> list[Any]:
    """An operator, its reflected and its in-place form."""

    def form(prefix: str) -> Any:
        numpys = getattr(NDArrayOperatorsMixin, f"__{prefix}{name}__")

        @unobserved
        def operator(self: Any, other: Any) -> Any:
            if not (self._weak and _is_pythons(other)):
                return numpys(self, other)
            x, y = (other, self) if prefix == "r" else (self, other)
            return _computed(name, x, y)

        return operator

    return [form(prefix) for prefix in ("", "r", "i")]


def _comparison(name: str) -> Any:
    numpys = getattr(NDArrayOperatorsMixin, f"__{name}__")

    @unobserved
    def operator(self: Any, other: Any) -> Any:
        result = numpys(self, other)
        if self._weak and _is_pythons(other):
            result._weak = True
        return result

    return operator


def _unary(name: str) -> Any:
    numpys = getattr(NDArrayOperatorsMixin, f"__{name}__")

    @unobserved
    def operator(self: Any) -> Any:
        result = numpys(_as_number(self) if self._weak else self)
        result._weak = self._weak
        return result

    return operator


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift")


class PythonArithmetic(NDArrayOperatorsMixin):
    """ndarray's operators, and between two Python numbers Python's."""

    __slots__ = ()

    __add__, __radd__, __iadd__ = _binary("add")
    __sub__, __rsub__, __isub__ = _binary("sub")
    __mul__, __rmul__, __imul__ = _binary("mul")
    __truediv__, __rtruediv__, __itruediv__ = _binary("truediv")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary("floordiv")
    __mod__, __rmod__, __imod__ = _binary("mod")
    __pow__, __rpow__, __ipow__ = _binary("pow")
    __lshift__, __rlshift__, __ilshift__ = _binary("lshift")
    __rshift__, __rrshift__, __irshift__ = _binary("rshift")
    __and__, __rand__, __iand__ = _binary("and")
    __or__, __ror__, __ior__ = _binary("or")
    __xor__, __rxor__, __ixor__ = _binary("xor")

    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")
    __eq__, __ne__ = _comparison("eq"), _comparison("ne")

    __neg__, __pos__, __abs__ = _unary("neg"), _unary("pos"), _unary("abs")
    __invert__ = _unary("invert")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self
