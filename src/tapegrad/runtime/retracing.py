"""The warning for functions that are traced again and again: what changes, and what helps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tapegrad.backends.numpy.play import run
from tapegrad.ir.tape import Aval
from tapegrad.observe.guards.asked import CALLED_OUTSIDE
from tapegrad.observe.program.source import at_source
from tapegrad.runtime import cache
from tapegrad.tracing.runs.traced import plain_value

if TYPE_CHECKING:
    from tapegrad.core.request import Request
    from tapegrad.observe.guards.state import State
    from tapegrad.runtime.variant import Variant


def warn_of_kinds(name: str, words: Sequence[str], keys: Sequence[Any]) -> None:
    """Say that a function meets other kinds of arguments again and again. Of each kind there is a
    key; `words` is what messages call the leaves of the last one."""
    kinds = [leaves for *_, leaves in keys if len(leaves) == len(words)]
    seen = [list(dict.fromkeys(column)) for column in zip(*kinds, strict=True)]
    changing = [
        f"{word} ({', '.join(map(_shown, different[:3]))}{', ...' if len(different) > 3 else ''})"
        for word, different in zip(words, seen, strict=True)
        if len(different) > 1
    ]
    by_key = len({chosen for chosen, *_ in keys}) > 1
    other = "what key returns" if by_key else "the structure of the arguments"
    what = "; ".join(changing[:3]) or other
    warnings.warn(
        f"{name} was called with {len(keys)} kinds of arguments. Each is traced for "
        f"itself, which costs as much as many calls. What keeps changing is {what}. Pad arrays to "
        "a few fixed shapes, and pass what changes as a number or an array",
        RuntimeWarning,
        stacklevel=5,
    )


def _shown(key: Any) -> str:
    """The key of a leaf, as a user would say it."""
    if isinstance(key, tuple) and len(key) == 3 and isinstance(key[0], tuple):
        return str(Aval(key[0], key[1]))
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type):  # of a static value
        return repr(key[1])
    return key.__name__ if isinstance(key, type) else repr(key)


def why_traced(last: Variant | None, root: Any, request: Request) -> str:
    """Why a call found no variant; `last` was the one before, of the same kind of arguments."""
    if last is None:
        return "these are the first arguments of their kind"
    return _broken_state(last, root, request) or _broken_guard(last, request.inputs)


def warn_of_retracing(
    name: str, last: Variant | None, root: Callable[..., Any], request: Request
) -> None:
    """Say why a call of `name` found no variant among those kept; `last` was the one before."""
    if last is None:
        why = (
            f"with more than {cache.MAX_SIGNATURES} kinds of arguments: their shapes, dtypes, "
            "structures, static values (strings, booleans, objects) or values of key= are others "
            "each time. Pass what changes as a number or an array, pad arrays to a few fixed shapes"
        )
    else:
        reason = why_traced(last, root, request)
        why = (
            f"for more than {cache.MAX_VARIANTS} paths through the same kind of arguments. {reason}"
        )
    warnings.warn(
        f"{name} was traced {why}. The oldest tapes are forgotten, and each trace costs as much as "
        "many calls",
        RuntimeWarning,
        stacklevel=5,
    )


def warn_of_state(name: str, word: str, state: State) -> None:
    """Say why three calls in a row were traced: the same place has changed each time."""
    warnings.warn(
        f"{name} was traced for three calls in a row, and each trace costs as much as many calls. "
        f"{what_changed(word, state)}",
        RuntimeWarning,
        stacklevel=5,
    )


def what_changed(word: str, state: State) -> str:
    """What a call found changed, or can't compare, in the user's words, and the fix."""
    line = at_source(state.where.get(word))
    if word in state.called and not state.never:
        return (
            f"What keeps changing is what {word!r} returns{line}. If it draws random numbers, give "
            "it a seed, or numbers to start from; else call it outside, and pass what it returns"
        )
    of_package = word in state.of_packages
    if not state.never:
        fix = "the function reaches without being passed it. Pass it as an argument"
        if of_package:
            fix = f"an installed package reads or changes there. {CALLED_OUTSIDE}"
        return f"What keeps changing is {word!r}{line}, which {fix}"
    otherwise = CALLED_OUTSIDE if of_package else "Read it outside, and pass it as an argument"
    advice = state.advice or otherwise
    return f"What it reads, {word!r}{line}, can't be compared from call to call. {advice}"


def _broken_state(last: Variant, root: Any, request: Request) -> str:
    word = last.state.broken(root, request.args, request.kwargs)
    return word and what_changed(word, last.state)


def _broken_guard(last: Variant, leaves: Sequence[Any]) -> str:
    try:
        _, guard = run(last.tape, [*map(plain_value, leaves), *last.traced.captured])
    except IndexError:
        return "What keeps failing is an index of the last tape, which is outside of its array"
    guard = guard or last.broken  # by a number that the call has found, or drawn
    if guard is None:
        return "The last one was left by another thread"
    fix = (
        "np.where, np.maximum and np.clip choose without a branch"
        if guard.what == "a condition"
        else "Arrays take a traced index where lists and dicts don't (np.zeros(n), np.array(a)); "
        "keep sizes fixed, and mask what is too much"
    )
    return f"What keeps failing is {guard.what}{at_source(guard.src)}. {fix}"
