"""Hashes of traced numbers, for dicts, sets and caches.

An integer that is looked up (`table[n]`, `n in {1, 2}`, `table.get(n)`) is guarded. One that is
stored, as a key of a dict or in the table of functools.lru_cache, would outlive its trace, which is
an error. A value found under a real number has no derivative, although it depends on the number. So
a real number may only be tested, by `x in {0.0, 1.0}`. If the program doesn't catch the error, the
trace is repeated with plain numbers for keys (`plain_key`). They are guarded, and it is an error to
differentiate with respect to them.
"""

from __future__ import annotations

import ast
import dis
from types import FrameType
from typing import Any

import numpy as np

from tapegrad.errors import ConversionError
from tapegrad.observe.activations.code_facts import BARE, places
from tapegrad.observe.observer import following
from tapegrad.observe.program.source import at_line, user_frames
from tapegrad.observe.program.syntax import enclosing
from tapegrad.observe.values.exact import is_exact

_SUBSCRIPT = {k for k, (_, sign) in enumerate(getattr(dis, "_nb_ops", ())) if sign == "[]"}


def hash_of(x: Any) -> int:
    """The hash of a traced number in a lookup, which is guarded; an error elsewhere."""
    if not x._is_scalar():
        raise TypeError(f"unhashable type: 'numpy.ndarray'{at_line()}")
    x._trace.check_alive()
    operand, value = x._read()
    whole = x.dtype.kind in "iub"
    found = _asks() or _looks_up() if whole else _asks() and is_exact(x._trace, operand)
    if found:
        x._trace.guard(x, value, "a number that is looked up")
        return hash(value)
    if whole:
        fix = "Use the plain number: int(n)"
    else:
        fix = "Leave real numbers out of what is remembered; compare them, or use np.searchsorted"
    error = ConversionError(f"{_kept(x)}, and would be kept there when the trace is over. {fix}")
    error.notes = () if whole else notes_about(x)
    error.may_be_caught = True  # by a cache of results, which then computes them
    raise error


def notes_about(x: Any) -> tuple[tuple[set[int], int], ...]:
    """The fact with which a failed trace is repeated: the instruction at which a real number has to
    be plain."""
    o = following.observer
    return ((places(o.code, BARE), _site()),) if o is not None and x._stands_for_one() else ()


def needs_plain() -> bool:
    """Whether an earlier trace has failed here, since it needs a plain number."""
    o = following.observer
    known = places(o.code, BARE) if o is not None else ()
    return bool(known) and _site() in known


def plain_key(x: Any) -> float | None:
    """The guarded plain value of a traced real number, at instructions that need it; else None."""
    if not needs_plain() or x._read()[1] is None:
        return None
    if np.isnan(x._read()[1]):  # a NaN is found only as the same object
        return None
    fix = (
        "What is found by it has no derivative with respect to it. If it needs none, make the key "
        "of tapegrad.stop_gradient(x); else compare real numbers, or use np.searchsorted"
    )
    value = x._taken_for_plain(f"{_kept(x)}. {fix}")
    return None if value is None else float(value) if x._weak else x.dtype.type(value)


def _site() -> int:
    """A key of the current instruction of the user's program."""
    frame = next(user_frames(), None)
    return -1 if frame is None else hash((frame.f_code, frame.f_lasti))


def _kept(x: Any) -> str:
    return (
        f"a traced number ({x._aval}) is the key of a dict, the element of a set or the argument "
        f"of a function that remembers its results{at_line()}"
    )


def _asks() -> bool:
    """Whether the user's program is evaluating `x in table`."""
    frame = next(user_frames(), None)
    return frame is not None and _operation(frame)[0] == "CONTAINS_OP"


def _looks_up() -> bool:
    """Whether the user's program is evaluating `table[x]` or `table.get(x)`."""
    frame = next(user_frames(), None)
    if frame is None:
        return False
    name, arg = _operation(frame)
    if name == "BINARY_SUBSCR" or (name == "BINARY_OP" and arg in _SUBSCRIPT):
        return True
    *_, node = [None, *enclosing(frame)]
    named = node.func if isinstance(node, ast.Call) else None
    return isinstance(named, ast.Attribute) and named.attr == "get"


def _operation(frame: FrameType) -> tuple[str, int]:
    """The current instruction of a frame, and its argument."""
    code, at = frame.f_code.co_code, max(frame.f_lasti, 0)
    return dis.opname[code[at]], code[at + 1]
