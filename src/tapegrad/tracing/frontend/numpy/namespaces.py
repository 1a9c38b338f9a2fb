"""The array API namespace of traced arrays.

It is NumPy, as for arrays. Where array-api-compat, or a vendored copy of it in another library,
requests the namespace, it is that library's NumPy namespace, in which the functions that make
arrays return traced arrays, and others accept them.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.operands.operands import has_tracer
from tapegrad.tracing.frontend.shapes.making import from_contents, is_traceable, uniform
from tapegrad.tracing.recording.trace import current_trace
from tapegrad.tracing.tracers.tracer import Tracer

_LIBRARY = "array_api_compat"


def namespace(api_version: Any, asks: str) -> Any:
    """The namespace of a traced array for the requesting module `asks`."""
    given: Any = np.empty(0)
    plain = given.__array_namespace__(api_version=api_version)  # NumPy's own errors
    parts = asks.split(".")
    if _LIBRARY not in parts:
        return plain
    copy = ".".join(parts[: parts.index(_LIBRARY) + 1])
    if not hasattr(sys.modules.get(copy), "__path__"):  # another module with that name
        return plain
    return _traceable(f"{copy}.numpy")


class _Namespace(ModuleType):
    """A namespace of array-api-compat with some functions replaced."""

    def __init__(self, library: ModuleType) -> None:
        super().__init__(library.__name__, library.__doc__)
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def __dir__(self) -> list[str]:
        return dir(self._library)


@cache
def _traceable(name: str) -> ModuleType:
    """The namespace of this name with functions that accept traced arrays."""
    library = importlib.import_module(name)
    made = _Namespace(library)
    for filled in ("zeros", "ones", "empty", "full"):
        setattr(made, filled, _to_be_filled(getattr(library, filled)))
    for function in (_asarray, _clip):
        setattr(made, function.__name__[1:], _instead(function, library))
    linalg: Any = _Namespace(library.linalg)
    linalg.solve, linalg.trace = _instead(_solve, library.linalg), _instead(_trace, library.linalg)
    made.linalg = linalg  # type: ignore[attr-defined]
    return made


def _to_be_filled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result holds one value everywhere, and can be filled with traced values."""

    @functools.wraps(function)
    def made(shape: Any, *args: Any, **kwargs: Any) -> Any:
        trace = current_trace()
        value = args[0] if args and isinstance(args[0], Tracer) else None
        if value is not None:
            function(shape, 0.0, *args[1:], **kwargs)  # its own errors
            return np.full_like(value, value, kwargs.get("dtype"), shape=shape)
        plain = function(shape, *args, **kwargs)
        if trace is None or not is_traceable(plain.dtype):
            return plain
        first = plain.flat[0] if plain.size and function.__name__ != "empty" else 0
        return uniform(trace, plain.shape, first, plain.dtype)

    return made


def _instead(function: Callable[..., Any], library: Any) -> Callable[..., Any]:
    """The library's function, replaced by `function` where a traced value is an argument."""
    plain = getattr(library, function.__name__[1:])

    @functools.wraps(plain)
    def called(*args: Any, **kwargs: Any) -> Any:
        traced = has_tracer(args) or has_tracer(list(kwargs.values()))
        return function(*args, **kwargs) if traced else plain(*args, **kwargs)

    return called


def _asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Any:
    np.empty(0, device=device)  # NumPy's own error
    trace = current_trace()
    assert trace is not None
    made = from_contents(trace, obj, dtype)
    if made is not obj and copy is False:
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    return np.copy(made) if made is obj and copy else made


def _clip(x: Any, /, min: Any = None, max: Any = None, **kwargs: Any) -> Any:
    """The library's clip, which casts the bounds to the dtype of `x`."""
    if kwargs or x.dtype.kind != "f":
        what = ", ".join(kwargs) or f"an array of dtype {x.dtype}"
        raise UnsupportedError(
            f"clip of array-api-compat with {what} isn't followed{at_line()}. Use np.clip"
        )
    low, high = (b if b is None else _cast(b, x.dtype) for b in (min, max))
    return np.copy(x) if low is None and high is None else np.clip(x, low, high)


def _cast(bound: Any, dtype: np.dtype) -> Any:
    return bound.astype(dtype) if isinstance(bound, Tracer) else np.asarray(bound, dtype)


def _solve(x1: Any, x2: Any, /) -> Any:
    return np.linalg.solve(x1, x2)


def _trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return np.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)
