"""The operators of Python's own numbers, where they differ from NumPy's.

They raise errors where NumPy's return infinity or NaN; integers grow where NumPy's wrap around;
True counts as 1. A Python number among the arguments remains one in the function (a *weak* tracer),
and so do results of Python operators on it; results of NumPy functions are NumPy's. For other
operands (a list, a text, a Fraction), the operand's own method decides, as in Python.

Where Python raises an error, the trace raises it; that there is none is guarded, so that `except
ZeroDivisionError` works at later calls. An integer is traced as one of 64 bits: a bound on its size
is known or guarded, and a result that may not fit is an error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegrad.core.handlers import let_through, quiet
from tapegrad.core.values import one_type
from tapegrad.errors import ConversionError
from tapegrad.ir.tape import Aval, Literal
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.source import at_line, user_source
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Value
from tapegrad.tracing.operators import complexes
from tapegrad.tracing.operators.deciding import exponent
from tapegrad.tracing.operators.inline_cache import made, seen
from tapegrad.tracing.operators.integer_bounds import (
    EXACT,
    GROWTH,
    bound,
    differs,
    is_wide,
    outgrows,
    size,
    value,
)
from tapegrad.tracing.operators.numpy import power
from tapegrad.tracing.recording.trace import innermost

_recorded = quiet(operator.call)  # Python doesn't warn where NumPy does

# ---- kinds of operands


def _number(x: Any, asked: str = "") -> Any:
    """`x` if it is a Python number, plain or traced. An instance of a class derived from a number
    is converted to that, unless the class overrides the method `asked`. Else None."""
    kind = type(x)
    if kind in _NUMBERS:
        return x
    if issubclass(kind, Value):
        return x if x._weak else None
    if not issubclass(kind, _NUMBERS) or issubclass(kind, np.generic):
        return None
    base: Any = next(c for c in _NUMBERS if issubclass(kind, c))
    if asked and getattr(kind, asked, None) is not getattr(base, asked, None):
        return None
    return getattr(base, f"__{base.__name__}__")(x)


_NUMBERS = (float, int, complex, bool)


def _is_numpys(x: Any) -> bool:
    """Whether NumPy's operators apply: to arrays and NumPy scalars, traced or not, and to objects
    that NumPy would convert to an array, which are refused there."""
    kind = type(x)
    if issubclass(kind, (Value, np.ndarray, np.generic)):
        return True
    return hasattr(kind, "__array__") or getattr(kind, "__array_ufunc__", None) is not None


_Failed = object()


def _met(name: str, x: Any, other: Any, reflected: bool) -> Any:
    """`x <name> other`, or `other <name> x`, where `other` is no number.

    The method of `other` decides. If it is written in Python, Python calls it with the tracer; a C
    method doesn't know tracers, so it is called here with the plain number. A sequence on the left
    is left to Python, which repeats it by `x.__index__`, in place if needed.
    """
    kind = type(other)
    asked: Any = getattr(kind, f"__{name}__" if reflected else _TURNED[name], None)
    in_c = isinstance(asked, (WrapperDescriptorType, MethodDescriptorType))
    if not in_c or asked is getattr(object, asked.__name__, None):
        return NotImplemented
    if reflected and hasattr(kind, "__getitem__"):
        return NotImplemented
    plain = x._plain_or_one()
    try:
        found = asked(other, plain)
    except TypeError:
        return NotImplemented
    except Exception as error:  # a division by zero, for example
        let_through(error)
        found = _Failed
    if found is NotImplemented:
        return found
    if isinstance(plain, float):
        raise x._trace.refused(
            ConversionError(
                f"a traced number meets a {kind.__name__}{at_line()}, which computes with plain "
                "numbers and would lose the derivative. Make it a float: float(y)"
            )
        )
    number = x._plain(f"a number that meets a {kind.__name__}")
    return asked(other, number) if found is _Failed else found


def _kind(x: Any) -> str:
    """The kind of a number, "c", "f", "i" or "b", as of dtypes."""
    return x.dtype.kind if isinstance(x, Value) else _KINDS[type(x)]


_KINDS = {complex: "c", float: "f", int: "i", bool: "b"}


def _as_number(x: Any) -> Any:
    """A boolean as an integer; any other number unchanged."""
    if isinstance(x, Value):
        return x._as_integer() if x.dtype.kind == "b" else x  # type: ignore[attr-defined]
    return int(x) if type(x) is bool else x


# ---- errors


def _both(first: Any, second: Any) -> bool:
    """`first and second`. If one is plain and false, the other needs no guard."""
    if isinstance(first, Value):
        first, second = second, first
    return bool(first) and bool(second)


def check_divisor(x: Any, y: Any) -> None:
    if y == 0:
        raise ZeroDivisionError(f"division by zero{at_line()}")


def _is_fractional(y: Any) -> Any:
    """Whether an exponent isn't an integer. Infinities and NaN don't count."""
    if isinstance(y, Value) and y.dtype.kind in "ib":
        return False
    return math.isfinite(y) and y % 1 != 0 if not isinstance(y, Value) else np.floor(y) < y  # type: ignore[call-overload]


def _check_power(x: Any, y: Any) -> None:
    if _both(x == 0, y < 0) and _is_finite(y):
        raise ZeroDivisionError(f"0.0 cannot be raised to a negative power{at_line()}")
    if _both(x < 0, _is_fractional(y)):
        raise _IsComplex


class _IsComplex(Exception):
    """A power of a negative number with a fractional exponent, which is complex in Python."""


def _check_overflow(result: Any, x: Any, y: Any) -> None:
    """Raise Python's error for an infinite power of finite numbers; else guard finiteness."""
    if result._trace.idle or result._trace.supposing:
        finite = np.isfinite(result)
        finite._trace.guard(finite, True, "a power that is finite", fixed=True)
    elif not np.isfinite(result) and _both(_is_finite(y), _is_finite(x)):
        raise OverflowError(34, f"Numerical result out of range{at_line()}")


