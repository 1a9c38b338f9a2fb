"""Integers that decide what is recorded, though the tape could compute with them: x ** n is x * x.

The first trace guards such an integer, since what is made for one value is faster. Where a later
call finds another one, the next trace records the operation on the traced integer:

    guard %n = 2, square(%x)     -->     power_of_all(%x, %n)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through, quiet
from tapegrad.ir.tape import Aval
from tapegrad.observe.activations.code_facts import VARIED, places
from tapegrad.observe.observer import following
from tapegrad.observe.program.source import user_source
from tapegrad.primitives.base import Value
from tapegrad.primitives.control import ForeignCall
from tapegrad.tracing.operators.integer_bounds import LARGEST, differs, value

EXPONENT = "an integer exponent"
TO_FLOAT = "an integer that becomes a plain float"
FOR_C = "a number that goes to code in C"


def decides(x: Any, what: str) -> bool:
    """Whether the value of a traced integer may decide as `what`, and be guarded: neither the next
    round nor another call is known to find another one."""
    return not differs(x) and not has_varied(what)


def exponent(n: Any, x: Any) -> Any:
    """The integer exponent of `x ** n`, plain where it may decide: not for a plain number `x`, as
    nothing faster is made of that."""
    if not isinstance(n, Value):
        return int(n)
    traced = isinstance(x, Value)
    return n._guarded_int(EXPONENT) if traced and decides(n, EXPONENT) else n  # type: ignore[attr-defined]


def has_varied(what: str) -> bool:
    """Whether a guard of this kind, at the running line, has failed at an earlier call."""
    o = following.observer
    known = places(o.code, VARIED) if o is not None and o.code is not None else ()
    return bool(known) and hash((what, str(user_source()))) in known


def note_varied(code: CodeType | None, place: tuple[str, str]) -> None:
    """Have later traces of a function know that a guard with this text, at this line, has
    failed."""
    if code is not None:
        places(code, VARIED).add(hash(place))


def of_integers(function: Callable[..., Any], what: str, *args: Any) -> Any:
    """The integer `function(*args)` of integers. Traced ones are plain here, and guarded; where
    that guard has failed, each call calls the function anew."""
    traced = [x for x in args if isinstance(x, Value)]
    plain = [value(x) for x in args]
    if has_varied(what) and None not in plain:
        call = _Anew(function, tuple([None if isinstance(x, Value) else x for x in args]))
        if call(*[value(x) for x in traced])[1]:
            label = getattr(function, "__name__", "a function of integers")
            types = (Aval((), np.dtype(np.int64)), Aval((), np.dtype(np.bool_)))
            foreign = ForeignCall(label, call, types, 0, repeatable=True)
            found, fits = quiet(foreign)(*traced)
            fits._trace.guard(fits, True, "the size of an integer", fixed=True)
            found = found._as_pythons()
            found._trace.bounds[found._read()[0]] = -LARGEST, LARGEST
            return found
    return function(*[x._plain(what) if isinstance(x, Value) else x for x in args])  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Anew:
    """A function of integers, called with its plain arguments and those of a call: its result, and
    whether that is an integer which 64 bits hold."""

    function: Callable[..., Any]
    args: tuple[int | None, ...]

    def __call__(self, *given: Any) -> list[Any]:
        waiting = iter(given)
        try:
            found = self.function(*[int(next(waiting)) if x is None else x for x in self.args])
        except Exception as error:  # of a factorial of -1, say
            let_through(error)
            found = None
        fits = type(found) is int and abs(found) <= LARGEST
        return [np.int64(found if fits else 0), np.bool_(fits)]
