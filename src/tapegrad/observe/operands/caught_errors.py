"""Errors of C code that is passed a traced value, which the program catches."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.errors import UnsupportedError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.error_handlers import is_caught
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.uses import Then, both
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.operands.plain_operands import takes_numbers
from tapegrad.observe.program.frames import MISSING
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.base import Value

_OF_MEMORY = (memoryview, bytes, bytearray, np.frombuffer)


def unless_caught(
    a: Activation, f: Any, passed: Any, note: Then | None, args: Any, kwargs: Any
) -> Then | None:
    """The recorder of a call. It also refuses the trace if C code that is passed a traced value
    raises an error that the program catches, unless the plain values `args` and `kwargs` raise an
    error, too."""
    if type(f) is functools.partial and f.func is dispatch.ask:  # it replaces a package's function
        f = f.args[-1]
    if not (takes_numbers(f) or any(f is x for x in _OF_MEMORY)):
        return note
    if not isinstance(passed, (list, tuple)):
        return note
    given = [y for x in passed for y in (x if type(x) in (list, tuple) else (x,))]
    if not any(isinstance(x, Value) for x in given):
        return note

    def done(result: Any) -> None:
        if result is MISSING and is_caught(a) and not _raises(f, args, kwargs):
            a.o.refuse(
                UnsupportedError(
                    f"{name_of(f)} was called with a traced value{at_line()}, raised an error, and "
                    "the program catches it. A package's code in C takes plain values alone, so it "
                    "might be the error of that. Use a function of NumPy's, or declare a function "
                    "that makes this call with tapegrad.primitive and defvjp"
                )
            )

    return both(note, done)


def _raises(f: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call with plain values for traced ones raises an error."""
    try:
        f(*map(_plain, args), **{key: _plain(x) for key, x in dict(kwargs or {}).items()})
    except Exception as error:
        let_through(error)
        return True
    return False


def _plain(x: Any) -> Any:
    if type(x) in (list, tuple):
        return type(x)(map(_plain, x))
    if not isinstance(x, Value):
        return x
    value = np.array(x._read()[1])  # type: ignore[attr-defined]
    if isinstance(x, np.ndarray):
        return value
    return value.item() if x._weak else value[()]  # type: ignore[attr-defined]
