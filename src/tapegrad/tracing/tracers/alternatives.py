"""Alternatives to NumPy's public names that are refused.

Each public name of NumPy is in one of four classes: with a derivative; derivative zero; evaluated
without a derivative; refused, with an alternative. The refused ones are declared here, and errors
name their alternatives. docs/numpy.md lists all names, and tests compare each name with its
class.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Iterator
from itertools import islice
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from tapegrad.core.listing import instructions_of
from tapegrad.observe.answers.answers import original_of
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.observer import unobserved
from tapegrad.observe.packages.opaque import is_scipys_own
from tapegrad.observe.program.source import user_frames

_OUTSIDE = "it outside of the function, on what that returns"
_BITS = "x.astype(dtype), which converts numbers: a trace doesn't follow the bits of real ones"

# By the modules and classes that have the names
REFUSED: dict[str, dict[str, str]] = {
    "np": {
        "array2string array_repr array_str format_float_positional format_float_scientific": (
            "a text that is made outside of the function, of what it returns"
        ),
        """bytes_ clongdouble complex256 float128 float16 half longdouble longlong object_
        ulonglong""": "x.astype(dtype); as dtypes they are fine",
        "frombuffer": _BITS,
        "nested_iters": "loops over np.ndindex(x.shape), or functions of whole arrays",
        "save savetxt savez savez_compressed": _OUTSIDE,
        "isnat": "np.isnan: dates can't be traced",
        "sort_complex": "np.sort, of real numbers",
    },
    "np.ndarray": {
        "byteswap ctypes data getfield setfield tofile": _BITS,
        "tobytes": "the numbers themselves: a trace doesn't follow the bits of real ones",
        "dump dumps": _OUTSIDE,
        "setflags": "start with np.copy(x)",
    },
    "np.generic": {
        "as_integer_ratio": _OUTSIDE,
    },
}


def declared() -> Iterator[tuple[str, str, str]]:
    """(module or class, name, alternative) of each refused name."""
    for home, names in REFUSED.items():
        for several, advice in names.items():
            for name in several.split():
                yield home, name, advice


def _module(home: str) -> Any:
    return functools.reduce(getattr, home.split(".")[1:], np)


@functools.cache
def _by_identity() -> dict[int, tuple[str, str]]:
    """(name, alternative) of refused functions and types by id. NumPy keeps them alive."""
    found: dict[int, tuple[str, str]] = {}
    for home, name, advice in declared():
        f = original_of(getattr(_module(home), name, None))
        if f is None or home in ("np.ndarray", "np.generic"):
            continue
        if id(f) not in found or name == f.__name__:  # a function may have several names
            found[id(f)] = f"{home}.{name}", advice
    return found


def is_refused(f: Any) -> bool:
    """Whether a NumPy function is declared as refused."""
    return id(f) in _by_identity()


def use(f: Any) -> str:
    """The alternative to a NumPy function, as errors show it."""
    if getattr(f, "__name__", "").endswith(" (vectorized)"):
        f = np.frompyfunc
    advice = _by_identity().get(id(f), ("", ""))[1]
    return f"Use {advice}" if advice else "Write it with functions that have one"


def use_for(name: str) -> str:
    """The alternative to a method or attribute of arrays, as errors show it."""
    advice = next((a for h, n, a in declared() if h == "np.ndarray" and n == name), "")
    return f"Use {advice}" if advice else "Use a NumPy function that has a rule"


# ---- functions that convert their arguments without dispatching


@unobserved
def called_now() -> tuple[str, str]:
    """The function of NumPy or of a package's C code that the user's program is calling, and its
    alternative. Empty texts if it is unknown or not refused."""
    frame = next(user_frames(), None)
    f = None if frame is None or frame.f_lasti < 0 else original_of(callee(frame, frame.f_lasti))
    known = _by_identity()
    if is_foreign(f):
        return name_of(f), "functions of NumPy's: a package's code in C takes plain arrays alone"
    return known.get(id(f)) or known.get(id(type(f))) or ("", "")


def is_foreign(f: Any) -> bool:
    """Whether `f` is a C function of an installed package."""
    from tapegrad.observe.operands import plain_operands  # that package imports this module

    return callable(f) and plain_operands.is_foreign(f) and not is_scipys_own(f)


def callee(frame: FrameType, at: int) -> Any:
    """The function that the current call or subscript of a frame refers to, if it is a name or an
    attribute of modules. Its instructions start where the call starts in the source."""
    steps = [k for k in instructions_of(frame.f_code) if k.offset <= at]
    now = steps.pop()
    if now.positions is None or now.positions.col_offset is None:
        return None
    start = now.positions[0], now.positions[2]
    names, made = [], False
    for step in steps:
        if step.positions is None or (step.positions[0], step.positions[2]) != start:
            continue
        if step.opname in _FILL:
            continue
        if made or not step.opname.startswith(("LOAD_", "CALL")):
            return None
        if step.opname.startswith("CALL"):
            made = True  # `np.vectorize(f)(x)` calls the result of a call
        else:
            names.append(str(step.argval))
    if not names:
        return None
    found = frame.f_locals.get(names[0], frame.f_globals.get(names[0]))
    for name in names[1:]:
        if not isinstance(found, ModuleType):
            return None
        found = getattr(found, name, None)
    return found if isinstance(found, type) or not made else None


@unobserved
def call_text() -> str:
    """The source text of the user's current call, if it is short; else an empty text. It
    distinguishes several lambdas in a line."""
    frame = next(user_frames(), None)
    return "" if frame is None or frame.f_lasti < 0 else text_at(frame.f_code, frame.f_lasti)


def text_at(code: CodeType, at: int) -> str:
    """The part of a source line that an instruction was compiled from."""
    first, last, start, end = next(islice(code.co_positions(), at // 2, None), (None,) * 4)
    if first is None or first != last or start is None or end is None:
        return ""
    line = linecache.getline(code.co_filename, first).encode()
    found = line[start:end].decode(errors="ignore")
    return found if len(found) <= 60 else ""


_FILL = {
    *("PUSH_NULL", "PRECALL", "CACHE", "RESUME", "COPY_FREE_VARS", "NOP", "KW_NAMES"),
    *("BUILD_MAP", "DICT_MERGE", "BUILD_LIST", "LIST_EXTEND", "LIST_TO_TUPLE"),  # of `f(*x, **y)`
}
