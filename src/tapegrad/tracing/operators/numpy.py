"""The operators of NumPy arrays and scalars that differ from ufuncs."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.base import Value
from tapegrad.primitives.stated import Known
from tapegrad.tracing.operators.complexes import as_float
from tapegrad.tracing.operators.deciding import exponent
from tapegrad.tracing.operators.inline_cache import alone, binary

# The binary operators, and the methods of the right operand that Python tries in their place
_TURNED = {
    **{"__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__ge__", "__ge__": "__le__"},
    **{"__eq__": "__eq__", "__ne__": "__ne__"},
    **{
        f"__{name}__": f"__r{name}__"
        for name in (
            *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "matmul", "pow"),
            *("lshift", "rshift", "and", "or", "xor"),
        )
    },
}


def _giving_way(name: str) -> Any:
    """NumPy's operator, which yields to some right operands. They are objects that aren't arrays
    but have a higher priority, as NumPy checks: SciPy's sparse matrices; and arrays of a subclass
    that overrides the operator, as Python checks."""
    numpys, turned = getattr(NDArrayOperatorsMixin, name), _TURNED[name]

    def operator(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind not in _NUMBERS and not hasattr(kind, "__array_ufunc__"):
            priority = getattr(kind, "__array_priority__", 0)
            if type(priority) in (int, float) and priority > 0 and hasattr(kind, "__rmul__"):
                return NotImplemented
        elif kind not in _NUMBERS and issubclass(kind, np.ndarray):
            own: Any = self.__class__
            below = issubclass(kind, own) and kind is not own
            if below and getattr(kind, turned) is not getattr(own, turned):
                return NotImplemented
        return numpys(self, other)

    operator.__name__ = operator.__qualname__ = name
    return operator


_NUMBERS = frozenset([float, int, bool, np.float64, np.float32, np.ndarray])


class _Ufuncs(NDArrayOperatorsMixin):
    """NumPy's array operators."""

    __slots__ = ()


for _name in _TURNED:
    setattr(_Ufuncs, _name, _giving_way(_name))


def operators() -> dict[str, Any]:
    """NumPy's array operators by name, without those that differ from ufuncs."""
    apart = ("__eq__", "__ne__", "__imatmul__")
    names = [n for n, x in vars(NDArrayOperatorsMixin).items() if callable(x) and n not in apart]
    return {name: getattr(_Ufuncs, name) for name in names}


def _again(ufunc: np.ufunc, name: str) -> Any:
    """NumPy's operator with an inline cache."""
    return binary(ufunc, name, getattr(_Ufuncs, name))


def _equality(name: str) -> Any:
    """`==` or `!=`. Objects that can't be compared with numbers are unequal to all: None, a text,
    an object."""
    numpys = getattr(_Ufuncs, f"__{name}__")

    def operator(self: Any, other: Any) -> Any:
        kind = type(other)
        plain = issubclass(kind, (Value, np.ndarray, np.generic, int, float, complex, list, tuple))
        if plain or not _knows_no_numbers(other):
            return numpys(self, other)
        zero = self._aval.dtype.type(0)
        return getattr(zero if self._is_scalar() else np.full(self.shape, zero), f"__{name}__")(
            other
        )

    return operator


def _knows_no_numbers(x: Any) -> bool:
    """Whether NumPy compares `x` with each element as one object, whose own comparison with a
    number isn't implemented."""
    kind: Any = type(x)
    if hasattr(kind, "__array__") or kind.__eq__(x, 1.0) is not NotImplemented:
        return False
    array = np.asarray(x)
    return array.ndim == 0 and array.dtype.kind in "OUS"