def _is_finite(x: Any) -> Any:
    return np.isfinite(x) if isinstance(x, Value) else math.isfinite(x)  # type: ignore[call-overload]


def _check_shift(x: Any, y: Any) -> None:
    if y < 0:
        raise ValueError(f"negative shift count{at_line()}")


def checked(check: Callable[[Any, Any], None], x: Any, y: Any) -> None:
    """Run a check. In code that isn't called with the present values, it is assumed to pass."""
    trace = innermost((x, y))
    if trace.idle or trace.supposing:
        with trace.presumed():
            check(x, y)
    else:
        check(x, y)


_CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "truediv": check_divisor,
    "floordiv": check_divisor,
    "mod": check_divisor,
    "pow": _check_power,
    "lshift": _check_shift,
    "rshift": _check_shift,
}


# ---- large integers


def _by_value(name: str, x: Any, y: Any) -> Any:
    """Python's result for two integers, which are guarded."""
    if any(isinstance(n, Value) and differs(n) for n in (x, y)):
        raise ConversionError(
            f"an integer gets larger than 64 bits can hold{at_line()}. Python's integers have no "
            "bound, but one that may differ from call to call or from round to round has. Make it "
            "a float: float(n)"
        )
    x, y = (n._plain("a large integer") if isinstance(n, Value) else n for n in (x, y))  # type: ignore[attr-defined]
    return getattr(operator, f"__{name}__")(x, y)


# ---- operators


@unobserved
def _computed(name: str, x: Any, y: Any) -> Any:
    """The result of the operator `name` on two Python numbers, at least one of them traced."""
    if name in _ARITHMETIC:
        x, y = _as_number(x), _as_number(y)
    kinds = _kind(x) + _kind(y)
    if "c" in kinds:
        return complexes.computed(name, x, y, _recorded)
    if kinds == "ff" and name in _OF_FLOATS:
        result = _of_floats(*_OF_FLOATS[name], x, y)
        if result is not None:
            return result
    if name in _OF_INTEGERS and "f" in kinds:
        return NotImplemented
    known = value(x) is not None and value(y) is not None
    whole = known and kinds == "ii"
    try:
        if known and name in _CHECKS:
            checked(_CHECKS[name], x, y)
    except _IsComplex:
        if x != -math.inf:  # the power of -inf is real
            return complexes.computed(name, complexes.as_complex(x), y, _recorded)
    if whole and (is_wide(x) or is_wide(y) or (name == "truediv" and not _divides(x, y))):
        return _by_value(name, x, y)
    most = None
    if name == "pow" and known and kinds[1] == "i":
        y = exponent(y, x)
        if not isinstance(x, Value) and not isinstance(y, Value):
            return x**y
        if kinds[0] == "i" and y < 0:
            x = _computed("mul", x, 1.0) if isinstance(x, Value) else float(x)
            kinds, whole = "fi", False  # Python's result is a float
    if whole and name in GROWTH:
        if outgrows(name, x, y):
            return _by_value(name, x, y)
        most = size(name, x, y)
    of_numbers = np.float_power if name == "pow" and "f" in kinds else None  # C's pow
    result = _recorded(of_numbers or getattr(NDArrayOperatorsMixin, f"__{name}__"), x, y)
    if name == "pow" and known and "f" in kinds:
        _check_overflow(result, x, y)
    if most is not None:
        result._trace.bounds[result._read()[0]] = -most, most
    return result._as_pythons()


