"""The warning for functions that are traced again and again: what changes, and what helps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tapegrad.runtime import cache
from tapegrad.runtime.play import run
from tapegrad.tracing.run import plain_value
from tapegrad.tracing.source import at_source

if TYPE_CHECKING:
    from tapegrad.runtime.derived import Variant


def warn_of_retracing(
    name: str,
    last: Variant | None,
    root: Callable[..., Any],
    leaves: Sequence[Any],
    args: Any,
    kwargs: Any,
) -> None:
    """Say why a call of `name` found no variant among those kept; `last` was the one before."""
    if last is None:
        why = (
            f"with more than {cache.MAX_SIGNATURES} kinds of arguments: their shapes, dtypes, "
            "structures or static values (strings, booleans, objects) are others each time. Pass "
            "what changes as a number or array, and pad arrays to a few fixed shapes"
        )
    else:
        reason = _broken_state(last, root, args, kwargs) or _broken_guard(last, leaves)
        why = (
            f"for more than {cache.MAX_VARIANTS} paths through the same kind of arguments. {reason}"
        )
    warnings.warn(
        f"{name} was traced {why}. The oldest tapes are forgotten, and each trace costs as much as "
        "many calls",
        RuntimeWarning,
        stacklevel=5,
    )


def warn_of_state(name: str, word: str, never: bool) -> None:
    """Say why three calls in a row were traced: the same place has changed each time."""
    if never:
        why = (
            f"What it reads, {word!r}, can't be compared from call to call. Read it outside, and "
            "pass it as an argument; a function that depends on its arguments alone can be "
            "declared with tapegrad.primitive"
        )
    else:
        why = (
            f"What keeps changing is {word!r}, which the function reaches without being passed "
            "it. Pass it as an argument"
        )
    warnings.warn(
        f"{name} was traced for three calls in a row, and each trace costs as much as many calls. "
        f"{why}",
        RuntimeWarning,
        stacklevel=5,
    )


def _broken_state(last: Variant, root: Any, args: Any, kwargs: Any) -> str:
    word = "" if last.state is None else last.state.broken(root, args, kwargs)
    return word and (
        f"What keeps changing is {word!r}, which the function reaches without being passed it. "
        "Pass it as an argument"
    )


def _broken_guard(last: Variant, leaves: Sequence[Any]) -> str:
    try:
        _, guard = run(last.tape, [*map(plain_value, leaves), *last.traced.hidden])
    except IndexError:
        return "What keeps failing is an index of the last tape, which is outside of its array"
    if guard is None:
        return "The last one was left by another thread"
    fix = (
        "np.where, np.maximum and np.clip choose without a branch"
        if guard.what == "a condition"
        else "Index with an integer array (np.take), or keep sizes fixed and mask what is too much"
    )
    return f"What keeps failing is {guard.what}{at_source(guard.src)}. {fix}"
