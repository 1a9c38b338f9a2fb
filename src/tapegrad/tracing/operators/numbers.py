"""The methods and attributes of Python numbers, and those of NumPy scalars of the same names.

A tracer has those of the value that it represents. A result without a derivative is computed from a
guarded integer or condition; where a derivative would be lost, the method is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np

from tapegrad.errors import ConversionError
from tapegrad.observe.program.source import asks_itself, at_line
from tapegrad.observe.values.texts import tell
from tapegrad.tracing.operators.deciding import of_integers
from tapegrad.tracing.operators.integer_bounds import whole
from tapegrad.tracing.operators.rounding import rounded


def _ours(name: str) -> Any:
    """An array attribute that only tapegrad's own code can read from a Python number."""

    def getter(self: Any) -> Any:
        if asks_itself():
            return getattr(self._aval, name)
        raise AttributeError(f"{self.__class__.__name__!r} object has no attribute {name!r}")

    return property(getter)


class Shapeless:
    """Mixin of Python numbers, which have no shape and no dtype."""

    __slots__ = ()
    shape, dtype, ndim, size = map(_ours, ("shape", "dtype", "ndim", "size"))


class RealMethods:
    """Mixin of the methods of a Python float or NumPy real scalar."""

    __slots__ = ()

    def is_integer(self) -> bool:
        return bool(np.isfinite(self)) and bool(np.floor(self) == self)  # type: ignore[call-overload]

    def as_integer_ratio(self: Any) -> Any:
        raise self._trace.refused(
            ConversionError(
                f"x.as_integer_ratio() of a traced number{at_line()} gives plain integers, which "
                "carry no derivative. A function that needs it can be declared with "
                "tapegrad.primitive"
            )
        )


class HexMethods(RealMethods):
    """Mixin of the methods that only a Python float and np.float64 have."""

    __slots__ = ()
    fromhex: Any = staticmethod(np.float64.fromhex)

    def __trunc__(self: Any) -> int:
        return whole(self)

    def hex(self: Any) -> str:
        tell(self)
        return float(self._concrete).hex()


class FloatMethods(HexMethods):
    """Mixin of the methods of a Python float."""

    __slots__ = ()
    fromhex = staticmethod(float.fromhex)

    def conjugate(self: Any) -> Any:
        return +self

    @property
    def real(self: Any) -> Any:
        return +self

    @property
    def imag(self) -> float:
        return 0.0

    def __round__(self: Any, digits: Any = None) -> Any:
        if digits is None:
            return whole(np.rint(self))
        return rounded(self, digits.__index__())

    def __floor__(self) -> int:
        return whole(np.floor(self))  # type: ignore[call-overload]

    def __ceil__(self) -> int:
        return whole(np.ceil(self))  # type: ignore[call-overload]


def _by_value(name: str) -> Callable[..., Any]:
    """A method of integers, computed from the guarded plain integer, or anew at each call."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return getattr(self._plain(f"n.{name}()"), name)(*args, **kwargs)
        return of_integers(methodcaller(name), f"n.{name}()", self)

    return method


class IntegerMethods:
    """Mixin of the methods of a Python integer or boolean."""

    __slots__ = ()

    bit_length = _by_value("bit_length")
    bit_count = _by_value("bit_count")
    to_bytes = _by_value("to_bytes")
    as_integer_ratio = _by_value("as_integer_ratio")
    from_bytes = staticmethod(int.from_bytes)
    if hasattr(int, "is_integer"):  # from Python 3.12 on
        is_integer = _by_value("is_integer")

    def conjugate(self: Any) -> Any:
        return +self

    @property
    def real(self: Any) -> Any:
        return +self

    numerator = real

    @property
    def imag(self) -> int:
        return 0

    @property
    def denominator(self) -> int:
        return 1

    def __round__(self: Any, digits: Any = None) -> Any:
        if digits is None or digits.__index__() >= 0:
            return +self
        return of_integers(round, "round(n, digits)", self, digits.__index__())

    def __trunc__(self: Any) -> Any:
        return +self

    __floor__ = __ceil__ = __trunc__


class WholeMethods:
    """Mixin of the methods of a NumPy integer."""

    __slots__ = ()

    def is_integer(self) -> bool:
        return True

    def bit_count(self) -> Any:
        return np.bitwise_count(self)._as_integer()  # type: ignore[call-overload]

    @property
    def numerator(self) -> Any:
        return self

    @property
    def denominator(self) -> int:
        return 1
