"""Traced arrays that are created on first use: an unused one costs nothing."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import unobserved
from tapegrad.tracing.operators.inline_cache import seen
from tapegrad.tracing.tracers.tracer import ArrayTracer


class Deferred(ArrayTracer):
    """Represents the array that `_made` returns, and delegates all its attributes to that."""

    __slots__ = ()

    def _made(self) -> Any:
        raise NotImplementedError

    @unobserved
    def __setitem__(self, index: Any, value: Any) -> None:
        dispatch.setitem(self, index, value)


def _passed_on(name: str) -> property:
    def set_to(self: Any, value: Any) -> None:
        setattr(self._made(), name, value)

    return property(lambda self: getattr(self._made(), name), set_to)


Deferred.__name__ = "ndarray"
_NAMES = "_aval _operand _value _trace _root _chain _version _ordered _may_alias _doubt"
for _name in _NAMES.split():
    setattr(Deferred, _name, _passed_on(_name))


# ---- operations without the array


class Answering(Deferred):
    """A deferred array for which some operations don't need the array: `_by_operator`, `_by_ufunc`
    and `_by_function` return their results, or None if the array is needed. It belongs to the trace
    `_home`, and `_make` creates the array once, `_found`."""

    __slots__ = ("_found",)
    _answers_first = True
    _home: Any
    _found: Any

    def _make(self) -> Any:
        raise NotImplementedError

    @unobserved
    def _made(self) -> Any:
        if self._found is None:
            self._found = self._make()
        return self._found

    @property
    def _trace(self) -> Any:
        return self._home

    @_trace.setter
    def _trace(self, trace: Any) -> None:
        self._made()._trace = trace

    @staticmethod
    def _by_operator(f: Callable[..., Any], xs: Sequence[Any]) -> Any:
        return None

    @staticmethod
    def _by_ufunc(f: np.ufunc, xs: Sequence[Any]) -> Any:
        return None

    @staticmethod
    def _by_function(f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return None

    @unobserved
    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **kwargs: Any) -> Any:
        if kwargs or method != "__call__":
            return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)
        found = self._by_ufunc(ufunc, inputs)
        return ufunc(*_arrays(inputs)) if found is None else found

    @unobserved
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = self._by_function(func, args, kwargs)
        return seen(dispatch.function(func, args, kwargs), 3) if found is None else found


def _arrays(xs: Sequence[Any]) -> list[Any]:
    return [x._made() if isinstance(x, Answering) else x for x in xs]


def _operator(name: str, reflected: bool) -> Callable[..., Any]:
    run = getattr(operator, f"__{name}__")

    def applied(self: Any, *others: Any) -> Any:
        xs = [*others, self] if reflected else [self, *others]
        if name == "matmul":
            return np.matmul(*xs)
        found = self._by_operator(run, xs)
        return run(*_arrays(xs)) if found is None else found

    applied.__name__ = applied.__qualname__ = f"__r{name}__" if reflected else f"__{name}__"
    return unobserved(applied)


_TURNED = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"]
_OTHERS = ["lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"]
for _name in (*_TURNED, *_OTHERS):
    setattr(Answering, f"__{_name}__", _operator(_name, reflected=False))
for _name in _TURNED:
    setattr(Answering, f"__r{_name}__", _operator(_name, reflected=True))


def _method(name: str) -> Callable[..., Any]:
    f, plain = getattr(np, name), getattr(Deferred, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._by_function(f, (self, *args), kwargs)
        return plain(self, *args, **kwargs) if found is None else found

    method.__name__ = method.__qualname__ = name
    return unobserved(method)


for _name in ["all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "std", "sum", "var"]:
    setattr(Answering, _name, _method(_name))


def axes_of(ndim: int, axis: Any) -> Any:
    """The axes named by an argument `axis`; all of them if it is None. Returns None if they aren't
    plain integers."""
    if axis is None:
        return tuple(range(ndim))
    plain = type(axis) is int or (type(axis) is tuple and all(type(a) is int for a in axis))
    return normalize_axis_tuple(axis, ndim) if plain else None


def answered_by(
    functions: dict[Any, Callable[..., Any]], f: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """The result of NumPy's function `f`, computed by one of `functions`. None if `f` isn't among
    them, or has an option that the function lacks."""
    known = functions.get(f)
    if known is None:
        return None
    named = {name: x for name, x in kwargs.items() if x is not None}
    try:
        inspect.signature(known).bind(*args, **named)
    except TypeError:
        return None
    return known(*args, **named)
