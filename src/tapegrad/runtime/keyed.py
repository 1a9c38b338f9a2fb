"""Derived functions with a user's key for their calls: `grad(f, key=...)`.

The value of `key` for the arguments of a call is part of the call's signature. So each value has
its own variants, distinguished further by their guards only, and is dropped like other signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tapegrad.core.frames import shorten
from tapegrad.core.handlers import let_through
from tapegrad.core.request import Request
from tapegrad.errors import ArgumentError
from tapegrad.runtime.cache import place_of
from tapegrad.runtime.checks import checked_mode
from tapegrad.runtime.derived import Derived
from tapegrad.runtime.entry import Miss
from tapegrad.runtime.transformations import Transformation
from tapegrad.tracing.recording import trace as traces
from tapegrad.tracing.recording.trace import tracing_depth
from tapegrad.tracing.tracers.tracer import Tracer

Key = Callable[..., Hashable]


class Keyed(Derived):
    """A derived function whose variants also depend on the value of `by` for the arguments. In
    another trace it is recorded there, and `by` isn't called."""

    # The cache depends on the values of `by`, not on `by` itself, which may be a new object each
    # time.
    apart = ("key",)

    def __init__(
        self, f: Callable[..., Any], transformation: Transformation, compile: str | None, by: Key
    ) -> None:
        super().__init__(f, transformation, compile)
        if not callable(by):
            raise ArgumentError(f"{self.__name__}: key is a function of the arguments, not {by!r}")
        self.by = by

    def __reduce__(self) -> Any:
        return Keyed, (self.f, self.transformation, self.mode, self.by)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if traces.running:
            return self._slow(args, kwargs)
        try:
            chosen, front = self._chosen(args, kwargs), self.front
            if kwargs and self.names is not None:
                args, kwargs = self.names.by_position(args, kwargs)
            _, place = place_of(args, kwargs, chosen)
            for entry in front.of_shapes(place):
                try:
                    result = entry.call(self.root, args, kwargs)
                except Miss:
                    continue
                front.fast_hits += 1
                front.last = entry
                return result
            return self._slow(args, kwargs)
        except Exception as error:
            shorten(error)
            raise

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        request = super()._request(args, kwargs)
        if not (tracing_depth() or any(isinstance(x, Tracer) for x in request.leaves)):
            request.chosen = self._chosen(args, kwargs)
        return request

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any]:
        """The value of the key for these arguments, in a 1-tuple."""
        try:
            value = self.by(*args, **kwargs)
        except Exception as error:
            let_through(error)
            raise ArgumentError(
                f"{self.__name__}: key raised {type(error).__name__} for these arguments: {error}. "
                "It is called with those of the function"
            ) from error
        try:
            hash(value)
        except TypeError:
            raise ArgumentError(
                f"{self.__name__}: key returned {value!r}, which can't be hashed. Return a number, "
                "a text, or a tuple of such"
            ) from None
        return (value,)


def derived_by(key: Key | None, f: Any, transformation: Transformation, compile: str | None) -> Any:
    """The function derived from `f`, with a key for its calls if given; a decorator if `f` is
    None."""
    mode = checked_mode(compile)
    if f is None:
        return lambda g: derived_by(key, g, transformation, mode)
    if key is None:
        return Derived(f, transformation, mode)
    return Keyed(f, transformation, mode, key)
