"""Numbers of varying type: Python floats on one side of a branch and NumPy scalars on the other, or
integers on one side.

    if s < 0:
        s = 0.0         # a Python float
    else:
        s = s + x[t]    # a NumPy scalar: x is an array

The type is known only at each call. It rarely matters: such a tracer has the methods of NumPy
scalars, and an operator on it and a Python number returns another one. Where the type matters, the
trace is repeated with a guard on the branch: where Python would raise an error, as for a division
by zero, and with floats of other sizes, to which Python floats adapt and NumPy's don't. A number
that may be an integer, combined with integers only, is another one of its kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegrad.ir.tape import Aval, Tape
from tapegrad.observe.observer import unobserved
from tapegrad.primitives.base import Value
from tapegrad.tracing.operators.inline_cache import binary
from tapegrad.tracing.tracers.tracer import Tracer, kind_of

_NUMPYS: Any = kind_of(None, Aval((), np.dtype(np.float64)))
_PYTHONS = (float, int, bool)
_DTYPES = (type, np.dtype, str)  # arguments that name a type
_set_class = vars(object)["__class__"].__set__


def _may_be_pythons(x: Any) -> bool:
    kind = type(x)
    return kind in _PYTHONS or (issubclass(kind, Value) and (x._weak or x._either))


def _long(name: str) -> Any:
    """The operator with NumPy's result."""
    numpys = getattr(NDArrayOperatorsMixin, name)

    def operator(self: Any, other: Any) -> Any:
        known = _may_be_pythons(other)
        if not known and not isinstance(other, (Value, np.ndarray, np.generic)):
            self._trace.reconsider()  # the object's operators depend on types
        found = numpys(self, other)
        if known:
            _set_class(found, _class_of(self, other))
        return found

    return operator


def _again(ufunc: np.ufunc, name: str) -> Any:
    return binary(ufunc, name, _long(name))


def _checked(name: str) -> Any:
    """An operator for which Python raises errors, and NumPy doesn't."""
    numpys, reflected = _long(name), name.startswith("__r")

    @unobserved
    def operator(self: Any, other: Any) -> Any:
        if _may_be_pythons(other):
            x, y = (other, self) if reflected else (self, other)
            bad = _is_complex_or_infinite(x, y) if "pow" in name else y == 0
            if bad:
                self._trace.reconsider()
        found = numpys(self, other)
        if "pow" in name and _may_be_pythons(other) and not np.isfinite(found):
            self._trace.reconsider()
        return found

    return operator


def _is_complex_or_infinite(x: Any, y: Any) -> bool:
    if type(y) not in _PYTHONS:
        return True
    return bool(y < 0 and x == 0) or bool(y % 1 != 0 and x < 0)


def _unary(name: str) -> Any:
    numpys = getattr(NDArrayOperatorsMixin, name)

    @unobserved
    def operator(self: Any) -> Any:
        return as_union(numpys(self), self._either)

    return operator


def _apart(self: Any, other: Any) -> Any:
    """`divmod`."""
    return self // other, self % other


def _apart_reflected(self: Any, other: Any) -> Any:
    return other // self, other % self


def _whole(self: Any, *others: Any) -> Any:
    """An operation that only integers have."""
    self._trace.reconsider()


class UnionTracer(_NUMPYS):
    """A traced float that is a Python float in some calls and a NumPy scalar in others."""

    __slots__ = ()
    _either = 1
    __class__ = property(lambda self: np.float64)
    __hash__ = _NUMPYS.__hash__

    __add__, __radd__ = _again(np.add, "__add__"), _again(np.add, "__radd__")
    __sub__, __rsub__ = _again(np.subtract, "__sub__"), _again(np.subtract, "__rsub__")
    __mul__, __rmul__ = _again(np.multiply, "__mul__"), _again(np.multiply, "__rmul__")
    __truediv__, __rtruediv__ = _checked("__truediv__"), _checked("__rtruediv__")
    __floordiv__, __rfloordiv__ = _checked("__floordiv__"), _checked("__rfloordiv__")
    __mod__, __rmod__ = _checked("__mod__"), _checked("__rmod__")
    __pow__, __rpow__ = _checked("__pow__"), _checked("__rpow__")
    __divmod__, __rdivmod__ = _apart, _apart_reflected
    __index__ = _whole
    __neg__, __pos__, __abs__ = _unary("__neg__"), _unary("__pos__"), _unary("__abs__")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(_is_single(x) for x in inputs):
            self._trace.reconsider()
        return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(isinstance(x, _DTYPES) or _is_single(x) for x in (*args, *kwargs.values())):
            self._trace.reconsider()
        return super().__array_function__(func, types, args, kwargs)


