"""Python's complex numbers: operators that differ from NumPy's, methods, attributes.

Division by zero is an error, and so are a power and an absolute value that overflow; there is no
order. A Python float or integer that meets a complex number is converted to one. So is a np.float64
on its right, which is a Python float to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegrad.core.handlers import quiet
from tapegrad.errors import ConversionError
from tapegrad.observe.program.source import at_line
from tapegrad.primitives import complexes as parts
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Value
from tapegrad.tracing.recording.trace import innermost

_COMPLEX = np.dtype(np.complex128)
_OPERATORS = ("add", "sub", "mul", "truediv", "pow")


def as_complex(x: Any) -> Any:
    """A Python number or np.float64, plain or traced, as a complex number."""
    if not isinstance(x, Value):
        return complex(x)
    return ew.AsType(_COMPLEX)(x)._as_pythons() if x.dtype.kind != "c" or not x._weak else x  # type: ignore[attr-defined]


def as_float(x: Any) -> Any:
    """A np.float64 to the right of a complex number, as the Python float that the complex number
    takes it for; None for other objects."""
    if type(x) is np.float64:
        return float(x)
    scalar = isinstance(x, Value) and x.dtype == np.float64 and x._is_scalar()  # type: ignore[attr-defined]
    return ew.copy(x)._as_pythons() if scalar else None


def computed(name: str, x: Any, y: Any, recorded: Callable[..., Any]) -> Any:
    """The result of an operator on two Python numbers, of which one is complex, and one traced."""
    if name not in _OPERATORS:
        return NotImplemented
    whole = name == "pow" and type(y) is int
    x, y = as_complex(x), y if whole else as_complex(y)
    if name in ("truediv", "pow"):
        with innermost((x, y)).presumed():
            (_check_divisor if name == "truediv" else _check_power)(x, y)
    found = recorded(getattr(NDArrayOperatorsMixin, f"__{name}__"), x, y)
    if name == "pow":
        _check_finite(found, "complex exponentiation", np.isinf)
    return found._as_pythons()


def compared(name: str, x: Any, y: Any) -> Any:
    """The comparison of complex numbers: equal if both parts are."""
    if name not in ("eq", "ne"):
        return NotImplemented
    same = (x.real == y.real) & (x.imag == y.imag)
    return same if name == "eq" else same ^ True


def absolute(z: Any) -> Any:
    """|z|, a float."""
    size = quiet(np.abs)(z)
    _check_finite(size, "absolute value too large", lambda size: _is_finite(z))
    return size._as_pythons()


def _is_finite(z: Any) -> Any:
    return bool(np.isfinite(parts.real(z))) and bool(np.isfinite(parts.imag(z)))


def _check_divisor(x: Any, y: Any) -> None:
    if y == 0:
        raise ZeroDivisionError(f"complex division by zero{at_line()}")


def _check_power(x: Any, y: Any) -> None:
    if not isinstance(y, Value) and y.imag == 0 and y.real >= 0:
        return
    if x == 0 and (y.imag != 0 or y.real < 0):
        raise ZeroDivisionError(f"0.0 to a negative or complex power{at_line()}")


def _check_finite(found: Any, error: str, fails: Callable[[Any], Any]) -> None:
    """Raise Python's error if a result isn't finite and `fails(result)` holds. Guard finiteness."""
    with found._trace.presumed():
        if not found._trace.idle and not np.isfinite(found) and fails(found):
            raise OverflowError(f"{error}{at_line()}")


class ComplexMethods:
    """Mixin of the methods and attributes of a Python complex number."""

    __slots__ = ()

    @property
    def real(self) -> Any:
        return parts.real(self)._as_pythons()

    @property
    def imag(self) -> Any:
        return parts.imag(self)._as_pythons()

    def conjugate(self) -> Any:
        return parts.conj(self)._as_pythons()

    def __complex__(self: Any) -> complex:
        raise self._trace.refused(
            ConversionError(
                f"a traced complex number was converted to a plain one{at_line()}, which carries "
                "no derivative. Use NumPy's functions, or Python's cmath"
            )
        )