def _of_floats(primitive: Any, run: Callable[[float, float], float], x: Any, y: Any) -> Any:
    """A sum, difference or product of two floats, which never raises an error. None if they are of
    different traces, or their values are unknown."""
    trace: Any = x._trace if isinstance(x, Value) else y._trace  # type: ignore[attr-defined]
    operands, values = [], []
    for n in (x, y):
        if not isinstance(n, Value):
            operand: Any = Literal(np.float64(n))
            value = n
        elif n._trace is trace and trace.alive and trace.inside is None:  # type: ignore[attr-defined]
            operand, value = n._read()  # type: ignore[attr-defined]
        else:
            return None
        if value is None:
            return None
        operands.append(operand)
        values.append(value)
    found = np.float64(run(*values))
    src = trace.src or user_source()
    cls = type(x if isinstance(x, Value) else y)
    return made(trace, primitive, tuple(operands), one_type(_FLOAT), src, cls, found)


_FLOAT = Aval((), np.dtype(np.float64))
_OF_FLOATS: dict[str, tuple[Any, Callable[[float, float], float]]] = {
    "add": (ew.add, float.__add__),
    "sub": (ew.sub, float.__sub__),
    "mul": (ew.mul, float.__mul__),
}


def _divides(x: Any, y: Any) -> bool:
    """Whether both integers are exact as floats, so that the quotient is rounded once."""
    return bound(x) <= EXACT and bound(y) <= EXACT


@unobserved
def _compared(name: str, x: Any, y: Any) -> Any:
    """A comparison of two Python numbers, which is exact in Python."""
    kinds = _kind(x) + _kind(y)
    if "c" in kinds:
        return complexes.compared(name, x, y)
    if value(x) is not None and value(y) is not None:
        if "f" not in kinds and (is_wide(x) or is_wide(y)):
            return _COMPARE[name](x, 0) if is_wide(x) else _COMPARE[name](0, y)
        if kinds == "if" and bound(x) > EXACT:
            return _compared_exactly(name, x, y)
        if kinds == "fi" and bound(y) > EXACT:
            return _compared_exactly(_turned(name), y, x)
    return getattr(NDArrayOperatorsMixin, f"__{name}__")(x, y)._as_pythons()


def _compared_exactly(name: str, n: Any, real: Any) -> Any:
    """`n <name> real`, for a large integer and a float."""
    if not isinstance(n, Value):
        return _compared_with_float(_turned(name), real, n)
    if not abs(real) < 2.0**63:
        return _COMPARE[name](0.0, real)
    up = name in ("lt", "ge")
    if isinstance(real, Value):
        from tapegrad.primitives.elementwise import AsType

        whole: Any = np.ceil(real) if up else np.floor(real)  # type: ignore[call-overload]
        edge = AsType(np.dtype(np.int64))(whole)._as_pythons()
    else:
        whole = edge = math.ceil(real) if up else math.floor(real)
    found = _compared(name, n, edge)
    if name == "eq":
        return found & (real == whole)
    return found | (real != whole) if name == "ne" else found


def _compared_with_float(name: str, real: Any, n: int) -> Any:
    """`real <name> n`, for a traced float and a plain integer. No float lies between n and its
    nearest float."""
    try:
        near = float(n)
    except OverflowError:
        near = math.inf if n > 0 else -math.inf
    if near != n:
        if name in ("eq", "ne"):
            return name == "ne"
        above = near > n
        name = ("lt" if above else "le") if name[0] == "l" else ("ge" if above else "gt")
    return getattr(NDArrayOperatorsMixin, f"__{name}__")(real, near)._as_pythons()


