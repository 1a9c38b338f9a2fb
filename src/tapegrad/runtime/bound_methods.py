"""Derived functions that are methods."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from tapegrad.core.named import Telling

if TYPE_CHECKING:
    from tapegrad.insight.explaining import Explanation
    from tapegrad.insight.explorer.page import Exploration
    from tapegrad.insight.profiling import Profile
    from tapegrad.runtime.ahead import Lowered


class BoundDerived(Telling):
    """A derived method bound to its instance, which is passed as an ordinary first argument."""

    def __init__(self, derived: Any, instance: Any) -> None:
        self._function = derived
        self._instance = instance
        self.__wrapped__ = types.MethodType(derived, instance)  # for the names of its parameters

    @property
    def _what(self) -> str:  # type: ignore[override]
        return f"{self._function._what}, a method of {type(self._instance).__name__}"

    @property
    def _held(self) -> str:  # type: ignore[override]
        held: str = self._function._held
        return held

    def _rows(self) -> list[tuple[str, str, int]]:
        rows: list[tuple[str, str, int]] = self._function._rows()
        return rows

    def __reduce__(self) -> Any:
        return BoundDerived, (self._function, self._instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._instance, *args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        return self._function.lower(self._instance, *args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> BoundDerived:
        self._function.compile(self._instance, *args, **kwargs)
        return self

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        return self._function.explain(self._instance, *args, **kwargs)

    def profile(self, *args: Any, calls: int = 20, **kwargs: Any) -> Profile:
        return self._function.profile(self._instance, *args, calls=calls, **kwargs)

    def explore(self, *args: Any, calls: int = 20, **kwargs: Any) -> Exploration:
        return self._function.explore(self._instance, *args, calls=calls, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)
