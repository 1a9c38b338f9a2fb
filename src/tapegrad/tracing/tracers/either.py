"""Numbers that are Python's on one side of a branch and NumPy's on the other, or an integer on one.

    if s < 0:
        s = 0.0        # Python's
    else:
        s = s + x[t]   # NumPy's: x is an array

What such a number is, is known at each call alone. In nearly everything it makes no difference: one
of these has the methods of NumPy's, and with Python's numbers it gives another one of these. Where
it does make one, the trace is made again, and that branch is a guard: where Python would raise an
error, as in a division by zero, and wherever there are floats of other sizes, to which Python's
adapt and NumPy's don't.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegrad.ir.tape import Aval, Tape
from tapegrad.observe.observer import unobserved
from tapegrad.primitives.base import Value
from tapegrad.tracing.operators.again import binary
from tapegrad.tracing.tracers.tracer import Tracer, kind_of

_NUMPYS: Any = kind_of(None, Aval((), np.dtype(np.float64)))
_PYTHONS = (float, int, bool)
_set_class = vars(object)["__class__"].__set__


def _may_be_pythons(x: Any) -> bool:
    kind = type(x)
    return kind in _PYTHONS or (issubclass(kind, Value) and (x._weak or x._either))


def _long(name: str) -> Any:
    """The operator, as NumPy finds its result."""
    numpys = getattr(NDArrayOperatorsMixin, name)

    def operator(self: Any, other: Any) -> Any:
        known = _may_be_pythons(other)
        if not known and not isinstance(other, (Value, np.ndarray, np.generic)):
            self._trace.reconsider()  # an object decides by types
        found = numpys(self, other)
        if known:
            _set_class(found, EitherTracer)
        return found

    return operator


def _again(ufunc: np.ufunc, name: str) -> Any:
    return binary(ufunc, name, _long(name))


def _checked(name: str) -> Any:
    """An operator by which Python raises errors, where NumPy doesn't."""
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
        found = numpys(self)
        _set_class(found, EitherTracer)
        return found

    return operator


def _apart(self: Any, other: Any) -> Any:
    """`divmod`."""
    return self // other, self % other


def _apart_reflected(self: Any, other: Any) -> Any:
    return other // self, other % self


def _whole(self: Any, *others: Any) -> Any:
    """What integers alone have."""
    self._trace.reconsider()


class EitherTracer(_NUMPYS):
    """A traced float of which only a call knows whether it is Python's or NumPy's, or an integer
    of Python's."""

    __slots__ = ()
    _either = True
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
        found = super().__array_ufunc__(ufunc, method, *inputs, **kwargs)
        if self._trace.with_integers and not any(map(_is_real, inputs)):
            for x in found if isinstance(found, tuple) else (found,):
                if isinstance(x, Tracer) and x.dtype == np.float64:  # it may be an integer
                    if x.shape or x._weak:
                        self._trace.reconsider()
                    _set_class(x, EitherTracer)
        return found

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if self._trace.with_integers and not any(map(_is_real, args)):
            self._trace.reconsider()
        return super().__array_function__(func, types, args, kwargs)


EitherTracer.__name__ = "float64"
for _name in ("and", "or", "xor", "lshift", "rshift"):
    setattr(EitherTracer, f"__{_name}__", _whole)
    setattr(EitherTracer, f"__r{_name}__", _whole)
EitherTracer.__invert__ = _whole


def check_elements(xs: Iterable[Any]) -> None:
    """Values are about to be put in an array, which is one of integers if all of them are."""
    for x in xs:
        if isinstance(x, Tracer) and x._either and x._trace.with_integers:
            x._trace.reconsider()


def as_either(x: Any, is_one: bool = True) -> Any:
    """This number, which was just made, as one that may be Python's, if it is one."""
    if is_one:
        _set_class(x, EitherTracer)
    return x


def _is_real(x: Any) -> bool:
    """Whether what NumPy makes of this and an integer is real, too."""
    if isinstance(x, (Tracer, np.ndarray, np.generic)):
        return not getattr(x, "_either", False) and x.dtype.kind in "fc"
    return type(x) in (float, complex)


def _is_single(x: Any) -> bool:
    """Whether Python's floats adapt to this plain array or number."""
    plain = isinstance(x, (np.ndarray, np.generic))
    plain = plain and (not isinstance(x, Tracer) or x._is_constant())
    return plain and x.dtype.kind in "fc" and x.dtype not in (np.float64, np.complex128)


def makes_a_difference(tape: Tape) -> bool:
    """Whether there are floats of another size on a tape, also among what it has captured."""
    values = [x for call in tape.calls for x in (*call.operands, *call.outs)]
    if any(x.dtype.kind in "fc" and x.dtype != np.float64 for x in (*tape.inputs, *values)):
        return True
    return any(makes_a_difference(t) for call in tape.calls for t in call.primitive.tapes)