def _turned(name: str) -> str:
    return _TURNED[name].strip("_")


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
_OF_INTEGERS = ("lshift", "rshift", "and", "or", "xor")
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift")
# The method of the other operand
_TURNED = {name: f"__r{name}__" for name in (*_ARITHMETIC, "and", "or", "xor", "divmod")} | {
    "lt": "__gt__",
    "gt": "__lt__",
    "le": "__ge__",
    "ge": "__le__",
    "eq": "__eq__",
    "ne": "__ne__",
}


def _binary(name: str) -> list[Any]:
    """An operator and its reflected form."""

    def form(reflected: bool) -> Any:
        numpys = getattr(NDArrayOperatorsMixin, f"__{'r' if reflected else ''}{name}__")
        if name == "pow" and not reflected:
            numpys = power
        asked = "" if reflected else _TURNED[name]

        def operator(self: Any, other: Any) -> Any:
            number = _number(other, asked)
            if number is None and not reflected and self._aval.dtype.kind == "c":
                number = complexes.as_float(other)
            if number is not None:
                return seen(_computed(name, *((number, self) if reflected else (self, number))))
            if _is_numpys(other):
                either = getattr(type(other), "_either", False)  # that class knows the result
                return NotImplemented if either else numpys(self, other)
            return _met(name, self, other, reflected)

        return operator

    return [form(False), form(True)]


def _comparison(name: str) -> Any:
    numpys = getattr(NDArrayOperatorsMixin, f"__{name}__")

    def operator(self: Any, other: Any) -> Any:
        number = _number(other, _TURNED[name])
        if number is not None:
            return seen(_compared(name, self, number))
        if _is_numpys(other):
            either = getattr(type(other), "_either", False)
            return NotImplemented if either else numpys(self, other)
        return _met(name, self, other, reflected=False)

    return operator


def _unary(name: str) -> Any:
    numpys = getattr(NDArrayOperatorsMixin, f"__{name}__")

    @unobserved
    def operator(self: Any) -> Any:
        x = _as_number(self)
        return x if name == "pos" else numpys(x)._as_pythons()  # `+x` is x itself

    return operator


def _divmod(reflected: bool) -> Any:
    def operator(self: Any, other: Any) -> Any:
        x, y = (other, self) if reflected else (self, other)
        if _number(other) is None and not _is_numpys(other):
            return _met("divmod", self, other, reflected)
        return x // y, x % y

    return operator


class _Operators:
    """Mixin of the operators that all Python numbers have."""

    __slots__ = ()

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("truediv")
    _power, __rpow__ = _binary("pow")

    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")
    __eq__, __ne__ = _comparison("eq"), _comparison("ne")

    __neg__, __pos__ = _unary("neg"), _unary("pos")

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is None:
            return self._power(other)
        numbers = [_number(x) for x in (self, other, modulus)]
        if any(x is not None and _kind(x) == "c" for x in numbers):
            raise ValueError("complex modulo")
        if any(x is None or _kind(x) == "f" for x in numbers):
            return NotImplemented
        x, y, z = (
            x._plain("pow(x, y, z)") if isinstance(x, Value) else x  # type: ignore[attr-defined]
            for x in numbers
        )
        return pow(x, y, z)


class PythonOperators(_Operators):
    """Mixin of the operators of floats and integers."""

    __slots__ = ()

    __floordiv__, __rfloordiv__ = _binary("floordiv")
    __mod__, __rmod__ = _binary("mod")
    __divmod__, __rdivmod__ = _divmod(False), _divmod(True)
    __abs__ = _unary("abs")


class IntegerOperators(PythonOperators):
    """Mixin of the operators that only integers have."""

    __slots__ = ()

    __lshift__, __rlshift__ = _binary("lshift")
    __rshift__, __rrshift__ = _binary("rshift")
    __and__, __rand__ = _binary("and")
    __or__, __ror__ = _binary("or")
    __xor__, __rxor__ = _binary("xor")
    __invert__ = _unary("invert")


class ComplexOperators(_Operators):
    """Mixin of the operators of complex numbers."""

    __slots__ = ()

    __abs__ = unobserved(complexes.absolute)