def _of_integers(name: str) -> Any:
    """An operator whose result may be -0.0, which integers don't have."""
    of_floats = getattr(UnionTracer, name)

    @unobserved
    def operator(self: Any, *others: Any) -> Any:
        found = of_floats(self, *others)
        is_signed = not ("mul" in name and _is_positive(*others))
        if type(found) is IntegerOrFloat and is_signed and found == 0:
            self._trace.reconsider()
        return found

    return operator


def _is_positive(x: Any) -> bool:
    return type(x) is int and x > 0


class IntegerOrFloat(UnionTracer):
    """A number that may also be an integer: Python's, or NumPy's if a NumPy function made it."""

    __slots__ = ()
    _either = 2
    __neg__ = _of_integers("__neg__")
    __mul__, __rmul__ = _of_integers("__mul__"), _of_integers("__rmul__")
    __floordiv__, __rfloordiv__ = _of_integers("__floordiv__"), _of_integers("__rfloordiv__")
    __mod__, __rmod__ = _of_integers("__mod__"), _of_integers("__rmod__")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = super().__array_ufunc__(ufunc, method, *inputs, **kwargs)
        if not any(map(_is_real, inputs)):
            for x in found if isinstance(found, tuple) else (found,):
                if isinstance(x, Tracer) and x.dtype == np.float64:
                    if x.shape or x._weak:
                        self._trace.reconsider()
                    as_union(x, self._either)
        return found

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        self._trace.reconsider()


CLASSES: Any = None, UnionTracer, IntegerOrFloat  # by `_either`
for _kind in (UnionTracer, IntegerOrFloat):
    _kind.__name__ = "float64"
for _name in ("and", "or", "xor", "lshift", "rshift"):
    setattr(UnionTracer, f"__{_name}__", _whole)
    setattr(UnionTracer, f"__r{_name}__", _whole)
UnionTracer.__invert__ = _whole


def check_elements(xs: Iterable[Any]) -> None:
    """Check the elements of a new array: its dtype is an integer one if all are integers."""
    for x in xs:
        if isinstance(x, IntegerOrFloat):
            x._trace.reconsider()


def as_union(x: Any, either: int) -> Any:
    """`x`, a new tracer, as a number of varying type; see `Tracer._either`."""
    if either:
        _set_class(x, CLASSES[either])
    return x


def _class_of(*operands: Any) -> type:
    """The class of an operator's result for numbers that may all be Python's."""
    return UnionTracer if any(map(_is_real, operands)) else IntegerOrFloat


def _is_real(x: Any) -> bool:
    """Whether `x` combined with an integer is a float or complex number."""
    if isinstance(x, (Tracer, np.ndarray, np.generic)):
        return not isinstance(x, IntegerOrFloat) and x.dtype.kind in "fc"
    return type(x) in (float, complex)


def _is_single(x: Any) -> bool:
    """Whether `x` is a plain array or scalar of another precision, which Python floats adopt."""
    plain = isinstance(x, (np.ndarray, np.generic))
    plain = plain and (not isinstance(x, Tracer) or x._is_constant())
    return plain and x.dtype.kind in "fc" and x.dtype not in (np.float64, np.complex128)


def makes_a_difference(tape: Tape) -> bool:
    """Whether a tape has floats of another size, including captured ones."""
    values = [x for call in tape.calls for x in (*call.operands, *call.outs)]
    if any(x.dtype.kind in "fc" and x.dtype != np.float64 for x in (*tape.inputs, *values)):
        return True
    return any(makes_a_difference(t) for call in tape.calls for t in call.primitive.tapes)
