"""Derived functions that show each computed value to a hook: `grad(f, debug=hook)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from tapegrad.core.frames import short_traceback
from tapegrad.core.late import CALLS, load
from tapegrad.core.named import Telling
from tapegrad.errors import ArgumentError
from tapegrad.runtime.derived import Derived
from tapegrad.tracing.recording.trace import is_untraced

Hook = Literal[True] | Callable[[Any], Any]
Debug = bool | Callable[[Any], Any]


class Watched(Telling):
    """A derived function, played call by call, that shows its values to `hook`; True is the
    search for what makes a result NaN or infinite. Inside of a traced function it is the plain
    derived function."""

    def __init__(self, derived: Derived, hook: Hook) -> None:
        self.derived, self.hook = derived, hook
        self.__wrapped__ = derived
        self.__name__ = derived.__name__

    @property
    def _what(self) -> str:  # type: ignore[override]
        return f"{self.derived._what}, whose values are watched"

    @property
    def _held(self) -> str:  # type: ignore[override]
        return self.derived._held

    def _rows(self) -> list[tuple[str, str, int]]:
        return self.derived._rows()

    def __reduce__(self) -> Any:
        return Watched, (self.derived, self.hook)

    @short_traceback
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_untraced((args, kwargs)):
            return self.derived(*args, **kwargs)
        load(CALLS)
        from tapegrad.insight.watching import Watch
        from tapegrad.runtime.variant import watching

        token = watching.set(Watch(None if self.hook is True else self.hook))
        try:
            return self.derived._slow(args, kwargs)
        finally:
            watching.reset(token)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "derived":
            raise AttributeError(name)
        return getattr(self.derived, name)


def checked_debug(debug: Debug) -> Hook | None:
    """What `debug` asks for, a hook or True; or None."""
    if debug is True:
        return debug
    if debug is False or debug is None:
        return None
    if not callable(debug):
        raise ArgumentError(
            "debug is True, which raises if a result or a gradient is NaN or infinite, or a "
            f"function that each value is shown to, not {debug!r}"
        )
    return debug