def _repeated(name: str) -> Any:
    """`*`. A sequence is repeated, by the scalar's `__index__` if it has one."""
    numpys = getattr(_Ufuncs, name)

    def operator(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind in _NUMBERS or issubclass(kind, Value):  # nearly always
            return numpys(self, other)
        repeats = all(any(n in vars(c) for c in kind.__mro__) for n in ("__getitem__", "__rmul__"))
        if repeats and not issubclass(kind, np.generic) and not hasattr(kind, "__array__"):
            if name == "__mul__" and hasattr(self, "__index__"):
                return kind.__rmul__(other, self.__index__())
            return NotImplemented
        return numpys(self, other)

    return operator


def _by_pythons(name: str, numpys: Any = None) -> Any:
    """An operator with Python's rules for its left operand: a complex number takes a np.float64 for
    a float, and computes the result; for a text to the left of `+`, Python raises the error."""
    numpys = numpys or getattr(_Ufuncs, name)

    def operator(self: Any, other: Any) -> Any:
        if type(other) is complex and self.dtype == np.float64:
            return getattr(as_float(self), name)(other)
        if name == "__radd__" and isinstance(other, str):
            return NotImplemented
        return numpys(self, other)

    return operator


def power(self: Any, other: Any) -> Any:
    """`**` of a scalar. A boolean's is that of an integer, where the ufunc computes in int8. For
    two numbers it is C's pow, whose square root differs from the ufunc's."""
    if self.dtype.kind == "f" and isinstance(other, (float, np.floating)) and other == 0.5:
        dtype = np.result_type(0.0 if self._weak else self.dtype, other)
        return ew.root(self if dtype == self.dtype else self.astype(dtype))
    traced = issubclass(type(other), Value) and other._is_scalar()
    if traced and self.dtype.kind == other.dtype.kind == "f":
        dtype = np.result_type(*[0.0 if n._weak else n.dtype for n in (self, other)])
        return ew.power(*[n if n.dtype == dtype else n.astype(dtype) for n in (self, other)])
    if self.dtype == np.bool_ and type(other) is int:
        self = self.astype(np.int64)
    return _Ufuncs.__pow__(self, other)


def _array_power(self: Any, other: Any) -> Any:
    """`**` of an array. Booleans to the power 2 are squared, in int8. Complex arrays take shortcuts
    that the ufunc doesn't take, also for a traced Python exponent."""
    kind = self.dtype.kind
    if kind == "b" and type(other) is int and other == 2:
        return np.square(self)
    if kind == "c" and type(other) in (int, float):
        short = _SHORT.get((type(other), other))
        return _Ufuncs.__pow__(self, other) if short is None else short(self)
    power = _Ufuncs.__pow__
    if kind == "c" and issubclass(type(other), Value) and other._weak:
        if other.dtype.kind == "i":
            n = exponent(other, self)
            if type(n) is int:
                return _array_power(self, n)
            found = np.where(n == -1, np.reciprocal(self), power(self, n))
            return Known()(np.where(n == 2, np.square(self), found), power(self, n))
        if other.dtype.kind == "f":
            found = power(self, other)
            return Known()(np.where(other == 0.5, np.sqrt(self), found), found)
    return power(self, other)


_SHORT = {(int, 2): np.square, (int, -1): np.reciprocal, (float, 0.5): np.sqrt}


def _array_power_in_place(self: Any, other: Any) -> Any:
    if self.dtype.kind != "c":
        return _Ufuncs.__ipow__(self, other)
    self[...] = _array_power(self, other)
    return self


def _direct(ufunc: np.ufunc, name: str, in_place: bool = False) -> Any:
    """NumPy's operator, which for two traced values calls `__array_ufunc__` directly."""
    numpys = getattr(_Ufuncs, name)

    def operator(self: Any, other: Any) -> Any:
        if not isinstance(other, Value):
            return numpys(self, other)
        if in_place:
            return self.__array_ufunc__(ufunc, "__call__", self, other, out=(self,))
        return self.__array_ufunc__(ufunc, "__call__", self, other)

    operator.__name__ = operator.__qualname__ = name
    return operator


class _Arithmetic:
    """Mixin of the operators that are most frequent in loops."""

    __slots__ = ()
    __add__, __radd__ = _again(np.add, "__add__"), _again(np.add, "__radd__")
    __sub__, __rsub__ = _again(np.subtract, "__sub__"), _again(np.subtract, "__rsub__")
    __mul__, __rmul__ = _again(np.multiply, "__mul__"), _again(np.multiply, "__rmul__")
    __truediv__ = _again(np.true_divide, "__truediv__")
    __rtruediv__ = _again(np.true_divide, "__rtruediv__")
    __lt__, __le__ = _again(np.less, "__lt__"), _again(np.less_equal, "__le__")
    __gt__, __ge__ = _again(np.greater, "__gt__"), _again(np.greater_equal, "__ge__")
    __neg__ = alone("__neg__", _Ufuncs.__neg__, operator.neg)
    __abs__ = alone("__abs__", _Ufuncs.__abs__)


class ArrayOperators(_Arithmetic, _Ufuncs):
    """Mixin of an array's operators."""

    __slots__ = ()
    __eq__, __ne__ = _equality("eq"), _equality("ne")
    __pow__, __ipow__ = alone("__pow__", _array_power), _array_power_in_place
    __matmul__: Any = _direct(np.matmul, "__matmul__")
    __iadd__ = _direct(np.add, "__iadd__", in_place=True)
    __isub__ = _direct(np.subtract, "__isub__", in_place=True)
    __imul__ = _direct(np.multiply, "__imul__", in_place=True)
    __itruediv__ = _direct(np.true_divide, "__itruediv__", in_place=True)

    def __imatmul__(self: Any, other: Any) -> Any:  # type: ignore[misc]
        other = dispatch.as_operand(other)
        if self.ndim < 1 or np.ndim(other) < 2:
            if not np.can_cast(np.result_type(other), self.dtype, "same_kind"):
                raise TypeError("the result of an in-place product can't be cast to its place")
            raise ValueError("inplace matrix multiplication requires two dimensions on the right")
        return super().__imatmul__(other)


class ScalarOperators(_Arithmetic):
    """Mixin of a NumPy scalar's operators: without a matrix product and in-place operators."""

    __slots__ = ()

    __mul__ = binary(np.multiply, "__mul__", _repeated("__mul__"))
    __radd__ = binary(np.add, "__radd__", _by_pythons("__radd__"))
    __rsub__ = binary(np.subtract, "__rsub__", _by_pythons("__rsub__"))
    __rmul__ = binary(np.multiply, "__rmul__", _by_pythons("__rmul__", _repeated("__rmul__")))
    __floordiv__, __rfloordiv__ = _Ufuncs.__floordiv__, _Ufuncs.__rfloordiv__
    __mod__, __rmod__ = _Ufuncs.__mod__, _Ufuncs.__rmod__
    __divmod__, __rdivmod__ = _Ufuncs.__divmod__, _Ufuncs.__rdivmod__
    __rtruediv__ = binary(np.true_divide, "__rtruediv__", _by_pythons("__rtruediv__"))
    __rpow__ = _by_pythons("__rpow__")
    __lshift__, __rlshift__ = _Ufuncs.__lshift__, _Ufuncs.__rlshift__
    __rshift__, __rrshift__ = _Ufuncs.__rshift__, _Ufuncs.__rrshift__
    __and__, __rand__ = _Ufuncs.__and__, _Ufuncs.__rand__
    __or__, __ror__ = _Ufuncs.__or__, _Ufuncs.__ror__
    __xor__, __rxor__ = _Ufuncs.__xor__, _Ufuncs.__rxor__

    __eq__, __ne__ = _equality("eq"), _equality("ne")

    __pos__ = _Ufuncs.__pos__
    __invert__ = _Ufuncs.__invert__

    __pow__ = alone("__pow__", power)

    def __getitem__(self, index: Any) -> Any:
        try:
            return super().__getitem__(index)  # type: ignore[misc]
        except IndexError:
            raise IndexError("invalid index to scalar variable.") from None
