"""What derived functions show of themselves: their tapes, and what became of these."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tapegrad.core.late import CALLS, load
from tapegrad.core.named import Telling
from tapegrad.errors import ArgumentError, TapeError, TraceError
from tapegrad.ir.tape import Tape
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.recording.trace import tracing_depth

if TYPE_CHECKING:
    from tapegrad.insight.explaining import Explanation
    from tapegrad.insight.explorer.page import Exploration
    from tapegrad.insight.profiling import Profile
    from tapegrad.runtime.cache import Cache, Front
    from tapegrad.runtime.variant import Variant


# Who is told of calls whose answer isn't known at once: the function, and its arguments
told: ContextVar[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None] = ContextVar(
    "told", default=None
)


class Shown(Telling):
    """A derived function, as far as it is looked at."""

    cache: Cache
    front: Front
    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @property
    def tapes(self) -> list[Tape]:
        """The tapes in the cache, most recently used first."""
        return [variant.shown for variant in self.cache.all_variants()]

    @property
    def tape(self) -> Tape:
        """The tape that answered the last call of this function, or of one derived in the same way.

        Raises `TapeError` if there was no call yet; use `lower` then.
        """
        return self._last().shown

    @property
    def source(self) -> str:
        """The loops of the last call's tape as Python source, which numba compiles."""
        load(CALLS)
        from tapegrad.runtime.ahead import source_of

        return source_of(self.tape)

    def show(self) -> str:
        """The variant that answered the last call, as text: how it answers, its tape, its plan and
        its source."""
        load(CALLS)
        from tapegrad.runtime.ahead import shown

        return shown(self.__name__, self._last())

    def _check_outside(self, what: str, instead: str = "") -> None:
        if tracing_depth():
            raise TraceError(
                f"{self.__name__} is {what} inside of a function that is traced{at_line()}. Do it "
                f"outside{instead}"
            )

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Call this function, and explain how: which variant answered, what was traced and why,
        which loops of the program stayed loops, and what its lines became. See `tapegrad.explain`.
        """
        self._check_outside("explained")
        self(*args, **kwargs)
        return self.explained()

    def explained(self) -> Explanation:
        """The explanation of the last call."""
        from tapegrad.runtime.ahead import explained

        return explained(self.__name__, self._last(), self.cache)

    def profile(self, *args: Any, calls: int = 20, **kwargs: Any) -> Profile:
        """Call this function several times, and measure where the time goes. See
        `tapegrad.profile`."""
        check_calls(calls)
        self._check_outside("profiled")
        self(*args, **kwargs)
        from tapegrad.runtime.profiled import profiled

        return profiled(self, self._last(), args, kwargs, calls)

    def explore(self, *args: Any, calls: int = 20, **kwargs: Any) -> Exploration:
        """Call this function some times, and show on a page what it does. See
        `tapegrad.explore`."""
        from tapegrad.insight.explorer.page import check_installed

        check_installed()
        check_calls(calls)
        self._check_outside("explored")
        self(*args, **kwargs)
        from tapegrad.runtime.explored import explored

        return explored(self, self._last(), args, kwargs, calls)

    def _last(self) -> Variant:
        """The variant that answered the last call."""
        variants, last = self.cache.all_variants(), self.front.last
        for variant in variants:
            if last is None or last in (variant.entry, variant.playing):
                found: Variant = variant
                return found
        raise TapeError(
            f"{self.__name__} has no tape: it wasn't called yet, or its cache was cleared. Call "
            "it, or ask lower(...) of it with the arguments of a call"
        )


def check_calls(calls: int) -> None:
    """Raise an ArgumentError where so many calls can't be measured."""
    if calls < 1:
        raise ArgumentError(f"calls is a number of calls to measure, from 1 up, not {calls}")
