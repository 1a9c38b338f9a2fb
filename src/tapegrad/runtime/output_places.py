"""Derivatives that are written into the caller's arrays: `grad(f, out=places)`.

These arrays are the first argument of the traced function, which doesn't read them. So compiled
code may write its results there directly (`schedule/inplace.py`). Other results are copied there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tapegrad.core.named import Telling
from tapegrad.core.trees import flatten, flatten_with_paths
from tapegrad.errors import ArgumentError, TraceError
from tapegrad.observe.program.source import at_line
from tapegrad.runtime.checks import checked_mode
from tapegrad.runtime.derived import Derived
from tapegrad.runtime.keyed import Key, Keyed, derived_by
from tapegrad.runtime.transformations import Gradient, Into, Transformation
from tapegrad.runtime.watched import Debug, Watched, checked_debug
from tapegrad.tracing.memory.aliasing import overlaps_itself, share_memory
from tapegrad.tracing.recording.trace import tracing_depth


class Placed(Telling):
    """A derivative whose gradient is written into `places`, a tree of arrays, and returned as that.
    The gradient is part number `part` of the result, if that has several."""

    def __init__(self, derived: Derived, places: Any, part: int | None) -> None:
        self.derived, self.places, self.part = derived, places, part
        self.__wrapped__ = derived
        self.__name__ = derived.__name__
        paths, self._arrays, self._structure = flatten_with_paths(places)
        self._names = ["out" + "".join(f"[{key!r}]" for key in path) for path in paths]
        for name, x in zip(self._names, self._arrays, strict=True):
            if not (type(x) is np.ndarray and x.flags.writeable):
                self._check_untraced()
                raise ArgumentError(
                    f"{self.__name__}: {name} is {type(x).__name__}, and has to be an array that "
                    "can be written to"
                )
        self._check_apart(self._arrays, self._names)

        def placed(out: Any, /, *args: Any, **kwargs: Any) -> Any:
            result = derived(*args, **kwargs)
            return (result,) if part is None else result

        placed.__name__ = derived.__name__
        by = derived.by if isinstance(derived, Keyed) else None
        self._within = derived_by(
            by and (lambda _, *args, **kwargs: by(*args, **kwargs)),
            placed,
            Into(into=((part or 0, 0),)),
            derived.mode,
        )

    @property
    def _what(self) -> str:  # type: ignore[override]
        return f"{self.derived._what}, written into out"

    @property
    def _held(self) -> str:  # type: ignore[override]
        held: str = self._within._held
        return held

    def _rows(self) -> list[tuple[str, str, int]]:
        rows: list[tuple[str, str, int]] = self._within._rows()
        return rows

    def __reduce__(self) -> Any:
        return Placed, (self.derived, self.places, self.part)

    def _check_untraced(self) -> None:
        if tracing_depth():
            raise TraceError(
                f"{self.__name__} writes into arrays (out=), and is called in a function that is "
                f"traced{at_line()}. Leave out= away there: nothing is allocated for it"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._check_untraced()
        leaves = [x for x in flatten((args, kwargs))[0] if isinstance(x, np.ndarray)]
        self._check_apart(leaves, None)
        result = list(self._within(self.places, *args, **kwargs))
        at = self.part or 0
        result[at] = self._written(result[at])
        return result[0] if self.part is None else tuple(result)

    def _written(self, gradient: Any) -> Any:
        """Copy the gradient to the places, where it isn't there already, and return these."""
        found, structure = flatten(gradient)
        if structure != self._structure:
            raise ArgumentError(
                f"{self.__name__}: out is put together otherwise than the gradient, which is "
                f"{structure}"
            )
        for name, place, x in zip(self._names, self._arrays, found, strict=True):
            if (np.shape(x), np.asarray(x).dtype) != (place.shape, place.dtype):
                raise ArgumentError(
                    f"{self.__name__}: {name} has the shape {place.shape} and the dtype "
                    f"{place.dtype}, and the gradient has {np.shape(x)} and {np.asarray(x).dtype}"
                )
        for place, x in zip(self._arrays, found, strict=True):
            if place is not x:
                np.copyto(place, x)
        return self.places

    def _check_apart(self, others: Sequence[Any], names: Sequence[str] | None) -> None:
        """Raise an ArgumentError if the places share memory with others, or among themselves."""
        for k, place in enumerate(self._arrays):
            if names is not None and overlaps_itself(place):
                raise ArgumentError(f"{self.__name__}: elements of {names[k]} share memory")
            for m, x in enumerate(others if names is None else others[:k]):
                if np.may_share_memory(place, x) and share_memory(place, x):
                    what = "an argument" if names is None else names[m]
                    raise ArgumentError(
                        f"{self.__name__}: {self._names[k]} shares memory with {what}, which would "
                        "be written over. Pass an array of its own: np.empty_like(x)"
                    )

    def compile(self, *args: Any, **kwargs: Any) -> Placed:
        self._within.compile(self.places, *args, **kwargs)
        return self

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        self(*args, **kwargs)
        return self._within.explained()

    def profile(self, *args: Any, **kwargs: Any) -> Any:
        return self._measured(self._within.profile, args, kwargs)

    def explore(self, *args: Any, **kwargs: Any) -> Any:
        return self._measured(self._within.explore, args, kwargs)

    def _measured(self, measure: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = measure(self.places, *args, **kwargs)
        kwargs.pop("calls", None)
        self(*args, **kwargs)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_within":
            raise AttributeError(name)
        found = getattr(self._within, name)
        return partial(found, self.places) if name == "lower" else found


def placed(
    f: Any,
    transformation: Transformation,
    compile: str | None,
    out: Any,
    part: int | None,
    key: Key | None,
    debug: Debug = False,
) -> Any:
    """The function derived from `f`, whose gradient is written into `out` if given; a decorator if
    `f` is None."""
    mode, hook = checked_mode(compile), checked_debug(debug)
    if f is None:
        return lambda g: placed(g, transformation, mode, out, part, key, debug)
    if hook is not None:
        if out is not None:
            raise ArgumentError("debug= plays the tape, and out= is compiled: leave out= away")
        if isinstance(transformation, Gradient):
            transformation = replace(transformation, watched=True)
        return Watched(derived_by(key, f, transformation, "never"), hook)
    found = derived_by(key, f, transformation, mode)
    return found if out is None else Placed(found, out, part)
