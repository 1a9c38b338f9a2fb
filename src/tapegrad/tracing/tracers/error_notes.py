"""Notes on errors of Python and C libraries caused by a traced value: the user's call, why it can't
work, and what to do."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

from tapegrad.core.request import Request, argument_names
from tapegrad.core.trees import is_traced
from tapegrad.errors import TapegradError
from tapegrad.observe.answers.answers import original_of
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.program.source import at_line, is_users, is_users_path
from tapegrad.tracing.tracers.alternatives import callee, is_foreign, text_at

# Libraries with their own arrays, and their name for NumPy
_OTHERS = {"jax": "jax.numpy", "torch": "torch", "tensorflow": "tf", "autograd": "autograd.numpy"}
_WANTS_AN_ARRAY = re.compile(r"(expect|requir|must be|argument|convert|\bgot\b|\bnot\b).*ndarray")
_MEMORY = re.compile(r"__array_(interface|struct)__")


def explain(error: BaseException, request: Request) -> None:
    """Add a note to an error of the function, if a traced value may be its cause."""
    note = _note(error, request)
    known = [text.startswith("tapegrad: ") for text in getattr(error, "__notes__", ())]
    if note and not any(known):
        error.add_note(f"tapegrad: {note}")


def explain_call(error: BaseException, f: Any) -> None:
    """The same for an error of a package's C function that was called with a traced value."""
    if isinstance(error, TapegradError):
        return
    error.add_note(
        f"tapegrad: {name_of(f)} was called with a traced value{at_line()}, and a package's code "
        "in C takes plain ones alone. Use a function of NumPy's, or declare a function that makes "
        "this call with tapegrad.primitive and defvjp"
    )


def _note(error: BaseException, request: Request) -> str:
    if not isinstance(error, (TypeError, AttributeError)):
        return ""
    text, frames = str(error), list(_frames(error.__traceback__))
    roots = {f.tb_frame.f_globals.get("__name__", "").partition(".")[0] for f in frames}
    frames = [f for f in frames if not f.tb_frame.f_code.co_filename.endswith((".pyx", ".pxd"))]
    last: Any = next((f for f in reversed(frames) if is_users(f.tb_frame.f_code)), None)
    called = None if last is None else original_of(callee(last.tb_frame, last.tb_lasti))
    roots.add(str(getattr(called, "__module__", "")).partition(".")[0])
    other = next((name for name in _OTHERS if name in roots), None)
    if other is not None:
        return (
            f"{other} was called with a traced array, which it doesn't know. tapegrad traces plain "
            f"NumPy: use numpy in the place of {_OTHERS[other]}, and arrays of {other}'s as "
            "np.asarray(x), made outside of the function"
        )
    listed = re.search(r"'(list|tuple|dict)'|sequence", text) is not None
    for k, x in enumerate(request.args):
        values = x.values() if type(x) is dict else x
        if listed and type(x) in (list, tuple, dict) and x and all(map(is_traced, values)):
            name = argument_names(request.f, len(request.args))[k]
            if type(x) is dict:
                return (
                    f"argument {name!r} is a dict in the function too, which has no arithmetic. "
                    f"Compute with its entries, {name}[{next(iter(x))!r}]: the gradient is a dict "
                    "of theirs"
                )
            return (
                f"argument {name!r} is a {type(x).__name__} in the function too, which has no "
                f"arithmetic of arrays. Pass np.array({name}), whose gradient is an array, or "
                f"begin with {name} = np.array({name})"
            )
    in_c = last is not None and is_users_path(frames[-1].tb_frame.f_code.co_filename)
    in_c = in_c and (is_foreign(called) or _WANTS_AN_ARRAY.search(text) is not None)
    if in_c or (last is not None and _MEMORY.search(text)):
        call = text_at(last.tb_frame.f_code, last.tb_lasti)
        here = f"`{call}`" if call else "this call"
        return (
            f"in {request.name} arrays are traced, and code in C that {here} comes to takes "
            "plain ones alone. Use a function of NumPy's, or declare a function that makes this "
            "call with tapegrad.primitive and defvjp"
        )
    return ""


def _frames(traceback: TracebackType | None) -> Any:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
